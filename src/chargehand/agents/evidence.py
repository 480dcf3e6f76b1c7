"""What statements are held against: the numbers, days, addresses, words and rows of some values. Pure.

Statements are not read here. Everything is gone through once, so its time grows with the length of the values.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import cast

import msgspec
from msgspec import Struct, structs

from chargehand.agents.known_values import KnownDates, KnownNumbers
from chargehand.models.exhibits import PICTURES
from chargehand.text.numbers import Quantity, find_numbers
from chargehand.text.units import convert, spell_unit, unit_behind, unit_of_key
from chargehand.text.words import STOP_WORDS, WORD, singular, split_words

URL = re.compile(r"\b(?:https?://|www\.)[^\s<>\"'`|\\\]]{1,2000}", re.IGNORECASE)
EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?!\w)")
_ESCAPED = re.compile(r"\\+[nrt'\"]")
_PARTS = re.compile(r"[A-Z]?[^\W\d_A-Z]+\d?|[A-Z]+|\d+")
_LONGEST = 8_000_000  # characters of all values; of more nothing can be said to be missing
_NODES = 500_000
_LONG = 5_000  # characters from which the figures of a text are kept for whoever reads it next
_LONGEST_KEPT = 200_000
_LABELLED = 60_000  # numbers of which it is kept what they are about: of more, of none
# of all tables: beyond, no row is told from another
_ROWS = 20_000
_CELLS = 200_000
_FEW = 14  # numbers of which every two may be compared
_NAME = 6  # words at most in the name of a row
_LONG_TEXTS = 200  # texts of rows that are kept to be recognised where they are repeated
_COMMON = STOP_WORDS | {"least", "less", "most", "true", "false"}


def addresses(text: str) -> Iterator[tuple[str, int, int]]:
    """The URLs of a text, without what ends a sentence, and where they stand."""
    for found in URL.finditer(text):
        held = found[0].rstrip(".,;:!?*_")
        while held.endswith(")") and held.count("(") < held.count(")"):
            held = held[:-1].rstrip(".,;:!?*_")
        yield held, found.start(), found.start() + len(held)


def plain_words(text: str) -> str:
    """The words of a text alone, with one space before and behind each. Escapes of quoted text are no words."""
    if "\\" in text:
        text = _ESCAPED.sub(" ", text)
    return f" {' '.join(split_words(text))} "


def address(text: str) -> str:
    """A URL in one spelling."""
    return re.sub(r"^(?:https?://)?(?:www\.)?", "", text.casefold()).rstrip("/")


def stem(word: str) -> str:
    """A word without regard to capitals and to one or many."""
    return singular(word.casefold())


class Occurrence(Struct, frozen=True, gc=False):
    """A number where it stands. `about` are words beside it, `noun` those it counts or measures; -1: in no row."""

    value: Decimal
    unit: str
    about: frozenset[str]
    noun: frozenset[str]
    row: int


class _Place(Struct, frozen=True):
    """Where a value stands: the words of its keys, and its row."""

    words: tuple[str, ...] = ()
    row: int = -1


_NOWHERE = _Place()


class Evidence:
    """What some values hold: any JSON, in which tables and lists are also worth what they come to.

    `counts` are how many rows there are, of each kind, `sums` what columns come to, `differences` what sets two
    numbers of a row or a column apart. `whole` is False where there was more than was looked at.
    """

    def __init__(self, *values: object) -> None:
        self._left = _NODES
        self._occurrences: list[Occurrence] = []
        self._plain: list[Decimal] = []
        self._embedded: list[Decimal] = []  # in names and days: A-1042, 2024-03-05
        self._days: list[tuple[int, int, int]] = []
        self._row_days: dict[tuple[int, int, int], set[int]] = {}
        self._sums: list[Decimal] = []
        self._differences: list[Decimal] = []
        self._counts: set[int] = set()
        self._parts: list[str] = []
        self.rows = Rows()
        self.size = 0
        for value in values:
            self._walk(msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value)
        self.whole = self._left > 0 and self.size <= _LONGEST
        self.numbers = KnownNumbers(self._plain)
        self.embedded = KnownNumbers(one for one in self._embedded if one >= 100)
        self.whole = self.whole and not self.numbers.full
        self.counts = frozenset(self._counts)
        self._pair_numbers()
        self.sums = KnownNumbers(self._sums)
        self.differences = KnownNumbers(self._differences)
        self.days = KnownDates(self._days)
        self._by_value: dict[Decimal, list[Occurrence]] = {}
        self._nouns: dict[str, list[Decimal]] = {}
        if len(self._occurrences) >= _LABELLED:
            self._occurrences.clear()
        for one in self._occurrences:
            self._by_value.setdefault(abs(one.value), []).append(one)
            for word in one.noun:
                self._nouns.setdefault(word, []).append(one.value)
        self._urls: frozenset[str] | None = None
        self._emails: frozenset[str] | None = None
        self._words = ""

    # --- what it holds

    def says(self, words: str) -> bool:
        """Whether these plain words stand in it, one after the other."""
        self._words = self._words or " ".join(plain_words(part).strip() for part in self._parts).join("  ")
        return words in self._words

    def links(self, url: str) -> bool:
        """Whether it names this address, or one under it."""
        if self._urls is None:
            self._urls = frozenset(address(found) for part in self._parts for found, _, _ in addresses(part))
        plain = address(url)
        return plain in self._urls or any(one.startswith((f"{plain}/", f"{plain}?", f"{plain}#")) for one in self._urls)

    def mails(self, email: str) -> bool:
        """Whether it names this e-mail address."""
        if self._emails is None:
            found = (match[0] for part in self._parts if "@" in part for match in EMAIL.finditer(part))
            self._emails = frozenset(one.casefold() for one in found)
        return email.casefold() in self._emails

    def holds(self, one: Quantity, *, rough: bool = False) -> bool:
        """Whether a number stands in it, as itself or rounded; of those in names and days, only long ones count."""
        return self.numbers.hold(one, rough=rough) or (one.text.isdigit() and self.embedded.hold(one))

    def writes(self, text: str, start: int, end: int) -> bool:
        """Whether what stands here in a text stands in it letter for letter, with what is right beside it."""
        before = text[max(0, start - 3) : start]
        beside = text[end : end + 3]
        if not (before + beside).strip(" .,;:!?"):
            return False
        wanted = before + text[start:end] + beside
        return any(wanted in part for part in self._parts)

    def occurrences(self, one: Quantity) -> list[Occurrence]:
        """Where exactly this number stands, as far as that is known."""
        for value, _ in one.readings:
            if exact := self._by_value.get(abs(value)):
                return exact
        near = [value for value in self.numbers.near(one)[:50] if value in self._by_value]
        return [found for value in near for found in self._by_value[value]]

    def counted(self, noun: str) -> list[Decimal]:
        """The numbers that are said of this."""
        return self._nouns.get(noun, [])

    def measured(self, one: Quantity) -> bool:
        """Whether a number is one of these in another unit: 7,000 ft for 2,134 m."""
        if not one.measure or len(self._occurrences) > 2000:
            return False
        others = [other for other in self._occurrences if other.unit and other.unit != one.measure]
        found = (convert(abs(other.value), other.unit, one.measure) for other in others)
        plain = structs.replace(one, readings=one.readings[:1])  # 2,134 km is no other way of writing 2,134 m
        return KnownNumbers(value for value in found if value is not None).hold(plain, rough=True)

    def row_of_day(self, day: tuple[int, int, int]) -> set[int]:
        """The rows in which a day stands."""
        return self._row_days.get(day, set())

    @property
    def few(self) -> list[Decimal]:
        """All its numbers, where there are few."""
        return self.numbers.all if len(self.numbers.all) <= _FEW else []

    # --- reading

    def _walk(self, value: object) -> None:
        line: list[tuple[object, _Place]] = [(value, _NOWHERE)]
        while line and self._left > 0:
            self._left -= 1
            one, place = line.pop()
            if isinstance(one, dict):
                line.extend(self._table_of_keys(cast("dict[str, object]", one), place))
            elif isinstance(one, list | tuple):
                line.extend(self._list(cast("Sequence[object]", one), place))
            elif isinstance(one, int | float) and not isinstance(one, bool):
                self._number(one, place)
            elif isinstance(one, str):
                self._text(one, place)

    def _table_of_keys(self, table: dict[str, object], place: _Place) -> Iterator[tuple[object, _Place]]:
        columns = table.get("columns")
        rows = table.get("rows")
        if isinstance(columns, list | tuple) and isinstance(rows, list | tuple):
            more = table.get("more")
            if isinstance(more, int):
                self._counts.add(len(cast("Sequence[object]", rows)) + more)
            names = [str(name) for name in cast("Sequence[object]", columns)]
            yield from self._table(names, cast("Sequence[object]", rows), place)
            yield from ((item, place) for key, item in table.items() if key not in ("columns", "rows", *PICTURES))
            self._read_keys(names)
            return
        self._read_keys(map(str, table))
        numeric = [item for item in table.values() if _is_number(item)]
        if len(numeric) > 1:
            self._total(numeric)
        keyed = len(numeric) > 1 and len(numeric) == len(table) and place.row < 0
        for key, item in table.items():
            if key in PICTURES:
                continue
            words = tuple(stem(part) for part in _PARTS.findall(str(key)))
            if isinstance(item, list | tuple) and item:
                length = len(cast("Sequence[object]", item))
                self._label(Decimal(length), "", words, place.row)
            row = self.rows.add(place.row, {0: str(key)}) if keyed else place.row
            yield item, _Place(words, row)
            self._sized(len(str(key)))

    def _read_keys(self, names: Iterable[str]) -> None:
        """The names of columns and keys: a figure in one is known too (range 0.4 to 4.0)."""
        for name in names:
            self._parts.append(name)
            if not name.isidentifier():
                self._plain += [value for number in find_numbers(name) for value in number.values]

    def _list(self, items: Sequence[object], place: _Place) -> Iterator[tuple[object, _Place]]:
        self._counts.add(len(items))
        records = [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]
        if len(records) > 1 and len(records) == len(items):
            columns = list(dict.fromkeys(str(key) for record in records[:_ROWS] for key in record))[:40]
            self._read_keys(columns)
            rows = [[record.get(column) for column in columns] for record in records]
            return self._table(columns, rows, place)
        if items and all(isinstance(item, list | tuple) for item in items):
            rows = [cast("Sequence[object]", item) for item in items]
            columns, body = _headed(rows)
            return self._table(columns, body, place)
        if numbers := [item for item in items if _is_number(item)]:
            self._total(numbers)
        return iter([(item, place) for item in items])

    def _table(self, columns: Sequence[str], rows: Sequence[object], place: _Place) -> Iterator[tuple[object, _Place]]:
        self._counts.add(len(rows))
        words = [tuple(stem(part) for part in _PARTS.findall(column)) for column in columns]
        cells = [cast("Sequence[object]", row) if isinstance(row, list | tuple) else (row,) for row in rows]
        self._column_totals(cells)
        table = self.rows.new_table(columns)
        for row in cells:
            names = {at: cell for at, cell in enumerate(row) if isinstance(cell, str)}
            number = self.rows.add(place.row, names, table)
            for at, cell in enumerate(row):
                yield cell, _Place(words[at] if at < len(words) else (), number)

    def _column_totals(self, rows: Sequence[Sequence[object]]) -> None:
        """What each column comes to, as a whole and for every kind of row; how many rows of each kind there are."""
        width = min(40, max(map(len, rows), default=0))
        if not rows or len(rows) * width * width > 10 * _CELLS:
            return
        columns = [[row[at] if at < len(row) else None for row in rows] for at in range(width)]
        numeric = [column for column in columns if any(map(_is_number, column))]
        for column in numeric:
            self._total([cell for cell in column if _is_number(cell)])
        for column in columns:
            kinds: dict[str, list[int]] = {}
            for at, cell in enumerate(column):
                if isinstance(cell, str | bool) or (isinstance(cell, int) and column not in numeric):
                    kinds.setdefault(str(cell), []).append(at)
            if len(kinds) < len(rows):
                for members in kinds.values():
                    self._counts.add(len(members))
                    for other in numeric:
                        self._total([other[at] for at in members if _is_number(other[at])])
        self._row_differences(rows, numeric)

    def _row_differences(self, rows: Sequence[Sequence[object]], numeric: Sequence[Sequence[object]]) -> None:
        if len(numeric) > 6:
            return
        for row in rows[:2000]:
            self._apart([Decimal(str(cell)) for cell in row if _is_number(cell)][:6])
        for column in numeric:
            if len(column) <= _FEW:
                self._apart([Decimal(str(cell)) for cell in column if _is_number(cell)])

    def _apart(self, numbers: Sequence[Decimal]) -> None:
        for at, first in enumerate(numbers):
            for second in numbers[at + 1 :]:
                if first.is_finite() and second.is_finite():
                    self._differences.append(abs(first - second))

    def _total(self, cells: Sequence[object]) -> None:
        numbers = [number for cell in cells for number in _decimal(cell)]
        if len(numbers) > 1:
            total = sum(numbers, Decimal(0))
            self._sums += [total, total / len(numbers)]

    def _pair_numbers(self) -> None:
        """Where there are few numbers at all, what sets any two of them apart."""
        self._apart(self.few)

    def _number(self, value: float, place: _Place) -> None:
        for found in _decimal(value):
            self._occur(found, unit_of_key(list(place.words)), place.words, place)
            self._sized(8)

    def _occur(self, value: Decimal, unit: str, words: Sequence[str], place: _Place) -> None:
        self._plain.append(value)
        self._label(value, unit, words, place.row)

    def _label(self, value: Decimal, unit: str, words: Sequence[str], row: int) -> None:
        if len(self._occurrences) < _LABELLED:
            about = (frozenset(words) - _COMMON) | self.rows.words_of(row)
            self._occurrences.append(Occurrence(value=value, unit=unit, about=about, noun=about, row=row))

    def _text(self, text: str, place: _Place) -> None:
        self._sized(len(text))
        self._parts.append(text)
        if "\n" in text:
            self._counts.add(listed(text))
            if place.row < 0 and (table := _read_table(text)) is not None:
                for cell, inner in self._table(table[0], table[1], place):
                    self._text(str(cell), inner)
                return
        self._numerals(text, place)

    def _numerals(self, text: str, place: _Place) -> None:
        has_room = len(self._occurrences) < _LABELLED
        is_kept = has_room and _LONG <= len(text) <= _LONGEST_KEPT
        words = (frozenset(place.words) - _COMMON) | self.rows.words_of(place.row)
        unit_of_keys = unit_of_key(list(place.words))
        for figure in _read_long_text(text) if is_kept else _read_figures(text, labelled=has_room):
            for day in figure.dates:
                self._days.append(day)
                if place.row >= 0:
                    self._row_days.setdefault(day, set()).add(place.row)
            if figure.is_embedded:
                self._embedded += figure.values
                continue
            self._plain += figure.values
            if len(self._occurrences) < _LABELLED:
                unit = figure.unit or unit_of_keys
                about = figure.beside | words
                noun = figure.behind | words
                for value in figure.values:
                    self._occurrences.append(Occurrence(value=value, unit=unit, about=about, noun=noun, row=place.row))
                    unit = ""  # how else it may be read is not measured

    def _sized(self, characters: int) -> None:
        self.size += characters
        if self.size > _LONGEST:
            self._left = 0


class NamedRows(Struct, frozen=True):
    """Rows that a text names, by what stands in one of their columns, and where it does so."""

    rows: set[int]
    columns: set[tuple[int, int]]
    start: int
    end: int
    is_column: bool = False
    """It is the name of a column, too."""


class Rows:
    """The rows of all tables, and what each is called."""

    def __init__(self) -> None:
        self._words: list[frozenset[str]] = []
        self._names: dict[tuple[str, ...], tuple[set[int], set[tuple[int, int]]]] = {}
        self._first: dict[str, int] = {}  # how many words the longest name has that begins so
        self._none: frozenset[str] = frozenset()
        self._columns: set[tuple[str, ...]] = set()
        self._long_texts: list[str] = []
        self._last = 0

    def new_table(self, columns: Sequence[str]) -> int:
        self._last += 1
        self._columns.update(tuple(stem(part) for part in WORD.findall(column)) for column in columns)
        return self._last

    def add(self, inside: int, names: Mapping[int, str], table: int = 0) -> int:
        """A row with these names, by column. One `inside` another is that row."""
        if inside >= 0:
            return inside
        if len(self._words) >= _ROWS:
            return -1
        row = len(self._words)
        words: set[str] = set()
        for column, name in names.items():
            parts = tuple(stem(part) for part in WORD.findall(name[:200]))
            is_number = all(part.isdigit() for part in parts)  # of those, only what may be an order or a customer
            if 0 < len(parts) <= _NAME and len(name) > (4 if is_number else 1) and parts[0] not in _COMMON:
                rows, columns = self._names.setdefault(parts, (set(), set()))
                rows.add(row)
                columns.add((table, column))
                self._first[parts[0]] = max(self._first.get(parts[0], 0), len(parts))
                words.update(part for part in parts if not part.isdigit())
            elif len(parts) > _NAME and len(self._long_texts) < _LONG_TEXTS:
                self._long_texts.append(name[:200])
        self._words.append(frozenset(words))
        return row

    def words_of(self, row: int) -> frozenset[str]:
        """The words of a row's names."""
        return self._words[row] if row >= 0 else self._none

    def quoted_spans(self, text: str) -> list[tuple[int, int]]:
        """Where a text repeats what stands in a row and is too long for a name: its figures belong to the quotation."""
        starts = [(text.find(quoted), len(quoted)) for quoted in self._long_texts]
        return [(start, start + length) for start, length in starts if start >= 0]

    def named(self, text: str) -> list[NamedRows]:
        """The rows whose names stand in a text; of names that begin alike, the longest."""
        if not self._first:
            return []
        words = [(stem(match[0]), match.start(), match.end()) for match in WORD.finditer(text)]
        found: list[NamedRows] = []
        at = 0
        while at < len(words):
            step = 1
            for length in range(min(self._first.get(words[at][0], 0), len(words) - at), 0, -1):
                name = tuple(word for word, _, _ in words[at : at + length])
                known = self._names.get(name)
                if known is not None:
                    end = words[at + length - 1][2]
                    found.append(NamedRows(*known, words[at][1], end, name in self._columns))
                    step = length
                    break
            at += step
        return found


