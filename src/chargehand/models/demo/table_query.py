"""One grammar for questions to tables: measure x group x filter x time x rank x threshold, joined along keys.

Words such as "average", "per", "highest" or "how many" wait for the noun they belong to; a noun is a table, a column or
a value. Every word of a clause is used by a part of the query or there is no query. Where two readings fit, neither is
taken.
"""

import re
from datetime import date
from itertools import product

from msgspec import Struct, structs

from chargehand.models.demo.dates import Period
from chargehand.models.demo.request import Clause
from chargehand.models.demo.table_schema import Column, Schema, read_schema
from chargehand.models.demo.table_sql import (
    Condition,
    Entity,
    Group,
    Measure,
    Query,
    TableQuery,
    Threshold,
    column_measure,
    quote,
    render_query,
)
from chargehand.models.demo.table_words import (
    Item,
    Names,
    OperatorKind,
    Refusal,
    Scope,
    Value,
    read_items,
    read_lexicon,
)
from chargehand.models.demo.words import LIGHT_VERBS, join_words, stem, stems, word_set
from chargehand.models.exhibits import Table

_MOST_COLUMNS = 6
_MOST_NAMES = 4
_ASK_FOR_A_PRICE = frozenset(("cheapest", "priciest", "most expensive", "least expensive"))
_OF_A_SUM = word_set("most top best fewest least")
_TIME_UNITS = {"month": 7, "year": 4, "day": 10}
_UNITS = {"euro": "EUR", "euros": "EUR", "eur": "EUR", "dollars": "USD", "usd": "USD", "percent": "percent"}
_SELL = frozenset(map(stem, word_set("sell sold")))
_STATES = frozenset(map(stem, word_set("arrive come mark flag become remain stay")))
_NEVER_NAMES = word_set(
    """many number count than more less fewer between since before after until only median percentage share ratio rate
    change growth trend difference second third last first next today yesterday tomorrow day week month quarter year
    both either any other same compared versus expensive late early new old recent latest oldest newest longest
    shortest ago now currently because"""
)
_IN_ALL = re.compile(r"\b(?:in all|altogether|in total)\b", re.IGNORECASE)
_LINK = re.compile(r",?\s*\b(?:and|or|nor)\b", re.IGNORECASE)
_UNTIL = word_set("to until till through -")
_BESIDE = frozenset(("and", "or", "and in", "with", "vs", "versus", "to", "compared with", "compared to"))
_COMPARING = frozenset(map(stem, word_set("change versus vs compared")))
_TIME_SIGNS = {"since": ">=", "after": ">", "before": "<", "until": "<=", "till": "<="}


class Lookup(Struct, frozen=True):
    """Names that have to be looked up in the data before the query can be written."""

    sql: str
    phrases: tuple[str, ...]


def read_query(clause: Clause, description: str, names: Names | None = None) -> Query | Lookup:
    """The query for a clause over the tables that a tool's description lists; Refusal where there is none."""
    lexicon = read_lexicon(description)
    if lexicon is None:
        raise Refusal("no tables are described")
    if clause.points_back:
        raise Refusal("it speaks of an earlier result, which no table holds")
    items = read_items(clause, lexicon, names or {})
    queries: list[Query] = []
    refusals: list[Refusal] = []
    for base in lexicon.schema.tables.values():
        reader = _Reader(clause, Scope(items, lexicon.schema, base))
        try:
            queries.append(render_query(reader.read(), lexicon.schema))
        except Refusal as refusal:
            refusal.understood = len(reader.used)
            refusals.append(refusal)
    if queries:
        return _choose(queries)
    phrases = [refusal.phrases for refusal in refusals if isinstance(refusal, _Leftover) and refusal.phrases]
    lookup = _look_up(lexicon.schema, min(phrases, key=len)) if phrases and names is None else None
    if lookup is None:
        raise max(refusals, key=lambda refusal: (refusal.is_known, refusal.understood))
    return lookup


