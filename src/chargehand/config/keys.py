"""Every key of a team file: where it stands, what it takes, its default and what it means. It reads no files."""

import re
from collections.abc import Iterator
from functools import cache
from typing import cast

from msgspec import NODEFAULT, Struct
from msgspec import inspect as look

from chargehand.agents.factory import Factory
from chargehand.agents.hedging import Hedge
from chargehand.agents.strategies import Dynamic, Loop, Recursive, Route
from chargehand.agents.worker import Worker
from chargehand.config.load import SECONDS
from chargehand.config.scalars import Dollars, Duration, Size, Span
from chargehand.config.shapes import TeamShape, bare_type
from chargehand.memory.blocks import LIMIT
from chargehand.models.known import BUILT_IN
from chargehand.terms.policy import Limits, Retry
from chargehand.tools.tool import CAP

_SCALARS = {
    Duration: "duration such as `90s`",
    Size: "size such as `200k`",
    Span: "span such as `1s..20s`",
    Dollars: "dollars such as `0.50`",
}


class Key(Struct, frozen=True):
    """`default` is empty where leaving it out is not the same as any value; the meaning then says what happens."""

    name: str
    takes: str
    default: str
    meaning: str
    required: bool = False


class Section(Struct, frozen=True):
    """Keys that stand together. In the path a star is a name that whoever writes the file has chosen."""

    path: str
    shape: type[Struct]
    keys: tuple[Key, ...]


@cache
def sections() -> tuple[Section, ...]:
    """The whole file first, then each section before those inside it."""
    return tuple(_sections("", cast("look.StructType", look.type_info(TeamShape))))


def key_at(path: str) -> Key | None:
    """The key that a path of a file leads to (`workers.ann.tools[1]`), or that it ends inside of."""
    found = [(len(known), key) for known, key in _keys() if re.fullmatch(rf"{_pattern(known)}(?:[.\[].*)?", path)]
    return max(found, key=lambda one: one[0])[1] if found else None


def meaning(path: str) -> str:
    """What is at a path, in words; nothing where there is no such key."""
    key = key_at(path)
    return key.meaning if key else ""


def is_known(path: str) -> bool:
    """Whether there is a key, or a section with a name of its own, exactly there."""
    return any(re.fullmatch(_pattern(known, "[^.]+"), path) for known in paths())


def paths() -> list[str]:
    return [path for path, _ in _keys()] + [one.path for one in sections() if one.path.endswith("*")]


@cache
def _keys() -> tuple[tuple[str, Key], ...]:
    return tuple((f"{one.path}.{key.name}".lstrip("."), key) for one in sections() for key in one.keys)


def _pattern(path: str, name: str = ".+?") -> str:
    """A path of a file may have numbers in it, and names for stars."""
    parts = [name if part == "*" else part for part in path.split(".")]
    return r"(?:\[\d+\])*\.".join(parts) + r"(?:\[\d+\])*"


def _sections(path: str, shape: look.StructType) -> Iterator[Section]:
    keys = tuple(_key(f"{path}.{field.encode_name}".lstrip("."), field) for field in shape.fields)
    yield Section(path, shape.cls, keys)
    for field in shape.fields:
        for suffix, inner in _inside(bare_type(field.type)):
            yield from _sections(f"{path}.{field.encode_name}{suffix}".lstrip("."), inner)


def _key(path: str, field: look.Field) -> Key:
    extra = field.type.extra_json_schema if isinstance(field.type, look.Metadata) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    schema = cast("dict[str, str]", extra or {})
    return Key(
        name=field.encode_name,
        takes=takes(bare_type(field.type)),
        default=_shown(_defaults().get(path, field.default)),
        meaning=schema.get("description", ""),
        required=field.required,
    )


def _inside(kind: look.Type) -> Iterator[tuple[str, look.StructType]]:
    """The structs with keys in a type, and what is put behind the path on the way to them."""
    if isinstance(kind, look.StructType) and kind.fields:
        yield "", kind
    elif isinstance(kind, look.UnionType):
        for one in kind.types:
            yield from _inside(one)
    elif isinstance(kind, look.VarTupleType):
        yield from _inside(kind.item_type)
    elif isinstance(kind, look.DictType):
        for suffix, inner in _inside(kind.value_type):
            yield f".*{suffix}", inner


def takes(kind: look.Type) -> str:
    """A type in words."""
    match kind:
        case look.UnionType(types=types):
            return " or ".join(dict.fromkeys(takes(one) for one in types if not isinstance(one, look.NoneType)))
        case look.LiteralType(values=values):
            return ", ".join(f"`{one}`" for one in values)
        case look.VarTupleType(item_type=item):
            return f"list of {_plural(takes(item))}"
        case look.DictType(value_type=value):
            return "table" if isinstance(value, look.AnyType) else f"by name: {takes(value)}"
        case look.IntType(ge=least, le=most) | look.FloatType(ge=least, le=most):
            whole = "whole number" if isinstance(kind, look.IntType) else "number"
            return f"{whole}, {least} to {most}" if most is not None else whole
        case look.CustomType(cls=cls):
            return _SCALARS[cast("type[Duration]", cls)]
        case look.StructType(fields=fields):
            return "table" if fields else "`{}`"
        case look.BoolType():
            return "`true` or `false`"
        case _:
            return "text"


def _plural(words: str) -> str:
    return {"text": "texts", "table": "tables"}.get(words, words)


def _shown(default: object) -> str:
    """Nothing for what is empty: leaving out and writing it come to the same."""
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if isinstance(default, str | int | float) and default is not NODEFAULT and default != "" else ""


def defaults_of_all() -> dict[str, object]:
    """What holds where a file says nothing and the shape has no default, by path: in sections that every team has."""
    worker = Worker("")
    retry = Retry()
    limits = Limits()
    return {
        "defaults.model": BUILT_IN,
        "defaults.timeout": f"{worker.timeout:g}s",
        "defaults.steps": worker.steps,
        "defaults.retry.attempts": retry.attempts,
        "defaults.retry.fallback_attempts": retry.fallback_attempts,
        "defaults.retry.backoff": f"{retry.base:g}s..{retry.ceiling:g}s",
        "defaults.retry.obey_retry_after": f"{retry.obey_retry_after:g}s",
        "timeout": f"{SECONDS:g}s",
        "supervisor.plan.max_tasks": limits.tasks,
        "supervisor.plan.max_depth": limits.depth,
        "supervisor.plan.max_nesting": limits.nesting,
    }


@cache
def _defaults() -> dict[str, object]:
    """The same, and in sections that a team may have."""
    loop = Loop()
    recursive = Recursive()
    factory = Factory()
    return {
        **defaults_of_all(),
        "hedge.share": Hedge().share,
        "supervisor.way.route.samples": Route().samples,
        "supervisor.way.loop.most_turns": loop.most_turns,
        "supervisor.way.loop.stalls": loop.stalls,
        "supervisor.way.loop.fresh_starts": loop.fresh_starts,
        "supervisor.way.dynamic.token": Dynamic().token,
        "supervisor.way.recursive.depth": recursive.depth,
        "supervisor.way.recursive.breadth": recursive.breadth,
        "tools.*.cap": f"{CAP // 1024}KiB",
        "factory.most_tools": factory.most_tools,
        "factory.capacity": factory.capacity,
        "factory.steps": factory.steps,
        "memory.blocks.*.limit": LIMIT,
    }
