"""Numbers and dates that are known, to look up others in: what an answer states against what its sources hold. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from chargehand.text.dates import Date
from chargehand.text.numbers import Quantity

_HALF = Decimal("0.5")
_MOST = 500_000
_LONGEST_TERM = 3650  # days


class KnownNumbers:
    """Numbers to look others up in; quick however many there are."""

    def __init__(self, found: Iterable[Decimal]) -> None:
        kept: set[Decimal] = set()
        for one in found:
            kept.add(abs(one))
            if len(kept) >= _MOST:
                break
        self.full = len(kept) >= _MOST
        self._sorted = sorted(kept)

    @property
    def all(self) -> list[Decimal]:
        """Each once, the smallest first."""
        return self._sorted

    def near(self, one: Quantity) -> list[Decimal]:
        """Those that are this number, or what it was rounded from."""
        found: list[Decimal] = []
        for value, step in one.readings:
            at = bisect_left(self._sorted, value - step * _HALF)
            while at < len(self._sorted) and self._sorted[at] <= value + step * _HALF and len(found) < 100:
                found.append(self._sorted[at])
                at += 1
        return found

    def hold(self, one: Quantity, *, rough: bool = False) -> bool:
        """Whether one of them is this number, or is what it was rounded from."""
        return any(self._near(value, step * _HALF) for value, step in one.readings) or any(
            self._near(value, step * _HALF) for value, step in _rounded(one, rough=rough)
        )

    def _near(self, value: Decimal, within: Decimal) -> bool:
        at = bisect_left(self._sorted, value - within)
        return at < len(self._sorted) and self._sorted[at] <= value + within


def _rounded(one: Quantity, *, rough: bool) -> Iterator[tuple[Decimal, Decimal]]:
    """A number that ends in noughts may stand for any that is rounded to it: 1,200, and about 40."""
    for value, step in one.readings:
        if step < 1 or value == 0:
            continue
        digits = str(int(value))
        noughts = len(digits) - len(digits.rstrip("0"))
        if noughts and (rough or (noughts > 1 and len(digits) - noughts > 1)):
            yield value, Decimal(10) ** noughts
        elif rough and value >= 10:  # "about 45" may be 44 or 46
            yield value, value * Decimal("0.06")


def is_same_number(one: Quantity, other: Quantity) -> bool:
    """Whether two numbers may be one and the same, one of them rounded."""
    return KnownNumbers(value for value, _ in one.readings).hold(other) or (
        KnownNumbers(value for value, _ in other.readings).hold(one)
    )


def day_of(instant: float) -> date:
    """The day of an instant, in UTC."""
    try:
        return datetime.fromtimestamp(instant, UTC).date()
    except (OverflowError, ValueError, OSError):
        return date.min


def is_about(day: Date, today: date) -> bool:
    """Whether a day is today, or, elsewhere on earth and a little later, the day before or after."""
    near = (today - timedelta(days=1), today, today + timedelta(days=1)) if date.min < today < date.max else (today,)
    return any((one.month, one.day) == (day.month, day.day) and day.year in (0, one.year) for one in near)


class KnownDates:
    """Days to look others up in."""

    def __init__(self, days: Iterable[tuple[int, int, int]]) -> None:
        self._days = frozenset(days)
        self._months = frozenset((year, month) for year, month, _ in self._days)
        self._yearless = frozenset((month, day) for _, month, day in self._days)
        self._without_year = frozenset((month, day) for year, month, day in self._days if not year)

    def hold(self, day: Date) -> bool:
        """Whether one of them is this day, or falls in this month."""
        return any(self._holds(*reading) for reading in day.readings)

    def _holds(self, year: int, month: int, day: int) -> bool:
        if not day:
            return (year, month) in self._months
        if not year:
            return (month, day) in self._yearless
        return (year, month, day) in self._days or (month, day) in self._without_year

    def reach(self, day: Date, terms: Iterable[int]) -> bool:
        """Whether this day lies so many days before or after one of them: due 30 days after an invoice."""
        wanted = _calendar(day.year, day.month, day.day)
        if wanted is None or len(self._days) > 200:
            return False
        steps = [timedelta(days=term) for term in terms if 0 < term <= _LONGEST_TERM][:200]
        known = {calendar for one in self._days if (calendar := _calendar(*one)) is not None}
        return any(wanted - step in known or wanted + step in known for step in steps)


def _calendar(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
