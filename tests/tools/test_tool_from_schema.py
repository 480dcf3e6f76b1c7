"""Tools declared by a JSON Schema and a callable."""

import asyncio
from typing import Any

import msgspec
import pytest

from chargehand import (
    Plan,
    Reply,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    ToolCall,
    ToolFailed,
    Worker,
    tool_from_schema,
)
from chargehand.errors import Invalid

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "user-id": {"type": "integer", "minimum": 1},
        "from": {"type": "string", "enum": ["web", "shop"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
    },
    "required": ["user-id"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string", "maxLength": 3}},
}


def echo(**arguments: object) -> dict[str, object]:
    return arguments


ECHO = tool_from_schema("echo", "Say it again.", SCHEMA, echo, quick=True)


def call(arguments: str) -> object:
    return asyncio.run(ECHO.call(arguments, "key"))


def test_the_model_is_shown_the_schema_as_it_is() -> None:
    assert msgspec.json.decode(ECHO.spec.parameters) == SCHEMA
    assert ECHO.spec.description == "Say it again."


def test_arguments_are_handed_over_by_keyword_as_plain_data() -> None:
    assert call('{"user-id": 7, "from": "web", "tags": ["a"]}') == {"user-id": 7, "from": "web", "tags": ["a"]}


def test_null_for_an_argument_that_may_be_left_out_means_that_it_is() -> None:
    assert call('{"user-id": 7, "from": null}') == {"user-id": 7}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "$ lacks 'user-id'"),
        ("[]", "no JSON object"),
        ("{", "no JSON object"),
        ('{"user-id": 0}', "$.user-id is 0; it must be at least 1"),
        ('{"user-id": true}', "$.user-id must be integer"),
        ('{"user-id": 1, "from": "mail"}', "allowed are 'web', 'shop'"),
        ('{"user-id": 1, "tags": ["long"]}', "$.tags[0] has 4 characters; it must be at most 3"),
        ('{"user-id": 1, "more": 1}', "'more', which is not wanted"),
        ("[" * 100_000, "no JSON object"),
    ],
)
def test_what_does_not_fit_is_told_to_the_model_and_nothing_is_called(arguments: str, words: str) -> None:
    with pytest.raises(ToolFailed) as raised:
        call(arguments)
    assert words in str(raised.value)
    assert "Expected: {" in str(raised.value)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array"}, "arguments are an object"),
        ({"type": "objekt"}, "$.type is 'objekt'; 'type' takes array, boolean"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "which is not in it"),
        ({"properties": []}, "$.properties is []; 'properties' takes an object of schemas"),
    ],
)
def test_a_schema_that_nothing_can_be_held_to_is_refused(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match="the schema of tool 'echo' is wrong") as raised:
        tool_from_schema("echo", "", schema, echo)
    assert words in str(raised.value)


NAMED = {"properties": {"name": {"type": "string"}, "function": {"type": "string"}}, "required": ["name"]}


def test_a_function_that_cannot_take_the_arguments_is_refused_when_declared() -> None:
    def find(name: str) -> str:
        return name

    def find_all(name: str, function: str) -> str:
        return name + function

    with pytest.raises(Invalid, match=r"tool 'find': .* got an unexpected keyword argument 'function'; give it their"):
        tool_from_schema("find", "", NAMED, find)
    with pytest.raises(Invalid, match=r"only what the schema requires: missing a required argument: 'function'; give"):
        tool_from_schema("find", "", NAMED, find_all)


def test_arguments_that_the_function_cannot_take_are_refused_in_words_for_the_model() -> None:
    def find(name: str, function: str = "any") -> str:
        return name + function

    made = tool_from_schema("find", "", NAMED, find)
    assert asyncio.run(made.call('{"name": "ann"}', "key")) == "annany"
    with pytest.raises(ToolFailed, match="do not fit") as raised:
        asyncio.run(made.call('{"name": "ann", "age": 7}', "key"))
    assert raised.value.code_error is None
    taking_all = tool_from_schema("echo", "", NAMED, echo)
    assert asyncio.run(taking_all.call('{"name": "ann", "age": 7}', "key")) == {"name": "ann", "age": 7}


def test_a_schema_of_nothing_is_a_tool_without_arguments() -> None:
    silent = tool_from_schema("silent", "Says nothing.", {}, echo)
    assert asyncio.run(silent.call("", "key")) == {}


def test_a_worker_calls_it_and_its_mistake_fails_the_task_at_once() -> None:
    def broken(**_arguments: object) -> object:
        raise TypeError("a mistake in a tool")

    for function, ending in ((echo, "complete"), (broken, "failed")):
        made = tool_from_schema("find", "Find a user.", SCHEMA, function)
        wish = Reply(calls=(ToolCall("1", "find", '{"user-id": 7}'),), finish="tools")
        ann = Worker("ann", tools=[made], model=ScriptedModel([wish, "found"]))
        result = Team([ann], supervisor=Supervisor(plan=Plan((Task("t1", "Find 7.", "ann"),), "forward"))).run_sync(
            "Find 7."
        )
        assert result.ending == ending


def test_a_schema_that_is_true_lets_any_argument_pass() -> None:
    made = tool_from_schema("echo", "", {"properties": {"a": True, "b": {"pattern": "^x"}}, "required": ["b"]}, echo)
    assert asyncio.run(made.call('{"a": [1], "b": "x"}', "key")) == {"a": [1], "b": "x"}
    with pytest.raises(ToolFailed, match=r"\$\.b is 'y'; it must match the pattern \^x.*\"a\": see its schema"):
        asyncio.run(made.call('{"b": "y"}', "key"))


def test_a_worker_whose_output_has_no_usable_schema_is_refused() -> None:
    ann = Worker("ann", output={"type": "object", "properties": {"a": {"type": "strnig"}}}, model=ScriptedModel([]))
    with pytest.raises(Invalid, match=r"worker 'ann': the schema of its output is wrong: \$\.properties\.a\.type is"):
        Team([ann]).run_sync("Go.")
