"""Whether calls of a tool took account of what a task says: its dates, names, numbers, and what it is about.

A tool that knows the weather of a place says nothing about a day. Queries and searches have checks of their own.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

import msgspec

from chargehand.models.offline.amounts import UNITS
from chargehand.models.offline.carriers import carriers
from chargehand.models.offline.choosing import Choice
from chargehand.models.offline.currencies import currencies, without_currencies
from chargehand.models.offline.kinds import generic
from chargehand.models.offline.material import Outcome
from chargehand.models.offline.words import (
    STOP,
    VERBS,
    Dated,
    dates,
    names,
    numbers,
    related,
    stem,
    terms,
    tokens,
    with_nouns,
)
from chargehand.models.subject import Given

_READ = 20_000
_EMPTY = frozenset(
    map(
        stem,
        (
            "far",
            "long",
            "next",
            "current",
            "now",
            "today",
            "available",
            "exactly",
            "cost",
            "much",
            "less",
            "need",
            "lead",
        ),
    )
)

_LEFT_OUT = re.compile(r"\b(?:without|excluding|except|but not|other than|apart from)\b", re.IGNORECASE)
_COST = re.compile(r"\bcosts?\b", re.IGNORECASE)
_MONEY = frozenset(
    map(stem, ("payment", "instalment", "fare", "rent", "interest", "tariff", "money", "free", "budget"))
)
# what is worked out from numbers, and the words of a tool that does so
_WORKED = {"difference": "difference drift change", "average": "average mean", "median": "median", "ratio": "ratio"}


def unaccounted(text: str, tools: Sequence[Choice], past: Sequence[Outcome], inputs: Sequence[Given]) -> str:
    """What of a task no call, no result and no input speaks of, in words; empty where all is there."""
    called = [one for one in tools if any(other.call.name == one.name for other in past)]
    if not called:
        return ""
    values = [one.call.arguments for one in past]
    shown = [_json(one.value) for one in past if not one.error]
    given = [f"{one.instruction} {_json(one.value)}" for one in inputs]
    known = " ".join([*values, *shown, *given])
    name = called[-1].name
    if missed := [one.text for one in dates(text) if not _dated(one, known, values)]:
        return f"{name} was not asked about {missed[0]}: it takes no such date"
    own = " ".join(map(own_words, called))
    if missed := _numbers_missed(text, known, own):
        return f"{name} has no use for {missed[0]}, which the task is about"
    for one in called:
        if uncalled := [value for part in one.parameters for value in part.enum if _unmet(value, text, known)]:
            return f"{name} was not called for {' and '.join(uncalled)}"
        if told_by := next((part.name for part in one.parameters if part.required and _wanted(part.name, text)), ""):
            return f"{name} must be given the {told_by.replace('_', ' ')}, and does not work it out"
    if (left_out := _LEFT_OUT.search(text)) and left_out[0].lower() not in f"{known} {own}".lower():
        return f"{name} leaves nothing out, and the task says {left_out[0]!r}"
    if not any(one.role == "compute" for one in called) and (worked := _worked_out(text, f"{known} {own}")):
        return f"{name} does not work out the {worked}"
    if lost := strange(text, f"{known} {own}"):
        return f"{name} says nothing about {' and '.join(lost)}"
    return ""


def _told_in_money(known: str) -> bool:
    """Whether it speaks of money at all."""
    return bool(currencies(known)) or any(related(one, "cost") >= 0.8 or one in _MONEY for one in set(terms(known)))


def _numbers_missed(text: str, known: str, own: str) -> list[str]:
    """Numbers of a task that were not handed over, nor came back.

    What is always of twelve months is of the last twelve: a number that a tool says of itself counts with its noun.
    """
    told, of_itself = {Decimal(one) for one in numbers(known)}, with_nouns(own)
    missed = [pair for pair in with_nouns(text) if Decimal(pair[0]) not in told and pair not in of_itself]
    return [one for one, _ in missed if not re.search(rf"(?<![\d.,]){re.escape(one)}(?!\d|[.,]\d*[1-9])", known)]


def _worked_out(text: str, known: str) -> str:
    """What a task wants worked out that a tool says nothing of."""
    plain = set(map(stem, tokens(known)))
    said = [word for word in tokens(text) if word in _WORKED]
    return next((word for word in said if not plain & set(map(stem, _WORKED[word].split()))), "")


def _unmet(value: str, text: str, known: str) -> bool:
    """Whether a choice of two words or a name is said in a task, and neither handed over nor in a result."""
    said = f" {' '.join(tokens(value))} "
    telling = " " in said.strip() or value[:1].isupper()
    return telling and said in f" {' '.join(tokens(text))} " and said not in f" {' '.join(tokens(known))} "


def _wanted(name: str, text: str) -> bool:
    """Whether a task asks for the very thing: "how many rows"."""
    return re.search(rf"\bhow (?:many|much) {re.escape(name.replace('_', ' '))}\b", text, re.IGNORECASE) is not None


def strange(text: str, known: str) -> list[str]:
    """The names and telling words of a task that this does not know."""
    said = set(tokens(known))
    words = {stem(word) for word in said} | set(terms(known))
    words |= {stem(word) for unit in UNITS if unit & said for word in unit}
    plain = without_currencies(text)
    exact = [one for one in names(plain) if not any(stem(word) in words for word in tokens(one))]
    telling = [one for one in (*carriers(plain), *_words(plain)) if stem(one) not in _EMPTY]
    telling = [one for one in dict.fromkeys(telling) if not any(one.lower() in name.lower() for name in exact)]
    costs = ["costs"] if _COST.search(text) and not _told_in_money(known) else []
    return [*exact, *costs, *(one for one in telling if not any(related(stem(one), other) >= 0.6 for other in words))]


def own_words(choice: Choice) -> str:
    """All that a tool says of itself and of what it takes."""
    return f"{choice.name} {choice.description} {_said(choice)}"


def _words(text: str) -> list[str]:
    """All words that tell something: a tool must know what they are about, or was given them."""
    for one in reversed(dates(text)):
        text = text[: one.start] + " " + text[one.end :]
    text = re.sub(
        r"(\d|\b(?:a|one))\s+(?:thousand|million|billion)\b", r"\1", text, flags=re.IGNORECASE
    )  # read as a number
    said = [word for word in tokens(text) if word not in STOP and word.isalpha() and not numbers(word)]
    return [word for word in said if word not in VERBS and not generic(stem(word)) and len(word) > 2]


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()[:_READ]
    except (TypeError, ValueError, msgspec.MsgspecError):
        return str(value)[:_READ]


def _said(choice: Choice) -> str:
    return " ".join(f"{one.name} {one.description} {' '.join(one.enum)}" for one in choice.parameters)


def _dated(one: Dated, known: str, handed: Sequence[str]) -> bool:
    """Whether a date was handed over: itself, a day of it, in the words of the task or in those of an input."""
    if any(f'"{one.text.lower()}"' in arguments.lower() for arguments in handed):
        return True
    return one.normal.strip("-")[:7] in known or any(other.normal.startswith(one.normal) for other in dates(known))
