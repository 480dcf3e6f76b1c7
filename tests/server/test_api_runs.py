"""Runs over our own API: begun once, listed in pages, shown as they stand, within the bounds they were given."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.api import BOTH, GOAL, Garden, SharedGarden, garden, key_for, shared_garden, team_in
from tests.server.running import running, settings_in


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGarden]:
    with shared_garden(tmp_path_factory.mktemp("garden")) as shared:
        yield shared


@pytest.fixture
def home(shared: SharedGarden) -> Iterator[Garden]:
    """A tenant of its own, on the server of all tests of the module."""
    with shared.tenant() as home:
        yield home


def post(home: Garden, body: object, key: str = "") -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return home.client.post("/api/runs", json=body, headers=headers)


def test_a_team_is_listed_and_shown_with_workers_examples_and_limits(home: Garden) -> None:
    assert [one["name"] for one in home.client.get("/api/teams").json()["teams"]] == ["garden"]
    shown = home.client.get("/api/teams/garden").json()
    assert [one["name"] for one in shown["workers"]] == ["reader", "buyer", "clerk"]
    assert (shown["strategy"], shown["examples"], shown["memory"]) == ("plan", [GOAL], True)
    assert shown["limits"]["seconds"] == 300.0
    assert shown["notice"].startswith("No language model is used")
    assert home.client.get("/api/teams/strangers").status_code == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"goal": 3} x', "not_json"),
        (b'{"team": "garden", "goal": "x", "plan": {"tasks": [{"id": 3}], "tasks": []}}', "invalid"),
    ],
)
def test_a_body_that_is_wrong_twice_is_refused(home: Garden, body: bytes, code: str) -> None:
    refused = home.client.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["code"]) == (422, code)


def test_a_limit_beyond_that_of_the_team_is_cut_and_the_reply_says_so(home: Garden) -> None:
    asked = {"team": "garden", "goal": GOAL, "seconds": 99_999}
    cut = [post(home, asked, "k").json() for _ in range(2)]
    assert [run["notice"] for run in cut] == ["seconds is 300, not 99999: that is the most team garden may use"] * 2
    assert cut[0]["deadline"] <= cut[0]["started"] + 300
    within = post(home, {**asked, "seconds": 20, "budget": {"calls": 50}}).json()
    assert (within["notice"], within["deadline"] <= within["started"] + 20) == ("", True)


def test_a_plan_is_drafted_and_reckoned_and_nobody_works(home: Garden) -> None:
    drafted = home.client.post("/api/teams/garden/plan", json={"goal": BOTH}).json()
    assert [one["worker"] for one in drafted["plan"]["tasks"]] == ["buyer", "reader"]
    assert drafted["forecast"]["width"] == 2
    assert (drafted["forecast"]["usd"]["about"], drafted["forecast"]["usd"]["unknown"]) == (0, [])
    assert home.client.get("/api/runs").json()["runs"] == []


def test_a_run_is_on_disk_when_it_is_acknowledged_and_shows_what_came_of_it(home: Garden) -> None:
    found = post(home, {"team": "garden", "goal": GOAL})
    run = found.json()["run"]
    assert (found.status_code, found.headers["location"]) == (201, f"/api/runs/{run}")
    assert home.show(run)["plan"] is not None
    shown: Any = home.wait(run)
    assert shown["summary"]["state"] == "complete"
    assert "48.00" in shown["answer"]
    assert [(one["id"], one["worker"], one["status"]) for one in shown["tasks"]] == [("t1", "buyer", "done")]
    assert shown["tasks"][0]["attempts"][0]["ending"] == "succeeded"
    assert shown["summary"]["spent"]["tokens"] > 0


def test_the_same_key_and_body_is_the_same_run_and_the_same_answer(home: Garden) -> None:
    body = {"team": "garden", "goal": GOAL}
    first = post(home, body, "order-1")
    second = post(home, {"goal": GOAL, "team": "garden"}, "order-1")
    assert first.content == second.content
    assert (first.status_code, second.status_code) == (201, 201)
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert len(home.client.get("/api/runs").json()["runs"]) == 1


def test_the_same_key_with_another_body_is_refused_and_begins_nothing(home: Garden) -> None:
    post(home, {"team": "garden", "goal": GOAL}, "order-1")
    other = post(home, {"team": "garden", "goal": BOTH}, "order-1")
    assert (other.status_code, other.json()["code"]) == (422, "other_body")
    assert other.headers["content-type"] == "application/problem+json"
    assert len(home.client.get("/api/runs").json()["runs"]) == 1


def test_calls_with_one_key_at_the_same_time_begin_one_run(home: Garden) -> None:
    body = {"team": "garden", "goal": GOAL}
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(post, home, body, "order-1") for _ in range(16)]
        found = [one.result() for one in asked]
    assert {one.status_code for one in found} == {201}
    assert len({one.content for one in found}) == 1
    assert len(home.client.get("/api/runs").json()["runs"]) == 1


def test_a_key_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    body = {"team": "garden", "goal": GOAL}
    with garden(tmp_path) as before:
        first = post(before, body, "order-1")
        before.wait(first.json()["run"])
    with garden(tmp_path) as after:
        assert post(after, body, "order-1").content == first.content
        assert len(after.client.get("/api/runs").json()["runs"]) == 1


def test_two_tenants_with_the_same_key_have_a_run_each(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        body = {"team": "garden", "goal": GOAL}
        other = key_for(tmp_path, "lab")
        first = post(home, body, "order-1").json()["run"]
        second = home.client.post("/api/runs", json=body, headers={**other, "Idempotency-Key": "order-1"})
        assert second.status_code == 201
        assert second.json()["run"] != first


@pytest.mark.parametrize("path", ["", "/entries", "/events", "/trace"])
def test_a_run_of_another_tenant_is_not_there(tmp_path: Path, path: str) -> None:
    with garden(tmp_path) as home:
        run = home.begin()
        home.wait(run)
        found = home.client.get(f"/api/runs/{run}{path}", headers=key_for(tmp_path, "lab"))
        assert (found.status_code, found.json()["code"]) == (404, "unknown")
        assert home.client.get("/api/runs", headers=key_for(tmp_path, "lab")).json()["runs"] == []


def test_pages_end_and_hold_every_run_once(home: Garden) -> None:
    begun = [home.begin() for _ in range(7)]
    for run in begun:
        home.wait(run)
    seen: list[str] = []
    before: int | None = None
    for _ in range(10):
        page = home.client.get("/api/runs", params={"limit": 3} | ({} if before is None else {"before": before})).json()
        seen += [one["run"] for one in page["runs"]]
        before = page["next"]
        if before is None:
            break
    assert seen == begun[::-1]


def test_runs_are_found_by_team_state_words_and_time(home: Garden) -> None:
    one = home.begin(GOAL)
    home.wait(one)
    other = home.begin(BOTH, approve=True)
    home.wait(other, "needs_input")

    def found(**asked: object) -> list[str]:
        return [each["run"] for each in home.client.get("/api/runs", params=dict(asked)).json()["runs"]]  # pyright: ignore[reportArgumentType]

    assert found(state="complete") == [one]
    assert found(state="needs_input") == [other]
    assert found(text="PLANTING out") == [other]
    assert found(team="garden") == [other, one]
    assert found(team="null") == []
    assert found(since=home.client.get(f"/api/runs/{other}").json()["summary"]["started"]) == [other]
    assert found(cost=0.01) == []


def test_a_run_keeps_to_caps_of_its_own_that_its_team_does_not_have(home: Garden) -> None:
    found: Any = home.wait(home.begin(BOTH, budget={"calls": 1}))
    assert found["summary"]["spent"]["calls"] <= 1
    assert found["summary"]["state"] in ("failed", "partial")
    assert found["limits"]["calls"] == 1


def test_results_are_in_the_answer_of_a_run_that_could_not_pay_for_one(home: Garden) -> None:
    plan = {"tasks": [{"id": "a", "instruction": GOAL, "worker": "buyer"}], "combine": "merge"}
    found: Any = home.wait(home.begin(GOAL, plan=plan, budget={"calls": 2}))
    assert [task["status"] for task in found["tasks"]] == ["done"]
    assert found["summary"]["cap"]["cap"] == "calls"
    assert "40 tomato seedlings" in found["answer"]


def test_a_plan_that_was_handed_in_is_carried_out_and_one_that_cannot_run_is_refused(home: Garden) -> None:
    plan = {"tasks": [{"id": "a", "instruction": "What do 3 tomato seedlings cost?", "worker": "clerk"}]}
    found: Any = home.wait(home.begin("3 seedlings", plan=plan))
    assert [(one["id"], one["worker"]) for one in found["tasks"]] == [("a", "clerk")]
    plan["tasks"][0]["worker"] = "nobody"
    refused = post(home, {"team": "garden", "goal": "x", "plan": plan})
    assert (refused.status_code, refused.json()["code"]) == (422, "plan_invalid")
    assert "nobody" in refused.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"team": "garden"}, "$"),
        ({"team": "garden", "goal": "x", "strange": 1}, "$"),
        ({"team": "garden", "goal": 7}, "$.goal"),
        ({"team": "garden", "goal": "x", "budget": {"usd": -1}}, "$.budget.usd"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(home: Garden, body: object, place: str) -> None:
    told = post(home, body)
    assert (told.status_code, told.json()["code"]) == (422, "invalid")
    assert told.json()["errors"][0]["place"] == place


def test_a_name_that_is_nearly_right_is_answered_with_the_one_that_may_be_meant(home: Garden) -> None:
    assert post(home, {"team": "gardn", "goal": GOAL}).json()["detail"].endswith("did you mean 'garden'?")
    assert post(home, {"team": "garden", "gaol": GOAL}).json()["detail"].endswith("did you mean 'goal'?")
    nested = post(home, {"team": "garden", "goal": GOAL, "budget": {"tokns": 1}}).json()["detail"]
    assert nested.endswith("did you mean 'tokens'?")
    misspelt = home.client.post("/v1/chat/completions", json={"model": "team/garden", "message": []})
    assert "the field 'messages' is missing; was it meant by 'message'?" in misspelt.text
    assert "did you mean 'limit'?" in home.client.get("/api/runs", params={"limti": 3}).json()["detail"]
    run = home.begin()
    home.wait(run)
    reassigned = home.client.post(f"/api/runs/{run}/tasks/t1/reassign", json={"worker": "clark"})
    assert (reassigned.status_code, "did you mean 'clerk'?" in reassigned.json()["detail"]) == (404, True)
    chat = {"model": "gardn", "messages": [{"role": "user", "content": GOAL}]}
    refused = home.client.post("/v1/chat/completions", json=chat).json()["error"]["message"]
    assert "did you mean 'team/garden'" in refused


def test_a_key_that_may_only_read_begins_nothing(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        reader = key_for(tmp_path, "main", "read")
        assert home.client.get("/api/runs", headers=reader).status_code == 200
        refused = home.client.post("/api/runs", json={"team": "garden", "goal": GOAL}, headers=reader)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


_AROUND = """
version: 1
name: estate
workers:
  gardeners:
    description: Say what seedlings cost and what the notes say about plants.
    team: ../garden/team.yaml
