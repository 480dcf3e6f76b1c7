"""Runs as AG-UI events, checked with the SDK's own types."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from ag_ui.core import Event, RunAgentInput
from ag_ui.core.types import ResumeEntry, UserMessage
from pydantic import TypeAdapter

from chargehand.integrations.ag_ui import ag_ui_api
from tests.server.api import GOAL, Garden, team_in
from tests.server.running import running, settings_in

EVENTS: TypeAdapter[Any] = TypeAdapter(Event)


@contextmanager
def served(folder: Path) -> Generator[Garden]:
    if not (folder / "team").exists():
        team_in(folder / "team")
    settings = settings_in(folder / "data", teams=(folder / "team" / "team.yaml",), grace=0.2)
    with (
        running(settings, apis=[ag_ui_api()]) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client,
    ):
        yield Garden(server, client, folder / "team")


def run(home: Garden, sent: RunAgentInput) -> list[Any]:
    body = sent.model_dump(by_alias=True, exclude_none=True, mode="json")
    found = home.client.post("/ag-ui/garden", json=body)
    assert found.status_code == 200, found.text
    lines = [line.removeprefix("data: ") for line in found.text.splitlines() if line]
    return [EVENTS.validate_python(json.loads(line)) for line in lines]


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
        assert home.client.post("/ag-ui/garden", json={"threadId": "t", "runId": "r"}).status_code == 422
        resume = [{"interruptId": "nothing#1", "status": "resolved"}]
        body = {"threadId": "t", "runId": "r", "resume": resume}
        assert home.client.post("/ag-ui/garden", json=body).status_code == 404
        home.hold()
        message = UserMessage(id="m", role="user", content="Sing a song about the moon.")
        failed = run(home, RunAgentInput(thread_id="th", run_id="r9", messages=[message]))[-1]
        home.let_go()
        assert failed.type.value == "RUN_ERROR"
        assert failed.code == "failed"
