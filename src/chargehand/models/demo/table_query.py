"""One grammar for questions to tables: measure x group x filter x time x rank x threshold, joined along keys.

Every word of a clause is used by a part of the query or there is no query. Where two readings fit, neither is taken.
"""

import re
from datetime import date
from itertools import product
from typing import Literal

from msgspec import Struct

from chargehand.models.demo.dates import Period
from chargehand.models.demo.request import Clause
from chargehand.models.demo.table_schema import Column, Schema, TableSpec, read_schema
from chargehand.models.demo.table_words import Item, Names, Revenue, Value, is_sale, read_items, read_lexicon
from chargehand.models.demo.words import LIGHT_VERBS, NEGATIONS, join_words, stem, stems, word_set

_MOST_ROWS = 200
_SUMS = word_set("total sum overall altogether combined")
_AVERAGES = word_set("average mean avg")
_HIGHEST = word_set("highest largest biggest greatest maximum max")
_LOWEST = word_set("lowest smallest minimum min")
_MOST = word_set("most top best")
_LEAST = word_set("fewest least")
_RANKING = _HIGHEST | _LOWEST | _MOST | _LEAST
_EXPENSIVE = {"cheapest": "ASC", "priciest": "DESC"}
_EACH = word_set("per each every by")
_TIME_UNITS = {"month": 7, "year": 4, "day": 10}
_COMPARISONS: dict[tuple[str, ...], str] = {
    ("more", "than"): ">",
    ("greater", "than"): ">",
    ("higher", "than"): ">",
    ("larger", "than"): ">",
    ("over",): ">",
    ("above",): ">",
    ("exceeding",): ">",
    ("at", "least"): ">=",
    ("less", "than"): "<",
    ("fewer", "than"): "<",
    ("lower", "than"): "<",
    ("smaller", "than"): "<",
    ("under",): "<",
    ("below",): "<",
    ("at", "most"): "<=",
    ("exactly",): "=",
}
_CURRENCY_WORDS = {"euro": "EUR", "euros": "EUR", "eur": "EUR", "dollars": "USD", "usd": "USD", "percent": "percent"}
_LISTING = word_set("which list show name find what get display top")
_BEFORE_NOUN = word_set("the average total mean highest lowest our unit")
_DAY_WORDS = word_set("day date month week time on at")
_STATES = frozenset(map(stem, word_set("arrive come mark flag become remain stay")))
_OPERATORS = (
    NEGATIONS | _RANKING | _SUMS | _AVERAGES | _EACH | frozenset(_TIME_UNITS) | frozenset(_EXPENSIVE)
) | word_set(
    """many number count than more less fewer over under above below between since before after until only median
    percentage share ratio rate change growth trend difference second third last first next today yesterday tomorrow
    week quarter both either any other same compared versus expensive late early new old recent latest oldest newest
    longest shortest ago now currently because"""
)
"""Words that are never the name of something in the data."""


class Query(Struct, frozen=True):
    """A query, what its result is called, and how many joins it takes."""

    sql: str
    title: str
    joins: int
    shape: Literal["number", "groups", "rows"]
    unit: str = ""
    used_tables: tuple[str, ...] = ()


class Lookup(Struct, frozen=True):
    """Names that have to be looked up in the data before the query can be written."""

    sql: str
    phrases: tuple[str, ...]


class Unread(Struct, frozen=True):
    """Why there is no query. `words` are those that nothing accounts for."""

    reason: str
    words: tuple[str, ...] = ()
    understood: int = 0
    is_known: bool = False
    """Whether all else was understood, so that no other tool needs to be asked."""


_IN_ALL = re.compile(r"\b(?:in all|altogether|in total)\b", re.IGNORECASE)


