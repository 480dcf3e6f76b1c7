"""A question to tables as typed parts, and the SQL and the title that they make."""

from typing import Literal

from msgspec import Struct, field

from chargehand.models.demo.request import RefusedError
from chargehand.models.demo.table_schema import Column, Schema, TableSpec, Value
from chargehand.models.demo.words import join_words

_MOST_ROWS = 200


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

    @property
    def adds_up(self) -> bool:
        """Whether the numbers of several groups make a total."""
        return self.aggregate == "SUM" or self.expression == "*"

    @property
    def alias(self) -> str:
        return _alias(f"{self.label} {self.unit}".strip())

    @property
    def title(self) -> str:
        return f"{self.label} in {self.unit}" if self.unit else self.label


class Group(Struct, frozen=True):
    """What rows are put together by."""

    sql: str
    label: str
    tables: tuple[str, ...]
    order: str = ""
    """How the groups are ordered, where not by what is measured."""


class Condition(Struct, frozen=True):
    """What holds for every row that counts, in SQL and in words."""

    sql: str
    words: str
    tables: tuple[str, ...]


class Filter(Struct, frozen=True):
    """A value that rows have, or must not have."""

    words: str
    value: Value
    is_excluded: bool


class Rank(Struct, frozen=True):
    """The first places by a measure."""

    measure: Measure
    direction: str
    """ASC or DESC."""
    word: str
    is_by_price: bool
    """Whether the word speaks of a price and asks for what has it: the cheapest."""


class Threshold(Struct, frozen=True):
    """A number that a measure is compared with."""

    measure: Measure
    test: str

    @property
    def words(self) -> str:
        return f"{self.measure.label} {self.test}"


class Entity(Struct, frozen=True):
    """What is asked for ("which country"): how rows are grouped by it, and what is listed of it."""

    words: str
    group: Group
    columns: tuple[str, ...]
    is_row: bool
    """Whether it is a row of the base table, so that what is said of it is said of each row."""


class TableQuery(Struct):
    """Measure x group x filter x time x rank x threshold over the rows of one table and of those it refers to."""

    base: TableSpec
    entity: Entity | None = None
    groups: list[Group] = field(default_factory=list[Group])
    measures: list[Measure] = field(default_factory=list[Measure])
    conditions: list[Condition] = field(default_factory=list[Condition])
    filters: list[Filter] = field(default_factory=list[Filter])
    thresholds: list[Threshold] = field(default_factory=list[Threshold])
    rank: Rank | None = None
    limit: int = 0
    time_words: str = ""
    refusal: RefusedError | None = None
    """Why there is no answer although all is understood."""

    @property
    def is_by_row(self) -> bool:
        """Whether the rows of the base table are asked for."""
        return self.entity is not None and self.entity.is_row

    @property
    def is_by_time(self) -> bool:
        return any(group.order for group in self.groups)

    @property
    def tables(self) -> list[str]:
        """The tables that are needed, the base table first."""
        parts = [*self.groups, *self.measures, *self.conditions, *(held.measure for held in self.thresholds)]
        if self.entity is not None:
            parts.append(self.entity.group)
        names = {name for part in parts for name in part.tables}
        return [self.base.name, *sorted(names - {self.base.name})]


class Query(Struct, frozen=True):
    """A query, what its result is called, and the tables it reads, the base table first."""

    sql: str
    title: str
    shape: Literal["number", "groups", "rows"]
    tables: tuple[str, ...]
    adds_up: bool = False
    """Whether the numbers of its groups make a total."""


def column_measure(column: Column, aggregate: str = "") -> Measure:
    """The value of a column: aggregated as said, else added up where that is what people mean by its name."""
    unit = column.unit
    aggregate_or_sum = aggregate or ("SUM" if column.adds_up else "")
    decimals = 0
    if aggregate == "AVG":
        decimals = 3 if unit == "percent" else 2
    elif aggregate_or_sum == "SUM" and column.type == "REAL":
        decimals = 2
    label = column.name.rpartition("_")[0] if unit else column.name
    word = {"AVG": "average ", "SUM": "total ", "MAX": "highest ", "MIN": "lowest "}.get(aggregate, "")
    return Measure(
        expression=column.sql,
        aggregate=aggregate_or_sum,
        label=word + label.replace("_", " "),
        unit=unit,
        column=column,
        is_implied=not aggregate,
        decimals=decimals,
        tables=(column.table,),
    )


