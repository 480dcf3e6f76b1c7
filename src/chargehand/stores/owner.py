"""Which process a journal file belongs to: a lock for the living, a heartbeat for the frozen, a token for the thawed.

The lock ends with its process, so whoever gets it knows that the one before is dead. A process that is merely
frozen keeps its lock but not its beat: the next one may take over, and the token tells the first when it thaws.
It does not work across hosts: a journal file belongs on a local disk.
"""

import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from chargehand.errors import Fenced, RunBusy, StoreUnavailable
from chargehand.stores.database import concerns_all, migrate
from chargehand.terms.policy import Seconds

Clock = Callable[[], Seconds]

_OWN = """
    INSERT INTO owner (only, token, pid, beat) VALUES (1, ?, ?, ?)
    ON CONFLICT (only) DO UPDATE SET token = excluded.token, pid = excluded.pid, beat = excluded.beat
"""


class Owner:
    """Ownership of one journal file, from `take` to `leave`. The clock must tell all processes the same."""

    def __init__(self, path: Path, *, stale: Seconds, clock: Clock = time.monotonic) -> None:
        self.token = secrets.token_hex(16)
        self._path = path
        self._lock_path = path.with_name(path.name + "-lock")
        self._lock = -1
        self._stale = stale
        self._clock = clock
        self._beaten = clock()

    def take(self, connection: sqlite3.Connection) -> None:
        """Become the owner, or raise RunBusy. Nobody holds any run afterwards. After an error, close the connection."""
        try:
            self._lock = _locked(self._lock_path)
            self._begin(connection)
            self._take_over(connection)
            migrate(connection)
            self._beaten = self._clock()
            connection.execute(_OWN, (self.token, os.getpid(), self._beaten))
            connection.execute("UPDATE runs SET holder = NULL WHERE holder IS NOT NULL")
            connection.execute("COMMIT")
        except OSError as error:
            self.unlock()
            raise StoreUnavailable(f"{self._lock_path} cannot be locked: {error}; make it writable") from error
        except BaseException:
            self.unlock()
            raise

    def _begin(self, connection: sqlite3.Connection) -> None:
        if self._lock >= 0:
            connection.execute("BEGIN IMMEDIATE")
            return
        pid = self._frozen(connection)  # first: who lives should not be waited for
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not concerns_all(error):
                raise
            raise RunBusy(
                f"{self._path} belongs to process {pid}, which stands still in the middle of a write; end it"
            ) from error

    def _take_over(self, connection: sqlite3.Connection) -> None:
        if self._lock >= 0 and _same_file(self._lock, self._lock_path):
            return
        self.unlock()
        self._frozen(connection)
        # the frozen one keeps the old file locked; a new one in its place is ours
        self._lock = _lock_in_place_of(self._lock_path)

    def _frozen(self, connection: sqlite3.Connection) -> int:
        """The process that owns the file but does not beat; RunBusy if it does."""
        known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'owner'").fetchone()
        row = connection.execute("SELECT token, pid, beat FROM owner").fetchone() if known else None
        token, pid, beat = row or ("?", 0, self._clock())
        if token and self._clock() - beat <= self._stale:
            raise RunBusy(
                f"{self._path} is in use by process {pid}, and a journal belongs to one process at a time; "
                "end that process or send it the request"
            )
        return pid

    def due(self) -> bool:
        """Whether it is time to beat. Asking counts: a beat that fails is not tried again without a pause."""
        if self.until_beat() > 0:
            return False
        self._beaten = self._clock()
        return True

    def check(self, connection: sqlite3.Connection, *, beat: bool) -> None:
        """Raise Fenced if another process took over; else beat, if it is time. Belongs into every transaction."""
        row = connection.execute("SELECT token, pid FROM owner").fetchone()
        if row is None or row[0] != self.token:
            raise Fenced(
                f"{self._path} was taken over by {f'process {row[1]}' if row else 'another process'} while this one "
                "stood still; drop what is under way and open the journal again"
            )
        if beat:
            connection.execute("UPDATE owner SET beat = ?", (self._beaten,))

    def until_beat(self) -> Seconds:
        return self._beaten + self._stale / 3 - self._clock()

    def leave(self, connection: sqlite3.Connection) -> None:
        """Tell the next one that nobody is here any more."""
        connection.execute("UPDATE owner SET token = '' WHERE token = ?", (self.token,))

    def unlock(self) -> None:
        if self._lock >= 0:
            # closing alone would not do if a forked child still has the file
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = -1


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _locked(path: Path) -> int:
    """The lock file, locked; -1 if another process has it."""
    handle = _open(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return -1
    return handle


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _lock_in_place_of(path: Path) -> int:
    fresh = path.with_name(f"{path.name}-{os.getpid()}")
    handle = _open(fresh)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fresh.replace(path)
    return handle
