"""A model server on this machine that fails on purpose, in every way a provider has been seen to fail.

It is for tests, ours and our users'. Some modes are no faults, only unusual: a client must take them as they are. What
a client ought to make of a fault is not decided here.
"""

import asyncio
import socket
import struct
import zlib
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from itertools import chain, repeat
from types import TracebackType
from typing import Self, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.errors import Invalid
from chargehand.models.messages import Reply, ToolCall, Usage
from chargehand.models.testing import server_tool_rules, tool_search_rules
from chargehand.models.testing.fault_replies import (
    EVENTS,
    JSON,
    MODEL,
    NO_HEADERS,
    ChatProtocol,
    Exchange,
    Json,
    MessagesProtocol,
    ResponsesProtocol,
    Sending,
    WireProtocol,
    dump,
    echo,
    send_whole,
)
from chargehand.models.testing.field_rules import FIELD_MODES, ProtocolName, RefusedField, refusals
from chargehand.models.testing.file_rules import FILE_MODES, FileRule, broken_rule
from chargehand.models.testing.thought_rules import RULES, ThoughtRule

ELSEWHERE = "elsewhere"
"""Where the redirect leads: it answers properly, so that a client that follows is found out."""

_HEAD_LIMIT = 64 * 1024
_BODY_LIMIT = 16 * 1024 * 1024
_LONG_PAST = "Thu, 01 Jan 1970 00:00:10 GMT"
_SOON_AFTER = "Thu, 01 Jan 1970 00:00:12 GMT"
_HUGE = 200 * 1024 * 1024
_BLOCK = 64 * 1024
_LONGEST = 600.0  # no fault outlives this, whatever the client does
_TICK = 0.05
_PAGE = b"<!doctype html><html><body><h1>Welcome to the guest network</h1></body></html>"
_DEEP = b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
_GARBAGE = b"SSH-2.0-OpenSSH_9.9\r\n\r\n" + bytes(range(256))
_OK = b"HTTP/1.1 200 OK\r\n"
_BAD_CHUNK = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nwhat is this\r\n"
_WORDS = (b'"content":"', b"text_delta", b"output_text.delta")
"""What an event with a piece of the answer holds, in each protocol."""
_CALL = ToolCall(id="call_1", name="look_up", arguments='{"word": "ostrich"}')
_SAME_ID = ToolCall(id="call_1", name="send_mail", arguments='{"to": "everybody"}')
_CUT_ARGUMENTS = replace(_CALL, arguments='{"word": "ostr')


# --- replies that take more than a line to say


def _call_tools(*calls: ToolCall) -> Reply:
    return Reply("", calls, "tools", Usage(9, 9))


def _with_words(exchange: Exchange, words: str) -> Exchange:
    """The call, with other words to answer it."""
    return replace(exchange, reply=replace(exchange.reply, text=words))


def _send_flaky(exchange: Exchange) -> Sending:
    if exchange.number % 2:
        return exchange.error(503, "come back in a moment", {"Retry-After": "0"})
    return exchange.answer(exchange.reply)


def _send_stream_error(exchange: Exchange) -> Sending:
    event = exchange.protocol.stream_error("overloaded in the middle of it")
    whole = dump(exchange.protocol.error(500, "overloaded"))
    return exchange.send(whole, [*exchange.unfinished_events, event])


