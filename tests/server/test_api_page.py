"""What the page reads over our own API: who is calling, a run with clock and forecast, live lists, lean entries."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chargehand import __version__
from tests.cli.commands import chargehand
from tests.server.api import BOTH, GOAL, Garden, SharedGarden, garden, key_for, shared_garden, team_in
from tests.server.model_server import Answer, Call, Question, fake_model
from tests.server.running import running, settings_in
from tests.server.test_openai import desk


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGarden]:
    with shared_garden(tmp_path_factory.mktemp("garden")) as shared:
        yield shared


@pytest.fixture
def home(shared: SharedGarden) -> Iterator[Garden]:
    """A tenant of its own, on the server of all tests of the module."""
    with shared.tenant() as home:
        yield home


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[Garden]:
    with garden(tmp_path) as home:
        yield home


def test_a_caller_is_told_who_it_is_and_what_its_key_allows(own_home: Garden, tmp_path: Path) -> None:
    operator = own_home.client.get("/api/me").json()
    assert (operator["key"], operator["scopes"]) == ("operator", ["read", "run", "admin"])
    assert operator["version"] == __version__
    assert abs(operator["now"] - time.time()) < 60
    assert operator["unlocked"] is False
    reader = own_home.client.get("/api/me", headers=key_for(tmp_path, "acme", "read")).json()
    assert (reader["tenant"], reader["name"], reader["scopes"]) == ("acme", "for a test", ["read"])


def test_a_run_under_way_shows_the_clock_its_forecast_and_null_for_no_cap(home: Garden) -> None:
    home.hold()
    run = home.begin(BOTH, budget={"calls": 50})
    home.tool_called(run)
    shown: Any = home.show(run)
    home.let_go()
    assert shown["limits"] == {"usd": None, "tokens": None, "calls": 50}
    assert shown["summary"]["started"] <= shown["now"] <= time.time()
    assert (shown["forecast"]["width"], shown["forecast"]["usd"]["about"]) == (2, 0)
    assert home.wait(run)["forecast"] is None


def test_the_page_and_its_views_need_no_token_and_may_show_images_they_made(home: Garden) -> None:
    with httpx.Client(base_url=home.server.url) as stranger:
        for path in ("/assets/page.js", "/runs/garden-1", "/teams/garden", "/memory", "/compare/a/b"):
            assert stranger.get(path).status_code in (200, 404), path
        for path in ("/api/runs", "/api/me", "/runsome", "/metrics"):
            assert stranger.get(path).status_code == 401, path
        assert "img-src 'self' blob:" in stranger.get("/").headers["content-security-policy"]


_STREAMED = ("words", "thoughts")


def events_of(reply: httpx.Response) -> Iterator[tuple[str, Any]]:
    """The events of a stream, each with its name."""
    name = ""
    for line in reply.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_the_list_of_runs_is_told_as_it_changes_with_the_question_in_the_line(home: Garden) -> None:
    home.hold()
    before = home.begin(BOTH)
    home.tool_called(before)
    with home.client.stream("GET", "/api/runs/events") as reply:
        lines = events_of(reply)
        name, first = next(lines)
        assert (name, first["run"], first["state"]) == ("run.line", before, "running")
        assert first["running"] >= 1
        assert (first["title"], first["question"]) == ("What do 40 tomato seedlings cost, and what do…", None)
        asking = home.begin(approve=True)
        asked = next(line for _, line in lines if line["run"] == asking and line["state"] == "needs_input")
        assert asked["question"] == {"what": "plan", "task": "", "text": "", "tool": "", "calls": 0}
        home.let_go()
        ended = next(line for _, line in lines if line["run"] == before and line["state"] == "complete")
        assert (ended["done"], ended["running"], ended["failed"]) == (2, 0, 0)
        home.client.post(f"/api/runs/{asking}/plan", json={"number": 1, "verdict": "approve"})
        done = next(line for _, line in lines if line["run"] == asking and line["state"] == "complete")
    listed = {line["run"]: line for line in home.client.get("/api/runs").json()["runs"]}
    assert listed == {before: ended, asking: done}


def test_lean_entries_point_to_what_is_large_and_one_entry_is_told_whole(home: Garden) -> None:
    run = home.begin()
    home.wait(run)
    whole = home.client.get(f"/api/runs/{run}/events").text
    lean = home.client.get(f"/api/runs/{run}/events?lean=true").text
    assert len(lean) < len(whole)
    entries = [json.loads(line.removeprefix("data: ")) for line in lean.splitlines() if line.startswith("data: ")]
    prompts = [entry for entry in entries if entry["event"]["type"] == "prompt.sent"]
    large = next(entry for entry in prompts if "$entry" in entry["event"]["messages"])
    pointer = large["event"]["messages"]
    assert (pointer["$entry"], pointer["bytes"] > 2048) == (large["seq"], True)
    found = home.client.get(f"/api/runs/{run}/entries/{large['seq']}").json()
    assert {**found["event"], "messages": pointer} == large["event"]
    assert home.client.get(f"/api/runs/{run}/entries/100000").status_code == 404
    assert home.client.get(f"/api/runs/{run}/entries/x").status_code == 404


def test_the_evidence_of_an_answer_is_told_in_fields_and_in_a_line(home: Garden) -> None:
    run = home.begin()
    home.wait(run)
    evidence = home.client.get(f"/api/runs/{run}/evidence").json()
    assert evidence["coverage"] == {"covered": ["t1"], "missing": [], "unused": [], "unplanned": 0}
    assert evidence["traced"]["tools"] > 0
    assert "traced to tools" in evidence["line"]


def test_words_of_models_come_between_the_entries_and_the_stream_ends_with_the_run(tmp_path: Path) -> None:
    with desk(tmp_path, Answer("One two three four five six.", pause=0.05)) as (server, _):
        calling = httpx.Client(base_url=server.url, headers=server.headers, timeout=30)
        with calling:
            run = calling.post("/api/runs", json={"team": "desk", "goal": "Count."}).json()["run"]
            with calling.stream("GET", f"/api/runs/{run}/events?words=true") as reply:
                events = list(events_of(reply))
    words = [data for name, data in events if name == "words" and data["work"] == "answer"]
    assert len(words) > 3
    assert "".join(data["text"] for data in words) == "One two three four five six."
    assert events[-1][0] == "run.ended"


def test_thoughts_of_models_come_as_events_of_their_own(tmp_path: Path) -> None:
    with desk(tmp_path, Answer("One two.", thought="They want me to count.")) as (server, _):
        calling = httpx.Client(base_url=server.url, headers=server.headers, timeout=30)
        with calling:
            run = calling.post("/api/runs", json={"team": "desk", "goal": "Count."}).json()["run"]
            with calling.stream("GET", f"/api/runs/{run}/events?words=true") as reply:
                events = list(events_of(reply))
            shown = calling.get(f"/api/runs/{run}").json()
    told = {name: [data for at, data in events if at == name and data["work"] == "answer"] for name in _STREAMED}
    assert {name: "".join(data["text"] for data in pieces) for name, pieces in told.items()} == {
        "words": "One two.",
        "thoughts": "They want me to count.",
    }
    assert {data["kind"] for data in told["thoughts"]} == {"thought"}
    assert shown["answer"].startswith("One two.")
    assert "They want" not in json.dumps([data for name, data in events if name not in _STREAMED])


def test_a_plan_that_is_given_is_checked_and_reckoned_and_nothing_is_planned(home: Garden) -> None:
    title = "What 40 tomato seedlings cost in spring and in the autumn"
    task = {"id": "a", "instruction": "Say what 40 tomato seedlings cost.", "worker": "buyer", "title": title}
    body = {"goal": "It", "plan": {"tasks": [task]}}
    good = home.client.post("/api/teams/garden/plan", json=body).json()
    assert [finding for finding in good["findings"] if finding.get("grave", True)] == []
    assert good["forecast"]["critical_path"] == ["a"]
    assert good["plan"]["tasks"][0]["title"] == "What 40 tomato seedlings cost in spring and in…"
    body["plan"] = {"tasks": [{**task, "worker": "baker"}]}
    bad = home.client.post("/api/teams/garden/plan", json=body).json()
    grave = [(finding["code"], finding["place"]) for finding in bad["findings"] if finding.get("grave", True)]
    assert (grave, bad["forecast"]) == ([("unknown_worker", "tasks[0] (a).worker")], None)


def test_an_answer_names_who_decided_and_the_second_one_is_refused(own_home: Garden, tmp_path: Path) -> None:
    run = own_home.begin(approve=True)
    own_home.wait(run, "needs_input")
    key = key_for(tmp_path, "main")
    body = {"number": 1, "verdict": "approve"}
    assert own_home.client.post(f"/api/runs/{run}/plan", json=body, headers=key).status_code == 200
    assert own_home.client.post(f"/api/runs/{run}/plan", json=body, headers=key).status_code == 409
    own_home.wait(run)
    trace = own_home.client.get(f"/api/runs/{run}/trace").json()
    assert [question["by"] for question in trace["questions"]] == ["for a test"]


_CHAIN = {
    "tasks": [
        {"id": "price", "instruction": "Say what 40 tomato seedlings cost.", "worker": "buyer"},
        {"id": "again", "instruction": "Say what 12 tomato seedlings cost.", "worker": "buyer", "after": ["price"]},
        {"id": "notes", "instruction": "Say when tomatoes are planted out.", "worker": "buyer", "after": ["again"]},
    ]
}


def test_a_task_that_waits_is_skipped_or_reassigned_in_place_and_the_others_go_on(home: Garden) -> None:
    home.hold()
    run = home.begin(plan=_CHAIN)
    home.tool_called(run)
    path = f"/api/runs/{run}/tasks"
    running = home.client.post(f"{path}/price/skip", json={"in_place": True})
    assert (running.status_code, running.json()["detail"]) == (409, "task 'price' is running; stop its attempt instead")
    assert home.client.post(f"{path}/notes/reassign", json={"worker": "baker", "in_place": True}).status_code == 409
    given = home.client.post(f"{path}/notes/reassign", json={"worker": "reader", "in_place": True}).json()
    assert {task["id"]: task["worker"] for task in given["tasks"]}["notes"] == "reader"
    skipped = home.client.post(f"{path}/again/skip", json={"in_place": True})
    assert (skipped.status_code, skipped.json()["summary"]["run"]) == (200, run)
    assert home.client.post(f"{path}/again/skip", json={"in_place": True}).status_code == 409
    home.let_go()
    shown: Any = home.wait(run)
    assert {task["id"]: task["status"] for task in shown["tasks"]} == {
        "price": "done",
        "again": "skipped",
        "notes": "done",
    }
    assert "15 May" in str(shown["tasks"][2]["result"])
    assert ("again", "person") in [(gap["task"], gap["reason"]) for gap in shown["gaps"]]
    assert "again" not in home.client.get(f"/api/runs/{run}/trace").json()["critical_path"]


def test_an_attempt_is_stopped_and_its_task_given_up_while_the_run_goes_on(home: Garden) -> None:
    home.hold()
    run = home.begin(plan={"tasks": _CHAIN["tasks"][:2]})
    home.tool_called(run)
    path = f"/api/runs/{run}/tasks"
    assert home.client.post(f"{path}/again/stop").status_code == 409
    assert home.client.post(f"{path}/nothing/stop").status_code == 404
    stopped = home.client.post(f"{path}/price/stop", json={"reason": "too slow"})
    assert stopped.status_code == 200
    shown: Any = home.wait(run)
    home.let_go()
    assert (shown["summary"]["state"], shown["tasks"][1]["status"]) == ("failed", "skipped")
    failure = shown["tasks"][0]["failure"]
    assert (failure["kind"], failure["message"]) == ("stopped", "operator stopped it: too slow")


_OUTER = """
version: 1
name: outer
workers:
  garden: {description: Says what seedlings cost., team: team.yaml}
