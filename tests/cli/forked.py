"""A command as a fork of `tests.cli.forkserver`: a real process, without 0.3 s of imports for each.

As a program, `python forked.py SOCKET WORD...`, it is that command: same streams, folder, environment and exit code,
but it is not ended with this process. Only the standard library is imported, which takes no time.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp

_ROOT = Path(__file__).parents[2]


class Forked:
    """A process under way, as `subprocess.Popen` would show it: `chargehand` with these words, or Python code.

    It runs the code `first` before, for times that no setting has.
    """

    def __init__(
        self,
        words: Sequence[str | Path],
        *,
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        code: str | None = None,
        first: str = "",
        server: str = "",
    ) -> None:
        command = {
            "words": [*map(str, words)],
            "folder": str(folder),
            "environment": {**environment},
            "code": code,
            "first": first,
        }
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with TemporaryFile() as file:
            file.write(json.dumps(command).encode())
            file.seek(0)
            self._connection.connect(server or _find_server())
            socket.send_fds(self._connection, [b"!"], [file.fileno(), *streams])
        self.pid = int(self._connection.recv(100))

    def __del__(self) -> None:
        """Close what a test that failed left open, or an innocent one after it would be warned."""
        self._connection.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = self._connection.recv(100)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("chargehand", timeout or 0.0) from None
            self._connection.close()
            self.returncode = os.waitstatus_to_exitcode(int(status))
        return self.returncode


@contextmanager
def fork_server() -> Generator[str]:
    """The path of a server that ends with this process, or before."""
    folder = mkdtemp(prefix="fork-")
    path = str(Path(folder) / "socket")
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.cli.forkserver", path],
        cwd=_ROOT,
        env={**os.environ, "PYTHONUTF8": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(1), "the fork server did not start"
    try:
        yield path
    finally:
        process.communicate(timeout=10)


def use_fork_server(find: Callable[[], str]) -> None:
    """Say how the server of this process is found, or started."""
    global _find_server  # noqa: PLW0603 - one for each process, as there is one server
    _find_server = find


def has_fork_server() -> bool:
    """Whether this is a process of tests: a program of this folder that is run by itself has none."""
    return _find_server is not _no_server


def _no_server() -> str:
    raise RuntimeError("tests/conftest.py names the fork server")


_find_server: Callable[[], str] = _no_server


def write_command(path: Path) -> None:
    """An executable file that is `chargehand`."""
    words = [sys.executable, "-E", "-S", __file__, _find_server()]
    path.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    path.chmod(0o755)


if __name__ == "__main__":
    status = Forked(
        sys.argv[2:], folder=Path.cwd(), environment=os.environ, streams=(0, 1, 2), server=sys.argv[1]
    ).wait()
    if status < 0:  # a signal ended it
        os.kill(os.getpid(), -status)
    sys.exit(status)
