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

from chargehand.agents.audit.evidence import URL
from chargehand.agents.checks.spec import Rule
from chargehand.agents.shape import Shape
from chargehand.engine.value import decode_value, encode_value
from chargehand.errors import ChargehandError, Invalid
from chargehand.models.artifacts import Product
from chargehand.text.words import WORD
from chargehand.tools.calling import THREADS, GivenUp
from chargehand.tools.tool import ToolFailed

_MAX_SEARCHED = 100_000  # characters of a result that a pattern is tried on
_CPU_SECONDS = 2  # that a pattern may compute
_MAX_SECONDS = 30.0  # for it, however busy the machine is
_ATTEMPT_SECONDS = 86400.0  # the attempt's own time ends a function long before
_DETERMINISTIC = re.compile(r"[^()|*+?{]*\Z")  # a pattern that can match in one way only
_CITATION = re.compile(
    r"\[[^\[\]\n]{1,200}\]|\((?:see |source:? )?[\w./ -]{1,100}\.\w{1,5}(?:[:#][^()\n]{1,60})?\)"
    r"|\b(?i:sources?: *\S|according to \S)"
)
_SOURCE_KEY = re.compile(r"\.(?:source|url|citation|reference)s?(?:\.|$)")
_SEARCH = (
    "import json,re,sys\n"
    f"try:\n import resource\n resource.setrlimit(resource.RLIMIT_CPU,({_CPU_SECONDS},{_CPU_SECONDS}))\n"
    "except (ImportError,OSError,ValueError):\n pass\n"
    "given=json.load(sys.stdin.buffer)\n"
    "print(int(re.search(given['pattern'],given['text'],re.MULTILINE) is not None))"
)


class CheckFailed(ChargehandError):
    """The check itself does not work: nothing is known of the result."""


class CheckedResult(Struct, frozen=True):
    """A result as checks see it: as plain data, as words, and as what its shape is read from."""

    value: object
    text: str
    json: str


def read_result(result: object) -> CheckedResult:
    """NotJson for what cannot be kept. Of a product the words are its text, else all that is outcome in it."""
    raw = encode_value(result)
    value = decode_value(raw)
    if isinstance(result, Product):
        return CheckedResult(value, result.text, result.text)
    if isinstance(value, str):
        return CheckedResult(value, value, value)
    texts: list[str] = []
    for _, leaf in _leaves(value):
        if isinstance(leaf, bool):
            texts.append(str(leaf).lower())
        elif leaf is not None:
            texts.append(str(leaf))
    return CheckedResult(value, "\n".join(texts), bytes(raw).decode())


def _leaves(value: object) -> Iterator[tuple[str, object]]:
    """Each text, number and truth in some data, in order, with the keys it stands under."""
    stack: list[tuple[str, object]] = [("", value)]
    while stack:
        key, item = stack.pop()
        if isinstance(item, dict):
            table = cast("dict[str, object]", item)
            stack.extend((f"{key}.{name}", part) for name, part in reversed(table.items()))
        elif isinstance(item, list):
            stack.extend((key, part) for part in reversed(cast("list[object]", item)))
        else:
            yield key, item


async def check_rule(rule: Rule, result: CheckedResult) -> list[str]:
    """What a rule finds wrong with a result."""
    text = result.text
    plain = _normalize(text)
    problems = [f"{wanted!r} is not in it" for wanted in rule.wanted_words if _normalize(wanted) not in plain]
    words = sum(WORD.search(chunk) is not None for chunk in text.split())
    if words < rule.min_words:
        problems.append(f"it has {words} words; at least {rule.min_words} are wanted")
    if rule.max_words and words > rule.max_words:
        problems.append(f"it has {words} words; at most {rule.max_words} are wanted")
    if rule.cites and not _cites(result):
        problems.append("it names no source")
    if rule.has_number and re.search(r"\d", text) is None:
        problems.append("there is no number in it")
    if rule.matches and not await _matches(rule.matches, text[:_MAX_SEARCHED]):
        problems.append(f"nothing in it matches {rule.matches[:100]!r}")
    return problems


def _normalize(text: str) -> str:
    """A text as it is compared: however it is spaced and capitalized, and whether accents stand alone or not."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _cites(result: CheckedResult) -> bool:
    if URL.search(result.text) or _CITATION.search(result.text):
        return True
    return any(leaf and _SOURCE_KEY.search(keys) for keys, leaf in _leaves(result.value))


async def _matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found. One that might take for ever is tried in a process that can be ended."""
    if _DETERMINISTIC.match(pattern):
        return re.search(pattern, text, re.MULTILINE) is not None

    def search() -> bool:
        question = msgspec.json.encode({"pattern": pattern, "text": text})
        command = [sys.executable, "-I", "-S", "-c", _SEARCH]
        done = subprocess.run(command, input=question, capture_output=True, timeout=_MAX_SECONDS, check=True)  # noqa: S603 - ours
        return done.stdout.strip() == b"1"

    try:
        return await THREADS.call(search, {}, 2 * _MAX_SECONDS)
    except (ToolFailed, GivenUp) as error:
        is_late = isinstance(error, GivenUp) or any(sign in str(error) for sign in ("timed out", "died with"))
        why = f"it was not done after {_CPU_SECONDS} s; write it more simply" if is_late else str(error)
        raise CheckFailed(f"the pattern {pattern[:80]!r} could not be tried: {why}") from error


def check_shape(wanted: type | dict[str, Any], result: CheckedResult) -> list[str]:
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


async def check_function(function: Callable[..., object], value: object) -> list[str]:
    """What a function of the user finds wrong with a result; CheckFailed where it does not work itself."""
    try:
        if inspect.iscoroutinefunction(function):
            outcome: object = await function(value)
        else:
            outcome = await THREADS.call(lambda: function(value), {}, _ATTEMPT_SECONDS)
            outcome = await outcome if inspect.isawaitable(outcome) else outcome
    except (ToolFailed, GivenUp) as error:
        raise CheckFailed(str(error)) from error
    except Exception as error:
        raise CheckFailed(f"{type(error).__name__}: {error}") from error
    if isinstance(outcome, str):
        return [outcome] if outcome.strip() else []
    if type(outcome).__name__ in ("bool", "bool_"):  # numpy has its own
        return [] if outcome else [""]
    raise CheckFailed(f"it returned {type(outcome).__name__}; return True or False, or in words what is wrong")
