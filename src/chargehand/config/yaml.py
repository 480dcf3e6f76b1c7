"""YAML to plain data and the line of every value, without recursion: the parser's events are stacked up here.

YAML 1.2 core types: only `true` and `false` are booleans, and keys are text as written. Duplicate keys, tags, merge
keys and a second document are errors; aliases count as often as they are used. What the data means is not known here.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct

if TYPE_CHECKING:
    from yaml.events import Event, NodeEvent, ScalarEvent

Path: TypeAlias = tuple[str | int, ...]
"""From the top of a file to a value: keys, and numbers of list items."""

DEPTH = 32
NODES = 50_000

_LONGEST_KEY = 200

_INTEGER = re.compile(r"[-+]?[0-9]{1,18}\Z")
_OTHER_BASE = re.compile(r"0o[0-7]{1,20}\Z|0x[0-9a-fA-F]{1,15}\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,4})?\Z")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class NotYaml(Exception):
    """What is wrong, and in which line (0: nobody knows)."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        super().__init__(problem)


class Document(Struct, frozen=True):
    """Data, and the line of each value by its path; a key's line where the value is a table or a list."""

    data: object
    lines: dict[Path, int]


class _Open(Struct):
    """A table or a list that is being filled."""

    value: dict[str, object] | list[object]
    path: Path
    line: int
    anchor: str
    key: str | None = None
    nodes: int = 1


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
    from yaml import YAMLError  # noqa: PLC0415 - 27 ms that a team built in Python need not pay
    from yaml.error import MarkedYAMLError  # noqa: PLC0415 - as above

    try:
        return _Builder().build(_events(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        began = error.context_mark.line + 1 if error.context_mark else 0
        since = f" (in what begins in line {began})" if mark and began and began != mark.line + 1 else ""
        problem = f"this is not YAML: {error.problem or error.context}{since}"
        raise NotYaml(mark.line + 1 if mark else 0, problem) from error
    except YAMLError as error:
        raise NotYaml(0, f"this is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise NotYaml(0, f"this is nested more than {DEPTH} levels deep; make it flatter") from error


def _events(text: str) -> "Iterator[Event]":
    import yaml  # noqa: PLC0415 - as above

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times as fast; wheels have it
    parse = cast("Callable[..., Iterator[Event]]", yaml.parse)
    return parse(text, Loader=loader)


class _Builder:
    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._lines: dict[Path, int] = {}
        self._documents = 0
        self._root: object = None

    def build(self, events: "Iterator[Event]") -> Document:
        for event in events:
            name = type(event).__name__
            if name in ("MappingStartEvent", "SequenceStartEvent"):
                self._begin(cast("NodeEvent", event), {} if name == "MappingStartEvent" else [])
            elif name in ("MappingEndEvent", "SequenceEndEvent"):
                done = self._open.pop()
                self._place(done.value, done.line, done.anchor, done.nodes)
            elif name == "ScalarEvent":
                self._scalar(cast("ScalarEvent", event))
            elif name == "AliasEvent":
                self._alias(cast("NodeEvent", event))
            elif name == "DocumentStartEvent":
                self._documents += 1
                if self._documents > 1:
                    raise NotYaml(_line(event), "a second document begins here; a team file holds one")
        return Document(self._root, self._lines)

    def _begin(self, event: "NodeEvent", value: dict[str, object] | list[object]) -> None:
        self._check_tag(event)
        if len(self._open) >= DEPTH:
            raise NotYaml(_line(event), f"this is nested more than {DEPTH} levels deep; make it flatter")
        line = _line(event)
        self._open.append(_Open(value, self._here(line), line, cast("str | None", event.anchor) or ""))

    def _scalar(self, event: "ScalarEvent") -> None:
        self._check_tag(event)
        text = str(event.value)
        plain = event.style in (None, "")
        inside = self._open[-1] if self._open else None
        if inside is not None and isinstance(inside.value, dict) and inside.key is None:
            self._key(inside, text, _line(event))
            return
        self._here(_line(event))
        self._place(typed(text) if plain else text, _line(event), cast("str | None", event.anchor) or "", 1)

    def _key(self, inside: _Open, key: str, line: int) -> None:
        if key in inside.value:
            first = self._lines.get((*inside.path, key), 0)
            raise NotYaml(line, f"the key {key!r} is here twice (first in line {first}); keep one")
        if len(key) > _LONGEST_KEY:
            raise NotYaml(line, f"a key has more than {_LONGEST_KEY} characters; is a quotation mark missing?")
        if key == "<<":
            raise NotYaml(line, "merge keys (<<) are not understood; write the keys out")
        inside.key = key
        self._lines[(*inside.path, key)] = line

    def _alias(self, event: "NodeEvent") -> None:
        name = str(cast("str | None", event.anchor))
        if name not in self._anchors:
            raise NotYaml(_line(event), f"the alias *{name} has no finished anchor &{name} before it")
        value, nodes = self._anchors[name]
        self._here(_line(event))
        self._place(value, _line(event), "", nodes)

    def _here(self, line: int) -> Path:
        """The path of the value that begins now."""
        if not self._open:
            return ()
        inside = self._open[-1]
        if isinstance(inside.value, list):
            path = (*inside.path, len(inside.value))
            self._lines[path] = line
            return path
        if inside.key is None:
            raise NotYaml(line, "a key must be text, not a table or a list")
        return (*inside.path, inside.key)

    def _place(self, value: object, line: int, anchor: str, nodes: int) -> None:
        if anchor:
            self._anchors[anchor] = (value, nodes)
        if not self._open:
            self._root = value
            return
        inside = self._open[-1]
        inside.nodes += nodes
        if inside.nodes > NODES:
            raise NotYaml(line, f"there are more than {NODES:,} values here, aliases counted; make the file smaller")
        if isinstance(inside.value, list):
            inside.value.append(value)
        else:
            assert inside.key is not None, "a value has a key"
            inside.value[inside.key] = value
            inside.key = None

    def _check_tag(self, event: "NodeEvent") -> None:
        tag = cast("str | None", getattr(event, "tag", None))
        if tag is not None:
            raise NotYaml(_line(event), f"the tag {tag!r} is not understood; write plain data")


def _line(event: "Event") -> int:
    return int(event.start_mark.line) + 1
