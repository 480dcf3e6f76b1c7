"""Whether a query takes account of everything a question says: a word, number or exclusion that is lost is a reason.

A wrong number is worse than none, so what found no place in the query is not passed over.
"""

import re
from collections.abc import Iterable

from chargehand.models.offline.question.beside import left_over, second
from chargehand.models.offline.question.conditions import NEGATIONS
from chargehand.models.offline.question.draft import Draft
from chargehand.models.offline.question.measures import function_place
from chargehand.models.offline.question.periods import unit_of
from chargehand.models.offline.question.reading import DOWN, UP, Mention, Reading
from chargehand.models.offline.question.thresholds import Threshold
from chargehand.models.offline.schema_text import root
from chargehand.models.offline.vocabulary import PAST
from chargehand.models.offline.words import STOP, numbers, related, stem, tokens

_EMPTY = """please show list give tell find compare look calculate compute determine report get fetch display return
data database table tables record records result results figure figures information details overview numbers values
shop company business firm breakdown broken split compared comparing altogether made happened happen period time
times develop developed changed change changes increase decrease trend exactly currently entire whole following
respectively chart graph plot memo summary because since until through during from euro euros eur dollars usd far name
names identify query sql using based across among ranked sorted order ordered sort rank highest lowest total overall sum
average mean count number amount much many often versus vs difference between against sold sell selling bring brought
make generated generate earn earned got were come came go went have had percent percentage share rate proportion grow
growth grew fall fell rise rose drop stand stood looked check"""
# verbs that only say that something is on record
_LIGHT = """place placed record recorded register registered occur occurred exist exists contain include included belong
ask asked survey surveyed interview interviewed live lives lived say called give gave given please every known part
kind type"""
_FILLER = frozenset(_EMPTY.split()) | frozenset(_LIGHT.split())
_NOWADAYS = frozenset({"today", "yesterday", "tomorrow", "ago", "nowadays", "lately", "recently"})
# what somebody does with what is counted: "how many parcels did she deliver", but not "how many were delivered"
_DONE = """deliver delivered drive drove driven travel travelled cover covered transport transported serve served treat
treated see saw seen produce produced spend spent visit visited teach taught bring collect collected take took receive
received run ran hold held keep kept handle handled carry carried do did done put work worked book booked perform
performed store stored"""
_ACTIVE = frozenset(_DONE.split())
_PASSIVE = frozenset({"was", "were", "been", "be", "being", "is", "are", "get", "got"})
_MEASURED = {
    **dict.fromkeys(
        ("length", "duration", "long", "last", "lasted", "take", "takes", "took"),
        frozenset(map(root, ("minutes", "hours", "days", "seconds", "km"))),
    ),
    **dict.fromkeys(("weight", "heavy"), frozenset(map(root, ("kg", "grams", "tons")))),
    **dict.fromkeys(("distance", "far"), frozenset(map(root, ("km", "miles")))),
}
_ADVICE = frozenset({"should", "ought"})
_WISH = re.compile(
    r"(?:i|we)\s+(?:need|want|miss)\s+an?\s+(?!(?:\w+\s+)?(?:list|chart|table|report|overview|breakdown|summary|number)\b)",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(
    r"\bthen\s*[?.]?\s*$|(?<!are )(?<!is )(?<!was )(?<!were )(?<!be )\bthere\s*[?.]?\s*$"
    r"|\b(?:in|over|at|during)\s+(?:the same|that)\s+(?:time|period|day|week|month|quarter|year)\b",
    re.IGNORECASE,
)
_OF_THEM = re.compile(r"\bwhich one\b|\bof (?:them\b(?!\s+\()|(?:these|those)\b(?!\s+[(\w]))", re.IGNORECASE)
_WHOSE = re.compile(r"\b(?:her|his|hers|she|he|him)\b", re.IGNORECASE)
_GREW = re.compile(
    r"\b(?:grew|grow|grown|increased?|rose|risen|fell|fallen|dropped|declined?|changed?|improved?)\s+(?:by\s+)?(?:the\s+)?"
    r"(?:most|least|fastest|strongest)\b|\b(?:largest|highest|biggest|strongest|fastest|greatest|smallest|steepest)\s+"
    r"(?:increase|growth|rise|drop|decline|fall|change|gain)\b",
    re.IGNORECASE,
)
_ALWAYS = re.compile(
    r"\b(?:in|on|for) (?:every|each|all)(?: of the)? (?:days?|weeks?|months?|quarters?|years?)\b", re.IGNORECASE
)
_FROM_NOW = frozenset({"last", "previous", "past", "next", "this", "coming", "current"})
_FROM = re.compile(r"\b(?:FROM|JOIN) \"?(\w+)")
_BEHIND = 2
_NOTHING = frozenset[str]()
_SENTENCE = re.compile(r"[.?!]\s+(?=[A-Z])")


def telling(reading: Reading) -> list[int]:
    """The places of words that carry meaning."""
    words = enumerate(reading.words)
    return [at for at, one in words if one.low not in STOP and one.low not in _FILLER and not one.low[0].isdigit()]


def lost(reading: Reading, sql: str) -> list[int]:
    """Telling words that neither found a use nor name something in full, nor speak of a column the query uses."""
    return [
        at
        for at in telling(reading)
        if at not in reading.used
        and not any(one.score >= 1 and _taken(one, sql) for one in reading.at(at))
        and not _spoken(reading, at, sql)
    ]


def _taken(mention: Mention, sql: str) -> bool:
    """Whether the query uses what a word names in full: a column of numbers that it leaves out may be what is meant."""
    return mention.column is None or not mention.column.numeric or mention.column.sql in sql


def _spoken(reading: Reading, at: int, sql: str) -> bool:
    """A word for the day of an event ("lent" where there is `lent_on`), for a unit, or for what somebody does."""
    word = reading.words[at]
    tables = set(_FROM.findall(sql))
    if any(one.column and one.column.dated and one.score >= 0.5 and one.table in tables for one in reading.at(at)):
        return True
    if any(related(word.stem, part) >= 0.6 for one in reading.schema if one.name in tables for part in one.stems):
        return True  # who bought something has an order, and what was delivered has a delivery
    if at + 1 in reading.used and any(one.kind == "value" for one in reading.at(at + 1)):
        return word.low.endswith("ed") or word.low in PAST  # what "arrived damaged" is damaged
    used = {part for column in reading.columns() if column.sql in sql for part in column.stems}
    if word.stem in used or _MEASURED.get(word.low, _NOTHING) & used:
        return True
    return word.low in _ACTIVE and not {one.low for one in reading.words[max(0, at - 2) : at]} & _PASSIVE


def uncovered(reading: Reading, draft: Draft, sql: str) -> str:
    """What the query would leave out of the question, in words; empty where it leaves out nothing."""
    found = _SENTENCE.search(reading.text)
    end = found.start() if found else len(reading.text)
    own = [at for at, one in enumerate(reading.words) if one.start < end]
    free = [at for at in own if at not in reading.used]
    if unrecorded := _unrecorded(reading, free, draft):
        return unrecorded
    if unclear := _unclear(reading, draft):
        return unclear
    if numbered := [reading.words[at].raw for at in free if _unused_number(reading, at)]:
        return f"it is not clear what {listed(numbered)} stands for"
    if excluded := [reading.words[at].raw for at in free if reading.words[at].low in NEGATIONS | {"than"}]:
        return f"it is not clear what {listed(excluded)} leaves out"
    if ranked := [reading.words[at].raw for at in free if reading.words[at].low in UP | DOWN and _plain(reading, at)]:
        return f"only one ranking at a time is made, which leaves out {listed(ranked)}"
    missing = lost(reading, sql)
    if words := [reading.words[at].raw for at in own if at in missing or _alternative(reading, at)]:
        return f"nothing there says {listed(words)}"
    return ""


def _unclear(reading: Reading, draft: Draft) -> str:
    """Why it is not clear which number is meant."""
    if any(one.column is None and not one.counted and not _measures(draft, one) for one in draft.limits):
        return f"it is not clear which column {_number(draft)} is compared with"
    if draft.ranked is not None and draft.measured is None and draft.ratio is None and draft.ranked.column is None:
        return "nothing there tells what comes first"
    if draft.measured is None and draft.ratio is None and (at := function_place(reading)) >= 0:
        return f"it is not clear of what {listed([reading.words[at].raw])} is wanted"
    if draft.defaulted and (at := function_place(reading)) >= 0 and not _of_things(reading, at):
        return f"it is not clear of what {listed([reading.words[at].raw])} is wanted"
    if draft.measured is not None and (counted := left_over(reading) or second(reading, draft.measured)):
        return f"only the numbers of one table are given at a time, which leaves out the {counted}"
    if counted := [one for one in draft.limits if one.counted and not _counts(draft, one.counted)]:
        return f"it is not clear what more or less than {counted[0].number} {counted[0].counted} is about"
    return ""


def _unrecorded(reading: Reading, free: list[int], draft: Draft) -> str:
    """Why no table can say it: it goes by what day it is, by what would be good, or is a story."""
    if said := _from_now(reading, free):
        return f'"{said}" depends on what day it is, which is not known here: name the period'
    told = [one.low for one in reading.words[:2]]
    if draft.measured is None and told[:1] == ["what"] and told[1:] in (["happened"], ["happens"]):
        return "it asks what happened, and tables hold figures"
    if said := _ELSEWHERE.search(reading.text):
        return f'"{said[0].strip(" ?.")}" is said elsewhere: name it'
    if said := _OF_THEM.search(reading.text):
        return f'whom "{said[0]}" means is said elsewhere: name them'
    if draft.ranked is not None and (said := _GREW.search(reading.text)):
        return f'it asks what "{said[0]}", and changes are not ranked: ask for the numbers of both periods'
    if (said := _WHOSE.search(reading.text)) and not _named_before(reading, said.start()):
        return f'whom "{said[0]}" means is said elsewhere: name them'
    if draft.limits and _ALWAYS.search(reading.text):
        return "it asks what holds every time, and only sums and single rows are looked at"
    if _WISH.match(reading.text):
        return "it is a wish, and no question for tables"
    advice = any(reading.words[at].low in _ADVICE for at in free)
    return "it asks what should be, and tables hold what is" if advice else ""


def _named_before(reading: Reading, end: int) -> bool:
    """Whether somebody is named whom a "her" may mean."""
    known = [*(one.begin for one in reading.mentions if one.kind == "value"), *reading.named]
    return any(reading.words[at].start < end for at in known)


def listed(words: Iterable[str]) -> str:
    return " or ".join(f'"{word}"' for word in dict.fromkeys(words))


def _from_now(reading: Reading, free: list[int]) -> str:
    words = reading.words
    for at in free:
        if words[at].low in _NOWADAYS:
            return words[at].raw
        tail = words[at + 1 : at + 3]
        if words[at].low in _FROM_NOW and any(unit_of(one.low) for one in tail):
            return " ".join(one.raw for one in (words[at], *tail))
    return ""


def _number(draft: Draft) -> str:
    return next(one.number for one in draft.limits if one.column is None and not one.counted)


def _measures(draft: Draft, one: Threshold) -> bool:
    """Whether the number is compared with what is measured for each group: an amount of money is no number of rows."""
    if one.money and draft.measured is not None and draft.measured.kind == "COUNT":
        return False
    label = draft.measured.label if draft.measured else ""
    return bool(draft.groups) and (not one.thing or stem(one.thing) in map(stem, tokens(label)))


def _counts(draft: Draft, table: str) -> bool:
    measured = draft.measured
    return measured is not None and measured.kind == "COUNT" and measured.tables[0] == table and bool(draft.groups)


def _unused_number(reading: Reading, at: int) -> bool:
    """Digits always count; a number in words only where it is not "the three", who are known already."""
    word = reading.words[at].low
    if any(one.kind == "value" for one in reading.at(at)):
        return False
    if word[0].isdigit():
        return True
    before = reading.words[at - 1].low if at else ""
    return bool(numbers(word)) and word not in STOP and before not in {"the", "these", "those"}


def _alternative(reading: Reading, at: int) -> bool:
    """Whether a word stands behind a value and "or" without being one, however empty it is: "planned or done"."""
    if at < _BEHIND or at in reading.used or reading.words[at - 1].low != "or" or reading.at(at):
        return False
    last = at + 1 == len(reading.words)
    return last and any(one.kind == "value" for one in reading.at(at - 2))


def _of_things(reading: Reading, at: int) -> bool:
    """Whether what is totalled is things themselves: the total orders are their number."""
    return any(one.kind == "table" and reading.words[one.end - 1].low.endswith("s") for one in reading.at(at + 1))


def _plain(reading: Reading, at: int) -> bool:
    return not any(one.score >= 1 for one in reading.at(at))
