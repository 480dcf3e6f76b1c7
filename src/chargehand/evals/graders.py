"""Whether an answer is what was expected, and what is wrong with it in words. Rubrics are judged elsewhere."""

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import msgspec
from msgspec import Struct

from chargehand.agents.acceptance import LONGEST_PATTERN, Rule
from chargehand.agents.exhibit_text import shown
from chargehand.agents.predicates import CheckFailed, Held, broken, misshapen, objections
from chargehand.agents.quantities import numbers, quantities
from chargehand.config.python import named_object
from chargehand.errors import Invalid
from chargehand.evals.cases import Expect, Number, several
from chargehand.models.exhibits import Product
from chargehand.models.subject import Given

_SHOWN = 160
_ASIDE = re.compile(r"`[^`\n]*\s[^`\n]*`|\[[^\[\]\s]{1,64}\]")
_DIGIT = re.compile(r"\d")
_EXACT = Decimal("1e-9")  # two numbers that differ by less are the same


class Answer(Struct, frozen=True):
    """An answer as graders see it: as data, and as words with what backs them."""

    value: object
    text: str


def answer_of(value: object) -> Answer:
    return Answer(value, shown(Given("", "", "", value)))


async def wrong_with(expect: Expect, answer: Answer, folder: str) -> list[str]:
    """All that is wrong with an answer; Invalid where a grader itself does not work."""
    plain = " ".join(answer.text.split())
    found: list[str] = []
    if expect.exact is not None and plain != " ".join(expect.exact.split()):
        found.append(f"it is not {_short(expect.exact)!r} but {_short(plain)!r}")
    try:
        found += await _by_rule(expect, answer)
        found += _numbers_missing(expect, answer.text)
        if expect.schema is not None:
            found += misshapen(expect.schema, _held(answer))
        if expect.python:
            said = await objections(grader(folder, expect.python), answer.value)
            found += [f"{expect.python}: {one or 'it says no'}" for one in said]
    except CheckFailed as error:
        raise Invalid(f"a grader does not work: {error}") from error
    return found


async def _by_rule(expect: Expect, answer: Answer) -> list[str]:
    held, found = _held(answer), list[str]()
    if len(expect.matches) > LONGEST_PATTERN:
        raise CheckFailed(f"the pattern has {len(expect.matches)} characters; at most {LONGEST_PATTERN} are allowed")
    if expect.contains or expect.matches:
        found += await broken(Rule(contains=several(expect.contains), matches=expect.matches), held)
    if expect.any_of and all([await broken(Rule(contains=one), held) for one in expect.any_of]):
        found.append(f"none of these is in it: {', '.join(map(repr, expect.any_of))}")
    for one in several(expect.excludes):
        if not await broken(Rule(contains=one), held):
            found.append(f"{one!r} is in it, and must not be")
    return found


def _numbers_missing(expect: Expect, text: str) -> list[str]:
    wanted = expect.numbers if isinstance(expect.numbers, tuple) else (expect.numbers,)
    if not wanted:
        return []
    held = figures(text)
    return [f"there is no {_said(one)} in it" for one in wanted if not any(_near(one, value) for value in held)]


def figures(text: str) -> tuple[Decimal, ...]:
    """The numbers an answer gives, also in words: not those of dates, names, cited tasks and quoted commands."""
    bare = stated(text)
    found = [value for one in quantities(bare) for value, _ in one.readings]
    return (*found, *numbers(_DIGIT.sub("", bare)))


def stated(text: str) -> str:
    """A text without the commands it quotes and the tasks it cites."""
    return _ASIDE.sub(" ", text)


def _near(wanted: float | Number, value: Decimal) -> bool:
    goal = wanted if isinstance(wanted, Number) else Number(wanted)
    exact = Decimal(str(goal.value))
    room = max(Decimal(str(goal.within)), abs(exact) * Decimal(str(goal.percent)) / 100, _EXACT)
    return abs(abs(exact) - value) <= room  # signs are words as often as signs: a loss of 3, minus 3, -3


def _said(wanted: float | Number) -> str:
    if not isinstance(wanted, Number):
        return f"{wanted:,.12g}"
    room = f" within {wanted.within:g}" if wanted.within else ""
    return f"{wanted.value:,.12g}{room}" + (f" within {wanted.percent:g} %" if wanted.percent else "")


def _held(answer: Answer) -> Held:
    if isinstance(answer.value, str):
        return Held(answer.value, answer.text, answer.value)
    try:
        own = msgspec.convert(answer.value, Product).text
    except msgspec.ValidationError:
        own = msgspec.json.encode(answer.value).decode()
    return Held(answer.value, answer.text, own)


def grader(folder: str, handle: str) -> Callable[..., object]:
    """The function that `graders.py:name` names, beside the cases."""
    found = named_object(Path(folder or "."), handle)
    if not callable(found):
        raise Invalid(f"{handle!r} is {type(found).__name__}, not a function of an answer")
    return found


def _short(text: str) -> str:
    said = " ".join(text.split())
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]} …"
