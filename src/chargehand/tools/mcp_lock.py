"""The tools of MCP servers as a person approved them: the file `mcp.lock`, and what differs from it.

Models are shown what stands in the file, never what a server says today. How a server is reached is not known here.
"""

import hashlib
import os
import re
import tempfile
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field, structs

from chargehand.engine.events import Effect
from chargehand.engine.json_schema import schema_problem
from chargehand.errors import Invalid

LOCK_FILE = "mcp.lock"
LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 8 * 1024
_LARGEST_SCHEMA = 64 * 1024
_MAX_FILE = 16 * 1024 * 1024
_PRINTED = frozenset("\r\n\t")
_REPIN = "run  chargehand mcp approve"


class PinnedTool(Struct, frozen=True):
    """A tool as it was approved."""

    description: str
    schema: dict[str, Any]
    """The JSON Schema of its arguments."""
    hints: dict[str, bool] = {}
    """What the server says of its effect, in the words of the protocol: `readOnlyHint`, `idempotentHint` …"""
    sha256: str = ""
    """The digest of its name and all of the above."""

    @property
    def effect(self) -> Effect:
        """What it does to the world; a tool without a hint may do anything."""
        if self.hints.get("readOnlyHint"):
            return "read"
        return "idempotent" if self.hints.get("idempotentHint") else "effect"


class ServerIdentity(Struct, frozen=True, omit_defaults=True):
    """What a server is: where it is reached, and what it calls itself."""

    command: tuple[str, ...] = ()
    url: str = ""
    name: str = ""


class PinnedServer(Struct, frozen=True):
    """A server and its tools by name."""

    identity: ServerIdentity
    tools: dict[str, PinnedTool] = {}


class McpLock(Struct, frozen=True):
    """The whole file."""

    version: Literal[1] = 1
    servers: dict[str, PinnedServer] = {}

    def with_server(self, name: str, server: PinnedServer) -> "McpLock":
        return structs.replace(self, servers={**self.servers, name: server})


# --- tools


def pin_tool(name: str, description: str, schema: Mapping[str, Any], hints: Mapping[str, bool]) -> PinnedTool:
    """A tool with its digest; Invalid says why a model cannot be given it."""
    if not 0 < len(name) <= LONGEST_NAME:
        raise Invalid(f"its name has {len(name)} characters; at most {LONGEST_NAME} are taken")
    if len(description) > _LONGEST_DESCRIPTION:
        raise Invalid(
            f"its description has {len(description):,} characters; at most {_LONGEST_DESCRIPTION:,} are taken"
        )
    encoded = msgspec.json.encode(schema)
    if len(encoded) > _LARGEST_SCHEMA:
        raise Invalid(f"its schema has {len(encoded):,} bytes; at most {_LARGEST_SCHEMA:,} are taken")
    if hidden := hidden_characters(f"{name}{description}{encoded.decode()}"):
        raise Invalid(f"its text has characters that are not shown ({', '.join(hidden)})")
    if problem := schema_problem({"type": "object", "properties": {}, **schema}):
        raise Invalid(f"its schema is wrong: {problem}")
    tool = PinnedTool(description, dict(schema), dict(hints))
    return structs.replace(tool, sha256=tool_digest(name, tool))


def hidden_characters(text: str) -> list[str]:
    """The codes of characters that people do not see and models read: controls, directions, tags."""
    hidden = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Co") and char not in _PRINTED}
    return [f"U+{ord(char):04X}" for char in sorted(hidden)]


def tool_digest(name: str, tool: PinnedTool) -> str:
    parts = (name, tool.description, tool.schema, tool.hints)
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def is_called_alike(before: PinnedTool, now: PinnedTool | None) -> bool:
    """Whether a call made for one definition of a tool can be made for another: same arguments, same effect."""
    return now is not None and (before.schema, before.hints) == (now.schema, now.hints)


def model_name(server: str, tool: str) -> str:
    """What models call a tool: `server_tool`, with what providers do not take in a name as `_`."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{tool}")
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def matching_tools(tools: Mapping[str, PinnedTool], pattern: str) -> list[str]:
    """The names that a pattern such as `read_*` means."""
    return [name for name in tools if fnmatchcase(name, pattern)]


# --- what differs


class PinDifferences(Struct, frozen=True):
    """Where a server is not what was approved."""

    identity: tuple[str, ...] = ()
    """What of its identity changed: `command`, `url`, `name`. All of its tools stay off then."""
    changed: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Tools that are not as they were approved, and in what: `description`, `schema`, `hints`."""
    new: tuple[str, ...] = ()
    """Tools that were not approved."""
    missing: tuple[str, ...] = ()
    """Approved tools that the server does not have."""
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    """Of those: the names under which the server has the same now."""

    def __bool__(self) -> bool:
        return bool(self.identity or self.changed or self.new or self.missing)

    def describe(self) -> str:
        """Which tools are off, and why."""
        if self.identity:
            return f"all tools are off: {self.problem('')}"
        off = [f"{tool} is off ({self.problem(tool)})" for tool in (*self.changed, *self.missing)]
        off += [f"{tool} is not offered (it was not approved)" for tool in self.new]
        return listing(off)

    def problem(self, tool: str) -> str:
        """Why a tool stays off; empty: it is as it was approved."""
        if self.identity:
            return f"the server is not the one that was approved (its {' and '.join(self.identity)} changed)"
        if tool in self.changed:
            return f"its {' and '.join(self.changed[tool])} changed since it was approved"
        if tool in self.missing:
            return "the server does not have it any more"
        return ""


