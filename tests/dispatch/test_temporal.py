"""Runs through a real Temporal and a real PostgreSQL."""

import asyncio
import time

import pytest
from msgspec import structs

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.dispatch.engine import EngineUrl, Job
from chargehand.dispatch.reconciler import reconcile
from chargehand.dispatch.temporal import TemporalEngine
from chargehand.engine import events as ev
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.errors import Invalid, Refused, StoreUnavailable
from chargehand.journal.store import open_journal
from chargehand.runtime.executor import Done, StepContext
from chargehand.server.settings import SHORTEST_HEARTBEAT
from tests.cluster.proxy import tcp_proxy
from tests.dispatch.process import OTHER_QUEUE, QUEUE, Process, eventually, new_deployment, process
from tests.requests import request
from tests.support.hunts import hunt_size
from tests.temporal import TemporalServer, free_port

SLOW = Script(otherwise=Move(seconds=0.4))


def asked(*names: str, seconds: float = 300.0) -> ev.RunRequested:
    tasks = tuple(Task(TaskId(name), f"carry out {name} of the work", "worker") for name in names or ("a",))
    return structs.replace(request(Plan(tasks, combine="none"), seconds=seconds), queue=QUEUE)


async def begin(server: Process, *runs: str) -> None:
    for run in runs:
        await server.runner.create(run, asked())
    async with asyncio.TaskGroup() as jobs:
        for run in runs:
            jobs.create_task(server.dispatcher.begin(run, queue=QUEUE))


async def ending(server: Process, run: str) -> str:
    await asyncio.wait_for(server.dispatcher.wait(run), 60)
    last = (await server.journal.read(run))[-1].event
    assert isinstance(last, ev.RunEnded)
    return last.ending


async def test_a_run_that_one_process_begins_is_driven_by_another(
    postgres_store: str, temporal: TemporalServer
) -> None:
    deployment = new_deployment()
    executor = ScriptedExecutor(Script())
    async with (
        process(postgres_store, temporal.url, executor, deployment=deployment, works=False) as server,
        process(postgres_store, temporal.url, executor, deployment=deployment) as worker,
    ):
        runs = [f"r{number}" for number in range(hunt_size(quick=8, thorough=20))]
        await begin(server, *runs)
        assert {await ending(server, run) for run in runs} == {"complete"}
        assert sorted(worker.driven) == sorted(runs)
        events = [entry.event for entry in await server.journal.read("r0")]
        assert not any(isinstance(event, ev.RunResumed) for event in events)


@pytest.mark.slow("a process stops in the middle of a run, and another starts and finishes it")
async def test_a_process_that_stops_leaves_its_runs_to_another_and_none_counts_as_a_crash(
    postgres_store: str, temporal: TemporalServer
) -> None:
    deployment = new_deployment()
    executor = ScriptedExecutor(SLOW)
    async with process(postgres_store, temporal.url, executor, deployment=deployment, works=False) as server:
        async with process(postgres_store, temporal.url, executor, deployment=deployment) as first:
            await begin(server, "r")
            await eventually(lambda: _has_started(server, "r"))
            await first.driver.drain(0.0)
            assert not (await server.journal.row("r")).held
        async with process(postgres_store, temporal.url, executor, deployment=deployment) as second:
            assert await ending(server, "r") == "complete"
            assert second.driven == ["r"]
        events = [type(entry.event) for entry in await server.journal.read("r")]
        assert events.count(ev.RunReleased) == 1
        assert events.count(ev.RunResumed) == 1


async def _has_started(server: Process, run: str) -> bool:
    return any(isinstance(entry.event, ev.AttemptStarted) for entry in await server.journal.read(run))


async def _is_held(server: Process, run: str) -> bool:
    return (await server.journal.row(run)).held


async def test_a_second_job_for_a_run_leaves_it_to_the_process_that_drives_it(
    postgres_store: str, temporal: TemporalServer
) -> None:
    deployment = new_deployment()
    executor = ScriptedExecutor(SLOW)
    async with (
        process(postgres_store, temporal.url, executor, deployment=deployment) as first,
        process(postgres_store, temporal.url, executor, deployment=deployment) as second,
    ):
        await begin(first, "r")
        await eventually(lambda: _is_held(first, "r"))
        row = (await first.journal.jobs.assign(["r"], "none", queue=QUEUE))["r"]
        for driver in (first.driver, second.driver):  # as if the engine had lost it and given it out again
            await driver.do(Job(row, "main", QUEUE, ("r",)), attempt=1)
        assert await ending(first, "r") == "complete"
        assert (await first.journal.row("r")).epoch == 1


