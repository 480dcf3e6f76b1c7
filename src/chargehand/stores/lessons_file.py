"""Lessons in a journal's file, for whoever does not own it: people judge runs while another process drives more."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from chargehand.errors import Refused
from chargehand.stores.catalog_doors import FileDoor
from chargehand.stores.database import JOURNAL
from chargehand.stores.lessons import Lessons
from chargehand.stores.opening import in_thread
from chargehand.stores.reader import read_run
from chargehand.terms.events import Entry
from chargehand.terms.policy import Seconds


class LessonsFile:
    """`async with opened_lessons(path)` gives one."""

    def __init__(self, path: Path, door: FileDoor) -> None:
        self._path = path
        self._door = door

    def lessons(self, team: str) -> Lessons:
        return Lessons(self._door, team, str(self._path))

    async def read(self, run: str, *, after: int = 0) -> list[Entry]:
        return await asyncio.to_thread(read_run, self._path, run, after=after)


@asynccontextmanager
async def opened_lessons(path: Path, patience: Seconds = 5.0) -> AsyncGenerator[LessonsFile]:
    """The lessons of a journal that is there; Refused where it is not. `patience` is for whoever else writes."""
    place, door = await in_thread(lambda: _opened(path, patience), lambda one: one[1].close_now())
    try:
        yield LessonsFile(place, door)
    finally:
        await door.close()


def _opened(path: Path, patience: Seconds) -> tuple[Path, FileDoor]:
    place = path.resolve()
    if not place.exists():  # opening would make it
        raise Refused(f"there is no journal {path}; run something first, or name another with --journal")
    return place, FileDoor(place, durability="machine", patience=patience, kind=JOURNAL)