def listed(text: str) -> int:
    """How many items or rows a text lists."""
    return len(re.findall(r"^[ \t]{0,12}(?:(?:[-*•]|\d{1,3}[.)])[ \t]|\|(?![ \t]{0,12}:?-))", text, re.MULTILINE))


class _Figure(Struct, frozen=True, gc=False):
    """A number of a text with what stands beside it; `is_embedded`: it is part of a name, a day or a time."""

    values: tuple[Decimal, ...]
    dates: tuple[tuple[int, int, int], ...]
    is_embedded: bool
    unit: str = ""
    beside: frozenset[str] = frozenset()
    behind: frozenset[str] = frozenset()


def _read_figures(text: str, *, labelled: bool = True) -> Iterator[_Figure]:
    for found in find_numbers(text):
        is_embedded = found.kind not in ("number", "word")
        if is_embedded or not labelled:
            yield _Figure(found.values, found.dates, is_embedded=is_embedded)
            continue
        unit = spell_unit(found.currency) or unit_behind(text, found.end)
        beside, behind = _beside(text, found.start, found.end)
        yield _Figure(found.values, found.dates, is_embedded=False, unit=unit, beside=beside, behind=behind)


@lru_cache(maxsize=4)
def _read_long_text(text: str) -> tuple[_Figure, ...]:
    """The figures of a text that takes long to read: a request, for example, is evidence for every task of its run."""
    return tuple(_read_figures(text))


