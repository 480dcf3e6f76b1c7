"""What came of a run, in words for a chat: the answer, what is missing, or what a person is asked."""

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import Struct

from chargehand.core.state import RunState
from chargehand.models.messages import Usage
from chargehand.runtime.driver import outcome
from chargehand.runtime.messaging import replies_of
from chargehand.runtime.result import result_of, spoken
from chargehand.server.api.reading import Seen
from chargehand.server.openai.order import ordered
from chargehand.server.openai.problem import AboutRun
from chargehand.terms import events as ev
from chargehand.terms.plan import NO_TASK

_CUT_SHORT = ("budget", "deadline")
_LISTED = 30
_ASSUMED = "assumed: "
_ANSWERS = {
    "plan": '"approve", or "reject" with "feedback"',
    "tool": '"approve" or "reject"',
    "effect": '"done" with a "result", "again" or "fail"',
}


class _Replied(Struct, frozen=True):
    """A reply of a model, as far as it matters here."""

    usage: Usage | None = None


class Spent(Struct, frozen=True):
    """Tokens. `total` is what the ledger says; `output` is what workers' models wrote, the rest counts as read."""

    total: int
    output: int

    @property
    def input(self) -> int:
        return self.total - self.output


class Told(Struct, frozen=True):
    """`finish` is `stop`, or `length` where time or money ran out before all of it was done."""

    run: str
    text: str
    finish: str
    ending: ev.Ending
    spent: Spent


def told(one: Seen) -> Told:
    """What there is to say; raises a problem for a run that came to nothing."""
    order = ordered(one.entries)
    found = outcome(one.run, one.state)
    spent = _spent(one.entries, found.spent.tokens)
    if one.state.ended is None:
        return Told(run=one.run, text=_question(one), finish="stop", ending="needs_input", spent=spent)
    if found.ending == "cancelled":
        raise AboutRun(
            status=409,
            code="run_cancelled",
            detail=f"run {one.run!r} was cancelled; ask again to begin another",
            run=one.run,
        )
    text, good = _of_worker(one) if order is not None and order.worker else _of_team(one)
    if not good:
        said = f"{text}\n(run {one.run}; what it did: GET /api/runs/{one.run})"
        raise AboutRun(status=500, code="run_failed", detail=said, run=one.run)
    finish = "length" if found.ending == "partial" and found.reason in _CUT_SHORT else "stop"
    return Told(run=one.run, text=text, finish=finish, ending=found.ending, spent=spent)


def _of_team(one: Seen) -> tuple[str, bool]:
    found = outcome(one.run, one.state)
    answer = _words(spoken(result_of(found, one.entries, "")).answer)
    unserved = found.reason == "no_plan" and found.gaps and all(gap.status == "unserved" for gap in found.gaps)
    if unserved and not _planner_failed(one.entries):
        return "\n\n".join((answer, *_assumed(one.entries))), True  # who says hello must be told what there is to ask
    good = found.ending in ("complete", "partial")
    return answer or ("There is nothing to say." if good else "There is no answer."), good


def _planner_failed(entries: Sequence[ev.Entry]) -> bool:
    """Whether nobody could plan: the model refused or could not be reached. The request itself may be a good one."""
    notes = [entry.event for entry in entries if isinstance(entry.event, ev.Noted)]
    return any(note.task == NO_TASK and note.failure is not None for note in notes)


def _assumed(entries: Sequence[ev.Entry]) -> list[str]:
    notes = [entry.event for entry in entries if isinstance(entry.event, ev.Noted)]
    return [note.text.removeprefix(_ASSUMED) for note in notes if note.code == "assumed"]


def _of_worker(one: Seen) -> tuple[str, bool]:
    reply = replies_of(one.run, one.entries).replies[0]
    if reply.status != "answered":
        return f"{reply.worker} {reply.status}: {reply.failure}", False
    return reply.text or _words(reply.value), True


def _words(value: object) -> str:
    """An answer that a function made may be anything; what a worker delivers has its words under `text`."""
    if isinstance(value, dict) and isinstance(text := cast("dict[str, object]", value).get("text"), str):
        return text
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _question(one: Seen) -> str:
    """What is asked, and how it is answered. A run that was paused asks nothing."""
    asked = one.state.input
    run = one.run
    if asked is None:
        return f"This run is paused. POST /api/runs/{run}/resume goes on with it; GET /api/runs/{run} shows it."
    what = {
        "plan": f"Before anything is done, a person must agree to this plan:\n{_plan(one.state)}",
        "tool": f"Before this call is made, a person must agree to it:\n{asked.text}",
        "effect": f"Nobody knows what became of this call; a person must say so:\n{asked.text}",
    }[asked.what]
    return (
        f"{what}\n\nThe run is {run}. To answer: POST /api/runs/{run}/answer with "
        f'{{"number": {asked.number}, "verdict": ...}}; the verdict is {_ANSWERS[asked.what]}. '
        f"What comes of it then: GET /api/runs/{run}."
    )


def _plan(state: RunState) -> str:
    tasks = [each.task for each in state.tasks.values() if each.mother is None]
    lines = [f"- {one.id}{f' ({one.worker})' if one.worker else ''}: {one.instruction}" for one in tasks[:_LISTED]]
    return "\n".join([*lines, f"- and {len(tasks) - _LISTED} more"] if len(tasks) > _LISTED else lines)


def _spent(entries: Sequence[ev.Entry], total: int) -> Spent:
    written = 0
    models = set[tuple[str, int, int]]()
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.StepStarted) and event.name == "model":
            models.add((event.task, event.attempt, event.step))
        elif isinstance(event, ev.StepFinished) and (event.task, event.attempt, event.step) in models:
            written += _output(event)
    return Spent(total, min(written, total))


def _output(event: ev.StepFinished) -> int:
    try:
        usage = msgspec.json.decode(event.result, type=_Replied).usage
    except msgspec.DecodeError:
        return 0
    return 0 if usage is None else usage.output
