"""Numbers a question compares with: "more than 50 orders", "cheaper than 20 euros", "between 5 and 10 pages"."""

from msgspec import Struct

from chargehand.models.offline.currencies import currencies
from chargehand.models.offline.question.reading import Mention, Reading
from chargehand.models.offline.schema_text import Column
from chargehand.models.offline.words import STOP, numbers, stem

_COMPARISONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("at", "least"), ">="), (("at", "most"), "<="), (("no", "more", "than"), "<="), (("no", "less", "than"), ">="),
    (("more", "than"), ">"), (("less", "than"), "<"), (("fewer", "than"), "<"), (("older", "than"), ">"),
    (("younger", "than"), "<"), (("longer", "than"), ">"), (("shorter", "than"), "<"), (("greater", "than"), ">"),
    (("higher", "than"), ">"), (("lower", "than"), "<"), (("cheaper", "than"), "<"), (("heavier", "than"), ">"),
    (("over",), ">"), (("above",), ">"), (("under",), "<"), (("below",), "<"), (("exceeding",), ">"),
    ((">=",), ">="), (("<=",), "<="), ((">",), ">"), (("<",), "<"), (("exactly",), "="),
)  # fmt: skip
_HINTS = {"older": "age", "younger": "age", "cheaper": "price", "cost": "price", "costs": "price",
          "longer": "duration", "shorter": "duration", "heavier": "weight", "euros": "price", "dollars": "price",
          "priced": "price", "years": "age", "minutes": "minutes", "km": "km"}  # fmt: skip
_GIVEN = frozenset({"with", "a", "an"})
_BARE = frozenset({"over", "above", "under", "below", "exceeding", "higher", "lower", "greater"})
_LED = _GIVEN | {"of", "at", "for", "whose", "where", "the"}


class Threshold(Struct, frozen=True):
    """A comparison with a number; without a column the measure is compared. `thing` is the word after the number.

    `money`: it is an amount of some currency.
    """

    sign: str
    number: str
    column: Column | None
    counted: str = ""
    thing: str = ""
    money: bool = False


def thresholds(reading: Reading) -> list[Threshold]:
    """Comparisons with numbers."""
    found: list[Threshold] = []
    words = [one.low for one in reading.words]
    at = 0
    while at < len(words):
        if (span := _between(reading, at)) is not None:
            found += span
        match = next((pair for pair in _COMPARISONS if tuple(words[at : at + len(pair[0])]) == pair[0]), None)
        after = at + len(match[0]) if match else at
        said = numbers(words[after]) if match and after < len(words) else []
        if match and said:
            column = _compared(reading, at, after)
            counted, thing = ("", "") if column else _things(reading, after + 1)
            found.append(Threshold(match[1], said[0], column, counted, thing, _paid(reading, after + 1)))
            reading.use(*range(at, after + 1))
            at = after
        at += 1
    return [*found, *_equal(reading)]


def _equal(reading: Reading) -> list[Threshold]:
    """A number right behind the column it stands in: "with size 1000", "with a depth of 40"."""
    found: list[Threshold] = []
    for mention in reading.mentions:
        column = mention.column
        if mention.kind != "column" or column is None or not column.numeric or column.key or mention.score < 0.6:
            continue
        at = _value_place(reading, mention)
        if at and at not in reading.used and (said := numbers(reading.words[at].low)):
            reading.use(*range(mention.begin, at + 1))
            found.append(Threshold("=", said[0], column))
    return found


def _value_place(reading: Reading, mention: Mention) -> int:
    """Where the value of a column stands; 0 where none does. The price of 3 tents is not 3."""
    words = [one.low for one in reading.words]
    before = words[mention.begin - 1] if mention.begin else ""
    of = words[mention.end : mention.end + 1] == ["of"]
    at = mention.end + of
    if at >= len(words) or not words[at][0].isdigit() or before not in (_GIVEN if of else _LED):
        return 0
    counts = any(one.kind != "column" for one in reading.at(at + 1))
    return 0 if counts else at


def _between(reading: Reading, at: int) -> list[Threshold] | None:
    """What lies between two numbers, both of them included."""
    said = [one.low for one in reading.words[at : at + 4]]
    if len(said) < 4 or said[0] != "between" or said[2] != "and":
        return None
    low, high = numbers(said[1]), numbers(said[3])
    if not low or not high:
        return None
    column = _compared(reading, at, at + 3)
    reading.use(*range(at, at + 4))
    return [Threshold(">=", low[0], column), Threshold("<=", high[0], column)]


def _things(reading: Reading, at: int) -> tuple[str, str]:
    """What is counted in "more than 50 orders": the table, else the word as it is."""
    named = reading.at(at, "table")
    if named and named[0].score >= 1:
        return named[0].table, ""
    word = reading.words[at].low if at < len(reading.words) else ""
    return "", "" if word in STOP or currencies(word) else word


def _compared(reading: Reading, at: int, after: int) -> Column | None:
    """The numeric column nearest to the comparison: right after the number, else just before, else hinted at."""
    order = [after + 1, *range(at - 1, max(-1, at - 4), -1), after + 2]
    for place in order:
        if not 0 <= place < len(reading.words):
            continue
        for one in reading.at(place, "column"):
            if one.column and one.column.numeric and not one.column.key and one.score >= 0.4:
                reading.use_mention(one)
                return one.column
    if (own := _own(reading, at, after)) is not None:
        costs = own.currency and at and _HINTS.get(reading.words[at - 1].low) == "price"
        reading.use(*((at - 1,) if costs else ()))
        return own
    for place in (at, *order):
        hint = _HINTS.get(reading.words[place].low, "") if 0 <= place < len(reading.words) else ""
        for column in reading.columns():
            if hint and column.numeric and stem(hint) in column.stems:
                reading.use(place)
                return column
    return None


def _paid(reading: Reading, at: int) -> bool:
    return at < len(reading.words) and bool(currencies(reading.words[at].low))


def _own(reading: Reading, at: int, after: int) -> Column | None:
    """The only money of the table named last before ("invoices of at least 500 euros"), or one called like it."""
    paid = _paid(reading, after + 1)
    named = [one for one in reading.mentions if one.kind == "table" and one.score >= 1 and one.end <= at]
    if not (paid or _bare(reading, at, after)):
        return None
    if not named:
        return _of_value(reading, at)
    table = max(named, key=lambda one: one.end).table
    found = [one for one in reading.columns() if one.table == table and one.numeric and not one.key]
    if paid:
        found = [one for one in found if one.currency]
    stems = reading.table(table).stems
    return found[0] if len(found) == 1 and (found[0].currency or found[0].spoken == stems) else None


def _of_value(reading: Reading, at: int) -> Column | None:
    """The number beside what is named right before, where it has only one: "potassium above 5"."""
    held = {one.table for one in reading.at(at - 1, "value") if not one.part} if at else set[str]()
    numbers = {name: [one for one in reading.table(name).columns if one.numeric and not one.key] for name in held}
    found = [columns[0] for columns in numbers.values() if len(columns) == 1]
    return found[0] if len(found) == 1 else None


def _bare(reading: Reading, at: int, after: int) -> bool:
    """Whether the number stands for itself and is said of rows: "results above 110", but not "over 50 times"."""
    follows = reading.words[after + 1].low if after + 1 < len(reading.words) else ""
    return reading.words[at].low in _BARE and (not follows or follows in STOP) and not follows.endswith("%")
