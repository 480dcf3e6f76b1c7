"""A worker process, and the server that has it drive runs."""

import asyncio
from pathlib import Path

import httpx
import pytest

from chargehand.concurrency import first_error
from chargehand.dispatch.engine import parse_engine_url
from chargehand.errors import Invalid
from chargehand.journal.store import list_runs, read_run
from chargehand.server.app import Application
from chargehand.server.cluster import WorkSettings
from chargehand.server.settings import ServerLimits, ServerSettings, check
from chargehand.store_url import postgres_url
from tests.cluster.harness import PATIENCE, wait_for
from tests.server.running import running, settings_in
from tests.temporal import TemporalServer

SECRET = "hush-1f7c0b2e9d"
_TEAM = """
version: 1
name: errands
supervisor: {combine: none}
workers:
  runner: {description: runs, call: "work:tell"}
"""
_WORK = f"""
async def tell(assignment, context):
    return "it is {SECRET}"
"""
_SLOW_WORK = """
import asyncio
from pathlib import Path

FOLDER = Path(__file__).parent


async def tell(assignment, context):
    (FOLDER / "began").touch()
    while not (FOLDER / "may-end").exists():
        await asyncio.sleep(0.02)
    return "it is done"
"""
BODY = {
    "team": "errands",
    "goal": "Tell it.",
    "plan": {"tasks": [{"id": "t", "instruction": "Tell it.", "worker": "runner"}], "combine": "none"},
}


def settings_of(folder: Path, name: str, store: str, engine: str, **changes: object) -> ServerSettings:
    """Of one process of a deployment."""
    team = folder / "team.yaml"
    team.write_text(_TEAM)
    (folder / "work.py").write_text(_WORK)
    shared = {"store": postgres_url(store), "engine": parse_engine_url(engine), "teams": (team,)}
    return settings_in(folder / name, **shared, **changes)


async def test_a_worker_writes_no_secret_of_its_environment(
    tmp_path: Path, postgres_store: str, temporal: TemporalServer
) -> None:
    server = settings_of(tmp_path, "server", postgres_store, temporal.url)
    worker = settings_of(tmp_path, "worker", postgres_store, temporal.url, secrets=(SECRET,))

    def ask() -> str:
        with running(server) as started, httpx.Client(base_url=started.url, headers=started.headers) as client:
            begun = client.post("/api/runs", json=BODY, timeout=PATIENCE)
            assert begun.status_code == 201, begun.text
            run = begun.json()["run"]
            return client.get(f"/api/runs/{run}/events", timeout=PATIENCE).text  # until it has ended

    application = Application(worker, lambda _name: None, work=WorkSettings())
    async with application.opened():
        events = await asyncio.to_thread(ask)
        await application.drain(0.0)
    assert "event: run.ended" in events
    assert "it is " in events
    assert SECRET not in events
    (row,) = await asyncio.to_thread(list_runs, postgres_store)
    assert SECRET not in str(await asyncio.to_thread(read_run, postgres_store, row.run))


def test_a_tenant_has_no_more_open_runs_than_it_may(
    tmp_path: Path, postgres_store: str, temporal: TemporalServer
) -> None:
    settings = settings_of(tmp_path, "server", postgres_store, temporal.url, limits=ServerLimits(backlog=2))
    with running(settings) as server, httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
        replies = [client.post("/api/runs", json=BODY) for _ in range(3)]
        assert [reply.status_code for reply in replies] == [201, 201, 429]
        assert (replies[2].json()["code"], replies[2].headers["Retry-After"]) == ("overloaded", "5")
        assert [run["state"] for run in client.get("/api/runs").json()["runs"]] == ["waiting", "waiting"]
        ended = client.post(f"/api/runs/{replies[0].json()['run']}/cancel", json={})
        assert ended.json()["summary"]["state"] == "cancelled", "no worker is needed for that"
        assert client.post("/api/runs", json=BODY).status_code == 201


async def test_a_queue_that_no_team_of_a_worker_has_is_told(
    tmp_path: Path, postgres_store: str, temporal: TemporalServer, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(tmp_path, "worker", postgres_store, temporal.url)
    for queues, count in (((), 0), (("errands",), 0), (("erands", "errands"), 1)):
        application = Application(settings, lambda _name: None, work=WorkSettings(queues=queues))
        async with application.opened():
            assert application.queues == (queues or ("errands",))
            await application.drain(0.0)
        assert caplog.messages.count("no team here has the queue erands; theirs are errands") == count


async def test_a_worker_that_drains_is_not_ready(tmp_path: Path, postgres_store: str, temporal: TemporalServer) -> None:
    server = settings_of(tmp_path, "server", postgres_store, temporal.url)
    worker = settings_of(tmp_path, "worker", postgres_store, temporal.url, hosts=("worker",))
    (tmp_path / "work.py").write_text(_SLOW_WORK)
    began, may_end = tmp_path / "began", tmp_path / "may-end"

    def begin() -> None:
        with running(server) as started:
            begun = httpx.post(f"{started.url}/api/runs", headers=started.headers, json=BODY, timeout=PATIENCE)
            assert begun.status_code == 201, begun.text
            wait_for("the call", began.exists)

    application = Application(worker, lambda _name: None, work=WorkSettings())
    transport = httpx.ASGITransport(application.app)
    async with application.opened(), httpx.AsyncClient(transport=transport, base_url="http://worker") as client:
        await asyncio.to_thread(begin)
        assert (await client.get("/readyz")).status_code == 200
        async with asyncio.TaskGroup() as jobs:
            draining = jobs.create_task(application.drain(PATIENCE))
            await asyncio.sleep(0)
            reply = await client.get("/readyz")
            assert (reply.status_code, draining.done()) == (503, False)
            assert (await client.get("/healthz")).status_code == 200
            may_end.touch()


async def test_a_team_that_is_not_there_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = settings_in(tmp_path / "server", teams=(tmp_path / "nowhere.yaml",))
    with pytest.raises(ExceptionGroup) as raised:
        async with Application(settings, lambda _name: None).opened():
            pass
    assert "there is no team file" in str(first_error(raised.value))
    assert not caplog.messages


def test_a_heartbeat_that_no_process_can_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"heartbeat is 0\.5 s; it must be at least 1 s"):
        check(ServerSettings(data=tmp_path, heartbeat=0.5))
