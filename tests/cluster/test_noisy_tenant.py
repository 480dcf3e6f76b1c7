"""A tenant that has begun very many runs does not keep another one waiting: they take turns in a queue."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from msgspec import json

from chargehand.cli.main import main
from tests.cluster.harness import PATIENCE, Cluster, Process, cluster
from tests.postgres import PostgresServer
from tests.support.hunts import hunt_size
from tests.temporal import TemporalServer

_NOISY = hunt_size(quick=60, thorough=150)
_SLOTS = 4


def _token(group: Cluster, tenant: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["tokens", "create", "--tenant", tenant, "--name", tenant, "--store", group.store, "--json"]) == 0
    return json.decode(capsys.readouterr().out)["token"]


def _begin(client: httpx.Client, errand: str) -> None:
    task = {"id": "t", "instruction": f"errand {errand} part p0", "worker": "runner"}
    body = {"team": "errands", "goal": f"errand {errand}", "plan": {"tasks": [task], "combine": "none"}}
    reply = client.post("/api/runs", json=body)
    assert reply.status_code == 201, reply.text


def _client(server: Process, token: str) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE)


@pytest.mark.slow("a server and a worker start, and the queue of a tenant is filled in between")
def test_one_run_of_a_tenant_is_done_long_before_all_runs_of_another_that_began_first(
    postgres: PostgresServer, temporal: TemporalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster(postgres, temporal) as group:
        group.write_team(milliseconds=50, tool_calls=0)
        noisy, quiet = (_token(group, tenant, capsys) for tenant in ("noisy", "quiet"))
        server = group.start_server()
        server.wait_ready()
        with _client(server, noisy) as client, ThreadPoolExecutor(8) as threads:
            list(threads.map(_begin, itertools.repeat(client), [f"noisy{number}" for number in range(_NOISY)]))
        with _client(server, quiet) as client:
            _begin(client, "quiet")
        group.start_worker("--slots", str(_SLOTS))  # only now, so that all of them wait in the queue
        calls = group.calls_until("quiet")
    before = {call.errand for call in calls if call.errand != "quiet"}
    assert len(before) < _NOISY / 3, "the quiet tenant had its turn among the first"
