"""What statements are checked against: the numbers, dates, addresses, words and table rows of some values. Pure.

And contradictions: results that give the same thing another number or date, or answer yes and no to one question. What
might be about something else is not compared, and which result is right is not known here.

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

from chargehand.engine.facts import Contradiction
from chargehand.models.artifacts import PICTURES, Figure, Product, Table
from chargehand.models.request_facts import Given
from chargehand.text.dates import MONTH, Date, find_dates
from chargehand.text.numbers import Number, find_numbers, find_quantities
from chargehand.text.words import FUNCTION_WORDS, STOP_WORDS, WORD, singular, split_sentences, split_words

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | None"
Day: TypeAlias = tuple[int, int, int]
"""Year, month and day; 0 for what is not said."""
Row: TypeAlias = tuple[int, int]
"""The number of a table, and of a row in it."""

URL = re.compile(r"\b(?:https?://|www\.)[^\s<>\"'`|\\\]]{1,2000}", re.IGNORECASE)
EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?!\w)")
_LIST_ITEM = re.compile(r"^[ \t]{0,12}(?:(?:[-*•]|\d{1,3}[.)])[ \t]|\|(?![ \t]{0,12}:?-))", re.MULTILINE)
_ESCAPE = re.compile(r"\\+[nrt'\"]")
CURRENCIES = frozenset(("eur", "usd", "gbp", "jpy", "chf"))
_NO_ROW: Row = (0, 0)
_MAX_COMPARED = 14  # numbers of which every two are compared
_MAX_CELLS = 200_000
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

    def near(self, number: Number) -> list[Decimal]:
        """Those that are this number, or that it was rounded from."""
        return [near for value, step in number.readings for near in self._within(value, step * _HALF)]

    def hold(self, number: Number, *, is_rough: bool = False) -> bool:
        """Whether one of them is this number, or what it was rounded from; `is_rough`: the text says "about"."""
        if self.near(number):
            return True
        return any(self._within(value, margin) for value, margin in _rounding_margins(number, is_rough=is_rough))

    def _within(self, value: Decimal, margin: Decimal) -> list[Decimal]:
        start = bisect_left(self.sorted, value - margin)
        return [near for near in self.sorted[start : start + 50] if near <= value + margin]


def _rounding_margins(number: Number, *, is_rough: bool) -> Iterator[tuple[Decimal, Decimal]]:
    """A number that ends in zeros may stand for any that is rounded to it: 1,200, and about 40."""
    for value, step in number.readings:
        if step < 1 or value == 0:
            continue
        digits = str(int(value))
        zeros = len(digits) - len(digits.rstrip("0"))
        if zeros and (is_rough or (zeros > 1 and len(digits) - zeros > 1)):
            yield value, Decimal(10) ** zeros * _HALF
        elif is_rough and value >= 10:  # "about 45" may be 44 or 46
            yield value, value * Decimal("0.03")


class NamedRows(Struct, frozen=True):
    """Rows that a text names by what stands in one of their cells, and where it does so."""

    rows: set[Row]
    start: int
    end: int


class Evidence:
    """What some values hold. Any JSON; tables and lists also count for their totals, differences and lengths."""

    def __init__(self, *values: object) -> None:
        self.numbers = KnownNumbers()
        self.totals = KnownNumbers()
        """Sums and means of columns and lists, and of the rows of each kind."""
        self.differences = KnownNumbers()
        """Of every two numbers of a short column, list or row."""
        self.counts: set[int] = set()
        """How many items lists have, and how many rows there are of each kind."""
        self._numbers_in_names = KnownNumbers()
        self._texts: list[str] = []
        self._places: dict[Decimal | Day, set[Row]] = {}
        self._currencies: dict[Decimal, set[str]] = {}
        self._row_names: dict[tuple[str, ...], set[Row]] = {}
        self._tables = 0
        for value in values:
            plain = msgspec.to_builtins(value) if isinstance(value, Struct) else value
            self._read(cast("Json", plain))

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
        parts = [((year, month, 0), (0, month, day)) for year, month, day in self._days]
        return frozenset(part for pair in parts for part in pair)

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
        return self.numbers.hold(number, is_rough=is_rough) or self._numbers_in_names.hold(number)

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
        steps = [timedelta(days=int(term)) for term in self.few if 0 < term <= _MAX_TERM_DAYS]
        days = set(map(calendar_day, self._days))
        return any(day - step in days or day + step in days for step in steps)

    def currencies_of(self, number: Number) -> set[str]:
        """The currencies in which a number stands in it, empty where none is said."""
        return set[str]().union(*[self._currencies.get(value, set()) for value in self.numbers.near(number)])

    def rows_of(self, value: Number | Date) -> set[Row]:
        """The rows in which a number or a date stands; none where it stands outside of rows, too."""
        if isinstance(value, Date):
            places = [self._places.get(reading, set()) for reading in value.readings]
        else:
            places = [self._places.get(near, set()) for near in self.numbers.near(value)]
        rows = set[Row]().union(*places)
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
        stack: list[tuple[Json, str, Row]] = [(value, "", _NO_ROW)]
        while stack:
            item, key, row = stack.pop()
            if isinstance(item, str):
                self._read_text(item, key, row)
            elif isinstance(item, dict):
                stack.extend(self._read_object({str(name): cell for name, cell in item.items()}, row))
            elif isinstance(item, list | tuple):
                stack.extend(self._read_list(item, key, row))
            elif (number := _to_decimal(item)) is not None:
                self.numbers.add((number,))
                self._place(number, _currency_of_key(key), row)

    def _read_object(self, table: Mapping[str, Json], row: Row) -> Iterator[tuple[Json, str, Row]]:
        columns = table.get("columns")
        rows = table.get("rows")
        numbers = _numbers_of(table.values())
        if isinstance(columns, list | tuple) and isinstance(rows, list | tuple):
            names = [str(name) for name in columns]
            cells = [row if isinstance(row, list | tuple) else (row,) for row in rows]
            more = table.get("more")
            self.counts.add(len(rows) + (more if isinstance(more, int) else 0))
            yield from self._read_records([dict(zip(names, row, strict=False)) for row in cells], row)
            table = {key: item for key, item in table.items() if key not in ("columns", "rows")}
        elif len(numbers) == len(table) > 1 and row == _NO_ROW:  # a series: every key names a row
            yield from self._read_records([{"": key, "value": item} for key, item in table.items()], row)
            return
        self._combine(numbers)
        for key, item in table.items():
            if key not in PICTURES:
                yield key, "", row
                yield item, key, row

    def _read_list(self, items: Sequence[Json], key: str, row: Row) -> Iterator[tuple[Json, str, Row]]:
        self.counts.add(len(items))
        if items and all(isinstance(item, dict) for item in items):
            records = cast("Sequence[Mapping[str, Json]]", items)
            yield from self._read_records([{str(name): record[name] for name in record} for record in records], row)
        elif items and all(isinstance(item, list | tuple) for item in items):
            lines = cast("Sequence[Sequence[Json]]", items)
            self.counts.add(len(items) - 1)  # the first may be the header
            yield from self._read_records([{str(at): cell for at, cell in enumerate(line)} for line in lines], row)
        else:
            self._combine(_numbers_of(items))
            for item in items:
                yield item, key, row

    def _read_records(self, records: Sequence[Mapping[str, Json]], outer_row: Row) -> Iterator[tuple[Json, str, Row]]:
        """The names of the columns and the cells of a table, with their rows."""
        self.counts.add(len(records))
        self._tables += 1
        keys = dict.fromkeys(key for record in records for key in record)
        for key in keys:
            yield key, "", outer_row
        for number, record in enumerate(records):
            row = (self._tables, number) if outer_row == _NO_ROW and len(records) > 1 else outer_row
            for key, cell in record.items():
                if isinstance(cell, str) and row != _NO_ROW:
                    self._name_row(row, cell)
                if key not in PICTURES:
                    yield cell, key, row
        if len(records) * len(keys) ** 2 <= 10 * _MAX_CELLS:
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
            self._combine(_numbers_of(record.values()))

    def _name_row(self, row: Row, cell: str) -> None:
        words = tuple([_singular(word) for word in WORD.findall(cell[:200])])
        min_length = 5 if "".join(words).isdigit() else 2  # 10441 may be an order, 12 is none
        if 0 < len(words) <= _MAX_NAME_WORDS and len(cell) >= min_length and words[0] not in STOP_WORDS:
            self._row_names.setdefault(words, set()).add(row)

    def _read_text(self, text: str, key: str, row: Row) -> None:
        self._texts.append(text)
        if "\n" in text:
            self.counts.add(count_listed(text))
        for number in find_numbers(text):
            for day in number.dates:
                self._places.setdefault(day, set()).add(row)
            if number.kind in ("number", "word"):
                self.numbers.add(number.values)
                currency = number.unit if number.unit in CURRENCIES else _currency_of_key(key)
                for value in number.values:
                    self._place(value, currency, row)
            else:
                is_long = number.kind == "name" and len(number.text) > 2
                self._numbers_in_names.add(value for value in number.values if is_long or value >= 100)

    def _place(self, value: Decimal, currency: str, row: Row) -> None:
        self._places.setdefault(abs(value), set()).add(row)
        self._currencies.setdefault(abs(value), set()).add(currency)

    def _combine(self, numbers: Sequence[Decimal]) -> None:
        """The sum and the mean of some numbers, and what sets every two of them apart."""
        if len(numbers) > 1:
            total = sum(numbers, Decimal(0))
            self.totals.add((total, total / len(numbers)))
        if len(numbers) <= _MAX_COMPARED:
            self.differences.add(first - second for first, second in combinations(numbers, 2))


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


def _currency_of_key(key: str) -> str:
    """The currency a key ends with: `total_eur`."""
    last = key.casefold()[-3:]
    return last if last in CURRENCIES else ""


def _to_decimal(value: Json) -> Decimal | None:
    """A finite number as a decimal; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = Decimal(str(value))
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


