"""Feedback on routed runs: a confirmed route becomes an example of its worker, a refuted one is removed."""

import logging
import time
from collections.abc import Sequence

from msgspec import Struct

from chargehand.engine import events as ev
from chargehand.engine.facts import RouteChosen
from chargehand.engine.fold import replay
from chargehand.engine.state import RunState, Status
from chargehand.errors import Invalid, Refused, RunUnknown, Unknown
from chargehand.journal.protocol import SOURCES, Journal, RouteExample, Source
from chargehand.text.words import did_you_mean

logger = logging.getLogger(__name__)


class Judgement(Struct, frozen=True):
    """What feedback on a run changed."""

    run: str
    request: str
    confirmed: tuple[str, ...] = ()
    """Workers that the request is an example of now."""
    refuted: tuple[str, ...] = ()
    """Workers that it is no example of any more."""


# --- feedback on a run


async def record_feedback(
    journal: Journal, run: str, good: float, worker: str = "", source: Source = "feedback"
) -> Judgement:
    """Confirm or refute the route of a run; `worker` is who should have done it.

    Unknown where there is no such run or worker, Refused where it was not led by a route or has not ended, Invalid for
    a score that is none.
    """
    score = check_score(good)
    if source not in SOURCES:
        raise Invalid(f"{source!r} does not judge runs; there are {', '.join(SOURCES)}")
    entries = await journal.read(run)
    if not entries:
        raise RunUnknown(run)
    state = replay(entries)
    _check_routed(run, state, entries)
    names = list(dict.fromkeys(agent.name for agent in state.requested.roster.agents))
    if worker and worker not in names:
        raise Unknown(f"there is no worker {worker!r} in run {run!r}; {did_you_mean(worker, names)}")
    did = _workers_of(state)
    _check_worker(run, did, worker, is_good=score > 0.5)
    confirmed = did if score > 0.5 else [worker] if worker else []
    refuted = [] if score > 0.5 else [name for name in did if name != worker]
    request = state.requested.goal
    now = time.time()

    def examples(workers: Sequence[str]) -> list[RouteExample]:
        return [RouteExample(request=request, worker=name, source=source, run=run, at=now) for name in workers]

    await journal.route_examples(state.requested.team).record(run, source, examples(confirmed), examples(refuted))
    return Judgement(run, request, tuple(confirmed), tuple(refuted))


def check_score(good: object) -> float:
    """From 0 to 1; True is 1, False is 0. Invalid for anything else."""
    if isinstance(good, int | float) and 0 <= good <= 1:
        return float(good)
    raise Invalid(f"{good!r} is no score; say good (True), bad (False) or a number from 0 to 1")


def _check_routed(run: str, state: RunState, entries: Sequence[ev.Entry]) -> None:
    notes = (entry.event for entry in entries if isinstance(entry.event, ev.Noted))
    is_routed = any(isinstance(note.fact, RouteChosen) for note in notes)
    if not is_routed or state.requested.plan is not None or not state.requested.team:
        raise Refused(f"run {run!r} was not led by a route, so there is no choice to judge; judge one that was")
    if state.ended is None:
        raise Refused(f"run {run!r} has not ended; say how it went when it has")


def _check_worker(run: str, did: Sequence[str], worker: str, *, is_good: bool) -> None:
    if not did and not worker:
        raise Invalid(f"no worker did run {run!r}; say who should have: worker (--worker NAME)")
    if worker and did and worker not in did and is_good:
        problem = f"{' and '.join(did)} did run {run!r}, and it is judged good"
        raise Invalid(f"{problem}; say bad if {worker} should have done it, or leave the worker out")
    if list(did) == [worker] and not is_good:
        problem = f"{worker} did run {run!r} already"
        raise Invalid(f"{problem}; name who should have done it instead, or leave the worker out")


def _workers_of(state: RunState) -> list[str]:
    """The workers that did the request; those that tried, where none did."""
    done = [progress for progress in state.tasks.values() if progress.status is Status.DONE]
    tried = done or list(state.tasks.values())
    return list(dict.fromkeys(name for progress in tried if (name := progress.task.worker or progress.worker)))
