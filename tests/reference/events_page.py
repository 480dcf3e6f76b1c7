"""The page about the journal's events: their fields and types from the code, an example of each from a kept run."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec import inspect as look

from chargehand.engine.events import VERSIONS, Entry, Event
from chargehand.journal.codec import TAGS, encode
from tests.histories.kept import entries_of, names, read_lines
from tests.reference.markdown import code, page, sentence, table

_ABOUT = """\
Every entry of a journal is an event with its number and its time: `chargehand runs show RUN --jsonl` prints them like
the examples here, which are from runs kept for tests. How they are stored and what they survive is in
[journal.md](../journal.md); they are defined in [`engine/events.py`](../../src/chargehand/engine/events.py). An event
keeps its meaning for ever: a new field has a default, a new meaning gets a new event. Fields of an
event that have their default are left out."""
_ROOM = 300  # characters of an event that is laid out line by line


def events_page() -> str:
    examples = _examples()
    listed = table(
        ("type", "what happened"), [(f"[`{tag}`](#{_anchor(tag)})", _says(kind)[0]) for kind, tag in TAGS.items()]
    )
    inside: dict[str, look.StructType] = {}
    parts = [part for kind, tag in TAGS.items() for part in _event(kind, tag, examples[tag], inside)]
    shapes = [part for name in sorted(inside) for part in _shape(name, inside[name])]
    return page("Events of the journal", _ABOUT, listed, *parts, "## Shapes inside events", *shapes)


def _anchor(tag: str) -> str:
    return tag.replace(".", "")


def _event(kind: type[Event], tag: str, example: Entry, inside: dict[str, look.StructType]) -> Iterator[str]:
    shape = look.type_info(kind)
    assert isinstance(shape, look.StructType)
    for one in _structs(shape):
        inside[one.cls.__name__] = one
    inside.pop(kind.__name__)
    version = VERSIONS.get(tag, 1)
    yield f"## `{tag}`"
    summary, *more = _says(kind)
    yield f"{summary} Version {version}, `{kind.__name__}` in Python."
    yield from more
    yield _fields(shape)
    yield f"```json\n{_written(example)}\n```"


def _shape(name: str, shape: look.StructType) -> Iterator[str]:
    yield f"### `{name}`"
    yield _doc(shape.cls)
    yield _fields(shape)


def _doc(kind: type[Struct]) -> str:
    """One that is made for us says nothing; one that speaks of fields says what their rows say."""
    said = kind.__doc__ or ""
    return sentence(said) if not said.startswith((kind.__name__, "`")) else ""


def _says(kind: type[Struct]) -> list[str]:
    """The paragraphs of what an event says of itself."""
    said = inspect.getdoc(kind) or ""
    if not said or said.startswith(f"{kind.__name__}("):  # made by msgspec, out of the fields
        raise LookupError(f"{kind.__name__} has no docstring; say there what happened")
    return [sentence(paragraph) for paragraph in said.split("\n\n")]


def meanings(kind: type[Struct]) -> dict[str, str]:
    """What the fields of a struct mean, by name: the string that stands below each field in the source."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] != "chargehand":
            continue
        (declared,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(declared, ast.ClassDef)
        for field, below in pairwise(declared.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = sentence(text).removesuffix(".")
                case _:
                    continue
    return found


def _fields(shape: look.StructType) -> str:
    meant = meanings(shape.cls)
    lacking = [one.name for one in shape.fields if not meant.get(one.name)]
    if lacking:
        raise LookupError(
            f"{shape.cls.__name__} does not say what {', '.join(lacking)} means: write it below the field"
        )
    rows = [(code(one.encode_name), meant[one.name], _type(one.type), _default(one)) for one in shape.fields]
    return table(("field", "meaning", "type", "default"), rows) or "It has no fields."


def _default(field: look.Field) -> str:
    if field.required:
        return "required"
    value = field.default
    if value is NODEFAULT:
        return ""
    return code(msgspec.json.encode(value).decode()) if not isinstance(value, Struct) else "its own"


def _type(kind: look.Type) -> str:
    match kind:
        case look.Metadata(type=inner):  # how a team file writes it
            return _type(inner)
        case look.UnionType(types=types):
            return " or ".join(_type(one) for one in types)
        case look.LiteralType(values=values):
            return ", ".join(f"`{one}`" for one in values)
        case look.VarTupleType(item_type=item) | look.ListType(item_type=item):
            return f"list of {_type(item)}"
        case look.TupleType(item_types=items):
            return f"list of {' and '.join(_type(one) for one in items)}"
        case look.DictType(value_type=value):
            return f"object of {_type(value)}"
        case look.StructType(cls=cls):
            return f"[{cls.__name__}](#{cls.__name__.lower()})"
        case _:
            return _PLAIN[type(kind)]


_PLAIN: dict[type[look.Type], str] = {
    look.StrType: "text",
    look.IntType: "whole number",
    look.FloatType: "number",
    look.BoolType: "true or false",
    look.NoneType: "null",
    look.RawType: "any JSON",
    look.AnyType: "any JSON",
    look.CustomType: "any JSON",
}


def _structs(kind: look.Type) -> Iterator[look.StructType]:
    """Every struct in a type, itself included. No shape of an event holds itself."""
    if isinstance(kind, look.StructType):
        yield kind
        for field in kind.fields:
            yield from _structs(field.type)
    elif isinstance(kind, look.UnionType):
        for one in kind.types:
            yield from _structs(one)
    elif isinstance(kind, look.VarTupleType | look.ListType):
        yield from _structs(kind.item_type)
    elif isinstance(kind, look.DictType):
        yield from _structs(kind.value_type)


def _examples() -> dict[str, Entry]:
    """Of each type the entry that has the most fields, and of those the shortest."""
    found: dict[str, Entry] = {}
    for name in names():
        for entry in entries_of(read_lines(name), name):
            tag = TAGS[type(entry.event)]
            if tag not in found or _richness(entry) > _richness(found[tag]):
                found[tag] = entry
    return found


def _richness(entry: Entry) -> tuple[int, int]:
    body = encode(entry.event)
    return len(msgspec.json.decode(body, type=dict[str, object])), -len(body)


def _written(entry: Entry) -> str:
    """Line by line; of a long one each field of the event has a line, however much is in it."""
    body = msgspec.json.encode(entry)
    if len(body) <= _ROOM:
        return msgspec.json.format(body, indent=2).decode()
    event = msgspec.json.decode(encode(entry.event), type=dict[str, msgspec.Raw])
    fields = [f'    "{name}": {msgspec.json.format(bytes(one), indent=0).decode()}' for name, one in event.items()]
    inside = ",\n".join(fields)
    return f'{{\n  "seq": {entry.seq},\n  "at": {entry.at},\n  "event": {{\n{inside}\n  }}\n}}'
