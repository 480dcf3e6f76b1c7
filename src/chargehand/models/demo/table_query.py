"""One grammar for questions to tables: measure x group x filter x time x rank x threshold, joined along keys.

A clause is read once for each table, which is the base of the query. Where two readings fit, neither is taken.
"""

import re
from itertools import product

from msgspec import Struct, structs

from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.table_reader import QueryReader
from chargehand.models.demo.table_schema import Column, Schema, Value, read_schema
from chargehand.models.demo.table_sql import (
    Condition,
    Query,
    Rank,
    TableQuery,
    column_measure,
    quote,
    render_query,
)
from chargehand.models.demo.table_words import Item, Names, Scope, read_items, read_lexicon
from chargehand.models.demo.words import join_words, stem, stems, word_set
from chargehand.models.exhibits import Table

_OF_A_SUM = word_set("most top best fewest least")
_MOST_NAMES = 4
_NEVER_NAMES = word_set(
    """many number count than more less fewer between since before after until only median percentage share ratio rate
    change growth trend difference second third last first next today yesterday tomorrow day week month quarter year
    both either any other same compared versus expensive late early new old recent latest oldest newest longest
    shortest ago now currently because"""
)
_IN_ALL = re.compile(r"\b(?:in all|altogether|in total)\b", re.IGNORECASE)


class Lookup(Struct, frozen=True):
    """Names that have to be looked up in the data before the query can be written."""

    sql: str
    phrases: tuple[str, ...]


def read_query(clause: Clause, description: str, names: Names | None = None) -> Query | Lookup:
    """The query for a clause over the tables that a tool's description lists; RefusedError where there is none."""
    lexicon = read_lexicon(description)
    if lexicon is None:
        raise RefusedError("no tables are described")
    if clause.points_back:
        raise RefusedError("it speaks of an earlier result, which no table holds")
    items = read_items(clause, lexicon, names or {})
    queries: list[Query] = []
    refusals: list[RefusedError] = []
    lookups: list[Lookup] = []
    for base in lexicon.schema.tables.values():
        scope = Scope(items, lexicon.schema, base)
        reader = QueryReader(clause, scope)
        try:
            query = _complete(reader.read(), clause, scope)
            leftover = reader.leftover()
            if leftover:
                lookups += _look_up(lexicon.schema, leftover)
                words = join_words([repr(item.text) for item in leftover])
                query.refusal = RefusedError(f"nothing there says {words}")
            if query.refusal is not None:
                raise query.refusal
            queries.append(render_query(query, lexicon.schema))
        except RefusedError as refusal:
            refusal.understood = len(reader.used)
            refusals.append(refusal)
    if queries:
        return _choose(queries)
    if lookups and names is None:
        return min(lookups, key=lambda lookup: len(lookup.phrases))
    raise max(refusals, key=lambda refusal: (refusal.is_known, refusal.understood))


def _choose(queries: list[Query]) -> Query:
    """The query with the fewest joins; two of them are two readings."""
    fewest = min(len(query.tables) for query in queries)
    simple = {query.sql: query for query in queries if len(query.tables) == fewest}
    if len(simple) > 1:
        tables = sorted({query.tables[0] for query in simple.values()})
        raise RefusedError(f"it can be read of {join_words(tables, 'or')}; say which is meant")
    return next(iter(simple.values()))


def _look_up(schema: Schema, items: list[Item]) -> list[Lookup]:
    """How words are looked up in the data, if all of them may be names; those side by side are one name."""
    columns = [column for column in schema.columns.values() if column.is_text and not column.complete]
    if not columns or len(items) > _MOST_NAMES or not all(_may_be_name(item) for item in items):
        return []
    phrases: list[str] = []
    for before, item in zip([None, *items], items, strict=False):
        if before is not None and before.at == item.at - 1:
            phrases[-1] += f" {item.low}"
        else:
            phrases.append(item.low)
    parts: list[str] = []
    for phrase, column in product(phrases, columns):
        pattern = "%".join(["", *(word[: max(3, len(stem(word)))] for word in phrase.split()), ""])
        parts.append(
            f"SELECT DISTINCT {quote(column.sql)} AS place, {column.name} AS value "  # noqa: S608 - quoted
            f"FROM {column.table} WHERE {column.name} LIKE {quote(pattern)}"
        )
    return [Lookup(" UNION ALL ".join(parts), tuple(phrases))]


def _may_be_name(item: Item) -> bool:
    is_known = item.operator is not None or item.number is not None or (item.refs and not item.values)
    return not is_known and item.low not in _NEVER_NAMES and len(item.text) > 2


def read_query_with_names(clause: Clause, description: str, lookup: Lookup, found: list[Table]) -> Query | Lookup:
    """The query after its names were looked up: each phrase has to be in values of the data."""
    schema = read_schema(description)
    columns = schema.columns if schema is not None else {}
    names: Names = {}
    for phrase in lookup.phrases:
        values: dict[Column, dict[str, None]] = {}
        for place, value in (row for table in found for row in table.rows):
            if _holds(str(value), phrase):
                values.setdefault(columns[str(place)], {})[str(value)] = None
        if not values:
            raise RefusedError(f"nothing there says {phrase!r}")
        names[phrase] = tuple(Value(column, tuple(texts)) for column, texts in values.items())
    return read_query(clause, description, names)


def _holds(value: str, phrase: str) -> bool:
    words = stems(value)
    wanted = stems(phrase)
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


