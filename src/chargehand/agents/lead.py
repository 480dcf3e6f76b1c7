"""What the supervisor does before the answer: plan, and refine a task that failed. One call of a model each."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from weakref import WeakSet

from msgspec import Struct

from chargehand.agents.crew import Hand, Proposal, Refined, WorkFailed
from chargehand.agents.inputs import by_id, gap_text, today, told
from chargehand.agents.memory_text import Seen, instructions, material, shortened
from chargehand.agents.money import Called, Held, Purse, call_held, hold, too_dear
from chargehand.agents.planform import PlanStream, read, schema
from chargehand.agents.prompts import Prompts
from chargehand.agents.routers.decision import Watch
from chargehand.agents.shape import sent_back, useless
from chargehand.core.owed import Brief
from chargehand.errors import Invalid, PlanInvalid, Refused
from chargehand.memory.embedding import Embedding
from chargehand.models.envelope import new_nonce, wrap
from chargehand.models.messages import Message, Request, Settings
from chargehand.models.model import Hear, Model
from chargehand.models.subject import Planned, Planning, Refining, WorkerCard
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.failure import Failure
from chargehand.terms.plan import Combine, Finding, Task, fingerprint, needs
from chargehand.tools.remember import MEMORY_SEARCHES
from chargehand.tools.remember import NAMES as MEMORY_TOOLS
from chargehand.tools.tasks import BareTaskGroup

LONGEST_TASK = 4000
"""Characters of a task that was put better."""


class Lead(Struct):
    """Who plans, with what, for whom. `shared` reads the blocks all see; with an `embedding` routes go by meaning.

    `watches` see how busy everybody is. `sample` says what one task of a worker costs at least, `reserve` is what is
    held for each call of the model at least.
    """

    model: Model
    prompts: Prompts
    cards: tuple[WorkerCard, ...]
    instructions: str
    settings: Settings
    most_tasks: int
    purse: Purse
    stream: bool = False
    review: bool = False
    combine: Combine | None = None
    reserve: Amount = NOTHING
    told: Message | None = None
    shared: Callable[[], Awaitable[Sequence[Seen]]] | None = None
    embedding: Embedding | None = None
    watches: WeakSet[Watch] | None = None
    sample: Callable[[str], Amount] | None = None

    def watch(self, hand: Hand) -> Watch | None:
        """Who sees the run that is planned."""
        return next((one for one in self.watches or () if one.drives(hand.where.run)), None)

    def holders(self) -> dict[str, list[str]]:
        """The workers that have each tool. Memory is nobody's reason to get a task."""
        holders: dict[str, list[str]] = {}
        for card in self.cards:
            for skill in card.skills:
                if skill.name not in MEMORY_TOOLS:
                    holders.setdefault(skill.name, []).append(card.name)
        return holders

    def system(self) -> Message:
        """What the planner is told about its team: the same message each time."""
        if self.told is None:
            workers = listing(self.cards)
            most = str(self.most_tasks)
            text = self.prompts.text("plan", workers=workers, instructions=self.instructions, most=most)
            self.told = Message("system", text)
        return self.told


async def held_call(lead: Lead, request: Request, hand: Hand) -> Held | None:
    """A call of the supervisor's model as it may be made, with what it takes held; None where nothing covers it."""
    return await hold(hand, lead.purse, lead.model, request, lead.reserve)


async def ask(lead: Lead, held: Held, hand: Hand, hear: Hear | None = None) -> Called:
    """One call for the supervisor, for which money is held; its failures are those of its duty."""
    called = await call_held(
        hand=hand, purse=lead.purse, model=lead.model, held=held, settings=lead.settings, hear=hear
    )
    handle = lead.model.card.handle
    if not called.reply.text.strip():
        raise WorkFailed(Failure("logic", f"{handle} answered with nothing"), called.used)
    if called.cut:
        finding = Finding(
            code="cut_off",
            place="reply",
            message="Your last reply was cut off because it was too long. Send a shorter one.",
        )
        raise WorkFailed(Failure("logic", f"{handle}: {called.cut}"), called.used, (finding,))
    return called


async def plan(lead: Lead, brief: Brief, hand: Hand) -> Proposal:
    """The next part of the plan. What is wrong with a reply goes back to whoever is asked next, as findings."""
    request = _planning(lead, brief, () if lead.shared is None else await lead.shared())
    hand.prompt(lead.model.card.handle, request.messages)
    held = await held_call(lead, request, hand)
    if held is None:
        raise too_dear("a plan for a request this long", alone=not brief.tasks)
    grown = set[str]()
    if lead.stream and not brief.tasks:
        called = await _streamed(lead, held, hand, grown)
    else:
        called = await ask(lead, held, hand, hand.say if hand.heard else None)
    try:
        read_plan = read(called.reply.text, lead.holders())
    except Invalid as error:
        finding = Finding(code="not_a_plan", place="plan", message=f"{str(error)[:1].upper()}{str(error)[1:]}.")
        failure = Failure("logic", useless(lead.model.card.handle, error))
        raise WorkFailed(failure, called.used, (finding,)) from error
    for text in read_plan.assumptions:
        hand.note(f"assumed: {text}", code="assumed")
    for one in read_plan.dropped:
        hand.note(f"plan: {one.task} does without its input {one.input}, because the plan has no such task")
    found = read_plan.proposal
    tasks = tuple(one for one in found.tasks if one.id not in grown)
    if lead.stream and not brief.replan:  # asked again over a broken line, a planner may begin from the start
        known = {one.id: fingerprint(one) for one in brief.tasks}
        tasks = tuple(one for one in tasks if known.get(one.id) != fingerprint(one))
    more = lead.review and bool(tasks or grown)
    return Proposal(tasks, lead.combine or found.combine, closed=not more, used=called.used, unserved=found.unserved)


