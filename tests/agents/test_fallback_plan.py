"""A run whose planner makes no plan says so in its result, whoever gets the whole request instead."""

from chargehand import Result, Supervisor, Team, Worker
from chargehand.models.messages import Message


async def _work(messages: list[Message]) -> str:
    return f"worked on {len(messages)} messages"


async def _broken(messages: list[Message]) -> str:
    return messages.upper()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


async def _empty_plan(messages: list[Message]) -> str:
    return '{"tasks": {}}' if messages else ""


async def _run(planner: object) -> Result:
    supervisor = Supervisor(model=planner)  # pyright: ignore[reportArgumentType]
    return await Team([Worker("ann", "works", model=_work)], supervisor=supervisor).run("Count the apples.")


async def test_a_mistake_in_the_planner_leaves_a_gap_though_the_only_worker_did_the_request() -> None:
    result = await _run(_broken)
    assert (result.ending, result.reason) == ("partial", "gaps")
    (gap,) = result.gaps
    assert gap.status == "unserved"
    assert "AttributeError" in gap.message
    assert result.fallback is not None
    assert result.fallback.code_error is not None
    assert "ann was given the whole request" in result.notice


async def test_a_planner_without_a_plan_is_named_in_the_notice_though_nothing_is_missing() -> None:
    result = await _run(_empty_plan)
    assert (result.ending, result.gaps) == ("complete", ())
    assert result.fallback is not None
    assert result.notice.startswith("No plan could be made (")
    assert result.notice.endswith("ann was given the whole request.")


async def test_a_run_with_a_plan_has_no_fallback() -> None:
    async def planner(messages: list[Message]) -> str:
        return '{"tasks": {"t1": {"instruction": "Count the apples.", "worker": "ann"}}, "combine": "forward"}'

    result = await _run(planner)
    assert (result.ending, result.fallback, result.notice) == ("complete", None, "")
