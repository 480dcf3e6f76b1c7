"""Every key of a team file, from its structs: where it stands, what it takes, its default and what it means.

The reference page, `chargehand check --explain` and the JSON Schema for editors come from here. No file is read.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any, cast

from msgspec import NODEFAULT, Struct
from msgspec import inspect as look

from chargehand.config.schema import DECLARED, SCALARS, SOURCES, TeamShape, bare_type, scalar_of

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}
"""A variable may stand where a number is wanted."""


class FileKey(Struct, frozen=True):
    """`default` is empty where leaving it out is not the same as any value; the meaning then says what happens."""

    name: str
    takes: str
    default: str
    meaning: str
    required: bool = False


class KeySection(Struct, frozen=True):
    """Keys that stand together. In the path a star is a name that the author of the file has chosen."""

    path: str
    shape: type[Struct]
    keys: tuple[FileKey, ...]


@cache
def sections() -> tuple[KeySection, ...]:
    """The whole file first, then each section before those inside it."""
    return tuple(_sections("", cast("look.StructType", look.type_info(TeamShape))))


def key_at(path: str) -> FileKey | None:
    """The key that a path of a file leads to: `workers.ann.tools[1]`, `workers.*.tools`."""
    for pattern, key in known_keys().items():
        names = [r"[^.]+" if part == "*" else part for part in pattern.split(".")]
        if re.fullmatch(r"(?:\[\d+\])*\.".join(names) + r"(?:\[\d+\])*", path):
            return key
    return None


def full_path(path: str) -> str:
    """Return a path with the stars that were left out: `tools.*.approve` for `tools.approve`; any other as it is."""
    if path in known_keys():
        return path
    return next((known for known in known_keys() if known.replace(".*", "") == path), path)


@cache
def known_keys() -> dict[str, FileKey]:
    """Every key by its path; one that is written by name (`workers.*`) is the key of its table."""
    keys = {f"{section.path}.{key.name}".lstrip("."): key for section in sections() for key in section.keys}
    for section in sections():
        if section.path.endswith("*"):
            keys[section.path] = keys[section.path.removesuffix(".*")]
    return keys


def _sections(path: str, shape: look.StructType) -> Iterator[KeySection]:
    keys = tuple(_key(shape, field) for field in shape.fields)
    yield KeySection(path, shape.cls, keys)
    for field in shape.fields:
        for suffix, inner in _inside(bare_type(field.type)):
            yield from _sections(f"{path}.{field.encode_name}{suffix}".lstrip("."), inner)


@cache
def _meanings(module: str) -> dict[tuple[str, str], str]:
    """The texts under the fields of a module's structs, by the names of struct and field. Without source, none."""
    meanings: dict[tuple[str, str], str] = {}
    with suppress(OSError, TypeError):
        for struct in ast.parse(inspect.getsource(sys.modules[module])).body:
            for field, text in pairwise(struct.body if isinstance(struct, ast.ClassDef) else ()):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                        meanings[cast("ast.ClassDef", struct).name, name] = " ".join(words.split())
                    case _:
                        pass
    return meanings


def _meaning(struct: type[Struct], field: str) -> str:
    """The text under a field, in the struct, in what it extends, or in what it declares."""
    declared = DECLARED.get(struct, struct)
    for owner in (*struct.__mro__, *declared.__mro__):
        if meaning := _meanings(owner.__module__).get((owner.__name__, field)):
            return meaning
    return ""


def _key(shape: look.StructType, field: look.Field) -> FileKey:
    return FileKey(
        name=field.encode_name,
        takes=takes(bare_type(field.type)),
        default=_show_default(field),
        meaning=_meaning(shape.cls, field.name),
        required=field.required,
    )


def _show_default(field: look.Field) -> str:
    """Nothing for what is empty: leaving out and writing it come to the same."""
    default = field.default
    scalar = scalar_of(field.type)
    if scalar is not None and default is not NODEFAULT:
        return scalar.show(default)
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if isinstance(default, str | int | float) and default is not NODEFAULT else ""


def _inside(kind: look.Type) -> Iterator[tuple[str, look.StructType]]:
    """The structs with keys in a type, and what is put behind the path on the way to them."""
    if isinstance(kind, look.StructType) and kind.fields:
        yield "", kind
    elif isinstance(kind, look.UnionType):
        for option in kind.types:
            yield from _inside(option)
    elif isinstance(kind, look.CollectionType):
        yield from _inside(kind.item_type)
    elif isinstance(kind, look.DictType):
        for suffix, inner in _inside(kind.value_type):
            yield f".*{suffix}", inner


