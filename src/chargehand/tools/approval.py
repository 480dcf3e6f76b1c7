"""Which calls of a tool need approval: conditions on their arguments, or a function of arguments and caller.

A condition that cannot be decided asks. No condition is code: a text such as `> 500` is split into an operator and a
value. A text that only looks like an operator is refused: read as a value, it would equal no argument and never ask.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, get_type_hints

import msgspec
from msgspec import Struct

from chargehand.errors import Invalid
from chargehand.text.words import did_you_mean
from chargehand.tools.schema import Arguments, Caller, problems

Operator: TypeAlias = Literal[">", ">=", "<", "<=", "==", "!=", "in", "not in"]
Scalar: TypeAlias = str | bool | int | float
Condition: TypeAlias = Scalar | Sequence[Scalar]
"""A text with an operator (`> 500`, `not in [EUR, CHF]`), a value that the argument must equal, or a list of them.

A value that begins like an operator is written as a list (`["in transit"]`) or after one (`== in transit`).
"""
Conditions: TypeAlias = Mapping[str, Condition]
"""Conditions by the name of an argument; all of them must hold."""
_ORDERED: tuple[Operator, ...] = (">", ">=", "<", "<=")
_WRITTEN = re.compile(r"(>=|<=|==|!=|>|<|not\s+in(?=\s*\[)|in(?=\s*\[))(.*)", re.DOTALL)
_LIKE_OPERATOR = re.compile(r"[<>=!~≤≥≠]|(?:not[\s_-]*in|not|in)(?=[\s\[(])", re.IGNORECASE)
"""What a value must not begin with where no operator is before it."""
_SECOND_OPERATOR = re.compile(r"=|(?:not[\s_-]*in|not|in)\s*[\[(]", re.IGNORECASE)
"""What a value must not begin with after `==` or `!=`, unless it is in quotes."""
_ITEM = re.compile(r"""\s*('[^']*'|"[^"]*"|[^,\[\]'"][^,\[\]]*|)\s*(?:,|$)""")
_FORMS = "'> 500', '== Ott', '!= Ott', 'in [Ott, Lehm]' or 'not in [Ott, Lehm]'"


class Comparison(Struct, frozen=True):
    """One condition on one argument."""

    argument: str
    operator: Operator
    value: object
    """A list for `in` and `not in`."""

    def holds(self, arguments: Mapping[str, object]) -> bool:
        """Check the condition; True where it cannot be decided: the argument is left out, or not of a fitting type."""
        if self.argument not in arguments:
            return True
        given = arguments[self.argument]
        match self.operator:
            case "in" | "==":
                values = self.values
                return given in values or not any(_is_alike(given, value) for value in values)
            case "not in" | "!=":
                return given not in self.values
            case _:
                return self._is_ordered(given)

    def __str__(self) -> str:
        """Return the condition as it was read: `euros > 500`, `to not in ["Ott", "Lehm"]`."""
        shown = [msgspec.json.encode(value).decode() for value in self.values]
        value = f"[{', '.join(shown)}]" if self.operator in ("in", "not in") else shown[0]
        return f"{self.argument} {self.operator} {value}"

    @property
    def values(self) -> list[object]:
        return cast("list[object]", self.value) if isinstance(self.value, list) else [self.value]

    def _is_ordered(self, given: object) -> bool:
        if isinstance(given, bool) or not isinstance(given, int | float):
            return True
        bound = cast("float", self.value)
        return {">": given > bound, ">=": given >= bound, "<": given < bound, "<=": given <= bound}[self.operator]


def _is_alike(given: object, value: object) -> bool:
    """Check that two values are of one type of JSON, so that they can be compared."""
    kinds = (bool, int | float, str)
    return any(isinstance(given, kind) and isinstance(value, kind) for kind in kinds)


def read_conditions(written: Conditions) -> tuple[Comparison, ...]:
    """Return the comparisons; Invalid for a condition that cannot be read."""
    return tuple(_read_condition(argument, condition) for argument, condition in written.items())


def _is_bracketed(text: str) -> bool:
    """Return whether a text looks like a list."""
    return text[:1] in ("[", "(") and text[-1:] in ("]", ")")


def _read_condition(argument: str, written: Condition) -> Comparison:
    if isinstance(written, Sequence) and not isinstance(written, str):
        if not written:
            raise Invalid(f"{argument}: the list is empty; name the values of which each asks")
        return Comparison(argument, "in", list(written))
    if not isinstance(written, str):
        return Comparison(argument, "==", written)
    match = _WRITTEN.fullmatch(written.strip())
    if match is None:
        _refuse_likeness(argument, written)
        return Comparison(argument, "==", written)
    operator = cast("Operator", " ".join(match[1].split()))
    text = match[2].strip()
    value = _read_list(text) if operator in ("in", "not in") else _read_value(text)
    if value is None or value == []:
        raise Invalid(f"{argument}: {written!r} names no value; write for example '> 500' or 'not in [EUR, CHF]'")
    if operator in _ORDERED and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise Invalid(f"{argument}: {written!r} compares with {text!r}, which is no number; use == or in for texts")
    if operator in ("==", "!=") and (_SECOND_OPERATOR.match(text) or _is_bracketed(text)):
        raise Invalid(
            f"{argument}: {written!r} has two operators; write one of {_FORMS}, or put the text in quotes: "
            f"{operator} {text!r}"
        )
    return Comparison(argument, operator, value)


