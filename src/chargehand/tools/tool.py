"""`@tool`: a typed function becomes a schema and a checked call. What it may do in the world it has to say.

A `Toolbox` is where tools come from that share a connection, which is opened and closed by those who use them.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, overload, runtime_checkable

import msgspec
from msgspec import Raw, Struct, field, structs

from chargehand.concurrency import Begun
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.declared import (
    Declared,
    Write,
    WrittenDuration,
    argument_problem,
    check_declared,
    is_async,
    seconds_of,
)
from chargehand.engine.events import Effect
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.models.messages import ToolSpec
from chargehand.text.words import did_you_mean
from chargehand.tools.approval import ApprovalFunction, Condition, Conditions, approval_function, check_conditions
from chargehand.tools.calling import THREADS, GivenUp, ToolFailed, failed_by
from chargehand.tools.schema import Arguments, Caller, CallKey, declared_arguments, function_arguments, name_of

__all__ = [
    "CAP",
    "CallKey",
    "Caller",
    "Costs",
    "LookUp",
    "Tool",
    "ToolFailed",
    "Toolbox",
    "Unknown",
    "UnknownOutcome",
    "as_tool",
    "tool",
    "tool_from_schema",
    "toolbox_tools",
    "unpack_toolboxes",
    "with_names",
]

CAP = 16 * 1024
MOST_NAMES = 50
"""Names that are listed in a schema; more would cost more than they help."""
_SCHEMA = 'the JSON Schema of its arguments as a dict: {"properties": {"city": {"type": "string"}}}'
Approve: TypeAlias = bool | Literal["always", "never"] | Conditions | Callable[..., object]
Reckon: TypeAlias = Callable[[dict[str, Any]], Amount]
_AnyTool = TypeVar("_AnyTool")


class UnknownOutcome(Struct, frozen=True):
    """The answer of a look-up that cannot tell whether a call happened. Use `Unknown`."""


Unknown = UnknownOutcome()
LookUp: TypeAlias = Callable[[Mapping[str, Any], str], object]
"""Takes the arguments and the idempotency key of a call. Returns its result, None (it did not happen) or `Unknown`; or
an awaitable of it.
"""


class Costs(Struct, frozen=True):
    """What a tool that is paid for returns: the result, and what was used (None: what was reserved)."""

    value: object
    used: Amount | None


@runtime_checkable
class Toolbox(Protocol):
    """A source of tools with a lifetime of its own: a session with a server, a pool of connections, a browser.

    A worker takes all of its tools (`tools=[toolbox]`) or some (`toolbox_tools`). The executor of a team opens it when
    the first of them is called, once for all workers and runs that it serves, and closes it at its own end. It is
    opened again when a tool is called after it ended by itself. Each opening is entered and left in a task of its own,
    on the event loop of the runs; there may be several at a time, one for each executor.
    """

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    def tools(self) -> Sequence["Tool"]:
        """Its tools as planners, models and checks are told of them. Nothing is opened, and none of them is called."""
        ...

    def open(self) -> AbstractAsyncContextManager[Sequence["Tool"]]:
        """Its tools, which can be called inside the context.

        Of those that were declared by `tools` the functions are called; effect, schema, timeout and approval stay as
        they were declared.
        """
        ...


class Tool(Declared, frozen=True):
    """A function an agent may call. `cap` is how many bytes of its result go into a context.

    With `approve` a person is asked before each call; with `conditions` before those whose arguments meet all of them,
    and with `decides` before those that the function says so of, and where it fails.
    A plain function runs in a thread, an async one on the loop. A thread cannot be stopped: when its time is up the
    call fails, but the function may go on until it returns. An async function that blocks holds up everybody.
    `quick` says that a plain function never waits for anything and returns at once: it is spared the thread.
    `poll` says that asking again for the same is what the tool is for; it is not taken for a loop.
    `stable` says that the same arguments give the same result for as long as the attempt itself changes nothing: a
    repeated call is answered with the earlier result, and the function is not called again.
    `trusted` says that no outsider wrote what it returns: a worker that has seen it may still write to blocks that
    give instructions.
    `summary` is what a planner reads of it; left out, the first paragraph of the description.
    `data` is what the demo model reads in place of the description. No language model is shown it, so it may hold text
    from outside: the rules of the demo model follow no instructions.
    `reserve` is what a call may cost at most, or a function that reckons it from the arguments; the result then is a
    `Costs`. With `share` less will do where less is left of the budget.
    """

    spec: ToolSpec
    function: Callable[..., Any]
    effect: Effect = "read"
    timeout: Seconds = 60.0
    cap: int = CAP
    approve: bool = False
    conditions: Conditions = field(default_factory=dict[str, Condition])
    decides: ApprovalFunction | None = None
    poll: bool = False
    quick: bool = False
    arguments: Arguments | None = None
    trusted: bool = False
    reserve: Amount | Reckon = NOTHING
    share: bool = False
    stable: bool = False
    summary: str = ""
    data: str = ""
    asks: bool = False
    """A person answers its calls: nothing is called."""
    instructs: bool = False
    """What it returns was written by who made the team, for the worker to follow; that of other tools is data."""
    relays: bool = False
    """What it returns is what other workers wrote: their words, not data."""
    hosted: bool = False
    """The provider of the worker's model runs it: nothing is called here, and its name is one of `PROVIDER_TOOLS`."""
    toolbox: Toolbox | None = None
    """Opened before it is called."""
    happened: LookUp | None = None
    """Looks up whether a call happened, after a crash or a lost reply; None: a person is asked."""

    def __post_init__(self) -> None:
        if not self.timeout > 0 or self.cap < 1:
            raise Invalid(f"tool {self.name!r}: timeout and cap must be more than nothing")
        if self.stable and (self.poll or self.effect != "read"):
            raise Invalid(f"tool {self.name!r} is stable, so it only reads and is not polled; leave out one of them")
        if self.happened is not None:
            self._check_look_up(self.happened)
        if self.arguments is None:
            structs.force_setattr(self, "arguments", function_arguments(self.function, self.name))
        if not self.quick:
            structs.force_setattr(self, "quick", is_async(self.function))

    def _check_look_up(self, happened: LookUp) -> None:
        if self.effect != "effect":
            raise Invalid(
                f"tool {self.name!r}: only an effect is looked up; add effect='effect', or leave happened out"
            )
        if problem := argument_problem(happened, "arguments", "key"):
            raise Invalid(
                f"tool {self.name!r}: happened cannot take the arguments and the key of a call ({problem}); "
                "write: def look(arguments, key)"
            )

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def takes_key(self) -> bool:
        """Return whether the function is given the idempotency key of a call."""
        return self.arguments is not None and bool(self.arguments.key or self.arguments.caller)

    @property
    def may_need_approval(self) -> bool:
        """Whether a person is asked before some of its calls, or all of them."""
        return self.approve or bool(self.conditions) or self.decides is not None

    async def decide_approval(self, arguments: str, caller: Caller) -> bool:
        """Ask its function whether a call needs approval; ToolFailed where that cannot be decided."""
        assert self.decides is not None, "it has a function that decides"
        assert self.arguments is not None
        values = self.decides.values(self.arguments.read(arguments), caller)
        function = self.decides.function
        decided = await structs.replace(self, function=function, quick=False, conditions={}).call_with(values)
        if not isinstance(decided, bool):
            raise ToolFailed(f"it returned {type(decided).__name__}, not True or False")
        return decided

    def holds(self, arguments: str) -> Amount:
        """What to reserve for a call; nothing where the arguments are none, since it will not be made."""
        if isinstance(self.reserve, Amount):
            return self.reserve
        assert self.arguments is not None
        try:
            return self.reserve(self.arguments.read(arguments))
        except ToolFailed:
            return NOTHING

    def check(self, arguments: str) -> None:
        """ToolFailed, in words for the model, for arguments that the tool cannot be called with."""
        assert self.arguments is not None
        self.arguments.read(arguments)

    async def call(self, arguments: str, key: str, caller: Caller | None = None) -> object:
        """Check the arguments and call; ToolFailed, in words for the model, when it does not work out."""
        assert self.arguments is not None
        values = self.arguments.read(arguments)
        if self.arguments.key:
            values[self.arguments.key] = key
        if self.arguments.caller:
            values[self.arguments.caller] = caller or Caller(key)
        return await self.call_with(values)

    async def look_up(self, arguments: Mapping[str, object], key: str) -> object:
        """Ask `happened` about a call.

        Returns:
            The result of the call, None if it did not happen, or `Unknown`.

        Raises:
            ToolFailed: the look-up failed.
        """
        assert self.happened is not None, "only a tool with a look-up is asked"
        values = {"arguments": arguments, "key": key}
        if is_async(self.happened):
            return await self._settled(self._happened, values)
        try:
            value = await THREADS.call(self._happened, values, self.timeout)
        except GivenUp:
            raise self._late() from None
        return await self._settled(lambda: value, {}) if inspect.isawaitable(value) else value

    def _happened(self, arguments: Mapping[str, object], key: str) -> object:
        assert self.happened is not None, "only a tool with a look-up is asked"
        return self.happened(arguments, key)

    async def call_with(self, values: dict[str, Any]) -> object:
        """Call with arguments that were checked; ToolFailed when it does not work out."""
        if self.quick:
            return await self._settled(self.function, values)
        try:
            value = await THREADS.call(self.function, values, self.timeout)
        except GivenUp:
            raise self._late() from None
        return await self._settled(lambda: value, {}) if inspect.isawaitable(value) else value

    async def _settled(self, function: Callable[..., Any], arguments: dict[str, Any]) -> object:
        limit: asyncio.Timeout | None = None
        try:
            value = function(**arguments)
            if inspect.iscoroutine(value):  # many never wait for anything: only the others need a clock
                try:
                    value = Begun(value, value.send(None))
                except StopIteration as done:
                    return done.value
            elif not inspect.isawaitable(value):
                return value
            limit = asyncio.timeout(self.timeout)
            async with limit:
                return await value
        except TimeoutError as error:
            is_late = limit is not None and limit.expired()
            raise self._late() if is_late else failed_by(error, arguments) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise failed_by(error, arguments) from error  # the tool's own: this call was not cancelled
        except (Exception, SystemExit) as error:  # whatever a foreign function raises
            raise failed_by(error, arguments) from error

    def _late(self) -> ToolFailed:
        late = ToolFailed(f"{self.name} did not finish within {self.timeout:g} s", broken=True)
        late.unknown = True
        return late


