"""Which tasks found a passage of an archive: read off the searches that the latest runs of a team recorded."""

from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct

from chargehand.engine.events import Entry, StepFinished
from chargehand.errors import Corrupt
from chargehand.models.artifacts import FoundPassage, Passages
from chargehand.runtime.stats import MAX_RUNS
from chargehand.server.tenants import Tenant

_LATEST = 2**53
_MAX_OF_TEAM = 100


class FoundIn(Struct, frozen=True):
    """A search that found a passage: the entry that recorded its result, and the passage as it was found."""

    run: str
    entry: Entry
    query: str
    passage: FoundPassage


class FoundUses(Struct, frozen=True):
    uses: tuple[FoundIn, ...]
    runs: int


class _Returned(Struct):
    """What a search of archives returned, as its step has it."""

    value: Passages


async def find_uses(tenant: Tenant, team: str, passage: str) -> FoundUses:
    """The searches that found a passage, the latest first."""
    rows = await tenant.journal.latest(before=_LATEST, limit=MAX_RUNS)
    names = [row.run for row in rows if row.request is not None and row.request.team == team][:_MAX_OF_TEAM]
    uses: list[FoundIn] = []
    for name in names:
        with suppress(Corrupt):  # the others tell enough
            uses += _uses_in(name, await tenant.journal.read(name), passage)
    return FoundUses(tuple(sorted(uses, key=lambda use: use.entry.at, reverse=True)), len(names))


def _uses_in(run: str, entries: list[Entry], passage: str) -> Iterator[FoundIn]:
    wanted = passage.encode()
    for entry in entries:
        if not isinstance(entry.event, StepFinished) or wanted not in bytes(entry.event.result):
            continue  # most results need not be decoded
        with suppress(msgspec.ValidationError):  # another tool, which returned a text with this id in it
            returned = msgspec.json.decode(entry.event.result, type=_Returned).value
            for found in returned.found:
                if found.id == passage:
                    yield FoundIn(run, entry, returned.query, found)
