"""Format 1 as published, and what was removed from it or changed since. `python -m tests.format.published` adds to it.

Three documents under tests/format: every event with its fields, the JSON Schema of the team file, the OpenAPI document.
Adding is allowed: an optional field, an event, a key, a route. What stands in a document must stay as it is.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct, structs

from chargehand.config.keys import json_schema
from chargehand.engine import events as ev
from chargehand.engine.events import VERSIONS
from chargehand.server.api.routes import document

FOLDER = Path(__file__).parent
Json: TypeAlias = Any
_PROSE = frozenset(("description", "summary", "title", "examples"))
"""Texts for people: they may be reworded."""
_LITERAL = "Literal["
_UNION = " | "
_MAY_GROW = frozenset(("enum", "anyOf", "oneOf", "tags", "parameters"))


def event_format() -> Json:
    """Every event and every struct inside one: its fields with their types, and which must be there."""
    events = get_args(ev.Event)
    shapes: dict[str, Json] = {}
    waiting: list[type] = [*events]
    while waiting:
        kind = waiting.pop()
        config = cast("type[Struct]", kind).__struct_config__
        name = str(config.tag) if kind in events else kind.__name__
        if name in shapes:
            continue
        fields = structs.fields(cast("type[Struct]", kind))
        shapes[name] = {
            "version": VERSIONS.get(name, 1),
            "fields": {
                field.encode_name: {"type": _type_name(field.type), "required": field.required} for field in fields
            },
        }
        for field in fields:
            waiting += _structs_in(field.type)
    return dict(sorted(shapes.items()))


def _type_name(kind: object) -> str:
    name = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return name.replace("chargehand.engine.", "").replace("typing.", "").replace("collections.abc.", "")


def _structs_in(kind: object) -> Iterator[type]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind
    for part in get_args(kind):
        yield from _structs_in(part)


DOCUMENTS: dict[str, Callable[[], Json]] = {
    "events-1.json": event_format,
    "team-file-1.json": lambda: msgspec.to_builtins(json_schema()),
    "http-api-1.json": lambda: msgspec.to_builtins(document()),
}


def published(name: str) -> Json:
    return msgspec.json.decode((FOLDER / name).read_bytes())


def present(name: str) -> Json:
    return msgspec.json.decode(msgspec.json.encode(DOCUMENTS[name]()))


def broken(old: Json, new: Json, place: str = "") -> Iterator[str]:
    """What of `old` is gone from `new` or differs there, as lines that name the place."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in cast("dict[str, Json]", old).items():
            if key in _PROSE and isinstance(value, str | list):
                continue
            if key not in new:
                yield f"{place}/{key} was removed"
            elif key == "required" and isinstance(value, list):
                added = set(cast("list[str]", new[key])) - set(cast("list[str]", value))
                yield from (f"{place}/{key}: {name} is required now" for name in sorted(added))
            elif key in _MAY_GROW and isinstance(value, list):
                items = cast("list[Json]", new[key])
                lost = [item for item in cast("list[Json]", value) if not _is_among(item, items)]
                yield from (f"{place}/{key}: {item} was removed" for item in lost)
                if key == "parameters":
                    required = [item["name"] for item in cast("list[Json]", new[key]) if item["required"]]
                    before = [item["name"] for item in cast("list[Json]", value)]
                    yield from (f"{place}/{key}: {name} is required now" for name in required if name not in before)
            else:
                yield from broken(value, cast("Json", new[key]), f"{place}/{key}")
    elif old != new and not _grew(old, new):
        yield f"{place} was {str(cast('object', old))[:80]}, is {str(cast('object', new))[:80]}"


def _is_among(old: Json, items: list[Json]) -> bool:
    """Whether an item of a list that may grow is still there, as it was or with additions."""
    return any(type(old) is type(item) and not list(broken(old, item)) for item in items)


def _grew(old: Json, new: Json) -> bool:
    """Whether both are types of a field, and the new one only allows more words, or more structs of a tagged union."""
    if not (isinstance(old, str) and isinstance(new, str)):
        return False
    if (old, new) == ("Raw", "object"):  # any JSON, as bytes or decoded: the same in a journal
        return True
    if old.startswith(_LITERAL) and new.startswith(_LITERAL):
        return set(old.removeprefix(_LITERAL)[:-1].split(", ")) < set(new.removeprefix(_LITERAL)[:-1].split(", "))
    return old.count(_UNION) > 1 and set(old.split(_UNION)) < set(new.split(_UNION))


def main() -> int:
    """Write what is new into the documents; refuse where something was removed or changed."""
    lines = [line for name in DOCUMENTS if (FOLDER / name).exists() for line in broken(published(name), present(name))]
    if lines:
        print(*lines, "this is published: add beside it, or publish another version", sep="\n", file=sys.stderr)
        return 1
    for name in DOCUMENTS:
        (FOLDER / name).write_bytes(msgspec.json.format(msgspec.json.encode(present(name)), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
