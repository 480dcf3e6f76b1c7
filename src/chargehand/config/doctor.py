"""What chargehand needs from its surroundings, looked at one thing at a time, each with what to do about it.

Nothing is changed, nobody is called, and of a key only its name is ever said.
"""

import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand import __version__
from chargehand.config.describe import describe
from chargehand.config.discover import find_team
from chargehand.config.environment import home, lookup, models_home
from chargehand.errors import Invalid

State: TypeAlias = Literal["good", "missing", "bad"]

_PYTHON = (3, 11)
_SQLITE = (3, 24, 0)  # upserts
_ROOM = 100_000_000
_LITTLE = 1_000_000_000
_DAY = 86_400.0
_FAR = 4_102_444_800.0  # the year 2100
_EXTRAS = {
    "local": ("xllamacpp", "language models on this machine"),
    "providers": ("pydantic_ai", "providers besides OpenAI and Anthropic"),
}


class Line(Struct, frozen=True):
    """One thing looked at. `missing` is something that some teams need and others do not."""

    what: str
    state: State
    said: str
    todo: str = ""


def look(journal: Path, now: float, team: str | None = None, memory: Path | None = None) -> list[Line]:
    """Every line, in order; none of them raises. `memory` is where memory is kept unless the team says otherwise."""
    looks: Sequence[Callable[[], Line]] = (
        python,
        lambda: Line("chargehand", "good", __version__),
        lambda: writable("journal", journal),
        lambda: writable("memory", _memory(team, memory or journal.with_name("memory.db"))),
        lambda: writable("home", home() / "models"),
        sqlite,
        word_search,
        lambda: team_file(team),
        lambda: keys(_folder(team)),
        *(lambda name=name: extra(name) for name in _EXTRAS),
        sandbox,
        embeddings,
        lambda: clock(now),
        lambda: disk(journal),
    )
    return [one() for one in looks]


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Line:
    said = f"{'.'.join(map(str, version))} ({platform.python_implementation()}, {platform.system()})"
    if version < _PYTHON:
        return Line("python", "bad", said, "install Python 3.11 or newer")
    return Line("python", "good", said)


def sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> Line:
    said = ".".join(map(str, version))
    if version < _SQLITE:
        return Line("sqlite", "bad", said, "use a Python that is built with SQLite 3.24 or newer")
    return Line("sqlite", "good", said)


def word_search(*, has: bool | None = None) -> Line:
    """Archives and conversations are searched by words with a part of SQLite that some builds leave out."""
    if _full_text() if has is None else has:
        return Line("word search", "good", "FTS5 is in this Python's SQLite")
    said = "FTS5 is not in this Python's SQLite: archives cannot be searched"
    return Line("word search", "missing", said, "teams without memory do not need it; else use another Python build")


def _full_text() -> bool:
    with closing(sqlite3.connect(":memory:")) as scratch:
        try:
            scratch.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
        except sqlite3.Error:
            return False
    return True


def writable(what: str, file: Path) -> Line:
    """Whether a file can be written, or the nearest folder above it that exists."""
    folder = next((path for path in file.absolute().parents if path.exists()), Path.cwd())
    if file.exists() and not os.access(file, os.W_OK):
        return Line(what, "bad", f"{file} cannot be written", f"change its owner or mode: chmod u+w {file}")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Line(what, "bad", f"{folder} cannot be written: {error.strerror}", "choose a folder that can be written")
    return Line(what, "good", f"{file} ({'is there' if file.exists() else 'will be made'})")


def team_file(named: str | None) -> Line:
    try:
        told = describe(named)
    except Invalid as error:
        return Line("team", "bad", str(error), "name an existing team file, or begin one: chargehand init minimal")
    errors = told.errors
    if errors:
        return Line("team", "bad", str(errors[0]), f"see all of it: chargehand check --team {quote(told.file)}")
    return Line("team", "good", f"{told.name}: {told.file}, {told.how}")


def keys(folder: Path) -> Line:
    """Which keys are set, by name."""
    names = _key_names()
    there = [name for name in names if lookup(name, folder)]
    if there:
        return Line("keys", "good", f"set: {', '.join(there)}")
    todo = f"to use a provider set its variable, for example {names[0]}; the offline model needs none"
    return Line("keys", "missing", "no key of a provider is set", todo)


def extra(name: str) -> Line:
    module, use = _EXTRAS[name]
    if find_spec(module) is None:
        return Line(f"extra {name}", "missing", f"not installed ({use})", f"pip install 'chargehand[{name}]'")
    return Line(f"extra {name}", "good", f"installed ({use})")


def sandbox() -> Line:
    from chargehand.tools.sandbox import available  # noqa: PLC0415 - probing takes a process

    why = available()
    if why:
        return Line("sandbox", "missing", why, "teams without the tool `sandbox` do not need it")
    return Line("sandbox", "good", "Python that a model wrote can be run")


def embeddings() -> Line:
    from chargehand.models.local.pull import installed  # noqa: PLC0415 - only here

    absent = [name for name in ("numpy", "onnxruntime") if find_spec(name) is None]
    if absent:
        return Line("embeddings", "missing", f"{absent[0]} is not installed; words are compared instead", _LOCAL)
    if "minilm" not in installed(models_home()):
        return Line("embeddings", "missing", "not fetched; words are compared instead", "chargehand models pull minilm")
    return Line("embeddings", "good", "minilm is here")


_LOCAL = "pip install 'chargehand[local]', then: chargehand models pull minilm"


def clock(now: float) -> Line:
    """A clock that stands before these files were written is wrong; so is one far ahead."""
    written = Path(__file__).stat().st_mtime
    if not written - _DAY <= now <= _FAR:
        return Line("clock", "bad", f"it says {now:.0f} seconds since 1970", "set the clock: deadlines depend on it")
    return Line("clock", "good", "plausible")


def disk(journal: Path, free: int | None = None) -> Line:
    folder = next((path for path in journal.absolute().parents if path.exists()), Path.cwd())
    left = shutil.disk_usage(folder).free if free is None else free
    said = f"{left / 1e9:,.1f} GB free at {folder}"
    if left < _ROOM:
        return Line("disk", "bad", said, "free some space: a journal that cannot grow stops its runs")
    if left < _LITTLE:
        return Line("disk", "missing", said, "free some space before fetching models")
    return Line("disk", "good", said)


def _folder(team: str | None) -> Path:
    try:
        return find_team(team).file.resolve().parent
    except Invalid:
        return Path.cwd()


def _memory(team: str | None, otherwise: Path) -> Path:
    """Where a team's memory is kept; a team that cannot be read has a line of its own."""
    try:
        told = describe(team).memory
    except Invalid:
        return otherwise
    return Path(told.file) if told is not None and told.file else otherwise


def _key_names() -> list[str]:
    from chargehand.models.known import OTHERS, OWN, key_variable  # noqa: PLC0415 - only here

    own = [place.key for place in OWN.values() if place.needs_key]
    return list(dict.fromkeys([*own, *(key_variable(provider) for provider in OTHERS)]))
