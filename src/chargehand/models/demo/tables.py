"""Tables that a query tool describes, and queries over them: measure x group x filter x time x rank, joined along keys.

A query is about the rows of one table, the base, and of those it refers to. Its parts make SQL and a title.
"""

import re
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field

from chargehand.models.demo.words import stem, stem_set, stems

Phrase: TypeAlias = tuple[str, ...]
"""The stems of its words."""

_MOST_COLUMNS = 6
"""Of a row that is listed."""
_TABLE = re.compile(r"^table (?P<name>\w+)\((?P<columns>.*)\)(?:, \d+ rows?)?$", re.MULTILINE)
_LITERAL = r"(?:'(?:[^']|'')*'|[-\d.e+]+)"
_COLUMN = re.compile(
    rf"(?P<name>\w+) (?P<type>[A-Z]+)(?: (?P<how>one of|like) (?P<values>{_LITERAL}(?:,{_LITERAL})*))?(?:, |\Z)"
)
_VALUE = re.compile(r"'(?P<text>(?:[^']|'')*)'|(?P<number>[-\d.e+]+)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_UNITS = stem_set(
    """eur usd gbp chf percent pct mm cm m km ml l litres g kg t watts kw kwh degrees id code days hours minutes seconds
    points"""
)
_NAMED_UNITS = {"eur": "EUR", "usd": "USD", "gbp": "GBP", "chf": "CHF", "percent": "percent"}
_FLOWS = stem_set("revenue turnover sales amount quantity units total")
"""Names of columns whose values are added up though that is not said."""


class Column(Struct, frozen=True):
    """A column: its values where all are known, else the least, a middle and the greatest."""

    table: str
    name: str
    kind: Literal["key", "day", "number", "flag", "text"]
    """Keys only identify rows; a flag is yes or no."""
    values: tuple[str, ...]
    unit: str
    is_flow: bool
    """Whether a sum over rows is what people mean by its name alone."""
    is_real: bool

    @property
    def sql(self) -> str:
        return f"{self.table}.{self.name}"

    @property
    def label(self) -> str:
        """Its name without the unit."""
        return (self.name.rpartition("_")[0] if self.unit else self.name).replace("_", " ")


class TableSpec(Struct, frozen=True):
    """A table."""

    name: str
    columns: tuple[Column, ...]
    key: Column | None
    """Its first column, if that is named after the table."""
    label: Column
    """The column by which people know a row."""

    @property
    def quantity(self) -> Column | None:
        """The column that says how many pieces a row is about."""
        numbers = [column for column in self.columns if column.kind == "number"]
        return next((column for column in numbers if column.name in {"quantity", "units"}), None)

    @property
    def days(self) -> list[Column]:
        return [column for column in self.columns if column.kind == "day"]

    @property
    def prices(self) -> list[Column]:
        return [column for column in self.columns if column.kind == "number" and "price" in column.name.split("_")]


class Noun(Struct, frozen=True):
    """What a phrase may name: a table, a column of it, or a value in a column; `yes` for the name of a flag."""

    table: TableSpec
    column: Column | None = None
    value: str = ""

    @property
    def kind(self) -> str:
        if self.value:
            return "value"
        return self.column.kind if self.column is not None else "table"


class Schema(Struct, frozen=True):
    """All tables of a database, and what phrases name in them."""

    tables: dict[str, TableSpec]
    nouns: dict[Phrase, list[Noun]]

    def joins(self, base: str) -> dict[str, str]:
        """The tables with one row for each row of `base`, and the column that leads there; none for itself."""
        columns = {column.name for column in self.tables[base].columns}
        keys = {table.name: table.key.name for table in self.tables.values() if table.key is not None}
        return {base: ""} | {name: key for name, key in keys.items() if key in columns and name != base}


@lru_cache(maxsize=200)
def read_schema(description: str) -> Schema | None:
    """The tables a description lists; None where it lists none."""
    tables: dict[str, TableSpec] = {}
    for match in _TABLE.finditer(description):
        columns = tuple(_read_column(match["name"], column) for column in _COLUMN.finditer(match["columns"]))
        if columns:
            tables[match["name"]] = _read_table(match["name"], columns)
    return Schema(tables, _read_nouns(tables)) if tables else None


def _read_table(name: str, columns: tuple[Column, ...]) -> TableSpec:
    texts = [column for column in columns if column.kind == "text"]
    labels = [column for column in texts if column.name in {"name", "title"}]
    labels += [column for column in texts if stem(column.name) == stem(name)]
    labels += [column for column in columns[:1] if column.kind == "key"]
    is_key = stem(columns[0].name.removesuffix("_id")) == stem(name)
    return TableSpec(name, columns, key=columns[0] if is_key else None, label=[*labels, *texts, *columns][0])


def _read_column(table: str, match: re.Match[str]) -> Column:
    name = match["name"]
    values = tuple(
        value["text"].replace("''", "'") if value["text"] is not None else value["number"]
        for value in _VALUE.finditer(match["values"] or "")
    )
    own_words = set(stems(name)) - _UNITS
    kind = "number" if match["type"] in {"INTEGER", "REAL"} else "text"
    if name.endswith("_id") or name == "id":
        kind = "key"
    elif kind == "text" and values and all(_DAY.fullmatch(value) for value in values):
        kind = "day"
    elif kind == "text" and match["how"] == "one of" and set(values) <= {"yes", "no"}:
        kind = "flag"
    return Column(
        table=table,
        name=name,
        kind=kind,
        values=values,
        unit=_NAMED_UNITS.get(name.rpartition("_")[2], ""),
        is_flow=kind == "number" and bool(own_words) and own_words <= _FLOWS,
        is_real=match["type"] == "REAL",
    )


