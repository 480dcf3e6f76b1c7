"""A model server on this machine that fails on purpose, in every way a provider has been seen to fail.

It is for tests, ours and our users'. Some modes are no faults, only unusual: a client must take them as they are. What
a client ought to make of a fault is not decided here.
"""

import asyncio
import zlib
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from chargehand.errors import Invalid
from chargehand.models.testing.fault_replies import (
    EVENTS,
    HEAD_LIMIT,
    MODEL,
    BadRequest,
    ChatProtocol,
    Exchange,
    FaultConnection,
    Head,
    Json,
    MessagesProtocol,
    SentCall,
    SentReply,
    WireProtocol,
    dump,
    echo,
)

Play: TypeAlias = Callable[[Exchange], Awaitable[None]]

MODES: dict[str, str] = {}
"""What each fault does, by its name."""
PLAYS: dict[str, Play] = {}
ELSEWHERE = "elsewhere"
"""Where the redirect leads: it answers properly, so that a client that follows is found out."""

_LONG_PAST = "Thu, 01 Jan 1970 00:00:10 GMT"
_SOON_AFTER = "Thu, 01 Jan 1970 00:00:12 GMT"
_HUGE = 200 * 1024 * 1024
_BLOCK = 64 * 1024
_LONGEST = 600.0  # no fault outlives this, whatever the client does
_TICK = 0.05
_CALL = SentCall(id="call_1", name="look_up", arguments='{"word": "ostrich"}')
_PAGE = b"<!doctype html><html><body><h1>Welcome to the guest network</h1></body></html>"
_DEEP = b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def fault(name: str, description: str) -> Callable[[Play], Play]:
    """Enter a fault in the table."""

    def enter(play: Play) -> Play:
        MODES[name] = description
        PLAYS[name] = play
        return play

    return enter


def _status(name: str, description: str, message: str, headers: Mapping[str, str] | None = None) -> None:
    """A fault in which the provider says no, in the words of its protocol; its name begins with the status."""
    code = int(name[:3])

    @fault(name, description)
    async def play(exchange: Exchange) -> None:
        body = dump(exchange.protocol.error(code, message))
        await exchange.connection.send_whole(body, code, headers=headers)


def _answer(name: str, description: str, change: Callable[[SentReply], SentReply]) -> None:
    """A fault in which the connection is fine and the reply is another one."""

    @fault(name, description)
    async def play(exchange: Exchange) -> None:
        await exchange.answer(change(exchange.reply))


def _body(name: str, description: str, whole: bytes, *events: bytes) -> None:
    """A fault in which the body is the same whatever was asked."""

    @fault(name, description)
    async def play(exchange: Exchange) -> None:
        await exchange.send(whole, events)


def _tool_calls(*calls: SentCall) -> Callable[[SentReply], SentReply]:
    return lambda _: SentReply(None, calls, "tools", (9, 9))


_answer("ok", "answers: echoes the last message, or makes the tool call it asks for", lambda reply: reply)
PLAYS[ELSEWHERE] = PLAYS["ok"]


@fault("late", "answers after 0.3 s")
async def _late(exchange: Exchange) -> None:
    if await exchange.connection.pause(0.3):
        await exchange.answer(exchange.reply)


@fault("flaky", "every other request gets a 503")
async def _flaky(exchange: Exchange) -> None:
    if exchange.number % 2:
        body = dump(exchange.protocol.error(503, "come back in a moment"))
        return await exchange.connection.send_whole(body, 503, headers={"Retry-After": "0"})
    return await exchange.answer(exchange.reply)


# --- the status

_status("429", "too many requests, Retry-After: 1", "slow down", {"Retry-After": "1"})
_status("429-day", "too many requests, Retry-After: 86400", "see you", {"Retry-After": "86400"})
_status(
    "429-date",
    "too many requests, Retry-After as a date of a clock that is decades behind",
    "slow down",
    {"Retry-After": _SOON_AFTER, "Date": _LONG_PAST},
)
_status("429-nonsense", "too many requests, Retry-After: soon", "slow down", {"Retry-After": "soon"})
_status("500", "internal error", "something broke")
_status("503", "unavailable", "restarting")
_status("529", "overloaded, a status that is not in the standard", "overloaded")
_status("400", "the request is refused as malformed", "messages: at least one is needed")
_status("401", "the key is refused", "invalid api key")
_status("403", "the key may not use this model", "you have no access to this model")
_status("404", "there is no such model", "model not found")
_status("422", "the settings are refused", "temperature: unexpected value")
_status("400-long", "the request is longer than the model's window", "context_length_exceeded: 9 > 8 tokens")
_status("429-quota", "the account has no credit left", "You exceeded your quota (insufficient_quota)")


