"""Answers to what a run asks a person: by a function of the program, or in words handed to `resume`."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

from msgspec import Struct, structs

from chargehand.concurrency import BareTaskGroup
from chargehand.engine import events as ev
from chargehand.engine.declared import Write, argument_problem
from chargehand.engine.failure import AskedBecause
from chargehand.engine.plan import NO_TASK, TaskId
from chargehand.engine.state import RunState
from chargehand.errors import Invalid, Refused

if TYPE_CHECKING:
    from chargehand.runtime.run_loop import RunLoop

logger = logging.getLogger("chargehand")


class ApprovalRequest(Struct, frozen=True):
    """What is to be approved: a call, whole, or a plan."""

    run: str
    what: Literal["tool", "plan"]
    worker: str = ""
    """Who wants the call; where a team works for another, from the outermost inwards: `research > reader`."""
    tool: str = ""
    arguments: Mapping[str, object] = {}
    because: AskedBecause = "declared"
    """`declared`: of the tool or by a rule; `tainted`: an effect after text from outside; `repeated`: once more."""
    task: TaskId = NO_TASK
    plan: tuple[str, ...] = ()
    """The tasks of the plan, each in a line."""


class PersonQuestion(Struct, frozen=True):
    """A question in words that a worker asks."""

    run: str
    text: str
    options: tuple[str, ...] = ()
    """The answers to choose from; none: any."""
    free_text: bool = False
    """Another answer than one of the options may be given as well."""
    schema: object = None
    """The JSON Schema of the answer; None: it is text."""
    worker: str = ""
    """Who asks; where a team works for another, from the outermost inwards: `research > reader`."""
    task: TaskId = NO_TASK


OnQuestion: TypeAlias = Callable[[PersonQuestion], object]
"""Returns the answer, or an awaitable of it; None leaves the question open."""
Verdict: TypeAlias = bool | str | None
"""True or `"approve"`; False, `"reject"` or `"reject: why"`; None leaves it open."""
OnApproval: TypeAlias = Callable[[ApprovalRequest], Verdict | Awaitable[Verdict]]
Answer: TypeAlias = Annotated[
    ev.Event | bool | str | Mapping[int, str],
    Write('"approve", "reject: why", True or False; for several calls each by its number, as in {1: "approve"}'),
]
_Word: TypeAlias = Literal["approve", "reject"]


# --- by a function


def check_on_approval(on_approval: OnApproval) -> None:
    """Raise Invalid for a function that could not be asked."""
    if problem := argument_problem(on_approval, "request"):
        raise Invalid(f"on_approval cannot take a request ({problem}); write: def decide(request) -> bool")


def check_on_question(on_question: OnQuestion) -> None:
    """The same for a function that answers questions in words."""
    if problem := argument_problem(on_question, "question"):
        raise Invalid(f"on_question cannot take a question ({problem}); write: async def answer(question) -> str")


class Callbacks(Struct, frozen=True):
    """The functions that are asked what a person would be asked; without one, the run waits for a person."""

    on_approval: OnApproval | None = None
    """Decides on plans and calls."""
    on_question: OnQuestion | None = None
    """Answers questions in words."""
    on_error: Callable[[str, Exception], None] | None = None
    """Told of a run whose question stays open because a function raised; None: that is raised when the run is over."""


async def drive_with_answers(drive: "RunLoop", callbacks: Callbacks, first: Sequence[ev.Event]) -> None:
    """Drive a run to its end; what it asks meanwhile is answered by the callbacks.

    If one raises, the question stays open and the rest is done. Then `on_error` has been told, or it is raised here.
    """
    trouble: list[Exception] = []

    def report(error: Exception) -> None:
        if callbacks.on_error is None:
            trouble.append(error)
        else:
            callbacks.on_error(drive.run, error)

    async with BareTaskGroup() as jobs:
        answering = jobs.create_task(_answer_questions(drive, callbacks, report))
        try:
            await drive.to_end(first=first, wait_for_input=True)
        finally:
            answering.cancel()
    if trouble:
        raise trouble[-1]


async def _answer_questions(drive: "RunLoop", callbacks: Callbacks, report: Callable[[Exception], None]) -> None:
    number = 0
    while True:
        question = await drive.next_question(number)
        number = question.number
        try:
            answer = await _answer(drive.run, drive.state, question, callbacks)
        except Exception as error:  # noqa: BLE001 - of a foreign function
            report(error)
            answer = None
        if answer is None:
            drive.leave_question(number)
            continue
        try:
            await drive.ask(structs.replace(answer, callback=True))
        except Refused as error:
            if drive.state.input is not None and drive.state.input.number == number:  # the answer does not fit
                report(Invalid(f"the answer to question {number} of run {drive.run!r} was refused: {error}"))
                drive.leave_question(number)
                continue
            logger.info("run %s: an answer came too late: %s", drive.run, error)


async def _answer(
    run: str, state: RunState, question: ev.InputRequested, callbacks: Callbacks
) -> ev.InputAnswered | None:
    """The answer to a question, and to what waits behind it; None where the function leaves it open."""
    if question.what == "question":
        return await _answer_in_words(run, question, callbacks.on_question)
    on_approval = callbacks.on_approval
    if on_approval is None:
        return None
    requests = _requests(run, state, question)
    verdicts: dict[int, tuple[_Word, str]] = {}
    for call, request in requests.items():
        verdict = cast("Verdict", await _call(on_approval, request))
        if verdict is None:
            break  # those after it are asked about when this is decided
        verdicts[call] = _read_verdict("on_approval", verdict)
    return _answered(question, verdicts) if _first_call(question) in verdicts else None


async def _answer_in_words(
    run: str, pending: ev.InputRequested, on_question: OnQuestion | None
) -> ev.InputAnswered | None:
    if on_question is None:
        return None
    fields = pending.question or ev.Question("question")
    question = PersonQuestion(
        run=run,
        text=pending.text,
        options=fields.options,
        free_text=fields.free_text,
        schema=fields.schema,
        worker=" > ".join(fields.workers),
        task=pending.task,
    )
    value = await _call(on_question, question)
    return None if value is None else ev.InputAnswered(pending.number, "answer", result=value)


async def _call(function: Callable[..., object], request: Struct) -> object:
    """What a function of the program says. A plain one may wait for a person, so it runs in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(request)
    returned = await asyncio.to_thread(function, request)
    return await returned if inspect.isawaitable(returned) else returned


