"""Runs as AG-UI events, checked with the SDK's own types."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from ag_ui.core import Event, RunAgentInput
from ag_ui.core.types import ResumeEntry, UserMessage
from pydantic import TypeAdapter

from chargehand.integrations.ag_ui import ag_ui_api
from tests.integrations.serving import importable, painters, payers, process
from tests.server.api import GOAL, Garden, team_in
from tests.server.running import running, settings_in

EVENTS: TypeAdapter[Any] = TypeAdapter(Event)


@contextmanager
def served(folder: Path, *more: str) -> Generator[Garden]:
    if not (folder / "team").exists():
        team_in(folder / "team")
    settings = settings_in(folder / "data", teams=(folder / "team" / "team.yaml", *more), grace=0.2)
    with (
        running(settings, apis=[ag_ui_api()]) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client,
    ):
        yield Garden(server, client, folder / "team")


def run(home: Garden, sent: RunAgentInput, team: str = "garden") -> list[Any]:
    body = sent.model_dump(by_alias=True, exclude_none=True, mode="json")
    found = home.client.post(f"/ag-ui/{team}", json=body)
    assert found.status_code == 200, found.text
    return read_events(found.text.splitlines())


def read_events(lines: Sequence[str]) -> list[Any]:
    events = [EVENTS.validate_python(json.loads(line.removeprefix("data: "))) for line in lines if line]
    check_order(events)
    return events


def check_order(events: Sequence[Any]) -> None:
    """What clients refuse: a sub-agent that starts twice or ends unstarted, a tool call likewise."""
    started: set[str] = set()
    ended: set[str] = set()
    calls: set[str] = set()
    for event in events:
        match event.type.value:
            case "SUBAGENT_STARTED":
                assert event.subagent_run_id not in started
                started.add(event.subagent_run_id)
            case "SUBAGENT_FINISHED" | "SUBAGENT_ERROR":
                assert event.subagent_run_id in started - ended
                ended.add(event.subagent_run_id)
            case "TOOL_CALL_START":
                assert event.tool_call_id not in calls
                calls.add(event.tool_call_id)
            case "TOOL_CALL_RESULT":
                assert event.tool_call_id in calls
            case "RUN_FINISHED" | "RUN_ERROR":
                assert started == ended
            case _:
                pass


def wanted(run_id: str = "r1", **more: Any) -> RunAgentInput:
    message = UserMessage(id="m1", role="user", content=GOAL)
    return RunAgentInput(thread_id="th", run_id=run_id, messages=[message], **more)


def kinds(events: list[Any]) -> list[str]:
    return [str(event.type.value) for event in events]


def test_a_run_is_told_in_events_that_the_sdk_reads(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        events = run(home, wanted())
    seen = kinds(events)
    assert seen[0] == "RUN_STARTED"
    assert (events[0].protocol_version, events[0].thread_id, events[0].run_id) == ("1.0", "th", "r1")
    assert seen[1] == "STATE_SNAPSHOT"
    assert seen[-1] == "RUN_FINISHED"
    assert events[-1].outcome.type == "success"
    started = [event for event in events if event.type.value == "SUBAGENT_STARTED"]
    finished = [event for event in events if event.type.value == "SUBAGENT_FINISHED"]
    assert [event.subagent_run_id for event in started] == ["t1.1"]
    assert [event.subagent_run_id for event in finished] == ["t1.1"]
    (arguments,) = [event for event in events if event.type.value == "TOOL_CALL_ARGS"]
    assert json.loads(arguments.delta) == {"plant": "tomato", "seedlings": 40}
    (returned,) = [event for event in events if event.type.value == "TOOL_CALL_RESULT"]
    assert "48.00 euros" in returned.content
    assert returned.tool_call_id == arguments.tool_call_id
    (text,) = [event for event in events if event.type.value == "TEXT_MESSAGE_CONTENT"]
    assert "48.00 euros" in text.delta


def test_the_state_follows_the_tasks(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        events = run(home, wanted())
    state: dict[str, Any] = {}
    for event in events:
        if event.type.value == "STATE_SNAPSHOT":
            state = event.snapshot
        if event.type.value == "STATE_DELTA":
            for change in event.delta:
                *way, last = change.path.strip("/").split("/")
                target: Any = state
                for part in way:
                    target = target[part]
                if last == "-":
                    target.append(change.value)
                else:
                    target[last] = change.value
    assert [task["worker"] for task in state["plan"]] in (["buyer"], ["clerk"])
    assert state["tasks"] == {"t1": "done"}


def test_a_question_is_an_interrupt_that_the_next_call_resolves(tmp_path: Path) -> None:
    team = team_in(tmp_path / "team")
    team.write_text(f"{team.read_text()}policy: {{approve: true}}\n")
    with served(tmp_path) as home:
        asked = run(home, wanted())[-1]
        assert asked.outcome.type == "interrupt"
        (interrupt,) = asked.outcome.interrupts
        assert interrupt.reason == "plan"
        assert interrupt.response_schema["required"] == ["verdict"]
        entry = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload={"verdict": "approve"})
        events = run(home, wanted("r2", resume=[entry]))
        assert events[-1].outcome.type == "success"
        assert "SUBAGENT_STARTED" in kinds(events)
        assert len(home.client.get("/api/runs").json()["runs"]) == 1


def of_kind(events: Sequence[Any], kind: str) -> list[Any]:
    return [event for event in events if event.type.value == kind]


def test_a_worker_that_asks_is_suspended_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    with served(tmp_path, *importable("ag_ui_teams", painters=painters())) as home:
        events = run(home, wanted(), "painters")
        (interrupt,) = events[-1].outcome.interrupts
        assert "Which colour? (red, blue)" in interrupt.message
        (suspended,) = of_kind(events, "SUBAGENT_FINISHED")
        assert suspended.outcome.interrupt_ids == [interrupt.id]
        assert not of_kind(events, "SUBAGENT_ERROR")
        sent = wanted("r2", resume=[ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload="red")])
        events = run(home, sent, "painters")
        assert [event.subagent_run_id for event in of_kind(events, "SUBAGENT_STARTED")] == ["t1.1"]
        assert of_kind(events, "TEXT_MESSAGE_CONTENT")[0].delta == "It is red."
        assert kinds(run(home, sent, "painters")) == kinds(events), "the answer was taken, and the call tells what came"
        assert run(home, wanted(), "painters")[-1].outcome.type == "success", "the first call tells all of it now"


def test_the_schema_of_an_answer_has_the_options_of_a_question_and_the_verdicts_of_a_call(tmp_path: Path) -> None:
    teams = importable("ag_ui_teams", painters=painters(), payers=payers())
    with served(tmp_path, *teams) as home:
        (question,) = run(home, wanted(), "painters")[-1].outcome.interrupts
        (call,) = run(home, wanted("r2"), "payers")[-1].outcome.interrupts
    assert question.response_schema["properties"]["result"] == {"enum": ["red", "blue"]}
    assert call.response_schema["properties"]["verdict"] == {"enum": ["approve", "reject"]}
    assert call.metadata["calls"][0]["arguments"] == {"invoice": 17}


def test_a_call_that_is_agreed_to_is_told_with_its_arguments_and_one_declined_is_not_made(tmp_path: Path) -> None:
    with served(tmp_path, *importable("ag_ui_teams", payers=payers())) as home:
        (interrupt,) = run(home, wanted(), "payers")[-1].outcome.interrupts
        entry = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload="approve")
        events = run(home, wanted("r2", resume=[entry]), "payers")
        (arguments,) = of_kind(events, "TOOL_CALL_ARGS")
        assert json.loads(arguments.delta) == {"invoice": 17}
        assert "17 is paid" in of_kind(events, "TOOL_CALL_RESULT")[0].content
        messages = {event.message_id for event in of_kind(events, "TEXT_MESSAGE_CHUNK")}
        assert len(messages) <= 1, (
            "words are told as they come: of a run that ends before it is listened to there are none"
        )
        assert [event.delta for event in of_kind(events, "TEXT_MESSAGE_CONTENT")] == ["paid"]


def test_after_kill_9_in_the_middle_of_a_stream_the_same_call_tells_the_same_run(tmp_path: Path) -> None:
    team_in(tmp_path / "team")
    body = wanted().model_dump(by_alias=True, exclude_none=True, mode="json")
    with process(tmp_path, "ag_ui") as (server, home):
        home.hold()
        with suppress(httpx.HTTPError), home.client.stream("POST", "/ag-ui/garden", json=body) as stream:
            for line in stream.iter_lines():
                if "TOOL_CALL_END" in line:
                    server.kill()
    with process(tmp_path, "ag_ui") as (_, home):
        with home.client.stream("POST", "/ag-ui/garden", json=body) as stream:
            lines: list[str] = []
            for line in stream.iter_lines():
                if not lines:
                    home.let_go()
                lines.append(line)
        assert read_events(lines)[-1].outcome.type == "success"
        assert len(home.client.get("/api/runs").json()["runs"]) == 1


def test_a_run_that_is_cancelled_ends_its_sub_agents(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        home.hold()
        body = wanted().model_dump(by_alias=True, exclude_none=True, mode="json")
        lines: list[str] = []
        with home.client.stream("POST", "/ag-ui/garden", json=body) as stream:
            for line in stream.iter_lines():
                lines.append(line)
                if "TOOL_CALL_END" in line:
                    httpx.post(
                        f"{home.server.url}/api/runs/{stream.headers['X-Run-Id']}/cancel",
                        json={},
                        headers=home.server.headers,
                    )
        home.let_go()
        events = read_events(lines)
        assert events[-1].outcome.type == "cancelled"
        assert of_kind(events, "SUBAGENT_ERROR")[0].code == "cancelled"


def test_the_same_call_again_tells_the_same_run(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        first = run(home, wanted())
        again = run(home, wanted())
        assert first[0].metadata == again[0].metadata
        told = [kind for kind in kinds(first) if kind != "TEXT_MESSAGE_CHUNK"]  # words as they come are not kept
        assert told == kinds(again)


def test_what_cannot_be_run_is_said_before_the_stream_or_in_it(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        assert home.client.post("/ag-ui/nobody", json={"threadId": "t", "runId": "r"}).status_code == 404
        assert home.client.post("/ag-ui/garden", json={"runId": "r"}).status_code == 422
        for body in (b"{", b"\xff", b"[]"):
            sent = home.client.post("/ag-ui/garden", content=body, headers={"Content-Type": "application/json"})
            assert sent.status_code == 422
        assert home.client.post("/ag-ui/garden", json={"threadId": "t", "runId": "r"}).status_code == 422
        resume = [{"interruptId": "nothing#1", "status": "resolved"}]
        body = {"threadId": "t", "runId": "r", "resume": resume}
        assert home.client.post("/ag-ui/garden", json=body).status_code == 404
        home.hold()
        message = UserMessage(id="m", role="user", content="Sing a song about the moon.")
        failed = run(home, RunAgentInput(thread_id="th", run_id="r9", messages=[message]))[-1]
        home.let_go()
        assert failed.type.value == "RUN_ERROR"
        assert failed.code == "no_results"
