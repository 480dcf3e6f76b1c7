"""What a team file comes to, part by part, and everything that is wrong with it; texts and paths beside the file.

The parts are made in `assemble`.
"""

from pathlib import Path as File
from types import TracebackType
from typing import cast

import msgspec
from msgspec import Struct

from chargehand.agents.worker import Factory, Worker
from chargehand.config.schema import TeamShape
from chargehand.config.source import Finding, Source, read_bytes
from chargehand.config.yaml import Path
from chargehand.errors import Invalid
from chargehand.memory.blocks import Access, Grant
from chargehand.memory.catalog import Memory
from chargehand.tools.tool import Tool

_FILE = "file:"
"""What the name of a file begins with where a text may stand, too."""


class Own(Struct):
    """What one worker may do with blocks and archives, where that is not what everybody may."""

    blocks: dict[str, Access | Grant] = {}
    archives: dict[str, Access] = {}


class Parts(Struct):
    """Tools by entry, workers, the factory, the memory, and all there is to say about them.

    `model` stands in for every model, `store` for the file of a memory that names none, `elsewhere` for any.
    `above` are the files this one is inside of, the outermost first, which allowed so many levels; `read` are all that
    are inside the outermost. `inside` are the teams among the workers.
    """

    source: Source
    team: TeamShape
    model: str = ""
    store: File | str | None = None
    elsewhere: File | str | None = None
    above: tuple[File, ...] = ()
    allowed: int = 0
    read: list[File] = []
    inside: "dict[str, Parts]" = {}
    tools: dict[str, tuple[Tool, ...]] = {}
    memory: Memory | None = None
    own: dict[str, Own] = {}
    workers: list[Worker] = []
    factory: Factory | None = None
    findings: list[Finding] = []

    @property
    def nesting(self) -> int:
        """How deep teams may be inside each other, from the outermost on: nobody inside may widen it."""
        own = self.team.policy.limits.max_nesting
        if not self.above:
            return own
        return min(self.allowed, own) if self.is_written("policy", "limits", "max_nesting") else self.allowed

    def say(self, path: Path, message: str, *, grave: bool = True) -> None:
        self.findings.append(self.source.finding(path, message, grave=grave))

    def at(self, *path: str | int) -> "_Place":
        """A context in which Invalid is said of this place."""
        return _Place(self, path)

    def prose(self, path: Path, text: str) -> str:
        """Text as it stands, or that of a file for `file:path`."""
        with self.at(*path):
            return read_prose(self.source.folder, text)
        return ""

    def handle(self, written: str) -> str:
        """A model handle, or what stands in for every one of them."""
        return self.model or written

    def written_keys(self, *path: str) -> list[str]:
        """The keys that the file has in a table; none where it is not there."""
        table = self.source.data
        for key in path:
            inner = table.get(key)
            table = cast("dict[str, object]", inner) if isinstance(inner, dict) else {}
        return list(table)

    def is_written(self, *path: str) -> bool:
        """Whether the file has a key."""
        return path[-1] in self.written_keys(*path[:-1])


class _Place:
    def __init__(self, parts: Parts, path: Path) -> None:
        self._parts = parts
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Invalid):
            return False
        self._parts.say(self._path, str(error))
        return True


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
