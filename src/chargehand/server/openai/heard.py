"""A run as it comes: progress in lines, the answer word by word, and at the end what is still unsaid of it."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TypeAlias

from msgspec import Struct

from chargehand.server.admission import StreamSlot
from chargehand.server.openai.carried import settled
from chargehand.server.openai.ear import Ear, Line, Over
from chargehand.server.openai.outcome import Told, told
from chargehand.server.tenants import Tenant
from chargehand.terms import events as ev
from chargehand.terms.events import Entry
from chargehand.terms.plan import Task
from chargehand.terms.work import Work

# --- progress of a run, in words

_ROOM = 160
_LISTED = 30
_DUTIES = {"plan": "planning", "answer": "writing the answer"}


def line(event: ev.Event) -> str:
    """What an event says to whoever looks on; nothing for most."""
    return _line_of_task(event) or _line_of_run(event)


def _line_of_run(event: ev.Event) -> str:
    match event:
        case ev.SupervisionStarted(duty=duty, why=why) if duty in _DUTIES:
            return f"{_DUTIES[duty]}{'' if why in ('first', 'more') else ' again'}\n"
        case ev.RunRequested(plan=plan) if plan is not None:
            return _planned(plan.tasks)
        case ev.TasksAdded(tasks=tasks) if tasks:
            return _planned(tasks)
        case ev.SupervisionFailed(duty=duty, failure=failure):
            return f"{_DUTIES.get(duty, duty)} failed: {_short(failure.message)}\n"
        case ev.TimeRanOut():
            return "the time is up; the answer is written from what there is\n"
        case ev.PauseSet(paused=paused):
            return "paused\n" if paused else "resumed\n"
        case ev.RunResumed():
            return "taken up again after a restart\n"
        case ev.InputRequested():
            return "a person is asked\n"
        case _:
            return ""


def _line_of_task(event: ev.Event) -> str:
    match event:
        case ev.AttemptStarted(task=task, attempt=attempt, worker=worker):
            return f"{task} {'started' if attempt == 1 else f'tried again ({attempt})'}: {worker}\n"
        case ev.AttemptSucceeded(task=task):
            return f"{task} done\n"
        case ev.AttemptFailed(task=task, failure=failure):
            return f"{task} failed: {_short(failure.message)}\n"
        case ev.RetryScheduled(task=task, worker=worker):
            return f"{task} is tried again{f' by {worker}' if worker else ''}\n"
        case ev.TaskRefined(task=task, instruction=instruction):
            return f"{task} was put in other words: {_short(instruction)}\n"
        case ev.ResultReused(task=task, run=run):
            return f"{task} taken over from {run}\n"
        case ev.TaskFailed(task=task, failure=failure):
            return f"{task} was given up: {_short(failure.message)}\n"
        case ev.TaskSkipped(task=task, reason=reason):
            return f"{task} skipped: {reason}\n"
        case _:
            return ""


def _planned(tasks: tuple[Task, ...]) -> str:
    lines = [f"plan: {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"]
    lines += [
        f"- {one.id}{f' ({one.worker})' if one.worker else ''}: {_short(one.instruction)}" for one in tasks[:_LISTED]
    ]
    if len(tasks) > _LISTED:
        lines.append(f"- and {len(tasks) - _LISTED} more")
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _ROOM else f"{plain[: _ROOM - 2]} …"


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


async def heard(tenant: Tenant, run: str, ear: Ear) -> AsyncGenerator[Part]:
    """All of a run from its beginning, up to what came of it. Whoever stops listening stops nothing."""
    answer = Answering(ear.kind)
    last = 0
    error = None
    async with asyncio.TaskGroup() as jobs:
        tasks = jobs.create_task(_entries(tenant, run, ear.line)), jobs.create_task(_end(tenant, run, ear.line))
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
    found = await settled(tenant, run)
    for entry in found.entries[last:]:
        if said := line(entry.event):
            yield Progress(said)
    came = told(found)
    for piece in answer.rest(came.text):
        yield Words(piece)
    yield came


async def _entries(tenant: Tenant, run: str, line: Line) -> None:
    try:
        async for entry in tenant.feed.subscribe(run):
            line.put_nowait(entry)
    except Exception as error:  # noqa: BLE001 - told to whoever listens
        line.put_nowait(Over(error))


async def _end(tenant: Tenant, run: str, line: Line) -> None:
    try:
        await settled(tenant, run)
    except Exception as error:  # noqa: BLE001 - as above
        line.put_nowait(Over(error))
    else:
        line.put_nowait(Over())


async def seated(parts: AsyncGenerator[bytes], slot: StreamSlot) -> AsyncGenerator[bytes]:
    """A stream on its seat. When the server stops it is told why, so it must not be ended before it has said so."""
    try:
        async with aclosing(parts):
            async for part in parts:
                yield part
    finally:
        slot.leave()
