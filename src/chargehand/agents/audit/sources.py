"""What statements are checked against: the numbers, dates, addresses, words and table rows of some values. Pure.

Every value is read once, so the time grows with its length.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import combinations
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct, structs

from chargehand.models.artifacts import PICTURES
from chargehand.text.dates import Date
from chargehand.text.numbers import Quantity, find_numbers
from chargehand.text.units import convert, spell_unit, unit_behind, unit_of_key
from chargehand.text.words import STOP_WORDS, WORD, singular, split_words

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | None"
Day: TypeAlias = tuple[int, int, int]
"""Year, month and day; 0 for what is not said."""

URL = re.compile(r"\b(?:https?://|www\.)[^\s<>\"'`|\\\]]{1,2000}", re.IGNORECASE)
EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?!\w)")
_ESCAPED = re.compile(r"\\+[nrt'\"]")
_KEY_PART = re.compile(r"[A-Z]?[^\W\d_A-Z]+\d?|[A-Z]+|\d+")
_LISTED = re.compile(r"^[ \t]{0,12}(?:(?:[-*•]|\d{1,3}[.)])[ \t]|\|(?![ \t]{0,12}:?-))", re.MULTILINE)
_WORDS_BEHIND = re.compile(r"[^\w\n.;]{0,3}([^\W\d_]+)(?:[^\w\n.;]([^\W\d_]+))?(?:[^\w\n.;]([^\W\d_]+))?")
_WORD_OR_END = re.compile(r"[^\W\d_]+|[.;\n]")
_NOUN = re.compile(r"[ \u00a0]([^\W\d_]+)")
_UNINFORMATIVE = STOP_WORDS | {"least", "less", "most", "true", "false"}

MAX_CHARACTERS = 8_000_000
_MAX_NODES = 500_000
_MAX_LABELLED = 60_000  # numbers whose labels are kept; of more, none
_MAX_ROWS = 20_000
_MAX_CELLS = 200_000
_MAX_COLUMNS = 40
_MAX_COMPARED = 14  # numbers of which every two are compared
_MAX_NAME_WORDS = 6
_MAX_LONG_CELLS = 200
_MAX_TERM_DAYS = 3650
_CACHED_LENGTHS = range(5_000, 200_001)
_HALF = Decimal("0.5")


class KnownNumbers:
    """Numbers to look others up in, without regard to their signs."""

    def __init__(self, numbers: Iterable[Decimal] = ()) -> None:
        self._numbers: set[Decimal] = set()
        self.add(numbers)

    def add(self, numbers: Iterable[Decimal]) -> None:
        self._numbers.update(map(abs, numbers))

    @cached_property
    def sorted(self) -> list[Decimal]:
        """All of them; none are added once they are looked up."""
        return sorted(self._numbers)

    def near(self, quantity: Quantity, *, limit: int = 50) -> list[Decimal]:
        """Those that are this number, or what it was rounded from."""
        return [number for value, step in quantity.readings for number in self._within(value, step * _HALF, limit)]

    def hold(self, quantity: Quantity, *, is_rough: bool = False) -> bool:
        """Whether one of them is this number, or what it was rounded from."""
        if self.near(quantity, limit=1):
            return True
        return any(self._within(value, margin, 1) for value, margin in _rounding_margins(quantity, is_rough=is_rough))

    def _within(self, value: Decimal, margin: Decimal, limit: int) -> list[Decimal]:
        start = bisect_left(self.sorted, value - margin)
        return [number for number in self.sorted[start : start + limit] if number <= value + margin]


def _rounding_margins(quantity: Quantity, *, is_rough: bool) -> Iterator[tuple[Decimal, Decimal]]:
    """A number that ends in zeros may stand for any that is rounded to it: 1,200, and about 40."""
    for value, step in quantity.readings:
        if step < 1 or value == 0:
            continue
        digits = str(int(value))
        zeros = len(digits) - len(digits.rstrip("0"))
        if zeros and (is_rough or (zeros > 1 and len(digits) - zeros > 1)):
            yield value, Decimal(10) ** zeros * _HALF
        elif is_rough and value >= 10:  # "about 45" may be 44 or 46
            yield value, value * Decimal("0.03")


class KnownDates:
    """Dates to look others up in, with the rows in which they stand."""

    def __init__(self) -> None:
        self._rows: dict[Day, set[int]] = {}
        self._partial: set[Day] = set()  # each without its day, and without its year

    def add(self, day: Day, row: int) -> None:
        year, month, number = day
        self._rows.setdefault(day, set()).add(row)
        self._partial.update(((year, month, 0), (0, month, number)))

    def hold(self, wanted: Date) -> bool:
        """Whether one of them is this date, or falls in this month."""
        for year, month, day in wanted.readings:
            if (year, month, day) in self._rows or (year, month, day) in self._partial or (0, month, day) in self._rows:
                return True
        return False

    def rows_of(self, wanted: Date) -> set[int]:
        """The rows in which a date stands."""
        return {row for reading in wanted.readings for row in self._rows.get(reading, ()) if row >= 0}

    def reach(self, wanted: Date, terms: Iterable[int]) -> bool:
        """Whether this date is one of these numbers of days before or after one of them."""
        day = calendar_day((wanted.year, wanted.month, wanted.day))
        if day is None or len(self._rows) > 200:
            return False
        steps = [timedelta(days=term) for term in terms if 0 < term <= _MAX_TERM_DAYS][:200]
        known = {calendar_day(known_day) for known_day in self._rows}
        return any(day - step in known or day + step in known for step in steps)


def calendar_day(day: Day) -> date | None:
    try:
        return date(*day)
    except ValueError:
        return None


class Figure(Struct, frozen=True, gc=False):
    """A number where it stands, with the ways to read it."""

    values: tuple[Decimal, ...]
    unit: str = ""
    about: frozenset[str] = frozenset()
    """Words beside it, of its key, and of the names of its row."""
    nouns: frozenset[str] = frozenset()
    """Those of these words that it counts or measures."""
    row: int = -1
    dates: tuple[Day, ...] = ()
    is_in_name: bool = False
    """It is part of a name, a date or a time: A-1042, 2024-03-05."""


class _Place(Struct, frozen=True):
    """Where a value stands: the words of its key, and its row."""

    words: tuple[str, ...] = ()
    row: int = -1


_Placed: TypeAlias = Iterable[tuple[Json, _Place]]


class Evidence:
    """What some values hold. Any JSON; tables and lists also count for their totals, differences and lengths."""

    def __init__(self, *values: object) -> None:
        self.rows = Rows()
        self.dates = KnownDates()
        self.counts: set[int] = set()
        """How many items lists have, and how many rows there are of each kind."""
        self._nouns: set[str] = set()
        self._texts: list[str] = []
        self._figures: list[Figure] = []
        self._by_value: dict[Decimal, list[Figure]] = {}
        self.numbers = KnownNumbers()
        self._numbers_in_names = KnownNumbers()
        self.sums = KnownNumbers()
        self.differences = KnownNumbers()
        self._nodes_left = _MAX_NODES
        self._characters = 0
        for value in values:
            plain = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
            self._read(cast("Json", plain))
        self.is_whole = self._nodes_left > 0
        """False where there was more than was read: nothing can be said to be missing then."""
        self._combine(self.few)
        if len(self._figures) >= _MAX_LABELLED:
            self._figures.clear()
        for figure in self._figures:
            self._nouns |= figure.nouns
            for number in figure.values:
                self._by_value.setdefault(abs(number), []).append(figure)

    # --- looking up

    @cached_property
    def _words(self) -> str:
        return f" {' '.join(plain_words(text).strip() for text in self._texts)} "

    @cached_property
    def _addresses(self) -> frozenset[str]:
        urls = [url for text in self._texts for url, _, _ in find_urls(text)]
        emails = [match[0] for text in self._texts if "@" in text for match in EMAIL.finditer(text)]
        return frozenset(map(_normalize_address, (*urls, *emails)))

    def says(self, words: str) -> bool:
        """Whether these plain words stand in it, one after the other."""
        return words in self._words

    def names(self, address: str) -> bool:
        """Whether it names this URL or e-mail address, or a URL under it."""
        plain = _normalize_address(address)
        below = (f"{plain}/", f"{plain}?", f"{plain}#")
        return plain in self._addresses or any(known.startswith(below) for known in self._addresses)

    def holds(self, quantity: Quantity, *, is_rough: bool = False) -> bool:
        """Whether a number stands in it, as itself or rounded; of those in names and dates, only long ones count."""
        return self.numbers.hold(quantity, is_rough=is_rough) or self._numbers_in_names.hold(quantity)

    def figures(self, quantity: Quantity) -> list[Figure]:
        """Where this number stands, as far as its labels are kept; what it is rounded from, if it is nowhere itself."""
        for value, _ in quantity.readings:
            if exact := self._by_value.get(abs(value)):
                return exact
        return [figure for value in self.numbers.near(quantity) for figure in self._by_value.get(value, ())]

    def counts_noun(self, noun: str) -> bool:
        """Whether it says a number of this."""
        return noun in self._nouns

    def converts_to(self, quantity: Quantity) -> bool:
        """Whether a number is one of these in another unit: 7,000 ft for 2,134 m."""
        if not quantity.measure or len(self._figures) > 2000:
            return False
        measured = [figure for figure in self._figures if figure.unit and figure.unit != quantity.measure]
        converted = (convert(abs(figure.values[0]), figure.unit, quantity.measure) for figure in measured)
        as_written = structs.replace(quantity, readings=quantity.readings[:1])
        return KnownNumbers(value for value in converted if value is not None).hold(as_written, is_rough=True)

    @property
    def few(self) -> list[Decimal]:
        """All its numbers, where there are few."""
        return self.numbers.sorted if len(self.numbers.sorted) <= _MAX_COMPARED else []

    # --- reading

    def _read(self, value: Json) -> None:
        stack: list[tuple[Json, _Place]] = [(value, _Place())]
        while stack and self._nodes_left > 0:
            self._nodes_left -= 1
            item, place = stack.pop()
            if isinstance(item, str):
                stack.extend(self._read_text(item, place))
            elif isinstance(item, dict):
                stack.extend(self._read_object(_with_text_keys(item), place))
            elif isinstance(item, list | tuple):
                stack.extend(self._read_list(item, place))
            elif (number := _to_decimal(item)) is not None:
                self._add_characters(8)
                self.numbers.add((number,))
                self._label(Figure((number,), unit_of_key(list(place.words))), place)

    def _read_object(self, table: Mapping[str, Json], place: _Place) -> _Placed:
        columns = table.get("columns")
        rows = table.get("rows")
        if isinstance(columns, list | tuple) and isinstance(rows, list | tuple):
            more = table.get("more")
            if isinstance(more, int):
                self.counts.add(len(rows) + more)
            others = [(item, place) for key, item in table.items() if key not in ("columns", "rows", *PICTURES)]
            return [*self._read_table([str(name) for name in columns], rows, place), *others]
        self._read_names(table)
        numbers = _numbers_of(table.values())
        self._combine(numbers)
        is_series = 1 < len(numbers) == len(table) and place.row < 0
        found: list[tuple[Json, _Place]] = []
        for key, item in table.items():
            if key in PICTURES:
                continue
            words = _key_words(key)
            if isinstance(item, list | tuple) and item:
                self._nouns |= set(words) - _UNINFORMATIVE
            row = self.rows.add(place.row, {0: key}) if is_series else place.row
            found.append((item, _Place(words, row)))
        return found

    def _read_list(self, items: Sequence[Json], place: _Place) -> _Placed:
        self.counts.add(len(items))
        records = [_with_text_keys(item) for item in items if isinstance(item, dict)]
        if len(records) > 1 and len(records) == len(items):
            keys = dict.fromkeys(key for record in records[:_MAX_ROWS] for key in record)
            columns = list(keys)[:_MAX_COLUMNS]
            return self._read_table(columns, [[record.get(column) for column in columns] for record in records], place)
        rows = [item for item in items if isinstance(item, list | tuple)]
        if items and len(rows) == len(items):
            columns = [cell for cell in rows[0] if isinstance(cell, str)]
            if len(rows) > 1 and 0 < len(columns) == len(rows[0]) and _numbers_of(rows[1]):
                return self._read_table(columns, rows[1:], place)
            return self._read_table([], rows, place)
        self._combine(_numbers_of(items))
        return [(item, place) for item in items]

    def _read_table(self, columns: Sequence[str], rows: Sequence[Json], place: _Place) -> _Placed:
        self.counts.add(len(rows))
        self._read_names(columns)
        words = [_key_words(column) for column in columns]
        cells: list[Sequence[Json]] = [row if isinstance(row, list | tuple) else (row,) for row in rows]
        self._compare_cells(cells)
        table = self.rows.add_table(columns)
        for row in cells:
            names = {at: cell for at, cell in enumerate(row) if isinstance(cell, str)}
            number = self.rows.add(place.row, names, table)
            for at, cell in enumerate(row):
                yield cell, _Place(words[at] if at < len(words) else (), number)

    def _read_names(self, names: Iterable[str]) -> None:
        """The names of columns and keys: a figure in one is known too (range 0.4 to 4.0)."""
        for name in names:
            self._add_characters(len(name))
            self._texts.append(name)
            if not name.isidentifier():
                self.numbers.add(value for number in find_numbers(name) for value in number.values)

    def _compare_cells(self, rows: Sequence[Sequence[Json]]) -> None:
        """Work out what the cells of a column come to, of all rows and of those of each kind, and those of a row."""
        width = min(_MAX_COLUMNS, max(map(len, rows), default=0))
        if len(rows) * width * width > 10 * _MAX_CELLS:
            return
        columns = [[row[at] if at < len(row) else None for row in rows] for at in range(width)]
        numeric = [column for column in columns if _numbers_of(column)]
        for column in numeric:
            self._combine(_numbers_of(column))
        for column in columns:
            for places in _rows_by_kind(column):
                self.counts.add(len(places))
                for other in numeric:
                    self._combine(_numbers_of(other[at] for at in places))
        for row in rows[:2000]:
            self._combine(_numbers_of(row))

    def _combine(self, numbers: Sequence[Decimal]) -> None:
        """The sum and the mean of some numbers, and what sets every two of them apart."""
        if len(numbers) > 1:
            total = sum(numbers, Decimal(0))
            self.sums.add((total, total / len(numbers)))
        if len(numbers) <= _MAX_COMPARED:
            self.differences.add(first - second for first, second in combinations(numbers, 2))

    def _read_text(self, text: str, place: _Place) -> _Placed:
        self._add_characters(len(text))
        self._texts.append(text)
        if "\n" in text:
            self.counts.add(count_listed(text))
            if place.row < 0 and (table := _parse_table(text)) is not None:
                return self._read_table(table[0], table[1:], place)
        is_labelled = len(self._figures) < _MAX_LABELLED
        key_unit = unit_of_key(list(place.words))
        read = _read_long_text if is_labelled and len(text) in _CACHED_LENGTHS else _read_figures
        for figure in read(text, is_labelled=is_labelled):
            for day in figure.dates:
                self.dates.add(day, place.row)
            if figure.is_in_name:
                self._numbers_in_names.add(figure.values)
            else:
                self.numbers.add(figure.values)
                self._label(structs.replace(figure, unit=figure.unit or key_unit), place)
        return ()

    def _label(self, figure: Figure, place: _Place) -> None:
        if len(self._figures) < _MAX_LABELLED:
            words = (frozenset(place.words) - _UNINFORMATIVE) | self.rows.words_of(place.row)
            about = figure.about | words
            nouns = figure.nouns | words
            self._figures.append(structs.replace(figure, about=about, nouns=nouns, row=place.row))

    def _add_characters(self, count: int) -> None:
        self._characters += count
        if self._characters > MAX_CHARACTERS:
            self._nodes_left = 0


class NamedRows(Struct, frozen=True):
    """Rows that a text names, by what stands in one of their columns, and where it does so."""

    rows: set[int]
    columns: set[tuple[int, int]]
    start: int
    end: int
    is_column: bool
    """It is the name of a column, too."""


class Rows:
    """The rows of all tables, and what each is called."""

    def __init__(self) -> None:
        self._words: list[frozenset[str]] = []
        self._names: dict[tuple[str, ...], tuple[set[int], set[tuple[int, int]]]] = {}
        self._longest: dict[str, int] = {}  # by first word, how many words the longest name has
        self._columns: set[tuple[str, ...]] = set()
        self._long_cells: list[str] = []
        self._tables = 0

    def add_table(self, columns: Sequence[str]) -> int:
        self._tables += 1
        self._columns.update(_name_words(column) for column in columns)
        return self._tables

    def add(self, outer_row: int, names: Mapping[int, str], table: int = 0) -> int:
        """A row with these names, by column. A row within another is that one."""
        if outer_row >= 0:
            return outer_row
        if len(self._words) >= _MAX_ROWS:
            return -1
        row = len(self._words)
        row_words: set[str] = set()
        for column, name in names.items():
            words = _name_words(name[:200])
            least_length = 5 if all(word.isdigit() for word in words) else 2  # 10441 may be an order, 12 is none
            if 0 < len(words) <= _MAX_NAME_WORDS and len(name) >= least_length and words[0] not in _UNINFORMATIVE:
                rows, columns = self._names.setdefault(words, (set(), set()))
                rows.add(row)
                columns.add((table, column))
                self._longest[words[0]] = max(self._longest.get(words[0], 0), len(words))
                row_words.update(word for word in words if not word.isdigit())
            elif len(words) > _MAX_NAME_WORDS and len(self._long_cells) < _MAX_LONG_CELLS:
                self._long_cells.append(name[:200])
        self._words.append(frozenset(row_words))
        return row

    def words_of(self, row: int) -> frozenset[str]:
        """The words of a row's names."""
        return self._words[row] if row >= 0 else frozenset()

    def quoted_spans(self, text: str) -> list[tuple[int, int]]:
        """Where a text repeats a cell that is too long for a name: its figures belong to the quotation."""
        starts = [(text.find(cell), len(cell)) for cell in self._long_cells]
        return [(start, start + length) for start, length in starts if start >= 0]

    def find_named(self, text: str) -> list[NamedRows]:
        """The rows whose names stand in a text; of names that begin alike, the longest."""
        if not self._names:
            return []
        words = [(_singular(match[0]), match.start(), match.end()) for match in WORD.finditer(text)]
        found: list[NamedRows] = []
        at = 0
        while at < len(words):
            length = min(self._longest.get(words[at][0], 0), len(words) - at)
            while length and tuple(word for word, _, _ in words[at : at + length]) not in self._names:
                length -= 1
            if length:
                name = tuple(word for word, _, _ in words[at : at + length])
                end = words[at + length - 1][2]
                found.append(NamedRows(*self._names[name], words[at][1], end, is_column=name in self._columns))
            at += max(1, length)
        return found


