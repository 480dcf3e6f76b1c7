"""Vectors without numpy: slower by far, and the same in every result. Where vectors are kept is not known here."""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from math import fsum, isfinite, sqrt
from operator import mul

from chargehand.errors import Invalid

ROUGHLY = 3  # times as many are given as are wanted: signs alone are not sure enough


def unit(vectors: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Each vector, made to have length one, and its signs. Invalid for one that points nowhere."""
    return [_unit(at, vector) for at, vector in enumerate(vectors)]


def _unit(at: int, vector: bytes) -> tuple[bytes, bytes]:
    numbers = _floats(vector)
    length = sqrt(fsum(number * number for number in numbers)) if all(map(isfinite, numbers)) else 0.0
    if not length:
        raise Invalid(nowhere(at))
    numbers = array("f", [number / length for number in numbers])
    signs = 0
    for number in numbers:
        signs = signs << 1 | (number > 0)
    count = 8 * -(-len(numbers) // 64)
    bits = (signs << 8 * count - len(numbers)).to_bytes(count, "big")
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes(), bits


def nowhere(at: int) -> str:
    return f"vector {at} is all zeros or holds a number that is not finite; embed its text again"


def _floats(vector: bytes) -> "array[float]":
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def likeness(asked: bytes, rows: Sequence[tuple[int, bytes]]) -> dict[int, float]:
    """The inner product of a vector with each of these, by number."""
    wanted = _floats(asked)
    return {number: max(-1.0, min(1.0, sum(map(mul, wanted, _floats(vector))))) for number, vector in rows}


class Signs:
    """The signs of many vectors, by number. Adding makes a new one, so that who reads is not disturbed."""

    def __init__(self, rows: Iterable[tuple[int, int]] = ()) -> None:
        known = sorted(rows)
        self._numbers = [number for number, _ in known]
        self._signs = [signs for _, signs in known]

    def __len__(self) -> int:
        return len(self._numbers)

    def added(self, rows: Sequence[tuple[int, bytes]]) -> "Signs":
        known = zip(self._numbers, self._signs, strict=True)
        return Signs([*known, *((number, int.from_bytes(bits, "big")) for number, bits in rows)])

    def nearest(self, asked: bytes, bits: bytes, count: int, among: Sequence[int] | None = None) -> list[int]:  # noqa: ARG002 - numpy looks closer
        """The numbers of at least so many that are the nearest, as far as signs tell; of `among` only."""
        numbers = self._numbers
        signs = self._signs
        if among is not None:
            places = [place for number in among if (place := self._place(number)) >= 0]
            numbers = [numbers[place] for place in places]
            signs = [signs[place] for place in places]
        count *= ROUGHLY
        if len(numbers) <= count:
            return list(numbers)
        wanted = int.from_bytes(bits, "big")
        distances = ((wanted ^ one).bit_count() for one in signs)
        return [number for _, number in nsmallest(count, zip(distances, numbers, strict=True))]

    def _place(self, number: int) -> int:
        place = bisect_left(self._numbers, number)
        return place if place < len(self._numbers) and self._numbers[place] == number else -1
