"""Results as canonical JSON: sorted keys, and nothing that JSON would change in silence.

What a value means is not its business. Dates, sets, bytes and structs become what msgspec makes of them.
"""

import re
from math import isfinite
from typing import Protocol, cast, runtime_checkable

import msgspec
from msgspec import Raw

from chargehand.errors import NotJson

DEPTH = 64
_LONGEST_DECIMAL = 10**1000  # Python refuses to write much longer numbers in decimal


@runtime_checkable
class _PydanticModel(Protocol):
    """A model of pydantic, which is not imported for it."""

    def model_dump(self, *, mode: str) -> object: ...


def _plain_model(value: object) -> object:
    if isinstance(value, _PydanticModel) and not isinstance(value, type):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is no plain data")


_ENCODER = msgspec.json.Encoder(order="sorted", enc_hook=_plain_model)
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_DIGITS = b"0" * 19


def encode_value(value: object) -> Raw:
    """The value as JSON; NotJson says where it cannot be carried."""
    return Raw(_encode(value))


def _encode(value: object) -> bytes:
    try:
        body = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return _ENCODER.encode(_plain(value, "$", 0))
    # msgspec writes NaN as null, integers of any size and any depth: only such bytes need a closer look
    # (`find`, because `in` raises and catches a TypeError for each test of bytes)
    if body.find(b"null") >= 0 or body.translate(_DIGITS).find(_MANY_DIGITS) >= 0 or _deep(body, DEPTH):
        body = _ENCODER.encode(_plain(value, "$", 0))
    return body


def encode_or_text(value: object, *, depth: int = DEPTH) -> tuple[Raw, bool]:
    """The value as JSON, and whether that is all of it: what JSON cannot carry is kept as text in its place.

    For what has happened and must be recorded: it never raises, whatever the value does when it is looked at.
    """
    try:
        body = _encode(value)
    except Exception:  # noqa: BLE001 - a foreign object may raise anything
        body = b""
    if body and not _deep(body, depth):
        return Raw(body), True
    try:
        plain = msgspec.to_builtins(value, builtin_types=(Raw,), enc_hook=describe_value)
        return encode_value(_with_text(plain, depth)), False
    except Exception:  # noqa: BLE001 - for example a list that holds itself
        return encode_value(describe_value(value)), False


def describe_value(value: object) -> str:
    """Any object in words, as text that JSON can carry."""
    try:
        text = str(value) if hasattr(type(value), "__fspath__") else repr(value)  # of a path, only the path
    except Exception:  # noqa: BLE001 - a foreign __repr__
        text = f"(a {type(value).__name__} that cannot be shown)"
    return text.encode(errors="replace").decode()


def _with_text(value: object, depth: int) -> object:
    """Plain data in which every part that JSON cannot carry is text."""
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        if depth == 0:
            return describe_value(table)
        plain: dict[str, object] = {}
        for key, item in table.items():
            name = key.encode(errors="replace").decode() if isinstance(key, str) else describe_value(key)
            while name in plain:
                name += "'"
            plain[name] = _with_text(item, depth - 1)
        return plain
    if isinstance(value, list | tuple):
        items = cast("list[object]", value)
        return [_with_text(item, depth - 1) for item in items] if depth else describe_value(items)
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _number(value, "$")
        except NotJson:
            return hex(value) if isinstance(value, int) and abs(value) >= _LONGEST_DECIMAL else str(value)
    return value


def decode_value(raw: Raw | bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise NotJson("$", f"is not JSON that can be read: {error}") from error


def _deep(body: bytes, most: int) -> bool:
    """Whether it has more than so many levels."""
    if len(body) <= 2 * most or body.count(b"[") + body.count(b"{") <= most:
        return False
    brackets = _STRINGS.sub(b"", body).translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(most):  # each pass takes the innermost level away
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _plain(value: object, place: str, depth: int) -> object:
    """A copy in plain data, or NotJson at the first place that has none."""
    if value is None or isinstance(value, bool | Raw):
        return value
    if isinstance(value, str):
        if not value.isascii() and value.encode(errors="ignore").decode() != value:
            raise NotJson(place, "is text with half a surrogate pair; replace it first")
        return str.__str__(value)  # not str(): that would show an enum's name
    if isinstance(value, int | float):
        return _number(value, place)
    if isinstance(value, dict | list | tuple):
        if depth == DEPTH:
            raise NotJson(place, f"lies more than {DEPTH} levels deep; send something flatter")
        if isinstance(value, dict):
            return _table(cast("dict[object, object]", value), place, depth + 1)
        return [_plain(item, f"{place}[{n}]", depth + 1) for n, item in enumerate(cast("list[object]", value))]
    try:
        return _plain(msgspec.to_builtins(value, builtin_types=(Raw,), enc_hook=_plain_model), place, depth)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(place, f"is of type {type(value).__name__}, which JSON cannot carry; send plain data") from error


def _number(value: float, place: str) -> float:
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return int(value)
        raise NotJson(place, "is an integer outside 64 bits; send it as text")
    if isfinite(value):
        return float(value)
    raise NotJson(place, f"is {float(value)}, which JSON has no number for; send null or text")


def _table(value: dict[object, object], place: str, depth: int) -> dict[str, object]:
    plain: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise NotJson(place, f"has the key {key!r}; keys are text")
        name = str(_plain(key, f"{place} has a key that", depth))
        if name in plain:
            raise NotJson(place, f"has two keys that both become {name!r}; rename one")
        plain[name] = _plain(item, f"{place}.{name}", depth)
    return plain
