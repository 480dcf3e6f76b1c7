"""Lessons from routed runs: what a run that has ended teaches by itself, and what somebody says of it afterwards.

What lessons do to later routes is `agents.routers.lessons`'. A process that is killed between the end of a run and its
lesson loses that lesson and nothing else: that a run ended well is the weakest thing there is to learn from.
"""

import logging
import re
import time
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Protocol, runtime_checkable

from msgspec import structs

from chargehand.agents.instances import kind_of, meant
from chargehand.agents.levels import end_of
from chargehand.agents.routers.notebook import Notebook, notebook
from chargehand.agents.subteam import aware, bare
from chargehand.core.fold import replay
from chargehand.core.owed import Brief
from chargehand.core.state import Progress, RunState, Status
from chargehand.errors import ChargehandError, Invalid, Refused, RunUnknown, Unknown
from chargehand.runtime.clock import Clock
from chargehand.stores.journal import Journal
from chargehand.stores.lessons import SOURCES, Lesson, Lessons, Source
from chargehand.terms import events as ev
from chargehand.terms.plan import NO_TASK, TaskId
from chargehand.terms.value import decode_value
from chargehand.terms.work import Work

logger = logging.getLogger(__name__)

_ROUTED = "route to "  # how the note of every route begins
_ITS_FAULT = ("logic", "timeout")  # a line that broke, or money that ran out, says nothing of who fits
_BEATEN = 0.3  # the score of a result that a judge found worse than another: it may still be good
_CUT_SHORT = ("budget", "deadline", "cancelled")


@runtime_checkable
class Keeps(Protocol):
    """A journal that has room for lessons; without it nothing is learnt."""

    def lessons(self, team: str) -> Lessons: ...

    async def read(self, run: str, *, after: int = 0) -> list[ev.Entry]: ...


class _Drives(Protocol):
    """What is needed of a driver."""

    @property
    def under_way(self) -> Mapping[str, RunState]: ...

    @property
    def journal(self) -> Journal: ...


class School:
    """For runs of one driver whose crew learns: lends them their team's notebook, and writes down how they ended."""

    def __init__(self, driver: _Drives) -> None:
        self._driver = driver

    def book(self, run: str) -> Notebook | None:
        """The notebook of the team whose run it is."""
        journal = self._driver.journal
        state = self._driver.under_way.get(run)
        if state is None or not state.requested.team or not isinstance(journal, Keeps):
            return None
        return notebook(journal.lessons(state.requested.team))

    async def ended(self, run: str, state: RunState) -> None:
        """Keep what the end of a run teaches. What cannot be kept is lost: the run itself is worth more."""
        journal = self._driver.journal
        lessons = {"outcome": ended_well(run, state), "judge": preferred(run, state)}
        if not any(lessons.values()) or not isinstance(journal, Keeps):
            return
        kept = journal.lessons(state.requested.team)
        try:
            for source in ("outcome", "judge"):
                if lessons[source]:
                    await kept.keep(run, source, lessons[source])
        except ChargehandError as error:
            logger.warning("nothing is learnt from run %s: %s", run, error)


def ended_well(run: str, state: RunState) -> tuple[Lesson, ...]:
    """Who did a routed request, and whether it worked out. Nothing of requests that hold text from outside."""
    requested = state.requested
    ended = end_of(state)
    if ended is None or requested.plan is not None or not requested.team:
        return ()
    brief = Brief(Work("plan", NO_TASK, 1), requested.goal, 0.0)
    if aware(brief).outside:
        return ()
    scores: dict[str, float] = {}
    for one in state.tasks.values():
        score = _score(one, ended)
        if score is not None and (name := _doer(state, one)):
            scores[name] = max(score, scores.get(name, 0.0))  # it may have been asked for several samples
    text = bare(brief).goal
    return tuple(
        Lesson(request=text, worker=name, score=score, source="outcome", run=run, at=state.at)
        for name, score in scores.items()
    )


def preferred(run: str, state: RunState) -> tuple[Lesson, ...]:
    """Where a judge chose between the results of several workers: whose was best."""
    lessons = ended_well(run, state) if state.combine == "select" and state.answer is not None else ()
    said = (
        str(decode_value(state.answer)).rpartition("\n\nChosen from ")[2] if len(lessons) > 1 and state.answer else ""
    )
    winner = re.match(r"[^\[\n]*\[([^\]]+)\]\.", said)
    best = meant(state.tasks[TaskId(winner[1])].task) if winner and winner[1] in state.tasks else ""
    if not best:
        return ()
    return tuple(structs.replace(one, source="judge", score=1.0 if one.worker == best else _BEATEN) for one in lessons)


