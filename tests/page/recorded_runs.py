"""Runs that were recorded elsewhere, written into the journal of a server as if they had run there half an hour ago."""

import asyncio
import time
from pathlib import Path

from msgspec import structs

from chargehand.engine.events import Entry, RunRequested, RunResumed
from chargehand.journal.store import opened_journal
from tests.histories.kept import entries_of, names, read_lines

AGO = 1800.0


def write_runs(data: Path, runs: dict[str, list[Entry]]) -> None:
    """Into the journal of the first tenant. A run without an end is one that nobody carries."""

    async def write() -> None:
        async with opened_journal(str(data / "main" / "runs.db")) as journal:
            for name, entries in runs.items():
                shift = time.time() - AGO - entries[0].at
                lease = await journal.claim(name, new=True)
                await journal.append(lease, [_later(entry, shift) for entry in entries])
                await journal.release(lease)

    (data / "main").mkdir(parents=True, exist_ok=True)
    asyncio.run(write())


def _later(entry: Entry, seconds: float) -> Entry:
    """The entry as it would have been so much later."""
    event = entry.event
    instants = [name for name in ("until", "after", "deadline") if isinstance(getattr(event, name, None), float)]
    moved = structs.replace(event, **{name: getattr(event, name) + seconds for name in instants})
    return Entry(entry.seq, entry.at + seconds, moved)


def kept_runs() -> dict[str, list[Entry]]:
    """Every recorded history, one that was cut off, and two that were resumed a minute later."""
    runs = {f"kept-{name}": _of_team(entries_of(read_lines(name), f"kept-{name}")) for name in names()}
    runs["kept-cut"] = runs["kept-crash"][:11]
    runs["kept-stopped"] = _resumed_late(runs["kept-released"])
    runs["kept-gone"] = _resumed_late(runs["kept-crash"])
    return runs


def _resumed_late(entries: list[Entry]) -> list[Entry]:
    first = next(number for number, entry in enumerate(entries) if isinstance(entry.event, RunResumed))
    return [*entries[:first], *(_later(entry, 60.0) for entry in entries[first:])]


def _of_team(entries: list[Entry]) -> list[Entry]:
    """The entries with the name of a team that is not served here."""
    first = entries[0]
    assert isinstance(first.event, RunRequested)
    return [structs.replace(first, event=structs.replace(first.event, team="elsewhere")), *entries[1:]]
