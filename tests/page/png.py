"""Smaller pictures: screenshots with a palette of 256 colours, which is a third of the bytes and looks the same."""

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256
_KINDS = 160
_BYTES = {2: 3, 6: 4}
"""Bytes of a pixel by the kind of picture: with and without transparency."""


def shrink(picture: bytes) -> bytes:
    """A picture of 8 bits a channel with its commonest colours; each other pixel gets the nearest of them."""
    chunks = list(_chunks(picture))
    width, height, _, kind = struct.unpack(">IIBB", chunks[0][1][:10])
    packed = b"".join(data for name, data in chunks if name == b"IDAT")
    size = _BYTES[kind]
    rows = [
        [bytes(row[at : at + 3]) for at in range(0, len(row), size)]
        for row in _rows(zlib.decompress(packed), width * size, size)
    ]
    counts = Counter(pixel for row in rows for pixel in row)
    palette = _choose_palette(counts)
    index = {colour: min(range(len(palette)), key=lambda at: _distance(palette[at], colour)) for colour in counts}
    plain = b"".join(b"\0" + bytes(index[pixel] for pixel in row) for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(plain, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def _choose_palette(counts: Counter[bytes]) -> list[bytes]:
    """The commonest colour of each hue and shade, so that none is lost that is rare, and then the commonest others."""
    kinds: dict[bytes, bytes] = {}
    for colour, _ in counts.most_common():
        kinds.setdefault(bytes(channel >> 5 for channel in colour), colour)
    first = list(kinds.values())[:_KINDS]
    rest = [colour for colour, _ in counts.most_common(_COLOURS + _KINDS) if colour not in first]
    return [*first, *rest][:_COLOURS]


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _distance(one: bytes, other: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _rows(raw: bytes, length: int, size: int) -> Iterator[bytearray]:
    """The rows as they were before they were filtered; `size` is that of a pixel."""
    above = bytearray(length)
    for at in range(0, len(raw), length + 1):
        row = bytearray(raw[at + 1 : at + 1 + length])
        kind = raw[at]
        for place in range(length if kind else 0):
            left = row[place - size] if place >= size else 0
            corner = above[place - size] if place >= size else 0
            guess = (left, above[place], (left + above[place]) // 2, _paeth(left, above[place], corner))[kind - 1]
            row[place] = (row[place] + guess) & 255
        yield row
        above = row


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda value: abs(guess - value))