def find_urls(text: str) -> Iterator[tuple[str, int, int]]:
    """The URLs of a text, without what ends a sentence, and where they stand."""
    for match in URL.finditer(text):
        url = match[0].rstrip(".,;:!?*_")
        while url.endswith(")") and url.count("(") < url.count(")"):
            url = url[:-1].rstrip(".,;:!?*_")
        yield url, match.start(), match.start() + len(url)


def _normalize_address(address: str) -> str:
    return re.sub(r"^(?:https?://)?(?:www\.)?", "", address.casefold()).rstrip("/")


def plain_words(text: str) -> str:
    """The words of a text alone, with one space before and behind each. Escapes of quoted text are no words."""
    if "\\" in text:
        text = _ESCAPED.sub(" ", text)
    return f" {' '.join(split_words(text))} "


def count_listed(text: str) -> int:
    """How many items or rows a text lists."""
    return len(_LISTED.findall(text))


def noun_behind(text: str, end: int) -> str:
    """What a number that ends here counts or measures: the word behind it, if it says anything."""
    match = _NOUN.match(text, end)
    noun = _singular(match[1]) if match is not None else ""
    return "" if noun in _UNINFORMATIVE else noun


def _singular(word: str) -> str:
    return singular(word.casefold())


def _name_words(name: str) -> tuple[str, ...]:
    return tuple([_singular(word) for word in WORD.findall(name)])


