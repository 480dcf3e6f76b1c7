"""One writer and its readers for all who open the same SQLite file in this process, whatever their thread or loop.

So the group commit carries what all of them write, and they do not wait for each other's locks.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from chargehand.journal.blobs import Blobs
from chargehand.journal.ownership import Owner
from chargehand.sqlite.readers import Readers
from chargehand.sqlite.writer import Writer

Key: TypeAlias = tuple[object, ...]
"""The file, and everything about how it was opened."""


class Backend:
    """What one process has open of one file."""

    def __init__(self, path: Path, owner: Owner, writer: Writer, readers: Readers, blobs: Blobs) -> None:
        self.path = path
        self.owner = owner
        self.writer = writer
        self.readers = readers
        self.blobs = blobs
        self._file = _identity(path)

    def is_current(self) -> bool:
        """Whether the path still leads to the file that is open."""
        return self._file == _identity(self.path)

    def close(self) -> None:
        """Write what has queued up, then let the file go. Blocks."""
        self.readers.refuse()
        self.writer.stop()
        self.readers.close()


class Use:
    """A backend and how many have it open. The lock is held while it is opened or closed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.backend: Backend | None = None

    def release(self) -> None:
        """Let go of it; closed when nobody else has it. Blocks."""
        with self.lock:
            self.count -= 1
            if self.count or self.backend is None:
                return
            self.backend.close()
            self.backend = None


class Uses:
    """What this process has open. The first who needs a file opens it, the last one closes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[Key, Use] = {}

    def acquire(self, key: Key, opener: Callable[[], Backend]) -> tuple[Use, Backend]:
        """The backend of this key, opened now if nobody has it. Blocks."""
        use = self._find(key)
        with use.lock:
            if use.backend is None:
                use.backend = opener()
            use.count += 1
            return use, use.backend

    def _find(self, key: Key) -> Use:
        with self._lock:
            # a process may open many files in its life: those it has closed are forgotten
            self._uses = {known: use for known, use in self._uses.items() if known == key or use.backend is not None}
            use = self._uses.setdefault(key, Use())
            if use.backend is not None and not use.backend.is_current():
                use = self._uses[key] = Use()  # the file was replaced: those who have the old one keep it
            return use

    def forget(self) -> None:
        """After a fork: threads and connections of the parent are worth nothing here."""
        self._lock = threading.Lock()
        self._uses = {}


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


USES = Uses()
os.register_at_fork(after_in_child=USES.forget)
