"""One grammar for questions to tables: measure x group x filter x time x rank x threshold, joined along keys.

A question is typed parts over the rows of one table, the base, and of those it refers to; they make SQL and a title.
"""

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct, field, structs

from chargehand.models.demo.request import RefusedError
from chargehand.models.demo.words import stem, stem_set, stems, word_set

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
_CURRENCIES = {"eur": "EUR", "usd": "USD", "gbp": "GBP", "chf": "CHF"}
_SINGLE = stem_set(
    """price rating percent rate share fee score level age temperature year size capacity low high band target
    result cost limit height weight speed value"""
)
"""Words of columns whose values are not added up unless somebody says so."""


# --- the tables that a query tool's description shows


class Column(Struct, frozen=True):
    """A column: its values where all are known, else the least, a middle and the greatest."""

    table: str
    name: str
    kind: Literal["key", "day", "number", "flag", "text"]
    """Keys only identify rows; a flag is yes or no."""
    values: tuple[str, ...]
    words: tuple[str, ...]
    """The stems of its name."""
    unit: str
    adds_up: bool
    """Whether the sum over rows is what people mean by its name."""
    is_real: bool

    @property
    def sql(self) -> str:
        return f"{self.table}.{self.name}"

    @property
    def short_words(self) -> tuple[str, ...]:
        """The stems of its name without the unit."""
        return tuple(word for word in self.words if word not in _UNITS) or self.words


class Value(Struct, frozen=True):
    """A value of a column that a phrase stands for."""

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


class Schema(Struct, frozen=True):
    """All tables of a database."""

    tables: dict[str, TableSpec]

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
        columns = tuple(_read_column(match["name"], found) for found in _COLUMN.finditer(match["columns"]))
        if columns:
            tables[match["name"]] = _read_table(match["name"], columns)
    return Schema(tables) if tables else None


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
    last = name.rsplit("_", 1)[-1]
    words = tuple(stems(name))
    values = tuple(
        value["text"].replace("''", "'") if value["text"] is not None else value["number"]
        for value in _VALUE.finditer(match["values"] or "")
    )
    is_number = match["type"] in {"INTEGER", "REAL"}
    is_year = bool(values) and all(_YEAR.fullmatch(value) for value in values)
    kind = "number" if is_number else "text"
    if name.endswith("_id") or name == "id":
        kind = "key"
    elif not is_number and values and all(_DAY.fullmatch(value) for value in values):
        kind = "day"
    elif not is_number and match["how"] == "one of" and set(values) <= {"yes", "no"}:
        kind = "flag"
    return Column(
        table=table,
        name=name,
        kind=kind,
        values=values,
        words=words,
        unit=_CURRENCIES.get(last, "percent" if last == "percent" else ""),
        adds_up=kind == "number" and not is_year and _SINGLE.isdisjoint(words),
        is_real=match["type"] == "REAL",
    )


# --- the parts of a question


class Measure(Struct, frozen=True):
    """What is computed. Without an aggregate it is the value of each row."""

    expression: str
    aggregate: str
    """COUNT, SUM, AVG, MIN, MAX, or nothing."""
    label: str
    unit: str = ""
    column: Column | None = None
    """The column, where it is the value of one."""
    is_implied: bool = False
    """Whether the aggregate is a guess from the kind of column: nobody said total or average."""
    decimals: int = 0
    """To how many it is rounded, where it is."""
    tables: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        if not self.aggregate:
            return self.expression
        call = f"{self.aggregate}({self.expression})"
        return f"ROUND({call}, {self.decimals})" if self.decimals else call


class Group(Struct, frozen=True):
    """What rows are put together by, or what is asked for ("which country")."""

    sql: str
    label: str
    words: str
    """As it is said."""
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


class Rank(Struct, frozen=True):
    """That the first places by the measure are asked for, and with which word."""

    direction: str
    """ASC or DESC."""
    word: str


class TableQuery(Struct):
    """The parts of a question. `is_named`: whether a word of it names the base table."""

    base: TableSpec
    is_named: bool
    group: Group | None = None
    is_listed: bool = False
    """Whether the group is what is asked for."""
    measure: Measure | None = None
    conditions: list[Condition] = field(default_factory=list[Condition])
    rank: Rank | None = None
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


class Query(Struct, frozen=True):
    """A query, what its result is called, and the tables it reads, the base table first."""

    sql: str
    title: str
    shape: Literal["number", "groups", "rows"]
    tables: tuple[str, ...]


def column_measure(column: Column, aggregate: str = "") -> Measure:
    """The value of a column: aggregated as said, else added up where that is what people mean by its name."""
    aggregate_or_sum = aggregate or ("SUM" if column.adds_up else "")
    decimals = 0
    if aggregate == "AVG":
        decimals = 3 if column.unit == "percent" else 2
    elif aggregate_or_sum == "SUM" and column.is_real:
        decimals = 2
    label = column.name.rpartition("_")[0] if column.unit else column.name
    word = {"AVG": "average ", "SUM": "total ", "MAX": "highest ", "MIN": "lowest "}.get(aggregate, "")
    return Measure(
        expression=column.sql,
        aggregate=aggregate_or_sum,
        label=word + label.replace("_", " "),
        unit=column.unit,
        column=column,
        is_implied=not aggregate,
        decimals=decimals,
        tables=(column.table,),
    )


