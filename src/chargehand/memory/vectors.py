"""Vectors of passages: checking them, and finding the nearest among many. Words and filters are not its business.

Only the signs of each vector, one bit a dimension, are held in memory. Those that differ least from what is asked are
looked at more closely, and the best of them compared exactly with the vectors in the file. With a hundred thousand
vectors that is several times quicker than comparing all, and finds the same but for one in a thousand.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

from msgspec import Struct

from chargehand.errors import Invalid
from chargehand.memory.passage_rows import ROOM, Holding, listed

CANDIDATES = 200  # compared exactly: `make bench-memory` says how many of the ten nearest are among them
FORGIVEN = 500  # signs of vectors that are gone: as many more candidates are taken until they are read anew
MOST = 4_000_000  # signs held in memory: some 200 MB of 384 dimensions
WIDEST = 65_535

_NEW = "SELECT sign, number, bits FROM passage_signs WHERE sign > ? AND sign < ? ORDER BY sign"
_EXACT = """
    SELECT number, vec FROM json_each(?) AS asked CROSS JOIN passage_vectors ON number = asked.value
"""


class Signs(Protocol):
    def __len__(self) -> int: ...

    def added(self, rows: Sequence[tuple[int, bytes]]) -> "Signs": ...

    def nearest(self, asked: bytes, bits: bytes, count: int, among: Sequence[int] | None = None) -> list[int]: ...


class Arithmetic(Protocol):
    """`passage_numpy`, or where that is not installed `passage_plain`."""

    def unit(self, vectors: Sequence[bytes], /) -> list[tuple[bytes, bytes]]: ...

    def likeness(self, asked: bytes, rows: Sequence[tuple[int, bytes]], /) -> dict[int, float]: ...

    def Signs(self) -> Signs: ...  # noqa: N802 - a class of the module


def arithmetic() -> Arithmetic:
    """The quickest there is."""
    if find_spec("numpy") is None:
        from chargehand.memory import passage_plain  # noqa: PLC0415 - only where it is needed

        return passage_plain
    from chargehand.memory import passage_numpy  # noqa: PLC0415 - numpy is only in the extra

    return passage_numpy


def width_of(vectors: Sequence[bytes]) -> int:
    """How many dimensions all of them have; Invalid unless it is the same for all."""
    sizes = {len(vector) for vector in vectors}
    if len(sizes) != 1:
        raise Invalid(f"vectors of different lengths ({sorted(sizes)} bytes); embed all texts with one model")
    (size,) = sizes
    if not size or size % 4 or size // 4 > WIDEST:
        raise Invalid(f"a vector of {size} bytes; send 1 to {WIDEST} little-endian floats of four bytes each")
    return size // 4


def check_width(holding: Holding, vector: bytes) -> None:
    """Invalid when a vector cannot be compared with those of an archive."""
    width = width_of([vector])
    if holding.dressed and width != holding.width:
        raise Invalid(
            f"a vector of {width} dimensions cannot be compared with those of {holding.archive}, which have "
            f"{holding.width}; embed the question with {holding.handle}"
        )


class Asked(Struct, frozen=True):
    """A vector of length one, and its signs."""

    vector: bytes
    bits: bytes


class _Loaded(Struct):
    """The signs of one archive, up to `last`; `removed` is how many had ever been removed when they were read."""

    signs: Signs
    width: int
    last: int
    removed: int


class VectorIndex:
    """What is in memory of the vectors of a file. Read when first asked for, then only what is new.

    May be used by several threads at once, and does not mind who else writes to the file.
    """

    def __init__(self, chosen: Arithmetic | None = None, *, most: int = MOST) -> None:
        self._chosen = chosen
        self._most = most
        self._loaded: OrderedDict[int, _Loaded] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def arithmetic(self) -> Arithmetic:
        if self._chosen is None:  # not before it is needed: numpy takes a tenth of a second
            self._chosen = arithmetic()
        return self._chosen

    def asked(self, vector: bytes) -> Asked:
        """Invalid for a vector that points nowhere."""
        return Asked(*self.arithmetic.unit([vector])[0])

    def nearest(
        self,
        db: sqlite3.Connection,
        holding: Holding,
        asked: Asked,
        count: int = CANDIDATES,
        among: Sequence[int] | None = None,
    ) -> dict[int, float]:
        """How alike the nearest passages of an archive are, by number; of `among` only."""
        with self._lock:
            loaded = self._current(db, holding)
            signs = loaded.signs
            spare = max(0, holding.removed - loaded.removed)
        return self.exact(db, asked, signs.nearest(asked.vector, asked.bits, count + spare, among))

    def exact(self, db: sqlite3.Connection, asked: Asked, numbers: Sequence[int]) -> dict[int, float]:
        """How alike each of these is; those without a vector are left out."""
        return self.arithmetic.likeness(asked.vector, db.execute(_EXACT, (listed(numbers),)).fetchall())

    def _current(self, db: sqlite3.Connection, holding: Holding) -> _Loaded:
        loaded = self._loaded.get(holding.number)
        if loaded is None or loaded.width != holding.width or holding.removed - loaded.removed > FORGIVEN:
            loaded = _Loaded(
                signs=self.arithmetic.Signs(), width=holding.width, last=holding.first, removed=holding.removed
            )
        if loaded.last < holding.first + holding.last_sign:
            rows = db.execute(_NEW, (loaded.last, holding.first + ROOM)).fetchall()
            loaded.signs = loaded.signs.added([(number, bits) for _, number, bits in rows])
            loaded.last = rows[-1][0] if rows else holding.first + holding.last_sign
        self._loaded[holding.number] = loaded
        self._loaded.move_to_end(holding.number)
        self._shrink()
        return loaded

    def _shrink(self) -> None:
        """Let go of archives that were not asked for longest."""
        while len(self._loaded) > 1 and sum(len(one.signs) for one in self._loaded.values()) > self._most:
            self._loaded.popitem(last=False)
