"""What does not fit its shape is told with its place, what was sent and what would be right."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from chargehand.engine.declared import describe_misfit


class _Tool(Struct, tag="tool", forbid_unknown_fields=True):
    name: str
    times: int = 1


class _Model(Struct, tag="model", forbid_unknown_fields=True):
    handle: str = ""
    effort: Literal["low", "high"] = "low"


class _Order(Struct, forbid_unknown_fields=True):
    worker: str
    parts: list[_Tool | _Model] = []
    by_name: dict[str, Literal["u", "v"]] = {}
    seconds: Annotated[int, Meta(ge=0, le=5)] | None = None


class _Loose(Struct):
    messages: list[str]


@pytest.mark.parametrize(
    ("sent", "place", "message"),
    [
        ({"wroker": "ann"}, "$", "there is no field 'wroker'; did you mean 'worker'?"),
        ({"zzz": 1}, "$", "there is no field 'zzz'; the fields are worker, parts, by_name, seconds"),
        ({"worker": 3}, "$.worker", "must be str, not int (it is 3)"),
        ({"worker": "a", "seconds": 9}, "$.seconds", "must be int <= 5 (it is 9)"),
        ({"worker": "a", "seconds": "9"}, "$.seconds", "must be int or null, not str (it is '9')"),
        ({"worker": "a", "parts": {}}, "$.parts", "must be array, not object"),
        ({"worker": "a", "parts": [{"type": "toll"}]}, "$.parts[0].type", "one of tool, model"),
        ({"worker": "a", "parts": [{"type": "model", "efort": 1}]}, "$.parts[0]", "did you mean 'effort'?"),
        ({"worker": "a", "parts": [{"type": "model", "times": 1}]}, "$.parts[0]", "the fields are handle, effort"),
        ({"worker": "a", "parts": [{"type": "model", "effort": "x"}]}, "$.parts[0].effort", "one of high, low"),
        ({"worker": "a", "by_name": {"k": "w"}}, "$.by_name[...]", "'w' is not allowed; it must be one of u, v"),
        ([], "$", "must be object, not array"),
    ],
)
def test_data_that_does_not_fit(sent: object, place: str, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(sent, _Order)
    found = describe_misfit(caught.value, _Order, sent)
    assert found.place == place
    assert found.message.endswith(message)
    assert describe_misfit(caught.value, _Order).place == place


def test_a_missing_field_that_was_misspelt() -> None:
    sent = {"message": ["hello"]}
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(sent, _Loose)
    message = "the field 'messages' is missing"
    assert describe_misfit(caught.value, _Loose, sent).message == f"{message}; was it meant by 'message'?"
    assert describe_misfit(caught.value, _Loose).message == message
    assert describe_misfit(caught.value, _Loose, {}).message == message
