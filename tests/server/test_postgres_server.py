"""Servers on one database: what one begins another shows, streams and does not begin again."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest

from chargehand.cli.main import main
from chargehand.journal.store import list_runs, read_run
from chargehand.store_url import postgres_url
from tests.server.api import GOAL, Garden, garden
from tests.server.running import Running, running, settings_in


@pytest.fixture
def first(tmp_path: Path, postgres_store: str) -> Iterator[Garden]:
    with garden(tmp_path, store=postgres_url(postgres_store)) as server:
        yield server


@pytest.fixture
def second(first: Garden, tmp_path: Path, postgres_store: str) -> Iterator[Running]:
    """Another server of the same team on the same database, with a folder of its own."""
    team = tmp_path / "team" / "team.yaml"
    with running(settings_in(tmp_path / "elsewhere", teams=(team,), store=postgres_url(postgres_store))) as server:
        yield server


def test_what_one_server_begins_another_shows_streams_and_does_not_begin_again(
    first: Garden, second: Running, postgres_store: str
) -> None:
    first.hold()
    body = {"team": "garden", "goal": GOAL}
    key = {"Idempotency-Key": "once"}
    begun = first.client.post("/api/runs", json=body, headers=key)
    assert begun.status_code == 201, begun.text
    run = begun.json()["run"]
    first.tool_called(run)
    with httpx.Client(base_url=second.url, headers=second.headers, timeout=60) as client:
        assert client.get(f"/api/runs/{run}").json()["summary"]["state"] == "running"
        again = client.post("/api/runs", json=body, headers=key)
        assert (again.json()["run"], again.headers.get("Idempotency-Replayed")) == (run, "true")
        lines: list[str] = []
        is_open = threading.Event()

        def follow() -> None:
            with client.stream("GET", f"/api/runs/{run}/events") as stream:
                for line in stream.iter_lines():
                    lines.append(line)
                    is_open.set()

        follower = threading.Thread(target=follow)
        follower.start()
        assert is_open.wait(30)
        first.let_go()
        follower.join(60)
        assert not follower.is_alive()
        assert any("run.ended" in line for line in lines)
        assert client.get(f"/api/runs/{run}").json()["summary"]["state"] == "complete"
    first.wait(run, "complete")
    assert [row.run for row in list_runs(postgres_store)] == [run]


def test_a_run_is_paused_resumed_answered_and_cancelled_through_the_server_that_does_not_drive_it(
    first: Garden, second: Running, postgres_store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first.hold()
    asking = first.begin(approve=True)
    first.wait(asking, "needs_input")
    run = first.begin()
    first.tool_called(run)
    with httpx.Client(base_url=second.url, headers=second.headers, timeout=60) as client:
        paused = client.post(f"/api/runs/{run}/pause", json={"reason": "a moment"})
        assert (paused.status_code, paused.json()["summary"]["state"]) == (200, "paused"), paused.text
        resumed = client.post(f"/api/runs/{run}/resume", json={})
        assert (resumed.status_code, resumed.json()["summary"]["state"]) == (200, "running"), resumed.text
        refused = client.post(f"/api/runs/{run}/tasks/nothing/skip", json={"in_place": True})
        assert (refused.status_code, "there is no task 'nothing'" in refused.text) == (409, True), refused.text
        cancelled = client.post(f"/api/runs/{run}/cancel", json={"reason": "enough"})
        assert cancelled.status_code == 200, cancelled.text
        first.wait(run, "cancelled")
        again = client.post(f"/api/runs/{run}/cancel", json={})
        assert (again.status_code, "has ended (cancelled)" in again.text) == (409, True)
        other = first.begin()
        first.tool_called(other)
        assert main(["runs", "cancel", other, "--store", postgres_store, "--reason", "not needed"]) == 0
        assert capsys.readouterr().out == f"cancelled: {other}\n"
        first.wait(other, "cancelled")
        first.let_go()
        number = client.get(f"/api/runs/{asking}").json()["question"]["number"]
        answered = client.post(f"/api/runs/{asking}/plan", json={"number": number, "verdict": "approve"})
        assert answered.status_code == 200, answered.text
        first.wait(asking, "complete")


def test_the_list_that_is_followed_on_one_server_shows_the_runs_of_the_other(first: Garden, second: Running) -> None:
    first.hold()
    run = first.begin()
    first.tool_called(run)
    with (
        httpx.Client(base_url=second.url, headers=second.headers, timeout=60) as client,
        client.stream("GET", "/api/runs/events") as stream,
    ):
        lines = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
        assert (line := next(lines))["run"] == run
        assert line["state"] == "running", "though another process drives it"
        later = first.begin()
        assert any(line["run"] == later for line in lines)
        first.let_go()
        states = dict.fromkeys((run, later), "running")
        while set(states.values()) != {"complete"}:
            line = next(lines)
            states[line["run"]] = line["state"]


def test_a_completion_is_waited_for_on_the_server_that_does_not_drive_it(first: Garden, second: Running) -> None:
    first.hold()
    body = {"model": "garden", "messages": [{"role": "user", "content": GOAL}]}
    key = {"Idempotency-Key": "once"}
    with (
        httpx.Client(base_url=second.url, headers=second.headers, timeout=60) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        asked = pool.submit(first.client.post, "/v1/chat/completions", json=body, headers=key)
        runs: list[str] = []
        while not runs:
            runs = [line["run"] for line in other.get("/api/runs").json()["runs"]]
        first.tool_called(runs[0])
        waits = pool.submit(other.post, "/v1/chat/completions", json=body, headers=key)
        assert not waits.done()
        first.let_go()
        replies = [each.result(60) for each in (asked, waits)]
    assert [reply.status_code for reply in replies] == [200, 200], [reply.text for reply in replies]
    texts = [reply.json()["choices"][0]["message"]["content"] for reply in replies]
    assert texts[0] == texts[1]
    assert "48.00 euros" in texts[0]


def test_a_server_on_a_database_keeps_nothing_of_its_runs_in_its_folder(
    first: Garden, tmp_path: Path, postgres_store: str
) -> None:
    run = first.begin()
    first.wait(run, "complete")
    assert read_run(postgres_store, run)
    assert list((tmp_path / "data").rglob("*.db")) == []


def _wait_until_known(client: httpx.Client) -> None:
    """Wait until a server has heard of a token that was made elsewhere."""
    for _ in range(500):
        if client.get("/api/runs").status_code != 401:
            return
        time.sleep(0.01)


def test_a_token_is_known_to_every_server_and_shows_only_its_tenant(
    first: Garden, second: Running, postgres_store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = first.begin()
    first.wait(run, "complete")
    assert main(["tokens", "create", "--store", postgres_store, "--tenant", "lab", "--json"]) == 0
    token = msgspec.json.decode(capsys.readouterr().out)["token"]
    for url in (first.server.url, second.url):
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
            _wait_until_known(client)
            assert client.get("/api/runs").json()["runs"] == []
            assert client.get(f"/api/runs/{run}").status_code == 404