def takes(kind: look.Type) -> str:
    """A type in words."""
    if scalar := scalar_of(kind):
        return scalar.words
    match bare_type(kind):
        case look.UnionType(types=types):
            return " or ".join(
                dict.fromkeys(takes(option) for option in types if not isinstance(option, look.NoneType))
            )
        case look.LiteralType(values=values):
            return ", ".join(f"`{value}`" for value in values)
        case look.CollectionType(item_type=item):
            return f"list of {_plural(takes(item))}"
        case look.DictType(value_type=value):
            return "table" if isinstance(value, look.AnyType) else f"by name: {takes(value)}"
        case look.IntType(ge=least, le=most):
            return f"whole number{_bounds(least, most)}"
        case look.FloatType(ge=least, le=most):
            return f"number{_bounds(least, most)}"
        case look.StructType(fields=fields):
            return "table" if fields else "`{}`"
        case look.BoolType():
            return "`true` or `false`"
        case _:
            return "text"


def _bounds(least: float | None, most: float | None) -> str:
    if least is None:
        return ""
    return f", {least} or more" if most is None else f", {least} to {most}"


def _plural(words: str) -> str:
    return {"text": "texts", "table": "tables"}.get(words, words)


# --- the JSON Schema


def json_schema() -> dict[str, Any]:
    """A schema for the whole file, shorthand forms and variables included. The loader is stricter."""
    parts: dict[str, Any] = {}
    for section in sections():
        fields = cast("look.StructType", look.type_info(section.shape)).fields
        parts[_name(section.shape)] = {
            "type": "object",
            "properties": {
                key.name: _json_type(field.type) | _annotations(key, field)
                for key, field in zip(section.keys, fields, strict=True)
            },
            "required": [key.name for key in section.keys if key.required],
            "additionalProperties": False,
        }
    parts["Tool"]["oneOf"] = [{"required": [source]} for source in SOURCES]
    parts["Rule"] |= {"minProperties": 1, "maxProperties": 1}
    for scalar in SCALARS.values():
        text = {"type": "string", "pattern": scalar.pattern}
        number = {"type": scalar.json_type, "minimum": 0}
        options = [number, text, _VARIABLE] if scalar.pattern else [number, _VARIABLE]
        parts[scalar.name] = {"description": scalar.words, "anyOf": options}
    return {"$schema": _DIALECT, **parts.pop("Team"), "title": "chargehand team file", "$defs": parts}


def _annotations(key: FileKey, field: look.Field) -> dict[str, Any]:
    """What an editor shows of a key."""
    has_default = isinstance(field.default, bool | int | float | str) and field.default != ""
    return {"description": key.meaning} | ({"default": field.default} if has_default else {})


def _json_type(kind: look.Type) -> dict[str, Any]:
    """A type as JSON Schema. A key is left out, not set to null; a variable may stand where a number is wanted."""
    if scalar := scalar_of(kind):
        return {"$ref": f"#/$defs/{scalar.name}"}
    match bare_type(kind):
        case look.UnionType(types=types):
            options = [_json_type(option) for option in types if not isinstance(option, look.NoneType)]
            return options[0] if len(options) == 1 else {"anyOf": options}
        case look.LiteralType(values=values):
            return {"enum": list(values)}
        case look.CollectionType(item_type=item):
            return {"type": "array", "items": _json_type(item)}
        case look.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _json_type(value)}
        case look.IntType() | look.FloatType() as number:
            return {"anyOf": [_json_number(number), _VARIABLE]}
        case look.BoolType():
            return {"anyOf": [{"type": "boolean"}, _VARIABLE]}
        case look.StructType(cls=struct, fields=fields):
            empty = {"type": "object", "additionalProperties": False}
            return {"$ref": f"#/$defs/{_name(struct)}"} if fields else empty
        case look.AnyType():
            return {}
        case _:
            return {"type": "string"}


def _json_number(kind: look.IntType | look.FloatType) -> dict[str, Any]:
    bounds = {"minimum": kind.ge, "maximum": kind.le}
    name = "integer" if isinstance(kind, look.IntType) else "number"
    return {"type": name, **{bound: value for bound, value in bounds.items() if value is not None}}


def _name(struct: type) -> str:
    return struct.__name__.removesuffix("Shape").removesuffix("Keys")
