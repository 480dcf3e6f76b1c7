"""What chargehand needs from its surroundings, checked one thing at a time, each with what to do about it.

Nothing is changed, nothing outside this machine is called, and of a key only its name is ever said.
"""

import os
import platform
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from msgspec import Struct

from chargehand import __version__
from chargehand.config.discover import find_team
from chargehand.config.doctor_models import CheckResult, dotenv_file, embeddings, fetched, keys, servers
from chargehand.config.environment import models_home
from chargehand.config.explain import Description, describe
from chargehand.errors import Invalid
from chargehand.models.extras import install_command
from chargehand.models.known import HIDDEN, without_secrets
from chargehand.stores.database import CATALOG, JOURNAL, FileKind
from chargehand.stores.examine import Examined, examine

_PYTHON = (3, 11)
_SQLITE = (3, 24, 0)  # upserts
_PORT = 8283
_EXTRAS = {
    "local": (("xllamacpp", "numpy", "onnxruntime"), "language models and embeddings on this machine"),
    "providers": (("pydantic_ai",), "providers besides OpenAI and Anthropic"),
    "server": (("starlette", "uvicorn", "httptools", "python_multipart"), "chargehand serve"),
}
_ROOM = 100_000_000
_LITTLE = 1_000_000_000
_DAY = 86_400.0
_FAR = 4_102_444_800.0  # the year 2100
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class _Surroundings(Struct):
    """What the checks look at."""

    journal: Path
    memory: Path
    now: float
    encoding: str
    team: Description | Invalid
    folder: Path
    """Of the team."""
    bundled: bool
    models: tuple[str, ...]
    """That the team names."""


def check_surroundings(
    journal: Path, now: float, team: str | None = None, memory: Path | None = None, encoding: str = "utf-8"
) -> list[CheckResult]:
    """Every check in order; none of them raises. `memory` is where memory is kept unless the team says otherwise."""
    gone = folder_gone()
    if gone is not None:
        return [gone]
    description = _described(team)
    folder, bundled = _folder(team)
    around = _Surroundings(
        journal=journal,
        memory=_memory(description, memory or journal.with_name("memory.db")),
        now=now,
        encoding=encoding,
        team=description,
        folder=folder,
        bundled=bundled,
        models=_models(description),
    )
    results: list[CheckResult] = []
    for check in _CHECKS:
        try:
            checked = check(around)
        except (OSError, ValueError, RuntimeError) as error:  # paths and names that cannot be foreseen
            said = f"could not look at everything: {error}"
            checked = CheckResult(what="doctor", state="bad", said=said, todo="see who may look there: ls -ld")
        results += [checked] if isinstance(checked, CheckResult) else checked
    return results


def folder_gone() -> CheckResult | None:
    """A shell may stand in a folder that somebody deleted: nothing else can be looked at from there."""
    try:
        Path.cwd()
    except OSError:
        return CheckResult(
            what="folder",
            state="bad",
            said="the folder you are in is not there any more",
            todo="go to one that is: cd ~",
        )
    return None


def python(version: tuple[int, ...] = sys.version_info[:3]) -> CheckResult:
    said = f"{'.'.join(map(str, version))} ({platform.python_implementation()}, {platform.system()})"
    if version < _PYTHON:
        return CheckResult(what="python", state="bad", said=said, todo="install Python 3.11 or newer")
    return CheckResult("python", "good", said)


def sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> CheckResult:
    said = ".".join(map(str, version))
    if version < _SQLITE:
        return CheckResult(
            what="sqlite", state="bad", said=said, todo="use a Python that is built with SQLite 3.24 or newer"
        )
    return CheckResult("sqlite", "good", said)


def word_search(*, has: bool | None = None) -> CheckResult:
    """Archives and conversations are searched by words with a part of SQLite that some builds leave out."""
    if _full_text() if has is None else has:
        return CheckResult("word search", "good", "FTS5 is in this Python's SQLite")
    said = "FTS5 is not in this Python's SQLite: archives cannot be searched"
    return CheckResult(
        what="word search",
        state="missing",
        said=said,
        todo="teams without memory do not need it; else use another Python build",
    )