def quote(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def render_query(query: TableQuery, schema: Schema) -> Query:
    """The SQL of a question that was read, and its title."""
    paths = schema.paths(query.base.name)
    joins = dict.fromkeys(join for table in sorted(query.tables) for join in paths[table])
    clauses = [f"JOIN {target} ON {source}.{column} = {target}.{column}" for source, target, column in joins]
    if query.conditions:
        clauses.append("WHERE " + " AND ".join(condition.sql for condition in query.conditions))
    source = " ".join([f"FROM {query.base.name}", *clauses])
    is_measured = query.thresholds or any(measure.aggregate for measure in query.measures)
    return _render_measured(query, source) if is_measured or query.rank is not None else _render_listed(query, source)


def _render_measured(query: TableQuery, source: str) -> Query:
    measures = list(dict.fromkeys([*query.measures, *(threshold.measure for threshold in query.thresholds)]))
    groups = query.groups
    names = [_alias(group.label) for group in groups] + [measure.alias for measure in measures]
    columns = [f"{part.sql} AS {name}" for part, name in zip([*groups, *measures], names, strict=True)]
    sql = f"SELECT {'DISTINCT ' if query.rank is not None else ''}{', '.join(columns)} {source}"
    if groups and measures[0].aggregate:
        sql += f" GROUP BY {', '.join(str(at + 1) for at in range(len(groups)))}"
    if query.thresholds:
        sql += " HAVING " + " AND ".join(f"{held.measure.sql} {held.test}" for held in query.thresholds)
    label = join_words([measure.title for measure in measures])
    if query.rank is not None:
        place = f"RANK() OVER (ORDER BY {names[-1]} {query.rank.direction}) AS place"
        sql = f"SELECT {', '.join(names)} FROM (SELECT *, {place} FROM ({sql})) WHERE place <= {query.limit or 1}"  # noqa: S608 - our names
        sql += f" ORDER BY place, 1 LIMIT {_MOST_ROWS}"
        label = f"{'highest' if query.rank.direction == 'DESC' else 'lowest'} {label}"
    elif groups:
        sql += f" ORDER BY {groups[0].order or f'{len(groups) + 1} DESC, 1'} LIMIT {_MOST_ROWS}"
    return Query(
        sql=sql,
        title=_title(query, label),
        shape="groups" if groups else "number",
        tables=tuple(query.tables),
        adds_up=measures[0].adds_up and query.rank is None and not any(group.label == "period" for group in groups),
    )


def _render_listed(query: TableQuery, source: str) -> Query:
    columns = [group.sql for group in query.groups]
    if query.entity is not None:
        columns += query.entity.columns
    elif not query.groups:
        columns += [column.sql for column in query.base.columns if column.is_text or column.is_day]
    columns += [measure.expression for measure in query.measures]
    sql = f"SELECT DISTINCT {', '.join(dict.fromkeys(columns))} {source} ORDER BY 1 LIMIT {_MOST_ROWS}"
    label = query.entity.words if query.entity else join_words([measure.label for measure in query.measures])
    return Query(sql=sql, title=_title(query, label), shape="rows", tables=tuple(query.tables))


def _title(query: TableQuery, label: str) -> str:
    title = label[:1].upper() + label[1:]
    if query.groups:
        title += f" by {join_words([group.label for group in query.groups])}"
    words = [part.words for part in (*query.conditions, *query.thresholds) if part.words]
    if words:
        title += f" ({', '.join(words)})"
    return f"{title} {query.time_words}" if query.time_words else title


def _alias(label: str) -> str:
    return f'"{label.lower().replace(" ", "_")}"'