class _Leftover(Refusal):
    """Words that nothing accounts for. `phrases` are what may be names in the data: all of them, or nothing."""

    def __init__(self, items: list[Item]) -> None:
        super().__init__(f"nothing there says {join_words([repr(item.text) for item in items])}")
        phrases: list[str] = []
        last = -2
        for item in items:
            if item.at == last + 1:
                phrases[-1] += f" {item.low}"
            else:
                phrases.append(item.low)
            last = item.at
        may_be_names = len(items) <= _MOST_NAMES and all(_may_be_name(item) for item in items)
        self.phrases = tuple(phrases) if may_be_names else ()


def _may_be_name(item: Item) -> bool:
    is_known = item.operator is not None or item.number is not None or (item.refs and not item.values)
    return not is_known and item.low not in _NEVER_NAMES and len(item.text) > 2


def _choose(queries: list[Query]) -> Query:
    """The query with the fewest joins; two of them are two readings."""
    fewest = min(len(query.tables) for query in queries)
    simple = {query.sql: query for query in queries if len(query.tables) == fewest}
    if len(simple) > 1:
        tables = sorted({query.tables[0] for query in simple.values()})
        raise Refusal(f"it can be read of {join_words(tables, 'or')}; say which is meant")
    return next(iter(simple.values()))


def _look_up(schema: Schema, phrases: tuple[str, ...]) -> Lookup | None:
    columns = [column for column in schema.columns.values() if column.is_text and not column.complete]
    parts: list[str] = []
    for phrase, column in product(phrases, columns):
        pattern = "%".join(["", *(word[: max(3, len(stem(word)))] for word in phrase.split()), ""])
        parts.append(
            f"SELECT DISTINCT {quote(column.sql)} AS place, {column.name} AS value "  # noqa: S608 - quoted
            f"FROM {column.table} WHERE {column.name} LIKE {quote(pattern)}"
        )
    return Lookup(" UNION ALL ".join(parts), phrases) if parts else None


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
            raise Refusal(f"nothing there says {phrase!r}")
        names[phrase] = tuple(Value(column, tuple(texts)) for column, texts in values.items())
    return read_query(clause, description, names)


def _holds(value: str, phrase: str) -> bool:
    words = stems(value)
    wanted = stems(phrase)
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


