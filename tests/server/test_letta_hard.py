"""Messages under hard conditions: secrets, long lines before one agent, and calls that are sent again all at once."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from letta_client import ConflictError, Letta

from chargehand.server.settings import ServerLimits
from tests.server.model_server import Answer, Call, Question, fake_model
from tests.server.running import Running, running, settings_in
from tests.server.test_letta_messages import Desk, soon, words

ONE = "send_message_to_agent_and_wait_for_reply"
SECRET = "correct-horse-battery-7"
LEAK = '''
def leak(which: str) -> str:
    """Show a passphrase.

    Args:
        which: the one that is meant
    """
    print("correct-horse" + "-battery-7")
    return "it is " + "correct-horse" + "-battery-7"
'''


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    limits = ServerLimits(runs=4, waiting=20)
    with (
        fake_model(lambda _: "yes") as model,
        running(settings_in(tmp_path, pulse=0.3, limits=limits, secrets=(SECRET,), custom_tools=True)) as one,
        Letta(base_url=one.url, api_key=one.token, max_retries=0) as client,
    ):
        yield Desk(one, client, model)


def post(server: Running, path: str, body: object, **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, headers={**server.headers, **headers}, timeout=30)


async def all_at_once(server: Running, path: str, body: object, times: int) -> list[httpx.Response]:
    """Each a retry but the first, as a client would send them, over connections that are open already."""
    async with (
        httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=30) as client,
        asyncio.TaskGroup() as jobs,
    ):
        async with asyncio.TaskGroup() as first:
            for _ in range(times):
                first.create_task(client.get("/healthz"))
        sent = [
            jobs.create_task(client.post(path, json=body, headers={"x-stainless-retry-count": str(number)}))
            for number in range(times)
        ]
    return [one.result() for one in sent]


# --- secrets


def test_a_secret_that_a_tool_prints_reaches_no_file_no_reply_and_no_other_agent(desk: Desk, tmp_path: Path) -> None:
    leak = desk.client.tools.create(source_code=LEAK)
    other = desk.agent("other", system="You are the other.")
    agent = desk.agent(
        "ada",
        tool_ids=[leak.id],
        tools=[ONE, "memory_insert"],
        memory_blocks=[{"label": "human", "value": "nothing yet"}],
    )

    def thinks(asked: Question) -> Answer:
        if "You are the other." in asked.system:
            return Answer(f"I know {SECRET}, too")
        if not asked.results:
            return Answer(calls=(Call("leak", {"which": "mine"}),))
        if len(asked.results) == 1:
            told = Call(ONE, {"message": f"keep {SECRET}", "other_agent_id": other})
            kept = Call("memory_insert", {"label": "human", "new_string": SECRET})
            return Answer(f"I say {SECRET}", calls=(told, kept))
        return Answer(f"It was {SECRET}: {asked.results[-2]}")

    desk.model.think = thinks
    said = post(desk.server, f"/v1/agents/{agent}/messages", {"input": f"Mine is {SECRET}"}).text
    streamed = post(desk.server, f"/v1/agents/{agent}/messages/stream", {"input": "Go", "stream_tokens": True}).text
    assert "[redacted]" in said
    assert "it is [redacted]" in said
    assert "I know [redacted], too" in said, "agents still reach each other"
    assert "data: [DONE]" in streamed
    runs = [one.id for one in desk.client.runs.list()]
    paths = ["/v1/messages", "/v1/runs", f"/v1/agents/{agent}/core-memory/blocks/human"]
    read = [httpx.get(desk.server.url + path, headers=desk.server.headers).text for path in paths]
    read += [httpx.get(f"{desk.server.url}/v1/runs/{run}/trace", headers=desk.server.headers).text for run in runs]
    assert len(runs) == 4
    assert [text for text in (said, streamed, *read) if SECRET in text] == []
    assert [one for one in desk.model.questions if SECRET in str(one.messages)] == []
    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert [one.name for one in files if SECRET.encode() in one.read_bytes()] == []


# --- a line before one agent


def test_messages_that_wait_for_one_busy_agent_keep_nobody_else_waiting(desk: Desk) -> None:
    free = threading.Event()
    busy = desk.agent("busy", system="You are slow.")
    other = desk.agent("other")

    def thinks(asked: Question) -> Answer:
        if "You are slow." in asked.system:
            free.wait(20)
        return Answer("yes")

    desk.model.think = thinks
    path = f"/v1/agents/{busy}/messages/async"
    try:
        sent = [post(desk.server, path, {"input": f"number {number}"}) for number in range(14)]
        began = time.monotonic()
        assert words(desk.say(other, "Are you there?")) == ["yes"]
        assert time.monotonic() - began < 12, "it needed one of the four places"
    finally:
        free.set()
    assert [one.status_code for one in sent] == [200] * 11 + [429] * 3, "half of those who may wait, and the first"
    assert sent[-1].json()["code"] == "busy"
    runs = [one.json()["id"] for one in sent[:11]]
    soon(lambda: [desk.client.runs.retrieve(run).status for run in runs] == ["completed"] * 11, 20)
    told = [text for kind, text in desk.listed(busy) if kind == "user_message"]
    assert told == [f"number {number}" for number in range(11)]


def test_a_talk_can_be_cancelled_and_nothing_else_through_our_own_api_which_shows_no_notes_of_this_door(
    desk: Desk,
) -> None:
    desk.model.think = lambda _: Answer("too late", seconds=20.0)
    agent = desk.agent()
    run = post(desk.server, f"/v1/agents/{agent}/messages/async", {"input": "x"}).json()["id"]
    soon(lambda: len(desk.model.questions) == 1)
    shown = httpx.get(f"{desk.server.url}/api/runs/{run}", headers=desk.server.headers).json()
    assert (shown["summary"]["state"], shown["notes"]) == ("running", [])
    start = time.monotonic()
    paused = post(desk.server, f"/api/runs/{run}/pause", {})
    assert (paused.status_code, "talk with an agent" in paused.text) == (409, True)
    assert post(desk.server, f"/api/runs/{run}/cancel", {"reason": "not needed"}).status_code == 200
    soon(lambda: desk.client.runs.retrieve(run).status == "cancelled")
    assert time.monotonic() - start < 12.0, "it waited for the model"
    desk.model.think = lambda _: "I am here"
    assert words(desk.say(agent, "Are you there?")) == ["I am here"]


def test_what_waits_in_line_can_be_cancelled_and_gives_back_no_place_it_has_not(desk: Desk) -> None:
    free = threading.Event()

    def thinks(_question: Question) -> str:
        free.wait(20)
        return "yes"

    desk.model.think = thinks
    agent = desk.agent()
    runs = [post(desk.server, f"/v1/agents/{agent}/messages/async", {"input": "x"}).json()["id"] for _ in range(6)]
    cancelled = desk.client.agents.messages.cancel(agent, run_ids=runs[2:])
    assert set(cancelled.values()) == {"cancelled"}
    free.set()
    soon(lambda: desk.client.runs.retrieve(runs[1]).status == "completed")
    soon(lambda: _ready(desk.server)["runs"] == 0)
    free.clear()
    slow = [desk.agent(f"slow {number}") for number in range(6)]
    callers = [threading.Thread(target=desk.say, args=(one, "x")) for one in slow]
    for one in callers:
        one.start()
    try:
        soon(lambda: _ready(desk.server)["waiting"] == 2)  # four places, as before
    finally:
        free.set()
    for one in callers:
        one.join(20)
    soon(lambda: _ready(desk.server)["runs"] == 0)


def _ready(server: Running) -> dict[str, int]:
    return httpx.get(f"{server.url}/readyz", headers=server.headers).json()


def test_a_reader_who_follows_a_list_misses_nothing_that_waited_in_line(desk: Desk) -> None:
    desk.model.think = lambda _: Answer("yes", seconds=0.05)
    agent = desk.agent()
    for number in range(4):
        post(desk.server, f"/v1/agents/{agent}/messages/async", {"input": f"number {number}"})
    seen: list[str] = []
    last: str | None = None
    until = time.monotonic() + 20
    while len(seen) < 8 and time.monotonic() < until:
        for one in desk.client.agents.messages.list(agent, order="asc", after=last, limit=50).items:
            last = one.id
            seen.append(one.message_type or "")
        time.sleep(0.02)
    assert seen == ["user_message", "assistant_message"] * 4


# --- the same call, again


def test_other_words_under_a_known_mark_are_refused_and_not_lost(desk: Desk) -> None:
    agent = desk.agent()
    first = desk.client.agents.messages.create(agent, messages=[{"role": "user", "content": "one", "otid": "m-1"}])
    again = desk.client.agents.messages.create(agent, messages=[{"role": "user", "content": "one", "otid": "m-1"}])
    assert [one.id for one in first.messages] == [one.id for one in again.messages]
    with pytest.raises(ConflictError) as caught:
        desk.client.agents.messages.create(agent, messages=[{"role": "user", "content": "two", "otid": "m-1"}])
    assert "other words" in str(caught.value)


def test_a_verdict_that_is_sent_many_times_at_once_is_heard_once_and_answered_each_time(desk: Desk) -> None:
    desk.model.think = lambda asked: (
        Answer("done", seconds=0.2) if asked.results else Answer(calls=(Call("conversation_search", {"query": "x"}),))
    )
    rule = {"type": "requires_approval", "tool_name": "conversation_search"}
    agent = desk.agent(tools=["conversation_search"], tool_rules=[rule])
    request = desk.say(agent, "Search").messages[-1]
    assert request.message_type == "approval_request_message"
    verdict = {"messages": [{"type": "approval", "approve": True, "approval_request_id": request.id}]}
    replies = asyncio.run(all_at_once(desk.server, f"/v1/agents/{agent}/messages", verdict, 6))
    good = [one.json()["messages"] for one in replies if one.status_code == 200]
    assert len(good) >= 5, "only the one that does not say it is a retry may come too late"
    assert all([one["message_type"] for one in each] == ["tool_return_message", "assistant_message"] for each in good)
    assert [kind for kind, _ in desk.listed(agent)].count("approval_response_message") == 1
    assert words(desk.say(agent, "Search again")) == []  # it asks again: nobody stands in its way
    desk.client.agents.messages.cancel(agent)


# --- words as they come


def test_words_before_a_call_end_as_what_lists_have_them_as(desk: Desk) -> None:
    desk.model.think = lambda asked: (
        Answer("it is done")
        if asked.results
        else Answer("I look first", calls=(Call("conversation_search", {"query": "x"}),))
    )
    agent = desk.agent(tools=["conversation_search"])
    body = post(desk.server, f"/v1/agents/{agent}/messages/stream", {"input": "Go", "stream_tokens": True}).text
    told = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    last = {one["id"]: one["message_type"] for one in told if "id" in one}
    listed = [one for one in desk.client.agents.messages.list(agent, order="asc") if one.message_type != "user_message"]
    assert list(last.items()) == [(one.id, one.message_type) for one in listed]
    assert [one["reasoning"] for one in told if one["message_type"] == "reasoning_message"] == ["I look first"]
