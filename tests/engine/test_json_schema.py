"""Values and schemas are checked by all keywords, in words, without the network, and in bounded time."""

import socket
import subprocess
import sys
import time
from typing import Any

import pytest

from chargehand.engine.json_schema import problems, schema_problem

REPEATED: dict[str, Any] = {"items": {"$ref": "#"}}


def nested(levels: int, inside: object) -> object:
    value = inside
    for _ in range(levels):
        value = [value]
    return value


def check(value: object, schema: dict[str, Any]) -> list[str]:
    assert schema_problem(schema) == ""
    return list(problems(value, schema))


def doubled(levels: int) -> dict[str, Any]:
    """Return a schema that holds each value against two to the power of `levels` others."""
    parts = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/l0", "$defs": {**parts, f"l{levels}": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "good", "bad", "fault"),
    [
        ({"type": "integer"}, 3, True, "$ must be integer, not true or false"),
        ({"type": ["string", "null"]}, None, [], "$ must be string or null, not a list"),
        ({"enum": ["a", 1]}, 1, "b", "$ is 'b'; allowed are 'a', 1"),
        ({"const": "a"}, "a", "b", "$ must be 'a'"),
        ({"minimum": 1}, 1, 0, "$ is 0; it must be at least 1"),
        ({"maximum": 1}, 1, 2, "$ is 2; it must be at most 1"),
        ({"exclusiveMinimum": 0}, 1, 0, "$ is 0; it must be more than 0"),
        ({"exclusiveMaximum": 9}, 8, 9, "$ is 9; it must be less than 9"),
        ({"multipleOf": 5}, 10, 7, "$ is 7; it must be a multiple of 5"),
        ({"minLength": 2}, "ab", "a", "$ has 1 characters; it must be at least 2"),
        ({"maxLength": 2}, "ab", "abc", "$ has 3 characters; it must be at most 2"),
        ({"pattern": "^[A-Z]+$"}, "AB", "ab", "$ is 'ab'; it must match the pattern ^[A-Z]+$"),
        ({"pattern": "^(?!x)[a-z]+$"}, "ab", "xb", "$ is 'xb'; it must match the pattern ^(?!x)[a-z]+$"),
        ({"format": "date"}, "2026-11-19", "tomorrow", "$ is 'tomorrow'; it must have the format date"),
        ({"format": "uuid"}, "6f2c7a2e-4a3c-4d4e-9b1a-0c4b5a6d7e8f", "1", "$ is '1'; it must have the format uuid"),
        ({"minItems": 1}, [1], [], "$ has 0 items; it must be at least 1"),
        ({"uniqueItems": True}, [1, 2], [1, 1], "$ holds an item twice; each must be another"),
        ({"minProperties": 1}, {"a": 1}, {}, "$ has 0 properties; it must be at least 1"),
        ({"required": ["a"]}, {"a": 1}, {}, "$ lacks 'a'"),
        ({"dependentRequired": {"a": ["b"]}}, {"b": 1}, {"a": 1}, "$ lacks 'b'"),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {}, {"a": 1}, "$ lacks 'b'"),
        (
            {"additionalProperties": False, "properties": {"a": True}},
            {"a": 1},
            {"b": 1},
            "$ has 'b', which is not wanted",
        ),
        ({"additionalProperties": {"type": "string"}}, {"a": ""}, {"a": 1}, "$.a must be string, not a number"),
        ({"patternProperties": {"^n": {"minimum": 2}}}, {"a": 1}, {"n1": 1}, "$.n1 is 1; it must be at least 2"),
        ({"propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}, "$ does not fit propertyNames of its schema"),
        ({"items": {"minimum": 2}}, [2], [2, 1], "$[1] is 1; it must be at least 2"),
        ({"prefixItems": [{"const": 1}], "items": False}, [1], [1, 2], "$[1] is not wanted"),
        ({"contains": {"const": 1}}, [2, 1], [2], "$ does not fit contains of its schema"),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 2, 3, "$ is 3; it must be at most 2"),
        ({"anyOf": [{"const": 1}, {"const": 2}]}, 2, 3, "$ fits none of the allowed forms"),
        ({"anyOf": [{"minLength": 2}, {"type": "null"}]}, None, "a", "$ has 1 characters; it must be at least 2"),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, 0, 3, "$ fits 2 of the allowed forms; it must fit one"),
        ({"not": {"type": "string"}}, 1, "", "$ has a form that is not allowed"),
        ({"if": {"const": 1}, "then": False, "else": {"minimum": 3}}, 3, 2, "$ is 2; it must be at least 3"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"minimum": 1}}}, 1, 0, "$ is 0; it must be at least 1"),
        ({"$ref": "#/$defs/größe", "$defs": {"größe": {"minimum": 1}}}, 1, 0, "$ is 0; it must be at least 1"),
        ({"$ref": "#/$defs/A%3CB%3E", "$defs": {"A<B>": {"minimum": 1}}}, 1, 0, "$ is 0; it must be at least 1"),
        ({"properties": {'"%41 ~': {"minimum": 1}}}, {}, {'"%41 ~': 0}, '$."%41 ~ is 0; it must be at least 1'),
        (
            {"$id": "x:y", "allOf": [{"$id": "z:", "$ref": "#/$defs/a"}], "$defs": {"a": {"const": 1}}},
            1,
            2,
            "$ must be 1",
        ),
        ({"properties": {"id": {"minimum": 1}}}, {"id": 1}, {"id": 0}, "$.id is 0; it must be at least 1"),
        ({"properties": {"a": {"items": {"$ref": "#"}}}}, {"a": []}, {"a": [{"a": [{"a": 1}]}]}, ""),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]},
            ["a"],
            [1],
            "$[0] must be string, not a number",
        ),
    ],
)
def test_every_keyword_is_checked(schema: dict[str, Any], good: object, bad: object, fault: str) -> None:
    assert check(good, schema) == []
    assert check(bad, schema) == ([fault] if fault else [])


