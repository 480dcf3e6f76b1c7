"""A session: one run as its client follows it, whole or as it comes."""

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
from chargehand.server.letta.message_log import MessageLog
from chargehand.server.letta.wire import ErrorMessage, LettaMessage, StopReason, format_time
from chargehand.server.streams import Output, event, streamed
from chargehand.server.tenant_runs import StreamSlot
from chargehand.server.wire import problem_of, reply

_DONE = b"data: [DONE]\n\n"
_SIGN_OF_LIFE = b" \n"
_PING: Seconds = 15.0


class _TextPiece(Struct, frozen=True):
    """Some text as it comes. `id` is that of the message that it becomes part of."""

    id: str
    text: str


class Session:
    """A run as its client follows it. `root` is the run it is inside of, or itself.

    `is_shared`: other servers use the same index, so the client must not be told of an end that is not indexed.
    """

    def __init__(
        self, log: MessageLog, *, root: str = "", streams_tokens: bool = False, is_shared: bool = False
    ) -> None:
        self.log = log
        self._is_shared = is_shared
        self.root = root or log.run
        self.streams_tokens = streams_tokens
        self.begun = asyncio.Event()
        """Set when its first new entry is on disk, or it could not be begun."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the run has ended or waits for its client."""
        self._output = Output[LettaMessage | _TextPiece](log.messages)

    @property
    def run(self) -> str:
        return self.log.run

    # --- what happens

    def record(self, entries: Sequence[Entry]) -> None:
        before = len(self.log.messages)
        for entry in entries:
            self.log.read(entry)
        self._output.add(*self.log.messages[before:])
        if self.log.over and not self._is_shared:  # it is on disk: clients need not wait until it is indexed
            self.finish()

    def record_text(self, message: str, text: str) -> None:
        self._output.add(_TextPiece(message, text))

    def finish(self, error: Exception | None = None) -> None:
        """Nothing more comes, or not before the client answers."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
            self.done.exception()  # it counts as seen, if no caller waits for it
        self._output.close(error)

    # --- how clients follow it

    async def respond(self, types: Sequence[str] | None, patience: Seconds) -> Response:
        """The whole answer. After `patience` without one, white space keeps the call alive.

        A client that reads nothing for a minute would send its call again.
        """
        if await self._is_done_within(patience):
            self.done.result()
            return reply(self.log.describe_answer(types))
        return StreamingResponse(self._respond_slowly(types, patience), media_type="application/json")

    async def _respond_slowly(self, types: Sequence[str] | None, patience: Seconds) -> AsyncIterator[bytes]:
        yield _SIGN_OF_LIFE
        while not await self._is_done_within(patience):
            yield _SIGN_OF_LIFE
        answer = self.log.describe_answer(types)
        if (error := self.done.exception()) is not None:  # the status was sent long ago
            answer.messages = [self._message(_describe(error))]
            answer.stop_reason = StopReason("error")
        yield msgspec.json.encode(answer)

    async def _is_done_within(self, patience: Seconds) -> bool:
        return bool((await asyncio.wait((self.done,), timeout=patience))[0])

    def stream(self, slot: StreamSlot, *, types: Sequence[str] | None = None, after: int = 0) -> Response:
        """The messages after number `after` as they come. A client that goes away stops nothing."""
        return streamed(self._events(types, after), every=_PING, slot=slot)

    async def _events(self, types: Sequence[str] | None, after: int) -> AsyncGenerator[bytes]:
        stop = ""
        sent_text: dict[str, str] = {}
        sent_before = {message.id for message in self.log.messages[:after]}
        try:
            async with aclosing(self._output.read()) as items:
                async for item in items:
                    if item.id in sent_before:
                        continue
                    if isinstance(item, _TextPiece):
                        sent_text[item.id] = sent_text.get(item.id, "") + item.text
                        yield event(self._message(item.text, item.id))
                    elif self.log.is_wanted(item, types):
                        rest = _without_sent(item, sent_text.pop(item.id, "").strip())
                        if rest is not None:
                            yield event(rest)
        except Exception as error:  # noqa: BLE001 - the client is told
            stop = "error"
            yield event(ErrorMessage(self.run, _describe(error)))
        yield event(StopReason(stop or self.log.stop or "error"))
        yield event(self.log.usage)
        yield _DONE

    def _message(self, text: str, message_id: str = "") -> LettaMessage:
        """A message that is not in the log. It has no number: a client that comes back gets the whole one."""
        return LettaMessage(
            message_type="assistant_message",
            id=message_id or f"message-{uuid.uuid4()}",
            date=format_time(time.time()),
            run_id=self.run,
            otid=message_id.partition("-")[2] or None,
            content=text,
        )


def _describe(error: BaseException) -> str:
    return problem_of(error).detail if isinstance(error, Exception) else "the call was cut off"


def _without_sent(message: LettaMessage, sent: str) -> LettaMessage | None:
    """What of a message its reader has not had in pieces; None if it has had all of it.

    Pieces are sent as those of an answer. If they turn out to be thoughts before a tool call, all of them come again as
    such, under the same id.
    """
    text = (message.content or "").strip()
    if not sent or not text.startswith(sent):
        return message
    rest = text[len(sent) :]
    return msgspec.structs.replace(message, content=rest) if rest else None
