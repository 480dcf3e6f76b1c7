"""Toolboxes: declared before they are opened, opened by the first call, closed with the executor, never a run's end."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from chargehand import (
    Factory,
    Plan,
    Reply,
    Result,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    Tool,
    ToolCall,
    Worker,
    tool_from_schema,
    toolbox_tools,
)
from chargehand.errors import Invalid
from chargehand.tools import toolbox as toolboxes

CITY = {"properties": {"city": {"type": "string"}}, "required": ["city"]}


class Weather:
    """A toolbox whose session belongs to the task that opened it, as sessions of anyio do."""

    name = "weather"

    def __init__(self, *, fails: int = 0, offered: Sequence[str] = ("rain", "wind")) -> None:
        self.opened = 0
        self.closed = 0
        self.fails = fails
        self.offered = offered
        self.crash = asyncio.Event()
        self.ended = asyncio.Event()

    def _tool(self, name: str, *, session: int) -> Tool:
        async def call(city: str) -> str:
            return f"{name} in {city}, session {session}"

        return tool_from_schema(name, f"The {name} in a city.", CITY, call)

    def tools(self) -> list[Tool]:
        return [self._tool(name, session=0) for name in ("rain", "wind")]

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[list[Tool]]:
        self.opened += 1
        if self.opened <= self.fails:
            raise ConnectionError("no line to the weather station")
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen)
                yield [self._tool(name, session=self.opened) for name in self.offered]
                group.cancel_scope.cancel()
            self.closed += 1
        finally:
            self.ended.set()

    async def _listen(self) -> None:
        await self.crash.wait()
        raise ConnectionError("the weather station hung up")


def wish(name: str = "rain") -> Reply:
    return Reply(calls=(ToolCall("1", name, '{"city": "Delft"}'),), finish="tools")


def team(box: Weather, *script: Reply | str, count: int = 1) -> Team:
    workers = [
        Worker(f"w{number}", tools=[box], model=ScriptedModel(script or [wish(), "wet"])) for number in range(count)
    ]
    tasks = tuple(Task(f"t{number}", "Look.", worker.name) for number, worker in enumerate(workers))
    return Team(workers, supervisor=Supervisor(plan=Plan(tasks, "none")))


def returned(result: Result) -> str:
    """All that the tools of a run returned, as it was journaled."""
    steps = [step for task in result.trace().tasks for attempt in task.attempts for step in attempt.steps]
    return " ".join(str(step.result) for step in steps if step.kind == "tool")


def test_its_tools_are_known_before_it_is_opened() -> None:
    box = Weather()
    made = team(box)
    assert made.roster.agents[0].tools == ("rain", "wind")
    assert box.opened == 0


def test_it_is_opened_by_a_call_and_closed_after_the_run_without_an_event_loop() -> None:
    box = Weather()
    result = team(box).run_sync("Is it raining in Delft?")
    assert result.ending == "complete"
    assert "rain in Delft, session 1" in returned(result)
    assert (box.opened, box.closed) == (1, 1)


def test_a_run_that_calls_none_of_its_tools_does_not_open_it() -> None:
    box = Weather()
    assert team(box, "dry").run_sync("Is it raining?").ending == "complete"
    assert box.opened == 0


async def test_all_workers_and_runs_of_an_executor_share_one_opening() -> None:
    box = Weather()
    made = team(box, *[wish(), "wet"] * 5, count=3)
    async with made:
        async with asyncio.TaskGroup() as runs:
            jobs = [runs.create_task(made.run(f"Look {number}.")) for number in range(5)]
        assert box.closed == 0
    assert {job.result().ending for job in jobs} == {"complete"}
    assert (box.opened, box.closed) == (1, 1)


async def test_one_that_cannot_be_opened_fails_the_call_and_is_tried_again_by_the_next() -> None:
    box = Weather(fails=1)
    result = await team(box, wish(), wish("wind"), "wet").run("Is it raining?")
    assert result.ending == "complete"
    assert "weather could not be opened: ConnectionError: no line to the weather station" in returned(result)
    assert "wind in Delft, session 2" in returned(result)


class Misspelt(Weather):
    """A toolbox whose code is wrong."""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[list[Tool]]:
        yield self.tolls()  # type: ignore[attr-defined]


async def test_a_mistake_in_the_code_that_opens_it_fails_the_task_at_once_and_says_where() -> None:
    result = await team(Misspelt()).run("Is it wet?")
    (gap,) = result.gaps
    assert "the tool rain: AttributeError: 'Misspelt' object has no attribute 'tolls' (" in gap.message
    assert "test_toolbox.py, line" in gap.message
    assert result.spent.calls == 1


@pytest.mark.parametrize("tools", [None, ["rain"], asyncio.sleep])
def test_one_that_declares_no_list_of_tools_is_refused(tools: object) -> None:
    class Wrong(Weather):
        def tools(self) -> Any:
            return tools

    with pytest.raises(Invalid, match="toolbox 'weather': tools\\(\\) must return a list of tools"):
        team(Wrong())


def test_one_that_cannot_be_opened_as_a_context_is_refused_when_it_is_declared() -> None:
    class Box:
        name = "box"

        def tools(self) -> Sequence[Tool]:
            return ()

    class Plain(Box):
        async def open(self) -> Sequence[Tool]:
            return ()

    class Undecorated(Box):
        async def open(self) -> AsyncGenerator[Sequence[Tool]]:
            yield ()

    wrong: list[Any] = [Plain(), Undecorated()]
    for toolbox in wrong:
        with pytest.raises(Invalid, match=r"toolbox 'box': open\(\) needs @asynccontextmanager"):
            Worker("ann", tools=[toolbox])
    given: Any = Plain
    with pytest.raises(Invalid, match=r"Plain is a class of toolboxes; write Plain\(\.\.\.\)"):
        Worker("ann", tools=[given])


async def test_one_that_hangs_while_it_opens_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolboxes, "OPEN_TIMEOUT", 0.05)

    class Hanging(Weather):
        @asynccontextmanager
        async def open(self) -> AsyncGenerator[list[Tool]]:
            await asyncio.Event().wait()
            yield []

    result = await team(Hanging()).run("Is it raining?")
    assert result.ending == "complete"
    assert "it took longer than 0.05 s" in returned(result)


async def test_one_that_ends_by_itself_is_opened_again_for_the_next_call(caplog: pytest.LogCaptureFixture) -> None:
    box = Weather()
    made = team(box, wish(), "wet", wish(), "wet")
    async with made:
        await made.run("Look.")
        with caplog.at_level(logging.WARNING):
            box.crash.set()
            async with asyncio.timeout(30):
                await box.ended.wait()
        box.crash.clear()
        result = await made.run("Look again.")
    assert "toolbox weather ended" in caplog.text
    assert "session 2" in returned(result)
    assert (box.opened, box.closed) == (2, 1)


async def test_a_tool_that_it_does_not_offer_any_more_fails_its_calls() -> None:
    box = Weather(offered=["wind"])
    result = await team(box, wish(), "no idea").run("Is it raining?")
    assert result.ending == "complete"
    assert "rain is not offered by weather any more" in returned(result)


async def test_effect_and_schema_stay_as_they_were_declared() -> None:
    class Widened(Weather):
        def _tool(self, name: str, *, session: int) -> Tool:
            async def call(**arguments: object) -> str:
                return f"{name} {arguments}"

            declared = {**CITY, "additionalProperties": False}
            wider: dict[str, object] = {"properties": {"country": {"type": "string"}}}
            schema = declared if session == 0 else wider
            return tool_from_schema(name, "", schema, call)

    sly = Reply(calls=(ToolCall("1", "rain", '{"city": "Delft", "country": "NL"}'),), finish="tools")
    result = await team(Widened(), sly, "no idea").run("Is it raining?")
    assert "which is not wanted" in returned(result)


def test_some_of_its_tools_can_be_taken() -> None:
    box = Weather()
    (wind,) = toolbox_tools(box, "w*")
    made = Team([Worker("ann", tools=[wind], model=ScriptedModel([wish("wind"), "calm"]))], supervisor=one_task("ann"))
    assert made.roster.agents[0].tools == ("wind",)
    assert "wind in Delft, session 1" in returned(made.run_sync("Look."))
    with pytest.raises(Invalid, match="toolbox 'weather' has no tool 'rian'; did you mean 'rain'"):
        toolbox_tools(box, "rian")


def one_task(worker: str, factory: Factory | None = None) -> Supervisor:
    made = ScriptedModel(['{"persona": "You look.", "tools": ["rain"]}', wish(), "wet"])
    return Supervisor(model=made, plan=Plan((Task("t1", "Look.", worker),), "forward"), factory=factory)


def test_made_workers_have_its_tools_as_well() -> None:
    box = Weather()
    result = Team([], supervisor=one_task("factory", Factory(tools=[box]))).run_sync("Look.")
    assert "rain in Delft, session 1" in returned(result)
    assert (box.opened, box.closed) == (1, 1)
