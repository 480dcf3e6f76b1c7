"""A talk under way: what was said so far, and ears that hear the rest as it comes. How it is sent is not known here."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from chargehand.server.letta.asked import Asked
from chargehand.server.letta.message_shapes import MessageTold
from chargehand.server.letta.speech import Speech
from chargehand.server.problem import Problem
from chargehand.terms.events import Entry
from chargehand.terms.policy import Seconds

_MOST_PIECES = 10_000  # that wait for a slow reader; what is dropped comes with the whole message


class Piece(Struct, frozen=True):
    """A few words as they come, and the message they become."""

    message: str
    words: str


class Talk:
    """`since` messages were there when whoever waits for this began to. `over`: nothing more is heard for now."""

    def __init__(self, speech: Speech, asked: Asked | None = None, *, aloud: bool = False) -> None:
        self.speech = speech
        self.asked = asked or speech.asked
        self.aloud = aloud
        self.since = 0
        self.over = speech.over
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self._ears: set[Ear] = set()

    @property
    def run(self) -> str:
        return self.speech.run

    @property
    def agent(self) -> str:
        return self.speech.agent

    @property
    def lane(self) -> str:
        """Where calls are heard one after the other: a conversation, or the agent."""
        return self.asked.lane if self.asked is not None else self.speech.lane

    def joined_by(self, asked: Asked) -> "Talk":
        """For one whose marks are those of this talk. Other words under them must not get lost in silence: 409."""
        if self.asked is not None and self.asked.said != asked.said:
            said = "a message with this otid was sent before, with other words; send it with an otid of its own"
            raise Problem(409, "otid_taken", said)
        return self

    def hear(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.speech.hear(entry)
        self._ring()

    def whisper(self, message: str, words: str) -> None:
        for ear in self._ears:
            ear.pieces.append((len(self.speech.messages), Piece(message, words)))
            ear.bell.set()

    def started(self, error: Exception | None = None) -> None:
        """It is on disk, or could not be begun: whoever joined hears the same."""
        _settle(self.begun, error)

    def close(self) -> None:
        """Nothing more comes, or not before somebody goes on with it."""
        self.over = True
        self._ring()

    def finish(self, error: Exception | None = None) -> None:
        """All of it is written up, or it was cut off."""
        self.close()
        _settle(self.done, error)

    def _ring(self) -> None:
        for ear in self._ears:
            ear.bell.set()

    async def heard(self, seen: int, patience: Seconds) -> AsyncGenerator[MessageTold | Piece | None]:
        """What was said after message number `seen`, and pieces of words, in the order they came, up to the end.

        None says that nothing came for so long.
        """
        ear = Ear()
        self._ears.add(ear)
        said = self.speech.messages
        try:
            while True:
                upto = ear.pieces[0][0] if ear.pieces else len(said)
                while seen < upto:
                    seen += 1
                    yield said[seen - 1]
                if ear.pieces:
                    yield ear.pieces.popleft()[1]
                elif len(said) > seen:
                    continue
                elif self.over:
                    return
                elif not await ear.rung(patience):
                    yield None
        finally:
            self._ears.discard(ear)


def _settle(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
        return
    future.set_exception(error)
    future.exception()  # nobody may be waiting


class Ear:
    """What waits for one reader."""

    def __init__(self) -> None:
        self.pieces: deque[tuple[int, Piece]] = deque(maxlen=_MOST_PIECES)
        self.bell = asyncio.Event()

    async def rung(self, patience: Seconds) -> bool:
        """Whether anything came in time."""
        try:
            async with asyncio.timeout(patience):
                await self.bell.wait()
        except TimeoutError:
            return False
        self.bell.clear()
        return True
