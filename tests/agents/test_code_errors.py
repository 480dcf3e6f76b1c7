"""A mistake in the code of a tool or a model ends its task at once; what waiting cannot mend is not waited for."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from chargehand import Failure, Plan, Reply, ScriptedModel, Supervisor, Task, Team, ToolFailed, Worker, tool
from chargehand.code_errors import code_error, is_outage
from chargehand.engine import events as ev
from chargehand.engine.plan import TaskId
from chargehand.engine.policy import Limits, Policy
from chargehand.models.messages import Request
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.testing.scripted import Line
from chargehand.tools.tool import Tool
from tests.agents.crowd import call, calls
from tests.agents.playhouse import Playhouse, notes

HERE = Path(__file__)
FINE = ScriptedModel(["fine"], repeat=True)


def many(count: int, *workers: str) -> Plan:
    tasks = (Task(TaskId(f"t{n}"), f"Count the boats of harbour {n}.", workers[n % len(workers)]) for n in range(count))
    return Plan(tuple(tasks), "none")


def wide(count: int) -> Policy:
    return Policy(limits=Limits(max_tasks=count, fan_out=count))


class Own:
    """Somebody's own model: it does what a function does."""

    def __init__(self, act: Callable[[Request], Reply], handle: str = "own") -> None:
        self.card = ModelCard(handle)
        self.calls = 0
        self._act = act

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self.calls += 1
        return self._act(request)


def misses_an_attribute(_request: Request) -> Reply:
    nothing: Any = None
    return nothing.choices


def of(entries: Sequence[ev.Entry], kind: type) -> list[ev.Event]:
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


def failures(entries: Sequence[ev.Entry]) -> list[Failure]:
    return [entry.event.failure for entry in entries if isinstance(entry.event, ev.AttemptFailed)]


# --- models


@pytest.mark.parametrize("count", [1, 3, 10, 50])
def test_a_mistake_in_a_model_fails_each_task_at_its_first_attempt_and_nothing_is_waited_for(count: int) -> None:
    model = Own(misses_an_attribute)
    house = Playhouse()
    team = Team([Worker("ann", model=model)], supervisor=Supervisor(model=FINE, plan=many(count, "ann")), timeout=3600)
    entries = house.run(team)
    assert house.now == 0.0
    assert model.calls == count
    assert not of(entries, ev.RetryScheduled)
    assert not of(entries, ev.SupervisionStarted)
    assert len(of(entries, ev.TaskFailed)) == count


def test_the_journal_keeps_where_the_mistake_is_as_data() -> None:
    house = Playhouse()
    entries = house.run(
        Team([Worker("ann", model=Own(misses_an_attribute))], supervisor=Supervisor(model=FINE, plan=many(1, "ann")))
    )
    (failure,) = failures(entries)
    assert (failure.kind, failure.permanent) == ("logic", True)
    mistake = failure.code_error
    assert mistake is not None
    assert (mistake.exception, mistake.message) == ("AttributeError", "'NoneType' object has no attribute 'choices'")
    last = mistake.frames[-1]
    assert last.file in (HERE.name, str(HERE.relative_to(Path.cwd())))
    assert last.function == "misses_an_attribute"
    assert last.source.startswith("return nothing.choices")
    assert f"{HERE.name}, line {last.line}, in misses_an_attribute" in failure.message


def test_the_next_model_gets_its_chance_when_the_first_has_a_mistake() -> None:
    ann = Worker("ann", model=Own(misses_an_attribute), fallback_models=(FINE,))
    entries = Playhouse().run(Team([ann], supervisor=Supervisor(model=FINE, plan=many(2, "ann"))))
    assert not failures(entries)
    assert "falls back to model" in notes(entries)[0]


