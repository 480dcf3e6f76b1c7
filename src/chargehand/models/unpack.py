"""Takes compressed bodies apart piece by piece, so that a small body can never become a huge one in memory."""

import zlib
from collections.abc import Iterator
from typing import Protocol

from chargehand.models.call_errors import Unreadable

_PIECE = 65_536
_GZIP = 31  # zlib's way to say: with gzip's header and checksum
ACCEPTED = "gzip"


class Unpacker(Protocol):
    """`pieces` yields at most 64 KiB at a time. `whole` says at the end whether the body was complete."""

    def pieces(self, chunk: bytes) -> Iterator[bytes]: ...

    def whole(self) -> bool: ...


class Inflate:
    """Of gzip. Raises Unreadable for what is no such stream, or goes on after its end."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=_GZIP)
        self._begun = False

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        self._begun = True
        rest = chunk
        while rest:
            try:
                piece = self._stream.decompress(rest, _PIECE)
            except zlib.error as error:
                raise Unreadable(f"it cannot be decompressed ({error})") from error
            if self._stream.unused_data:
                raise Unreadable("its compressed body goes on after the end")
            rest = self._stream.unconsumed_tail
            if piece:
                yield piece

    def whole(self) -> bool:
        return self._stream.eof or not self._begun


def unpacker(encoding: str) -> Unpacker | None:
    """None when nothing has to be done. Raises Unreadable for an encoding nobody asked for."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in (ACCEPTED, "x-gzip"):
        raise Unreadable("it is compressed in a way that was not asked for")
    return Inflate()
