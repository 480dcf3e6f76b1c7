"""Other vector stores, driven as `bench.memory` drives ours. They keep vectors only: no text, no words, no tags.

Their libraries are in requirements/bench.lock and nowhere else, so they are imported by name.
"""

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from bench.measure import resident
from bench.memory_data import Data, Matrix
from bench.memory_figures import BATCH, NEAREST, Build, Figures, measured

REACH = 200  # candidates by bits; what is compared exactly after them
WIDE = 1_000  # nearest asked for where a filter can only be applied afterwards


class Rival:
    """One store in a folder: filled by one process, opened and asked by another."""

    name = ""
    needs: tuple[str, ...] = ()

    def __init__(self, folder: Path, width: int) -> None:
        self.path = folder / self.name.replace(" ", "-")
        self.width = width

    @classmethod
    def missing(cls) -> bool:
        return any(find_spec(name) is None for name in cls.needs)

    def fill(self, data: Data) -> None: ...

    def open(self) -> None: ...

    def nearest(self, asked: Matrix, tag: str = "", allowed: NDArray[numpy.bool_] | None = None) -> list[int]:
        """The rows of the ten nearest."""
        raise NotImplementedError


class SqliteVec(Rival):
    """A `vec0` table: every vector is compared."""

    name = "sqlite-vec float"
    needs = ("apsw", "sqlite_vec")
    table = "vec0(vec float[{width}] distance_metric=cosine, few integer, some integer)"

    def open(self) -> None:
        apsw: Any = import_module("apsw")
        self.db = apsw.Connection(str(self.path))
        self.db.enable_load_extension(True)
        self.db.load_extension(import_module("sqlite_vec").loadable_path())

    def fill(self, data: Data) -> None:
        self.open()
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"CREATE VIRTUAL TABLE found USING {self.table.format(width=self.width)}")
        self.make()
        for batch in _batches(len(data.vectors)):
            with self.db:
                for row in batch:
                    self.put(row, data.vectors[row].tobytes(), int(data.few[row]), int(data.some[row]))
        self.db.close()

    def make(self) -> None: ...

    def put(self, row: int, vector: bytes, few: int, some: int) -> None:
        self.db.execute("INSERT INTO found (rowid, vec, few, some) VALUES (?, ?, ?, ?)", (row, vector, few, some))

    def nearest(self, asked: Matrix, tag: str = "", allowed: NDArray[numpy.bool_] | None = None) -> list[int]:
        within = f"AND {tag} = 1" if tag else ""
        question = f"SELECT rowid FROM found WHERE vec MATCH ? AND k = {NEAREST} {within} ORDER BY distance"
        return [row for (row,) in self.db.execute(question, (asked.tobytes(),))]


class SqliteVecBits(SqliteVec):
    """Bits first, then the nearest of them compared exactly."""

    name = "sqlite-vec bits"
    table = "vec0(bits bit[{width}], few integer, some integer)"

    def make(self) -> None:
        self.db.execute("CREATE TABLE whole (number INTEGER PRIMARY KEY, vec BLOB NOT NULL)")

    def put(self, row: int, vector: bytes, few: int, some: int) -> None:
        values = (row, vector, few, some)
        self.db.execute("INSERT INTO found (rowid, bits, few, some) VALUES (?, vec_quantize_binary(?), ?, ?)", values)
        self.db.execute("INSERT INTO whole (number, vec) VALUES (?, ?)", (row, vector))

    def nearest(self, asked: Matrix, tag: str = "", allowed: NDArray[numpy.bool_] | None = None) -> list[int]:
        within = f"AND {tag} = 1" if tag else ""
        question = f"""
            SELECT number FROM
            (SELECT rowid AS near FROM found WHERE bits MATCH vec_quantize_binary(?1) AND k = {REACH} {within})
            JOIN whole ON number = near ORDER BY vec_distance_cosine(vec, ?1) LIMIT {NEAREST}
        """
        return [row for (row,) in self.db.execute(question, (asked.tobytes(),))]


class Usearch(Rival):
    """A graph in memory, saved as a file at the end. Filters are applied to the nearest thousand."""

    name = "usearch f32"
    needs = ("usearch",)
    kind = "f32"

    def open(self) -> None:
        self.index: Any = import_module("usearch.index").Index.restore(str(self.path))

    def fill(self, data: Data) -> None:
        index: Any = import_module("usearch.index").Index(
            ndim=self.width, metric="ip", dtype=self.kind, connectivity=16, expansion_add=128, expansion_search=64
        )
        for batch in _batches(len(data.vectors)):
            index.add(numpy.arange(batch.start, batch.stop), data.vectors[batch.start : batch.stop], threads=1)
        index.save(str(self.path))

    def nearest(self, asked: Matrix, tag: str = "", allowed: NDArray[numpy.bool_] | None = None) -> list[int]:
        found: NDArray[numpy.uint64] = self.index.search(asked, WIDE if tag else NEAREST, threads=1).keys
        rows = found.astype(numpy.int64)
        return (rows if allowed is None else rows[allowed[rows]])[:NEAREST].tolist()


class UsearchSmall(Usearch):
    name = "usearch i8"
    kind = "i8"


RIVALS: dict[str, type[Rival]] = {one.name: one for one in (SqliteVec, SqliteVecBits, Usearch, UsearchSmall)}


def build(name: str, folder: Path, data: Data) -> Build:
    """In a process of its own."""
    rival = RIVALS[name](folder, data.vectors.shape[1])
    began = time.perf_counter()
    rival.fill(data)
    seconds = time.perf_counter() - began
    size = sum(path.stat().st_size for path in folder.iterdir() if path.name.startswith(rival.path.name))
    return Build(seconds, size)


def ask(name: str, folder: Path, data: Data) -> Figures:
    """In another process of its own."""
    rival = RIVALS[name](folder, data.vectors.shape[1])
    for needed in rival.needs:
        import_module(needed)
    before = resident()
    began = time.perf_counter()
    rival.open()
    opened = time.perf_counter() - began
    first = _timed(lambda: rival.nearest(data.asked[0]))
    dense = measured(data, lambda at: rival.nearest(data.asked[at]))
    few = measured(data, lambda at: rival.nearest(data.asked[at], "few", data.few), data.few)
    some = measured(data, lambda at: rival.nearest(data.asked[at], "some", data.some), data.some)
    return Figures(opened=opened, first=first, dense=dense, few=few, some=some, memory=resident() - before)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _batches(rows: int) -> Iterator[range]:
    return (range(start, min(start + BATCH, rows)) for start in range(0, rows, BATCH))
