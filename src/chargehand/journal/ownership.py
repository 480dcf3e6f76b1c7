"""Which processes use a journal file, and which of them still live.

Every journal that is opened has a row in `owners` with a heartbeat, and holds a lock on a file of its own. The lock
ends with its process, so a run whose owner's lock is free can be claimed at once. A process that is merely frozen keeps
its lock but not its heartbeat: its runs can be claimed when the beat is stale, and their epochs fence it when it thaws.
Locks do not work across hosts: a journal file belongs on a local disk.
"""

import fcntl
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from chargehand.engine.policy import Seconds
from chargehand.errors import Fenced, StoreUnavailable
from chargehand.sqlite.connection import concerns_all, migrate

Clock = Callable[[], Seconds]

_TOKEN = re.compile(rb"[0-9a-f]{32}")
_REGISTER = "INSERT INTO owners (token, pid, beat) VALUES (?, ?, ?) RETURNING number"
_RELEASE_RUNS = "UPDATE runs SET holder = NULL, owner = NULL WHERE owner = ?"
_FORGET = "DELETE FROM owners WHERE number = ?"


class Owner:
    """One opened journal among those that share a file, from `register` to `leave`.

    The clock must tell all processes the same.
    """

    def __init__(self, path: Path, *, stale: Seconds, clock: Clock = time.monotonic) -> None:
        self.number = 0
        self._token = secrets.token_hex(16)
        self._path = path
        self._locks = locks_of(path)
        self._lock = -1
        self._stale = stale
        self._clock = clock
        self._beaten = clock()

    def register(self, connection: sqlite3.Connection) -> None:
        """Enter this owner, and release what dead ones held. After an error, close the connection."""
        try:
            self._begin(connection)
            migrate(connection)
            self._forget_dead(connection)
            self._locks.mkdir(exist_ok=True)
            self._lock = _locked(self._locks / self._token)
            self._beaten = self._clock()
            row = connection.execute(_REGISTER, (self._token, os.getpid(), self._beaten)).fetchone()
            self.number = int(row[0])
            connection.execute("COMMIT")
        except OSError as error:
            self.unlock()
            raise StoreUnavailable(f"{self._locks} cannot hold a lock: {error}; make it writable") from error
        except BaseException:
            self.unlock()
            raise

    def _begin(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            stalled = self._stalled(connection) if concerns_all(error) else 0
            if not stalled:
                raise
            raise StoreUnavailable(
                f"{self._path} is locked by process {stalled}, which stands still in the middle of a write; end it"
            ) from error

    def _stalled(self, connection: sqlite3.Connection) -> int:
        """A process that lives and does not beat; 0 if there is none."""
        table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'owners'").fetchone()
        owners = connection.execute("SELECT CAST(token AS BLOB), pid, beat FROM owners").fetchall() if table else []
        for token, pid, beat in owners:
            if isinstance(beat, float) and self._clock() - beat > self._stale and is_alive(self._locks, token):
                return pid if isinstance(pid, int) else 0
        return 0

    def _forget_dead(self, connection: sqlite3.Connection) -> None:
        # within the write lock of the file, so no other process is registering meanwhile
        tokens: set[str] = set()
        for number, token in connection.execute("SELECT number, CAST(token AS BLOB) FROM owners").fetchall():
            if is_alive(self._locks, token):
                tokens.add(token.decode())
            else:
                connection.execute(_RELEASE_RUNS, (number,))
                connection.execute(_FORGET, (number,))
        for lock in self._locks.glob("*"):
            if lock.name not in tokens:
                lock.unlink(missing_ok=True)

    def process_holding(self, connection: sqlite3.Connection, number: int) -> int:
        """The process that owner `number` is, 0 if its claims are worth nothing: it is dead, frozen or gone."""
        row = connection.execute(
            "SELECT CAST(token AS BLOB), pid, beat FROM owners WHERE number = ?", (number,)
        ).fetchone()
        if row is None:
            return 0
        token, pid, beat = row
        process = pid if isinstance(pid, int) and pid > 0 else 1  # a damaged number counts as a live process
        if number == self.number:
            return process
        frozen = isinstance(beat, float) and self._clock() - beat > self._stale
        return 0 if frozen or not is_alive(self._locks, token) else process

    def due(self) -> bool:
        """Whether it is time to beat. Asking counts: a beat that fails is not tried again without a pause."""
        if self.until_beat() > 0:
            return False
        self._beaten = self._clock()
        return True

    def check(self, connection: sqlite3.Connection, *, beat: bool) -> None:
        """Raise Fenced if this owner is not registered any more; else beat, if it is time. In every transaction."""
        row = connection.execute("SELECT token FROM owners WHERE number = ?", (self.number,)).fetchone()
        if row is None or row[0] != self._token:
            raise Fenced(
                f"{self._path} does not know this process any more: it was taken for dead. "
                "Drop what is under way and open the journal again"
            )
        if beat:
            connection.execute("UPDATE owners SET beat = ? WHERE number = ?", (self._beaten, self.number))

    def until_beat(self) -> Seconds:
        return self._beaten + self._stale / 3 - self._clock()

    def leave(self, connection: sqlite3.Connection) -> None:
        """Release what this owner holds, and forget it."""
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_RELEASE_RUNS, (self.number,))
        connection.execute("DELETE FROM owners WHERE number = ? AND token = ?", (self.number, self._token))
        connection.execute("COMMIT")

    def unlock(self) -> None:
        if self._lock >= 0:
            (self._locks / self._token).unlink(missing_ok=True)
            # closing alone would not do if a forked child still has the file
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = -1


def locks_of(path: Path) -> Path:
    """The folder with a lock file for each process that uses this journal."""
    file = path.resolve()
    return file.with_name(file.name + "-locks")


def is_alive(locks: Path, token: object) -> bool:
    """Whether the owner with this token lives; one whose token is damaged or missing does not."""
    if not isinstance(token, bytes) or not _TOKEN.fullmatch(token):
        return False
    return is_locked(locks / token.decode())


def is_locked(lock: Path) -> bool:
    """Whether the owner of a lock file lives, be it frozen."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # shared, so that two who look at the same moment do not take each other for the owner
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _locked(lock: Path) -> int:
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle
