"""Sessions with MCP servers: connected by the first call, compared with what was approved, made again when they break.

Whatever a server does, a call returns in time, with a result or with words for the model.
"""

import asyncio
import logging
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from math import ceil
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import msgspec
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Implementation,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolListChangedNotification,
)
from msgspec import Struct, field, structs

from chargehand.code_errors import message_of
from chargehand.concurrency import BareTaskGroup, first_error
from chargehand.engine.breaker import Breaker, lease, next_change, note, stand
from chargehand.engine.facts import ToolsWithheld
from chargehand.engine.policy import Breaking, Instant, Seconds
from chargehand.errors import Invalid
from chargehand.runtime.files import shown_type
from chargehand.tools.calling import ToolFailed, capped
from chargehand.tools.mcp_lock import (
    PinDifferences,
    PinnedServer,
    PinnedTool,
    ServerIdentity,
    as_hints,
    file_stamp,
    find_differences,
    is_called_alike,
    listing,
    model_name,
    pin_tool,
)
from chargehand.tools.mcp_transport import LARGEST_MESSAGE, REFUSED, SESSION_LOST, ServerProcess, http_client
from chargehand.tools.schema import Caller
from chargehand.tools.tool_files import ToolFile, WithFiles

logger = logging.getLogger(__name__)

LARGEST_RESULT = 512 * 1024
"""Bytes that are kept of a result; a model is shown less at a time."""
_LONGEST_ERROR = 2000
_RECHECK: Seconds = 60.0
"""After how long the tools of a server are compared with what was approved once more."""
_CLOSE: Seconds = 2.0
"""How long a session has to close before its task is cancelled, besides three times the time of its program."""
_MAX_TOOLS = 1000
_MAX_PAGES = 100
_MAX_TOLD = 1000
_RESTARTS = Breaking(consecutive=3, open=10.0)
"""A server that failed three times in a row is left alone for 10 s, then 20 …"""


class McpEndpoint(Struct, frozen=True, kw_only=True):
    """A server as it is reached."""

    name: str
    identity: ServerIdentity
    env: Mapping[str, str]
    headers: Mapping[str, str]
    private: bool
    folder: Path
    connect_seconds: Seconds
    list_seconds: Seconds
    call_seconds: Seconds
    close_seconds: Seconds


class ConnectionLost(ToolFailed):
    """The server ended before it answered, or forgot the session.

    It is `unknown` whether it did what it was asked for, unless it was not asked yet or refused.
    """

    def __init__(self, message: str, *, unknown: bool) -> None:
        super().__init__(message, broken=True)
        self.unknown = unknown