class _Refusal(Exception):
    def __init__(self, reason: str, *, is_known: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_known = is_known


class _Measure(Struct, frozen=True):
    """What is computed: `raw` is a column's value row by row, which is not added up."""

    sql: str
    label: str
    unit: str = ""
    raw: bool = False
    adds_up: bool = True
    named_aggregate: bool = False
    table: str = ""


def read_query(clause: Clause, description: str, names: Names | None = None) -> Query | Lookup | Unread:
    """The query for a clause over the tables that a tool's description lists."""
    schema = read_schema(description)
    lexicon = read_lexicon(description)
    if schema is None or lexicon is None:
        return Unread("no tables are described")
    if clause.points_back:
        return Unread("it speaks of an earlier result, which no table holds")
    items = read_items(clause, lexicon, names or {})
    if about := _read_about(clause, schema, items):
        return about
    queries: list[Query] = []
    failures: list[Unread] = []
    lookups: list[tuple[str, ...]] = []
    for base in schema.tables:
        reading = _Reading(clause, schema, base, items)
        try:
            query = reading.read()
        except _Refusal as refusal:
            failures.append(Unread(refusal.reason, (), len(reading.used), is_known=refusal.is_known))
            continue
        leftover = reading.leftover()
        if not leftover:
            queries.append(query)
        else:
            if (phrases := reading.names_to_look_up(leftover)) and names is None:
                lookups.append(phrases)
            words = tuple(items[at].text for at in leftover)
            failures.append(
                Unread(f"nothing there says {join_words([repr(word) for word in words])}", words, len(reading.used))
            )
    return _chosen(queries) or _lookup(schema, lookups) or _best_failure(failures)


def _read_about(clause: Clause, schema: Schema, items: list[Item]) -> Query | None:
    """The row of a table by its key: "What do you know about Corvid?"."""
    known = [item for item in items if item.stems == ("know",)]
    values = [value for item in items for value in item.values()]
    if (
        not known
        or clause.periods
        or any(not item.is_free and not item.values() for item in items if item not in known)
    ):
        return None
    for value in values:
        table = schema.tables[value.column.table]
        if table.columns[0] == value.column and table.key is not None and len({held.values for held in values}) == 1:
            columns = ", ".join(column.name for column in table.columns)
            sql = f"SELECT {columns} FROM {table.name} WHERE {value.column.name} = {quote(value.values[0])}"  # noqa: S608 - quoted
            return Query(sql, value.values[0], 0, "rows", used_tables=(table.name,))
    return None


def _chosen(queries: list[Query]) -> Query | Unread | None:
    if not queries:
        return None
    fewest = min(query.joins for query in queries)
    simple = {query.sql: query for query in queries if query.joins == fewest}
    if len(simple) > 1:
        tables = sorted({table for query in simple.values() for table in query.used_tables[:1]})
        return Unread(f"it can be read of {join_words(tables, 'or')}; say which is meant")
    return next(iter(simple.values()))


def _best_failure(failures: list[Unread]) -> Unread:
    known = [failure for failure in failures if failure.is_known]
    return max(known or failures, key=lambda failure: failure.understood)


def _lookup(schema: Schema, lookups: list[tuple[str, ...]]) -> Lookup | None:
    if not lookups:
        return None
    phrases = min(lookups, key=len)
    columns = [
        column for table in schema.tables.values() for column in table.columns if column.is_text and not column.complete
    ]
    if not columns:
        return None
    parts = [
        f"SELECT DISTINCT {quote(column.sql)} AS place, {column.name} AS value "  # noqa: S608 - quoted
        f"FROM {column.table} WHERE {column.name} LIKE {quote(_pattern(phrase))}"
        for phrase in phrases
        for column in columns
    ]
    return Lookup(" UNION ALL ".join(parts), phrases)


def _pattern(phrase: str) -> str:
    return "%" + "%".join(word[: max(3, len(stem(word)))] for word in phrase.split()) + "%"


def read_names(description: str, phrases: tuple[str, ...], rows: list[list[object]]) -> Names | Unread:
    """What a lookup found: each phrase is in the values of one column, or it is nothing anybody can use."""
    schema = read_schema(description)
    found: dict[str, dict[str, list[str]]] = {phrase: {} for phrase in phrases}
    for phrase, (place, value) in product(phrases, (row for row in rows if len(row) == 2)):
        if _holds(str(value), phrase):
            found[phrase].setdefault(str(place), []).append(str(value))
    names: Names = {}
    for phrase, places in found.items():
        if not places or schema is None:
            return Unread(f"nothing there says {phrase!r}", (phrase,))
        refs: list[Value] = []
        for place, values in places.items():
            table, _, name = place.partition(".")
            column = schema.tables[table].column(name) if table in schema.tables else None
            if column is not None:
                refs.append(Value(column, tuple(dict.fromkeys(values))))
        names[phrase] = tuple(refs)
    return names


def _holds(value: str, phrase: str) -> bool:
    words = stems(value)
    wanted = stems(phrase)
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


def quote(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


class _Reading:
    """One try to read a clause as a question about the rows of one table and what they refer to."""

    def __init__(self, clause: Clause, schema: Schema, base: str, items: list[Item]) -> None:
        self.clause = clause
        self.schema = schema
        self.base = schema.tables[base]
        self.paths = schema.paths(base)
        self.items = items
        self.used: set[int] = set()
        self.where: list[str] = []
        self.having: list[tuple[_Measure, str]] = []
        self.measures: list[_Measure] = []
        self.groups: list[tuple[str, str]] = []
        self.shown: list[Column] = []
        self.filter_words: list[str] = []
        self.time_words = ""
        self.order = ""
        self.time_refusal: _Refusal | None = None
        self.entity: TableSpec | Column | None = None
        self.entity_at = -1
        self.mentioned = any(item.table(base) for item in items)
        self.rank: tuple[_Measure, str, int] | None = None
        self.needed: set[str] = {base}
        self.row_conditions: list[Column] = []

    def read(self) -> Query:
        """The query; words that are left over are asked for afterwards."""
        self._read_times()
        self._read_exclusions()
        self._find_entity()
        self._read_comparisons()
        self._read_equalities()
        self._read_groups()
        self._read_rank()
        self._read_measures()
        self._read_values()
        self._use_names_of_what_is_used()
        query = self._query()
        if self.time_refusal is not None and not self.leftover():
            raise self.time_refusal
        return query

    # --- words

    def leftover(self) -> list[int]:
        """Places of the words that nothing accounts for."""
        return [
            at
            for at, item in enumerate(self.items)
            if at not in self.used and (not item.is_free or item.low in NEGATIONS) and not self._is_light(at)
        ]

    def _is_light(self, at: int) -> bool:
        item = self.items[at]
        return item.stems[0] in LIGHT_VERBS and not item.refs

    def names_to_look_up(self, leftover: list[int]) -> tuple[str, ...]:
        """Phrases among the leftover words that may be names in the data; nothing where one of them cannot be."""
        if len(leftover) > 4:
            return ()
        phrases: list[list[str]] = []
        for before, at in zip([-5, *leftover], leftover, strict=False):
            item = self.items[at]
            usable = self._usable(item.columns()) or item.tables() or item.revenue()
            if item.low in _OPERATORS or item.number is not None or usable or len(item.text) < 3:
                return ()
            if before == at - 1:
                phrases[-1].append(item.low)
            else:
                phrases.append([item.low])
        return tuple(" ".join(words) for words in phrases)

    def _next(self, at: int) -> int:
        """The place of the next item that is more than a little word."""
        at += 1
        while (
            at < len(self.items)
            and self.items[at].is_free
            and not self.items[at].refs
            and self.items[at].low not in _EACH
        ):
            at += 1
        return at

    def _usable(self, columns: list[Column]) -> list[Column]:
        return [column for column in columns if column.table in self.paths]

    def _column(self, item: Item, *, number: bool) -> Column | None:
        """The one column of a kind that an item names, nearest to the base table."""
        fits = [
            column
            for column in self._usable(item.columns())
            if (column.is_number if number else column.is_text or column.is_key)
        ]
        if not fits:
            return None
        self._check_cost(item, fits)
        nearest = min(len(self.paths[column.table]) for column in fits)
        near = [column for column in fits if len(self.paths[column.table]) == nearest]
        exact = [column for column in near if column.words == item.stems]
        near = exact or [column for column in near if not column.is_key] or near
        if len(near) > 1:
            names = join_words([column.sql for column in near], "or")
            raise _Refusal(f"{item.text!r} may mean {names}; say which is meant")
        return near[0]

    def _check_cost(self, item: Item, columns: list[Column]) -> None:
        """The verb: "what costs more than 100" asks for the price or for the cost."""
        at = self.items.index(item)
        is_noun = at > 0 and self.items[at - 1].low in _BEFORE_NOUN
        if item.stems != ("cost",) or is_noun:
            return
        for column in columns:
            if any("price" in other.name.split("_") for other in self.schema.tables[column.table].columns):
                raise _Refusal(f"{item.text!r} may mean the price or the cost; say which is meant")

    def _need(self, column: Column) -> Column:
        self.needed.add(column.table)
        return column

    # --- time

    def _read_times(self) -> None:
        periods = list(self.clause.periods)
        if not periods:
            return
        column = self._need(self._day_column())
        known = [self._with_year(period, column) for period in periods]
        for period in known:
            self._check_on_record(period, column)
        before = self._words_before(periods[0])
        if len(known) == 1:
            self.where.append(_time_condition(column, known[0], before))
            self.time_words = f"{before or ('on' if known[0].is_day else 'in')} {known[0].words}"
            return
        if len(known) > 2:
            raise _Refusal("more than two times are named")
        between = self.clause.text[periods[0].end : periods[1].start].lower().replace(" the ", " ").strip(" ,")
        comparing = any(item.stems[0] == "chang" for item in self.items)
        if between in {"to", "until", "till", "through", "-"} or (between == "and" and before == "between"):
            if not comparing:
                first = quote(known[0].first.isoformat())
                last = quote(known[1].last.isoformat())
                self.where.append(f"{column.sql} BETWEEN {first} AND {last}")
                self.time_words = f"from {known[0].words} to {known[1].words}"
                return
        elif between not in {"and", "or", "and in", "with", "vs", "versus", "to", "compared with", "compared to"}:
            raise _Refusal("how the two times belong together is not clear")
        self._compare_periods(column, known)

    def _compare_periods(self, column: Column, periods: list[Period]) -> None:
        cases = " ".join(
            f"WHEN {column.sql} BETWEEN {quote(period.first.isoformat())} AND {quote(period.last.isoformat())} "
            f"THEN {quote(period.words)}"
            for period in periods
        )
        case = f"CASE {cases} END"
        self.where.append(f"{case} IS NOT NULL")
        self.groups.append((case, "period"))
        self.order = f"MIN({column.sql})"
        self.used |= {
            at
            for at, item in enumerate(self.items)
            if item.stems[0] in {"chang", "versu"} or item.low in {"compared", "vs"}
        }

    def _day_column(self) -> Column:
        named = [
            (at, column)
            for at, item in enumerate(self.items)
            for column in self._usable(item.columns())
            if column.is_day
        ]
        if len({column for _, column in named}) == 1:
            self.used.add(named[0][0])
            return named[0][1]
        own = [column for column in self.base.columns if column.is_day]
        if not own:
            own = [column for table in self.paths for column in self.schema.tables[table].columns if column.is_day]
        if len(own) == 1 and _is_plain_day(own[0]):
            return own[0]
        if not own:
            raise _Refusal(f"{self.base.name} have no dates")
        raise _Refusal(
            f"which date of {self.base.name} is meant is not said: {join_words([column.name for column in own], 'or')}"
        )

    def _with_year(self, period: Period, column: Column) -> Period:
        if period.year:
            return period
        first, last = _range(column)
        years = [
            year
            for year in range(first.year, last.year + 1)
            if period.of_year(year).first <= last and period.of_year(year).last >= first
        ]
        if len(years) != 1:
            self.time_refusal = _Refusal(f"which year {period.words} is of is not said", is_known=True)
        return period.of_year(years[0] if years else last.year)

    def _check_on_record(self, period: Period, column: Column) -> None:
        first, last = _range(column)
        if period.last < first or period.first > last:
            self.time_refusal = _Refusal(
                f"nothing is on record for {period.words}: the rows of {column.table} are from {first} to {last}",
                is_known=True,
            )

    def _words_before(self, period: Period) -> str:
        """since, before and so on, where such a word stands before a period."""
        for at in range(len(self.items) - 1, -1, -1):
            item = self.items[at]
            if item.end <= period.start:
                if item.low in {"since", "after", "before", "until", "till", "between"}:
                    self.used.add(at)
                    return item.low
                if item.low in {"by", "from", "to", "within", "through"} and len(self.clause.periods) == 1:
                    raise _Refusal(f"{item.low} {period.words} can be read in two ways")
                if item.low not in {"the", "in", "of", "month"}:
                    return ""
        return ""

    # --- filters

    def _read_exclusions(self) -> None:
        for at, item in enumerate(self.items):
            if item.low == "other" and at + 1 < len(self.items) and self.items[at + 1].low == "than":
                self.used.add(at + 1)
            elif item.low not in NEGATIONS and item.stems[0] != "not":
                continue
            self._exclude(at)

    def _exclude(self, at: int) -> None:
        place = self._next(at)
        flag = self._flag(place)
        if flag is not None:
            self.where.append(f"{self._need(flag).sql} = 'no'")
            self.filter_words.append(f"not {self.items[place].text}")
            self.used |= {at, place}
            return
        excluded: list[Value] = []
        while place < len(self.items) and (value := self._value(self.items[place])) is not None:
            if excluded and excluded[0].column != value.column:
                break
            excluded.append(value)
            self.used.add(place)
            self.filter_words.append(f"not {self.items[place].text}")
            following = place + 1
            while following < len(self.items) and self.items[following].low in {"and", "or", "in", "the", "from", "to"}:
                following += 1
            place = following
        if not excluded or self._asks_for_others():
            raise _Refusal(f"what {self.items[at].text!r} leaves out is not clear")
        column = self._need(excluded[0].column)
        values = ", ".join(quote(value) for held in excluded for value in held.values)
        self.where.append(f"{column.sql} NOT IN ({values})")
        self.used.add(at)

    def _asks_for_others(self) -> bool:
        """Whether rows of another table are asked for: those without such a row are not those with another one."""
        others = [table for item in self.items for table in item.tables() if table.name in self.paths]
        return any(table is not self.base for table in others) and self.clause.question != "how many"

    def _flag(self, at: int) -> Column | None:
        if at >= len(self.items):
            return None
        flags = [column for column in self._usable(self.items[at].columns()) if column.is_flag]
        return flags[0] if len(flags) == 1 else None

    def _value(self, item: Item) -> Value | None:
        """The one value an item names, in the column nearest to the base table."""
        fits = [value for value in item.values() if value.column.table in self.paths]
        if not fits:
            return None
        nearest = min(len(self.paths[value.column.table]) for value in fits)
        near = [value for value in fits if len(self.paths[value.column.table]) == nearest]
        if len(near) > 1:
            raise _Refusal(
                f"{item.text!r} may be {join_words([value.column.sql for value in near], 'or')}; say which is meant"
            )
        if set(item.stems) & {stem(name) for name in self.schema.tables}:
            what_is_done = f"what is done in {self.base.name}"  # "ordered" is a status, and what happens to all orders
            reason = f"{item.text!r} may be {near[0].column.sql} or {what_is_done}; say which is meant"
            raise _Refusal(reason, is_known=True)
        return near[0]

    def _read_values(self) -> None:
        chosen: dict[Column, list[tuple[int, Value]]] = {}
        for at, item in enumerate(self.items):
            if at in self.used:
                continue
            flag = self._flag(at)
            if flag is not None:
                self.where.append(f"{self._need(flag).sql} = 'yes'")
                self.filter_words.append(item.text)
                self.used.add(at)
            elif (value := self._value(item)) is not None:
                chosen.setdefault(value.column, []).append((at, value))
                self.used.add(at)
        for column, held in chosen.items():
            values = list(dict.fromkeys(text for _, value in held for text in value.values))
            listed = ", ".join(quote(text) for text in values)
            test = f"IN ({listed})" if len(values) > 1 else f"= {listed}"
            self.where.append(f"{self._need(column).sql} {test}")
            self.filter_words.extend(self.items[at].text for at, _ in held)
            if len(held) > 1:
                self._split_by(column)
        for at, item in enumerate(self.items[:-1]):
            if item.stems[0] in _STATES and self.items[at + 1].values():
                self.used.add(at)

    def _split_by(self, column: Column) -> None:
        """Several values of one column are shown side by side."""
        if len(self.measures) > 1:
            raise _Refusal("which figure is of which is not clear")
        if self.measures and not self.groups:
            self.groups.append((column.sql, self._label(column)))

    def _read_comparisons(self) -> None:
        at = 0
        while at < len(self.items):
            sign, size = self._comparison_at(at)
            number_at = at + size
            if sign and number_at < len(self.items) and self.items[number_at].number is not None:
                number = _plain(self.items[number_at].number)
                self.used |= set(range(at, number_at + 1))
                self._compare(sign, number, at, number_at)
            elif sign:
                raise _Refusal(f"what {self.items[at].text!r} is compared with is not clear")
            at += 1

    def _comparison_at(self, at: int) -> tuple[str, int]:
        for size in (2, 1):
            words = tuple(item.low for item in self.items[at : at + size])
            if words in _COMPARISONS and not (size == 1 and at in self.used):
                return _COMPARISONS[words], size
        return "", 0

    def _compare(self, sign: str, number: str, at: int, number_at: int) -> None:
        unit = ""
        after = number_at + 1
        if after < len(self.items) and self.items[after].low in _CURRENCY_WORDS:
            unit = _CURRENCY_WORDS[self.items[after].low]
            self.used.add(after)
            after += 1
        measure, place = self._measure_near(at, after)
        if measure is None:
            raise _Refusal(f"what is compared with {number} is not clear")
        if unit and measure.unit != unit:
            raise _Refusal(f"{measure.label} is not counted in {unit}")
        self.used.add(place)
        self.filter_words.append(f"{measure.label} {sign} {number}")
        if measure.raw or (measure.sql.startswith("SUM") and self._counts_rows()):
            column = self._column(self.items[place], number=True)
            self.where.append(f"{measure.sql.removeprefix('SUM(').rstrip(')')} {sign} {number}")
            if column is not None and self.entity is not None:
                self.shown.append(column)
        else:
            self.having.append((measure, f"{sign} {number}"))

    def _counts_rows(self) -> bool:
        """Whether rows of the base table are asked for themselves, so that a condition holds for each of them."""
        counted = any(item.low in {"many", "number"} for item in self.items)
        if counted or self.entity is self.base or (isinstance(self.entity, Column) and self.entity == self.base.key):
            return True
        if isinstance(self.entity, Column) and self.entity == self.base.label and self.base.key is not None:
            return True
        if self.entity is not None:
            raise _Refusal("it can be read of single rows or of their sum; say total, or the rows")
        return True

    def _measure_near(self, at: int, after: int) -> tuple[_Measure | None, int]:
        """What is compared: named right after the number, else before the comparison."""
        place = after - 1 if after - 1 >= 0 else after
        place = self._next(place) if after < len(self.items) and self.items[after].is_free else after
        if place < len(self.items) and place not in self.used:
            measure = self._measure_at(place, "")
            if measure is not None:
                return measure, place
        for place in range(at - 1, -1, -1):
            if place in self.used:
                continue
            measure = self._measure_at(place, "") if not self.items[place].table(self.base.name) else None
            if measure is not None:
                return measure, place
        return None, -1

    def _read_equalities(self) -> None:
        for at in range(len(self.items) - 1):
            number = self.items[at + 1].number
            if number is None or {at, at + 1} & self.used:
                continue
            item = self.items[at]
            key = self.base.columns[0]
            if item.table(self.base.name) and key.is_key and key.type == "INTEGER":
                self.where.append(f"{key.sql} = {_plain(number)}")
            elif (column := self._column(item, number=True)) is not None:
                self.where.append(f"{self._need(column).sql} = {_plain(number)}")
            else:
                continue
            self.filter_words.append(f"{item.text} {_plain(number)}")
            self.used |= {at, at + 1}

    # --- what is asked for

    def _find_entity(self) -> None:
        start = next((at for at, item in enumerate(self.items[:4]) if item.low in _LISTING), None)
        if start is None:
            return
        for at in range(start + 1, len(self.items)):
            item = self.items[at]
            table = next((held for held in item.tables() if held.name in self.paths), None)
            column = None if item.values() and not item.columns() else self._column(item, number=False)
            if table is not None and item.low != table.name.lower() and self._column(item, number=True) is not None:
                return  # a figure, such as a price in the table prices
            if at in self.used or (item.is_free and not item.refs) or item.number is not None or item.low in _RANKING:
                continue
            if item.stems[0] in _TIME_UNITS and table is None and column is None and self._group_by(item):
                self.used.add(at)
                return
            if item.low in _EXPENSIVE or (item.values() and table is None and column is None) or self._flag(at):
                continue
            if table is not None or column is not None:
                self.entity = table or column
                self.entity_at = at
                self.used.add(at)
            return

    def _read_groups(self) -> None:
        for at, item in enumerate(self.items):
            if at in self.used or item.low not in _EACH:
                continue
            place = self._next(at)
            if place >= len(self.items):
                continue
            target = self.items[place]
            if item.low == "by" and (target.revenue() or self._column(target, number=True)):
                continue  # a ranking
            if not self._group_by(target):
                continue
            self.used |= {at, place}
            self._read_second_group(place + 2)

    def _read_second_group(self, at: int) -> None:
        """Per country and channel: a second column after the first."""
        follows = at < len(self.items) and self.items[at - 1].low == "and" and at not in self.used
        if follows and self._column(self.items[at], number=False) is not None and self._group_by(self.items[at]):
            self.used.add(at)

    def _group_by(self, item: Item) -> bool:
        table = next((held for held in item.tables() if held.name in self.paths), None)
        day = next((column for column in self._usable(item.columns()) if column.is_day), None)
        column = None if day is not None else self._column(item, number=False)
        if column is None and table is not None:
            column = table.label
        if column is not None:
            column = self._named(column)
            self.groups.append((self._need(column).sql, self._label(column)))
            return True
        unit = item.stems[0]
        if unit in _TIME_UNITS:
            day = self._need(day or self._day_column())
            self.groups.append((f"substr({day.sql}, 1, {_TIME_UNITS[unit]})", unit))
            return True
        return False

    def _named(self, column: Column) -> Column:
        """The name behind a code: the column `name` of the table that a key belongs to."""
        for table in self.schema.tables.values():
            if table.name in self.paths and table.key is not None and table.key.name == column.name:
                label = table.label
                if column.is_key or label.name == "name":
                    return label
        return column

    def _label(self, column: Column) -> str:
        """What a column is called; a bare `name` is that of its table's rows."""
        key = self.schema.tables[column.table].key
        name = key.name.removesuffix("_id") if column.name == "name" and key is not None else column.name
        return name.replace("_", " ")

    def _read_rank(self) -> None:
        for at, item in enumerate(self.items):
            if at in self.used or (item.low not in _RANKING and item.low not in _EXPENSIVE):
                continue
            if self.rank is not None:
                raise _Refusal("it asks for more than one ranking")
            if at + 1 < len(self.items) and self.items[at + 1].low == "first" and self.groups:
                self.order = "" if item.low in _HIGHEST else f"{len(self.groups) + 1}, 1"
                self.used |= {at, at + 1}
                continue
            direction = "DESC" if item.low in _HIGHEST | _MOST else "ASC"
            measure, place = self._rank_measure(at)
            if measure is None or (item.low == "best" and {"price", "cost", "fee"} & set(measure.label.split())):
                raise _Refusal(f"by what {item.text!r} is meant is not clear")
            self.used |= {at, place} if place >= 0 else {at}
            limit = self._limit(at)
            if self.entity is None and not self.groups:
                self._take_extreme(measure, direction, limit)
                return
            self._check_rank(measure, item.low)
            self.rank = (measure, _EXPENSIVE.get(item.low, direction), limit)

    def _rank_measure(self, at: int) -> tuple[_Measure | None, int]:
        if self.items[at].low in _EXPENSIVE:
            return self._price(), -1
        place = self._next(at)
        if place < len(self.items) and self.items[place].low == "expensive":
            return self._price(), place
        if place < len(self.items) and self.items[place].low in _SUMS | _AVERAGES:
            aggregate = "SUM" if self.items[place].low in _SUMS else "AVG"
            self.used.add(place)
            place = self._next(place)
            return (self._measure_at(place, aggregate), place) if place < len(self.items) else (None, -1)
        if place < len(self.items) and (measure := self._measure_at(place, "")) is not None and place not in self.used:
            return measure, place
        for by in range(at, len(self.items)):
            if self.items[by].low == "by" and (place := self._next(by)) < len(self.items):
                measure = self._measure_at(place, "")
                if measure is not None:
                    self.used.add(by)
                    return measure, place
        return None, -1

    def _price(self) -> _Measure | None:
        prices = [
            column
            for table in self.paths
            for column in self.schema.tables[table].columns
            if column.is_number and "price" in column.name.split("_")
        ]
        if len(prices) != 1:
            return None
        return self._column_measure(prices[0], "")

    def _limit(self, at: int) -> int:
        for place in (at + 1, at - 1, self.entity_at - 1):
            if 0 <= place < len(self.items) and place not in self.used and self.items[place].number is not None:
                self.used.add(place)
                return max(1, int(self.items[place].number or 1))
        return 1

    def _take_extreme(self, measure: _Measure, direction: str, limit: int) -> None:
        if not measure.raw or limit != 1:
            raise _Refusal("of what the first places are asked for is not clear")
        function = "MAX" if direction == "DESC" else "MIN"
        word = "highest" if direction == "DESC" else "lowest"
        sql = f"{function}({measure.sql})"
        self.measures.append(
            _Measure(sql=sql, label=f"{word} {measure.label}", unit=measure.unit, named_aggregate=True)
        )

    def _check_rank(self, measure: _Measure, word: str) -> None:
        """The highest amount of a group is its sum or its greatest row: nobody can tell."""
        if measure.raw or measure.named_aggregate or word not in _HIGHEST | _LOWEST or "COUNT" in measure.sql:
            return
        if not self._entity_is_row() and "*" not in measure.sql:
            raise _Refusal(f"the {word} {measure.label} may be of one row or of a sum; say total {measure.label}")

    def _entity_is_row(self) -> bool:
        if self.entity is self.base or self.entity == self.base.key:
            return True
        return self.base.key is not None and self.entity == self.base.label

    def _read_measures(self) -> None:
        for at, item in enumerate(self.items):
            if at in self.used:
                continue
            following = self.items[at + 1].low if at + 1 < len(self.items) else ""
            if item.low == "how" and following in {"many", "much"}:
                self.used |= {at, at + 1}
                self._count(at + 1)
            elif item.low in {"number", "count"} and following in {"of", "the"}:
                self.used.add(at)
                self._count(at)
            elif item.low in _SUMS | _AVERAGES and not item.columns():
                self._aggregate(at)
        for at in range(len(self.items)):
            if at not in self.used and (measure := self._measure_at(at, "", counts=False)) is not None:
                self.used.add(at)
                self._add_measure(measure, at)

    def _aggregate(self, at: int) -> None:
        aggregate = "AVG" if self.items[at].low in _AVERAGES else "SUM"
        place = self._next(at)
        while place < len(self.items) and self._measure_at(place, aggregate, counts=False) is None:
            if self._value(self.items[place]) is None and not self.items[place].tables():
                break
            place = self._next(place)
        measure = self._measure_at(place, aggregate, counts=False) if place < len(self.items) else None
        if measure is None or place in self.used:
            if aggregate == "SUM" and place < len(self.items) and self.items[place].low == "number":
                self.used.add(at)  # the total number of
                return
            raise _Refusal(f"of what the {self.items[at].text} is asked for is not clear")
        self.used |= {at, place}
        self.measures.append(measure)

    def _count(self, at: int) -> None:
        quantity = self._sold()
        place = self._next(at)
        distinct = False
        while place < len(self.items):
            item = self.items[place]
            if item.low in {"different", "distinct"}:
                distinct = True
                self.used.add(place)
            elif (
                item.low in {"units", "items", "pieces"} and quantity is not None and not item.refs
            ) or self._is_compound(place):
                self.used.add(place)
            elif place in self.used or self._is_filter(item) or self._flag(place):
                pass
            else:
                break
            place = self._next(place)
        measure = self._counted(place, distinct=distinct) if place < len(self.items) else None
        if quantity is not None and (measure is None or measure.sql.startswith("COUNT")):
            if measure is not None and place < len(self.items):
                self.used.add(place)
            self.measures.append(quantity)
            return
        if measure is None:
            measure = self._counted_kind(self._next(at))
            place = self._next(at)
        if measure is None:
            raise _Refusal("what is to be counted is not in the tables")
        self.used.add(place)
        self.measures.append(measure)

    def _counted_kind(self, at: int) -> _Measure | None:
        """Rows by their kind: "how many videos" are the materials of that kind."""
        value = self._value(self.items[at]) if at < len(self.items) else None
        if value is None or value.column.table != self.base.name or not value.column.complete:
            return None
        if value.column in (self.base.label, self.base.columns[0]) or self.items[at].tables():
            return None
        self.where.append(f"{value.column.sql} = {quote(value.values[0])}")
        self.filter_words.append(self.items[at].text)
        return _Measure("COUNT(*)", f"number of {self.base.name}")

    def _is_compound(self, at: int) -> bool:
        """Feature requests: a column's name right before that of its table."""
        following = self.items[at + 1] if at + 1 < len(self.items) else None
        own = any(column.table == self.base.name for column in self.items[at].columns())
        return own and following is not None and following.table(self.base.name)

    def _is_filter(self, item: Item) -> bool:
        return bool(item.values()) and not item.tables() and not self._usable(item.columns())

    def _sold(self) -> _Measure | None:
        """Sold pieces, where a word says so."""
        column = self.base.column("quantity") or self.base.column("units")
        at = next((at for at, item in enumerate(self.items) if is_sale(item) and at not in self.used), None)
        if column is None or at is None:
            return None
        self.used.add(at)
        return _Measure(f"SUM({column.sql})", "number sold")

    def _counted(self, at: int, *, distinct: bool) -> _Measure | None:
        item = self.items[at]
        revenue = item.revenue()
        if revenue is not None and revenue.table == self.base.name:
            return self._revenue_measure(revenue, "")
        if item.table(self.base.name) and not distinct:
            return _Measure("COUNT(*)", f"number of {item.low}")
        number = self._column(item, number=True)
        if number is not None and number.adds_up and not distinct:
            return self._column_measure(number, "")
        column = self._column(item, number=False)
        table = next((held for held in item.tables() if held.name in self.paths), None)
        if column is None and table is not None:
            column = table.columns[0]
        if column is None or (not distinct and column == self.base.label and self.base.key is None):
            return None
        foreign = column.table != self.base.name or (column.is_key and column != self.base.columns[0])
        if foreign and not self.mentioned:
            return None
        return _Measure(f"COUNT(DISTINCT {self._need(column).sql})", f"number of {item.low}")

    def _measure_at(self, at: int, aggregate: str, *, counts: bool = True) -> _Measure | None:
        """What an item measures: a column with numbers, revenue, or with `counts` the number of rows of a table."""
        item = self.items[at]
        revenue = item.revenue()
        if revenue is not None and revenue.table == self.base.name:
            return self._revenue_measure(revenue, aggregate)
        number = self._column(item, number=True)
        if number is not None:
            return self._column_measure(number, aggregate)
        if counts and item.table(self.base.name):
            return _Measure("COUNT(*)", f"number of {item.low}")
        if counts and is_sale(item) and (quantity := self.base.column("quantity")) is not None:
            return _Measure(f"SUM({quantity.sql})", "number sold", named_aggregate=True)
        return None

    def _revenue_measure(self, revenue: Revenue, aggregate: str) -> _Measure:
        self.needed |= {revenue.quantity.table, revenue.price.table}
        sql = f"ROUND({aggregate or 'SUM'}({revenue.quantity.sql} * {revenue.price.sql}), 2)"
        label = "average revenue of an order line" if aggregate == "AVG" else "revenue"
        return _Measure(sql=sql, label=label, unit=revenue.price.unit)

    def _column_measure(self, column: Column, aggregate: str) -> _Measure:
        if column.table != self.base.name and (aggregate or column.adds_up):
            raise _Refusal(f"{column.sql} would be counted several times")
        self._need(column)
        label = (
            " ".join(column.name.split("_")).removesuffix(f" {column.name.rsplit('_', 1)[-1]}")
            if column.unit
            else column.name.replace("_", " ")
        )
        if aggregate == "AVG":
            return _Measure(
                sql=f"ROUND(AVG({column.sql}), 2)", label=f"average {label}", unit=column.unit, named_aggregate=True
            )
        if aggregate == "SUM":
            return _Measure(sql=f"SUM({column.sql})", label=f"total {label}", unit=column.unit, named_aggregate=True)
        if column.adds_up:
            return _Measure(sql=f"SUM({column.sql})", label=label, unit=column.unit)
        return _Measure(sql=column.sql, label=label, unit=column.unit, raw=True, adds_up=False, table=column.table)

    def _add_measure(self, measure: _Measure, at: int) -> None:
        column = self._column(self.items[at], number=True)
        listed = self.entity is not None and not self.groups and self.rank is None
        if measure.raw or (listed and self._entity_is_row()):
            if column is not None:
                self.shown.append(column)
            return
        self.measures.append(measure)

    def _use_names_of_what_is_used(self) -> None:
        """A table's own name, and the name of a column beside its value, say nothing more."""
        for at, item in enumerate(self.items):
            if at in self.used or not item.refs:
                continue
            if any(table.name in self.needed for table in item.tables()):
                self.used.add(at)
                continue
            beside = [
                self.items[place] for place in (at - 1, at + 1) if 0 <= place < len(self.items) and place in self.used
            ]
            for column in self._usable(item.columns()):
                by_value = any(value.column == column for other in beside for value in other.values())
                by_table = any(other.table(column.table) for other in beside) and column.table == self.base.name
                if by_value or (by_table and not column.is_number):
                    self.used.add(at)

    # --- the query

    def _query(self) -> Query:
        if self.rank is not None:
            return self._ranked()
        if self.having and not self.groups:
            self._group_by_entity()
        if self.measures or self.having:
            if self.entity is not None and not self.groups:
                self._group_by_entity()
            return self._measured()
        return self._listed()

    def _group_by_entity(self) -> None:
        if self.entity is None:
            raise _Refusal("of what this holds is not clear")
        column = self.entity.label if isinstance(self.entity, TableSpec) else self.entity
        column = self._named(column)
        self.groups.append((self._need(column).sql, self._label(column)))

    def _measured(self) -> Query:
        measures = [*self.measures, *(measure for measure, _ in self.having if measure not in self.measures)]
        if any(sql == self.base.columns[0].sql for sql, _ in self.groups) and "AVG" in measures[0].sql:
            raise _Refusal("an average of single rows can be read in two ways")
        if self.shown:
            raise _Refusal(
                f"how {join_words([column.name for column in self.shown])} is to be put together is not said"
            )
        columns = [f"{sql} AS {_alias(label)}" for sql, label in self.groups]
        columns += [f"{measure.sql} AS {_alias(measure.label, measure.unit)}" for measure in measures]
        sql = f"SELECT {', '.join(columns)} {self._from()}{self._where()}"
        if self.groups:
            sql += f" GROUP BY {', '.join(str(at + 1) for at in range(len(self.groups)))}"
            if self.having:
                sql += " HAVING " + " AND ".join(f"{measure.sql} {condition}" for measure, condition in self.having)
            by_time = self.groups[0][1] in _TIME_UNITS
            order = self.order or ("1" if by_time else f"{len(self.groups) + 1} DESC, 1")
            sql += f" ORDER BY {order} LIMIT {_MOST_ROWS}"
        shape = "groups" if self.groups else "number"
        labels = join_words([_with_unit(measure) for measure in measures])
        return self._finished(sql, labels, shape, measures[0].unit)

    def _ranked(self) -> Query:
        assert self.rank is not None
        measure, direction, limit = self.rank
        if measure.table and measure.table != self.base.name:
            raise _Refusal("what is ranked is not in this table")
        if self.measures or self.having:
            raise _Refusal("it asks for a ranking and for another figure")
        if not self.groups:
            self._group_by_entity()
        columns = [f"{sql} AS {_alias(label)}" for sql, label in self.groups]
        metric = f"{measure.sql} AS {_alias(measure.label, measure.unit)}"
        grouped = "" if measure.raw else f" GROUP BY {', '.join(str(at + 1) for at in range(len(columns)))}"
        inner = f"SELECT DISTINCT {', '.join([*columns, metric])} {self._from()}{self._where()}{grouped}"
        place = f"RANK() OVER (ORDER BY {_alias(measure.label, measure.unit)} {direction}) AS place"
        names = ", ".join([*(_alias(label) for _, label in self.groups), _alias(measure.label, measure.unit)])
        sql = (
            f"SELECT {names} FROM (SELECT *, {place} FROM ({inner})) WHERE place <= {limit} "  # noqa: S608 - our names
            f"ORDER BY place, 1 LIMIT {_MOST_ROWS}"
        )
        word = "Highest" if direction == "DESC" else "Lowest"
        return self._finished(sql, f"{word} {_with_unit(measure)}", "groups", measure.unit)

    def _listed(self) -> Query:
        if self.entity is None and not (self.shown and (self.where or self.groups)):
            raise _Refusal("what is to be looked up is not in the tables")
        self._check_listed()
        entity = self.entity
        columns: list[str] = [sql for sql, _ in self.groups]
        if isinstance(entity, TableSpec):
            shown = entity.columns[:6] if entity is self.base else (entity.columns[0], entity.label)
            columns += [self._need(column).sql for column in shown]
        elif entity is not None:
            columns.append(self._need(self._named(entity)).sql)
        elif not self.groups:
            columns += [column.sql for column in self.base.columns if column.is_text or column.is_day]
        columns += [self._need(column).sql for column in self.shown]
        listed = ", ".join(dict.fromkeys(columns))
        sql = f"SELECT DISTINCT {listed} {self._from()}{self._where()} ORDER BY 1 LIMIT {_MOST_ROWS}"
        if entity is None:
            label = join_words([self._column_measure(column, "").label for column in self.shown])
        else:
            label = self.items[self.entity_at].text
        return self._finished(sql, label, "rows", self.shown[0].unit if self.shown else "")

    def _check_listed(self) -> None:
        """Rows are listed of the table that is asked for, under conditions or all of them; nothing else is guessed."""
        if _IN_ALL.search(self.clause.text):
            raise _Refusal("which total is meant is not said", is_known=True)
        entity = self.entity
        if entity is None:
            return
        table = entity.name if isinstance(entity, TableSpec) else entity.table
        if table != self.base.name and not self.mentioned:
            raise _Refusal("what is to be looked up is not in the tables")
        named_alone = isinstance(entity, Column) and not (self.mentioned or self.where or self.shown)
        if named_alone and sum(bool(held.column(entity.name)) for held in self.schema.tables.values()) > 1:
            raise _Refusal("which table is meant is not said")

    def _from(self) -> str:
        joins: dict[tuple[str, str, str], None] = {}
        for table in sorted(self.needed):
            joins |= dict.fromkeys(self.paths[table])
        clauses = [f"JOIN {target} ON {source}.{column} = {target}.{column}" for source, target, column in joins]
        return " ".join([f"FROM {self.base.name}", *clauses])

    def _where(self) -> str:
        return f" WHERE {' AND '.join(self.where)}" if self.where else ""

    def _finished(self, sql: str, label: str, shape: Literal["number", "groups", "rows"], unit: str) -> Query:
        title = label[:1].upper() + label[1:]
        if self.groups:
            title += f" by {join_words([name for _, name in self.groups])}"
        if self.filter_words:
            title += f" ({', '.join(self.filter_words)})"
        if self.time_words:
            title += f" {self.time_words}"
        return Query(
            sql=sql,
            title=title,
            joins=len(self.needed) - 1,
            shape=shape,
            unit=unit,
            used_tables=tuple(sorted(self.needed, key=lambda name: name != self.base.name)),
        )


def _is_plain_day(column: Column) -> bool:
    """Whether a date is simply that of its row; others, such as `signed`, have to be named."""
    return bool(_DAY_WORDS & set(column.name.split("_"))) or column.words[0] == stem(column.table)


def _with_unit(measure: _Measure) -> str:
    if measure.unit == "percent":
        return f"{measure.label} in percent"
    return f"{measure.label} in {measure.unit}" if measure.unit else measure.label


def _alias(label: str, unit: str = "") -> str:
    words = "_".join(stems_of(label))
    return f'"{words}_{unit.lower()}"' if unit else f'"{words}"'


def stems_of(label: str) -> list[str]:
    """The words of a label as they may stand in a name of a column."""
    return ["".join(letter for letter in word.lower() if letter.isalnum()) for word in label.split()]


def _plain(number: float | None) -> str:
    value = number or 0.0
    return str(int(value)) if value == int(value) else str(value)


def _range(column: Column) -> tuple[date, date]:
    days = sorted(column.values)
    return date.fromisoformat(days[0]), date.fromisoformat(days[-1])


def _time_condition(column: Column, period: Period, before: str) -> str:
    first = quote(period.first.isoformat())
    last = quote(period.last.isoformat())
    if before == "since":
        return f"{column.sql} >= {first}"
    if before == "after":
        return f"{column.sql} > {last}"
    if before == "before":
        return f"{column.sql} < {first}"
    if before in {"until", "till"}:
        return f"{column.sql} <= {last}"
    if before == "between":
        return "1 = 0"
    return f"{column.sql} BETWEEN {first} AND {last}"