def _refuse_likeness(argument: str, written: str) -> None:
    """Raise Invalid for a text that begins like an operator and is none."""
    if _LIKE_OPERATOR.match(written.strip()) or _is_bracketed(written.strip()):
        raise Invalid(
            f"{argument}: {written!r} begins like an operator and is none; write one of {_FORMS}, or [{written!r}] if "
            "the argument must be this very text"
        )


def _read_list(text: str) -> list[object] | None:
    """Return the values of a list in brackets; None where it cannot be read, as with an open bracket or quote."""
    if not text.endswith("]"):
        return None
    items: list[object] = []
    inside = text[1:-1]
    place = 0
    while place < len(inside):
        match = _ITEM.match(inside, place)
        if match is None:
            return None
        place = match.end()
        if item := match[1].strip():
            items.append(_read_value(item))
    return items


def _read_value(text: str) -> object | None:
    """Return the value of a number, `true`, `false` or a text, in quotes or without; None where there is none."""
    if not text:
        return None
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return value if isinstance(value, bool | int | float) else text


def check_conditions(written: Conditions, tool: str, schema: Mapping[str, Any]) -> None:
    """Raise Invalid for a condition on an argument that the tool does not have, or with a value it cannot take."""
    arguments: dict[str, Any] = schema.get("properties", {})
    root = {key: part for key, part in schema.items() if key in ("properties", "$defs", "definitions")}
    if not written:
        raise Invalid(f"the conditions of {tool!r} are empty; name an argument, for example {{amount: '> 500'}}")
    for comparison in read_conditions(written):
        name = comparison.argument
        if name not in arguments:
            raise Invalid(f"{tool!r} has no argument {name!r}; {did_you_mean(name, arguments)}")
        for value in comparison.values:
            if misfit := next(problems({name: value}, root), ""):
                raise Invalid(f"a condition on {tool!r} can never be decided: {misfit.removeprefix('$.')}")


def describe_conditions(written: Conditions) -> str:
    """Return conditions in words, as they were read: `asks if euros > 500 and to != "Ott"`."""
    return f"asks if {' and '.join(map(str, read_conditions(written)))}"


def must_ask(written: Conditions, arguments: str, schema: Mapping[str, Any]) -> bool:
    """Check whether a call with these arguments meets all conditions. Arguments that cannot be read ask."""
    try:
        given = msgspec.json.decode(arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return True
    parts: dict[str, dict[str, object] | bool] = schema.get("properties", {})
    plain = {name: part["default"] for name, part in parts.items() if isinstance(part, dict) and "default" in part}
    plain.update({name: value for name, value in given.items() if value is not None})
    return all(comparison.holds(plain) for comparison in read_conditions(written))


# --- functions


class ApprovalFunction(Struct, frozen=True):
    """A function that decides whether a call needs approval, and what it is given."""

    function: Callable[..., object]
    names: tuple[str, ...]
    """The arguments of the call that it takes."""
    caller: str = ""
    """The parameter that takes the `Caller`; empty: it has none."""

    def values(self, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Return what to call it with."""
        values = {name: arguments[name] for name in self.names if name in arguments}
        return {**values, self.caller: caller} if self.caller else values


def approval_function(function: Callable[..., object], arguments: Arguments) -> ApprovalFunction:
    """Return a function as it decides on calls of a tool; Invalid where it cannot be called with their arguments."""
    owner = f"tool {arguments.tool!r}: approve"
    try:
        parameters = inspect.signature(function).parameters.values()
        target = function if inspect.isroutine(function) else type(function).__call__
        hints = get_type_hints(target)
    except Exception as error:  # resolving names runs whatever stands in the annotations
        raise Invalid(f"{owner} has a signature that cannot be read ({error}); use a typed function") from error
    known: dict[str, Any] = arguments.schema.get("properties", {})
    names: list[str] = []
    caller = ""
    for parameter in parameters:
        if hints.get(parameter.name) is Caller:
            caller = parameter.name
        elif parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Invalid(f"{owner} takes {str(parameter)!r}; name the arguments of the tool that it decides by")
        elif parameter.name in known:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            hint = did_you_mean(parameter.name, known)
            raise Invalid(f"{owner} takes {parameter.name!r}, which is no argument of the tool; {hint}")
    returned = hints.get("return", bool)
    if returned is not bool:
        raise Invalid(f"{owner} returns {getattr(returned, '__name__', returned)}; it must return a bool")
    return ApprovalFunction(function, tuple(names), caller)