@fault("502-html", "a gateway's error page")
async def _error_page(exchange: Exchange) -> None:
    await exchange.connection.send_whole(b"<h1>Bad Gateway</h1>", 502, "text/html")


@fault("redirect", "sent on to another address, which must not get the key")
async def _redirect(exchange: Exchange) -> None:
    target = f"{exchange.origin}/{ELSEWHERE}/v1/chat/completions"
    await exchange.connection.send_whole(b"", 307, headers={"Location": target})


# --- the connection


@fault("reset-before", "connection reset before the headers")
async def _reset_before(exchange: Exchange) -> None:
    exchange.connection.reset()


@fault("reset-after-headers", "connection reset after the headers")
async def _reset_after_headers(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.connection.pause(_TICK)
    exchange.connection.reset()


@fault("short-body", "the connection ends halfway through the promised length")
async def _short_body(exchange: Exchange) -> None:
    body = exchange.body
    kind = EVENTS if exchange.stream else "application/json"
    await exchange.connection.send_head(200, {"Content-Type": kind, "Content-Length": str(len(body))})
    await exchange.connection.send(body[: len(body) // 2])


@fault("hang-up", "answers, promises to keep the connection, and closes it")
async def _hang_up(exchange: Exchange) -> None:
    """llama.cpp does so after every stream."""
    await exchange.answer(exchange.reply, {"FaultConnection": "keep-alive", "Keep-Alive": "timeout=60"})
    exchange.connection.is_reusable = False


@fault("eof-without-finish", "ends in good order, before the answer does")
async def _eof_without_finish(exchange: Exchange) -> None:
    await exchange.send(exchange.whole[:-2], exchange.unfinished_events)


@fault("chunked-abort", "the connection ends between two chunks")
async def _chunked_abort(exchange: Exchange) -> None:
    await exchange.begin()
    body = b"".join(exchange.unfinished_events) if exchange.stream else exchange.whole[:-9]
    await exchange.connection.chunk(body)


@fault("bad-chunk", "a chunk whose size is no number")
async def _bad_chunk(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.connection.send(b"zz\r\nwhat is this\r\n")


@fault("garbage", "not HTTP at all")
async def _garbage(exchange: Exchange) -> None:
    await exchange.connection.send(b"SSH-2.0-OpenSSH_9.9\r\n\r\n" + bytes(range(256)))


@fault("stream-error", "an error event in the middle of a stream")
async def _stream_error(exchange: Exchange) -> None:
    event = exchange.protocol.stream_error("overloaded in the middle of it")
    await exchange.send(exchange.protocol.error(500, "overloaded"), [*exchange.unfinished_events, event])


@fault("cut-mid-json", "cut in the middle of a JSON document")
async def _cut_mid_json(exchange: Exchange) -> None:
    *good, last = exchange.unfinished_events
    await exchange.send(exchange.whole[:40], [*good, last[: len(last) // 2]])


# --- the clock


async def _drip(exchange: Exchange, data: bytes) -> None:
    for _ in range(int(_LONGEST / _TICK)):
        await exchange.connection.chunk(data)
        if not await exchange.connection.pause(_TICK):
            return


@fault("slow-comments", "comments (one piece: blanks) for ever, and no data")
async def _slow_comments(exchange: Exchange) -> None:
    await exchange.begin()
    await _drip(exchange, b": still here\n\n" if exchange.stream else b" ")


@fault("slow-pings", "valid events without content (one piece: line ends) for ever")
async def _slow_pings(exchange: Exchange) -> None:
    await exchange.begin()
    events = exchange.events
    ping = next((frame for frame in events if b'"ping"' in frame), events[0])
    await _drip(exchange, ping if exchange.stream else b"\n")


@fault("slow-bytes", "the answer, five bytes a second")
async def _slow_bytes(exchange: Exchange) -> None:
    await exchange.begin()
    for byte in exchange.body:
        await exchange.connection.chunk(bytes((byte,)))
        if not await exchange.connection.pause(4 * _TICK):
            return
    await exchange.connection.end()


@fault("slow-headers", "headers without end, one at a time")
async def _slow_headers(exchange: Exchange) -> None:
    await exchange.connection.send(b"HTTP/1.1 200 OK\r\n")
    for number in range(int(_LONGEST / _TICK)):
        await exchange.connection.send(b"x-%d: 1\r\n" % number)
        if not await exchange.connection.pause(_TICK):
            return


@fault("hang-before-headers", "accepts, then says nothing")
async def _hang_before_headers(exchange: Exchange) -> None:
    await exchange.connection.pause(_LONGEST)


@fault("hang-mid-stream", "begins to answer, then says nothing")
async def _hang_mid_stream(exchange: Exchange) -> None:
    await exchange.begin()
    for frame in exchange.unfinished_events if exchange.stream else [exchange.whole[:30]]:
        await exchange.connection.chunk(frame)
    await exchange.connection.pause(_LONGEST)


@fault("skewed-date", "answers, with a Date of 1970")
async def _skewed_date(exchange: Exchange) -> None:
    await exchange.answer(exchange.reply, {"Date": _LONG_PAST})


# --- the size


async def _send_huge(exchange: Exchange, before: bytes, block: bytes) -> None:
    """200 MiB that are made as they are sent."""
    await exchange.begin()
    await exchange.connection.chunk(before)
    for _ in range(_HUGE // len(block)):
        await exchange.connection.chunk(block)
    await exchange.connection.end()


@fault("huge-body", "200 MiB in one string")
async def _huge_body(exchange: Exchange) -> None:
    before = b'data: {"choices": [{"delta": {"content": "' if exchange.stream else b'{"id": "'
    await _send_huge(exchange, before, b"a" * _BLOCK)


@fault("endless-events", "200 MiB of small valid events (one piece: text)")
async def _endless_events(exchange: Exchange) -> None:
    if not exchange.stream:
        return await _send_huge(exchange, b'{"text": "', b"a" * _BLOCK)
    events = exchange.events
    words = next(frame for frame in events if b'"content":"' in frame or b"text_delta" in frame)
    before = b"".join(events[: events.index(words)])
    return await _send_huge(exchange, before, words * (_BLOCK // len(words)))


@fault("gzip-bomb", "a gigabyte of blanks, packed into one megabyte")
async def _gzip_bomb(exchange: Exchange) -> None:
    """Unpacked to its end, it turns out that its checksum is wrong too."""
    await exchange.begin({"Content-Encoding": "gzip"})
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    blanks = b" " * (1024 * 1024)
    await exchange.connection.chunk(packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH))
    # after a full flush the same input always packs to the same bytes, so it is packed once
    block = packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(1022):
        await exchange.connection.chunk(block)
    await exchange.connection.chunk(packer.flush())
    await exchange.connection.end()


@fault("bad-gzip", "says gzip and is not")
async def _bad_gzip(exchange: Exchange) -> None:
    body = b"\x1f\x8bthis was never packed"
    await exchange.connection.send_whole(body, headers={"Content-Encoding": "gzip"})


@fault("huge-header", "a header of 200 MiB")
async def _huge_header(exchange: Exchange) -> None:
    await exchange.connection.send(b"HTTP/1.1 200 OK\r\nx-much: ")
    for _ in range(_HUGE // _BLOCK):
        await exchange.connection.send(b"a" * _BLOCK)


_body("deep-json", "brackets nested a hundred thousand deep", _DEEP, b"data: " + _DEEP + b"\n\n")


# --- the answer

_body("bad-json", "not JSON", b'{"id": "x", "choices": [{]', b'data: {"id": "x", "choices": [{]\n\n')


@fault("two-jsons", "two JSON documents where one belongs")
async def _two_jsons(exchange: Exchange) -> None:
    twice = [frame.rstrip(b"\n") + frame.partition(b"data: ")[2] for frame in exchange.events]
    await exchange.send(exchange.whole * 2, twice)


@fault("html", "a web page with status 200")
async def _html(exchange: Exchange) -> None:
    await exchange.connection.send_whole(_PAGE, content_type="text/html; charset=utf-8")


_body("empty-body", "status 200 and nothing else", b"")


@fault("empty-choices", "a reply with no choice, or no block, in it")
async def _empty_choices(exchange: Exchange) -> None:
    await exchange.send(*exchange.protocol.empty())


_answer("null-content", "a reply whose content is null", lambda _: SentReply(None, usage=(5, 0)))
_body("wrong-schema", "JSON of some other kind", b'{"hello": ["world"]}', b'data: {"hello": ["world"]}\n\n')


@fault("error-in-200", "an error with status 200")
async def _error_in_200(exchange: Exchange) -> None:
    body = exchange.protocol.error(500, "the model is overloaded")
    await exchange.send(body, [b"data: " + dump(body) + b"\n\n"])


@fault("wrong-content-type", "the right answer as text/plain")
async def _wrong_content_type(exchange: Exchange) -> None:
    await exchange.connection.send_whole(exchange.body, content_type="text/plain")


@fault("stream-unasked", "a stream where one piece was requested, one piece where a stream was")
async def _stream_unasked(exchange: Exchange) -> None:
    if exchange.stream:
        return await exchange.connection.send_whole(exchange.whole)
    return await exchange.connection.send_whole(b"".join(exchange.events), content_type=EVENTS)


_answer("length", "cut off at the token limit", lambda reply: replace(reply, finish="length"))
_answer("refused", "stopped by a content filter", lambda _: SentReply("I cannot", (), "refused", (5, 2)))
_answer("usage-missing", "answers, without usage", lambda reply: replace(reply, usage=None))
_answer("usage-negative", "answers, with usage below nothing", lambda reply: replace(reply, usage=(-1000, -500)))
_answer(
    "usage-absurd",
    "answers, with a usage of two thousand million million tokens",
    lambda reply: replace(reply, usage=(10**15, 10**15)),
)
_answer(
    "duplicate-call-ids",
    "two tool calls with one id",
    _tool_calls(_CALL, SentCall(id=_CALL.id, name="send_mail", arguments='{"to": "everybody"}')),
)


@fault("wrong-call-index", "arguments for a tool call that never began (one piece: a call without a name)")
async def _wrong_call_index(exchange: Exchange) -> None:
    protocol = exchange.protocol
    good = protocol.call_events(0, 0, _CALL)
    events = protocol.events(SentReply(None, (_CALL,), "tools", (9, 9)))
    at = events.index(good[0])
    nameless = SentReply(None, (replace(_CALL, name=""),), "tools", (9, 9))
    bad = protocol.call_events(0, 7, _CALL)
    await exchange.send(protocol.whole(nameless), [*events[:at], *bad, *events[at + len(good) :]])


_answer(
    "bad-arguments",
    "a tool call whose arguments are not JSON",
    _tool_calls(replace(_CALL, arguments='{"word": "ostr')),
)


@fault("bad-utf8", "bytes that are not UTF-8")
async def _bad_utf8(exchange: Exchange) -> None:
    exchange = replace(exchange, reply=replace(exchange.reply, text="caf@"))
    frames = [frame.replace(b"@", b"\xc3\x28") for frame in exchange.events]
    await exchange.send(exchange.whole.replace(b"@", b"\xc3\x28"), frames)


@fault("split-utf8", "answers, with characters cut in two between packets (legal)")
async def _split_utf8(exchange: Exchange) -> None:
    body = replace(exchange, reply=replace(exchange.reply, text="Grüße, 世界 🦩")).body
    await exchange.begin()
    for at in range(0, len(body), 3):
        await exchange.connection.chunk(body[at : at + 3])
    await exchange.connection.end()


@fault("odd-lines", "answers, with comments, unknown fields and carriage returns (legal)")
async def _odd_lines(exchange: Exchange) -> None:
    before = b": hello\r\n\r\nid: 1\r\nretry: 10\r\n"
    events = [before + frame.replace(b"\n", b"\r\n") for frame in exchange.events]
    await exchange.send(b"\r\n \t" + exchange.whole + b"\r\n", events)


# --- the server


_PROTOCOLS: dict[str, WireProtocol] = {"/chat/completions": ChatProtocol(), "/messages": MessagesProtocol()}


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
        self._server = await asyncio.start_server(self._serve, self.host, self.port, limit=HEAD_LIMIT)
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
                connection.is_reusable = False
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
            await connection.send_whole(dump({"error": {"message": str(error)}}), 400)
            return False
        if head.method == "GET":
            await connection.send_whole(dump(self._about(head.path)))
        else:
            await self._post(connection, head, body)
        return connection.is_reusable

    def _about(self, path: str) -> Json:
        if path.endswith("/models"):
            return {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        return {"modes": MODES, "requests": dict(self.requests)}

    async def _post(self, connection: FaultConnection, head: Head, body: bytes) -> None:
        path = head.path.partition("?")[0]
        protocol = next((protocol for end, protocol in _PROTOCOLS.items() if path.endswith(end)), None)
        mode = self._chosen(path, head)
        if protocol is None or mode not in PLAYS:
            hint = f"nothing at {path!r}: POST to /fault/<mode>/v1/chat/completions or /fault/<mode>/v1/messages"
            return await connection.send_whole(dump({"error": {"message": hint, "modes": list(MODES)}}), 404)
        self.requests[mode] += 1
        try:
            decoded = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            return await connection.send_whole(dump(protocol.error(400, f"the request is not JSON: {error}")), 400)
        if not isinstance(decoded, dict):
            return await connection.send_whole(dump(protocol.error(400, "the request is not an object")), 400)
        fields = cast("Json", decoded)
        exchange = Exchange(
            connection=connection,
            protocol=protocol,
            reply=echo(fields),
            stream=fields.get("stream") is True,
            number=self.requests[mode],
            origin=self.origin,
        )
        return await PLAYS[mode](exchange)

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