def test_another_worker_gets_its_chance_when_the_first_has_a_mistake() -> None:
    ann = Worker("ann", model=Own(misses_an_attribute), fallbacks=("bob",))
    bob = Worker("bob", model=FINE)
    entries = Playhouse().run(Team([ann, bob], supervisor=Supervisor(model=FINE, plan=many(2, "ann"))))
    assert len(of(entries, ev.AttemptSucceeded)) == 2


def test_a_mistake_in_the_planners_model_ends_the_run_at_once() -> None:
    house = Playhouse()
    model = Own(misses_an_attribute)
    entries = house.run(Team([Worker("ann", model=model)], supervisor=Supervisor(model=model), timeout=3600))
    (failed,) = of(entries, ev.SupervisionFailed) or of(entries, ev.AttemptFailed)
    assert isinstance(failed, ev.SupervisionFailed | ev.AttemptFailed)
    assert failed.failure.code_error is not None
    assert isinstance(entries[-1].event, ev.RunEnded)
    assert entries[-1].event.ending == "failed"
    assert house.now == 0.0


# --- who is lost, and who is not


def test_a_mistake_in_every_second_of_300_tasks_loses_only_those() -> None:
    def script(request: Request) -> Line:
        if int(request.messages[1].text.split("harbour ")[1].split(".")[0]) % 2:
            raise TypeError("odd harbours are not reckoned with")
        return "7 boats"

    house = Playhouse()
    team = Team(
        [Worker("ann", model=ScriptedModel(script))],
        supervisor=Supervisor(model=FINE, plan=many(300, "ann")),
        policy=wide(300),
        timeout=3600,
    )
    entries = house.run(team)
    done = {event.task for event in of(entries, ev.AttemptSucceeded) if isinstance(event, ev.AttemptSucceeded)}
    assert done == {f"t{n}" for n in range(0, 300, 2)}
    assert house.now < 1.0


@pytest.mark.parametrize("final", [True, False])
def test_workers_that_give_up_honestly_do_not_count_for_a_breaker(final: bool) -> None:
    def script(request: Request) -> Line:
        if "harbour 19" in request.messages[1].text:
            return "7 boats"
        return calls(call("give_up", 1, reason="this harbour has no gate", final=final))

    house = Playhouse()
    policy = structs.replace(wide(20), refine=False, limits=Limits(max_tasks=20, fan_out=20, width=1))
    team = Team(
        [Worker("ann", model=ScriptedModel(script))],
        supervisor=Supervisor(model=FINE, plan=many(20, "ann")),
        policy=policy,
    )
    entries = house.run(team)
    assert len(of(entries, ev.AttemptSucceeded)) == 1
    assert not notes(entries)
    assert house.now == 0.0


def test_an_outage_still_opens_the_breaker() -> None:
    def down(_request: Request) -> Reply:
        raise ModelFailed(Failure("network", "the line is dead"))

    entries = Playhouse().run(
        Team([Worker("ann", model=Own(down))], supervisor=Supervisor(model=FINE, plan=many(6, "ann")), timeout=3600)
    )
    assert notes(entries)[0].startswith("breaker open: model own is out of order")


def test_a_probe_that_meets_a_mistake_does_not_keep_the_others_waiting() -> None:
    """The line is dead for 20 s; the first call after that is a mistake, the others would be fine."""
    seen: list[float] = []

    async def reply(request: Request, hear: Hear | None = None) -> Reply:
        now = asyncio.get_running_loop().time()
        seen.append(now)
        if now < seen[0] + 20:
            raise ModelFailed(Failure("network", "the line is dead"))
        if len([at for at in seen if at >= seen[0] + 20]) == 1:
            raise TypeError("a mistake")
        return Reply("7 boats")

    model = Own(misses_an_attribute)
    model.reply = reply
    house = Playhouse()
    entries = house.run(
        Team([Worker("ann", model=model)], supervisor=Supervisor(model=FINE, plan=many(4, "ann")), timeout=3600)
    )
    at = [entry.at for entry in entries if isinstance(entry.event, ev.AttemptFailed) and entry.event.failure.code_error]
    done = [entry.at for entry in entries if isinstance(entry.event, ev.AttemptSucceeded)]
    assert len(at) == 1
    assert done
    assert done[0] - at[0] < 1.0


