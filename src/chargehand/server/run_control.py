"""Read a run from the journal, send events to it, whichever runner drives it, and resume it. Used by every API.

Open runs are resumed when their tenant is opened, a bounded number at once. Runs that wait for a person or are paused
stay as they are. Nested runs are resumed by their parent.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from chargehand.concurrency import log_errors
from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.policy import Seconds
from chargehand.engine.state import RunState
from chargehand.errors import ChargehandError, Refused, RunBusy
from chargehand.journal.store import list_deliveries, list_open_runs
from chargehand.runtime.commands import send_command
from chargehand.runtime.dispatch_port import Dispatcher
from chargehand.runtime.nested import cancel_shared
from chargehand.runtime.runner import Outcome
from chargehand.server.letta.sessions import Sessions
from chargehand.server.settings import JOURNAL, ServerSettings, check_tenant
from chargehand.server.teams import Teams
from chargehand.server.tenant_runs import retry_when_full
from chargehand.server.tenants import Tenant, Tenants
from chargehand.server.wire import OverHttp, Problem

_TRIES = 3
_STOPPING: Seconds = 5.0
_SOON: Seconds = 0.1
_LOOK: Seconds = 2.0
"""How often it is asked whether the process that drives a run is alive, while it writes nothing."""


class RecordedRun(Struct, frozen=True):
    """A run as its entries tell it."""

    run: str
    entries: Sequence[ev.Entry]
    state: RunState
    is_driven: bool = False
    """A process drives it, this one or another, as far as that was asked."""

    @property
    def requested(self) -> ev.RunRequested:
        return self.state.requested


Say = Callable[[RecordedRun], ev.Event | None]
"""What to tell a run, from how it stands; None: there is nothing to tell."""


async def read_run(tenant: Tenant, run: str) -> RecordedRun:
    """A run of this tenant; Unknown if there is none."""
    entries = await tenant.journal.read(run)
    return RecordedRun(run, entries, replay(entries))


async def tell_run(tenant: Tenant, run: str, say: Say) -> None:
    """Send an event to a run, whichever process drives it; it is durable on return. If none does, it is resumed."""
    if tenant.dispatcher is not None:
        await _tell_elsewhere(tenant, run, say, tenant.dispatcher)
        return
    for _ in range(_TRIES):
        is_here = tenant.runs.is_running(run)
        is_elsewhere = not is_here and (await tenant.journal.row(run)).held
        recorded = structs.replace(await read_run(tenant, run), is_driven=is_here or is_elsewhere)
        _check_open(recorded)
        event = say(recorded)
        if event is None:
            return
        _check_may_tell(recorded, event)
        runner = tenant.runner_of(run)
        if runner is not None:
            await runner.ask(run, tenant.redact(event))
            return
        if is_here:
            await _wait_until_left(tenant, run)  # it begins or stops just now: look again when it has
            continue
        try:
            if is_elsewhere and tenant.journal.commands is not None:
                resume = partial(resume_run, tenant, recorded)
                await send_command(tenant.journal, run, tenant.redact(event), resume)
            else:
                await resume_run(tenant, recorded, event)
        except RunBusy:
            if is_elsewhere:
                raise
            continue  # another process was faster
        return
    raise Refused(f"run {run!r} begins or stops just now; try again")


async def _tell_elsewhere(tenant: Tenant, run: str, say: Say, dispatcher: Dispatcher) -> None:
    recorded = await read_run(tenant, run)
    is_held = (await tenant.journal.row(run)).held
    is_in_queue = bool(recorded.requested.team) and recorded.state.input is None
    recorded = structs.replace(recorded, is_driven=is_held or is_in_queue)
    _check_open(recorded)
    event = say(recorded)
    if event is None:
        return
    _check_may_tell(recorded, event)
    clean_event = tenant.redact(event)
    requested = recorded.requested
    if isinstance(clean_event, ev.CancelRequested) and requested.team in tenant.part(Teams).teams:
        served = await tenant.part(Teams).of(requested.team, requested.budget)
        await cancel_shared(served.runner, dispatcher, run, clean_event)
    else:
        await dispatcher.tell(run, clean_event)


def _check_open(recorded: RecordedRun) -> None:
    run = recorded.run
    if recorded.state.ended is not None:
        ending = recorded.state.ended.ending
        remedy = f"POST /api/runs/{run}/fork does some of it again"
        raise OverHttp(f"run {run!r} has ended ({ending})", remedy)
    if (parent := recorded.requested.parent) is not None:
        raise Refused(f"run {run!r} is inside run {parent.run!r}; speak to that one")


def _talk(recorded: RecordedRun) -> OverHttp:
    return OverHttp(f"run {recorded.run!r} is a talk with an agent; say it to the agent", "/v1/agents/AGENT/messages")


def _check_may_tell(recorded: RecordedRun, event: ev.Event) -> None:
    """A talk with an agent can be stopped from here while it goes on, and nothing else."""
    is_stop = recorded.is_driven and isinstance(event, ev.CancelRequested)
    if not recorded.requested.team and not is_stop:
        raise _talk(recorded)


def _check_team(tenant: Tenant, recorded: RecordedRun) -> None:
    team = recorded.requested.team
    if not team:
        raise _talk(recorded)
    if team not in tenant.part(Teams).teams:
        raise Refused(f"run {recorded.run!r} belongs to no team of this server; start the server with its team file")


async def resume_run(tenant: Tenant, recorded: RecordedRun, *answers: ev.Event) -> "asyncio.Future[Outcome]":
    """Resume a run of a team that no process drives."""
    _check_team(tenant, recorded)
    served = await tenant.part(Teams).of(recorded.requested.team, recorded.requested.budget)
    return await served.resume(recorded.run, recorded.entries[0], *answers)


async def wait_for_run(tenant: Tenant, run: str) -> RecordedRun:
    """The run when it has ended, waits for a person or is paused. One that no process drives is resumed."""
    if tenant.dispatcher is not None and (await read_run(tenant, run)).requested.queue:
        await tenant.dispatcher.wait(run)
        return await read_run(tenant, run)
    while True:
        outcome = await tenant.runs.outcome(run)
        recorded = await read_run(tenant, run)
        state = recorded.state
        if outcome is not None or state.ended is not None or state.input is not None or state.paused:
            return recorded
        if (await tenant.journal.row(run)).held:
            await _follow_elsewhere(tenant, run, after=state.seq)
            continue
        try:
            await resume_run(tenant, recorded)
        except RunBusy:  # another caller, or another process, was faster
            await asyncio.sleep(_SOON)


async def _follow_elsewhere(tenant: Tenant, run: str, after: int) -> None:
    """Until something may have changed of a run that another process drives: it stands still, or is not driven."""
    reader = tenant.feed.subscribe(run, after)
    while True:
        try:
            async with asyncio.timeout(_LOOK):
                entry = await anext(reader, None)
        except TimeoutError:
            if not (await tenant.journal.row(run)).held:
                return
            reader.look_again()  # a notice may be lost
            continue
        if entry is None or isinstance(entry.event, ev.RunEnded | ev.InputRequested | ev.PauseSet):
            return


async def _wait_until_left(tenant: Tenant, run: str) -> None:
    try:
        async with asyncio.timeout(_STOPPING):
            await tenant.runs.outcome(run)
    except Exception:  # noqa: BLE001 - what became of it is in the journal
        return


# --- after a restart


logger = logging.getLogger(__name__)

_SHARE = 2
"""Recovery takes one in so many slots: who calls meanwhile is served too."""


class Recovery:
    """What became of the open runs of one tenant. `tenant.part(Recovery)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._slots = asyncio.Semaphore(max(1, tenant.settings.limits.runs // _SHARE))
        self.resumed = 0
        self.left: dict[str, str] = {}
        """Runs that cannot be resumed here, and why."""

    async def resume_teams(self) -> None:
        """Resume the open runs of teams; returns when each has ended or waits for a person."""
        rows = await self._tenant.journal.open_runs()
        if self._tenant.dispatcher is not None:  # what was begun with an engine is the engine's
            rows = [row for row in rows if row.request is not None and not row.request.queue]
        async with asyncio.TaskGroup() as jobs:
            for row in sorted(rows, key=lambda row: row.started):
                if not row.held:
                    jobs.create_task(self._resume_in_slot(row.run))
        if self.left:
            examples = "; ".join(f"{run}: {why}" for run, why in list(self.left.items())[:20])
            logger.warning("%d open runs are left as they are (%s)", len(self.left), examples)

    async def _resume_in_slot(self, run: str) -> None:
        async with self._slots:
            try:
                recorded = await read_run(self._tenant, run)
                if not recorded.requested.team or not (goes_on(recorded.state) or self._is_program_asked(recorded)):
                    return
                if not self._is_wanted(recorded.state):
                    self.left[run] = f"the server was started with --resume {self._tenant.settings.resume}"
                else:
                    outcome = await retry_when_full(lambda: resume_run(self._tenant, recorded))
                    self.resumed += 1
                    logger.warning("run %s of team %s was open and is resumed", run, recorded.requested.team)
                    await asyncio.shield(outcome)
            except Problem as problem:
                self.left[run] = problem.detail
            except RunBusy:
                return  # another process drives it
            except ChargehandError as error:
                self.left[run] = str(error)

    def _is_program_asked(self, recorded: RecordedRun) -> bool:
        """Return whether the team's `on_approval` is to decide its question: it may have been cut while it did."""
        state = recorded.state
        if state.requested.parent is not None or state.paused or state.ended is not None or state.input is None:
            return False
        team = self._tenant.part(Teams).teams.get(recorded.requested.team)
        return team is not None and team.on_approval is not None and state.input.what in ("plan", "tool")

    def _is_wanted(self, state: RunState) -> bool:
        """Whether the operator wants a run to be resumed; one that was stopped in an orderly way says so."""
        wanted = self._tenant.settings.resume
        return wanted == "all" or (wanted == "crashed" and state.released_at is None)


def goes_on(state: RunState) -> bool:
    """Whether an open run that no other run waits for can go on without a person."""
    if state.requested.parent is not None or state.paused or state.ended is not None:
        return False
    is_startable = state.approved and bool(state.ready_queues)
    return state.input is None or bool(state.owing or state.timers or is_startable)


async def recover(tenant: Tenant) -> None:
    """What there is to do for a tenant that was opened."""
    async with asyncio.TaskGroup() as jobs:
        jobs.create_task(_try(tenant, tenant.part(Recovery).resume_teams()))
        jobs.create_task(_try(tenant, tenant.part(Sessions).resume_all()))


async def _try(tenant: Tenant, work: Awaitable[object]) -> None:
    """What stops one API must not stop the others."""
    with log_errors("not every open run of %s was resumed", tenant.name):
        await work


async def reopen(tenants: Tenants) -> None:
    """Open every tenant that has open runs or webhooks to call, one after the other."""
    for name in await _tenants_with_open_runs(tenants.settings):
        try:
            check_tenant(name)
            await tenants.of(name)
        except ChargehandError as error:
            logger.warning("tenant %s cannot be opened: %s", name, error)


def _is_work_left(journal: Path) -> bool:
    """Whether a journal has open runs, or webhooks to call."""
    return bool(list_open_runs(journal)) or any(not delivery.given_up for delivery in list_deliveries(journal))


async def _tenants_with_open_runs(settings: ServerSettings) -> list[str]:
    if settings.store is not None:
        from chargehand.journal.postgres import tenants_with_open_runs  # noqa: PLC0415 - an extra

        return await tenants_with_open_runs(settings.store)
    names: list[str] = []
    for journal in sorted(settings.data.glob(f"*/{JOURNAL}")):
        try:
            if await asyncio.to_thread(_is_work_left, journal):
                names.append(journal.parent.name)
        except ChargehandError as error:
            logger.warning("tenant %s cannot be opened: %s", journal.parent.name, error)
    return names
