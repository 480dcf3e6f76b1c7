"""Runs of agents, with the real client: listed, followed, and gone on with after a restart."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest
from letta_client import Letta, NotFoundError

from tests.server.api import garden, new_tenant
from tests.server.model_server import Answer, Call, Question, fake_model
from tests.server.running import Running, running, settings_in
from tests.server.test_letta_messages import Desk, soon, words

ONE = "send_message_to_agent_and_wait_for_reply"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("desk")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    with running(settings_in(folder / "data", grace=0.1)) as server:
        yield server


@pytest.fixture
def desk(server: Running, folder: Path) -> Iterator[Desk]:
    """A tenant and a model of its own, on the server of all tests of the module."""
    tenant = new_tenant(server, folder)
    with fake_model(lambda _: "yes") as model, Letta(base_url=tenant.url, api_key=tenant.token) as client:
        yield Desk(tenant, client, model)


def _searching(asked: Question) -> Answer:
    return Answer("done") if asked.results else Answer(calls=(Call("conversation_search", {"query": "x"}),))


def test_a_run_in_the_background_can_be_watched_to_its_end(desk: Desk) -> None:
    free = threading.Event()

    def thinks(_question: Question) -> str:
        free.wait(20)
        return "done"

    desk.model.think = thinks
    agent = desk.agent()
    run = desk.client.agents.messages.create_async(agent, messages=[{"role": "user", "content": "Go"}])
    assert (run.agent_id, run.background) == (agent, True)
    assert run.status in ("created", "running")
    assert [one.id for one in desk.client.runs.list(active=True)] == [run.id]
    time.sleep(0.1)
    free.set()
    soon(lambda: desk.client.runs.retrieve(run.id).status == "completed")
    ended = desk.client.runs.retrieve(run.id)
    assert ended.stop_reason == "end_turn"
    assert (ended.total_duration_ns or 0) > 0.1e9
    assert list(desk.client.runs.list(active=True)) == []
    assert [one.message_type for one in desk.client.runs.messages.list(run.id)] == ["user_message", "assistant_message"]


def test_runs_are_listed_by_agent_and_state_and_the_list_ends(desk: Desk) -> None:
    one = desk.agent("one")
    other = desk.agent("two")
    for _ in range(5):
        desk.say(one, "Hello")
    desk.model.think = lambda _: Answer(status=401)
    desk.say(other, "Hello")
    runs = [each.id for each in desk.client.runs.list(agent_id=one, limit=2)]
    assert len(runs) == len(set(runs)) == 5
    assert [each.id for each in desk.client.runs.list(agent_id=one, limit=2, order="asc")] == runs[::-1]
    failed = desk.client.runs.list(statuses=["failed"]).items
    assert [each.agent_id for each in failed] == [other]
    with pytest.raises(NotFoundError):
        desk.client.runs.retrieve("run-00000000-0000-4000-8000-000000000000")


def test_a_run_tells_what_it_used(desk: Desk) -> None:
    desk.model.think = lambda _: Answer("Well.", usage=(22, 14), details=(9, 8, 5))
    answer = desk.say(desk.agent(), "Go")
    run = (answer.usage.run_ids or [""])[0]
    usage = desk.client.runs.usage.retrieve(run)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (22, 14, 36)
    read = usage.prompt_tokens_details
    written = usage.completion_tokens_details
    assert read is not None
    assert written is not None
    assert (read.cached_tokens, read.cache_read_tokens, read.cache_creation_tokens) == (9, 9, 8)
    assert written.reasoning_tokens == 5
    counted = (answer.usage.cached_input_tokens, answer.usage.cache_write_tokens, answer.usage.reasoning_tokens)
    assert counted == (9, 8, 5)


def test_a_stream_can_be_taken_up_where_it_was_left(desk: Desk) -> None:
    desk.model.think = _searching
    answer = desk.say(desk.agent(), "Go")
    run = (answer.usage.run_ids or [""])[0]
    everything = list(desk.client.runs.messages.stream(run))
    kinds = [one.message_type for one in everything]
    assert kinds == [
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
    ]
    seen = cast("int", everything[0].seq_id)  # pyright: ignore[reportAttributeAccessIssue] - not all of them have one
    rest = list(desk.client.runs.messages.stream(run, starting_after=seen))
    assert [one.message_type for one in rest] == kinds[1:]


def test_a_worker_that_was_asked_has_a_run_of_its_own(desk: Desk) -> None:
    worker = desk.agent("worker")
    desk.model.think = lambda asked: (
        Answer(calls=(Call(ONE, {"message": "Well?", "other_agent_id": worker}),))
        if ONE in asked.tools and not asked.results
        else Answer("well")
    )
    desk.say(desk.agent("lead", tools=[ONE]), "Go")
    runs = desk.client.runs.list(agent_id=worker).items
    assert len(runs) == 1
    said = desk.client.runs.messages.list(runs[0].id).items
    assert [one.message_type for one in said] == ["system_message", "assistant_message"]
    assert desk.client.runs.retrieve(runs[0].id).status == "completed"


def test_the_run_of_a_worker_is_seen_while_it_works(desk: Desk) -> None:
    worker = desk.agent("worker")
    asked = threading.Event()
    go_on = threading.Event()

    def think(question: Question) -> Answer:
        if ONE in question.tools:
            call = Call(ONE, {"message": "Well?", "other_agent_id": worker})
            return Answer("done") if question.results else Answer(calls=(call,))
        if not question.results:
            return Answer(calls=(Call("conversation_search", {"query": "anything"}),))
        asked.set()
        go_on.wait(20)
        return Answer("well")

    desk.model.think = think
    lead = desk.agent("lead", tools=[ONE])
    whole = desk.client.agents.messages.create_async(lead, input="Go").id
    assert asked.wait(20)
    runs = desk.client.runs
    running_now = runs.list(agent_id=worker, active=True).items
    assert [(one.agent_id, one.status) for one in running_now] == [(worker, "running")]
    run = running_now[0].id
    assert runs.retrieve(run).status == "running"
    with pytest.raises(NotFoundError):  # it is stopped with the run that it is inside of
        desk.client.agents.messages.cancel(worker, run_ids=[run])
    begun = ["system_message", "tool_call_message", "tool_return_message"]
    assert [one.message_type for one in runs.messages.list(run)] == begun
    assert [one.message_type for one in desk.client.agents.messages.list(worker)] == begun
    with runs.messages.stream(run, starting_after=0) as streamed:
        heard = iter(streamed)
        assert next(heard).message_type == "tool_call_message", "it is streamed while it works"
        assert runs.retrieve(run).status == "running"
        go_on.set()
        kinds = [one.message_type for one in heard]
    assert kinds == ["tool_return_message", "assistant_message", "stop_reason", "usage_statistics"]
    soon(lambda: runs.retrieve(whole).status == "completed")
    assert [(one.id, one.status) for one in runs.list(agent_id=worker)] == [(run, "completed")]
    assert [one.message_type for one in runs.messages.list(run)] == [*begun, "assistant_message"]
    assert "assistant_message" in [one.message_type for one in runs.messages.stream(run)]


def test_the_run_of_a_team_is_none_of_an_agents(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        run = home.begin()
        for path in (f"/v1/runs/{run}", f"/v1/runs/{run}/messages", f"/v1/runs/{run}/usage"):
            assert home.client.get(path).status_code == 404, path
        assert home.client.post(f"/v1/runs/{run}/stream", json={}).status_code == 404
        home.wait(run, "complete", "partial")


def test_a_callback_is_refused_in_words(desk: Desk) -> None:
    answer = httpx.post(
        f"{desk.server.url}/v1/agents/{desk.agent()}/messages/async",
        headers=desk.server.headers,
        json={"input": "Go", "callback_url": "http://127.0.0.1:1/"},
    )
    assert answer.status_code == 422
    assert "callback_url" in answer.json()["detail"]


# --- after a restart


def test_what_was_under_way_is_gone_on_with_by_itself(tmp_path: Path) -> None:
    with fake_model(lambda _: Answer("too slow", seconds=30.0)) as model:
        with running(settings_in(tmp_path, grace=0.1)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            agent = Desk(one, client, model).agent()
            runs = [
                client.agents.messages.create_async(agent, messages=[{"role": "user", "content": text}]).id
                for text in ("first", "second")
            ]
            soon(lambda: len(model.questions) == 1)
        model.think = lambda asked: Answer(f"re: {'second' if 'second' in asked.messages[-1]['content'] else 'first'}")
        with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            soon(lambda: all(client.runs.retrieve(run).status == "completed" for run in runs))
            said = Desk(one, client, model).listed(agent)
            assert said == [
                ("user_message", "first"),
                ("assistant_message", "re: first"),
                ("user_message", "second"),
                ("assistant_message", "re: second"),
            ]


def test_a_crash_in_the_middle_of_a_call_leaves_nobody_stuck(tmp_path: Path) -> None:
    with fake_model(lambda _: "ok") as model:
        with running(settings_in(tmp_path, grace=0.1)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            desk = Desk(one, client, model)
            worker = desk.agent("worker")
            lead = desk.agent("lead", tools=[ONE])

            def think(asked: Question) -> Answer:
                if ONE not in asked.tools:
                    return Answer("slow", seconds=30.0)
                return (
                    Answer("ready")
                    if asked.results
                    else Answer(calls=(Call(ONE, {"message": "work", "other_agent_id": worker}),))
                )

            model.think = think
            run = client.agents.messages.create_async(lead, messages=[{"role": "user", "content": "Go"}]).id
            soon(lambda: len(model.questions) == 2)
        model.think = lambda _: "quick"
        with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            soon(lambda: client.runs.retrieve(run).status == "completed")
            kinds = [each.message_type for each in client.runs.messages.list(run)]
            assert kinds == ["user_message", "tool_call_message", "tool_return_message", "assistant_message"]
            assert (
                len([each for each in client.agents.messages.list(worker) if each.message_type == "system_message"])
                == 1
            )
            answer = client.agents.messages.create(lead, messages=[{"role": "user", "content": "Still there?"}])
            assert words(answer) == ["quick"]


def test_a_book_that_was_lost_is_written_again_without_what_was_forgotten(tmp_path: Path) -> None:
    with fake_model(lambda _: "yes") as model:
        with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            desk = Desk(one, client, model)
            kept = desk.agent("kept")
            forgotten = desk.agent("forgotten")
            desk.say(kept, "Remember this")
            desk.say(forgotten, "Forget this")
            client.agents.messages.reset(forgotten)
            before = desk.listed(kept)
        for book in (tmp_path / "main").glob("letta.db*"):
            book.unlink()
        with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            desk = Desk(one, client, model)
            soon(lambda: desk.listed(kept) == before)
            assert desk.listed(forgotten) == []
            soon(lambda: len(list(client.runs.list())) == 2)


def test_a_call_that_is_sent_again_after_a_restart_joins_what_it_began(tmp_path: Path) -> None:
    sent = {"messages": [{"role": "user", "content": "Work"}]}
    with fake_model(lambda _: Answer("too slow", seconds=30.0)) as model:
        with running(settings_in(tmp_path, grace=0.1)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            agent = Desk(one, client, model).agent()
            path = f"/v1/agents/{agent}/messages"
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(one.url + path, json=sent, headers=one.headers, timeout=0.5)
        model.think = lambda _: "once"
        with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            again = {**one.headers, "x-stainless-retry-count": "1"}
            answer = httpx.post(one.url + path, json=sent, headers=again, timeout=20).json()
            assert answer["messages"][-1]["content"] == "once"
            assert len(list(client.runs.list(agent_id=agent))) == 1
