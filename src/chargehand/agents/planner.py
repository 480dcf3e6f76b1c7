"""What the supervisor's model is asked before the answer: for a plan, and for a task put better."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any, TypeAlias, cast, get_args

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.agents.answer_format import describe_tools
from chargehand.agents.inputs import by_id, gap_text, show_inputs, today, value_text
from chargehand.agents.recall import BlockView
from chargehand.agents.shape import (
    choice_schema,
    encode_schema,
    find_object,
    list_schema,
    object_schema,
    sent_back,
    text_schema,
)
from chargehand.agents.supervision import Lead, ModelQuestion, SupervisorCalls, list_workers, read_instruction
from chargehand.concurrency import BareTaskGroup
from chargehand.engine.facts import Assumed
from chargehand.engine.failure import Failure, Question
from chargehand.engine.owed import Brief
from chargehand.engine.plan import LONGEST_TITLE, Combine, Edge, Task, TaskId, fingerprint, needs
from chargehand.engine.state import TextKind
from chargehand.engine.value import decode_value
from chargehand.errors import Invalid, PlanInvalid, Refused
from chargehand.models.messages import new_nonce, wrap
from chargehand.models.model import Hear
from chargehand.models.request_facts import Planned, Planning, Refining, WorkerCard
from chargehand.runtime.executor import Proposal, Refined, StepContext, WorkFailed

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


_BLANK_TASK = Task(TaskId(""), "")  # the types of a copy are not checked field by field, as those of a new one are


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
    after = [Edge(TaskId(source), "optional") if source in reply.optional else TaskId(source) for source in inputs]
    return structs.replace(
        _BLANK_TASK,
        id=TaskId(name),
        instruction=instruction,
        worker=worker,
        after=tuple(after),
        replaces=TaskId(reply.replaces),
        title=reply.title,
    )


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


# --- a plan


_MAX_QUESTIONS = 3
_MAY_ASK = (
    "If the plan depends on something that only the person who asks can know, put one `question` to them, with no "
    "tasks, and with `options` if there are few answers. Otherwise `question` is empty."
)


async def plan(lead: Lead, brief: Brief, context: StepContext) -> Proposal:
    """The next part of the plan. What is wrong with a reply goes back with the next call, as findings."""
    calls = SupervisorCalls(lead, context)
    wanted = context.request.answer_format
    tools = "" if wanted is None else describe_tools(wanted.tools)
    question = _planning_question(lead, brief, await lead.blocks(), tools)
    grown = set[str]()
    async with _growing(lead, brief, calls, grown) as hear:
        read_plan = await calls.ask(question, partial(read, holders=lead.holders()), hear)
    if read_plan.question and lead.asks and len(brief.replies or {}) < _MAX_QUESTIONS:
        asked = read_plan.question
        fields = Question(
            what="question",
            tool="ask_person",
            workers=("supervisor",),
            options=read_plan.options,
            free_text=True,  # a planner that guesses the answers may miss the right one
            key=asked,
        )
        raise WorkFailed(Failure("approval", asked, question=fields), calls.total())
    for text in read_plan.assumptions:
        context.note(f"assumed: {text}", fact=Assumed(text))
    proposal = read_plan.proposal
    tasks = tuple(task for task in proposal.tasks if task.id not in grown)
    if lead.stream and not brief.replan:  # asked again over a broken line, a planner may begin from the start
        fingerprints = {task.id: fingerprint(task) for task in brief.tasks}
        tasks = tuple(task for task in tasks if fingerprints.get(task.id) != fingerprint(task))
    more = lead.review and bool(tasks or grown)
    combine = lead.combine or proposal.combine
    return Proposal(tasks, combine, closed=not more, used=calls.total(), unserved=proposal.unserved)


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


def _planning_question(lead: Lead, brief: Brief, blocks: Sequence[BlockView], tools: str) -> ModelQuestion:
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
    parts = [today(brief), f"Request: {brief.goal}", tools]
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
    instructions = f"{lead.instructions}\n\n{_MAY_ASK}".strip() if lead.asks else lead.instructions
    return ModelQuestion(
        purpose="a plan for a request this long",
        prompt="plan",
        parts=parts,
        subject=subject,
        schema=None if brief.tasks else schema(lead.names, tuple(lead.holders()), lead.max_tasks, asks=lead.asks),
        slots={"workers": lead.listing, "most": str(lead.max_tasks), "instructions": instructions},
        blocks=blocks,
        nonce=nonce,
        alone=not brief.tasks,
        code="not_a_plan",
        place="plan",
    )


def _line(task: Task) -> str:
    after = ", ".join(name for name, _ in needs(task))
    return f"- {task.id} ({task.worker or 'anybody'}{f', after {after}' if after else ''}): {task.instruction}"


def _growing(
    lead: Lead, brief: Brief, calls: SupervisorCalls, grown: set[str]
) -> AbstractAsyncContextManager[Hear | None]:
    """Where the words of a plan go. With `stream_plan` its tasks start while the rest is being written."""
    if not lead.stream or brief.tasks:
        return nullcontext(calls.hear)
    return _start_early(lead, calls.context, grown)


@asynccontextmanager
async def _start_early(lead: Lead, context: StepContext, grown: set[str]) -> AsyncGenerator[Hear]:
    """Add each task of a plan once it is written. One that does not fit waits for the whole plan."""
    stream = PlanStream(lead.holders())
    tasks: asyncio.Queue[Task | None] = asyncio.Queue()

    def hear(piece: str, kind: TextKind = "answer", /) -> None:
        context.say(piece, kind)
        for task in stream.feed(piece) if kind == "answer" else ():
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
    question = ModelQuestion(
        purpose="putting the task better",
        prompt="refine",
        parts=[f"Task: {brief.instruction}", wrap(nonce, "error", brief.failure), today(brief)],
        subject=Refining(brief.instruction, brief.failure, card, show_inputs(brief, nonce).inputs),
        slots={"worker": list_workers([card])},
    )
    calls = SupervisorCalls(lead, context)
    instruction = await calls.ask(question, read_instruction, calls.hear)
    return Refined(instruction, calls.total())
