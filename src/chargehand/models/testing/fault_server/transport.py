"""Faults of the status, the clock, the size and the connection. What is said, as far as anything is, is right."""

import zlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from chargehand.models.testing.fault_server.exchange import Exchange
from chargehand.models.testing.fault_server.shapes import dump

Play: TypeAlias = Callable[[Exchange], Awaitable[None]]

LONG_PAST = "Thu, 01 Jan 1970 00:00:10 GMT"
_SOON_AFTER = "Thu, 01 Jan 1970 00:00:12 GMT"
_HUGE = 200 * 1024 * 1024
_BLOCK = 64 * 1024
_PATIENCE = 600.0  # no fault outlives this, whatever the client does
_TICK = 0.05


def status(code: int, message: str, headers: dict[str, str] | None = None) -> Play:
    """The provider says no, in the words of its protocol."""

    async def play(exchange: Exchange) -> None:
        await exchange.line.whole(dump(exchange.ask.shape.error(code, message)), code, headers=headers)

    return play


async def flaky(exchange: Exchange) -> None:
    """The first request fails, the second is answered, the third fails."""
    if exchange.ask.number % 2:
        return await status(503, "come back in a moment", {"Retry-After": "0"})(exchange)
    return await exchange.answer(exchange.ask.said)


async def bare_500(exchange: Exchange) -> None:
    await exchange.line.whole(b"<h1>Bad Gateway</h1>", 502, "text/html")


async def redirect(exchange: Exchange) -> None:
    target = f"{exchange.ask.origin}/elsewhere/v1/chat/completions"
    await exchange.line.whole(b"", 307, headers={"Location": target})


async def skewed_date(exchange: Exchange) -> None:
    await exchange.answer(exchange.ask.said, {"Date": LONG_PAST})


async def retry_date(exchange: Exchange) -> None:
    """Retry-After as a date, two seconds ahead of a clock that is half a century behind."""
    headers = {"Retry-After": _SOON_AFTER, "Date": LONG_PAST}
    await status(429, "slow down", headers)(exchange)


async def hang_up(exchange: Exchange) -> None:
    """A whole answer that says keep-alive; then the connection is closed. llama.cpp does so after every stream."""
    await exchange.answer(exchange.ask.said, {"Connection": "keep-alive", "Keep-Alive": "timeout=60"})
    exchange.line.kept = False


async def reset_before(exchange: Exchange) -> None:
    exchange.line.reset()


