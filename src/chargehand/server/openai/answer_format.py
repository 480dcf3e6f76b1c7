"""What an OpenAI client wants the answer to be: text, JSON of a schema, calls of the client's own tools."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from chargehand.engine.events import NULL, AnswerFormat, CallerTool, CallerToolCall
from chargehand.engine.json_schema import schema_problem
from chargehand.server.wire import Fault, Problem

Json: TypeAlias = dict[str, Any]

_MAX_TOOLS = 128
_MAX_STOPS = 4
_ANY_OBJECT = Raw(b'{"type":"object"}')
_CHOICES = ("auto", "required", "none")


class FunctionSent(Struct, frozen=True):
    """A function: declared, chosen, or called."""

    name: str = ""
    description: str | None = None
    parameters: Json | None = None
    arguments: str = ""


class ToolSent(FunctionSent, frozen=True):
    """A tool of the client. Chat completions have the function in an object of its own, responses have not."""

    type: str = ""
    function: FunctionSent | None = None


class SchemaSent(Struct, frozen=True):
    schema: Json | None = None


class FormatSent(SchemaSent, frozen=True):
    """A format of the answer. As with tools, chat completions have the schema in an object of its own."""

    type: str = ""
    json_schema: SchemaSent | None = None


Tools: TypeAlias = list[ToolSent] | None
ToolChoice: TypeAlias = str | ToolSent | None


def refused(param: str, detail: str, code: str = "unsupported_value") -> Problem:
    """A parameter that cannot be honoured."""
    return Problem(400, code, detail, faults=[Fault(place=param, message=detail, code=code)])


class WantedAnswer(Struct, frozen=True):
    """What a client says about the answer, as both of OpenAI's APIs put it."""

    tools: Tools
    tool_choice: ToolChoice
    form: FormatSent | None
    form_param: str
    max_tokens: int | None
    max_tokens_param: str
    parallel_calls: bool | None

    def read(self) -> AnswerFormat | None:
        """The format of the answer, None where it is plain text; a problem for what cannot be honoured."""
        if self.max_tokens is not None and self.max_tokens < 1:
            raise refused(self.max_tokens_param, "an answer has at least one token; leave it out for no limit")
        tools = () if self.tool_choice == "none" else _read_tools(self.tools or [])
        choice = _read_choice(self.tool_choice, tools) if tools else "auto"
        schema = NULL if self.form is None else _read_schema(self.form_param, self.form)
        wanted = AnswerFormat(
            schema=schema,
            tools=tools,
            tool_choice=choice,
            max_tokens=self.max_tokens,
            parallel_calls=not tools or self.parallel_calls is not False,
        )
        return None if wanted == AnswerFormat() else wanted


def _read_tools(tools: Sequence[ToolSent]) -> tuple[CallerTool, ...]:
    if len(tools) > _MAX_TOOLS:
        raise refused("tools", f"there are {len(tools)} tools; at most {_MAX_TOOLS} are read")
    return tuple(_read_tool(f"tools[{number}]", tool) for number, tool in enumerate(tools))


def _read_tool(param: str, tool: ToolSent) -> CallerTool:
    if tool.type != "function":
        detail = f"this tool is of type {tool.type[:40]!r}; a team calls functions of yours, and its workers' tools"
        raise refused(param, detail)
    function = tool.function or tool
    if not function.name:
        raise refused(param, "a function needs a name", "invalid_value")
    parameters = function.parameters or {"type": "object", "properties": {}}
    _check_schema(f"{param}.parameters", parameters)
    return CallerTool(function.name, Raw(msgspec.json.encode(parameters)), function.description or "")


def _read_choice(choice: ToolChoice, tools: Sequence[CallerTool]) -> str:
    if choice is None:
        return "auto"
    if isinstance(choice, ToolSent) and choice.type == "function":
        name = (choice.function or choice).name
        if any(tool.name == name for tool in tools):
            return name
        raise refused("tool_choice", f"there is no function {name[:100]!r} among the tools", "invalid_value")
    if isinstance(choice, str) and choice in _CHOICES:
        return choice
    raise refused("tool_choice", f"write one of {', '.join(_CHOICES)}, or name one function")


def _read_schema(param: str, form: FormatSent) -> Raw:
    if form.type == "text":
        return NULL
    if form.type == "json_object":
        return _ANY_OBJECT
    if form.type != "json_schema":
        raise refused(param, "a format is text, json_object or json_schema")
    schema = (form.json_schema or form).schema
    if schema is None:
        raise refused(f"{param}.schema", "a json_schema needs a schema", "invalid_value")
    _check_schema(f"{param}.schema", schema)
    return Raw(msgspec.json.encode(schema))


def _check_schema(param: str, schema: Json) -> None:
    """A problem for what no reply of a model can be held to."""
    if problem := schema_problem(schema):
        raise refused(param, f"this JSON Schema cannot be used: {problem}", "invalid_value")


def read_stops(stop: str | list[str] | None) -> tuple[str, ...]:
    """The texts before which an answer ends."""
    stops = [stop] if isinstance(stop, str) else stop or []
    if len(stops) > _MAX_STOPS or not all(stops):
        raise refused("stop", f"stop is up to {_MAX_STOPS} texts, none of them empty", "invalid_value")
    return tuple(stops)


def stopped(text: str, stops: Sequence[str]) -> str:
    """A text up to the first of these texts in it."""
    ends = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


# --- what is said of it in replies


def chat_call(call: CallerToolCall) -> Json:
    """A call as chat completions have it."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def response_call(call: CallerToolCall, *, status: str = "completed") -> Json:
    """A call as an item of a response."""
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments if status == "completed" else "",
        "status": status,
    }


def describe_format(wanted: AnswerFormat | None) -> Json:
    """The format of an answer as a response repeats it."""
    if wanted is None:
        wanted = AnswerFormat()
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description or None,
            "parameters": msgspec.json.decode(tool.parameters),
            "strict": None,
        }
        for tool in wanted.tools
    ]
    form: Json = {"type": "text"}
    if wanted.schema != NULL:
        form = {"type": "json_schema", "name": "answer", "schema": msgspec.json.decode(wanted.schema)}
    choice: object = wanted.tool_choice if tools else "none"
    if choice not in _CHOICES:
        choice = {"type": "function", "name": choice}
    return {
        "tools": tools,
        "tool_choice": choice,
        "text": {"format": form},
        "max_output_tokens": wanted.max_tokens,
        "parallel_tool_calls": wanted.parallel_calls,
    }
