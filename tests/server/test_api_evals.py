"""Evaluations over our own API: begun, carried in the background, cancelled, kept, told again, and nobody else's."""

import asyncio
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from chargehand.config.discover import TEMPLATES
from chargehand.server.runs.eval_files import MOST, EvalFiles
from chargehand.server.runs.eval_shapes import EvalLine, EvalShown
from chargehand.server.runs.evaluating import _cut
from tests.server.api import garden, key_for, team_in
from tests.server.running import running, settings_in

SHOP = TEMPLATES / "shop" / "team.yaml"
_SLOW = """
cases:
  - request: What do 40 tomato seedlings cost?
    kind: run
    expect: {contains: "48.00"}
"""

_QUICK = """
  - request: What do our notes say about planting out tomatoes?
    kind: run
    expect: {contains: "15 May"}
"""


@contextmanager
def served(folder: Path, team: Path = SHOP) -> Generator[httpx.Client]:
    settings = settings_in(folder / "data", teams=(team,), grace=0.2)
    with (
        running(settings) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield client


def begun(client: httpx.Client, team: str = "shop", **body: object) -> str:
    found = client.post(f"/api/teams/{team}/evals", json=body)
    assert found.status_code == 202, found.text
    assert found.headers["location"] == f"/api/evals/{found.json()['id']}"
    assert found.json()["state"] == "running"
    return found.json()["id"]


def ended(client: httpx.Client, name: str) -> Any:
    for _ in range(900):
        found = client.get(f"/api/evals/{name}").json()
        if found["line"]["state"] != "running":
            return found
        time.sleep(0.05)
    raise AssertionError(f"{name} does not end")


def half_tried(client: httpx.Client, name: str) -> None:
    """Back when one of its two cases has a result."""
    for _ in range(900):
        line = client.get(f"/api/evals/{name}").json()["line"]
        if line["tried"]:
            assert (line["state"], line["tried"], line["cases"], line["passed"]) == ("running", 1, 2, 1)
            assert line in client.get("/api/evals").json()["evals"]
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} gets nowhere")


