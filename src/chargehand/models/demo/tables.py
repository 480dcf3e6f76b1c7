"""Tables that a query tool describes, and queries over them: measure x group x filter x time x rank, joined along keys.

A query is about the rows of one table, the base, and of those it refers to. Its parts make SQL and a title.
"""

import re
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field, structs

from chargehand.models.demo.request import RefusedError, stem, stem_set, stems, word_set

Phrase: TypeAlias = tuple[str, ...]
"""The stems of its words."""

_MOST_ROWS = 200
_OF_A_SUM = word_set("most top fewest least")
_TABLE = re.compile(r"^table (?P<name>\w+)\((?P<columns>.*)\)$", re.MULTILINE)
_LITERAL = r"(?:'(?:[^']|'')*'|[-\d.e+]+)"
_COLUMN = re.compile(
    rf"(?P<name>\w+) (?P<type>[A-Z]+)(?: (?P<how>one of|like) (?P<values>{_LITERAL}(?:,{_LITERAL})*))?(?:, |\Z)"
)
_VALUE = re.compile(r"'(?P<text>(?:[^']|'')*)'|(?P<number>[-\d.e+]+)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_YEAR = re.compile(r"(?:19|20)\d\d")
_UNITS = stem_set(
    """eur usd gbp chf percent pct mm cm m km ml l litres g kg t watts kw kwh degrees id code days hours minutes seconds
    points"""
)
_NAMED_UNITS = {"eur": "EUR", "usd": "USD", "gbp": "GBP", "chf": "CHF", "percent": "percent"}
_SINGLE = stem_set(
    """price rating percent rate share fee score level age temperature year size capacity low high band target
    result cost limit height weight speed value"""
)
"""Words of columns whose values are not added up unless that is said."""


class Column(Struct, frozen=True):
    """A column: its values where all are known, else the least, a middle and the greatest."""

    table: str
    name: str
    kind: Literal["key", "day", "number", "flag", "text"]
    """Keys only identify rows; a flag is yes or no."""
    values: tuple[str, ...]
    words: Phrase
    """The stems of its name."""
    unit: str
    adds_up: bool
    """Whether the sum over rows is what people mean by its name."""
    is_real: bool

    @property
    def sql(self) -> str:
        return f"{self.table}.{self.name}"

    @property
    def label(self) -> str:
        """Its name without the unit."""
        return (self.name.rpartition("_")[0] if self.unit else self.name).replace("_", " ")


class Value(Struct, frozen=True):
    """A value of a column."""

    column: Column
    text: str


class TableSpec(Struct, frozen=True):
    """A table."""

    name: str
    columns: tuple[Column, ...]
    key: Column | None
    """Its first column, if that is named after the table."""
    label: Column
    """The column by which people know a row."""
    quantity: Column | None
    """The column that says how many pieces a row is about."""
    prices: list[Column]


class Meanings(Struct):
    """Everything in the tables that a phrase may name; `yes` is the value that the name of a flag stands for."""

    tables: list[TableSpec] = field(default_factory=list[TableSpec])
    columns: list[Column] = field(default_factory=list[Column])
    values: list[Value] = field(default_factory=list[Value])


class Schema(Struct, frozen=True):
    """All tables of a database, and what phrases name in them."""

    tables: dict[str, TableSpec]
    phrases: dict[Phrase, Meanings]

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
    return Schema(tables, _read_phrases(tables)) if tables else None


def _read_table(name: str, columns: tuple[Column, ...]) -> TableSpec:
    texts = [column for column in columns if column.kind == "text"]
    numbers = [column for column in columns if column.kind == "number"]
    labels = [column for column in texts if column.name in {"name", "title"}]
    labels += [column for column in texts if stem(column.name) == stem(name)]
    labels += [column for column in columns[:1] if column.kind == "key"]
    return TableSpec(
        name=name,
        columns=columns,
        key=columns[0] if stem(columns[0].name.removesuffix("_id")) == stem(name) else None,
        label=[*labels, *texts, *columns][0],
        quantity=next((column for column in numbers if column.name in {"quantity", "units"}), None),
        prices=[column for column in numbers if "price" in column.name.split("_")],
    )


def _read_column(table: str, match: re.Match[str]) -> Column:
    name = match["name"]
    words = tuple(stems(name))
    values = tuple(
        value["text"].replace("''", "'") if value["text"] is not None else value["number"]
        for value in _VALUE.finditer(match["values"] or "")
    )
    kind = "number" if match["type"] in {"INTEGER", "REAL"} else "text"
    is_year = bool(values) and all(_YEAR.fullmatch(value) for value in values)
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
        words=words,
        unit=_NAMED_UNITS.get(name.rpartition("_")[2], ""),
        adds_up=kind == "number" and not is_year and _SINGLE.isdisjoint(words),
        is_real=match["type"] == "REAL",
    )


