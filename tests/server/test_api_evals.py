"""Saved reports of evaluations and the try-out of routes, over our own API."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.commands import chargehand
from tests.server.api import Garden, garden, team_in
from tests.server.running import running, settings_in

CASES = (
    '{"request": "What do 40 tomato seedlings cost?", "worker": "buyer"}\n'
    '{"request": "What do our notes say about planting out tomatoes?", "worker": "reader"}\n'
    '{"request": "What do our notes say about watering soil?", "worker": "clerk"}\n'
)
ROUTED = """
version: 1
name: desk
supervisor: {strategy: {route: {router: words}}}
workers:
  billing: Answers questions about invoices, refunds and payments.
  shipping: Answers questions about parcels, couriers and delivery dates.
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Garden]:
    with garden(tmp_path) as opened:
        yield opened


def evaluate(folder: Path, *words: str) -> None:
    """What a person types beside the team file."""
    (folder / "routes.jsonl").write_text(CASES)
    done = chargehand(folder, "eval", "routes.jsonl", *words)
    assert done.returncode in (0, 6), done.stderr


def listed(home: Garden) -> list[Any]:
    return home.client.get("/api/teams/garden/evals").json()["reports"]


def test_a_team_without_evaluations_has_no_reports(home: Garden) -> None:
    assert listed(home) == []
    missing = home.client.get("/api/teams/garden/evals/20260101-000000")
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown")
    assert "chargehand eval" in missing.json()["detail"]


def test_a_report_is_found_by_the_server_as_soon_as_it_is_saved(home: Garden, tmp_path: Path) -> None:
    evaluate(tmp_path / "team", "--gate", "accuracy=0.9")
    (line,) = listed(home)
    (section,) = line["sections"]
    assert (section["dataset"], section["kind"], section["cases"], section["passed"]) == ("routes", "routing", 3, 2)
    assert section["headline"]["name"] == "accuracy"
    assert section["headline"]["low"] < section["headline"]["value"] < section["headline"]["high"]
    assert (line["gates_passed"], line["gates_failed"], line["damage"]) == (0, 1, "")
    saved = json.loads((tmp_path / "team/.chargehand/evals" / f"{line['report']}.json").read_text())
    shown = home.client.get(f"/api/teams/garden/evals/{line['report']}").json()
    assert shown == saved
    assert shown["at"] == line["at"]
    cells = {(cell["wanted"], cell["got"]): cell["count"] for cell in shown["sections"][0]["routes"]}
    assert cells == {("buyer", "buyer"): 1, ("reader", "reader"): 1, ("clerk", "reader"): 1}
    (failed,) = [score for score in shown["sections"][0]["scores"] if not score["passed"]]
    assert failed["why"] == ["it went to reader, and is for clerk"]


def test_a_report_is_compared_with_one_that_was_saved_before(home: Garden, tmp_path: Path) -> None:
    evaluate(tmp_path / "team")
    (before,) = listed(home)
    evaluate(tmp_path / "team", "--baseline", f".chargehand/evals/{before['report']}.json")
    latest, older = listed(home)
    assert older == before
    shown = home.client.get(f"/api/teams/garden/evals/{latest['report']}").json()
    assert [change["measure"] for change in shown["changes"]] == ["accuracy", "usd", "seconds"]
    assert shown["changes"][0]["verdict"] == "no difference shown"


def test_nothing_is_saved_where_that_is_not_wanted(home: Garden, tmp_path: Path) -> None:
    evaluate(tmp_path / "team", "--no-save")
    assert listed(home) == []


def test_a_file_that_is_no_report_is_listed_with_what_is_wrong(home: Garden, tmp_path: Path) -> None:
    evaluate(tmp_path / "team")
    folder = tmp_path / "team/.chargehand/evals"
    (folder / "torn.json").write_text('{"team": "garden", "sect')
    reports = {line["report"]: line for line in listed(home)}
    assert len(reports) == 2
    assert "is no report" in reports["torn"]["damage"]
    refused = home.client.get("/api/teams/garden/evals/torn")
    assert (refused.status_code, refused.json()["code"]) == (409, "refused")


def test_a_name_leads_to_no_other_file(home: Garden, tmp_path: Path) -> None:
    evaluate(tmp_path / "team")
    (tmp_path / "team" / "secret.json").write_text('{"team": "garden", "sections": []}')
    for name in ("..%2F..%2Fsecret", "%2e%2e", ".%2e%2f..%2fsecret", "%2Fetc%2Fpasswd", "a%00b", "x" * 300):
        assert home.client.get(f"/api/teams/garden/evals/{name}").status_code in (400, 404), name


def test_teams_beside_each_other_have_their_own_reports(tmp_path: Path) -> None:
    team = team_in(tmp_path / "team")
    other = team.with_name("other.yaml")
    other.write_text(team.read_text().replace("name: garden", "name: allotment"))
    evaluate(team.parent)
    with (
        running(settings_in(tmp_path / "data", teams=(team, other))) as server,
        httpx.Client(base_url=server.url, headers=server.headers) as client,
    ):
        (line,) = client.get("/api/teams/garden/evals").json()["reports"]
        assert client.get("/api/teams/allotment/evals").json() == {"reports": []}
        assert client.get(f"/api/teams/allotment/evals/{line['report']}").status_code == 404


def test_an_evaluation_whose_report_cannot_be_saved_counts_all_the_same(tmp_path: Path) -> None:
    team = team_in(tmp_path / "team")
    shutil.rmtree(team.parent / ".chargehand", ignore_errors=True)
    (team.parent / ".chargehand").write_text("a file where the folder should be")
    (team.parent / "routes.jsonl").write_text(CASES)
    done = chargehand(team.parent, "eval", "routes.jsonl", "--gate", "accuracy=0.6")
    assert done.returncode == 0, done.stderr
    assert "the server will not show this report" in done.stderr


def test_a_route_is_tried_out_with_its_scores(tmp_path: Path) -> None:
    (tmp_path / "desk.yaml").write_text(ROUTED)
    with (
        running(settings_in(tmp_path / "data", teams=(tmp_path / "desk.yaml",))) as server,
        httpx.Client(base_url=server.url, headers=server.headers) as client,
    ):
        found = client.post("/api/teams/desk/route", json={"goal": "When does the courier bring my parcel?"}).json()
        assert (found["workers"], found["router"]) == (["shipping"], "words")
        assert 0 < found["confidence"] <= 1
        assert found["scores"][0]["worker"] == "shipping"
        assert found["scores"] == sorted(found["scores"], key=lambda one: -one["score"])
        nobody = client.post("/api/teams/desk/route", json={"goal": "Bake a sourdough pizza."}).json()
        assert (nobody["workers"], len(nobody["unserved"])) == ([], 1)
        assert client.get("/api/runs").json()["runs"] == []


def test_a_team_that_plans_is_asked_who_would_get_a_task(home: Garden) -> None:
    found = home.client.post("/api/teams/garden/route", json={"goal": "What do 40 tomato seedlings cost?"}).json()
    assert (found["workers"], found["router"]) == (["buyer"], "plan")
    assert (found["confidence"], found["scores"]) == (None, [])
