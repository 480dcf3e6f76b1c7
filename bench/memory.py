"""`python -m bench.memory`: a large archive, beside sqlite-vec and usearch with the same vectors.

Every store is filled by one process and asked by another, so that opening and memory are its own. `make bench-memory`
installs what we are compared with; what is missing is left out.
"""

import argparse
import asyncio
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from bench import memory_rivals
from bench.measure import fresh, resident
from bench.memory_data import Data, embedded, made_up
from bench.memory_figures import BATCH, NEAREST, WARM, Build, Figures, Took, recall
from bench.memory_rivals import RIVALS
from chargehand.memory.archives import Archive, Filter, Hit, Passage
from chargehand.memory.session import open_catalog
from chargehand.store_url import StoreUrl

OURS = "chargehand"
HANDLE = "bench:vectors"
HEAD: tuple[str, ...] = (
    "store",
    "rows/s",
    "disk MB",
    "memory MB",
    "open ms",
    "first ms",
    "dense p50/p95 recall",
    "1 % of rows",
    "30 % of rows",
    "hybrid p50/p95",
    "words p50/p95",
)


# --- ours


def build(folder: Path, data: Data) -> Build:
    path = folder / "memory.db"
    seconds = asyncio.run(fill(path, data))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Build(seconds, path.stat().st_size)


async def fill(url: StoreUrl, data: Data) -> float:
    """The seconds it takes to insert all passages into an archive."""
    catalog = await open_catalog(url)
    archive = await catalog.add(Archive("bench"))
    began = time.perf_counter()
    for start in range(0, len(data.texts), BATCH):
        rows = range(start, min(start + BATCH, len(data.texts)))
        passages = [Passage(data.texts[row], tags=_tags(data, row), document=str(row)) for row in rows]
        await catalog.insert(archive.id, passages, [data.vectors[row].tobytes() for row in rows], handle=HANDLE)
    seconds = time.perf_counter() - began
    await catalog.close()
    return seconds


def _tags(data: Data, row: int) -> tuple[str, ...]:
    return ("all", *(["few"] if data.few[row] else []), *(["some"] if data.some[row] else []))


def ask(folder: Path, data: Data) -> Figures:
    return asyncio.run(ask_store(folder / "memory.db", data))


async def ask_store(url: StoreUrl, data: Data) -> Figures:
    """What the questions take that are put to a store that was filled."""
    before = resident()
    began = time.perf_counter()
    catalog = await open_catalog(url)
    opened = time.perf_counter() - began
    (archive,) = await catalog.find(Archive)
    given = [one.tobytes() for one in data.asked]
    search = partial(catalog.search, [archive.id], limit=NEAREST)
    began = time.perf_counter()
    await search("", given[0])
    first = time.perf_counter() - began
    dense = await _measured(data, lambda at: search("", given[at]), "")
    few = await _measured(data, lambda at: search("", given[at], within=Filter(tags=("few",))), "few")
    some = await _measured(data, lambda at: search("", given[at], within=Filter(tags=("some",))), "some")
    grown = resident() - before
    hybrid = await _measured(data, lambda at: search(data.questions[at], given[at]))
    words = await _measured(data, lambda at: search(data.questions[at]))
    await catalog.close()
    return Figures(
        opened=opened, first=first, dense=dense, few=few, some=some, memory=grown, hybrid=hybrid, words=words
    )


async def _measured(data: Data, work: Callable[[int], Awaitable[list[Hit]]], tag: str | None = None) -> Took:
    """With a tag, or an empty one for all rows, what is found is compared with the truth."""
    for at in range(WARM):
        await work(at)
    seconds: list[float] = []
    found: list[list[int]] = []
    for at in range(len(data.asked)):
        began = time.perf_counter()
        hits = await work(at)
        seconds.append(time.perf_counter() - began)
        found.append([int(hit.passage.document) for hit in hits])
    if tag is None:
        return Took(tuple(seconds))
    return Took(tuple(seconds), recall(data, found, {"few": data.few, "some": data.some}.get(tag)))


# --- all of them


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=384, help="of made-up vectors; MiniLM's have 384")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--texts", type=Path, help="a JSON file of CLINC150's form: real sentences are embedded")
    parser.add_argument("--ours", action="store_true", help="leave the others out")
    options = parser.parse_args()
    made = partial(embedded, options.texts) if options.texts else partial(made_up, width=options.width)
    data = made(rows=options.rows, queries=options.queries)
    machine = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores"
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{data.vectors.shape[0]:,} x {data.vectors.shape[1]}, {len(data.asked)} questions: {data.about}")
    print(f"{machine}, load {load}; milliseconds; recall is of the {NEAREST} nearest", flush=True)
    cells = [HEAD]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ours = fresh(build, folder, data), fresh(ask, folder, data)
        cells.append(cells_of(OURS, options.rows, *ours))
        for name, rival in ({} if options.ours else RIVALS).items():
            if rival.missing():
                print(f"{name} is not installed here; `make bench-memory` installs it", file=sys.stderr)
                continue
            filled = fresh(memory_rivals.build, name, folder, data)
            cells.append(cells_of(name, options.rows, filled, fresh(memory_rivals.ask, name, folder, data)))
            print(f"{name}: done", file=sys.stderr, flush=True)
    print_cells(cells)
    return _judged(ours[1])


def print_cells(cells: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(line[at]) for line in cells) for at in range(len(HEAD))]
    for line in cells:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def cells_of(name: str, rows: int, filled: Build, asked: Figures) -> tuple[str, ...]:
    more = [one.cell() if one is not None else "-" for one in (asked.hybrid, asked.words)]
    return (
        name,
        f"{rows / filled.seconds:,.0f}",
        f"{filled.size / 1e6:.0f}",
        f"{asked.memory / 1e6:.0f}",
        f"{1000 * asked.opened:.0f}",
        f"{1000 * asked.first:.0f}",
        asked.dense.cell(),
        asked.few.cell(),
        asked.some.cell(),
        *more,
    )


def _judged(ours: Figures) -> int:
    """The targets, and whether they were met."""
    dense = ours.dense.recall or 0.0
    few = ours.few.recall or 0.0
    some = ours.some.recall or 0.0
    targets = {
        f"search p50 <= 5 ms: {ours.dense.p50:.2f}": ours.dense.p50 <= 5,
        f"recall >= 0.98: {dense:.4f}": dense >= 0.98,
        f"1 % of rows exact: {few:.4f}": few >= 1,
        f"30 % of rows exact: {some:.4f}": some >= 1,
        f"open < 300 ms: {1000 * ours.opened:.0f}": ours.opened < 0.3,
    }
    for what, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
