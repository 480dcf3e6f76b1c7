"""The words of a clause held against a schema: which of them name a table, a column or a value, and which do not."""

from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from chargehand.models.demo.request import Clause
from chargehand.models.demo.table_schema import Column, Schema, TableSpec, read_schema
from chargehand.models.demo.words import Token, number_value, stem, stems, word_set

_LONGEST_PHRASE = 6
_REVENUE = frozenset(map(stem, word_set("revenue turnover sales")))
_SELL = frozenset(map(stem, word_set("sell sold")))


class Value(Struct, frozen=True):
    """Values of one column that a phrase stands for: one, or all that hold a word which was looked up."""

    column: Column
    values: tuple[str, ...]


class Revenue(Struct, frozen=True):
    """Quantity times price, where no column has the revenue itself."""

    table: str
    quantity: Column
    price: Column


Ref: TypeAlias = TableSpec | Column | Value | Revenue
Names: TypeAlias = dict[str, tuple[Value, ...]]
"""Phrases that were looked up in the data, in lower case, and what they are."""


class Item(Struct, frozen=True):
    """A word or a phrase of a clause, and everything in the schema that it may name."""

    text: str
    stems: tuple[str, ...]
    start: int
    end: int
    refs: tuple[Ref, ...] = ()
    number: float | None = None
    is_free: bool = False

    @property
    def low(self) -> str:
        return self.text.lower()

    def columns(self) -> list[Column]:
        return [ref for ref in self.refs if isinstance(ref, Column)]

    def values(self) -> list[Value]:
        return [ref for ref in self.refs if isinstance(ref, Value)]

    def table(self, name: str) -> bool:
        """Whether it names this table."""
        return any(isinstance(ref, TableSpec) and ref.name == name for ref in self.refs)

    def tables(self) -> list[TableSpec]:
        return [ref for ref in self.refs if isinstance(ref, TableSpec)]

    def revenue(self) -> Revenue | None:
        return next((ref for ref in self.refs if isinstance(ref, Revenue)), None)


class Lexicon(Struct, frozen=True):
    """Phrases by their stems; `partial` are single words out of longer names of columns."""

    phrases: dict[tuple[str, ...], tuple[Ref, ...]]
    partial: dict[str, tuple[Ref, ...]]


@lru_cache(maxsize=200)
def read_lexicon(description: str) -> Lexicon | None:
    """What can be named in the tables that a description lists."""
    schema = read_schema(description)
    if schema is None:
        return None
    phrases: dict[tuple[str, ...], list[Ref]] = {}
    partial: dict[str, list[Ref]] = {}
    for table in schema.tables.values():
        _add(phrases, tuple(stems(table.name)), table)
        for column in table.columns:
            _add_column(phrases, partial, column)
    for revenue in _revenues(schema):
        for word in _REVENUE:
            if (word,) not in phrases or any(isinstance(ref, Revenue) for ref in phrases[(word,)]):
                _add(phrases, (word,), revenue)
    return Lexicon(
        {words: tuple(refs) for words, refs in phrases.items() if words},
        {word: tuple(refs) for word, refs in partial.items() if len(refs) == 1},
    )


def _add_column(phrases: dict[tuple[str, ...], list[Ref]], partial: dict[str, list[Ref]], column: Column) -> None:
    _add(phrases, column.words, column)
    _add(phrases, column.short_words, column)
    if len(column.short_words) > 1 and not column.is_flag:
        _add(partial, column.short_words[-1], column)
        _add(partial, column.short_words[0], column)
    if column.type == "TEXT" and not column.is_day and not column.is_flag:
        for value in column.values:
            if not value.endswith("..."):
                _add(phrases, tuple(stems(value)), Value(column, (value,)))


def _add(held: dict[tuple[str, ...], list[Ref]] | dict[str, list[Ref]], words: tuple[str, ...] | str, ref: Ref) -> None:
    refs = held.setdefault(words, [])  # pyright: ignore[reportArgumentType]
    if ref not in refs:
        refs.append(ref)


def _revenues(schema: Schema) -> list[Revenue]:
    found: list[Revenue] = []
    for table in schema.tables.values():
        quantity = table.column("quantity") or table.column("units")
        if quantity is None or not quantity.is_number:
            continue
        prices = [
            column
            for name in schema.paths(table.name)
            for column in schema.tables[name].columns
            if column.is_number and "price" in column.name.split("_")
        ]
        if len(prices) == 1:
            found.append(Revenue(table.name, quantity, prices[0]))
    return found


def read_items(clause: Clause, lexicon: Lexicon, names: Names) -> list[Item]:
    """The clause as a row of items; the longest phrase wins."""
    tokens = clause.tokens
    items: list[Item] = []
    at = 0
    while at < len(tokens):
        size, refs = _longest(tokens, at, lexicon, names)
        if refs:
            group = tokens[at : at + size]
            text = clause.text[group[0].start : group[-1].end]
            words = tuple(token.stem for token in group)
            items.append(
                Item(text=text, stems=words, start=group[0].start, end=group[-1].end, refs=_as_written(text, refs))
            )
        else:
            size = 1
            items.append(_plain_item(tokens[at], lexicon))
        at += size
    return items


def _longest(tokens: tuple[Token, ...], at: int, lexicon: Lexicon, names: Names) -> tuple[int, tuple[Ref, ...]]:
    for size in range(min(_LONGEST_PHRASE, len(tokens) - at), 0, -1):
        group = tokens[at : at + size]
        words = tuple(token.stem for token in group)
        refs = lexicon.phrases.get(words, ())
        looked_up = names.get(" ".join(token.text.lower() for token in group), ())
        if looked_up:
            return size, looked_up
        if refs and not (size == 1 and group[0].is_free and not _is_name(group[0], refs)):
            return size, refs
    return 1, ()


def _as_written(text: str, refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """A word that is a table and a value by its stem is what is written the same way, else the table."""
    tables = [ref for ref in refs if isinstance(ref, TableSpec)]
    values = [ref for ref in refs if isinstance(ref, Value)]
    if not tables or not values:
        return refs
    exact = [ref for ref in values if text.lower() in (value.lower() for value in ref.values)]
    if exact and not any(text.lower() == table.name.lower() for table in tables):
        return tuple(exact)
    return tuple(ref for ref in refs if not isinstance(ref, Value))


def _is_name(token: Token, refs: tuple[Ref, ...]) -> bool:
    """A word such as "us" or "it" names a value only where it is written like it."""
    return any(isinstance(ref, Value) and token.text in ref.values for ref in refs)


def _plain_item(token: Token, lexicon: Lexicon) -> Item:
    refs = () if token.is_free else lexicon.partial.get(token.stem, ())
    return Item(
        text=token.text,
        stems=(token.stem,),
        start=token.start,
        end=token.end,
        refs=refs,
        number=number_value(token.text),
        is_free=token.is_free,
    )


def is_sale(item: Item) -> bool:
    """Whether a word says that something is sold."""
    return item.stems[0] in _SELL
