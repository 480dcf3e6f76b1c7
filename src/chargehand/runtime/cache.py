"""Results of earlier runs that a new run may take over instead of paying for the same work again.

Only work that looks and changes nothing is offered, and only while it is fresh. Which task of the new run is the same
as an earlier one is decided by the engine, by its key.
"""

from collections.abc import Container, Iterator, Mapping, Sequence

from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.plan import TaskId
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import Agent
from chargehand.engine.state import Progress, RunState, Status, candidates
from chargehand.engine.view import is_traced, offer_of
from chargehand.errors import StoreError
from chargehand.journal.protocol import Journal

MOST_RUNS = 50
MOST_OFFERS = 1000
_MOST_BYTES = 4 * 1024 * 1024  # every offer is written into the new run
_SOURCE = "cache"


async def earlier_results(
    journal: Journal, request: ev.RunRequested, fresh: Seconds, now: Instant, lookers: Container[str]
) -> tuple[ev.ResultsOffered, ...]:
    """What a new run may take over: results not older than `fresh`, of workers who are the same as then.

    Only runs of the same scope offer any: what a tool returned may depend on who asks.

    `lookers` are those who only look. A source is named by its run and its task. Nothing here can keep a run from
    starting: what cannot be read is not offered.
    """
    if _given_more(request):
        return ()
    try:
        rows = await journal.changed_since(now - fresh)
    except StoreError:
        return ()
    present = {agent.name: agent for agent in request.roster.agents if agent.name in lookers and agent.spec}
    offers: list[ev.Offer] = []
    offered_keys: set[str] = set()  # by runs that are newer than the one that is read
    room = _MOST_BYTES
    for row in sorted(rows, key=lambda row: row.changed, reverse=True)[:MOST_RUNS]:
        try:
            entries = await journal.read(row.run)
        except StoreError:
            continue
        first = entries[0].event
        if not isinstance(first, ev.RunRequested) or first.scope != request.scope:
            continue
        keys: set[str] = set()
        for offer in _offers(row.run, entries, now - fresh, present):
            room -= len(bytes(offer.result))
            if len(offers) >= MOST_OFFERS or room < 0:
                break
            if offer.key not in offered_keys:  # equal tasks of one run have a result each
                offers.append(offer)
                keys.add(offer.key)
        offered_keys |= keys
    return (ev.ResultsOffered(_SOURCE, tuple(offers)),) if offers else ()


def _offers(run: str, entries: Sequence[ev.Entry], oldest: Instant, present: Mapping[str, Agent]) -> Iterator[ev.Offer]:
    """What one run has to offer. What it took over itself it does not pass on: that would make it younger."""
    first = entries[0].event
    if not isinstance(first, ev.RunRequested) or _given_more(first) or _done_again(first, entries):
        return
    ends = (entry for entry in entries if entry.at >= oldest)
    done = dict.fromkeys(entry.event.task for entry in ends if isinstance(entry.event, ev.AttemptSucceeded))
    if not done:
        return
    state = replay(entries)
    touched = _touched(state, entries)
    for task in done:
        progress = state.tasks.get(task)
        if progress is None or progress.status is not Status.DONE or progress.result is None or task in touched:
            continue
        # who asks next may get all of what was left out of this one
        if (
            progress.missing is None
            and is_traced(progress)
            and _plainly_done(state, progress)
            and _by_the_same(state, progress, present)
        ):
            yield offer_of(state, progress, TaskId(f"{run}/{task}"))


def _given_more(first: ev.RunRequested) -> bool:
    """Whether those who work in a run see more than their tasks and inputs: a message, or what a team was handed."""
    return bool(first.sender or first.inputs or first.outside)


def _done_again(first: ev.RunRequested, entries: Sequence[ev.Entry]) -> bool:
    """Whether another run was done again: its plan may have come of what that run found."""
    offered = (entry.event for entry in entries if isinstance(entry.event, ev.ResultsOffered))
    return first.plan is not None and any(event.run != _SOURCE for event in offered)


def _touched(state: RunState, entries: Sequence[ev.Entry]) -> set[TaskId]:
    """The tasks in which something was changed, or that depend on more than their inputs: memory, a made worker."""
    workers: dict[TaskId, str] = {}
    tasks: set[TaskId] = set()
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.AttemptStarted):
            workers[event.task] = event.worker
        elif isinstance(event, ev.StepStarted):
            agent = state.agents.get(workers.get(event.task, ""))
            is_declared = event.kind in ("model", "check") or (agent is not None and event.name in agent.tools)
            if event.effect != "read" or not is_declared:
                tasks.add(event.task)
    return tasks


def _plainly_done(state: RunState, progress: Progress) -> bool:
    """Whether the task was done as it was put at first: not refined, nor planned by who had seen results.

    What it was put into other words for may have come from outside, and its key does not say so.
    """
    first = next(iter(state.tasks.values())).round
    return not progress.instruction and progress.round == first


def _by_the_same(state: RunState, progress: Progress, present: Mapping[str, Agent]) -> bool:
    """Whether all workers that may take it are unchanged and one of them did it: the key does not cover fallbacks."""
    workers = candidates(state, progress.task.worker or progress.task.match)
    return progress.worker in workers and all(
        name in present and present[name] == state.agents[name] for name in workers
    )
