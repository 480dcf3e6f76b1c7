"""Attempts with memory that are taken up again: a crash after every entry, and memory that has changed since."""

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.journal.memory import MemoryJournal
from chargehand.memory.blocks import PERSON, Append, Block, Rethink
from chargehand.memory.catalog import Catalog, Memory, Profile
from chargehand.memory.conversations import Turn
from chargehand.memory.sqlite_catalog import SqliteCatalog
from chargehand.models.messages import Message, Request
from chargehand.models.request_facts import Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import call, calls, model, of_kind, team
from tests.support.hunts import hunt_size

NOTES = Block("notes", "begun", share="write")
GUIDE = Block("guidelines", "Be brief.", trusted=True)
WROTE = ["one", "two", "three"]
PERSONS = "a person's line"
_NONCE = re.compile(r"[0-9a-f]{16}")


def turn(request: Request) -> int:
    return sum(one.role == "assistant" for one in request.messages)


def work(request: Request) -> Line:
    """Three lines are appended, two of them side by side; what it does depends on nothing but how far it is."""
    return [
        calls(call("core_memory_append", 1, label="notes", content="one")),
        calls(
            call("core_memory_append", 2, label="notes", content="two"),
            call("memory_insert", 3, label="notes", new_string="three"),
        ),
        "counted",
    ][turn(request)]


def executor(script: ScriptedModel, place: Path, journal: MemoryJournal | None = None) -> Team:
    memory = Memory(place, [NOTES, GUIDE])
    return team(script, Worker("ann", remembers=True), memory=memory, journal=journal, name="team")


async def cut(entries: Sequence[ev.Entry], at: int) -> MemoryJournal:
    journal = MemoryJournal()
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries[:at])
    await journal.release(lease)
    return journal


def copied(source: Path, target: Path) -> Path:
    """The file as it is now, with whatever is in its log."""
    with sqlite3.connect(source) as one, sqlite3.connect(target) as other:
        one.backup(other)
    one.close()
    other.close()
    return target


def plain(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(one.role, _NONCE.sub("N", one.text)) for one in messages]


async def notes(catalog: Catalog) -> Block:
    return next(one for one in await catalog.find(Block) if one.label == "notes")


def finished(entries: Sequence[ev.Entry], name: str) -> int:
    names = {(e.attempt, e.step): e.name for one in entries if isinstance(e := one.event, ev.StepStarted)}
    done = [e for one in entries if isinstance(e := one.event, ev.StepFinished)]
    return sum(names[one.attempt, one.step] == name for one in done)


