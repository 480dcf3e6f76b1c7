"""Events and entries to store, made from the declarations so that none can be forgotten."""

from collections.abc import Iterable
from typing import get_args

import msgspec
from msgspec import Raw, inspect

from chargehand.engine.events import Entry, Event, Noted

AT = 1_763_200_000.125
SHAPES: tuple[type[Event], ...] = get_args(Event)


def sample(shape: type[Event], *, full: bool) -> Event:
    """One of this kind: with every field filled, or with only those that must be."""
    made = _fill(inspect.type_info(shape), full=full)
    assert isinstance(made, shape)
    return made


def _fill(kind: inspect.Type, *, full: bool) -> object:
    match kind:
        case inspect.StructType():
            fields = [field for field in kind.fields if full or field.required]
            return kind.cls(**{field.name: _fill(field.type, full=full) for field in fields})
        case inspect.UnionType():
            return _fill(next(one for one in kind.types if not isinstance(one, inspect.NoneType)), full=full)
        case inspect.VarTupleType():
            return (_fill(kind.item_type, full=full),) * 2
        case inspect.TupleType():
            return tuple(_fill(one, full=full) for one in kind.item_types)
        case inspect.DictType():
            return {"key": _fill(kind.value_type, full=full)}
        case inspect.Metadata():
            return _fill(kind.type, full=full)
        case inspect.LiteralType():
            return max(kind.values, key=str)
        case _:
            return _PLAIN[type(kind)]


_PLAIN: dict[type[inspect.Type], object] = {
    inspect.StrType: "é \N{SNOWMAN} null \u2028 \x00",
    inspect.IntType: 2**53 + 1,
    inspect.FloatType: 0.1 + 0.2,
    inspect.BoolType: True,
    inspect.CustomType: ["any", 1, None],  # how msgspec sees `object`
    inspect.RawType: Raw(b'{"type":"noted","a":[1,2.5,null,"\\u00e9"]}'),
}


def noted(seq: int, text: str = "") -> Entry:
    return Entry(seq, AT + seq, Noted(text or f"note {seq}"))


def entries(*numbers: int) -> list[Entry]:
    return [noted(seq) for seq in numbers]


def numbers(found: Iterable[Entry]) -> list[int]:
    return [entry.seq for entry in found]


def tag_of(event: Event) -> str:
    return msgspec.json.decode(msgspec.json.encode(event))["type"]
