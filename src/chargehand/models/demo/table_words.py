"""The words of a clause held against a schema: nouns (a table, a column, a value), operators, and all others."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

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
_REVENUE = stem_set("revenue turnover sales")
_BEFORE_NOUN = word_set("the average total mean highest lowest our unit")
_DAY_WORDS = word_set("day date month week time on at")


OperatorKind: TypeAlias = Literal["entity", "count", "aggregate", "rank", "group", "not", "compare"]
_PHRASES: tuple[tuple[OperatorKind, str, str], ...] = (
    ("entity", "", "which, list, show, name, find, what, get, display"),
    ("count", "", "how many, how much, number of, number the, count of, count the"),
    ("aggregate", "SUM", "total, sum, overall, altogether, combined"),
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


Ref: TypeAlias = TableSpec | Column | Value | Measure


class Item(Struct, frozen=True):
    """A word or a phrase of a clause, its place among them, and everything in the schema that it may name."""

    at: int
    text: str
    stems: tuple[str, ...]
    start: int
    end: int
    refs: tuple[Ref, ...] = ()
    operator: OperatorKind | None = None
    operator_value: str = ""
    """Of an aggregate its SQL function, of a rank its direction, of a comparison its sign."""
    number: float | None = None
    is_free: bool = False

    @property
    def low(self) -> str:
        return self.text.lower()

    @property
    def columns(self) -> list[Column]:
        return [ref for ref in self.refs if isinstance(ref, Column)]

    @property
    def values(self) -> list[Value]:
        return [ref for ref in self.refs if isinstance(ref, Value)]

    @property
    def tables(self) -> list[TableSpec]:
        return [ref for ref in self.refs if isinstance(ref, TableSpec)]


class Lexicon(Struct, frozen=True):
    """What can be named in a schema, by the stems of its words."""

    schema: Schema
    phrases: dict[tuple[str, ...], list[Ref]]

    def add(self, words: Iterable[str], ref: Ref) -> None:
        refs = self.phrases.setdefault(tuple(words), [])
        if ref not in refs:
            refs.append(ref)


@lru_cache(maxsize=200)
def read_lexicon(description: str) -> Lexicon | None:
    """What can be named in the tables that a description lists."""
    schema = read_schema(description)
    if schema is None:
        return None
    lexicon = Lexicon(schema, phrases={})
    for table in schema.tables.values():
        lexicon.add(stems(table.name), table)
        for column in table.columns:
            lexicon.add(column.words, column)
            lexicon.add(column.short_words, column)
            for value in column.values if column.is_text else ():
                if not value.endswith("..."):
                    lexicon.add(stems(value), Value(column, value))
    taken = set(lexicon.phrases)
    for revenue in _revenues(schema):
        for word in _REVENUE:
            if (word,) not in taken:
                lexicon.add((word,), revenue)
    return lexicon


def _revenues(schema: Schema) -> list[Measure]:
    """Quantity times price, of each table that has or refers to both; the table comes first in `tables`."""
    revenues: list[Measure] = []
    for table in schema.tables.values():
        prices = [column for name in schema.paths(table.name) for column in schema.tables[name].prices]
        if table.quantity is not None and len(prices) == 1:
            revenue = Measure(
                expression=f"{table.quantity.sql} * {prices[0].sql}",
                aggregate="SUM",
                label="revenue",
                unit=prices[0].unit,
                decimals=2,
                tables=(table.name, prices[0].table),
            )
            revenues.append(revenue)
    return revenues


def read_items(clause: Clause, lexicon: Lexicon) -> list[Item]:
    """The clause as a row of items, the longest phrases first, and an empty one behind the last."""
    items: list[Item] = []
    position = 0
    while position < len(clause.tokens):
        item = _read_item(clause, position, len(items), lexicon)
        items.append(item)
        position += len(item.stems)
    end = len(clause.text)
    return [*items, Item(at=len(items), text="", stems=("",), start=end, end=end)]


def _read_item(clause: Clause, position: int, at: int, lexicon: Lexicon) -> Item:
    tokens = clause.tokens[position:]
    refs: tuple[Ref, ...] = ()
    operator: OperatorKind | None = None
    value = ""
    for size in range(_LONGEST_PHRASE, 0, -1):
        tokens = clause.tokens[position : position + size]
        phrase = " ".join(token.text.lower() for token in tokens)
        refs = _named(tokens, phrase, lexicon)
        operator, value = _OPERATORS.get("not" if size == 1 and tokens[0].stem == "not" else phrase, (None, ""))
        if refs or operator is not None:
            break
    text = clause.text[tokens[0].start : tokens[-1].end]
    return Item(
        at=at,
        text=text,
        stems=tuple(token.stem for token in tokens),
        start=tokens[0].start,
        end=tokens[-1].end,
        refs=refs,
        operator=None if refs else operator,
        operator_value=value,
        number=None if refs else number_value(text),
        is_free=not refs and len(tokens) == 1 and _is_free(tokens[0]),
    )


def _named(tokens: tuple[Token, ...], phrase: str, lexicon: Lexicon) -> tuple[Ref, ...]:
    """What a phrase names: a value that is written the same way, else a table or column, else a value by its stem."""
    refs = lexicon.phrases.get(tuple(token.stem for token in tokens), [])
    tables = [ref for ref in refs if isinstance(ref, TableSpec)]
    values = [ref for ref in refs if isinstance(ref, Value)]
    written = [ref for ref in values if ref.text.lower() == phrase]
    if len(tokens) == 1 and _is_free(tokens[0]):
        return tuple(ref for ref in values if ref.text == tokens[0].text)
    if tables and values:
        is_value = bool(written) and phrase != tables[0].name.lower()
        refs = written if is_value else [ref for ref in refs if not isinstance(ref, Value)]
    return tuple(refs)


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
        self.paths = schema.paths(base.name)
        self.is_named = any(base in item.tables for item in items)
        """Whether a word names the base table."""

    def table(self, item: Item) -> TableSpec | None:
        """The table an item names, if it can be reached."""
        return next((table for table in item.tables if table.name in self.paths), None)

    def flag(self, item: Item) -> Column | None:
        """The column with yes and no that an item names."""
        flags = [column for column in item.columns if column.is_flag and column.table in self.paths]
        return flags[0] if len(flags) == 1 else None

    def text_column(self, item: Item) -> Column | None:
        """The column with texts or keys that an item names."""
        return self._nearest([column for column in item.columns if column.is_text or column.is_key], item)

    def number_column(self, item: Item) -> Column | None:
        """The column with numbers that an item names."""
        column = self._nearest([column for column in item.columns if column.is_number], item)
        is_verb = item.stems == ("cost",) and self.items[item.at - 1].low not in _BEFORE_NOUN
        if column is not None and is_verb and self.schema.tables[column.table].prices:
            raise RefusedError(f"{item.text!r} may mean the price or the cost; say which is meant")
        return column

    def value(self, item: Item) -> Value | None:
        """The value an item names."""
        values = {value.column: value for value in item.values}
        column = self._nearest(values, item)
        if column is None:
            return None
        if set(item.stems) & {stem(name) for name in self.schema.tables}:
            what_is_done = f"what is done in {self.base.name}"  # "ordered" is a status, and what happens to all orders
            raise RefusedError(
                f"{item.text!r} may be {column.sql} or {what_is_done}; say which is meant", is_known=True
            )
        return values[column]

    def _nearest(self, columns: Iterable[Column], item: Item) -> Column | None:
        """The one of the columns that the fewest joins lead to; two of them are two readings."""
        distances = {column: len(self.paths[column.table]) for column in columns if column.table in self.paths}
        fewest = min(distances.values(), default=0)
        near = [column for column, distance in distances.items() if distance == fewest]
        near = [column for column in near if not column.is_key] or near
        if len(near) > 1:
            raise RefusedError(
                f"{item.text!r} may be {join_words([column.sql for column in near], 'or')}; say which is meant"
            )
        return near[0] if near else None

    def measure(self, item: Item, aggregate: str = "") -> Measure | None:
        """What an item measures: a column with numbers, or revenue."""
        for revenue in item.refs:
            if isinstance(revenue, Measure) and revenue.tables[0] == self.base.name:
                if aggregate == "AVG":
                    raise RefusedError("an average revenue may be of orders, products or months; say revenue per one")
                return revenue
        column = self.number_column(item)
        if column is None:
            return None
        if column.table != self.base.name and (aggregate or column.adds_up):
            raise RefusedError(f"{column.sql} would be counted several times")
        return column_measure(column, aggregate)

    def day_column(self) -> Column:
        """The column with the dates that are meant: one that is named, else the only one."""
        reachable = [column for name in self.paths for column in self.schema.tables[name].columns if column.is_day]
        named = [column for item in self.items for column in item.columns if column in reachable]
        days = named or [column for column in reachable if column.table == self.base.name] or reachable
        if not days:
            raise RefusedError(f"{self.base.name} have no dates")
        day = days[0]
        is_plain = bool(_DAY_WORDS & set(day.name.split("_"))) or day.words[0] == stem(day.table)
        if len(set(days)) > 1 or not (named or is_plain):
            names = join_words([column.name for column in days], "or")
            raise RefusedError(f"which date of {self.base.name} is meant is not said: {names}")
        return day

    def column_group(self, column: Column) -> Group:
        """Rows by a column; of a code by the name behind it, in the table that it is the key of."""
        for table in self.schema.tables.values():
            is_key = table.name in self.paths and table.key is not None and table.key.name == column.name
            if is_key and (column.is_key or table.label.name == "name"):
                column = table.label
        key = self.schema.tables[column.table].key
        name = key.name.removesuffix("_id") if column.name == "name" and key is not None else column.name
        return Group(column.sql, name.replace("_", " "), (column.table,))
