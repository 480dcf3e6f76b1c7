"""Speaking to runs: plans are approved, edited and rejected; runs stopped, paused, and done again in part."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.api import BOTH, GOAL, Garden, garden, team_in


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garden]:
    with garden(tmp_path_factory.mktemp("garden")) as found:
        yield found


@pytest.fixture
def home(shared: Garden) -> Garden:
    return shared.free()


def tell(home: Garden, run: str, what: str, **body: object) -> httpx.Response:
    return home.client.post(f"/api/runs/{run}/{what}", json=body)


def asking(home: Garden) -> str:
    run = home.begin(BOTH, approve=True)
    shown: Any = home.wait(run, "needs_input")
    assert shown["question"]["what"] == "plan"
    return run


def types(home: Garden, run: str) -> list[str]:
    return [one["event"]["type"] for one in home.client.get(f"/api/runs/{run}/entries").json()["entries"]]


# --- plans


def test_an_approved_plan_is_carried_out(home: Garden) -> None:
    run = asking(home)
    assert "attempt.started" not in types(home, run)
    assert tell(home, run, "plan", number=1, verdict="approve").status_code == 200
    assert home.wait(run, "complete")["question"] is None


def test_an_edited_plan_is_carried_out_in_the_place_of_the_first(home: Garden) -> None:
    run = asking(home)
    plan = {"tasks": [{"id": "only", "instruction": "What do 3 tomato seedlings cost?", "worker": "buyer"}]}
    assert tell(home, run, "plan", number=1, verdict="edit", plan=plan).status_code == 200
    shown: Any = home.wait(run, "complete")
    assert [one["id"] for one in shown["tasks"]] == ["only"]


def test_a_rejected_plan_is_made_anew_and_asked_about_again(home: Garden) -> None:
    run = asking(home)
    assert tell(home, run, "plan", number=1, verdict="reject", feedback="ask the clerk").status_code == 200
    shown: Any = home.wait(run, "needs_input")
    assert shown["question"]["number"] == 2
    assert types(home, run).count("plan.grown") == 2
    for path in ("plan", "answer"):  # neither a late answer nor one for no question in particular is taken for this one
        assert tell(home, run, path, number=1, verdict="approve").status_code == 409
        assert tell(home, run, path, verdict="approve").status_code == 422
    assert home.state(run) == "needs_input"


def test_an_edit_that_cannot_run_changes_nothing_and_the_question_stays_open(home: Garden) -> None:
    run = asking(home)
    plan = {"tasks": [{"id": "only", "instruction": "x", "worker": "nobody"}]}
    refused = tell(home, run, "plan", number=1, verdict="edit", plan=plan)
    assert (refused.status_code, refused.json()["code"], refused.json()["run_id"]) == (422, "plan_invalid", run)
    assert home.state(run) == "needs_input"


def test_a_question_is_answered_by_its_number_and_once(home: Garden, caplog: pytest.LogCaptureFixture) -> None:
    run = asking(home)
    assert tell(home, run, "answer", verdict="approve", number=9).status_code == 409
    assert tell(home, run, "answer", number=1, verdict="done", result="x").status_code == 409
    assert not [record for record in caplog.records if run in record.getMessage()]  # nothing happened to the run
    assert tell(home, run, "answer", verdict="approve", number=1).status_code == 200
    home.wait(run, "complete")
    assert tell(home, run, "answer", number=1, verdict="approve").json()["code"] == "refused"


def test_an_open_question_outlives_the_server(tmp_path: Path) -> None:
    with garden(tmp_path) as before:
        run = asking(before)
    with garden(tmp_path) as after:
        assert after.state(run) == "needs_input"
        tell(after, run, "plan", number=1, verdict="approve")
        after.wait(run, "complete")


@pytest.mark.parametrize(("verdict", "plan"), [("edit", None), ("approve", {"tasks": []})])
@pytest.mark.parametrize("path", ["plan", "answer"])
def test_a_plan_comes_with_an_edit_and_with_nothing_else(
    home: Garden, path: str, verdict: str, plan: dict[str, Any] | None
) -> None:
    run = asking(home)
    refused = tell(home, run, path, number=1, verdict=verdict, plan=plan)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert home.state(run) == "needs_input"


# --- stop and go


def test_a_run_under_way_is_cancelled_and_stays_so(home: Garden) -> None:
    home.hold()
    run = home.begin(BOTH)
    home.tool_called(run)
    assert tell(home, run, "cancel", reason="not needed").status_code == 200
    home.wait(run, "cancelled")
    home.let_go()
    again = tell(home, run, "cancel")
    assert (again.status_code, again.json()["code"]) == (409, "refused")


def test_a_run_that_waits_for_a_person_can_be_cancelled(home: Garden) -> None:
    run = asking(home)
    assert tell(home, run, "cancel").status_code == 200
    home.wait(run, "cancelled")


def test_a_paused_run_starts_nothing_more_until_it_is_resumed(home: Garden) -> None:
    home.hold()
    plan = {
        "tasks": [
            {"id": "a", "instruction": "What do 3 tomato seedlings cost?", "worker": "buyer"},
            {"id": "b", "instruction": "What do 4 tomato seedlings cost?", "worker": "clerk", "after": ["a"]},
        ]
    }
    run = home.begin("seedlings", plan=plan)
    home.tool_called(run)
    assert tell(home, run, "pause").json()["summary"]["state"] == "paused"
    home.let_go()
    for _ in range(200):
        if "attempt.succeeded" in types(home, run):
            break
    assert types(home, run).count("attempt.started") == 1
    assert home.state(run) == "paused"
    assert tell(home, run, "resume").status_code == 200
    home.wait(run, "complete")


def test_a_run_that_asks_is_not_resumed_without_an_answer(home: Garden) -> None:
    run = asking(home)
    refused = tell(home, run, "resume")
    assert refused.status_code == 409
    assert "answer" in refused.json()["detail"]


def test_a_run_that_asks_can_be_paused_and_goes_on_when_it_is_answered_and_resumed(home: Garden) -> None:
    run = asking(home)
    assert tell(home, run, "pause").status_code == 200
    assert home.state(run) == "needs_input"
    assert tell(home, run, "answer", number=1, verdict="approve").status_code == 200
    home.wait(run, "paused")
    assert "attempt.started" not in types(home, run)
    assert tell(home, run, "resume").status_code == 200
    home.wait(run, "complete")


def test_the_same_answer_with_the_same_key_is_taken_once(home: Garden) -> None:
    run = asking(home)
    answer = {"number": 1, "verdict": "reject", "feedback": "ask the clerk"}
    path, key = f"/api/runs/{run}/answer", {"Idempotency-Key": "no-1"}
    assert home.client.post(path, json=answer, headers=key).status_code == 200
    home.wait(run, "needs_input")
    again = home.client.post(path, json=answer, headers=key)
    assert (again.status_code, again.json()["question"]["number"]) == (200, 2)
    assert types(home, run).count("input.answered") == 1
    other = home.client.post(path, json={**answer, "verdict": "approve"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "other_body")
    assert home.client.post(path, json=answer).status_code == 409
    assert home.state(run) == "needs_input"


def test_a_cancelled_run_says_why_and_who_cancelled_it_in_summary_and_list(home: Garden) -> None:
    run = asking(home)
    summary: Any = tell(home, run, "cancel", reason="wrong supplier").json()["summary"]
    assert (summary["reason"], summary["why"]) == ("cancelled", "cancelled: wrong supplier (by operator)")
    (listed,) = [one for one in home.client.get("/api/runs").json()["runs"] if one["run"] == run]
    assert listed["why"] == summary["why"]


def test_nothing_is_said_to_a_run_that_is_not_there(home: Garden) -> None:
    for what in ("cancel", "pause", "resume", "retry", "fork"):
        assert tell(home, "no-such-run", what).status_code == 404


# --- done again, in part


def finished(home: Garden) -> str:
    run = home.begin(BOTH)
    home.wait(run, "complete")
    return run


def reused(shown: Any) -> dict[str, bool]:
    return {one["id"]: bool(one["reused"]) for one in shown["tasks"]}


def test_a_fork_takes_over_every_result_and_leaves_the_old_run_alone(home: Garden) -> None:
    run = finished(home)
    before = home.show(run)
    made = tell(home, run, "fork")
    assert (made.status_code, made.json()["source"]) == (201, run)
    assert reused(home.wait(made.json()["run"], "complete")) == {"t1": True, "t2": True}
    assert {**home.show(run), "now": 0} == {**before, "now": 0}


def test_a_named_task_is_done_again_and_the_others_are_taken_over(home: Garden) -> None:
    run = finished(home)
    made = tell(home, run, "retry", tasks=["t1"]).json()["run"]
    assert reused(home.wait(made, "complete")) == {"t1": False, "t2": True}


def test_a_run_in_which_all_was_done_has_nothing_to_retry(home: Garden) -> None:
    refused = tell(home, finished(home), "retry")
    assert refused.status_code == 409
    assert refused.json()["detail"].endswith('name those to be done again: {"tasks": ["t1", "t2"]}')
    assert tell(home, finished(home), "retry", tasks=["t9"]).status_code == 404


def test_what_failed_is_done_again_by_a_retry(home: Garden) -> None:
    home.hold()
    run = home.begin(BOTH)
    home.tool_called(run)
    tell(home, run, "cancel")
    home.wait(run, "cancelled")
    home.let_go()
    made = tell(home, run, "retry").json()["run"]
    shown: Any = home.wait(made, "complete")
    assert reused(shown)["t1"] is False
    assert "48.00" in shown["answer"]


def test_a_task_is_reassigned_and_only_that_is_done_again(home: Garden) -> None:
    run = finished(home)
    made = tell(home, run, "tasks/t1/reassign", worker="clerk").json()["run"]
    shown: Any = home.wait(made, "complete")
    assert {one["id"]: one["worker"] for one in shown["tasks"]}["t1"] == "clerk"
    assert reused(shown) == {"t1": False, "t2": True}
    assert tell(home, run, "tasks/t1/reassign", worker="nobody").status_code == 404


def test_a_task_is_skipped_and_whatever_needed_it_goes_on_without_it(home: Garden) -> None:
    plan = {
        "tasks": [
            {"id": "a", "instruction": "What do 3 tomato seedlings cost?", "worker": "buyer"},
            {"id": "b", "instruction": "What do 4 tomato seedlings cost?", "worker": "clerk", "after": ["a"]},
        ]
    }
    home.hold()
    run = home.begin("seedlings", plan=plan)
    home.tool_called(run)
    made = tell(home, run, "tasks/a/skip")
    home.let_go()
    assert made.status_code == 201
    shown: Any = home.wait(made.json()["run"], "complete")
    assert [one["id"] for one in shown["tasks"]] == ["b"]
    assert any("skipped a" in note["text"] for note in shown["notes"])
    assert home.state(run) == "cancelled"


def test_what_cannot_be_done_again_does_not_cancel_a_run_under_way(home: Garden) -> None:
    home.hold()
    run = home.begin(BOTH)
    home.tool_called(run)
    assert tell(home, run, "tasks/t9/skip").status_code == 404
    assert tell(home, run, "tasks/t1/reassign", worker="nobody").status_code == 404
    home.let_go()
    home.wait(run, "complete")


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("retry", {"tasks": ["t1"]}),
        ("fork", {}),
        ("fork", {"plan": {"tasks": [{"id": "t9", "instruction": GOAL, "worker": "buyer"}]}}),
        ("tasks/t1/skip", {}),
        ("tasks/t1/reassign", {"worker": "clerk"}),
    ],
)
def test_what_nobody_could_do_is_still_missing_when_a_run_is_done_again(
    home: Garden, what: str, body: dict[str, object]
) -> None:
    run = home.begin(f"{BOTH} Then book a hotel.")
    before: Any = home.wait(run, "partial")
    assert "book a hotel" in before["gaps"][0]["message"]
    shown: Any = home.wait(tell(home, run, what, **body).json()["run"])
    assert (shown["summary"]["state"], shown["gaps"]) == ("partial", before["gaps"])
    assert "book a hotel" in shown["answer"]


def test_what_nobody_could_do_is_planned_anew_by_a_retry_and_finished_work_is_taken_over(home: Garden) -> None:
    run = home.begin(f"{BOTH} Then book a hotel.")
    before: Any = home.wait(run, "partial")
    made = tell(home, run, "retry")
    assert made.status_code == 201, made.text
    shown: Any = home.wait(made.json()["run"])
    assert (shown["summary"]["state"], shown["gaps"]) == ("partial", before["gaps"])
    assert reused(shown) == {"t1": True, "t2": True}
    assert "prompt.sent" in types(home, made.json()["run"]), "the planner was asked again"


@pytest.mark.parametrize("how", ["retry", "fork"])
def test_a_worker_that_left_a_part_of_its_task_is_asked_again(home: Garden, how: str) -> None:
    plan = {
        "tasks": [
            {"id": "a", "instruction": "What do 40 tomato seedlings cost, and who feeds the cat?", "worker": "buyer"},
            {"id": "b", "instruction": "What do 3 tomato seedlings cost?", "worker": "clerk"},
        ]
    }
    run = home.begin("seedlings and the cat", plan=plan)
    home.wait(run, "partial")
    made = tell(home, run, how)
    assert made.status_code == 201, made.text
    assert reused(home.wait(made.json()["run"], "partial")) == {"a": False, "b": True}


def test_a_fork_with_another_goal_does_not_owe_what_the_old_one_left_out(home: Garden) -> None:
    run = home.begin(f"{BOTH} Then book a hotel.")
    home.wait(run, "partial")
    made = tell(home, run, "fork", goal=BOTH).json()["run"]
    assert home.wait(made, "complete")["gaps"] == []


def test_a_plan_that_waits_for_a_person_is_not_said_to_have_ended(home: Garden) -> None:
    run = asking(home)
    shown: Any = home.show(run)
    assert {one["message"] for one in shown["gaps"]} == {"it is not finished yet"}
    tell(home, run, "cancel")
    ended: Any = home.wait(run, "cancelled")
    assert {one["message"] for one in ended["gaps"]} == {"the run ended before it was finished"}


def test_a_fork_that_is_sent_twice_with_one_key_is_one_run(home: Garden) -> None:
    run = finished(home)
    key = {"Idempotency-Key": "again-1"}
    made = [home.client.post(f"/api/runs/{run}/fork", json={}, headers=key) for _ in range(2)]
    assert made[0].content == made[1].content
    other = home.client.post(f"/api/runs/{run}/retry", json={"tasks": ["t1"]}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "other_body")


def test_a_run_that_was_not_routed_cannot_be_judged(home: Garden) -> None:
    told = tell(home, finished(home), "feedback", good=1)
    assert (told.status_code, told.json()["code"]) == (409, "refused")


def test_how_a_routed_run_went_is_kept_for_later_routes(tmp_path: Path) -> None:
    team_in(tmp_path / "team")
    file = tmp_path / "team" / "team.yaml"
    file.write_text(file.read_text() + "supervisor: {strategy: route}\n")
    with garden(tmp_path) as home:
        run = home.begin("What do 40 tomato seedlings cost?")
        shown: Any = home.wait(run)
        did = shown["tasks"][0]["worker"]
        told = tell(home, run, "feedback", good=1)
        assert told.status_code == 200, told.text
        assert (told.json()["confirmed"], told.json()["refuted"]) == ([did], [])
        assert tell(home, run, "feedback", good=2).status_code == 422
        assert home.client.get("/api/teams/garden").json()["strategy"] == "route"


def test_workers_tools_and_models_are_told_with_how_they_did(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        finished(home)
        told = home.client.get("/api/health/workers").json()
    found = {(one["what"], one["name"]): one for one in told["workers"]}
    assert found["worker", "buyer"]["attempts"] == 1
    assert found["tool", "seedling_price"]["state"] == "closed"
    assert told["runs"] == 1


def test_a_task_whose_id_has_a_slash_can_be_named(home: Garden) -> None:
    tasks = [
        {"id": name, "instruction": f"What do {seedlings} tomato seedlings cost?", "worker": "buyer"}
        for name, seedlings in (("a/b", 2), ("c", 3))
    ]
    run = home.begin(plan={"tasks": tasks})
    home.wait(run)
    skipped = tell(home, run, "tasks/a/b/skip")
    assert skipped.status_code == 201, skipped.text
    shown: Any = home.wait(skipped.json()["run"])
    assert [one["id"] for one in shown["tasks"]] == ["c"]
