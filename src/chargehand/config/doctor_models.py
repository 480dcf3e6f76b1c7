"""What the doctor says of models: their keys, the servers on this machine, and files that were fetched.

Of a key only its name is said. Only this machine is called at, for a second at most: whoever is paid is left alone.
"""

import os
import re
import socket
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from shlex import quote
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from chargehand.config.environment import DOTENV_BYTES, dotenv, lookup, models_home, origin
from chargehand.models.extras import install_command
from chargehand.models.known import BUILT_IN, is_in_process

_CONNECT = 1.0
_SERVERS = 8  # more are not tried: the doctor must not keep anybody waiting
_WHOLE = 128_000_000  # files up to here are read to their end, larger ones only measured
_QUOTES = "'\"`"
_OFTEN = ("openai", "anthropic", "openrouter", "google")
_ALSO = {"claude": "anthropic", "gemini": "google", "open_ai": "openai", "open_router": "openrouter"}
_START = {"ollama": "ollama serve"}
_LOCAL = f"{install_command('local')}, then: chargehand models pull minilm"

State: TypeAlias = Literal["good", "missing", "bad"]


class CheckResult(Struct, frozen=True):
    """One thing checked. `missing` is something that some teams need and others do not, or that is good to know."""

    what: str
    state: State
    said: str
    todo: str = ""


def keys(folder: Path, models: Sequence[str] = ()) -> list[CheckResult]:
    """Which keys are set, by name; which of them cannot be one; and what looks like one and is not read."""
    names = key_names()
    there = [name for name in names if (lookup(name, folder) or "").strip()]
    odd = [line for name in there if (line := _odd(name, folder)) is not None]
    near = _near(folder, {_provider(model) for model in models} | set(_OFTEN))
    needed = [line for model in models if (line := _needed(model, folder)) is not None]
    if there:
        return [CheckResult("keys", "good", f"set: {', '.join(there)}"), *odd, *needed, *near]
    todo = f"to use a provider set its variable, for example {names[0]}; the model `{BUILT_IN}` needs none"
    return [CheckResult(what="keys", state="missing", said="no key of a provider is set", todo=todo), *needed, *near]


def _needed(model: str, folder: Path) -> CheckResult | None:
    from chargehand.models.known import OWN  # noqa: PLC0415 - only here

    place = OWN.get(_provider(model))
    if place is None or not place.needs_key or lookup(place.key, folder) or lookup(place.base, folder):
        return None
    said = f"{model} needs it; it is neither in the environment nor in {folder / '.env'}"
    return CheckResult(
        what=f"key {place.key}",
        state="bad",
        said=said,
        todo=f"export {place.key}=...; without it: chargehand run --model {BUILT_IN} ...",
    )


def _odd(name: str, folder: Path) -> CheckResult | None:
    value = (lookup(name, folder) or "").strip()
    if value[0] in _QUOTES or value[-1] in _QUOTES:
        why = "has quotes around it, which are taken for a part of it"
    elif value.startswith(f"{name}="):
        why = "holds its own name too"
    elif not value.isascii() or not value.isprintable() or " " in value:
        why = "holds spaces, line ends or other characters no key has"
    else:
        return None
    where = origin(name, folder)
    return CheckResult(
        what=f"key {name}",
        state="bad",
        said=f"what {where} has for {name} {why}",
        todo=f"set it anew: export {name}=...",
    )


def _near(folder: Path, providers: Iterable[str]) -> list[CheckResult]:
    """Variables somebody may have meant as a key, where the right one is not set."""
    there = {re.sub(r"[^A-Z0-9]", "", name.upper()): name for name in sorted({*os.environ, *dotenv(folder)})}
    lines: list[CheckResult] = []
    for provider in sorted(providers):
        right = _variable(provider)
        if not right or lookup(right, folder):
            continue
        called = [provider, *(other for other, meant in _ALSO.items() if meant == provider)]
        tried = [
            f"{one.upper()}_{end}" for one in called for end in ("API_KEY", "KEY", "TOKEN", "API_TOKEN", "SECRET_KEY")
        ]
        found = [there[flat] for one in tried if (flat := re.sub(r"[^A-Z0-9]", "", one)) in there]
        for name in dict.fromkeys(one for one in found if one != right):
            said = f"{name} is set, but nothing reads it"
            lines.append(
                CheckResult(
                    what=f"key {right}",
                    state="missing",
                    said=said,
                    todo=f'if it is a key of {provider}: export {right}="${name}"',
                )
            )
    return lines


def dotenv_file(folder: Path, *, bundled: bool) -> list[CheckResult]:
    """A `.env` that is not read, or of which some lines are not."""
    here = Path.cwd()
    lines = [] if bundled else _unread(folder / ".env")
    if here.resolve() != folder.resolve() and (here / ".env").is_file():
        said = f"{here / '.env'} is not read: " + (
            "the bundled team has none" if bundled else f"that of this team is {folder / '.env'}"
        )
        lines.append(
            CheckResult(
                what=".env",
                state="missing",
                said=said,
                todo="set what it holds for this shell: set -a; . ./.env; set +a",
            )
        )
    return lines


