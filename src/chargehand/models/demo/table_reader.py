"""The reader of questions to tables: each word of a clause is used by a part of the query, or there is no query.

The words are held against the schema: nouns (a table, a column, a value), operators, and all others. A clause is read
once for each table, which is the base of the query. Where two readings fit, neither is taken.
"""

from collections.abc import Iterable
from datetime import date
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from chargehand.models.demo.request import (
    LIGHT_VERBS,
    NEGATIONS,
    Clause,
    Period,
    RefusedError,
    Token,
    join_words,
    number_value,
    stem,
    stem_set,
    word_set,
)
from chargehand.models.demo.tables import (
    Column,
    Condition,
    Grouping,
    Meanings,
    MeasuredColumn,
    Phrase,
    Query,
    Schema,
    TableQuery,
    TableSpec,
    Value,
    column_measure,
    read_schema,
)
from chargehand.text.words import singular

_UNITS = {"euro": "EUR", "euros": "EUR", "eur": "EUR", "dollars": "USD", "usd": "USD", "percent": "percent"}
_SELL = stem("sell")
_OF_A_COUNT = word_set("most fewest least")
_DID = word_set("did do does")
_AUXILIARIES = _DID | word_set("has have had was were is are")
_LINKS = word_set("and or nor")
_RANGES = {("between", "and"), ("from", "to"), ("from", "until"), ("from", "through")}
_TESTS = {"since": ">= '{first}'", "after": "> '{last}'", "before": "< '{first}'"}
_UNCLEAR = word_set("by from to through")
_SKIPPED = word_set("the in of month")
_LONGEST_PHRASE = 6
_MOST_COLUMNS = 6
_TIME_UNITS = {"month": 7, "year": 4, "day": 10}
"""Periods, and how many characters of a date name them."""
_REVENUE = stem_set("revenue turnover sales")
_BEFORE_NOUN = word_set("the average total mean highest lowest our unit")
_DAY_WORDS = word_set("day date month week time on at")

OperatorKind: TypeAlias = Literal["entity", "count", "aggregate", "rank", "group", "not", "compare"]
_PHRASES: tuple[tuple[OperatorKind, str, str], ...] = (
    ("entity", "", "which, list, show, name, find, what, get, display"),
    ("count", "", "how many, how much, number of, number the, count of, count the"),
    ("aggregate", "SUM", "total, sum, overall, altogether, combined, in all, in total"),
    ("aggregate", "AVG", "average, mean, avg"),
    ("rank", "DESC", "highest, largest, biggest, greatest, maximum, max, most, top"),
    ("rank", "ASC", "lowest, smallest, minimum, min, fewest, least"),
    ("group", "", "per, each, every, by"),
    ("not", "", ", ".join((*NEGATIONS, "other than"))),
    ("compare", ">", "more than, greater than, higher than, larger than, over, above, exceeding"),
    ("compare", ">=", "at least"),
    ("compare", "<", "less than, fewer than, lower than, smaller than, under, below"),
    ("compare", "<=", "at most"),
    ("compare", "=", "exactly"),
)
"""Kinds of operators, what they stand for (an SQL function, a direction, a sign), and their words."""
_OPERATORS: dict[str, tuple[OperatorKind | None, str]] = {
    phrase: (kind, value) for kind, value, phrases in _PHRASES for phrase in phrases.split(", ")
}


class Item(Struct, frozen=True):
    """A word or a phrase of a clause, its place among them, and what it may name."""

    at: int
    text: str
    stems: Phrase
    start: int
    end: int
    names: Meanings
    operator: OperatorKind | None = None
    operator_value: str = ""
    """Of an aggregate its SQL function, of a rank its direction, of a comparison its sign."""
    number: float | None = None
    is_free: bool = False

    @property
    def low(self) -> str:
        return self.text.lower()

    @property
    def is_noun(self) -> bool:
        return bool(self.names.tables or self.names.columns or self.names.values)


def read_items(clause: Clause, schema: Schema) -> list[Item]:
    """The clause as a row of items, the longest phrases first, and an empty one behind the last."""
    items: list[Item] = []
    position = 0
    while position < len(clause.tokens):
        sizes = range(min(_LONGEST_PHRASE, len(clause.tokens) - position), 0, -1)
        phrases = [_read_item(clause, clause.tokens[position : position + size], len(items), schema) for size in sizes]
        item = next((item for item in phrases if item.is_noun or item.operator is not None), phrases[-1])
        items.append(item)
        position += len(item.stems)
    end = len(clause.text)
    return [*items, Item(at=len(items), text="", stems=("",), start=end, end=end, names=Meanings())]


