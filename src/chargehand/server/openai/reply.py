"""What came of a run as clients of OpenAI know it: a chat completion, a response, or an error in their envelope."""

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import Struct
from starlette.responses import Response

from chargehand.agents.messages import replies_of
from chargehand.agents.result import answer_or_fallback
from chargehand.engine import events as ev
from chargehand.engine.facts import Assumed
from chargehand.engine.state import RunState
from chargehand.runtime.runner import Outcome as RunOutcome
from chargehand.runtime.runner import outcome
from chargehand.runtime.stats import Stats
from chargehand.runtime.trace import Tracer
from chargehand.server.openai.request import TeamRequest, recorded_request
from chargehand.server.problem import Problem
from chargehand.server.run_control import RecordedRun

RUN_HEADER = "X-Run-Id"
RESPONSE_PREFIX = "resp_"
_CUT_SHORT = ("budget", "deadline")
_LISTED = 30
_VERDICTS = {
    "plan": '"approve", or "reject" with "feedback"',
    "tool": '"approve" or "reject"',
    "effect": '"done" with a "result", "again" or "fail"',
}
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_BODY_CODES = frozenset(("invalid", "not_json", "plan_invalid", "other_body"))

Json = dict[str, object]


# --- errors


def run_problem(run: str, status: int, code: str, detail: str) -> Problem:
    """A run came to nothing."""
    problem = Problem(status, code, detail)
    problem.run = run
    return problem


def error_of(problem: Problem) -> Json:
    """What stands under `error`, in replies and in streams."""
    kind = _ERROR_TYPES.get(problem.status) or ("invalid_request_error" if problem.status < 500 else "server_error")
    place = problem.faults[0].place.removeprefix("$").removeprefix(".") if problem.faults else ""
    return {"message": problem.detail, "type": kind, "param": place or None, "code": problem.code}


def render_problem(problem: Problem) -> Response:
    """What is wrong with a body is 400 here, as these clients know it; what middleware refuses keeps its status.

    Where a run came to nothing the same call would come to the same, so the client is told not to make it again.
    """
    headers = {RUN_HEADER: problem.run, "x-should-retry": "false"} if problem.run else {}
    status = 400 if problem.code in _BODY_CODES else problem.status
    return Response(msgspec.json.encode({"error": error_of(problem)}), status, headers, "application/json")


# --- what came of a run, in words


class Answer(Struct, frozen=True):
    """What there is to say. `finish` is `length` where time or money ran out before all of it was done, else `stop`.

    `tokens` is what the ledger says; `output_tokens` is what workers' models wrote, the rest counts as read.
    """

    run: str
    text: str
    ending: ev.Ending
    tokens: int
    output_tokens: int
    finish: str = "stop"


def answer_of(recorded: RecordedRun) -> Answer:
    """What came of a run that has stopped; raises a problem for one that came to nothing."""
    run = recorded.run
    finished = outcome(run, recorded.state)
    text = _question(recorded) if recorded.state.ended is None else _ended_text(recorded, finished)
    stats = Stats()
    stats.record(run, recorded.entries)
    output = sum(model.tokens.get("output", 0) for model in stats.calls["model"].values())
    is_cut_short = finished.ending == "partial" and finished.reason in _CUT_SHORT
    return Answer(
        run=run,
        text=text,
        ending=finished.ending,
        tokens=finished.spent.tokens,
        output_tokens=min(output, finished.spent.tokens),
        finish="length" if is_cut_short else "stop",
    )


def _ended_text(recorded: RecordedRun, finished: RunOutcome) -> str:
    run = recorded.run
    if finished.ending == "cancelled":
        raise run_problem(run, 409, "run_cancelled", f"run {run!r} was cancelled; ask again to begin another")
    request = recorded_request(recorded.requested)
    is_for_worker = request is not None and request.worker
    text, is_good = _worker_text(recorded) if is_for_worker else _team_text(recorded, finished)
    if not is_good:
        raise run_problem(run, 500, "run_failed", f"{text}\n(run {run}; what it did: GET /api/runs/{run})")
    return text


def _team_text(recorded: RecordedRun, finished: RunOutcome) -> tuple[str, bool]:
    """The answer of a team, and whether it is one."""
    answer = _words(answer_or_fallback(finished))
    notes = [entry.event for entry in recorded.entries if isinstance(entry.event, ev.Noted)]
    unserved = finished.reason == "no_plan" and finished.gaps and all(gap.status == "unserved" for gap in finished.gaps)
    if unserved:  # who says hello must be told what there is to ask
        assumed = [note.fact.text for note in notes if isinstance(note.fact, Assumed)]
        return "\n\n".join((answer, *assumed)), False
    is_good = finished.ending in ("complete", "partial")
    return answer or ("There is nothing to say." if is_good else "There is no answer."), is_good


def _worker_text(recorded: RecordedRun) -> tuple[str, bool]:
    reply = replies_of(Tracer.replay(recorded.run, recorded.entries)).replies[0]
    if reply.status != "answered":
        return f"{reply.worker} {reply.status}: {reply.failure}", False
    return reply.text or _words(reply.value), True


