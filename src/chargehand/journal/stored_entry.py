"""An entry as every store keeps it: its columns, and a checksum over them."""

import struct
import zlib
from collections.abc import Callable
from typing import TypeAlias

from chargehand.engine.events import Entry
from chargehand.errors import Corrupt
from chargehand.journal.codec import TAGS, decode, version_of
from chargehand.journal.protocol import Lease, damaged

StoredEntry: TypeAlias = tuple[int, float, int, str, int, bytes, str, int]
"""Seq, at, epoch, type, version, body, blob, crc. A large body may lie in the blob named, then the body is empty."""
_NUMBERS = struct.Struct("<qdqq")
_UNFIT = (TypeError, ValueError, AttributeError, OverflowError, struct.error)
"""What is raised over columns that hold another type than they should."""


def _checksum(run: str, seq: int, at: float, epoch: int, kind: str, version: int, body: bytes, blob: str) -> int:
    head = _NUMBERS.pack(seq, at, epoch, version) + f"{run}\0{kind}\0{blob}".encode()
    return zlib.crc32(body, zlib.crc32(head))


def stored_entry(lease: Lease, entry: Entry, body: bytes, blob: str = "") -> StoredEntry:
    """The columns of an entry under this lease."""
    seq = entry.seq
    at = entry.at
    epoch = lease.epoch
    event = entry.event
    kind = TAGS[type(event)]
    version = version_of(event)
    body = b"" if blob else body
    crc = _checksum(run=lease.run, seq=seq, at=at, epoch=epoch, kind=kind, version=version, body=body, blob=blob)
    return seq, at, epoch, kind, version, body, blob, crc


def verified(run: str, expected: int, row: StoredEntry, blob_body: Callable[[str], bytes]) -> Entry:
    """The entry in a row, if it is the one expected and as it was written."""
    seq, at, epoch, kind, version, body, blob, crc = row
    if seq != expected:
        raise damaged(run, expected, "is missing")
    try:
        if crc != _checksum(run=run, seq=seq, at=at, epoch=epoch, kind=kind, version=version, body=body, blob=blob):
            raise damaged(run, seq, "is damaged")
        content = blob_body(blob) if blob else body
    except _UNFIT as error:
        raise damaged(run, seq, "is damaged") from error
    except Corrupt as error:
        if error.run:
            raise
        raise damaged(run, seq, f"cannot be read: {error}") from error
    return Entry(seq, at, decode(kind, version, content, run=run, seq=seq))