def with_names(tool: Tool, parameter: str, names: Sequence[str]) -> Tool:
    """The tool with the names that a parameter may take as an enum of its schema. Calls are checked as before."""
    schema: dict[str, Any] = msgspec.json.decode(tool.spec.parameters)
    fields = schema.get("properties", {})
    if parameter not in fields or not 0 < len(names) <= MOST_NAMES:
        return tool
    fields[parameter]["enum"] = list(names)
    spec = structs.replace(tool.spec, parameters=Raw(msgspec.json.encode(schema)))
    return structs.replace(tool, spec=spec)


def as_tool(function: Tool | Callable[..., Any]) -> Tool:
    """A tool as it is; any other callable with all that `@tool` assumes."""
    return function if isinstance(function, Tool) else tool(function)


def toolbox_tools(toolbox: Toolbox, *patterns: str) -> tuple[Tool, ...]:
    """The tools of a toolbox, or those whose names match one of the patterns (`read_*`), for `Worker(tools=[...])`.

    Invalid for a pattern that matches none.
    """
    tools = [structs.replace(tool, toolbox=toolbox) for tool in _declared_tools(toolbox)]
    for pattern in patterns:
        if not any(fnmatchcase(tool.name, pattern) for tool in tools):
            hint = did_you_mean(pattern, [tool.name for tool in tools])
            raise Invalid(f"toolbox {toolbox.name!r} has no tool {pattern!r}; {hint}")
    return tuple(tool for tool in tools if not patterns or any(fnmatchcase(tool.name, pattern) for pattern in patterns))


