"""Durations (`90s`), sizes (`200k`), spans (`1s..20s`) and money, as people write them.

Where a value stands in a file is not its business: a ValueError says what is wrong with it, and what would be right.
"""

import re
from decimal import Decimal
from math import isfinite

from chargehand.terms.duration import parse_duration, show_value

_SIZES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)(k|m|g|kib|mib|gib)?", re.IGNORECASE | re.ASCII)
_MOST = 10**15


class Duration(float):
    """Seconds; in a file `90s`, `1h30m`, `250ms`, or a bare number of seconds."""


class Size(int):
    """A count; in a file `200k`, `1.5M`, `16KiB`, or a bare number."""


class Span(tuple[float, float]):
    """From the shortest to the longest, in seconds; in a file `1s..20s`, or one duration for both."""

    __slots__ = ()


class Dollars(Decimal):
    """US dollars, exact; in a file a number such as `0.50`."""

    @property
    def micros(self) -> int:
        return int((self * 1_000_000).to_integral_value())


def duration(written: object) -> Duration:
    return Duration(parse_duration(written))


def span(written: object) -> Span:
    shortest, dots, longest = written.partition("..") if isinstance(written, str) else (written, "", "")
    low = duration(shortest)
    high = duration(longest) if dots else low
    if high < low:
        raise ValueError(f"is {show_value(written)}; the first duration must not be longer than the second")
    return Span((low, high))


def size(written: object) -> Size:
    if isinstance(written, str):
        found = _SIZE.fullmatch(written.strip())
        if not found:
            raise ValueError(f"is {show_value(written)}; write a size such as 200k, 1.5M or 16KiB")
        exact = Decimal(found[1]) * _SIZES[(found[2] or "").lower()]
    elif isinstance(written, int) and not isinstance(written, bool):
        exact = Decimal(written)
    else:
        raise ValueError(f"is {show_value(written)}; write a whole number or a size such as 200k")  # noqa: TRY004
    if exact != exact.to_integral_value() or not 0 <= exact <= _MOST:
        raise ValueError(f"is {show_value(written)}; a size is a whole number from 0 to a thousand million million")
    return Size(exact)


def dollars(written: object) -> Dollars:
    if isinstance(written, int | float) and not isinstance(written, bool) and isfinite(written):
        if 0 <= written <= _MOST / 1_000_000:
            return Dollars(str(written))
        raise ValueError(f"is {show_value(written)}; money is zero or more")
    raise ValueError(f"is {show_value(written)}; write dollars as a number such as 0.50")
