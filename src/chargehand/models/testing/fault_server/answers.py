"""Faults in what is answered: the connection is fine and the status is 200, but the answer is not.

Some are no faults at all, only unusual: a client must take them as they are.
"""

from msgspec.structs import replace

from chargehand.models.testing.fault_server.blocks import call_frames as block_frames
from chargehand.models.testing.fault_server.chat import ChatShape
from chargehand.models.testing.fault_server.chat import call_frames as chat_frames
from chargehand.models.testing.fault_server.exchange import Exchange
from chargehand.models.testing.fault_server.shapes import Called, Said, dump

_CALL = Called(id="call_1", name="look_up", arguments='{"word": "ostrich"}')
_PAGE = b"<!doctype html><html><body><h1>Welcome to the guest network</h1></body></html>"


async def ok(exchange: Exchange) -> None:
    await exchange.answer(exchange.ask.said)


async def bad_json(exchange: Exchange) -> None:
    await exchange.send(b'{"id": "x", "choices": [{]', [b'data: {"id": "x", "choices": [{]\n\n'])


async def html(exchange: Exchange) -> None:
    await exchange.line.whole(_PAGE, content_type="text/html; charset=utf-8")


async def empty_body(exchange: Exchange) -> None:
    await exchange.send(b"", [])


async def hollow(exchange: Exchange) -> None:
    """A well-formed reply with no choice, or no block, in it."""
    shape = exchange.ask.shape
    if isinstance(shape, ChatShape):
        events = [b"data: " + dump(shape.hollow()) + b"\n\n", b"data: [DONE]\n\n"]
    else:
        events = shape.events(Said(None, usage=(1, 0)))
    await exchange.send(shape.hollow(), events)


async def wrong_schema(exchange: Exchange) -> None:
    await exchange.send(b'{"hello": ["world"]}', [b'data: {"hello": ["world"]}\n\n'])


async def error_in_200(exchange: Exchange) -> None:
    body = exchange.ask.shape.error(500, "the model is overloaded")
    await exchange.send(body, [b"data: " + dump(body) + b"\n\n"])


async def two_jsons(exchange: Exchange) -> None:
    shape = exchange.ask.shape
    said = exchange.ask.said
    twice = [frame.rstrip(b"\n") + frame.partition(b"data: ")[2] for frame in shape.events(said)]
    await exchange.send(dump(shape.whole(said)) * 2, twice)


async def null_content(exchange: Exchange) -> None:
    await exchange.answer(Said(None, usage=(5, 0)))


async def length(exchange: Exchange) -> None:
    await exchange.answer(replace(exchange.ask.said, why="length"))


async def refused(exchange: Exchange) -> None:
    await exchange.answer(Said("I cannot", (), "refused", (5, 2)))


async def usage_missing(exchange: Exchange) -> None:
    await exchange.answer(replace(exchange.ask.said, usage=None))


async def usage_negative(exchange: Exchange) -> None:
    await exchange.answer(replace(exchange.ask.said, usage=(-1000, -500)))


async def usage_absurd(exchange: Exchange) -> None:
    await exchange.answer(replace(exchange.ask.said, usage=(10**15, 10**15)))


async def duplicate_call_ids(exchange: Exchange) -> None:
    other = Called(id=_CALL.id, name="send_mail", arguments='{"to": "everybody"}')
    await exchange.answer(Said(None, (_CALL, other), "tools", (9, 9)))


async def wrong_call_index(exchange: Exchange) -> None:
    """The arguments go to a call that was never begun; in one piece there is no index, so it is missing there."""
    shape = exchange.ask.shape
    said = Said(None, (_CALL,), "tools", (9, 9))
    frames_of = chat_frames if isinstance(shape, ChatShape) else block_frames
    good = frames_of(0, 0, _CALL)
    bad = frames_of(0, 7, _CALL)
    events = shape.events(said)
    at = events.index(good[0])
    nameless = replace(said, calls=(replace(_CALL, name=""),))
    await exchange.send(shape.whole(nameless), [*events[:at], *bad, *events[at + len(good) :]])


async def bad_arguments(exchange: Exchange) -> None:
    await exchange.answer(Said(None, (replace(_CALL, arguments='{"word": "ostr'),), "tools", (9, 9)))


async def wrong_content_type(exchange: Exchange) -> None:
    """The right answer under the wrong label: careless, and seen in the wild."""
    shape = exchange.ask.shape
    said = exchange.ask.said
    body = b"".join(shape.events(said)) if exchange.ask.stream else dump(shape.whole(said))
    await exchange.line.whole(body, content_type="text/plain")


async def stream_unasked(exchange: Exchange) -> None:
    """A stream for who wanted one piece, and one piece for who wanted a stream."""
    shape = exchange.ask.shape
    said = exchange.ask.said
    if exchange.ask.stream:
        return await exchange.line.whole(dump(shape.whole(said)))
    return await exchange.line.whole(b"".join(shape.events(said)), content_type="text/event-stream")


async def bad_utf8(exchange: Exchange) -> None:
    shape = exchange.ask.shape
    said = replace(exchange.ask.said, text="caf@")
    frames = [frame.replace(b"@", b"\xc3\x28") for frame in shape.events(said)]
    await exchange.send(dump(shape.whole(said)).replace(b"@", b"\xc3\x28"), frames)


async def split_utf8(exchange: Exchange) -> None:
    """Every byte is right, but characters are cut in two between packets: legal."""
    shape = exchange.ask.shape
    said = replace(exchange.ask.said, text="Grüße, 世界 🦩")
    body = b"".join(shape.events(said)) if exchange.ask.stream else dump(shape.whole(said))
    await exchange.begin()
    for at in range(0, len(body), 3):
        await exchange.line.chunk(body[at : at + 3])
    await exchange.line.end()


async def odd_lines(exchange: Exchange) -> None:
    """Carriage returns, comments, unknown fields and empty events between the real ones: legal."""
    shape = exchange.ask.shape
    said = exchange.ask.said
    events = [b": hello\r\n\r\nid: 1\r\nretry: 10\r\n" + e.replace(b"\n", b"\r\n") for e in shape.events(said)]
    await exchange.send(b"\r\n \t" + dump(shape.whole(said)) + b"\r\n", events)


async def deep_json(exchange: Exchange) -> None:
    """Brackets nested a hundred thousand deep: a parser that recurses falls over."""
    deep = b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    await exchange.send(deep, [b"data: " + deep + b"\n\n"])
