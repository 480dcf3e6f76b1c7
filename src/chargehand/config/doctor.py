"""What chargehand needs from its surroundings, checked one thing at a time, each with what to do about it.

Nothing is changed, only this machine is called, for a second at most, and of a key only its name is ever said.
"""

import os
import platform
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from shlex import quote
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from chargehand import __version__
from chargehand.config.environment import DOTENV_BYTES, dotenv, lookup, models_home, origin
from chargehand.config.explain import Description, describe
from chargehand.config.source import find_team
from chargehand.errors import Invalid
from chargehand.journal.store import examine_journal
from chargehand.memory.session import examine_catalog
from chargehand.models.providers import (
    BUILT_IN,
    HIDDEN,
    OTHERS,
    OWN,
    install_command,
    is_in_process,
    key_variable,
    without_secrets,
)
from chargehand.sqlite.connection import Examined

_PYTHON = (3, 11)
_SQLITE = (3, 24, 0)  # upserts
_PORT = 8283
_EXTRAS = {
    "local": (("xllamacpp", "numpy", "onnxruntime"), "language models and embeddings on this machine"),
    "providers": (("pydantic_ai",), "providers besides OpenAI and Anthropic"),
    "server": (("starlette", "uvicorn", "httptools", "python_multipart"), "chargehand serve"),
}
_LEAST_BYTES = 100_000_000
_FEW_BYTES = 1_000_000_000
_DAY = 86_400.0
_YEAR_2100 = 4_102_444_800.0
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


_CONNECT_SECONDS = 1.0
_MAX_SERVERS = 8  # more are not tried: the doctor must not keep anybody waiting
_MAX_VERIFIED = 128_000_000  # files up to here are read to their end, larger ones only measured


_LOOKALIKES = {
    "OPENAI_API_KEY": ("OPENAI_KEY", "OPENAI_APIKEY", "OPENAI_TOKEN", "OPEN_AI_API_KEY", "OPEN_AI_KEY"),
    "ANTHROPIC_API_KEY": ("ANTHROPIC_KEY", "ANTHROPIC_APIKEY", "ANTHROPIC_TOKEN", "CLAUDE_API_KEY", "CLAUDE_KEY"),
    "OPENROUTER_API_KEY": ("OPENROUTER_KEY", "OPENROUTER_APIKEY", "OPENROUTER_TOKEN", "OPEN_ROUTER_API_KEY"),
    "GOOGLE_API_KEY": ("GOOGLE_KEY", "GOOGLE_APIKEY", "GEMINI_API_KEY", "GEMINI_KEY"),
}
"""What people call variables that nothing reads."""

State: TypeAlias = Literal["good", "missing", "bad"]


class CheckResult(Struct, frozen=True):
    """One thing checked. `missing` is something that some teams need and others do not, or that is good to know."""

    what: str
    state: State
    message: str
    todo: str = ""


def good(what: str, message: str, todo: str = "") -> CheckResult:
    return CheckResult(what, "good", message, todo)


def missing(what: str, message: str, todo: str) -> CheckResult:
    return CheckResult(what, "missing", message, todo)


def bad(what: str, message: str, todo: str) -> CheckResult:
    return CheckResult(what, "bad", message, todo)


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
    try:
        folder = Path.cwd()
    except OSError:  # a shell may stand in a folder that was deleted: nothing can be looked at from there
        return [bad("folder", "the folder you are in is not there any more", "go to one that is: cd ~")]
    bundled = False
    memory = memory or journal.with_name("memory.db")
    models: list[str] = []
    try:
        team_file = find_team(team)
        folder = team_file.file.resolve().parent
        bundled = team_file.how == "bundled"
        description: Description | Invalid = describe(team)
        models += description.models
        if description.memory is not None:
            models += description.memory.archives.values()
            memory = Path(description.memory.file or memory)
    except Invalid as error:
        description = error
    around = _Surroundings(
        journal=journal,
        memory=memory,
        now=now,
        encoding=encoding,
        team=description,
        folder=folder,
        bundled=bundled,
        # one with a password in it cannot be used, as the line of the team says: it is shown nowhere
        models=tuple(dict.fromkeys(name for name in models if ":" in name and HIDDEN not in without_secrets(name))),
    )
    results: list[CheckResult] = []
    for check in _CHECKS:
        try:
            results += check(around)
        except (OSError, ValueError, RuntimeError) as error:  # paths and names that cannot be foreseen
            message = f"could not look at everything: {error}"
            results.append(bad("doctor", message, "see who may look there: ls -ld"))
    return results


