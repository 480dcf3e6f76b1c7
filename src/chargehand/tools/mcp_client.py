"""`McpServer`: the tools of an MCP server as tools of a worker, as far as a person approved them (`mcp_lock`).

The server is started, or greeted, when the first of its tools is called (`mcp_session`); the SDK is imported then.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, structs

from chargehand.engine.declared import Declared, WrittenDuration, parse_timeout, seconds_of
from chargehand.engine.events import Effect
from chargehand.errors import Invalid
from chargehand.extras import OfExtra
from chargehand.models.messages import ToolSpec
from chargehand.text.words import did_you_mean
from chargehand.tools.mcp_lock import (
    LOCK_FILE,
    PinnedServer,
    PinnedTool,
    ServerIdentity,
    find_differences,
    matching_tools,
    model_name,
    read_lock,
    write_lock,
)
from chargehand.tools.schema import declared_arguments
from chargehand.tools.tool import Tool

if TYPE_CHECKING:
    from chargehand.tools.mcp_session import McpLink

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}\Z")
_CALLER = "caller of the tool"
"""The argument that brings the `Caller`; no schema has such a name."""


class McpServerKeys(Declared, frozen=True, kw_only=True):
    """What is said of a server in the same words in Python and in a team file."""

    command: Sequence[str] = ()
    """The program that is the server, and its arguments. It is started without a shell."""
    url: str = ""
    """Where the server is reached over HTTP, in place of `command`."""
    env: Mapping[str, str] = {}
    """Environment variables of the program. Besides these it gets `PATH`, `HOME` and the like, and no keys."""
    headers: Mapping[str, str] = {}
    """Headers of each request over HTTP, such as `Authorization`."""
    private: bool = False
    """The `url` may lead to this machine or a private network; left out, only to public addresses."""
    effects: Mapping[str, Effect] = {}
    """What tools do to the world, by name or pattern (`get_*`), where the hints of the server do not say it right."""
    connect_timeout: WrittenDuration = 30.0
    """How long starting and greeting the server may take."""
    list_timeout: WrittenDuration = 30.0
    """How long the list of its tools may take."""
    call_timeout: WrittenDuration = 60.0
    """How long a call may take."""


class McpServer(McpServerKeys, frozen=True):
    """An MCP server, for `Worker(tools=[server])`. Its tools are those that `mcp.lock` says were approved."""

    name: str
    """What it is called here: its tools are `mcp:NAME/tool`, and to models `NAME_tool`."""
    lock: Path | str = LOCK_FILE
    """The file of approved tools."""
    folder: Path | str = "."
    """Where the program is started."""
    close_timeout: WrittenDuration = 2.0
    """How long the program has to end when its input was closed, and once more when it got SIGTERM."""

    def __post_init__(self) -> None:
        where = f"MCP server {self.name!r}"
        if not _NAME.match(self.name):
            raise Invalid(f"{self.name[:40]!r} is no name for an MCP server; use up to 32 letters, digits, _ and -")
        if bool(self.command) == bool(self.url):
            raise Invalid(f"{where} needs a command or a url, and not both: command=['python', '-m', 'server']")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise Invalid(f"{where}: the url begins with http:// or https://")
        if self.url and self.env:
            raise Invalid(f"{where}: env is for a command; what a server over HTTP needs to know goes into headers")
        if self.command and (self.headers or self.private):
            raise Invalid(f"{where}: headers and private are for a url")
        for key in ("connect_timeout", "list_timeout", "call_timeout", "close_timeout"):
            structs.force_setattr(self, key, seconds_of(f"{where}: {key}", getattr(self, key)))

    def __repr__(self) -> str:
        """Without env and headers, which hold secrets."""
        return f"McpServer({self.name!r}, {list(self.command) or self.url!r})"

    @property
    def identity(self) -> ServerIdentity:
        """Where it is reached; what it calls itself is not known yet."""
        return ServerIdentity(tuple(self.command), self.url)

    def approved(self) -> PinnedServer:
        """What was approved; Invalid where that is nothing, or another server."""
        pinned = read_lock(Path(self.lock)).servers.get(self.name)
        if pinned is None:
            raise Invalid(
                f"no tool of the MCP server {self.name!r} was approved yet; look at them with  chargehand mcp pin  "
                "(for a server declared in Python:  await server.pin())"
            )
        if structs.replace(pinned.identity, name="") != self.identity:
            raise Invalid(
                f"the MCP server {self.name!r} is not the one that was approved: its command or url changed; "
                "look at it with  chargehand mcp diff"
            )
        return pinned

    def tools(self) -> Sequence[Tool]:
        """Its approved tools, as models are told of them."""
        return [self._declare(name, tool) for name, tool in self._checked().items()]

    def select(self, *patterns: str) -> tuple[Tool, ...]:
        """Its approved tools of these names, or that match these patterns (`read_*`), for `Worker(tools=[...])`."""
        pinned = self._checked()
        chosen: dict[str, PinnedTool] = {}
        for pattern in patterns:
            names = matching_tools(pinned, pattern)
            if not names:
                raise Invalid(f"mcp:{self.name}/{pattern} is no approved tool; {did_you_mean(pattern, pinned)}")
            chosen |= {name: pinned[name] for name in names}
        return tuple(structs.replace(self._declare(name, tool), toolbox=self) for name, tool in chosen.items())

    def _checked(self) -> dict[str, PinnedTool]:
        """Its approved tools; Invalid where `effects` speaks of one that it does not have."""
        pinned = self.approved().tools
        for pattern in self.effects:
            if not matching_tools(pinned, pattern):
                hint = did_you_mean(pattern, pinned)
                raise Invalid(f"MCP server {self.name!r}: effects: {pattern!r} is no approved tool; {hint}")
        return pinned

    def _declare(self, name: str, pinned: PinnedTool, link: "McpLink | None" = None) -> Tool:
        """A tool as models are told of it; with a link it can be called."""
        effect = pinned.effect
        for pattern, declared in self.effects.items():
            if fnmatchcase(name, pattern):
                effect = declared

        async def call(**arguments: Any) -> object:
            assert link is not None, "tools are called in an open toolbox"
            caller = arguments.pop(_CALLER, None)
            return await link.call(name, arguments, caller, repeat=effect != "effect")

        called = model_name(self.name, name)
        arguments = declared_arguments(pinned.schema, called, call)
        seconds = sum(map(parse_timeout, (self.connect_timeout, self.list_timeout, self.call_timeout)))
        return Tool(
            ToolSpec(called, pinned.description, Raw(msgspec.json.encode(arguments.schema))),
            call,
            effect=effect,
            timeout=2 * seconds,  # a call may be made a second time, after a restart
            arguments=structs.replace(arguments, caller=_CALLER),
        )

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sequence[Tool]]:
        """Its tools, to be called."""
        link = await self._link(self.approved)
        async with link:
            yield [self._declare(name, tool, link) for name, tool in link.pinned.tools.items()]

    async def listed(self) -> tuple[PinnedServer, dict[str, str]]:
        """What the server offers now; and the tools that no model can be given, each with the reason.

        ToolFailed says why the server does not tell.
        """
        async with await self._link(lambda: PinnedServer(self.identity)) as link:
            session = await link.connected()
            return session.listed, session.unfit

    async def pin(self) -> PinnedServer:
        """Approve all that the server offers, if nothing of it was approved yet.

        Invalid where something was, and the server is not that any more: `approve` takes it as it is now.
        """
        listed, _ = await self.listed()
        pinned = read_lock(Path(self.lock)).servers.get(self.name)
        if pinned is None:
            self._write(listed)
        elif find_differences(pinned, listed):
            raise Invalid(
                f"the MCP server {self.name!r} is pinned in {Path(self.lock).name}, and is not as it was approved; "
                "to take it as it is now:  await server.approve()"
            )
        return listed

    async def approve(self) -> PinnedServer:
        """Approve all that the server offers now, in place of what was approved before."""
        listed, _ = await self.listed()
        self._write(listed)
        return listed

    def _write(self, approved: PinnedServer) -> None:
        file = Path(self.lock)
        write_lock(file, read_lock(file).with_server(self.name, approved))

    async def _link(self, approved: Callable[[], PinnedServer]) -> "McpLink":
        await asyncio.to_thread(_import_sdk)  # it takes a second, the first time
        from chargehand.tools.mcp_session import McpEndpoint, McpLink  # noqa: PLC0415 - it needs an extra

        endpoint = McpEndpoint(
            name=self.name,
            identity=self.identity,
            env=self.env,
            headers=self.headers,
            private=self.private,
            folder=Path(self.folder),
            connect_seconds=parse_timeout(self.connect_timeout),
            list_seconds=parse_timeout(self.list_timeout),
            call_seconds=parse_timeout(self.call_timeout),
            close_seconds=parse_timeout(self.close_timeout),
        )
        return McpLink(endpoint, approved, Path(self.lock))


def _import_sdk() -> None:
    with OfExtra("an MCP server", "mcp"):
        import_module("mcp")
    import_module("chargehand.tools.mcp_session")
