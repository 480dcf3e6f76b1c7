"""A run under way as its clients follow it: its messages, its text as it comes, and the responses made of both."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import msgspec
from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from chargehand.engine.events import Entry
from chargehand.engine.policy import Seconds
from chargehand.server.admission import StreamSlot
from chargehand.server.letta.message_log import MessageLog
from chargehand.server.letta.request import AgentRequest
from chargehand.server.letta.wire import ErrorMessage, Message, StopReason, format_time
from chargehand.server.problem import Problem, problem_of
from chargehand.server.streams import PING, Output, event, streamed
from chargehand.server.wire import reply

_DONE = b"data: [DONE]\n\n"
_SIGN_OF_LIFE = b" \n"
_PING: Seconds = 15.0


class _TextPiece(Struct, frozen=True):
    """Some text as it comes, and the id of the message that it becomes part of."""

    message: str
    text: str


class View(Struct, frozen=True):
    """What of a session a client wants: messages of these types after number `after`, pieces, pings."""

    types: Sequence[str] | None = None
    tokens: bool = False
    pings: bool = False
    after: int = 0


class Session:
    """A run that is carried here. `root` is the run it is inside of, or itself."""

    def __init__(self, log: MessageLog, *, root: str = "", streams_tokens: bool = False) -> None:
        self.log = log
        self.root = root or log.run
        self.streams_tokens = streams_tokens
        self.since = 0
        """How many messages there were when its latest client began to wait."""
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = loop.create_future()
        """Done when the run is on disk."""
        self.done: asyncio.Future[None] = loop.create_future()
        """Done when the run has ended or waits for its client."""
        self._output = Output[Message | _TextPiece](log.messages)

    @property
    def run(self) -> str:
        return self.log.run

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes, or not before the client answers."""
        return self._output.is_closed

    def check_same(self, request: AgentRequest) -> "Session":
        """Return the session for a request with the same otids; 409 if it has other words, which must not get lost."""
        if self.log.request is not None and self.log.request.messages != request.messages:
            advice = "send it with an otid of its own"
            raise Problem(409, "otid_taken", f"a message with this otid was sent before, with other words; {advice}")
        return self

    # --- what happens

    def record(self, entries: Sequence[Entry]) -> None:
        before = len(self.log.messages)
        for entry in entries:
            self.log.read(entry)
        self._output.add(*self.log.messages[before:])

    def record_text(self, message: str, text: str) -> None:
        self._output.add(_TextPiece(message, text))

    def start(self, error: Exception | None = None) -> None:
        """The run is on disk, or could not be started."""
        _settle(self.started, error)

    def finish(self, error: Exception | None = None) -> None:
        """Nothing more comes, or not before the client answers."""
        if not self.done.done():
            self.start(error)
            _settle(self.done, error)
            self._output.close(error)

    # --- how clients follow it

    async def respond(self, types: Sequence[str] | None, patience: Seconds) -> Response:
        """The whole answer. After `patience` without one, white space keeps the call alive.

        A client that reads nothing for a minute would send its call again.
        """
        if await self._is_done_within(patience):
            self.done.result()
            return reply(self.log.describe_answer(self.since, types))
        return StreamingResponse(self._respond_slowly(types, patience), media_type="application/json")

    async def _respond_slowly(self, types: Sequence[str] | None, patience: Seconds) -> AsyncIterator[bytes]:
        yield _SIGN_OF_LIFE
        while not await self._is_done_within(patience):
            yield _SIGN_OF_LIFE
        answer = self.log.describe_answer(self.since, types)
        if (error := self.done.exception()) is not None:  # the status was sent long ago
            answer.messages = [self._message("assistant_message", content=_describe(error), is_err=True)]
            answer.stop_reason = StopReason("error")
        yield msgspec.json.encode(answer)

    async def _is_done_within(self, patience: Seconds) -> bool:
        return bool((await asyncio.wait((self.done,), timeout=patience))[0])

    def stream(self, view: View, slot: StreamSlot) -> Response:
        """The answer as it comes, event by event. A client that goes away stops nothing."""

        def ping() -> bytes:
            return event(self._message("ping")) if view.pings else PING

        return streamed(self._events(view), ping=ping, every=_PING, slot=slot)

    async def _events(self, view: View) -> AsyncGenerator[bytes]:
        stop = ""
        sent_text: dict[str, str] = {}
        try:
            async with aclosing(self._output.read(self._position_after(view.after))) as items:
                async for item in items:
                    if isinstance(item, _TextPiece):
                        if view.tokens:
                            sent_text[item.message] = sent_text.get(item.message, "") + item.text
                            yield event(self._message("assistant_message", item.message, content=item.text))
                    elif self.log.is_wanted(item, view.types):
                        rest = _without_sent(item, sent_text.pop(item.id, "").strip())
                        if rest is not None:
                            yield event(rest)
        except Exception as error:  # noqa: BLE001 - the client is told
            stop = "error"
            yield event(ErrorMessage(self.run, _describe(error)))
        yield event(StopReason(stop or self.log.stop or "error"))
        yield event(self.log.usage)
        yield _DONE

    def _position_after(self, number: int) -> int:
        """The place in the output after a message."""
        for place, item in enumerate(self._output.items, 1):
            if isinstance(item, Message) and item.seq_id == number:
                return place
        return number

    def _message(
        self, message_type: str, message_id: str = "", *, content: str | None = None, is_err: bool | None = None
    ) -> Message:
        """A message that is not in the log. It has no number: a client that comes back gets the whole one."""
        return Message(
            message_type=message_type,
            id=message_id or f"message-{uuid.uuid4()}",
            date=format_time(time.time()),
            run_id=self.run,
            otid=message_id.partition("-")[2] or None,
            content=content,
            is_err=is_err,
        )


def _describe(error: BaseException) -> str:
    return problem_of(error).detail if isinstance(error, Exception) else "the call was cut off"


def _without_sent(message: Message, sent: str) -> Message | None:
    """What of a message its reader has not had in pieces; None if it has had all of it.

    Pieces are sent as those of an answer. If they turn out to be thoughts before a tool call, all of them come again as
    such, under the same id.
    """
    text = (message.content or "").strip()
    if not sent or not text.startswith(sent):
        return message
    rest = text[len(sent) :]
    return msgspec.structs.replace(message, content=rest) if rest else None


def _settle(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
        return
    future.set_exception(error)
    future.exception()  # it counts as seen, if no caller waits for it
