"""Each strict mode is sent what it takes; the rest is checked in the reply, and the model is told."""

import json
from typing import Any

import pytest
from msgspec import Raw

from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.messages import Message, Request
from chargehand.models.openai import OpenAIChat
from chargehand.models.strict_schemas import ANTHROPIC, OPENAI, OTHERS, StrictMode, strict_schema
from chargehand.team import Team
from tests.models.loopback import Asked, Move, loopback, whole

FIELDS: dict[str, Any] = {
    "code": {"type": "string", "pattern": "^[A-Z]{3}$", "maxLength": 3, "description": "a code"},
    "day": {"type": "string", "format": "date"},
    "link": {"type": "string", "format": "uri"},
    "n": {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 5, "default": 5},
    "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 9, "uniqueItems": True},
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": FIELDS,
    "required": list(FIELDS),
    "additionalProperties": False,
    "not": {"properties": {"n": {"const": 10}}},
}
GOOD = {"code": "ABC", "day": "2026-11-19", "link": "https://example.com", "n": 5, "tags": ["a", "b"]}
BAD = {"code": "abc1", "day": "tomorrow", "link": "https://example.com", "n": -3, "tags": ["a", "a"]}
FAULTS = (
    "$.code is 'abc1'; it must match the pattern ^[A-Z]{3}$",
    "$.code has 4 characters; it must be at most 3",
    "$.day is 'tomorrow'; it must have the format date",
    "$.n is -3; it must be more than 0",
    "$.n is -3; it must be a multiple of 5",
    "$.tags holds an item twice; each must be another",
)


def holding(part: str) -> str:
    """Return a strict schema that has this in it."""
    head = '{"type":"object","required":["a"],"additionalProperties":false,"$defs":{"b":{"type":"string"}}'
    return head + ',"properties":{"a":' + part + "}}"


def sent(schema: dict[str, Any], mode: StrictMode) -> dict[str, Any]:
    strict = strict_schema(Raw(json.dumps(schema).encode()), mode)
    assert strict is not None
    return json.loads(bytes(strict))


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        ('{"type":"object","properties":{},"required":[],"additionalProperties":false}', True),
        (holding('{"$ref":"#/$defs/b"}'), True),
        (holding('{"type":"array","items":{"anyOf":[{"type":"string"},{"type":"null"}]}}'), True),
        (holding('{"anyOf":[{"type":"string","pattern":"x"}]}'), True),
        (holding('{"oneOf":[{"type":"string"}]}'), False),
        (holding('{"type":"array","items":{"type":"object"}}'), False),
        (holding('{"description":"anything"}'), False),
        (holding("true"), False),
        ('{"type":"array","items":{"type":"string"}}', False),
        ("[]", False),
        ("no schema", False),
        ('{"type":"object","items":' * 50 + "{}" + "}" * 50, False),
    ],
)
@pytest.mark.parametrize("mode", [OPENAI, ANTHROPIC, OTHERS])
def test_which_schemas_the_strict_modes_take(mode: StrictMode, schema: str, fits: bool) -> None:
    assert (strict_schema(Raw(schema.encode()), mode) is not None) is fits


def test_only_openai_needs_all_properties() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    raw = Raw(json.dumps(schema).encode())
    assert [strict_schema(raw, mode) is not None for mode in (OPENAI, OTHERS, ANTHROPIC)] == [False, False, True]


@pytest.mark.parametrize(
    ("mode", "kept"),
    [
        (
            OPENAI,
            {
                "code": {"pattern": "^[A-Z]{3}$"},
                "day": {"format": "date"},
                "link": {},
                "n": {"exclusiveMinimum": 0, "multipleOf": 5},
                "tags": {"minItems": 2, "maxItems": 9},
            },
        ),
        (ANTHROPIC, {"code": {}, "day": {"format": "date"}, "link": {"format": "uri"}, "n": {}, "tags": {}}),
        (OTHERS, {"code": {}, "day": {}, "link": {}, "n": {}, "tags": {}}),
    ],
)
def test_each_mode_is_sent_the_bounds_it_takes(mode: StrictMode, kept: dict[str, dict[str, object]]) -> None:
    basic = ("type", "items", "description")
    fields = {name: {key: part for key, part in field.items() if key in basic} for name, field in FIELDS.items()}
    wanted = {name: {**field, **kept[name]} for name, field in fields.items()}
    assert sent(SCHEMA, mode) == {**{key: SCHEMA[key] for key in SCHEMA if key != "not"}, "properties": wanted}


