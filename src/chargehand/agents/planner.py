"""What the supervisor's model is asked before the answer: for a plan, for a task put better, and by strategies."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar, cast, get_args

import msgspec
from msgspec import Raw, Struct, field, structs

from chargehand.agents.inputs import by_id, gap_text, show_inputs, today, value_text
from chargehand.agents.prompts import Prompts
from chargehand.agents.recall import BlockView, instructions, material, shortened
from chargehand.agents.shape import (
    choice_schema,
    encode_schema,
    find_object,
    list_schema,
    object_schema,
    one_line,
    sent_back,
    text_schema,
)
from chargehand.agents.spending import Spending, SupervisorCalls, cut_off, too_expensive
from chargehand.concurrency import BareTaskGroup
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.facts import Assumed
from chargehand.engine.failure import Failure, Question
from chargehand.engine.owed import Brief
from chargehand.engine.plan import LONGEST_TITLE, Combine, Edge, Finding, Task, TaskId, fingerprint, needs
from chargehand.engine.value import decode_value
from chargehand.errors import Invalid, PlanInvalid, Refused
from chargehand.memory.archives import Embedding
from chargehand.models.messages import Message, Request, Settings, new_nonce, wrap
from chargehand.models.model import Hear, Model
from chargehand.models.request_facts import Planned, Planning, Refining, Subject, WorkerCard
from chargehand.runtime.executor import Proposal, Refined, StepContext, WorkFailed
from chargehand.tools.remember import MEMORY_SEARCHES
from chargehand.tools.remember import NAMES as MEMORY_TOOLS

# --- the written form of plans


MOST_IN_SCHEMA = 12
NO_TOOL = "none"
Holders: TypeAlias = Mapping[str, Sequence[str]]
"""The workers that have a tool, by its name."""
NO_HOLDERS: Holders = {}
_COMBINES = tuple(combine for combine in get_args(Combine) if combine != "none")
_LONGEST = 1200
_MOST_REMARKS = 4
_TASKS = re.compile(r'"tasks"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


@lru_cache(maxsize=64)
def schema(workers: tuple[str, ...], tools: tuple[str, ...], most: int, *, asks: bool = False) -> Raw:
    """The schema for at most so many tasks, in a list. Strict modes take it: every object needs all it names."""
    most = min(most, MOST_IN_SCHEMA)
    ids = [f"t{number}" for number in range(1, most + 1)]
    earlier: dict[str, Any] = {"type": "array", "items": {"type": "string", "enum": ids}, "maxItems": most - 1}
    task = object_schema(
        {
            "id": {"type": "string", "enum": ids},
            "instruction": text_schema(_LONGEST, min_length=1),  # what, before who
            "title": text_schema(LONGEST_TITLE),
            "tool": choice_schema([*tools, NO_TOOL]),  # a model that names it first picks better
            "worker": choice_schema(workers),
            "after": earlier,
            "optional": earlier,
        }
    )
    texts = list_schema(text_schema(300), _MOST_REMARKS)
    question = {"question": text_schema(_LONGEST), "options": texts} if asks else {}
    return encode_schema(
        {
            **question,
            "tasks": list_schema(task, most),
            "combine": choice_schema(_COMBINES),
            "assumptions": texts,
            "unserved": texts,
        }
    )


class TaskReply(Struct, forbid_unknown_fields=True):
    """A task as a planner writes it."""

    instruction: str
    id: str = ""
    tool: str = NO_TOOL
    worker: str = ""
    after: list[str] = []
    optional: list[str] = []
    replaces: str = ""
    title: str = ""


class PlanReply(Struct):
    """A plan as a planner writes it."""

    tasks: list[object] | dict[str, dict[str, object]] = []
    """In a list, as it is asked for, or by id."""
    combine: str = "merge"
    assumptions: list[str] = []
    unserved: list[str] = []
    question: str = ""
    """To the person who made the request, instead of a plan."""
    options: list[str] = []


class ReadPlan(Struct, frozen=True):
    """A proposal as a reply has it, and what was assumed for it; or a question to a person."""

    proposal: Proposal
    assumptions: tuple[str, ...]
    question: str = ""
    options: tuple[str, ...] = ()


def read(text: str, holders: Holders = NO_HOLDERS) -> ReadPlan:
    """The plan in a reply; Invalid, in words for whatever wrote it, where there is none."""
    try:
        reply = msgspec.convert(find_object(text), PlanReply)
    except msgspec.ValidationError as error:
        raise Invalid(f"the reply is no plan: {error}") from error
    bodies = reply.tasks
    if isinstance(bodies, dict):
        bodies = [{"id": name, **body} for name, body in bodies.items()]
    tasks = tuple(read_task(body, number, holders) for number, body in enumerate(bodies, 1))
    combine = cast("Combine", reply.combine) if reply.combine in _COMBINES else "merge"
    proposal = Proposal(tasks, combine, unserved=_texts(reply.unserved))
    return ReadPlan(proposal, _texts(reply.assumptions), reply.question.strip(), _texts(reply.options))


def read_task(body: object, number: int, holders: Holders = NO_HOLDERS) -> Task:
    """One task of a reply, the one with this number in its list; Invalid for a key that is not read."""
    try:
        reply = msgspec.convert(body, TaskReply)
    except msgspec.ValidationError as error:
        name = cast("dict[str, object]", body).get("id", number) if isinstance(body, dict) else number
        keys = ", ".join(TaskReply.__struct_fields__)
        raise Invalid(f"task {name!r} cannot be read: {error}; the keys of a task are {keys}") from error
    name = reply.id or f"t{number}"
    instruction = reply.instruction.strip()
    if not instruction:
        raise Invalid(f"task {name!r} has no instruction")
    # the only worker that has the tool, where the named one lacks it
    able = holders.get(reply.tool, ())
    worker = able[0] if len(able) == 1 else reply.worker
    inputs = dict.fromkeys([*reply.after, *reply.optional])  # some name an optional input only there
    inputs.pop(name, None)  # nothing waits for itself
    task = Task(TaskId(name), instruction, worker, title=reply.title)
    if not inputs and not reply.replaces:
        return task
    after = (Edge(TaskId(source), "optional") if source in reply.optional else TaskId(source) for source in inputs)
    return structs.replace(task, after=tuple(after), replaces=TaskId(reply.replaces))


def _texts(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(text.strip() for text in texts if text.strip())


class PlanStream:
    """Finds tasks in a plan while it is still being written: each is handed out once, when it is complete."""

    def __init__(self, holders: Holders = NO_HOLDERS) -> None:
        self._holders = holders
        self._text = ""
        self._searched = 0  # up to here the list of tasks was looked for
        self._next = -1  # where the next task may begin; -1: the list has not begun yet
        self._count = 0

    def feed(self, piece: str) -> list[Task]:
        """The tasks that are complete with this piece. What cannot be read is left for the end."""
        self._text += piece
        if self._next < 0:
            opening = _TASKS.search(self._text, self._searched)
            self._searched = max(0, len(self._text) - 20)
            if opening is None:
                return []
            self._next = opening.end()
        tasks: list[Task] = []
        while "}" in piece:  # no task ends without one
            between = _BETWEEN.match(self._text, self._next)
            try:
                body, self._next = _DECODER.raw_decode(self._text, between.end() if between else self._next)
                self._count += 1
                tasks.append(read_task(body, self._count, self._holders))
            except (ValueError, Invalid):
                break
        return tasks


# --- what the planner works with


_MAX_QUESTIONS = 3
_MAY_ASK = (
    "If the plan depends on something that only the person who asks can know, put one `question` to them, with no "
    "tasks, and with `options` if there are few answers. Otherwise `question` is empty."
)
LONGEST_TASK = 4000
"""Characters of a task as a model put it."""
LONGEST_LINE = 300
"""Characters of a sentence of a model."""
_TEXTS = 10  # sentences of one list
_Read = TypeVar("_Read")


class Lead(Struct):
    """The planner, its model and its team. `shared` reads the blocks all see; with an `embedding` routes go by meaning.

    `sample` says what one task of a worker costs at least, `reserve` is what is
    held for each call of the model at least.
    """

    model: Model
    prompts: Prompts
    cards: tuple[WorkerCard, ...]
    instructions: str
    settings: Settings
    max_tasks: int
    spending: Spending
    stream: bool = False
    review: bool = False
    asks: bool = False
    combine: Combine | None = None
    reserve: Amount = NOTHING
    shared: Callable[[], Awaitable[Sequence[BlockView]]] | None = None
    embedding: Embedding | None = None
    sample: Callable[[str], Amount] | None = None
    _system: Message | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(card.name for card in self.cards)

    async def blocks(self) -> Sequence[BlockView]:
        """The blocks of memory that the whole team sees."""
        return () if self.shared is None else await self.shared()

    def holders(self) -> dict[str, list[str]]:
        """The workers that have each tool. Memory is no reason to get a task."""
        holders: dict[str, list[str]] = {}
        for card in self.cards:
            for skill in card.skills:
                if skill.name not in MEMORY_TOOLS:
                    holders.setdefault(skill.name, []).append(card.name)
        return holders

    def system(self) -> Message:
        """What the planner is told about its team: the same message each time."""
        if self._system is None:
            workers = listing(self.cards)
            most = str(self.max_tasks)
            told = f"{self.instructions}\n\n{_MAY_ASK}".strip() if self.asks else self.instructions
            text = self.prompts.text("plan", workers=workers, instructions=told, most=most)
            self._system = Message("system", text)
        return self._system


# --- asking the model


class Purpose(Struct, frozen=True):
    """What a call is for, in words, and how a finding about its reply is marked.

    Who is `alone`, and cannot pay for it, need not ask again.
    """

    text: str
    alone: bool
    code: str = "not_an_answer"
    place: str = "reply"


async def ask(
    lead: Lead,
    request: Request,
    context: StepContext,
    purpose: Purpose,
    read: Callable[[str], _Read],
    *,
    hear: Hear | None = None,
) -> tuple[_Read, Amount | None]:
    """What `read` makes of the reply, and what that cost.

    WorkFailed, with a finding for the next call, where the reply is empty, cut off or `read` raises Invalid.
    """
    handle = lead.model.card.handle
    context.prompt(handle, request.messages)
    calls = SupervisorCalls(context, lead.spending, lead.model, lead.settings, lead.reserve)
    reservation = await calls.hold(request)
    if reservation is None:
        raise too_expensive(purpose.text, permanent=purpose.alone)
    reply = await calls.call(reservation, hear)
    used = calls.total()
    if not reply.text.strip():
        raise WorkFailed(Failure("logic", f"{handle} answered with nothing"), used)
    if cut := cut_off(reply):
        words = "Your last reply was cut off because it was too long. Send a shorter one."
        finding = Finding(code="cut_off", place="reply", message=words)
        raise WorkFailed(Failure("logic", f"{handle}: {cut}"), used, (finding,))
    try:
        return read(reply.text), used
    except Invalid as error:
        message = f"{str(error)[:1].upper()}{str(error)[1:]}."
        finding = Finding(code=purpose.code, place=purpose.place, message=message)
        raise WorkFailed(Failure("logic", f"{handle}: {error}"), used, (finding,)) from error


class ModelQuestion(Struct, frozen=True):
    """A question in words: the prompt and what fills its slots, the parts of the message, the shape of the answer.

    `blocks` are those of memory to show; `nonce` is that of the envelopes in the parts.
    """

    prompt: str
    parts: Sequence[str]
    schema: Raw
    subject: Subject
    slots: Mapping[str, str] = field(default_factory=dict[str, str])
    blocks: Sequence[BlockView] = ()
    nonce: str = ""

    def request(self, lead: Lead) -> Request:
        slots = {"instructions": lead.instructions, **self.slots}
        if "workers" not in slots:
            slots["workers"] = listing(lead.cards)
        system = lead.prompts.text(self.prompt, **slots) + instructions(self.blocks)
        cut = shortened(self.blocks, lead.model.card.window // 4)
        shared = material(self.blocks, (), self.nonce, cut).strip()
        user = "\n\n".join(part for part in (shared, *self.parts) if part)
        messages = (Message("system", system), Message("user", user))
        return Request(messages, schema=self.schema, settings=lead.settings, subject=self.subject)


def hear_if_heard(context: StepContext) -> Hear | None:
    """Where words go as they come, if anybody listens."""
    return context.say if context.heard else None


# --- reading what a model wrote


def read_worker(written: object, names: Sequence[str]) -> str:
    """The worker a model means; nothing if it is none of them. Where there is only one, it need not be named."""
    plain = written.strip() if isinstance(written, str) else ""
    if plain in names:
        return plain
    if not plain:
        return names[0] if len(names) == 1 else ""
    alike = [name for name in names if name.casefold() == plain.casefold()]
    return alike[0] if len(alike) == 1 else ""


def read_flag(written: object, *, otherwise: bool = False) -> bool:
    """A truth as models write it: some put it in quotes."""
    if isinstance(written, str):
        return written.strip().casefold() in ("true", "yes")
    return written if isinstance(written, bool) else otherwise


def read_instruction(written: object) -> str:
    """A task as a model put it, no longer than a worker is told."""
    return written.strip()[:LONGEST_TASK] if isinstance(written, str) else ""


def read_list(written: object) -> list[object]:
    return cast("list[object]", written) if isinstance(written, list) else []


def read_lines(written: object) -> tuple[str, ...]:
    """Sentences of a model, not too many."""
    return tuple(line for item in read_list(written)[:_TEXTS] if (line := one_line(item, LONGEST_LINE)))


# --- a plan


async def plan(lead: Lead, brief: Brief, context: StepContext) -> Proposal:
    """The next part of the plan. What is wrong with a reply goes back with the next call, as findings."""
    request = _planning_request(lead, brief, await lead.blocks())
    purpose = Purpose("a plan for a request this long", alone=not brief.tasks, code="not_a_plan", place="plan")
    grown = set[str]()
    async with _growing(lead, brief, context, grown) as hear:
        read_plan, used = await ask(lead, request, context, purpose, partial(read, holders=lead.holders()), hear=hear)
    if read_plan.question and lead.asks and len(brief.replies or {}) < _MAX_QUESTIONS:
        asked = read_plan.question
        fields = Question("question", "ask_person", workers=("supervisor",), options=read_plan.options, key=asked)
        raise WorkFailed(Failure("approval", asked, question=fields), used)
    for text in read_plan.assumptions:
        context.note(f"assumed: {text}", fact=Assumed(text))
    proposal = read_plan.proposal
    tasks = tuple(task for task in proposal.tasks if task.id not in grown)
    if lead.stream and not brief.replan:  # asked again over a broken line, a planner may begin from the start
        fingerprints = {task.id: fingerprint(task) for task in brief.tasks}
        tasks = tuple(task for task in tasks if fingerprints.get(task.id) != fingerprint(task))
    more = lead.review and bool(tasks or grown)
    combine = lead.combine or proposal.combine
    return Proposal(tasks, combine, closed=not more, used=used, unserved=proposal.unserved)


def planned_tasks(tasks: Sequence[Task]) -> tuple[Planned, ...]:
    """Tasks as models that read plain data are told of them."""
    return tuple(
        Planned(
            id=task.id,
            instruction=task.instruction,
            worker=task.worker,
            after=tuple(name for name, _ in needs(task)),
        )
        for task in tasks
    )


def _planning_request(lead: Lead, brief: Brief, blocks: Sequence[BlockView]) -> Request:
    nonce = new_nonce()
    inputs = show_inputs(brief, nonce, by_id(brief.tasks))
    findings = tuple(f"{finding.place}: {finding.message}" for finding in brief.findings)
    subject = Planning(
        goal=brief.goal,
        workers=lead.cards,
        max_tasks=lead.max_tasks,
        findings=findings,
        tasks=planned_tasks(brief.tasks),
        results=inputs.inputs,
        gaps=brief.gaps,
    )
    cut = shortened(blocks, lead.model.card.window // 4)
    parts = [material(blocks, (), nonce, cut).strip(), today(brief), f"Request: {brief.goal}"]
    for question, reply in (brief.replies or {}).items():
        parts.append(f"You asked: {question}\nThe person answered: {value_text(decode_value(reply))}")
    if findings:
        parts.append("Your last plan cannot run. Mend this:\n" + sent_back(brief.findings, places=True))
    if brief.tasks:
        parts.append("The plan so far:\n" + "\n".join(_line(task) for task in brief.tasks))
        parts.append(inputs.text)
        parts.extend(gap_text(gap, nonce) for gap in brief.gaps)
        parts.append(
            "Say what else has to be done, as new tasks with new ids (none, if the results suffice and fit the plan). A"
            " new task may come after old ones, and names in `replaces` the one that failed whose place it takes. Do"
            " not repeat what failed; take another way."
        )
    system = lead.system()
    if more := instructions(blocks):
        system = Message("system", system.text + more)
    return Request(
        messages=(system, Message("user", "\n\n".join(part for part in parts if part))),
        schema=None if brief.tasks else schema(lead.names, tuple(lead.holders()), lead.max_tasks, asks=lead.asks),
        settings=lead.settings,
        subject=subject,
    )


def listing(cards: Sequence[WorkerCard]) -> str:
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


def _line(task: Task) -> str:
    after = ", ".join(name for name, _ in needs(task))
    return f"- {task.id} ({task.worker or 'anybody'}{f', after {after}' if after else ''}): {task.instruction}"


@asynccontextmanager
async def _growing(lead: Lead, brief: Brief, context: StepContext, grown: set[str]) -> AsyncGenerator[Hear | None]:
    """Where the words of a plan go. With `stream_plan` its tasks start while the rest is being written.

    A task that does not fit waits for the whole plan.
    """
    if not lead.stream or brief.tasks:
        yield hear_if_heard(context)
        return
    stream = PlanStream(lead.holders())
    tasks: asyncio.Queue[Task | None] = asyncio.Queue()

    def hear(piece: str) -> None:
        context.say(piece)
        for task in stream.feed(piece):
            tasks.put_nowait(task)

    async def grow() -> None:
        while (task := await tasks.get()) is not None:
            try:
                await context.grow([task])
            except (PlanInvalid, Refused):
                return
            grown.add(task.id)

    async with BareTaskGroup() as jobs:
        jobs.create_task(grow())
        try:
            yield hear
        finally:
            tasks.put_nowait(None)


# --- a task that failed


async def refine(lead: Lead, brief: Brief, context: StepContext) -> Refined:
    """A task that failed, put better."""
    nonce = new_nonce()
    card = next((card for card in lead.cards if card.name == brief.worker), WorkerCard(brief.worker, ""))
    subject = Refining(brief.instruction, brief.failure, card, show_inputs(brief, nonce).inputs)
    system = lead.prompts.text("refine", worker=listing([card]))
    user = f"Task: {brief.instruction}\n\n{wrap(nonce, 'error', brief.failure)}\n\n{today(brief)}"
    request = Request((Message("system", system), Message("user", user)), settings=lead.settings, subject=subject)
    purpose = Purpose("putting the task better", alone=False)
    instruction, used = await ask(lead, request, context, purpose, read_instruction, hear=hear_if_heard(context))
    return Refined(instruction, used)