# --- contradictions


_MAX_CONTRADICTIONS = 5
_MAX_RESULT = 50_000  # characters
_MAX_TOGETHER = 400_000
_MAX_SENTENCE = 240
_MAX_ROWS = 200
_MAX_KEY = 10  # words
_STOP_WORDS = FUNCTION_WORDS | frozenset(
    ("now", "currently", "exactly", "total", "number", "count", "amount", "value", "result", "answer")
)
_DIGIT = re.compile(r"\d")
_MEASURE = re.compile(
    r"%|eur|usd|gbp|jpy|chf|[km]?g|t|ton|tonne|[kcm]?m|mile|m?l|h|hour|minute|min|second|day|week|month|year|point|degree"
    r"|kwh|[mgt]b"
)
_DISTINCTION = re.compile(
    rf"{MONTH}|(?:mon|tues|wednes|thurs|fri|satur|sun)day|this|last|next|previous|current|today|yesterday|before|after"
    r"|first|second|third|fourth|old|new|min|max|minimum|maximum|average|mean|median|gross|net",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"(?:\b(?:is|was|are|were|equals?|total(?:s|led)?|amounts? to|came? to|comes to|stands at)|[=:])\s+"
    r"(?:exactly\s+|now\s+|currently\s+)?(?:\*\*)?[$€£¥]?(?:(?:EUR|USD|GBP|CHF)\s)?$",
    re.IGNORECASE,
)
_DATED = re.compile(r"\b(?:in|on|since|until|by|from|am|im|seit)\s(?:the\s)?$", re.IGNORECASE)
_YEAR = re.compile(r"(?:1[5-9]|20)\d\d")
_UNSURE = re.compile(
    r"\b(?:not?|never|without|least|most|more|less|fewer|up|over|under|between|if|would|could|may be|might|each|per"
    r"|about|around|roughly|approximately|nearly|almost|instead|rather|should|than)\b",
    re.IGNORECASE,
)
_VERDICT = re.compile(r"\W*(yes|no|true|false)\b(?=\s*(?:[,.;:!\u2013\u2014-]|$))", re.IGNORECASE)
_CITATION = re.compile(r"\[[^\[\]]*\]")
_NO_MEASURE = re.compile(r"(?:^|[_\s])(?:id|year|month|day|date|week|code|no|rank|quarter)s?$", re.IGNORECASE)