def _requests(run: str, state: RunState, pending: ev.InputRequested) -> dict[int, ApprovalRequest]:
    """What is asked, by the number of the call; nothing for an effect in doubt, which only a person can look up."""
    question = pending.question
    if pending.what == "effect":
        return {}
    if pending.what == "plan" and question is None:
        tasks = [
            f"{progress.task.id} ({progress.task.worker or 'any worker'}): {progress.task.instruction}"
            for progress in state.tasks.values()
        ]
        return {1: ApprovalRequest(run, "plan", plan=tuple(tasks))}
    worker = "" if question is None else " > ".join(question.workers)
    if pending.what == "plan":
        plan = () if question is None else question.plan
        return {_first_call(pending): ApprovalRequest(run, "plan", worker, task=pending.task, plan=plan)}
    return {
        call.call: ApprovalRequest(
            run=run,
            what="tool",
            worker=worker,
            tool=call.tool or call.text,
            arguments=call.arguments,
            because=call.because,
            task=pending.task,
        )
        for call in pending.calls
    }


# --- in words


def read_answer(run: str, state: RunState | None, answer: Answer, reason: str = "") -> ev.Event:
    """An answer as an event. Refused where nothing is asked, or where one word would have to do for several calls."""
    if not isinstance(answer, bool | str | Mapping):
        return answer
    pending = None if state is None else state.input
    if state is None or pending is None:
        ended = "" if state is None or state.ended is None else f" It has ended ({state.ended.ending})."
        raise Refused(f"run {run!r} asks nothing, so there is nothing to answer.{ended}")
    if state.requested.parent is not None:
        raise Refused(f"run {run!r} works for run {state.requested.parent.run!r}; answer that one")
    if pending.what == "question":
        return ev.InputAnswered(pending.number, "answer", reason, result=answer)
    answer = _as_word(answer) if isinstance(answer, bool) else answer
    if pending.what == "effect":
        return _read_effect_answer(pending, answer, reason)
    return _read_call_answer(run, pending, answer, reason)


def _read_call_answer(
    run: str, pending: ev.InputRequested, answer: str | Mapping[int, str], reason: str
) -> ev.InputAnswered:
    """Verdicts on the calls that wait, or on the plan."""
    waiting = _waiting_calls(pending)
    if isinstance(answer, str):
        if len(waiting) > 1:
            listed = "; ".join(f"{call}: {text}" for call, text in waiting.items())
            example = ", ".join(f'{call}: "approve"' for call in waiting)
            raise Refused(f"run {run!r} asks about {len(waiting)} calls ({listed}). Answer each: {{{example}}}")
        return _answered(pending, {_first_call(pending): _read_verdict("the answer", answer, reason)})
    for call in answer:
        if call not in waiting:
            raise Refused(f"run {run!r} does not ask about call {call}; it asks about {', '.join(map(str, waiting))}")
    if _first_call(pending) not in answer:
        raise Refused(f"run {run!r} asks about call {_first_call(pending)} first; answer that one too")
    return _answered(pending, {call: _read_verdict("the answer", word, reason) for call, word in answer.items()})


def _as_word(approved: bool) -> _Word:  # noqa: FBT001 - it is what a person answered
    return "approve" if approved else "reject"


def _read_effect_answer(pending: ev.InputRequested, answer: str | Mapping[int, str], reason: str) -> ev.Event:
    if answer == "again":
        return ev.InputAnswered(pending.number, "again", reason)
    if answer == "fail":
        return ev.InputAnswered(pending.number, "fail", reason)
    raise Invalid(
        'it is asked what became of an effect: answer "again" (it did not happen), "fail", or, if it happened, '
        f"InputAnswered({pending.number}, 'done', result=...)"
    )


def _read_verdict(owner: str, verdict: Verdict, reason: str = "") -> tuple[_Word, str]:
    """The word and the reason. Invalid for anything else: nothing may pass for an approval by accident."""
    written = _as_word(verdict) if isinstance(verdict, bool) else verdict
    word, _, why = written.partition(":") if isinstance(written, str) else ("", "", "")
    match word.strip().lower():
        case "approve":
            return "approve", reason or why.strip()
        case "reject":
            return "reject", reason or why.strip()
        case _:
            raise Invalid(f'{owner} is {verdict!r}; say "approve", "reject" or "reject: why"')


def _first_call(pending: ev.InputRequested) -> int:
    return 1 if pending.question is None else pending.question.call or 1


def _waiting_calls(pending: ev.InputRequested) -> dict[int, str]:
    """The calls that wait for an answer, by number, each in a line; a plan counts as one."""
    return {call.call: call.text for call in pending.calls} or {_first_call(pending): pending.text}


def _answered(pending: ev.InputRequested, verdicts: Mapping[int, tuple[_Word, str]]) -> ev.InputAnswered:
    first = _first_call(pending)
    word, reason = verdicts[first]
    also = tuple(ev.CallVerdict(call, each, why) for call, (each, why) in verdicts.items() if call != first)
    return ev.InputAnswered(pending.number, word, reason, also=also)