def complete_query(query: TableQuery) -> None:
    """Put the parts of a question together; RefusedError where that can be done in two ways."""
    if query.rank is not None:
        _complete_rank(query, query.rank)
    elif query.limit:
        raise RefusedError("by what the first are to be chosen is not said")
    elif query.measure is not None and query.measure.is_implied and query.lists_rows:
        query.measure = structs.replace(query.measure, aggregate="")
    if query.is_listed and not query.lists_rows and any(condition.is_excluded for condition in query.conditions):
        raise RefusedError("whether others without such a row are meant is not clear")
    measure = query.measure
    if measure is None or not measure.aggregate:
        _check_listed(query)
        return
    names = (query.base.label, query.base.key) if query.base.key is not None else ()
    if measure.expression == "*" and any(condition.column in names for condition in query.conditions):
        raise RefusedError("whether rows or pieces are counted is not clear")
    if measure.aggregate == "AVG" and query.group is not None:
        is_of_sums = query.group.is_time and measure.column is not None and measure.column.adds_up
        if is_of_sums or query.group.sql == query.base.columns[0].sql:
            raise RefusedError("an average may be of single rows or of their sums; ask for the sums")


def _complete_rank(query: TableQuery, rank: Rank) -> None:
    """The first places of what is asked for, or without that the extreme itself, of each group if there is one."""
    measure = query.measure
    if measure is None or (measure.column is not None and measure.column.table != query.base.name):
        raise RefusedError("what is ranked is not in this table")
    if not query.is_listed:
        if measure.column is None or not measure.is_implied or query.limit:
            raise RefusedError("of what the first places are asked for is not clear")
        query.measure = column_measure(measure.column, "MAX" if rank.direction == "DESC" else "MIN")
        query.rank = None
    elif measure.is_implied and measure.aggregate and not query.lists_rows and rank.word not in _OF_A_SUM:
        raise RefusedError(f"the {rank.word} {measure.label} may be of one row or of a sum; say total {measure.label}")


def _check_listed(query: TableQuery) -> None:
    """Rows are listed of the table that is asked for, under conditions or all of them; nothing else is guessed."""
    is_lookup = query.group is None and query.measure is not None and bool(query.conditions)
    is_own = query.group is not None and (query.group.table == query.base.name or query.is_named)
    if not is_lookup and not (query.is_listed and is_own):
        raise RefusedError("what is to be looked up is not in the tables")


def render_query(query: TableQuery, schema: Schema) -> Query:
    """The SQL of a question that was read, and its title."""
    base = query.base.name
    joins = schema.joins(base)
    clauses = [
        f"JOIN {table} ON {base}.{joins[table]} = {table}.{joins[table]}" for table in query.tables if table != base
    ]
    if query.conditions:
        clauses.append("WHERE " + " AND ".join(condition.sql for condition in query.conditions))
    source = " ".join([f"FROM {base}", *clauses])
    measure = query.measure
    if measure is not None and (measure.aggregate or query.rank is not None):
        return _render_measured(query, measure, source)
    columns = [column.sql for column in query.base.columns if column.kind in {"text", "day"}]
    label = query.base.name
    if query.group is not None:
        columns = list(query.group.columns)
        label = query.group.words
    if measure is not None:
        columns.append(measure.expression)
        label = measure.label
    sql = f"SELECT DISTINCT {', '.join(dict.fromkeys(columns))} {source} ORDER BY 1 LIMIT {_MOST_ROWS}"
    return Query(sql=sql, title=_title(query, label), shape="rows", tables=tuple(query.tables))


def _render_measured(query: TableQuery, measure: Measure, source: str) -> Query:
    """A figure, or one for each group; with a rank the first places, all that are equal among them."""
    label = f"{measure.label} in {measure.unit}" if measure.unit else measure.label
    names = [_alias(f"{measure.label} {measure.unit}".strip())]
    columns = [f"{measure.sql} AS {names[0]}"]
    group = query.group
    if group is not None:
        names.insert(0, _alias(group.label))
        columns.insert(0, f"{group.sql} AS {names[0]}")
    sql = f"SELECT {', '.join(columns)} {source}"
    if not measure.aggregate:
        sql = f"SELECT DISTINCT {', '.join(columns)} {source}"
    elif group is not None:
        sql += " GROUP BY 1"
    if query.rank is not None:
        place = f"RANK() OVER (ORDER BY {names[-1]} {query.rank.direction}) AS place"
        sql = f"SELECT {', '.join(names)} FROM (SELECT *, {place} FROM ({sql})) WHERE place <= {query.limit or 1}"  # noqa: S608 - our names
        label = f"{'highest' if query.rank.direction == 'DESC' else 'lowest'} {label}"
        sql += f" ORDER BY place, 1 LIMIT {_MOST_ROWS}"
    elif group is not None:
        sql += f" ORDER BY {'1' if group.is_time else '2 DESC, 1'} LIMIT {_MOST_ROWS}"
    shape = "number" if group is None else "groups"
    return Query(sql=sql, title=_title(query, label), shape=shape, tables=tuple(query.tables))


def _title(query: TableQuery, label: str) -> str:
    title = label[:1].upper() + label[1:]
    if query.group is not None and query.group.words != label:
        title += f" by {query.group.label}"
    words = [condition.words for condition in query.conditions if condition.words]
    if words:
        title += f" ({', '.join(words)})"
    return f"{title} {query.time_words}".strip()


def _alias(label: str) -> str:
    return f'"{label.lower().replace(" ", "_")}"'