# --- programs


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[CheckResult]:
    message = f"{'.'.join(map(str, version))} ({platform.python_implementation()}, {platform.system()})"
    yield good("python", message) if version >= _PYTHON else bad("python", message, "install Python 3.11 or newer")


def sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> Iterator[CheckResult]:
    message = ".".join(map(str, version))
    todo = "use a Python that is built with SQLite 3.24 or newer"
    yield good("sqlite", message) if version >= _SQLITE else bad("sqlite", message, todo)


def word_search(statement: str = "CREATE VIRTUAL TABLE probe USING fts5(text)") -> Iterator[CheckResult]:
    """Archives and conversations are searched by words with a part of SQLite that some builds leave out."""
    with closing(sqlite3.connect(":memory:")) as scratch:
        try:
            scratch.execute(statement)
        except sqlite3.Error:
            message = "FTS5 is not in this Python's SQLite: archives cannot be searched"
            yield missing("word search", message, "teams without memory do not need it; else use another Python build")
            return
    yield good("word search", "FTS5 is in this Python's SQLite")


def extras() -> Iterator[CheckResult]:
    for name, (modules, use) in _EXTRAS.items():
        absent = [module for module in modules if find_spec(module) is None]
        if absent:
            some = f"lacks {', '.join(absent)}" if len(absent) < len(modules) else "not installed"
            yield missing(f"extra {name}", f"{some} ({use})", install_command(name))
        else:
            yield good(f"extra {name}", f"installed ({use})")


def sandbox() -> Iterator[CheckResult]:
    from chargehand.tools.sandbox import available  # noqa: PLC0415 - probing takes a process

    if why := available():
        yield missing("sandbox", why, "teams without the tool `sandbox` do not need it")
    else:
        yield good("sandbox", "Python that a model wrote can be run")


def programs(path: str, running: str) -> Iterator[CheckResult]:
    """More than one chargehand on PATH: the one that answers may not be the one that was upgraded."""
    files: dict[Path, Path] = {}
    for folder in path.split(os.pathsep):
        file = Path(folder or ".") / "chargehand"
        if os.access(file, os.X_OK) and file.is_file():  # in this order: some folders may not be looked into
            files.setdefault(file.resolve(), file)
    if len(files) > 1:
        used, *others = map(str, files.values())
        message = f"several on PATH: {used} is the one that runs; also {', '.join(others)}"
        todo = f"keep one: pip uninstall chargehand in the other place, or change PATH (this one runs on {running})"
        yield missing("programs", message, todo)


# --- files


def team_file(description: Description | Invalid) -> Iterator[CheckResult]:
    if isinstance(description, Invalid):
        todo = "name an existing team file, or begin one: chargehand init minimal"
        yield bad("team", str(description), todo)
    elif description.errors:
        todo = f"see all of it: chargehand check --team {quote(description.file)}"
        yield bad("team", str(description.errors[0]), todo)
    else:
        yield good("team", f"{description.name}: {description.file}, {description.how}")


def writable(what: str, file: Path, other: str = "choose a folder that can be written") -> CheckResult:
    """Whether a file can be written, or the nearest folder above it that exists. `other` is a way round it."""
    folder = _folder_above(file)
    if file.exists() and not os.access(file, os.W_OK):
        todo = f"change its owner or mode: chmod u+w {quote(str(file))}; or {other}"
        return bad(what, f"{file} cannot be written", todo)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        todo = f"{other}; or make it writable: ls -ld {quote(str(folder))}"
        return bad(what, f"{folder} cannot be written: {error.strerror}", todo)
    return good(what, f"{file} ({'is there' if file.exists() else 'will be made'})")


