"""Values as JSON: what can be carried comes back, and what cannot is named by its place."""

import datetime
import enum
import json
import math
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct

from chargehand.engine.value import DEPTH, decode_value, encode_value
from chargehand.errors import NotJson
from tests.support.hunts import hunt_size

INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=("Cs",)))
VALUES = st.recursive(
    st.none() | st.booleans() | INT64 | FLOATS | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=30,
)


class Colour(str, enum.Enum):  # noqa: UP042 - the older kind, whose str() is not its value
    RED = "red"


class Point(Struct):
    x: float


@dataclass
class Pair:
    left: object
    right: object


class Name(str):
    __slots__ = ()


class Count(int):
    pass


def nested(levels: int, *, table: bool = False) -> object:
    value: object = 1
    for level in range(levels):
        value = {"a": value, "b": [level]} if table and level else [value]
    return value


@settings(max_examples=hunt_size(quick=50, thorough=500))
@given(VALUES)
def test_what_json_can_carry_comes_back(value: object) -> None:
    assert decode_value(encode_value(value)) == value


@given(VALUES)
def test_equal_values_have_equal_bytes(value: object) -> None:
    def turned(part: object) -> object:
        if isinstance(part, dict):
            items = cast("dict[str, object]", part).items()
            return {key: turned(item) for key, item in reversed(items)}
        return [turned(item) for item in cast("list[object]", part)] if isinstance(part, list) else part

    assert bytes(encode_value(turned(value))) == bytes(encode_value(value))


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (math.nan, "$"),
        ([1, math.inf], "$[1]"),
        ({"a": [0, 1, 2, -math.inf]}, "$.a[3]"),
        ({"a": None, "b": {"c": math.nan}}, "$.b.c"),
        ("\ud800", "$"),
        ({"a": ["\udfff"]}, "$.a[0]"),
        ({"\ud800": 1}, "$ has a key that"),
        (10**400, "$"),
        ([2**63], "$[0]"),
        ([-(2**63) - 1], "$[0]"),
        ({2**64: 1}, "$ has a key that"),
        ({"a": object()}, "$.a"),
        ([1, {"b": range(3)}], "$[1].b"),
        (1j, "$"),
        (Pair(1, [math.nan]), "$.right[0]"),
        ([Point(math.nan)], "$[0].x"),
        ({None: 1}, "$"),
        ({True: 1}, "$"),
        ({1.5: 1}, "$"),
        ({"x": {(1, 2): 1}}, "$.x"),
        ({1: "a", "1": "b"}, "$"),
    ],
)
def test_what_json_cannot_carry_is_refused_by_its_place(value: object, place: str) -> None:
    with pytest.raises(NotJson) as caught:
        encode_value(value)
    assert caught.value.place == place


@pytest.mark.parametrize("table", [True, False])
def test_nesting_ends_at_its_limit(table: bool) -> None:
    assert decode_value(encode_value(nested(DEPTH, table=table))) == nested(DEPTH, table=table)
    for levels in (DEPTH + 1, 500, 900):
        with pytest.raises(NotJson, match="levels deep"):
            encode_value(nested(levels, table=table))


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotJson, match="levels deep"):
        encode_value(loop)


def test_brackets_in_text_are_not_nesting() -> None:
    for text in ("[" * 500, '"' + "[{" * 200, "\\" * 3 + '"[' * 99, "]" * 500):
        values: list[object] = [text, [text], {text: [text] * 3}, [["a"]] * 100]
        for value in values:
            assert decode_value(encode_value(value)) == value
    # closed in text what is open outside it, and the other way round
    deep: object = 1
    for _ in range(DEPTH + 1):
        deep = ["]", deep, "["]
    with pytest.raises(NotJson):
        encode_value(deep)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({1: "a"}, '{"1":"a"}'),
        ({"b": 1, "a": {"d": 1, "c": 2}}, '{"a":{"c":2,"d":1},"b":1}'),
        (2**63 - 1, "9223372036854775807"),
        (-(2**63), "-9223372036854775808"),
        ((1, 2), "[1,2]"),
        ({"n": None, "t": "null"}, '{"n":null,"t":"null"}'),
        ("1234567890123456789012345", '"1234567890123456789012345"'),
        (Colour.RED, '"red"'),
        ([Colour.RED, None], '["red",null]'),
        ([Name("n"), Count(3), {Name("k"): None}], '["n",3,{"k":null}]'),
        (Pair(Point(1.5), None), '{"left":{"x":1.5},"right":null}'),
        (datetime.date(2026, 1, 2), '"2026-01-02"'),
        ([Raw(b"[1]"), None], "[[1],null]"),
    ],
)
def test_values_are_written_plainly(value: object, text: str) -> None:
    assert bytes(encode_value(value)).decode() == text
    json.loads(text)


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"1e999", b'"\\ud800"', b"[" * 5000, b"\xff"])
def test_what_is_not_json_is_not_decoded(text: bytes) -> None:
    with pytest.raises(NotJson):
        decode_value(text)
