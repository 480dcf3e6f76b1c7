"""What came of a run, for those who asked: the outcome, the plan as it grew, and what was written on the way."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from chargehand.agents.answer import with_gaps
from chargehand.agents.inputs import last_tasks, result_text, value_text
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, CapReached
from chargehand.engine.facts import ToolsWithheld, UsageUnknown
from chargehand.engine.plan import Plan, TaskId
from chargehand.engine.state import RunState
from chargehand.engine.value import decode_value
from chargehand.engine.view import results
from chargehand.runtime.runner import Outcome
from chargehand.runtime.trace import Trace, Tracer

if TYPE_CHECKING:
    from chargehand.agents.audit.assessment import Assessment, Coverage, Traced
    from chargehand.engine.facts import Citation, SettledContradiction, Statement


class Result(Struct, frozen=True, dict=True):
    """What came of a run. `notice` says what people must know about the models behind it, and about a fallback plan.

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
    lost: Amount = NOTHING
    """The part of `spent` that is an estimate, for calls whose outcome is not known: after a crash, a cancel, a
    timeout.
    """
    overspent: Amount = NOTHING
    """What was spent beyond the caps of the budget: nothing, unless a model did not keep to its `max_tokens`."""
    fallback: ev.Failure | None = None
    """Why no plan could be made, where one worker was given the whole request instead; None: there was a plan."""
    cap: CapReached | None = None
    """The cap that is the `reason` (`budget`, `deadline` or `overspent`); None: another reason."""
    output: Any = None
    """The answer as the type that `Supervisor(output=...)` names; None: it names none, or there is no answer."""

    @property
    def cost(self) -> float:
        """Dollars."""
        return self.spent.micros / 1_000_000

    @cached_property
    def _tracer(self) -> Tracer:
        """The entries, folded when first needed."""
        return Tracer.replay(self.run, self.entries)

    @cached_property
    def assessment(self) -> "Assessment":
        """What can be counted about the answer: all of what follows."""
        from chargehand.agents.audit.assessment import assess  # noqa: PLC0415 - only when it is used

        return assess(self._tracer.state)

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
        """The figures of the answer that no tool returned and no input gave, each with its sentence."""
        return tuple(statement for _, statement in self.assessment.untraced)

    @property
    def citations(self) -> "tuple[Citation, ...]":
        """What providers of models cite for the results of the run's tasks, in the order of the tasks.

        It is their word: `confirmed` are those whose text stands in what the worker was given. None counts as traced.
        """
        from chargehand.agents.audit.assessment import cited_by_task  # noqa: PLC0415 - only when it is used

        return tuple(citation for cited in cited_by_task(self._tracer.state).values() for citation in cited)

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
        return self._tracer.snapshot()

    def _repr_html_(self) -> str:
        """The run as a notebook shows it: the answer, the graph and the timeline."""
        from chargehand.runtime.drawing import draw_run  # noqa: PLC0415 - only in notebooks

        return draw_run(self.trace(), answer=value_text(self.answer), cost=self.cost)


def read_result(outcome: Outcome, entries: Sequence[ev.Entry], notice: str = "") -> Result:
    """An outcome with what led to it."""
    return Result(
        run=outcome.run,
        ending=outcome.ending,
        reason=outcome.reason,
        answer=answer_or_fallback(outcome),
        plan=planned(outcome.state),
        results=outcome.results,
        gaps=outcome.gaps,
        spent=outcome.spent,
        entries=tuple(entries),
        notice=" ".join(part for part in (notice, _fallback_notice(outcome.state), *noted_facts(entries)) if part),
        question=outcome.question,
        lost=outcome.state.ledger.lost,
        overspent=outcome.state.ledger.overspent,
        fallback=outcome.state.fallback,
        cap=None if outcome.state.ended is None else outcome.state.ended.cap,
    )


def _fallback_notice(state: RunState) -> str:
    """That no plan could be made, why, and who was given the whole request; empty: there was a plan."""
    if state.fallback is None:
        return ""
    first = state.ordered[0].task
    return f"No plan could be made ({state.fallback.message}): {first.worker} was given the whole request."


def noted_facts(entries: Sequence[ev.Entry]) -> list[str]:
    """Which tools stayed off because their current definition is not approved, and what is not known of the cost."""
    notes = [entry.event for entry in entries if isinstance(entry.event, ev.Noted)]
    texts = dict.fromkeys(note.text for note in notes if isinstance(note.fact, ToolsWithheld | UsageUnknown))
    return [f"{text[:1].upper()}{text[1:]}." for text in texts]


_EMPTY_PLAN = Plan(())  # a copy of it is not checked once more, task by task


def planned(state: RunState) -> Plan:
    """The plan of a run, as far as it has grown."""
    tasks = tuple(progress.task for progress in state.tasks.values() if progress.parent is None)
    return structs.replace(_EMPTY_PLAN, tasks=tasks, combine=state.combine, goal=state.requested.goal)


# --- what there is to say when no answer was written


