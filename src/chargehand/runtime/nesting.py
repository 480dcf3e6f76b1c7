"""Runs inside attempts: where the call stands that starts one, and what time and money it may give.

Messages that workers send are `nested`, teams that work for others `subteams`.
"""

from collections.abc import Sequence

from msgspec import Struct

from chargehand.agents.handover import acted
from chargehand.agents.mail import MAIL
from chargehand.agents.subteam import STEP
from chargehand.core.state import Progress, RunState, Status, Work
from chargehand.runtime.messaging import Drives
from chargehand.stores.journal import Journal
from chargehand.terms import events as ev
from chargehand.terms.budget import Amount, Budget, usd_of
from chargehand.terms.plan import TaskId, digest
from chargehand.terms.policy import Instant, Seconds

_KEPT = 10.0  # seconds of its own time that an attempt keeps for what it makes of the outcome, but at most a fifth


class Call(Struct, frozen=True):
    """A call that starts a run: where it stands, as the engine wrote it down."""

    run: str
    state: RunState
    progress: Progress
    step: int

    @property
    def worker(self) -> str:
        return self.progress.worker

    @property
    def held(self) -> Amount:
        return (self.progress.steps or {})[self.step].held

    @property
    def chain(self) -> tuple[str, ...]:
        """Everybody who will wait for the outcome, the one who calls last."""
        parent = self.state.requested.parent
        return (*(parent.chain if parent else ()), self.worker)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Those of the same team among them: a name that ends in a slash waits for a team, and is outside of it."""
        chain = self.chain
        last = max((at for at, name in enumerate(chain, 1) if name.endswith("/")), default=0)
        return chain[last:]

    @property
    def nesting(self) -> int:
        return nesting(self.state)

    @property
    def kept(self) -> Seconds:
        """What its attempt keeps of its own time."""
        return min(_KEPT, max(0.0, self.progress.timer - self.state.at) / 5)

    @property
    def deadline(self) -> Instant:
        return self.progress.timer - self.kept

    def parent(self, chain: tuple[str, ...]) -> ev.Parent:
        return ev.Parent(
            run=self.run, task=self.progress.task.id, attempt=self.progress.attempt, nesting=self.nesting, chain=chain
        )

    def seed(self, run: str) -> int:
        return int(digest(run, str(self.state.requested.seed))[:8], 16)

    @property
    def owed(self) -> bool:
        """Whether anybody still waits for the attempt that calls."""
        return Work("attempt", self.progress.task.id, self.progress.attempt) in self.state.owing


def open_call(driver: Drives, key: str) -> Call | None:
    """The open step behind a key. Names may hold slashes, so the key is held against what is under way."""
    for run, state in driver.under_way.items():
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
            return Call(run, state, progress, int(step))
    return None


def nesting(state: RunState) -> int:
    """How deep a run would be that is started from this one."""
    parent = state.requested.parent
    return (parent.nesting if parent else 0) + 1


async def had_effects(journal: Journal, run: str, entries: Sequence[ev.Entry]) -> bool:
    """Whether something was changed in the world by a run, or by those it had messages sent to."""
    if acted(entries):
        return True
    if not any(isinstance(one.event, ev.StepStarted) and one.event.name in MAIL for one in entries):
        return False
    for row in await journal.runs():
        if row.run.startswith(f"{run}/") and acted(await journal.read(row.run)):
            return True
    return False


def within(budget: Budget, held: Amount) -> Budget:
    """What a call holds, as the caps of the run it starts; what is not capped outside is not capped inside."""
    return Budget(
        tokens=None if budget.tokens is None else held.tokens,
        usd=None if budget.usd is None else usd_of(held.micros),
        calls=None if budget.calls is None else held.calls,
    )


def share(state: RunState, estimate: Amount, own: Budget) -> Amount:
    """What a team may use of what is left: its estimate, else as much as everybody else who still needs something.

    What the answer costs is kept back.
    """
    ledger = state.ledger
    budget = state.requested.budget
    answer = state.requested.roster.supervision
    open_tasks = (one for one in state.tasks.values() if not one.settled and one.status is not Status.EXPANDED)
    claims = sum(not _entrusted(one) for one in open_tasks) + (not state.closed)

    gone = ledger.taken + budget.floor.max(answer)

    def part(cap: int | None, gone: int, wanted: int, most: int | None) -> int:
        if cap is None:
            return 0
        fair = wanted or max(0, cap - gone) // max(1, claims)
        return fair if most is None else min(fair, most)

    return Amount(
        tokens=part(budget.tokens, gone.tokens, estimate.tokens, own.tokens),
        micros=part(budget.micros, gone.micros, estimate.micros, own.micros),
        calls=part(budget.calls, gone.calls, estimate.calls, own.calls),
    )


def _entrusted(progress: Progress) -> bool:
    """Whether a team has its part for this task already."""
    return any(step.result is None and step.name.startswith(STEP) for step in (progress.steps or {}).values())
