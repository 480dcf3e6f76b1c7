"""Messages to agents, with the real client: sent, kept, streamed, repeated, stopped, and asked leave for."""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import Letta, NotFoundError, UnprocessableEntityError
from letta_client.types.agents import LettaResponse

from tests.server.api import new_tenant
from tests.server.model_server import Answer, Call, FakeModel, Question, fake_model
from tests.server.running import Running, running, settings_in

ONE = "send_message_to_agent_and_wait_for_reply"


class Desk:
    """A server, a client, a model that does what a test tells it to, and an agent that has it."""

    def __init__(self, server: Running, client: Letta, model: FakeModel) -> None:
        self.server = server
        self.client = client
        self.model = model

    def agent(self, name: str = "ada", **more: object) -> str:
        return self.client.agents.create(name=name, model=self.model.handle, **more).id  # pyright: ignore[reportArgumentType] - tests name real fields

    def say(self, agent: str, text: str, **more: object) -> LettaResponse:
        return self.client.agents.messages.create(agent, messages=[{"role": "user", "content": text}], **more)  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType] - as above

    def listed(self, agent: str) -> list[tuple[str, str]]:
        said = self.client.agents.messages.list(agent, order="asc")
        return [(one.message_type or "", str(getattr(one, "content", ""))) for one in said]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("desk")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    with running(settings_in(folder / "data", pulse=0.1, grace=0.1)) as server:
        yield server


@pytest.fixture
def desk(server: Running, folder: Path) -> Iterator[Desk]:
    """A tenant and a model of its own, on the server of all tests of the module."""
    tenant = new_tenant(server, folder)
    with fake_model(lambda _: "yes") as model, Letta(base_url=tenant.url, api_key=tenant.token) as client:
        yield Desk(tenant, client, model)


def words(answer: LettaResponse) -> list[str]:
    return [str(one.content) for one in answer.messages if one.message_type == "assistant_message"]


def soon(check: Callable[[], object], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.02)


# --- what is said


def test_an_agent_answers_and_remembers_what_was_said_before(desk: Desk) -> None:
    agent = desk.agent()
    first = desk.say(agent, "My name is Grace.")
    assert words(first) == ["yes"]
    assert first.stop_reason.stop_reason == "end_turn"
    assert (first.usage.prompt_tokens, first.usage.completion_tokens, first.usage.step_count) == (11, 7, 1)
    desk.say(agent, "What is my name?")
    assert desk.model.questions[-1].user.count("My name is Grace.") == 1
    assert [kind for kind, _ in desk.listed(agent)] == ["user_message", "assistant_message"] * 2


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({"input": "Hello there"}, "Hello there"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "In parts"}]}]}, "In parts"),
        (
            {"messages": [{"role": "system", "content": "It is late."}, {"role": "user", "content": "Go on"}]},
            "It is late",
        ),
    ],
)
def test_a_message_may_be_sent_in_several_forms(desk: Desk, sent: dict[str, object], told: str) -> None:
    agent = desk.agent()
    answer = desk.client.agents.messages.create(agent, **sent)  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType] - forms of one call
    assert words(answer) == ["yes"]  # pyright: ignore[reportUnknownArgumentType] - as above
    assert told in desk.model.questions[-1].user
    assert told in desk.listed(agent)[0][1]


@pytest.mark.parametrize(
    "sent", [{}, {"messages": []}, {"messages": [{"role": "pope", "content": "x"}]}, {"input": " "}]
)
def test_what_cannot_be_said_is_refused_in_words(desk: Desk, sent: dict[str, object]) -> None:
    agent = desk.agent()
    answer = httpx.post(f"{desk.server.url}/v1/agents/{agent}/messages", json=sent, headers=desk.server.headers)
    assert answer.status_code == 422
    assert answer.json()["detail"]
    assert desk.listed(agent) == []