"""


@pytest.mark.parametrize(("order", "state"), [("tasks/t1/stop", "failed"), ("cancel", "cancelled")])
def test_a_run_inside_one_that_does_not_wait_for_it_any_more_is_cancelled(
    tmp_path: Path, order: str, state: str
) -> None:
    team = team_in(tmp_path / "team")
    outer = team.with_name("outer.yaml")
    outer.write_text(_OUTER)
    settings = settings_in(tmp_path / "data", teams=(outer,), grace=0.5)
    with running(settings) as server, httpx.Client(base_url=server.url, headers=server.headers) as client:
        home = Garden(server, client, tmp_path / "team")
        home.hold()
        plan = {"tasks": [{"id": "t1", "instruction": GOAL, "worker": "garden"}], "combine": "forward"}
        run = client.post("/api/runs", json={"team": "outer", "goal": GOAL, "plan": plan}).json()["run"]

        def inside() -> list[str]:
            lines = client.get("/api/runs?nested=true").json()["runs"]
            return [line["run"] for line in lines if line["parent"] == run]

        for _ in range(500):
            if inside():
                break
            time.sleep(0.02)
        (nested,) = inside()
        home.tool_called(nested)
        assert client.post(f"/api/runs/{run}/{order}", json={}).status_code == 200
        ended: Any = home.wait(run, state)
        shown: Any = home.wait(nested, "cancelled")
        home.let_go()
        assert [task["status"] for task in shown["tasks"]] == ["unfinished"]
        assert (ended["summary"]["running"], shown["summary"]["running"]) == (0, 0)


_PAINTERS = """
version: 1
name: painters
defaults: {{model: "{handle}"}}
workers:
  painter: {{description: Paints sheds., tools: [ask_person]}}
