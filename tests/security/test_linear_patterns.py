"""Patterns over texts of others take time that grows with the text and no faster: none can be made to take long."""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from typing import Any, cast

from tests.server.hostile import KINDS, hostile_text
from tests.support.hunts import hunt_size

_ROOMS = ("agents", "engine", "journal", "memory", "models", "runtime", "server", "sqlite", "text", "tools")
_BOUNDED = ("chargehand.models.demo.",)
"""Modules that read so few characters of a text that nothing takes long (`models/demo/request.py`)."""
_AT_THE_START = frozenset(
    {
        "chargehand.agents.audit.contradictions._VERDICT",
        "chargehand.agents.audit.claims._NAME_EQUATED",
        "chargehand.memory.chunking._FENCE",
        "chargehand.memory.edits._HEADER",
        "chargehand.models.resolve._PLAIN",
        "chargehand.models.partial_text._ITEM",
        "chargehand.models.partial_text._OTHER",
        "chargehand.memory.ranking._PARTS",
        "chargehand.tools.schema._ENTRY",
        "chargehand.tools.schema._SECTION",
        "chargehand.tools.egress.NAME",
    }
)
"""Only looked for at the beginning of a text: to search with them would not be linear."""
_SHORT_TEXTS = frozenset(
    {
        "chargehand.server.settings._HOST",  # what an operator says
        "chargehand.server.middleware.redaction._OPEN_END",  # the last 512 characters of what was said
        "chargehand.agents.routing.words._CLAUSE",  # what a team file says of a worker
        "chargehand.memory.sqlite_things._WORD",  # the first 4,000 characters of a question
    }
)
_PIECES = (
    *('<data 0123456789abcdef from "a">\n', "-----BEGIN PRIVATE KEY-----\n", "sk-", "Bearer ", "```json\n"),
    *("[a", "[t1] ", "{{a", "<a>", '("', "\u201ea", "\u00aba", "> a\n", "\\n"),
    *("a.b", "a-", "a=1;", "a/", "a:", "1.", "$1", "5 % of "),
)
_LENGTH = hunt_size(quick=2_000, thorough=5_000)
_LONG = 3e-6 * _LENGTH
"""Seconds of the processor within which a linear pattern has read a text of that length many times over."""


def test_no_pattern_takes_longer_than_a_text_is_long() -> None:
    texts = [hostile_text(kind, _LENGTH) for kind in KINDS]
    texts += [(piece * (_LENGTH // len(piece) + 1))[:_LENGTH] for piece in _PIECES]
    slow = [
        f"{name}: {text[:40]!r} over and over"
        for name, pattern in _patterns().items()
        for text in texts
        if _seconds(name, pattern, text) > _LONG and not _is_linear(name, pattern, text)
    ]
    assert not slow, "\n".join(slow)


def _patterns() -> dict[str, re.Pattern[Any]]:
    """The patterns that modules hold, by the name of the first that holds each."""
    names: dict[re.Pattern[Any], str] = {}
    for room in _ROOMS:
        package = importlib.import_module(f"chargehand.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.startswith(_BOUNDED):
                continue
            for name, value in vars(importlib.import_module(module.name)).items():
                for pattern in _within(value):
                    names.setdefault(pattern, f"{module.name}.{name}")
    return {name: pattern for pattern, name in names.items() if name not in _SHORT_TEXTS}


def _within(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield cast("re.Pattern[Any]", value)
    elif isinstance(value, dict):
        for item in cast("dict[object, object]", value).values():
            yield from _within(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[object]", value):
            yield from _within(item)


def _seconds(name: str, pattern: re.Pattern[Any], text: str) -> float:
    subject = text.encode() if isinstance(pattern.pattern, bytes) else text
    began = time.thread_time()
    if name in _AT_THE_START:
        pattern.match(subject)
        pattern.fullmatch(subject)
    else:
        for _ in pattern.finditer(subject):
            pass
    return time.thread_time() - began


def _is_linear(name: str, pattern: re.Pattern[Any], text: str) -> bool:
    """Whether a text four times as long takes no more than eight times as long: sixteen times is the square."""
    return _seconds(name, pattern, text) < 8 * _seconds(name, pattern, text[: len(text) // 4])