def _folder_above(file: Path) -> Path:
    above = file.absolute().parents
    return next((path for path in above if path.exists()), above[-1])


def home_folder(path: Path) -> Iterator[CheckResult]:
    yield writable("home", path, "name another: export CHARGEHAND_HOME=FOLDER")


def journal_file(path: Path) -> Iterator[CheckResult]:
    yield _check_store("journal", path, examine_journal, "name another: --journal FILE")


def memory_file(path: Path) -> Iterator[CheckResult]:
    yield _check_store("memory", path, examine_catalog, "name another: chargehand run --memory FILE")


def _check_store(what: str, path: Path, examine: Callable[[Path], Examined], other: str) -> CheckResult:
    if path.exists() and not path.is_file():  # SQLite takes some devices for empty files
        return bad(what, f"{path} is {'a folder' if path.is_dir() else 'no ordinary file'}", other)
    result = writable(what, path, other)
    if result.state == "bad" or not path.exists():
        return result
    examined = examine(path)
    if not examined.fault:
        return result
    file = quote(str(path))
    # with all that lies beside it: SQLite would take an old log for that of the new file
    aside = f"move it away and begin anew: mkdir aside && mv {file}* aside/"
    todos = {
        "newer": f"pip install --upgrade chargehand; or {other}",
        "damaged": f"restore it from a backup; or {aside}",
        "foreign": f"{other}; or {aside}",
        "locked": f"close that program (who it is: fuser {file}); or {other}",
    }
    return bad(what, examined.said, todos.get(examined.fault, f"see who may do what: ls -l {file}*; or {other}"))


# --- keys


def keys(folder: Path, models: Sequence[str] = ()) -> Iterator[CheckResult]:
    """Which keys are set, by name; which of them cannot be one; which the team lacks; and what looks like one."""
    own = [place.key for place in OWN.values() if place.needs_key]
    names = dict.fromkeys((*own, *(key_variable(provider) for provider in OTHERS)))
    keys = [name for name in names if (lookup(name, folder) or "").strip()]
    if keys:
        yield good("keys", f"set: {', '.join(keys)}")
    else:
        todo = f"to use a provider set its variable, for example {own[0]}; the model `{BUILT_IN}` needs none"
        yield missing("keys", "no key of a provider is set", todo)
    for name in keys:
        if why := _key_problem(name, folder):
            message = f"what {origin(name, folder)} has for {name} {why}"
            yield bad(f"key {name}", message, f"set it anew: export {name}=...")
    for model in models:
        if name := _missing_key(model, folder):
            message = f"{model} needs it; it is neither in the environment nor in {folder / '.env'}"
            yield bad(f"key {name}", message, f"export {name}=...; without it: chargehand run --model {BUILT_IN} ...")
    for right, others in _LOOKALIKES.items():
        for name in others:
            if lookup(name, folder) and not lookup(right, folder):
                yield missing(f"key {right}", f"{name} is set, but nothing reads it", f'export {right}="${name}"')


def _missing_key(model: str, folder: Path) -> str:
    """The variable that a model needs and that is not set; empty where it needs none."""
    place = OWN.get(_provider(model))
    if place is None or not place.needs_key or lookup(place.key, folder) or lookup(place.base, folder):
        return ""
    return place.key


def _key_problem(name: str, folder: Path) -> str:
    value = (lookup(name, folder) or "").strip()
    if value[:1] in "'\"`" or value[-1:] in "'\"`":
        return "has quotes around it, which are taken for a part of it" if value else ""
    if value.startswith(f"{name}="):
        return "holds its own name too"
    if not value.isascii() or not value.isprintable() or " " in value:
        return "holds spaces, line ends or other characters no key has"
    return ""


