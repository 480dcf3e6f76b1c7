"""How the supervisor asks its models: for plans, routes, rulings and answers.

Money for each call is held before it is made. A reply that cannot be used becomes a finding, which the next try reads.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Raw, Struct, field, structs

from chargehand.agents.prompts import Prompts
from chargehand.agents.recall import BlockView, instructions, material, shortened
from chargehand.agents.shape import one_line
from chargehand.agents.spending import Reservation, Spending, cut_off, too_expensive, total
from chargehand.engine.budget import NOTHING, Amount, CapReached
from chargehand.engine.facts import CallsLost
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Combine, Finding, digest
from chargehand.errors import Invalid
from chargehand.memory.archives import Embedding
from chargehand.models.messages import Message, Reply, Request, Settings, Usage
from chargehand.models.model import Hear, Model
from chargehand.models.reply_limit import longer_limit
from chargehand.models.request_facts import Subject, WorkerCard
from chargehand.models.token_count import TokenRates
from chargehand.runtime.executor import Claim, KeptReply, StepContext, WorkFailed
from chargehand.tools.remember import MEMORY_SEARCHES
from chargehand.tools.remember import NAMES as MEMORY_TOOLS

LONGEST_TASK = 4000
"""Characters of a task as a model put it."""
LONGEST_LINE = 300
"""Characters of a sentence of a model."""
_TEXTS = 10  # sentences of one list
_Read = TypeVar("_Read")


# --- the models of the supervisor, and what they work with


class SupervisorRole(Struct):
    """A model that works for the supervisor, and what it works with."""

    model: Model
    prompts: Prompts
    instructions: str
    settings: Settings
    """Those of the team: a limit in them is never exceeded."""
    spending: Spending
    reserve: Amount = NOTHING
    """What is held for one call in any case."""
    shared: Callable[[], Awaitable[Sequence[BlockView]]] | None = None
    """Reads the blocks that the whole team sees; None: the team has no memory."""
    _systems: dict[str, tuple[Mapping[str, str], str]] = {}
    """The system prompts that were last used, by name, each with what filled its slots."""

    async def blocks(self) -> Sequence[BlockView]:
        """The blocks of memory that the whole team sees."""
        return () if self.shared is None else await self.shared()

    @property
    def rates(self) -> TokenRates:
        """How its model counts tokens, as far as that is known."""
        return self.spending.observations.of(self.model).rates

    def system(self, prompt: str, slots: Mapping[str, str]) -> str:
        """A system prompt with its slots filled; it rarely changes, so the runs at once share one text."""
        last_slots, text = self._systems.get(prompt, (None, ""))
        if last_slots != slots:
            text = self.prompts.text(prompt, **{"instructions": self.instructions, **slots})
            self._systems[prompt] = (slots, text)
        return text


class Lead(SupervisorRole, kw_only=True):
    """The planner and its team."""

    cards: tuple[WorkerCard, ...]
    max_tasks: int
    stream: bool = False
    review: bool = False
    asks: bool = False
    """It may ask the person who made the request."""
    combine: Combine | None = None
    embedding: Embedding | None = None
    """With one, routes go by meaning."""
    _listing: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(card.name for card in self.cards)

    @property
    def listing(self) -> str:
        """The workers, what they do and what they can, for a prompt."""
        if not self._listing:
            self._listing = list_workers(self.cards)
        return self._listing

    def holders(self) -> dict[str, list[str]]:
        """The workers that have each tool. Memory is no reason to get a task."""
        holders: dict[str, list[str]] = {}
        for card in self.cards:
            for skill in card.skills:
                if skill.name not in MEMORY_TOOLS:
                    holders.setdefault(skill.name, []).append(card.name)
        return holders


def list_workers(cards: Sequence[WorkerCard]) -> str:
    """The workers, what they do and what they can."""
    lines: list[str] = []
    for card in cards:
        lines.append(card_line(card))
        skills = [skill for skill in card.skills if skill.name not in MEMORY_SEARCHES]
        lines.extend(f"  - {skill.name}: {skill.in_short}" for skill in skills)
    return "\n".join(lines)


def card_line(card: WorkerCard) -> str:
    """A worker in one line."""
    tags = f" (tags: {', '.join(card.tags)})" if card.tags else ""
    return f"- {card.name}: {card.description or 'no description'}{tags}"


# --- asking


class ModelQuestion(Struct, frozen=True, gc=False, kw_only=True):
    """A question to a model of the supervisor: a prompt with its slots, a message, and the shape of the reply."""

    purpose: str
    """What the call is for, in words, where the budget does not cover it."""
    prompt: str
    """The name of the system prompt."""
    parts: Sequence[str]
    """Paragraphs of the message; empty ones are left out."""
    subject: Subject
    """The same as data, for models that read no words."""
    schema: Raw | None = None
    slots: Mapping[str, str] = field(default_factory=dict[str, str])
    blocks: Sequence[BlockView] = ()
    """The blocks of memory to show."""
    nonce: str = ""
    """The number of the envelopes in the message."""
    alone: bool = False
    """Nothing else is under way: if the budget does not cover it now, it never will."""
    extra: bool = False
    """It is asked beside the one question for which money is held in any case."""
    keeps_reply: bool = False
    """It is one of several for the same work: its reply is written when it comes, and not asked for again."""
    code: str = "not_an_answer"
    """The code of a finding about the reply."""
    place: str = "reply"
    """The place that such a finding names."""

    def request(self, role: SupervisorRole) -> Request:
        system = role.system(self.prompt, self.slots) + instructions(self.blocks)
        cut = shortened(self.blocks, role.model.card.window // 4, role.rates)
        shared = material(self.blocks, (), self.nonce, cut).strip()
        user = "\n\n".join(part for part in (shared, *self.parts) if part)
        messages = (Message("system", system), Message("user", user))
        return Request(messages, schema=self.schema, settings=role.settings, subject=self.subject, asker=ASKER)


ASKER = "supervisor"
"""Who asks, for the caches of providers."""


class SupervisorCalls:
    """The calls of one model for one piece of the supervisor's work."""

    def __init__(self, role: SupervisorRole, context: StepContext) -> None:
        self.role = role
        self.context = context
        self.model = role.model
        self._used: list[Amount | None] = []
        self.cap: CapReached | None = None
        """The cap that did not cover the last call that was not made."""

    @property
    def hear(self) -> Hear | None:
        """Where words go as they come, if anybody listens."""
        return self.context.say if self.context.heard else None

    def total(self) -> Amount | None:
        """What all of them cost; None where the cost of one is not known."""
        return total(self._used)

    async def ask(self, question: ModelQuestion, read: Callable[[str], _Read], hear: Hear | None = None) -> _Read:
        """What `read` makes of the reply.

        WorkFailed, with a finding for the next try, where the reply is empty, cut off or `read` raises Invalid.
        """
        request = question.request(self.role)
        handle = self.model.card.handle
        kept_as = self.request_key(request, question.nonce) if question.keeps_reply else ""
        text = self.recorded_reply(kept_as)
        if text is None:
            self.context.prompt(handle, request.messages)
            reservation = await self.hold(request, extra=question.extra, keeps_floor=question.extra)
            if reservation is None:
                raise too_expensive(question.purpose, self.cap, permanent=question.alone)
            reservation.kept_as = kept_as
            reply = await self.write(reservation, hear)
            if cut := cut_off(reply):
                words = "Your last reply was cut off because it was too long. Send a shorter one."
                raise self.send_back("cut_off", "reply", words, problem=f"{handle}: {cut}")
            text = reply.text
        try:
            return read(text)
        except Invalid as error:
            message = f"{str(error)[:1].upper()}{str(error)[1:]}."
            raise self.send_back(question.code, question.place, message, problem=f"{handle}: {error}") from error

    def request_key(self, request: Request, nonce: str) -> str:
        """Return a hash of a request that is the same in every try: without the number of its envelopes."""
        texts = [message.text for message in request.messages]
        return digest(self.model.card.handle, *(text.replace(nonce, "") if nonce else text for text in texts))

    def recorded_reply(self, kept_as: str) -> str | None:
        """Return what was replied to a request when this work was begun before; None: it is to be asked."""
        return self.context.recorded_reply(kept_as) if kept_as else None

    def send_back(self, code: str, place: str, message: str, problem: str = "") -> WorkFailed:
        """The failure of a reply that cannot be used, with a finding for the next try."""
        finding = Finding(code=code, place=place, message=message)
        return WorkFailed(Failure("logic", problem or message), self.total(), (finding,))

    async def hold(
        self,
        request: Request,
        *,
        extra: bool = False,
        keeps_floor: bool = False,
        at_least: int = 0,
        at_most: int = 0,
    ) -> Reservation | None:
        """Hold what a call takes; None where the budget does not cover it. For an `extra` one nothing is held yet.

        One that `keeps_floor` leaves what the budget keeps back for the answer. The reply is to have room for
        `at_least` so many tokens, if it may, and for `at_most` so many unless the settings say.
        """
        if at_most and request.settings.max_tokens is None:
            request = structs.replace(request, settings=structs.replace(request.settings, max_tokens=at_most))
        role = self.role
        reservation = role.spending.reserve([self.model], request, estimate=role.reserve, at_least=at_least)
        reservation.keeps_floor = keeps_floor
        if not role.spending.capped:
            return reservation
        claim = reservation.make_claim()
        if await self.context.hold(claim, extra=extra):
            return reservation
        self.cap = claim.cap
        return None

    async def write(self, reservation: Reservation, hear: Hear | None = None) -> Reply:
        """A reply in words, from a call for which money is held."""
        reply = await self.call(reservation, hear)
        if not reply.text.strip():
            raise WorkFailed(Failure("logic", f"{self.model.card.handle} answered with nothing"), self.total())
        return reply

    async def call(self, reservation: Reservation, hear: Hear | None = None) -> Reply:
        """Make a call for which money is held. A reply that is cut is asked for once more, with more room."""
        limit = reservation.limit
        reply = await self._call(reservation, hear)
        settings = self.role.settings
        longer = longer_limit(self.model.card, settings, limit, reservation.read(self.model))
        if reply.finish != "length" or longer <= limit:
            return reply
        request = structs.replace(reservation.request, settings=settings)
        again = await self.hold(request, extra=True, keeps_floor=reservation.keeps_floor, at_least=longer)
        if again is None or again.limit <= limit:
            return reply
        again.kept_as = reservation.kept_as
        handle = self.model.card.handle
        self.context.note(f"{handle}: the reply was cut off at {limit:,} tokens and is asked for again with more")
        return await self._call(again, hear)

    def _call(self, reservation: Reservation, hear: Hear | None) -> Coroutine[Any, Any, Reply]:
        if reservation.claim is None:
            return self._call_and_settle(reservation, None, hear)
        return self._call_in_turn(reservation, reservation.claim, hear)

    async def _call_in_turn(self, reservation: Reservation, claim: Claim, hear: Hear | None) -> Reply:
        async with self.role.spending.turn(reservation):
            if not reservation.is_covered:  # the model was seen to write more than it is asked for
                self.context.release(claim.held)
                claim = reservation.make_claim()
                if not await self.context.hold(claim, extra=True):
                    raise too_expensive(f"a reply of {self.model.card.handle}", claim.cap, permanent=False)
            return await self._call_and_settle(reservation, claim.held, hear)

    async def _call_and_settle(self, reservation: Reservation, held: Amount | None, hear: Hear | None) -> Reply:
        """Make a call and book what it used. One that is cut off costs what it is expected to use."""
        place = len(self._used)
        expected = None if held is None or reservation.claim is None else reservation.claim.expected
        self._used.append(expected)
        began = asyncio.get_running_loop().time()
        try:
            with self.context.model_call() as call:
                reply, used = await self.role.spending.call(reservation, self.context, hear=hear)
        except WorkFailed as error:
            self._used[place] = error.used
            raise WorkFailed(error.failure, self.total()) from error
        except asyncio.CancelledError:
            if expected is not None:
                text = f"a call of {self.model.card.handle} was cut off; its cost is an estimate"
                self.context.note(text, fact=CallsLost(expected))
            raise
        usage = reply.usage or Usage()
        seconds = asyncio.get_running_loop().time() - began
        handle = reply.model or self.model.card.handle
        is_whole = reply.finish != "length" and bool(reply.text.strip())
        kept = KeptReply(reservation.kept_as, reply.text) if reservation.kept_as and is_whole else None
        self.context.record_call(handle, seconds, structs.asdict(usage), used, call, expected, kept)
        self._used[place] = held if used is None else used
        if used is not None:
            self.context.release((held or NOTHING).beyond(used))
        return reply


# --- reading what a model wrote


def read_worker(written: str | None, names: Sequence[str]) -> str:
    """The worker a model means; nothing if it is none of them. Where there is only one, it need not be named."""
    plain = (written or "").strip()
    if plain in names:
        return plain
    if not plain:
        return names[0] if len(names) == 1 else ""
    alike = [name for name in names if name.casefold() == plain.casefold()]
    return alike[0] if len(alike) == 1 else ""


def read_instruction(written: str) -> str:
    """A task as a model put it, no longer than a worker is told."""
    return written.strip()[:LONGEST_TASK]


def read_lines(written: Sequence[str]) -> tuple[str, ...]:
    """Sentences of a model, not too many."""
    return tuple(line for item in written[:_TEXTS] if (line := one_line(item, LONGEST_LINE)))
