"""What a question measures: a count, a sum, an average, the least or the most; of a column or of two multiplied."""

from collections.abc import Collection

from msgspec import Struct

from chargehand.models.offline.question.joins import reaches
from chargehand.models.offline.question.reading import DOWN, UP, Mention, Reading
from chargehand.models.offline.schema_text import Column
from chargehand.models.offline.words import STOP, stem


def _stems(words: str) -> frozenset[str]:
    return frozenset(stem(word) for word in words.split())


FUNCTIONS = (
    (_stems("average mean avg typical"), "AVG"), (_stems("maximum max"), "MAX"), (_stems("minimum min"), "MIN"),
    (_stems("total sum overall altogether combined"), "SUM"),
)  # fmt: skip
_REVENUE = _stems("revenue sales turnover income earnings takings proceeds value worth")
_WORTH = _stems("value worth")  # also of what was lost
_PROFIT = _stems("profit margin")
_SPEND = _stems("spend spent spending")
_QUANTITY = _stems("quantity qty units pieces copies")
_UNITS = _stems("units items pieces copies quantity")
_SOLD = _stems("sell sold order ordered buy bought ship shipped deliver delivered")
_PRICE = ("price", "unit_price", "fare", "fee", "rate")
_MONEY = _stems("amount total value price fee fare charge paid payment cost bill invoice")
_PREFIX = {"AVG": "average_", "MAX": "highest_", "MIN": "lowest_", "SUM": ""}
# what is not added up unless somebody says so
_INTENSIVE = _stems("rate age rating score percent temperature speed grade level height salary year")
_LISTED = _stems("price cost fee fare")
_ENDS_TARGET = frozenset({"did", "do", "does", "were", "was", "are", "is", "have", "has", "had", "per", "by", "from",
                          "for", "with", "that", "who", "which", "there", "each", "between", "since"})  # fmt: skip
# "how many rooms take more than two guests" counts rooms
_COMPARING = frozenset(
    {"take", "takes", "cost", "costs", "more", "less", "fewer", "at", "over", "under", "above", "below"}
)


class Measure(Struct, frozen=True):
    """`sql` aggregates `inner`; `tables` holds the ones it needs, the one it counts or adds up over first.

    `whole`: there are no fractions to round.
    """

    kind: str
    inner: str
    label: str
    tables: tuple[str, ...]
    whole: bool = False

    @property
    def sql(self) -> str:
        if self.kind == "COUNT":
            return f"COUNT({self.inner})"
        if self.whole and self.kind != "AVG":
            return f"{self.kind}({self.inner})"
        return f"ROUND({self.kind}({self.inner}), 2)"


def measure(reading: Reading) -> Measure | None:
    """What is measured, as far as words say it; None where rows are asked for as they are."""
    kind = _function(reading)
    for find in (_named, _counted, _worked_out, _money_worked_out, _column_named):
        if found := find(reading, kind):
            return found
    return None


def _function(reading: Reading) -> str:
    for stems, name in FUNCTIONS:
        for at, word in enumerate(reading.words):
            sure = 1 if name in {"MIN", "MAX"} else 2  # minutes are no minimum where there is a column of them
            if stem(word.low) in stems and not any(one.score >= sure for one in reading.at(at, "column")):
                reading.use(at)
                return name
    return ""


def function_place(reading: Reading) -> int:
    """Where a word stands that asks for numbers to be brought together; -1 where none does."""
    asks = frozenset[str]().union(*(stems for stems, _ in FUNCTIONS))
    return next((at for at in sorted(reading.used) if stem(reading.words[at].low) in asks), -1)


def _named(reading: Reading, kind: str) -> Measure | None:
    """A numeric column that is named in full, right after the function word or where a number is asked for."""
    sure = [one for one in _numeric(reading) if one.score >= 1]
    if not kind or not sure:
        return None
    at = function_place(reading)
    behind = [one for one in sure if 0 < one.begin - at <= 3]
    if not behind:
        return None
    return _of_column(reading, behind[0], kind)


