"""Money that a question means without naming its column: the average invoice, what we paid to somebody.

Columns that are named, and counts, are the business of `measures`.
"""

from chargehand.models.offline.question.measures import Measure
from chargehand.models.offline.question.reading import IRREGULAR, Mention, Reading
from chargehand.models.offline.schema_text import Column
from chargehand.models.offline.words import stem

_MONEY = frozenset(stem(word) for word in ("amount", "value", "price", "fee", "fare", "cost", "payment"))
_AVERAGE = frozenset({"average", "mean", "typical"})
_TOTAL = frozenset({"total", "sum"})
_PAID = frozenset({"pay", "paid"})


def total(reading: Reading) -> Measure | None:
    """A sum or an average of the only money a table has, where the question names the table, or says "how much"."""
    return _of_rows(reading) or _billed(reading) or _paid(reading) or _done(reading) or _amount_of(reading)


def _of_rows(reading: Reading) -> Measure | None:
    """Such as the average invoice, or the total of invoices; "total invoices" may be their number."""
    for at, word in enumerate(reading.words[:-1]):
        follows = reading.words[at + 1].low
        place = at + 2 if follows == "of" else at + 1
        if place < len(reading.words) and reading.words[place].low in {"the", "our", "all"}:
            place += 1
        if word.low not in _AVERAGE and not (word.low in _TOTAL and follows == "of"):
            continue
        named = next((one for one in reading.at(place, "table") if one.score >= 1), None)
        if named is not None and (column := _money(reading, named.table)):
            reading.use(at, place)
            reading.use_mention(named)
            return _measure("AVG" if word.low in _AVERAGE else "SUM", column)
    return None


def _billed(reading: Reading) -> Measure | None:
    """What was invoiced in total is the money of invoices, and not their number."""
    asks = [one.low for one in reading.words[:2]] == ["how", "much"]
    for at, word in enumerate(reading.words):
        named = next((one for one in reading.at(at, "table") if one.score >= 1), None)
        led = at > 0 and reading.words[at - 1].low in _TOTAL | {"amount"}
        if named is None or word.low.endswith("s") or not ((led and word.low.endswith("ed")) or asks):
            continue
        if (column := _money(reading, named.table)) is not None:
            reading.use(*((at - 1,) if led else (0, 1)))
            reading.use_mention(named)
            return _measure("SUM", column)
    return None


def _paid(reading: Reading) -> Measure | None:
    """How much was paid: the only money of the only table that says when something happened."""
    words = [one.low for one in reading.words]
    at = reading.place(_PAID)
    if words[:2] not in (["how", "much"], ["what", "did"], ["what", "have"]) or at < 0:
        return None
    dated = [table for table in reading.schema if any(one.dated for one in table.columns)]
    found = [column for table in dated if (column := _money(reading, table.name, "amount payment"))]
    if len(found) != 1:
        return None
    reading.use(0, 1, at)
    return _measure("SUM", found[0])


def _done(reading: Reading) -> Measure | None:
    """How much was won or lost: the only money of the table whose rows say which it was, where they say when too."""
    words = [one.low for one in reading.words]
    asked = {"how much": 2, "what did": 1}.get(" ".join(words[:2]), len(words))
    if words[asked : asked + 1] != ["did"]:
        return None
    for at, word in enumerate(words[asked + 1 : asked + 5], asked + 1):
        told = next((one for one in reading.at(at, "value") if IRREGULAR.get(word) == one.value.lower()), None)
        if told is not None and any(one.dated for one in reading.table(told.table).columns):
            column = _money(reading, told.table)
            reading.use(*range(asked + 1) if column else ())
            return _measure("SUM", column) if column else None
    return None


def _amount_of(reading: Reading) -> Measure | None:
    """The amount of lost deals is one number; the price of the products would be many."""
    at = reading.place({"amount"})
    named = next((one for one in reading.at(at, "column") if _counts(one)), None) if at >= 0 else None
    if named is None or named.column is None or at + 1 >= len(reading.words) or reading.words[at + 1].low != "of":
        return None
    tables = [one for place in range(at + 2, min(at + 6, len(reading.words))) for one in reading.at(place, "table")]
    for one in tables:
        if one.table == named.table and one.score >= 1 and reading.words[one.end - 1].low.endswith("s"):
            reading.use_mention(named)
            reading.use_mention(one)
            return _measure("SUM", named.column)
    return None


def _counts(one: Mention) -> bool:
    return one.column is not None and one.column.numeric and not one.column.key and one.score >= 1


def _money(reading: Reading, table: str, said: str = "") -> Column | None:
    stems = frozenset(stem(word) for word in said.split()) or _MONEY
    found = [one for one in reading.table(table).columns if one.numeric and not one.key and stems & set(one.stems)]
    return found[0] if len(found) == 1 else None


def _measure(kind: str, column: Column) -> Measure:
    label = f"average_{column.name}" if kind == "AVG" else column.name
    return Measure(kind, column.sql, label, (column.table,), column.type.upper().startswith("INT"))