def test_faults_inside_a_value_name_their_place_and_there_are_at_most_ten() -> None:
    schema: dict[str, Any] = {"properties": {"rows": {"items": {"properties": {"n": {"type": "integer"}}}}}}
    faults = check({"rows": [{"n": "x"}] * 100_000}, schema)
    assert faults == [f"$.rows[{number}].n must be integer, not a text" for number in range(10)]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([], "$ is []; a JSON Schema is an object"),
        ({"type": "strnig"}, "$.type is 'strnig'; 'type' takes array, boolean, integer, null"),
        ({"properties": {"a": {"required": "b"}}}, "$.properties.a.required is 'b'; 'required' takes a list of names"),
        ({"items": {"pattern": "("}}, "$.items.pattern is '('; 'pattern' takes a regular expression"),
        ({"minLength": -1}, "$.minLength is -1; 'minLength' takes a whole number from 0"),
        ({"anyOf": {}}, "$.anyOf is {}; 'anyOf' takes a list of schemas"),
        ({"$ref": "#/$defs/a"}, "it refers to '#/$defs/a', which is not in it; name a part of it, as #/$defs/NAME"),
        ({"$schema": "https://example.com/mine"}, "Unknown meta-schema: 'https://example.com/mine'"),
        ({"$ref": "#"}, "it refers to '#', which leads back to itself; name what a value must be"),
        ({"anyOf": [{"not": {"$ref": "#"}}, True]}, "it refers to '#', which leads back to itself"),
        ({"const": object()}, "it is no JSON"),
    ],
)
def test_a_schema_that_is_wrong_is_refused(schema: object, problem: str) -> None:
    assert problem in schema_problem(schema)


@pytest.mark.parametrize("scheme", ["http", "https", "file"])
def test_no_reference_is_ever_fetched(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        address = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/schema.json"
        for schema in ({"$ref": address}, {"$id": address, "items": {"$ref": "other.json"}}, {"$schema": address}):
            assert schema_problem(schema)
        assert "which is not in it" in schema_problem({"properties": {"a": {"$ref": address}}})
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": ["array", "integer"], "anyOf": [REPEATED, REPEATED]}, nested(60, "x")),
        ({"type": ["array", "integer"], "allOf": [REPEATED, REPEATED]}, nested(60, "x")),
        ({"type": ["array", "integer"], "oneOf": [REPEATED, REPEATED]}, nested(60, "x")),
        ({"type": "array", **REPEATED}, nested(5_000, 1)),
        ({"pattern": "^(a+)+$"}, "a" * 1_000_000 + "b"),
        ({"pattern": "^(?=a)(a|aa)+$"}, "a" * 100_000 + "b"),
        ({"pattern": r"(.*)\1(.*)\2x"}, "ab" * 50_000),
    ],
)
def test_a_value_that_is_made_to_take_long_does_not(schema: dict[str, Any], value: object) -> None:
    began = time.perf_counter()
    assert check(value, schema)
    assert time.perf_counter() - began < 2.0


@pytest.mark.parametrize(
    "schema",
    [
        doubled(30),
        {"$ref": "#/$defs/l0", "$defs": {f"l{n}": {"$ref": f"#/$defs/l{n + 1}"} for n in range(3_000)}},
        nested(500, {}),
        {"allOf": [doubled(16)["$defs"]["l0"]], **doubled(17)},
    ],
)
def test_a_schema_that_could_take_long_is_refused(schema: object) -> None:
    assert schema_problem(schema)


def test_forms_in_forms_as_programs_write_them_are_taken() -> None:
    kinds = [
        {"properties": {"op": {"const": f"op{n}"}, "args": {"items": {"$ref": "#/$defs/e"}}}, "required": ["op"]}
        for n in range(20)
    ]
    schema: dict[str, Any] = {"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": [*kinds, {"type": "string"}]}}}
    assert check({"op": "op1", "args": [{"op": "op19", "args": ["x"]}]}, schema) == []
    assert check({"op": "op1", "args": [{"op": "op20"}]}, schema) == ["$ fits none of the allowed forms"]


@pytest.mark.parametrize("value", [{1: 2}, {1}, "\ud800", object()])
def test_what_is_no_json_fits_nothing(value: object) -> None:
    assert "holds what JSON cannot hold" in "".join(check(value, {"maxLength": 9}))


def test_a_schema_that_is_wrong_checks_nothing() -> None:
    with pytest.raises(ValueError, match="which is not in it"):
        list(problems(1, {"$ref": "#/$defs/a"}))


def test_the_checker_is_loaded_only_where_a_schema_is_checked() -> None:
    code = (
        "import sys, chargehand, chargehand.engine.json_schema as one; before = 'jsonschema_rs' in sys.modules; "
        "one.schema_problem({}); print(before, 'jsonschema_rs' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"
