"""Which values of the surroundings are secrets: those of variables whose names say so.

What is done about them is not its business.
"""

import os
import re
from pathlib import Path

from chargehand.config.environment import dotenv

_NAMES = re.compile(
    r"(?:\A|_)(?:API_?KEY|KEY|TOKEN|SECRET|SECRETS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|DSN)(?:\Z|_[A-Z0-9]{1,20}\Z)",
    re.IGNORECASE,
)
_PATHS = re.compile(r"_(?:FILE|PATH|DIR|URL|SOCK|SOCKET|HOST|ID)\Z", re.IGNORECASE)
_IN_URL = re.compile(r"\A[a-z][a-z0-9+.-]*://[^/@:\s]*:([^/@\s]+)@", re.IGNORECASE)


def secret_values(folder: Path | None = None) -> tuple[str, ...]:
    """The values of variables called like `..._API_KEY`, `..._TOKEN`, `..._SECRET`, and passwords inside URLs.

    Also those of `.env` in this folder (left out: where we are).
    """
    known = {**dotenv(folder or Path.cwd()), **os.environ}
    found = [value for name, value in known.items() if _NAMES.search(name) and not _PATHS.search(name)]
    found += [inside[1] for value in known.values() if (inside := _IN_URL.match(value))]
    return tuple(dict.fromkeys(value for value in found if value))


def for_children() -> dict[str, str]:
    """The environment for a process that is started: whoever opens the server's doors is not its business."""
    return {name: value for name, value in os.environ.items() if name != "CHARGEHAND_TOKEN"}