# --- tools


def using(look: Tool, effect: str = "") -> ScriptedModel:
    """Call the tool once with "Rome", then say what came of it."""

    def script(request: Request) -> Line:
        told = [one.text for one in request.messages if one.role == "tool"]
        return told[-1] if told else calls(call(look.name, 1, city="Rome"))

    return ScriptedModel(script)


PRICES = {"Oslo": 7}


def by_attribute(city: Any) -> str:
    return city.price


def by_name(city: str) -> str:
    return prices[city]  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownVariableType]


def by_type(city: Any) -> str:
    return city + 1


def by_key(city: str) -> str:
    return {"city": city}["town"]


def by_index(city: str) -> str:
    return city.split()[3]


def by_assertion(city: str) -> str:
    assert not city, "this cannot happen"
    return city


def by_group(city: str) -> str:
    raise ExceptionGroup("several", [ValueError("no"), TypeError("a mistake")])


@pytest.mark.parametrize("how", [by_attribute, by_name, by_type, by_key, by_index, by_assertion, by_group])
@pytest.mark.parametrize("quick", [True, False], ids=["on the loop", "in a thread"])
async def test_a_mistake_in_a_tool_fails_the_task_at_once_and_says_where(
    how: Callable[[str], str], quick: bool
) -> None:
    def look(city: str) -> str:
        """Look a price up."""
        return how(city)

    made = tool(quick=quick)(look)
    model = using(made)
    team = Team([Worker("ann", model=model, tools=[made])], supervisor=Supervisor(model=FINE, plan=many(1, "ann")))
    found = await team.run("go")
    (failure,) = failures(found.entries)
    assert failure.permanent
    assert failure.code_error is not None
    assert how.__name__ in {frame.function for frame in failure.code_error.frames}
    assert failure.message.startswith(f"the tool look: {failure.code_error.exception}")
    assert not of(found.entries, ev.SupervisionStarted)
    finished = [event for event in of(found.entries, ev.StepFinished) if isinstance(event, ev.StepFinished)]
    assert json.loads(bytes(finished[-1].result))["code_error"]["frames"][-1]["file"].endswith(HERE.name)


def refuses(city: str) -> str:
    raise ToolFailed(f"there is no {city}; try Oslo")


def values(city: str) -> str:
    raise ValueError(f"{city!r} is no harbour; try Oslo")


def key_of_the_model(city: str) -> str:
    return str(PRICES[city])


def lower_key_of_the_model(city: str) -> str:
    return str(PRICES[city.lower()])


def own_class(city: str) -> str:
    class Closed(Exception):
        pass

    raise Closed("the shop is closed")


def missing_file(city: str) -> str:
    return Path(f"/nonexistent/{city}").read_text()


@pytest.mark.parametrize("how", [refuses, values, key_of_the_model, lower_key_of_the_model, own_class, missing_file])
async def test_what_a_model_can_put_right_is_told_to_it_and_never_shuts_the_tool(how: Callable[[str], str]) -> None:
    @tool
    def look(city: str) -> str:
        """Look a price up."""
        return how(city)

    team = Team(
        [Worker("ann", model=using(look), tools=[look])], supervisor=Supervisor(model=FINE, plan=many(12, "ann"))
    )
    found = await team.run("go")
    assert not failures(found.entries)
    assert len(of(found.entries, ev.AttemptSucceeded)) == 12
    assert not notes(found.entries)