class McpLink:
    """The connection to a server for the runs of one executor. It is a context, and belongs to one event loop."""

    def __init__(self, endpoint: McpEndpoint, approved: Callable[[], PinnedServer], lock: Path) -> None:
        """`approved` reads what was approved, from the file `lock`: once more whenever the file changes."""
        self._endpoint = endpoint
        self._approved = approved
        self._lock = lock
        self._stamp = file_stamp(lock)
        self._shown = approved()
        self.pinned = self._shown
        self._jobs = BareTaskGroup()
        self._breaker = Breaker()
        self._reason = ""
        self._session: McpSession | None = None
        self._told: set[tuple[str, ToolsWithheld]] = set()
        self._logged = PinDifferences()

    async def __aenter__(self) -> Self:
        await self._jobs.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            self._session.close()
        await self._jobs.__aexit__(kind, error, trace)

    async def call(self, name: str, arguments: dict[str, Any], caller: Caller | None, *, repeat: bool) -> object:
        """Call a tool, unless it stays off. With `repeat` it is called again where the connection was lost."""
        try:
            return await self._call_once(name, arguments, caller)
        except ConnectionLost as lost:
            if lost.unknown and not repeat:
                raise
        return await self._call_once(name, arguments, caller)

    async def _call_once(self, name: str, arguments: dict[str, Any], caller: Caller | None) -> object:
        await self._read_lock()
        session = await self.connected()
        self._log(session.differences)
        self._tell(session.differences, caller)
        called = model_name(self._endpoint.name, name)
        if problem := session.differences.problem(name):
            raise ToolFailed(
                f"{called} is off: {problem}. A person must approve it first "
                "(chargehand mcp diff, chargehand mcp approve). Do without it."
            )
        if not is_called_alike(self._shown.tools[name], self.pinned.tools.get(name)):
            raise ToolFailed(
                f"{called} is off: it was approved anew with other arguments or hints, and the team must be loaded "
                "again for it. Do without it."
            )
        return await self._ask(session, name, arguments)

    async def _read_lock(self) -> None:
        """Read what was approved once more, where the file has changed; ToolFailed where nothing is any more."""
        stamp = file_stamp(self._lock)
        if stamp == self._stamp:
            return
        try:
            self.pinned = await asyncio.to_thread(self._approved)
        except Invalid as error:
            raise ToolFailed(f"all tools of {self._endpoint.name} are off: {error}. Do without them.") from error
        self._stamp = stamp
        if self._session is not None:
            self._session.compare_with(self.pinned)

    async def connected(self) -> "McpSession":
        """A session whose tools were compared with the approved ones lately; ToolFailed where there can be none."""
        session = self._session
        if session is None or session.is_over:
            self._check_breaker()
            session = McpSession(self._endpoint, self.pinned)
            session.job = self._jobs.create_task(session.hold())
            self._session = session
        try:
            await session.wait_until_open()
            await session.recheck()
        except ToolFailed as failed:
            self._give_up(session, str(failed))
            raise
        return session

    async def _ask(self, session: "McpSession", name: str, arguments: dict[str, Any]) -> object:
        try:
            value = await session.call(name, arguments)
        except ConnectionLost as lost:
            self._give_up(session, str(lost))
            raise
        except ToolFailed as failed:
            if not failed.broken:  # it answered
                note(self._breaker, _now(), _RESTARTS, good=True)
            raise
        note(self._breaker, _now(), _RESTARTS, good=True)
        return value

    def _give_up(self, session: "McpSession", reason: str) -> None:
        session.close()
        if self._session is not session:
            return  # another call has met the same end before
        self._session = None
        self._reason = reason
        note(self._breaker, _now(), _RESTARTS, good=False)
        logger.warning("MCP server %s: %s", self._endpoint.name, reason)

    def _check_breaker(self) -> None:
        now = _now()
        standing = stand(self._breaker, now)
        if standing == "half-open":
            lease(self._breaker, now, _RESTARTS)
        elif standing != "closed":
            wait = ceil(max(0.0, next_change(self._breaker) - now))
            raise ToolFailed(
                f"the MCP server {self._endpoint.name} is out of order and is tried again in {wait} s "
                f"(the last failure: {self._reason}). Do without it.",
                broken=True,
            )

    def _log(self, differences: PinDifferences) -> None:
        """Tell the operator, once, which tools are off and why."""
        if differences == self._logged:
            return
        self._logged = differences
        if differences:
            name = self._endpoint.name
            logger.warning("MCP server %s: %s; see  chargehand mcp diff %s", name, differences.describe(), name)

    def _tell(self, differences: PinDifferences, caller: Caller | None) -> None:
        """Have a run say, once, what of the server is not as it was approved."""
        if not differences or caller is None or caller.context is None:
            return
        fact = ToolsWithheld(
            server=f"mcp:{self._endpoint.name}",
            changed=tuple(differences.changed),
            new=differences.new,
            missing=differences.missing,
            identity=differences.identity,
        )
        if (caller.run, fact) in self._told:
            return
        if len(self._told) >= _MAX_TOLD:
            self._told.clear()
        self._told.add((caller.run, fact))
        caller.context.note(describe_withheld(fact), fact=fact)


def describe_withheld(fact: ToolsWithheld) -> str:
    """What stays off, in a sentence."""
    groups = (
        ("changed", fact.changed),
        ("new", fact.new),
        ("gone", fact.missing),
        ("all tools, since the server is another one", fact.identity),
    )
    parts = "; ".join(f"{words}: {listing(names)}" for words, names in groups if names)
    see = f"chargehand mcp diff {fact.server.removeprefix('mcp:')}"
    return f"{fact.server} is not as it was approved, and what differs is off ({parts}); see  {see}"


# --- one session


