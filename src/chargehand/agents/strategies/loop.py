"""The strategy `loop`: one task a turn, chosen after a look at what came of those before, until it is done or stalls.

Nothing is remembered here. How often it stalled in a row, and how many fresh starts there were, is recorded with each
task (`LoopState`); what was refused since the last task stands in the findings of the brief.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count

from msgspec import Raw, Struct

from chargehand.agents.inputs import by_id, gap_text, show_inputs, today
from chargehand.agents.planner import (
    LONGEST_LINE,
    Lead,
    ModelQuestion,
    Purpose,
    ask,
    hear_if_heard,
    planned_tasks,
    read_flag,
    read_instruction,
    read_lines,
    read_worker,
)
from chargehand.agents.shape import (
    choice_schema,
    encode_schema,
    find_object,
    list_schema,
    one_line,
    sent_back,
    text_schema,
)
from chargehand.agents.strategies import Loop
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.failure import Failure
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Edge, Finding, LoopState, Task, TaskId, fingerprint
from chargehand.models.messages import new_nonce
from chargehand.models.request_facts import ProgressLedger
from chargehand.runtime.executor import Proposal, StepContext, WorkFailed
from chargehand.text.words import FUNCTION_WORDS, split_words
from chargehand.tools.tool import CAP

_REPEATED = "repeated"
_STALLED = "stalled"
_EMPTY = "nothing_done"
REFUSALS = (_REPEATED, _STALLED, _EMPTY)
"""Codes of what is sent back to the model, which counts as a stall."""
_MAX_REFUSALS = 2  # in a row; the run gives up on a planner after three
_IDLE = FUNCTION_WORDS | {"again", "carefully", "more", "now", "once", "please", "then"}
_AFRESH = (
    "What was tried so far is of no use: this is a fresh start. Take another way, with another worker or another kind"
    " of task, and ask for nothing that was asked for before."
)
_LONGEST = 1200  # characters of an instruction


class LedgerReply(Struct, frozen=True):
    """What a model said about a turn. `replaces` names the task that failed whose place the next one takes."""

    done: bool
    looping: bool
    progress: bool
    worker: str
    instruction: str
    why: str
    replaces: str = ""
    unserved: tuple[str, ...] = ()

    def __str__(self) -> str:
        reason = f" (why: {self.why})" if self.why else ""
        if self.done:
            return f"done{reason}"
        looping = "looping" if self.looping else "not looping"
        progress = "progress" if self.progress else "no progress"
        after = f"next {self.worker or 'no worker'}: {self.instruction or 'nothing'}"
        return f"not done, {looping}, {progress}; {after}{reason}"


async def next_task(strategy: Loop, lead: Lead, brief: Brief, context: StepContext) -> Proposal:
    """The next task, or none when it is done or leads nowhere. One call of the model."""
    if brief.loop.ended:
        return Proposal((), closed=True, used=NOTHING)  # it has said so; to be asked again changes nothing
    turn = _Turn(strategy, lead, brief)
    question = await turn.question()
    purpose = Purpose("a question this long", alone=not brief.tasks)
    reply, used = await ask(lead, question.request(lead), context, purpose, turn.read, hear=hear_if_heard(context))
    context.note(f"turn {turn.number}{', a fresh start' if turn.afresh else ''}: {reply}")
    if reply.done:
        return turn.finish(reply, used)
    proposal = turn.go_on(reply, used)
    for text in proposal.unserved:
        context.note(text)
    return proposal


class _Turn:
    """Where it stands, and what becomes of a reply. The bounds are kept here, whatever the model says.

    `stalls` are those in a row, without what this turn may add; `afresh` says that this turn is a fresh start.
    """

    def __init__(self, strategy: Loop, lead: Lead, brief: Brief) -> None:
        before = brief.loop if brief.tasks else LoopState()  # a plan that a person sent back does not count
        self.lead = lead
        self.brief = brief
        self.max_tasks = max(1, min(strategy.max_turns, lead.max_tasks))
        self.patience = max(1, strategy.stalls)
        taken = {task.id for task in brief.tasks}
        self.number = next(number for number in count(len(taken) + 1) if f"t{number}" not in taken)
        self.fresh = before.fresh_starts
        self.may_restart = self.fresh < strategy.fresh_starts
        self.failed = bool(brief.tasks) and any(gap.task == brief.tasks[-1].id for gap in brief.gaps)
        self.refused = tuple(finding for finding in brief.findings if finding.code in REFUSALS)
        self.stalls = before.stalls + sum(finding.code != _STALLED for finding in self.refused)
        is_due = self.stalls + self.failed >= self.patience and self.may_restart and bool(brief.tasks)
        self.afresh = is_due or any(finding.code == _STALLED for finding in self.refused)

    # --- what the model is asked

    async def question(self) -> ModelQuestion:
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
        return ModelQuestion(
            prompt="ledger",
            parts=parts,
            schema=ledger_schema(self.lead.names, _failed_tasks(brief)),
            subject=ProgressLedger(
                goal=brief.goal,
                workers=self.lead.cards,
                tasks=planned_tasks(brief.tasks),
                results=inputs.inputs,
                gaps=brief.gaps,
            ),
            slots={"most": str(self.max_tasks)},
            blocks=await self.lead.blocks(),
            nonce=nonce,
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

    def read(self, text: str) -> LedgerReply:
        return read_ledger(find_object(text), self.lead.names, _failed_tasks(self.brief))

    # --- what becomes of the reply

    def finish(self, reply: LedgerReply, used: Amount | None) -> Proposal:
        """The end of the plan; refused where nothing was delivered yet."""
        brief = self.brief
        if not brief.inputs and not (reply.unserved and not brief.tasks):
            text = "Nothing has been delivered yet, so it cannot be done. Give a task."
            return self._refuse(_EMPTY, text, "it was called done without a result", used)
        combine = self.lead.combine or ("forward" if len(brief.tasks) == 1 else "merge")
        gap_messages = {gap.message for gap in brief.gaps if brief.tasks}  # a run that replans asks again
        unserved = tuple(text for text in reply.unserved if text not in gap_messages)
        return Proposal((), combine, closed=True, used=used, unserved=unserved)

    def go_on(self, reply: LedgerReply, used: Amount | None) -> Proposal:
        """The next task; none where it leads nowhere."""
        brief = self.brief
        if len(brief.tasks) >= self.max_tasks:
            return self._end(f"{self.max_tasks} tasks are all it may take, and it is not done", used)
        if not self.afresh and self.stalls + self.failed >= self.patience:
            return self._end("the last task failed" if self.failed else "the same was asked for again", used)
        if not reply.worker or not reply.instruction:
            names = ", ".join(self.lead.names)
            text = f"Say who does what next: `next` is one of {names}, and `instruction` the task."
            raise self._sent_back("no_next", text, used)
        is_near = self._was_asked_nearly(reply)
        is_repeated = fingerprint(self._task(reply)) in map(fingerprint, brief.tasks)
        if is_repeated or (self.afresh and is_near):
            text = f"{reply.worker} was asked this before. Ask for something else, or ask another worker."
            return self._refuse(_REPEATED, text, f"{reply.worker} was to be asked the same again", used)
        if self.afresh:
            return self._propose(reply, LoopState(fresh_starts=self.fresh + 1), used)
        why = self._stall_reason(reply, is_near=is_near) if brief.tasks else ""
        if why and self.stalls + 1 >= self.patience:
            return self._refuse(_STALLED, _AFRESH, why, used)
        is_lost = brief.tasks and (why or self.refused)
        stalls = self.stalls + bool(why) if is_lost else 0
        return self._propose(reply, LoopState(stalls=stalls, fresh_starts=self.fresh), used)

    def _stall_reason(self, reply: LedgerReply, *, is_near: bool) -> str:
        """Why this turn is a stall, if it is one."""
        if self.failed:
            return "the last task failed"
        if reply.looping:
            return f"it goes round in circles: {reply.why}" if reply.why else "it goes round in circles"
        if not reply.progress:
            return f"no progress: {reply.why}" if reply.why else "there was no progress"
        return f"{reply.worker} was to be asked nearly the same again" if is_near else ""

    def _was_asked_nearly(self, reply: LedgerReply) -> bool:
        new = _telling_words(reply.instruction)
        earlier = [task.instruction for task in self.brief.tasks if task.worker == reply.worker]
        return any(are_alike(new, _telling_words(instruction)) for instruction in earlier)

    def _task(self, reply: LedgerReply) -> Task:
        return Task(
            TaskId(f"t{self.number}"),
            reply.instruction,
            reply.worker,
            after=tuple(Edge(result.task, "optional") for result in self.brief.inputs if "[" not in result.task),
            replaces=TaskId(reply.replaces),
        )

    def _propose(self, reply: LedgerReply, loop: LoopState, used: Amount | None) -> Proposal:
        combine = self.lead.combine or "merge"
        return Proposal((self._task(reply),), combine, closed=False, used=used, loop=loop)

    def _refuse(self, code: str, text: str, why: str, used: Amount | None) -> Proposal:
        """Ask again, which counts as a stall; or end it, where that leads nowhere."""
        is_out = self.stalls + 1 >= self.patience and not self.may_restart and not self.afresh
        if len(self.refused) >= _MAX_REFUSALS or (is_out and self.brief.tasks):
            return self._end(why, used)
        raise self._sent_back(code, text, used)

    def _sent_back(self, code: str, text: str, used: Amount | None) -> WorkFailed:
        finding = Finding(code=code, place="next", message=text)
        return WorkFailed(Failure("logic", text), used, (*self.refused, finding))

    def _end(self, why: str, used: Amount | None) -> Proposal:
        tried = len(self.brief.tasks)
        starts = f" and {self.fresh} fresh start{'s' if self.fresh > 1 else ''}" if self.fresh else ""
        text = f"This stalled after {tried} task{'s' if tried != 1 else ''}{starts}: {why.rstrip('. ')}."
        ended = LoopState(stalls=self.stalls, fresh_starts=self.fresh, ended=True)
        return Proposal((), self.lead.combine or "merge", closed=True, used=used, unserved=(text,), loop=ended)


def _failed_tasks(brief: Brief) -> list[str]:
    return [gap.task for gap in brief.gaps if gap.task]


def _telling_words(text: str) -> frozenset[str]:
    return frozenset(split_words(text)) - _IDLE


def are_alike(first: frozenset[str], second: frozenset[str]) -> bool:
    """Whether two tasks differ by little more than fillers.

    Where each has a word the other lacks, that is mostly what tells them apart: page 2, page 3.
    """
    small, large = sorted((first, second), key=len)
    return bool(small) and small <= large and 5 * len(small) >= 4 * len(large)


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


def read_ledger(table: Mapping[str, object], workers: Sequence[str], failed: Collection[str]) -> LedgerReply:
    """What a reply amounts to; what it leaves out is taken as no reason to stop."""
    replaces = table.get("replaces")
    return LedgerReply(
        done=read_flag(table.get("done")),
        looping=read_flag(table.get("looping")),
        progress=read_flag(table.get("progress"), otherwise=True),
        worker=read_worker(table.get("next"), workers),
        instruction=read_instruction(table.get("instruction")),
        why=one_line(table.get("why"), LONGEST_LINE),
        replaces=replaces if isinstance(replaces, str) and replaces in failed else "",
        unserved=read_lines(table.get("unserved")),
    )
