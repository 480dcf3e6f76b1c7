"""What a question leaves out, or singles out by a number: "but not in May", "without orders", "order 1042"."""

import re

from chargehand.models.offline.question.conditions import NEGATIONS, Condition
from chargehand.models.offline.question.reading import Mention, Reading
from chargehand.models.offline.schema_text import Column, literal
from chargehand.models.offline.words import Dated

_EXCEPT = re.compile(
    r"\b(?P<word>but not|and not|not|except|excluding|without|other than|apart from)"
    r"(?:\s+(?:for|in|during|on|of))?(?:\s+the)?\s*\Z",
    re.IGNORECASE,
)
_NUMBERED = frozenset({"number", "no", "nr", "id", "code", "with", "the", "is", "of"})
_LEAD = frozenset({"any", "a", "an", "the", "single", "been", "have", "had", "did", "were", "was", "has"})


def left_out(reading: Reading, dated: Dated) -> str:
    """The words that say a date is not meant; "but not" stands for whoever has anything in it."""
    found = _EXCEPT.search(reading.text[: dated.start])
    if found is None:
        return ""
    for at, word in enumerate(reading.words):
        if found.start() <= word.start < dated.start:
            reading.use(at)
    return found["word"].lower()


def absent(reading: Reading) -> list[Mention]:
    """Tables that something must have no row in: "products that were never returned", "customers without orders"."""
    found: list[Mention] = []
    for at, word in enumerate(reading.words):
        if word.low not in NEGATIONS or at in reading.used:
            continue
        place = at + 1
        while place < len(reading.words) and reading.words[place].low in _LEAD:
            place += 1
        tables = [one for one in reading.at(place, "table") if one.score >= 1] if place < len(reading.words) else []
        if tables and any(one.kind == "table" and one.begin < at and one.table != tables[0].table
                          for one in reading.mentions if one.score >= 1):  # fmt: skip
            reading.use(*range(at, place + 1))
            found.append(tables[0])
    return found


def identified(reading: Reading) -> list[Condition]:
    """A number that says which one: "order 1042", "customer no. 7"."""
    found: list[Condition] = []
    for at, word in enumerate(reading.words):
        if at in reading.used or not word.low.isdigit():
            continue
        before = at - 1
        while before > 0 and reading.words[before].low in _NUMBERED and before not in reading.used:
            before -= 1
        column = _key(reading, before) if before >= 0 else None
        if column is not None:
            reading.use(*range(before + 1, at + 1))
            value = word.low if column.numeric else literal(word.low)
            found.append(Condition(f"{column.sql} = {value}", column, (word.low,), guessed=True))
    return found


def _key(reading: Reading, at: int) -> Column | None:
    """The column that tells apart what this word names."""
    for one in reading.at(at):
        if one.kind == "table" and one.score >= 0.7:
            reading.use_mention(one)
            return reading.table(one.table).identity
        if one.column is not None and (one.column.key or not one.column.numeric) and not one.column.dated:
            reading.use_mention(one)
            return one.column
    return None