def _read_item(clause: Clause, tokens: tuple[Token, ...], at: int, schema: Schema) -> Item:
    phrase = tuple(token.stem for token in tokens)
    text = clause.text[tokens[0].start : tokens[-1].end]
    words = " ".join(token.text.lower() for token in tokens)
    is_name = text.isupper() and tokens[0].start > 0 and text != "I"  # "US", the "A" of "hall A"
    is_free = len(tokens) == 1 and tokens[0].is_free and not is_name
    names = _read_names(schema.phrases.get(phrase, Meanings()), text, words, is_free=is_free)
    is_noun = bool(names.tables or names.columns or names.values)
    operator, operator_value = _OPERATORS.get("not" if phrase == ("not",) else words, (None, ""))
    return Item(
        at=at,
        text=text,
        stems=phrase,
        start=tokens[0].start,
        end=tokens[-1].end,
        names=names,
        operator=None if is_noun else operator,
        operator_value=operator_value,
        number=None if is_noun else number_value(text),
        is_free=is_free and not is_noun,
    )


def _read_names(names: Meanings, text: str, words: str, *, is_free: bool) -> Meanings:
    """What a phrase names: a value that is written the same way, else a table or column, else a value by its stem."""
    written = [value for value in names.values if value.text.lower() == words]
    if is_free or (written and names.tables and words != names.tables[0].name.lower()):
        return Meanings(values=[value for value in written if value.text == text or not is_free])
    return Meanings(names.tables, names.columns) if names.tables else names


def read_query(clause: Clause, description: str) -> Query:
    """The query for a clause over the tables that a tool's description lists; RefusedError where there is none."""
    schema = read_schema(description)
    if schema is None or clause.points_back:
        raise RefusedError("it speaks of an earlier result, which no table holds")
    items = read_items(clause, schema)
    queries: list[Query] = []
    refusals: list[RefusedError] = []
    for base in schema.tables.values():
        reader = _QueryReader(clause, items, schema, base)
        try:
            queries.append(reader.read().render(schema))
        except RefusedError as refusal:
            refusal.understood = len(reader.used)
            refusals.append(refusal)
    if not queries:
        raise max(refusals, key=lambda refusal: (refusal.is_known, refusal.understood))
    fewest = min(len(query.tables) for query in queries)
    simple = {query.sql: query for query in queries if len(query.tables) == fewest}
    if len(simple) > 1:
        tables = sorted({query.tables[0] for query in simple.values()})
        raise RefusedError(f"it can be read of {join_words(tables, 'or')}; say which is meant")
    return next(iter(simple.values()))


