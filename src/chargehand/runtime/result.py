"""What came of a run, for those who asked: the outcome, the plan as it grew, and what was written on the way."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from chargehand.agents.answer import with_gaps
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan, TaskId
from chargehand.engine.state import RunState
from chargehand.runtime.runner import Outcome
from chargehand.runtime.trace import Trace, trace

if TYPE_CHECKING:
    from chargehand.agents.audit.report import Coverage, Traced
    from chargehand.engine.tracing import SettledContradiction, Statement
    from chargehand.runtime.assessed import Assessment
from msgspec import structs

from chargehand.agents.exhibit_text import result_text
from chargehand.engine.plan import needs
from chargehand.engine.value import decode_value
from chargehand.engine.view import results
from chargehand.models.subject import Given


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
    def untraced(self) -> "tuple[Statement, ...]":
        """The figures of the answer that no tool returned and nobody gave, each with its sentence."""
        return tuple(one for _, one in self.assessment.untraced)

    @property
    def claims(self) -> "tuple[Statement, ...]":
        """Numbers, days, addresses and quotations of a written answer: what each cites, and what it rests on."""
        return self.assessment.claims

    @property
    def contradictions(self) -> "tuple[SettledContradiction, ...]":
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


# --- what there is to say when no answer was written


_ON_THE_WAY = ("network", "timeout", "resource")
_AGAIN = "what is finished can be taken over"
_TODO = {
    "budget": f"Allow it more and run it again: {_AGAIN}.",
    "deadline": f"Give it more time and run it again: {_AGAIN}.",
    "line": f"Run it again when the model can be reached, or name another model: {_AGAIN}.",
    "time": f"Give the worker a longer timeout, or mend what was still running, then run it again: {_AGAIN}.",
    "work": f"Run it again, with another model or in other words: {_AGAIN}.",
    "code": f"Mend the code, then run it again: {_AGAIN}.",
    "refusal": f"Put that right, or name another model, then run it again: {_AGAIN}.",
}


def spoken(found: Result) -> Result:
    """The result with something to read: where a run has ended without an answer, what there is takes its place."""
    if found.ending not in ("partial", "failed"):
        return found
    if any(isinstance(entry.event, ev.AnswerWritten) for entry in reversed(found.entries)):
        return found
    said = plain_answer(found.entries)
    return structs.replace(found, answer=said) if said else found


def plain_answer(entries: Sequence[ev.Entry]) -> str:
    """The words for a run that has ended without an answer; none where none is wanted, or it was called off."""
    state = replay(entries)
    ended = state.ended
    if ended is None or state.answer is not None or state.combine == "none" or ended.ending == "cancelled":
        return ""
    failure = _last_failure(entries)
    have = _forwarded(state)
    parts = [have] if have else []
    unserved = [gap for gap in ended.gaps if gap.status != "unwritten" and not gap.run]  # why that is follows
    if missing := with_gaps("", unserved).strip():
        parts.append(missing)
    if not (missing and ended.reason == "no_plan"):  # then that says it all
        failures = [one.failure for one in state.tasks.values() if one.failure is not None]
        parts.append(_why(ended, failure, failures, have=bool(have)))
    return "\n\n".join(parts)


def _forwarded(state: RunState) -> str:
    """The results nobody else worked from, as they are."""
    tasks = {one.task.id: one.task for one in state.tasks.values()}
    found = [one for one in results(state) if one.value is not None]
    read: set[TaskId] = {name for one in found if one.task in tasks for name, _ in needs(tasks[one.task])}
    last = [one for one in found if one.task not in read] or found
    values = [(one.task, decode_value(one.value)) for one in last if one.value is not None]
    return "\n\n".join(result_text(Given(task=task, instruction="", worker="", value=value)) for task, value in values)


def _last_failure(entries: Sequence[ev.Entry]) -> ev.Failure | None:
    """Why the supervisor's last duty came to nothing, if it did."""
    for entry in reversed(entries):
        if isinstance(entry.event, ev.SupervisionFailed) and entry.event.duty != "refine":
            return entry.event.failure
        if isinstance(entry.event, ev.TasksAdded):
            return None
    return None


def _why(ended: ev.RunEnded, failure: ev.Failure | None, failures: Sequence[ev.Failure], *, have: bool) -> str:
    """Why there is no answer: `failure` is that of the supervisor's last duty, `failures` those of the tasks."""
    what = "These are the results as they came; no answer was written from them" if have else "There is no answer"
    if ended.reason == "budget" and failure is not None and failure.kind == "budget":
        return f"{what}: {failure.message}. {_TODO['budget']}"
    if ended.reason == "budget":
        return f"{what}: the budget is spent. {_TODO['budget']}"
    if ended.reason == "deadline":
        return f"{what}: the time ran out. {_TODO['deadline']}"
    if failure is not None:
        return f"{what}: {failure.message}. {_TODO[_remedy(failure)]}"
    if have:  # it was not even tried: there was no money left for it
        return f"{what}: the budget does not cover it. {_TODO['budget']}"
    remedies = {_remedy(failure) for failure in failures}
    remedy = next((known for known in ("code", "refusal", "time", "line") if known in remedies), "work")
    return f"{what}: nothing that was tried came to a result. {_TODO[remedy]}"


def _remedy(failure: ev.Failure) -> str:
    """What would help against a failure: a key of `_TODO`. Nobody is told to try again what fails again."""
    if failure.code_error is not None:
        return "code"
    if failure.refusal is not None:
        return "refusal"
    if any(step.kind != "model" for step in failure.running):
        return "time"
    return "line" if failure.kind in _ON_THE_WAY and not failure.permanent else "work"
