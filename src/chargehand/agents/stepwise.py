"""Leading step by step: one task a turn, chosen after a look at what came of those before, until it is done or stalls.

Nothing is remembered here. How often it stalled in a row, and how many fresh starts there were, stands in the ids of
the tasks (`t4-stall2`, `t5-fresh1`); what was refused since the last task stands in the findings of the brief.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Raw, Struct

from chargehand.agents.crew import Hand, Proposal, WorkFailed
from chargehand.agents.inputs import by_id, gap_text, today, told
from chargehand.agents.lead import Lead
from chargehand.agents.questions import Question, instruction, put, texts, who, worded, words, yes
from chargehand.agents.shape import choice_schema, encode_schema, list_schema, sent_back, text_schema
from chargehand.agents.ways import Loop
from chargehand.core.owed import Brief
from chargehand.models.envelope import new_nonce
from chargehand.models.subject import Ledger, Planned
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.failure import Failure
from chargehand.terms.plan import Edge, Finding, Task, TaskId, fingerprint, needs
from chargehand.text.words import FUNCTION_WORDS, split_words
from chargehand.tools.tool import CAP

_MARK = re.compile(r"t(\d{1,6})(?:-(stall|fresh)(\d{1,4}))?")
_ENDED = "This stalled"
_REPEATED = "repeated"
_STALLED = "stalled"
_EMPTY = "nothing_done"
_OURS = (_REPEATED, _STALLED, _EMPTY)
_REFUSALS = 2  # in a row; the run gives up on a planner after three
_IDLE = FUNCTION_WORDS | {"again", "carefully", "more", "now", "once", "please", "then"}
_AFRESH = (
    "What was tried so far is of no use: this is a fresh start. Take another way, with another worker or another kind"
    " of task, and ask for nothing that was asked for before."
)
_LONGEST = 1200  # characters of an instruction


class LedgerReply(Struct, frozen=True):
    """What a ledger says. `replaces` names the task that failed whose place the next one takes."""

    done: bool
    looping: bool
    progress: bool
    worker: str
    instruction: str
    why: str
    replaces: str = ""
    unserved: tuple[str, ...] = ()

    def told(self) -> str:
        """It in words, for the trace."""
        if self.done:
            return f"done{self.reason}"
        looping = "looping" if self.looping else "not looping"
        progress = "progress" if self.progress else "no progress"
        after = f"next {self.worker or 'nobody'}: {self.instruction or 'nothing'}"
        return f"not done, {looping}, {progress}; {after}{self.reason}"

    @property
    def reason(self) -> str:
        return f" (why: {self.why})" if self.why else ""


class _Stand(Struct, frozen=True):
    """Where it stands before the ledger is asked.

    `stalls` are those in a row, without what this turn may add; `afresh` says that this turn is a fresh start.
    """

    number: int
    stalls: int
    fresh: int
    failed: bool
    afresh: bool
    refused: tuple[Finding, ...]


async def stepwise(way: Loop, lead: Lead, brief: Brief, hand: Hand) -> Proposal:
    """The next task, or none when it is done or leads nowhere. One call of the model."""
    if any(one.status == "unserved" and one.message.startswith(_ENDED) for one in brief.gaps):
        return Proposal((), closed=True, used=NOTHING)  # it has said so; to be asked again changes nothing
    stand = _standing(way, brief)
    nonce = new_nonce()
    blocks = () if lead.shared is None else await lead.shared()
    request = worded(lead, _asked(way, lead, brief, stand, nonce), nonce, blocks)
    answered = await put(lead, request, hand, alone=not brief.tasks)
    said = read_ledger(answered.table, [card.name for card in lead.cards], _missing(brief))
    hand.note(f"turn {stand.number}{', a fresh start' if stand.afresh else ''}: {said.told()}")
    turn = _Turn(way=way, lead=lead, brief=brief, stand=stand, said=said, used=answered.used)
    found = turn.done() if said.done else turn.more()
    for text in found.unserved if not said.done else ():
        hand.note(text)
    return found


def _standing(way: Loop, brief: Brief) -> _Stand:
    marks = [found for one in brief.tasks if (found := _MARK.fullmatch(one.id))]
    fresh = max([int(one[3]) for one in marks if one[2] == "fresh"], default=0)
    last = marks[-1] if marks else None
    row = int(last[3]) if last is not None and last[2] == "stall" else 0
    failed = bool(brief.tasks) and any(one.task == brief.tasks[-1].id for one in brief.gaps)
    refused = tuple(one for one in brief.findings if one.code in _OURS)
    row += sum(one.code != _STALLED for one in refused)
    due = row + failed >= _patience(way) and fresh < way.fresh_starts and bool(brief.tasks)
    afresh = due or any(one.code == _STALLED for one in refused)
    number = 1 + max([len(brief.tasks), *(int(one[1]) for one in marks)])
    return _Stand(number=number, stalls=row, fresh=fresh, failed=failed, afresh=afresh, refused=refused)


def _asked(way: Loop, lead: Lead, brief: Brief, stand: _Stand, nonce: str) -> Question:
    most = _most(way, lead)
    room = lead.model.card.window * 2 // max(1, len(brief.inputs))  # bytes: about half the window for all results
    given = told(brief, nonce, by_id(brief.tasks), max(500, min(CAP, room)))
    planned = tuple(
        Planned(id=one.id, instruction=one.instruction, worker=one.worker, after=tuple(name for name, _ in needs(one)))
        for one in brief.tasks
    )
    said = [f"Request: {brief.goal}", today(brief)]
    if brief.tasks:
        lines = [f"- {one.id} ({one.worker}): {one.instruction}" for one in planned]
        said += ["The tasks so far:\n" + "\n".join(lines), given.text]
        said.extend(gap_text(one, nonce) for one in brief.gaps)
    said.extend(_warnings(brief, stand, most - len(brief.tasks)))
    shape = ledger_schema([card.name for card in lead.cards], _missing(brief))
    subject = Ledger(goal=brief.goal, workers=lead.cards, tasks=planned, results=given.inputs, gaps=brief.gaps)
    return Question(prompt="ledger", said=said, schema=shape, subject=subject, slots={"most": str(most)})


def _warnings(brief: Brief, stand: _Stand, left: int) -> Iterator[str]:
    """What was wrong before, and how much room there is."""
    if brief.findings:
        yield "Your last proposal was sent back:\n" + sent_back(brief.findings)
    if stand.afresh:
        yield _AFRESH
    elif row := stand.stalls + stand.failed:
        yield f"The last {row} turn{'s' if row > 1 else ''} brought nothing. Take another way."
    yield f"{left} more task{'s' if left != 1 else ''} may be given." if left > 0 else "No more tasks may be given."


class _Turn(Struct, frozen=True):
    """What becomes of a reply. The bounds are kept here, whatever the model says."""

    way: Loop
    lead: Lead
    brief: Brief
    stand: _Stand
    said: LedgerReply
    used: Amount | None

    def done(self) -> Proposal:
        if not self.brief.inputs and not (self.said.unserved and not self.brief.tasks):
            text = "Nothing has been delivered yet, so it cannot be done. Give a task."
            return self.refuse(_EMPTY, text, "it was called done without a result")
        single = len(self.brief.tasks) == 1
        combine = self.lead.combine or ("forward" if single else "merge")
        named = {one.message for one in self.brief.gaps if self.brief.tasks}  # a run that replans asks again
        unserved = tuple(one for one in self.said.unserved if one not in named)
        return Proposal((), combine, closed=True, used=self.used, unserved=unserved)

    def more(self) -> Proposal:
        if len(self.brief.tasks) >= (most := _most(self.way, self.lead)):
            return self.end(f"{most} tasks are all it may take, and it is not done")
        if not self.stand.afresh and self.stand.stalls + self.stand.failed >= _patience(self.way):
            return self.end("the last task failed" if self.stand.failed else "the same was asked for again")
        if not self.said.worker or not self.said.instruction:
            names = ", ".join(card.name for card in self.lead.cards)
            text = f"Say who does what next: `next` is one of {names}, and `instruction` the task."
            raise self.failed("no_next", text)
        task = self.task("")
        if fingerprint(task) in map(fingerprint, self.brief.tasks) or (self.stand.afresh and self.near()):
            text = f"{self.said.worker} was asked this before. Ask for something else, or somebody else."
            return self.refuse(_REPEATED, text, f"{self.said.worker} was to be asked the same again")
        if self.stand.afresh:
            return self.proposed(f"-fresh{self.stand.fresh + 1}")
        why = self.stalled()
        if why and self.stand.stalls + 1 >= _patience(self.way):
            return self.refuse(_STALLED, _AFRESH, why)
        row = self.stand.stalls + bool(why)
        lost = self.brief.tasks and (why or self.stand.refused)
        return self.proposed(f"-stall{row}" if lost else "")

    def stalled(self) -> str:
        """Why this turn is a stall, if it is one. The first has nothing to look back at."""
        if not self.brief.tasks:
            return ""
        if self.stand.failed:
            return "the last task failed"
        if self.said.looping:
            return f"it goes round in circles: {self.said.why}" if self.said.why else "it goes round in circles"
        if not self.said.progress:
            return f"no progress: {self.said.why}" if self.said.why else "there was no progress"
        return f"{self.said.worker} was to be asked nearly the same again" if self.near() else ""

    def near(self) -> bool:
        """Whether the worker was asked nearly this before."""
        new = _bag(self.said.instruction)
        return any(one.worker == self.said.worker and alike(new, _bag(one.instruction)) for one in self.brief.tasks)

    def task(self, mark: str) -> Task:
        after = tuple(Edge(one.task, "optional") for one in self.brief.inputs if "[" not in one.task)
        name = TaskId(f"t{self.stand.number}{mark}")
        replaces = TaskId(self.said.replaces)
        return Task(name, self.said.instruction, self.said.worker, after=after, replaces=replaces)

    def proposed(self, mark: str) -> Proposal:
        return Proposal((self.task(mark),), self.lead.combine or "merge", closed=False, used=self.used)

    def refuse(self, code: str, text: str, why: str) -> Proposal:
        """Ask again, which counts as a stall; or end it, where that leads nowhere."""
        row = self.stand.stalls + 1
        refused = len(self.stand.refused)
        out = row >= _patience(self.way) and self.stand.fresh >= self.way.fresh_starts and not self.stand.afresh
        if refused >= _REFUSALS or (out and self.brief.tasks):
            return self.end(why)
        raise self.failed(code, text)

    def failed(self, code: str, text: str) -> WorkFailed:
        finding = Finding(code=code, place="next", message=text)
        return WorkFailed(Failure("logic", text), self.used, (*self.stand.refused, finding))

    def end(self, why: str) -> Proposal:
        tried = len(self.brief.tasks)
        starts = f" and {self.stand.fresh} fresh start{'s' if self.stand.fresh > 1 else ''}" if self.stand.fresh else ""
        text = f"{_ENDED} after {tried} task{'s' if tried != 1 else ''}{starts}: {why.rstrip('. ')}."
        combine = self.lead.combine or "merge"
        return Proposal((), combine, closed=True, used=self.used, unserved=(text,))


def _missing(brief: Brief) -> list[str]:
    return [one.task for one in brief.gaps if one.task]


def _most(way: Loop, lead: Lead) -> int:
    return max(1, min(way.most_turns, lead.most_tasks))


def _patience(way: Loop) -> int:
    return max(1, way.stalls)


def _bag(text: str) -> frozenset[str]:
    return frozenset(split_words(text)) - _IDLE


def alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two tasks differ by little more than fillers.

    Where each has a word the other lacks, that is mostly what tells them apart: page 2, page 3.
    """
    small, large = sorted((one, other), key=len)
    return bool(small) and small <= large and 5 * len(small) >= 4 * len(large)


# --- the ledger: what the model is asked for, and what its reply amounts to


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
        done=yes(table.get("done")),
        looping=yes(table.get("looping")),
        progress=yes(table.get("progress"), otherwise=True),
        worker=who(table.get("next"), workers),
        instruction=instruction(table.get("instruction")),
        why=words(table.get("why")),
        replaces=replaces if isinstance(replaces, str) and replaces in failed else "",
        unserved=texts(table.get("unserved")),
    )
