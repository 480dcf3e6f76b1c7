"""Which tasks found a passage of an archive: read off the searches that the latest runs of a team recorded."""

from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct

from chargehand.engine.events import Entry, StepFinished
from chargehand.engine.plan import TaskId
from chargehand.engine.policy import Instant
from chargehand.errors import Corrupt
from chargehand.models.artifacts import Passages
from chargehand.runtime.stats import MAX_RUNS
from chargehand.server.tenants import Tenant

_LATEST = 2**53
_MAX_OF_TEAM = 100


class FoundIn(Struct, frozen=True):
    """A search that found a passage: whose it was, what it asked for, and how well the passage fitted."""

    run: str
    task: TaskId
    attempt: int
    at: Instant
    query: str
    score: float


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
    return FoundUses(tuple(sorted(uses, key=lambda use: use.at, reverse=True)), len(names))


def _uses_in(run: str, entries: list[Entry], passage: str) -> Iterator[FoundIn]:
    wanted = passage.encode()
    for entry in entries:
        event = entry.event
        if not isinstance(event, StepFinished) or wanted not in bytes(event.result):
            continue  # most results need not be decoded
        with suppress(msgspec.ValidationError):  # another tool, which returned a text with this id in it
            returned = msgspec.json.decode(event.result, type=_Returned).value
            for hit in returned.found:
                if hit.id == passage:
                    yield FoundIn(
                        run=run,
                        task=event.task,
                        attempt=event.attempt,
                        at=entry.at,
                        query=returned.query,
                        score=hit.score,
                    )
