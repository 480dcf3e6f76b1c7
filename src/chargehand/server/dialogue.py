"""A run in words, for clients that converse: how it goes on, what it asks, and how they answer that."""

from collections.abc import Iterable
from typing import cast

import msgspec

from chargehand.engine import events as ev
from chargehand.engine.admit import VERDICTS
from chargehand.engine.plan import Task
from chargehand.server.api.shapes import AnswerBody
from chargehand.server.wire import Problem

_LONGEST_LINE = 160
_LISTED = 30
_DUTIES = {"plan": "planning", "answer": "writing the answer"}
_LINES: dict[type[ev.Event], str] = {
    ev.SupervisionFailed: "{0.duty} failed: {0.failure.message}",
    ev.TimeRanOut: "the time is up; the answer is written from what there is",
    ev.RunResumed: "resumed after a restart",
    ev.InputRequested: "a person is asked",
    ev.AttemptStarted: "{0.task} started: {0.worker}",
    ev.AttemptSucceeded: "{0.task} done",
    ev.AttemptFailed: "{0.task} failed: {0.failure.message}",
    ev.RetryScheduled: "{0.task} is tried again {0.worker}",
    ev.TaskRefined: "{0.task} was put in other words: {0.instruction}",
    ev.ResultReused: "{0.task} taken over from {0.run}",
    ev.TaskFailed: "{0.task} was given up: {0.failure.message}",
    ev.TaskSkipped: "{0.task} skipped: {0.reason}",
}


def progress_text(event: ev.Event) -> str:
    """What an event says of how a run goes on: a line, or a plan; empty for most."""
    match event:
        case ev.SupervisionStarted(duty=duty):
            return _DUTIES.get(duty, "")
        case ev.RunRequested(plan=plan) if plan is not None:
            return _plan_text(plan.tasks)
        case ev.TasksAdded(tasks=tasks) if tasks:
            return _plan_text(tasks)
        case ev.AttemptFailed(failure=failure) if failure.kind == "approval":
            return f"{event.task} waits for a person"
        case _:
            return _shortened(_LINES.get(type(event), "").format(event))


def _plan_text(tasks: tuple[Task, ...]) -> str:
    return f"plan: {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}\n{list_tasks(tasks, _LONGEST_LINE)}"


def list_tasks(tasks: Iterable[Task], longest: int | None = None) -> str:
    """Tasks in lines, with worker and instruction; cut where there are too many."""
    lines = [f"- {task.id}{f' ({task.worker})' if task.worker else ''}: {task.instruction}" for task in tasks]
    if len(lines) > _LISTED:
        lines = [*lines[:_LISTED], f"- and {len(lines) - _LISTED} more"]
    return "\n".join(lines if longest is None else [_shortened(line, longest) for line in lines])


def _shortened(text: str, longest: int = _LONGEST_LINE) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= longest else f"{plain[: longest - 2]} …"


# --- questions


def question_text(question: ev.InputRequested, tasks: Iterable[Task]) -> str:
    """What a run asks a person; `tasks` are those of its plan."""
    match question.what:
        case "plan":
            return f"Before anything is done, a person must agree to this plan:\n{list_tasks(tasks)}"
        case "tool":
            return f"Before this call is made, a person must agree to it:\n{question.text}"
        case "effect":
            return f"The outcome of this call is unknown; a person must say what happened:\n{question.text}"
        case "question":
            options = ", ".join(question.question.options) if question.question else ""
            return f"A worker asks:\n{question.text}{f' ({options})' if options else ''}"


def parse_answer(question: ev.InputRequested, sent: object) -> AnswerBody:
    """The answer of a client: in fields (`verdict`, `feedback`, `result`), or in words that begin with the verdict.

    Any words answer a question in words.
    """
    if not isinstance(sent, str):
        fields = cast("dict[str, object]", sent) if isinstance(sent, dict) else {}
        try:
            return msgspec.convert({"number": question.number, **fields}, AnswerBody)
        except msgspec.ValidationError as error:
            raise Problem(422, "invalid_answer", f"this is no answer: {error}") from error
    if question.what == "question":
        return worded_answer(question.number, "answer", sent.strip())
    verdict, _, text = sent.strip().partition(" ")
    plain = verdict.strip(".,:;!").casefold()
    if plain not in VERDICTS[question.what]:
        allowed = ", ".join(VERDICTS[question.what])
        raise Problem(422, "invalid_answer", f"begin the answer with one of: {allowed}")
    return worded_answer(question.number, plain, text.strip())


def worded_answer(number: int, verdict: str, text: str) -> AnswerBody:
    """A verdict with words: what was answered or came of a call, else the reason."""
    key = "result" if verdict in ("answer", "done") else "feedback"
    return msgspec.convert({"number": number, "verdict": verdict, key: text}, AnswerBody)


def declined_answer(question: ev.InputRequested) -> AnswerBody:
    """The answer of a person who does not want to decide."""
    verdict = "fail" if question.what == "effect" else "reject"
    return AnswerBody(number=question.number, verdict=verdict, feedback="declined")