def _with_text_keys(table: Mapping[str, Json]) -> Mapping[str, Json]:
    """What a tool returned in this process may have other keys than texts: years, for example."""
    return (
        table if all(isinstance(cast("object", key), str) for key in table) else {str(key): table[key] for key in table}
    )


def _key_words(key: str) -> tuple[str, ...]:
    """The words of a key: `total_eur` and `totalEur` have two."""
    return tuple([_singular(part) for part in _KEY_PART.findall(key)])


def _read_figures(text: str, *, is_labelled: bool) -> Iterator[Figure]:
    for number in find_numbers(text):
        if number.kind not in ("number", "word"):
            is_long = number.kind == "name" and len(number.text) > 2
            values = tuple([value for value in number.values if is_long or value >= 100])
            yield Figure(values, dates=number.dates, is_in_name=True)
            continue
        if not is_labelled:
            yield Figure(number.values)
            continue
        unit = spell_unit(number.currency) or unit_behind(text, number.end)
        about, nouns = _words_beside(text, number.start, number.end)
        yield Figure(number.values, unit=unit, about=about, nouns=nouns, dates=number.dates)


@lru_cache(maxsize=4)
def _read_long_text(text: str, *, is_labelled: bool) -> tuple[Figure, ...]:
    """The figures of a text that takes long to read: a request, for example, is evidence for every task of its run."""
    return tuple(_read_figures(text, is_labelled=is_labelled))


