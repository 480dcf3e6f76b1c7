"""YAML to plain data and the line of every value, made from the events of the parser.

YAML 1.2 core types: only `true` and `false` are booleans, and keys are text as written. Duplicate keys, tags, merge
keys and a second document are errors; aliases count as often as they are used. What the data means is not known here.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

import yaml
from msgspec import Struct
from yaml.error import MarkedYAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
)

Path: TypeAlias = tuple[str | int, ...]
"""From the top of a file to a value: keys, and numbers of list items."""
DEPTH = 32
"""How deep tables and lists may be nested."""


NODES = 50_000
_LONGEST_KEY = 200


class NotYaml(Exception):
    """What is wrong, and in which line (0: unknown)."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        super().__init__(problem)


class Document(Struct, frozen=True):
    """Data, and the line of each value by its path; a key's line where the value is a table or a list."""

    data: object
    lines: dict[Path, int]


_INTEGER = re.compile(r"[-+]?[0-9]{1,18}\Z")
_OTHER_BASE = re.compile(r"0o[0-7]{1,20}\Z|0x[0-9a-fA-F]{1,15}\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,4})?\Z")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def typed(text: str) -> object:
    """What an unquoted scalar means."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return int(text)
    if _OTHER_BASE.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        return float(text)
    return text


def read(text: str) -> Document:
    """One YAML document; NotYaml says where it is none."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times as fast; wheels have it
    parse = cast("Callable[..., Iterator[Event]]", yaml.parse)
    try:
        return _Builder(parse(text, Loader=loader)).build()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        began = error.context_mark.line + 1 if error.context_mark else 0
        since = f" (in what begins in line {began})" if mark and began and began != mark.line + 1 else ""
        problem = f"this is not YAML: {error.problem or error.context}{since}"
        raise NotYaml(mark.line + 1 if mark else 0, problem) from error
    except yaml.YAMLError as error:
        raise NotYaml(0, f"this is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise NotYaml(0, f"this is nested more than {DEPTH} levels deep; make it flatter") from error


class _Builder:
    """Makes values of events. The depth bounds the recursion, the count of values everything else."""

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events
        self._lines: dict[Path, int] = {}
        self._anchors: dict[str, tuple[object, int]] = {}
        """What each stands for, and how many values are in it."""
        self._count = 0

    def build(self) -> Document:
        data: object = None
        documents = 0
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise NotYaml(_line(event), "a second document begins here; a team file holds one")
            elif isinstance(event, NodeEvent):
                data = self._value(event, ())
        return Document(data, self._lines)

    def _value(self, event: NodeEvent, path: Path) -> object:
        """The value that begins with this event."""
        anchor = cast("str | None", event.anchor)
        if isinstance(event, AliasEvent):
            if anchor not in self._anchors:
                raise NotYaml(_line(event), f"the alias *{anchor} has no finished anchor &{anchor} before it")
            value, count = self._anchors[anchor]
            self._add(count, event)
            return value
        tag = cast("str | None", getattr(event, "tag", None))
        if tag is not None:
            raise NotYaml(_line(event), f"the tag {tag!r} is not understood; write plain data")
        before = self._count
        self._add(1, event)
        if isinstance(event, ScalarEvent):
            text = str(event.value)
            value = typed(text) if event.style in (None, "") else text
        else:
            if len(path) >= DEPTH:
                raise NotYaml(_line(event), f"this is nested more than {DEPTH} levels deep; make it flatter")
            value = self._table(path) if isinstance(event, MappingStartEvent) else self._list(path)
        if anchor:
            self._anchors[anchor] = (value, self._count - before)
        return value

    def _list(self, path: Path) -> list[object]:
        items: list[object] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            self._lines[*path, len(items)] = _line(event)
            items.append(self._value(cast("NodeEvent", event), (*path, len(items))))
        return items

    def _table(self, path: Path) -> dict[str, object]:
        table: dict[str, object] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            line = _line(event)
            if not isinstance(event, ScalarEvent):
                raise NotYaml(line, "a key must be text, not a table or a list")
            key = str(event.value)
            place = (*path, key)
            if key in table:
                raise NotYaml(line, f"the key {key!r} is here twice (first in line {self._lines[place]}); keep one")
            if len(key) > _LONGEST_KEY:
                raise NotYaml(line, f"a key has more than {_LONGEST_KEY} characters; is a quotation mark missing?")
            if key == "<<":
                raise NotYaml(line, "merge keys (<<) are not understood; write the keys out")
            self._lines[place] = line
            table[key] = self._value(cast("NodeEvent", next(self._events)), place)
        return table

    def _add(self, count: int, event: NodeEvent) -> None:
        self._count += count
        if self._count > NODES:
            words = f"there are more than {NODES:,} values here, aliases counted; make the file smaller"
            raise NotYaml(_line(event), words)


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1
