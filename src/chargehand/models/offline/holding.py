"""Whether a passage says a word of a question: the word itself, one near it, or what only such a passage can hold.

Which words of a question must be said is the business of `evidence`.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from chargehand.models.exhibits import Passage
from chargehand.models.offline.currencies import currencies
from chargehand.models.offline.mistyped import SHORTEST, mistyped
from chargehand.models.offline.words import STOP, VERBS, dates, names, numbers, related, stem, terms, tokens

CAUSE = "a cause"
NUMBER = "a number"
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_WORD = re.compile(r"[^\W\d_]{3,}")
_ANY = re.compile(r"\w[\w,.'\u2019-]*(?<![,.])")
_DIGIT = re.compile(r"\d")
_SPAN = re.compile(r"\d\s*(?:\w+\s+)?(?:minute|hour|day|week|month|year)s?\b|\d\d?:\d\d\b", re.IGNORECASE)
_CLOCK = re.compile(r"\b\d\d?:\d\d\b|\b\d\d?\s?[ap]\.?m\b|o'clock", re.IGNORECASE)
_BECAUSE = re.compile(
    r",\s+so\b|\b(?:because|cause[ds]?|due to|means? that|reasons?|owing to|led to|as a result)\b", re.IGNORECASE
)
# what a passage says without the word: a date is a date, and a price is a number
_DATED = frozenset(map(stem, ("date", "day", "deadline", "time", "year", "month")))
_PERCENT = re.compile(r"\d\s*(?:%|percent\b|per cent\b)", re.IGNORECASE)
# of one group of meaning, but who sells has not said what they earn
_SELLING, _EARNING = frozenset(("sell", "sold")), frozenset(map(stem, ("earn", "earned", "income")))
_BETWEEN, _AFTER = 3, 1  # words between a number and what it counts: "21 of the late parcels", "parcels: 21"
_MONEY = frozenset(map(stem, ("price", "cost", "fee", "charge", "euros", "dollars", "pounds")))
_COUNTS = frozenset(
    map(stem, ("amount", "number", "rate", "percent", "percentage", "count", "duration", "age", "long", "limit"))
)
# how a thing is measured, and the words of who says it
_MEASURES = {"tall": "height", "heavy": "weight", "old": "age born year", "far": "distance", "fast": "speed",
             "deep": "depth", "wide": "width"}  # fmt: skip
MEASURES = {word: frozenset(map(stem, said.split())) for word, said in _MEASURES.items()}
_NO_NUMBERS = frozenset({"rating", "ratings"})  # they share a stem with rates
_HOURS = frozenset(map(stem, ("open", "opens", "opening", "close", "closes", "closing", "shut", "shuts")))


def says(word: str, one: Passage) -> bool:
    """Whether it speaks of a word; of a price also where it holds an amount of money or a percentage."""
    if word == CAUSE:
        return _BECAUSE.search(f"{one.source} {one.text}") is not None
    if word == NUMBER:
        return bool(numbers(one.text)) or _SPAN.search(one.text) is not None
    if "-" in word:  # an x-ray is said where rays are
        return all(says(part, one) for part in word.split("-") if len(part) > 1)
    term = stem(word.lower())
    if term in _DATED and (dates(one.text) or _SPAN.search(one.text)):
        return True
    if word.lower() not in _NO_NUMBERS and _numbers_for(term, one.text):
        return True
    known = _known(f"{one.source} {one.text}")
    if any(near(term, other) for other in known) or MEASURES.get(word, frozenset()) & known:
        return True
    if term in _HOURS and _CLOCK.search(one.text) and known & _HOURS:
        return True  # who says from when to when one is open says when one closes
    return _mistyped(word.lower(), f"{one.source} {one.text}")


def near(term: str, other: str) -> bool:
    """The same word or nearly; a backpack is not a back."""
    alike = related(term, other) if not {term, other} & _SELLING or not {term, other} & _EARNING else 0.0
    return alike >= 0.8 or (alike >= 0.6 and abs(len(term) - len(other)) <= 3)


def numbered(thing: str, one: Passage, whose: Sequence[str] = (), *, counted: bool = False) -> bool:
    """Whether a sentence that speaks of the thing holds a number; an amount may stand anywhere.

    What is `counted` has its number beside it, in a sentence that is not about somebody else than `whose` it is.
    """
    term = stem(thing)
    if term in _MONEY and _numbers_for(term, one.text):
        return True
    if term in _COUNTS:
        return bool(numbers(one.text))
    told = [part for part in _told(term, one) if numbers(part)]
    named = any(name.lower() in one.source.lower() for name in whose)
    return any(not counted or (_beside(term, part) and (named or not _anothers(part, whose))) for part in told)


def _anothers(part: str, whose: Sequence[str]) -> bool:
    """Whether a sentence names somebody, and not the one who is meant."""
    said = [name for name in names(f"so {part}") if name.lower() not in STOP]
    return bool(whose and said) and not any(name.lower() in part.lower() for name in whose)


def _beside(term: str, part: str) -> bool:
    words = _ANY.findall(part.lower())
    things = [at for at, word in enumerate(words) if any(near(term, stem(one)) for one in tokens(word))]
    counts = [at for at, word in enumerate(words) if numbers(word)]
    return any(
        0 < thing - count <= _BETWEEN + 1 or 0 < count - thing <= _AFTER + 1 for thing in things for count in counts
    )


def somebody(thing: str, one: Passage) -> bool:
    """Whether a sentence that speaks of the thing names somebody."""
    words = [word for part in _told(stem(thing), one) for word in re.findall(r"\b[A-Z][a-z]{2,}", part)]
    return any(word.lower() not in STOP | VERBS and stem(word.lower()) != stem(thing) for word in words)


def _told(term: str, one: Passage) -> Iterable[str]:
    return [part for part in _SENTENCE.split(one.text) if any(near(term, other) for other in terms(part))]


def _numbers_for(term: str, text: str) -> bool:
    if term in _MONEY:
        return bool(numbers(text)) and (_PERCENT.search(text) is not None or bool(currencies(text)))
    return term in _COUNTS and _DIGIT.search(text) is not None


@lru_cache(maxsize=256)
def _known(text: str) -> frozenset[str]:
    """Its terms, and each word as it is written: MySQL is no SQL of mine."""
    return frozenset(terms(text)) | {stem(word.lower()) for word in _WORD.findall(text)}


def _mistyped(word: str, text: str) -> bool:
    """Whether it is a word of the text, mistyped; nobody knows all words of all documents before they are searched."""
    if len(word) < SHORTEST:
        return False
    return any(other[:2] == word[:2] and mistyped(word, other) for other in map(str.lower, _WORD.findall(text)))