class _Reader:
    """One try to read a clause as a question about the rows of one table and what they refer to.

    Each reader looks at one item, adds to the query and says how many items it used, 0 if it is not its own. Operators
    are `waiting` for the noun that is yet to come.
    """

    def __init__(self, clause: Clause, scope: Scope) -> None:
        self.clause = clause
        self.scope = scope
        self.base = scope.base
        self.query = TableQuery(scope.base)
        self.used: set[int] = set()
        self.waiting: dict[OperatorKind, Item] = {}
        self.values: dict[int, Value] = {}
        self.excluded: set[int] = set()
        """The places of the values that are left out."""
        self.thresholds: list[Threshold] = []
        self.ranked: Measure | None = None
        self.rank_word = ""
        self.is_distinct = False
        self.refusal: Refusal | None = None
        """Why there is no answer although all is understood: raised if no word is left over."""

    def read(self) -> TableQuery:
        """The query; Refusal where there is none, or words are left over."""
        self._read_times()
        readers = (
            self._read_operator,
            self._read_limit,
            self._skip_adjunct,
            self._read_equality,
            self._read_threshold,
            self._read_group,
            self._read_ranked,
            self._read_aggregated,
            self._read_counted,
            self._read_entity,
            self._read_value,
            self._read_measure,
        )
        at = 0
        words = self.scope.items[:-1]
        while at < len(words):
            size = next((size for reader in readers if (size := reader(words[at]))), 0)
            self.used |= set(range(at, at + size))
            at += max(1, size)
        self._finish()
        leftover = [item for item in words if item.at not in self.used and not self._says_nothing_more(item)]
        if leftover:
            raise _Leftover(leftover)
        if self.refusal is not None:
            raise self.refusal
        return self.query

    # --- words

    def _after(self, item: Item) -> Item:
        return self.scope.items[min(item.at + 1, len(self.scope.items) - 1)]

    def _next(self, item: Item) -> Item:
        """The next item that is more than a little word."""
        item = self._after(item)
        while item.is_free and item.operator is None:
            item = self._after(item)
        return item

    def _says_nothing_more(self, item: Item) -> bool:
        """Little words, the name of a table that is read, that of a column beside its value or its table."""
        if not item.refs:
            is_state = item.stems[0] in _STATES and item.at + 1 in self.values
            is_unit = _UNITS.get(item.low) in {measure.unit for measure in self.query.measures}
            return item.is_free or item.stems[0] in LIGHT_VERBS or is_state or is_unit
        if any(table.name in self.query.tables for table in item.tables):
            return True
        beside = [self.scope.items[at] for at in (item.at - 1, item.at + 1) if at in self.used]
        values = [value.column for other in beside for value in other.values]
        is_beside_base = any(self.base in other.tables for other in beside)
        own = [column for column in item.columns if column.table == self.base.name and not column.is_number]
        return any(column in values for column in item.columns) or (is_beside_base and bool(own))

    def _add_condition(self, column: Column, test: str, words: str = "") -> None:
        self.query.conditions.append(Condition(f"{column.sql} {test}", words, (column.table,)))

    # --- time

    def _read_times(self) -> None:
        periods = self.clause.periods
        if not periods:
            return
        column = self.scope.day_column()
        self.used |= {item.at for item in self.scope.items if column in item.columns}
        known = [self._with_year(period, column) for period in periods]
        before = self._word_before(periods[0])
        if len(known) == 1:
            self._add_condition(column, _time_test(known[0], before))
            self.query.time_words = f"{before or ('on' if known[0].is_day else 'in')} {known[0].words}"
            return
        between = self.clause.text[periods[0].end : periods[1].start].lower().replace(" the ", " ").strip(" ,")
        comparing = {item.at for item in self.scope.items if item.stems[0] in _COMPARING}
        is_range = between in _UNTIL or (between == "and" and before == "between")
        if is_range and not comparing:
            last = quote(known[1].last.isoformat())
            self._add_condition(column, f"BETWEEN {quote(known[0].first.isoformat())} AND {last}")
            self.query.time_words = f"from {known[0].words} to {known[1].words}"
        elif between in _BESIDE:
            self.used |= comparing
            self._compare_periods(column, known)
        if len(known) > 2 or not self.query.conditions:
            raise Refusal("how the times belong together is not clear")

    def _compare_periods(self, column: Column, periods: list[Period]) -> None:
        cases = " ".join(f"WHEN {column.sql} {_time_test(period)} THEN {quote(period.words)}" for period in periods)
        case = f"CASE {cases} END"
        self.query.conditions.append(Condition(f"{case} IS NOT NULL", "", (column.table,)))
        self.query.groups.append(Group(case, "period", (column.table,), order=f"MIN({column.sql})"))

    def _with_year(self, period: Period, column: Column) -> Period:
        """The period with the one year it can be of; what is not on record is refused if all else is understood."""
        days = sorted(column.values)
        first = date.fromisoformat(days[0])
        last = date.fromisoformat(days[-1])
        known = [period.of_year(year) for year in range(first.year, last.year + 1)]
        on_record = {held: None for held in known if held.first <= last and held.last >= first}
        if not on_record:
            reason = f"nothing is on record for {period.words}: the rows of {column.table} are from {first} to {last}"
            self.refusal = Refusal(reason, is_known=True)
        elif len(on_record) > 1:
            self.refusal = Refusal(f"which year {period.words} is of is not said", is_known=True)
        return next(iter(on_record or known))

    def _word_before(self, period: Period) -> str:
        """since, before and so on, where such a word stands before a period."""
        before = [item for item in self.scope.items if item.end <= period.start]
        words = [item for item in before if item.low not in {"the", "in", "of", "month"}]
        last = words[-1].low if words else ""
        if last in _TIME_SIGNS or last == "between":
            self.used.add(words[-1].at)
            return last
        if last in {"by", "from", "to", "within", "through"} and len(self.clause.periods) == 1:
            raise Refusal(f"{last} {period.words} can be read in two ways")
        return ""

    # --- operators

    def _read_operator(self, item: Item) -> int:
        operator = item.operator
        if operator is None:
            return 0
        match operator.kind:
            case "count":
                return self._read_count(item)
            case "rank":
                return self._read_rank(item)
            case "compare":
                return self._read_threshold(item)
            case "entity" if item.at > 3 or "entity" in self.waiting:
                return 0
            case "aggregate":
                self.waiting.pop("entity", None)
            case _:
                pass
        self._wait(item, operator.kind)
        return 1

    def _wait(self, item: Item, kind: OperatorKind) -> None:
        following = self._next(item)
        if kind == "not" and self.scope.flag(following) is None and self.scope.value(following) is None:
            raise Refusal(f"what {item.text!r} leaves out is not clear")
        if kind in self.waiting or (kind == "rank" and self.ranked is not None):
            raise Refusal(f"what {item.text!r} belongs to is not clear")
        self.waiting[kind] = item

    def _read_count(self, item: Item) -> int:
        """How many X, the number of X, how many X were sold."""
        self.waiting.pop("entity", None)
        if "aggregate" in self.waiting and self._aggregate() == "SUM":
            del self.waiting["aggregate"]  # the total number
        sold = {other.at for other in self.scope.items if other.stems[0] in _SELL}
        if item.low == "how much" or not sold or self.base.quantity is None:
            self._wait(item, "count")
            return 1
        self.used |= sold
        self.query.measures.append(structs.replace(column_measure(self.base.quantity, "SUM"), label="number sold"))
        following = self._after(item)
        return 2 if following.low in {"units", "items", "pieces"} and not following.refs else 1

    def _read_rank(self, item: Item) -> int:
        self._wait(item, "rank")
        if item.low in _ASK_FOR_A_PRICE:
            prices = self.base.prices
            if len(prices) != 1:
                raise Refusal(f"by what {item.text!r} is meant is not clear")
            self._rank_by(column_measure(prices[0]))
        elif item.low == "top":
            self._wait(item, "entity")
        return 1

    def _rank_by(self, measure: Measure) -> None:
        item = self.waiting.pop("rank")
        if item.low == "best" and {"price", "cost", "fee"} & set(measure.label.split()):
            raise Refusal(f"whether the highest or the lowest {measure.label} is best is not clear")
        self.ranked = measure
        self.rank_word = item.low
        self.query.direction = item.operator.value if item.operator is not None else ""

    def _aggregate(self) -> str:
        """The aggregate that waits."""
        operator = self.waiting["aggregate"].operator if "aggregate" in self.waiting else None
        return operator.value if operator is not None else ""

    # --- numbers

    def _read_limit(self, item: Item) -> int:
        """Which three products, the top 5."""
        if item.number is None or self.query.limit or not {"entity", "rank"} & set(self.waiting):
            return 0
        self.query.limit = max(1, int(item.number))
        return 1

    def _read_equality(self, item: Item) -> int:
        """Order 1003, size 100."""
        number = self._after(item)
        if number.number is None:
            return 0
        key = self.base.columns[0]
        is_key = self.base in item.tables and key.is_key and key.type == "INTEGER"
        column = key if is_key else self.scope.number_column(item)
        if column is None:
            return 0
        self._add_condition(column, f"= {_plain(number)}", f"{item.text} {_plain(number)}")
        return 2

    def _read_threshold(self, item: Item) -> int:
        """A price above 100, more than 100 orders."""
        comparison = item if item.operator is not None else self._next(item)
        if comparison.operator is None or comparison.operator.kind != "compare":
            return 0
        number = last = self._after(comparison)
        unit = _UNITS.get(self._after(number).low, "")
        if unit:
            last = self._after(number)
        noun = item
        if comparison is item:
            noun = last = self._next(last)
        measure = self.scope.measure(noun)
        if comparison is item and self.base in noun.tables:
            measure = measure or _count_rows(noun)
        if number.number is None or (measure is None and comparison is item):
            raise Refusal(f"what {comparison.text!r} compares is not clear")
        if measure is None:
            return 0
        if unit and measure.unit != unit:
            raise Refusal(f"{measure.label} is not counted in {unit}")
        sign = comparison.operator.value
        self.thresholds.append(Threshold(measure, f"{sign} {_plain(number)}"))
        return last.at + 1 - item.at

    # --- nouns

    def _skip_adjunct(self, item: Item) -> int:
        """The first of two nouns that are one: the product category, the feature requests."""
        following = self._after(item)
        is_joined = self.clause.text[item.end : following.start] == " " and not item.low.endswith("s")
        of_table = any(
            column.is_text and column.table == table.name for table in item.tables for column in following.columns
        )
        own = [column for column in item.columns if column.table == self.base.name and not column.is_number]
        return int(is_joined and (of_table or (bool(own) and self.base in following.tables)))

    def _read_group(self, item: Item) -> int:
        if "group" not in self.waiting:
            return 0
        if "rank" in self.waiting and self.scope.measure(item) is not None:
            del self.waiting["group"]  # "by revenue" says what is ranked
            return 0
        group = self._group(item)
        if group is None:
            return 0
        self.query.groups.append(group)
        link = self._after(item)
        if link.low != "and" or self._group(self._after(link)) is None:
            del self.waiting["group"]
        return 1

    def _group(self, item: Item) -> Group | None:
        """A column, the rows of a table by their name, or months, years and days."""
        unit = item.low
        if unit in _TIME_UNITS:
            days = [column for column in item.columns if column.is_day and column.table in self.scope.paths]
            day = days[0] if days else self.scope.day_column()
            return Group(f"substr({day.sql}, 1, {_TIME_UNITS[unit]})", unit, (day.table,), order="1")
        table = self.scope.table(item)
        column = self.scope.text_column(item) or (table.label if table is not None else None)
        return self.scope.column_group(column) if column is not None else None

    def _read_ranked(self, item: Item) -> int:
        if "rank" not in self.waiting or not item.refs:
            return 0
        measure = self.scope.measure(item, self._aggregate())
        if measure is None and self.base in item.tables and self.waiting["rank"].low not in {"top", "best"}:
            measure = _count_rows(item)
        if measure is None:
            return 0
        self.waiting.pop("aggregate", None)
        self._rank_by(measure)
        return 1

    def _read_aggregated(self, item: Item) -> int:
        measure = self.scope.measure(item, self._aggregate()) if "aggregate" in self.waiting else None
        if measure is None:
            return 0
        del self.waiting["aggregate"]
        self.query.measures.append(measure)
        return 1

    def _read_counted(self, item: Item) -> int:
        if "count" not in self.waiting:
            return 0
        if item.low in {"different", "distinct"}:
            self.is_distinct = True
            return 1
        measure = self._counted(item)
        if measure is None:
            return 0
        del self.waiting["count"]
        if "rank" in self.waiting:
            self._rank_by(measure)
        else:
            self.query.measures.append(measure)
        return 1

    def _counted(self, item: Item) -> Measure | None:
        """Rows, a column that adds up, or different values."""
        if not self.is_distinct:
            measure = _count_rows(item) if self.base in item.tables else self.scope.measure(item)
            if measure is not None and measure.aggregate:
                return measure
        table = self.scope.table(item)
        column = self.scope.text_column(item) or (table.columns[0] if table is not None else None)
        before = self.values.get(item.at - 1)
        is_named_again = before is not None and before.column == column  # "Owl lamps"
        if column is None or is_named_again:
            return None
        is_own = column.table == self.base.name and (not column.is_key or column == self.base.columns[0])
        is_row = column == self.base.label and self.base.key is None and not self.is_distinct
        if is_row or not (is_own or self.scope.is_named):
            return None
        return Measure(f"DISTINCT {column.sql}", "COUNT", f"number of {item.low}", tables=(column.table,))

    def _read_entity(self, item: Item) -> int:
        table = self.scope.table(item)
        if "entity" not in self.waiting or self.scope.flag(item) is not None:
            return 0
        if table is not None and item.low != table.name and self.scope.number_column(item) is not None:
            return 0  # a figure, such as a price in the table prices
        if table is not None and item.low not in _TIME_UNITS:
            is_row = table is self.base
            listed = table.columns[:_MOST_COLUMNS] if is_row else (table.columns[0], table.label)
            columns = [column.sql for column in listed]
            group = self.scope.column_group(table.label)
        else:
            group = self._group(item)
            if group is None:
                return 0
            columns = [group.sql]
            is_row = self.base.key is not None and self.scope.text_column(item) in (self.base.key, self.base.label)
        del self.waiting["entity"]
        self.query.entity = Entity(item.text, group, tuple(columns), is_row)
        return 1

    def _read_value(self, item: Item) -> int:
        flag = self.scope.flag(item)
        value = self.scope.value(item)
        if flag is None and value is None:
            return 0
        is_excluded = self.waiting.pop("not", None) is not None
        if flag is not None:
            self._add_condition(flag, f"= '{'no' if is_excluded else 'yes'}'", _in_words(item, is_excluded=is_excluded))
        elif value is not None:
            if is_excluded or self._continues(item, value):
                self.excluded.add(item.at)
            self.values[item.at] = value
        if "group" in self.waiting and self.waiting["group"].low == "by":
            del self.waiting["group"]  # "placed by Ada Brandt"
        return 1

    def _continues(self, item: Item, value: Value) -> bool:
        """Whether a value continues a row of excluded ones; Refusal where how it goes with the last is not clear."""
        before = max(self.values, default=-1)
        if before < 0:
            return False
        other = self.values[before]
        between = self.clause.text[self.scope.items[before].end : item.start].strip()
        phrase = self.clause.text[self.scope.items[before].start : item.end]
        is_linked = _LINK.match(between) and all(held.is_free for held in self.scope.items[before + 1 : item.at])
        if other.column != value.column and is_linked:
            raise Refusal(f"{phrase!r} may mean both at once or each of them; ask for one at a time", is_known=True)
        if other.column == value.column and not between and other != value:
            raise Refusal(f"{phrase!r} names two values of {value.column.sql}; say which is meant", is_known=True)
        return before in self.excluded and other.column == value.column and bool(is_linked)

    def _read_measure(self, item: Item) -> int:
        measure = self.scope.measure(item)
        if measure is None:
            return 0
        self.waiting.pop("entity", None)
        self.query.measures.append(measure)
        return 1

    # --- the parts together

    def _finish(self) -> None:
        query = self.query
        if "count" in self.waiting:
            self._count_kind(self.waiting.pop("count"))
        self._add_thresholds()
        self._add_values()
        self.waiting.pop("entity", None)
        for item in self.waiting.values():
            raise Refusal(f"what {item.text!r} belongs to is not clear")
        if self.ranked is not None:
            self._add_rank(self.ranked)
        elif query.limit:
            raise Refusal("by what the first are to be chosen is not said")
        elif query.entity is not None and query.entity.is_row and not query.groups:
            query.measures = [
                structs.replace(measure, aggregate="") if measure.is_implied else measure for measure in query.measures
            ]
        counts_others = any("DISTINCT" in measure.expression for measure in query.measures)
        if self.excluded and (counts_others or (query.entity is not None and not query.entity.is_row)):
            raise Refusal("whether others without such a row are meant is not clear")
        if query.thresholds or any(measure.aggregate for measure in query.measures):
            self._check_measured()
        elif self.ranked is None:
            self._check_listed()

    def _count_kind(self, item: Item) -> None:
        """Rows by their kind: "how many videos" are the materials of that kind."""
        at = min((at for at in self.values if at > item.at), default=-1)
        column = self.values[at].column if at > 0 else None
        is_kind = column is not None and column.table == self.base.name and column.complete
        is_named_again = column in self.scope.items[at + 1].columns
        if not is_kind or is_named_again or column in (self.base.label, self.base.columns[0]):
            raise Refusal("what is to be counted is not in the tables")
        self.query.measures.append(Measure("*", "COUNT", f"number of {self.base.name}"))

    def _add_values(self) -> None:
        """Values as conditions; several values of one column are shown side by side."""
        places: dict[tuple[Column, bool], list[int]] = {}
        for at, value in self.values.items():
            places.setdefault((value.column, at in self.excluded), []).append(at)
        aggregated = [measure for measure in self.query.measures if measure.aggregate]
        for (column, is_excluded), held in places.items():
            texts = dict.fromkeys(text for at in held for text in self.values[at].values)
            test = f"= {quote(next(iter(texts)))}"
            if is_excluded or len(texts) > 1:
                test = f"{'NOT ' if is_excluded else ''}IN ({', '.join(map(quote, texts))})"
            words = ", ".join(_in_words(self.scope.items[at], is_excluded=is_excluded) for at in held)
            self._add_condition(column, test, words)
            if len(held) > 1 and not is_excluded and aggregated and not self.query.groups:
                if len(aggregated) > 1:
                    raise Refusal("which figure is of which is not clear")
                self.query.groups.append(self.scope.column_group(column))

    def _add_thresholds(self) -> None:
        """A threshold holds for each row, or for what is measured of a group."""
        query = self.query
        is_of_rows = (
            query.entity is None or query.entity.is_row or any(held.expression == "*" for held in query.measures)
        )
        for threshold in self.thresholds:
            measure = threshold.measure
            if measure.column is None:
                query.thresholds.append(threshold)
                continue
            if measure.aggregate and not is_of_rows:
                raise Refusal("it can be read of single rows or of their sum; say total, or the rows")
            self._add_condition(measure.column, threshold.test, threshold.words)
            if query.entity is not None:
                query.measures.append(structs.replace(measure, aggregate=""))

    def _add_rank(self, measure: Measure) -> None:
        """The first places of what is asked for, or without that the extreme itself, of each group if there are any."""
        query = self.query
        column = measure.column
        if query.measures or query.thresholds:
            raise Refusal("it asks for a ranking and for another figure")
        if column is not None and column.table != self.base.name:
            raise Refusal("what is ranked is not in this table")
        query.measures.append(measure)
        asks_for_name = self.rank_word in _ASK_FOR_A_PRICE
        if query.entity is None and not asks_for_name:
            if column is None or not measure.is_implied or query.limit > 1:
                raise Refusal("of what the first places are asked for is not clear")
            query.measures = [column_measure(column, "MAX" if query.direction == "DESC" else "MIN")]
            query.direction = ""
            return
        if query.groups:
            raise Refusal("it asks for a ranking within groups")
        group = query.entity.group if query.entity is not None else self.scope.column_group(self.base.label)
        query.groups.append(group)
        is_row = query.entity is None or query.entity.is_row
        if asks_for_name and not is_row and group.tables != (self.base.name,):
            raise Refusal(f"by what {self.rank_word!r} is meant is not clear")
        if measure.is_implied and measure.aggregate and not is_row and self.rank_word not in _OF_A_SUM:
            reason = f"the {self.rank_word} {measure.label} may be of one row or of a sum; say total {measure.label}"
            raise Refusal(reason)

    def _check_measured(self) -> None:
        query = self.query
        single = [measure.label for measure in query.measures if not measure.aggregate]
        if single:
            raise Refusal(f"how {join_words(single)} is to be put together is not said")
        if not query.groups and query.entity is not None:
            query.groups.append(query.entity.group)
        if not query.groups and query.thresholds:
            raise Refusal("of what this holds is not clear")
        is_average = any(measure.aggregate == "AVG" for measure in query.measures)
        if is_average and any(group.sql == self.base.columns[0].sql for group in query.groups):
            raise Refusal("an average of single rows can be read in two ways")

    def _check_listed(self) -> None:
        """Rows are listed of the table that is asked for, under conditions or all of them; nothing else is guessed."""
        query = self.query
        if _IN_ALL.search(self.clause.text):
            raise Refusal("which total is meant is not said", is_known=True)
        is_lookup = query.measures and (query.conditions or query.groups)
        is_own = query.entity is not None and query.entity.group.tables == (self.base.name,)
        if not (is_lookup if query.entity is None else is_own or self.scope.is_named):
            raise Refusal("what is to be looked up is not in the tables")


def _count_rows(item: Item) -> Measure:
    return Measure("*", "COUNT", f"number of {item.low}")


def _in_words(item: Item, *, is_excluded: bool) -> str:
    return f"not {item.text}" if is_excluded else item.text


def _plain(item: Item) -> str:
    number = item.number or 0.0
    return str(int(number)) if number == int(number) else str(number)


def _time_test(period: Period, before: str = "") -> str:
    first = quote(period.first.isoformat())
    last = quote(period.last.isoformat())
    if before == "between":
        raise Refusal("the second of two times is not said")
    if before:
        return f"{_TIME_SIGNS[before]} {first if before in {'since', 'before'} else last}"
    return f"BETWEEN {first} AND {last}"