def _unread(file: Path) -> list[CheckResult]:
    try:
        if not file.exists():
            return []
        if not file.is_file():  # who opens a pipe waits for somebody to write
            return [
                CheckResult(
                    what=".env",
                    state="bad",
                    said=f"{file} is no ordinary file and is not read",
                    todo="put a text file in its place",
                )
            ]
        if file.stat().st_size > DOTENV_BYTES:
            said = f"{file} is larger than {DOTENV_BYTES // 1024} KiB and is not read"
            return [CheckResult(what=".env", state="bad", said=said, todo="make it shorter")]
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return [
            CheckResult(
                what=".env",
                state="bad",
                said=f"{file} cannot be read: {why}",
                todo=f"look at it: ls -l {quote(str(file))}",
            )
        ]
    known = dotenv(file.parent)
    odd = list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        name = re.match(r"\s*(?:export\s+)?([^\s=]*)\s*=", line)
        if line.strip() and not line.lstrip().startswith("#") and (name is None or name[1] not in known):
            odd.append(str(number))
    if not odd:
        return []
    said = f"{file}: not of the form NAME=VALUE, so not read: line {', '.join(odd[:5])}"
    return [CheckResult(what=".env", state="missing", said=said, todo="write one variable a line: NAME=VALUE")]


def servers(folder: Path, models: Sequence[str]) -> list[CheckResult]:
    """Each model that does not run in this process: whether somebody listens, if that is on this machine."""
    lines: list[CheckResult] = []
    for model in [one for one in models if not is_in_process(one)][:_SERVERS]:
        address = _address(model, folder)
        if address is not None and _loopback(address[0]):
            lines.append(_listening(model, *address))
        elif (address is not None or _provider(model)) and _callable(model, folder):
            todo = f"to try it, for a few tokens: chargehand run --model {quote(model)} --budget-usd 0.05 Say hello"
            lines.append(
                CheckResult(
                    what=f"model {model}",
                    state="good",
                    said=f"not called: that may cost money{_elsewhere(model, folder)}",
                    todo=todo,
                )
            )
    return lines


def _callable(model: str, folder: Path) -> bool:
    """Whether its key, if it needs one, is there and may be one."""
    variable = _variable(_provider(model))
    there = bool(variable and (lookup(variable, folder) or "").strip())
    return _needed(model, folder) is None and not (there and _odd(variable, folder))


def _elsewhere(model: str, folder: Path) -> str:
    """Whose word it is that a provider is called somewhere else: the key goes there too."""
    base = _base(_provider(model))
    address = _address(model, folder)
    if not base or address is None or not lookup(base, folder):
        return ""
    return f"; it would be called at {address[0]}, as {origin(base, folder)} says ({base})"


def _listening(model: str, host: str, port: int) -> CheckResult:
    provider = _provider(model)
    try:
        socket.create_connection((host, port), timeout=_CONNECT).close()
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        begin = f"start it: {_START[provider]}" if provider in _START else "start that server"
        other = f"; at another address: export {_base(provider)}=http://HOST:PORT/v1" if _base(provider) else ""
        todo = f"{begin}{other}; without it: chargehand run --model {BUILT_IN} ..."
        return CheckResult(
            what=f"model {model}", state="bad", said=f"nobody listens at {host} port {port} ({why})", todo=todo
        )
    return CheckResult(f"model {model}", "good", f"somebody listens at {host} port {port}")


def fetched() -> list[CheckResult]:
    """Models that were fetched and are not whole any more."""
    from chargehand.models.local.catalog import CATALOG  # noqa: PLC0415 - only here
    from chargehand.models.local.pull import installed, verify  # noqa: PLC0415 - as above

    folder = models_home()
    lines = list[CheckResult]()
    whole = installed(folder)
    for name, entry in CATALOG.items():
        again = f"fetch it anew: chargehand models rm {name}, then: chargehand models pull {name}"
        if name not in whole:
            if (folder / name).is_dir() and any((folder / name).iterdir()):
                lines.append(
                    CheckResult(
                        what=f"model {name}", state="bad", said=f"{folder / name} is there only in part", todo=again
                    )
                )
        elif entry.size <= _WHOLE and not verify(name, folder):
            lines.append(
                CheckResult(
                    what=f"model {name}", state="bad", said=f"{folder / name} does not hold what it should", todo=again
                )
            )
    return lines


def embeddings() -> CheckResult:
    from importlib.util import find_spec  # noqa: PLC0415 - only here

    from chargehand.models.local.pull import installed  # noqa: PLC0415 - only here

    absent = [name for name in ("numpy", "onnxruntime") if find_spec(name) is None]
    if absent:
        return CheckResult(
            what="embeddings",
            state="missing",
            said=f"{absent[0]} is not installed; words are compared instead",
            todo=_LOCAL,
        )
    if "minilm" not in installed(models_home()):
        return CheckResult(
            what="embeddings",
            state="missing",
            said="not fetched; words are compared instead",
            todo="chargehand models pull minilm",
        )
    return CheckResult("embeddings", "good", "minilm is here")


def key_names() -> list[str]:
    from chargehand.models.known import OTHERS, OWN, key_variable  # noqa: PLC0415 - only here

    own = [place.key for place in OWN.values() if place.needs_key]
    return list(dict.fromkeys([*own, *(key_variable(provider) for provider in OTHERS)]))


def _provider(model: str) -> str:
    return "" if "://" in model else re.split(r"[:/]", model, maxsplit=1)[0].lower()


def _variable(provider: str) -> str:
    from chargehand.models.known import OTHERS, OWN, key_variable  # noqa: PLC0415 - only here

    if provider in OWN:
        return OWN[provider].key
    return key_variable(provider) if provider in OTHERS else ""


def _base(provider: str) -> str:
    from chargehand.models.known import OWN  # noqa: PLC0415 - only here

    return OWN[provider].base if provider in OWN else ""


def _address(model: str, folder: Path) -> tuple[str, int] | None:
    """Host and port of a model that is spoken to by HTTP; None where its library knows, or the URL is none."""
    from chargehand.models.known import OWN  # noqa: PLC0415 - only here

    place = OWN.get(_provider(model))
    url = model.partition("+")[2] if place is None else (lookup(place.base, folder) or "").strip() or place.url
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname else None


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
