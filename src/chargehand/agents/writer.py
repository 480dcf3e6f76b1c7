"""The model that writes answers and judges results: its calls, and results reduced until it can read them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, structs

from chargehand.agents.inputs import origin_of, value_text
from chargehand.agents.spending import Reservation
from chargehand.agents.supervision import ASKER, SupervisorCalls, SupervisorRole
from chargehand.concurrency import BareTaskGroup
from chargehand.engine.budget import NOTHING
from chargehand.models.messages import Message, Reply, Request, wrap
from chargehand.models.request_facts import Given
from chargehand.models.token_count import measure
from chargehand.runtime.executor import StepContext
from chargehand.text.citations import cite, cited_tasks
from chargehand.tools.calling import capped


class Writer(SupervisorRole, kw_only=True):
    """The model that writes answers and judges results."""

    own: Callable[..., object] | None = None
    """A function that answers instead: it is given the goal, results and gaps."""
    takes_turns: bool = False
    """Each task is a turn that reads those before it: all of them are selected from and voted on, not only the last."""


class WriterCalls(SupervisorCalls):
    """The calls for one answer."""

    def __init__(self, writer: Writer, context: StepContext) -> None:
        super().__init__(writer, context)
        self.writer = writer
        self.lost: list[str] = []
        """What of the results the writer did not get to read, in words."""

    def lose(self, what: str) -> None:
        self.lost.append(what)
        self.context.note(what)


# --- results made to fit the writer's window


_WINDOW_SHARE = 0.5  # that results may take before they are reduced
_MAX_ROUNDS = 4
_CONCURRENCY = 8
_MAX_CALLS = 64  # a round
_MAX_TOKENS = 2_048  # that a piece is shortened to, as far as nothing else is set
_PIECE_SHARE = 0.75  # of the room, for a piece: the prompt stands around it
_BREAKS = ("\n", "\\n", ". ", " ")  # where a slice may end, best first; in JSON a new line is a backslash and an n


class Piece(Struct, frozen=True, gc=False):
    """Some text, and the tasks whose results are in it. One with an `origin` is data, and shown as such."""

    text: str
    tasks: tuple[str, ...]
    origin: str = ""


def result_pieces(results: Sequence[Given]) -> list[Piece]:
    """Each result as a model reads it."""
    return [Piece(value_text(result.value), (result.task,), origin_of(result)) for result in results]


def join_pieces(pieces: Sequence[Piece], nonce: str) -> str:
    return "\n\n".join(wrap(nonce, piece.origin, piece.text) if piece.origin else piece.text for piece in pieces)


async def reduce_results(calls: WriterCalls, goal: str, pieces: Sequence[Piece], nonce: str) -> Sequence[Piece]:
    """The results as they are, if they fit, else shortened. What had to be left out is added to what is lost."""
    room = int(calls.model.card.window * _WINDOW_SHARE)
    rates = calls.writer.rates
    text = join_pieces(pieces, nonce)
    rounds = 0
    while (tokens := rates.estimate(measure(text))) > room:
        rounds += 1
        calls.context.note(f"the results take {tokens} tokens, {room} fit: they are reduced first")
        share = _PIECE_SHARE * room / tokens  # of the text, for a piece
        groups = group_pieces(pieces, int(share * len(text)))
        if len(groups) > _MAX_CALLS:
            calls.lose(f"{len(groups) - _MAX_CALLS} of {len(groups)} pieces of the results are too much and left out")
            groups = groups[:_MAX_CALLS]
        shorter = await _shorten(calls, goal, groups, nonce)
        if shorter is None:
            calls.lose(f"the budget does not cover the {len(groups)} calls that takes: all results are cut instead")
            return cut_evenly(pieces, int(share * _bytes(text)))
        before = len(text)
        pieces = shorter
        text = join_pieces(pieces, nonce)
        is_stuck = len(text) >= before  # a model that does not shorten will not the next time
        left = rates.estimate(measure(text))
        if left > room and (is_stuck or rounds == _MAX_ROUNDS):
            calls.lose("the results could not be reduced enough: all of them are cut")
            return cut_evenly(pieces, int(_PIECE_SHARE * room / left * _bytes(text)))
    return pieces


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def group_pieces(pieces: Sequence[Piece], size: int) -> list[list[Piece]]:
    """The pieces in groups of at most so many characters: short ones together, long ones in slices."""
    groups: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        for text in _slice(piece.text, max(1, size)):
            if not groups or len(text) > room:
                groups.append([])
                room = size
            groups[-1].append(structs.replace(piece, text=text))
            room -= len(text)
    return groups


def _slice(text: str, size: int) -> Iterator[str]:
    """A statement cut in two is lost to both slices: each ends with a line, a sentence or a word, where it can."""
    start = 0
    while len(text) - start > size:
        end = start + size
        least = start + size * 3 // 4
        breaks = (at + len(mark) for mark in _BREAKS if (at := text.rfind(mark, least, end)) >= 0)
        end = next(breaks, end)
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def cut_evenly(pieces: Sequence[Piece], size: int) -> list[Piece]:
    """The pieces in about so many bytes: short ones as they are, the others each cut to the same length."""
    lengths = sorted(_bytes(piece.text) + len(piece.origin) for piece in pieces)
    rest = size
    level = 0
    for place, length in enumerate(lengths):
        level = rest // (len(lengths) - place)
        if length > level:
            break
        rest -= length
        level = length
    return [structs.replace(piece, text=capped(piece.text, max(0, level - len(piece.origin)))[0]) for piece in pieces]


async def _shorten(calls: WriterCalls, goal: str, groups: Sequence[Sequence[Piece]], nonce: str) -> list[Piece] | None:
    """Each group as one shorter piece; None where the budget does not cover the calls for all of them."""
    reserved: list[tuple[Reservation | str, tuple[str, ...]]] = []
    """For each group the call, or what was replied when it was made before; and its tasks."""
    for group in groups:
        tasks = tuple(dict.fromkeys(task for piece in group for task in piece.tasks))
        text = f"Request: {goal}\n\nFrom {', '.join(f'[{task}]' for task in tasks)}:\n{join_pieces(group, nonce)}"
        messages = (Message("system", calls.writer.prompts.text("reduce")), Message("user", text))
        request = Request(messages, settings=calls.writer.settings, asker=ASKER)
        kept_as = calls.request_key(request, nonce)
        if (recorded := calls.recorded_reply(kept_as)) is not None:
            reserved.append((recorded, tasks))
            continue
        reservation = await calls.hold(request, extra=True, at_most=_MAX_TOKENS)
        if reservation is None:
            for call, _ in reserved:
                held = None if isinstance(call, str) else call.claim
                calls.context.release(NOTHING if held is None else held.held)
            return None
        reservation.kept_as = kept_as
        reserved.append((reservation, tasks))
    gate = asyncio.Semaphore(_CONCURRENCY)

    async def shorten(reservation: Reservation | str, tasks: tuple[str, ...]) -> Piece:
        if isinstance(reservation, str):
            reply = Reply(reservation)
        else:
            async with gate:
                reply = await calls.write(reservation)
        short = reply.text.strip()
        if reply.finish == "length":
            calls.lose(f"what is left of {', '.join(tasks)} was cut off while it was shortened")
        cited = cited_tasks(short, tasks)
        unnamed = [task for task in tasks if task not in cited]
        return Piece(f"{cite(*unnamed)}: {short}" if unnamed else short, tasks)

    async with BareTaskGroup() as group:
        jobs = [group.create_task(shorten(reservation, tasks)) for reservation, tasks in reserved]
    return [job.result() for job in jobs]
