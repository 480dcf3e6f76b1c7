"""Servers on one database: what one begins another shows, streams and does not begin again."""

import threading
from collections.abc import Iterator
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


def test_a_server_on_a_database_keeps_nothing_of_its_runs_in_its_folder(
    first: Garden, tmp_path: Path, postgres_store: str
) -> None:
    run = first.begin()
    first.wait(run, "complete")
    assert read_run(postgres_store, run)
    assert list((tmp_path / "data").rglob("*.db")) == []


def test_a_token_is_known_to_every_server_and_shows_only_its_tenant(
    first: Garden, second: Running, postgres_store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = first.begin()
    first.wait(run, "complete")
    assert main(["tokens", "create", "--store", postgres_store, "--tenant", "lab", "--json"]) == 0
    token = msgspec.json.decode(capsys.readouterr().out)["token"]
    for url in (first.server.url, second.url):
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
            assert client.get("/api/runs").json()["runs"] == []
            assert client.get(f"/api/runs/{run}").status_code == 404