def _read_phrases(tables: dict[str, TableSpec]) -> dict[Phrase, Meanings]:
    phrases: dict[Phrase, Meanings] = {}
    for table in tables.values():
        phrases.setdefault(tuple(stems(table.name)), Meanings()).tables.append(table)
        for column in table.columns:
            short = tuple(word for word in column.words if word not in _UNITS) or column.words
            for phrase in {column.words, short}:
                meanings = phrases.setdefault(phrase, Meanings())
                if column.kind == "flag":
                    meanings.values.append(Value(column, "yes"))
                else:
                    meanings.columns.append(column)
            for text in column.values if column.kind == "text" else ():
                if not text.endswith("..."):
                    phrases.setdefault(tuple(stems(text)), Meanings()).values.append(Value(column, text))
    return phrases


# --- the parts of a query


class MeasuredColumn(Struct, frozen=True):
    """What is computed. Without an aggregate it is the value of each row."""

    expression: str
    aggregate: str
    """COUNT, SUM, AVG, MIN, MAX, or nothing."""
    label: str
    unit: str = ""
    column: Column | None = None
    """The column, where it is the value of one."""
    is_implied: bool = False
    """Whether the aggregate is a guess from the kind of column: neither total nor average was said."""
    decimals: int = 0
    """To how many it is rounded, where it is."""
    tables: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        call = f"{self.aggregate}({self.expression})"
        return f"ROUND({call}, {self.decimals})" if self.decimals else call


class Grouping(Struct, frozen=True):
    """What rows are put together by, or what is asked for ("which country")."""

    sql: str
    label: str
    table: str
    columns: tuple[str, ...] = ()
    """What is listed of it."""
    is_row: bool = False
    """Whether each row of the base table is one of its own."""
    is_time: bool = False


class Condition(Struct, frozen=True):
    """What holds for every row that counts, in SQL and in words."""

    sql: str
    words: str
    column: Column
    is_excluded: bool = False


class Query(Struct, frozen=True):
    """A query, what its result is called, and the tables it reads, the base table first."""

    sql: str
    title: str
    is_number: bool
    tables: tuple[str, ...]


def column_measure(column: Column, aggregate: str = "") -> MeasuredColumn:
    """The value of a column: aggregated as said, else added up where that is what people mean by its name."""
    aggregate_or_sum = aggregate or ("SUM" if column.adds_up else "")
    decimals = 0
    if aggregate == "AVG":
        decimals = 3 if column.unit == "percent" else 2
    elif aggregate_or_sum == "SUM" and column.is_real:
        decimals = 2
    word = {"AVG": "average ", "SUM": "total ", "MAX": "highest ", "MIN": "lowest "}.get(aggregate, "")
    return MeasuredColumn(
        expression=column.sql,
        aggregate=aggregate_or_sum,
        label=word + column.label,
        unit=column.unit,
        column=column,
        is_implied=not aggregate,
        decimals=decimals,
        tables=(column.table,),
    )


