"""Have functions of the program answer what a run asks a person."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from msgspec import Struct, structs

from chargehand.concurrency import BareTaskGroup
from chargehand.engine import events as ev
from chargehand.engine.declared import argument_problem
from chargehand.engine.failure import AskedBecause, EarlierCall
from chargehand.engine.plan import NO_TASK, TaskId
from chargehand.engine.state import RunState
from chargehand.engine.value import decode_value, encode_value
from chargehand.errors import Invalid, Refused
from chargehand.runtime.answers import WORDS, first_call, make_answer, read_verdict

if TYPE_CHECKING:
    from chargehand.runtime.run_loop import RunLoop

logger = logging.getLogger("chargehand")


class ApprovalRequest(Struct, frozen=True):
    """What a person is asked to decide: a call, a plan, or what became of an effect."""

    run: str
    """The run that asks."""
    what: Literal["tool", "plan", "effect"]
    """`tool`: may this call be made? `plan`: may this plan run? `effect`: did this call happen? It was begun and its
    outcome is not known.
    """
    worker: str = ""
    """Who wants the call; where a team works for another, from the outermost inwards: `research > reader`."""
    tool: str = ""
    """The tool that is called; empty: a plan."""
    arguments: Mapping[str, object] = {}
    """Its arguments, whole."""
    because: AskedBecause = "declared"
    """`declared`: of the tool or by a rule; `tainted`: an effect after text from outside; `repeated`: once more."""
    task: TaskId = NO_TASK
    """The task that makes the call; empty: the plan of the run itself."""
    plan: tuple[str, ...] = ()
    """The tasks of the plan, each in a line."""
    key: str = ""
    """Of an effect: the idempotency key of the call, to look it up by in the outside system."""
    earlier: EarlierCall | None = None
    """The call that this one repeats, with its result; None: it repeats none."""


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
"""Of a call or a plan: True or `"approve"`; False, `"reject"` or `"reject: why"`. Of an effect: `"done: RESULT"`,
`"again"` or `"fail"`. None leaves the question open.
"""
OnApproval: TypeAlias = Callable[[ApprovalRequest], Verdict | Awaitable[Verdict]]


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
    verdicts: list[ev.CallVerdict] = []
    for call, request in requests.items():
        words = cast("Verdict", await _call(on_approval, request))
        if words is None or _says_nothing(request, words):
            break  # those after it are asked about when this is decided
        verdicts.append(read_verdict(question.what, call, words, owner="on_approval"))
    return make_answer(question, verdicts) if verdicts else None


def _says_nothing(request: ApprovalRequest, words: Verdict) -> bool:
    """Check for a function that only allows or forbids calls, where it is asked whether one happened."""
    word = words.partition(":")[0].strip().lower() if isinstance(words, str) else words
    if request.what != "effect" or word not in (True, False, "approve", "reject"):
        return False
    logger.warning(
        "run %s: on_approval is %r, which does not say whether %s happened; it stays open. Say %s",
        request.run,
        words,
        request.tool,
        WORDS["effect"],
    )
    return True


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
    if value is None:
        return None
    plain = decode_value(encode_value(value))  # such as of a pydantic model
    return ev.InputAnswered(pending.number, "answer", result=plain)


async def _call(function: Callable[..., object], request: Struct) -> object:
    """What a function of the program says. A plain one may wait for a person, so it runs in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(request)
    returned = await asyncio.to_thread(function, request)
    return await returned if inspect.isawaitable(returned) else returned


def _requests(run: str, state: RunState, pending: ev.InputRequested) -> dict[int, ApprovalRequest]:
    """Return what is asked, by the number of the call."""
    question = pending.question
    if pending.what == "plan" and question is None:
        tasks = [
            f"{progress.task.id} ({progress.task.worker or 'any worker'}): {progress.task.instruction}"
            for progress in state.tasks.values()
        ]
        return {1: ApprovalRequest(run, "plan", plan=tuple(tasks))}
    worker = "" if question is None else " > ".join(question.workers)
    if pending.what == "plan":
        plan = () if question is None else question.plan
        return {first_call(pending): ApprovalRequest(run, "plan", worker, task=pending.task, plan=plan)}
    return {
        call.call: ApprovalRequest(
            run=run,
            what="effect" if pending.what == "effect" else "tool",
            worker=worker or _worker_of(state, call.task),
            tool=call.tool or call.text,
            arguments=call.arguments,
            because=call.because,
            task=call.task if pending.what == "effect" else pending.task,
            key=call.key if pending.what == "effect" else "",
            earlier=call.earlier,
        )
        for call in pending.calls
    }


def _worker_of(state: RunState, task: TaskId) -> str:
    progress = state.tasks.get(task)
    return "" if progress is None else progress.worker
