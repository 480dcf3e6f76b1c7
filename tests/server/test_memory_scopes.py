"""What one customer of a served team said does not reach the next, at any door."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers.proto_helpers import new_text_message
from a2a.types import a2a_pb2 as pb
from ag_ui.core import RunAgentInput
from ag_ui.core.types import UserMessage
from msgspec import structs

from chargehand import Memory, Plan, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.integrations.a2a_server import a2a_api
from chargehand.integrations.ag_ui import ag_ui_api
from chargehand.models.request_facts import Working
from tests.server.api import key_for
from tests.server.running import Running, running, settings_in

ANN = {"user": "ann"}
BOB = {"user": "bob"}


class Desk:
    """A served team whose only worker remembers, and what it was told of earlier tasks."""

    def __init__(self, server: Running, folder: Path, model: ScriptedModel) -> None:
        self.server = server
        self.folder = folder
        self._model = model
        self.http = httpx.Client(base_url=server.url, headers=server.headers, timeout=30)

    def ask(self, labels: dict[str, str], headers: dict[str, str] | None = None) -> str:
        body = {"team": "desk", "goal": "Do what is asked.", "labels": labels}
        return self._run(self.http.post("/api/runs", json=body, headers=headers))

    def post(self, path: str, body: dict[str, object]) -> str:
        return self._run(self.http.post(path, json=body))

    def _run(self, reply: httpx.Response) -> str:
        assert reply.status_code == 201, reply.text
        run: str = reply.json()["run"]
        with self.http.stream("GET", f"/api/runs/{run}/events") as events:
            for _ in events.iter_lines():
                pass
        return run

    @property
    def earlier(self) -> list[int]:
        """How many earlier turns each task was shown."""
        subjects = [request.subject for request in self._model.requests]
        return [len(subject.earlier) for subject in subjects if isinstance(subject, Working)]


def desk_team(model: ScriptedModel) -> Team:
    worker = Worker("agent", "answers customers", model=model, remembers=True)
    plan = Plan((Task("t1", "Do what is asked.", "agent"),), "forward")
    return Team([worker], supervisor=Supervisor(plan=plan), memory=Memory(), name="desk")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    model = ScriptedModel(lambda _: "Noted.")
    settings = settings_in(tmp_path / "data", teams=(desk_team(model),))
    with running(settings, apis=[ag_ui_api(), a2a_api()]) as server:
        served = Desk(server, tmp_path, model)
        with served.http:
            yield served


@pytest.mark.parametrize(
    ("unlocked", "words"),
    [(False, "others by the key of the caller"), (True, "others share one conversation, since no key is asked for")],
)
def test_a_served_team_says_once_whose_turns_are_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, unlocked: bool, words: str
) -> None:
    settings = settings_in(tmp_path / "data", teams=(desk_team(ScriptedModel([])),))
    if unlocked:
        settings = structs.replace(settings, token="", unlocked=True)
    headers = {} if unlocked else {"Authorization": f"Bearer {settings.token}"}
    with running(settings) as server, httpx.Client(base_url=server.url, headers=headers) as http:
        for _ in range(2):
            assert http.get("/api/teams").status_code == 200
    said = [record.getMessage() for record in caplog.records if "remembers earlier tasks" in record.getMessage()]
    assert said == [
        f"team desk: agent remembers earlier tasks; runs with a label `session` or `user` are kept apart by it, {words}"
    ]


def test_labels_keep_customers_apart_and_a_fork_stays_with_its_own(desk: Desk) -> None:
    first = desk.ask(ANN)
    desk.ask(BOB)
    desk.ask(ANN)
    desk.post(f"/api/runs/{first}/fork", {"again": ["t1"]})
    desk.ask({**BOB, "session": "s1"})
    assert desk.earlier == [0, 0, 2, 4, 0]


def test_without_labels_each_key_has_its_own(desk: Desk) -> None:
    other = key_for(desk.folder, "default")
    for headers, count in ((None, 0), (other, 0), (None, 2), (other, 2)):
        desk.ask({}, headers)
        assert desk.earlier[-1] == count


@pytest.mark.parametrize("door", ["chat", "responses"])
def test_the_user_of_an_openai_client_is_a_label(desk: Desk, door: str) -> None:
    def ask(**more: Any) -> None:
        with openai.OpenAI(base_url=f"{desk.server.url}/v1", api_key=desk.server.token, max_retries=0) as client:
            if door == "chat":
                told: Any = [{"role": "user", "content": "Do what is asked."}]
                client.chat.completions.create(model="team/desk", messages=told, **more)
            else:
                client.responses.create(model="team/desk", input="Do what is asked.", **more)

    calls: Sequence[tuple[dict[str, Any], int]] = (
        ({"user": "ann"}, 0),
        ({"user": "bob"}, 0),
        ({"safety_identifier": "ann"}, 2),
        ({"user": "ann", "metadata": {"session": "s1", "a:b": "no label", "long": "x" * 201}}, 0),
        ({"metadata": {"session": "s1"}, "user": "ann"}, 2),
        ({}, 0),
    )
    for more, count in calls:
        ask(**more)
        assert desk.earlier[-1] == count, more
    runs = desk.http.get("/api/runs").json()["runs"]
    assert runs[1]["labels"] == {"session": "s1", "user": "ann"}


def test_a_thread_of_ag_ui_is_a_conversation(desk: Desk) -> None:
    for number, (thread, count) in enumerate((("a", 0), ("b", 0), ("a", 2))):
        sent = RunAgentInput(
            thread_id=thread,
            run_id=f"r{number}",
            state={},
            messages=[UserMessage(id="1", role="user", content="Do what is asked.")],
            tools=[],
            context=[],
            forwarded_props={},
        )
        reply = desk.http.post("/ag-ui/desk", json=sent.model_dump(by_alias=True, exclude_none=True, mode="json"))
        assert reply.status_code == 200, reply.text
        assert desk.earlier[-1] == count


async def test_a_context_of_a2a_is_a_conversation(desk: Desk) -> None:
    async with httpx.AsyncClient(headers=desk.server.headers, timeout=30) as line:
        config = ClientConfig(streaming=False, httpx_client=line)
        async with await create_client(f"{desk.server.url}/a2a/desk", config) as client:
            for number, (context, count) in enumerate((("a", 0), ("b", 0), ("a", 2))):
                message = new_text_message("Do what is asked.", role=pb.ROLE_USER)
                message.message_id = f"m{number}"
                message.context_id = context
                assert [item async for item in client.send_message(pb.SendMessageRequest(message=message))]
                assert desk.earlier[-1] == count


def test_an_idempotency_key_with_another_user_is_refused(desk: Desk) -> None:
    body = {"model": "team/desk", "messages": [{"role": "user", "content": "Do what is asked."}]}
    statuses = [
        desk.http.post("/v1/chat/completions", json={**body, **more}, headers={"Idempotency-Key": "k"}).status_code
        for more in (ANN, ANN, BOB)
    ]
    assert statuses == [200, 200, 400]
    assert desk.earlier == [0]
