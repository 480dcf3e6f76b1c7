"""A run as it stands, read off its entries: a line for lists, and all of it. What is not on disk yet is not told."""

from collections.abc import Sequence

from msgspec import Struct, structs

from chargehand.agents.audit.report import Traced, answer_tracings, count_traced
from chargehand.core.fold import replay
from chargehand.core.state import RunState, Status
from chargehand.core.view import gaps
from chargehand.errors import ChargehandError, Corrupt
from chargehand.runtime.result import planned
from chargehand.runtime.trace import AttemptTrace, TaskTrace, trace
from chargehand.server.api.shapes import AttemptShown, RunLine, RunShown, Spent, State, TaskShown, UntracedShown
from chargehand.server.tenants import Tenant
from chargehand.terms import events as ev
from chargehand.terms.budget import Amount

_MOST_KEPT = 10_000
_CACHE = "cache"  # what offers results of many runs
_OURS = ("ordered {", "asked {")  # what other doors note for themselves; a person need not read it


class Seen(Struct, frozen=True):
    """A run with its entries."""

    run: str
    entries: Sequence[ev.Entry]
    state: RunState

    @property
    def requested(self) -> ev.RunRequested:
        return self.state.requested


async def seen(tenant: Tenant, run: str) -> Seen:
    """A run of this house; Unknown if there is none."""
    entries = await tenant.journal.read(run)
    return Seen(run, entries, replay(entries))


def standing(tenant: Tenant, one: Seen) -> State:
    """Where a run stands."""
    state = one.state
    if (end := state.ended) is not None:
        return end.ending
    if state.input is not None:
        return "needs_input"
    if state.paused:
        return "paused"
    return "running" if tenant.runs.works_on(one.run) else "interrupted"


def line(tenant: Tenant, one: Seen) -> RunLine:
    state = one.state
    requested = one.requested
    end = state.ended
    settled = [task for task in state.tasks.values() if task.mother is None]
    return RunLine(
        run=one.run,
        team=requested.team,
        goal=requested.goal,
        state=standing(tenant, one),
        started=one.entries[0].at,
        changed=state.at,
        ended=state.at if end is not None else None,
        reason="" if end is None else end.reason,
        entries=state.seq,
        spent=spent(state.ledger.spent),
        tasks=len(settled),
        done=sum(task.status is Status.DONE for task in settled),
        gaps=len(gaps(state) if end is None else end.gaps),
        parent="" if requested.parent is None else requested.parent.run,
        source=source_of(one.entries),
    )


async def damaged_line(tenant: Tenant, run: str, reason: str) -> RunLine:
    """The line of a run that is damaged, with what its readable entries say."""
    try:
        readable = (await tenant.journal.read_readable(run)).entries
    except ChargehandError:  # not even that
        readable = []
    if not readable:
        return RunLine(
            run=run,
            team="",
            goal="",
            state="damaged",
            started=0.0,
            changed=0.0,
            ended=None,
            reason=reason,
            entries=0,
            spent=Spent(0.0, 0, 0),
            tasks=0,
            done=0,
            gaps=0,
            parent="",
            source="",
        )
    known = line(tenant, Seen(run, readable, replay(readable)))
    return structs.replace(known, state="damaged", reason=reason)


def source_of(entries: Sequence[ev.Entry]) -> str:
    """The run that results are taken over from; empty if there is none."""
    offered = (entry.event for entry in entries[:8] if isinstance(entry.event, ev.ResultsOffered))
    return next((one.run for one in offered if one.run != _CACHE), "")


def spent(used: Amount) -> Spent:
    return Spent(used.micros / 1_000_000, used.tokens, used.calls)


def shown(tenant: Tenant, one: Seen) -> RunShown:
    found = trace(one.run, one.entries)
    state = one.state
    budget = one.requested.budget
    caps = Spent(budget.usd or 0, budget.tokens or 0, budget.calls or 0)
    traced, untraced = _traced(state)
    return RunShown(
        line=line(tenant, one),
        plan=planned(state),
        tasks=tuple(map(_task, found.tasks)),
        gaps=found.gaps,
        answer=found.answer,
        question=None if state.ended is not None else state.input,
        deadline=state.requested.deadline,
        limits=caps if state.ledger.capped else None,
        notes=tuple(filter(_for_people, found.notes)),
        traced=traced,
        untraced=untraced,
    )


def _traced(state: RunState) -> tuple[Traced, tuple[UntracedShown, ...]]:
    tracings = answer_tracings(state)
    untraced = tuple(
        UntracedShown(
            task=task,
            kind=item.kind,
            text=item.text,
            origin=item.origin,
            conflict=item.conflict,
            sentence=item.sentence,
        )
        for task, one in tracings.items()
        for item in one.untraced
    )
    return count_traced(tracings.values()), untraced


def _for_people(note: str) -> bool:
    return not note.partition(" s  ")[2].startswith(_OURS)


def _task(one: TaskTrace) -> TaskShown:
    attempts = tuple(map(_attempt, one.attempts))
    return TaskShown(
        id=one.id,
        instruction=one.instruction,
        worker=one.worker,
        after=one.after,
        status=one.status,
        began=one.began,
        ended=one.ended,
        attempts=attempts,
        failure=one.failure,
        reused=one.reused,
        result=one.result,
        spent=spent(one.used),
    )


def _attempt(one: AttemptTrace) -> AttemptShown:
    return AttemptShown(
        attempt=one.attempt,
        worker=one.worker,
        began=one.began,
        seconds=one.seconds,
        ending=one.ending,
        failure=one.failure,
    )


class Lines:
    """Lines of runs that have ended: these do not change any more. `house.part(Lines)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._kept: dict[str, RunLine] = {}

    async def of(self, run: str, *, over: bool) -> RunLine:
        """`over`: its last entry says that it has ended."""
        found = self._kept.get(run) if over else None
        if found is None:
            try:
                found = line(self._tenant, await seen(self._tenant, run))
            except Corrupt as error:
                return await damaged_line(self._tenant, run, str(error))
            if over:
                self._kept[run] = found
                if len(self._kept) > _MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
        return found

    def knows(self, run: str) -> bool:
        return run in self._kept