def _send_cut_json(exchange: Exchange) -> Sending:
    *good, last = exchange.unfinished_events
    return exchange.send(exchange.whole[:40], [*good, last[: len(last) // 2]])


def _send_pings(exchange: Exchange) -> Sending:
    events = exchange.events
    ping = next((frame for frame in events if b'"ping"' in frame or b'"keepalive"' in frame), events[0])
    return exchange.send_pieces(repeat(ping if exchange.stream else b"\n"), pause=_TICK)


def _send_huge(exchange: Exchange, before: bytes, block: bytes) -> Sending:
    """200 MiB that are made as they are sent."""
    return exchange.send_pieces(chain([before], repeat(block, _HUGE // len(block))))


def _send_huge_body(exchange: Exchange) -> Sending:
    before = b'data: {"choices": [{"delta": {"content": "' if exchange.stream else b'{"id": "'
    return _send_huge(exchange, before, b"a" * _BLOCK)


def _send_endless_events(exchange: Exchange) -> Sending:
    if not exchange.stream:
        return _send_huge(exchange, b'{"text": "', b"a" * _BLOCK)
    events = exchange.events
    words = next(frame for frame in events if any(sign in frame for sign in _WORDS))
    before = b"".join(events[: events.index(words)])
    return _send_huge(exchange, before, words * (_BLOCK // len(words)))


def _make_bomb() -> Iterator[bytes]:
    """A gigabyte of blanks, packed. Unpacked to its end, it turns out that its checksum is wrong too."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    blanks = b" " * (1024 * 1024)
    yield packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)
    # after a full flush the same input always packs to the same bytes, so it is packed once
    yield from repeat(packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH), 1022)
    yield packer.flush()


def _send_packed(exchange: Exchange) -> Sending:
    """The answer in gzip, each event flushed as it is sent."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    pieces = exchange.events if exchange.stream else [exchange.whole]
    packed = [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return exchange.send_pieces([*packed, packer.flush()], {"Content-Encoding": "gzip"})


def _send_twice(exchange: Exchange) -> Sending:
    twice = [frame.rstrip(b"\n") + frame.partition(b"data: ")[2] for frame in exchange.events]
    return exchange.send(exchange.whole * 2, twice)


def _send_unasked(exchange: Exchange) -> Sending:
    if exchange.stream:
        return send_whole(exchange.whole)
    return send_whole(b"".join(exchange.events), content_type=EVENTS)


def _send_wrong_index(exchange: Exchange) -> Sending:
    protocol = exchange.protocol
    good = protocol.call_events(0, 0, _CALL)
    events = protocol.events(_call_tools(_CALL))
    at = next(at for at, frame in enumerate(events) if _CALL.name.encode() in frame)
    bad = protocol.call_events(0, 7, _CALL)
    nameless = dump(protocol.whole(_call_tools(replace(_CALL, name=""))))
    return exchange.send(nameless, [*events[:at], *bad, *events[at + len(good) :]])


def _send_bad_utf8(exchange: Exchange) -> Sending:
    changed = _with_words(exchange, "caf@")
    frames = [frame.replace(b"@", b"\xc3\x28") for frame in changed.events]
    return exchange.send(changed.whole.replace(b"@", b"\xc3\x28"), frames)


def _split(body: bytes, size: int) -> Iterable[bytes]:
    return (body[at : at + size] for at in range(0, len(body), size))


def _send_odd_lines(exchange: Exchange) -> Sending:
    before = b": hello\r\n\r\nid: 1\r\nretry: 10\r\n"
    events = [before + frame.replace(b"\n", b"\r\n") for frame in exchange.events]
    return exchange.send(b"\r\n \t" + exchange.whole + b"\r\n", events)


_NAMES: dict[type[WireProtocol], ProtocolName] = {
    ChatProtocol: "openai",
    ResponsesProtocol: "responses",
    MessagesProtocol: "anthropic",
}


def _protocol_name(exchange: Exchange) -> ProtocolName:
    return _NAMES[type(exchange.protocol)]


def _refuse_files(rules: Sequence[FileRule], exchange: Exchange) -> Sending:
    """Refuse the first part of a message that the model does not take; answer where there is none."""
    error = broken_rule(rules, _protocol_name(exchange), exchange.request)
    return exchange.answer(exchange.reply) if error is None else send_whole(dump(error), 400)


def _refuse_fields(rules: Sequence[RefusedField], exchange: Exchange) -> Sending:
    """Refuse the first field that the model does not take; answer where there is none."""
    refused = next(refusals(rules, _protocol_name(exchange), exchange.request), None)
    if refused is None:
        return exchange.answer(exchange.reply)
    return send_whole(dump(refused.error(exchange.request)), 400)


def _think(rule: ThoughtRule) -> "Play":
    """Answer with thoughts, and refuse a request that lacks those of its tool calls."""

    def play(exchange: Exchange) -> Sending:
        if not exchange.path.endswith(rule.path):
            return exchange.answer(exchange.reply)
        if problem := rule.problem(exchange.request):
            return exchange.error(400, problem)
        return exchange.answer(replace(exchange.reply, kept=rule.think(exchange.request, exchange.reply)))

    return play


def _run_tools(exchange: Exchange) -> Sending:
    """Answer with what the server's own tools found, where they are asked for."""
    if not isinstance(exchange.protocol, MessagesProtocol) or not server_tool_rules.offers(exchange.request):
        return exchange.answer(exchange.reply)
    answer = server_tool_rules.answer(exchange.request)
    return exchange.error(400, answer) if isinstance(answer, str) else exchange.answer(answer)


def _search_tools(exchange: Exchange) -> Sending:
    """Answer with a search and the calls of what it found."""
    if isinstance(exchange.protocol, ChatProtocol):
        return exchange.answer(exchange.reply)
    answer = tool_search_rules.answer(exchange.request, exchange.reply)
    return exchange.error(400, answer) if isinstance(answer, str) else exchange.answer(answer)


def _refuse_search(exchange: Exchange) -> Sending:
    refusal = tool_search_rules.refusal(exchange.request)
    return exchange.error(400, refusal) if refusal else exchange.answer(exchange.reply)


# --- the table


Play: TypeAlias = Callable[[Exchange], Sending]


def _refuse(status: int, message: str, headers: Mapping[str, str] = NO_HEADERS) -> Play:
    """The provider says no, in the words of its protocol."""
    return lambda call: call.error(status, message, headers)


def _answer(reply: Reply) -> Play:
    return lambda call: call.answer(reply)


def _send(body: bytes, status: int = 200, content_type: str = JSON, headers: Mapping[str, str] = NO_HEADERS) -> Play:
    return lambda _: send_whole(body, status, content_type, headers)


def _send_either(body: bytes) -> Play:
    """The same document in one piece, or as an event."""
    return lambda call: call.send(body, [b"data: " + body + b"\n\n"] if body else [])


FAULTS: dict[str, tuple[str, Play]] = {
    "ok": (
        "answers: echoes the last message, or makes the tool call it asks for",
        lambda call: call.answer(call.reply),
    ),
    "late": ("answers after 0.3 s", lambda call: replace(call.answer(call.reply), delay=0.3)),
    "flaky": ("every other request gets a 503", _send_flaky),
    # the status
    "429": ("too many requests, Retry-After: 1", _refuse(429, "slow down", {"Retry-After": "1"})),
    "429-day": ("too many requests, Retry-After: 86400", _refuse(429, "see you", {"Retry-After": "86400"})),
    "429-date": (
        "too many requests, Retry-After as a date of a clock that is decades behind",
        _refuse(429, "slow down", {"Retry-After": _SOON_AFTER, "Date": _LONG_PAST}),
    ),
    "429-nonsense": ("too many requests, Retry-After: soon", _refuse(429, "slow down", {"Retry-After": "soon"})),
    "500": ("internal error", _refuse(500, "something broke")),
    "503": ("unavailable", _refuse(503, "restarting")),
    "529": ("overloaded, a status that is not in the standard", _refuse(529, "overloaded")),
    "400": ("the request is refused as malformed", _refuse(400, "messages: at least one is needed")),
    "401": ("the key is refused", _refuse(401, "invalid api key")),
    "403": ("the key may not use this model", _refuse(403, "you have no access to this model")),
    "404": ("there is no such model", _refuse(404, "model not found")),
    "422": ("the settings are refused", _refuse(422, "temperature: unexpected value")),
    "400-long": (
        "the request is longer than the model's window",
        _refuse(400, "context_length_exceeded: 9 > 8 tokens"),
    ),
    "429-quota": ("the account has no credit left", _refuse(429, "You exceeded your quota (insufficient_quota)")),
    "502-html": ("a gateway's error page", _send(b"<h1>Bad Gateway</h1>", 502, "text/html")),
    "redirect": (
        "sent on to another address, which must not get the key",
        lambda call: send_whole(b"", 307, headers={"Location": f"{call.origin}/{ELSEWHERE}/v1/chat/completions"}),
    ),
    # the connection
    "reset-before": ("connection reset before the headers", lambda _: Sending(framing="none", ending="reset")),
    "reset-after-headers": (
        "connection reset after the headers",
        lambda call: call.send_pieces((), ending="reset"),
    ),
    "short-body": (
        "the connection ends halfway through the promised length",
        lambda call: replace(call.send_body(), pieces=[call.body[: len(call.body) // 2]], ending="cut"),
    ),
    "hang-up": (  # llama.cpp does so after every stream
        "answers, promises to keep the connection, and closes it",
        lambda call: replace(call.answer(call.reply, {"Connection": "keep-alive"}), ending="close"),
    ),
    "eof-without-finish": (
        "ends in good order, before the answer does",
        lambda call: call.send(call.whole[:-2], call.unfinished_events),
    ),
    "chunked-abort": (
        "the connection ends between two chunks",
        lambda call: call.send_pieces(call.begin(-9), ending="cut"),
    ),
    "bad-chunk": ("a chunk whose size is no number", lambda _: Sending((_OK + _BAD_CHUNK,), framing="none")),
    "garbage": ("not HTTP at all", lambda _: Sending((_GARBAGE,), framing="none")),
    "stream-error": ("an error event in the middle of a stream", _send_stream_error),
    "cut-mid-json": ("cut in the middle of a JSON document", _send_cut_json),
    # the clock
    "slow-comments": (
        "comments (one piece: blanks) for ever, and no data",
        lambda call: call.send_pieces(repeat(b": still here\n\n" if call.stream else b" "), pause=_TICK),
    ),
    "slow-pings": ("valid events without content (one piece: line ends) for ever", _send_pings),
    "slow-bytes": (
        "the answer, five bytes a second",
        lambda call: call.send_pieces(_split(call.body, 1), pause=4 * _TICK),
    ),
    "slow-headers": (
        "headers without end, one at a time",
        lambda _: Sending(chain([_OK], repeat(b"x-more: 1\r\n")), framing="none", pause=_TICK),
    ),
    "hang-before-headers": ("accepts, then says nothing", lambda _: Sending(framing="none", ending="hang")),
    "hang-mid-stream": (
        "begins to answer, then says nothing",
        lambda call: call.send_pieces(call.begin(30), ending="hang"),
    ),
    "skewed-date": ("answers, with a Date of 1970", lambda call: call.answer(call.reply, {"Date": _LONG_PAST})),
    # the size
    "huge-body": ("200 MiB in one string", _send_huge_body),
    "endless-events": ("200 MiB of small valid events (one piece: text)", _send_endless_events),
    "gzip-bomb": (
        "a gigabyte of blanks, packed into one megabyte",
        lambda call: call.send_pieces(_make_bomb(), {"Content-Encoding": "gzip"}),
    ),
    "gzip": ("answers in gzip, which was not asked for", _send_packed),
    "brotli": ("says br, which was not asked for", _send(b"\x0b\x02\x80", headers={"Content-Encoding": "br"})),
    "bad-gzip": ("says gzip and is not", _send(b"\x1f\x8bthis was never packed", headers={"Content-Encoding": "gzip"})),
    "huge-header": (
        "a header of 200 MiB",
        lambda _: Sending(chain([_OK + b"x-much: "], repeat(b"a" * _BLOCK, _HUGE // _BLOCK)), framing="none"),
    ),
    "deep-json": ("brackets nested a hundred thousand deep", _send_either(_DEEP)),
    # the answer
    "bad-json": ("not JSON", _send_either(b'{"id": "x", "choices": [{]')),
    "two-jsons": ("two JSON documents where one belongs", _send_twice),
    "html": ("a web page with status 200", _send(_PAGE, content_type="text/html; charset=utf-8")),
    "empty-body": ("status 200 and nothing else", _send_either(b"")),
    "empty-choices": (
        "a reply with no choice, or no block, in it",
        lambda call: call.send(*call.protocol.empty()),
    ),
    "null-content": ("a reply whose content is null", _answer(Reply("", usage=Usage(5, 0)))),
    "wrong-schema": ("JSON of some other kind", _send_either(b'{"hello": ["world"]}')),
    "error-in-200": (
        "an error with status 200",
        lambda call: _send_either(dump(call.protocol.error(500, "the model is overloaded")))(call),
    ),
    "wrong-content-type": (
        "the right answer as text/plain",
        lambda call: send_whole(call.body, content_type="text/plain"),
    ),
    "stream-unasked": ("a stream where one piece was requested, one piece where a stream was", _send_unasked),
    "length": ("cut off at the token limit", lambda call: call.answer(replace(call.reply, finish="length"))),
    "refused": ("stopped by a content filter", _answer(Reply("I cannot", (), "refused", Usage(5, 2)))),
    "usage-missing": ("answers, without usage", lambda call: call.answer(replace(call.reply, usage=None))),
    "usage-negative": (
        "answers, with usage below nothing",
        lambda call: call.answer(replace(call.reply, usage=Usage(-1000, -500))),
    ),
    "usage-absurd": (
        "answers, with a usage of two thousand million million tokens",
        lambda call: call.answer(replace(call.reply, usage=Usage(10**15, 10**15))),
    ),
    "duplicate-call-ids": ("two tool calls with one id", _answer(_call_tools(_CALL, _SAME_ID))),
    "wrong-call-index": (
        "arguments for a tool call that never began (one piece: a call without a name)",
        _send_wrong_index,
    ),
    "bad-arguments": ("a tool call whose arguments are not JSON", _answer(_call_tools(_CUT_ARGUMENTS))),
    "bad-utf8": ("bytes that are not UTF-8", _send_bad_utf8),
    "split-utf8": (
        "answers, with characters cut in two between packets (legal)",
        lambda call: call.send_pieces(_split(_with_words(call, "Grüße, 世界 🦩").body, 3)),
    ),
    "odd-lines": ("answers, with comments, unknown fields and carriage returns (legal)", _send_odd_lines),
    # the settings
    **{name: (words, partial(_refuse_fields, rules)) for name, (words, rules) in FIELD_MODES.items()},
    # pictures and PDFs
    **{name: (words, partial(_refuse_files, rules)) for name, (words, rules) in FILE_MODES.items()},
    # thoughts, which must come back
    **{mode: (rule.about, _think(rule)) for mode, rule in RULES.items()},
    server_tool_rules.SERVER_TOOLS: (server_tool_rules.ABOUT, _run_tools),
    tool_search_rules.TOOL_SEARCH: (tool_search_rules.ABOUT, _search_tools),
    tool_search_rules.NO_TOOL_SEARCH: (tool_search_rules.ABOUT_NONE, _refuse_search),
}
"""By name, what each fault does, in words and in fact."""
MODES = {name: description for name, (description, _) in FAULTS.items()}


# --- the server


class Head(Struct, frozen=True):
    method: str
    path: str
    headers: Mapping[str, str]


class BadRequest(Exception):
    """The request is not HTTP that this server reads."""


class FaultConnection:
    """Reads requests, and sends replies whole, in pieces or broken."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read_head(self) -> Head | None:
        """The next request's head; None when the client is done."""
        try:
            raw = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError as error:
            raise BadRequest(f"a request head may have {_HEAD_LIMIT} bytes") from error
        first, *rest = raw.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3:
            raise BadRequest("this is not an HTTP request")
        pairs = (line.partition(":") for line in rest if line)
        return Head(words[0], words[1], {name.strip().lower(): value.strip() for name, _, value in pairs})

    async def read_body(self, head: Head) -> bytes:
        length = head.headers.get("content-length", "0")
        if "transfer-encoding" in head.headers or not length.isdecimal() or int(length) > _BODY_LIMIT:
            raise BadRequest(f"a request needs a Content-Length of at most {_BODY_LIMIT}")
        return await self._reader.readexactly(int(length))

    async def send(self, sending: Sending) -> bool:
        """Whether the reply was ended so that the next request may follow."""
        if sending.delay and not await self._pause(sending.delay):
            return False
        is_chunked = sending.framing == "chunked"
        if sending.framing != "none":
            await self._send_head(sending.status, sending.headers, is_chunked=is_chunked)
        for piece in sending.pieces:
            await self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
            if sending.pause and not await self._pause(sending.pause):
                return False
        match sending.ending:
            case "hang":
                await self._pause(_LONGEST)
            case "reset":
                await self._pause(_TICK)
                self._reset()
            case "keep" | "close" if is_chunked:
                await self._write(b"0\r\n\r\n")
            case _:
                pass
        return sending.ending == "keep" and sending.framing != "none"

    async def _send_head(self, status: int, headers: Mapping[str, str], *, is_chunked: bool) -> None:
        reason = "Overloaded" if status == 529 else HTTPStatus(status).phrase
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
        if is_chunked:
            lines.append("Transfer-Encoding: chunked")
        await self._write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def _pause(self, seconds: float) -> bool:
        """Whether the client is still there after so long."""
        try:
            async with asyncio.timeout(seconds):
                # what comes now is not wanted; nothing at all means that the client hung up
                while await self._reader.read(4096):
                    pass
        except TimeoutError:
            return True
        return False

    def _reset(self) -> None:
        """Cut the connection with a reset instead of an orderly end."""
        raw_socket: socket.socket | None = self._writer.get_extra_info("socket")
        if raw_socket is not None:
            raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


_PROTOCOLS: dict[str, WireProtocol] = {
    "/chat/completions": ChatProtocol(),
    "/responses": ResponsesProtocol(),
    "/messages": MessagesProtocol(),
}


class FaultServer:
    """The fault is named by the path (`/fault/<mode>/v1/...`), else by the header `x-fault`, else it is `mode`.

    `requests` counts what came in, by mode.
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1", mode: str = "ok") -> None:
        if mode not in MODES:
            raise Invalid(f"there is no fault mode {mode!r}; there are: {', '.join(MODES)}")
        self.requests: Counter[str] = Counter()
        self.host = host
        self.port = port
        self._mode = mode
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, limit=_HEAD_LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    def url(self, mode: str = "ok") -> str:
        """The base address of a provider that has this fault."""
        if mode not in MODES:
            raise Invalid(f"there is no fault mode {mode!r}; there are: {', '.join(MODES)}")
        return f"{self.origin}/fault/{mode}/v1"

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        connection = FaultConnection(reader, writer)
        try:
            while await self._turn(connection):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, which is what many faults make it do
        except asyncio.CancelledError:
            pass  # the server is being closed, and no task waits for this connection
        finally:
            self._calls.discard(call)
            connection.close()

    async def _turn(self, connection: FaultConnection) -> bool:
        """One request; whether another may follow on this connection."""
        try:
            head = await connection.read_head()
            if head is None:
                return False
            body = await connection.read_body(head)
        except BadRequest as error:
            await connection.send(send_whole(dump({"error": {"message": str(error)}}), 400))
            return False
        if head.method == "GET":
            return await connection.send(send_whole(dump(self._about(head.path))))
        return await connection.send(self._answer(head, body))

    def _about(self, path: str) -> Json:
        if path.endswith("/models"):
            return {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        return {"modes": MODES, "requests": dict(self.requests)}

    def _answer(self, head: Head, body: bytes) -> Sending:
        path = head.path.partition("?")[0]
        protocol = next((protocol for end, protocol in _PROTOCOLS.items() if path.endswith(end)), None)
        mode = self._chosen(path, head)
        if protocol is None or mode not in (*FAULTS, ELSEWHERE):
            hint = f"nothing at {path!r}: POST to /fault/<mode>/v1 and one of: {', '.join(_PROTOCOLS)}"
            return send_whole(dump({"error": {"message": hint, "modes": list(MODES)}}), 404)
        self.requests[mode] += 1
        try:
            fields = msgspec.json.decode(body, type=Json)
        except msgspec.DecodeError as error:
            return send_whole(dump(protocol.error(400, f"the request is not a JSON object: {error}")), 400)
        exchange = Exchange(
            protocol=protocol,
            reply=echo(fields),
            stream=fields.get("stream") is True,
            number=self.requests[mode],
            origin=self.origin,
            path=path,
            request=fields,
        )
        _, play = FAULTS["ok" if mode == ELSEWHERE else mode]
        return play(exchange)

    def _chosen(self, path: str, head: Head) -> str:
        parts = path.split("/")
        if parts[1] == ELSEWHERE:
            return ELSEWHERE
        if parts[1] == "fault" and len(parts) > 2:
            return parts[2]
        return head.headers.get("x-fault") or self._mode


async def serve(
    host: str = "127.0.0.1", port: int = 8787, mode: str = "ok", ready: Callable[[str], None] | None = None
) -> None:
    """Serve until cancelled. `ready` is told the address once the server listens."""
    async with FaultServer(port, host, mode) as server:
        if ready is not None:
            ready(server.origin)
        await asyncio.Event().wait()
