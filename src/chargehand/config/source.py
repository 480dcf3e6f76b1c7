"""A team file as plain data: read, parsed, variables filled in. What its keys mean is not known here."""

import stat
import tomllib
from pathlib import Path as File
from typing import cast

from msgspec import Struct

from chargehand.config.environment import lookup_beside
from chargehand.config.findings import Finding, Path, written
from chargehand.config.interpolate import fill
from chargehand.config.yaml import DEPTH, Document, NotYaml, read
from chargehand.errors import Invalid

MOST_BYTES = 1024 * 1024

_LONGEST = 600


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
            file=str(self.file), message=shortened(message), path=written(path), line=self.line(path), grave=grave
        )

    def line(self, path: Path) -> int:
        """The line of a value, or of the nearest thing around it that has one."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 0


def shortened(message: str) -> str:
    """A message that does not drown what it says in what somebody wrote."""
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"


def read_source(file: File) -> Source:
    """The data of a team file; Invalid when it is none. What is wrong with its variables is among the findings."""
    document = _parsed(file, _text(file))
    if not isinstance(document.data, dict):
        problem = "is empty" if document.data is None else "holds no table of keys"
        raise Invalid(f"{file} {problem}; begin with  version: 1  or make a team with: chargehand init minimal")
    filled = fill(cast("object", document.data), lookup_beside(file.resolve().parent))
    source = Source(file, cast("dict[str, object]", filled.data), document.lines, filled.used)
    findings = tuple(source.finding(path, problem) for path, problem in filled.problems)
    return Source(file=file, data=source.data, lines=source.lines, used=source.used, findings=findings)


def _text(file: File) -> str:
    body = read_bytes(file, "a team file")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{file} is not text in UTF-8 (byte {error.start}); save it as UTF-8, or name a team file"
        ) from error
    if "\0" in text:
        raise Invalid(f"{file} is not text: it holds zero bytes; name a team file")
    return text


def read_bytes(file: File, what: str) -> bytes:
    """A whole file, if it is a real one and not too large."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise Invalid(f"{file} is no regular file; name {what}")
        with file.open("rb") as opened:
            body = opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid(f"{file} cannot be read: {reason}; name {what} that can be") from error
    if len(body) > MOST_BYTES:
        raise Invalid(f"{file} is larger than 1 MiB; {what} is text that people read")
    return body


def _parsed(file: File, text: str) -> Document:
    if file.suffix == ".toml":
        return _toml(file, text)
    try:
        return read(text)
    except NotYaml as error:
        near = text.splitlines()[error.line - 1 : error.line]
        hint = "; inside { } and [ ] put ${…} in quotes" if near and "${" in near[0] else ""
        if near and near[0][: len(near[0]) - len(near[0].lstrip())].count("\t"):
            hint = "; the line begins with a tab: use spaces"
        raise Invalid(str(Finding(str(file), f"{error}{hint}", line=error.line))) from error


def _toml(file: File, text: str) -> Document:
    deep = Invalid(f"{file}: this is nested more than {DEPTH} levels deep; make it flatter")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{file}: this is not TOML: {error}") from error
    except RecursionError as error:
        raise deep from error
    line: list[tuple[object, int]] = [(data, 1)]
    for value, depth in line:  # grows while it is walked
        if depth > DEPTH:
            raise deep
        if isinstance(value, dict):
            line.extend((item, depth + 1) for item in cast("dict[str, object]", value).values())
        elif isinstance(value, list):
            line.extend((item, depth + 1) for item in cast("list[object]", value))
    return Document(data, {})
