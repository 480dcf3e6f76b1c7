"""What statements are checked against: the numbers, dates, addresses, words and table rows of some values. Pure.

Every value is read once, so the time grows with its length.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from itertools import combinations
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct

from chargehand.models.artifacts import PICTURES
from chargehand.text.dates import Date
from chargehand.text.numbers import Number, find_numbers
from chargehand.text.words import STOP_WORDS, WORD, singular, split_words

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | None"
Day: TypeAlias = tuple[int, int, int]
"""Year, month and day; 0 for what is not said."""
Row: TypeAlias = tuple[int, int]
"""The number of a table, and of a row in it."""

URL = re.compile(r"\b(?:https?://|www\.)[^\s<>\"'`|\\\]]{1,2000}", re.IGNORECASE)
EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?!\w)")
_LIST_ITEM = re.compile(r"^[ \t]{0,12}(?:(?:[-*•]|\d{1,3}[.)])[ \t]|\|(?![ \t]{0,12}:?-))", re.MULTILINE)
_ESCAPE = re.compile(r"\\+[nrt'\"]")
_NO_ROW: Row = (0, 0)
_MAX_COMPARED = 14  # numbers of which every two are compared
_MAX_CELLS = 2_000_000  # rows of a table times its columns squared
_MAX_NAME_WORDS = 16
_MAX_TERM_DAYS = 3650
_HALF = Decimal("0.5")


class KnownNumbers:
    """Numbers to look others up in, without regard to their signs."""

    def __init__(self, numbers: Iterable[Decimal] = ()) -> None:
        self._numbers = set(map(abs, numbers))

    def add(self, numbers: Iterable[Decimal]) -> None:
        self._numbers.update(map(abs, numbers))

    @cached_property
    def sorted(self) -> list[Decimal]:
        """All of them; none are added once they are looked up."""
        return sorted(self._numbers)

    def near(self, number: Number, *, is_rough: bool = False) -> list[Decimal]:
        """Those that are this number, or that it may be rounded from; `is_rough`: the text says "about"."""
        near: list[Decimal] = []
        for value, step in number.readings:
            margin = _rounding_margin(value, step, is_rough=is_rough)
            start = bisect_left(self.sorted, value - margin)
            near += [figure for figure in self.sorted[start : start + 50] if figure <= value + margin]
        return near


def _rounding_margin(value: Decimal, step: Decimal, *, is_rough: bool) -> Decimal:
    """By how much a number may differ from what it was rounded from: 1,200 stands for 1,234, about 45 for 44."""
    if step < 1 or value == 0:
        return step * _HALF
    digits = str(int(value))
    zeros = len(digits) - len(digits.rstrip("0"))
    if zeros and (is_rough or (zeros > 1 and len(digits) - zeros > 1)):
        return Decimal(10) ** zeros * _HALF
    if is_rough and value >= 10:
        return value * Decimal("0.03")
    return step * _HALF


class NamedRows(Struct, frozen=True):
    """Rows that a text names by what stands in one of their cells, and where it does so."""

    rows: set[Row]
    start: int
    end: int


class KnownValues:
    """What some values hold. Any JSON; tables and lists also count for their totals, differences and lengths."""

    def __init__(self, *values: object) -> None:
        self.numbers = KnownNumbers()
        self.calculated = KnownNumbers()
        """Sums, means and differences of the numbers of a column, a list, a row, or the rows of a kind."""
        self.counts: set[int] = set()
        """How many items lists have, and how many rows there are of each kind."""
        self._numbers_in_names = KnownNumbers()
        self._texts: list[str] = []
        self._places: dict[Decimal | Day, set[Row]] = {}
        self._row_names: dict[tuple[str, ...], set[Row]] = {}
        self._tables = 0
        for value in values:
            is_plain = isinstance(value, str | int)  # of all else a copy is read: that takes tables apart
            self._read(cast("Json", value if is_plain else msgspec.json.decode(msgspec.json.encode(value))))

    # --- looking up

    @cached_property
    def _words(self) -> str:
        return f" {' '.join(plain_words(text).strip() for text in self._texts)} "

    @cached_property
    def _addresses(self) -> frozenset[str]:
        urls = [url for text in self._texts for url, _, _ in find_urls(text)]
        emails = [match[0] for text in self._texts if "@" in text for match in EMAIL.finditer(text)]
        return frozenset(map(_normalize_address, (*urls, *emails)))

    @cached_property
    def _days(self) -> list[Day]:
        return [place for place in self._places if isinstance(place, tuple)]

    @cached_property
    def _partial_days(self) -> frozenset[Day]:
        """Each day without its number, and without its year."""
        months = [(year, month, 0) for year, month, _ in self._days]
        return frozenset([*months, *((0, month, day) for _, month, day in self._days)])

    @property
    def few(self) -> list[Decimal]:
        """All its numbers, where there are few."""
        return self.numbers.sorted if len(self.numbers.sorted) <= _MAX_COMPARED else []

    def says(self, words: str) -> bool:
        """Whether these plain words stand in it, one after the other."""
        return words in self._words

    def names(self, address: str) -> bool:
        """Whether it names this URL or e-mail address, or a URL under it."""
        plain = _normalize_address(address)
        below = (f"{plain}/", f"{plain}?", f"{plain}#")
        return plain in self._addresses or any(other.startswith(below) for other in self._addresses)

    def holds(self, number: Number, *, is_rough: bool = False) -> bool:
        """Whether a number stands in it, as itself or rounded; of those in names and dates, only long ones count."""
        return bool(self.numbers.near(number, is_rough=is_rough) or self._numbers_in_names.near(number))

    def holds_date(self, wanted: Date) -> bool:
        """Whether this date stands in it, or one that falls in this month."""
        for year, month, day in wanted.readings:
            if {(year, month, day), (0, month, day)} & self._places.keys() or (year, month, day) in self._partial_days:
                return True
        return False

    def reaches_date(self, wanted: Date) -> bool:
        """Whether this date lies so many days before or after one of its dates as one of its few numbers says."""
        day = calendar_day((wanted.year, wanted.month, wanted.day))
        if day is None or len(self._days) > 200:
            return False
        terms = [timedelta(days=int(term)) for term in self.few if 0 < term <= _MAX_TERM_DAYS]
        days = set(map(calendar_day, self._days))
        return any(day - term in days or day + term in days for term in terms)

    def rows_of(self, value: Number | Date) -> set[Row]:
        """The rows in which a number or a date stands; none where it stands outside of rows, too."""
        places = value.readings if isinstance(value, Date) else self.numbers.near(value)
        rows: set[Row] = set()
        for place in places:
            rows |= self._places.get(place, set())
        return set() if _NO_ROW in rows else rows

    def find_named_rows(self, text: str) -> list[NamedRows]:
        """The rows whose cells stand in a text; of cells that begin alike, the longest."""
        if not self._row_names:
            return []
        words = [(_singular(match[0]), match.start(), match.end()) for match in WORD.finditer(text)]
        names: list[NamedRows] = []
        at = 0
        while at < len(words):
            for length in range(min(_MAX_NAME_WORDS, len(words) - at), 0, -1):
                rows = self._row_names.get(tuple([word for word, _, _ in words[at : at + length]]))
                if rows is not None:
                    names.append(NamedRows(rows, words[at][1], words[at + length - 1][2]))
                    at += length - 1
                    break
            at += 1
        return names

    # --- reading

    def _read(self, value: Json) -> None:
        stack: list[tuple[Json, Row]] = [(value, _NO_ROW)]
        while stack:
            item, row = stack.pop()
            if isinstance(item, str):
                self._read_text(item, row)
            elif isinstance(item, dict):
                stack.extend(self._read_object(item, row))
            elif isinstance(item, list):
                stack.extend(self._read_list(item, row))
            elif (number := _to_decimal(item)) is not None:
                self.numbers.add((number,))
                self._places.setdefault(abs(number), set()).add(row)

    def _read_object(self, table: dict[str, Json], row: Row) -> Iterator[tuple[Json, Row]]:
        columns = table.pop("columns", None)
        rows = table.pop("rows", None)
        if isinstance(columns, list) and isinstance(rows, list):
            more = table.get("more")
            self.counts.add(len(rows) + (more if isinstance(more, int) else 0))
            names = [str(name) for name in columns]
            lines = [line if isinstance(line, list) else [line] for line in rows]
            yield from self._read_records([dict(zip(names, line, strict=False)) for line in lines], row)
        else:
            yield from ((columns, row), (rows, row))
        numbers = _numbers_of(table.values())
        if len(numbers) == len(table) > 1 and row == _NO_ROW:  # a series: every key names a row
            yield from self._read_records([{"": key, "value": item} for key, item in table.items()], row)
            return
        self._combine(numbers)
        for key, item in table.items():
            if key not in PICTURES:
                yield from ((key, row), (item, row))

    def _read_list(self, items: list[Json], row: Row) -> Iterator[tuple[Json, Row]]:
        self.counts.add(len(items))
        records = [item for item in items if isinstance(item, dict)]
        lines = [item for item in items if isinstance(item, list)]
        if items and len(records) == len(items):
            yield from self._read_records(records, row)
        elif items and len(lines) == len(items):
            self.counts.add(len(items) - 1)  # the first may be the header
            yield from self._read_records([{str(at): cell for at, cell in enumerate(line)} for line in lines], row)
        else:
            self._combine(_numbers_of(items))
            yield from ((item, row) for item in items)

    def _read_records(self, records: Sequence[Mapping[str, Json]], outer_row: Row) -> Iterator[tuple[Json, Row]]:
        """The names of the columns and the cells of a table, with their rows."""
        self.counts.add(len(records))
        self._tables += 1
        keys = dict.fromkeys(key for record in records for key in record)
        yield from ((key, outer_row) for key in keys)
        for number, record in enumerate(records):
            row = (self._tables, number) if outer_row == _NO_ROW and len(records) > 1 else outer_row
            for key, cell in record.items():
                if isinstance(cell, str) and row != _NO_ROW:
                    self._name_row(row, cell)
                if key not in PICTURES:
                    yield cell, row
        if len(records) * len(keys) ** 2 <= _MAX_CELLS:
            self._combine_table(records, keys)

    def _combine_table(self, records: Sequence[Mapping[str, Json]], keys: Iterable[str]) -> None:
        """Combine the cells of every column, of a column in the rows of each kind, and of every row."""
        columns = {key: [record.get(key) for record in records] for key in keys}
        numeric = [column for column in columns.values() if _numbers_of(column)]
        for column in numeric:
            self._combine(_numbers_of(column))
        for column in columns.values():
            for places in _rows_by_kind(column):
                self.counts.add(len(places))
                for other in numeric:
                    self._combine(_numbers_of(other[at] for at in places))
        for record in records[:2000]:
            self._combine(_numbers_of(record.values()), with_mean=False)

    def _combine(self, numbers: Sequence[Decimal], *, with_mean: bool = True) -> None:
        """The sum and the mean of some numbers, and what sets every two of them apart."""
        if len(numbers) > 1:
            total = sum(numbers, Decimal(0))
            self.calculated.add((total, total / len(numbers)) if with_mean else (total,))
        if len(numbers) <= _MAX_COMPARED:
            self.calculated.add(first - second for first, second in combinations(numbers, 2))

    def _name_row(self, row: Row, cell: str) -> None:
        words = tuple([_singular(word) for word in WORD.findall(cell[:200])])
        min_length = 5 if "".join(words).isdigit() else 2  # 10441 may be an order, 12 is none
        if 0 < len(words) <= _MAX_NAME_WORDS and len(cell) >= min_length and words[0] not in STOP_WORDS:
            self._row_names.setdefault(words, set()).add(row)

    def _read_text(self, text: str, row: Row) -> None:
        self._texts.append(text)
        if "\n" in text:
            self.counts.add(count_listed(text))
        for number in find_numbers(text):
            for day in number.dates:
                self._places.setdefault(day, set()).add(row)
            if number.kind in ("number", "word"):
                self.numbers.add(number.values)
                for value in number.values:
                    self._places.setdefault(abs(value), set()).add(row)
            else:
                is_long = number.kind == "name" and len(number.text) > 2
                self._numbers_in_names.add(value for value in number.values if is_long or value >= 100)


def calendar_day(day: Day) -> date | None:
    try:
        return date(*day)
    except ValueError:
        return None


def find_urls(text: str) -> Iterator[tuple[str, int, int]]:
    """The URLs of a text, without what ends a sentence, and where they stand."""
    for match in URL.finditer(text):
        url = match[0].rstrip(".,;:!?*_")
        while url.endswith(")") and url.count("(") < url.count(")"):
            url = url[:-1].rstrip(".,;:!?*_")
        yield url, match.start(), match.start() + len(url)


def plain_words(text: str) -> str:
    """The words of a text alone, with one space before and behind each. Escapes of quoted text are no words."""
    return f" {' '.join(split_words(_ESCAPE.sub(' ', text)))} "


def count_listed(text: str) -> int:
    """How many items or rows a text lists."""
    return len(_LIST_ITEM.findall(text))


def _normalize_address(address: str) -> str:
    return re.sub(r"^(?:https?://)?(?:www\.)?", "", address.casefold()).rstrip("/")


def _singular(word: str) -> str:
    return singular(word.casefold())


def _to_decimal(value: Json) -> Decimal | None:
    """A number as a decimal; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Decimal(str(value)) if is_number else None


def _numbers_of(cells: Iterable[Json]) -> list[Decimal]:
    return [number for cell in cells if (number := _to_decimal(cell)) is not None]


def _rows_by_kind(column: Sequence[Json]) -> list[list[int]]:
    """The rows of each kind, where a column of texts or truths has fewer kinds than rows."""
    kinds: dict[str, list[int]] = {}
    for row, cell in enumerate(column):
        if isinstance(cell, str | bool):
            kinds.setdefault(str(cell), []).append(row)
    return list(kinds.values()) if len(kinds) < len(column) else []
