"""The form of a split between us and a model: the schema it is asked for, and the parts in its reply.

What becomes of them is `splitting`'s business.
"""

from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec import Raw, Struct

from chargehand.agents.questions import instruction

_LONGEST = 1200


class Part(Struct, frozen=True):
    """A subtask as a model put it: `number` is its place, `after` holds the places of others."""

    number: int
    instruction: str
    worker: object = None
    after: tuple[int, ...] = ()


def schema(workers: tuple[str, ...], breadth: int) -> Raw:
    """The schema for at most so many parts; for one there is nothing to split."""
    worker = {"type": "string", "enum": list(workers)}
    part = {
        "type": "object",
        "properties": {
            "instruction": {"type": "string", "minLength": 1, "maxLength": _LONGEST},
            "worker": worker,
            "after": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": breadth}},
        },
        "required": ["instruction", "worker", "after"],
        "additionalProperties": False,
    }
    fields: dict[str, object] = {
        "why": {"type": "string", "maxLength": 600},
        "simple": {"type": "boolean"},
        "worker": worker,
        "unserved": {"type": "array", "items": {"type": "string", "maxLength": 300}, "maxItems": 10},
    }
    if breadth > 1:
        fields["subtasks"] = {"type": "array", "items": part, "maxItems": breadth}
    whole = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return Raw(msgspec.json.encode(whole))


def parts(said: object) -> list[Part]:
    """The subtasks that say what to do; some models write only that."""
    listed = cast("list[object]", said) if isinstance(said, list) else []
    found: list[Part] = []
    for number, one in enumerate(listed, 1):
        body: Mapping[str, object] = cast("dict[str, object]", one) if isinstance(one, dict) else {"instruction": one}
        if text := instruction(body.get("instruction")):
            found.append(Part(number, text, body.get("worker"), _numbers(body.get("after"))))
    return found


def _numbers(said: object) -> tuple[int, ...]:
    listed = cast("list[object]", said) if isinstance(said, list) else []
    return tuple(one for one in listed if isinstance(one, int) and not isinstance(one, bool))