def _full_text() -> bool:
    with closing(sqlite3.connect(":memory:")) as scratch:
        try:
            scratch.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
        except sqlite3.Error:
            return False
    return True


def team_file(named: str | None) -> CheckResult:
    return team_line(_described(named))


def team_line(told: Description | Invalid) -> CheckResult:
    """What is to be said of a team file, or of why there is none."""
    if isinstance(told, Invalid):
        return CheckResult(
            what="team",
            state="bad",
            said=str(told),
            todo="name an existing team file, or begin one: chargehand init minimal",
        )
    errors = told.errors
    if errors:
        return CheckResult(
            what="team",
            state="bad",
            said=str(errors[0]),
            todo=f"see all of it: chargehand check --team {quote(told.file)}",
        )
    return CheckResult("team", "good", f"{told.name}: {told.file}, {told.how}")


def extra(name: str) -> CheckResult:
    modules, use = _EXTRAS[name]
    absent = [module for module in modules if find_spec(module) is None]
    if absent:
        some = f"lacks {', '.join(absent)}" if len(absent) < len(modules) else "not installed"
        return CheckResult(what=f"extra {name}", state="missing", said=f"{some} ({use})", todo=install_command(name))
    return CheckResult(f"extra {name}", "good", f"installed ({use})")


def sandbox() -> CheckResult:
    from chargehand.tools.sandbox import available  # noqa: PLC0415 - probing takes a process

    why = available()
    if why:
        return CheckResult(
            what="sandbox", state="missing", said=why, todo="teams without the tool `sandbox` do not need it"
        )
    return CheckResult("sandbox", "good", "Python that a model wrote can be run")


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


# --- files


def journal_file(path: Path) -> CheckResult:
    return _store("journal", path, JOURNAL, "name another: --journal FILE")


def memory_file(path: Path) -> CheckResult:
    return _store("memory", path, CATALOG, "name another: chargehand run --memory FILE")


def home_folder(path: Path) -> CheckResult:
    return writable("home", path, "name another: export CHARGEHAND_HOME=FOLDER")


def writable(what: str, file: Path, other: str = "choose a folder that can be written") -> CheckResult:
    """Whether a file can be written, or the nearest folder above it that exists. `other` is a way round it."""
    above = file.absolute().parents
    folder = next((path for path in above if path.exists()), above[-1])
    if file.exists() and not os.access(file, os.W_OK):
        todo = f"change its owner or mode: chmod u+w {quote(str(file))}; or {other}"
        return CheckResult(what=what, state="bad", said=f"{file} cannot be written", todo=todo)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        todo = f"{other}; or make it writable: ls -ld {quote(str(folder))}"
        return CheckResult(what=what, state="bad", said=f"{folder} cannot be written: {error.strerror}", todo=todo)
    return CheckResult(what, "good", f"{file} ({'is there' if file.exists() else 'will be made'})")


def _store(what: str, path: Path, kind: FileKind, other: str) -> CheckResult:
    if path.exists() and not path.is_file():  # SQLite takes some devices for empty files
        said = f"{path} is {'a folder' if path.is_dir() else 'no ordinary file'}"
        return CheckResult(what=what, state="bad", said=said, todo=other)
    line = writable(what, path, other)
    if line.state == "bad" or not path.exists():
        return line
    found = examine(path, kind)
    if found.fault:
        return CheckResult(what=what, state="bad", said=found.said, todo=_todo(found, path, other))
    return line


def _todo(found: Examined, path: Path, other: str) -> str:
    file = quote(str(path))
    # with all that lies beside it: SQLite would take an old log for that of the new file
    aside = f"move it away and begin anew: mkdir aside && mv {file}* aside/"
    if found.fault == "newer":
        return f"pip install --upgrade chargehand; or {other}"
    if found.fault == "damaged":
        return f"restore it from a backup; or {aside}"
    if found.fault == "foreign":
        return f"{other}; or {aside}"
    if found.fault == "locked":
        return f"close that program (who it is: fuser {file}); or {other}"
    return f"see who may do what: ls -l {file}*; or {other}"


# --- the machine