def _read_nouns(tables: dict[str, TableSpec]) -> dict[Phrase, list[Noun]]:
    nouns: dict[Phrase, list[Noun]] = {}
    for table in tables.values():
        nouns.setdefault(tuple(stems(table.name)), []).append(Noun(table))
        for column in table.columns:
            words = tuple(stems(column.name))
            short = tuple(word for word in words if word not in _UNITS) or words
            for phrase in {words, short}:
                nouns.setdefault(phrase, []).append(Noun(table, column, "yes" if column.kind == "flag" else ""))
            for text in column.values if column.kind == "text" else ():
                if not text.endswith("..."):
                    nouns.setdefault(tuple(stems(text)), []).append(Noun(table, column, text))
    return nouns


# --- the parts of a query


class TableMeasure(Struct, frozen=True):
    """What is computed. Without an aggregate it is the value of each row."""

    sql: str
    aggregate: str
    """COUNT, SUM, AVG, MIN, MAX, or nothing."""
    label: str
    table: str
    """The table that it is read from."""
    unit: str = ""


def row_count(table: TableSpec, name: str) -> TableMeasure:
    return TableMeasure("COUNT(*)", "COUNT", f"number of {name}", table=table.name)


def column_measure(column: Column, aggregate: str) -> TableMeasure:
    """The values of a column, aggregated as said."""
    sql = f"{aggregate}({column.sql})" if aggregate else column.sql
    if aggregate == "AVG" or (aggregate == "SUM" and column.is_real):
        sql = f"ROUND({sql}, {3 if column.unit == 'percent' else 2})"
    word = {"AVG": "average ", "SUM": "total ", "MAX": "highest ", "MIN": "lowest "}.get(aggregate, "")
    label = word + column.label.removeprefix(word.strip()).strip()
    return TableMeasure(sql, aggregate, label.strip(), table=column.table, unit=column.unit)


class Grouping(Struct, frozen=True):
    """What rows are put together by, or what is asked for ("which country")."""

    sql: str
    label: str
    table: str
    is_row: bool = False
    """Whether each row of the base table is one of its own."""
    is_time: bool = False


class Condition(Struct, frozen=True):
    """What holds for every row that counts, in SQL and in words."""

    sql: str
    words: str
    column: Column


class Query(Struct):
    """A query: its parts, which are read one by one, and the SQL and the title that `render` makes of them."""

    base: TableSpec
    group: Grouping | None = None
    measure: TableMeasure | None = None
    conditions: list[Condition] = field(default_factory=list[Condition])
    wants_one: bool = False
    """Whether the value of a single row is asked for: "how many pages"."""
    rank: str = ""
    """DESC or ASC where the first places by the measure are asked for."""
    limit: int = 1
    time_words: str = ""
    sql: str = ""
    title: str = ""

    @property
    def is_number(self) -> bool:
        return self.group is None and self.measure is not None and bool(self.measure.aggregate)

    @property
    def tables(self) -> list[str]:
        """The tables that are needed, the base table first."""
        names = {condition.column.table for condition in self.conditions}
        names |= {part.table for part in (self.group, self.measure) if part is not None}
        return [self.base.name, *sorted(names - {self.base.name})]

    def render(self, joins: dict[str, str]) -> None:
        """Make the SQL and the title; `joins` are the columns that lead to other tables."""
        source = f"FROM {self.base.name}"
        for table in self.tables[1:]:
            source += f" JOIN {table} ON {self.base.name}.{joins[table]} = {table}.{joins[table]}"
        if self.conditions:
            source += f" WHERE {' AND '.join(condition.sql for condition in self.conditions)}"
        if self.measure is not None:
            self._render_measure(self.measure, source)
        elif self.group is not None:
            listed = [column.sql for column in self.base.columns[:_MOST_COLUMNS]]
            self.sql = (
                f"SELECT DISTINCT {', '.join(listed) if self.group.is_row else self.group.sql} {source} ORDER BY 1"
            )
            self.title = self.base.name if self.group.is_row else self.group.label
        words = ", ".join(condition.words for condition in self.conditions if condition.words)
        parts = [self.title[:1].upper() + self.title[1:], f"({words})" if words else "", self.time_words]
        self.title = " ".join(filter(None, parts))

    def _render_measure(self, measure: TableMeasure, source: str) -> None:
        """A figure, or one for each group; with a rank the first places, all that are equal among them."""
        self.title = f"{measure.label} in {measure.unit}" if measure.unit else measure.label
        value = _alias(f"{measure.label} {measure.unit}".strip())
        if self.group is None:
            texts = [
                column.sql for column in self.base.columns if column.kind in {"text", "day"} or column is self.base.key
            ]
            columns = [*([] if measure.aggregate else texts), f"{measure.sql} AS {value}"]
            self.sql = f"SELECT {', '.join(columns)} {source} ORDER BY 1"
            return
        name = _alias(self.group.label)
        self.title += f" by {self.group.label}"
        self.sql = f"SELECT DISTINCT {self.group.sql} AS {name}, {measure.sql} AS {value} {source}"
        self.sql += " GROUP BY 1" if measure.aggregate else ""
        if not self.rank:
            self.sql += f" ORDER BY {'1' if self.group.is_time else '2 DESC, 1'}"
            return
        self.title = f"{'highest' if self.rank == 'DESC' else 'lowest'} {self.title}"
        places = f"SELECT *, RANK() OVER (ORDER BY {value} {self.rank}) AS place FROM ({self.sql})"  # noqa: S608 - our own names
        self.sql = f"SELECT {name}, {value} FROM ({places}) WHERE place <= {self.limit} ORDER BY place, 1"  # noqa: S608


def _alias(label: str) -> str:
    return f'"{label.lower().replace(" ", "_")}"'
