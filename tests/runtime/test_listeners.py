"""Listeners of a team: they hear every entry of every run, and hurt none."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chargehand import Plan, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.agents.messages import ONE
from chargehand.engine.events import Entry
from chargehand.errors import Invalid
from chargehand.models.messages import Reply, ToolCall


def make_team() -> Team:
    plan = Plan((Task("t1", "Count.", "ann"),), "forward")
    return Team([Worker("ann", model=ScriptedModel(["12"], repeat=True))], supervisor=Supervisor(plan=plan))


async def test_several_listeners_hear_every_entry_of_runs_and_streams() -> None:
    team = make_team()
    first: list[int] = []
    second: list[int] = []
    third: list[int] = []
    team.add_listener(lambda _run, entries: first.extend(entry.seq for entry in entries))
    team.add_listener(lambda _run, entries: second.extend(entry.seq for entry in entries))
    result = await team.run("Count", listener=lambda _run, entries: third.extend(entry.seq for entry in entries))
    assert first == second == third == [entry.seq for entry in result.entries]
    streamed = [entry.seq async for entry in team.stream("Count")]
    assert first[len(third) :] == streamed
    assert third == [entry.seq for entry in result.entries]


@pytest.mark.parametrize("count", [1, 3])
def test_a_listener_that_fails_hurts_neither_the_run_nor_the_others(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def broken(run: str, _entries: Sequence[Entry]) -> None:
        calls.append(run)
        raise TypeError("a mistake in a listener")

    team = make_team()
    heard: list[Entry] = []
    for _ in range(count):
        team.add_listener(broken)
    team.add_listener(lambda _run, entries: heard.extend(entries))
    with caplog.at_level(logging.WARNING, "chargehand.runtime"):
        result = team.run_sync("Count")
        again = team.run_sync("Count")
    assert (result.ending, again.ending) == ("complete", "complete")
    assert len(heard) == len(result.entries) + len(again.entries)
    assert "a mistake in a listener" in caplog.text
    assert len(calls) == 1  # after that it is dropped
    assert "broken failed on run" in caplog.text


async def listen_later(_run: str, _entries: Sequence[Entry]) -> None:
    """Nobody would wait for this."""


def listen_to_more(_run: str, _entries: Sequence[Entry], _more: object) -> None:
    """Nobody would hand over a third argument."""


@pytest.mark.parametrize(
    ("listener", "problem"),
    [
        (3, "3 is no function"),
        (lambda: None, "too many positional arguments"),
        (listen_to_more, "missing a required argument: '_more'"),
        (listen_later, "it is async, and a listener is not awaited"),
    ],
)
async def test_what_cannot_listen_is_refused_at_once_with_what_to_write(listener: Any, problem: str) -> None:
    team = make_team()
    with pytest.raises(Invalid, match=f"{problem}; write a plain function: def listen"):
        team.add_listener(listener)
    with pytest.raises(Invalid, match="write"):
        await team.run("Count", listener=listener)
    assert (await team.run("Count")).ending == "complete"


class Heard(dict[str, list[int]]):
    """The numbers of the entries a listener heard, by run."""

    def __call__(self, run: str, entries: Sequence[Entry]) -> None:
        self.setdefault(run, []).extend(entry.seq for entry in entries)


def make_nested(inner: Team, journal: Path | None = None) -> Team:
    plan = Plan((Task("t1", "Count.", "counters"),), "forward")
    return Team([inner.as_worker("counters")], supervisor=Supervisor(plan=plan), journal=journal)


async def test_both_teams_hear_the_run_of_a_team_inside_another(tmp_path: Path) -> None:
    inner = make_team()
    outer = make_nested(inner, journal=tmp_path / "runs.db")
    heard_inside = Heard()
    heard_outside = Heard()
    inner.add_listener(heard_inside)
    outer.add_listener(heard_outside)
    own = Heard()
    result = await outer.run("Count", listener=own)
    assert list(own) == [result.run]
    (nested,) = heard_inside
    assert nested != result.run
    assert set(heard_outside) == {result.run, nested}
    async with outer.open_journal() as journal:
        for run, numbers in heard_outside.items():
            assert numbers == [entry.seq for entry in await journal.read(run)]
        assert heard_inside[nested] == heard_outside[nested]


async def test_a_listener_of_both_teams_hears_each_entry_once_and_streams_stay_one_run() -> None:
    inner = make_team()
    outer = make_nested(inner)
    heard = Heard()
    inner.add_listener(heard.__call__)
    outer.add_listener(heard.__call__)
    streamed = [entry.seq async for entry in outer.stream("Count")]
    assert len(heard) == 2
    assert streamed in heard.values()
    for numbers in heard.values():
        assert numbers == list(range(1, len(numbers) + 1))


async def test_listeners_hear_messages_between_workers_and_to_them() -> None:
    call = ToolCall("c1", ONE, '{"worker": "bob", "message": "How many?"}')
    asking = ScriptedModel([Reply(calls=(call,)), "12"])
    ann = Worker("ann", model=asking, tools=[ONE], contacts=["bob"])
    bob = Worker("bob", model=ScriptedModel(["12"], repeat=True))
    plan = Plan((Task("t1", "Count.", "ann"),), "forward")
    team = Team([ann, bob], supervisor=Supervisor(plan=plan))
    heard = Heard()
    team.add_listener(heard)
    result = await team.run("Count")
    assert result.ending == "complete"
    assert len(heard) == 2
    replies = await team.message("How many?", workers=["bob"])
    assert replies.run in heard