_ON_THE_WAY = ("network", "timeout", "resource")
_AGAIN = "what is finished can be taken over"
_REMEDIES = {
    "uncertain": "An effect was begun and may have happened: look whether it did before anything is run again.",
    "budget": f"Allow it more and run it again: {_AGAIN}.",
    "deadline": f"Give it more time and run it again: {_AGAIN}.",
    "line": f"Run it again when the model can be reached, or name another model: {_AGAIN}.",
    "service": f"Run it again when what the worker depends on can be reached: {_AGAIN}.",
    "time": f"Give the worker a longer timeout, or mend what was still running, then run it again: {_AGAIN}.",
    "work": f"Run it again, with another model or in other words: {_AGAIN}.",
    "task": f"Run it again in other words, or with another worker: {_AGAIN}.",
    "code": f"Mend the code, then run it again: {_AGAIN}.",
    "declaration": f"Put right what the worker says, then run it again: {_AGAIN}.",
    "refusal": f"Put that right, or name another model, then run it again: {_AGAIN}.",
}


def answer_or_fallback(outcome: Outcome) -> object:
    """The answer of a run; where it stopped without one, what there is to say instead."""
    if outcome.answer is not None:
        return outcome.answer
    return fallback_answer(outcome.state) or with_gaps("", outcome.gaps).strip()


def _message_of(failure: ev.Failure) -> str:
    return failure.message


def fallback_answer(
    state: RunState, *, name_gaps: bool = True, message_of: Callable[[ev.Failure], str] = _message_of
) -> str:
    """The words for a run that has ended without an answer; none where none is wanted, or it was called off.

    Without `name_gaps` it does not say what is missing, for those who have said so already; `message_of` says why a
    failure is what it is, for those who have said that.
    """
    ended = state.ended
    if ended is None or state.answer is not None or state.combine == "none" or ended.ending == "cancelled":
        return ""
    forwarded = _forward_results(state)
    parts = [forwarded] if forwarded else []
    unserved = [
        gap for gap in ended.gaps if gap.status not in ("unwritten", "unplanned") and (not gap.run or gap.is_about_call)
    ]
    missing = with_gaps("", unserved).strip()
    if missing and name_gaps:
        parts.append(missing)
    if not (missing and ended.reason == "no_plan"):  # then that says it all
        parts.append(_explain_no_answer(state, ended, message_of, has_results=bool(forwarded)))
    return "\n\n".join(parts)


def _forward_results(state: RunState) -> str:
    """The results that the answer was to be made from, as they are: of `forward`, those that no other task worked from.

    A result that a later one repeats word for word stands there once.
    """
    values = {result.task: decode_value(result.value) for result in results(state) if result.value is not None}
    names: Sequence[str] = list(values)
    if state.combine == "forward":
        names = last_tasks(names, [progress.task for progress in state.tasks.values()])
    return "\n\n".join(dict.fromkeys(result_text(values[TaskId(task)]) for task in names))


def _explain_no_answer(
    state: RunState, ended: ev.RunEnded, message_of: Callable[[ev.Failure], str], *, has_results: bool
) -> str:
    """Why there is no answer, and what to do about it."""
    problem = "These are the results as they came; no answer was written from them"
    if not has_results:
        problem = "There is no answer"
    failure = state.answering.failure or state.planning.failure
    if ended.reason == "budget" and failure is not None and failure.kind == "budget":
        return f"{problem}: {message_of(failure)}. {_REMEDIES['budget']}"
    if ended.reason == "budget":
        return f"{problem}: the budget is spent. {_REMEDIES['budget']}"
    if ended.reason == "deadline":
        return f"{problem}: the time ran out. {_REMEDIES['deadline']}"
    if failure is not None:
        return f"{problem}: {message_of(failure)}. {_REMEDIES[_remedy(failure)]}"
    if has_results:  # it was not even tried: there was no money left for it
        return f"{problem}: the budget does not cover it. {_REMEDIES['budget']}"
    without_model = {agent.name for agent in state.requested.roster.agents if not agent.model}
    remedies: set[str] = set()
    for progress in state.tasks.values():
        if progress.failure is not None:
            remedies.add(_remedy(progress.failure, has_model=progress.worker not in without_model))
    order = ("uncertain", "code", "refusal", "declaration", "time", "line", "service", "work", "task")
    remedy = next((candidate for candidate in order if candidate in remedies), "work")
    return f"{problem}: nothing that was tried came to a result. {_REMEDIES[remedy]}"


def _remedy(failure: ev.Failure, *, has_model: bool = True) -> str:
    """What would help against a failure: a key of `_REMEDIES`. What fails again is not to be tried again.

    A worker whose tasks a function or a team does `has_model` not.
    """
    if failure.kind == "uncertain":
        return "uncertain"
    if failure.code_error is not None:
        return "code"
    if failure.refusal is not None:
        return "refusal"
    if any(step.kind != "model" for step in failure.running):
        return "time"
    if failure.kind in _ON_THE_WAY and failure.permanent and not has_model:
        return "declaration"
    if failure.kind not in _ON_THE_WAY or failure.permanent:
        return "work" if has_model else "task"
    if has_model:
        return "line"
    return "time" if failure.kind == "timeout" else "service"
