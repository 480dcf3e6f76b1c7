"""What measuring a server takes: real processes, a raw client that asks many things at once, and figures of both."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import psutil
from msgspec import Struct, json

ROOT = Path(__file__).parents[1]
_BARE = """
import asyncio, socket, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def echo(request):
    return Response(await request.body(), media_type="application/json")
app = Starlette(routes=[Route("/echo", echo, methods=["GET", "POST"])])
listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listening.bind(("127.0.0.1", 0))
listening.listen(2048)
print(listening.getsockname()[1], flush=True)
config = uvicorn.Config(app, http="httptools", loop="asyncio", access_log=False, log_level="warning", ws="none")
asyncio.run(uvicorn.Server(config).serve([listening]))
"""


class Served:
    """A process that answers on a port of this machine."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, token: str, started: float) -> None:
        self.process = process
        self.port = port
        self.token = token
        self.started = started
        self.url = f"http://127.0.0.1:{port}"
        self.look = psutil.Process(process.pid)

    def cpu(self) -> float:
        times = self.look.cpu_times()
        return times.user + times.system

    def rss(self) -> float:
        return self.look.memory_info().rss / 2**20


@contextmanager
def _running(words: Sequence[str], token: str = "") -> Generator[Served]:
    began = time.perf_counter()
    environment = {**os.environ, "CHARGEHAND_TOKEN": token} if token else dict(os.environ)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if not said:
            raise RuntimeError(f"{words[:4]} did not start")
        port = int(said.rpartition(":")[2])
        _until_healthy(port, "/healthz" if token else "")
        yield Served(process, port, token, time.perf_counter() - began)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _until_healthy(port: int, path: str) -> None:
    if path:
        status, _ = asyncio.run(_ask_once(port, path))
        assert status == 200, f"not healthy: {status}"


async def _ask_once(port: int, path: str) -> tuple[int, bytes]:
    async with Line(port) as line:
        return await line.ask("GET", path)


@contextmanager
def serving(data: Path, *options: str) -> Generator[Served]:
    """`chargehand serve`, in a folder of its own."""
    words = [sys.executable, "-m", "chargehand", "serve", "--data", str(data), "--port", "0", "--model-urls"]
    words += ["--model-host", "127.0.0.1", *options]
    with _running(words, f"ch_bench_{secrets.token_hex(16)}") as found:
        yield found


@contextmanager
def bare() -> Generator[Served]:
    """An application of the same framework that does nothing."""
    with _running([sys.executable, "-c", _BARE]) as found:
        yield found


@contextmanager
def modelling() -> Generator[str]:
    """A model on this machine: what its handles begin with."""
    with _running([sys.executable, "-m", "bench.server_model"]) as found:
        yield f"openai+http://127.0.0.1:{found.port}/v1#"


# --- a raw client


class Line:
    """One connection that is kept. `ask` gives the status and the whole body."""

    def __init__(self, port: int, token: str = "") -> None:
        self._port = port
        self._head = f"host: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "Line":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader = self._reader
        writer = self._writer
        assert reader is not None
        sent = b"" if body is None else json.encode(body)
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}content-length: {len(sent)}\r\n\r\n".encode() + sent)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        found = await self._body(reader, head)
        if b"connection: close" in head:
            self._close()
        return int(head[9:12]), found

    async def _body(self, reader: asyncio.StreamReader, head: bytes) -> bytes:
        at = head.find(b"content-length:")
        if at >= 0:
            return await reader.readexactly(int(head[at + 15 : head.index(b"\r", at)]))
        parts: list[bytes] = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readexactly(2)
        return b"".join(parts)


class Figures(Struct):
    """What many calls took: milliseconds, calls a second, calls that were not answered well, CPU of the server.

    `client` is the CPU of whoever asked: what a client's own library computes is not the server's.
    """

    p50: float
    p95: float
    rate: float
    errors: int
    cpu: float
    client: float = 0.0

    def cells(self) -> str:
        return f"{self.p50:8.2f} {self.p95:8.2f} {self.rate:8.0f} {self.errors:4d} {self.cpu:8.2f} {self.client:7.2f}"


def figures(laps: Sequence[float], wall: float, errors: int, cpu: float, client: float = 0.0) -> Figures:
    cuts = quantiles(laps, n=20) if len(laps) > 1 else [laps[0]] * 19
    each = 1000 / max(1, len(laps))
    return Figures(
        p50=cuts[9] * 1000,
        p95=cuts[18] * 1000,
        rate=len(laps) / wall,
        errors=errors,
        cpu=cpu * each,
        client=client * each,
    )


def one_by_one(served: Served, calls: int, call: Callable[[int], object]) -> Figures:
    """So many calls of a real client, one after the other; the first few only warm up."""
    for number in range(3):
        call(-1 - number)
    laps: list[float] = []
    cpu = served.cpu()
    own = time.process_time()
    began = time.perf_counter()
    for number in range(calls):
        start = time.perf_counter()
        call(number)
        laps.append(time.perf_counter() - start)
    return figures(laps, time.perf_counter() - began, 0, served.cpu() - cpu, time.process_time() - own)


async def at_once(served: Served, calls: int, width: int, what: Callable[[int], tuple[str, str, object]]) -> Figures:
    """So many calls, so many of them at a time."""
    laps: list[float] = []
    numbers = iter(range(calls))
    bad = 0

    async def some() -> None:
        nonlocal bad
        async with Line(served.port, served.token) as line:
            for number in numbers:
                start = time.perf_counter()
                status, body = await line.ask(*what(number))
                laps.append(time.perf_counter() - start)
                if status >= 300:
                    bad += 1
                    if bad <= 2:
                        print(f"  {status}: {body[:200]!r}", file=sys.stderr)

    cpu = served.cpu()
    began = time.perf_counter()
    async with asyncio.TaskGroup() as jobs:
        for _ in range(width):
            jobs.create_task(some())
    return figures(laps, time.perf_counter() - began, bad, served.cpu() - cpu)
