"""Webhooks of servers that share a database, and answers from the command line to runs that one of them drives."""

import asyncio
import os
from pathlib import Path

import pytest

from chargehand.journal.store import list_deliveries, opened_journal
from tests.cli.commands import Done, chargehand
from tests.server.api import GOAL, team_in
from tests.server.replicas import Replica, replicas
from tests.server.test_webhooks import SECRET, is_signed, receiving, team_with, until

_EVENTS = "[run.started, run.needs_input, run.ended]"


def begin(server: Replica, **more: object) -> str:
    begun = server.client.post("/api/runs", json={"team": "garden", "goal": GOAL, **more})
    assert begun.status_code == 201, begun.text
    return begun.json()["run"]


def wait_question(server: Replica, run: str) -> int:
    until(lambda: server.client.get(f"/api/runs/{run}").json()["question"] is not None)
    return server.client.get(f"/api/runs/{run}").json()["question"]["number"]


def test_of_two_servers_one_delivers_each_event(
    tmp_path: Path, postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_SECRET", SECRET)
    with receiving() as receiver:
        team = team_with(tmp_path, receiver.url, _EVENTS)
        with replicas(tmp_path, postgres_store, "--team", str(team)) as cluster:
            runs = [begin(cluster.servers[number % 2]) for number in range(8)]
            asking = begin(cluster.servers[0], approve=True)
            number = wait_question(cluster.servers[1], asking)
            answer = {"number": number, "verdict": "approve"}
            assert cluster.servers[1].client.post(f"/api/runs/{asking}/plan", json=answer).is_success
            until(lambda: not list_deliveries(postgres_store))
        kinds = sorted((event["subject"], event["type"]) for event in receiver.wait(0))
        expected = [(run, f"chargehand.run.{what}") for run in (*runs, asking) for what in ("started", "ended")]
        assert kinds == sorted([*expected, (asking, "chargehand.run.needs_input")]), "each event once"
        assert all(is_signed(headers, body) for headers, body in receiver.calls)


def test_a_server_whose_webhook_has_no_secret_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_SECRET", "whsec_short")
    team = team_with(tmp_path, "http://127.0.0.1:1/hooks")
    ended = chargehand(tmp_path, "serve", "--team", team, "--data", tmp_path / "data", "--port", "0")
    assert ended.returncode != 0
    assert "the variable DESK_SECRET of webhook desk is no secret" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_the_command_line_answers_a_run_of_a_server_unless_another_process_drives_it(
    tmp_path: Path, postgres_store: str
) -> None:
    team = team_in(tmp_path / "team")

    async def resume_held(run: str) -> Done:
        async with opened_journal(postgres_store) as journal:
            await journal.claim(run)
            return await asyncio.to_thread(approve, run)

    def approve(run: str) -> Done:
        return chargehand(tmp_path, "resume", run, "--approve", "--store", postgres_store, "--team", team)

    with replicas(tmp_path, postgres_store, "--team", str(team), count=1) as cluster:
        (server,) = cluster.servers
        run = begin(server, approve=True)
        wait_question(server, run)
        refused = asyncio.run(resume_held(run))
        assert refused.returncode != 0
        assert f"is being driven by process {os.getpid()} on" in " ".join(refused.stderr.split())
        assert server.client.get(f"/api/runs/{run}").json()["question"] is not None, "nothing was written"
        answered = approve(run)
        assert answered.returncode == 0, answered.stderr
        assert server.client.get(f"/api/runs/{run}").json()["summary"]["state"] == "complete"