@pytest.mark.parametrize("order", [{}, {"order": "asc"}, {"order": "desc"}])
def test_after_means_newer_and_before_older_whatever_the_order(desk: Desk, order: dict[str, Any]) -> None:
    agent = desk.agent()
    messages = desk.client.agents.messages
    for number in range(4):
        desk.say(agent, f"number {number}")
    everything = [one.id for one in messages.list(agent, order="asc", limit=3)]
    assert len(everything) == 8
    assert [one.id for one in messages.list(agent, after=everything[2], limit=2, **order)] == everything[3:]
    assert messages.list(agent, after=everything[-1], **order).items == []
    page = messages.list(agent, before=everything[4], limit=3, **order)
    assert [one.id for one in page.items] == everything[1:4]
    assert sorted(one.id for one in page) == sorted(everything[:4])
    assert [one.id for one in messages.list(agent, **order)] == everything
    newest = messages.list(agent, limit=3, **order)
    assert [one.id for one in newest.items] == (everything[:3] if order == {"order": "asc"} else everything[-3:])


def test_following_the_pages_of_a_list_yields_every_message(desk: Desk) -> None:
    agent = desk.agent()
    said = [f"number {number}" for number in range(101)]
    desk.client.agents.messages.create(agent, messages=[{"role": "user", "content": text} for text in said])
    listed = desk.client.agents.messages.list(agent)
    assert [str(one.content) for one in listed if one.message_type == "user_message"] == said


def test_a_list_can_be_of_certain_types(desk: Desk) -> None:
    agent = desk.agent()
    for number in range(4):
        desk.say(agent, f"number {number}")
    asked = desk.client.agents.messages.list(agent, include_return_message_types=["user_message"])
    assert [one.message_type for one in asked] == ["user_message"] * 4


def test_messages_of_all_agents_are_listed(desk: Desk) -> None:
    desk.say(desk.agent("one"), "The harbour opens at six.")
    desk.say(desk.agent("two"), "The museum opens at nine.")
    assert len(desk.client.messages.list()) == 4


def test_a_reset_forgets(desk: Desk) -> None:
    agent = desk.agent()
    for number in range(4):
        desk.say(agent, f"secret {number}")
    desk.client.agents.messages.reset(agent)
    assert desk.listed(agent) == []
    desk.say(agent, "What do you know?")
    assert "secret" not in desk.model.questions[-1].user
    assert len(list(desk.client.runs.list(agent_id=agent))) == 5


def test_only_the_types_that_are_wanted_come_back(desk: Desk) -> None:
    desk.model.think = lambda asked: (
        "done" if asked.results else Answer("let me see", (Call("conversation_search", {"query": "x"}),))
    )
    agent = desk.agent()
    answer = desk.say(agent, "Go", include_return_message_types=["reasoning_message", "tool_return_message"])
    assert [one.message_type for one in answer.messages] == ["reasoning_message", "tool_return_message"]


def test_an_agent_that_finds_no_end_stops_after_its_steps(desk: Desk) -> None:
    desk.model.think = lambda asked: Answer(calls=(Call("conversation_search", {"query": f"q{len(asked.results)}"}),))
    answer = desk.say(desk.agent(), "Search for ever", max_steps=3)
    assert answer.stop_reason.stop_reason == "max_steps"
    assert len(desk.model.questions) == 3


def test_a_model_may_be_replaced_for_one_message(desk: Desk) -> None:
    agent = desk.agent()
    with fake_model(lambda _: "from the other") as other:
        answer = desk.say(agent, "Who are you?", override_model=other.handle, override_system="You are Bob.")
        assert words(answer) == ["from the other"]
        assert "You are Bob." in other.questions[0].system
    assert words(desk.say(agent, "And now?")) == ["yes"]


def test_a_model_that_refuses_is_an_answer_that_says_so(desk: Desk) -> None:
    desk.model.think = lambda _: Answer(status=401)
    agent = desk.agent()
    answer = desk.say(agent, "Hello")
    assert answer.stop_reason.stop_reason in ("llm_api_error", "error")
    assert words(answer)[0].startswith("I could not do this")
    asked = len(desk.model.questions)
    again = desk.say(agent, "And now?")
    assert again.stop_reason.stop_reason in ("llm_api_error", "error")
    assert "401" in words(again)[0]
    assert len(desk.model.questions) == asked, "a key that was refused is not tried again within the minute"
    with fake_model(lambda _: "from the other") as other:
        assert words(desk.say(agent, "Who can?", override_model=other.handle)) == ["from the other"]