"""
_ASKED = Call("ask_person", {"question": "How many coats?", "schema": {"type": "integer"}})
_PAINT = {"tasks": [{"id": "paint", "instruction": "Paint the shed.", "worker": "painter"}], "combine": "forward"}


def test_a_worker_asks_a_person_and_the_question_outlives_the_server(tmp_path: Path) -> None:
    def think(asked: Question) -> Answer | str:
        return f"I was told {asked.results[-1]}." if asked.results else Answer(calls=(_ASKED,))

    with fake_model(think) as model:
        team = tmp_path / "team.yaml"
        team.write_text(_PAINTERS.format(handle=model.handle))
        settings = settings_in(tmp_path / "data", teams=(team,), grace=0.5)
        body = {"team": "painters", "goal": "Paint the shed.", "plan": _PAINT}
        with running(settings) as server, httpx.Client(base_url=server.url, headers=server.headers) as client:
            run = client.post("/api/runs", json=body).json()["run"]
            waiting = Garden(server, client, tmp_path).wait(run, "needs_input")
        with running(settings) as server, httpx.Client(base_url=server.url, headers=server.headers) as client:
            shown: Any = Garden(server, client, tmp_path).show(run)
            assert shown["summary"]["question"] == {
                "what": "question",
                "task": "paint",
                "text": "How many coats?",
                "tool": "",
                "calls": 0,
            }
            assert shown["question"] == waiting["question"]
            assert shown["question"]["question"]["schema"] == {"type": "integer"}
            answer = {"number": 1, "verdict": "answer", "result": "three"}
            refused = client.post(f"/api/runs/{run}/answer", json=answer)
            assert (refused.status_code, refused.json()["errors"][0]["place"]) == (422, "result")
            assert client.post(f"/api/runs/{run}/answer", json={**answer, "result": 3}).status_code == 200
            done: Any = Garden(server, client, tmp_path).wait(run)
            assert (done["summary"]["state"], "\n3\n" in done["answer"]) == ("complete", True)
            assert done["deadline"] > shown["deadline"]


@pytest.mark.parametrize(("free_text", "status"), [(False, 422), (True, 200)])
def test_another_answer_than_the_options_needs_free_text(tmp_path: Path, free_text: bool, status: int) -> None:
    asked = {"question": "Which colour?", "options": ["red", "blue"], "free_text": free_text}

    def think(question: Question) -> Answer | str:
        told = question.results
        return f"I was told {told[-1]}." if told else Answer(calls=(Call("ask_person", asked),))

    with fake_model(think) as model:
        team = tmp_path / "team.yaml"
        team.write_text(_PAINTERS.format(handle=model.handle))
        settings = settings_in(tmp_path / "data", teams=(team,))
        with running(settings) as server, httpx.Client(base_url=server.url, headers=server.headers) as client:
            painters = Garden(server, client, tmp_path)
            body = {"team": "painters", "goal": "Paint the shed.", "plan": _PAINT}
            run = client.post("/api/runs", json=body).json()["run"]
            shown: Any = painters.wait(run, "needs_input")
            assert shown["question"]["question"].get("free_text", False) is free_text
            answer = {"number": 1, "verdict": "answer", "result": "green"}
            answered = client.post(f"/api/runs/{run}/answer", json=answer)
            assert answered.status_code == status, answered.text
            if status == 422:
                assert "one of 'red', 'blue'" in answered.json()["errors"][0]["message"]
                late = client.post(f"/api/runs/{run}/answer", json={**answer, "number": 2})
                assert late.status_code == 409


def test_a_question_is_answered_on_the_command_line(tmp_path: Path) -> None:
    def think(asked: Question) -> Answer | str:
        return f"I was told {asked.results[-1]}." if asked.results else Answer(calls=(_ASKED,))

    with fake_model(think) as model:
        (tmp_path / "team.yaml").write_text(_PAINTERS.format(handle=model.handle))
        (tmp_path / "plan.json").write_text(json.dumps(_PAINT))
        words = ("--team", "team.yaml", "--run", "shed", "--plan", "plan.json", "--no-input")
        waiting = chargehand(tmp_path, "run", *words, "Paint the shed.")
        assert (waiting.returncode, "How many coats?" in waiting.stderr) == (4, True), waiting.stderr
        assert "--answer TEXT" in waiting.stderr
        refused = chargehand(tmp_path, "resume", "shed", "--team", "team.yaml", "--answer", "three")
        assert (refused.returncode, "must be integer" in refused.stderr) == (2, True), refused.stderr
        done = chargehand(tmp_path, "resume", "shed", "--team", "team.yaml", "--answer", "3")
        assert (done.returncode, "I was told" in done.stdout) == (0, True), done.stderr


def test_a_packed_stream_can_be_read_as_it_comes(home: Garden) -> None:
    home.hold()
    run = home.begin()
    home.tool_called(run)
    headers = {"Accept-Encoding": "gzip"}
    with home.client.stream("GET", f"/api/runs/{run}/events?lean=true&words=true", headers=headers) as reply:
        assert reply.headers["content-encoding"] == "gzip"
        events = events_of(reply)
        steps = (event["event"]["name"] for name, event in events if name == "step.started")
        assert "seedling_price" in steps
        home.let_go()  # only now: what was read so far did not wait for the end
        names = [name for name, _ in events]
    assert names[-1] == "run.ended"


def test_a_whole_trace_has_every_field_and_every_message(home: Garden) -> None:
    run = home.begin(BOTH)
    home.wait(run)
    short = home.client.get(f"/api/runs/{run}/trace").json()
    whole = home.client.get(f"/api/runs/{run}/trace?whole=true").json()
    assert ("damage" in short, whole["damage"]) == (False, "")
    told = [prompt for task in whole["tasks"] for attempt in task["attempts"] for prompt in attempt["prompts"]]
    assert told
    assert all(prompt["messages"][0]["role"] == "system" and prompt["first_in"] == 0 for prompt in told)
    steps = [step for task in whole["tasks"] for attempt in task["attempts"] for step in attempt["steps"]]
    price = next(step for step in steps if step["name"] == "seedling_price")
    assert (price["arguments"], price["good"], price["kind"]) == ({"plant": "tomato", "seedlings": 40}, True, "tool")
    assert "48.00 euros" in json.dumps(price["result"])


def test_a_plain_answer_has_no_sections_below_it(home: Garden) -> None:
    run = home.begin("What do 40 tomato seedlings cost, and what is the weather in Lima tomorrow?")
    whole: Any = home.wait(run)
    plain = home.client.get(f"/api/runs/{run}?plain=true").json()
    entries = home.client.get(f"/api/runs/{run}/entries").json()["entries"]
    written = next(entry["event"] for entry in entries if entry["event"]["type"] == "answer.written")
    assert plain["answer"] == written["answer"]
    sections = [section["text"] for section in written.get("sections", [])]
    assert whole["answer"] == "\n\n".join([written["answer"], *sections])


def test_a_forecast_goes_by_how_long_workers_took_in_earlier_runs(home: Garden) -> None:
    goal = {"goal": BOTH}
    before = home.client.post("/api/teams/garden/plan", json=goal).json()["forecast"]
    assert (before["timed"], before["critical"]) == (False, 10.0)
    home.wait(home.begin(BOTH))
    after = home.client.post("/api/teams/garden/plan", json=goal).json()["forecast"]
    assert after.get("timed", True)
    assert 0 < after["critical"] < 5


def test_runs_are_listed_by_who_has_a_task_in_them(home: Garden) -> None:
    one = home.begin()
    both = home.begin(BOTH)
    for run in (one, both):
        home.wait(run)

    def listed(worker: str) -> list[str]:
        page = home.client.get("/api/runs", params={"worker": worker}).json()
        return [line["run"] for line in page["runs"]]

    assert listed("buyer") == [both, one]
    assert listed("reader") == [both]
    assert listed("nobody") == []
    assert sorted(home.client.get("/api/runs").json()["runs"][0]["workers"]) == ["buyer", "reader"]


def test_a_lean_run_leaves_out_what_its_entries_tell(home: Garden) -> None:
    run = home.begin(BOTH)
    whole: Any = home.wait(run)
    lean = home.client.get(f"/api/runs/{run}?lean=true").json()
    assert (lean["plan"]["tasks"], lean["tasks"], lean["notes"], lean["answer"]) == ([], [], [], None)
    same = ("summary", "gaps", "question", "deadline", "limits", "notice", "forecast")
    assert {name: lean[name] for name in same} == {name: whole[name] for name in same}


def test_runs_are_listed_by_label_and_a_fork_has_the_labels_of_its_run(home: Garden) -> None:
    labelled = home.begin(labels={"customer": "ott", "kind": "price"})
    home.wait(labelled)
    home.wait(home.begin())
    forked = home.client.post(f"/api/runs/{labelled}/fork", json={}).json()["run"]
    home.wait(forked)

    def listed(*labels: str) -> list[str]:
        return [line["run"] for line in home.client.get("/api/runs", params={"label": labels}).json()["runs"]]

    assert listed("customer:ott") == listed("kind:price", "customer:ott") == [forked, labelled]
    assert listed("customer:lehm") == []
    assert home.client.get("/api/runs", params={"label": "customer"}).status_code == 422
    wrong = home.client.post("/api/runs", json={"team": "garden", "goal": "x", "labels": {"a:b": "c"}})
    assert wrong.status_code == 422


def test_a_fork_is_previewed_with_what_it_takes_over_and_does_again(home: Garden) -> None:
    run = home.begin(plan={"tasks": _CHAIN["tasks"][:2]})
    home.wait(run)
    path = f"/api/runs/{run}/fork/preview"
    assert home.client.post(path, json={}).json() == {"reused": ["price", "again"], "again": [], "usd": 0.0}
    assert home.client.post(path, json={"again": ["again"]}).json()["again"] == ["again"]
    assert home.client.post(path, json={"again": ["price"]}).json()["again"] == ["price", "again"]
    assert len(home.client.get("/api/runs").json()["runs"]) == 1


def test_a_run_is_deleted_by_an_administrator_once_it_is_not_under_way(own_home: Garden, tmp_path: Path) -> None:
    own_home.hold()
    run = own_home.begin()
    own_home.tool_called(run)
    assert own_home.client.delete(f"/api/runs/{run}").status_code == 409
    own_home.let_go()
    own_home.wait(run)
    assert len(own_home.client.get("/api/runs").json()["runs"]) == 1
    assert own_home.client.delete(f"/api/runs/{run}", headers=key_for(tmp_path, "main")).status_code == 403
    assert own_home.client.delete(f"/api/runs/{run}").json() == {"runs": [run], "kept_in": []}
    assert own_home.client.get(f"/api/runs/{run}").status_code == 404
    assert own_home.client.get("/api/runs").json()["runs"] == []


_KEEPERS = """
version: 1
name: keepers
defaults: {{model: "{handle}"}}
workers:
  keeper: {{description: Keeps what was found., tools: [archival_memory_insert, archival_memory_search]}}
