"""Teams as A2A agents, with the real client of the SDK over real sockets."""

import asyncio
import re
import socket
import time
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.client.errors import A2AClientError
from a2a.helpers.proto_helpers import get_artifact_text, get_data_parts, get_message_text, new_text_message
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError

from chargehand import MemoryJournal, Plan, Policy, Retry, Supervisor, Task, Team, Worker
from chargehand.engine.plan import TaskId
from chargehand.errors import Invalid
from chargehand.integrations.a2a_server import a2a_api
from chargehand.integrations.a2a_worker import RemoteAgent, from_a2a
from tests.cli.commands import python
from tests.integrations.serving import Process, importable, painters, payers, process
from tests.server.api import GOAL, Garden, key_for, team_in
from tests.server.running import running, settings_in


@contextmanager
def served(folder: Path, *more: str) -> Generator[Garden]:
    if not (folder / "team").exists():
        team_in(folder / "team")
    settings = settings_in(folder / "data", teams=(folder / "team" / "team.yaml", *more), grace=0.2)
    with (
        running(settings, apis=[a2a_api()]) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield Garden(server, client, folder / "team")


@asynccontextmanager
async def agent(
    home: Garden, *, streaming: bool = False, headers: Any = None, team: str = "garden"
) -> AsyncGenerator[Client]:
    async with httpx.AsyncClient(headers=headers or home.server.headers, timeout=60) as line:
        config = ClientConfig(streaming=streaming, httpx_client=line)
        async with await create_client(f"{home.server.url}/a2a/{team}", config) as client:
            yield client


def request(text: str, *, task: str = "", context: str = "", message: str = "") -> pb.SendMessageRequest:
    sent = new_text_message(text, role=pb.ROLE_USER)
    sent.message_id = message or uuid.uuid4().hex
    sent.task_id = task
    sent.context_id = context
    return pb.SendMessageRequest(message=sent)


async def sent(client: Client, wanted: pb.SendMessageRequest) -> list[pb.StreamResponse]:
    return [item async for item in client.send_message(wanted)]


async def subscribed(home: Garden, client: Client, task: str) -> list[pb.StreamResponse]:
    """What is told of a task whose tool is let go once it is listened to."""
    items: list[pb.StreamResponse] = []
    async for item in client.subscribe(pb.SubscribeToTaskRequest(id=task)):
        if not items:
            home.let_go()
        items.append(item)
    return items


def state_of(item: pb.StreamResponse) -> pb.TaskState:
    """What an item of a stream says of its task. One that has ended by then is told whole."""
    return item.task.status.state if item.HasField("task") else item.status_update.status.state


def answer_of(task: pb.Task) -> str:
    return next(get_artifact_text(artifact) for artifact in task.artifacts if artifact.name == "answer")


async def test_a_message_is_a_run_and_its_answer_an_artifact(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        async with agent(home) as client:
            (reply,) = await sent(client, request(GOAL, context="talk-7"))
            assert reply.task.status.state == pb.TASK_STATE_COMPLETED
            assert "48.00 euros" in answer_of(reply.task)
            assert reply.task.context_id == "talk-7"
            again = await client.get_task(pb.GetTaskRequest(id=reply.task.id))
            assert again == reply.task, "it is read from the journal both times"
            listed = await client.list_tasks(pb.ListTasksRequest(context_id="talk-7"))
            assert [task.id for task in listed.tasks] == [reply.task.id]
            assert not (await client.list_tasks(pb.ListTasksRequest(context_id="talk-8"))).tasks
        assert home.show(reply.task.id)["summary"]["state"] == "complete"  # pyright: ignore[reportIndexIssue] - JSON


async def test_the_same_message_sent_twice_is_one_run(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        async with agent(home) as client:
            (first,) = await sent(client, request(GOAL, message="m-1"))
            (second,) = await sent(client, request(GOAL, message="m-1"))
            assert first.task.id == second.task.id
        assert len(home.client.get("/api/runs").json()["runs"]) == 1


async def test_a_stream_tells_the_progress_then_the_artifacts_then_the_end(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        home.hold()
        async with agent(home, streaming=True) as client:
            items: list[pb.StreamResponse] = []
            async for item in client.send_message(request(GOAL, message="m-1")):
                items.append(item)
                if "started" in get_message_text(item.status_update.status.message):
                    home.let_go()
            (again,) = await sent(client, request(GOAL, message="m-1"))
        assert again.task.status.state == pb.TASK_STATE_COMPLETED, "what has ended does not work again"
        kinds = [item.WhichOneof("payload") for item in items]
        assert kinds[0] == "task"
        assert kinds[-3:] == ["artifact_update", "artifact_update", "status_update"]
        told = [get_message_text(item.status_update.status.message) for item in items if item.HasField("status_update")]
        assert any(line.startswith("t1 started") for line in told)
        assert state_of(items[-1]) == pb.TASK_STATE_COMPLETED
        (plan,) = [item.artifact_update.artifact for item in items if item.artifact_update.artifact.name == "plan"]
        assert get_data_parts(plan.parts)[0]["tasks"][0]["id"] == "t1"


async def test_a_plan_to_approve_asks_and_the_answer_goes_on_in_the_same_task(tmp_path: Path) -> None:
    team = team_in(tmp_path / "team")
    team.write_text(f"{team.read_text()}policy: {{approve: true}}\n")
    with served(tmp_path) as home:
        async with agent(home, streaming=True) as client:
            asked = (await sent(client, request(GOAL)))[-1].status_update
            assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED
            assert "a person must agree to this plan" in get_message_text(asked.status.message)
            with pytest.raises((A2AError, A2AClientError), match='say "approve", "reject"'):
                await sent(client, request("perhaps", task=asked.task_id))
            items = await sent(client, request("approve", task=asked.task_id))
            assert state_of(items[-1]) == pb.TASK_STATE_COMPLETED
            assert {
                item.task.id or item.status_update.task_id for item in items if not item.HasField("artifact_update")
            } == {asked.task_id}
            with pytest.raises((A2AError, A2AClientError), match="asks nothing"):
                await sent(client, request("approve", task=asked.task_id))


@pytest.mark.parametrize(
    ("team", "asked", "wrong", "answer", "outcome"),
    [
        ("painters", "Which colour? (red, blue)", "green", "red", "It is red."),
        ("payers", 'pay({"invoice": 17})', "perhaps", "approve", "paid"),
    ],
)
async def test_questions_and_calls_are_put_to_the_client_and_answered(
    team: str, asked: str, wrong: str, answer: str, outcome: str, tmp_path: Path
) -> None:
    teams = importable("a2a_teams", painters=painters(), payers=payers())
    with served(tmp_path, *teams) as home:
        async with agent(home, streaming=True, team=team) as client:
            last = (await sent(client, request("Go.")))[-1].status_update
            assert last.status.state == pb.TASK_STATE_INPUT_REQUIRED
            assert asked in get_message_text(last.status.message)
            with pytest.raises((A2AError, A2AClientError), match=r'one of|say "approve"'):
                await sent(client, request(wrong, task=last.task_id))
            items = await sent(client, request(answer, task=last.task_id))
            assert state_of(items[-1]) == pb.TASK_STATE_COMPLETED
            task = await client.get_task(pb.GetTaskRequest(id=last.task_id))
            assert outcome in answer_of(task)


async def test_after_kill_9_in_the_middle_of_a_stream_the_same_task_goes_on(tmp_path: Path) -> None:
    team_in(tmp_path / "team")
    task = ""
    with process(tmp_path, "a2a_server") as (server, home):
        home.hold()
        async with agent(home, streaming=True) as client:
            with suppress(A2AClientError):
                async for item in client.send_message(request(GOAL, message="m-1")):
                    task = item.task.id or task
                    if "started" in get_message_text(item.status_update.status.message):
                        server.kill()
    with process(tmp_path, "a2a_server") as (_, home):
        async with agent(home, streaming=True) as client:
            items = await subscribed(home, client, task)
            assert items[0].task.id == task
            assert state_of(items[-1]) == pb.TASK_STATE_COMPLETED
            (again,) = await sent(client, request(GOAL, message="m-1"))
            assert again.task.id == task
            assert "48.00 euros" in answer_of(again.task)
        assert [run["run"] for run in home.client.get("/api/runs").json()["runs"]] == [task]


async def test_a_task_is_cancelled_once(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        home.hold()
        run = home.begin()
        async with agent(home) as client:
            home.tool_called(run)
            task = await client.cancel_task(pb.CancelTaskRequest(id=run))
            home.let_go()
            assert task.status.state == pb.TASK_STATE_CANCELED
            with pytest.raises((A2AError, A2AClientError), match="ended"):
                await client.cancel_task(pb.CancelTaskRequest(id=run))


async def test_a_task_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        home.hold()
        run = home.begin()
        home.tool_called(run)
    with served(tmp_path) as home:
        async with agent(home, streaming=True) as client:
            items = await subscribed(home, client, run)
            assert state_of(items[-1]) == pb.TASK_STATE_COMPLETED
            task = await client.get_task(pb.GetTaskRequest(id=run))
            assert "48.00 euros" in answer_of(task)


async def test_what_is_not_there_or_not_allowed_is_said_in_the_words_of_the_protocol(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        async with agent(home) as client:
            with pytest.raises((A2AError, A2AClientError), match="no-such-run"):
                await client.get_task(pb.GetTaskRequest(id="no-such-run"))
            with pytest.raises((A2AError, A2AClientError), match="no text"):
                await sent(client, request(" "))
            for page in (pb.ListTasksRequest(page_token="9" * 40), pb.ListTasksRequest(page_size=-1)):
                with pytest.raises((A2AError, A2AClientError), match=r"before|limit"):
                    await client.list_tasks(page)
            other = key_for(tmp_path, "other")
            (reply,) = await sent(client, request(GOAL))
        async with agent(home, headers=other) as stranger:
            with pytest.raises((A2AError, A2AClientError), match=reply.task.id):
                await stranger.get_task(pb.GetTaskRequest(id=reply.task.id))
        async with httpx.AsyncClient(base_url=home.server.url) as nobody:
            assert (await nobody.get("/a2a/garden/.well-known/agent-card.json")).status_code == 401
        assert home.client.get("/a2a/gardens/.well-known/agent-card.json").status_code == 404


# --- a remote agent as a worker


def worker_of(home: Garden, **more: Any) -> Worker:
    headers = home.server.headers
    return from_a2a("gardener", f"{home.server.url}/a2a/garden", headers=headers, effect="idempotent", **more)


def asking(worker: Worker, journal: MemoryJournal | None = None) -> Team:
    plan = Plan((Task(TaskId("t1"), GOAL, "gardener"),), "forward")
    policy = Policy(retry=Retry(base=0.01))
    return Team([worker], supervisor=Supervisor(plan=plan), journal=journal, policy=policy)


async def test_a_remote_agent_does_a_task_of_a_team(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        result = await asking(worker_of(home)).run("Ask the garden.")
        assert result.ending == "complete"
        assert "48.00 euros" in str(result.answer)
        assert len(home.client.get("/api/runs").json()["runs"]) == 1


def calls_of_a2a(home: Garden) -> float:
    counts = r'^chargehand_http_requests_total\{api="a2a",status="200"\} (.+)$'
    return sum(map(float, re.findall(counts, home.client.get("/metrics").text, re.MULTILINE)))


def restart_at_work(folder: Path, server: Process, home: Garden, port: int) -> Process:
    """Kill the server while it works for somebody who asks after the task, and start it again."""
    deadline = time.monotonic() + 30
    while calls_of_a2a(home) < 3 and time.monotonic() < deadline:  # for the card, with the message, after the task
        time.sleep(0.02)
    runs: list[dict[str, Any]] = home.client.get("/api/runs").json()["runs"]
    home.tool_called(runs[0]["run"])
    server.kill()
    with socket.create_server(("127.0.0.1", port)) as outage:
        outage.accept()[0].close()  # it asks while nobody answers
    restarted = Process(folder, "a2a_server", port=port)
    home.let_go()
    return restarted


@pytest.mark.parametrize("effect", ["idempotent", "effect"])
async def test_a_task_outlives_kill_9_of_its_remote_agent(
    effect: Literal["idempotent", "effect"], tmp_path: Path
) -> None:
    team_in(tmp_path / "team")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with process(tmp_path, "a2a_server", port=port) as (server, home):
        home.hold()
        remote = RemoteAgent(f"{server.url}/a2a/garden", server.headers, effect, longest_pause=0.1)
        worker = Worker("gardener", "gardens", call=remote, timeout=60.0)
        async with asyncio.TaskGroup() as jobs:
            job = jobs.create_task(asking(worker).run("Ask the garden."))
            restarted = await asyncio.to_thread(restart_at_work, tmp_path, server, home, port)
        restarted.close()
    result = job.result()
    assert result.ending == "complete"
    assert "48.00 euros" in str(result.answer)
    assert len(result.trace().tasks[0].attempts) == 1


async def test_what_a_remote_agent_asks_is_asked_of_the_person(tmp_path: Path) -> None:
    team = team_in(tmp_path / "team")
    team.write_text(f"{team.read_text()}policy: {{approve: true}}\n")
    with served(tmp_path) as home:
        local = asking(worker_of(home), MemoryJournal())
        waiting = await local.run("Ask the garden.")
        assert waiting.ending == "needs_input"
        assert waiting.question is not None
        assert "a person must agree to this plan" in waiting.question.text
        result = await local.resume(waiting.run, "approve")
        assert "48.00 euros" in str(result.answer)
        assert len(home.client.get("/api/runs").json()["runs"]) == 1, "the task went on, and was not begun again"


async def test_a_cancelled_attempt_cancels_the_remote_task(tmp_path: Path) -> None:
    with served(tmp_path) as home:
        home.hold()
        result = await asking(worker_of(home, timeout=0.8)).run("Ask the garden.")
        runs: list[dict[str, Any]] = home.client.get("/api/runs").json()["runs"]
        home.let_go()
        assert result.ending == "failed"
        assert {run["state"] for run in runs} == {"cancelled"}


async def test_an_agent_that_is_not_there_is_a_failure_of_the_network() -> None:
    worker = from_a2a("gardener", "http://127.0.0.1:9/a2a/garden")
    result = await asking(worker).run("Ask the garden.")
    assert result.ending == "failed"
    assert result.gaps[0].reason == "network"


@pytest.mark.parametrize(
    ("path", "headers", "words"),
    [
        ("garden", {}, "answered 401: give its worker a key that the agent takes: headers={'Authorization'"),
        ("nobody", None, "answered 404: there is no agent; url is where its card is"),
    ],
)
async def test_what_a_declaration_lacks_is_told_where_the_agent_refuses(
    path: str, headers: dict[str, str] | None, words: str, tmp_path: Path
) -> None:
    with served(tmp_path) as home:
        sent_headers = home.server.headers if headers is None else headers
        worker = from_a2a("gardener", f"{home.server.url}/a2a/{path}", headers=sent_headers)
        result = await asking(worker).run("Ask the garden.")
    assert result.ending == "failed"
    assert words in result.gaps[0].message
    assert "Put right what the worker says" in str(result.answer)


def test_a_url_without_a_scheme_is_refused_where_the_worker_is_declared() -> None:
    with pytest.raises(Invalid, match=r"url is '127\.0\.0\.1:8283/a2a/garden'; write the whole of it"):
        from_a2a("gardener", "127.0.0.1:8283/a2a/garden")


@pytest.mark.parametrize("module", ["a2a_server", "a2a_worker"])
def test_without_the_extra_one_line_names_it(module: str, tmp_path: Path) -> None:
    program = f"""
import sys
for name in [name for name in sys.modules if name.startswith(("a2a", "chargehand.integrations.a2a_"))]:
    del sys.modules[name]
sys.modules["a2a"] = None
from chargehand.config.python_objects import installed_object
from chargehand.errors import Invalid
try:
    installed_object("chargehand.integrations.{module}:api")
except Invalid as error:
    print(error)
"""
    shown = python(tmp_path, program)
    assert "which is not here: pip install" in shown.stdout
    assert "a2a]" in shown.stdout