def test_values_that_a_mode_does_not_take_are_left_out() -> None:
    def part(field: dict[str, object], mode: StrictMode) -> object:
        return sent(json.loads(holding(json.dumps(field))), mode)["properties"]["a"]

    text: dict[str, object] = {"type": "string"}
    for pattern in ("^(?!x)a", r"(a)\1", r"\bword", "(?<=a)b"):
        assert part({**text, "pattern": pattern}, OPENAI) == text
    assert part({**text, "format": "uri"}, OPENAI) == text
    items: dict[str, object] = {"type": "array", "items": text}
    assert part({**items, "minItems": 1}, ANTHROPIC) == {**items, "minItems": 1}
    assert part({**items, "minItems": 2}, ANTHROPIC) == items


def test_names_of_properties_are_no_keywords() -> None:
    schema = json.loads(holding('{"type":"string"}').replace('"a"', '"pattern"'))
    assert sent(schema, OTHERS) == schema


@pytest.mark.parametrize("reference", ["#/$defs/b", "#", "#/properties/a"])
def test_anthropic_is_sent_no_definition_that_leads_back_to_itself(reference: str) -> None:
    form = {"type": "array", "items": {"anyOf": [{"type": "null"}, {"$ref": reference}]}}
    definition = holding('{"$ref":"#/$defs/b"}').replace('"b":{"type":"string"}', f'"b":{json.dumps(form)}')
    assert strict_schema(Raw(definition.encode()), ANTHROPIC) is None
    assert strict_schema(Raw(definition.encode()), OPENAI) is not None


@pytest.mark.parametrize(
    ("url", "name", "bounded"),
    [
        ("https://api.openai.com/v1", "gpt-5-mini", True),
        ("https://api.openai.com/v1", "ft:gpt-4o:us:1", False),
        ("http://127.0.0.1:1/v1", "m", False),
    ],
)
async def test_openai_itself_is_sent_patterns_and_ranges(url: str, name: str, bounded: bool) -> None:
    model = OpenAIChat("openai:m", url, name)
    body: Any = model._body(Request([Message("user", "x")], schema=Raw(json.dumps(SCHEMA).encode())), 9, streamed=False)
    form = body["response_format"]["json_schema"]
    assert form["strict"] is True
    assert (b"pattern" in bytes(form["schema"])) is bounded
    await model.close()


def openai_reply(value: object) -> list[Move]:
    message = {"role": "assistant", "content": json.dumps(value)}
    return whole({"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def anthropic_reply(value: object) -> list[Move]:
    content = [{"type": "text", "text": json.dumps(value)}]
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    return whole({**head, "content": content, "usage": {"input_tokens": 1, "output_tokens": 1}})


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize(("bad", "faults"), [(BAD, FAULTS[:5]), ({**GOOD, "tags": ["a", "a"]}, FAULTS[5:])])
async def test_a_reply_that_breaks_what_was_left_out_is_sent_back(
    protocol: str, bad: dict[str, Any], faults: tuple[str, ...]
) -> None:
    reply = {"openai": openai_reply, "anthropic": anthropic_reply}[protocol]
    answers = iter((bad, GOOD))

    def play(asked: Asked) -> list[Move]:
        return reply(next(answers))

    async with loopback(play) as server:
        model = {
            "openai": lambda: OpenAIChat("openai:m", server.url, "m"),
            "anthropic": lambda: AnthropicMessages("anthropic:m", server.url.removesuffix("/v1"), "m"),
        }[protocol]()
        plan = Plan((Task(TaskId("t1"), "Make the record.", "ann"),), "forward")
        team = Team([Worker("ann", model=model, output=SCHEMA)], supervisor=Supervisor(plan=plan))
        result = await team.run("Make the record.")
        await model.close()
    assert result.ending == "complete"
    assert json.loads(str(result.answer)) == GOOD
    first, second = (json.dumps(asked.json, ensure_ascii=False) for asked in server.asked)
    assert '"exclusiveMinimum"' not in first
    for fault in faults:  # five are told at most
        assert json.dumps(fault, ensure_ascii=False)[1:-1] in second
