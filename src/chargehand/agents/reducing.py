"""Results that do not fit into a model's window, shortened until they do: piece by piece, side by side, then again.

Every piece keeps the ids of the tasks it comes from. What the answer makes of them is not known here.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import TypeAlias

from chargehand.agents.asking import Bill, Writer
from chargehand.agents.crew import Hand
from chargehand.agents.history import tokens
from chargehand.models.messages import Message, Request
from chargehand.tools.calling import capped

_SHARE = 0.5  # of the window that results may take before they are reduced first
_ROUNDS = 4
_ABREAST = 8
_PIECES = 64  # a round
_CHARACTERS = 3  # a token of a piece, with room for the prompt around it
_OPENING = re.compile(r"^<data [0-9a-f]+ from \"task (?P<task>[^\",\s]+)[^\"\n]*\">\n", re.MULTILINE)


Piece: TypeAlias = tuple[str, tuple[str, ...]]  # some text, and the tasks whose results are in it


async def reduced(writer: Writer, bill: Bill, hand: Hand, goal: str, text: str) -> str:
    """The text of the results as it is, if it fits, else shortened."""
    room = int(writer.model.card.window * _SHARE)
    if tokens(text) <= room:
        return text
    held = by_result(text)
    for _ in range(_ROUNDS):
        hand.note(f"the results take {tokens(text)} tokens, {room} fit: they are reduced first")
        wanted = pieces(held, room * _CHARACTERS)
        if len(wanted) > _PIECES:
            hand.note(f"{len(wanted) - _PIECES} of {len(wanted)} pieces of the results are too much and left out")
        held = await _round(writer, bill, goal, wanted[:_PIECES])
        before, text = len(text), "".join(short for short, _ in held).rstrip()
        if tokens(text) <= room:
            return text
        if len(text) >= before:  # a model that does not shorten will not the next time
            break
    hand.note("the results could not be reduced enough: the end of them is cut")
    return capped(text, room * _CHARACTERS)[0]


def by_result(text: str) -> list[Piece]:
    """The text of the results, one by one, each with its task."""
    starts = [(match.start(), (match["task"],)) for match in _OPENING.finditer(text)]
    bounds = starts if starts and not starts[0][0] else [(0, ()), *starts]
    ends = [start for start, _ in bounds[1:]] + [len(text)]
    return [(text[start:end], tasks) for (start, tasks), end in zip(bounds, ends, strict=True)]


def pieces(held: Sequence[Piece], size: int) -> list[Piece]:
    """The texts in pieces of at most so many characters: short ones together, long ones in slices."""
    found: list[Piece] = []
    gathered, tasks = "", ()
    for text, names in held:
        for part in (text[at : at + size] for at in range(0, len(text), size)):
            if gathered and len(gathered) + len(part) > size:
                found.append((gathered, tasks))
                gathered, tasks = "", ()
            gathered += part
            tasks = tuple(dict.fromkeys((*tasks, *names)))
    return [*found, (gathered, tasks)] if gathered else found


async def _round(writer: Writer, bill: Bill, goal: str, held: Sequence[Piece]) -> list[Piece]:
    gate = asyncio.Semaphore(_ABREAST)
    system = Message("system", writer.prompts.text("reduce"))

    async def one(piece: str, tasks: tuple[str, ...]) -> Piece:
        named = f"From {', '.join(f'[{task}]' for task in tasks)}:\n" if tasks else ""
        messages = (system, Message("user", f"Request: {goal}\n\n{named}{piece}"))
        async with gate:
            reply = await bill.ask(writer, Request(messages, settings=writer.settings))
        short = reply.text.strip()
        lost = [task for task in tasks if f"[{task}]" not in short]
        return (f"[{', '.join(lost)}]: {short}" if lost else short) + "\n\n", tasks

    try:
        async with asyncio.TaskGroup() as calls:
            made = [calls.create_task(one(piece, tasks)) for piece, tasks in held]
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group
    return [task.result() for task in made]
