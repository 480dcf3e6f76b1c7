"""What came of a run, for those who asked: the outcome, the plan as it grew, and what was written on the way."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from chargehand.agents.answering import with_gaps
from chargehand.core.fold import replay
from chargehand.core.state import RunState
from chargehand.runtime.driver import Outcome
from chargehand.runtime.trace import Trace, trace
from chargehand.terms import events as ev
from chargehand.terms.budget import Amount
from chargehand.terms.plan import Plan, TaskId

if TYPE_CHECKING:
    from chargehand.agents.claims import Claim
    from chargehand.agents.coverage import Coverage, Traced
    from chargehand.agents.judging import Settled
    from chargehand.runtime.assessed import Assessment
    from chargehand.terms.tracing import Untraced


class Result(Struct, frozen=True, dict=True):
    """What came of a run. `notice` says what people must know about the models behind it.

    What can be counted about the answer (`coverage`, `traced`, `untraced`, `claims`, `contradictions`) is worked out
    from the entries when it is first asked for.
    """

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

    @cached_property
    def overspent(self) -> Amount:
        """What was spent beyond the caps of the budget: nothing, unless a model did not keep to its `max_tokens`."""
        return replay(self.entries).ledger.overspent

    @cached_property
    def assessment(self) -> "Assessment":
        """What can be counted about the answer: all of what follows."""
        from chargehand.runtime.assessed import assess  # noqa: PLC0415 - nobody pays who does not ask

        return assess(self.entries)

    @property
    def coverage(self) -> "Coverage":
        """Which parts of the plan the answer covers, which are missing, and which results it does not cite."""
        return self.assessment.coverage

    @property
    def traced(self) -> "Traced":
        """How many figures of the answer tools returned, were given, are only a worker's words, or stand nowhere."""
        return self.assessment.traced

    @property
    def untraced(self) -> "tuple[Untraced, ...]":
        """The figures of the answer that no tool returned and nobody gave, each with its sentence."""
        return tuple(one for _, one in self.assessment.untraced)

    @property
    def claims(self) -> "tuple[Claim, ...]":
        """Numbers, days, addresses and quotations of a written answer: what each cites, and what it rests on."""
        return self.assessment.claims

    @property
    def contradictions(self) -> "tuple[Settled, ...]":
        """Where results contradict each other, with the ruling of a judge and why, if there was one."""
        return self.assessment.contradictions

    def trace(self) -> Trace:
        """Every step of the run, as plain data."""
        return trace(self.run, self.entries)


def result_of(found: Outcome, entries: Sequence[ev.Entry], notice: str) -> Result:
    """An outcome with what led to it. Where there is no answer, the gaps are what there is to say."""
    answer = found.answer if found.answer is not None else with_gaps("", found.gaps).strip()
    return Result(
        run=found.run,
        ending=found.ending,
        reason=found.reason,
        answer=answer,
        plan=planned(replay(entries)),
        results=found.results,
        gaps=found.gaps,
        spent=found.spent,
        entries=tuple(entries),
        notice=notice,
        question=found.question,
    )


def planned(state: RunState) -> Plan:
    """The plan of a run, as far as it has grown."""
    tasks = tuple(one.task for one in state.tasks.values() if one.mother is None)
    return Plan(tasks, state.combine, state.requested.goal)
