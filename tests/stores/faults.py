"""SQLite connections that fail when told to."""

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from chargehand.sqlite.connection import Connect

Result = TypeVar("Result")


class Fault:
    """Fails the n-th statement and those right after it, before or after each took effect."""

    def __init__(self, at: int = 0, *, times: int = 1, after: bool = False, code: int = 0) -> None:
        self.statements: list[str] = []
        self.fired = 0
        self._which = range(at, at + times)
        self._after = after
        self._code = code

    def around(self, statement: str, work: Callable[[], Result]) -> Result:
        self.statements.append(statement)
        if len(self.statements) not in self._which:
            return work()
        self.fired += 1
        if self._after:
            work()
        error = sqlite3.OperationalError(f"told to fail at statement {len(self.statements)}")
        if self._code:
            error.sqlite_errorcode = self._code
        raise error


class FaultyConnection(sqlite3.Connection):
    fault = Fault()

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return self.fault.around(sql, lambda: super(FaultyConnection, self).execute(sql, parameters))

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        return self.fault.around(sql, lambda: super(FaultyConnection, self).executemany(sql, parameters))


def failing(fault: Fault) -> Connect:
    def connect(path: Path, patience: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False, factory=FaultyConnection
        )
        connection.fault = fault
        return connection

    return connect


def prepared(*statements: str) -> Connect:
    """Connections that begin with these statements."""

    def connect(path: Path, patience: float) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
        for statement in statements:
            connection.execute(statement)
        return connection

    return connect