class McpSession(Struct, eq=False):
    """One connection. A task of its own holds it: contexts of the SDK must be left by the task that entered them."""

    endpoint: McpEndpoint
    pinned: PinnedServer
    job: asyncio.Task[None] | None = None
    problem: str = ""
    """Why it could not be connected, or why it ended."""
    listed: PinnedServer = PinnedServer(ServerIdentity())
    """What the server offers."""
    unfit: dict[str, str] = {}
    """The tools that no model can be given, with the reasons."""
    differences: PinDifferences = PinDifferences()
    _opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is connected, or never will be."""
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _client: Client | None = None
    _process: ServerProcess | None = None
    _checked: Instant = 0.0
    """When its tools were compared with the approved ones; 0: never, or they changed since."""
    _checking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_over(self) -> bool:
        return self._over.is_set() or (self._process is not None and self._process.has_ended)

    def close(self) -> None:
        self._over.set()
        if self.job is not None:
            wait = _CLOSE + 3 * self.endpoint.close_seconds if self._opened.is_set() else 0.0
            asyncio.get_running_loop().call_later(wait, self.job.cancel)

    async def hold(self) -> None:
        """Connect, and stay connected until it is closed."""
        try:
            async with AsyncExitStack() as stack:
                self._client = await self._connect(stack)
                self._opened.set()
                await self._over.wait()
        except (Exception, BaseExceptionGroup, asyncio.CancelledError) as error:  # noqa: BLE001 - it fails calls only
            self._note_end(error)
        finally:
            self._client = None
            self._over.set()
            self._opened.set()

    async def _connect(self, stack: AsyncExitStack) -> Client:
        endpoint = self.endpoint
        if endpoint.identity.command:
            self._process = ServerProcess(
                endpoint.identity.command, endpoint.env, endpoint.folder, close_seconds=endpoint.close_seconds
            )
            transport = self._process.transport()
        else:
            url = endpoint.identity.url
            http = await stack.enter_async_context(http_client(url, endpoint.headers, private=endpoint.private))
            transport = streamable_http_client(url, http_client=http, max_sse_event_size=LARGEST_MESSAGE)
        info = Implementation(name="chargehand", version=version("chargehand"))
        client = Client(transport, client_info=info, cache=None, message_handler=self._hear)
        return await stack.enter_async_context(client)

    async def _hear(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._checked = 0.0

    def _note_end(self, error: BaseException) -> None:
        if isinstance(error, BaseExceptionGroup):
            error = first_error(cast("BaseExceptionGroup[BaseException]", error))
        words = message_of(error) or type(error).__name__
        self.problem = self.problem or self._with_remark(words)

    def _with_remark(self, words: str) -> str:
        """What is known of an end, with the last words of the process."""
        remark = "" if self._process is None else self._process.remark
        return f"{words} ({remark})" if remark else words

    async def wait_until_open(self) -> None:
        """Wait until it is connected; ToolFailed where that failed, or takes too long."""
        limit = self.endpoint.connect_seconds
        try:
            async with asyncio.timeout(limit):
                await self._opened.wait()
        except TimeoutError:
            self.problem = self._with_remark(f"it did not answer within {limit:g} s")
        if self._client is None:
            reason = (self.problem or "it was closed")[:_LONGEST_ERROR]
            raise ToolFailed(f"the MCP server {self.endpoint.name} cannot be reached: {reason}", broken=True)

    async def recheck(self) -> None:
        """Compare its tools with the approved ones, if that was long ago; ToolFailed where it does not tell them."""
        async with self._checking:
            if self._checked and _now() - self._checked < _RECHECK:
                return
            limit = self.endpoint.list_seconds
            started = _now()
            try:
                async with asyncio.timeout(limit):
                    await self._list_tools()
            except TimeoutError as error:
                words = f"did not list its tools within {limit:g} s"
                raise ToolFailed(f"the MCP server {self.endpoint.name} {words}", broken=True) from error
            except Exception as error:  # whatever a foreign server makes the SDK raise
                self._raise_if_lost(error, unknown=False)
                words = f"did not list its tools: {message_of(error) or type(error).__name__}"[:_LONGEST_ERROR]
                raise ToolFailed(f"the MCP server {self.endpoint.name} {words}", broken=True) from error
            self._checked = started
            self.compare_with(self.pinned)

    def compare_with(self, pinned: PinnedServer) -> None:
        """Compare what it offered last with what is approved now."""
        self.pinned = pinned
        if self._checked:  # else it is asked what it offers before the next call
            self.differences = find_differences(pinned, self.listed, self.unfit)

    async def _list_tools(self) -> None:
        client = self._open_client()
        tools: dict[str, PinnedTool] = {}
        unfit: dict[str, str] = {}
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                hints = None if tool.annotations is None else tool.annotations.model_dump(by_alias=True)
                try:
                    tools[tool.name] = pin_tool(tool.name, tool.description or "", tool.input_schema, as_hints(hints))
                except Invalid as error:
                    unfit[tool.name] = str(error)
            if len(tools) + len(unfit) > _MAX_TOOLS:
                raise ToolFailed(f"it has more than {_MAX_TOOLS} tools")
            cursor = page.next_cursor
            if cursor is None:
                break
        info = client.server_info
        identity = structs.replace(self.endpoint.identity, name="" if info is None else info.name[:_LONGEST_ERROR])
        self.listed = PinnedServer(identity, tools)
        self.unfit = unfit

    def _open_client(self) -> Client:
        if self._client is None or self.is_over:
            raise ConnectionLost(self._ended(), unknown=False)
        return self._client

    async def call(self, name: str, arguments: dict[str, Any]) -> object:
        """What a tool returns; ToolFailed, in words for the model, where it returns nothing."""
        client = self._open_client()
        limit = asyncio.timeout(self.endpoint.call_seconds)
        try:
            async with limit:
                result = await client.call_tool(name, arguments)
        except TimeoutError as error:
            self._checked = 0.0  # the next call asks for the list first, so a server that hangs is started anew
            words = f"did not finish within {self.endpoint.call_seconds:g} s"
            raise _failure(f"{name} {words if limit.expired() else message_of(error)}", is_known=False) from error
        except MCPError as error:
            self._raise_if_lost(error, unknown=True)
            if error.code == REFUSED:
                raise ToolFailed(f"{name} was refused: {error.message}"[:_LONGEST_ERROR], broken=True) from error
            is_known = error.code in (INVALID_PARAMS, METHOD_NOT_FOUND)  # then nothing was done
            raise _failure(f"{name} failed: {error.message}", is_known=is_known) from error
        except Exception as error:  # a result that is none, and whatever else the SDK raises
            self._raise_if_lost(error, unknown=True)
            raise _failure(f"{name} returned what is no result: {message_of(error)}", is_known=False) from error
        text = result_text(result)
        if result.is_error:
            raise _failure(text or f"{name} failed without saying why", is_known=True)
        value = result_value(result, text)
        files = result_files(result)
        return WithFiles(value or None, files) if files else value

    def _raise_if_lost(self, error: Exception, *, unknown: bool) -> None:
        """Raise ConnectionLost where an error means that there is no session any more."""
        if isinstance(error, MCPError) and error.code == SESSION_LOST:
            self.problem = error.message
            raise ConnectionLost(self._ended(), unknown=False) from error
        if self.is_over or (isinstance(error, MCPError) and error.code == CONNECTION_CLOSED):
            raise ConnectionLost(self._ended(), unknown=unknown) from error

    def _ended(self) -> str:
        words = self.problem or self._with_remark("it broke off the connection")
        return f"the MCP server {self.endpoint.name} ended before it answered: {words}"[:_LONGEST_ERROR]


def _failure(words: str, *, is_known: bool) -> ToolFailed:
    """A call that failed; where it is not known whether the tool did its work, the server is out of order."""
    failed = ToolFailed(words[:_LONGEST_ERROR], broken=not is_known)
    failed.unknown = not is_known
    return failed


def _now() -> Instant:
    return asyncio.get_running_loop().time()


# --- results


def result_text(result: CallToolResult) -> str:
    """The texts of a result; what is no text is named, but for the files that come with it."""
    parts: list[str] = []
    for block in result.content:
        if isinstance(block, TextContent):
            parts.append(block.text)
        elif isinstance(block, EmbeddedResource) and isinstance(block.resource, TextResourceContents):
            parts.append(block.resource.text)
        elif isinstance(block, ResourceLink):
            parts.append(f"({block.name}: {block.uri})")
        elif _file_of(block) is None:
            parts.append(_unreadable(block))
    return capped("\n".join(parts), LARGEST_RESULT)[0]


def result_files(result: CallToolResult) -> tuple[ToolFile, ...]:
    """The pictures and PDFs of a result."""
    return tuple([file for block in result.content if (file := _file_of(block)) is not None])


def _file_of(block: ContentBlock) -> ToolFile | None:
    """The picture or the PDF that a block is; None where it is neither, or no file at all."""
    name = ""
    if isinstance(block, ImageContent):
        data = block.data
    elif isinstance(block, EmbeddedResource) and isinstance(block.resource, BlobResourceContents):
        data = block.resource.blob
        name = str(block.resource.uri).rstrip("/").rpartition("/")[2]
    else:
        return None
    try:
        body = b64decode(data, validate=True)
    except ValueError:
        return None
    return ToolFile(body, name) if shown_type(body) else None


def _unreadable(block: ContentBlock) -> str:
    """What stands in the place of what is neither text nor a file that models are shown."""
    if isinstance(block, ImageContent | AudioContent):
        return f"({block.type} of type {block.mime_type}, which cannot be shown here)"
    return f"({block.resource.uri}, which is no text)" if isinstance(block, EmbeddedResource) else ""


def result_value(result: CallToolResult, text: str) -> object:
    """Structured content as data under `result`, so that it is not taken for an artifact of ours; else the text."""
    content = cast("object", result.structured_content)
    if content is None:
        return text
    body = msgspec.json.encode(content)
    if len(body) > LARGEST_RESULT:
        return capped(body.decode(), LARGEST_RESULT)[0]
    if isinstance(content, dict) and list(cast("dict[str, object]", content)) == ["result"]:
        return cast("object", content)
    return {"result": cast("object", content)}
