"""Limits that processes share through PostgreSQL: what a call costs where there is room, and how full a limit is kept.

The floor is a limiter of one process. `ideal` is a limit that is full all the time.
"""

import asyncio
import json
import time
from contextlib import ExitStack

from chargehand.models.limits import Limiter, Pace
from chargehand.models.postgres_limits import PostgresLimits
from chargehand.models.shared_limits import SharedLimiter
from chargehand.postgres.database import open_database
from chargehand.store_url import postgres_url
from tests.models.limited_process import begin, peak, process, spans
from tests.postgres import postgres_server

_CALLS = 20_000
_PROCESSES = 3
_SECONDS = 0.05


async def cpu_a_call(limiter: Limiter) -> float:
    """Microseconds of CPU for letting in 32 calls at a time that end at once."""
    tickets = [await limiter.enter() for _ in range(32)]
    for ticket in tickets:
        limiter.leave(ticket)
    begun = time.process_time()
    for _ in range(_CALLS // 32):
        tickets = [await limiter.enter() for _ in range(32)]
        await asyncio.sleep(0)
        for ticket in tickets:
            limiter.leave(ticket)
    return (time.process_time() - begun) / _CALLS * 1e6


def share_of_ideal(url: str, concurrency: int, calls: int) -> tuple[float, int]:
    """How much of the limit three processes used that always had calls waiting, and the most calls at once."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(process(url, concurrency=concurrency, calls=calls, seconds=_SECONDS))
            for _ in range(_PROCESSES)
        ]
        begin(*started)
        made = [call for one in started for call in spans(one)]
    wall = max(ended for _, ended in made) - min(begun for begun, _ in made)
    return sum(ended - begun for begun, ended in made) / (wall * concurrency), peak(made)


async def measure(url: str) -> dict[str, object]:
    await open_database(postgres_url(url))
    pace = Pace(concurrency=64)
    shared = SharedLimiter("bench", pace, PostgresLimits(postgres_url(url)))
    ours = sorted([await cpu_a_call(shared) for _ in range(5)])[2]
    floor = sorted([await cpu_a_call(Limiter(pace)) for _ in range(5)])[2]
    shared.close()
    of_ideal, most = await asyncio.to_thread(share_of_ideal, url, 50, 400)
    few, few_most = await asyncio.to_thread(share_of_ideal, url, 4, 60)
    return {
        "cpu us a call with room": round(ours, 1),
        "floor: a limiter of one process": round(floor, 1),
        "of ideal at limit 50": round(of_ideal, 3),
        "most at limit 50": most,
        "of ideal at limit 4": round(few, 3),
        "most at limit 4": few_most,
    }


if __name__ == "__main__":
    with postgres_server() as server, server.database() as database:
        print(json.dumps(asyncio.run(measure(database)), indent=2))
