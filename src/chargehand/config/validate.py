"""Data against the shapes: every wrong key, type and number at once, each with its place and what would be right.

What is wrong is left out of the shape, so that the rest of the file can be looked at as well.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import Struct, inspect

from chargehand.config.schema import TeamShape, bare_type, scalar_of
from chargehand.config.source import FileFinding, FileSource, Path, near, scalar_value
from chargehand.engine.declared import nearest_keyword, synonym_of
from chargehand.models.messages import Settings, settings_problems
from chargehand.text.words import listed

_MOST = 100
_WRONG = object()
"""In the place of a value that cannot be used."""
_AT_THE_TOP = ("cache", "policy", "checks", "memory", "budget", "timeout", "tools")
"""What people look for in the supervisor."""


def validate(source: FileSource) -> tuple[TeamShape, tuple[FileFinding, ...]]:
    """The team a file describes, without what is wrong with it; and what that is."""
    fitting = _Fitting(source)
    data = cast("dict[str, object]", fitting.read(source.data, _shape(), ()))
    findings = tuple(sorted((*source.findings, *fitting.findings), key=lambda finding: finding.line))
    return msgspec.convert({**data, "version": 1}, TeamShape), findings


@lru_cache(maxsize=1)
def _shape() -> inspect.Type:
    return inspect.type_info(TeamShape)


class _Fitting(Struct):
    source: FileSource
    findings: list[FileFinding] = []

    def say(self, path: Path, message: str) -> None:
        self.findings.append(self.source.finding(path, message))

    def read(self, value: object, kind: inspect.Type, path: Path) -> object:
        """The value as its struct takes it: durations in seconds, numbers where a variable brought the text of one."""
        kind = _member(value, bare_type(kind))
        if isinstance(kind, inspect.StructType):
            return self._struct(value, kind, path)
        if isinstance(kind, inspect.DictType):
            return self._dict(value, kind, path)
        if isinstance(kind, inspect.CollectionType):
            return self._list(value, kind, path)
        if isinstance(value, str) and path in self.source.used and _wants_number(kind):
            value = scalar_value(value)
        if problem := _leaf(value, kind):
            return self._wrong(path, problem)
        scalar = scalar_of(kind)
        return value if scalar is None else scalar.read(value)

    def _wrong(self, path: Path, message: str) -> object:
        if len(self.findings) < _MOST:
            self.findings.append(self.source.finding(path, message))
        return _WRONG

    def _list(self, value: object, kind: inspect.CollectionType, path: Path) -> object:
        if not isinstance(value, list):
            short = isinstance(value, str) and value.isidentifier()
            return self._wrong(path, f"must be a list, not {_is(value)}; write [{value if short else '…'}]")
        items = enumerate(cast("list[object]", value))
        fitted = [self.read(item, kind.item_type, (*path, at)) for at, item in items]
        return [item for item in fitted if item is not _WRONG]

    def _dict(self, value: object, kind: inspect.DictType, path: Path) -> object:
        """Entries by names that the author chose. One that is wrong stays as an empty table: others may name it."""
        if not isinstance(value, dict):
            return self._wrong(path, f"must be a table of keys, not {_is(value)}")
        entries: dict[str, object] = {}
        for name, item in cast("dict[str, object]", value).items():
            entry = self.read(item, kind.value_type, (*path, name))
            if entry is not _WRONG:
                entries[name] = entry
            elif isinstance(_member({}, kind.value_type), inspect.StructType):
                entries[name] = {}
        return entries

    def _struct(self, value: object, kind: inspect.StructType, path: Path) -> object:
        if not isinstance(value, dict):
            return self._wrong(path, f"must be a table of keys, not {_is(value)}")
        table = cast("dict[str, object]", value)
        fields = {field.encode_name: field for field in kind.fields}
        unknown = [key for key in table if key not in fields]
        for key in unknown:
            self._wrong((*path, key), _unknown(key, list(fields), path))
        missing = [name for name, field in fields.items() if field.required and name not in table]
        if missing and not path:
            self._wrong(path, "there is no version; begin with  version: 1")
        elif missing and not unknown:
            self._wrong(path, f"has no {missing[0]!r}")
        fitted: dict[str, object] = {}
        for key, item in table.items():
            if key in fields:
                fitted[key] = self.read(item, fields[key].type, (*path, key))
        valid = {key: item for key, item in fitted.items() if item is not _WRONG}
        if kind.cls is Settings:
            for key, problem in tuple(settings_problems(valid)):
                valid.pop(key, None)
                self._wrong((*path, key), problem)
        is_whole = all(name in valid for name, field in fields.items() if field.required)
        return valid if is_whole or not path else _WRONG


def _wants_number(kind: inspect.Type) -> bool:
    scalar = scalar_of(kind)
    if scalar is not None:
        return not scalar.pattern
    return isinstance(kind, inspect.IntType | inspect.FloatType | inspect.BoolType)


def _member(value: object, kind: inspect.Type) -> inspect.Type:
    """The alternative this value is meant to be: tables by their shape, the rest by the first that takes it."""
    if not isinstance(kind, inspect.UnionType):
        return kind
    tables = [option for option in kind.types if isinstance(option, inspect.StructType | inspect.DictType)]
    others = [option for option in kind.types if option not in tables and not isinstance(option, inspect.NoneType)]
    if tables and (isinstance(value, dict) or not others):
        return tables[0]
    lists = [option for option in others if isinstance(option, inspect.CollectionType)]
    if lists and isinstance(value, list):
        return lists[0]
    others = [option for option in others if option not in lists] or others
    if len(others) == 1:
        return others[0]
    return next((option for option in others if not _leaf(value, option)), others[-1])


def _unknown(key: str, names: list[str], path: Path) -> str:
    if path and key in _AT_THE_TOP:
        return f"there is no key {key!r} here; it holds for the whole team: write it at the top, beside  workers:"
    above = synonym_of(key, _AT_THE_TOP)
    if path and above and not synonym_of(key, names):
        return f"there is no key {key!r} here; did you mean {above!r}? Write it at the top, beside  workers:"
    meant = nearest_keyword(key, names)
    hint = f"did you mean {meant!r}?" if meant else f"the keys are {listed(names)}"
    return f"there is no key {key!r} here; {hint}"


def _leaf(value: object, kind: inspect.Type) -> str:
    """What is wrong with a single value; nothing when it is right."""
    if isinstance(kind, inspect.AnyType):
        return ""
    if value is None:
        return "has no value; give it one, or remove the key"
    if isinstance(kind, inspect.LiteralType):
        return _choice(value, kind)
    if scalar := scalar_of(kind):
        try:
            scalar.read(value)
        except ValueError as error:
            return str(error)
        return ""
    return _LEAVES[type(kind)](value, kind)


def _choice(value: object, kind: inspect.LiteralType) -> str:
    if any(value == choice and type(value) is type(choice) for choice in kind.values):
        return ""
    if kind.values == (1,):
        return f"is {_is(value)}; this chargehand reads version 1: write  version: 1"
    choices = [str(choice) for choice in kind.values]
    if value == "fixed" and "round_robin" in choices:  # it is a way, and no setting: the plan says it all
        return "is 'fixed', which is said with the plan itself: leave this out, and use  chargehand run --plan FILE"
    conditions = ', or conditions such as {argument: "> 500"}' if set(choices) == {"always", "never"} else ""
    return f"is {_is(value)}; it must be one of {', '.join(choices)}{conditions}{near(str(value), choices)}"


def _text(value: object, _kind: Any) -> str:
    if isinstance(value, str):
        return ""
    single = not isinstance(value, dict | list)
    return f"must be text, not {_is(value)}" + ("; put it in quotes" if single else "")


def _flag(value: object, _kind: Any) -> str:
    return "" if isinstance(value, bool) else f"must be true or false, not {_is(value)}"


def _number(value: object, kind: Any) -> str:
    whole = isinstance(kind, inspect.IntType)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return f"must be a {'whole ' if whole else ''}number, not {_is(value)}"
    if kind.ge is None or kind.ge <= value <= (value if kind.le is None else kind.le):
        return ""
    bounds = f"{kind.ge} or more" if kind.le is None else f"between {kind.ge} and {kind.le}"
    return f"is {value}; it must be {bounds}"


_LEAVES: dict[type, Callable[[object, Any], str]] = {
    inspect.StrType: _text,
    inspect.BoolType: _flag,
    inspect.IntType: _number,
    inspect.FloatType: _number,
}


def _is(value: object) -> str:
    """What a value is, in words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 40 else "a longer text"
    if isinstance(value, int | float):
        return f"the number {value}"
    return "a table of keys" if isinstance(value, dict) else "a list" if isinstance(value, list) else f"{value}"