def test_a_message_after_one_that_was_rejected_is_answered(desk: Desk) -> None:
    desk.model.think = lambda _: Answer(status=400)
    agent = desk.agent()
    answer = desk.say(agent, "Hello")
    assert answer.stop_reason.stop_reason in ("llm_api_error", "error")
    assert words(answer)[0].startswith("I could not do this")
    desk.model.think = lambda _: "better"
    assert words(desk.say(agent, "And now?")) == ["better"]


# --- slow calls, and calls that are made again


def test_a_slow_answer_is_kept_alive(desk: Desk) -> None:
    desk.model.think = lambda _: Answer("late", seconds=0.8)
    answer = desk.say(desk.agent(), "Take your time", timeout=0.4)
    assert words(answer) == ["late"]
    assert len(desk.model.questions) == 1


def test_a_call_that_is_sent_again_joins_the_first(tmp_path: Path) -> None:
    with (
        fake_model(lambda _: Answer("once", seconds=0.4)) as model,
        running(settings_in(tmp_path, pulse=60.0)) as one,
        Letta(base_url=one.url, api_key=one.token, max_retries=8) as client,
    ):
        desk = Desk(one, client, model)
        agent = desk.agent()
        assert words(desk.say(agent, "Work", timeout=0.2)) == ["once"]
        assert len(model.questions) == 1
        assert [kind for kind, _ in desk.listed(agent)] == ["user_message", "assistant_message"]
        model.think = lambda _: "again"
        assert words(desk.say(agent, "Work", timeout=10)) == ["again"]
        assert len(model.questions) == 2, "the same words in a new call are a new message"


def test_a_marked_message_is_heard_once_even_across_a_restart(tmp_path: Path) -> None:
    marked = {"role": "user", "content": "Pay the bill", "otid": "bill-1"}
    with fake_model(lambda _: "paid") as model:
        with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            agent = Desk(one, client, model).agent()
            first = client.agents.messages.create(agent, messages=[marked])  # pyright: ignore[reportArgumentType] - a message
        with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            again = client.agents.messages.create(agent, messages=[marked])  # pyright: ignore[reportArgumentType] - a message
            assert again.messages[0].id == first.messages[0].id
            assert len(list(client.agents.messages.list(agent))) == 2
        assert len(model.questions) == 1


def test_two_senders_are_heard_one_after_the_other_in_order(desk: Desk) -> None:
    agent = desk.agent()
    spans = list[tuple[float, float]]()

    def timed(question: Question) -> Answer:
        start = time.monotonic()
        time.sleep(0.05)
        spans.append((start, time.monotonic()))
        return Answer(question.user[-5:])

    desk.model.think = timed
    runs = [
        desk.client.agents.messages.create_async(agent, messages=[{"role": "user", "content": f"no {n}"}])
        for n in range(4)
    ]
    soon(lambda: all(desk.client.runs.retrieve(one.id).status == "completed" for one in runs))
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    asked = [text for kind, text in desk.listed(agent) if kind == "user_message"]
    assert asked == [f"no {n}" for n in range(4)]


# --- streams


def test_a_stream_brings_messages_as_they_happen_and_ends(desk: Desk) -> None:
    desk.model.think = lambda asked: (
        "found nothing" if asked.results else Answer(calls=(Call("conversation_search", {"query": "x"}),))
    )
    agent = desk.agent()
    with pytest.deprecated_call():
        parts = list(
            desk.client.agents.messages.stream(  # pyright: ignore[reportDeprecated] - the path is the older one
                agent, messages=[{"role": "user", "content": "Go"}]
            )
        )
    assert [one.message_type for one in parts] == [
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
    ]