"""


def test_a_run_inside_another_is_running_while_it_works_and_cancelled_with_it(tmp_path: Path) -> None:
    team_in(tmp_path / "garden")
    (tmp_path / "estate").mkdir()
    (tmp_path / "estate" / "team.yaml").write_text(_AROUND)
    settings = settings_in(tmp_path / "data", teams=(tmp_path / "estate" / "team.yaml",), grace=0.5)
    with (
        running(settings) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        estate = Garden(server, client, tmp_path / "garden")
        estate.hold()
        run = client.post("/api/runs", json={"team": "estate", "goal": GOAL}).json()["run"]

        def listed() -> list[tuple[str, str]]:
            lines = client.get("/api/runs", params={"nested": "true"}).json()["runs"]
            return [(line["run"], line["state"]) for line in lines]

        for _ in range(1000):
            if len(listed()) > 1:
                break
            time.sleep(0.02)
        (inside,) = [name for name, _ in listed() if name != run]
        estate.tool_called(inside)
        assert {state for _, state in listed()} == {"running"}
        client.post(f"/api/runs/{run}/cancel")
        estate.let_go()
        estate.wait(run, "cancelled")
        estate.wait(inside, "cancelled")  # the outer run writes its ending first, then ends those inside
        assert {state for _, state in listed()} == {"cancelled"}
        tasks = client.get(f"/api/runs/{inside}").json()["tasks"]
        assert {task["status"] for task in tasks} <= {"done", "unfinished"}
