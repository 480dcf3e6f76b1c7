"""Further numbers that a question asks for beside the first: "the number of items and the total minutes of each kind".

They are of the same rows as the first one. What the first is, is decided in `measures`.
"""

from chargehand.models.offline.question.measures import FUNCTIONS, Measure, of_bare
from chargehand.models.offline.question.reading import Mention, Reading
from chargehand.models.offline.words import stem

_FEW = 4
_JOINS = frozenset({"and", "the", "their", "its", "of"})


def beside(reading: Reading, measured: Measure) -> list[Measure]:
    """What else is measured. Numbers of other tables are not: their words stay without a use, and are missed."""
    found = [*_counted(reading, measured), *_columns(reading, measured)]
    return found[:_FEW]


def left_over(reading: Reading) -> str:
    """A count that is asked for and not made, in words; empty where there is none."""
    at = _unused(reading)
    target = _thing(reading, at) if at >= 0 else None
    if target is None or (target.column is not None and target.column.numeric):
        return ""
    return " ".join(one.raw for one in reading.words[at : target.end])


def second(reading: Reading, measured: Measure) -> str:
    """What is to be counted beside another table, in words: "how many bills and firms are there" asks for both."""
    for at, word in enumerate(reading.words[1:-1], 1):
        if word.low != "and" or measured.kind != "COUNT":
            continue
        sides = [[one for one in reading.at(place, "table") if one.score >= 1] for place in (at - 1, at + 1)]
        tables = [one.table for side in sides for one in side[:1]]
        asks = {one.low for one in reading.words[max(0, at - 3) : at]} & {"many", "number"}
        if len(tables) > 1 and len({*tables}) > 1 and measured.tables[0] in tables and asks:
            other = sides[0] if measured.tables[0] == tables[1] else sides[1]
            return f"number of {reading.words[other[0].begin].raw}"
    return ""


def _counted(reading: Reading, measured: Measure) -> list[Measure]:
    at = _unused(reading)
    target = _thing(reading, at) if at >= 0 and measured.kind != "COUNT" else None
    if target is None or target.kind != "table" or target.table != measured.tables[0]:
        return []
    reading.use(at)
    reading.use_mention(target)
    return [Measure("COUNT", "*", target.table, (target.table,))]


def _columns(reading: Reading, measured: Measure) -> list[Measure]:
    """Numbers that are joined to the first with "and", each by the word before it, or by that of the first."""
    found: list[Measure] = []
    for mention in sorted(reading.mentions, key=lambda one: one.begin):
        if not _free(reading, mention, measured):
            continue
        kind, led = _led(reading, mention.begin)
        made = of_bare(reading, mention, kind or _kind(measured)) if led else None
        if made is not None:
            found.append(made)
    return found


def _free(reading: Reading, mention: Mention, measured: Measure) -> bool:
    column = mention.column
    if column is None or not column.numeric or column.key or mention.score < 1:
        return False
    taken = bool(set(range(mention.begin, mention.end)) & reading.used)
    return not taken and column.table == measured.tables[0] and column.sql not in measured.inner


def _led(reading: Reading, at: int) -> tuple[str, bool]:
    """The word for what is to be done with it, and whether that or "and" stands just before it."""
    for place in range(at - 1, max(-1, at - 5), -1):
        word = reading.words[place].low
        if word == "and":
            return "", True
        if word not in _JOINS:
            kind = _function(reading, place)
            return kind, bool(kind)
    return "", False


def _kind(measured: Measure) -> str:
    """An average of one number and another is of both; what is counted or added up says nothing of the next."""
    return measured.kind if measured.kind in {"AVG", "MAX", "MIN"} else ""


def _function(reading: Reading, place: int) -> str:
    """What a word asks to be done with numbers; nothing where it does not."""
    found = next((name for stems, name in FUNCTIONS if stem(reading.words[place].low) in stems), "")
    reading.use(*((place,) if found else ()))
    return found


def _unused(reading: Reading) -> int:
    """Where a number of things is asked for that was not made; -1 where that is nowhere so."""
    words = [one.low for one in reading.words]
    for at, word in enumerate(words):
        asks = word in {"number", "count"} and words[at + 1 : at + 2] == ["of"]
        if at not in reading.used and (asks or (word == "many" and words[at - 1 : at] == ["how"])):
            return at
    return -1


def _thing(reading: Reading, at: int) -> Mention | None:
    """What is counted: the first table or column that is named within the next words, before an "and"."""
    for place in range(at + 1, min(at + 6, len(reading.words))):
        if reading.words[place].low == "and":
            return None
        if found := [one for one in reading.at(place) if one.kind == "table" or one.score >= 1]:
            return found[0]
    return None
