"""A talk on its way to a client: as JSON that keeps a slow call alive, or as events, word by word if it is wanted."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import msgspec
from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from chargehand.server.admission import StreamSlot
from chargehand.server.letta.message_shapes import FailureTold, MessageTold, StopTold, TalkTold, UsageTold
from chargehand.server.letta.shapes import moment
from chargehand.server.letta.talk import Piece, Talk
from chargehand.server.problem import Problem, problem_of
from chargehand.server.streams import event, streamed
from chargehand.server.wire import reply
from chargehand.terms.policy import Seconds

DONE = b"data: [DONE]\n\n"
_SIGN_OF_LIFE = b" \n"
_PING: Seconds = 15.0
_ENCODER = msgspec.json.Encoder()


class View(Struct, frozen=True):
    """What of a talk is wanted. `seen` messages are known already; `types` left out: all of them."""

    types: Sequence[str] | None = None
    tokens: bool = False
    pings: bool = False
    seen: int = 0


# --- whole


async def whole(talk: Talk, types: Sequence[str] | None, patience: Seconds) -> Response:
    """The answer once it is there. After `patience` without one, white space comes in between.

    A client that reads nothing for a minute would send its call again.
    """
    done, _ = await asyncio.wait((talk.done,), timeout=patience)
    if done:
        talk.done.result()
        return reply(talk.speech.told(talk.since, types))
    return StreamingResponse(_slowly(talk, types, patience), media_type="application/json")


async def _slowly(talk: Talk, types: Sequence[str] | None, patience: Seconds) -> AsyncIterator[bytes]:
    yield _SIGN_OF_LIFE
    while not (await asyncio.wait((talk.done,), timeout=patience))[0]:
        yield _SIGN_OF_LIFE
    error = talk.done.exception()
    yield _ENCODER.encode(_cut_off(talk, error) if error is not None else talk.speech.told(talk.since, types))


def _cut_off(talk: Talk, error: BaseException) -> TalkTold:
    """The status was sent long ago, so what went wrong is said in the answer."""
    said = _why(error)
    told = MessageTold(
        message_type="assistant_message",
        id=f"message-{uuid.uuid4()}",
        date=moment(time.time()),
        run_id=talk.run,
        content=said,
        is_err=True,
    )
    return TalkTold([told], StopTold("error"), UsageTold(run_ids=(talk.run,)))


def _why(error: BaseException) -> str:
    return problem_of(error).detail if isinstance(error, Exception) else "the call was cut off"


# --- event by event


def events(talk: Talk, view: View, slot: StreamSlot | None = None, *beside: AsyncGenerator[bytes]) -> Response:
    """The answer as it comes. A client that goes away stops nothing but what is done `beside` it."""
    return streamed(_parts(talk, view), *beside, every=_PING, slot=slot)


async def _parts(talk: Talk, view: View) -> AsyncGenerator[bytes]:
    streamed_words: dict[str, str] = {}
    async with aclosing(talk.heard(view.seen, _PING)) as heard:
        async for one in heard:
            if one is None:
                if view.pings:
                    yield event(_ping(talk))
            elif isinstance(one, Piece):
                if view.tokens:
                    streamed_words[one.message] = streamed_words.get(one.message, "") + one.words
                    yield event(_piece(talk, one))
            elif _wanted(talk, one, view) and (rest := _not_yet(one, streamed_words)) is not None:
                yield event(rest)
    await asyncio.wait((talk.done,), timeout=_PING)
    error = talk.done.exception() if talk.done.done() else None
    if error is not None:
        yield event(FailureTold(talk.run, _why(error)))
    yield event(StopTold("error" if error is not None else talk.speech.stop or "error"))
    yield event(talk.speech.usage)
    yield DONE


def _wanted(talk: Talk, one: MessageTold, view: View) -> bool:
    return not talk.speech.said_by_caller(one) and (view.types is None or one.message_type in view.types)


def _piece(talk: Talk, one: Piece) -> MessageTold:
    """Words of a message, under the id it will have. Without a number: whoever comes back gets all of it."""
    otid = one.message.partition("-")[2]
    return MessageTold(
        message_type="assistant_message",
        id=one.message,
        date=moment(time.time()),
        run_id=talk.run,
        otid=otid,
        content=one.words,
    )


def _not_yet(one: MessageTold, pieces: dict[str, str]) -> MessageTold | None:
    """What of a message its reader has not had in pieces; None if it has had all of it.

    Pieces are of an answer, as far as anybody knows. Where they turn out to be the thoughts before a call of a tool,
    all of them come again as such, under the same id: the last word on what a message is has the stream's end.
    """
    had = pieces.pop(one.id, "").strip()
    said = (one.content or "").strip()
    if not had or not said.startswith(had):
        return one
    rest = said[len(had) :]
    return msgspec.structs.replace(one, content=rest) if rest else None


def _ping(talk: Talk) -> MessageTold:
    return MessageTold(message_type="ping", id=f"ping-{uuid.uuid4()}", date=moment(time.time()), run_id=talk.run)


def refuse_callback(url: str | None) -> None:
    if url:
        raise Problem(
            422,
            "unsupported",
            "callback_url is not supported: this server calls nobody back; ask for the run, or read its stream",
        )
