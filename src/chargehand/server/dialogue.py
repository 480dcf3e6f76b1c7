"""A run in words, for clients that converse: how it goes on, what it asks, and how they answer that."""

import re
from collections.abc import Iterable
from typing import cast

import msgspec

from chargehand.agents.run_document import RunDocument, RunQuestion, describe_tasks
from chargehand.engine import events as ev
from chargehand.engine.plan import Task
from chargehand.errors import Invalid
from chargehand.runtime.answers import read_verdict
from chargehand.server.api.shapes import AnswerBody
from chargehand.server.wire import Problem, misfit

_LONGEST_LINE = 160
_LISTED = 30
_MOST_SHOWN = 10_000
_CALL = re.compile(r"[1-9][0-9]{0,8}")
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
    return f"plan: {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}\n{_list_tasks(tasks)}"


def _list_tasks(tasks: Iterable[Task]) -> str:
    """Return tasks in lines, with worker and instruction; cut where there are too many."""
    lines = [f"- {_shortened(task)}" for task in describe_tasks(list(tasks))]
    return "\n".join(lines if len(lines) <= _LISTED else [*lines[:_LISTED], f"- and {len(lines) - _LISTED} more"])


def _shortened(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST_LINE else f"{plain[: _LONGEST_LINE - 2]} …"


# --- questions


def question_data(question: RunQuestion) -> dict[str, object]:
    """Return the open question of a run as JSON: its fields, and of every call why it is asked about."""
    calls = [{**msgspec.to_builtins(call), "because": call.because} for call in question.calls]
    return {**msgspec.to_builtins(question), "calls": calls}


def document_data(document: RunDocument) -> dict[str, object]:
    """Return how a run stands as JSON, without its answer and its question, for the extension field of a protocol."""
    fields = msgspec.to_builtins(document)
    return {name: value for name, value in fields.items() if name not in ("answer", "question")}


def explain_answer(question: RunQuestion) -> str:
    """Return in a line how to answer a question in words; empty: any words do."""
    if question.what == "question":
        return ""
    words = ["done: RESULT" if word == "done" else word for word in question.verdicts]
    if len(question.calls) < 2:
        return f"Reply {', '.join(words)}."
    return f"Reply for each call one of {', '.join(words)}, by its number: {_answer_example(question)}"


def _answer_example(question: RunQuestion) -> str:
    return msgspec.json.encode({str(call.call): question.verdicts[0] for call in question.calls}).decode()


class ClientQuestions:
    """Remembers which question of a run each client was shown last. `tenant.part(ClientQuestions)` is that of a tenant.

    Words name no question, so they are good only for the one that their client has seen. What was shown is not kept
    over a restart of the server: a client then reads the run again, or names the question.
    """

    def __init__(self, _tenant: object = None) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def show(self, client: str, run: str, number: int) -> None:
        """Note that a client was shown a question."""
        self._numbers.pop((client, run), None)
        self._numbers[client, run] = number
        while len(self._numbers) > _MOST_SHOWN:
            del self._numbers[next(iter(self._numbers))]

    def is_shown(self, client: str, run: str, number: int) -> bool:
        """Return whether words of a client can only mean this question. The first question of a run is the only one."""
        return self._numbers.get((client, run), 1) == number


def parse_answer(question: RunQuestion, sent: object, *, names_question: bool = False) -> AnswerBody:
    """Return the answer that a client sent.

    Args:
        question: The open question.
        sent: Words that begin with the verdict, or fields: `number`, `verdict`, `feedback`, `result`, `also`; in place
            of the verdict, `answer` with words, a verdict for each call by its number, or `declined`.
        names_question: The answer must have the number of its question.

    Raises:
        Problem: It is no answer to this question.
    """
    fields = _read_words(question, sent) if isinstance(sent, str) else _read_fields(question, sent)
    if names_question and "number" not in fields:
        detail = (
            f"question {question.number} was not shown here before this answer; read the run, then answer again, or "
            f'name the question: {{"number": {question.number}, "verdict": ...}}'
        )
        raise Problem(409, "conflict", detail)
    sent_fields = {"number": question.number, **fields}
    try:
        return msgspec.convert(sent_fields, AnswerBody)
    except msgspec.ValidationError as error:
        raise misfit(error, AnswerBody, sent_fields) from error


def _read_fields(question: RunQuestion, sent: object) -> dict[str, object]:
    """Return the fields of an answer; verdicts by call (`{"1": "approve", "2": "reject: why"}`) are put into fields."""
    fields = dict(cast("dict[str, object]", sent)) if isinstance(sent, dict) else {}
    if fields.pop("declined", False):
        return {**fields, **_decline(question)}
    if "answer" in fields:
        answer = fields.pop("answer")
        return {**fields, **_read_plain(question, answer)}
    verdicts = {int(name): fields.pop(name) for name in tuple(fields) if _CALL.fullmatch(name)}
    if not verdicts:
        return fields
    first = question.calls[0].call if question.calls else 1
    if first not in verdicts:
        raise _no_answer(f"call {first} is asked about first; answer that one too")
    also = [
        {"call": call, **_read_verdict(question, verdict, call)} for call, verdict in verdicts.items() if call != first
    ]
    return {**fields, **_read_verdict(question, verdicts[first], first), "also": also}


def _read_plain(question: RunQuestion, answer: object) -> dict[str, object]:
    """Return the fields of an answer that is words or, for a question in words, any JSON."""
    if isinstance(answer, str):
        return _read_words(question, answer)
    if question.what == "question":
        return {"verdict": "answer", "result": answer}
    if isinstance(answer, bool) and "approve" in question.verdicts:
        return _read_words(question, "approve" if answer else "reject")
    raise _no_answer(f"begin it with one of: {', '.join(question.verdicts)}")


def _decline(question: RunQuestion) -> dict[str, object]:
    """Return the fields of the answer of a person who does not want to decide."""
    declined = {"verdict": "fail" if question.what == "effect" else "reject", "feedback": "declined"}
    return {**declined, "also": [{"call": call.call, **declined} for call in question.calls[1:]]}


def _read_words(question: RunQuestion, sent: str) -> dict[str, object]:
    words = sent.strip()
    if question.what == "question":
        has_schema = question.question is not None and question.question.schema is not None
        return {"verdict": "answer", "result": _as_json(words) if has_schema else words}
    if isinstance(fields := _as_json(words), dict):
        return _read_fields(question, cast("dict[str, object]", fields))
    if len(question.calls) > 1:
        listed = "; ".join(f"{call.call}: {call.text}" for call in question.calls)
        count = len(question.calls)
        raise _no_answer(f"it asks about {count} calls ({listed}); answer each: {_answer_example(question)}")
    return _read_verdict(question, words)


def _read_verdict(question: RunQuestion, sent: object, call: int = 1) -> dict[str, object]:
    """Return the fields of the verdict on one call: `approve`, `reject: why`, `done: RESULT`, `again`, `fail`."""
    if isinstance(sent, dict):
        return cast("dict[str, object]", sent)
    if question.what == "question":
        raise _no_answer("a question in words takes one answer")
    try:
        verdict = read_verdict(question.what, call, sent if isinstance(sent, bool | str) else None)
    except Invalid as error:
        raise _no_answer(str(error)) from error
    fields: dict[str, object] = {"verdict": verdict.verdict, "feedback": verdict.feedback}
    return {**fields, "result": verdict.result} if verdict.verdict == "done" else fields


def _as_json(text: str) -> object:
    """Return what a text is as JSON; a text that is none, as it is."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _no_answer(detail: str) -> Problem:
    return Problem(422, "invalid", f"this is no answer: {detail}")
