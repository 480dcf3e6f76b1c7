"""A server on 127.0.0.1 that writes exactly the bytes a test wants, over a real socket."""

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

Move = bytes | float | None  # bytes are written, seconds are waited, None cuts the connection


@dataclass
class Asked:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        return cast("dict[str, object]", json.loads(self.body))


Play = Callable[[Asked], Iterable[Move]]


@dataclass
class Loopback:
    port: int = 0
    asked: list[Asked] = field(default_factory=list[Asked])
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextlib.asynccontextmanager
async def loopback(play: Play, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Loopback]:
    """`play` is asked once for each request; connections are kept open between requests."""
    state = Loopback()
    live: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        live.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                state.asked.append(await _read(reader))
                for move in play(state.asked[-1]):
                    if move is None:
                        writer.transport.abort()
                        return
                    if isinstance(move, bytes):
                        writer.write(move)
                        await writer.drain()
                    else:
                        await asyncio.sleep(move)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for writer in live:
            writer.transport.abort()
        await asyncio.sleep(0)


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(head[0].split(" ")[1], headers, body)


def whole(content: object, status: int = 200, kind: str = "application/json", **headers: str) -> list[Move]:
    """One response with its length."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return [head.encode() + body]


def streamed(*pieces: bytes | float | None, end: bool = True) -> list[Move]:
    """An event stream in chunks; without `end` the body is never over."""
    moves: list[Move] = [b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"]
    moves += [b"%x\r\n%b\r\n" % (len(piece), piece) if isinstance(piece, bytes) else piece for piece in pieces]
    if end:
        moves.append(b"0\r\n\r\n")
    return moves


def event(content: object, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    data = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return f"{head}data: {data}\n\n".encode()


def self_signed(folder: Path) -> Path:
    """A key and a certificate for 127.0.0.1 that nobody has signed but themselves, in one file."""
    assert shutil.which("openssl"), "install openssl: without it nobody checks that certificates are verified"
    key = folder / "key.pem"
    certificate = folder / "certificate.pem"
    both = folder / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=loopback", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both