def _complete(query: TableQuery, clause: Clause, scope: Scope) -> TableQuery:
    """The query with its parts put together; RefusedError where they can be in two ways."""
    _apply_thresholds(query)
    _apply_filters(query, scope)
    if query.rank is not None:
        _apply_rank(query, query.rank, scope)
    elif query.limit:
        raise RefusedError("by what the first are to be chosen is not said")
    elif query.is_by_row and not query.groups:
        query.measures = [
            structs.replace(measure, aggregate="") if measure.is_implied else measure for measure in query.measures
        ]
    is_of_others = query.entity is not None and not query.is_by_row
    counts_others = any("DISTINCT" in measure.expression for measure in query.measures)
    if (is_of_others or counts_others) and any(held.is_excluded for held in query.filters):
        raise RefusedError("whether others without such a row are meant is not clear")
    if query.thresholds or any(measure.aggregate for measure in query.measures):
        _check_measured(query)
    elif query.rank is None:
        _check_listed(query, clause, scope)
    return query


def _apply_filters(query: TableQuery, scope: Scope) -> None:
    """Values as conditions; several values of one column, and names that were looked up, are shown side by side."""
    columns = dict.fromkeys((held.value.column, held.is_excluded) for held in query.filters)
    for column, is_excluded in columns:
        filters = [held for held in query.filters if (held.value.column, held.is_excluded) == (column, is_excluded)]
        texts = list(dict.fromkeys(text for held in filters for text in held.value.values))
        test = f"= {quote(texts[0])}"
        if is_excluded or len(texts) > 1:
            test = f"{'NOT ' if is_excluded else ''}IN ({', '.join(map(quote, texts))})"
        words = ", ".join(f"not {held.words}" if is_excluded else held.words for held in filters)
        query.conditions.append(Condition(f"{column.sql} {test}", words, (column.table,)))
        is_shown = (len(filters) > 1 or not column.complete) and not is_excluded
        aggregated = [measure for measure in query.measures if measure.aggregate]
        if is_shown and aggregated and not query.groups and query.entity is None:
            if len(aggregated) > 1:
                raise RefusedError("which figure is of which is not clear")
            query.groups.append(scope.column_group(column))


def _apply_thresholds(query: TableQuery) -> None:
    """A threshold on a column holds for each row, others for what is measured of a group."""
    is_of_rows = query.entity is None or query.is_by_row or any(held.expression == "*" for held in query.measures)
    for threshold in list(query.thresholds):
        measure = threshold.measure
        if measure.column is None:
            continue
        if measure.aggregate and not is_of_rows:
            raise RefusedError("it can be read of single rows or of their sum; say total, or the rows")
        query.thresholds.remove(threshold)
        query.conditions.append(Condition(f"{measure.column.sql} {threshold.test}", threshold.words, measure.tables))
        if query.entity is not None:
            query.measures.append(structs.replace(measure, aggregate=""))


def _apply_rank(query: TableQuery, rank: Rank, scope: Scope) -> None:
    """The first places of what is asked for, or without that the extreme itself, of each group if there are any."""
    measure = rank.measure
    column = measure.column
    if query.measures or query.thresholds:
        raise RefusedError("it asks for a ranking and for another figure")
    if column is not None and column.table != query.base.name:
        raise RefusedError("what is ranked is not in this table")
    if query.entity is None and not rank.is_by_price:
        if column is None or not measure.is_implied or query.limit > 1:
            raise RefusedError("of what the first places are asked for is not clear")
        query.measures.append(column_measure(column, "MAX" if rank.direction == "DESC" else "MIN"))
        query.rank = None
        return
    if query.groups:
        raise RefusedError("it asks for a ranking within groups")
    group = query.entity.group if query.entity is not None else scope.column_group(query.base.label)
    if rank.is_by_price and group.tables != (query.base.name,):
        raise RefusedError(f"by what {rank.word!r} is meant is not clear")
    is_sum = measure.is_implied and bool(measure.aggregate)
    if is_sum and not query.is_by_row and rank.word not in _OF_A_SUM:
        raise RefusedError(f"the {rank.word} {measure.label} may be of one row or of a sum; say total {measure.label}")
    query.groups.append(group)
    query.measures.append(measure)


def _check_measured(query: TableQuery) -> None:
    single = [measure.label for measure in query.measures if not measure.aggregate]
    if single and query.rank is None:
        raise RefusedError(f"how {join_words(single)} is to be put together is not said")
    if not query.groups and query.entity is not None:
        query.groups.append(query.entity.group)
    if not query.groups and query.thresholds:
        raise RefusedError("of what this holds is not clear")
    averaged = [measure.column for measure in query.measures if measure.aggregate == "AVG"]
    is_of_sums = any(column is not None and column.adds_up for column in averaged) and query.is_by_time
    if is_of_sums or (averaged and any(group.sql == query.base.columns[0].sql for group in query.groups)):
        raise RefusedError("an average may be of single rows or of their sums; ask for the sums")


def _check_listed(query: TableQuery, clause: Clause, scope: Scope) -> None:
    """Rows are listed of the table that is asked for, under conditions or all of them; nothing else is guessed."""
    if _IN_ALL.search(clause.text):
        raise RefusedError("which total is meant is not said", is_known=True)
    is_lookup = query.measures and (query.conditions or query.groups)
    is_own = query.entity is not None and query.entity.group.tables == (query.base.name,)
    if not (is_lookup if query.entity is None else is_own or scope.is_named):
        raise RefusedError("what is to be looked up is not in the tables")
