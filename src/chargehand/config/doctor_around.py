"""What the doctor says of the machine around: programs, variables, the terminal, ports, clock and disk.

Nothing is changed; a port is tried and let go again.
"""

import os
import shutil
import socket
from pathlib import Path

from chargehand.config.doctor_line import Line

_ROOM = 100_000_000
_LITTLE = 1_000_000_000
_DAY = 86_400.0
_FAR = 4_102_444_800.0  # the year 2100
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def programs(path: str, running: str) -> list[Line]:
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
    return [Line("programs", "missing", said, todo)]


def proxies() -> list[Line]:
    named = [name for name in (*_PROXIES, *(one.lower() for one in _PROXIES)) if os.environ.get(name)]
    if not named:
        return []
    said = f"{', '.join(named)} set, and not used: calls of models and `fetch` go out directly"
    todo = "where only a proxy leads out, name a gateway as base URL, for example OPENAI_BASE_URL"
    return [Line("proxy", "missing", said, todo)]


def terminal(encoding: str) -> list[Line]:
    if encoding.lower().replace("-", "").startswith("utf"):
        return []
    said = f"it takes {encoding or 'no known'} characters; others are shown as signs"
    return [Line("terminal", "missing", said, "export LC_ALL=C.UTF-8, or: export PYTHONUTF8=1")]


def port(number: int) -> list[Line]:
    """Whether the usual port of the server can be had."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", number))
            trial.listen(1)
        except OSError as error:
            said = f"{number}, the usual one of `serve`, cannot be had: {error.strerror}"
            todo = f"chargehand serve --port {number + 1}; who has it: ss -ltnp sport = :{number}"
            return [Line("port", "missing", said, todo)]
    return []


def clock(now: float) -> Line:
    """A clock that stands before these files were written is wrong; so is one far ahead."""
    written = Path(__file__).stat().st_mtime
    if not written - _DAY <= now <= _FAR:
        said = f"it says {now:.0f} seconds since 1970"
        return Line("clock", "bad", said, "set the clock, deadlines depend on it: timedatectl set-ntp true")
    return Line("clock", "good", "plausible")


def disk(journal: Path, free: int | None = None) -> Line:
    above = journal.absolute().parents
    folder = next((path for path in above if path.exists()), above[-1])
    left = shutil.disk_usage(folder).free if free is None else free
    said = f"{left / 1e9:,.1f} GB free at {folder}"
    if left < _ROOM:
        return Line("disk", "bad", said, f"free some space, a journal that cannot grow stops its runs: df -h {folder}")
    if left < _LITTLE:
        return Line("disk", "missing", said, "free some space before fetching models")
    return Line("disk", "good", said)
