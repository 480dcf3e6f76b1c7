"""How workers, tools and models are doing, by the latest runs. Whether the server itself lives is told elsewhere."""

import time
from contextlib import suppress

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.errors import Corrupt
from chargehand.runtime.health import MAX_RUNS, WorkerHealth, health
from chargehand.server.api.table import Operation
from chargehand.server.tenants import Tenant
from chargehand.server.wire import reply
from chargehand.terms.events import Entry
from chargehand.terms.policy import Instant

_FIRST = 2**62
_FRESH = 2.0


class Healths(Struct, frozen=True):
    """`runs` is how many were looked at, the latest ones; times are seconds."""

    found: tuple[WorkerHealth, ...]
    runs: int
    at: Instant


class Ward:
    """What was found last: looking again costs as much as it did. `house.part(Ward)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._last: Healths | None = None

    async def look(self, now: Instant) -> Healths:
        if self._last is None or not 0 <= now - self._last.at < _FRESH:
            journal = self._tenant.journal
            names = [one.run for one in await journal.latest(before=_FIRST, limit=MAX_RUNS)]
            runs: list[tuple[str, list[Entry]]] = []
            for name in names:
                with suppress(Corrupt):  # the others are worth a look all the same
                    runs.append((name, await journal.read(name)))
            driven = {name for name in names if self._tenant.runs.carries(name.partition("/")[0])}
            self._last = Healths(health(runs, now, driven=driven), len(runs), now)
        return self._last


async def workers(_request: Request, tenant: Tenant) -> Response:
    return reply(await tenant.part(Ward).look(time.time()))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/health/workers",
        call=workers,
        name="show_health",
        group="health",
        told=Healths,
        summary="How workers, tools and models are doing, by the latest runs.",
    ),
)