def _score(one: Progress, ended: ev.RunEnded) -> float | None:
    if one.status is Status.DONE:
        return 1.0 if ended.ending == "complete" else None  # something is missing: nobody knows what it was worth
    fault = one.failure is not None and one.failure.kind in _ITS_FAULT
    return 0.0 if one.status is Status.FAILED and fault and ended.reason not in _CUT_SHORT else None


def _doer(state: RunState, one: Progress) -> str:
    """The worker it was routed to; empty where somebody else stepped in, which says nothing of the route."""
    named = meant(one.task)
    did = kind_of(state.agents[one.worker]) if one.worker in state.agents else one.worker
    return named if named == did else ""


# --- what somebody says of a run


def score_of(good: object) -> float:
    """From 0 to 1; True is 1, False is 0. Invalid for anything else."""
    if isinstance(good, int | float) and 0 <= good <= 1:
        return float(good)
    raise Invalid(f"{good!r} is no score; say good (True), bad (False) or a number from 0 to 1")


async def judged(
    kept: Keeps, run: str, good: float, worker: str = "", source: Source = "feedback", *, clock: Clock = time.time
) -> tuple[Lesson, ...]:
    """Keep what somebody says of a routed run, in the place of what the same source said before.

    `worker` is who should have done it. Unknown where there is no such run or worker, Refused where it was not led by a
    route or has not ended, Invalid for a score that is none.
    """
    score = score_of(good)
    if source not in SOURCES or source == "outcome":
        raise Invalid(f"{source!r} is nobody who judges runs; there are {', '.join(SOURCES[1:])}")
    entries = await kept.read(run)
    if not entries:
        raise RunUnknown(run)
    state = replay(entries)
    check(run, state, entries)
    done = _doers(state)
    lessons = _said(
        run=run, state=state, done=done, score=score, worker=_known(run, state, worker), source=source, now=clock()
    )
    await kept.lessons(state.requested.team).keep(run, source, lessons)
    return lessons


def check(run: str, state: RunState, entries: Sequence[ev.Entry]) -> None:
    """Raise Refused for a run that nothing can be learnt from."""
    notes = (entry.event for entry in entries if isinstance(entry.event, ev.Noted))
    routed = any(one.task == NO_TASK and one.text.startswith(_ROUTED) for one in notes)
    if not routed or state.requested.plan is not None or not state.requested.team:
        raise Refused(f"run {run!r} was not led by a route, so there is nobody to choose better; judge one that was")
    if state.ended is None:
        raise Refused(f"run {run!r} has not ended; say how it went when it has")


def _doers(state: RunState) -> list[str]:
    """Who did it; where nobody got it done, everybody who tried."""
    done = [one for one in state.tasks.values() if one.status is Status.DONE] or list(state.tasks.values())
    return list(dict.fromkeys(name for one in done if (name := meant(one.task) or one.worker)))


def _known(run: str, state: RunState, worker: str) -> str:
    names = list(dict.fromkeys(kind_of(agent) for agent in state.requested.roster.agents))
    if worker and worker not in names:
        alike = get_close_matches(worker, names, 1)
        hint = f"did you mean {alike[0]!r}?" if alike else f"there are {', '.join(names)}"
        raise Unknown(f"there is no worker {worker!r} in run {run!r}; {hint}")
    return worker


def _said(
    run: str, state: RunState, done: Sequence[str], score: float, worker: str, source: Source, now: float
) -> tuple[Lesson, ...]:
    if not done and not worker:
        raise Invalid(f"nobody did run {run!r}; say who should have: worker (--worker NAME)")
    if worker and done and worker not in done and score > 0.5:
        said = f"{' and '.join(done)} did run {run!r}, and it is judged good"
        raise Invalid(f"{said}; say bad if {worker} should have done it, or leave the worker out")
    if done == [worker] and score <= 0.5:
        raise Invalid(
            f"{worker} did run {run!r} already; name who should have done it instead, or leave the worker out"
        )
    scores = dict.fromkeys(done, score)
    if worker and done != [worker]:
        scores[worker] = 1.0
    text = bare(Brief(Work("plan", NO_TASK, 1), state.requested.goal, 0.0)).goal
    return tuple(
        Lesson(request=text, worker=name, score=one, source=source, run=run, at=now) for name, one in scores.items()
    )
