"""Which ready tasks start now, and with whom: critical path first, healthy and idle workers first."""

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from chargehand.engine import breaker as breakers
from chargehand.engine import events as ev
from chargehand.engine.attempts import breaker_name
from chargehand.engine.budget import NOTHING
from chargehand.engine.policy import Instant
from chargehand.engine.reuse import key_of
from chargehand.engine.roster import Agent
from chargehand.engine.state import Lane, Progress, RunState, line_of, urgent_first


def starts(state: RunState, now: Instant, last: Instant) -> list[ev.Event]:
    """Fill the free slots with attempts that end by `last`.

    With a capped budget one at a time, since each changes what the next may count on.
    """
    free = state.requested.policy.limits.width - state.running
    if free <= 0 or not state.lanes:
        return []
    if state.ledger.capped or state.breakers:
        free = 1
    found: list[ev.Event] = []
    extra: dict[str, int] = {}
    short: Progress | None = None
    fronts = _fronts(state)
    while fronts and len(found) < free:
        entry, _, walk, lane = fronts[0]
        progress = state.ordered[entry[1]]
        event = _reuse(state, progress) or _refused(state, progress) or _start(state, progress, lane, extra, now, last)
        if event is None:
            heappop(fronts)  # nobody of this lane is free
            continue
        if isinstance(event, ev.TaskSkipped) and event.reason == "budget":
            short = short or progress
            heappop(fronts)
            continue
        found.append(event)
        following = next(walk, None)
        if following is None:
            heappop(fronts)
        else:
            heapreplace(fronts, (following, fronts[0][1], walk, lane))
    if not found and short is not None and state.ledger.reserved == NOTHING:
        return [ev.TaskSkipped(short.task.id, "budget")]  # nothing under way could give any money back
    return found


_Front = tuple[tuple[float, int], int, Iterator[tuple[float, int]], Lane]


def _fronts(state: RunState) -> list[_Front]:
    fronts: list[_Front] = []
    for number, lane in enumerate(state.lanes.values()):
        walk = urgent_first(state, lane)
        first = next(walk, None)
        if first is not None:
            fronts.append((first, number, walk, lane))
    heapify(fronts)
    return fronts


def _reuse(state: RunState, progress: Progress) -> ev.Event | None:
    if not state.offers:
        return None
    key = key_of(state, progress)
    if key not in state.offers:
        return None
    run, offer = state.offers[key]
    return ev.ResultReused(
        task=progress.task.id,
        key=key,
        run=run,
        source=offer.task,
        result=offer.result,
        items=offer.items,
        tracing=offer.tracing,
        missing=offer.missing,
    )


def _refused(state: RunState, progress: Progress) -> ev.Event | None:
    """A skip where the models of everybody who may take a task refuse every call: no attempt would come to anything."""
    if not state.refused:
        return None
    models = [state.agents[name].model for name in line_of(state, progress.task) if name in state.agents]
    if not models or any(model not in state.refused for model in models):
        return None
    return ev.TaskSkipped(progress.task.id, "refused", state.refused[models[0]])


def _start(
    state: RunState, progress: Progress, lane: Lane, extra: dict[str, int], now: Instant, last: Instant
) -> ev.Event | None:
    """An attempt; None when nobody can take it now; a skip when the budget is too small for it."""
    choice = _choose(state, progress, lane, extra, now)
    if choice is None:
        return None
    agent, probes = choice
    reserve = agent.estimate
    if not state.ledger.covers(reserve, keep=state.requested.budget.floor):
        return ev.TaskSkipped(progress.task.id, "budget")
    extra[agent.name] = extra.get(agent.name, 0) + 1
    number = progress.attempt + (not progress.redo)
    until = min(now + agent.timeout, last)
    held = None if reserve == NOTHING else reserve
    return ev.AttemptStarted(
        task=progress.task.id, attempt=number, worker=agent.name, until=until, reserve=held, probes=probes
    )


_Choice = tuple[Agent, tuple[str, ...]]


def _choose(state: RunState, progress: Progress, lane: Lane, extra: dict[str, int], now: Instant) -> _Choice | None:
    """The least loaded of those who may take it; where breakers bar them all, whoever may stand in."""
    names = lane.candidates
    if state.breakers and not progress.redo and all(_probes(state, name, now) is None for name in names):
        gone = (*names, *progress.tried)
        names = tuple(name for name in line_of(state, progress.task) if name not in gone)
    best: _Choice | None = None
    least = 0
    for name in names:
        agent = state.agents.get(name)
        if agent is None:
            continue
        load = state.load.get(name, 0) + extra.get(name, 0)
        if (agent.concurrency and load >= agent.concurrency) or (best is not None and load >= least):
            continue
        probes = _probes(state, name, now)
        if probes is not None:
            best = (agent, probes)
            least = load
    return best


def _probes(state: RunState, worker: str, now: Instant) -> tuple[str, ...] | None:
    """The breakers this call would probe; None where one of them bars it."""
    if not state.breakers:
        return ()
    name = breaker_name(state.agents[worker])
    breaker = state.breakers.get(name)
    if breaker is None:
        return ()
    where = breakers.stand(breaker, now)
    if where in ("open", "probing"):
        return None
    return (name,) if where == "half-open" else ()