def programs(path: str, running: str) -> list[CheckResult]:
    """More than one chargehand on PATH: the one that answers may not be the one that was upgraded."""
    found: dict[Path, Path] = {}
    for folder in path.split(os.pathsep):
        file = Path(folder or ".") / "chargehand"
        if os.access(file, os.X_OK) and file.is_file():  # in this order: some folders may not be looked into
            found.setdefault(file.resolve(), file)
    if len(found) < 2:
        return []
    used = next(iter(found.values()))
    others = ", ".join(str(file) for file in list(found.values())[1:])
    said = f"several on PATH: {used} is the one that runs; also {others}"
    todo = f"keep one: pip uninstall chargehand in the other place, or change PATH (this one runs on {running})"
    return [CheckResult(what="programs", state="missing", said=said, todo=todo)]


def proxies() -> list[CheckResult]:
    named = [name for name in (*_PROXIES, *(one.lower() for one in _PROXIES)) if os.environ.get(name)]
    if not named:
        return []
    said = f"{', '.join(named)} set, and not used: calls of models and `fetch` go out directly"
    todo = "where only a proxy leads out, name a gateway as base URL, for example OPENAI_BASE_URL"
    return [CheckResult(what="proxy", state="missing", said=said, todo=todo)]


def terminal(encoding: str) -> list[CheckResult]:
    if encoding.lower().replace("-", "").startswith("utf"):
        return []
    said = f"it takes {encoding or 'no known'} characters; others are shown as signs"
    return [
        CheckResult(what="terminal", state="missing", said=said, todo="export LC_ALL=C.UTF-8, or: export PYTHONUTF8=1")
    ]


def port(number: int) -> list[CheckResult]:
    """Whether the usual port of the server can be had."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", number))
            trial.listen(1)
        except OSError as error:
            said = f"{number}, the usual one of `serve`, cannot be had: {error.strerror}"
            todo = f"chargehand serve --port {number + 1}; who has it: ss -ltnp sport = :{number}"
            return [CheckResult(what="port", state="missing", said=said, todo=todo)]
    return []


def clock(now: float) -> CheckResult:
    """A clock that stands before these files were written is wrong; so is one far ahead."""
    written = Path(__file__).stat().st_mtime
    if not written - _DAY <= now <= _FAR:
        said = f"it says {now:.0f} seconds since 1970"
        return CheckResult(
            what="clock", state="bad", said=said, todo="set the clock, deadlines depend on it: timedatectl set-ntp true"
        )
    return CheckResult("clock", "good", "plausible")


def disk(journal: Path, free: int | None = None) -> CheckResult:
    above = journal.absolute().parents
    folder = next((path for path in above if path.exists()), above[-1])
    left = shutil.disk_usage(folder).free if free is None else free
    said = f"{left / 1e9:,.1f} GB free at {folder}"
    if left < _ROOM:
        return CheckResult(
            what="disk",
            state="bad",
            said=said,
            todo=f"free some space, a journal that cannot grow stops its runs: df -h {folder}",
        )
    if left < _LITTLE:
        return CheckResult(what="disk", state="missing", said=said, todo="free some space before fetching models")
    return CheckResult("disk", "good", said)


_CHECKS: tuple[Callable[[_Surroundings], CheckResult | Iterable[CheckResult]], ...] = (
    lambda _: python(),
    lambda _: CheckResult("chargehand", "good", __version__),
    lambda _: programs(os.environ.get("PATH", ""), sys.executable),
    lambda around: journal_file(around.journal),
    lambda around: memory_file(around.memory),
    lambda _: home_folder(models_home()),
    lambda _: sqlite(),
    lambda _: word_search(),
    lambda around: team_line(around.team),
    lambda around: servers(around.folder, around.models),
    lambda around: keys(around.folder, around.models),
    lambda around: dotenv_file(around.folder, bundled=around.bundled),
    lambda _: [extra(name) for name in _EXTRAS],
    lambda _: sandbox(),
    lambda _: embeddings(),
    lambda _: fetched(),
    lambda _: port(_PORT),
    lambda _: proxies(),
    lambda around: terminal(around.encoding),
    lambda around: clock(around.now),
    lambda around: disk(around.journal),
)
