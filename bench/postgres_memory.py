"""`python -m bench.postgres_memory`: an archive in PostgreSQL, beside the same in a SQLite file.

The server is that of the tests, with a cache that holds the archive, on the same machine.
"""

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import fresh
from bench.memory import HEAD, ask, ask_store, build, cells_of, fill, print_cells
from bench.memory_data import Data, made_up
from bench.memory_figures import Build, Figures
from chargehand.postgres.database import open_database
from chargehand.store_url import postgres_url
from tests.postgres import postgres_server

_SERVER = {"shared_buffers": "512MB", "max_wal_size": "4GB", "fsync": "on", "full_page_writes": "on"}
_PATIENCE = 600.0
_IS_BUILT = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"


def build_postgres(url: str, data: Data) -> Build:
    return asyncio.run(_build(url, data))


async def _build(url: str, data: Data) -> Build:
    """The archive, and the index of its vectors, which is built in the background."""
    seconds = await fill(url, data)
    database = await open_database(postgres_url(url))
    began = time.monotonic()
    name = f"chargehand.passage_vectors_{data.vectors.shape[1]}"
    while not any(row[0] for row in await database.fetch(_IS_BUILT, name)):
        if time.monotonic() - began > _PATIENCE:
            raise SystemExit("the index of vectors was not built")
        await asyncio.sleep(0.2)
    print(f"postgres: index built {time.monotonic() - began:.1f} s after the last passage", file=sys.stderr, flush=True)
    await database.fetch("ANALYZE")
    return Build(seconds, (await database.fetch("SELECT pg_database_size(current_database())"))[0][0])


def ask_postgres(url: str, data: Data) -> Figures:
    return asyncio.run(ask_store(url, data))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.postgres_memory", description=__doc__)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--queries", type=int, default=200)
    options = parser.parse_args()
    data = made_up(options.rows, options.width, options.queries)
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{data.vectors.shape[0]:,} x {data.vectors.shape[1]}, {len(data.asked)} questions: {data.about}")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load}; milliseconds", flush=True)
    with postgres_server(_SERVER) as server, server.database() as url, tempfile.TemporaryDirectory() as place:
        cells = [HEAD, cells_of("SQLite", options.rows, fresh(build, Path(place), data), fresh(ask, Path(place), data))]
        filled = fresh(build_postgres, url, data)
        ours = fresh(ask_postgres, url, data)
        cells.append(cells_of("PostgreSQL", options.rows, filled, ours))
    print_cells(cells)
    recall = ours.dense.recall or 0.0
    few = ours.few.recall or 0.0
    targets = {
        f"search p50 <= 5 ms: {ours.dense.p50:.2f}": ours.dense.p50 <= 5,
        f"recall@10 >= 0.98: {recall:.4f}": recall >= 0.98,
        f"1 % of rows exact: {few:.4f}": few >= 1,
    }
    for what, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
