"""Real clients of two server processes on one database, behind a proxy that hands each call to the next of them."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import Letta
from openai import OpenAI

from tests.server.api import GOAL, team_in
from tests.server.model_server import Answer, Call, Question, fake_model
from tests.server.replicas import CLOSING, TOKEN, Replicas, replicas

TWO_SERVERS = "two servers are processes of their own, and many calls go through a proxy to both"


@pytest.fixture(params=["local", pytest.param("temporal", marks=pytest.mark.thorough)])
def engine(request: pytest.FixtureRequest) -> str:
    """Servers drive the runs of teams themselves, or a worker does. Messages to agents are driven by servers."""
    return "local" if request.param == "local" else request.getfixturevalue("temporal").url


def letta(url: str) -> Letta:
    return Letta(base_url=url, api_key=TOKEN, default_headers=CLOSING, timeout=90)


def soon(check: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.05)
    return found


def echo(question: Question) -> Answer:
    """Say what was asked last, after a moment."""
    return Answer(f"heard {question.user.splitlines()[-1]}", seconds=0.1)


def words(messages: Any) -> list[str]:
    return [str(one.content) for one in messages if one.message_type == "assistant_message"]


@pytest.mark.slow(TWO_SERVERS)
def test_a_letta_client_notices_nothing_of_two_servers(tmp_path: Path, postgres_store: str, engine: str) -> None:
    with (
        fake_model(echo) as model,
        replicas(tmp_path, postgres_store, engine=engine) as cluster,
        letta(cluster.url) as client,
    ):
        agent = client.agents.create(name="ada", model=model.handle).id
        _check_order(client, agent)
        _check_status_and_stream(client, agent)
        model.think = lambda _: Answer("late", seconds=30)
        _check_cancel(cluster, client, agent)
        model.think = _asks_leave
        _check_approval(client, agent)


def _check_order(client: Letta, agent: str) -> None:
    """What is sent after another message was acknowledged is answered after it; one message at a time."""
    sent = [f"message {number}" for number in range(6)]
    runs = [client.agents.messages.create_async(agent, input=text).id for text in sent]
    soon(lambda: all(client.runs.retrieve(run).status == "completed" for run in runs))
    said = list(client.agents.messages.list(agent, order="asc"))
    assert [str(getattr(one, "content", "")) for one in said] == [
        text for each in sent for text in (each, f"heard {each}")
    ], "no two answers overlapped, so each conversation is whole"
    assert [run.id for run in client.runs.list(agent_id=agent, order="asc")] == runs
    with ThreadPoolExecutor(6) as pool:
        at_once = [pool.submit(client.agents.messages.create, agent, input=f"at once {number}") for number in range(6)]
        answers = [words(each.result().messages) for each in at_once]
    assert answers == [[f"heard at once {number}"] for number in range(6)]


def _check_status_and_stream(client: Letta, agent: str) -> None:
    run = client.agents.messages.create_async(agent, input="in the background")
    assert client.runs.retrieve(run.id).agent_id == agent
    streamed = list(client.runs.messages.stream(run.id))
    assert words(streamed) == ["heard in the background"]
    stream = client.agents.messages.create(agent, input="as it comes", streaming=True, stream_tokens=True)
    assert "".join(words(stream)) == "heard as it comes"


def _check_cancel(cluster: Replicas, client: Letta, agent: str) -> None:
    run = client.agents.messages.create_async(agent, input="never mind").id
    soon(lambda: client.runs.retrieve(run).status == "running")
    for server in cluster.servers:
        assert server.client.get(f"/v1/runs/{run}").json()["status"] == "running"
    began = time.monotonic()
    assert client.agents.messages.cancel(agent, run_ids=[run]) == {run: "cancelled"}
    assert time.monotonic() - began < 20
    assert client.runs.retrieve(run).status == "cancelled"


def _asks_leave(question: Question) -> Answer:
    if question.results:
        return Answer(f"it said {question.results[-1]}")
    return Answer(calls=(Call("weigh", {"thing": "a goose"}),))


def _check_approval(client: Letta, agent: str) -> None:
    tool: Any = {"name": "weigh", "description": "Weigh a thing.", "parameters": _WEIGH}
    for weight in ("5 kg", "6 kg"):  # either server asks
        asked = client.agents.messages.create(agent, input=f"How heavy is it, not {weight}?", client_tools=[tool])
        assert asked.stop_reason.stop_reason == "requires_approval"
        request: Any = next(one for one in asked.messages if one.message_type == "approval_request_message")
        returned = {"tool_call_id": request.tool_call.tool_call_id, "tool_return": weight, "status": "success"}
        verdict: Any = {"type": "tool_return", "tool_returns": [returned]}
        answered = client.agents.messages.create(agent, messages=[verdict], client_tools=[tool])
        assert any(weight in text for text in words(answered.messages))
        for _ in range(2):  # sent again, as a client does that got no reply: either server knows them
            again = client.agents.messages.create(
                agent,
                messages=[verdict],
                client_tools=[tool],
                extra_headers={"x-stainless-retry-count": "1"},
            )
            assert words(again.messages) == words(answered.messages)


_WEIGH = {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]}


@pytest.mark.slow(TWO_SERVERS)
def test_openai_and_own_clients_notice_nothing_of_two_servers(tmp_path: Path, postgres_store: str, engine: str) -> None:
    team = team_in(tmp_path / "team")
    with replicas(tmp_path, postgres_store, "--team", str(team), engine=engine) as cluster:
        client = OpenAI(base_url=f"{cluster.url}/v1", api_key=TOKEN, default_headers=CLOSING, timeout=90)
        first = client.responses.create(model="garden", input=GOAL)
        assert "48.00 euros" in first.output_text
        assert client.responses.retrieve(first.id).output_text == first.output_text
        chunks = client.chat.completions.create(
            model="garden", messages=[{"role": "user", "content": GOAL}], stream=True
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert "48.00 euros" in text
        held = team.parent / "held"
        held.touch()
        slow = client.responses.create(model="garden", input=GOAL, background=True)
        run = slow.id.removeprefix("resp_")
        for server in cluster.servers:
            assert server.client.get(f"/api/runs/{run}").json()["summary"]["state"] == "running"
        soon(lambda: "seedling_price" in cluster.servers[0].client.get(f"/api/runs/{run}/entries").text)
        assert client.responses.cancel(slow.id).status == "cancelled"
        _check_cancel_time(cluster)
        held.unlink()
        _check_one_key(cluster)


def _check_cancel_time(cluster: Replicas) -> None:
    """Runs that one server drives are cancelled through the other, and it says so when that is on disk."""
    driver, other = cluster.servers
    took: list[float] = []
    for _ in range(5):
        run = driver.client.post("/api/runs", json={"team": "garden", "goal": GOAL}).json()["run"]
        soon(lambda run=run: "seedling_price" in driver.client.get(f"/api/runs/{run}/entries").text)
        began = time.monotonic()
        reply = other.client.post(f"/api/runs/{run}/cancel", json={})
        took.append(time.monotonic() - began)
        assert reply.status_code == 200, reply.text
        soon(lambda run=run: driver.client.get(f"/api/runs/{run}").json()["summary"]["state"] == "cancelled")
    assert min(took) < 2.0, took


def _check_one_key(cluster: Replicas) -> None:
    body = {"team": "garden", "goal": GOAL}
    before = len(cluster.runs())

    def begin(client: httpx.Client) -> str:
        reply = client.post("/api/runs", json=body, headers={"Idempotency-Key": "once"})
        assert reply.status_code == 201, reply.text
        return str(reply.json()["run"])

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(begin, [server.client for server in cluster.servers] * 2))
    assert len(set(runs)) == 1
    assert len(cluster.runs()) == before + 1


@pytest.mark.slow(TWO_SERVERS)
def test_a_message_whose_server_dies_is_answered_through_the_other(
    tmp_path: Path, postgres_store: str, engine: str
) -> None:
    """The client that waits for it, and those whose messages wait behind it, are served by the one that lives."""
    dead = threading.Event()

    def think(question: Question) -> Answer:
        return echo(question) if dead.is_set() else Answer("of a dead server", seconds=60)

    with fake_model(think) as model, replicas(tmp_path, postgres_store, engine=engine) as cluster:
        dying, living = cluster.servers
        with letta(living.url) as client, ThreadPoolExecutor(2) as pool:
            agent = client.agents.create(name="ada", model=model.handle).id
            body = {"messages": [{"role": "user", "content": "first"}]}
            run = dying.client.post(f"/v1/agents/{agent}/messages/async", json=body).json()["id"]
            soon(lambda: model.questions)
            behind = pool.submit(client.agents.messages.create, agent, input="second")
            soon(lambda: len(cluster.runs()) == 2)
            dead.set()
            dying.kill()
            assert words(behind.result(90).messages) == ["heard second"]
            assert client.runs.retrieve(run).status == "completed"
            said = [str(getattr(one, "content", "")) for one in client.agents.messages.list(agent, order="asc")]
            assert said == ["first", "heard first", "second", "heard second"]
