"""Where each value of a team comes from: a line of the file, a variable, or what is built in.

Values of variables whose name sounds like a secret are never shown.
"""

import re
from collections.abc import Iterator
from typing import cast

from msgspec import Struct

from chargehand.config.environment import origin
from chargehand.config.findings import Path, written
from chargehand.config.keys import meaning
from chargehand.config.shapes import TeamShape
from chargehand.config.source import Source
from chargehand.config.usual import always
from chargehand.models.known import without_secrets

_SECRET = re.compile(r"key|token|secret|pass|credential|auth", re.IGNORECASE)
_ROOM = 60


class Explained(Struct, frozen=True):
    """One value, shortened, where it comes from, and what its key means."""

    path: str
    value: str
    origin: str
    meaning: str = ""


def explain(source: Source, team: TeamShape) -> list[Explained]:
    """Every value the file gives, then what it leaves to us."""
    given = [
        Explained(written(path), _value(source, path, value), _origin(source, path), meaning(written(path)))
        for path, value in _leaves(source.data, ())
    ]
    taken = {one.path.partition("[")[0] for one in given}
    left = {written(path): value for path, value in _fields(team, ())} | always()
    ours = [(path, value) for path, value in left.items() if path not in taken]
    return [*given, *(Explained(path, _shown(value), "built in", meaning(path)) for path, value in ours)]


def _leaves(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    if isinstance(value, dict) and value:
        for key, item in cast("dict[str, object]", value).items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for at, item in enumerate(cast("list[object]", value)):
            yield from _leaves(item, (*path, at))
    else:
        yield path, value


def _fields(shape: Struct, path: Path) -> Iterator[tuple[Path, object]]:
    """The scalars of a team that have a value whether or not the file gives one."""
    for name in shape.__struct_fields__:
        value = getattr(shape, name)
        if isinstance(value, Struct):
            yield from _fields(value, (*path, name))
        elif isinstance(value, str | int | float) and value != "":
            yield (*path, name), value


def _value(source: Source, path: Path, value: object) -> str:
    secret = any(_SECRET.search(name) for name in source.used.get(path, ()))
    return "(not shown)" if secret else _shown(value)


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) or value is None else " ".join(str(value).split())
    text = without_secrets(text)
    return text if len(text) <= _ROOM else f"{text[: _ROOM - 1]}…"


def _origin(source: Source, path: Path) -> str:
    line = source.line(path)
    place = f"{source.file.name}:{line}" if line else source.file.name
    names = source.used.get(path, ())
    if not names:
        return place
    folder = source.file.resolve().parent
    said = [
        f"{name} of {where}" if (where := origin(name, folder)) else f"what stands after {name}:-" for name in names
    ]
    return f"{place}, {' and '.join(said)}"
