"""The strategy `loop`: one task a turn, chosen after a look at what came of those before, until it is done or stalls.

Nothing is remembered here. How often it stalled in a row, and how many fresh starts there were, is recorded with each
task (`LoopState`); what was sent back since the last task stands in the findings of the brief.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, ClassVar

from msgspec import Meta, Raw, Struct

from chargehand.agents.inputs import by_id, gap_text, show_inputs, today
from chargehand.agents.planner import planned_tasks
from chargehand.agents.shape import (
    choice_schema,
    encode_schema,
    list_schema,
    one_line,
    read_reply,
    sent_back,
    text_schema,
)
from chargehand.agents.strategies.base import Few, StrategyBase, free_id
from chargehand.agents.supervision import (
    LONGEST_LINE,
    Lead,
    ModelQuestion,
    SupervisorCalls,
    read_instruction,
    read_lines,
    read_worker,
)
from chargehand.engine.budget import NOTHING
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Edge, LoopState, Task, TaskId, fingerprint
from chargehand.models.messages import new_nonce
from chargehand.models.request_facts import ProgressLedger
from chargehand.runtime.executor import Proposal, StepContext
from chargehand.tools.tool import CAP

_STALLED = "stalled"
_REPEATED = "repeated"
_EMPTY = "nothing_done"
REFUSALS = (_STALLED, _REPEATED, _EMPTY)
"""Codes of what is sent back to the model."""
_AFRESH = (
    "What was tried so far is of no use: this is a fresh start. Take another way, with another worker or another kind"
    " of task, and ask for nothing that was asked for before."
)
_LONGEST = 1200  # characters of an instruction


class Loop(StrategyBase, frozen=True, tag="loop"):
    """One task at a time, looking at what came of those before, until it is done or stalls."""

    takes_turns: ClassVar[bool] = True

    max_turns: Annotated[int, Meta(ge=1, le=1000)] = 20
    """The most tasks."""
    stalls: Few = 3
    """Turns without progress before it starts afresh."""
    fresh_starts: Few = 2
    """How often it may."""

    async def propose(self, lead: Lead, brief: Brief, context: StepContext) -> Proposal:
        """The next task, or none when it is done or leads nowhere. One call of the model."""
        if brief.loop.ended:
            return Proposal((), closed=True, used=NOTHING)  # it has said so; to be asked again changes nothing
        return await _Turn(self, lead, brief, context).propose()


class LedgerReply(Struct, frozen=True):
    """What a model says about a turn; what it leaves out is taken as no reason to stop."""

    done: bool = False
    looping: bool = False
    progress: bool = True
    next: str | None = None
    """The worker of the next task."""
    instruction: str | None = None
    why: str | None = None
    replaces: str | None = None
    """The task that failed whose place the next one takes."""
    unserved: Sequence[str] | None = None

    def __str__(self) -> str:
        reason = f" (why: {self.reason})" if self.reason else ""
        if self.done:
            return f"done{reason}"
        looping = "looping" if self.looping else "not looping"
        progress = "progress" if self.progress else "no progress"
        after = f"next {self.next or 'no worker'}: {read_instruction(self.instruction or '') or 'nothing'}"
        return f"not done, {looping}, {progress}; {after}{reason}"

    @property
    def reason(self) -> str:
        return one_line(self.why, LONGEST_LINE)


class _Turn:
    """Where it stands, and what becomes of a reply. The bounds are kept here, whatever the model says."""

    def __init__(self, strategy: Loop, lead: Lead, brief: Brief, context: StepContext) -> None:
        self.lead = lead
        self.brief = brief
        self.calls = SupervisorCalls(lead, context)
        self.patience = max(1, strategy.stalls)
        self.max_tasks = max(1, min(strategy.max_turns, lead.max_tasks))
        before = brief.loop if brief.tasks else LoopState()  # a plan that a person sent back does not count
        self.stalls = before.stalls
        self.fresh = before.fresh_starts
        self.may_restart = self.fresh < strategy.fresh_starts
        self.refused = {finding.code for finding in brief.findings} & set(REFUSALS)
        self.failed = bool(brief.tasks) and any(gap.task == brief.tasks[-1].id for gap in brief.gaps)
        is_due = self.stalls + self.failed >= self.patience and self.may_restart
        self.afresh = is_due or _STALLED in self.refused
        """Whether this turn is a fresh start."""

    async def propose(self) -> Proposal:
        read = partial(read_reply, shape=LedgerReply)
        reply = await self.calls.ask(await self._question(), read, self.calls.hear)
        turn = f"turn {len(self.brief.tasks) + 1}{', a fresh start' if self.afresh else ''}"
        self.calls.context.note(f"{turn}: {reply}")
        return self._finish(reply) if reply.done else self._go_on(reply)

    # --- what the model is asked

    async def _question(self) -> ModelQuestion:
        brief = self.brief
        nonce = new_nonce()
        room = self.lead.model.card.window * 2 // max(1, len(brief.inputs))  # bytes: half the window for all results
        inputs = show_inputs(brief, nonce, by_id(brief.tasks), max(500, min(CAP, room)))
        parts = [f"Request: {brief.goal}", today(brief)]
        if brief.tasks:
            lines = [f"- {task.id} ({task.worker}): {task.instruction}" for task in brief.tasks]
            parts += ["The tasks so far:\n" + "\n".join(lines), inputs.text]
            parts.extend(gap_text(gap, nonce) for gap in brief.gaps)
        parts.extend(self._warnings())
        subject = ProgressLedger(
            goal=brief.goal,
            workers=self.lead.cards,
            tasks=planned_tasks(brief.tasks),
            results=inputs.inputs,
            gaps=brief.gaps,
        )
        return ModelQuestion(
            purpose="a question this long",
            prompt="ledger",
            parts=parts,
            subject=subject,
            schema=ledger_schema(self.lead.names, _failed_tasks(brief)),
            slots={"workers": self.lead.listing, "most": str(self.max_tasks)},
            blocks=await self.lead.blocks(),
            nonce=nonce,
            alone=not brief.tasks,
        )

    def _warnings(self) -> Iterator[str]:
        """What was wrong before, and how much room there is."""
        if self.brief.findings:
            yield "Your last proposal was sent back:\n" + sent_back(self.brief.findings)
        if self.afresh:
            yield _AFRESH
        elif stalls := self.stalls + self.failed:
            yield f"The last {stalls} turn{'s' if stalls > 1 else ''} brought nothing. Take another way."
        tasks_left = self.max_tasks - len(self.brief.tasks)
        if tasks_left > 0:
            yield f"{tasks_left} more task{'s' if tasks_left != 1 else ''} may be given."
        else:
            yield "No more tasks may be given."

    # --- what becomes of the reply

    def _finish(self, reply: LedgerReply) -> Proposal:
        """The end of the plan; sent back where nothing was delivered yet."""
        brief = self.brief
        unserved = read_lines(reply.unserved or ())
        if not brief.inputs and not (unserved and not brief.tasks):
            text = "Nothing has been delivered yet, so it cannot be done. Give a task."
            return self._refuse(_EMPTY, text, "it was called done without a result")
        combine = self.lead.combine or ("forward" if len(brief.tasks) == 1 else "merge")
        gap_messages = {gap.message for gap in brief.gaps if brief.tasks}  # a run that replans asks again
        new = tuple(text for text in unserved if text not in gap_messages)
        return Proposal((), combine, closed=True, used=self.calls.total(), unserved=new)

    def _go_on(self, reply: LedgerReply) -> Proposal:
        """The next task; none where it leads nowhere."""
        brief = self.brief
        if len(brief.tasks) >= self.max_tasks:
            return self._end(f"{self.max_tasks} tasks are all it may take, and it is not done", verb="ended")
        worker = read_worker(reply.next, self.lead.names)
        instruction = read_instruction(reply.instruction or "")
        if not worker or not instruction:
            names = ", ".join(self.lead.names)
            text = f"Say who does what next: `next` is one of {names}, and `instruction` the task."
            raise self.calls.send_back("no_next", "next", text)
        planned = {task.id for task in brief.tasks}  # not the items of a list
        task = Task(
            TaskId(free_id(brief.tasks)),
            instruction,
            worker,
            after=tuple(Edge(result.task, "optional") for result in brief.inputs if result.task in planned),
            replaces=TaskId(reply.replaces if reply.replaces in _failed_tasks(brief) else ""),
        )
        if fingerprint(task) in map(fingerprint, brief.tasks):
            text = f"{worker} was asked this before. Ask for something else, or ask another worker."
            return self._refuse(_REPEATED, text, f"{worker} was to be asked the same again")
        if self.afresh:
            return self._add(task, LoopState(fresh_starts=self.fresh + 1))
        why = self._stall_reason(reply) if brief.tasks else ""
        stalls = self.stalls + 1 if why else 0
        if stalls < self.patience:
            return self._add(task, LoopState(stalls=stalls, fresh_starts=self.fresh))
        if not self.may_restart:
            return self._end(why)
        return self._refuse(_STALLED, _AFRESH, why)

    def _stall_reason(self, reply: LedgerReply) -> str:
        """Why this turn is a stall, if it is one."""
        if self.failed:
            return "the last task failed"
        if reply.looping:
            return f"it goes round in circles: {reply.reason}" if reply.reason else "it goes round in circles"
        if not reply.progress:
            return f"no progress: {reply.reason}" if reply.reason else "there was no progress"
        return ""

    def _add(self, task: Task, loop: LoopState) -> Proposal:
        return Proposal((task,), self.lead.combine or "merge", closed=False, used=self.calls.total(), loop=loop)

    def _refuse(self, code: str, text: str, why: str) -> Proposal:
        """Send a reply back, once for each turn; else end it, because that leads nowhere."""
        if self.refused:
            return self._end(why)
        raise self.calls.send_back(code, "next", text)

    def _end(self, why: str, *, verb: str = "stalled") -> Proposal:
        tried = len(self.brief.tasks)
        starts = f" and {self.fresh} fresh start{'s' if self.fresh > 1 else ''}" if self.fresh else ""
        text = f"This {verb} after {tried} task{'s' if tried != 1 else ''}{starts}: {why.rstrip('. ')}."
        return Proposal(
            (),
            self.lead.combine or "merge",
            closed=True,
            used=self.calls.total(),
            unserved=(text,),
            loop=LoopState(stalls=self.stalls, fresh_starts=self.fresh, ended=True),
        )


def _failed_tasks(brief: Brief) -> list[str]:
    return [gap.task for gap in brief.gaps if gap.task]


def ledger_schema(workers: Sequence[str], failed: Sequence[str]) -> Raw:
    """The schema for a team, some of whose tasks failed."""
    flag = {"type": "boolean"}
    properties: dict[str, object] = {
        "why": text_schema(600),
        "done": flag,
        "looping": flag,
        "progress": flag,
        "next": choice_schema(workers, or_null=True),
        "instruction": text_schema(_LONGEST),
        "unserved": list_schema(text_schema(300), 10),
    }
    if failed:
        properties["replaces"] = choice_schema(failed, or_null=True)
    return encode_schema(properties)
