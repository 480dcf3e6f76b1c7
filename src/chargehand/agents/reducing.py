"""Results that do not fit into a model's window, shortened until they do: piece by piece, side by side, then again.

Every piece keeps the ids of the tasks it comes from. What the budget does not cover is cut instead, from all results
alike. What the answer makes of them is not known here.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from chargehand.agents.asking import Bill, Writer
from chargehand.agents.crew import Hand
from chargehand.agents.history import tokens
from chargehand.agents.money import Held, hold
from chargehand.models.messages import Message, Request
from chargehand.tools.calling import capped
from chargehand.tools.tasks import BareTaskGroup

_SHARE = 0.5  # of the window that results may take before they are reduced first
_ROUNDS = 4
_ABREAST = 8
_PIECES = 64  # a round
_LONGEST_PIECE = 2_048  # tokens a piece is shortened to, as far as nothing else is set
_CHARACTERS = 3  # a token of a piece, with room for the prompt around it
_BREAKS = ("\n", "\\n", ". ", " ")  # where a slice may end, best first; in JSON a new line is a backslash and an n
_OPENING = re.compile(r"^<data [0-9a-f]+ from \"task (?P<task>[^\",\s]+)[^\"\n]*\">\n", re.MULTILINE)
_WRAPPED = re.compile(r"(<data ([0-9a-f]+) from \"[^\"\n]*\">\n)(.*)(\n</data \2>\s*)", re.DOTALL)


Piece: TypeAlias = tuple[str, tuple[str, ...]]  # some text, and the tasks whose results are in it


async def reduced(writer: Writer, bill: Bill, hand: Hand, goal: str, text: str, lost: list[str] | None = None) -> str:
    """The text of the results as it is, if it fits, else shortened. What had to be left out is added to `lost`."""
    lost = [] if lost is None else lost
    room = int(writer.model.card.window * _SHARE)
    if tokens(text) <= room:
        return text
    held = by_result(text)
    for _ in range(_ROUNDS):
        hand.note(f"the results take {tokens(text)} tokens, {room} fit: they are reduced first")
        wanted = pieces(held, room * _CHARACTERS)
        if len(wanted) > _PIECES:
            lost.append(f"{len(wanted) - _PIECES} of {len(wanted)} pieces of the results are too much and left out")
            hand.note(lost[-1])
        requests = [_request(writer, goal, piece, tasks) for piece, tasks in wanted[:_PIECES]]
        calls = await _covered(writer, hand, requests)
        if not calls:
            lost.append(f"the budget does not cover the {len(requests)} calls that takes: all results are cut instead")
            hand.note(lost[-1])
            return evenly(held, room * _CHARACTERS)
        held = await _round(writer=writer, bill=bill, hand=hand, calls=calls, held=wanted[:_PIECES], lost=lost)
        before = len(text)
        text = "".join(short for short, _ in held).rstrip()
        if tokens(text) <= room:
            return text
        if len(text) >= before:  # a model that does not shorten will not the next time
            break
    lost.append("the results could not be reduced enough: all of them are cut")
    hand.note(lost[-1])
    return evenly(held, room * _CHARACTERS)


def by_result(text: str) -> list[Piece]:
    """The text of the results, one by one, each with its task."""
    starts = [(match.start(), (match["task"],)) for match in _OPENING.finditer(text)]
    bounds = starts if starts and not starts[0][0] else [(0, ()), *starts]
    ends = [start for start, _ in bounds[1:]] + [len(text)]
    return [(text[start:end], tasks) for (start, tasks), end in zip(bounds, ends, strict=True)]


def pieces(held: Sequence[Piece], size: int) -> list[Piece]:
    """The texts in pieces of at most so many characters: short ones together, long ones in slices."""
    found: list[Piece] = []
    gathered = ""
    tasks = ()
    for text, names in held:
        for part in _slices(text, max(1, size)):
            if gathered and len(gathered) + len(part) > size:
                found.append((gathered, tasks))
                gathered = ""
                tasks = ()
            gathered += part
            tasks = tuple(dict.fromkeys((*tasks, *names)))
    return [*found, (gathered, tasks)] if gathered else found


def _slices(text: str, size: int) -> Iterator[str]:
    """A statement cut in two is lost to both slices: each ends with a line, a sentence or a word, where it can."""
    start = 0
    while len(text) - start > size:
        least = start + size * 3 // 4
        end = start + size
        late = (found + len(mark) for mark in _BREAKS if (found := text.rfind(mark, least, end)) >= 0)
        end = next(late, end)
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def evenly(held: Sequence[Piece], size: int) -> str:
    """The texts together in about so many bytes: short ones as they are, the others each cut to the same length."""
    lengths = sorted(len(text.encode(errors="replace")) for text, _ in held)
    left = size
    level = 0
    for place, length in enumerate(lengths):
        level = left // (len(lengths) - place)
        if length > level:
            break
        left = left - length
        level = length
    return "".join(_cut(text, level) for text, _ in held).rstrip()


def _cut(text: str, size: int) -> str:
    """A text in about so many bytes; an envelope is closed again behind what is left in it."""
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is None:
        return capped(text, size)[0] + ("\n\n" if text.endswith("\n\n") else "")
    around = len(wrapped[1].encode(errors="replace")) + len(wrapped[4])
    return f"{wrapped[1]}{capped(wrapped[3], max(0, size - around))[0]}{wrapped[4]}"


def _request(writer: Writer, goal: str, piece: str, tasks: tuple[str, ...]) -> Request:
    named = f"From {', '.join(f'[{task}]' for task in tasks)}:\n" if tasks else ""
    messages = (
        Message("system", writer.prompts.text("reduce")),
        Message("user", f"Request: {goal}\n\n{named}{piece}"),
    )
    return Request(messages, settings=writer.settings)


async def _covered(writer: Writer, hand: Hand, requests: Sequence[Request]) -> list[Held]:
    """The calls of a whole round as they may be made, with money held for all of them; none where it is too little."""
    calls: list[Held] = []
    for request in requests:
        held = await hold(
            hand, writer.purse, writer.model, request, writer.reserve, covered=False, at_most=_LONGEST_PIECE
        )
        if held is None:
            for call in calls:
                hand.release(call.amount)
            return []
        calls.append(held)
    return calls


async def _round(
    writer: Writer, bill: Bill, hand: Hand, calls: Sequence[Held], held: Sequence[Piece], lost: list[str]
) -> list[Piece]:
    gate = asyncio.Semaphore(_ABREAST)

    async def one(call: Held, tasks: tuple[str, ...]) -> Piece:
        async with gate:
            reply = await bill.ask(writer, call, hand)
        short = reply.text.strip()
        if reply.finish == "length":
            lost.append(f"what is left of {', '.join(tasks) or 'a piece'} was cut off while it was shortened")
            hand.note(lost[-1])
        unnamed = [task for task in tasks if f"[{task}]" not in short]
        return (f"[{', '.join(unnamed)}]: {short}" if unnamed else short) + "\n\n", tasks

    async with BareTaskGroup() as jobs:
        made = [jobs.create_task(one(call, piece[1])) for call, piece in zip(calls, held, strict=True)]
    return [task.result() for task in made]
