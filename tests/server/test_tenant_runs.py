"""Runs get places: so many at once, fairly, nothing promised before it is on disk, and nothing lost in a stop."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from chargehand.engine.budget import Budget
from chargehand.engine.events import Entry, PauseSet, RunRequested
from chargehand.engine.fold import begin
from chargehand.engine.policy import Policy
from chargehand.engine.roster import Roster
from chargehand.errors import RunBusy
from chargehand.runtime.runner import Outcome
from chargehand.runtime.runner import outcome as read_outcome
from chargehand.server.settings import ServerLimits
from chargehand.server.tenant_runs import Admission, TenantRuns
from chargehand.server.wire import Problem

ENTRY = Entry(1, 0.0, PauseSet(paused=False))


def outcome(run: str) -> Outcome:
    request = RunRequested(goal="anything", roster=Roster(()), policy=Policy(), budget=Budget(), deadline=1.0, seed=1)
    return read_outcome(run, begin(Entry(1, 0.0, request)))


class Work:
    """Runs that write their first entry at once and end when they are let."""

    def __init__(self, tenant_runs: TenantRuns) -> None:
        self.runs = tenant_runs
        self.begun: list[str] = []
        self.let = asyncio.Event()

    def of(self, run: str) -> Callable[[], Awaitable[Outcome]]:
        async def carry() -> Outcome:
            self.begun.append(run)
            self.runs.on_entries(run, [ENTRY])
            await self.let.wait()
            return outcome(run)

        return carry


async def refused(begin: Awaitable[object]) -> Problem:
    with pytest.raises(Problem) as caught:
        await begin
    return caught.value


async def tried(begin: Awaitable[object]) -> object:
    """What came of it, or the problem."""
    try:
        return await begin
    except Problem as problem:
        return problem


async def test_a_run_is_begun_when_its_first_entry_is_on_disk_and_not_before() -> None:
    async with TenantRuns(Admission(ServerLimits()), "main", 1.0) as tenant_runs, asyncio.TaskGroup() as jobs:
        written = asyncio.Event()

        async def carry() -> Outcome:
            await written.wait()
            tenant_runs.on_entries("one", [ENTRY])
            await asyncio.sleep(0.01)
            return outcome("one")

        beginning = jobs.create_task(tenant_runs.begin("one", carry))
        await asyncio.sleep(0.02)
        assert not beginning.done()
        written.set()
        done = await beginning
        assert not done.done()
        assert (await asyncio.shield(done)).run == "one"


async def test_what_cannot_begin_is_said_at_once_and_its_place_is_free_again() -> None:
    admission = Admission(ServerLimits(runs=1))
    async with TenantRuns(admission, "main", 1.0) as tenant_runs:

        async def carry() -> Outcome:
            raise RunBusy("somebody has it")

        with pytest.raises(RunBusy):
            await tenant_runs.begin("one", carry)
        assert admission.free == 1
        assert tenant_runs.running_count == 0


async def test_who_comes_when_all_places_and_the_line_are_full_is_refused_at_once_and_nothing_is_begun() -> None:
    async with (
        TenantRuns(Admission(ServerLimits(runs=2, waiting=3)), "main", 1.0) as tenant_runs,
        asyncio.TaskGroup() as jobs,
    ):
        work = Work(tenant_runs)
        waiting = [jobs.create_task(tenant_runs.begin(f"r{number}", work.of(f"r{number}"))) for number in range(5)]
        await asyncio.sleep(0.02)
        assert (tenant_runs.running_count, tenant_runs.waiting) == (2, 3)
        beginning = tenant_runs.begin("late", work.of("late"))
        with pytest.raises(Problem) as caught:
            beginning.send(None)  # its first step is its last: it waits for nothing
        problem = caught.value
        assert (problem.status, problem.code, problem.after) == (429, "overloaded", 1.0)
        with pytest.raises(Problem):
            tenant_runs.check()
        work.let.set()
        for one in waiting:
            await asyncio.shield(await one)
        assert work.begun == [f"r{number}" for number in range(5)]
        tenant_runs.check()


async def test_nobody_waits_longer_than_patience() -> None:
    async with TenantRuns(Admission(ServerLimits(runs=1, patience=0.05)), "main", 1.0) as tenant_runs:
        work = Work(tenant_runs)
        await tenant_runs.begin("one", work.of("one"))
        problem = await refused(tenant_runs.begin("two", work.of("two")))
        assert problem.status == 429
        assert tenant_runs.waiting == 0
        work.let.set()


async def test_who_stops_waiting_takes_no_place_with_it() -> None:
    admission = Admission(ServerLimits(runs=1))
    async with TenantRuns(admission, "main", 1.0) as tenant_runs, asyncio.TaskGroup() as jobs:
        work = Work(tenant_runs)
        first = await tenant_runs.begin("one", work.of("one"))
        gone = jobs.create_task(tenant_runs.begin("gone", work.of("gone")))
        next_one = jobs.create_task(tenant_runs.begin("next", work.of("next")))
        await asyncio.sleep(0.01)
        gone.cancel()
        work.let.set()
        await asyncio.shield(first)
        await asyncio.shield(await next_one)
        assert work.begun == ["one", "next"]
        assert (admission.free, admission.waiting) == (1, 0)


async def test_one_run_is_not_carried_twice_at_once() -> None:
    async with TenantRuns(Admission(ServerLimits()), "main", 1.0) as tenant_runs:
        work = Work(tenant_runs)
        await tenant_runs.begin("one", work.of("one"))
        with pytest.raises(RunBusy):
            await tenant_runs.begin("one", work.of("one"))
        assert work.begun == ["one"]
        work.let.set()
        assert (await tenant_runs.outcome("one")) is not None


async def test_a_noisy_tenant_leaves_places_and_room_in_the_line_to_others() -> None:
    admission = Admission(ServerLimits(runs=8, waiting=16))
    async with (
        TenantRuns(admission, "noisy", 1.0) as noisy,
        TenantRuns(admission, "quiet", 1.0) as quiet,
        asyncio.TaskGroup() as jobs,
    ):
        admission.of("quiet")
        loud = Work(noisy)
        calm = Work(quiet)
        crowd = [jobs.create_task(tried(noisy.begin(f"n{number}", loud.of(f"n{number}")))) for number in range(30)]
        await asyncio.sleep(0.02)
        assert (noisy.running_count, noisy.waiting) == (7, 14)
        assert (await quiet.begin("q", calm.of("q"))) is not None
        loud.let.set()
        calm.let.set()
        assert sum([isinstance(await one, Problem) for one in crowd]) == 30 - 21


async def test_tenants_who_wait_take_turns() -> None:
    admission = Admission(ServerLimits(runs=2, waiting=40))
    async with TenantRuns(admission, "a", 1.0) as a, TenantRuns(admission, "b", 1.0) as b, asyncio.TaskGroup() as jobs:
        order: list[str] = []

        def short(tenant_runs: TenantRuns, run: str) -> Callable[[], Awaitable[Outcome]]:
            async def carry() -> Outcome:
                order.append(run)
                tenant_runs.on_entries(run, [ENTRY])
                await asyncio.sleep(0.002)
                return outcome(run)

            return carry

        for number in range(10):
            jobs.create_task(a.begin(f"a{number}", short(a, f"a{number}")))
        await asyncio.sleep(0)
        for number in range(3):
            jobs.create_task(b.begin(f"b{number}", short(b, f"b{number}")))
    assert sorted(order) == sorted([f"a{number}" for number in range(10)] + [f"b{number}" for number in range(3)])
    assert max(order.index(f"b{number}") for number in range(3)) < 8  # not after all of a's


async def test_so_many_streams_may_be_open_and_one_that_nobody_began_frees_its_seat() -> None:
    admission = Admission(ServerLimits(streams=2))
    async with TenantRuns(admission, "main", 1.0) as tenant_runs:
        slots = [tenant_runs.take_stream_slot(), tenant_runs.take_stream_slot()]
        with pytest.raises(Problem) as caught:
            tenant_runs.take_stream_slot()
        assert (caught.value.status, caught.value.code) == (429, "streams")
        slots.pop().leave()
        forgotten = tenant_runs.take_stream_slot()
        del forgotten
        assert admission.streams == 1
        slots.pop().leave()
        assert admission.streams == 0


async def test_runs_that_wait_for_a_slow_store_do_not_stand_in_the_way_of_streams() -> None:
    admission = Admission(ServerLimits(runs=1, waiting=1))
    async with TenantRuns(admission, "main", 0.05) as tenant_runs, asyncio.TaskGroup() as jobs:
        never = asyncio.Event()

        async def held_up() -> Outcome:
            await never.wait()  # the first entry cannot be written
            return outcome("one")

        first = jobs.create_task(tried(tenant_runs.begin("one", held_up)))
        second = jobs.create_task(tried(tenant_runs.begin("two", held_up)))
        await asyncio.sleep(0.02)
        assert (await refused(tenant_runs.begin("three", held_up))).status == 429
        tenant_runs.take_stream_slot().leave()
        await tenant_runs.drain(0.0)
        assert [getattr(await one, "code", "") for one in (first, second)] == ["cut", "closing"]


async def test_a_stop_lets_runs_end_within_grace_and_cuts_the_rest_and_says_so() -> None:
    tenant_runs = TenantRuns(Admission(ServerLimits(runs=2)), "main", 0.2)
    async with tenant_runs, asyncio.TaskGroup() as jobs:
        work = Work(tenant_runs)
        endless = Work(tenant_runs)
        quick = await tenant_runs.begin("quick", work.of("quick"))
        slow = await tenant_runs.begin("slow", endless.of("slow"))
        waits = jobs.create_task(tried(tenant_runs.begin("waits", work.of("waits"))))
        await asyncio.sleep(0.01)
        stopping = jobs.create_task(tenant_runs.drain(0.2))
        await asyncio.sleep(0.01)
        assert getattr(await waits, "status", 0) == 503
        problem = await refused(tenant_runs.begin("late", work.of("late")))
        assert (problem.status, problem.code, problem.after) == (503, "closing", 5.0)
        work.let.set()
        assert (await asyncio.shield(quick)).run == "quick"
        await stopping
        assert (await refused(slow)).code == "cut"
        assert tenant_runs.running_count == 0


async def test_a_run_that_is_cut_before_it_did_anything_is_told_to_who_waits() -> None:
    admission = Admission(ServerLimits())
    tenant_runs = TenantRuns(admission, "main", 0.0)
    async with tenant_runs, asyncio.TaskGroup() as jobs:
        work = Work(tenant_runs)
        beginning = jobs.create_task(tried(tenant_runs.begin("one", work.of("one"))))
        await asyncio.sleep(0)  # it has its place, and has not done anything on it
        assert (tenant_runs.is_running("one"), work.begun) == (True, [])
        await tenant_runs.drain(0.0)
        assert getattr(await beginning, "status", 0) == 503
    assert admission.free == ServerLimits().runs
