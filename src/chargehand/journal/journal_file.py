"""The file of a journal that another process may own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from chargehand.engine.events import Entry
from chargehand.engine.policy import Seconds
from chargehand.errors import Refused
from chargehand.journal.reader import read_run
from chargehand.journal.route_examples import RouteExamples
from chargehand.sqlite.connection import JOURNAL
from chargehand.sqlite.database import FileDoor
from chargehand.sqlite.opening import in_thread


class JournalFile:
    """A journal's file for whatever does not own it: its runs can be read, its examples written."""

    def __init__(self, path: Path, database: FileDoor) -> None:
        self._path = path
        self._database = database

    def route_examples(self, team: str) -> RouteExamples:
        return RouteExamples(self._database, team)

    async def read(self, run: str, *, after: int = 0) -> list[Entry]:
        return await asyncio.to_thread(read_run, self._path, run, after=after)


@asynccontextmanager
async def open_journal_file(path: Path, patience: Seconds = 5.0) -> AsyncGenerator[JournalFile]:
    """The file of a journal; Refused where it is not there. `patience` is for other writers."""

    def open_database() -> FileDoor:
        if not path.exists():  # opening would make it
            raise Refused(f"there is no journal {path}; run something first, or name another with --journal")
        return FileDoor(path.resolve(), durability="machine", patience=patience, kind=JOURNAL)

    database = await in_thread(open_database, lambda opened: opened.close_now())
    try:
        yield JournalFile(path, database)
    finally:
        await database.close()
