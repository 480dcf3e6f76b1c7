"""How an MCP server is reached: as a process over its pipes, or over HTTP through the egress guard.

Both are bounded: a message larger than `LARGEST_MESSAGE` ends the connection. What the messages say is not known here.
"""

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, jsonrpc_message_adapter

from chargehand.engine.policy import Seconds
from chargehand.tools.egress import Egress, Forbidden
from chargehand.trace_context import trace_headers

logger = logging.getLogger(__name__)

LARGEST_MESSAGE = 16 * 1024 * 1024
"""Bytes of one message of a server."""
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""The variables that a server is given without naming them; none of them holds a secret."""
_MAX_GARBAGE = 1000
"""Lines that are no messages before the connection ends."""
_LONGEST_REMARK = 300
SESSION_LOST = -32900
"""The code of an error that a server over HTTP reports by its status: it does not know the session any more."""
REFUSED = -32901
"""The code of another such error: the server did not take the request."""
_SESSION_HEADER = "mcp-session-id"


# --- a process


_Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class ServerProcess:
    """The process of a server: started by `transport`, ended with its context."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path, *, close_seconds: Seconds) -> None:
        self._command = command
        self._env = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(env)
        self._folder = folder
        self._close_seconds = close_seconds
        self._remarks: deque[str] = deque(maxlen=1)
        self.has_ended = False
        """Whether its output has ended: nothing more is heard of it."""

    @property
    def remark(self) -> str:
        """The last line that it wrote on standard error."""
        return self._remarks[0] if self._remarks else ""

    @asynccontextmanager
    async def transport(self) -> AsyncGenerator[_Streams]:
        """The streams of messages from and to the process."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env,
            cwd=self._folder,
            limit=LARGEST_MESSAGE,
            start_new_session=True,
        )
        inbox_writer, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outbox, outbox_reader = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with asyncio.TaskGroup() as jobs:
                pipes = [
                    jobs.create_task(self._read(process, inbox_writer)),
                    jobs.create_task(_write(process, outbox_reader)),
                    jobs.create_task(self._read_remarks(process)),
                ]
                try:
                    yield inbox, outbox
                finally:
                    for pipe in pipes:
                        pipe.cancel()
        finally:
            self.has_ended = True
            for stream in (inbox_writer, inbox, outbox, outbox_reader):
                stream.close()
            await _end(process, self._close_seconds)

    async def _read(
        self, process: asyncio.subprocess.Process, inbox: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        """Pass on what the process writes, line by line. What is no message is dropped."""
        assert process.stdout is not None
        garbage = 0
        try:
            while garbage < _MAX_GARBAGE and (line := await process.stdout.readline()):
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    garbage += 1
                    logger.debug("%s wrote a line that is no message", self._command[0])
                else:
                    await inbox.send(SessionMessage(message))
        except ValueError:  # of readline: the line is too long
            self._remarks.append(f"it sent a message of more than {LARGEST_MESSAGE:,} bytes")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("the reader of %s is gone", self._command[0])
        finally:
            self.has_ended = True
            await inbox.aclose()  # a caller that waits for an answer learns that there will be none

    async def _read_remarks(self, process: asyncio.subprocess.Process) -> None:
        """Keep the last line of standard error, for messages."""
        assert process.stderr is not None
        rest = b""
        while piece := await process.stderr.read(4096):
            *lines, rest = (rest + piece)[-4096:].split(b"\n")
            for line in lines:
                if text := line.decode(errors="replace").strip():
                    self._remarks.append(text[:_LONGEST_REMARK])
                    logger.debug("%s: %s", self._command[0], text[:_LONGEST_REMARK])


async def _write(process: asyncio.subprocess.Process, outbox: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin is not None
    with suppress(OSError):  # it has ended, which its output tells
        async for message in outbox:
            body = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(f"{body}\n".encode())
            await process.stdin.drain()


async def _end(process: asyncio.subprocess.Process, close_seconds: Seconds) -> None:
    """Close its input, then signal it and all it started, until it has ended."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        try:
            async with asyncio.timeout(close_seconds):
                await _wait(process)
        except TimeoutError:
            continue
        break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # what it started and left behind


async def _wait(process: asyncio.subprocess.Process) -> None:
    """Wait for its end. What it still writes is read: a full pipe would hold it up, and keep ours open."""

    async def drain(stream: asyncio.StreamReader | None) -> None:
        while stream is not None and await stream.read(LARGEST_MESSAGE):
            pass

    async with asyncio.TaskGroup() as jobs:
        jobs.create_task(drain(process.stdout))
        jobs.create_task(drain(process.stderr))
        await process.wait()


# --- HTTP


class GuardedHttp(httpx2.AsyncBaseTransport):
    """Connects only to addresses that the egress guard allows, and reads bounded answers.

    Without a guard it connects to the one host that it is made for, wherever that is.
    """

    def __init__(self, egress: Egress | None) -> None:
        self._egress = egress
        self._http = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers.update(trace_headers())
        if self._egress is not None:
            request = await self._located(request, self._egress)
        response = await self._http.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if error := _status_error(request, response):
            await response.aclose()
            body = {"jsonrpc": "2.0", "id": None, "error": error}
            return httpx2.Response(response.status_code, json=body, request=request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError("the answer is packed, which was not asked for")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _BoundedBody(response.stream)  # the events of a stream are bounded one by one
        return response

    async def _located(self, request: httpx2.Request, egress: Egress) -> httpx2.Request:
        """The request to an address that was checked, for the host that was named."""
        try:
            target, addresses = await egress.locate(str(request.url))
        except Forbidden as error:
            hint = "a server on your own machine or network is declared with  private: true"
            raise Forbidden(f"{error} ({hint})") from error
        return httpx2.Request(
            request.method,
            request.url.copy_with(host=addresses[0]),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": target.host},
        )

    async def aclose(self) -> None:
        await self._http.aclose()


def _status_error(request: httpx2.Request, response: httpx2.Response) -> dict[str, object] | None:
    """The error of the protocol that a status of HTTP means; None where it means none, or the body has one already.

    A session that is not known is 404 by the protocol, whatever the body; servers of early SDKs say 400, in plain text.
    """
    status = response.status_code
    is_json = response.headers.get("content-type", "").startswith("application/json")
    words = f"HTTP {status} {response.reason_phrase}"
    if _SESSION_HEADER in request.headers and (status == 404 or (status == 400 and not is_json)):
        return {"code": SESSION_LOST, "message": f"the server does not know the session any more ({words})"}
    if status < 400 or is_json:
        return None
    return {"code": REFUSED if status < 500 else INTERNAL_ERROR, "message": words}


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            if size > LARGEST_MESSAGE:
                raise httpx2.ReadError(f"the answer has more than {LARGEST_MESSAGE:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


def http_client(url: str, headers: Mapping[str, str], *, private: bool) -> httpx2.AsyncClient:
    """A client for one server. Proxies of the environment are not used; a `private` server may be anywhere."""
    port = urlsplit(url).port
    egress = None if private else Egress(ports=frozenset(() if port is None else (port,)))
    return httpx2.AsyncClient(
        transport=GuardedHttp(egress),
        headers={"accept-encoding": "identity", **headers},
        timeout=httpx2.Timeout(30.0, read=None),  # a stream of events may be silent for long
    )