_FOLLOWING = re.compile(r"[^\w\n.;]{0,3}([^\W\d_]+)(?:[^\w\n.;]([^\W\d_]+))?(?:[^\w\n.;]([^\W\d_]+))?")
_NOUN = re.compile(r"[ \u00a0]([^\W\d_]+)")
_LETTERS = re.compile(r"[^\W\d_]+|[.;\n]")


def _beside(text: str, start: int, end: int) -> tuple[frozenset[str], frozenset[str]]:
    """The words before and behind a number, in its sentence, and the first of those behind it."""
    behind = _FOLLOWING.match(text, end)
    after = [stem(word) for word in behind.groups() if word] if behind is not None else []
    words: list[str] = []
    for word in reversed(_LETTERS.findall(text[max(0, start - 40) : start])):
        if word in ".;\n" or len(words) == 3:
            break
        words.append(stem(word))
    noun = after[:1] if text[end : end + 1] in " \u00a0" else []
    return frozenset((*after, *words)) - _COMMON, frozenset(noun) - _COMMON


def noun_behind(text: str, end: int) -> str:
    """What a number counts or measures: the word behind it, if it says anything."""
    found = _NOUN.match(text, end)
    noun = stem(found[1]) if found is not None else ""
    return "" if noun in _COMMON else noun


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decimal(value: object) -> list[Decimal]:
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return []
    return [found] if found.is_finite() else []


def _headed(rows: Sequence[Sequence[object]]) -> tuple[list[str], Sequence[Sequence[object]]]:
    """The columns of rows whose first names them, and the rows below."""
    first = rows[0]
    if len(rows) > 1 and first and all(isinstance(cell, str) for cell in first) and any(map(_is_number, rows[1])):
        return [str(cell) for cell in first], rows[1:]
    return [], rows


def _read_table(text: str) -> tuple[list[str], list[list[str]]] | None:
    """The columns and rows of a text that is a table: Markdown, tabs, semicolons or commas."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not 2 <= len(lines) <= _ROWS:
        return None
    for sign in ("|", "\t", ";", ","):
        width = lines[0].count(sign)
        alike = sum(line.count(sign) == width for line in lines)
        if width and alike == len(lines):
            cells = [[cell.strip() for cell in line.strip().strip("|").split(sign)] for line in lines]
            if sign == "," and any(len(cell) > 60 for row in cells for cell in row):
                return None
            body = [row for row in cells[1:] if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
            return cells[0], body
    return None
