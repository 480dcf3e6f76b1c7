"""Background workers in journals that are damaged, crowded, or longer than anybody looks."""

import sqlite3
from pathlib import Path

import pytest

from chargehand.agents import background
from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Policy
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls
from tests.runtime.desk import covered, desk, everything, librarian

ASK = "What is the price of a room in Ghent?"


async def test_it_works_again_when_its_last_run_is_farther_back_than_anybody_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "_FARTHEST_OF_ALL", 20)
    team = desk(librarian(2), journal=(journal := MemoryJournal()))
    other = desk(librarian(1000), journal=journal, name="other")
    for number in range(6):
        await team.run(ASK, run=f"turn-{number}")
        await team.rest()
    for number in range(25):
        await other.run(ASK, run=f"other-{number}")
    await team.run(ASK, run="turn-6")
    assert await team.rest() == ()
    await team.run(ASK, run="turn-7")
    assert [one.run for one in await team.rest()] == ["desk-librarian-4"]
    assert await team.rest() == ()
    found = covered(await everything(journal))
    assert [run for each in found.values() for run in each] == [f"turn-{number}" for number in range(8)]


async def test_runs_of_others_do_not_hide_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_FARTHEST", 5)
    team = desk(librarian(2), journal=(journal := MemoryJournal()))
    other = desk(librarian(1000), journal=journal, name="other")
    await team.run(ASK, run="turn-0")
    for number in range(25):
        await other.run(ASK, run=f"other-{number}")
    await team.run(ASK, run="turn-1")
    assert [one.run for one in await team.rest()] == ["desk-librarian-1"]


@pytest.mark.parametrize("damaged", ["foreign", "turn-0", "desk-librarian-1"])
async def test_one_damaged_run_keeps_nobody_from_looking_back_on_the_others(tmp_path: Path, damaged: str) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db", durability="process")
    await desk(librarian(1000), journal=journal, name="other").run(ASK, run="foreign")
    team = desk(librarian(2), journal=journal, memory=tmp_path / "memory.db")
    for number in range(2):
        await team.run(ASK, run=f"turn-{number}")
    await team.rest()
    for number in range(2, 4):
        await team.run(ASK, run=f"turn-{number}")
    await journal.close()
    with sqlite3.connect(tmp_path / "runs.db") as connection:
        told = "UPDATE entries SET crc = crc + 1 WHERE run = (SELECT number FROM runs WHERE run = ?)"
        connection.execute(told, (damaged,))
    connection.close()
    journal = await SqliteJournal.open(tmp_path / "runs.db", durability="process")
    try:
        [found] = await desk(librarian(2), journal=journal, memory=tmp_path / "memory.db").rest()
        assert (found.run, found.ending) == ("desk-librarian-2", "complete")
        first = found.entries[0].event
        assert isinstance(first, ev.RunRequested)
        assert ("turn-3", True) in first.turns
    finally:
        await journal.close()


async def test_what_it_did_in_the_world_is_not_done_again_because_it_failed_later() -> None:
    sent: list[str] = []

    @tool(effect="effect")
    def mail(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    def script(request: Request) -> Line:
        done = any(one.role == "tool" for one in request.messages)
        return Failure("logic", "dark", permanent=True) if done else calls(call("mail", to="bob"))

    model = ScriptedModel(script)
    clerk = Worker("librarian", tools=[mail, "memory_rethink"], blocks={"notes": "write"}, every=1, model=model)
    team = desk(clerk, journal=(journal := MemoryJournal()), policy=Policy(tainted_effects="allow"))
    await team.run(ASK, run="turn-0")
    endings = [[one.ending for one in await team.rest()] for _ in range(3)]
    assert (endings, sent) == ([["failed"], [], []], ["bob"])
    await team.run(ASK, run="turn-1")
    await team.rest()
    assert covered(await everything(journal)) == {"desk-librarian-1": ["turn-0"], "desk-librarian-2": ["turn-1"]}