def test_words_are_streamed_as_they_come(desk: Desk) -> None:
    desk.model.think = lambda _: Answer("one two three four five", pause=0.04)
    agent = desk.agent()
    times = list[float]()
    pieces: list[tuple[str, str]] = []
    for part in desk.client.agents.messages.create(
        agent, messages=[{"role": "user", "content": "Count"}], streaming=True, stream_tokens=True
    ):
        if part.message_type == "assistant_message":
            pieces.append((part.id, str(part.content)))
            times.append(time.monotonic())
    assert "".join(text for _, text in pieces) == "one two three four five"
    assert len(pieces) >= 4
    assert len({which for which, _ in pieces}) == 1
    assert times[-1] - times[0] > 0.08
    assert desk.client.agents.messages.list(agent).items[-1].id == pieces[0][0]


def test_a_reader_that_goes_away_stops_nothing(desk: Desk) -> None:
    gone = threading.Event()

    def thinks(_question: Question) -> str:
        gone.wait(20)
        return "all the same"

    desk.model.think = thinks
    agent = desk.agent()
    url = f"{desk.server.url}/v1/agents/{agent}/messages/stream"
    with httpx.stream("POST", url, json={"input": "Go"}, headers=desk.server.headers, timeout=30) as answer:
        assert answer.status_code == 200
        soon(lambda: desk.model.questions)
    time.sleep(0.1)  # the server sees that nobody reads any more
    gone.set()
    soon(lambda: ("assistant_message", "all the same") in desk.listed(agent))


# --- stopping, and never being stuck


def test_cancelling_stops_the_whole_tree_at_once(desk: Desk) -> None:
    worker = desk.agent("worker")
    lead = desk.agent("lead", tools=[ONE])

    def think(asked: Question) -> Answer:
        if ONE in asked.tools and not asked.results:
            return Answer(calls=(Call(ONE, {"message": "work", "other_agent_id": worker}),))
        return Answer("too late", seconds=20.0)

    desk.model.think = think
    run = desk.client.agents.messages.create_async(lead, messages=[{"role": "user", "content": "Go"}])
    soon(lambda: len(desk.model.questions) == 2)
    start = time.monotonic()
    assert desk.client.agents.messages.cancel(lead, run_ids=[run.id]) == {run.id: "cancelled"}
    assert time.monotonic() - start < 10.0, "it waited for the model"
    assert desk.client.runs.retrieve(run.id).status == "cancelled"
    said = desk.client.agents.messages.list(lead, order="asc").items
    assert [one.message_type for one in said] == ["user_message", "tool_call_message", "tool_return_message"]
    desk.model.think = lambda _: "I am here"
    assert words(desk.say(lead, "Are you there?")) == ["I am here"]
    assert words(desk.say(worker, "And you?")) == ["I am here"]


def test_a_deleted_agent_leaves_nothing_behind_that_goes_on(desk: Desk) -> None:
    desk.model.think = lambda _: Answer("too late", seconds=20.0)
    agent = desk.agent()
    run = desk.client.agents.messages.create_async(agent, messages=[{"role": "user", "content": "Go"}])
    soon(lambda: len(desk.model.questions) == 1)
    desk.client.agents.delete(agent)
    assert list(desk.client.runs.list()) == []
    assert desk.client.messages.list() == []
    with pytest.raises(NotFoundError):
        desk.client.runs.retrieve(run.id)


def test_agents_that_would_wait_for_each_other_hear_so_at_once(desk: Desk) -> None:
    ids: dict[str, str] = {}

    def think(asked: Question) -> Answer:
        if asked.results:
            return Answer(f"heard: {asked.results[-1]}")
        other = ids["b"] if "You are a." in asked.system else ids["a"]
        return Answer(calls=(Call(ONE, {"message": "your turn", "other_agent_id": other}),))

    desk.model.think = think
    ids["a"], ids["b"] = desk.agent("a", tools=[ONE]), desk.agent("b", tools=[ONE])
    start = time.monotonic()
    answer = desk.say(ids["a"], "Begin")
    assert time.monotonic() - start < 10.0
    assert "itself waiting for this answer" in words(answer)[-1]


