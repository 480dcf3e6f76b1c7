"""What a team hands to the one it works for: its answer, what it left out and why, or why nothing came of it.

Read off the journal of its run, which others drive.
"""

import re
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Struct, structs

from chargehand.agents.levels import (
    INWARDS,
    MARK,
    Answer,
    InnerGap,
    Partly,
    end_of,
    in_words,
    inner_gaps,
    left_out,
    of_worker,
    partly,
)
from chargehand.core.owed import Brief
from chargehand.core.reuse import offers
from chargehand.core.state import RunState, Status
from chargehand.core.view import gaps, results
from chargehand.models.exhibits import Exhibit, Product
from chargehand.terms import events as ev
from chargehand.terms.failure import Failure, FailureKind, Gap
from chargehand.terms.plan import NO_TASK, Task, TaskId
from chargehand.terms.value import decode_value, encode_value

# characters of a line, and lines
_LONGEST = 400
_MOST = 20
_MOST_EXHIBITS = 8
_LARGEST_EXHIBIT = 64 * 1024
_PASSING: tuple[FailureKind, ...] = ("network", "timeout", "resource")  # what may be over the next time
_CITED = re.compile(r"\[([^\[\]\n]{1,200})\]")
_ACTED = b'"acted":true'
ONCE = "It has had effects already, so it is not tried again."
NOT_ALLOWED = "A person did not allow a call of it, so it is not tried again."
_LEFT_OUT = re.compile(r"(?:\A|\n\n)Not answered:(?:\n- [^\n]*)+")


