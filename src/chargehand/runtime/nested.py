"""Messages that a worker sends: a run inside its attempt, named after the call that sends it.

Whoever repeats the call after a crash finds the run it began. The run has the money the call has reserved, and less
time than its sender. What such a run looks like is not decided here.
"""

from msgspec import Struct, structs

from chargehand.agents.letters import Letter, Replies, WorkerReply
from chargehand.agents.mail import Carried
from chargehand.core.state import Progress, RunState, Status
from chargehand.errors import Invalid
from chargehand.runtime.front import checked_goal
from chargehand.runtime.messaging import Drives, as_message, carry_out, replies_of
from chargehand.terms import events as ev
from chargehand.terms.budget import NOTHING, Amount, Budget
from chargehand.terms.plan import TaskId, digest
from chargehand.terms.policy import Policy
from chargehand.terms.roster import Agent, Roster
from chargehand.tools.calling import ToolFailed

_KEPT = 10.0  # seconds of its own time that a sender keeps for what it makes of the replies, but at most a fifth
_JOINED = "it joined the team only after the message was sent"


class _Sending(Struct, frozen=True):
    """A call that sends something: where it stands, as the engine wrote it down."""

    run: str
    state: RunState
    progress: Progress
    step: int

    @property
    def chain(self) -> tuple[str, ...]:
        """Everybody who will wait for the replies, the sender last."""
        parent = self.state.requested.parent
        return (*(parent.chain if parent else ()), self.progress.worker)

    @property
    def nesting(self) -> int:
        parent = self.state.requested.parent
        return (parent.nesting if parent else 0) + 1


class Messenger:
    """Carries the messages that workers send in the runs of one driver."""

    def __init__(self, driver: Drives) -> None:
        self._driver = driver

    def sender(self, key: str) -> str:
        found = self._sending(key)
        return found.progress.worker if found is not None else ""

    def _sending(self, key: str) -> _Sending | None:
        """The open step behind a key. Names may hold slashes, so the key is held against what is under way."""
        for run, state in self._driver.under_way.items():
            if not key.startswith(f"{run}/"):
                continue
            rest = key[len(run) + 1 :].rsplit("/", 2)
            if len(rest) != 3:  # the key of another run, whose name begins like this one
                continue
            task, attempt, step = rest
            progress = state.tasks.get(TaskId(task))
            if progress is None or progress.status is not Status.RUNNING or str(progress.attempt) != attempt:
                continue
            recorded = (progress.steps or {}).get(int(step))
            if recorded is not None and recorded.result is None:
                return _Sending(run, state, progress, int(step))
        return None

    async def carry(self, key: str, letter: Letter) -> Carried:
        sending = self._sending(key)
        if sending is None:
            raise ToolFailed("The attempt that sends this is no longer under way.")
        barred = {one.name: why for one in letter.to if (why := _barred(sending, one))}
        rest = structs.replace(letter, to=tuple(one for one in letter.to if one.name not in barred))
        run, used, replies = "", NOTHING, Replies()
        if rest.to:
            run = f"{key}/{digest(letter.text, letter.wanted)[:8]}"
            replies, used = await self._nested(run, sending, rest)
        by_name = {one.worker: one for one in replies.replies}
        skipped = {name: WorkerReply(name, "skipped", failure=why) for name, why in barred.items()}
        joined = {name: WorkerReply(name, "skipped", failure=_JOINED) for name in (one.name for one in letter.to)}
        ordered = tuple({**joined, **by_name, **skipped}.values())
        return Carried(structs.replace(replies, run=run, replies=ordered), used)

    async def _nested(self, run: str, sending: _Sending, letter: Letter) -> tuple[Replies, Amount]:
        held = (sending.progress.steps or {})[sending.step].held
        try:
            checked_goal(letter.text)
            known = await carry_out(self._driver, run, _request(run, sending, letter, held), quiet=True)
        except Invalid as error:  # said before anything was begun
            raise ToolFailed(f"The message could not be sent: {error}") from error
        replies = replies_of(run, await self._driver.journal.read(run))
        if replies.question is not None:  # nobody can be asked from inside an attempt, and the sender has heard so
            await self._driver.resume(run, ev.CancelRequested("nobody can be asked"), quiet=True)
        # a call that was begun before has been charged with all it had reserved, and the run had no more than that
        used = NOTHING if known and held != NOTHING else replies.spent
        return replies, used


def _barred(sending: _Sending, agent: Agent) -> str:
    """Why somebody does not get a message."""
    most = sending.state.requested.policy.limits.nesting
    if agent.name in sending.chain:
        return f"{agent.name} is itself waiting for this answer"
    if sending.nesting > most:
        return f"messages are nested {sending.nesting - 1} deep already, and at most {most} are allowed"
    return ""


def _request(run: str, sending: _Sending, letter: Letter, held: Amount) -> ev.RunRequested:
    requested, progress, now = sending.state.requested, sending.progress, sending.state.at
    deadline = progress.timer - min(_KEPT, max(0.0, progress.timer - now) / 5)
    budget = _within(requested.budget, held)
    parent = ev.Parent(sending.run, progress.task.id, progress.attempt, sending.nesting, sending.chain)
    policy: Policy = structs.replace(requested.policy, uncertain="fail")  # nobody can be asked
    seed = int(digest(run, str(requested.seed))[:8], 16)
    base = ev.RunRequested(letter.text, Roster(), policy, budget, deadline, seed, parent=parent)
    return as_message(base, letter)


def _within(budget: Budget, held: Amount) -> Budget:
    """What a call holds, as the caps of the run it starts; what is not capped outside is not capped inside."""
    return Budget(
        None if budget.tokens is None else held.tokens,
        None if budget.micros is None else held.micros,
        None if budget.calls is None else held.calls,
    )
