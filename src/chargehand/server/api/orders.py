"""Speak to a run: cancel, pause, resume, answer its question. What was asked is on disk when this is answered."""

import asyncio
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chargehand.errors import Refused
from chargehand.server.api.reading import Seen, seen, shown
from chargehand.server.api.shapes import Answer, Feedback, FeedbackShown, Reason, RunShown, Verdict
from chargehand.server.api.table import Operation, sent
from chargehand.server.problem import Problem
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant
from chargehand.server.wire import part, reply
from chargehand.terms import events as ev
from chargehand.terms.policy import Seconds

_TRIES = 3
_STOPPING = 5.0


async def tell(tenant: Tenant, run: str, say: Callable[[Seen], ev.Event | None]) -> None:
    """Tell a run what `say` makes of how it stands; None: there is nothing to tell.

    A run that nobody carries is gone on with for it.
    """
    for _ in range(_TRIES):
        one = await seen(tenant, run)
        if one.state.ended is not None:
            raise Refused(f"run {run!r} has ended ({one.state.ended.ending}); fork it to do some of it again")
        if (parent := one.requested.parent) is not None:
            raise Refused(f"run {run!r} is inside run {parent.run!r}; speak to that one")
        event = say(one)
        if event is None:
            return
        if not isinstance(event, ev.CancelRequested) or not tenant.runs.carries(run):
            _check_team(tenant, one)  # a talk with an agent can be stopped from here, and nothing else
        if (driver := tenant.driving(run)) is not None:
            await driver.ask(run, event)
            return
        if not tenant.runs.carries(run):
            served = await tenant.part(Teams).of(one.requested.team, one.requested.budget)
            await served.resume(run, event)
            return
        await _left(tenant, run)  # it begins or stops just now: look again when it has
    raise Refused(f"run {run!r} begins or stops just now; try again")


def _check_team(tenant: Tenant, one: Seen) -> None:
    if not one.requested.team:
        raise Refused(f"run {one.run!r} is a talk with an agent; say it to the agent: /v1/agents/AGENT/messages")
    if one.requested.team not in tenant.part(Teams).teams:
        raise Refused(f"run {one.run!r} belongs to no team of this server; nobody here can go on with it")


async def _left(tenant: Tenant, run: str) -> None:
    try:
        async with asyncio.timeout(_STOPPING):
            await tenant.runs.outcome(run)
    except TimeoutError:
        return
    except Exception:  # noqa: BLE001 - what became of it is in the journal
        return


async def settled(tenant: Tenant, run: str, patience: Seconds, check: Callable[[Seen], None]) -> Seen:
    """A run that has ended; one that has not is cancelled, once `check` has nothing against it."""
    one = await seen(tenant, run)
    check(one)
    if one.state.ended is not None:
        return one
    await tell(tenant, run, lambda _: ev.CancelRequested("done again in another run"))
    try:
        async with asyncio.timeout(patience):
            await tenant.runs.outcome(run)
    except TimeoutError as error:
        raise Problem(409, "busy", f"run {run!r} was cancelled and has not stopped yet; try again soon") from error
    return await seen(tenant, run)


# --- the calls


async def cancel(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, Reason)
    return await _told(request, tenant, lambda _: ev.CancelRequested(wanted.reason))


async def pause(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, Reason)

    def paused(one: Seen) -> ev.Event | None:
        if not tenant.runs.carries(one.run):
            raise Refused(f"run {one.run!r} is not under way, so nothing of it goes on")
        return None if one.state.paused else ev.PauseSet(paused=True, reason=wanted.reason)

    return await _told(request, tenant, paused)


async def resume(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, Reason)

    def resumed(one: Seen) -> ev.Event | None:
        carried = tenant.runs.carries(one.run)
        if not carried and one.state.input is not None:
            raise Refused(f"run {one.run!r} waits for a person; answer its question: POST /api/runs/{one.run}/answer")
        idle = carried and not one.state.paused
        return None if idle else ev.PauseSet(paused=False, reason=wanted.reason)

    return await _told(request, tenant, resumed)


async def judge(request: Request, tenant: Tenant) -> Response:
    """What a person says to a plan."""
    wanted = await sent(request, Verdict)
    _check_plan(wanted)

    def said(one: Seen) -> ev.Event:
        asked = _question(one)
        if asked.what != "plan":
            raise Refused(f"run {one.run!r} asks about a {asked.what}, not about its plan; answer that")
        return ev.InputAnswered(wanted.number, wanted.verdict, wanted.feedback, wanted.plan)

    return await _told(request, tenant, said)


async def answer(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, Answer)
    _check_plan(wanted)
    result = msgspec.Raw(msgspec.json.encode(wanted.result))

    def said(one: Seen) -> ev.Event:
        _question(one)
        return ev.InputAnswered(
            number=wanted.number, verdict=wanted.verdict, feedback=wanted.feedback, plan=wanted.plan, result=result
        )

    return await _told(request, tenant, said)


def _check_plan(wanted: Verdict | Answer) -> None:
    """Who sends a plan means it, so it must not be passed over."""
    if (wanted.verdict == "edit") != (wanted.plan is not None):
        raise Problem(422, "invalid", "a plan comes with the verdict `edit`, and with no other")


def _question(one: Seen) -> ev.InputRequested:
    if (parent := one.requested.parent) is not None:
        raise Refused(
            f"run {one.run!r} works for run {parent.run!r}; answer that one: POST /api/runs/{parent.run}/answer"
        )
    if one.state.input is None:
        raise Refused(f"run {one.run!r} asks nothing just now")
    return one.state.input


async def _told(request: Request, tenant: Tenant, say: Callable[[Seen], ev.Event | None]) -> Response:
    run = part(request, "run")
    await tell(tenant, run, say)
    return reply(shown(tenant, await seen(tenant, run)))


async def feedback(request: Request, tenant: Tenant) -> Response:
    from chargehand.runtime.route_feedback import record_feedback  # noqa: PLC0415 - only feedback needs it

    wanted = await sent(request, Feedback)
    run = part(request, "run")
    judgement = await record_feedback(tenant.journal, run, wanted.good, wanted.worker)
    shown_judgement = FeedbackShown(run, judgement.request, judgement.confirmed, judgement.refuted)
    return reply(shown_judgement)


_SPOKEN = (
    ("cancel", cancel, "cancel_run", Reason, "Stop a run; what is finished stays."),
    ("pause", pause, "pause_run", Reason, "Start nothing more until it is resumed; its time goes on."),
    ("resume", resume, "resume_run", Reason, "Go on with a run that was paused or interrupted."),
    ("plan", judge, "judge_plan", Verdict, "Approve, edit or reject the plan a run asks about."),
    ("answer", answer, "answer_run", Answer, "Answer the question a run asks."),
)
OPERATIONS = (
    *(
        Operation(
            method="POST",
            path=f"/api/runs/{{run}}/{path}",
            call=call,
            name=name,
            group="runs",
            scope="run",
            asked=asked,
            told=RunShown,
            problems=(404, 409, 422, 429, 503),
            summary=summary,
        )
        for path, call, name, asked, summary in _SPOKEN
    ),
    Operation(
        method="POST",
        path="/api/runs/{run}/feedback",
        call=feedback,
        name="judge_run",
        group="runs",
        scope="run",
        asked=Feedback,
        told=FeedbackShown,
        problems=(404, 409, 422),
        summary="Say how well a routed run went; later requests like it are routed by it.",
    ),
)