class _SourceFact(Struct, frozen=True):
    """What a result says of the thing that its key names."""

    result: Given
    key: frozenset[str]
    about: str
    value: Number | Date | str
    unit: str = ""
    is_sentence: bool = False
    """It is a sentence of its own; a cell or a figure is only about what the task asks for."""

    @property
    def text(self) -> str:
        return self.value if isinstance(self.value, str) else f"{self.value.text} {self.unit}".strip()

    def agrees(self, other: "_SourceFact") -> bool:
        """Whether two facts about the same say the same, one of them less exactly."""
        first = self.value
        second = other.value
        if isinstance(first, Number) and isinstance(second, Number):
            return KnownNumbers(first.values).hold(second) or KnownNumbers(second.values).hold(first)
        if isinstance(first, Date) and isinstance(second, Date):
            parts = zip(first.readings[0], second.readings[0], strict=True)
            return all(part == other_part or not part or not other_part for part, other_part in parts)
        return first == second


def find_contradictions(
    results: Sequence[Given], behind: Mapping[str, Sequence[str]] | None = None
) -> tuple[Contradiction, ...]:
    """Where results contradict each other. One that was made from another (`behind`) may differ from it."""
    room = min(_MAX_RESULT, _MAX_TOGETHER // max(1, len(results)))
    groups: dict[tuple[frozenset[str], str, type], list[_SourceFact]] = {}
    for result in results:
        for fact in _read_facts(result, room):
            groups.setdefault((fact.key, fact.unit, type(fact.value)), []).append(fact)
    compared = [_compare(facts, behind or {}) for facts in groups.values()]
    return tuple(dict.fromkeys(contradiction for contradiction in compared if contradiction))[:_MAX_CONTRADICTIONS]


def read_yes_or_no(value: object) -> str:
    """`yes` or `no`, where that is what a result says first."""
    text = str(value).lower() if isinstance(value, bool) else _as_product(value).text
    match = _VERDICT.match(text)
    if match is None:
        return ""
    return "yes" if match[1].casefold() in ("yes", "true") else "no"


def _compare(facts: Sequence[_SourceFact], behind: Mapping[str, Sequence[str]]) -> Contradiction | None:
    """The first of the facts about one thing against those that say otherwise; a result must agree with itself."""
    by_task: dict[str, list[_SourceFact]] = {}
    for fact in facts:
        by_task.setdefault(fact.result.task, []).append(fact)
    consistent = [own[0] for own in by_task.values() if all(own[0].agrees(fact) for fact in own)]
    if len(consistent) < 2:
        return None
    first = consistent[0]
    others: list[_SourceFact] = []
    for other in consistent[1:]:
        is_derived = other.result.task in behind.get(first.result.task, ()) or (
            first.result.task in behind.get(other.result.task, ())
        )
        if not is_derived and _is_comparable(first, other):
            others.append(other)
    if all(first.agrees(other) for other in others):
        return None
    return Contradiction(first.about, tuple((fact.result.task, fact.text) for fact in (first, *others)))


def _is_comparable(first: _SourceFact, second: _SourceFact) -> bool:
    """Whether two facts with the same words are about the same: their tasks must not tell them apart."""
    if _content_words(first.result.instruction) == _content_words(second.result.instruction):
        return True
    return first.is_sentence and len(first.key) > 2 and _distinctions(first) == _distinctions(second)


def _distinctions(fact: _SourceFact) -> frozenset[str]:
    """The words of a task that tell one thing from another of its kind (names, numbers, times), besides the key."""
    words = WORD.findall(fact.result.instruction)
    names = {word for word in words[1:] if word[:1].isupper()}
    marks = [word for word in words if word in names or _DISTINCTION.fullmatch(word) or not word.isalpha()]
    return frozenset(singular(word.casefold()) for word in marks) - fact.key


def _read_facts(result: Given, room: int) -> Iterator[_SourceFact]:
    product = _as_product(result.value)
    if verdict := read_yes_or_no(result.value):
        key = _content_words(result.instruction)
        yield _SourceFact(result=result, key=key, about=result.instruction, value=verdict)
    for artifact in product.artifacts:
        if isinstance(artifact, Figure) and artifact.label:
            yield from _read_figure(result, artifact.label, f"{artifact.value} {artifact.unit}")
        elif isinstance(artifact, Table):
            yield from _read_table(result, artifact)
    if _DIGIT.search(product.text) is None:
        return  # no number and no date
    for sentence in split_sentences(product.text[:room], ".!?;"):
        is_plain = len(sentence) <= _MAX_SENTENCE and not sentence.startswith(("|", ">"))
        if is_plain and any(map(str.isdigit, sentence)) and not _UNSURE.search(sentence):
            yield from _read_sentence(result, " ".join(sentence.split()))


def _read_sentence(result: Given, sentence: str) -> Iterator[_SourceFact]:
    """The one number or date that a sentence states: the rest says what it is about."""
    values = [*find_quantities(sentence), *find_dates(sentence)]
    if len(values) != 1:
        return
    value = values[0]
    before = sentence[: value.start]
    is_date = isinstance(value, Date) or _YEAR.fullmatch(value.text) is not None
    if _STATED.search(before) or (is_date and _DATED.search(before)):
        about = f"{_STATED.sub(' ', before)} {sentence[value.end :]}"
        yield from _make_fact(result, about, value, is_sentence=True)


def _read_table(result: Given, table: Table) -> Iterator[_SourceFact]:
    for row in table.rows[:_MAX_ROWS]:
        cells = list(zip(table.columns, row, strict=False))
        names = [str(cell) for column, cell in cells if cell is not None and not _is_measured(column, cell)]
        for column, cell in cells:
            if _is_measured(column, cell):
                yield from _read_figure(result, " ".join([*names, column.replace("_", " ")]), str(cell))


def _is_measured(column: str, cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool) and not _NO_MEASURE.search(column)


def _read_figure(result: Given, about: str, value: str) -> Iterator[_SourceFact]:
    quantities = list(find_quantities(value))
    if len(quantities) == 1:
        yield from _make_fact(result, about, quantities[0])


def _make_fact(result: Given, about: str, value: Number | Date, *, is_sentence: bool = False) -> Iterator[_SourceFact]:
    """A fact, if there are words that say what it is about."""
    unit = value.unit if isinstance(value, Number) and _MEASURE.fullmatch(value.unit) else ""
    plain = _CITATION.sub(" ", about)
    key = _content_words(plain) - {unit}
    if 1 <= len(key) <= _MAX_KEY:
        words = " ".join(WORD.findall(plain)).removeprefix("There ")
        yield _SourceFact(result=result, key=key, about=words, value=value, unit=unit, is_sentence=is_sentence)


def _content_words(text: str) -> frozenset[str]:
    return frozenset(singular(word.casefold()) for word in WORD.findall(text) if word.casefold() not in _STOP_WORDS)


def _as_product(value: object) -> Product:
    """A result as its text and artifacts; empty where it is other data."""
    if isinstance(value, str):
        return Product(value)
    try:
        return msgspec.convert(value, Product)
    except msgspec.ValidationError:
        return value if isinstance(value, Product) else Product("")
