"""`chargehand doctor --cluster`: what servers and workers share, and what waits."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec
import pytest
from msgspec import structs
from temporalio import activity
from temporalio.worker import Worker

from chargehand.cli.main import main
from chargehand.dispatch.engine import parse_engine_url
from chargehand.dispatch.temporal import TemporalEngine
from chargehand.engine.events import CancelRequested, Entry
from chargehand.journal.postgres_jobs import read_deployment
from chargehand.journal.protocol import Journal
from chargehand.journal.store import opened_journal
from chargehand.store_url import postgres_url
from tests.cluster.harness import PATIENCE
from tests.postgres import PostgresServer
from tests.requests import request
from tests.server.running import running, settings_in
from tests.server.test_api_metrics import figures
from tests.temporal import TemporalServer, temporal_server

LONG_AGO = 100.0


def doctor(store: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """What it returned, and the state and the message of each line by what it is about."""
    status = main(["doctor", "--cluster", "--store", store, "--json", *more])
    lines = msgspec.json.decode(capsys.readouterr().out)["lines"]
    return status, {line["what"]: (line["state"], line["message"]) for line in lines}


async def create(journal: Journal, run: str, *, queue: str, seconds: float = 0.0) -> None:
    """A run that was begun so many seconds ago and that no process drives."""
    await journal.create(run, [Entry(1, time.time() - seconds, request())])
    assert journal.jobs is not None
    if queue:
        await journal.jobs.assign([run], f"job-{run}", queue=queue)


def leave_runs(store: str, runs: Sequence[tuple[str, str, float]]) -> None:
    async def work() -> None:
        async with opened_journal(store) as journal:
            for run, queue, seconds in runs:
                await create(journal, run, queue=queue, seconds=seconds)

    asyncio.run(work())


def test_a_cluster_with_nothing_to_do_is_well(postgres_store: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = doctor(postgres_store, capsys)
    assert status == 0, lines
    assert {what: state for what, (state, _) in lines.items() if state != "good"} == {"engine": "missing"}
    assert set(lines) >= {"store", "schema", "role", "pgvector", "clock", "commands"}


def test_runs_that_wait_too_long_for_a_worker_are_named_by_their_queue(
    postgres_store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_runs(postgres_store, [("late", "gpu", LONG_AGO), ("new", "gpu", 0.0), ("fresh", "desk", 0.0)])
    status, lines = doctor(postgres_store, capsys)
    assert status == 1
    assert lines["queue gpu"][0] == "bad"
    assert "2 waiting, the oldest for 10" in lines["queue gpu"][1]
    assert lines["queue desk"] == ("good", "0 runs driven, 1 waiting")


def test_a_run_that_waits_in_a_queue_is_not_called_interrupted(
    postgres_store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        async with opened_journal(postgres_store) as journal:
            for run, queue in (("queued", "gpu"), ("left", "")):
                requested = structs.replace(request(), queue=queue)
                await journal.create(run, [Entry(1, time.time(), requested)])

    asyncio.run(work())
    assert main(["runs", "--journal", postgres_store, "--json"]) == 0
    rows = msgspec.json.decode(capsys.readouterr().out)
    assert {row["run"]: row["state"] for row in rows} == {"queued": "waiting", "left": "interrupted"}
    assert main(["runs", "show", "queued", "--journal", postgres_store]) == 0
    assert "workers of the queue gpu drive it" in " ".join(capsys.readouterr().out.split())


def test_runs_of_every_tenant_are_counted(postgres_store: str, capsys: pytest.CaptureFixture[str]) -> None:
    leave_runs(f"{postgres_store}&tenant=lab", [("one", "desk", 0.0)])
    leave_runs(postgres_store, [("two", "desk", 0.0)])
    assert doctor(postgres_store, capsys)[1]["queue desk"][1] == "0 runs driven, 2 waiting"


def test_a_run_that_is_driven_does_not_wait(postgres_store: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> dict[str, tuple[str, str]]:
        async with opened_journal(postgres_store) as journal:
            await create(journal, "one", queue="desk", seconds=LONG_AGO)
            await journal.claim("one")
            return (await asyncio.to_thread(doctor, postgres_store, capsys))[1]

    assert asyncio.run(work())["queue desk"] == ("good", "1 runs driven, 0 waiting")


def test_a_queue_without_workers_is_told_and_one_with_a_worker_is_well(
    postgres_store: str, temporal: TemporalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_runs(postgres_store, [("one", "desk", 0.0), ("two", "gpu", 0.0)])

    async def work() -> tuple[int, dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
        url = parse_engine_url(temporal.url)
        assert url is not None
        deployment = (await read_deployment(postgres_url(postgres_store))).name
        engine = await TemporalEngine.connect(url, deployment=deployment)
        async with Worker(engine.client, task_queue=engine.task_queue("desk"), activities=[_nothing]):
            async with opened_journal(postgres_store):
                until = time.monotonic() + PATIENCE
                while True:
                    found = await asyncio.to_thread(doctor, postgres_store, capsys, "--engine", temporal.url)
                    if found[1]["workers of desk"][0] == "good" or time.monotonic() > until:
                        break
            after_death = await asyncio.to_thread(doctor, postgres_store, capsys, "--engine", temporal.url)
        return *found, after_death[1]

    status, lines, after_death = asyncio.run(work())
    assert lines["engine"][0] == "good"
    assert lines["workers of desk"] == ("good", "1 alive")
    none = ("bad", "none: its runs wait")
    assert (status, lines["workers of gpu"]) == (1, none)
    assert after_death["workers of desk"] == none, "the engine still lists it"


def test_a_team_that_is_named_needs_workers_before_it_has_runs(
    postgres_store: str, temporal: TemporalServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    team = tmp_path / "team.yaml"
    team.write_text("version: 1\nname: studio\nworkers:\n  painter: {description: paints, queue: gpu}\n")
    status, lines = doctor(postgres_store, capsys, "--engine", temporal.url)
    assert (status, lines["workers"]) == (0, ("missing", "no queue has open runs, so none was looked at"))
    status, lines = doctor(postgres_store, capsys, "--engine", temporal.url, "--team", str(team))
    none = ("bad", "none: its runs wait")
    assert (status, lines["workers of studio"], lines["workers of gpu"]) == (1, none, none)


def test_an_engine_that_does_not_answer_is_told(postgres_store: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = doctor(postgres_store, capsys, "--engine", "temporal://127.0.0.1:9")
    assert (status, lines["engine"][0]) == (1, "bad")
    assert "cannot be reached" in lines["engine"][1]


def test_queues_in_which_tenants_may_not_take_turns_are_named(
    postgres_store: str, temporal: TemporalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_runs(postgres_store, [("one", "desk", 0.0)])
    parts = {f"matching.numTaskqueue{what}Partitions": "4" for what in ("Read", "Write")}
    with temporal_server(parts) as divided:
        _, lines = doctor(postgres_store, capsys, "--engine", divided.url)
        assert "fairness" not in lines, "a single tenant needs none"
        leave_runs(f"{postgres_store}&tenant=other", [("two", "desk", 0.0)])
        _, lines = doctor(postgres_store, capsys, "--engine", divided.url)
        assert lines["fairness"][0] == "missing"
        assert "in desk one tenant's backlog may delay another's" in lines["fairness"][1]
    _, lines = doctor(postgres_store, capsys, "--engine", temporal.url)
    assert "fairness" not in lines


@activity.defn(name="nothing")
async def _nothing() -> None:
    pass


def test_a_run_whose_only_process_is_gone_is_named_with_what_to_do(
    postgres_store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_runs(postgres_store, [("left", "", LONG_AGO)])
    status, lines = doctor(postgres_store, capsys)
    assert status == 0, "a team of the command line may have been interrupted on purpose"
    assert "left (tenant main)" in lines["interrupted"][1]


def test_a_command_that_nobody_answers_is_told(
    postgres_store: str, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        async with opened_journal(postgres_store) as journal:
            await create(journal, "one", queue="desk")
            assert journal.commands is not None
            await journal.commands.send("one", CancelRequested("no longer needed"))

    asyncio.run(work())
    assert doctor(postgres_store, capsys)[1]["commands"] == ("good", "1 not answered yet")
    database = postgres_store.partition("@/")[2].partition("?")[0]
    postgres.execute("UPDATE chargehand.commands SET at = at - interval '1 minute'", database=database)
    status, lines = doctor(postgres_store, capsys)
    assert (status, lines["commands"][0]) == (1, "bad")


def test_a_role_that_sees_every_tenant_is_refused(
    postgres_store: str, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    database = postgres_store.partition("@/")[2].partition("?")[0]
    status, lines = doctor(postgres.url(database, user="postgres"), capsys)
    assert (status, lines["role"][0]) == (1, "bad")


def test_a_database_without_tables_is_no_fault_and_an_engine_that_does_not_answer_is(
    empty_database: str, temporal: TemporalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines = doctor(empty_database, capsys, "--engine", temporal.url)
    assert (status, lines["schema"][0], lines["engine"][0]) == (0, "missing", "good")
    status, lines = doctor(empty_database, capsys, "--engine", "temporal://127.0.0.1:9")
    assert (status, lines["engine"][0]) == (1, "bad")


def test_a_newer_schema_asks_for_an_upgrade(
    postgres_store: str, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    database = postgres_store.partition("@/")[2].partition("?")[0]
    postgres.execute("UPDATE chargehand.schema SET version = 999", database=database)
    status, lines = doctor(postgres_store, capsys)
    assert (status, lines["schema"][0]) == (1, "bad")


def test_without_a_database_there_is_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--cluster"]) == 1
    assert "--store postgresql://" in capsys.readouterr().out


def test_a_server_that_does_not_answer_is_told_without_its_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--cluster", "--store", "postgresql://me:hush-hush@127.0.0.1:9/none"]) == 1
    said = capsys.readouterr()
    assert "hush-hush" not in said.out + said.err
    assert said.out.startswith("NO  store")


def test_the_operators_metrics_have_the_backlog_of_all_tenants_and_others_have_none(
    tmp_path: Path, postgres_store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_runs(f"{postgres_store}&tenant=lab", [("one", "gpu", LONG_AGO), ("two", "gpu", 0.0)])
    assert main(["tokens", "create", "--store", postgres_store, "--tenant", "lab", "--json"]) == 0
    token = msgspec.json.decode(capsys.readouterr().out)["token"]
    arguments = ["tokens", "create", "--store", postgres_store, "--scope", "read", "--json"]
    assert main(arguments) == 0
    read_token = msgspec.json.decode(capsys.readouterr().out)["token"]
    with running(settings_in(tmp_path, store=postgres_url(postgres_store))) as server:
        read_headers = {"Authorization": f"Bearer {read_token}"}
        assert httpx.get(f"{server.url}/metrics", timeout=60).status_code == httpx.codes.UNAUTHORIZED
        read = figures(httpx.get(f"{server.url}/metrics", headers=read_headers, timeout=60).text)
        found = figures(httpx.get(f"{server.url}/metrics", headers=server.headers, timeout=60).text)
        others = httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {token}"}, timeout=60).text
    assert found['chargehand_backlog_runs{queue="gpu"}'] == 2
    assert found['chargehand_backlog_seconds{queue="gpu"}'] >= LONG_AGO
    assert found["chargehand_open_commands{}"] == 0
    assert found["chargehand_notice_lag_seconds{}"] < LONG_AGO
    assert "backlog" not in others
    assert {figure for figure in read if "backlog" in figure} == {figure for figure in found if "backlog" in figure}
    teams = [figure for figure in read if figure.startswith("chargehand_backlog_runs") and "gpu" not in figure]
    assert {read[figure] for figure in teams} == {0}, "the queues of its teams have a figure though nothing waits"