def _words_beside(text: str, start: int, end: int) -> tuple[frozenset[str], frozenset[str]]:
    """The words before and behind a number in its sentence, and the noun that it counts."""
    match = _WORDS_BEHIND.match(text, end)
    behind = [_singular(word) for word in match.groups() if word] if match is not None else []
    before: list[str] = []
    for word in reversed(_WORD_OR_END.findall(text[max(0, start - 40) : start])):
        if word in ".;\n" or len(before) == 3:
            break
        before.append(_singular(word))
    noun = behind[:1] if text[end : end + 1] in " \u00a0" else []
    return frozenset((*behind, *before)) - _UNINFORMATIVE, frozenset(noun) - _UNINFORMATIVE


def _to_decimal(value: Json) -> Decimal | None:
    """A finite number as a decimal; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = Decimal(value) if isinstance(value, int) else Decimal(str(value))
    return number if number.is_finite() else None


def _numbers_of(cells: Iterable[Json]) -> list[Decimal]:
    return [number for cell in cells if (number := _to_decimal(cell)) is not None]


def _rows_by_kind(column: Sequence[Json]) -> list[list[int]]:
    """The rows of each kind, where a column of texts or truths has fewer kinds than rows."""
    kinds: dict[str, list[int]] = {}
    for row, cell in enumerate(column):
        if isinstance(cell, str | bool):
            kinds.setdefault(str(cell), []).append(row)
    return list(kinds.values()) if len(kinds) < len(column) else []


def _parse_table(text: str) -> list[list[str]] | None:
    """The rows of a text that is a table, with its header: Markdown, or with tabs, semicolons or commas."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not 2 <= len(lines) <= _MAX_ROWS:
        return None
    for separator in "|\t;,":
        rows = [[cell.strip() for cell in line.split(separator)] for line in lines]
        if len(rows[0]) == 1 or any(len(row) != len(rows[0]) for row in rows):
            continue
        is_prose = separator == "," and any(len(cell) > 60 for row in rows for cell in row)
        return None if is_prose else [row for row in rows if not re.fullmatch(r"[:-]*", "".join(row))]
    return None