def _numeric(reading: Reading) -> list[Mention]:
    found = [one for one in reading.mentions if one.kind == "column" and one.column and one.column.numeric]
    found = [one for one in found if one.column and not one.column.key and one.column.name.lower() != "year"]
    return sorted(found, key=lambda one: (-one.score, one.begin))


def _of_column(reading: Reading, mention: Mention, kind: str) -> Measure | None:
    column = mention.column
    if column is None:
        return None
    reading.use_mention(mention)
    if kind == "SUM" and set(column.spoken) & _stems("price cost") and (many := _quantity(reading, column.table)):
        return Measure("SUM", f"{many.sql} * {column.sql}", f"total_{column.name}", (many.table, column.table))
    chosen = kind or ("AVG" if _level(reading, column) else "SUM")
    return Measure(chosen, column.sql, _PREFIX[chosen] + column.name, (column.table,), _whole(column))


def _level(reading: Reading, column: Column) -> bool:
    """Whether its values are not for adding up: a price is where it was paid on a day, but not in a list of prices."""
    table = reading.table(column.table)
    happened = any(one.dated for one in table.columns) and not set(table.stems) & set(column.spoken)
    return bool(_INTENSIVE & set(column.stems)) or bool(_LISTED & set(column.stems) and not happened)


def _whole(column: Column) -> bool:
    return column.type.upper().startswith("INT")


def _quantity(reading: Reading, near: str = "") -> Column | None:
    """The column that says how many, of another table than the price stands in or of the same."""
    known = [one for one in reading.columns() if one.numeric and _QUANTITY & set(one.stems) and not one.key]
    return next((one for one in known if not near or reaches(reading, one.table, near)), None)


def _counted(reading: Reading, kind: str) -> Measure | None:
    at = _count_word(reading)
    if at < 0 or kind in {"AVG", "MAX", "MIN"}:
        return None
    target = target_of(reading, at + 1)
    if target is not None and target.column is not None and target.column.numeric:
        reading.use(at)
        return _of_column(reading, target, "SUM")
    sold = reading.place_of(_SOLD | _REVENUE)
    many = _quantity(reading)
    units = next((one for one in range(at, min(at + 4, len(reading.words))) if reading.words[one].stem in _UNITS), -1)
    if target is not None and target.kind == "table" and _does_it(reading, target):
        reading.use(at, target.end)
        return _count_of(reading, target)
    if many and (units >= 0 or (sold >= 0 and (target is None or target.table != many.table))):
        reading.use(at, *(place for place in (units, sold) if place >= 0))
        return Measure("SUM", many.sql, many.name, (many.table,), _whole(many))
    if target is None:
        return None
    reading.use(at)
    return _count_of(reading, target)


def _does_it(reading: Reading, target: Mention) -> bool:
    """Whether what is counted does the buying: "how many customers ordered" wants no quantities."""
    return target.end < len(reading.words) and reading.words[target.end].low in {"ordered", "bought", "purchased"}


def counts(reading: Reading) -> bool:
    """Whether a number of things is asked for, known or not."""
    return _count_word(reading) >= 0


def _count_word(reading: Reading) -> int:
    words = [one.low for one in reading.words]
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        if (word == "many" and before == "how") or (word == "often" and before == "how"):
            reading.use(at - 1)
            return at
        if word in {"number", "count", "tally"} and not any(one.score >= 1.5 for one in reading.at(at)):
            return at
    return -1


def target_of(reading: Reading, begin: int) -> Mention | None:
    """What is counted: the last table or column within the noun phrase that begins here."""
    found: Mention | None = None
    for at in range(begin, min(begin + 7, len(reading.words))):
        low = reading.words[at].low
        if low in _ENDS_TARGET or (found and (low.endswith("ed") or low in _COMPARING)):
            break
        if reading.words[at].low == "of" and found and found.column and found.column.numeric:
            break  # "minutes of material" are minutes
        tables = reading.at(at, "table")
        named = tables or [one for one in reading.at(at, "column") if one.column and _countable(one, one.column)]
        if named and (found is None or named[0].score >= found.score):
            found = named[0]
        elif found is None and (values := reading.at(at, "value")):
            found = values[0]
    return found


