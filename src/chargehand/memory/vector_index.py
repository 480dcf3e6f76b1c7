"""The nearest vectors of an archive in SQLite. Words and filters are not looked at here."""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct

from chargehand.memory.sqlite_passages import ROOM, Holding, listed
from chargehand.memory.vectors import NO_SIGNS, Signs, VectorQuery, likeness, sign_bits

FORGIVEN = 500  # signs of vectors that are gone: as many more candidates are taken until they are read anew
MAX_SIGNS = 4_000_000  # signs held in memory: some 200 MB of 384 dimensions

_NEW = "SELECT sign, number, bits FROM passage_signs WHERE sign > ? AND sign < ? ORDER BY sign"
_EXACT = """
    SELECT number, vec FROM json_each(?) AS asked CROSS JOIN passage_vectors ON number = asked.value
"""


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

    def __init__(self, *, most: int = MAX_SIGNS) -> None:
        self._most = most
        self._loaded: OrderedDict[int, _Loaded] = OrderedDict()
        self._lock = threading.Lock()

    def query(self, vector: bytes) -> VectorQuery:
        """Of a vector of length one."""
        return VectorQuery(vector, sign_bits([vector])[0])

    def nearest(
        self,
        db: sqlite3.Connection,
        holding: Holding,
        question: VectorQuery,
        count: int,
        among: Sequence[int] | None = None,
    ) -> dict[int, float]:
        """How alike the nearest passages of an archive are, by number; of `among` only."""
        with self._lock:
            loaded = self._current(db, holding)
            signs = loaded.signs
            spare = max(0, holding.removed - loaded.removed)
        return self.exact(db, question.vector, signs.nearest(question, count + spare, among))

    def exact(self, db: sqlite3.Connection, vector: bytes, numbers: Sequence[int]) -> dict[int, float]:
        """How alike each of these is; those without a vector are left out."""
        return likeness(vector, db.execute(_EXACT, (listed(numbers),)).fetchall())

    def _current(self, db: sqlite3.Connection, holding: Holding) -> _Loaded:
        loaded = self._loaded.get(holding.number)
        if loaded is None or loaded.width != holding.width or holding.removed - loaded.removed > FORGIVEN:
            loaded = _Loaded(signs=NO_SIGNS, width=holding.width, last=holding.first, removed=holding.removed)
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
        while len(self._loaded) > 1 and sum(len(loaded.signs.numbers) for loaded in self._loaded.values()) > self._most:
            self._loaded.popitem(last=False)
