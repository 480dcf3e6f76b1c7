"""Speak to a run: cancel, pause, resume, answer its question. What was asked is on disk when this is answered."""

import msgspec

from chargehand.engine import events as ev
from chargehand.errors import Refused
from chargehand.server.api.operations import operation
from chargehand.server.api.runs import run_shown
from chargehand.server.api.shapes import Answer, Feedback, FeedbackShown, Reason, RunShown, Verdict
from chargehand.server.problem import Problem
from chargehand.server.run_control import RecordedRun, Say, tell_run
from chargehand.server.tenants import Tenant


async def _tell(tenant: Tenant, run: str, say: Say) -> RunShown:
    await tell_run(tenant, run, say)
    return await run_shown(tenant, run)


@operation("POST", "/api/runs/{run}/cancel", scope="run")
async def cancel_run(tenant: Tenant, run: str, body: Reason) -> RunShown:
    """Stop a run; what is finished stays."""
    return await _tell(tenant, run, lambda _: ev.CancelRequested(body.reason))


@operation("POST", "/api/runs/{run}/pause", scope="run")
async def pause_run(tenant: Tenant, run: str, body: Reason) -> RunShown:
    """Start nothing more until it is resumed; its time goes on."""

    def pause(recorded: RecordedRun) -> ev.Event | None:
        if not tenant.runs.is_running(run):
            raise Refused(f"run {run!r} is not under way, so nothing of it goes on")
        return None if recorded.state.paused else ev.PauseSet(paused=True, reason=body.reason)

    return await _tell(tenant, run, pause)


@operation("POST", "/api/runs/{run}/resume", scope="run")
async def resume_run(tenant: Tenant, run: str, body: Reason) -> RunShown:
    """Go on with a run that was paused or interrupted."""

    def resume(recorded: RecordedRun) -> ev.Event | None:
        is_running = tenant.runs.is_running(run)
        if not is_running and recorded.state.input is not None:
            raise Refused(f"run {run!r} waits for a person; answer its question: POST /api/runs/{run}/answer")
        goes_on = is_running and not recorded.state.paused
        return None if goes_on else ev.PauseSet(paused=False, reason=body.reason)

    return await _tell(tenant, run, resume)


@operation("POST", "/api/runs/{run}/plan", scope="run")
async def judge_plan(tenant: Tenant, run: str, body: Verdict) -> RunShown:
    """Approve, edit or reject the plan a run asks about."""
    _check_plan(body)

    def judge(recorded: RecordedRun) -> ev.Event:
        question = _question(recorded)
        if question.what != "plan":
            raise Refused(f"run {run!r} asks about a {question.what}, not about its plan; answer that")
        return ev.InputAnswered(body.number, body.verdict, body.feedback, body.plan)

    return await _tell(tenant, run, judge)


@operation("POST", "/api/runs/{run}/answer", scope="run")
async def answer_run(tenant: Tenant, run: str, body: Answer) -> RunShown:
    """Answer the question a run asks."""
    _check_plan(body)
    result = msgspec.Raw(msgspec.json.encode(body.result))

    def answer(recorded: RecordedRun) -> ev.Event:
        _question(recorded)
        return ev.InputAnswered(
            number=body.number, verdict=body.verdict, feedback=body.feedback, plan=body.plan, result=result
        )

    return await _tell(tenant, run, answer)


def _check_plan(sent: Verdict | Answer) -> None:
    """Who sends a plan means it, so it must not be passed over."""
    if (sent.verdict == "edit") != (sent.plan is not None):
        raise Problem(422, "invalid", "a plan comes with the verdict `edit`, and with no other")


def _question(recorded: RecordedRun) -> ev.InputRequested:
    run = recorded.run
    if recorded.state.input is None:
        raise Refused(f"run {run!r} asks nothing just now")
    return recorded.state.input


@operation("POST", "/api/runs/{run}/feedback", scope="run")
async def judge_run(tenant: Tenant, run: str, body: Feedback) -> FeedbackShown:
    """Say how well a routed run went; later requests like it are routed by it."""
    from chargehand.agents.routing.feedback import record_feedback  # noqa: PLC0415 - only feedback needs it

    judgement = await record_feedback(tenant.journal, run, body.good, body.worker)
    return FeedbackShown(run, judgement.request, judgement.confirmed, judgement.refuted)