class TableQuery(Struct):
    """The parts of a query while it is read."""

    base: TableSpec
    is_named: bool
    """Whether a word names the base table."""
    group: Grouping | None = None
    is_listed: bool = False
    """Whether the group is what is asked for."""
    measure: MeasuredColumn | None = None
    conditions: list[Condition] = field(default_factory=list[Condition])
    rank: str = ""
    """DESC or ASC where the first places by the measure are asked for."""
    rank_word: str = ""
    limit: int = 0
    time_words: str = ""

    @property
    def lists_rows(self) -> bool:
        """Whether the rows of the base table are asked for."""
        return self.is_listed and self.group is not None and self.group.is_row

    @property
    def tables(self) -> list[str]:
        """The tables that are needed, the base table first."""
        names = {condition.column.table for condition in self.conditions}
        names.update([self.group.table] if self.group is not None else [])
        names.update(self.measure.tables if self.measure is not None else ())
        return [self.base.name, *sorted(names - {self.base.name})]

    # --- what has one meaning only

    def complete(self) -> None:
        """Decide what was left open; RefusedError where there are two ways to do so."""
        if self.rank:
            self._complete_rank()
        elif self.limit:
            raise RefusedError("by what the first are to be chosen is not said")
        elif self.measure is not None and self.measure.is_implied and self.lists_rows:
            self.measure = structs.replace(self.measure, aggregate="")
        if self.is_listed and not self.lists_rows and any(condition.is_excluded for condition in self.conditions):
            raise RefusedError("whether others without such a row are meant is not clear")
        if self.measure is not None and self.measure.aggregate:
            self._check_aggregate(self.measure)
            return
        is_lookup = self.group is None and self.measure is not None and bool(self.conditions)
        is_own = self.group is not None and (self.group.table == self.base.name or self.is_named)
        if not is_lookup and not (self.is_listed and is_own):
            raise RefusedError("what is to be looked up is not in the tables")

    def _complete_rank(self) -> None:
        """The first places of what is asked for, or without that the extreme itself, of each group if there is one."""
        measure = self.measure
        if measure is None or (measure.column is not None and measure.column.table != self.base.name):
            raise RefusedError("what is ranked is not in this table")
        if not self.is_listed:
            if measure.column is None or not measure.is_implied or self.limit:
                raise RefusedError("of what the first places are asked for is not clear")
            self.measure = column_measure(measure.column, "MAX" if self.rank == "DESC" else "MIN")
            self.rank = ""
        elif measure.is_implied and measure.aggregate and not self.lists_rows and self.rank_word not in _OF_A_SUM:
            label = measure.label
            raise RefusedError(f"the {self.rank_word} {label} may be of one row or of a sum; say total {label}")

    def _check_aggregate(self, measure: MeasuredColumn) -> None:
        names = (self.base.label, self.base.key) if self.base.key is not None else ()
        if measure.expression == "*" and any(condition.column in names for condition in self.conditions):
            raise RefusedError("whether rows or pieces are counted is not clear")
        if measure.aggregate == "AVG" and self.group is not None:
            is_of_sums = self.group.is_time and measure.column is not None and measure.column.adds_up
            if is_of_sums or self.group.sql == self.base.columns[0].sql:
                raise RefusedError("an average may be of single rows or of their sums; ask for the sums")

    # --- SQL

    def render(self, schema: Schema) -> Query:
        """The SQL and its title."""
        base = self.base.name
        joins = schema.joins(base)
        clauses = [
            f"JOIN {table} ON {base}.{joins[table]} = {table}.{joins[table]}" for table in self.tables if table != base
        ]
        if self.conditions:
            clauses.append("WHERE " + " AND ".join(condition.sql for condition in self.conditions))
        source = " ".join([f"FROM {base}", *clauses])
        measure = self.measure
        if measure is not None and (measure.aggregate or self.rank):
            return self._render_measure(measure, source)
        columns = [column.sql for column in self.base.columns if column.kind in {"text", "day"}]
        label = base
        if self.group is not None:
            columns = list(self.group.columns)
            label = base if self.group.is_row else self.group.label
        if measure is not None:
            columns.append(measure.expression)
            label = measure.label
        sql = f"SELECT DISTINCT {', '.join(dict.fromkeys(columns))} {source} ORDER BY 1 LIMIT {_MOST_ROWS}"
        return self._query(sql, label)

    def _render_measure(self, measure: MeasuredColumn, source: str) -> Query:
        """A figure, or one for each group; with a rank the first places, all that are equal among them."""
        label = f"{measure.label} in {measure.unit}" if measure.unit else measure.label
        value = _alias(f"{measure.label} {measure.unit}".strip())
        expression = measure.sql if measure.aggregate else measure.expression
        if self.group is None:
            return self._query(f"SELECT {expression} AS {value} {source}", label)
        name = _alias(self.group.label)
        grouped = "GROUP BY 1" if measure.aggregate else ""
        sql = f"SELECT DISTINCT {self.group.sql} AS {name}, {expression} AS {value} {source} {grouped}".rstrip()
        order = "1" if self.group.is_time else "2 DESC, 1"
        if self.rank:
            order = "place, 1"
            place = f"RANK() OVER (ORDER BY {value} {self.rank}) AS place"
            sql = f"SELECT {name}, {value} FROM (SELECT *, {place} FROM ({sql})) WHERE place <= {self.limit or 1}"  # noqa: S608 - our names
            label = f"{'highest' if self.rank == 'DESC' else 'lowest'} {label}"
        return self._query(f"{sql} ORDER BY {order} LIMIT {_MOST_ROWS}", label)

    def _query(self, sql: str, label: str) -> Query:
        title = label[:1].upper() + label[1:]
        if self.group is not None and label not in {self.group.label, self.base.name}:
            title += f" by {self.group.label}"
        words = [condition.words for condition in self.conditions if condition.words]
        if words:
            title += f" ({', '.join(words)})"
        is_number = self.group is None and self.measure is not None and bool(self.measure.aggregate)
        return Query(sql, f"{title} {self.time_words}".strip(), is_number, tuple(self.tables))


def _alias(label: str) -> str:
    return f'"{label.lower().replace(" ", "_")}"'
