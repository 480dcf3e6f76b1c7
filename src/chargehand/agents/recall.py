"""The memory side of an attempt: what a worker is shown before each call of its model, and what it keeps afterwards.

Each look is a journaled step that holds only what is new, so a resumed attempt sees exactly what it saw. How memory is
put into words is `memory_text`'s business.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeAlias
from uuid import UUID, uuid5

from msgspec import Struct, field, structs

from chargehand.agents.history import tokens
from chargehand.agents.memory_text import (
    Seen,
    chat,
    difference,
    instructions,
    material,
    shortened,
    visible_blocks,
    whole,
)
from chargehand.agents.prompts import Prompts
from chargehand.agents.spending import Reservation
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.failure import Failure
from chargehand.engine.state import Step
from chargehand.engine.value import encode_value
from chargehand.errors import Invalid, Refused, StoreError
from chargehand.memory.conversations import Turn, behind, chat_due, due, fitting, plain_summary, summary_turn
from chargehand.memory.session import OpenMemory
from chargehand.models.artifacts import Product
from chargehand.models.envelope import new_nonce, wrap
from chargehand.models.messages import Message, Reply, Request, Settings
from chargehand.runtime.executor import Done, StepContext, WorkFailed

_LONGEST = 4000  # characters of a turn
_MOST_TURNS = 200
_SHARE = 0.15  # of the model's window that earlier turns may take
_FULL = 0.7  # of it that all an attempt begins with may take, as far as blocks can be shown in part
_ROOM = 8000  # tokens they take at most, however large the window is
_FRAME = 25  # tokens around each turn
_MOST_CHAT_TURNS = 2000
_LONGEST_CHAT_TURN = 100_000  # characters
_CHAT_FRAME = 16  # characters around each turn of a chat
EarlierTurns: TypeAlias = Literal["material", "chat", "hidden"]
"""How a worker that remembers is shown earlier turns: an excerpt as data, as many as its window holds as the chat they
were, or not at all."""
SUMMARY_SETTINGS = Settings(max_tokens=1024)
_EMPTY_SUMMARY = Request((), settings=SUMMARY_SETTINGS)


class Desk(Struct, frozen=True):
    """One worker's place in its team's memory. It `shows` something if the worker has blocks, or remembers.

    `conversation` is the id of the conversation its turns belong to; left out, it is the worker's own.
    """

    memory: OpenMemory
    agent: str
    remembers: bool = False
    shows: bool = True
    earlier: EarlierTurns = "material"
    conversation: str = ""

    @property
    def turns_of(self) -> str:
        """Under which id turns are kept."""
        return self.conversation or self.agent

    def looked(self, steps: Mapping[int, Step] | None) -> bool:
        """Whether an attempt that recorded these steps looks at memory: as it began, whatever was attached since."""
        first = (steps or {}).get(1)
        return self.shows if first is None else first.kind == "memory"


class Speaker(Struct, frozen=True):
    """Who writes summaries: the worker's own model, paid like any call of it. One that `speaks` not: a plain rule.

    `reserve` makes a reservation for its call, `call` makes the call.
    """

    prompts: Prompts
    speaks: bool
    reserve: Callable[..., Reservation]
    call: Callable[[Reservation], Awaitable[tuple[Reply, Amount | None]]]


class ChatSpan(Struct, frozen=True, omit_defaults=True):
    """Which turns a worker was shown as a chat: they are kept already, so a journal need not hold them again."""

    first: int = 0
    last: int = 0
    summary: int = 0
    room: int = 0


class Look(Struct, frozen=True, omit_defaults=True):
    """What a worker was not shown yet. `upto` is the turn up to which a summary is due.

    `misled`: whoever planned sees a tainted block, and its words may be in the task.
    """

    blocks: tuple[Seen, ...] = ()
    gone: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    upto: int = 0
    misled: bool = False
    chat: ChatSpan | None = None


class Compacted(Struct, frozen=True, omit_defaults=True):
    summary: Turn | None = None


class Recall(Struct, eq=False):
    """What one attempt has seen of its worker's memory. `versions` are those of the blocks as they were last shown.

    Those of which a part was left out are not among them: nobody can write anew what it has not seen.
    """

    desk: Desk
    context: StepContext
    window: int
    blocks: dict[str, Seen] = field(default_factory=dict[str, Seen])
    turns: tuple[Turn, ...] = ()
    versions: dict[str, int] = field(default_factory=dict[str, int])
    tainted: bool = False
    misled: bool = False
    _looked: bool = False
    _chat: list[Turn] = field(default_factory=list[Turn])
    """Turns as they were just read."""
    _chat_room: int = 0

    async def look(self, speaker: Speaker, taken: int) -> bool:
        """Read what is there now; whether anything is to be shown anew. The rest of the brief has `taken` tokens."""
        self._chat_room = max(0, int(self.window * _FULL) - taken)
        found = await self.context.step("memory", self._read, kind="memory", shape=Look)
        self._looked = True
        for one in found.blocks:
            self.blocks[one.label] = whole(self.blocks.get(one.label), one)
        for label in found.gone:
            self.blocks.pop(label, None)
        self.turns = found.turns or self.turns
        if found.chat is not None:
            self.turns = await self._chat_turns(found.chat)
        if found.upto:
            await self._compact(found.upto, speaker)
        self.misled = self.misled or found.misled
        new = bool(found.blocks or found.gone or found.turns or found.misled or found.chat)
        if new:
            tainted = self.misled or any(one.tainted for one in (*found.blocks, *self.turns))
            self.tainted = self.tainted or tainted
        return new

    def opening(self, system: Message, task: str, nonce: str) -> list[Message]:
        """The messages an attempt begins with, around what memory holds now."""
        blocks = self.blocks.values()
        taken = tokens(system.text) + tokens(task) + sum(tokens(turn.text) for turn in self.turns)
        cut = shortened(blocks, min(self.window // 2, int(self.window * _FULL) - taken))
        self.versions = {block.label: block.version for block in blocks if block.label not in cut}
        told = Message("system", system.text + more) if (more := instructions(blocks)) else system
        as_chat = self.desk.earlier == "chat"
        data = material([block for block in blocks if block.tells], () if as_chat else self.turns, nonce, cut)
        earlier = chat(self.turns, nonce) if as_chat else []
        return [told, *earlier, Message("user", data + task)]

    async def keep(self, asked: Turn, value: object, *, tainted: bool) -> None:
        """Remember the task and its result, once however often it is repeated. A result is not lost for want of it."""
        if not self.desk.remembers:
            return
        desk = self.desk
        context = self.context

        async def call(_key: str) -> Done:
            at = context.where
            longest = _LONGEST_CHAT_TURN if desk.earlier == "chat" else _LONGEST
            first = structs.replace(asked, text=asked.text[:longest], run=at.run, task=at.task)
            came = Turn("assistant", _words(value)[:longest], run=at.run, task=at.task, tainted=tainted)
            once = f"{at.run}/{at.task}#{at.mark}"
            try:
                kept = await desk.memory.catalog.say(desk.turns_of, (first, came), key=once)
            except (StoreError, Refused, Invalid) as error:
                context.note(f"what was done is not remembered: {error}")
                kept = False
            return Done(kept, NOTHING)

        await context.step(
            "remember", call, kind="remember"
        )  # said once by its key, so nobody need wait until it is written as begun

    # --- inside

    async def _read(self, _key: str) -> Done:
        desk = self.desk
        catalog = self.desk.memory.catalog
        try:
            there = visible_blocks(await catalog.attached(desk.agent))
            first = not self._looked
            wanted = first and desk.remembers and desk.earlier != "hidden"
            limit = 2 * _MOST_CHAT_TURNS if desk.earlier == "chat" else _MOST_TURNS
            turns = await catalog.turns(desk.turns_of, limit=limit) if wanted else []
            misled = first and self.context.where.planned and await _poisoned(desk.memory)
        except (StoreError, Refused) as error:
            raise WorkFailed(Failure("resource", f"memory cannot be read: {error}"), NOTHING) from error
        new = [(was, one) for one in there.values() if (was := self.blocks.get(one.label)) != one]
        gone = tuple(label for label in self.blocks if label not in there)
        blocks = tuple(difference(*one) for one in new)
        if desk.earlier == "chat":
            return Done(self._chat_look(turns, Look(blocks, gone, misled=misled)), NOTHING)
        shown = tuple(fitting(turns, self._room))
        upto = due(turns, self._room)
        return Done(Look(blocks=blocks, gone=gone, turns=shown, upto=upto, misled=misled), NOTHING)

    def _chat_look(self, turns: list[Turn], look: Look) -> Look:
        """The same, with as many turns as fit beside the blocks that are there now."""
        if not turns:
            return look
        beside = min(self.window // 2, sum(tokens(block.text) + tokens(block.untainted or "") for block in look.blocks))
        room = max(0, self._chat_room - beside)
        self._chat = turns
        shown = fitting(turns, room, _CHAT_FRAME)
        numbers = [turn.number for turn in shown if turn.role != "summary"]
        summary = next((turn.number for turn in shown if turn.role == "summary"), 0)
        span = ChatSpan(first=min(numbers, default=0), last=max(numbers, default=0), summary=summary, room=room)
        upto = chat_due(turns, room, _MOST_CHAT_TURNS, _CHAT_FRAME)
        return structs.replace(look, chat=span, upto=upto)

    async def _chat_turns(self, span: ChatSpan) -> tuple[Turn, ...]:
        """The turns of a span; after a crash they are read again."""
        turns = self._chat
        limit = 4 * _MOST_CHAT_TURNS
        if not turns:
            before = max(span.last, span.summary) + 1
            turns = await self.desk.memory.catalog.turns(self.desk.turns_of, limit=limit, before=before, old=True)
        self._chat = []
        meant = [
            turn
            for turn in turns
            if turn.number == span.summary or (turn.role != "summary" and span.first <= turn.number <= span.last)
        ]
        return tuple(fitting(meant, span.room, _CHAT_FRAME))

    @property
    def _room(self) -> int:
        if self.desk.earlier == "chat":
            return self._chat_room
        return min(_ROOM, int(self.window * _SHARE))

    @property
    def _summary_room(self) -> int:
        """Tokens of earlier turns from which a summary is made."""
        return min(self._room * 2, self.window // 2)

    async def _compact(self, upto: int, speaker: Speaker) -> None:
        """Put old turns behind a summary. Another attempt may have done it meanwhile: then nothing is asked again."""
        desk = self.desk
        catalog = self.desk.memory.catalog

        reservation = speaker.reserve(_EMPTY_SUMMARY, read=self._summary_room + _FRAME * _MOST_TURNS)

        async def call(_key: str) -> Done:
            try:
                async with desk.memory.gate(desk.turns_of):
                    limit = 2 * _MOST_CHAT_TURNS if desk.earlier == "chat" else _MOST_TURNS
                    turns = await catalog.turns(desk.turns_of, limit=limit)
                    made = next((turn for turn in turns if turn.role == "summary" and turn.upto >= upto), None)
                    old = behind(turns, upto)
                    if made is not None or not old:
                        return Done(Compacted(made), NOTHING)
                    text, used = await self._summary(old, speaker, reservation)
                    summary = summary_turn(old, text, 0.0)  # the store says when
                    await catalog.summarise(desk.turns_of, summary)
                    return Done(Compacted(summary), used)
            except (StoreError, Refused) as error:
                self.context.note(f"earlier tasks could not be summarised: {error}")
                return Done(Compacted(), None)

        reserve = reservation.for_step if speaker.speaks else NOTHING
        try:
            found = await self.context.step(
                "summary",
                call,
                kind="summary",
                request=str(upto),
                effect="idempotent",
                reserve=reserve,
                shape=Compacted,
            )
        except WorkFailed as error:
            if error.failure.kind != "budget":
                raise
            self.context.note(f"earlier tasks are not summarised: {error}")  # the task itself may still be paid for
            return
        if (one := found.summary) is not None:
            since = (turn for turn in self.turns if not turn.upto and turn.number > one.upto)
            frame = _CHAT_FRAME if desk.earlier == "chat" else 0
            self.turns = tuple(fitting((one, *since), self._room, frame))

    async def _summary(
        self, turns: Sequence[Turn], speaker: Speaker, reservation: Reservation
    ) -> tuple[str, Amount | None]:
        if not speaker.speaks:
            return plain_summary(turns), NOTHING
        quoted = turns
        if self.desk.earlier == "chat":  # thousands of short turns would be more frames than text
            quoted = turns[-max(1, self._summary_room // (2 * _FRAME)) :]
        reservation.request = _request(speaker, quoted, self._summary_room * 3)
        try:
            reply, used = await speaker.call(reservation)
        except WorkFailed as error:
            self.context.note(f"earlier tasks are summarised without a model: {error}")
            return plain_summary(turns), error.used
        text = reply.text.strip() if reply.finish not in ("refused", "length") else ""
        return text[:_LONGEST] or plain_summary(turns), used


def _request(speaker: Speaker, turns: Sequence[Turn], room: int) -> Request:
    """The turns, oldest first, each cut to its share of so many bytes."""
    nonce = new_nonce()
    share = max(1, room // len(turns))
    told = [wrap(nonce, f"{turn.role}, turn {turn.number}", _opening(turn.text, share)) for turn in turns]
    messages = (Message("system", speaker.prompts.text("summary")), Message("user", "\n\n".join(told)))
    return Request(messages, settings=SUMMARY_SETTINGS)


def _opening(text: str, size: int) -> str:
    return text.encode(errors="replace")[:size].decode(errors="ignore")


def _words(value: object) -> str:
    if isinstance(value, Product):
        return value.text
    return value if isinstance(value, str) else bytes(encode_value(value)).decode()


def supervisor_of(team: str) -> str:
    """The id of whoever leads the team with this id: it sees what all share, and nothing else."""
    return f"agent-{uuid5(UUID(team.partition('-')[2]), 'supervisor')}"


async def _poisoned(memory: OpenMemory) -> bool:
    """Whether one of the blocks that the whole team sees holds text from outside."""
    if not memory.team:
        return False
    return any(
        one.tainted for one in visible_blocks(await memory.catalog.attached(supervisor_of(memory.team))).values()
    )


async def shared_blocks(memory: OpenMemory) -> tuple[Seen, ...]:
    """The blocks that the whole team sees, for those who lead it."""
    try:
        return tuple(visible_blocks(await memory.catalog.attached(supervisor_of(memory.team))).values())
    except (StoreError, Refused) as error:
        raise WorkFailed(Failure("resource", f"memory cannot be read: {error}"), NOTHING) from error
