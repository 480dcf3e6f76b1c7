"""A team file as plain data: read, parsed, variables filled in; and what there is to say of places in it.

What its keys mean is not known here.
"""

import re
import stat
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path as File
from shlex import quote
from typing import cast

import msgspec
from msgspec import Struct, structs

from chargehand.config.environment import Lookup, lookup_beside
from chargehand.config.yaml import DEPTH, Document, NotYaml, Path, read
from chargehand.errors import Invalid
from chargehand.text.names import nearest_names

_MAX_BYTES = 1024 * 1024
_MAX_MESSAGE_CHARS = 600
_FILE = "file:"
"""What the name of a file begins with where a text may stand, too."""
_PIECE = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)


# --- findings


class Finding(Struct, frozen=True, omit_defaults=True):
    """One problem in a team file."""

    file: str
    message: str
    path: str = ""
    line: int = 0
    grave: bool = True
    """An error, which stops a team; else a warning."""

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


def refuse(file: str, findings: Sequence[Finding]) -> None:
    """Raise Invalid for the first error, where there is one; the others are counted."""
    errors = [finding for finding in findings if finding.grave]
    if errors:
        more = f" ({len(errors) - 1} more: chargehand check --team {quote(file)})" if len(errors) > 1 else ""
        raise Invalid(f"{errors[0]}{more}")


class Unreadable(Invalid):
    """A file that is no team file at all."""

    def __init__(self, file: File, message: str, line: int = 0) -> None:
        self.finding = Finding(str(file), message, line=line)
        super().__init__(str(self.finding))


# --- reading


class Source(Struct, frozen=True):
    """The data of a file, the line of each value, and which variables went into it."""

    file: File
    data: dict[str, object]
    lines: dict[Path, int]
    used: dict[Path, tuple[str, ...]]
    findings: tuple[Finding, ...] = ()

    @property
    def folder(self) -> File:
        return self.file.parent

    def finding(self, path: Path, message: str, *, grave: bool = True) -> Finding:
        """Something to say of a place in this file."""
        return Finding(
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


def read_source(file: File) -> Source:
    """The data of a team file; Unreadable when it is none. What is wrong with its variables is among the findings."""
    document = _parse(file, _read_text(file))
    if not isinstance(document.data, dict):
        problem = "is empty" if document.data is None else "holds no table of keys"
        raise Unreadable(file, f"{problem}; begin with  version: 1  or make a team with: chargehand init minimal")
    filled = fill_variables(cast("object", document.data), lookup_beside(file.resolve().parent))
    source = Source(file, cast("dict[str, object]", filled.data), document.lines, filled.used)
    findings = tuple(source.finding(path, problem) for path, problem in filled.problems)
    return structs.replace(source, findings=findings)


def _read_text(file: File) -> str:
    try:
        text = read_bytes(file, "a team file").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(
            file, f"is not text in UTF-8 (byte {error.start}); save it as UTF-8, or name a team file"
        ) from error
    except Invalid as error:
        raise Unreadable(file, str(error).removeprefix(f"{file} ")) from error
    if "\0" in text:
        raise Unreadable(file, "is not text: it holds zero bytes; name a team file")
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
    if file.suffix == ".toml":
        return _parse_toml(file, text)
    try:
        return read(text)
    except NotYaml as error:
        near_line = text.splitlines()[error.line - 1 : error.line]
        hint = "; inside { } and [ ] put ${…} in quotes" if near_line and "${" in near_line[0] else ""
        if near_line and re.match(r"\s*\t", near_line[0]):
            hint = "; the line begins with a tab: use spaces"
        raise Unreadable(file, f"{error}{hint}", error.line) from error


def _parse_toml(file: File, text: str) -> Document:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(file, f"this is not TOML: {error}") from error
    except RecursionError:
        data = None
    level: list[object] = [data]
    for _ in range(DEPTH):
        level = [item for value in level for item in _items(value)]
    if data is None or level:
        raise Unreadable(file, f"this is nested more than {DEPTH} levels deep; make it flatter")
    return Document(data, {})


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


# --- variables


class Filled(Struct):
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


def fill_variables(data: object, lookup: Lookup) -> Filled:
    """The same data with every `${…}` in a scalar replaced. A missing variable is a problem, never an empty text.

    What comes out of a variable is text; whoever knows the place may read a number from it.
    """
    filled = Filled(lookup)
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
