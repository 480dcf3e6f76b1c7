"""Bodies too large for a journal's rows, found again by what they contain."""

import os
import re
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from chargehand.errors import Corrupt, StoreUnavailable
from chargehand.sqlite.connection import sync_directory

LIMIT = 64 * 1024
"""The size in bytes above which a journal puts a body here and keeps only its reference."""

BLOBS_SUFFIX = "-blobs"
_REFERENCE = re.compile(r"[0-9a-f]{64}")


class Blobs(Protocol):
    """May block, so journals that wait for a disk call it in a thread."""

    def put(self, body: bytes) -> str:
        """Durable on return; the same body always has the same reference."""
        ...

    def get(self, reference: str) -> bytes:
        """The very bytes that were put; Corrupt if they are damaged or gone."""
        ...


class FileBlobs:
    """One file a body, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def beside(cls, journal: Path) -> "FileBlobs":
        """The directory with the bodies of a journal file."""
        return cls(journal.with_name(journal.name + BLOBS_SUFFIX))

    def put(self, body: bytes) -> str:
        reference = sha256(body).hexdigest()
        try:
            if not self._directory.is_dir():
                self._directory.mkdir(parents=True, exist_ok=True)
                sync_directory(self._directory.parent)
            try:
                os.utime(self._directory / reference)  # it is needed again: whoever deletes old ones leaves it
            except FileNotFoundError:
                self._write(reference, body)
            # also when it was there: whoever put it may have died before this line
            sync_directory(self._directory)
        except OSError as error:
            raise StoreUnavailable(
                f"a body of {len(body)} bytes could not be kept in {self._directory}: {error}. "
                "Make room there, or make it writable, and try again"
            ) from error
        return reference

    def _write(self, reference: str, body: bytes) -> None:
        handle, name = tempfile.mkstemp(prefix=".new-", dir=self._directory)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._directory / reference)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def delete(self, reference: str, *, before: float) -> int:
        """Delete a body that was put last before this time; its size, 0 if it was put since or is not there.

        It is moved aside first, so that whoever puts it again at this moment either is noticed or writes it anew.
        """
        body = self._directory / reference
        aside = self._directory / f".old-{reference}"
        try:
            body.replace(aside)
            status = aside.stat()
            if status.st_mtime >= before:
                aside.replace(body)
                return 0
            aside.unlink()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StoreUnavailable(f"{body} cannot be deleted: {error}; make its folder writable") from error
        return max(status.st_size, 1)

    def get(self, reference: str) -> bytes:
        # a damaged reference must not lead out of the directory
        if not _REFERENCE.fullmatch(reference):
            raise Corrupt(f"{reference!r} is not the name of a blob in {self._directory}")
        try:
            body = (self._directory / reference).read_bytes()
        except FileNotFoundError as error:
            raise Corrupt(f"blob {reference} is missing from {self._directory}; restore it from a backup") from error
        except OSError as error:
            raise StoreUnavailable(f"blob {reference} in {self._directory} cannot be read: {error}") from error
        if sha256(body).hexdigest() != reference:
            raise Corrupt(f"blob {reference} in {self._directory} is damaged; restore it from a backup")
        return body
