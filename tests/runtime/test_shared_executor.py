"""Runs of a team that are under way at the same time share its models; the last one closes them."""

import asyncio

from chargehand import Plan, ScriptedModel, Supervisor, Task, Team, Worker

PLAN = Plan((Task("t1", "Count.", "ann"),), "forward")


def make_team() -> Team:
    return Team([Worker("ann", model=ScriptedModel(["12"], repeat=True))], supervisor=Supervisor(plan=PLAN))


async def test_runs_at_the_same_time_have_one_executor_and_a_later_one_another() -> None:
    team = make_team()
    async with team.executor() as first, team.executor() as second:
        assert first is second
    async with team.executor() as third:
        assert third is not first


async def test_inside_the_context_of_a_team_everything_stays_open_between_runs() -> None:
    team = make_team()
    async with team:
        async with team.executor() as first:
            pass
        assert (await team.run("Count")).ending == "complete"
        async with team, team.executor() as second:
            pass
        async with team.executor() as third:
            pass
    assert first is second is third
    async with team.executor() as later:
        assert later is not first


async def test_a_team_within_other_bounds_has_an_executor_of_its_own() -> None:
    team = make_team()
    async with team.executor() as first, team.bounded(timeout=5.0).executor() as second:
        assert first is not second


async def test_a_run_that_is_cancelled_leaves_the_models_to_the_others() -> None:
    team = make_team()
    async with asyncio.TaskGroup() as group:
        jobs = [group.create_task(team.run("Count")) for _ in range(20)]
        await asyncio.sleep(0)
        jobs[0].cancel()
    assert jobs[0].cancelled()
    assert {job.result().ending for job in jobs[1:]} == {"complete"}


def test_each_event_loop_has_its_own() -> None:
    team = make_team()
    assert [team.run_sync("Count").ending for _ in range(3)] == ["complete"] * 3

    async def several() -> list[str]:
        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(team.run("Count")) for _ in range(5)]
        return [job.result().ending for job in jobs]

    async def in_threads() -> list[str]:
        return await asyncio.to_thread(lambda: [team.run_sync("Count").ending for _ in range(2)]) + await several()

    assert asyncio.run(in_threads()) == ["complete"] * 7
