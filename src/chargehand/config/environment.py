"""What the surroundings say: variables, `.env` beside a team file, and where chargehand keeps its own files.

Only this package and the command line read the environment. A variable that is really set always wins over `.env`.
"""

import getpass
import os
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

Lookup: TypeAlias = Callable[[str], "str | None"]
"""Finds the value of a variable."""

HOME = "CHARGEHAND_HOME"

DOTENV_BYTES = 64 * 1024
"""A longer `.env` is not read."""

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*\Z")
_COMMENT = re.compile(r"\s+#.*\Z")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}

_SECRET_NAMES = re.compile(
    r"(?:\A|_)(?:API_?KEY|KEY|TOKEN|SECRET|SECRETS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|DSN)(?:\Z|_[A-Z0-9]{1,20}\Z)",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(r"_(?:FILE|PATH|DIR|URL|SOCK|SOCKET|HOST|ID)\Z", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"\A[a-z][a-z0-9+.-]*://[^/@:\s]*:([^/@\s]+)@", re.IGNORECASE)


def lookup(name: str, folder: Path | None = None) -> str | None:
    """A variable of the real environment, else of the `.env` in this folder (left out: where we are).

    CHARGEHAND_HOME always has a value: where models are kept is asked for by this name.
    """
    if name == HOME:
        return str(home())
    value = os.environ.get(name)
    return value if value is not None else dotenv(folder or Path.cwd()).get(name)


def lookup_beside(folder: Path) -> Lookup:
    """The lookup for a team that lives in this folder."""
    return lambda name: lookup(name, folder)


def origin(name: str, folder: Path) -> str:
    """Where a variable comes from, in words; empty when it is not set."""
    if name in os.environ:
        return "the environment"
    return ".env" if name in dotenv(folder) else ""


def dotenv(folder: Path) -> dict[str, str]:
    """The variables of a folder's `.env`; a file that cannot be read holds none."""
    file = folder / ".env"
    try:
        stamp = file.stat()
    except OSError:
        return {}
    return _dotenv(file, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=16)  # asked for every variable of a file
def _dotenv(file: Path, _changed: int, size: int) -> dict[str, str]:
    if size > DOTENV_BYTES or not file.is_file():
        return {}
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError):
        return {}
    return dict(pair for line in text.splitlines() if (pair := _assignment(line)) is not None)


def _assignment(line: str) -> tuple[str, str] | None:
    match = _LINE.match(line)
    if match is None or line.lstrip().startswith("#"):
        return None
    name = match[1]
    value = match[2]
    if len(value) > 1 and value[0] in "'\"" and (end := value.find(value[0], 1)) > 0:
        inside = value[1:end]
        return name, inside if value[0] == "'" else re.sub(r"\\([ntr])", lambda escape: _ESCAPES[escape[1]], inside)
    return name, _COMMENT.sub("", value)


def home() -> Path:
    """Where models and the like are kept: CHARGEHAND_HOME, else the usual place for data on this platform."""
    path = os.environ.get(HOME)
    if path:
        return _expanded(path)
    data = os.environ.get("XDG_DATA_HOME", "")
    if sys.platform != "darwin" and Path(data).is_absolute():
        return Path(data) / "chargehand"
    try:
        mine = Path.home()
    except RuntimeError:  # an account without a home, as in some containers
        return Path(".chargehand", "home").absolute()
    usual = ("Library", "Application Support") if sys.platform == "darwin" else (".local", "share")
    return mine.joinpath(*usual, "chargehand")


def login_name() -> str:
    """Who is at the keyboard, as far as this machine knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # an account without a name
        return ""


def models_home() -> Path:
    """Where pulled models lie: CHARGEHAND_MODELS, else a folder of our home."""
    path = os.environ.get("CHARGEHAND_MODELS")
    return _expanded(path) if path else home() / "models"


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 - that of pathlib fails where the account has no home


def secret_values(folder: Path | None = None) -> tuple[str, ...]:
    """The values of variables called like `..._API_KEY`, `..._TOKEN`, `..._SECRET`, and passwords inside URLs.

    Also those of `.env` in this folder (left out: where we are).
    """
    variables = {**dotenv(folder or Path.cwd()), **os.environ}
    values = [value for name, value in variables.items() if _SECRET_NAMES.search(name) and not _NOT_SECRET.search(name)]
    values += [inside[1] for value in variables.values() if (inside := _PASSWORD_IN_URL.match(value))]
    return tuple(dict.fromkeys(value for value in values if value))