def _words(value: object) -> str:
    """An answer that a function made may be anything; what a worker delivers has its words under `text`."""
    if isinstance(value, dict) and isinstance(text := cast("Json", value).get("text"), str):
        return text
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _question(recorded: RecordedRun) -> str:
    """What is asked, and how it is answered. A run that was paused asks nothing."""
    question = recorded.state.input
    run = recorded.run
    if question is None:
        return f"This run is paused. POST /api/runs/{run}/resume goes on with it; GET /api/runs/{run} shows it."
    what = {
        "plan": f"Before anything is done, a person must agree to this plan:\n{_plan(recorded.state)}",
        "tool": f"Before this call is made, a person must agree to it:\n{question.text}",
        "effect": f"The outcome of this call is unknown; a person must say what happened:\n{question.text}",
    }[question.what]
    return (
        f"{what}\n\nThe run is {run}. To answer: POST /api/runs/{run}/answer with "
        f'{{"number": {question.number}, "verdict": ...}}; the verdict is {_VERDICTS[question.what]}. '
        f"What comes of it then: GET /api/runs/{run}."
    )


def _plan(state: RunState) -> str:
    tasks = [progress.task for progress in state.tasks.values() if progress.parent is None]
    return "\n".join(list_tasks([(task.id, task.worker, task.instruction) for task in tasks]))


def list_tasks(tasks: Sequence[tuple[str, str, str]]) -> list[str]:
    """Tasks in lines, by id, worker and instruction; cut where there are too many."""
    lines = [f"- {task}{f' ({worker})' if worker else ''}: {words}" for task, worker, words in tasks[:_LISTED]]
    return [*lines, f"- and {len(tasks) - _LISTED} more"] if len(tasks) > _LISTED else lines


# --- chat completions


class ChatHead(Struct, frozen=True):
    """What a completion and each of its chunks begin with. `usage`: whether it is wanted at the end of a stream."""

    run: str
    created: int
    model: str
    usage: bool

    def begin(self, kind: str, choices: Sequence[Json]) -> Json:
        begun = {"id": f"chatcmpl-{self.run}", "object": kind, "created": self.created, "model": self.model}
        return {**begun, "choices": choices}


def chat_completion(head: ChatHead, answer: Answer, notice: str) -> Json:
    message: Json = {"role": "assistant", "content": answer.text, "refusal": None}
    if notice:
        message["reasoning_content"] = notice
    choice: Json = {"index": 0, "message": message, "finish_reason": answer.finish, "logprobs": None}
    completion = head.begin("chat.completion", [choice])
    return {**completion, "usage": chat_usage(answer), "chargehand": _about(answer, notice)}


def chat_usage(answer: Answer) -> Json:
    read = answer.tokens - answer.output_tokens
    return {"prompt_tokens": read, "completion_tokens": answer.output_tokens, "total_tokens": answer.tokens}


def _about(answer: Answer, notice: str) -> Json:
    about: Json = {"run": answer.run, "ending": answer.ending}
    return {**about, "notice": notice} if notice else about


# --- responses


class ResponseHead(Struct, frozen=True):
    """What a response has from its beginning."""

    run: str
    created: float
    request: TeamRequest
    notice: str

    def response(self, status: str, output: Sequence[Json], **more: object) -> Json:
        request = self.request
        return {
            "id": f"{RESPONSE_PREFIX}{self.run}",
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": request.model,
            "output": output,
            "background": request.background,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions or None,
            "metadata": request.metadata or {},
            "parallel_tool_calls": False,
            "previous_response_id": request.previous or None,
            "store": request.stored,
            "tool_choice": "none",
            "tools": [],
            "text": {"format": {"type": "text"}},
            "usage": None,
            **more,
        }

    def completed(self, answer: Answer, output: Sequence[Json]) -> Json:
        usage = {
            "input_tokens": answer.tokens - answer.output_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.tokens,
        }
        return self.response("completed", output, usage=usage, chargehand=_about(answer, self.notice))

    def failed(self, problem: Problem) -> Json:
        if problem.code == "run_cancelled":
            return self.response("cancelled", [])
        return self.response("failed", [], error={"code": "server_error", "message": problem.detail})

    def as_it_stands(self, recorded: RecordedRun) -> Json:
        """The response of a run, whatever has become of it so far."""
        if recorded.state.ended is None and recorded.state.input is None:
            return self.response("in_progress", [])
        try:
            answer = answer_of(recorded)
        except Problem as problem:
            return self.failed(problem)
        return self.completed(answer, [self.message(answer.text)])

    def message(self, text: str | None) -> Json:
        """The answer as an item; with no text, one that is being written."""
        parts = [] if text is None else [text_part(text)]
        status = "in_progress" if text is None else "completed"
        return {"id": f"msg_{self.run}", "type": "message", "role": "assistant", "status": status, "content": parts}

    def reasoning(self, text: str | None) -> Json:
        summary = [] if text is None else [summary_part(text)]
        return {"id": f"rs_{self.run}", "type": "reasoning", "summary": summary}


def text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def summary_part(text: str) -> Json:
    return {"type": "summary_text", "text": text}
