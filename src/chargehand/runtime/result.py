"""What came of a run, for those who asked: the outcome, the plan as it grew, and what was written on the way."""

from collections.abc import Sequence

from msgspec import Struct

from chargehand.agents.answering import with_gaps
from chargehand.core.fold import replay
from chargehand.core.state import RunState
from chargehand.runtime.driver import Outcome
from chargehand.runtime.trace import Trace, trace
from chargehand.terms import events as ev
from chargehand.terms.budget import Amount
from chargehand.terms.plan import Plan, TaskId


class Result(Struct, frozen=True):
    """What came of a run. `notice` says what people must know about the models behind it."""

    run: str
    ending: ev.Ending
    reason: ev.EndReason
    answer: object
    plan: Plan
    results: dict[TaskId, object]
    gaps: tuple[ev.Gap, ...]
    spent: Amount
    entries: tuple[ev.Entry, ...]
    notice: str = ""
    question: ev.InputRequested | None = None

    @property
    def cost(self) -> float:
        """Dollars."""
        return self.spent.micros / 1_000_000

    def trace(self) -> Trace:
        """Every step of the run, as plain data."""
        return trace(self.run, self.entries)


def result_of(found: Outcome, entries: Sequence[ev.Entry], notice: str) -> Result:
    """An outcome with what led to it. Where there is no answer, the gaps are what there is to say."""
    answer = found.answer if found.answer is not None else with_gaps("", found.gaps).strip()
    return Result(
        found.run, found.ending, found.reason, answer, planned(replay(entries)), found.results, found.gaps,
        found.spent, tuple(entries), notice, found.question,
    )  # fmt: skip


def planned(state: RunState) -> Plan:
    """The plan of a run, as far as it has grown."""
    tasks = tuple(one.task for one in state.tasks.values() if one.mother is None)
    return Plan(tasks, state.combine, state.requested.goal)