def cancelled(client: httpx.Client, name: str, **body: object) -> httpx.Response:
    return client.post(f"/api/evals/{name}/cancel", json=body)


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A team whose tool waits for as long as there is a file `held`, with a dataset."""
    team = team_in(tmp_path / "team")
    (team.parent / "evals").mkdir()
    (team.parent / "evals" / "golden.yaml").write_text(_SLOW)
    (team.parent / "held").touch()
    return team


@pytest.fixture
def half(slow: Path) -> Path:
    """The same with a second case, which does not wait, and patience that outlasts a busy machine."""
    tools = slow.parent / "tools.py"
    tools.write_text(tools.read_text().replace("range(1000)", "range(2500)"))
    (slow.parent / "evals" / "golden.yaml").write_text(f"{_SLOW}{_QUICK}")
    return slow


def test_a_team_is_tried_and_told_with_figures_failed_cases_gates_and_the_report(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        name = begun(client, gate=["run.accuracy=0.5", "verifier.accuracy>=1"])
        found = ended(client, name)
        line = found["line"]
        assert (line["state"], line["team"], line["why"], line["held"]) == ("done", "shop", "", False), line
        figures = {(one["dataset"], one["kind"]): one for one in found["figures"]}
        assert {"routing", "run", "verifier"} <= {kind for _, kind in figures}
        accuracy = figures["golden", "run"]["measures"][0]
        assert accuracy["name"] == "accuracy"
        assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
        assert line["cases"] - line["passed"] == len(found["failed"]) > 0
        assert line["tried"] == line["cases"]
        assert all(one["why"] for one in found["failed"])
        held = {one["kind"]: one["held"] for one in found["gates"] if one["measure"] == "accuracy"}
        assert held["run"]
        assert not held["verifier"]
        assert found["report"]["team"] == "shop"
        assert len(found["report"]["parts"]) == len(figures)
        assert client.get("/api/evals").json() == {"evals": [line]}


def test_only_the_kinds_that_are_asked_for_are_tried_and_the_latest_is_listed_first(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        first = begun(client, kinds=["routing"])
        assert {one["kind"] for one in ended(client, first)["figures"]} == {"routing"}
        second = begun(client, gate=["beauty=1"])
        found = ended(client, second)["line"]
        assert found["state"] == "failed"
        assert found["why"].startswith("nothing here measures 'beauty'")
        assert [one["id"] for one in client.get("/api/evals").json()["evals"]] == [second, first]
        assert [one["id"] for one in client.get("/api/evals?limit=1").json()["evals"]] == [second]
        assert client.get("/api/runs").json()["runs"] == []


def test_what_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        assert home.client.post("/api/teams/nobody/evals").status_code == 404
        refused = home.client.post("/api/teams/garden/evals")
        assert (refused.status_code, refused.json()["code"]) == (409, "refused")
        assert "has no datasets" in refused.json()["detail"]
        for body in ({"kinds": ["all"]}, {"gate": ["accuracy"]}, {"gate": ["--team=x"]}, {"files": ["/etc/passwd"]}):
            assert home.client.post("/api/teams/garden/evals", json=body).status_code == 422, body
        for name in ("eval-none", "eval-000000000000-000000000000", "keys", "..%2Fruns"):
            assert home.client.get(f"/api/evals/{name}").status_code in (400, 404), name
            assert cancelled(home.client, name).status_code in (400, 404), name
        reads = key_for(tmp_path, "main", "read")
        assert home.client.post("/api/teams/garden/evals", headers=reads).status_code == 403
        assert home.client.post("/api/evals/eval-none/cancel", headers=reads).status_code == 403
        assert home.client.get("/api/evals", headers=reads).json() == {"evals": []}


def test_two_at_once_and_no_more_while_runs_go_on(tmp_path: Path, slow: Path) -> None:
    with served(tmp_path, slow) as client:
        names = [begun(client, "garden"), begun(client, "garden")]
        refused = client.post("/api/teams/garden/evals")
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        (slow.parent / "held").unlink()
        assert [ended(client, one)["line"]["passed"] for one in names] == [1, 1]
        assert ended(client, begun(client, "garden"))["line"]["state"] == "done"


def test_one_that_was_cut_by_a_stop_is_told_as_failed_and_one_that_was_done_stays(tmp_path: Path, slow: Path) -> None:
    with served(tmp_path, slow) as client:
        cut = begun(client, "garden")
    (slow.parent / "held").unlink()
    with served(tmp_path, slow) as client:
        found = client.get(f"/api/evals/{cut}").json()["line"]
        assert (found["state"], found["why"]) == ("failed", "the server stopped")
        done = ended(client, begun(client, "garden"))
        assert done["line"]["state"] == "done"
    with served(tmp_path, slow) as client:
        assert client.get(f"/api/evals/{done['line']['id']}").json() == done
        states = [(one["id"], one["state"]) for one in client.get("/api/evals").json()["evals"]]
        assert states == [(done["line"]["id"], "done"), (cut, "failed")]


def test_one_that_is_cancelled_keeps_what_was_tried_and_gives_its_place_to_another(tmp_path: Path, half: Path) -> None:
    with served(tmp_path, half) as client:
        name = begun(client, "garden", gate=["accuracy=0.1"])
        other = begun(client, "garden")
        half_tried(client, name)
        shown = cancelled(client, name, reason="the dataset is wrong")
        found = shown.json()
        line = found["line"]
        assert (shown.status_code, line["state"], line["why"]) == (200, "cancelled", "the dataset is wrong")
        assert (line["tried"], line["cases"], line["passed"], line["held"]) == (1, 2, 1, None)
        assert [(one["kind"], one["cases"], one["passed"]) for one in found["figures"]] == [("run", 1, 1)]
        assert found["figures"][0]["measures"][0]["name"] == "accuracy"
        assert (found["gates"], found["report"]["stopped"][:18]) == ([], "it was stopped by ")
        begun(client, "garden")  # the other place is taken still
        again = cancelled(client, name, reason="once more")
        assert (again.status_code, again.json()) == (200, found)
        half_tried(client, other)
    with served(tmp_path, half) as client:
        assert client.get(f"/api/evals/{name}").json() == found
        cut = client.get(f"/api/evals/{other}").json()
        assert (cut["line"]["state"], cut["line"]["why"]) == ("failed", "the server stopped")
        assert (cut["line"]["tried"], cut["line"]["passed"]) == (1, 1)


def test_one_whose_process_crashes_keeps_what_was_tried_and_frees_its_place(tmp_path: Path, half: Path) -> None:
    tools = half.parent / "tools.py"
    tools.write_text("import os\n" + tools.read_text().replace("    return f", "    os._exit(9)\n    return f"))
    with served(tmp_path, half) as client:
        names = [begun(client, "garden"), begun(client, "garden")]
        for name in names:
            half_tried(client, name)
        (half.parent / "held").unlink()
        for name in names:
            found = ended(client, name)
            assert (found["line"]["state"], found["line"]["why"][:28]) == ("failed", "the evaluation ended with 9 ")
            assert [(one["cases"], one["passed"]) for one in found["figures"]] == [(1, 1)]
            assert found["report"] is None
        begun(client, "garden")


def test_a_gate_that_nobody_could_measure_says_why(tmp_path: Path, slow: Path) -> None:
    (slow.parent / "evals" / "golden.yaml").write_text("cases:\n  - {request: Count them, worker: nobody here}\n")
    with served(tmp_path, slow) as client:
        found = ended(client, begun(client, "garden", gate=["routing.confidence=0.5"]))
    gate = found["gates"][0]
    assert (gate["held"], gate["why"]) == (False, "nobody could tell"), found["line"]


def test_anothers_evaluations_are_not_there(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        name = begun(client, kinds=["routing"])
        ended(client, name)
        stranger = key_for(tmp_path, "stranger", "admin")
        assert client.get(f"/api/evals/{name}", headers=stranger).status_code == 404
        assert client.post(f"/api/evals/{name}/cancel", headers=stranger).status_code == 404
        refused = cancelled(client, name)
        assert (refused.status_code, refused.json()["code"]) == (409, "refused")
        assert refused.json()["detail"].endswith("has ended (done); begin another: POST /api/teams/shop/evals")
        assert client.get("/api/evals", headers=stranger).json() == {"evals": []}
    assert (tmp_path / "data" / "main" / "evals" / f"{name}.json").is_file()


async def test_a_process_that_does_not_listen_is_gone_when_whoever_stops_it_is_asked_again() -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", deaf, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    await process.stdout.readline()
    async with asyncio.TaskGroup() as jobs:
        stopping = jobs.create_task(_cut(process, 60.0))
        await asyncio.sleep(0.05)
        stopping.cancel()
        await asyncio.wait({stopping})
    assert process.returncode == -signal.SIGKILL


def test_only_the_latest_are_kept(tmp_path: Path) -> None:
    files = EvalFiles(tmp_path / "evals")
    for number in range(MOST + 3):
        files.write(EvalShown(EvalLine(f"eval-{number:012x}-{7:012x}", "shop", "done", (), (), number)))
    files.prune()
    names = files.names()
    assert len(names) == MOST
    assert (names[0], names[-1]) == (f"eval-{MOST + 2:012x}-{7:012x}", f"eval-{3:012x}-{7:012x}")
    assert files.read(f"eval-{2:012x}-{7:012x}") is None
    assert files.read("../evals/" + names[0]) is None
