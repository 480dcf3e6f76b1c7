"""Servers that all pytest processes of a run share: one PostgreSQL, one Temporal, one fork server of commands.

The process that controls the run starts each when the first test asks for it, and ends them. It is their parent, so
they also end when it is killed. The other processes of the run ask it over a socket.
"""

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

_MAX_BYTES = 8192
_FAILED = "failed: "


class SharedServers:
    """In the controlling process. `kinds` are the servers by name; each yields the text by which it is found."""

    def __init__(self, kinds: Mapping[str, Callable[[], AbstractContextManager[str]]]) -> None:
        self._kinds = kinds
        self._started: dict[str, str] = {}
        self._running = ExitStack()
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._folder = ""

    def find(self, kind: str) -> str:
        """Start a server if it is not running; how it is found."""
        if kind not in self._started:
            self._started[kind] = self._running.enter_context(self._kinds[kind]())
        return self._started[kind]

    def listen(self) -> str:
        """The socket at which other processes ask. From the first call on, `find` is for the listening thread alone."""
        if self._listener is None:
            self._folder = tempfile.mkdtemp(prefix="chargehand-tests-")
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._listener.bind(str(Path(self._folder) / "socket"))
            self._listener.listen(64)
            # this one thread starts all of them and lives until the end: a server ends with the thread that started it
            self._thread = threading.Thread(target=self._serve, args=(self._listener,), daemon=True)
            self._thread.start()
        return str(Path(self._folder) / "socket")

    def close(self) -> None:
        """End the servers."""
        if self._listener is not None and self._thread is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._listener.close()
            self._listener = None
            shutil.rmtree(self._folder, ignore_errors=True)
        self._running.close()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed
                return
            with connection, suppress(OSError):
                connection.sendall(self._answer(connection.recv(_MAX_BYTES).decode()).encode())

    def _answer(self, kind: str) -> str:
        try:
            return self.find(kind)
        except Exception as error:  # noqa: BLE001 - the test that asked raises it
            return f"{_FAILED}{error}"


def find_shared(address: str, kind: str) -> str:
    """How a server is found that the process at `address` controls, which starts it if it is not running."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(address)
        connection.sendall(kind.encode())
        answer = connection.recv(_MAX_BYTES).decode()
    if answer.startswith(_FAILED) or not answer:
        raise RuntimeError(f"the {kind} of all tests: {answer.removeprefix(_FAILED) or 'its process has ended'}")
    return answer