def dotenv_file(folder: Path, *, bundled: bool) -> Iterator[CheckResult]:
    """A `.env` that is not read, or of which some lines are not."""
    here = Path.cwd()
    if not bundled and (folder / ".env").exists():
        yield from _check_dotenv(folder / ".env")
    if here.resolve() != folder.resolve() and (here / ".env").is_file():
        why = "the bundled team has none" if bundled else f"that of this team is {folder / '.env'}"
        todo = "set what it holds for this shell: set -a; . ./.env; set +a"
        yield missing(".env", f"{here / '.env'} is not read: {why}", todo)


def _check_dotenv(file: Path) -> Iterator[CheckResult]:
    problem = ""
    text = ""
    if not file.is_file():  # opening a pipe waits for a writer
        problem = "is no ordinary file and is not read"
    elif file.stat().st_size > DOTENV_BYTES:
        problem = f"is larger than {DOTENV_BYTES // 1024} KiB and is not read"
    else:
        try:
            text = file.read_text(encoding="utf-8-sig")
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
        except UnicodeError:
            problem = "cannot be read: it is not UTF-8"
    if problem:
        yield bad(".env", f"{file} {problem}", f"put a short text file in its place: ls -l {quote(str(file))}")
    variables = dotenv(file.parent)
    unread: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        name = re.match(r"\s*(?:export\s+)?([^\s=]*)\s*=", line)
        if line.strip() and not line.lstrip().startswith("#") and (name is None or name[1] not in variables):
            unread.append(str(number))
    if unread:
        message = f"{file}: not of the form NAME=VALUE, so not read: line {', '.join(unread[:5])}"
        yield missing(".env", message, "write one variable a line: NAME=VALUE")


# --- servers


def servers(folder: Path, models: Sequence[str]) -> Iterator[CheckResult]:
    """Each model that does not run in this process: whether a server listens, if that is on this machine."""
    for model in [model for model in models if not is_in_process(model)][:_MAX_SERVERS]:
        provider = _provider(model)
        address = _address(model, folder)
        if address is not None and _is_loopback(address[0]):
            yield _check_server(model, *address)
        elif (address is not None or provider) and _is_callable(model, folder):
            base = OWN[provider].base if provider in OWN else ""
            where = ""
            if address is not None and base and lookup(base, folder):  # the key goes there too
                where = f"; it would be called at {address[0]}, as {origin(base, folder)} says ({base})"
            todo = f"to try it, for a few tokens: chargehand run --model {quote(model)} --budget-usd 0.05 Say hello"
            yield good(f"model {model}", f"not called: that may cost money{where}", todo)


def _is_callable(model: str, folder: Path) -> bool:
    """Whether its key, if it needs one, is there and may be one."""
    provider = _provider(model)
    variable = OWN[provider].key if provider in OWN else key_variable(provider) if provider in OTHERS else ""
    return not _missing_key(model, folder) and not (variable and _key_problem(variable, folder))


def _check_server(model: str, host: str, port: int) -> CheckResult:
    provider = _provider(model)
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        start = "start it: ollama serve" if provider == "ollama" else "start that server"
        other = f"; at another address: export {OWN[provider].base}=http://HOST:PORT/v1" if provider in OWN else ""
        todo = f"{start}{other}; without it: chargehand run --model {BUILT_IN} ..."
        return bad(f"model {model}", f"no server listens at {host} port {port} ({why})", todo)
    return good(f"model {model}", f"a server listens at {host} port {port}")


def _provider(model: str) -> str:
    return "" if "://" in model else re.split(r"[:/]", model, maxsplit=1)[0].lower()


def _address(model: str, folder: Path) -> tuple[str, int] | None:
    """Host and port of a model that is spoken to by HTTP; None where its library knows, or the URL is none."""
    place = OWN.get(_provider(model))
    url = model.partition("+")[2] if place is None else (lookup(place.base, folder) or "").strip() or place.url
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname else None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


# --- models on this machine


