"""Two servers and a worker on one PostgreSQL and one Temporal: any server begins, shows, follows and tells any run."""

import threading
import time

import httpx
import pytest

from tests.cluster.harness import TOKEN, Cluster, Process, cluster, wait_for
from tests.postgres import PostgresServer
from tests.temporal import TemporalServer

TASKS = 4


def client_of(server: Process) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)


@pytest.mark.slow("two servers start, and a worker after the first requests")
def test_a_run_that_a_worker_drives_is_followed_answered_and_cancelled_through_any_server(
    postgres: PostgresServer, temporal: TemporalServer
) -> None:
    with cluster(postgres, temporal) as group:
        group.write_team(milliseconds=100)
        servers = [group.start_server(), group.start_server()]
        for server in servers:
            server.wait_ready()
        with client_of(servers[0]) as one, client_of(servers[1]) as other:
            _check_cancelled_without_worker(group, other)
            group.start_worker().wait_ready()
            _check_followed(group, one, other)
            _check_told(group, one, other)


def _check_cancelled_without_worker(group: Cluster, other: httpx.Client) -> None:
    run = group.begin("queued", TASKS, group.servers[0])
    began = time.monotonic()
    cancelled = other.post(f"/api/runs/{run}/cancel", json={"reason": "no worker comes"})
    assert (cancelled.status_code, cancelled.json()["summary"]["state"]) == (200, "cancelled"), cancelled.text
    assert time.monotonic() - began < 15, "no worker is waited for"


def _check_followed(group: Cluster, one: httpx.Client, other: httpx.Client) -> None:
    run = group.begin("followed", TASKS, group.servers[0])
    kinds: list[str] = []

    def follow() -> None:
        with other.stream("GET", f"/api/runs/{run}/events") as stream:
            kinds.extend(line.removeprefix("event: ") for line in stream.iter_lines() if line.startswith("event: "))

    follower = threading.Thread(target=follow)
    follower.start()
    assert other.get(f"/api/runs/{run}").json()["summary"]["state"] in ("waiting", "running", "complete")
    follower.join(120)
    assert (kinds[0], kinds[-1], kinds.count("attempt.succeeded")) == ("run.requested", "run.ended", TASKS)
    for client in (one, other):
        assert client.get(f"/api/runs/{run}").json()["summary"]["state"] == "complete"


def _check_told(group: Cluster, one: httpx.Client, other: httpx.Client) -> None:
    plan = {"tasks": [{"id": "a", "instruction": "errand told part p0", "worker": "runner"}], "combine": "none"}
    body = {"team": "errands", "goal": "errand told", "plan": plan, "approve": True}
    run = one.post("/api/runs", json=body).json()["run"]
    question = wait_for("the question", lambda: other.get(f"/api/runs/{run}").json()["question"])
    answered = other.post(f"/api/runs/{run}/plan", json={"number": question["number"], "verdict": "approve"})
    assert answered.status_code == 200, answered.text
    cancelled = group.begin("cancelled", TASKS, group.servers[1])
    paused = one.post(f"/api/runs/{cancelled}/pause", json={})
    assert (paused.status_code, paused.json()["summary"]["state"]) == (200, "paused"), paused.text
    stopped = one.post(f"/api/runs/{cancelled}/cancel", json={"reason": "enough"})
    assert stopped.status_code == 200, stopped.text
    for state, which in (("complete", run), ("cancelled", cancelled)):
        wait_for(state, lambda: one.get(f"/api/runs/{which}").json()["summary"]["state"] == state)  # noqa: B023 - asked at once
