"""Tools for a model that knows none: it is held to one JSON object that names a tool and its arguments, or answers.

Small models do not call tools by themselves, but they choose well among actions they are shown (and badly without
examples). What comes back is turned into ordinary tool calls here; making them is not done here.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from chargehand.models.messages import Message, ToolCall, ToolSpec

Json: TypeAlias = dict[str, object]

ANSWER = "final_answer"
_MOST_ANSWER = 1500
_MOST_ARGUMENT = 400
_MOST_REMINDER = 600
_MOST_TEXT = 400
_MOST_ITEMS = 8
_MOST_NUMBER = 10**15
_DEEPEST = 6
_UNIONS = ("anyOf", "oneOf", "allOf")


class Action(Struct, frozen=True):
    """What the model chose: a tool and its arguments, or an answer."""

    tool: str
    args: Raw


def action_schema(tools: Sequence[ToolSpec], answer: Raw | None = None) -> Json:
    """One branch for every tool, and one to end with; `answer` is the shape the last one is to have."""
    branches = [_branch(tool.name, bound(_decode(tool.parameters), _MOST_ARGUMENT)) for tool in tools]
    if answer is None:
        final: Json = {"type": "string", "maxLength": _MOST_ANSWER}
    else:
        final = bound(_decode(answer))
    shape: Json = {"type": "object", "properties": {"answer": final}, "required": ["answer"]}
    shape["additionalProperties"] = False
    return {"anyOf": [*branches, _branch(ANSWER, shape)]}


def turns(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[Message]:
    """The conversation in turns that every chat template knows: one system message, then people and the model.

    With tools, the actions are explained at its head.
    """
    system = [message.text for message in messages if message.role == "system"]
    head = "\n\n".join([*system, _manual(tools)] if tools else system)
    conversation = [Message("system", head)] if head else []
    names = {call.id: call.name for message in messages for call in message.calls}
    for message in messages:
        if message.role == "assistant":
            conversation += [Message("assistant", words) for words in _written(message, as_action=bool(tools))]
        elif message.role == "tool":
            conversation.append(Message("user", f"Result of {names.get(message.call, 'the tool')}: {message.text}"))
        elif message.role == "user":
            conversation.append(message)
    if tools and messages[-1].role == "tool":
        conversation[-1] = Message("user", f"{conversation[-1].text}\n{_reminder(messages)}")
    return conversation


def read_action(text: str, number: int) -> tuple[str, tuple[ToolCall, ...]]:
    """The answer, or the call. ValueError when the model wrote neither."""
    action = msgspec.json.decode(text, type=Action)
    if action.tool != ANSWER:
        call = ToolCall(id=f"local_{number}", name=action.tool, arguments=_without_stray_braces(action.args))
        return "", (call,)
    answer = msgspec.json.decode(action.args, type=dict[str, Raw]).get("answer", Raw(b'""'))
    decoded = msgspec.json.decode(answer)
    return (decoded if isinstance(decoded, str) else bytes(answer).decode()), ()


def _without_stray_braces(arguments: Raw) -> str:
    """The arguments, where texts do not end in braces that were meant to close the JSON around them."""
    values = msgspec.json.decode(arguments)
    if not isinstance(values, dict):
        return bytes(arguments).decode()
    fields = cast("dict[str, object]", values)
    for name, value in fields.items():
        if isinstance(value, str) and value.endswith("}") and value.count("}") > value.count("{"):
            fields[name] = value.rstrip('}" ')
    return _dump(fields)


def _reminder(messages: Sequence[Message]) -> str:
    """What is still owed. Without it a small model takes the same tool again, or gives up on the first error."""
    request = next((message.text for message in reversed(messages) if message.role == "user"), "")
    wanted = request.rstrip().rpartition("\n\n")[2][-_MOST_REMINDER:]
    if messages[-1].is_error:
        return f"That call failed. Correct it, make it shorter, or take another tool: {wanted}"
    return f"If that is enough, take {ANSWER} and answer: {wanted}"


def _branch(name: str, args: Json) -> Json:
    fields: Json = {"tool": {"const": name}, "args": args if "type" in args else {"type": "object"}}
    return {"type": "object", "properties": fields, "required": ["tool", "args"], "additionalProperties": False}


def _written(message: Message, *, as_action: bool) -> list[str]:
    """What the model would have written to bring this about."""
    if not message.calls:
        return [_action(ANSWER, {"answer": message.text}) if as_action else message.text]
    return [f'{{"tool": {_dump(call.name)}, "args": {call.arguments}}}' for call in message.calls]


def _manual(tools: Sequence[ToolSpec]) -> str:
    """What can be done, with an example of each."""
    lines = ["Reply with one JSON object: the next action. The actions are:"]
    for tool in tools:
        fields = ", ".join(_fields(_decode(tool.parameters)))
        lines.append(f"- {tool.name}({fields}): {_indented(tool.description)}")
    lines.append(f"- {ANSWER}(answer): when you know the answer, or when no tool fits")
    lines.append(
        "Take a tool if it fits the task. Keep its arguments short: add nothing that was not asked for. Examples:"
    )
    for tool in tools:
        example = _example(bound(_decode(tool.parameters)), "")
        lines.append(f"{_wish(tool)} -> {_action(tool.name, example)}")
    lines.append(f"Hello! -> {_action(ANSWER, {'answer': 'Hello, what can I do for you?'})}")
    return "\n".join(lines)


def _indented(description: str) -> str:
    """A description with its lines, such as those of tables, below each other."""
    return "\n  ".join(line.strip() for line in description.splitlines() if line.strip())


def _wish(tool: ToolSpec) -> str:
    """A request that this tool would serve, out of its own words."""
    first = " ".join(tool.description.split()).partition(". ")[0].rstrip(".") or tool.name.replace("_", " ")
    return f"Please {first[0].lower()}{first[1:]}"


def _fields(schema: Mapping[str, object]) -> list[str]:
    fields = schema.get("properties")
    return list(cast("Json", fields)) if isinstance(fields, dict) else []


def _example(schema: Mapping[str, object], name: str) -> object:
    """Some value of this shape; a text says what belongs there."""
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    options = schema.get("enum") or schema.get("examples")
    if isinstance(options, list):
        return cast("list[object]", options)[0]
    kind = schema.get("type")
    if kind == "object":
        fields = _object(schema.get("properties"))
        return {field: _example(_object(shape), field) for field, shape in fields.items()}
    if kind == "array":
        return [_example(_object(schema.get("items")), name)]
    simple: dict[object, object] = {"integer": 3, "number": 2.5, "boolean": False, "null": None}
    return simple.get(kind, f"the {name.replace('_', ' ')}".strip())


def _action(tool: str, args: object) -> str:
    return f'{{"tool": {_dump(tool)}, "args": {_dump(args)}}}'


def _dump(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _decode(schema: Raw) -> Json:
    return msgspec.json.decode(schema, type=Json)


# --- schemas without end: a small model fills any room it is given, and what is cut off is no JSON


def bound(schema: Mapping[str, object], text: int = _MOST_TEXT) -> Json:
    """The same schema with references written out, and with a bound on every text, list and whole number."""
    return _bound(schema, schema, text, 0)


def _bound(schema: Mapping[str, object], root: Mapping[str, object], text: int, depth: int) -> Json:
    if depth > _DEEPEST:
        return {"type": "object"}
    schema = _resolved(schema, root)
    bounded: Json = {name: value for name, value in schema.items() if name not in ("$defs", "definitions", "default")}
    for union in _UNIONS:
        if union in schema:
            bounded[union] = [_bound(_object(branch), root, text, depth + 1) for branch in _list(schema[union])]
    kind = schema.get("type")
    if "properties" in schema:
        fields = _object(schema["properties"]).items()
        bounded["properties"] = {name: _bound(_object(field), root, text, depth + 1) for name, field in fields}
        bounded["additionalProperties"] = False
    if "items" in schema:
        bounded["items"] = _bound(_object(schema["items"]), root, text, depth + 1)
    if _may_be(kind, "array"):
        bounded["maxItems"] = _count(schema, "maxItems", _MOST_ITEMS)
    if _may_be(kind, "string") and "enum" not in schema and "const" not in schema:
        bounded["maxLength"] = _count(schema, "maxLength", text)
    if _may_be(kind, "integer"):
        bounded.setdefault("minimum", -_MOST_NUMBER)
        bounded.setdefault("maximum", _MOST_NUMBER)
    return bounded


def _resolved(schema: Mapping[str, object], root: Mapping[str, object]) -> Mapping[str, object]:
    """What a reference stands for; one that leads nowhere stands for any object."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    part: object = root
    for step in reference.removeprefix("#/").split("/"):
        part = _object(part).get(step)
    return _object(part) or {"type": "object"}


def _may_be(kind: object, name: str) -> bool:
    return kind == name or name in _list(kind)


def _count(schema: Mapping[str, object], name: str, otherwise: int) -> int:
    value = schema.get(name)
    return min(value, 10 * otherwise) if isinstance(value, int) else otherwise


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
