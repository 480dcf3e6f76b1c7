"""`python -m bench.cluster`: a journal in PostgreSQL beside one in SQLite, in the same minutes and on the same disk."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median

from bench.durability import Appender, write_long
from bench.measure import MICRO, MILLI, Lap, Settings, fdatasync, in_turn, timed
from bench.table import Row, Target, rendered, shown
from chargehand.engine.fold import replay
from chargehand.journal.protocol import Journal
from chargehand.journal.store import opened_journal
from tests.postgres import PostgresServer, postgres_server

_DURABLE = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "128MB"}
_LONG = 100_000


@asynccontextmanager
async def _both(server: PostgresServer) -> AsyncGenerator[tuple[Journal, Journal]]:
    """A new journal of each kind."""
    with tempfile.TemporaryDirectory() as folder, server.database() as url:
        async with opened_journal(url) as postgres, opened_journal(Path(folder) / "runs.db") as sqlite:
            yield postgres, sqlite


async def appends(server: PostgresServer, settings: Settings) -> list[Row]:
    """Runs that append one entry after another, each waiting until it is durable."""
    rows: list[Row] = []
    for runs, each in ((1, 40), (32, 40), (256, 10)) if settings.quick else ((1, 200), (32, 60), (256, 20)):
        async with _both(server) as (postgres, sqlite):
            contenders = (Appender(postgres, runs, each), Appender(sqlite, runs, each))
            ours, floor = await in_turn(settings.repeat, *contenders)
        count = runs * each
        rows.append(
            Row(
                what=f"appends by {runs} run{'s' if runs > 1 else ''}",
                unit="events/s",
                ours=tuple(count / wall for wall in ours.wall()),
                floor=tuple(count / wall for wall in floor.wall()),
                target=Target(">=", 0.7, of="ratio"),
                also=f"CPU {shown(median(ours.cpu(MICRO / count)))} us an event, "
                f"SQLite {shown(median(floor.cpu(MICRO / count)))}",
            )
        )
    return rows


async def fold(server: PostgresServer, settings: Settings) -> list[Row]:
    """A run of 100,000 entries: read, decoded and folded."""
    async with _both(server) as (postgres, sqlite):
        for journal in (postgres, sqlite):
            await write_long(journal, _LONG)
        contenders = (partial(_read, postgres), partial(_read, sqlite))
        ours, floor = await in_turn(3 if settings.quick else settings.repeat, *contenders)
    also = f"CPU {shown(median(ours.cpu()))}, SQLite {shown(median(floor.cpu()))}"
    target = Target("<=", 1.5, of="ratio")
    return [Row("100,000 entries read and folded", "wall s", ours.wall(), floor.wall(), target=target, also=also)]


async def _read(journal: Journal) -> Lap:
    with timed() as lap:
        entries = await journal.read("long")
        state = replay(entries)
    assert state.seq == _LONG
    return lap


async def _measure(server: PostgresServer, settings: Settings) -> list[Row]:
    return [*await appends(server, settings), *await fold(server, settings)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and smaller sizes: for a first look")
    settings = Settings(parser.parse_args().quick)
    with postgres_server(_DURABLE) as server:
        rows = asyncio.run(_measure(server, settings))
    print(f"PostgreSQL (ours) beside SQLite (floor), fdatasync {shown(MILLI * fdatasync())} ms")
    print(rendered(rows))
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
