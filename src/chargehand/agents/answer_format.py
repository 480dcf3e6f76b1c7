"""Answers in the format that the caller of a run takes: JSON of a schema, or calls of the caller's own tools."""

import secrets
from collections.abc import Sequence

import msgspec
from msgspec import structs

from chargehand.agents.shape import JsonShape, find_object, sent_back
from chargehand.engine.events import NULL, AnswerFormat, CallerTool, CallerToolCall
from chargehand.engine.json_schema import problems
from chargehand.engine.plan import Finding
from chargehand.errors import Invalid
from chargehand.models.messages import Message, Reply, Request, Settings, ToolCall, ToolSpec

_AS_JSON = "Reply with JSON of this schema and nothing else. Put no citations into it, and leave out what is not known:"
_MAY_CALL = "The caller has tools of its own. Call one if its result is needed for the answer."
_MUST_CALL = "Answer by calling a tool of the caller, with arguments from the results."
_MAX_PROBLEMS = 5


class AnswerFormatter:
    """Asks a model for an answer in a format, and reads it."""

    def __init__(self, wanted: AnswerFormat) -> None:
        self._shape = None if wanted.schema == NULL else JsonShape(msgspec.json.decode(wanted.schema))
        offered = [tool for tool in wanted.tools if wanted.tool_choice in ("auto", "required", tool.name)]
        self._tools = {tool.name: tool for tool in offered}
        self._must_call = wanted.tool_choice != "auto"
        self._parallel_calls = wanted.parallel_calls

    def fits(self, value: object) -> bool:
        """Whether a result is the answer as it stands."""
        if self._shape is None or self._must_call:
            return False
        return not any(problems(value, self._shape.schema))

    def check(self, value: object) -> None:
        """Raise Invalid for a value that the schema does not allow."""
        if self._shape is not None and (faults := list(problems(value, self._shape.schema))[:_MAX_PROBLEMS]):
            raise Invalid("it does not fit the schema of the answer: " + "; ".join(faults))

    def request(self, request: Request, findings: Sequence[Finding]) -> Request:
        """The request for the answer, in this format. `findings` say what was wrong with the last reply."""
        rules: list[str] = []
        if self._tools:
            rules.append(_MUST_CALL if self._must_call else _MAY_CALL)
        if self._shape is not None:
            rules.append(f"{_AS_JSON}\n{bytes(self._shape.raw).decode()}")
        if findings:
            rules.append(f"Your last reply cannot be used. Mend this:\n{sent_back(findings)}")
        system, *others = request.messages
        settings = request.settings
        if not self._parallel_calls:
            settings = structs.replace(settings, parallel_tool_calls=False)
        return structs.replace(
            request,
            messages=(Message("system", "\n\n".join((system.text, *rules))), *others),
            tools=tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in self._tools.values()),
            schema=None if self._shape is None or self._must_call else self._shape.raw,
            settings=settings,
        )

    def read(self, reply: Reply) -> tuple[object, tuple[CallerToolCall, ...]]:
        """The answer, and the calls that it consists of; Invalid, in words for the model, where it does not fit."""
        if len(reply.calls) > 1 and not self._parallel_calls:
            raise Invalid("the reply calls several tools; call one at a time")
        if reply.calls:
            return reply.text.strip(), tuple(self._read_call(call) for call in reply.calls)
        if self._must_call:
            raise Invalid(f"the reply calls no tool; call one of {', '.join(self._tools)}")
        if self._shape is not None:
            return self._shape.read(reply.text), ()
        if not reply.text.strip():
            raise Invalid("the reply is empty; write the answer")
        return reply.text.strip(), ()

    def _read_call(self, call: ToolCall) -> CallerToolCall:
        tool = self._tools.get(call.name)
        if tool is None:
            raise Invalid(f"there is no tool {call.name!r}; the caller has {', '.join(self._tools) or 'none'}")
        arguments = find_object(call.arguments or "{}")
        if faults := list(problems(arguments, msgspec.json.decode(tool.parameters)))[:_MAX_PROBLEMS]:
            raise Invalid(f"the arguments of {call.name} do not fit: " + "; ".join(faults))
        return CallerToolCall(
            id=call.id or f"call_{secrets.token_hex(12)}",
            name=call.name,
            arguments=msgspec.json.encode(arguments).decode(),
        )


def formatter_of(wanted: AnswerFormat | None) -> AnswerFormatter | None:
    """What formats the answer of a run; None where it is plain text."""
    return None if wanted is None or wanted.is_text else AnswerFormatter(wanted)


def shorter(settings: Settings, wanted: AnswerFormat | None) -> Settings:
    """The settings of the model that answers, with the caller's limit if that is lower."""
    if wanted is None or wanted.max_tokens is None:
        return settings
    return structs.replace(settings, max_tokens=min(wanted.max_tokens, settings.max_tokens or wanted.max_tokens))


def describe_tools(tools: Sequence[CallerTool]) -> str:
    """What a planner is told about the caller's tools; empty where there are none."""
    if not tools:
        return ""
    listing = "\n".join(f"- {tool.name}: {tool.description or 'no description'}" for tool in tools)
    return (
        f"The caller has tools of its own, which no worker has:\n{listing}\n"
        "The answer may call them, so give no task for what they do. If their results are needed before anything else "
        "can be done, send no tasks and nothing in `unserved`."
    )