memory:
  archives:
    findings: {{description: What was found., share: write}}
"""


def test_a_passage_says_which_run_and_task_kept_it_and_which_found_it(tmp_path: Path) -> None:
    kept = Call("archival_memory_insert", {"content": "Tomatoes are planted out after 15 May."})
    searched = Call("archival_memory_search", {"query": "tomatoes"})

    def think(asked: Question) -> Answer | str:
        if asked.results:
            return "It is done."
        return Answer(calls=(kept if "Keep it" in asked.user else searched,))

    with fake_model(think) as model:
        (tmp_path / "team.yaml").write_text(_KEEPERS.format(handle=model.handle))
        settings = settings_in(tmp_path / "data", teams=(tmp_path / "team.yaml",))
        with running(settings) as server, httpx.Client(base_url=server.url, headers=server.headers) as client:
            plan: dict[str, Any] = {
                "tasks": [{"id": "keep", "instruction": "Keep it.", "worker": "keeper"}],
                "combine": "forward",
            }
            body = {"team": "keepers", "goal": "Keep it.", "plan": plan}
            run = client.post("/api/runs", json=body).json()["run"]
            Garden(server, client, tmp_path).wait(run, "complete")
            (passage,) = client.get("/api/teams/keepers/archives/findings/passages").json()["passages"]
            (hit,) = client.post("/api/teams/keepers/search", json={"query": "tomatoes"}).json()["hits"]
            for found in (passage, hit):
                assert found["text"] == "Tomatoes are planted out after 15 May."
                assert found["origin"] == {"by": "worker", "name": "keeper", "run": run, "task": "keep"}
            uses = f"/api/teams/keepers/archives/findings/passages/{passage['id']}/uses"
            assert client.get(uses).json() == {"uses": [], "runs": 1}
            plan["tasks"] = [{"id": "look", "instruction": "When are they planted out?", "worker": "keeper"}]
            later = client.post("/api/runs", json={**body, "goal": "Look it up."}).json()["run"]
            Garden(server, client, tmp_path).wait(later)
            (use,) = client.get(uses).json()["uses"]
            assert (use["run"], use["task"], use["attempt"], use["query"]) == (later, "look", 1, "tomatoes")
            assert use["score"] > 0


def test_a_block_is_shown_and_restored_as_it_was_and_passages_are_listed(home: Garden) -> None:
    path = "/api/teams/garden/blocks/rules"
    first = home.client.get(path).json()["value"]
    home.client.put(path, json={"value": "Prices are in dollars.", "version": 1})
    old = home.client.get(path, params={"version": 1}).json()
    assert (old["value"], old["version"]) == (first, 1)
    assert home.client.get(path, params={"version": 9}).status_code == 404
    restored = home.client.post(f"{path}/restore", json={"version": 1}).json()
    assert (restored["value"], restored["version"]) == (first, 3)
    archives = "/api/teams/garden/archives"
    assert home.client.get(f"{archives}/findings/passages").json() == {"passages": [], "next": None}
    assert home.client.get(f"{archives}/attic/passages").status_code == 404


def test_calls_of_the_supervisor_are_told_with_their_times(tmp_path: Path) -> None:
    with (
        desk(tmp_path, "It is so.") as (server, _),
        httpx.Client(base_url=server.url, headers=server.headers) as client,
    ):
        run = client.post("/api/runs", json={"team": "desk", "goal": "Count."}).json()["run"]
        Garden(server, client, tmp_path).wait(run)
        supervision = client.get(f"/api/runs/{run}/trace").json()["supervision"]
    calls = {duty["duty"]: duty["calls"] for duty in supervision}
    assert sorted(calls) == ["answer", "plan"]
    assert calls["plan"][0]["seconds"] > 0
    assert calls["answer"][0]["seconds"] > 0