def _countable(mention: Mention, column: Column) -> bool:
    """A column whose values are told apart, or one that says how many there are: "how many parcels"."""
    if column.dated:
        return False
    return not column.numeric or (mention.score >= 1 and not column.key and not _INTENSIVE & set(column.stems))


def _count_of(reading: Reading, target: Mention) -> Measure:
    if target.kind != "value":
        reading.use_mention(target)
    if target.kind == "value" and (events := [one for one in told(reading) if one != target.table]):
        return count_table(events[0])  # what happened to them is counted, and not how many kinds of them there are
    if target.kind == "column" and target.column and not target.column.key:
        return Measure("COUNT", f"DISTINCT {target.column.sql}", target.column.name, (target.table,))
    return Measure("COUNT", "*", target.table, (target.table,))


def told(reading: Reading) -> list[str]:
    """The tables the question names outright."""
    return list(dict.fromkeys(one.table for one in reading.mentions if one.kind == "table" and one.score >= 1))


def count_table(table: str) -> Measure:
    """How many rows a table has."""
    return Measure("COUNT", "*", table, (table,))


def _worked_out(reading: Reading, kind: str) -> Measure | None:
    at = reading.place_of(_REVENUE | _PROFIT | _SPEND)
    if at < 0:
        return None
    word = reading.words[at].stem
    named = [one for one in _numeric(reading) if one.covers(at)]
    if named and word not in _PROFIT:
        return _of_column(reading, named[0], kind or "SUM")
    reading.use(at)
    label = "profit" if word in _PROFIT else "" if word in _WORTH else "revenue"
    return _priced(reading, kind or "SUM", label)


def _money_worked_out(reading: Reading, kind: str) -> Measure | None:
    """What was sold is money where nothing else is asked for: "what did we sell in May?"."""
    at = reading.place_of(_stems("sell sold earn earned"))
    rows = bool(reading.words) and reading.words[0].low in {"which", "who", "list"} and reading.place(UP | DOWN) < 0
    if at < 0 or rows or [one for one in _numeric(reading) if one.score >= 1]:
        return None
    found = _priced(reading, kind or "SUM", "revenue")
    if found:
        reading.use(at)
    return found


def _priced(reading: Reading, kind: str, label: str) -> Measure | None:
    """Quantity times price (less cost, for a profit), or a column that holds money already."""
    price = _first(reading, _stems("price"), _stems("fare fee rate"))
    cost = _first(reading, _stems("cost"))
    if label == "profit":
        if price is None or cost is None:
            return None
        inner = f"{price.sql} - {cost.sql}"
    else:
        inner = price.sql if price else ""
    many = _quantity(reading, price.table) if price else None
    if price and many:
        product = f"{many.sql} * ({inner})" if label == "profit" else f"{many.sql} * {inner}"
        tables = tuple(dict.fromkeys((many.table, price.table)))
        return Measure(kind, product, _PREFIX[kind] + _in_money(label or "value", price), tables)
    money = _first(reading, _stems("amount total"), _MONEY)
    if money is None or label == "profit":
        return None
    return Measure(kind, money.sql, _PREFIX[kind] + (_in_money(label, money) if label else money.name), (money.table,))


def _in_money(label: str, column: Column) -> str:
    """What money is measured in stays visible."""
    return f"{label}_{column.currency}" if column.currency else label


def _first(reading: Reading, *choices: Collection[str]) -> Column | None:
    for stems in choices:
        for column in reading.columns():
            if column.numeric and not column.key and set(stems) & set(column.stems):
                return column
    return None


def _column_named(reading: Reading, kind: str) -> Measure | None:
    """A numeric column without a function word: only measured where a group or a superlative asks for it."""
    found = [one for one in _numeric(reading) if one.score >= 0.5 and reading.words[one.begin].low not in STOP]
    if not found:
        return None
    return _of_column(reading, found[0], kind) if kind else None


def bare_column(reading: Reading) -> Mention | None:
    """A numeric column somebody names without saying what to do with its values."""
    return next((one for one in _numeric(reading) if one.score >= 0.4), None)


def of_bare(reading: Reading, mention: Mention, kind: str = "") -> Measure | None:
    return _of_column(reading, mention, kind)