class _QueryReader:
    """One try to read a clause as a question about the rows of one table and what they refer to.

    Each reader looks at one item and says whether it takes it; then it adds a part to the query. Operators such as
    "average", "per", "highest" or "how many" wait for the noun that they belong to.
    """

    def __init__(self, clause: Clause, items: list[Item], schema: Schema, base: TableSpec) -> None:
        self.clause = clause
        self.items = items
        self.schema = schema
        self.base = base
        self.joins = schema.joins(base.name)
        self.query = TableQuery(base, is_named=any(base in item.names.tables for item in items))
        self.used: set[int] = set()
        """The places of the items that were taken."""
        self.waiting: dict[OperatorKind, Item] = {}
        self.asked: Item | None = None
        """What is asked for, such as the country of "which country"."""
        self.units: set[str] = set()
        """Of the columns that are used."""

    def read(self) -> TableQuery:
        """The query; RefusedError where a word cannot be read."""
        if self.clause.periods:
            self._read_times()
        readers = (
            self._read_operator,
            self._read_limit,
            self._read_threshold,
            self._read_group,
            self._read_measure,
            self._read_value,
        )
        items = self.items[:-1]
        for item in items:
            if item.at not in self.used and any(reader(item) for reader in readers):
                self.used.add(item.at)
        if "entity" in self.waiting and self.waiting["entity"].low != "which":
            del self.waiting["entity"]
        for item in self.waiting.values():
            raise RefusedError(f"what {item.text!r} belongs to is not clear", is_known=bool(self.query.conditions))
        self.query.complete()
        leftover = [item for item in items if not self._is_accounted_for(item)]
        if any(item.low in _LINKS for item in leftover) and self.query.conditions:
            raise RefusedError("it names several things; ask for one at a time", is_known=True)
        if leftover:
            raise RefusedError(f"nothing there says {join_words([repr(item.text) for item in leftover])}")
        return self.query

    def _after(self, item: Item) -> Item:
        return self.items[min(item.at + 1, len(self.items) - 1)]

    def _next(self, item: Item) -> Item:
        """The next item that is more than a little word."""
        item = self._after(item)
        while item.is_free and item.operator is None:
            item = self._after(item)
        return item

    def _is_accounted_for(self, item: Item) -> bool:
        """Items that were used, little words, a unit, a table that is read, a column beside its value."""
        if item.at in self.used or item.low in _LINKS:
            return item.at in self.used
        if not item.is_noun:
            return item.is_free or item.stems[0] in LIGHT_VERBS or _UNITS.get(item.low) in self.units
        beside = [self.items[item.at - 1], self._after(item)]
        columns = {value.column for other in beside if other.at in self.used for value in other.names.values}
        is_table = any(table.name in self.query.tables for table in item.names.tables)
        return is_table or not columns.isdisjoint(item.names.columns)

    # --- what an item names, as seen from the base table

    def _table(self, item: Item) -> TableSpec | None:
        return next((table for table in item.names.tables if table.name in self.joins), None)

    def _text_column(self, item: Item) -> Column | None:
        return self._nearest([column for column in item.names.columns if column.kind in {"text", "key"}], item)

    def _number_column(self, item: Item) -> Column | None:
        column = self._nearest([column for column in item.names.columns if column.kind == "number"], item)
        if column is not None and item.stems == ("cost",) and self.items[item.at - 1].low not in _BEFORE_NOUN:
            raise RefusedError(f"{item.text!r} may mean the price or the cost; say which is meant")
        return column

    def _value(self, item: Item) -> Value | None:
        values = {value.column: value for value in item.names.values}
        column = self._nearest(values, item)
        if column is None:
            return None
        if column.kind != "flag" and set(item.stems) & {stem(name) for name in self.schema.tables}:
            reading = f"what is done in {self.base.name}"  # "ordered" is a status, and what happens to all orders
            raise RefusedError(f"{item.text!r} may be {column.sql} or {reading}; say which is meant", is_known=True)
        return values[column]

    def _nearest(self, columns: Iterable[Column], item: Item) -> Column | None:
        """The one of the columns in the base table, else in those it refers to; two of them are two readings."""
        near = [column for column in columns if column.table in self.joins]
        near = [column for column in near if column.table == self.base.name] or near
        near = [column for column in near if column.kind != "key"] or near
        if len(near) > 1:
            names = join_words([column.sql for column in near], "or")
            raise RefusedError(f"{item.text!r} may be {names}; say which is meant")
        return near[0] if near else None

    def _day_column(self) -> Column:
        """The column with the dates that are meant: one that is named, else the only one if it is a plain date."""
        days = [column for name in self.joins for column in self.schema.tables[name].columns if column.kind == "day"]
        mentioned = {column for item in self.items for column in item.names.columns if column in days}
        near = [column for column in days if column.table == self.base.name] or days
        is_plain = len(near) == 1 and (
            not _DAY_WORDS.isdisjoint(near[0].name.split("_")) or near[0].words[0] == stem(near[0].table)
        )
        meant = list(mentioned) or (near if is_plain else [])
        if len(meant) != 1:
            raise RefusedError(f"which date of {self.base.name} is meant is not said")
        return meant[0]

    def _group(self, item: Item) -> Grouping | None:
        """What an item puts rows together by: days, months and years, the rows of a table, or the values of a column.

        Of a code it is the name behind it, in the table that it is the key of.
        """
        if item.low in _TIME_UNITS:
            day = self._day_column()
            sql = f"substr({day.sql}, 1, {_TIME_UNITS[item.low]})"
            return Grouping(sql, label=item.low, table=day.table, columns=(sql,), is_time=True)
        table = self._table(item)
        column = table.label if table is not None else self._text_column(item)
        if column is None:
            return None
        is_row = self.base.key is not None and column in (self.base.key, self.base.label)
        for other in self.schema.tables.values():
            is_key = other.name in self.joins and other.key is not None and other.key.name == column.name
            if is_key and (column.kind == "key" or other.label.name == "name"):
                column = other.label
        columns = (column,)
        if table is not None:
            is_row = table is self.base
            columns = table.columns[:_MOST_COLUMNS] if is_row else (table.columns[0], table.label)
        return Grouping(
            column.sql,
            label=singular(item.low) if table is not None else item.low,
            table=column.table,
            columns=tuple(listed.sql for listed in columns),
            is_row=is_row,
        )

    def _measure(self, item: Item, aggregate: str = "") -> MeasuredColumn | None:
        """What an item measures: a column with numbers, or revenue."""
        if not item.is_noun and item.stems[0] in _REVENUE:
            if aggregate == "AVG":
                raise RefusedError("an average revenue may be of orders, products or months; say revenue per one")
            return self._revenue()
        column = self._number_column(item)
        if column is None:
            return None
        if column.table != self.base.name and (aggregate or column.adds_up):
            raise RefusedError(f"{column.sql} would be counted several times")
        return column_measure(column, aggregate)

    def _revenue(self) -> MeasuredColumn | None:
        """Quantity times price, of a table that has or refers to both."""
        prices = [column for name in self.joins for column in self.schema.tables[name].prices]
        if self.base.quantity is None or len(prices) != 1:
            return None
        return MeasuredColumn(
            expression=f"{self.base.quantity.sql} * {prices[0].sql}",
            aggregate="SUM",
            label="revenue",
            unit=prices[0].unit,
            decimals=2,
            tables=(prices[0].table,),
        )

    # --- the parts of the query

    def _read_times(self) -> None:
        """One time, or a range between two."""
        column = self._day_column()
        periods = [_check_period(period, column) for period in self.clause.periods]
        first = periods[0]
        last = periods[-1]
        preceding = [item for item in self.items if item.end <= first.start and item.low not in _SKIPPED]
        before = preceding[-1].low if preceding else ""
        between = self.clause.text[first.end : last.start].strip(" ,").lower()
        is_range = len(periods) == 2 and (before, between) in _RANGES
        if not is_range and (len(periods) > 1 or before in _UNCLEAR):
            raise RefusedError("how the times belong together is not clear")
        if is_range or before in _TESTS:
            self.used.add(preceding[-1].at)
        self.used |= {item.at for item in self.items if first.end <= item.start < last.start}
        self.used |= {item.at for item in self.items if column in item.names.columns}
        test = _TESTS.get(before, "BETWEEN '{first}' AND '{last}'").format(first=first.first, last=last.last)
        self.query.conditions.append(Condition(f"{column.sql} {test}", "", column))
        preposition = before if before in _TESTS else "in"
        words = f"from {first.words} to {last.words}" if is_range else f"{preposition} {first.words}"
        is_own = column.table == self.base.name
        self.query.time_words = words if is_own else f"{column.name.replace('_', ' ')} {words}"

    def _read_operator(self, item: Item) -> bool:
        kind = item.operator
        if kind is None or kind == "compare" or (kind == "entity" and (item.at > 3 or kind in self.waiting)):
            return False
        if kind in {"aggregate", "count"}:
            self.waiting.pop("entity", None)
        if kind == "count" and self._aggregate() == "SUM":
            del self.waiting["aggregate"]  # the total number
        is_vain = kind == "not" and self._value(self._next(item)) is None
        if is_vain or kind in self.waiting or (kind == "rank" and self.query.rank):
            raise RefusedError(f"what {item.text!r} belongs to is not clear")
        self.waiting[kind] = item
        if item.low == "top":
            self.waiting["entity"] = item
        return True

    def _aggregate(self) -> str:
        """The aggregate that waits."""
        return self.waiting["aggregate"].operator_value if "aggregate" in self.waiting else ""

    def _read_limit(self, item: Item) -> bool:
        """Which three products, the top 5."""
        if item.number is None or self.query.limit or self.waiting.keys().isdisjoint({"entity", "rank"}):
            return False
        self.query.limit = max(1, int(item.number))
        return True

    def _read_threshold(self, item: Item) -> bool:
        """A price above 100: a condition on each row."""
        comparison = self._next(item)
        number = self._after(comparison)
        column = self._number_column(item)
        if comparison.operator != "compare" or number.number is None or column is None:
            return False
        is_of_rows = not self.query.is_listed or self.query.lists_rows
        if column.table != self.base.name or (column.adds_up and not is_of_rows) or "rank" in self.waiting:
            raise RefusedError("it can be read of single rows or of their sum; say total, or the rows")
        test = f"{comparison.operator_value} {number.number:.15g}"
        self.query.conditions.append(Condition(f"{column.sql} {test}", f"{item.text} {test}", column))
        self.units.add(column.unit)
        self.used |= {comparison.at, number.at}
        return True

    def _read_group(self, item: Item) -> bool:
        """What rows are put together by ("per country"), or what is asked for ("which country")."""
        kind: OperatorKind = "group" if "group" in self.waiting else "entity"
        if kind not in self.waiting:
            return False
        if kind == "group" and "rank" in self.waiting and self._measure(item) is not None:
            del self.waiting["group"]  # "by revenue" says what is ranked
            return False
        group = self._group(item)
        if group is None or self.query.group is not None:
            return False
        values = self._next(item).names.values
        if self.waiting[kind].low == "by" and any(value.column.table == group.table for value in values):
            raise RefusedError(f"whether 'by {item.text}' says who does it is not clear", is_known=True)
        self.query.group = group
        self.query.is_listed = kind == "entity"
        self.asked = item if kind == "entity" else self.asked
        del self.waiting[kind]
        return True

    def _read_measure(self, item: Item) -> bool:
        """A figure: rows or pieces that are counted, what is aggregated, ranked by, or asked for as it is."""
        rank = self.waiting.get("rank")
        counts = "count" in self.waiting and not self._aggregate()
        ranks_count = rank is not None and rank.low in _OF_A_COUNT
        measure: MeasuredColumn | None
        if counts and item.stems == (_SELL,) and self.base.quantity is not None:
            is_number = self.waiting["count"].low != "how much"
            sold = structs.replace(column_measure(self.base.quantity, "SUM"), label="number sold")
            measure = sold if is_number else None
        elif self._table(item) is self.base and (ranks_count or (counts and not self._follows_verb(item))):
            measure = MeasuredColumn("*", "COUNT", f"number of {item.low}")
        else:
            measure = self._measure(item, self._aggregate())
        if measure is None or (counts and not measure.aggregate):
            return False
        if self.query.measure is not None:
            raise RefusedError("it asks for several figures; ask for one at a time")
        if rank is not None:
            self.query.rank = rank.operator_value
            self.query.rank_word = rank.low
        served: list[OperatorKind] = ["rank" if rank is not None else "entity", "aggregate", "count"]
        for kind in served:
            self.waiting.pop(kind, None)
        self.query.measure = measure
        self.units.add(measure.unit)
        return True

    def _follows_verb(self, item: Item) -> bool:
        """Whether a verb stands between what is counted and an item: "how many lamps did Ada order"."""
        between = self.items[self.waiting["count"].at : item.at]
        return any(other.low in _AUXILIARIES for other in between)

    def _read_value(self, item: Item) -> bool:
        value = self._value(item)
        if value is None:
            return False
        self._check_value(item, value)
        is_excluded = self.waiting.pop("not", None) is not None
        text = value.text.replace("'", "''")
        words = f"not {item.text}" if is_excluded else item.text
        sql = f"{value.column.sql} {'<>' if is_excluded else '='} '{text}'"
        self.query.conditions.append(Condition(sql, words, value.column, is_excluded))
        if "group" in self.waiting and self.waiting["group"].low == "by":
            del self.waiting["group"]  # "placed by Ada Brandt"
        return True

    def _check_value(self, item: Item, value: Value) -> None:
        """RefusedError where how a value goes with another one, or with who is asked for, is not clear."""
        if any(condition.column == value.column for condition in self.query.conditions):
            raise RefusedError(f"{item.text!r} is a second value of {value.column.sql}; ask for one", is_known=True)
        before = self.items[item.at - 1]
        is_of_asked = before is self.asked and not self.query.lists_rows  # "which rival won"
        is_done_by = bool(before.names.values) and self.items[before.at - 1].low in _DID  # "did Plotline win"
        if item.at and (is_of_asked or is_done_by):
            reason = f"whether {before.text!r} does it or it is done to {before.text!r} is not clear"
            raise RefusedError(reason, is_known=True)


def _check_period(period: Period, column: Column) -> Period:
    """The period, of the only year on record where none is said; RefusedError where there are no rows of it."""
    first = date.fromisoformat(min(column.values))
    last = date.fromisoformat(max(column.values))
    dated = period.of_year(first.year) if first.year == last.year else period
    if not dated.year:
        raise RefusedError(f"which year {period.words} is of is not said")
    if dated.first > last or dated.last < first:
        raise RefusedError(f"nothing is on record for {period.words}: {column.table} are from {first} to {last}")
    return dated
