"""A worker's loop in a few lines, for tests of the offline model: real tools, real envelopes, no journal."""

import asyncio
import json
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw, Struct

from chargehand.models.envelope import wrap
from chargehand.models.exhibits import Product
from chargehand.models.messages import Message, ToolCall, ToolSpec
from chargehand.models.offline.work import work
from chargehand.models.subject import Given, Said, Shown, Skill, WorkerCard, Working
from chargehand.terms.failure import Gap
from chargehand.terms.value import encode_value
from chargehand.tools.tool import Tool, ToolFailed, as_tool

GIVE_UP = ToolSpec(
    "give_up", "Say why it cannot be done.", Raw(b'{"type":"object","properties":{"reason":{"type":"string"}}}')
)
MOST = 8


class Worked(Struct):
    """What came of a task: the calls that were made, and the text or the reason there is none."""

    calls: list[ToolCall]
    results: list[object]
    text: str = ""
    gave_up: str = ""

    def arguments(self, at: int = 0) -> dict[str, object]:
        return json.loads(self.calls[at].arguments)

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.calls]


def given(value: object, task: str = "t1") -> Given:
    return Given(task, "", "", value)


def table(columns: Sequence[str], *rows: Sequence[object], text: str = "") -> Given:
    exhibit = {"kind": "table", "columns": list(columns), "rows": [list(row) for row in rows]}
    return given({"text": text, "exhibits": [exhibit], "sources": []})


def do(
    instruction: str,
    tools: Sequence[Tool | Callable[..., object]] = (),
    inputs: Sequence[Given] = (),
    gaps: Sequence[Gap] = (),
    schema: dict[str, object] | None = None,
    *,
    blocks: Sequence[Shown] = (),
    earlier: Sequence[Said] = (),
    told: str = "You work.",
) -> Worked:
    """Do one task to its end."""
    made = [as_tool(one) for one in tools]
    skills = tuple(Skill(one.name, one.spec.description, one.spec.parameters) for one in made)
    card = WorkerCard("worker", "works", (), skills)
    subject = Working(
        instruction=instruction,
        worker=card,
        inputs=tuple(inputs),
        gaps=tuple(gaps),
        blocks=tuple(blocks),
        earlier=tuple(earlier),
    )
    return asyncio.run(_do(subject, made, schema, told))


async def _do(subject: Working, tools: Sequence[Tool], schema: dict[str, object] | None, told: str) -> Worked:
    specs = (*(one.spec for one in tools), GIVE_UP)
    by_name = {one.name: one for one in tools}
    messages = [Message("system", told), Message("user", subject.instruction)]
    worked = Worked([], [])
    for _ in range(MOST):
        reply = work(subject, messages, specs, None if schema is None else Raw(msgspec.json.encode(schema)))
        assert work(subject, messages, specs, None if schema is None else Raw(msgspec.json.encode(schema))) == reply
        messages.append(reply.message())
        if not reply.calls:
            worked.text = reply.text
            return worked
        for call in reply.calls:
            if call.name == "give_up":
                worked.gave_up = json.loads(call.arguments)["reason"]
                return worked
            worked.calls.append(call)
            messages.append(
                Message(
                    "tool",
                    wrap("a1b2", f"tool {call.name}", await _made(by_name[call.name], call, worked)),
                    call=call.id,
                )
            )
    raise AssertionError(f"no end after {MOST} steps: {worked.names}")


async def _made(tool: Tool, call: ToolCall, worked: Worked) -> str:
    try:
        value = await tool.call(call.arguments, call.id)
    except ToolFailed as error:
        return json.dumps({"error": str(error)})
    worked.results.append(value)
    return bytes(encode_value(value)).decode()


def product(text: str, *exhibits: object) -> Given:
    return given(msgspec.to_builtins(Product(text)) | {"exhibits": [msgspec.to_builtins(one) for one in exhibits]})