async def test_what_the_engine_does_not_know_of_is_started_by_the_reconciler(
    postgres_store: str, temporal: TemporalServer
) -> None:
    deployment = new_deployment()
    executor = ScriptedExecutor(Script())
    async with process(postgres_store, temporal.url, executor, deployment=deployment) as worker:
        await worker.runner.create("never begun", asked())
        await worker.runner.create("lost", asked())
        await worker.journal.jobs.assign(["lost"], f"{deployment}:main:lost:1", queue=QUEUE)
        assert await reconcile(worker.journal, worker.dispatcher) == 2
        assert await ending(worker, "never begun") == "complete"
        assert await ending(worker, "lost") == "complete"
        assert await reconcile(worker.journal, worker.dispatcher) == 0


async def test_a_run_is_cancelled_and_refused_by_whichever_process_drives_it(
    postgres_store: str, temporal: TemporalServer
) -> None:
    deployment = new_deployment()
    executor = ScriptedExecutor(Script(otherwise=Move(seconds=120.0)))
    async with (
        process(postgres_store, temporal.url, executor, deployment=deployment, works=False) as server,
        process(postgres_store, temporal.url, executor, deployment=deployment),
    ):
        await begin(server, "r")
        with pytest.raises(Refused):
            await server.dispatcher.tell("r", ev.InputAnswered(number=1, verdict="approve"))
        await server.dispatcher.tell("r", ev.CancelRequested("enough"))
        assert await ending(server, "r") == "cancelled"
        with pytest.raises(Refused, match="has ended"):
            await server.dispatcher.tell("r", ev.CancelRequested("enough"))


async def test_a_job_with_more_runs_than_slots_is_shared_with_other_processes(
    postgres_store: str, temporal: TemporalServer
) -> None:
    deployment = new_deployment()
    executor = ScriptedExecutor(Script(otherwise=Move(seconds=0.1)))
    async with (
        process(postgres_store, temporal.url, executor, deployment=deployment, slots=2) as first,
        process(postgres_store, temporal.url, executor, deployment=deployment, slots=2) as second,
    ):
        runs = [f"r{number}" for number in range(hunt_size(quick=8, thorough=16))]
        await begin(first, *runs)
        assert {await ending(first, run) for run in runs} == {"complete"}
        assert sorted(first.driven + second.driven) == sorted(runs)
        assert min(len(first.driven), len(second.driven)) >= 2


class Meeting(ScriptedExecutor):
    """Its attempts begin to work when `count` of them are under way."""

    def __init__(self, script: Script, count: int) -> None:
        super().__init__(script)
        self._barrier = asyncio.Event()
        self._missing = count

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        self._missing -= 1
        if self._missing == 0:
            self._barrier.set()
        await self._barrier.wait()
        return await super().attempt(brief, context)


@pytest.mark.parametrize("queues", [(QUEUE, QUEUE), (QUEUE, OTHER_QUEUE)])
@pytest.mark.parametrize("slots", [1, 3])
async def test_no_more_runs_are_driven_than_there_are_slots(
    slots: int, queues: tuple[str, str], postgres_store: str, temporal: TemporalServer
) -> None:
    executor = Meeting(Script(otherwise=Move(seconds=0.05)), slots)
    async with process(postgres_store, temporal.url, executor, deployment=new_deployment(), slots=slots) as worker:
        runs = [f"r{number}" for number in range(hunt_size(quick=2 * slots + 1, thorough=4 * slots))]
        for run in runs:
            await worker.runner.create(run, asked())
        async with asyncio.TaskGroup() as jobs:
            for number, run in enumerate(runs):
                jobs.create_task(worker.dispatcher.begin(run, queue=queues[number % 2]))
        assert {await ending(worker, run) for run in runs} == {"complete"}
        assert worker.most_under_way == slots