class Whole:
    """A run to its end, what its worker was told at each turn, and the memory as it was after each entry."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / "memory.db"
        self.script = model(work=work)
        self.entries: list[ev.Entry] = []
        self.told: dict[int, list[tuple[str, str]]] = {}

    async def run(self) -> None:
        team = executor(self.script, self.place)
        async with team.remembering() as memory:
            old = [Turn("user" if n % 2 else "assistant", f"turn {n}") for n in range(100)]
            await memory.catalog.say(memory.agents["ann"], old)

            def note(_run: str, entries: Sequence[ev.Entry]) -> None:
                copied(self.place, self.folder / f"{entries[-1].seq}.db")

            found = await team.run("Count", run="r", listener=note)
        assert found.ending == "complete"
        self.entries = list(found.entries)
        for one in self.script.requests:
            if isinstance(one.subject, Working):
                self.told[turn(one)] = plain(one.messages)

    def memory_at(self, entry: int) -> Path:
        """The memory when this entry was written, or soon after: entries are written several at a time."""
        return next(path for n in range(entry, len(self.entries) + 1) if (path := self.folder / f"{n}.db").exists())


async def resumed(whole: Whole, at: int, place: Path, *, changed: bool) -> tuple[ScriptedModel, Block]:
    """Take the run up again after so many entries, on this memory; what was asked then, and what the notes became."""
    script = model(work=work)
    catalog = await SqliteCatalog.open(place, space="team")
    try:
        if changed:
            await catalog.edit((await notes(catalog)).id, Append(PERSONS), PERSON)
        found = await executor(script, place, await cut(whole.entries, at)).resume("r")
        assert found.ending == "complete", at
        said = [one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted)]
        assert not [one for one in said if "diverged" in one], at
        [ann] = await catalog.find(Profile, name="ann")
        turns = await catalog.turns(ann.id, limit=1000, old=True)
        assert [(one.task, one.text) for one in turns if one.run == "r"] == [
            ("t1", "Count the apples in the cellar."),
            ("t1", "counted"),
        ], "remembered once"
        assert len([one for one in turns if one.role == "summary"]) == 1, at
        return script, await notes(catalog)
    finally:
        await catalog.close()


async def test_a_crash_after_any_entry_doubles_nothing_and_loses_nothing(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    await whole.run()
    assert finished(whole.entries, "summary") == 1
    for at in range(1, len(whole.entries), hunt_size(quick=3, thorough=1)):
        place = copied(whole.memory_at(at), tmp_path / f"resumed-{at}.db")
        _, block = await resumed(whole, at, place, changed=True)
        lines = block.value.split("\n")
        assert sorted(lines) == sorted(["begun", *WROTE, PERSONS]), at


async def test_edits_that_were_made_but_not_recorded_are_not_made_again(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    await whole.run()
    ahead = 0
    for at in range(1, len(whole.entries)):
        begun = unfinished(whole.entries[:at])
        until = next(n for n in range(at, len(whole.entries) + 1) if not begun & unfinished(whole.entries[:n]))
        ahead += until > at
        place = copied(whole.memory_at(until), tmp_path / f"resumed-{at}.db")  # what was begun has happened
        _, block = await resumed(whole, at, place, changed=False)
        assert sorted(block.value.split("\n")) == sorted(["begun", *WROTE]), at
    assert ahead >= 5


def unfinished(entries: Sequence[ev.Entry]) -> set[tuple[int, int]]:
    begun = {(e.attempt, e.step) for one in entries if isinstance(e := one.event, ev.StepStarted)}
    return begun - {(e.attempt, e.step) for one in entries if isinstance(e := one.event, ev.StepFinished)}


async def test_a_resumed_attempt_sees_what_it_saw_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    await whole.run()
    same = 0
    for at in range(1, len(whole.entries)):
        before = whole.entries[:at]
        place = copied(whole.memory_at(at), tmp_path / f"resumed-{at}.db")
        script, _ = await resumed(whole, at, place, changed=True)
        working = [one for one in script.requests if isinstance(one.subject, Working)]
        assert len(working) == 3 - finished(before, "model"), at
        paid = [one for one in script.requests if one.subject is None]
        there = finished(before, "summary") or place_has_summary(whole.memory_at(at))
        assert len(paid) == (0 if there else 1), at
        looked = finished(before, "memory")
        for one in working:
            if turn(one) < looked:
                assert plain(one.messages) == whole.told[turn(one)], at
                same += 1
            else:
                assert PERSONS in one.messages[1].text, at
    assert same >= 6, "calls that were not recorded although the look before them was"


def place_has_summary(place: Path) -> bool:
    with sqlite3.connect(place) as db:
        found = db.execute("SELECT count(*) FROM turns WHERE role = 'summary'").fetchone()[0] > 0
    db.close()
    return found


async def test_a_changed_block_is_another_request(tmp_path: Path) -> None:
    """The request of a model's step is a hash of all that was said: it must hold what memory showed."""
    asked: list[list[str]] = []
    for text in ("Be brief.", "Be brief.", "Be long."):
        guide = Block("guidelines", text, trusted=True)
        found = await team(model(), Worker("ann"), memory=Memory(blocks=[guide])).run("Count", run="r")
        steps = [one for one in of_kind(found.entries, ev.StepStarted) if isinstance(one, ev.StepStarted)]
        asked.append([one.request for one in steps if one.name == "model"])
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]


async def test_a_whole_text_that_was_made_from_an_old_version_is_refused_in_words() -> None:
    script = model(work=lambda request: next(lines))
    executor = team(
        script, Worker("ann", tools=["memory_rethink"], blocks={"notes": "write"}), memory=Memory(blocks=[NOTES])
    )
    lines = iter(
        [
            calls(call("memory_rethink", 1, label="notes", new_memory="mine")),
            calls(
                call("core_memory_append", 2, label="notes", content="more"),
                call("memory_rethink", 3, label="notes", new_memory="only mine"),
            ),
            "done",
        ]
    )
    found = await executor.run("Count")
    assert found.ending == "complete"
    results = [one.text for one in script.requests[-1].messages if one.role == "tool"]
    assert "rewritten; notes is at version 2, 4 of 20,000 characters" in results[0]
    assert "notes was not changed" in results[2]
    assert "version 3" in results[2]
    async with executor.remembering() as memory:
        assert (await notes(memory.catalog)).value == "mine\nmore"


async def test_a_persons_rethink_in_between_is_seen(tmp_path: Path) -> None:
    whole = Whole(tmp_path)
    await whole.run()
    at = next(n for n in range(1, len(whole.entries)) if finished(whole.entries[:n], "memory") == 1) + 1
    place = copied(whole.memory_at(at), tmp_path / "resumed.db")
    catalog = await SqliteCatalog.open(place, space="team")
    await catalog.edit((await notes(catalog)).id, Rethink("all new"), PERSON)
    await catalog.close()
    script, block = await resumed(whole, at, place, changed=False)
    texts = [one.messages[1].text for one in script.requests if isinstance(one.subject, Working)]
    assert "all new" not in texts[0]
    assert all("all new" in one for one in texts[1:])
    assert block.value.startswith("all new\n")