def _planning(lead: Lead, brief: Brief, blocks: Sequence[Seen]) -> Request:
    given = told(brief, nonce := new_nonce(), by_id(brief.tasks))
    findings = tuple(f"{one.place}: {one.message}" for one in brief.findings)
    planned = tuple(
        Planned(id=one.id, instruction=one.instruction, worker=one.worker, after=tuple(name for name, _ in needs(one)))
        for one in brief.tasks
    )
    subject = Planning(
        goal=brief.goal,
        workers=lead.cards,
        most_tasks=lead.most_tasks,
        findings=findings,
        tasks=planned,
        results=given.inputs,
        gaps=brief.gaps,
    )
    cut = shortened(blocks, lead.model.card.window // 4)
    said = [material(blocks, (), nonce, cut).strip(), today(brief), f"Request: {brief.goal}"]
    if findings:
        said.append("Your last plan cannot run. Mend this:\n" + sent_back(brief.findings, places=True))
    if planned:
        said.append("The plan so far:\n" + "\n".join(_line(one) for one in brief.tasks))
        said.append(given.text)
        said.extend(gap_text(one, nonce) for one in brief.gaps)
        said.append(
            "Say what else has to be done, as new tasks with new ids (none, if the results suffice and fit the plan). A"
            " new task may come after old ones, and names in `replaces` the one that failed whose place it takes. Do"
            " not repeat what failed; take another way."
        )
    system = lead.system()
    if more := instructions(blocks):
        system = Message("system", system.text + more)
    messages = (system, Message("user", "\n\n".join(one for one in said if one)))
    names = tuple(card.name for card in lead.cards)
    tools = tuple(lead.holders())
    return Request(
        messages,
        schema=None if planned else schema(names, tools, lead.most_tasks),
        settings=lead.settings,
        subject=subject,
    )


def listing(cards: Sequence[WorkerCard]) -> str:
    """The workers, what they do and what they can."""
    lines: list[str] = []
    for card in cards:
        tags = f" (tags: {', '.join(card.tags)})" if card.tags else ""
        lines.append(f"- {card.name}: {card.description or 'no description'}{tags}")
        lines.extend(
            f"  - {skill.name}: {skill.in_short}" for skill in card.skills if skill.name not in MEMORY_SEARCHES
        )
    return "\n".join(lines)


def _line(task: Task) -> str:
    after = ", ".join(name for name, _ in needs(task))
    return f"- {task.id} ({task.worker or 'anybody'}{f', after {after}' if after else ''}): {task.instruction}"


async def _streamed(lead: Lead, held: Held, hand: Hand, grown: set[str]) -> Called:
    """Let tasks start while the rest is being written. A task that does not fit waits for the whole plan."""
    stream = PlanStream(lead.holders())
    line: asyncio.Queue[Task | None] = asyncio.Queue()

    def hear(piece: str) -> None:
        hand.say(piece)
        for task in stream.feed(piece):
            line.put_nowait(task)

    async def grow() -> None:
        while (task := await line.get()) is not None:
            try:
                await hand.grow([task])
            except (PlanInvalid, Refused):
                return
            grown.add(task.id)

    async with BareTaskGroup() as jobs:
        jobs.create_task(grow())
        try:
            return await ask(lead, held, hand, hear)
        finally:
            line.put_nowait(None)


async def refine(lead: Lead, brief: Brief, hand: Hand) -> Refined:
    """A task that failed, put better."""
    nonce = new_nonce()
    given = told(brief, nonce)
    card = next((one for one in lead.cards if one.name == brief.worker), WorkerCard(brief.worker, ""))
    subject = Refining(brief.instruction, brief.failure, card, given.inputs)
    system = lead.prompts.text("refine", worker=listing([card]))
    user = f"Task: {brief.instruction}\n\n{wrap(nonce, 'error', brief.failure)}\n\n{today(brief)}"
    request = Request((Message("system", system), Message("user", user)), settings=lead.settings, subject=subject)
    hand.prompt(lead.model.card.handle, request.messages)
    held = await held_call(lead, request, hand)
    if held is None:
        raise too_dear("putting the task better", alone=False)
    called = await ask(lead, held, hand, hand.say if hand.heard else None)
    return Refined(called.reply.text.strip()[:LONGEST_TASK], called.used)
