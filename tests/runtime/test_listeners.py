"""Listeners of a team: they hear every entry of every run, and hurt none."""

import logging
from collections.abc import Sequence

import pytest

from chargehand import Plan, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.engine.events import Entry


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
    def broken(_run: str, _entries: Sequence[Entry]) -> None:
        raise TypeError("a mistake in a listener")

    team = make_team()
    heard: list[Entry] = []
    for _ in range(count):
        team.add_listener(broken)
    team.add_listener(lambda _run, entries: heard.extend(entries))
    with caplog.at_level(logging.ERROR, "chargehand.runtime"):
        result = team.run_sync("Count")
    assert result.ending == "complete"
    assert len(heard) == len(result.entries)
    assert "a mistake in a listener" in caplog.text