def changed_fields(before: Struct, after: Struct) -> dict[str, tuple[object, object]]:
    """The fields in which two structs of a kind differ, with the value of each."""
    current = structs.asdict(after)
    return {name: (value, current[name]) for name, value in structs.asdict(before).items() if value != current[name]}


def find_differences(pinned: PinnedServer, listed: PinnedServer, unfit: Collection[str] = ()) -> PinDifferences:
    """Compare what a server is now with what was approved. `unfit` are the tools that no model can be given."""
    identity = changed_fields(pinned.identity, listed.identity)
    missing = tuple(name for name in pinned.tools if name not in listed.tools and name not in unfit)
    new = tuple(name for name in listed.tools if name not in pinned.tools)
    by_content = {tool_digest("", listed.tools[name]): name for name in new}
    renamed = {name: by_content.get(tool_digest("", pinned.tools[name]), "") for name in missing}
    changed: dict[str, tuple[str, ...]] = {name: ("definition",) for name in pinned.tools if name in unfit}
    for name, tool in pinned.tools.items():
        if name in listed.tools and listed.tools[name].sha256 != tool.sha256:
            changed[name] = tuple(part for part in changed_fields(tool, listed.tools[name]) if part != "sha256")
    return PinDifferences(
        identity=tuple(identity),
        changed=changed,
        new=new,
        missing=missing,
        renamed={name: now for name, now in renamed.items() if now},
    )


def approve_tools(
    pinned: PinnedServer | None, listed: PinnedServer, is_approved: Callable[[str], bool]
) -> PinnedServer:
    """What was approved, with these tools as they are now. Those that are approved and gone are taken out."""
    earlier = {} if pinned is None else pinned.tools
    tools: dict[str, PinnedTool] = {}
    for name in dict.fromkeys((*earlier, *listed.tools)):
        current = listed.tools.get(name) if is_approved(name) else earlier.get(name)
        if current is not None:
            tools[name] = current
    return PinnedServer(listed.identity, tools)


# --- the file


def read_lock(file: Path) -> McpLock:
    """What was approved; nothing where there is no file. Invalid for one that was changed by hand."""
    try:
        if file.stat().st_size > _MAX_FILE:
            raise Invalid(f"{file.name} has more than {_MAX_FILE:,} bytes; write it anew with  chargehand mcp pin")
        lock = msgspec.json.decode(file.read_bytes(), type=McpLock)
    except FileNotFoundError:
        return McpLock()
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"{file.name} cannot be read: {error}; write it anew with  chargehand mcp pin") from error
    for server, pinned in lock.servers.items():
        for name, tool in pinned.tools.items():
            if tool.sha256 != tool_digest(name, tool):
                raise Invalid(
                    f"{file.name}: {server}/{name} is not what its sha256 says; to take it as it is now, {_REPIN}"
                )
    return lock


def file_stamp(file: Path) -> tuple[int, int]:
    """What changes whenever a file is written; of no file, too."""
    try:
        stat = file.stat()
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_ino)


def write_lock(file: Path, lock: McpLock) -> None:
    """Write the file whole, or not at all. It has only ASCII, so that nothing in it is hidden from people."""
    body = msgspec.json.format(msgspec.json.encode(lock, order="sorted"), indent=2).decode()
    ascii_body = re.sub(r"[^\x00-\x7f]", _escape, body)
    handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(f"{ascii_body}\n")
        Path(draft).chmod(0o644)
        Path(draft).replace(file)
    finally:
        Path(draft).unlink(missing_ok=True)


def _escape(match: re.Match[str]) -> str:
    """A character as JSON writes it in ASCII; one beyond the first plane as two."""
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def listing(names: Sequence[str], most: int = 5) -> str:
    """Names for a message, not too many of them."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def as_hints(annotations: object) -> dict[str, bool]:
    """The hints among the annotations of a tool: those that are true or false."""
    table = cast("dict[str, object]", annotations) if isinstance(annotations, dict) else {}
    return {key: value for key, value in table.items() if isinstance(value, bool)}
