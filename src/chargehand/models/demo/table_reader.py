"""The readers of a question to tables: each takes words of a clause and adds a part to the query.

Operators such as "average", "per", "highest" or "how many" wait for the noun they belong to; a noun is a table, a
column or a value. Every word is used by a part of the query or there is no query.
"""

import re

from msgspec import structs

from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.table_schema import Value
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
from chargehand.models.demo.words import LIGHT_VERBS, stem, word_set

_MOST_COLUMNS = 6
_PRICE_RANKS = frozenset(("cheapest", "priciest", "most expensive", "least expensive"))
_TIME_UNITS = {"month": 7, "year": 4, "day": 10}
_UNITS = {"euro": "EUR", "euros": "EUR", "eur": "EUR", "dollars": "USD", "usd": "USD", "percent": "percent"}
_SELL = frozenset(map(stem, word_set("sell sold")))
_OF_A_COUNT = word_set("most fewest least")
_DID = word_set("did do does")
_AUXILIARIES = word_set("did do does has have had was were is are")
_DIFFERENT = word_set("different distinct")
_PIECES = word_set("units items pieces")
_LINK = re.compile(r",?\s*\b(?:and|or|nor)\b", re.IGNORECASE)


class QueryReader:
    """One try to read a clause as a question about the rows of one table and what they refer to.

    Each reader looks at one item and says whether it takes it; then it adds a part to the query. Operators wait for
    the noun that they belong to.
    """

    def __init__(self, clause: Clause, scope: Scope) -> None:
        self.clause = clause
        self.scope = scope
        self.base = scope.base
        self.query = TableQuery(scope.base)
        self.used: set[int] = set()
        """The places of the items that were taken."""
        self.waiting: dict[OperatorKind, Item] = {}
        self.last_value: Item | None = None

    def read(self) -> TableQuery:
        """The parts of the query; RefusedError where a word cannot be read."""
        times = read_times(self.clause, self.scope)
        if times is not None:
            self.query.conditions.append(times.condition)
            self.query.groups += [times.group] if times.group is not None else []
            self.query.time_words = times.words
            self.query.refusal = times.refusal
        readers = (
            self._read_operator,
            self._read_limit,
            self._is_adjunct,
            self._read_equality,
            self._read_threshold,
            self._read_group,
            self._read_measure,
            self._read_entity,
            self._read_value,
        )
        for item in self.scope.items[:-1]:
            if item.at not in self.used and any(reader(item) for reader in readers):
                self.used.add(item.at)
        self.used |= times.used if times is not None else set()
        self.waiting.pop("entity", None)
        for item in self.waiting.values():
            raise RefusedError(f"what {item.text!r} belongs to is not clear")
        return self.query

    def leftover(self) -> list[Item]:
        """The items that nothing accounts for."""
        items = self.scope.items[:-1]
        return [item for item in items if item.at not in self.used and not self._says_nothing_more(item)]

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
        """Little words, a unit, the name of a table that is read, that of a column beside its value."""
        if item.low == "or":
            return len(self.clause.periods) > 1
        if not item.refs:
            is_unit = _UNITS.get(item.low) in {measure.unit for measure in self.query.measures}
            return item.is_free or item.stems[0] in LIGHT_VERBS or is_unit
        beside = [self.scope.items[item.at - 1], self._after(item)]
        columns = {value.column for other in beside if other.at in self.used for value in other.values}
        is_table = any(table.name in self.query.tables for table in item.tables)
        is_one_of_two = any(other.low in {"and", "or"} for other in beside)  # "orders and revenue"
        return (is_table and not is_one_of_two) or not columns.isdisjoint(item.columns)

    # --- operators

    def _read_operator(self, item: Item) -> bool:
        kind = item.operator
        match kind:
            case None:
                return False
            case "count":
                self._read_count(item)
                return True
            case "compare":
                return self._read_threshold(item)
            case "entity" if item.at > 3 or "entity" in self.waiting:
                return False
            case "aggregate":
                self.waiting.pop("entity", None)
            case _:
                pass
        following = self._next(item)
        is_vain = kind == "not" and self.scope.flag(following) is None and self.scope.value(following) is None
        if is_vain or kind in self.waiting or (kind == "rank" and self.query.rank is not None):
            raise RefusedError(f"what {item.text!r} belongs to is not clear")
        self.waiting[kind] = item
        if item.low in _PRICE_RANKS:
            self._rank_by_price(item)
        elif item.low == "top":
            self.waiting["entity"] = item
        return True

    def _rank_by_price(self, item: Item) -> None:
        if len(self.base.prices) != 1:
            raise RefusedError(f"by what {item.text!r} is meant is not clear")
        self._add_measure(column_measure(self.base.prices[0]))

    def _aggregate(self) -> str:
        """The aggregate that waits."""
        return self.waiting.get("aggregate", self.scope.items[-1]).operator_value

    def _add_measure(self, measure: Measure) -> None:
        """A measure for what waits: what is ranked by it, else what is asked for."""
        self.waiting.pop("aggregate", None)
        item = self.waiting.pop("rank", None)
        if item is None:
            self.waiting.pop("entity", None)
            self.query.measures.append(measure)
            return
        if item.low == "best" and {"price", "cost", "fee"} & set(measure.label.split()):
            raise RefusedError(f"whether the highest or the lowest {measure.label} is best is not clear")
        is_by_price = item.low in _PRICE_RANKS
        self.query.rank = Rank(measure, item.operator_value, item.low, is_by_price=is_by_price)

    def _read_count(self, item: Item) -> None:
        """How many X, the number of X, how many X were sold; X may have values before it, or be one."""
        self.waiting.pop("entity", None)
        if self._aggregate() == "SUM":
            del self.waiting["aggregate"]  # the total number
        noun = self._after(item)
        sold = {other.at for other in self.scope.items if other.stems[0] in _SELL}
        if sold and self.base.quantity is not None and item.low != "how much":
            self.used |= sold | ({noun.at} if noun.low in _PIECES and not noun.refs else set())
            self._add_measure(structs.replace(column_measure(self.base.quantity, "SUM"), label="number sold"))
            return
        kinds: list[Item] = []
        is_distinct = False
        while self._is_before_noun(noun):
            is_distinct = is_distinct or noun.low in _DIFFERENT
            kinds += [noun] if noun.refs and not self._is_adjunct(noun) else []
            noun = self._after(noun)
        if self._aggregate():
            measure = self.scope.measure(noun, self._aggregate())  # the average number of employees
        else:
            measure = self._counted(noun, is_distinct=is_distinct)
        if measure is not None:
            self.used |= {noun.at} | {other.at for other in self.scope.items if other.low in _DIFFERENT}
        elif kinds and self._is_kind(kinds[0], is_first=kinds[0].at == item.at + 1):
            measure = Measure("*", "COUNT", f"number of {self.base.name}")
        else:
            self.waiting["count"] = item  # refused, unless a better reason is found
            return
        self._add_measure(measure)

    def _is_before_noun(self, item: Item) -> bool:
        if not item.refs:
            return item.low in _DIFFERENT or (item.is_free and item.low not in _AUXILIARIES)
        return self._is_adjunct(item) or self.scope.flag(item) is not None or self.scope.value(item) is not None

    def _counted(self, item: Item, *, is_distinct: bool) -> Measure | None:
        """Rows, a column that adds up, or different values."""
        if not is_distinct:
            measure = _count_rows(item) if self.base in item.tables else self.scope.measure(item)
            if measure is not None and measure.aggregate:
                return measure
        table = self.scope.table(item)
        column = self.scope.text_column(item) or (table.columns[0] if table is not None else None)
        values = [value.column for value in self.scope.items[item.at - 1].values]
        if column is None or column in values:  # "Owl lamps"
            return None
        is_own = column.table == self.base.name and (not column.is_key or column == self.base.columns[0])
        is_row = column == self.base.label and self.base.key is None
        is_conditional = bool(self.clause.periods) or any(other.values for other in self.scope.items)
        may_be_pieces = is_conditional and (is_own or (table is not None and bool(table.prices)))
        if not (is_own or self.scope.is_named) or ((is_row or may_be_pieces) and not is_distinct):
            return None
        return Measure(f"DISTINCT {column.sql}", "COUNT", f"number of {item.low}", tables=(column.table,))

    def _is_kind(self, item: Item, *, is_first: bool) -> bool:
        """Whether rows are counted by their kind: "how many videos" are the materials of that kind."""
        value = self.scope.value(item)
        if value is None or value.column in self._after(item).columns:
            return False
        column = value.column
        may_be_pieces = is_first and self.base.quantity is not None
        is_row = column in (self.base.label, self.base.columns[0])
        return column.table == self.base.name and column.complete and not (may_be_pieces or is_row)

    # --- numbers

    def _read_limit(self, item: Item) -> bool:
        """Which three products, the top 5."""
        if item.number is None or self.query.limit or not {"entity", "rank"} & set(self.waiting):
            return False
        self.query.limit = max(1, int(item.number))
        return True

    def _read_equality(self, item: Item) -> bool:
        """Order 1003, size 100."""
        number = self._after(item)
        if number.number is None:
            return False
        key = self.base.columns[0]
        is_key = self.base in item.tables and key.is_key and key.type == "INTEGER"
        column = key if is_key else self.scope.number_column(item)
        if column is None:
            return False
        words = f"{item.text} {_plain(number)}"
        self.query.conditions.append(Condition(f"{column.sql} = {_plain(number)}", words, (column.table,)))
        self.used.add(number.at)
        return True

    def _read_threshold(self, item: Item) -> bool:
        """A price above 100, more than 100 orders."""
        is_first = item.operator is not None
        comparison = item if is_first else self._next(item)
        if comparison.operator != "compare":
            return False
        number = self._after(comparison)
        unit = self._after(number)
        if unit.low not in _UNITS:
            unit = number
        noun = self._next(unit) if is_first else item
        measure = self.scope.measure(noun)
        if measure is None and is_first and self.base in noun.tables:
            measure = _count_rows(noun)
        if number.number is None or (measure is None and is_first):
            raise RefusedError(f"what {comparison.text!r} compares is not clear")
        if measure is None:
            return False
        if unit is not number and measure.unit != _UNITS[unit.low]:
            raise RefusedError(f"{measure.label} is not counted in {unit.text}")
        self.query.thresholds.append(Threshold(measure, f"{comparison.operator_value} {_plain(number)}"))
        self.used |= {comparison.at, number.at, unit.at, noun.at}
        return True

    # --- nouns

    def _is_adjunct(self, item: Item) -> bool:
        """Whether it is the first of two nouns that are one: the product category, the feature requests."""
        following = self._after(item)
        if item.low.endswith("s") or self.clause.text[item.end : following.start] != " ":
            return False
        if self.base in following.tables:
            return self._group(item) is not None and not item.values
        texts = {column.table for column in following.columns if column.is_text}
        return any(table.name in texts for table in item.tables)

    def _read_group(self, item: Item) -> bool:
        if "group" not in self.waiting:
            return False
        if "rank" in self.waiting and self.scope.measure(item) is not None:
            del self.waiting["group"]  # "by revenue" says what is ranked
            return False
        group = self._group(item)
        if group is None:
            return False
        self.query.groups.append(group)
        link = self._after(item)
        if link.low != "and" or self._group(self._after(link)) is None:
            del self.waiting["group"]
        return True

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

    def _read_measure(self, item: Item) -> bool:
        """A figure: aggregated, ranked by, or asked for as it is."""
        rank = self.waiting.get("rank")
        table = self.scope.table(item)
        if self.waiting.keys() == {"entity"} and table is not None and item.low == table.name:
            return False  # the table is asked for
        measure = self.scope.measure(item, self._aggregate())
        if rank is not None and table is self.base and rank.low in _OF_A_COUNT:
            measure = _count_rows(item) if measure is None or item.low == self.base.name else measure
        if measure is None:
            return False
        self._add_measure(measure)
        return True

    def _read_entity(self, item: Item) -> bool:
        if "entity" not in self.waiting or self.scope.flag(item) is not None:
            return False
        table = self.scope.table(item)
        if table is not None and item.low not in _TIME_UNITS:
            is_row = table is self.base
            listed = table.columns[:_MOST_COLUMNS] if is_row else (table.columns[0], table.label)
            columns = [column.sql for column in listed]
            group = self.scope.column_group(table.label)
        else:
            group = self._group(item)
            if group is None:
                return False
            columns = [group.sql]
            is_row = self.base.key is not None and self.scope.text_column(item) in (self.base.key, self.base.label)
        del self.waiting["entity"]
        self.query.entity = Entity(item.text, group, tuple(columns), is_row)
        return True

    def _read_value(self, item: Item) -> bool:
        flag = self.scope.flag(item)
        value = self.scope.value(item) if flag is None else Value(flag, ("yes",))
        if value is None:
            return False
        is_excluded = self.waiting.pop("not", None) is not None or self._continues_exclusion(item, value)
        self.query.filters.append(Filter(item.text, value, is_excluded))
        self.last_value = item
        if "group" in self.waiting and self.waiting["group"].low == "by":
            del self.waiting["group"]  # "placed by Ada Brandt"
        return True

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
        is_done_by = not between and self.scope.items[last.at - 1].low in _DID  # "did Plotline win"
        if not is_same and (is_linked or is_done_by):
            reason = f"{phrase!r} may mean both at once or each of them; ask for one at a time"
            raise RefusedError(reason, is_known=True)
        if is_same and not between and other.value != value:
            reason = f"{phrase!r} names two values of {value.column.sql}; say which is meant"
            raise RefusedError(reason, is_known=True)
        if is_same and is_linked:
            self.used |= set(range(last.at + 1, item.at))
        return other.is_excluded and is_same and bool(is_linked)


def _count_rows(item: Item) -> Measure:
    return Measure("*", "COUNT", f"number of {item.low}")


def _plain(item: Item) -> str:
    number = item.number or 0.0
    return str(int(number)) if number == int(number) else str(number)
