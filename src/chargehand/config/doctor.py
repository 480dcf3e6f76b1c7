"""What chargehand needs from its surroundings, looked at one thing at a time, each with what to do about it.

Nothing is changed, nobody outside this machine is called, and of a key only its name is ever said.
"""

import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TypeAlias

from chargehand import __version__
from chargehand.config.describe import Description, describe
from chargehand.config.discover import find_team
from chargehand.config.doctor_around import clock, disk, port, programs, proxies, terminal
from chargehand.config.doctor_line import Line
from chargehand.config.doctor_models import dotenv_file, embeddings, fetched, keys, servers
from chargehand.config.doctor_stores import home_folder, journal_file, memory_file
from chargehand.config.environment import models_home
from chargehand.errors import Invalid
from chargehand.models.extras import install_command
from chargehand.models.known import HIDDEN, without_secrets

_PYTHON = (3, 11)
_SQLITE = (3, 24, 0)  # upserts
_PORT = 8283
_EXTRAS = {
    "local": (("xllamacpp", "numpy", "onnxruntime"), "language models and embeddings on this machine"),
    "providers": (("pydantic_ai",), "providers besides OpenAI and Anthropic"),
    "server": (("starlette", "uvicorn", "httptools", "python_multipart"), "chargehand serve"),
}
_Look: TypeAlias = Callable[[], Line | Sequence[Line]]


def look(
    journal: Path, now: float, team: str | None = None, memory: Path | None = None, encoding: str = "utf-8"
) -> list[Line]:
    """Every line, in order; none of them raises. `memory` is where memory is kept unless the team says otherwise."""
    if (gone := folder_gone()) is not None:
        return [gone]
    told = _described(team)
    folder, bundled = _folder(team)
    models = _models(told)
    looks: Sequence[_Look] = (
        python,
        lambda: Line("chargehand", "good", __version__),
        lambda: programs(os.environ.get("PATH", ""), sys.executable),
        lambda: journal_file(journal),
        lambda: memory_file(_memory(told, memory or journal.with_name("memory.db"))),
        lambda: home_folder(models_home()),
        sqlite,
        word_search,
        lambda: team_line(told),
        lambda: servers(folder, models),
        lambda: keys(folder, models),
        lambda: dotenv_file(folder, bundled=bundled),
        *(lambda name=name: extra(name) for name in _EXTRAS),
        sandbox,
        embeddings,
        fetched,
        lambda: port(_PORT),
        proxies,
        lambda: terminal(encoding),
        lambda: clock(now),
        lambda: disk(journal),
    )
    found: list[Line] = []
    for one in looks:
        try:
            lines = one()
        except (OSError, ValueError, RuntimeError) as error:  # paths and names nobody could foresee
            lines = Line("doctor", "bad", f"could not look at everything: {error}", "see who may look there: ls -ld")
        found += [lines] if isinstance(lines, Line) else lines
    return found


def folder_gone() -> Line | None:
    """A shell may stand in a folder that somebody deleted: nothing else can be looked at from there."""
    try:
        Path.cwd()
    except OSError:
        return Line("folder", "bad", "the folder you are in is not there any more", "go to one that is: cd ~")
    return None


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


def team_file(named: str | None) -> Line:
    return team_line(_described(named))


def team_line(told: Description | Invalid) -> Line:
    """What is to be said of a team file, or of why there is none."""
    if isinstance(told, Invalid):
        return Line("team", "bad", str(told), "name an existing team file, or begin one: chargehand init minimal")
    errors = told.errors
    if errors:
        return Line("team", "bad", str(errors[0]), f"see all of it: chargehand check --team {quote(told.file)}")
    return Line("team", "good", f"{told.name}: {told.file}, {told.how}")


def extra(name: str) -> Line:
    modules, use = _EXTRAS[name]
    absent = [module for module in modules if find_spec(module) is None]
    if absent:
        some = f"lacks {', '.join(absent)}" if len(absent) < len(modules) else "not installed"
        return Line(f"extra {name}", "missing", f"{some} ({use})", install_command(name))
    return Line(f"extra {name}", "good", f"installed ({use})")


def sandbox() -> Line:
    from chargehand.tools.sandbox import available  # noqa: PLC0415 - probing takes a process

    why = available()
    if why:
        return Line("sandbox", "missing", why, "teams without the tool `sandbox` do not need it")
    return Line("sandbox", "good", "Python that a model wrote can be run")


def _described(team: str | None) -> Description | Invalid:
    try:
        return describe(team)
    except Invalid as error:
        return error


def _models(told: Description | Invalid) -> tuple[str, ...]:
    """Models the team names, also those that turn passages into vectors."""
    if isinstance(told, Invalid):
        return ()
    named = [*told.models, *(one.embed for one in (told.memory.archives if told.memory else ()))]
    # one with a password in it cannot be used, as the line of the team says: it is shown nowhere
    return tuple(dict.fromkeys(one for one in named if ":" in one and HIDDEN not in without_secrets(one)))


def _folder(team: str | None) -> tuple[Path, bool]:
    """The folder of the team, and whether it is the bundled one."""
    try:
        found = find_team(team)
    except Invalid:
        return Path.cwd(), False
    return found.file.resolve().parent, found.how == "bundled"


def _memory(told: Description | Invalid, otherwise: Path) -> Path:
    """Where a team's memory is kept."""
    if isinstance(told, Invalid) or told.memory is None or not told.memory.file:
        return otherwise
    return Path(told.memory.file)
