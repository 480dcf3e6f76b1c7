"""Toolboxes in use: each is opened when the first of its tools is called, and closed with the executor it serves.

A toolbox that cannot be opened, or that ended by itself, fails calls and never a run: it is tried again by the next
call that the tool's breaker lets through. A mistake in its code fails the task, as one in a tool does.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

from msgspec import structs

from chargehand.code_errors import code_error, message_of
from chargehand.engine.failure import CodeError
from chargehand.tools.calling import ToolFailed
from chargehand.tools.tool import Tool, Toolbox

logger = logging.getLogger(__name__)

OPEN_TIMEOUT = 30.0
"""Seconds that opening a toolbox may take."""
CLOSE_TIMEOUT = 10.0
"""Seconds that closing one may take before its task is cancelled."""
_AnyTool = TypeVar("_AnyTool")


class OpenToolboxes:
    """The toolboxes of one executor, on one event loop. As a context, it closes at its end what was opened."""

    def __init__(self) -> None:
        self._connections: dict[int, _Connection] = {}
        self._jobs = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._jobs.__aenter__()
        return self

    async def __aexit__(self, *_error: object) -> None:
        for connection in self._connections.values():
            self._jobs.create_task(connection.close())
        await self._jobs.__aexit__(None, None, None)

    def connect(self, tools: Sequence[_AnyTool]) -> tuple[_AnyTool | Tool, ...]:
        """These tools; those of a toolbox open it when they are called."""
        return tuple(self._connected(tool) if isinstance(tool, Tool) else tool for tool in tools)

    def _connected(self, tool: Tool) -> Tool:
        toolbox = tool.toolbox
        if toolbox is None:
            return tool
        connection = self._connections.setdefault(id(toolbox), _Connection(toolbox, self._jobs))
        call = connection.caller_of(tool.name)
        return structs.replace(tool, function=call, timeout=OPEN_TIMEOUT + tool.timeout, toolbox=None)


class _Connection:
    """A toolbox that an executor uses: not opened yet, being opened, open, or ended."""

    def __init__(self, toolbox: Toolbox, jobs: asyncio.TaskGroup) -> None:
        self.toolbox = toolbox
        self._jobs = jobs
        self._opening: _Opening | None = None

    def caller_of(self, name: str) -> Callable[..., Any]:
        """A function that calls the tool of this name in the open toolbox."""

        async def call(**arguments: Any) -> object:
            tools = await self._open_tools()
            if name not in tools:
                raise ToolFailed(f"{name} is not offered by {self.toolbox.name} any more; do without it", broken=True)
            return await tools[name].call_with(arguments)

        return call

    async def _open_tools(self) -> Mapping[str, Tool]:
        if self._opening is None or self._opening.has_ended:
            self._opening = _Opening(self.toolbox, self._jobs)
        opening = self._opening
        await opening.is_settled.wait()
        if opening.problem:
            is_outage = opening.code_error is None
            failed = ToolFailed(f"{self.toolbox.name} could not be opened: {opening.problem}", broken=is_outage)
            failed.code_error = opening.code_error
            raise failed
        return opening.tools

    async def close(self) -> None:
        if self._opening is not None:
            await self._opening.close()


class _Opening:
    """One opening of a toolbox. Its own task enters and leaves the context: many may not be left by another task."""

    def __init__(self, toolbox: Toolbox, jobs: asyncio.TaskGroup) -> None:
        self._toolbox = toolbox
        self._is_closing = asyncio.Event()
        self.is_settled = asyncio.Event()
        """Set when it is open or has failed."""
        self.tools: Mapping[str, Tool] = {}
        self.problem = ""
        """Why it could not be opened, in words."""
        self.code_error: CodeError | None = None
        """The mistake in its code for which it could not be opened."""
        self._task = jobs.create_task(self._hold(), name=f"toolbox {toolbox.name}")

    @property
    def has_ended(self) -> bool:
        return self._task.done()

    async def close(self) -> None:
        self._is_closing.set()
        if not self.is_settled.is_set():
            self._task.cancel()
        _, pending = await asyncio.wait([self._task], timeout=CLOSE_TIMEOUT)
        if pending:
            logger.warning("toolbox %s did not close within %g s", self._toolbox.name, CLOSE_TIMEOUT)
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSE_TIMEOUT)

    async def _hold(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(OPEN_TIMEOUT):
                    tools = await stack.enter_async_context(self._toolbox.open())
                self.tools = {tool.name: tool for tool in tools}
                self.is_settled.set()
                await self._is_closing.wait()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a foreign context; calls are told
            self._note_end(error)
        finally:
            self.is_settled.set()

    def _note_end(self, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {message_of(error)}".removesuffix(": ")
        if not self.is_settled.is_set():
            is_late = isinstance(error, TimeoutError)
            self.problem = f"it took longer than {OPEN_TIMEOUT:g} s" if is_late else reason
            self.code_error = code_error(error)
        if not self._is_closing.is_set():
            logger.warning("toolbox %s ended: %s", self._toolbox.name, self.problem or reason)
