"""`python -m tests.memory.list_append`: many writers on one block; every line must be there once, and in its place.

Each writer appends lines nobody else writes, inserts some, now and then writes the whole text anew from the version it
has seen, and repeats some calls as after a crash. Afterwards the text is compared with what was acknowledged.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct, field

from chargehand.errors import Conflict
from chargehand.memory.blocks import Block, Grant, Origin
from chargehand.memory.catalog import Catalog, Group, Profile
from chargehand.memory.edits import Append, Insert, Rethink
from chargehand.memory.session import open_catalog
from chargehand.memory.sqlite_catalog import SqliteCatalog
from chargehand.sqlite.connection import Durability
from chargehand.store_url import MEMORY, parse_store_url
from tests.postgres import postgres_server

ROOT = Path(__file__).parents[2]
WRITERS = 16
OPERATIONS = 500
TOP = "top"
TRIES = 5
"""How often a whole value is written anew from a newer version, before its line is appended instead."""


class Tally(Struct):
    """What the writers did: the lines acknowledged, those appended in order by writer, conflicts and where they came.

    `stray` counts conflicts of edits that replace nothing: there must be none.
    """

    lines: list[str] = field(default_factory=list[str])
    appended: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    whole: int = 0
    repeats: int = 0
    conflicts: int = 0
    stray: int = 0


class Verdict(Struct, frozen=True):
    operations: int
    seconds: float
    lost: int
    doubled: int
    misplaced: int
    strange: int
    versions: int
    """How many more versions there are than edits acknowledged, or fewer."""
    tally: Tally

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.misplaced or self.strange or self.versions or self.tally.stray)

    def row(self) -> str:
        rate = self.operations / self.seconds
        tally = self.tally
        return (
            f"{self.operations:6} ops {rate:8.0f} ops/s  lost {self.lost}  doubled {self.doubled}  "
            f"misplaced {self.misplaced}  versions off {self.versions}  conflicts {tally.conflicts} "
            f"(stray {tally.stray})  whole values {tally.whole}  repeats {tally.repeats}"
        )


class Writer:
    """One of many. What it does depends on its seed alone, but for how often it meets the others."""

    def __init__(
        self,
        catalog: Catalog,
        block: Block,
        agent: str,
        name: str,
        seed: int,
        meet: asyncio.Barrier,
        tally: Tally,
    ) -> None:
        self._catalog = catalog
        self._block = block
        self._agent = agent
        self._name = name
        self._random = random.Random(f"{seed}/{name}")
        self._meet = meet
        self._tally = tally
        self._calls = 0

    async def work(self, operations: int) -> None:
        for number in range(operations):
            line = f"{self._name}.{number}"
            chance = self._random.random()
            if number % 20 == 19:  # all at the same time: alone among appends one would hardly ever succeed
                await self._meet.wait()
                await self._write_anew(line)
                await self._meet.wait()
            elif chance < 0.8:
                await self._append(line)
            else:
                lines = self._block.value.count("\n")  # there may be more by now, but never fewer
                await self._edit(Insert(line, self._random.randint(-1, lines)))
            self._tally.lines.append(line)
            await self._pause()

    async def _append(self, line: str) -> None:
        await self._edit(Append(line))
        self._tally.appended.setdefault(self._name, []).append(line)

    async def _edit(self, edit: Append | Insert) -> None:
        origin = self._origin()
        try:
            self._block = await self._catalog.edit(self._block.id, edit, origin, agent=self._agent)
            if self._random.random() < 0.05:
                self._tally.repeats += 1
                self._block = await self._catalog.edit(self._block.id, edit, origin, agent=self._agent)
        except Conflict:
            self._tally.stray += 1
            raise

    async def _write_anew(self, line: str) -> None:
        for _ in range(TRIES):
            lines = self._block.value.split("\n")
            lines.insert(self._random.randint(0, len(lines)), line)
            edit = Rethink("\n".join(lines))
            expect = self._block.version
            try:
                self._block = await self._catalog.edit(
                    self._block.id, edit, self._origin(), agent=self._agent, expect=expect
                )
            except Conflict:
                self._tally.conflicts += 1
                found = await self._catalog.get(Block, self._block.id)
                assert found is not None
                self._block = found
                await self._pause()
            else:
                self._tally.whole += 1
                return
        await self._append(line)

    async def _pause(self) -> None:
        # a store in memory never waits, so the writers would not meet
        if self._random.random() < 0.5:
            await asyncio.sleep(0)

    def _origin(self) -> Origin:
        self._calls += 1
        return Origin(
            by="worker", name=self._name, run="r", task=self._name, attempt=1, key=f"r/{self._name}/1/{self._calls}"
        )


async def prepare(catalog: Catalog) -> tuple[Block, str]:
    """A block, and the agent that may write it as a member of a group."""
    agent = await catalog.add(Profile("writer"))
    block = await catalog.add(Block("lines", TOP, limit=1_000_000))
    group = await catalog.add(Group("writers", (agent.id,)))
    await catalog.attach(group.id, block.id, Grant("write"))
    return block, agent.id


async def play(catalog: Catalog, block: Block, agent: str, writers: Sequence[int], operations: int, seed: int) -> Tally:
    tally = Tally()
    meet = asyncio.Barrier(len(writers))
    async with asyncio.TaskGroup() as jobs:
        for number in writers:
            jobs.create_task(
                Writer(
                    catalog=catalog, block=block, agent=agent, name=f"w{number}", seed=seed, meet=meet, tally=tally
                ).work(operations)
            )
    return tally


async def judged(catalog: Catalog, which: str, tally: Tally, seconds: float) -> Verdict:
    block = await catalog.get(Block, which)
    assert block is not None
    found = [line for line in block.value.split("\n") if line != TOP]
    counts = Counter(found)
    expected = set(tally.lines)
    places = {line: place for place, line in enumerate(found)}
    misplaced = 0
    for lines in tally.appended.values():
        order = [places[line] for line in lines if line in places]
        misplaced += sum(first > second for first, second in pairwise(order))
    return Verdict(
        operations=len(tally.lines),
        seconds=seconds,
        lost=sum(line not in counts for line in expected),
        doubled=sum(count > 1 for count in counts.values()),
        misplaced=misplaced,
        strange=sum(line not in expected for line in counts),
        versions=block.version - 1 - len(tally.lines),
        tally=tally,
    )


async def check(
    url: str = MEMORY, seed: int = 0, *, operations: int = OPERATIONS, durability: Durability = "machine"
) -> Verdict:
    """16 writers in this process."""
    catalog = await open_catalog(url, durability=durability)
    try:
        block, agent = await prepare(catalog)
        began = time.perf_counter()
        tally = await play(
            catalog=catalog, block=block, agent=agent, writers=range(WRITERS), operations=operations, seed=seed
        )
        return await judged(catalog, block.id, tally, time.perf_counter() - began)
    finally:
        await catalog.close()


async def check_processes(url: str, seed: int, *, processes: int = 4, operations: int = OPERATIONS) -> Verdict:
    """The same, spread over several processes that share one store."""
    catalog = await open_catalog(url)
    try:
        block, agent = await prepare(catalog)
        each = WRITERS // processes
        began = time.perf_counter()
        async with asyncio.TaskGroup() as jobs:
            parts = [
                jobs.create_task(
                    _process(
                        url=url,
                        block=block.id,
                        agent=agent,
                        first=first,
                        count=each,
                        operations=operations,
                        seed=seed,
                    )
                )
                for first in range(0, WRITERS, each)
            ]
        seconds = time.perf_counter() - began
        return await judged(catalog, block.id, _joined([part.result() for part in parts]), seconds)
    finally:
        await catalog.close()


async def _process(url: str, block: str, agent: str, first: int, count: int, operations: int, seed: int) -> Tally:
    given = (url, block, agent, first, count, operations, seed)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.memory.list_append",
        "--part",
        *map(str, given),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return msgspec.json.decode(output, type=Tally)


def _joined(parts: Sequence[Tally]) -> Tally:
    whole = Tally()
    for part in parts:
        whole.lines += part.lines
        whole.appended |= part.appended
        whole.whole += part.whole
        whole.repeats += part.repeats
        whole.conflicts += part.conflicts
        whole.stray += part.stray
    return whole


async def _part(url: str, which: str, agent: str, first: int, count: int, operations: int, seed: int) -> None:
    catalog = await _open_patiently(url)
    block = await catalog.get(Block, which)
    assert block is not None
    tally = await play(
        catalog=catalog, block=block, agent=agent, writers=range(first, first + count), operations=operations, seed=seed
    )
    await catalog.close()
    sys.stdout.buffer.write(msgspec.json.encode(tally))


async def _open_patiently(url: str) -> Catalog:
    """A file may be locked by the other processes for long."""
    place = parse_store_url(url)
    return await SqliteCatalog.open(place, patience=30.0) if isinstance(place, Path) else await open_catalog(url)


@contextmanager
def _store(kind: str) -> Generator[str]:
    """The URL of an empty store."""
    if kind == "memory":
        yield MEMORY
    elif kind == "postgres":
        with postgres_server() as server, server.database() as url:
            yield url
    else:
        with TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/memory.db"


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--seeds", type=int, default=20)
    given.add_argument("--store", choices=["memory", "file", "processes", "postgres"], default="memory")
    given.add_argument("--operations", type=int, default=OPERATIONS, help="of each of the 16 writers")
    given.add_argument("--part", nargs=7, help=argparse.SUPPRESS)
    asked = given.parse_args()
    if asked.part:
        url, block, agent, *numbers = asked.part
        first, count, operations, seed = map(int, numbers)
        asyncio.run(
            _part(url=url, which=block, agent=agent, first=first, count=count, operations=operations, seed=seed)
        )
        return 0
    check_store = check_processes if asked.store in ("processes", "postgres") else check
    failed = 0
    for seed in range(asked.seeds):
        with _store(asked.store) as url:
            verdict = asyncio.run(check_store(url, seed, operations=asked.operations))
        print(f"{asked.store:9} seed {seed:3}: {verdict.row()}", flush=True)
        failed += not verdict.clean
    print(f"{asked.seeds - failed} of {asked.seeds} clean")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
