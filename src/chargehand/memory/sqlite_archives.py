"""The passages of a catalog's archives: which archive is meant, and in which transaction. Searching is elsewhere."""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.errors import Invalid, Refused
from chargehand.memory import sqlite_passages as rows
from chargehand.memory.archives import EVERYTHING, Archive, Filter, Hit, Inserted, Passage
from chargehand.memory.blocks import PERSON
from chargehand.memory.catalog import Order
from chargehand.memory.sqlite_attachments import granted
from chargehand.memory.sqlite_things import delete, need, need_number, rewrite
from chargehand.sqlite.database import Database

if TYPE_CHECKING:
    from chargehand.memory.vectors import VectorIndex

Outcome = TypeVar("Outcome")
Arguments = ParamSpec("Arguments")


class Opened:
    """What all spaces of one open database share."""

    def __init__(self, door: Database, clock: Callable[[], Instant]) -> None:
        self.door = door
        self.clock = clock
        self._index: VectorIndex | None = None
        self._lock = threading.Lock()

    @property
    def index(self) -> "VectorIndex":
        from chargehand.memory.vectors import VectorIndex  # noqa: PLC0415 - only archives need it

        with self._lock:
            if self._index is None:
                self._index = VectorIndex()
            return self._index


class Archives:
    """The part of a catalog that is about passages."""

    def __init__(self, opened: Opened, space: str) -> None:
        self._opened = opened
        self._door = opened.door
        self._space = space

    async def _read(
        self,
        work: Callable[Concatenate[sqlite3.Connection, str, Arguments], Outcome],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Outcome:
        return await self._door.read(lambda db: work(db, self._space, *args, **kwargs))

    async def _write(
        self,
        work: Callable[Concatenate[sqlite3.Connection, str, Arguments], Outcome],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Outcome:
        return await self._door.write(lambda db: work(db, self._space, *args, **kwargs))

    async def insert(
        self,
        archive: str,
        passages: Sequence[Passage],
        vectors: Sequence[bytes] | None = None,
        *,
        handle: str = "",
        agent: str = "",
    ) -> list[Inserted]:
        now = self._opened.clock()

        def work(db: sqlite3.Connection, found: Archive) -> list[Inserted]:
            self._check_grant(db, found, agent, adds=True)
            return rows.insert(
                db=db, space=self._space, archive=found, passages=passages, vectors=vectors, handle=handle, now=now
            )

        return await self._change(archive, work)

    async def search(
        self,
        archives: Sequence[str],
        query: str,
        vector: bytes | None = None,
        *,
        within: Filter = EVERYTHING,
        limit: int = 10,
        handle: str = "",
        agent: str = "",
    ) -> list[Hit]:
        index = self._opened.index

        def work(db: sqlite3.Connection) -> list[Hit]:
            found = [need(db, self._space, Archive, which)[1] for which in archives]
            for one in found:
                self._check_grant(db, one, agent)
                made_by, _ = rows.model(db, self._space, one.id)
                if vector is not None and handle and made_by and made_by != handle:
                    raise Invalid(
                        f"the archive {one.name} has vectors of {made_by}, and the question's is of {handle}; embed it "
                        f"with {made_by}, or search by words"
                    )
            return rows.search(
                db=db,
                index=index,
                space=self._space,
                archives=found,
                query=query,
                vector=vector,
                within=within,
                limit=limit,
            )

        return await self._door.read(work)

    async def passages(
        self, archive: str, *, within: Filter = EVERYTHING, after: str = "", limit: int = 100, order: Order = "asc"
    ) -> list[Passage]:
        return await self._look(
            archive,
            lambda db: rows.passages(
                db=db, space=self._space, archive_id=archive, within=within, after=after, limit=limit, order=order
            ),
        )

    async def passage(self, which: str) -> Passage | None:
        return await self._read(rows.passage, which)

    async def forget(self, archive: str, ids: Sequence[str]) -> int:
        return await self._change(archive, lambda db, found: rows.forget(db, self._space, found.id, ids))

    async def count(self, archive: str) -> tuple[int, int]:
        return await self._look(archive, lambda db: rows.count(db, self._space, archive))

    async def bare(self, archive: str, *, limit: int = 256) -> list[Passage]:
        return await self._look(archive, lambda db: rows.bare(db, self._space, archive, limit))

    async def clothe(self, archive: str, vectors: dict[str, bytes], *, handle: str) -> int:
        return await self._change(archive, lambda db, found: rows.clothe(db, self._space, found, vectors, handle))

    async def _delete_archive(self, which: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            rows.purge(db, self._space, which)
            return delete(db, self._space, Archive, which)

        return await self._door.write(whole(work))

    def _check_grant(self, db: sqlite3.Connection, archive: Archive, agent: str, *, adds: bool = False) -> None:
        """Refused for what an agent may not do; nothing is asked of whoever is none."""
        if not agent:
            return
        grant = granted(db, self._space, need_number(db, self._space, Archive, archive.id), agent, PERSON)
        if grant.access == "none":
            raise Refused(f"agent {agent!r} may not use the archive {archive.name!r}; to search it, it needs a grant")
        if adds and grant.access == "read":
            raise Refused(
                f"agent {agent!r} may search the archive {archive.name!r}, but not add to it; to add, it needs a grant "
                "of append or write"
            )

    async def _look(self, archive: str, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        def inside(db: sqlite3.Connection) -> Outcome:
            need_number(db, self._space, Archive, archive)
            return work(db)

        return await self._door.read(inside)

    async def _change(self, archive: str, work: Callable[[sqlite3.Connection, Archive], Outcome]) -> Outcome:
        def inside(db: sqlite3.Connection) -> Outcome:
            number, found = need(db, self._space, Archive, archive)
            outcome = work(db, found)
            _, width = rows.model(db, self._space, archive)
            if width != found.width:
                rewrite(db, number, replace(found, width=width))
            return outcome

        return await self._door.write(whole(inside))


def whole(work: Callable[[sqlite3.Connection], Outcome]) -> Callable[[sqlite3.Connection], Outcome]:
    """The work, all of it or none, though it may refuse in the middle; its mates in the transaction notice nothing."""

    def inside(db: sqlite3.Connection) -> Outcome:
        db.execute("SAVEPOINT whole")
        try:
            return work(db)
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK TO whole")
            raise
        finally:
            if db.in_transaction:
                db.execute("RELEASE whole")

    return inside