def fetched() -> Iterator[CheckResult]:
    """Models that were fetched and are not whole any more."""
    from chargehand.models.local import (  # noqa: PLC0415 - as above
        CATALOG,
        installed,
        verify,
    )

    home = models_home()
    whole = installed(home)
    for name, entry in CATALOG.items():
        folder = home / name
        problem = ""
        if name in whole:
            if entry.size <= _MAX_VERIFIED and not verify(name, home):
                problem = "does not hold what it should"
        elif folder.is_dir() and any(folder.iterdir()):
            problem = "is there only in part"
        if problem:
            again = f"fetch it anew: chargehand models rm {name}, then: chargehand models pull {name}"
            yield bad(f"model {name}", f"{folder} {problem}", again)


def embeddings() -> Iterator[CheckResult]:
    from chargehand.models.local import installed  # noqa: PLC0415 - only here

    pull = "chargehand models pull minilm"
    absent = [name for name in ("numpy", "onnxruntime") if find_spec(name) is None]
    if absent:
        message = f"{absent[0]} is not installed; words are compared instead"
        yield missing("embeddings", message, f"{install_command('local')}, then: {pull}")
    elif "minilm" not in installed(models_home()):
        yield missing("embeddings", "not fetched; words are compared instead", pull)
    else:
        yield good("embeddings", "minilm is here")


# --- the machine


def proxies() -> Iterator[CheckResult]:
    proxies = [name for name in (*_PROXIES, *map(str.lower, _PROXIES)) if os.environ.get(name)]
    if proxies:
        message = f"{', '.join(proxies)} set, and not used: calls of models and `fetch` go out directly"
        todo = "where only a proxy leads out, name a gateway as base URL, for example OPENAI_BASE_URL"
        yield missing("proxy", message, todo)


def terminal(encoding: str) -> Iterator[CheckResult]:
    if not encoding.lower().startswith("utf"):
        message = f"it takes {encoding or 'no known'} characters; others are shown as signs"
        yield missing("terminal", message, "export LC_ALL=C.UTF-8, or: export PYTHONUTF8=1")


def port(number: int) -> Iterator[CheckResult]:
    """Whether the usual port of the server can be had."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", number))
            trial.listen(1)
        except OSError as error:
            message = f"{number}, the usual one of `serve`, cannot be had: {error.strerror}"
            yield missing(
                "port", message, f"chargehand serve --port {number + 1}; who has it: ss -ltnp sport = :{number}"
            )


def clock(now: float) -> Iterator[CheckResult]:
    """A clock that stands before these files were written is wrong; so is one far ahead."""
    if Path(__file__).stat().st_mtime - _DAY <= now <= _YEAR_2100:
        yield good("clock", "plausible")
    else:
        todo = "set the clock, deadlines depend on it: timedatectl set-ntp true"
        yield bad("clock", f"it says {now:.0f} seconds since 1970", todo)


def disk(journal: Path, free: int | None = None) -> Iterator[CheckResult]:
    folder = _folder_above(journal)
    free_bytes = shutil.disk_usage(folder).free if free is None else free
    message = f"{free_bytes / 1e9:,.1f} GB free at {folder}"
    if free_bytes < _LEAST_BYTES:
        yield bad("disk", message, f"free some space, a journal that cannot grow stops its runs: df -h {folder}")
    elif free_bytes < _FEW_BYTES:
        yield missing("disk", message, "free some space before fetching models")
    else:
        yield good("disk", message)


_CHECKS: tuple[Callable[[_Surroundings], Iterator[CheckResult]], ...] = (
    lambda _: python(),
    lambda _: iter([good("chargehand", __version__)]),
    lambda _: programs(os.environ.get("PATH", ""), sys.executable),
    lambda around: journal_file(around.journal),
    lambda around: memory_file(around.memory),
    lambda _: home_folder(models_home()),
    lambda _: sqlite(),
    lambda _: word_search(),
    lambda around: team_file(around.team),
    lambda around: servers(around.folder, around.models),
    lambda around: keys(around.folder, around.models),
    lambda around: dotenv_file(around.folder, bundled=around.bundled),
    lambda _: extras(),
    lambda _: sandbox(),
    lambda _: embeddings(),
    lambda _: fetched(),
    lambda _: port(_PORT),
    lambda _: proxies(),
    lambda around: terminal(around.encoding),
    lambda around: clock(around.now),
    lambda around: disk(around.journal),
)
