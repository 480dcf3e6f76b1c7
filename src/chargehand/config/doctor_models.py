"""What the doctor says of models: their keys, the servers on this machine, and files that were fetched.

Of a key only its name is said. Only this machine is called at, for a second at most: whoever is paid is left alone.
"""

import re
import socket
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from shlex import quote
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from chargehand.config.environment import DOTENV_BYTES, dotenv, lookup, models_home, origin
from chargehand.models.extras import install_command
from chargehand.models.providers import BUILT_IN, OTHERS, OWN, is_in_process, key_variable

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


# --- keys


def keys(folder: Path, models: Sequence[str] = ()) -> Iterator[CheckResult]:
    """Which keys are set, by name; which of them cannot be one; and what looks like one and is not read."""
    own = [place.key for place in OWN.values() if place.needs_key]
    names = dict.fromkeys((*own, *(key_variable(provider) for provider in OTHERS)))
    known = [name for name in names if (lookup(name, folder) or "").strip()]
    if known:
        yield good("keys", f"set: {', '.join(known)}")
    else:
        todo = f"to use a provider set its variable, for example {own[0]}; the model `{BUILT_IN}` needs none"
        yield missing("keys", "no key of a provider is set", todo)
    for name in known:
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
    """The variable that a model needs and nobody set; empty where it needs none."""
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
    if not file.is_file():  # who opens a pipe waits for somebody to write
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
    known = dotenv(file.parent)
    unread: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        name = re.match(r"\s*(?:export\s+)?([^\s=]*)\s*=", line)
        if line.strip() and not line.lstrip().startswith("#") and (name is None or name[1] not in known):
            unread.append(str(number))
    if unread:
        message = f"{file}: not of the form NAME=VALUE, so not read: line {', '.join(unread[:5])}"
        yield missing(".env", message, "write one variable a line: NAME=VALUE")


# --- servers


def servers(folder: Path, models: Sequence[str]) -> Iterator[CheckResult]:
    """Each model that does not run in this process: whether somebody listens, if that is on this machine."""
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
        return bad(f"model {model}", f"nobody listens at {host} port {port} ({why})", todo)
    return good(f"model {model}", f"somebody listens at {host} port {port}")


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
    from chargehand.models.local.pull import (  # noqa: PLC0415 - as above
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
    from chargehand.models.local.pull import installed  # noqa: PLC0415 - only here

    pull = "chargehand models pull minilm"
    absent = [name for name in ("numpy", "onnxruntime") if find_spec(name) is None]
    if absent:
        message = f"{absent[0]} is not installed; words are compared instead"
        yield missing("embeddings", message, f"{install_command('local')}, then: {pull}")
    elif "minilm" not in installed(models_home()):
        yield missing("embeddings", "not fetched; words are compared instead", pull)
    else:
        yield good("embeddings", "minilm is here")