# --- leave for a call

_RULE = {"type": "requires_approval", "tool_name": "conversation_search"}


def _careful(asked: Question) -> Answer:
    if asked.results:
        return Answer(f"I heard: {asked.results[-1]}")
    return Answer(calls=(Call("conversation_search", {"query": "ducks"}),))


def test_an_agent_asks_for_leave_and_goes_on_when_it_has_it(desk: Desk) -> None:
    desk.model.think = _careful
    agent = desk.agent(tool_rules=[_RULE])
    asked = desk.say(agent, "Look it up")
    assert asked.stop_reason.stop_reason == "requires_approval"
    assert [one.message_type for one in asked.messages] == ["approval_request_message"]
    waits = desk.client.agents.retrieve(agent).pending_approval
    assert waits is not None
    assert waits.id == asked.messages[0].id
    granted = desk.client.agents.messages.create(
        agent, messages=[{"type": "approval", "approve": True, "approval_request_id": asked.messages[0].id}]
    )
    assert [one.message_type for one in granted.messages] == ["tool_return_message", "assistant_message"]
    assert granted.stop_reason.stop_reason == "end_turn"
    assert desk.client.agents.retrieve(agent).pending_approval is None
    assert [kind for kind, _ in desk.listed(agent)] == [
        "user_message",
        "approval_request_message",
        "approval_response_message",
        "tool_return_message",
        "assistant_message",
    ]


def test_leave_may_be_refused_with_a_reason_even_after_a_restart(tmp_path: Path) -> None:
    with fake_model(_careful) as model:
        with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            desk = Desk(one, client, model)
            agent = desk.agent(tool_rules=[_RULE])
            asked = desk.say(agent, "Look it up").messages[0]
            assert asked.message_type == "approval_request_message"
        with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
            call = asked.tool_call.tool_call_id or ""
            refused = client.agents.messages.create(
                agent,
                messages=[
                    {
                        "type": "approval",
                        "approvals": [
                            {"type": "approval", "tool_call_id": call, "approve": False, "reason": "no ducks today"}
                        ],
                    }
                ],
            )
            assert "no ducks today" in words(refused)[-1]


def test_another_message_withdraws_what_was_asked(desk: Desk) -> None:
    desk.model.think = _careful
    agent = desk.agent(tool_rules=[_RULE])
    asked = desk.say(agent, "Look it up")
    desk.model.think = lambda _: "never mind then"
    assert words(desk.say(agent, "Leave it")) == ["never mind then"]
    with pytest.raises(UnprocessableEntityError):
        desk.client.agents.messages.create(
            agent, messages=[{"type": "approval", "approve": True, "approval_request_id": asked.messages[0].id}]
        )


def test_another_message_waits_for_a_run_that_goes_on_after_approval(desk: Desk) -> None:
    desk.model.think = _careful
    agent = desk.agent(tool_rules=[_RULE])
    request = desk.say(agent, "Look it up").messages[0]
    go_on = threading.Event()

    def think(question: Question) -> str:
        if question.results:
            go_on.wait(20)
        return "looked up" if question.results else "the next answer"

    desk.model.think = think
    calls = len(desk.model.questions)
    run = desk.client.agents.messages.create_async(
        agent, messages=[{"type": "approval", "approve": True, "approval_request_id": request.id}]
    )
    soon(lambda: len(desk.model.questions) > calls)
    following = desk.client.agents.messages.create_async(agent, input="And then?")
    go_on.set()
    soon(lambda: desk.client.runs.retrieve(following.id).status == "completed")
    assert desk.client.runs.retrieve(run.id).stop_reason == "end_turn"
    texts = [text for kind, text in desk.listed(agent) if kind == "assistant_message"]
    assert texts == ["looked up", "the next answer"]


def test_many_senders_at_once_all_get_their_answer(desk: Desk) -> None:
    agent = desk.agent()
    got = list[str]()
    threads = [threading.Thread(target=lambda: got.extend(words(desk.say(agent, "Hello")))) for _ in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert got == ["yes"] * 12
