"""Tools that a client runs itself: the agent waits with the call until the client sends what it returned."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct, field

from chargehand.agents.equip import OURS
from chargehand.agents.shape import problems
from chargehand.models.messages import ToolSpec
from chargehand.server.letta.schemas import schema_problem
from chargehand.server.problem import Problem
from chargehand.tools.tool import Caller, Tool, ToolFailed

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_MOST_TOOLS = 128
_MOST_SHOWN = 5
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


class ClientTool(Struct, frozen=True, omit_defaults=True):
    """A tool as its client describes it; `parameters` is a JSON Schema of one object."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ClientReturn(Struct, frozen=True, omit_defaults=True):
    """What a call came to at the client, as it is kept with the answer."""

    text: str = ""
    good: bool = True
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()


FindReturn = Callable[[str, str], Awaitable[ClientReturn | None]]
"""What the client sent for a call of this name with these arguments."""


def check_client_tools(tools: Sequence[ClientTool]) -> None:
    """Raise a problem for tools that no model could be told of."""
    if len(tools) > _MOST_TOOLS:
        raise Problem(422, "invalid", f"there are {len(tools)} client_tools; {_MOST_TOOLS} are the most")
    names = [tool.name for tool in tools]
    for number, tool in enumerate(tools):
        place = f"client_tools[{number}]"
        if not _NAME.match(tool.name) or tool.name in OURS:
            said = "up to 64 letters, digits, - and _, and none of this server's own"
            raise Problem(422, "invalid", f"{place}.name is {tool.name[:80]!r}; it must be {said}")
        if names.count(tool.name) > 1:
            raise Problem(422, "invalid", f"two client_tools are called {tool.name!r}; rename one")
        schema = tool.parameters or _NO_PARAMETERS
        if schema.get("type", "object") != "object":
            raise Problem(422, "invalid", f"{place}.parameters must be a JSON Schema of an object")
        if problem := schema_problem(schema):
            raise Problem(422, "invalid", f"{place}.parameters: {problem}")


class ClientSideTool(Tool, frozen=True):
    """A client's tool as an agent has it. Every call waits for its client, who sends the return with the answer."""

    schema: dict[str, Any] = field(default_factory=dict[str, Any])
    find_return: FindReturn | None = None

    def check(self, arguments: str) -> None:
        try:
            given = msgspec.json.decode(arguments or "{}", type=dict[str, object])
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ToolFailed(f"the arguments of {self.name} must be one JSON object: {error}") from error
        if wrong := list(problems(given, self.schema))[:_MOST_SHOWN]:
            raise ToolFailed(f"the arguments of {self.name} do not fit: {'; '.join(wrong)}")

    async def call(self, arguments: str, key: str, caller: Caller | None = None) -> object:  # noqa: ARG002 - the client made it
        returned = None if self.find_return is None else await self.find_return(self.name, arguments)
        if returned is None:
            raise ToolFailed(f"the client sent no result of {self.name}; go on without it")
        if not returned.good:
            raise ToolFailed(f"{self.name} failed: {returned.text}")
        return returned.text


async def _never() -> None:
    """Stands where a function must: a client's tool is none of this process."""


def client_side_tools(tools: Sequence[ClientTool], find_return: FindReturn) -> dict[str, Tool]:
    """The tools of a client, for the agent that it speaks to."""
    made: dict[str, Tool] = {}
    for tool in tools:
        schema = tool.parameters or _NO_PARAMETERS
        spec = ToolSpec(tool.name, tool.description or "", Raw(msgspec.json.encode(schema)))
        made[tool.name] = ClientSideTool(
            spec, partial(_never), approve=True, poll=True, schema=schema, find_return=find_return
        )
    return made


# --- what the client sends back


def client_returns(entries: Sequence[Mapping[str, object]], place: str) -> Iterator[tuple[str, ClientReturn]]:
    """The returns among what a client sends, by the id of the call."""
    for number, entry in enumerate(entries):
        call = entry.get("tool_call_id")
        status = entry.get("status")
        if not isinstance(call, str) or status not in ("success", "error"):
            said = "needs a tool_call_id, a tool_return and a status: success or error"
            raise Problem(422, "invalid", f"{place}[{number}] {said}. Nothing was done.")
        text = _text(entry.get("tool_return"), f"{place}[{number}]")
        yield call, ClientReturn(text, status == "success", _lines(entry.get("stdout")), _lines(entry.get("stderr")))


def _text(value: object, place: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise Problem(422, "invalid", f"{place}.tool_return must be a text, or a list of parts. Nothing was done.")
    parts = cast("list[dict[str, object]]", value)
    if other := next((part.get("type") for part in parts if part.get("type", "text") != "text"), None):
        said = f"{place}.tool_return holds a part of type {other!r}, which is not supported: send its text"
        raise Problem(422, "unsupported", f"{said}. Nothing was done.")
    return "\n".join(str(part.get("text", "")) for part in parts)


def _lines(value: object) -> tuple[str, ...]:
    return tuple(map(str, cast("list[object]", value))) if isinstance(value, list) else ()
