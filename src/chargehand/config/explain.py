"""Where each value of a team comes from: a line of the file, a variable, or what is built in.

Values of variables whose name sounds like a secret are never shown.
"""

import re
from collections.abc import Iterator
from typing import cast

from msgspec import Struct

from chargehand.agents.worker import Worker
from chargehand.config.environment import origin
from chargehand.config.findings import Path, written
from chargehand.config.load import OFFLINE, SECONDS
from chargehand.config.shapes import TeamShape
from chargehand.config.source import Source
from chargehand.terms.policy import Limits, Retry

_SECRET = re.compile(r"key|token|secret|pass|credential|auth", re.IGNORECASE)
_ROOM = 60


class Explained(Struct, frozen=True):
    """One value, shortened, and where it comes from."""

    path: str
    value: str
    origin: str


def explain(source: Source, team: TeamShape) -> list[Explained]:
    """Every value the file gives, then what it leaves to us."""
    given = [
        Explained(written(path), _value(source, path, value), _origin(source, path))
        for path, value in _leaves(source.data, ())
    ]
    taken = {one.path.partition("[")[0] for one in given}
    left = {written(path): value for path, value in _fields(team, ())} | _usual()
    return [*given, *(Explained(path, _shown(value), "built in") for path, value in left.items() if path not in taken)]


def _usual() -> dict[str, object]:
    """What holds where a file says nothing and the shape has no default of its own."""
    worker, retry, limits = Worker(""), Retry(), Limits()
    return {
        "defaults.model": OFFLINE,
        "defaults.timeout": f"{worker.timeout:g}s",
        "defaults.steps": worker.steps,
        "defaults.retry.attempts": retry.attempts,
        "defaults.retry.fallback_attempts": retry.fallback_attempts,
        "defaults.retry.backoff": f"{retry.base:g}s..{retry.ceiling:g}s",
        "defaults.retry.obey_retry_after": f"{retry.obey_retry_after:g}s",
        "budget.wall": f"{SECONDS:g}s",
        "supervisor.plan.max_tasks": limits.tasks,
        "supervisor.plan.max_depth": limits.depth,
        "supervisor.plan.max_nesting": limits.nesting,
    }


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
