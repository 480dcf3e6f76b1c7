"""Read a run from the journal, and send events to it, whichever runner drives it. Used by every API."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.policy import Seconds
from chargehand.engine.state import RunState
from chargehand.errors import Refused
from chargehand.runtime.runner import Outcome
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant

_TRIES = 3
_STOPPING: Seconds = 5.0


class RecordedRun(Struct, frozen=True):
    """A run as its entries tell it."""

    run: str
    entries: Sequence[ev.Entry]
    state: RunState

    @property
    def requested(self) -> ev.RunRequested:
        return self.state.requested

    @property
    def root(self) -> str:
        return root_of(self.run, self.requested)


def root_of(run: str, first: ev.Event) -> str:
    """The outermost run that a run is inside of, by its first event; the run itself, if it is inside of none."""
    parent = first.parent if isinstance(first, ev.RunRequested) else None
    return run if parent is None else parent.root


Say = Callable[[RecordedRun], ev.Event | None]
"""What to tell a run, from how it stands; None: there is nothing to tell."""


async def read_run(tenant: Tenant, run: str) -> RecordedRun:
    """A run of this tenant; Unknown if there is none."""
    entries = await tenant.journal.read(run)
    return RecordedRun(run, entries, replay(entries))


async def tell_run(tenant: Tenant, run: str, say: Say) -> None:
    """Send an event to a run; it is durable on return. A run that is not driven is resumed for it."""
    for _ in range(_TRIES):
        recorded = await read_run(tenant, run)
        if recorded.state.ended is not None:
            ending = recorded.state.ended.ending
            raise Refused(f"run {run!r} has ended ({ending}); POST /api/runs/{run}/fork does some of it again")
        if (parent := recorded.requested.parent) is not None:
            raise Refused(f"run {run!r} is inside run {parent.run!r}; speak to that one")
        event = say(recorded)
        if event is None:
            return
        is_running = tenant.runs.is_running(run)
        if not (is_running and isinstance(event, ev.CancelRequested)):
            _check_team(tenant, recorded)  # a talk with an agent can be stopped from here, and nothing else
        runner = tenant.runner_of(run)
        if runner is not None:
            await runner.ask(run, tenant.redact(event))
            return
        if not is_running:
            await resume_run(tenant, recorded, event)
            return
        await _wait_until_left(tenant, run)  # it begins or stops just now: look again when it has
    raise Refused(f"run {run!r} begins or stops just now; try again")


def _check_team(tenant: Tenant, recorded: RecordedRun) -> None:
    team = recorded.requested.team
    if not team:
        raise Refused(f"run {recorded.run!r} is a talk with an agent; say it to the agent: /v1/agents/AGENT/messages")
    if team not in tenant.part(Teams).teams:
        raise Refused(f"run {recorded.run!r} belongs to no team of this server; start the server with its team file")


async def resume_run(tenant: Tenant, recorded: RecordedRun, *answers: ev.Event) -> "asyncio.Future[Outcome]":
    """Resume a run of a team that no process drives."""
    _check_team(tenant, recorded)
    served = await tenant.part(Teams).of(recorded.requested.team, recorded.requested.budget)
    return await served.resume(recorded.run, recorded.entries[0], *answers)


async def _wait_until_left(tenant: Tenant, run: str) -> None:
    try:
        async with asyncio.timeout(_STOPPING):
            await tenant.runs.outcome(run)
    except Exception:  # noqa: BLE001 - what became of it is in the journal
        return
