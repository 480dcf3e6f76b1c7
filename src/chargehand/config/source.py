"""A team file: which one is meant, and the file as plain data, with its variables filled in and the line of each value.

YAML has the core types of version 1.2: only `true` and `false` are booleans, and keys are text as written. Duplicate
keys, tags, merge keys and a second document are errors; aliases count as often as they are used. What the keys of the
file mean is not known here.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path as File
from shlex import quote
from typing import Any, Literal, TypeAlias, cast

import msgspec
import yaml
from msgspec import Struct, structs
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

from chargehand.config.environment import Lookup, lookup_beside
from chargehand.errors import Invalid
from chargehand.models.providers import BUILT_IN, OWN, is_free
from chargehand.text.words import nearest_names

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


def scalar_value(text: str) -> object:
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


def read_yaml(text: str) -> Document:
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
            value = scalar_value(text) if event.style in (None, "") else text
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


# --- YAML


_MAX_BYTES = 1024 * 1024
_MAX_MESSAGE_CHARS = 600
_FILE = "file:"
"""What the name of a file begins with where a text may stand, too."""
_PIECE = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)


# --- findings


class FileFinding(Struct, frozen=True, omit_defaults=True):
    """One problem in a team file."""

    file: str
    message: str
    path: str = ""
    line: int = 0
    grave: bool = True
    """An error, which stops a team; else a warning."""

    def is_at(self, path: str) -> bool:
        """Whether it is about this place, or one beneath it."""
        return not path or self.path == path or self.path.startswith((f"{path}.", f"{path}["))

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


def written(path: Path) -> str:
    """A path as people read it: `workers.market.tools[1]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def near(name: str, names: Iterable[str]) -> str:
    """The nearest name, as the end of a sentence; nothing when none is near."""
    nearest = nearest_names(name, names, count=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def refuse(file: str, findings: Sequence[FileFinding]) -> None:
    """Raise Invalid for the first error, where there is one; the others are counted."""
    errors = [finding for finding in findings if finding.grave]
    if errors:
        more = f" ({len(errors) - 1} more: chargehand check --team {quote(file)})" if len(errors) > 1 else ""
        raise Invalid(f"{errors[0]}{more}")


class UnreadableFile(Invalid):
    """A file that is no team file at all."""

    def __init__(self, file: File, message: str, line: int = 0) -> None:
        self.finding = FileFinding(str(file), message, line=line)
        super().__init__(str(self.finding))


# --- reading


class FileSource(Struct, frozen=True):
    """The data of a file, the line of each value, and which variables went into it."""

    file: File
    data: dict[str, object]
    lines: dict[Path, int]
    used: dict[Path, tuple[str, ...]]
    findings: tuple[FileFinding, ...] = ()

    @property
    def folder(self) -> File:
        return self.file.parent

    def finding(self, path: Path, message: str, *, grave: bool = True) -> FileFinding:
        """Something to say of a place in this file."""
        return FileFinding(
            file=str(self.file), message=_shorten(message), path=written(path), line=self.line(path), grave=grave
        )

    def line(self, path: Path) -> int:
        """The line of a value, or of the nearest thing around it that has one."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 0


def _shorten(message: str) -> str:
    """A message in which a long value of the file does not hide what is wrong with it."""
    half = _MAX_MESSAGE_CHARS // 2
    return message if len(message) <= _MAX_MESSAGE_CHARS else f"{message[:half]} … {message[-half:]}"


def read_source(file: File) -> FileSource:
    """The data of a team file; Unreadable when it is none. What is wrong with its variables is among the findings."""
    document = _parse(file, _read_text(file))
    if not isinstance(document.data, dict):
        problem = "is empty" if document.data is None else "holds no table of keys"
        raise UnreadableFile(file, f"{problem}; begin with  version: 1  or make a team with: chargehand init minimal")
    filled = fill_variables(cast("object", document.data), lookup_beside(file.resolve().parent))
    source = FileSource(file, cast("dict[str, object]", filled.data), document.lines, filled.used)
    findings = tuple(source.finding(path, problem) for path, problem in filled.problems)
    return structs.replace(source, findings=findings)


def _read_text(file: File) -> str:
    try:
        text = read_bytes(file, "a team file").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(
            file, f"is not text in UTF-8 (byte {error.start}); save it as UTF-8, or name a team file"
        ) from error
    except Invalid as error:
        raise UnreadableFile(file, str(error).removeprefix(f"{file} ")) from error
    if "\0" in text:
        raise UnreadableFile(file, "is not text: it holds zero bytes; name a team file")
    return text


def read_bytes(file: File, what: str) -> bytes:
    """A whole file, if it is a real one and not too large."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise Invalid(f"{file} is no regular file; name {what}")
        with file.open("rb") as opened:
            body = opened.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid(f"{file} cannot be read: {reason}; name {what} that can be") from error
    if len(body) > _MAX_BYTES:
        raise Invalid(f"{file} is larger than 1 MiB; {what} is text that people read")
    return body


def _parse(file: File, text: str) -> Document:
    try:
        return read_yaml(text)
    except NotYaml as error:
        near_line = text.splitlines()[error.line - 1 : error.line]
        hint = "; inside { } and [ ] put ${…} in quotes" if near_line and "${" in near_line[0] else ""
        if near_line and re.match(r"\s*\t", near_line[0]):
            hint = "; the line begins with a tab: use spaces"
        raise UnreadableFile(file, f"{error}{hint}", error.line) from error


# --- variables


class FilledData(Struct):
    """Data with its variables filled in: which place took which variables, and what was wrong where."""

    lookup: Lookup
    data: object = None
    used: dict[Path, tuple[str, ...]] = {}
    problems: list[tuple[Path, str]] = []

    def fill(self, value: object, path: Path) -> object:
        # the reader bounds the depth and the count of values, aliases included
        if isinstance(value, dict):
            return {key: self.fill(item, (*path, key)) for key, item in cast("dict[str, object]", value).items()}
        if isinstance(value, list):
            return [self.fill(item, (*path, at)) for at, item in enumerate(cast("list[object]", value))]
        if isinstance(value, str) and "$" in value:
            return _PIECE.sub(lambda match: "$" if match[0] == "$$" else self._variable(match, path), value)
        return value

    def _variable(self, match: re.Match[str], path: Path) -> str:
        """The value of one variable; nothing, and a problem, where it has none."""
        variable = _NAME.match(match[1])
        if not variable or not match[2]:
            form = "write ${NAME} or ${NAME:-otherwise}, and $$ for a dollar sign"
            self.problems.append((path, f"${{{match[1][:40]} is no variable; {form}"))
            return ""
        name = variable[1]
        otherwise = cast("str | None", variable[2])
        self.used[path] = (*self.used.get(path, ()), name)
        value = self.lookup(name)
        if otherwise is not None:
            return value or otherwise
        if value is None:
            message = f"the variable {name} is not set; set it, put it into .env, or write ${{{name}:-otherwise}}"
            self.problems.append((path, message))
        return value or ""


def fill_variables(data: object, lookup: Lookup) -> FilledData:
    """The same data with every `${…}` in a scalar replaced. A missing variable is a problem, never an empty text.

    What comes out of a variable is text; the reader of the place may make a number of it.
    """
    filled = FilledData(lookup)
    filled.data = filled.fill(data, ())
    return filled


# --- the folder of a team file, and nothing outside


def inside(folder: File, written: str) -> File:
    """A path relative to the folder; Invalid when it is not there or leads out, by dots or by a link."""
    path = within(folder, written)
    if not path.exists():
        raise Invalid(f"there is no {written!r} beside the team file")
    return path


def within(folder: File, written: str) -> File:
    """The same for what need not be there yet."""
    if not written or "\0" in written:
        raise Invalid(f"{written!r} is no path; name a file or a folder beside the team file")
    if written.startswith("~") or File(written).is_absolute():
        raise Invalid(f"{written!r} is not relative to the team file; paths may not leave its folder")
    root = folder.resolve()
    try:
        path = (root / written).resolve()
        path.exists()  # a name that no file can have is an error here, not later
    except (OSError, RuntimeError) as error:
        raise Invalid(f"{written!r} cannot be followed: {error}") from error
    if not path.is_relative_to(root):
        raise Invalid(f"{written!r} leads out of the team's folder; copy what is needed into it")
    return path


def read_prose(folder: File, text: str) -> str:
    """Text as it stands, or that of a file for `file:path`."""
    if not text.startswith(_FILE):
        return text
    written = text.removeprefix(_FILE).strip()
    body = read_bytes(inside(folder, written), "a text file")
    try:
        return body.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise Invalid(f"{written!r} is not text in UTF-8; save it as UTF-8") from error


def read_schema(folder: File, written: str | dict[str, object]) -> dict[str, object]:
    """A JSON Schema that stands in the file, or in one beside it."""
    schema: object = written
    if isinstance(written, str):
        if not written.startswith(_FILE):
            raise Invalid(f"{written[:40]!r} is no schema; write file: and a path, or the schema itself")
        try:
            schema = msgspec.json.decode(read_prose(folder, written))
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(f"{written.removeprefix(_FILE).strip()!r} is not JSON: {error}") from error
    if not isinstance(schema, dict) or not isinstance(cast("dict[str, object]", schema).get("type"), str):
        raise Invalid('is no JSON Schema: begin with  type: object  (or "type": "object" in a file)')
    return cast("dict[str, object]", schema)


# --- which team file


NAMES = ("team.yaml", "team.yml")
VARIABLE = "CHARGEHAND_TEAM"
BUNDLED = "shop"
TEMPLATES = File(__file__).parent / "templates"

How: TypeAlias = Literal["named", "environment", "found", "bundled"]


class Found(Struct, frozen=True):
    """A team file, and how it was come by."""

    file: File
    how: How

    @property
    def words(self) -> str:
        return {
            "named": "named on the command line",
            "environment": f"named by {VARIABLE}",
            "found": "the nearest one upwards",
            "bundled": f"the bundled team {BUNDLED!r}, because there is no team file here or above",
        }[self.how]


def find_team(team: File | str | None = None, start: File | None = None) -> Found:
    """The team file to use; Invalid where one is named that is not there."""
    if team is not None:
        if not str(team):  # a variable of a script that is not set: another team than was meant must not run
            raise Invalid("the team has an empty name; name a team file or its folder, or name none")
        return Found(_file(File(team), ""), "named")
    if variable := os.environ.get(VARIABLE):
        return Found(_file(File(variable), f" (from {VARIABLE})"), "environment")
    if (nearest := _upwards((start or File.cwd()).resolve())) is not None:
        return Found(nearest, "found")
    return Found(TEMPLATES / BUNDLED / NAMES[0], "bundled")


def _file(path: File, how: str) -> File:
    if path.is_dir():
        inside = [path / name for name in NAMES if (path / name).is_file()]
        if not inside:
            raise Invalid(f"{path}{how} holds no {' or '.join(NAMES)}; write one, or: chargehand init minimal {path}")
        return _only(inside)
    if not path.exists():
        template = path.parent == File() and (TEMPLATES / path / NAMES[0]).is_file()
        bundled = f"; for the bundled one: chargehand init {path}" if template else ""
        if ":" in path.name:
            bundled = "; this command takes no team in Python (module:attribute)"
        elif path.with_name(f"{path.name}.py").is_file():
            bundled = f"; {_in_python(path)}"
        raise Invalid(f"there is no team file {path}{how}{bundled or '; to begin one: chargehand init minimal'}")
    if path.suffix == ".py":
        raise Invalid(f"{path}{how} is no team file; {_in_python(path)}")
    return path


def _in_python(path: File) -> str:
    return f"a team in Python is named {path.stem}:team, after the module and the variable"


def _only(inside: list[File]) -> File:
    if len(inside) > 1:
        both = " and ".join(file.name for file in inside)
        raise Invalid(f"{inside[0].parent} holds {both}; keep one, or name the one you mean with --team")
    return inside[0]


def _upwards(start: File) -> File | None:
    """The nearest team file, not above the root of the repository we are in."""
    for folder in (start, *start.parents):
        inside = [folder / name for name in NAMES if (folder / name).is_file()]
        if inside:
            return _only(inside)
        if (folder / ".git").exists():
            return None
    return None


# --- the model of a new team


_USUAL_NAMES = {"openai": "gpt-5-mini", "anthropic": "claude-haiku-4-5", "openrouter": "openai/gpt-5-mini"}
_MODEL = "CHARGEHAND_MODEL"


class Detected(Struct, frozen=True):
    """A model by its handle, and why it was chosen. `charged`: its calls cost money."""

    handle: str
    why: str
    charged: bool = False


def detect_model(environment: Mapping[str, str]) -> Detected:
    """The model that a variable names, or that of the first provider with a key; else the built-in one."""
    if handle := environment.get(_MODEL, "").strip():
        return Detected(handle, f"{_MODEL} names it", charged=not is_free(handle))
    for provider, name in _USUAL_NAMES.items():
        if environment.get(OWN[provider].key, "").strip():
            return Detected(f"{provider}:{name}", f"{OWN[provider].key} is set", charged=True)
    return Detected(BUILT_IN, "no key is set")