async def test_an_effect_that_meets_a_mistake_is_in_doubt_and_its_traceback_is_kept() -> None:
    @tool(effect="effect")
    def pay(city: str) -> str:
        """Pay for a berth."""
        return by_attribute(city)

    supervisor = Supervisor(model=FINE, plan=many(1, "ann"))
    team = Team([Worker("ann", model=using(pay), tools=[pay])], supervisor=supervisor, policy=Policy(uncertain="fail"))
    result = await team.run("go")
    (failure,) = failures(result.entries)
    assert (result.ending, failure.kind) == ("failed", "uncertain")
    assert failure.code_error is not None
    assert failure.code_error.exception == "AttributeError"
    (gap,) = result.gaps
    assert (gap.reason, gap.tool, gap.arguments) == ("uncertain", "pay", {"city": "Rome"})
    assert (
        'it is not known whether pay({"city":"Rome"}) happened; the attempt ended with AttributeError: ' in gap.message
    )
    assert f"{HERE.name}, line " in gap.message


async def test_a_person_who_is_asked_about_an_effect_is_told_what_ended_it() -> None:
    @tool(effect="effect")
    def pay(city: str) -> str:
        """Pay for a berth."""
        raise ValueError(f"bad {city}")

    team = Team(
        [Worker("ann", model=using(pay), tools=[pay])],
        supervisor=Supervisor(model=FINE, plan=many(1, "ann")),
        policy=Policy(uncertain="ask"),
    )
    result = await team.run("go")
    assert result.question is not None
    assert "; it ended with pay: ValueError: bad " in result.question.text
    (failure,) = failures(result.entries)
    assert failure.cause.startswith("pay: ValueError: bad ")


async def test_calls_beside_one_that_meets_a_mistake_are_finished_first() -> None:
    done: list[str] = []

    @tool(effect="effect")
    async def pay(city: str) -> str:
        """Pay for a berth."""
        await asyncio.sleep(0.05)
        done.append(city)
        return "paid"

    @tool
    async def look(city: str) -> str:
        """Look a price up."""
        return by_attribute(city)

    model = ScriptedModel([calls(call("look", 1, city="Rome"), call("pay", 2, city="Rome"))], repeat=True)
    team = Team([Worker("ann", model=model, tools=[look, pay])], supervisor=Supervisor(model=FINE, plan=many(1, "ann")))
    (failure,) = failures((await team.run("go")).entries)
    assert done == ["Rome"]
    assert failure.kind == "logic"
    assert failure.code_error is not None


# --- the rule itself


def raised(act: Callable[[], object]) -> BaseException:
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("it did not raise")


class Disconnected(Exception):
    """What a library raises for a lost connection."""


def library() -> None:
    try:
        raise ConnectionResetError("reset by peer")
    except OSError as error:
        raise Disconnected("no answer") from error


def hidden() -> None:
    try:
        raise ConnectionResetError("reset by peer")
    except OSError:
        raise Disconnected("no answer") from None


@pytest.mark.parametrize(
    ("error", "mistake", "outage"),
    [
        (ConnectionError("gone"), False, True),
        (TimeoutError("late"), False, True),
        (OSError("no route to host"), False, True),
        (FileNotFoundError("no such file"), False, False),
        (PermissionError("not yours"), False, False),
        (raised(library), False, True),
        (raised(hidden), False, False),
        (ValueError("no"), False, False),
        (RuntimeError("the API answered 500"), False, False),
        (ZeroDivisionError("by nothing"), False, False),
        (AttributeError("no such thing"), True, False),
        (ModuleNotFoundError("no such module"), True, False),
        (NotImplementedError("not yet"), True, False),
        (RecursionError("too deep"), True, False),
        (ExceptionGroup("two", [ValueError("no"), ConnectionError("gone")]), False, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_every_exception_is_a_mistake_an_outage_or_neither(error: BaseException, mistake: bool, outage: bool) -> None:
    assert (code_error(error) is not None, is_outage(error)) == (mistake, outage)


def test_an_exception_that_cannot_be_shown_is_still_told() -> None:
    class Sly(TypeError):
        def __str__(self) -> str:
            raise ValueError("no")

    mistake = code_error(Sly())
    assert mistake is not None
    assert mistake.message == "(its message cannot be shown)"
