"""Vectors of passages: the nearest among many, with numpy, which is imported only here.

Only the signs of each vector, one bit a dimension, are held in memory. Those that differ least from the question are
looked at more closely, and the best of them compared exactly with the vectors in the file. With a hundred thousand
vectors that is several times quicker than comparing all, and finds the same but for one in a thousand.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy
from msgspec import Struct
from numpy.typing import NDArray

from chargehand.errors import Invalid

Words: TypeAlias = NDArray[numpy.uint64]
Numbers: TypeAlias = NDArray[numpy.int64]

ROUGHLY = 10  # times as many are looked at more closely as are wanted in the end


def unit(vectors: Sequence[bytes]) -> list[bytes]:
    """Each vector, made to have length one. Invalid for one that points nowhere."""
    if not vectors:
        return []
    matrix = numpy.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1).astype(numpy.float64)
    lengths = numpy.sqrt((matrix * matrix).sum(axis=1))
    wrong = numpy.flatnonzero(~(numpy.isfinite(lengths) & (lengths > 0)))
    if len(wrong):
        raise Invalid(f"vector {int(wrong[0])} is all zeros or holds a number that is not finite; embed its text again")
    units = (matrix / lengths[:, None]).astype("<f4")
    return [vector.tobytes() for vector in units]


def sign_bits(vectors: Sequence[bytes]) -> list[bytes]:
    """The signs of each of these vectors: one bit a dimension."""
    if not vectors:
        return []
    matrix = numpy.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)
    packed = numpy.packbits(matrix > 0, axis=1)
    bits = numpy.zeros((len(vectors), 8 * -(-packed.shape[1] // 8)), numpy.uint8)
    bits[:, : packed.shape[1]] = packed
    return [signs.tobytes() for signs in bits]


def likeness(asked: bytes, rows: Sequence[tuple[int, bytes]]) -> dict[int, float]:
    """The inner product of a vector with each of these, by number."""
    if not rows:
        return {}
    wanted = numpy.frombuffer(asked, "<f4")
    matrix = numpy.frombuffer(b"".join([vector for _, vector in rows]), "<f4").reshape(len(rows), -1)
    # not with @: that starts threads, which wait for each other on a busy machine
    cosines = numpy.clip(numpy.einsum("rd,d->r", matrix, wanted), -1.0, 1.0).tolist()
    return {number: score for (number, _), score in zip(rows, cosines, strict=True)}


class Signs(Struct, frozen=True):
    """The signs of many vectors, by rising number: 48 bytes a vector of 384 dimensions, and 8 for its number."""

    numbers: Numbers
    words: Words
    """Dimension by dimension, 64 at a time; a column for each vector."""

    def added(self, rows: Sequence[tuple[int, bytes]]) -> "Signs":
        """These and others."""
        if not rows:
            return self
        fresh = _words([bits for _, bits in rows])
        numbers = numpy.concatenate([self.numbers, [number for number, _ in rows]])
        words = numpy.concatenate([self.words, fresh], axis=1) if len(self.numbers) else fresh
        if (numpy.diff(numbers) < 0).any():
            order = numpy.argsort(numbers)
            numbers = numbers[order]
            words = words[:, order]
        return Signs(numbers, numpy.ascontiguousarray(words))

    def nearest(self, question: "VectorQuery", count: int, among: Sequence[int] | None = None) -> list[int]:
        """The numbers of those that are the nearest, as far as signs tell; of `among` only."""
        numbers = self.numbers
        words = self.words
        if among is not None:
            wanted = numpy.asarray(among, numpy.int64)
            places = numpy.minimum(numpy.searchsorted(numbers, wanted), max(0, len(numbers) - 1))
            places = places[numbers[places] == wanted] if len(numbers) else places[:0]
            numbers = numbers[places]
            words = words[:, places]
        if len(numbers) <= count:
            return numbers.tolist()
        if len(numbers) > ROUGHLY * count:
            distances = _distances(words, _words([question.bits])[:, 0])
            # the least distance that takes in enough of them: counting is quicker than sorting
            reach = numpy.searchsorted(numpy.cumsum(numpy.bincount(distances)), ROUGHLY * count)
            places = numpy.flatnonzero(distances <= reach)
            numbers = numbers[places]
            words = words[:, places]
        return numbers[numpy.argpartition(-_leanings(words, question.vector), count)[:count]].tolist()


NO_SIGNS = Signs(numpy.zeros(0, numpy.int64), numpy.zeros((0, 0), numpy.uint64))


def _words(bits: Sequence[bytes]) -> Words:
    """One column a vector."""
    return numpy.frombuffer(b"".join(bits), numpy.uint64).reshape(len(bits), -1).T


def _distances(words: Words, question: Words) -> NDArray[numpy.uint16]:
    distances = numpy.zeros(words.shape[1], numpy.uint16)
    for row, word in zip(words, question, strict=True):
        distances += numpy.bitwise_count(row ^ word)
    return distances


def _leanings(words: Words, vector: bytes) -> NDArray[numpy.float32]:
    """How alike each is, as far as its signs tell: of what is asked for, more than the signs is known.

    For each of its bytes a table says what that adds. Quicker than unpacking bits, and no thread but this one is busy.
    """
    wanted = numpy.zeros(64 * len(words), numpy.float32)
    values = numpy.frombuffer(vector, "<f4")
    wanted[: len(values)] = values
    patterns = numpy.unpackbits(numpy.arange(256, dtype=numpy.uint8)[:, None], axis=1).astype(numpy.float32)
    tables = numpy.einsum("pb,wb->wp", patterns, wanted.reshape(-1, 8))
    sums = numpy.zeros(words.shape[1], numpy.float32)
    for table, column in zip(tables, numpy.ascontiguousarray(words.T).view(numpy.uint8).T, strict=True):
        sums += table.take(column)
    return sums


class VectorQuery(Struct, frozen=True):
    """A vector of length one, and its signs."""

    vector: bytes
    bits: bytes