async def reset_after_headers(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.line.pause(_TICK)
    exchange.line.reset()


async def short_body(exchange: Exchange) -> None:
    """A length is promised, half of it is sent, and the connection ends in good order."""
    body = _body(exchange)
    kind = "text/event-stream" if exchange.ask.stream else "application/json"
    await exchange.line.head(200, {"Content-Type": kind, "Content-Length": str(len(body))})
    await exchange.line.raw(body[: len(body) // 2])


async def eof_without_finish(exchange: Exchange) -> None:
    """The stream ends in good order, but nobody said that the answer was over."""
    whole = dump(exchange.ask.shape.whole(exchange.ask.said))
    await exchange.send(whole[:-2], _unfinished(exchange))


async def chunked_abort(exchange: Exchange) -> None:
    """The connection ends between two chunks, with no last one."""
    await exchange.begin()
    body = b"".join(_unfinished(exchange)) if exchange.ask.stream else _body(exchange)[:-9]
    await exchange.line.chunk(body)


async def bad_chunk(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.line.raw(b"zz\r\nwhat is this\r\n")


async def stream_error(exchange: Exchange) -> None:
    """It began well; then an error comes as an event. In one piece: the error is all there is."""
    shape = exchange.ask.shape
    events = [*_unfinished(exchange), shape.stream_error("overloaded in the middle of it")]
    await exchange.send(shape.error(500, "overloaded"), events)


async def cut_mid_json(exchange: Exchange) -> None:
    """An event is cut in the middle of its JSON, and the stream ends in good order."""
    *good, last = _unfinished(exchange)
    await exchange.send(_body(exchange)[:40], [*good, last[: len(last) // 2]])


async def slow_comments(exchange: Exchange) -> None:
    """Something always comes, and it never says anything: comments in a stream, blanks before the JSON."""
    await exchange.begin()
    await _drip(exchange, b": still here\n\n" if exchange.ask.stream else b" ")


async def slow_pings(exchange: Exchange) -> None:
    """Events that are valid and empty, for ever."""
    await exchange.begin()
    events = exchange.ask.shape.events(exchange.ask.said)
    ping = next((frame for frame in events if b'"ping"' in frame), events[0])
    await _drip(exchange, ping if exchange.ask.stream else b"\n")


async def slow_bytes(exchange: Exchange) -> None:
    """The right answer, a byte at a time."""
    await exchange.begin()
    for byte in _body(exchange):
        await exchange.line.chunk(bytes((byte,)))
        if not await exchange.line.pause(4 * _TICK):
            return
    await exchange.line.end()


async def slow_headers(exchange: Exchange) -> None:
    await exchange.line.raw(b"HTTP/1.1 200 OK\r\n")
    for number in range(int(_PATIENCE / _TICK)):
        await exchange.line.raw(b"x-%d: 1\r\n" % number)
        if not await exchange.line.pause(_TICK):
            return


async def late(exchange: Exchange) -> None:
    """A third of a second of thought before the first byte: nothing is wrong."""
    if await exchange.line.pause(0.3):
        await exchange.answer(exchange.ask.said)


async def hang_before_headers(exchange: Exchange) -> None:
    await exchange.line.pause(_PATIENCE)


async def hang_mid_stream(exchange: Exchange) -> None:
    """A good beginning, then silence on an open connection."""
    await exchange.begin()
    for frame in _unfinished(exchange) if exchange.ask.stream else [_body(exchange)[:30]]:
        await exchange.line.chunk(frame)
    await exchange.line.pause(_PATIENCE)


async def huge_body(exchange: Exchange) -> None:
    """200 MiB in one string that does not end; they are made as they are sent."""
    await exchange.begin()
    await exchange.line.chunk(b'data: {"choices": [{"delta": {"content": "' if exchange.ask.stream else b'{"id": "')
    block = b"a" * _BLOCK
    for _ in range(_HUGE // _BLOCK):
        await exchange.line.chunk(block)
    await exchange.line.end()


async def endless_events(exchange: Exchange) -> None:
    """Small, valid pieces of text, 200 MiB of them. In one piece: one text as long."""
    await exchange.begin()
    if exchange.ask.stream:
        events = exchange.ask.shape.events(exchange.ask.said)
        words = next(frame for frame in events if b'"content":"' in frame or b"text_delta" in frame)
        before = b"".join(events[: events.index(words)])
        block = words * (_BLOCK // len(words))
    else:
        before = b'{"text": "'
        block = b"a" * _BLOCK
    await exchange.line.chunk(before)
    for _ in range(_HUGE // len(block)):
        await exchange.line.chunk(block)
    await exchange.line.end()


async def gzip_bomb(exchange: Exchange) -> None:
    """A gigabyte of blanks in a megabyte of gzip. Whoever unpacks all of it finds that its checksum is wrong too."""
    await exchange.begin({"Content-Encoding": "gzip"})
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    blanks = b" " * (1024 * 1024)
    await exchange.line.chunk(packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH))
    # after a full flush the same input always packs to the same bytes, so it is packed once
    block = packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(1022):
        await exchange.line.chunk(block)
    await exchange.line.chunk(packer.flush())
    await exchange.line.end()


async def bad_gzip(exchange: Exchange) -> None:
    await exchange.line.whole(b"\x1f\x8bthis was never packed", headers={"Content-Encoding": "gzip"})


async def huge_header(exchange: Exchange) -> None:
    await exchange.line.raw(b"HTTP/1.1 200 OK\r\nx-much: ")
    block = b"a" * _BLOCK
    for _ in range(_HUGE // _BLOCK):
        await exchange.line.raw(block)


async def garbage(exchange: Exchange) -> None:
    """Not HTTP at all."""
    await exchange.line.raw(b"SSH-2.0-OpenSSH_9.9\r\n\r\n" + bytes(range(256)))


async def _drip(exchange: Exchange, data: bytes) -> None:
    for _ in range(int(_PATIENCE / _TICK)):
        await exchange.line.chunk(data)
        if not await exchange.line.pause(_TICK):
            return


def _body(exchange: Exchange) -> bytes:
    shape = exchange.ask.shape
    said = exchange.ask.said
    return b"".join(shape.events(said)) if exchange.ask.stream else dump(shape.whole(said))


def _unfinished(exchange: Exchange) -> list[bytes]:
    """The events of the answer up to its last words: nothing says that it is over."""
    events = exchange.ask.shape.events(exchange.ask.said)
    ends = (b'"finish_reason":"', b"message_delta")
    return events[: next(at for at, frame in enumerate(events) if any(end in frame for end in ends))]
