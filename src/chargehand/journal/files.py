"""Files that runs are given by reference: what they are called, and their bytes. They are kept beside the runs.

A file never changes: its id is made of its name, its type and its bytes, so the same upload again is the same file.
"""

from collections.abc import Set
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from chargehand.engine.policy import Instant
from chargehand.errors import Refused, Unknown

if TYPE_CHECKING:
    import sqlite3  # loaded by whatever opened the database

    from chargehand.sqlite.database import Database


class StoredFile(Struct, frozen=True):
    """A file as lists have it, without its bytes."""

    id: str
    name: str
    media_type: str
    size: int
    """In bytes."""
    at: Instant
    """When it was uploaded first, in seconds since 1970."""


class Files(Protocol):
    """The files of a journal."""

    async def add(self, file: StoredFile, body: bytes, *, room: int) -> StoredFile:
        """Keep a file; the one that is there already, if it is. Refused if all files would have more bytes than `room`.

        Durable on return.
        """
        ...

    async def get(self, file: str) -> StoredFile:
        """One file; Unknown if it is not there."""
        ...

    async def read(self, file: str) -> bytes:
        """The bytes of a file; Unknown if it is not there."""
        ...

    async def list(self, *, before: str = "", limit: int) -> list[StoredFile]:
        """At most so many files, the latest first; with `before`, those that follow this one in the list."""
        ...

    async def delete(self, file: str) -> None:
        """Delete a file; Unknown if it is not there."""
        ...


def file_id(name: str, media_type: str, body: bytes) -> str:
    """The id of a file with these bytes."""
    content = b"\0".join((name.encode(), media_type.encode(), body))
    return f"file-{sha256(content).hexdigest()[:32]}"


def file_unknown(file: str) -> Unknown:
    return Unknown(f"there is no file {file[:100]!r}: it was never uploaded here, or it was deleted")


def no_room(file: StoredFile, room: int) -> Refused:
    return Refused(
        f"there is no room for {file.name!r} with {file.size:,} bytes: all files together may have {room:,}. "
        "Delete some, and upload it again"
    )


class MemoryFiles:
    """The files of a journal in memory."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[StoredFile, bytes]] = {}

    async def add(self, file: StoredFile, body: bytes, *, room: int) -> StoredFile:
        if file.id not in self._files:
            if sum(kept.size for kept, _ in self._files.values()) + file.size > room:
                raise no_room(file, room)
            self._files[file.id] = (file, body)
        return self._files[file.id][0]

    async def get(self, file: str) -> StoredFile:
        return self._find(file)[0]

    async def read(self, file: str) -> bytes:
        return self._find(file)[1]

    async def list(self, *, before: str = "", limit: int) -> list[StoredFile]:
        kept = sorted((file for file, _ in self._files.values()), key=_place, reverse=True)
        if before:
            last = self._files.get(before)
            kept = [] if last is None else [file for file in kept if _place(file) < _place(last[0])]
        return kept[:limit]

    async def delete(self, file: str) -> None:
        self._find(file)
        self.forget({file})

    def forget(self, files: Set[str]) -> None:
        """Delete those of these files that are there."""
        for file in files:
            self._files.pop(file, None)

    def _find(self, file: str) -> tuple[StoredFile, bytes]:
        if file not in self._files:
            raise file_unknown(file)
        return self._files[file]


def _place(file: StoredFile) -> tuple[Instant, str]:
    """Its place in a list."""
    return file.at, file.id


_COLUMNS = "id, name, media_type, size, at"
_ADD = f"""
    INSERT INTO files ({_COLUMNS}, body) SELECT :id, :name, :media_type, :size, :at, :body
    WHERE (SELECT coalesce(sum(size), 0) FROM files) + :size <= :room ON CONFLICT DO NOTHING
"""  # noqa: S608 - of our own words
_GET = f"SELECT {_COLUMNS} FROM files WHERE id = ?"  # noqa: S608 - as above
_LIST = f"""
    SELECT {_COLUMNS} FROM files WHERE :before = '' OR (at, id) < (SELECT at, id FROM files WHERE id = :before)
    ORDER BY at DESC, id DESC LIMIT :limit
"""  # noqa: S608 - as above


class SqliteFiles:
    """The files of a journal in SQLite."""

    def __init__(self, database: "Database") -> None:
        self._database = database

    async def add(self, file: StoredFile, body: bytes, *, room: int) -> StoredFile:
        values = {
            "id": file.id,
            "name": file.name,
            "media_type": file.media_type,
            "size": file.size,
            "at": file.at,
            "body": body,
            "room": room,
        }

        def work(db: "sqlite3.Connection") -> StoredFile | None:
            db.execute(_ADD, values)
            row = db.execute(_GET, (file.id,)).fetchone()
            return None if row is None else StoredFile(*row)

        stored = await self._database.write(work)
        if stored is None:
            raise no_room(file, room)
        return stored

    async def get(self, file: str) -> StoredFile:
        row = await self._database.read(lambda db: db.execute(_GET, (file,)).fetchone())
        if row is None:
            raise file_unknown(file)
        return StoredFile(*row)

    async def read(self, file: str) -> bytes:
        query = "SELECT body FROM files WHERE id = ?"
        row = await self._database.read(lambda db: db.execute(query, (file,)).fetchone())
        if row is None:
            raise file_unknown(file)
        return row[0]

    async def list(self, *, before: str = "", limit: int) -> list[StoredFile]:
        values = {"before": before, "limit": limit}
        rows = await self._database.read(lambda db: db.execute(_LIST, values).fetchall())
        return [StoredFile(*row) for row in rows]

    async def delete(self, file: str) -> None:
        query = "DELETE FROM files WHERE id = ?"
        if not await self._database.write(lambda db: db.execute(query, (file,)).rowcount):
            raise file_unknown(file)
