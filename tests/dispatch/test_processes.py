"""Real processes: a server, workers that are killed or told to stop, and a log of calls that is outside of them."""

from collections.abc import Iterator

import pytest

from tests.cluster.harness import Cluster, Process, cluster, wait_for
from tests.postgres import PostgresServer
from tests.temporal import TemporalServer

_OPTIONS = ("--heartbeat", "2s")


@pytest.fixture(scope="module")
def running(postgres: PostgresServer, temporal: TemporalServer) -> Iterator[Cluster]:
    """A server and three workers, of which each test takes one away."""
    with cluster(postgres, temporal) as made:
        made.write_team(milliseconds=300, tool_calls=2)
        made.start_server(*_OPTIONS)
        for _ in range(3):
            made.start_worker(*_OPTIONS, "--drain", "20s")
        for process in (*made.servers, *made.workers):
            process.wait_ready()
        yield made


def _driver(running: Cluster, errand: str) -> Process:
    """The worker that drives the run of an errand: the one that calls the model for it."""

    def look() -> Process | None:
        names = {call.process for call in running.calls() if call.errand == errand and call.phase == "end"}
        return next((worker for worker in running.workers if worker.name in names and worker.is_alive), None)

    return wait_for("a call ends", look)


@pytest.mark.timeout(300)
@pytest.mark.slow("a worker is killed in the middle of a run")
def test_a_run_outlives_the_worker_that_drives_it_and_no_finished_call_is_repeated(running: Cluster) -> None:
    run = running.begin("killed", tasks=6)
    victim = _driver(running, "killed")
    victim.kill()
    assert running.wait_ended(run) == "complete"
    verdict = running.verdict()
    assert verdict.problems == []


@pytest.mark.timeout(300)
@pytest.mark.slow("a worker stops in the middle of a run")
def test_a_worker_that_is_told_to_stop_lets_its_calls_finish_and_nothing_is_repeated(running: Cluster) -> None:
    before = len(running.calls())
    run = running.begin("stopped", tasks=6)
    victim = _driver(running, "stopped")
    assert victim.terminate() < 60
    assert running.wait_ended(run) == "complete"
    assert running.verdict().problems == []
    begun = [call for call in running.calls()[before:] if call.phase == "begin"]
    assert len(begun) == 6 * 5  # three replies and two tools for each task