def _declared_tools(toolbox: Toolbox) -> Sequence[Tool]:
    """What a toolbox declares; Invalid where that is no list of tools, or where it cannot be opened."""
    if isinstance(toolbox, type):
        raise Invalid(f"{toolbox.__name__} is a class of toolboxes; write {toolbox.__name__}(...)")
    if inspect.iscoroutinefunction(toolbox.open) or inspect.isasyncgenfunction(toolbox.open):
        raise Invalid(
            f"toolbox {toolbox.name!r}: open() needs @asynccontextmanager (from contextlib), and yields its tools"
        )
    tools = toolbox.tools()
    must = f"toolbox {toolbox.name!r}: tools() must return a list of tools, made by @tool or tool_from_schema"
    if not isinstance(tools, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's function returned it
        raise Invalid(f"{must}; it returned {type(tools).__name__}")
    for tool in tools:
        if not isinstance(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            raise Invalid(f"{must}; there is {type(tool).__name__} in it")
    return tools


def unpack_toolboxes(tools: Sequence[_AnyTool | Toolbox]) -> tuple[_AnyTool | Tool, ...]:
    """Tools as a worker brings them, with those of a toolbox in its place."""
    unpacked: list[_AnyTool | Tool] = []
    for tool in tools:
        if isinstance(tool, Toolbox):
            unpacked += toolbox_tools(tool)
        else:
            unpacked.append(tool)
    return tuple(unpacked)


class ToolSettings(TypedDict, total=False):
    """Settings of a tool besides its name; `Tool` explains each."""

    happened: LookUp | None

    effect: Effect
    cap: int
    poll: bool
    quick: bool
    trusted: bool
    reserve: Amount | Reckon
    stable: bool
    summary: str
    data: str


@overload
def tool(function: Callable[..., Any]) -> Tool: ...
@overload
def tool(
    *,
    name: str = ...,
    description: str = ...,
    timeout: WrittenDuration = ...,
    approve: Approve = ...,
    **settings: Unpack[ToolSettings],
) -> Callable[[Callable[..., Any]], Tool]: ...
@check_declared("tool", settings=ToolSettings)
def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str = "",
    description: str = "",
    timeout: WrittenDuration = 60.0,
    approve: Approve = False,
    **settings: Unpack[ToolSettings],
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function; its docstring is what the model reads."""

    def make(function: Callable[..., Any]) -> Tool:
        arguments = function_arguments(function, name_of(function, name))
        return _make_tool(function, arguments, description or arguments.description, timeout, approve, settings)

    return make if function is None else make(function)


@check_declared("tool_from_schema", settings=ToolSettings)
def tool_from_schema(
    name: str,
    description: str,
    schema: Annotated[Mapping[str, Any], Write(_SCHEMA)],
    function: Callable[..., Any],
    *,
    timeout: WrittenDuration = 60.0,
    approve: Approve = False,
    **settings: Unpack[ToolSettings],
) -> Tool:
    """Make a tool of a JSON Schema and a callable; Invalid where the callable cannot take what the schema allows.

    Arguments that fit the schema are handed over by keyword, as plain data. The settings are those of `tool`.
    """
    arguments = declared_arguments(schema, name_of(function, name), function)
    return _make_tool(function, arguments, description, timeout, approve, settings)


def _make_tool(
    function: Callable[..., Any],
    arguments: Arguments,
    description: str,
    timeout: WrittenDuration,
    approve: Approve,
    settings: ToolSettings,
) -> Tool:
    made = Tool(
        ToolSpec(arguments.tool, description, Raw(msgspec.json.encode(arguments.schema))),
        function,
        timeout=seconds_of(f"tool {arguments.tool!r}: timeout", timeout),
        arguments=arguments,
        **settings,
    )
    return with_approval(made, approve)


def with_approval(tool: Tool, approve: Approve) -> Tool:
    """Return the tool with another rule for approval; Invalid where it does not fit the arguments of the tool."""
    assert tool.arguments is not None
    plain = structs.replace(tool, approve=approve in (True, "always"), conditions={}, decides=None)
    if callable(approve):
        return structs.replace(plain, decides=approval_function(approve, tool.arguments))
    if not isinstance(approve, Mapping):
        return plain
    check_conditions(approve, tool.name, tool.arguments.schema)  # also where there are none
    return structs.replace(plain, conditions=dict(approve))