class Came(Struct, frozen=True, omit_defaults=True):
    """How the run of a team ended, as the step that waited for it is journaled.

    `missing` says in words what it left out, `gaps` where that is. `acted`: something was changed in the world.
    """

    run: str
    ending: ev.Ending
    answer: object = None
    missing: tuple[str, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    sources: tuple[str, ...] = ()
    failure: Failure | None = None
    gaps: tuple[InnerGap, ...] = ()
    acted: bool = False


def came_of(run: str, name: str, state: RunState, entries: Sequence[ev.Entry], *, acted: bool) -> Came:
    """What came of the run of a team that works as `name`: `state` is what its entries amount to."""
    found = [decode_value(one.value) for one in results(state) if one.value is not None]
    missing = _missing(state, found, name)
    end = end_of(state)
    ending: ev.Ending = "needs_input" if end is None else end.ending
    if ending not in ("complete", "partial"):
        failure = _failure(run, name, state, entries, missing)
        # another run would not know, and do it or ask for it again
        why = ONCE if acted else NOT_ALLOWED if refused_by_person(entries) else ""
        if why and not failure.permanent:
            failure = structs.replace(failure, message=f"{failure.message.removesuffix('.')}. {why}", permanent=True)
        return Came(run, ending, missing=missing, failure=failure, acted=acted)
    answer = None if state.answer is None else decode_value(state.answer)
    if answer is None:
        answer = "\n\n".join(text(one) for one in found)
    if isinstance(answer, str):
        answer = _own(answer, name, state)
    products = [one for one in map(_product, found) if one is not None]
    sources = tuple(dict.fromkeys(source for one in products for source in one.sources))
    left = () if end is None else _located(run, name, end, answered=state.answer is not None)
    return Came(
        run=run,
        ending=ending,
        answer=answer,
        missing=missing,
        exhibits=_exhibits(products),
        sources=sources,
        gaps=left,
        acted=acted,
    )


def handed(came: Came) -> object:
    """The result of an attempt whose team has an answer. What is left out stands in its text."""
    if not came.missing and not isinstance(came.answer, str):
        return came.answer  # whoever asked for a list or a record gets it
    if not came.missing:
        return Product(text(came.answer), came.exhibits, came.sources)
    said = _LEFT_OUT.sub("", text(came.answer)).strip()  # the team says so by the ids of its own tasks
    listed = "\n".join(f"- {one}" for one in came.missing)
    return Partly(
        text=f"{said}\n\nNot answered:\n{listed}",
        missing=came.missing,
        exhibits=came.exhibits,
        sources=came.sources,
        gaps=came.gaps,
    )


def inherited(brief: Brief, *, leads: bool = True) -> Brief:
    """The brief with what was left out of results that were delivered among the gaps: an answer has to name it.

    `leads`: there are teams among the workers.
    """
    if not any(one.value is not None and MARK in bytes(one.value) for one in brief.inputs):
        return brief
    tasks = {one.id: one for one in brief.tasks}
    teams: list[str] = []
    own: list[tuple[Task, Partly]] = []
    for one in brief.inputs:
        value = None if one.value is None else decode_value(one.value)
        task = tasks.get(TaskId(one.task), Task(TaskId(one.task), ""))
        for said in filter(None, map(partly, cast("list[object]", value) if isinstance(value, list) else [value])):
            teams += said.missing if leads and not in_words(said) else ()
            own += [(task, said)] if in_words(said) else []
    answers = [Answer(tasks[one.task], one.value) for one in brief.inputs if one.task in tasks]
    more = [Gap(NO_TASK, "unserved", "team", line) for line in dict.fromkeys(teams)]
    return structs.replace(brief, gaps=(*brief.gaps, *more, *left_out(own, answers)))


def offered(state: RunState, entries: Sequence[ev.Entry]) -> tuple[ev.Offer, ...]:
    """What a run that does the same again may take over. A worker that left a part of its task is asked again.

    Not where something was changed in the world: it might be changed twice.
    """
    found = offers(state)
    return found if acted(entries) else tuple(one for one in found if not of_worker(one.result))


def text(value: object) -> str:
    """A result in words."""
    found = cast("Mapping[str, object]", value).get("text") if isinstance(value, dict) else value
    return found if isinstance(found, str) else bytes(encode_value(cast("object", value))).decode()


# --- what is missing


def _missing(state: RunState, found: Sequence[object], name: str) -> tuple[str, ...]:
    lines: list[str] = []
    for gap in gaps(state) if state.ended is None else state.ended.gaps:
        task = state.tasks.get(gap.task)
        what = "" if task is None else task.task.instruction.partition("\n")[0].rstrip(". ")
        asked = f"{_short(what, _LONGEST // 2)}: " if what else ""
        lines.append(f"{name}: {asked}{gap.message}")
    lines += [f"{name}: {gap.message}" for gap in inner_gaps(state) if not isinstance(gap, InnerGap)]
    lines += [f"{name}: {line}" for value in found for line in _left_out(value)]
    lines = list(dict.fromkeys(lines))  # a run that has ended lists what its workers left, too
    if state.ended is not None and state.ended.ending == "partial" and state.answer is None and not lines:
        lines.append(f"{name}: the answer could not be written; these are the results")
    more = [f"{name}: and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
    return (*(_short(line, _LONGEST) for line in lines[:_MOST]), *more)


def _left_out(value: object) -> tuple[str, ...]:
    """What the team behind a result left out."""
    found = partly(value)
    return () if found is None or in_words(found) else found.missing


def _located(run: str, name: str, end: ev.RunEnded, *, answered: bool) -> tuple[InnerGap, ...]:
    """The gaps of a run and of those inside it, as whoever it works for sees them."""
    found = [_outwards(run, name, one) for one in end.gaps]
    if end.ending == "partial" and not found and not answered:
        found.append(
            InnerGap(
                task=NO_TASK,
                status="unfinished",
                reason=end.reason,
                message="the answer could not be written",
                because=NO_TASK,
                worker=name,
                run=run,
            )
        )
    more = len(found) - _MOST
    if more > 0:
        found[_MOST:] = [
            InnerGap(
                task=NO_TASK,
                status="unfinished",
                reason="gaps",
                message=f"and {more} more",
                because=NO_TASK,
                worker=name,
                run=run,
            )
        ]
    return tuple(found)


def _outwards(run: str, name: str, gap: Gap) -> InnerGap:
    message = _short(gap.message, _LONGEST)
    if isinstance(gap, InnerGap):
        worker = f"{name}{INWARDS}{gap.worker}"
        return InnerGap(
            task=NO_TASK,
            status=gap.status,
            reason=gap.reason,
            message=message,
            because=gap.because,
            worker=worker,
            run=gap.run,
            inner=gap.inner,
        )
    return InnerGap(
        task=NO_TASK,
        status=gap.status,
        reason=gap.reason,
        message=message,
        because=gap.because,
        worker=name,
        run=run,
        inner=gap.task,
    )


def _short(line: str, most: int) -> str:
    flat = " ".join(line.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def _own(answer: str, name: str, state: RunState) -> str:
    """The answer with the tasks it cites marked as this team's: whoever reads it has tasks of its own."""
    mark = re.sub(r"\W+", "_", name)

    def qualified(found: re.Match[str]) -> str:
        ids = [one.strip() for one in found[1].split(",")]
        return f"[{', '.join(f'{mark}_{one}' for one in ids)}]" if all(one in state.tasks for one in ids) else found[0]

    return _CITED.sub(qualified, answer)


def _product(value: object) -> Product | None:
    try:
        return msgspec.convert(value, Product)
    except msgspec.ValidationError:
        return None


def _exhibits(products: Sequence[Product]) -> tuple[Exhibit, ...]:
    found = [one for each in products for one in each.exhibits]
    return tuple(one for one in found if len(msgspec.json.encode(one)) <= _LARGEST_EXHIBIT)[:_MOST_EXHIBITS]


# --- why nothing came of it


def _failure(run: str, name: str, state: RunState, entries: Sequence[ev.Entry], missing: Sequence[str]) -> Failure:
    ended = state.ended
    if ended is None:
        asked = "" if state.input is None else f" ({state.input.what}{': ' if state.input.text else ''}"
        asked += _short("" if state.input is None else state.input.text, _LONGEST) + (")" if asked else "")
        words = f"{name} waits for a person{asked}; its run {run!r} goes on when it is resumed with the answer"
        return Failure("logic", words, permanent=True)
    if ended.ending == "cancelled":
        return Failure("logic", f"{name}: its run {run!r} was cancelled", permanent=True)
    if ended.ending == "needs_input":
        return Failure("logic", f"{name}: no person answered in time in run {run!r}", permanent=True)
    kind, why, permanent, wait = _cause(state, entries)
    message = f"{name}: nothing came of it ({ended.reason}). {' '.join(missing) or why}".strip()
    causes = [failure for entry in entries if (failure := ev.failure_in(entry.event)) is not None]
    mistake = next((failure.code_error for failure in causes if failure.code_error is not None), None)
    refusal = next((failure.refusal for failure in causes if failure.refusal is not None), None)
    return Failure(kind, message, wait, permanent, code_error=mistake, refusal=refusal)


def _cause(state: RunState, entries: Sequence[ev.Entry]) -> tuple[FailureKind, str, bool, float]:
    """The class of what went wrong, so that it is tried again by the same rules as if a worker had failed so."""
    reason = "" if state.ended is None else state.ended.reason
    failed = [one.failure for one in state.tasks.values() if one.status is Status.FAILED and one.failure is not None]
    if not state.tasks:
        failed = [one.event.failure for one in entries if isinstance(one.event, ev.SupervisionFailed)][-1:]
    why = " ".join(one.message for one in failed)
    kinds = {one.kind for one in failed}
    permanent = bool(failed) and all(one.permanent for one in failed)
    wait = max((one.retry_after for one in failed), default=0.0)
    if "uncertain" in kinds:
        return "uncertain", why, permanent, wait
    if reason == "budget":
        return "budget", why or "the money it was given was too little", permanent, wait
    if reason == "deadline":
        return "timeout", why or "its time ran out", permanent, wait
    passing: list[FailureKind] = [one for one in _PASSING if one in kinds]
    kind: FailureKind = passing[0] if passing and len(passing) == len(kinds) else "logic"
    return kind, why or "it could not make a plan", permanent, wait


def _rejects(answer: ev.InputAnswered) -> bool:
    return answer.verdict == "reject" or any(one.verdict == "reject" for one in answer.also)


def refused_by_person(entries: Sequence[ev.Entry]) -> bool:
    """Whether a person did not allow a call in a run, or in one inside it: what is asked there is asked here, too."""
    calls: set[int] = set()
    for event in (one.event for one in entries):
        if isinstance(event, ev.InputRequested) and event.what == "tool":
            calls.add(event.number)
        elif isinstance(event, ev.InputAnswered) and event.number in calls and _rejects(event):
            return True
    return False


def acted(entries: Sequence[ev.Entry]) -> bool:
    """Whether something was changed in the world in a run, by itself or by teams inside it, or may have been."""
    begun: set[tuple[str, int, int]] = set()
    for event in (one.event for one in entries):
        if isinstance(event, ev.StepStarted) and event.effect == "effect":
            begun.add((event.task, event.attempt, event.step))
        elif isinstance(event, ev.StepFinished):
            if not event.good:
                begun.discard((event.task, event.attempt, event.step))
            elif _ACTED in bytes(event.result):  # most results are none of a team: they are not read for this
                came = decode_value(event.result)
                if isinstance(came, dict) and cast("Mapping[str, object]", came).get("acted") is True:
                    return True
    return bool(begun)
