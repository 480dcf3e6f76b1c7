"""Whether a result passes a rule, a schema or a function, and what is wrong with it in words. No model is asked."""

import inspect
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct

from chargehand.agents.acceptance import Rule
from chargehand.agents.audit.sources import URL
from chargehand.agents.handover import Partly
from chargehand.agents.shape import Shape
from chargehand.errors import ChargehandError, Invalid
from chargehand.models.exhibits import Product
from chargehand.terms.value import decode_value, encode_value
from chargehand.text.words import WORD
from chargehand.tools.threads import THREADS, GivenUp
from chargehand.tools.tool import ToolFailed

_LONGEST = 100_000  # characters of a result that a pattern is tried on
# that a pattern may compute, and until when, however busy the machine is
_SECONDS = 2
_LATEST = 30.0
_WHOLE = 86400.0  # the attempt's own time ends it long before
_PLAIN = re.compile(r"[^()|*+?{]*\Z")  # a pattern that can match in one way only
_CITED = re.compile(r"\[[^\[\]\n]{1,200}\]|\((?:see |source:? )?[\w./ -]{1,100}\.\w{1,5}(?:[:#][^()\n]{1,60})?\)")
_SAID = re.compile(r"\bsources?: *\S|\baccording to \S", re.IGNORECASE)
_CITING = frozenset(("source", "sources", "url", "urls", "citation", "citations", "reference", "references"))
_SEARCH = (
    "import json,re,sys\n"
    f"try:\n import resource\n resource.setrlimit(resource.RLIMIT_CPU,({_SECONDS},{_SECONDS}))\n"
    "except (ImportError,OSError,ValueError):\n pass\n"
    "given=json.load(sys.stdin.buffer)\n"
    "print(int(re.search(given['pattern'],given['text'],re.MULTILINE) is not None))"
)


class CheckFailed(ChargehandError):
    """The check itself does not work: nothing is known of the result."""


class Held(Struct, frozen=True):
    """A result as checks see it: as plain data, as words, and as what its shape is read from."""

    value: object
    text: str
    json: str


def held(result: object) -> Held:
    """NotJson for what cannot be kept. Of a product the words are its text, else all that is said in it."""
    raw = encode_value(result)
    value = decode_value(raw)
    if isinstance(result, Product | Partly):
        return Held(value, result.text, result.text)
    if isinstance(value, str):
        return Held(value, value, value)
    return Held(value, "\n".join(_leaves(value)), bytes(raw).decode())


def _leaves(value: object) -> Iterator[str]:
    line: list[object] = [value]
    while line:
        one = line.pop()
        if isinstance(one, dict):
            line.extend(reversed(list(cast("dict[str, object]", one).values())))
        elif isinstance(one, list):
            line.extend(reversed(cast("list[object]", one)))
        elif isinstance(one, bool):
            yield "true" if one else "false"
        elif isinstance(one, str | int | float):
            yield str(one)


async def broken(rule: Rule, result: Held) -> list[str]:
    """What a rule finds wrong with a result."""
    text = result.text
    plain = _plain(text)
    wanted = (rule.contains,) if isinstance(rule.contains, str) else rule.contains
    found = [f"{one!r} is not in it" for one in wanted if _plain(one) not in plain]
    words = sum(WORD.search(chunk) is not None for chunk in text.split())
    if words < rule.at_least_words:
        found.append(f"it has {words} words; at least {rule.at_least_words} are wanted")
    if rule.at_most_words and words > rule.at_most_words:
        found.append(f"it has {words} words; at most {rule.at_most_words} are wanted")
    if rule.cites and not _cites(result.value, text):
        found.append("it names no source")
    if rule.has_number and re.search(r"\d", text) is None:
        found.append("there is no number in it")
    if rule.matches and not await _matches(rule.matches, text[:_LONGEST]):
        found.append(f"nothing in it matches {rule.matches[:100]!r}")
    return found


def _plain(text: str) -> str:
    """A text as it is compared: however it is spaced and capitalized, and whether accents stand alone or not."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _cites(value: object, text: str) -> bool:
    if URL.search(text) or _CITED.search(text) or _SAID.search(text):
        return True
    line: list[object] = [value]
    while line:
        one = line.pop()
        if isinstance(one, dict):
            table = cast("dict[str, object]", one)
            if any(table.get(name) for name in _CITING):
                return True
            line.extend(table.values())
        elif isinstance(one, list):
            line.extend(cast("list[object]", one))
    return False


async def _matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found. One that might take for ever is tried in a process that can be ended."""
    if _PLAIN.match(pattern):
        return re.search(pattern, text, re.MULTILINE) is not None

    def search() -> bool:
        given = msgspec.json.encode({"pattern": pattern, "text": text})
        words = [sys.executable, "-I", "-S", "-c", _SEARCH]
        done = subprocess.run(words, input=given, capture_output=True, timeout=_LATEST, check=True)  # noqa: S603 - ours
        return done.stdout.strip() == b"1"

    try:
        return await THREADS.call(search, {}, 2 * _LATEST)
    except (ToolFailed, GivenUp) as error:
        late = isinstance(error, GivenUp) or any(sign in str(error) for sign in ("timed out", "died with"))
        why = f"it was not done after {_SECONDS} s; write it more simply" if late else str(error)
        raise CheckFailed(f"the pattern {pattern[:80]!r} could not be tried: {why}") from error


def misshapen(wanted: type | dict[str, Any], result: Held) -> list[str]:
    """What of a result does not have this shape. Of a product its text is read, which must hold JSON."""
    try:
        shape = Shape(wanted)
    except (TypeError, ValueError) as error:
        raise CheckFailed(f"no schema can be made of it: {error}") from error
    try:
        shape.read(result.json)
    except Invalid as error:
        return [str(error)]
    except Exception as error:
        raise CheckFailed(f"{type(error).__name__}: {error}") from error
    return []


async def objections(function: Callable[..., object], value: object) -> list[str]:
    """What a function of somebody else finds wrong with a result; CheckFailed where it does not work itself."""
    try:
        if inspect.iscoroutinefunction(function):
            said: object = await function(value)
        else:
            said = await THREADS.call(lambda: function(value), {}, _WHOLE)
            said = await said if inspect.isawaitable(said) else said
    except (ToolFailed, GivenUp) as error:
        raise CheckFailed(str(error)) from error
    except Exception as error:
        raise CheckFailed(f"{type(error).__name__}: {error}") from error
    if isinstance(said, str):
        return [said] if said.strip() else []
    if type(said).__name__ in ("bool", "bool_"):  # numpy has its own
        return [] if said else [""]
    raise CheckFailed(f"it returned {type(said).__name__}; return True or False, or in words what is wrong")
