"""A few connections that only read one SQLite file, each used in a thread. What is read is not decided here."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from chargehand.errors import StoreError
from chargehand.sqlite.connection import FILE_ERRORS, explain

Found = TypeVar("Found")


class Readers:
    def __init__(self, path: Path, open_one: Callable[[], sqlite3.Connection]) -> None:
        self._path = path
        self._open_one = open_one
        self._idle: list[sqlite3.Connection] = []
        # not the loop's own pool: there a slow tool could stand in the way
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="chargehand-reader")
        self._closed = False

    async def look(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        """What the work finds with a connection."""
        return await self.run(lambda: self._look(work))

    async def run(self, work: Callable[[], Found]) -> Found:
        """The same threads for work that needs no connection."""
        if self._closed:
            raise StoreError(f"{self._path} was closed; open it again")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def refuse(self) -> None:
        """Take no more work."""
        self._closed = True

    def close(self) -> None:
        """Do what was taken, then let the file go. Blocks."""
        self._closed = True
        self._pool.shutdown()
        while self._idle:
            self._idle.pop().close()

    def _look(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._open_one()
            try:
                found = work(connection)
            except BaseException:  # it may stand in the middle of a read, which would keep the file from shrinking
                connection.close()
                raise
        except FILE_ERRORS as error:
            raise explain(error, self._path) from error
        self._idle.append(connection)
        return found
