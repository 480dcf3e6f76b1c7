"""A run as it comes: progress in lines, the answer word by word, and at the end what is still unsaid of it."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TypeAlias

from msgspec import Struct

from chargehand.server.house import House
from chargehand.server.openai.carried import settled
from chargehand.server.openai.ear import Ear, Line, Over
from chargehand.server.openai.outcome import Told, told
from chargehand.server.openai.progress import line
from chargehand.server.places import Seat
from chargehand.terms.events import Entry
from chargehand.terms.work import Work

_PIECE = 240  # characters of an answer that comes all at once
_ANEW = "\n\n(The text above was broken off. This is the whole answer.)\n\n"


class Progress(Struct, frozen=True):
    text: str


class Words(Struct, frozen=True):
    text: str


Part: TypeAlias = Progress | Words | Told


class Answering:
    """Puts the words of an answer together. What was sent cannot be taken back, so only what stays is sent.

    An answer that is begun anew after a failure is not sent as it comes: only what came of it, at the end.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._work: Work | None = None
        self._open = ""
        self.sent = ""

    def hear(self, work: Work, words: str) -> str:
        """What may be sent of these words: white space waits for what follows it, since the end has none."""
        if work.kind != self._kind or work != (self._work or work):
            return ""
        self._work = work
        said = self._open + words
        said = said if self.sent else said.lstrip()
        whole = said.rstrip()
        self._open = said[len(whole) :]
        self.sent += whole
        return whole

    def rest(self, text: str) -> Iterator[str]:
        """What is still to be said, in pieces."""
        left = text[len(self.sent) :] if text.startswith(self.sent) else _ANEW + text
        while left:
            cut = len(left) if len(left) <= _PIECE else left.rfind(" ", 0, _PIECE) + 1 or _PIECE
            yield left[:cut]
            left = left[cut:]


async def heard(house: House, run: str, ear: Ear) -> AsyncGenerator[Part]:
    """All of a run from its beginning, up to what came of it. Whoever stops listening stops nothing."""
    answer = Answering(ear.kind)
    last = 0
    error = None
    async with asyncio.TaskGroup() as jobs:
        tasks = jobs.create_task(_entries(house, run, ear.line)), jobs.create_task(_end(house, run, ear.line))
        try:
            while not isinstance(one := await ear.line.get(), Over):
                if isinstance(one, Entry):
                    last = one.seq
                    part: Part | None = Progress(said) if (said := line(one.event)) else None
                else:
                    part = Words(said) if (said := answer.hear(*one)) else None
                if part is not None:
                    yield part
            error = one.error
        except GeneratorExit:
            return  # a group of tasks would make an error of it
        finally:
            for task in tasks:
                task.cancel()
    if error is not None:
        raise error
    found = await settled(house, run)
    for entry in found.entries[last:]:
        if said := line(entry.event):
            yield Progress(said)
    came = told(found)
    for piece in answer.rest(came.text):
        yield Words(piece)
    yield came


async def _entries(house: House, run: str, line: Line) -> None:
    try:
        async for entry in house.feed.subscribe(run):
            line.put_nowait(entry)
    except Exception as error:  # noqa: BLE001 - told to whoever listens
        line.put_nowait(Over(error))


async def _end(house: House, run: str, line: Line) -> None:
    try:
        await settled(house, run)
    except Exception as error:  # noqa: BLE001 - as above
        line.put_nowait(Over(error))
    else:
        line.put_nowait(Over())


async def seated(parts: AsyncGenerator[bytes], seat: Seat) -> AsyncGenerator[bytes]:
    """A stream on its seat. When the server stops it is told why, so it must not be ended before it has said so."""
    try:
        async with aclosing(parts):
            async for part in parts:
                yield part
    finally:
        seat.leave()
