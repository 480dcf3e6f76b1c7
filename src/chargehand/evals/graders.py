"""Whether an answer is what was expected, and what is wrong with it in words. Rubrics are judged elsewhere."""

import asyncio
import inspect
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct

from chargehand.agents.acceptance import LONGEST_PATTERN, Rule
from chargehand.agents.exhibit_text import shown
from chargehand.agents.predicates import CheckFailed, Held, broken, misshapen, objections
from chargehand.agents.shape import objection
from chargehand.config.python import named_object
from chargehand.errors import Invalid
from chargehand.evals.cases import Dataset, Expect, Number, several
from chargehand.evals.figures import figures, holds
from chargehand.models.exhibits import Product
from chargehand.models.subject import Given
from chargehand.terms.policy import Seconds
from chargehand.tools.threads import THREADS, GivenUp
from chargehand.tools.tool import ToolFailed

PATIENCE: Seconds = 60.0
"""How long a function that grades may take."""
_SHOWN = 160
_SCHEMA = frozenset((
    "$ref", "$defs", "definitions", "anyOf", "oneOf", "enum", "const", "type", "properties", "required",
    "additionalProperties", "items", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum",
    "title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated",
))  # fmt: skip
"""What of a schema is checked, and what says nothing of values."""
_MARKS = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u00ad": "", "\u200b": ""})
_DASHES = re.compile("[\u2010-\u2013\u2212]")
_EMPHASIS = re.compile(r"\*\*|__|(?<!\w)[*_`](?=\w)|(?<=\w)[*_`](?!\w)")


class Answer(Struct, frozen=True):
    """An answer as graders see it: as data, and as words with what backs them."""

    value: object
    text: str


def answer_of(value: object) -> Answer:
    return Answer(value, shown(Given("", "", "", value)))


async def wrong_with(expect: Expect, answer: Answer, folder: str, patience: Seconds = PATIENCE) -> list[str]:
    """All that is wrong with an answer; Invalid where a grader itself does not work."""
    plain = " ".join(answer.text.split())
    found: list[str] = []
    if expect.exact is not None and plain != " ".join(expect.exact.split()):
        found.append(f"it is not {_short(expect.exact)!r} but {_short(plain)!r}")
    found += _words(expect, answer.text)
    found += _numbers_missing(expect, answer.text)
    try:
        if expect.matches:
            vet_pattern(expect.matches)
            found += await broken(Rule(matches=expect.matches), _held(answer))
        if expect.schema is not None:
            vet_schema(expect.schema)
            found += misshapen(expect.schema, _held(answer))
        if expect.python:
            said = await objections(_bounded(grader(folder, expect.python), patience), answer.value)
            found += [f"{expect.python}: {one or 'it says no'}" for one in said]
    except CheckFailed as error:
        raise Invalid(f"a grader does not work: {error}") from error
    return found


def vet_pattern(pattern: str) -> None:
    """Raise CheckFailed for what is no regular expression, or too long a one."""
    if len(pattern) > LONGEST_PATTERN:
        raise CheckFailed(f"the pattern has {len(pattern)} characters; at most {LONGEST_PATTERN} are allowed")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise CheckFailed(f"{pattern[:80]!r} is no regular expression: {error}") from error


def vet_schema(schema: object, root: object = None) -> None:
    """Raise CheckFailed for a schema of which a part would go unchecked: a grader that passes all is none."""
    root = schema if root is None else root
    if not isinstance(schema, dict):
        return
    table = cast("dict[str, object]", schema)
    if problem := objection(table):
        raise CheckFailed(problem)
    if strange := next((key for key in table if key not in _SCHEMA), ""):
        raise CheckFailed(
            f"{strange!r} of a schema is not checked here; leave it out, or grade by a function (python:)"
        )
    if "$ref" in table and not _leads_somewhere(table["$ref"], root):
        raise CheckFailed(f"the schema refers to {table['$ref']!r}, which is not in it")
    inside = [table.get(key) for key in ("items", "additionalProperties")]
    for key in ("properties", "$defs", "definitions"):
        named = table.get(key)
        inside += cast("dict[str, object]", named).values() if isinstance(named, dict) else ()
    for key in ("anyOf", "oneOf"):
        options = table.get(key)
        inside += cast("list[object]", options) if isinstance(options, list) else ()
    for one in inside:
        vet_schema(one, root)


def _leads_somewhere(reference: object, root: object) -> bool:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return False
    for part in reference[2:].split("/"):
        root = cast("dict[str, object]", root).get(part) if isinstance(root, dict) else None
    return isinstance(root, dict)


def _words(expect: Expect, text: str) -> list[str]:
    """What of the texts that must or must not stand in an answer does not fit."""
    said = {folded(text), folded(_EMPHASIS.sub("", text))}

    def there(wanted: str) -> bool:
        return any(folded(wanted) in one for one in said)

    found = [f"{one!r} is not in it" for one in several(expect.contains) if not there(one)]
    if expect.any_of and not any(map(there, expect.any_of)):
        found.append(f"none of these is in it: {', '.join(map(repr, expect.any_of))}")
    return found + [f"{one!r} is in it, and must not be" for one in several(expect.excludes) if there(one)]


def folded(text: str) -> str:
    """A text as it is compared: however it is spaced, capitalized, accented and quoted, whatever its dashes are."""
    plain = unicodedata.normalize("NFKC", text).translate(_MARKS).casefold()
    return " ".join(_DASHES.sub("-", plain).split())


def _numbers_missing(expect: Expect, text: str) -> list[str]:
    wanted = expect.numbers if isinstance(expect.numbers, tuple) else (expect.numbers,)
    if not wanted:
        return []
    held = figures(text)
    return [f"there is no {_said(one)} in it" for one in wanted if not holds(held, one)]


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


# --- functions beside the cases


def grader(folder: str, handle: str) -> Callable[..., object]:
    """The function that `graders.py:name` names, beside the cases."""
    found = named_object(Path(folder or "."), handle, "the cases")
    if not callable(found):
        raise Invalid(f"{handle!r} is {type(found).__name__}, not a function of an answer")
    return found


def check_graders(datasets: Iterable[Dataset]) -> None:
    """Raise Invalid for a function that is not there: before answers are paid for that nobody could grade."""
    for one in datasets:
        for case in one.cases:
            if case.expect is None or not case.expect.python:
                continue
            try:
                grader(one.folder, case.expect.python)
            except Invalid as error:
                raise Invalid(f"dataset {one.name}, case {case.name or case.request!r}: {error}") from error


def _bounded(function: Callable[..., object], seconds: Seconds) -> Callable[..., object]:
    """The same within some time: nobody else watches over one that never returns."""

    async def within(value: object) -> object:
        try:
            async with asyncio.timeout(seconds):
                said: object = await THREADS.call(lambda: function(value), {}, seconds)
                return _plainly(await cast("Awaitable[object]", said) if inspect.isawaitable(said) else said)
        except (TimeoutError, GivenUp):
            raise ToolFailed(f"it was not done after {seconds:g} s") from None

    return within


def _plainly(said: object) -> object:
    """A truth value of numpy is one of Python's: comparisons of arrays return it."""
    if type(said).__module__ == "numpy" and type(said).__name__ in ("bool", "bool_"):
        return bool(cast("bool", said))
    return said


def _short(text: str) -> str:
    said = " ".join(text.split())
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]} …"
