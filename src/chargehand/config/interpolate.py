"""`${NAME}`, `${NAME:-otherwise}` and `$$` in parsed scalars. Keys and raw text are never touched.

Where variables come from is not known here: a lookup is handed in.
"""

import re
from collections.abc import Callable
from typing import TypeAlias, cast

from msgspec import Struct, field

from chargehand.config.findings import Path

Lookup: TypeAlias = Callable[[str], "str | None"]

_PIECE = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)


class Filled(Struct):
    """Data with its variables filled in: which place took which variables, and what was wrong where."""

    data: object = None
    used: dict[Path, tuple[str, ...]] = field(default_factory=dict[Path, "tuple[str, ...]"])
    problems: list[tuple[Path, str]] = field(default_factory=list[tuple[Path, str]])


def fill(data: object, lookup: Lookup) -> Filled:
    """The same data with every `${…}` in a scalar replaced. A missing variable is a problem, never an empty text.

    What comes out of a variable is text; whoever knows the place may read a number from it.
    """
    filled = Filled()
    filled.data = _walk(data, (), lookup, filled)
    return filled


def _walk(value: object, path: Path, lookup: Lookup, filled: Filled) -> object:
    # the reader bounds the depth and the count of values, aliases included
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {key: _walk(item, (*path, key), lookup, filled) for key, item in table.items()}
    if isinstance(value, list):
        return [_walk(item, (*path, at), lookup, filled) for at, item in enumerate(cast("list[object]", value))]
    if isinstance(value, str):
        return _text(value, path, lookup, filled)
    return value


def _text(text: str, path: Path, lookup: Lookup, filled: Filled) -> str:
    if "$" not in text:
        return text
    names: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        value, problem = _variable(found[1], closed=bool(found[2]), lookup=lookup, names=names)
        if problem:
            filled.problems.append((path, problem))
        return value

    done = _PIECE.sub(replaced, text)
    if names:
        filled.used[path] = tuple(names)
    return done


def _variable(inside: str, *, closed: bool, lookup: Lookup, names: list[str]) -> tuple[str, str]:
    """The value of one variable, or what is wrong with it."""
    found = _NAME.match(inside)
    if not found or not closed:
        return "", f"${{{inside[:40]} is no variable; write ${{NAME}} or ${{NAME:-otherwise}}, and $$ for a dollar sign"
    name = found[1]
    otherwise = cast("str | None", found[2])
    names.append(name)
    value = lookup(name)
    if otherwise is not None:
        return (value or otherwise), ""
    if value is None:
        return "", f"the variable {name} is not set; set it, put it into .env, or write ${{{name}:-otherwise}}"
    return value, ""
