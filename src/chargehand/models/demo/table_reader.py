"""The readers of a question to tables: each takes words of a clause and adds a part to the query.

Operators such as "average", "per", "highest" or "how many" wait for the noun they belong to; a noun is a table, a
column or a value. Every word is used by a part of the query or there is no query.
"""

import re

from msgspec import structs

from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.table_schema import Column, Value
from chargehand.models.demo.table_sql import (
    Condition,
    Entity,
    Filter,
    Group,
    Measure,
    Rank,
    TableQuery,
    Threshold,
    column_measure,
)
from chargehand.models.demo.table_times import read_times
from chargehand.models.demo.table_words import Item, OperatorKind, Scope
from chargehand.models.demo.words import LIGHT_VERBS, join_words, stem, word_set

_MOST_COLUMNS = 6
_MOST_NAMES = 4
_PRICE_RANKS = frozenset(("cheapest", "priciest", "most expensive", "least expensive"))
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
_AUXILIARIES = word_set("did do does has have had was were is are")
_LINK = re.compile(r",?\s*\b(?:and|or|nor)\b", re.IGNORECASE)


class Leftover(RefusedError):
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


class QueryReader:
    """One try to read a clause as a question about the rows of one table and what they refer to.

    Each reader looks at one item, adds to the query and says how many items it used, 0 if it is not its own.
    """

    def __init__(self, clause: Clause, scope: Scope) -> None:
        self.clause = clause
        self.scope = scope
        self.base = scope.base
        self.query = TableQuery(scope.base)
        self.used: set[int] = set()
        self.waiting: dict[OperatorKind, Item] = {}
        """Operators whose noun is yet to come."""
        self.last_value: Item | None = None
        self.is_distinct = False

    def read(self) -> TableQuery:
        """The parts of the query; RefusedError where a word cannot be read."""
        times = read_times(self.clause, self.scope)
        if times is not None:
            self.used |= times.used
            self.query.conditions.append(times.condition)
            self.query.groups += [times.group] if times.group is not None else []
            self.query.time_words = times.words
            self.query.refusal = times.refusal
        readers = (
            self._read_operator,
            self._read_limit,
            self._skip_adjunct,
            self._read_equality,
            self._read_threshold,
            self._read_group,
            self._read_measure,
            self._read_entity,
            self._read_value,
        )
        at = 0
        while at < len(self.scope.items) - 1:
            item = self.scope.items[at]
            size = next((size for reader in readers if (size := reader(item))), 0)
            self.used |= set(range(at, at + size))
            at += max(1, size)
        if "count" in self.waiting:
            self._count_kind(self.waiting.pop("count"))
        self.waiting.pop("entity", None)
        for item in self.waiting.values():
            raise RefusedError(f"what {item.text!r} belongs to is not clear")
        return self.query

    def check_leftover(self) -> None:
        """RefusedError where words are left over."""
        items = self.scope.items[:-1]
        leftover = [item for item in items if item.at not in self.used and not self._says_nothing_more(item)]
        if leftover:
            raise Leftover(leftover)

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
            is_state = item.stems[0] in _STATES and bool(self._after(item).values)
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
            raise RefusedError(f"what {item.text!r} leaves out is not clear")
        if kind in self.waiting or (kind == "rank" and self.query.rank is not None):
            raise RefusedError(f"what {item.text!r} belongs to is not clear")
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
        if item.low in _PRICE_RANKS:
            prices = self.base.prices
            if len(prices) != 1:
                raise RefusedError(f"by what {item.text!r} is meant is not clear")
            self._rank_by(column_measure(prices[0]))
        elif item.low == "top":
            self._wait(item, "entity")
        return 1

    def _rank_by(self, measure: Measure) -> None:
        item = self.waiting.pop("rank")
        if item.low == "best" and {"price", "cost", "fee"} & set(measure.label.split()):
            raise RefusedError(f"whether the highest or the lowest {measure.label} is best is not clear")
        direction = item.operator.value if item.operator is not None else ""
        self.query.rank = Rank(measure, direction, item.low, is_by_price=item.low in _PRICE_RANKS)

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
            raise RefusedError(f"what {comparison.text!r} compares is not clear")
        if measure is None:
            return 0
        if unit and measure.unit != unit:
            raise RefusedError(f"{measure.label} is not counted in {unit}")
        sign = comparison.operator.value
        self.query.thresholds.append(Threshold(measure, f"{sign} {_plain(number)}"))
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

    def _read_measure(self, item: Item) -> int:
        """A figure: counted, aggregated, ranked by, or asked for as it is."""
        rank = self.waiting.get("rank")
        table = self.scope.table(item)
        if self.waiting.keys() == {"entity"} and table is not None and item.low == table.name:
            return 0  # the table is asked for
        if "count" in self.waiting and item.low in {"different", "distinct"}:
            self.is_distinct = True
            return 1
        if "count" in self.waiting and "aggregate" not in self.waiting:
            measure = self._counted(item)
        else:
            measure = self.scope.measure(item, self._aggregate())  # also the average number of employees
        if measure is None and rank is not None and table is self.base and rank.low not in {"top", "best"}:
            measure = _count_rows(item)
        if measure is None:
            return 0
        self.waiting.pop("count", None)
        self.waiting.pop("aggregate", None)
        if rank is not None:
            self._rank_by(measure)
        else:
            self.waiting.pop("entity", None)
            self.query.measures.append(measure)
        return 1

    def _counted(self, item: Item) -> Measure | None:
        """Rows, a column that adds up, or different values; what comes after a verb is not what is counted."""
        between = self.scope.items[self.waiting["count"].at : item.at]
        if any(held.low in _AUXILIARIES for held in between):
            return None
        if not self.is_distinct:
            measure = _count_rows(item) if self.base in item.tables else self.scope.measure(item)
            if measure is not None and measure.aggregate:
                return measure
        table = self.scope.table(item)
        column = self.scope.text_column(item) or (table.columns[0] if table is not None else None)
        if column is None or self._is_named_again(item, column):
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
        value = self.scope.value(item) if flag is None else Value(flag, ("yes",))
        if value is None:
            return 0
        is_excluded = self.waiting.pop("not", None) is not None or self._continues_exclusion(item, value)
        self.query.filters.append(Filter(item.at, item.text, value, is_excluded))
        self.last_value = item
        if "group" in self.waiting and self.waiting["group"].low == "by":
            del self.waiting["group"]  # "placed by Ada Brandt"
        return 1

    def _continues_exclusion(self, item: Item, value: Value) -> bool:
        """Not A or B; RefusedError where how a value goes with the last one is not clear."""
        last = self.last_value
        if last is None:
            return False
        other = self.query.filters[-1]
        is_same = other.value.column == value.column
        between = self.clause.text[last.end : item.start].strip()
        phrase = self.clause.text[last.start : item.end]
        is_linked = _LINK.match(between) and all(held.is_free for held in self.scope.items[last.at + 1 : item.at])
        if not is_same and is_linked:
            raise RefusedError(
                f"{phrase!r} may mean both at once or each of them; ask for one at a time", is_known=True
            )
        if is_same and not between and other.value != value:
            raise RefusedError(f"{phrase!r} names two values of {value.column.sql}; say which is meant", is_known=True)
        return other.is_excluded and is_same and bool(is_linked)

    def _is_named_again(self, item: Item, column: Column) -> bool:
        """Whether an item names the column of the value before it: Owl lamps."""
        filters = self.query.filters
        return bool(filters) and filters[-1].at == item.at - 1 and filters[-1].value.column == column

    def _count_kind(self, item: Item) -> None:
        """Rows by their kind: "how many videos" are the materials of that kind."""
        kind = next((held for held in self.query.filters if held.at > item.at), None)
        if kind is not None:
            column = kind.value.column
            is_own = column.table == self.base.name and column.complete
            is_named_again = column in self.scope.items[kind.at + 1].columns
            may_be_pieces = self.base.quantity is not None and kind.at == item.at + 1
            is_row = column in (self.base.label, self.base.columns[0])
            if is_own and not (is_named_again or may_be_pieces or is_row):
                self.query.measures.append(Measure("*", "COUNT", f"number of {self.base.name}"))
                return
        raise RefusedError("what is to be counted is not in the tables")


def _count_rows(item: Item) -> Measure:
    return Measure("*", "COUNT", f"number of {item.low}")


def _plain(item: Item) -> str:
    number = item.number or 0.0
    return str(int(number)) if number == int(number) else str(number)
