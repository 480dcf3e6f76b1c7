"""What can be counted about an answer, read off its run: what it covers, what it rests on, where results contradict.

No model is asked and nothing is worked out again.
"""

import msgspec
from msgspec import Struct

from chargehand.agents.audit.claims import describe
from chargehand.agents.audit.report import (
    Coverage,
    Traced,
    answer_tracings,
    count_traced,
    describe_counts,
    measure_coverage,
)
from chargehand.agents.judge import describe_contradiction
from chargehand.engine.facts import AnswerAudit, SettledContradiction, Statement
from chargehand.engine.state import RunState
from chargehand.engine.view import gaps, missing_gaps, results


class Assessment(Struct, frozen=True):
    """What was counted about an answer, and what is doubtful in it.

    `traced` counts what its figures rest on; `untraced` are those that no tool returned and nobody gave, with the task
    that says so (none: the answer itself). `claims` are the figures of an answer that was worded anew, one by one.
    """

    coverage: Coverage
    traced: Traced = Traced()
    untraced: tuple[tuple[str, Statement], ...] = ()
    claims: tuple[Statement, ...] = ()
    contradictions: tuple[SettledContradiction, ...] = ()

    @property
    def worth_saying(self) -> bool:
        """Whether there is more to say than that all was done."""
        found = self.coverage
        return bool(self.traced.total or self.contradictions or (found.covered and found.missing))

    @property
    def line(self) -> str:
        """All of it in a few words."""
        return describe_counts(self.coverage, self.traced, self.contradictions)

    def lines(self) -> list[str]:
        """In full: what was not traced, and every contradiction with its ruling."""
        wrong = [f"not traced: {describe(one)}{_where(task)}; said in: {one.sentence}" for task, one in self.untraced]
        opposed = [f"- {describe_contradiction(each)}" for each in self.contradictions]
        return [f"checked: {self.line}", *(f"  {one}" for one in (*wrong, *opposed))]

    def document(self) -> dict[str, object]:
        """As plain data, for programs."""
        found = self.coverage
        opposed = [
            {"about": one.contradiction.about, "values": dict(one.contradiction.values), "ruling": one.ruling}
            for one in self.contradictions
        ]
        whole = {"covered": found.covered, "missing": found.missing, "unused": found.unused, "share": found.share}
        untraced = [{"task": task, **msgspec.to_builtins(one)} for task, one in self.untraced]
        return {
            "traced": self.traced,
            "untraced": untraced,
            "coverage": whole,
            "claims": self.claims,
            "contradictions": opposed,
        }


def _where(task: str) -> str:
    return f" [{task}]" if task else ""


def assess(state: RunState) -> Assessment:
    """What was counted about the answer of a run, or what there is where none was written."""
    missing = state.ended.gaps if state.ended is not None else gaps(state)
    # parts that workers left, below no task; a run that has not ended does not list them
    missing += tuple(gap for gap in missing_gaps(state) if not gap.task and gap not in missing)
    tracings = answer_tracings(state)
    audit = state.answer_audit or AnswerAudit()
    covered = [result.task for result in results(state) if result.value is not None]
    return Assessment(
        coverage=measure_coverage(covered, missing, audit.unused),
        traced=count_traced(tracings.values()),
        untraced=tuple((task, item) for task, tracing in tracings.items() for item in tracing.untraced),
        claims=audit.statements,
        contradictions=audit.contradictions,
    )
