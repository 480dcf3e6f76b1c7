"""Servers of one database, each a process of its own, and a proxy that hands every connection to the next of them."""

import asyncio
import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import httpx

from chargehand.journal.store import list_runs
from tests.cli.forked import Forked, has_fork_server

TOKEN = f"ch_replica_{secrets.token_hex(16)}"
CLOSING = {"Connection": "close"}
"""A client that sends it makes a connection for each call, so each goes to the next server."""
_PATIENCE = 120.0
_EXECUTE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: SIGKILL when the tests end, however they end
os.execv(sys.argv[1], sys.argv[1:])
"""


def _start_process(words: Sequence[str], log: BinaryIO) -> "subprocess.Popen[bytes] | Forked":
    """Start `chargehand` with these words, by a fork where there is a fork server. It ends with the tests."""
    environment = {**os.environ, "CHARGEHAND_TOKEN": TOKEN}
    if has_fork_server():
        with Path(os.devnull).open("rb") as nothing:
            streams = (nothing.fileno(), log.fileno(), log.fileno())
            return Forked(words, folder=Path.cwd(), environment=environment, streams=streams)
    command = [sys.executable, "-m", "chargehand", *words]
    return subprocess.Popen(
        [sys.executable, "-c", _EXECUTE, *command], stdout=log, stderr=log, start_new_session=True, env=environment
    )


class Replica:
    """A server or a worker. It is told to listen on a port that was free a moment ago."""

    def __init__(self, folder: Path, name: str, words: Sequence[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = _start_process([*words, "--port", str(self.port)], log)
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)

    def wait_ready(self) -> None:
        until = time.monotonic() + _PATIENCE
        while True:
            assert self.process.poll() is None, self.log.read_text()
            with suppress(httpx.HTTPError):
                if self.client.get("/readyz").is_success:
                    return
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def close(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


class Replicas:
    """Servers in one folder on one database. `url` is that of the proxy before them."""

    def __init__(self, servers: Sequence[Replica], proxy: "RoundRobin", store: str) -> None:
        self.servers = servers
        self.proxy = proxy
        self.store = store
        self.url = f"http://127.0.0.1:{proxy.port}"

    def runs(self) -> list[str]:
        return [row.run for row in list_runs(self.store)]


@contextmanager
def replicas(folder: Path, store: str, *options: str, count: int = 2, engine: str = "local") -> Generator[Replicas]:
    """`options` are those of the teams. With another engine than the local one there is a worker, too."""
    shared = ["--store", store, "--data", str(folder / "data"), "--engine", engine, *options]
    proxy = RoundRobin()
    hosts = ["--model-urls", "--model-host", "127.0.0.1", "--allow-host", f"127.0.0.1:{proxy.port}"]
    servers = [Replica(folder, f"server{number}", ["serve", *shared, *hosts]) for number in range(count)]
    workers = [] if engine == "local" else [Replica(folder, "worker", ["worker", *shared])]
    proxy.ports += [server.port for server in servers]
    try:
        for process in (*servers, *workers):
            process.wait_ready()
        yield Replicas(servers, proxy, store)
    finally:
        proxy.close()
        for process in (*servers, *workers):
            process.close()


class RoundRobin:
    """Passes each connection on to the next server that accepts one."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self._turns = itertools.count()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._carry, sock=self._listening):
            await self._stopped.wait()
            connections = asyncio.all_tasks() - {asyncio.current_task()}
            for connection in connections:
                connection.cancel()
            if connections:
                await asyncio.wait(connections)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self.ports:
            port = self.ports[next(self._turns) % len(self.ports)]
            try:
                upstream = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            async with asyncio.TaskGroup() as jobs:
                jobs.create_task(_pump(reader, upstream[1]))
                jobs.create_task(_pump(upstream[0], writer))
            break
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()
