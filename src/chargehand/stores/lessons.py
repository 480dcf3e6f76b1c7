"""What became of routed requests, kept beside the runs: in the journal's file, or in memory.

What follows from them is not known here. There is one class for both; it is handed a door to its database. Any process
may write lessons: they belong to no run that is under way, so whoever drives the journal need not be asked.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from chargehand.errors import Invalid
from chargehand.terms.policy import Instant

if TYPE_CHECKING:
    import sqlite3  # whoever has a door has it loaded already

    from chargehand.stores.readers import Readers
    from chargehand.stores.writer import Writer

Source: TypeAlias = Literal["outcome", "judge", "eval", "feedback"]
SOURCES: tuple[Source, ...] = ("outcome", "judge", "eval", "feedback")
"""Who says how well it went, the weakest first."""

MOST = 5000  # of a team; the oldest go
MOST_FITTED = 4  # routers of a team that are kept: one for each set of cards and embedding it was used with lately
LONGEST = 2000  # characters of a request that are kept
_ROWS = """
    SELECT number, request, worker, score, source, run, at, CASE WHEN embedding = ? THEN vector END
    FROM lessons WHERE team = ? AND number > ? ORDER BY number
"""
_SAME = "SELECT worker, request, score FROM lessons WHERE team = ? AND run = ? AND source = ?"
_PUT = "INSERT INTO lessons (team, run, source, worker, request, score, at) VALUES (?, ?, ?, ?, ?, ?, ?)"
_TRIM = """
    DELETE FROM lessons WHERE team = ?1 AND number <=
    (SELECT number FROM lessons WHERE team = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)
"""
_MARK = """
    INSERT INTO lesson_books (team, generation, latest) VALUES (?, ?, ?)
    ON CONFLICT (team) DO UPDATE SET latest = excluded.latest
"""
_TRIM_FITTED = """
    DELETE FROM fitted_routers WHERE team = ?1 AND number <=
    (SELECT number FROM fitted_routers WHERE team = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)
"""
_Outcome = TypeVar("_Outcome")


class Lesson(Struct, frozen=True):
    """How well somebody did a request, from 0 to 1, and who says so. The number is given when it is kept."""

    request: str
    worker: str
    score: float
    source: Source
    run: str
    at: Instant = 0.0
    number: int = 0
    vector: bytes | None = None


class News(Struct, frozen=True):
    """What is new since somebody looked last; `whole`: all there is, and what was known before counts no more."""

    generation: str
    latest: int
    lessons: tuple[Lesson, ...] = ()
    whole: bool = False


class Door(Protocol):
    """As catalogs have it: work on a database, once it is durable, or as of one moment."""

    async def write(self, work: "Callable[[sqlite3.Connection], _Outcome]") -> _Outcome: ...

    async def read(self, work: "Callable[[sqlite3.Connection], _Outcome]") -> _Outcome: ...


class JournalDoor:
    """A door through whoever writes and reads a journal's file: no second connection, and no lock to wait for."""

    def __init__(self, writer: "Writer", readers: "Readers") -> None:
        self._writer = writer
        self._readers = readers

    async def write(self, work: "Callable[[sqlite3.Connection], _Outcome]") -> _Outcome:
        return await self._writer.submit(work)

    async def read(self, work: "Callable[[sqlite3.Connection], _Outcome]") -> _Outcome:
        return await self._readers.look(work)


class Lessons:
    """Those of one team. `place` names the database they are in."""

    def __init__(self, door: Door, team: str, place: str) -> None:
        self._door = door
        self.team = team
        self.place = place

    async def keep(self, run: str, source: Source, lessons: Sequence[Lesson]) -> bool:
        """What a source says of a run, in the place of what it said before; False where it says nothing new."""
        for one in lessons:
            if not 0 <= one.score <= 1:
                raise Invalid(f"a lesson has the score {one.score}; it must be from 0 to 1")
        kept = {one.worker: (one.worker, one.request[:LONGEST], float(one.score), one.at) for one in lessons}
        return await self._door.write(lambda db: _keep(db, self.team, run, source, list(kept.values())))

    async def since(self, generation: str, latest: int, embedding: str = "") -> News:
        """What is new; with the vectors of this embedding, where they were made."""
        return await self._door.read(lambda db: _since(db, self.team, generation, latest, embedding))

    async def dress(self, embedding: str, vectors: Mapping[int, bytes]) -> None:
        """Keep the vectors of lessons, by number."""
        rows = [(embedding, vector, number) for number, vector in vectors.items()]
        await self._door.write(
            lambda db: db.executemany("UPDATE lessons SET embedding = ?, vector = ? WHERE number = ?", rows)
        )

    async def fitted(self, key: str) -> bytes | None:
        """What a router learnt from the texts that the key is a digest of."""
        return await self._door.read(lambda db: _fitted(db, self.team, key))

    async def keep_fitted(self, key: str, body: bytes) -> None:
        await self._door.write(lambda db: _keep_fitted(db, self.team, key, body))

    async def forget(self) -> int:
        """Drop all of the team's; how many there were."""
        return await self._door.write(lambda db: _forget(db, self.team))


def _keep(
    db: "sqlite3.Connection", team: str, run: str, source: Source, rows: Sequence[tuple[str, str, float, Instant]]
) -> bool:
    before = db.execute(_SAME, (team, run, source)).fetchall()
    if sorted(before) == sorted(row[:3] for row in rows):
        return False
    db.execute("DELETE FROM lessons WHERE team = ? AND run = ? AND source = ?", (team, run, source))
    latest = 0
    for worker, request, score, at in rows:
        latest = db.execute(_PUT, (team, run, source, worker, request, score, at)).lastrowid or latest
    db.execute(_TRIM, (team, MOST))
    db.execute(_MARK, (team, secrets.token_hex(8), latest))
    return True


def _since(db: "sqlite3.Connection", team: str, generation: str, latest: int, embedding: str) -> News:
    row = db.execute("SELECT generation, latest FROM lesson_books WHERE team = ?", (team,)).fetchone()
    if row is None:
        return News("", 0, (), whole=bool(generation))
    whole = row[0] != generation
    if not whole and row[1] == latest:
        return News(generation, latest)
    found = db.execute(_ROWS, (embedding, team, 0 if whole else latest)).fetchall()
    lessons = tuple(
        Lesson(request=request, worker=worker, score=score, source=source, run=run, at=at, number=number, vector=vector)
        for number, request, worker, score, source, run, at, vector in found
    )
    return News(row[0], row[1], lessons, whole=whole)


def _fitted(db: "sqlite3.Connection", team: str, key: str) -> bytes | None:
    row = db.execute("SELECT body FROM fitted_routers WHERE team = ? AND key = ?", (team, key)).fetchone()
    return None if row is None else bytes(row[0])


def _keep_fitted(db: "sqlite3.Connection", team: str, key: str, body: bytes) -> None:
    db.execute("DELETE FROM fitted_routers WHERE team = ? AND key = ?", (team, key))
    db.execute("INSERT INTO fitted_routers (team, key, body) VALUES (?, ?, ?)", (team, key, body))
    db.execute(_TRIM_FITTED, (team, MOST_FITTED))


def _forget(db: "sqlite3.Connection", team: str) -> int:
    count = db.execute("DELETE FROM lessons WHERE team = ?", (team,)).rowcount
    db.execute("UPDATE lesson_books SET generation = ? WHERE team = ?", (secrets.token_hex(8), team))
    return int(count)