async def test_a_run_that_cannot_be_driven_is_tried_again_and_logged_in_a_line(
    postgres_store: str, temporal: TemporalServer, caplog: pytest.LogCaptureFixture
) -> None:
    executor = ScriptedExecutor(Script())
    async with process(postgres_store, temporal.url, executor, deployment=new_deployment()) as worker:
        drive = worker.drive
        reasons = iter([Refused("no team here has its worker")] * 2)

        async def fail_twice(run: str, *, steal: bool) -> bool:
            for reason in reasons:
                raise reason
            return await drive(run, steal=steal)

        worker.drive = fail_twice
        await begin(worker, "r")
        assert await ending(worker, "r") == "complete"
    assert caplog.messages.count("run r cannot be driven: no team here has its worker") == 2
    assert "Traceback" not in caplog.text


async def test_an_engine_that_cannot_be_used_is_named_with_what_to_do(temporal: TemporalServer) -> None:
    with pytest.raises(StoreUnavailable, match="start Temporal, or correct --engine"):
        await TemporalEngine.connect(EngineUrl(f"127.0.0.1:{free_port()}"), deployment="test")
    with pytest.raises(Invalid, match="name another namespace"):
        await TemporalEngine.connect(EngineUrl(temporal.address, "nowhere"), deployment="test")


async def test_what_the_library_warns_of_is_logged_as_all_else_is(
    temporal: TemporalServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with tcp_proxy(("127.0.0.1", temporal.port)) as proxy:
        engine = await TemporalEngine.connect(EngineUrl(proxy.address), deployment="test", retry_time=0.3)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await engine.start(Job("test:main:r", "main", QUEUE, ("r",)))
    await eventually(lambda: _is_logged(caplog, "chargehand.dispatch.temporal.core"))
    assert capfd.readouterr().err == ""


async def _is_logged(caplog: pytest.LogCaptureFixture, logger: str) -> bool:
    return any(record.name.startswith(logger) for record in caplog.records)


class Blocking(ScriptedExecutor):
    """A worker whose code blocks the event loop for longer than the engine is patient."""

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        time.sleep(1.5 * SHORTEST_HEARTBEAT)  # noqa: ASYNC251 - that is the mistake
        return await super().attempt(brief, context)


@pytest.mark.slow("the event loop is blocked for longer than the shortest heartbeat, which is a second")
async def test_a_process_whose_event_loop_is_blocked_does_not_lose_its_runs(
    postgres_store: str, temporal: TemporalServer
) -> None:
    executor = Blocking(Script())
    deployment = new_deployment()
    async with process(
        postgres_store, temporal.url, executor, deployment=deployment, heartbeat=SHORTEST_HEARTBEAT
    ) as worker:
        await begin(worker, "r")
        assert await ending(worker, "r") == "complete"
        assert worker.driven == ["r"]
        assert (await worker.journal.row("r")).epoch == 1


async def test_a_run_is_taken_from_a_process_that_is_taken_for_dead_and_does_not_let_go(
    postgres_store: str, temporal: TemporalServer
) -> None:
    deployment = new_deployment()
    executor = ScriptedExecutor(Script(otherwise=Move(seconds=20.0)))
    quick = ScriptedExecutor(Script())
    async with (
        process(postgres_store, temporal.url, executor, deployment=deployment) as frozen,
        process(postgres_store, temporal.url, quick, deployment=deployment, works=False) as other,
    ):
        await begin(frozen, "r")
        await eventually(lambda: _has_started(frozen, "r"))
        job = (await other.journal.jobs.assign(["r"], "none", queue=QUEUE))["r"]
        await other.driver.do(Job(job, "main", QUEUE, ("r",)), attempt=2)
        assert await ending(other, "r") == "complete"
        row = await other.journal.row("r")
        assert row.epoch == 2
    entries = [entry.event for entry in await _read(postgres_store, "r")]
    assert sum(isinstance(event, ev.RunEnded) for event in entries) == 1
    assert not any(isinstance(event, ev.RunReleased) for event in entries)  # the first wrote nothing any more


async def _read(store: str, run: str) -> list[ev.Entry]:
    journal = await open_journal(store)
    try:
        return await journal.read(run)
    finally:
        await journal.close()
