"""The tables that a query tool's description shows: columns, some of their values, and how tables are joined."""

import re
from functools import lru_cache

from msgspec import Struct

from chargehand.models.demo.words import stem, stem_set, stems

_TABLE = re.compile(r"^table (?P<name>\w+)\((?P<columns>.*)\)$", re.MULTILINE)
_LITERAL = r"(?:'(?:[^']|'')*'|[-\d.e+]+)"
_COLUMN = re.compile(
    rf"(?P<name>\w+) (?P<type>[A-Z]+)(?: (?P<how>one of|like) (?P<values>{_LITERAL}(?:,{_LITERAL})*))?(?:, |\Z)"
)
_VALUE = re.compile(r"'(?P<text>(?:[^']|'')*)'|(?P<number>[-\d.e+]+)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_YEAR = re.compile(r"(?:19|20)\d\d")
_UNITS = stem_set("eur usd gbp chf percent pct ml kg cm km id code days hours minutes points")
_CURRENCIES = {"eur": "EUR", "usd": "USD", "gbp": "GBP", "chf": "CHF"}
_SINGLE = stem_set(
    """price rating percent rate share fee score level age temperature year size capacity low high band target
    result cost limit height weight speed value"""
)
"""Words of columns whose values are not added up unless somebody says so."""


class Column(Struct, frozen=True):
    """A column. `complete` says that `values` are all there are, else they are the least, a middle and the greatest."""

    table: str
    name: str
    type: str
    values: tuple[str, ...] = ()
    complete: bool = False

    @property
    def sql(self) -> str:
        return f"{self.table}.{self.name}"

    @property
    def words(self) -> tuple[str, ...]:
        """The stems of its name."""
        return tuple(stems(self.name))

    @property
    def short_words(self) -> tuple[str, ...]:
        """The same without the unit at the end."""
        kept = tuple(word for word in self.words if word not in _UNITS)
        return kept or self.words

    @property
    def is_day(self) -> bool:
        return self.type == "TEXT" and bool(self.values) and all(_DAY.fullmatch(value) for value in self.values)

    @property
    def is_key(self) -> bool:
        """Whether it only identifies rows."""
        return self.name.endswith("_id") or self.name == "id"

    @property
    def is_number(self) -> bool:
        return self.type in {"INTEGER", "REAL"} and not self.is_key

    @property
    def is_text(self) -> bool:
        return self.type == "TEXT" and not self.is_day and not self.is_flag

    @property
    def is_flag(self) -> bool:
        return self.complete and set(self.values) <= {"yes", "no"} and bool(self.values)

    @property
    def is_year(self) -> bool:
        return bool(self.values) and all(_YEAR.fullmatch(value) for value in self.values)

    @property
    def adds_up(self) -> bool:
        """Whether the sum over rows is what people mean by its name."""
        return self.is_number and not self.is_year and _SINGLE.isdisjoint(self.words)

    @property
    def unit(self) -> str:
        last = self.name.rsplit("_", 1)[-1]
        return _CURRENCIES.get(last, "percent" if last == "percent" else "")


class Value(Struct, frozen=True):
    """A value of a column that a phrase stands for."""

    column: Column
    text: str


class TableSpec(Struct, frozen=True):
    """A table; its first column is its key if it is named after the table."""

    name: str
    columns: tuple[Column, ...]

    @property
    def key(self) -> Column | None:
        first = self.columns[0]
        return first if stem(first.name.removesuffix("_id")) == stem(self.name) else None

    @property
    def label(self) -> Column:
        """The column by which people know a row."""
        texts = [column for column in self.columns if column.is_text and not column.is_key]
        for column in texts:
            if column.name == "name":
                return column
        for column in texts:
            if stem(column.name) == stem(self.name):
                return column
        first = self.columns[0]
        return first if first.is_key or not texts else texts[0]

    @property
    def quantity(self) -> Column | None:
        """The column that says how many pieces a row is about."""
        column = self.column("quantity") or self.column("units")
        return column if column is not None and column.is_number else None

    @property
    def prices(self) -> list[Column]:
        return [column for column in self.columns if column.is_number and "price" in column.name.split("_")]

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


class Schema(Struct, frozen=True):
    """All tables of a database."""

    tables: dict[str, TableSpec]

    def paths(self, base: str) -> dict[str, tuple[tuple[str, str, str], ...]]:
        """Every table with one row for each row of `base`, and the joins (from, to, column) that lead there."""
        found: dict[str, tuple[tuple[str, str, str], ...]] = {base: ()}
        queue = [base]
        while queue:
            here = queue.pop(0)
            for other in self.tables.values():
                if other.name in found or other.key is None:
                    continue
                link = self.tables[here].column(other.key.name)
                if link is not None:
                    found[other.name] = (*found[here], (here, other.name, other.key.name))
                    queue.append(other.name)
        return found


@lru_cache(maxsize=200)
def read_schema(description: str) -> Schema | None:
    """The tables a description lists; None where it lists none."""
    tables: dict[str, TableSpec] = {}
    for match in _TABLE.finditer(description):
        columns = tuple(_column(match["name"], found) for found in _COLUMN.finditer(match["columns"]))
        if columns:
            tables[match["name"]] = TableSpec(match["name"], columns)
    return Schema(tables) if tables else None


def _column(table: str, match: re.Match[str]) -> Column:
    values = tuple(
        value["text"].replace("''", "'") if value["text"] is not None else value["number"]
        for value in _VALUE.finditer(match["values"] or "")
    )
    return Column(table=table, name=match["name"], type=match["type"], values=values, complete=match["how"] == "one of")
