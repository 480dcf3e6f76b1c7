"""What A2A, AG-UI and MCP say to a client that they refuse: each in its own words, and by its class."""

import json
import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chargehand.server.settings import ServerLimits
from tests.integrations.doors import DoorRefused, McpDoor, door_apis
from tests.server.api import GOAL, Garden, key_for, team_in
from tests.server.running import running, settings_in


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("refusals")


@pytest.fixture(scope="module")
def shared(folder: Path) -> Generator[Garden]:
    settings = settings_in(folder / "data", teams=(team_in(folder / "team"),), grace=0.2)
    with (
        running(settings, apis=door_apis()) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield Garden(server, client, folder / "team")


@pytest.fixture
def home(shared: Garden) -> Garden:
    return shared.free()


def rpc(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def message(text: str, **more: object) -> dict[str, object]:
    return rpc("SendMessage", message={"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}], **more})


def a2a(home: Garden, body: object, **headers: str) -> httpx.Response:
    return home.client.post("/a2a/garden", json=body, headers={"A2A-Version": "1.0", **headers})


def ag_ui(home: Garden, thread: str, run: str, text: str = GOAL) -> httpx.Response:
    messages = [{"id": "1", "role": "user", "content": text}]
    return home.client.post("/ag-ui/garden", json={"threadId": thread, "runId": run, "messages": messages})


def error_of(reply: httpx.Response) -> tuple[int, dict[str, Any]]:
    """Return the code of an A2A error, and what its metadata says."""
    error = reply.json()["error"]
    return error["code"], error["data"][0]["metadata"]


def test_over_a2a_a_forbidden_call_is_403_and_says_so(home: Garden, folder: Path) -> None:
    reply = a2a(home, message(GOAL), **key_for(folder, "main", "read"))
    assert reply.status_code == 403
    assert error_of(reply) == (-32004, {"code": "forbidden", "status": "403"})


def test_over_a2a_a_conflict_is_told_apart_from_a_mistake(home: Garden) -> None:
    run = home.begin()
    home.wait(run, "complete")
    conflict = a2a(home, message("approve", taskId=run))
    assert conflict.status_code == 200
    assert error_of(conflict) == (-32004, {"code": "refused", "status": "409"})
    mistake = a2a(home, message("x" * 150_001))
    assert error_of(mistake) == (-32602, {"code": "invalid", "status": "422"})


def test_over_a2a_a_call_for_later_is_429_with_the_seconds(tmp_path: Path) -> None:
    limits = ServerLimits(runs=1, waiting=0)
    settings = settings_in(tmp_path / "data", teams=(team_in(tmp_path / "team"),), grace=0.2, limits=limits)
    with (
        running(settings, apis=door_apis()) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        home = Garden(server, client, tmp_path / "team")
        home.hold()
        home.tool_called(home.begin())
        reply = a2a(home, message(GOAL))
        with pytest.raises(DoorRefused, match="try again soon"):
            McpDoor(server.url, server.headers).call("run_team", team="garden", goal=GOAL)
        home.let_go()
    assert (reply.status_code, reply.headers["Retry-After"]) == (429, "1")
    assert error_of(reply) == (-32004, {"code": "overloaded", "status": "429", "retryAfter": "1"})


@pytest.mark.parametrize("path", ["/a2a/garden/nothing", "/ag-ui/garden/nothing", "/a2a/nobody", "/ag-ui/nobody"])
def test_a_path_that_is_not_there_is_a_problem_in_json(home: Garden, path: str) -> None:
    reply = home.client.post(path, json={})
    assert reply.status_code == 404
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert reply.json()["code"] in ("no_route", "unknown")


def test_a_method_that_is_not_there_is_a_problem_in_json(home: Garden) -> None:
    reply = home.client.get("/ag-ui/garden")
    assert (reply.status_code, reply.json()["code"]) == (405, "no_route")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (json.dumps(message("half a letter: \ud800")), -32700),
        ('{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": 5}}', -32602),
        ('{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": 5}', -32602),
        ("[]", -32600),
        ("{", -32700),
    ],
)
def test_over_a2a_a_broken_body_is_an_error_without_a_traceback(
    home: Garden, caplog: pytest.LogCaptureFixture, body: str, code: int
) -> None:
    with caplog.at_level(logging.WARNING):
        headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
        reply = home.client.post("/a2a/garden", content=body, headers=headers)
    assert reply.json()["error"]["code"] == code
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("path", ["/ag-ui/garden", "/mcp"])
def test_half_a_letter_is_refused_without_a_traceback(
    home: Garden, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    text = "half a letter: \ud800"
    bodies = {
        "/ag-ui/garden": {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": text}]},
        "/mcp": rpc("tools/call", name="run_team", arguments={"team": "garden", "goal": text}),
    }
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with caplog.at_level(logging.WARNING):
        reply = home.client.post(path, content=json.dumps(bodies[path]), headers=headers)
    assert reply.status_code in (200, 400, 422)
    assert not [record for record in caplog.records if record.exc_info]


def test_ag_ui_threads_and_runs_with_a_slash_are_different_runs(home: Garden) -> None:
    first = ag_ui(home, "a/b", "c")
    second = ag_ui(home, "a", "b/c")
    assert first.headers["X-Run-Id"] != second.headers["X-Run-Id"]


def test_a_key_with_another_request_is_refused_by_its_name_in_the_protocol(home: Garden) -> None:
    assert ag_ui(home, "th", "r-1").status_code == 200
    assert "this runId came before with another request" in ag_ui(home, "th", "r-1", "Sing.").json()["detail"]
    a2a(home, message(GOAL, messageId="m-9"))
    told = a2a(home, message("Sing.", messageId="m-9")).json()["error"]["message"]
    assert "this messageId came before with another request" in told
    tools = McpDoor(home.server.url, home.server.headers)
    tools.call("run_team", team="garden", goal=GOAL, key="k-1")
    with pytest.raises(DoorRefused, match="this key came before with another request; use a new key"):
        tools.call("run_team", team="garden", goal="Sing.", key="k-1")
