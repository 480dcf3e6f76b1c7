"""Whether calls of a tool took account of what a task says: its dates, names, numbers, and what it is about.

A tool that knows the weather of a place says nothing about a day. Queries and searches have checks of their own.
"""

from collections.abc import Sequence

import msgspec

from chargehand.models.offline.carriers import carriers
from chargehand.models.offline.choosing import Choice
from chargehand.models.offline.currencies import without_currencies
from chargehand.models.offline.kinds import generic
from chargehand.models.offline.material import Outcome
from chargehand.models.offline.words import STOP, VERBS, Dated, dates, names, numbers, related, stem, terms, tokens
from chargehand.models.subject import Given

_READ = 20_000
_EMPTY = frozenset(
    map(stem, ("far", "long", "next", "current", "now", "today", "available", "exactly", "cost", "costs", "much"))
)


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
    if missed := [one for one in numbers(text) if one not in known.replace(".0", "") and one not in numbers(known)]:
        return f"{name} has no use for {missed[0]}, which the task is about"
    own = " ".join(f"{one.name} {one.description} {_said(one)}" for one in called)
    words = {stem(word) for word in tokens(f"{known} {own}")} | set(terms(f"{known} {own}"))
    plain = without_currencies(text)
    exact = [one for one in names(plain) if not any(stem(word) in words for word in tokens(one))]
    telling = [one for one in (*carriers(plain), *_words(plain)) if stem(one) not in _EMPTY]
    lost = [one for one in dict.fromkeys(telling) if not any(related(stem(one), other) >= 0.6 for other in words)]
    if missed := [*exact, *lost]:
        return f"{name} says nothing about {' and '.join(missed)}"
    return ""


def _words(text: str) -> list[str]:
    """All words that tell something: a tool must know what they are about, or was given them."""
    for one in reversed(dates(text)):
        text = text[: one.start] + " " + text[one.end :]
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
