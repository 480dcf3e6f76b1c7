"""The words of a clause held against a schema: nouns (a table, a column, a value), operators, and all others."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field

from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.table_query import (
    Column,
    Group,
    Measure,
    Schema,
    TableSpec,
    Value,
    column_measure,
    read_schema,
)
from chargehand.models.demo.words import NEGATIONS, Token, join_words, number_value, stem, stem_set, stems, word_set

_LONGEST_PHRASE = 6
_MOST_COLUMNS = 6
_TIME_UNITS = {"month": 7, "year": 4, "day": 10}
"""Periods, and how many characters of a date name them."""
_REVENUE = stem_set("revenue turnover sales")
_BEFORE_NOUN = word_set("the average total mean highest lowest our unit")
_DAY_WORDS = word_set("day date month week time on at")

Phrase: TypeAlias = tuple[str, ...]
"""The stems of its words."""
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
    """A word or a phrase of a clause, its place among them, and everything in the schema that it may name."""

    at: int
    text: str
    stems: Phrase
    start: int
    end: int
    tables: list[TableSpec] = []
    columns: list[Column] = []
    values: list[Value] = []
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
        return bool(self.tables or self.columns or self.values)


class Lexicon(Struct, frozen=True):
    """What can be named in a schema."""

    schema: Schema
    tables: dict[Phrase, list[TableSpec]] = field(default_factory=dict[Phrase, list[TableSpec]])
    columns: dict[Phrase, list[Column]] = field(default_factory=dict[Phrase, list[Column]])
    values: dict[Phrase, list[Value]] = field(default_factory=dict[Phrase, list[Value]])
    """Values of columns with texts, and `yes` for the name of a column with yes and no."""


@lru_cache(maxsize=200)
def read_lexicon(description: str) -> Lexicon | None:
    """What can be named in the tables that a description lists."""
    schema = read_schema(description)
    if schema is None:
        return None
    lexicon = Lexicon(schema)
    for table in schema.tables.values():
        lexicon.tables.setdefault(tuple(stems(table.name)), []).append(table)
        for column in table.columns:
            for phrase in {column.words, column.short_words}:
                if column.is_flag:
                    lexicon.values.setdefault(phrase, []).append(Value(column, "yes"))
                else:
                    lexicon.columns.setdefault(phrase, []).append(column)
            for text in column.values if column.is_text else ():
                if not text.endswith("..."):
                    lexicon.values.setdefault(tuple(stems(text)), []).append(Value(column, text))
    return lexicon


def read_items(clause: Clause, lexicon: Lexicon) -> list[Item]:
    """The clause as a row of items, the longest phrases first, and an empty one behind the last."""
    items: list[Item] = []
    position = 0
    while position < len(clause.tokens):
        sizes = range(min(_LONGEST_PHRASE, len(clause.tokens) - position), 0, -1)
        phrases = [_read_item(clause, clause.tokens[position : position + size], len(items), lexicon) for size in sizes]
        item = next((item for item in phrases if item.is_noun or item.operator is not None), phrases[-1])
        items.append(item)
        position += len(item.stems)
    end = len(clause.text)
    return [*items, Item(at=len(items), text="", stems=("",), start=end, end=end)]


def _read_item(clause: Clause, tokens: tuple[Token, ...], at: int, lexicon: Lexicon) -> Item:
    """What a phrase names: a value that is written the same way, else a table or column, else a value by its stem."""
    phrase = tuple(token.stem for token in tokens)
    text = clause.text[tokens[0].start : tokens[-1].end]
    words = " ".join(token.text.lower() for token in tokens)
    is_free = len(tokens) == 1 and _is_free(tokens[0])
    tables = lexicon.tables.get(phrase, [])
    columns = lexicon.columns.get(phrase, [])
    values = lexicon.values.get(phrase, [])
    written = [value for value in values if value.text.lower() == words]
    if is_free or (written and tables and words != tables[0].name.lower()):
        tables = []
        columns = []
        values = [value for value in written if value.text == text or not is_free]
    elif tables:
        values = []
    is_noun = bool(tables or columns or values)
    operator, operator_value = _OPERATORS.get("not" if phrase == ("not",) else words, (None, ""))
    return Item(
        at=at,
        text=text,
        stems=phrase,
        start=tokens[0].start,
        end=tokens[-1].end,
        tables=tables,
        columns=columns,
        values=values,
        operator=None if is_noun else operator,
        operator_value=operator_value,
        number=None if is_noun else number_value(text),
        is_free=is_free and not is_noun,
    )


def _is_free(token: Token) -> bool:
    """Whether a word says nothing of its own; "US" and the "A" of "hall A" are names."""
    is_name = token.text.isupper() and token.start > 0 and token.text != "I"
    return token.is_free and not is_name


class Scope:
    """What the items of a clause name, as seen from the rows of one table and of those it refers to."""

    def __init__(self, items: list[Item], schema: Schema, base: TableSpec) -> None:
        self.items = items
        self.schema = schema
        self.base = base
        self.joins = schema.joins(base.name)

    def table(self, item: Item) -> TableSpec | None:
        """The table an item names, if it can be reached."""
        return next((table for table in item.tables if table.name in self.joins), None)

    def text_column(self, item: Item) -> Column | None:
        """The column with texts or keys that an item names."""
        return self._nearest([column for column in item.columns if column.is_text or column.is_key], item)

    def number_column(self, item: Item) -> Column | None:
        """The column with numbers that an item names."""
        column = self._nearest([column for column in item.columns if column.is_number], item)
        if column is not None and item.stems == ("cost",) and self.items[item.at - 1].low not in _BEFORE_NOUN:
            raise RefusedError(f"{item.text!r} may mean the price or the cost; say which is meant")
        return column

    def value(self, item: Item) -> Value | None:
        """The value an item names."""
        values = {value.column: value for value in item.values}
        column = self._nearest(values, item)
        if column is None:
            return None
        if not column.is_flag and set(item.stems) & {stem(name) for name in self.schema.tables}:
            reading = f"what is done in {self.base.name}"  # "ordered" is a status, and what happens to all orders
            raise RefusedError(f"{item.text!r} may be {column.sql} or {reading}; say which is meant", is_known=True)
        return values[column]

    def _nearest(self, columns: Iterable[Column], item: Item) -> Column | None:
        """The one of the columns in the base table, else in those it refers to; two of them are two readings."""
        near = [column for column in columns if column.table in self.joins]
        near = [column for column in near if column.table == self.base.name] or near
        near = [column for column in near if not column.is_key] or near
        if len(near) > 1:
            names = join_words([column.sql for column in near], "or")
            raise RefusedError(f"{item.text!r} may be {names}; say which is meant")
        return near[0] if near else None

    def measure(self, item: Item, aggregate: str = "") -> Measure | None:
        """What an item measures: a column with numbers, or revenue."""
        if not item.is_noun and item.stems[0] in _REVENUE:
            if aggregate == "AVG":
                raise RefusedError("an average revenue may be of orders, products or months; say revenue per one")
            return self._revenue()
        column = self.number_column(item)
        if column is None:
            return None
        if column.table != self.base.name and (aggregate or column.adds_up):
            raise RefusedError(f"{column.sql} would be counted several times")
        return column_measure(column, aggregate)

    def _revenue(self) -> Measure | None:
        """Quantity times price, of a table that has or refers to both."""
        prices = [column for name in self.joins for column in self.schema.tables[name].prices]
        if self.base.quantity is None or len(prices) != 1:
            return None
        return Measure(
            expression=f"{self.base.quantity.sql} * {prices[0].sql}",
            aggregate="SUM",
            label="revenue",
            unit=prices[0].unit,
            decimals=2,
            tables=(prices[0].table,),
        )

    def day_column(self) -> Column:
        """The column with the dates that are meant: one that is named, else the only one if it is a plain date."""
        reachable = [column for name in self.joins for column in self.schema.tables[name].columns if column.is_day]
        named = {column for item in self.items for column in item.columns if column in reachable}
        own = {column for column in reachable if column.table == self.base.name}
        plain = {
            column
            for column in own or reachable
            if _DAY_WORDS & set(column.name.split("_")) or column.words[0] == stem(column.table)
        }
        days = named or (plain if len(own or reachable) == 1 else set[Column]())
        if len(days) != 1:
            raise RefusedError(f"which date of {self.base.name} is meant is not said")
        return days.pop()

    def group(self, item: Item) -> Group | None:
        """What an item puts rows together by: days, months and years, the rows of a table, or the values of a column.

        Of a code it is the name behind it, in the table that it is the key of.
        """
        if item.low in _TIME_UNITS:
            day = self.day_column()
            sql = f"substr({day.sql}, 1, {_TIME_UNITS[item.low]})"
            return Group(sql, label=item.low, table=day.table, columns=(sql,), is_time=True)
        table = self.table(item)
        column = table.label if table is not None else self.text_column(item)
        if column is None:
            return None
        is_row = self.base.key is not None and column in (self.base.key, self.base.label)
        for other in self.schema.tables.values():
            is_key = other.name in self.joins and other.key is not None and other.key.name == column.name
            if is_key and (column.is_key or other.label.name == "name"):
                column = other.label
        columns = (column,)
        if table is not None:
            is_row = table is self.base
            columns = table.columns[:_MOST_COLUMNS] if is_row else (table.columns[0], table.label)
        return Group(
            column.sql,
            label=item.low if table is not None else column.name.replace("_", " "),
            table=column.table,
            columns=tuple(listed.sql for listed in columns),
            is_row=is_row,
        )
