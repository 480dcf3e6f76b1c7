"""Journals with several runs in them, read whole and written anew: for cutting them wherever a process may die."""

from collections.abc import Mapping, Sequence

from chargehand.engine import events as ev
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Journal


async def rows(journal: Journal) -> dict[str, list[ev.Entry]]:
    """Every run, by name."""
    return {row.run: await journal.read(row.run) for row in await journal.runs()}


async def written(runs: Mapping[str, Sequence[ev.Entry]]) -> MemoryJournal:
    """A journal that holds these entries, and no run without any."""
    journal = MemoryJournal()
    for run, entries in runs.items():
        if entries:
            lease = await journal.claim(run, new=True)
            await journal.append(lease, entries)
            await journal.release(lease)
    return journal
