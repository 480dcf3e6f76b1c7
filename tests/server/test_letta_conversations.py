"""Conversations beside an agent's own, with the real client: each remembers for itself, and several go on at once."""

import threading
from pathlib import Path
from typing import Any

import pytest
from letta_client import Letta, NotFoundError, UnprocessableEntityError

from tests.server.model_server import Answer, Call, FakeModel
from tests.server.running import running, settings_in


def say(client: Letta, conversation: str, text: str, **more: Any) -> list[str]:
    """What is streamed in a conversation: the types of its messages."""
    with client.conversations.messages.create(conversation, input=text, **more) as stream:
        return [str(one.message_type) for one in stream]


def words(client: Letta, conversation: str, **more: Any) -> list[str]:
    said = client.conversations.messages.list(conversation, order="asc", **more)
    return [str(getattr(one, "content", "")) for one in said]


def test_conversations_remember_each_for_itself(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle).id
    first, second = (client.conversations.create(agent_id=agent, summary=name) for name in ("one", "two"))
    kinds = say(client, first.id, "My name is Grace.")
    assert kinds == ["assistant_message", "stop_reason", "usage_statistics"]
    say(client, second.id, "My name is Ada.")
    client.agents.messages.create(agent, input="My name is nobody.")
    say(client, first.id, "Who am I?")
    shown = model.questions[-1].user
    assert "Grace" in shown
    assert "Ada" not in shown
    assert "nobody" not in shown
    assert words(client, first.id) == ["My name is Grace.", "yes", "Who am I?", "yes"]
    assert words(client, second.id) == ["My name is Ada.", "yes"]
    assert words(client, "default", agent_id=agent) == ["My name is nobody.", "yes"]
    assert len(list(client.agents.messages.list(agent, order="asc"))) == 8
    assert len(list(client.agents.messages.list(agent, conversation_id=second.id))) == 2
    runs = client.runs.list(agent_id=agent, conversation_id=first.id).items
    assert [run.conversation_id for run in runs] == [first.id] * 2


def test_a_conversation_is_made_listed_changed_and_deleted(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle).id
    made = [client.conversations.create(agent_id=agent, summary=f"talk {number}") for number in range(3)]
    assert made[0].agent_id == agent
    assert [one.id for one in client.conversations.list(agent_id=agent)] == [one.id for one in made[::-1]]
    assert [one.id for one in client.conversations.list(agent_id=agent, order="asc", limit=1, after=made[0].id)] == [
        made[1].id
    ]
    assert [one.id for one in client.conversations.list(agent_id=agent, summary_search="TALK 2")] == [made[2].id]
    say(client, made[0].id, "Hello")
    changed = client.conversations.update(made[1].id, summary="other")
    assert (changed.summary, client.conversations.retrieve(made[1].id).summary) == ("other", "other")
    with pytest.raises(UnprocessableEntityError, match="archived"):
        client.conversations.update(made[1].id, archived=True)
    client.conversations.delete(made[0].id)
    with pytest.raises(NotFoundError):
        client.conversations.retrieve(made[0].id)
    assert list(client.agents.messages.list(agent)) == []
    client.agents.delete(agent)
    with pytest.raises(NotFoundError):
        client.conversations.retrieve(made[2].id)


def test_a_conversation_has_the_model_and_settings_of_its_agent(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle).id
    with pytest.raises(UnprocessableEntityError, match="model_settings"):
        client.conversations.create(
            agent_id=agent, model_settings={"provider_type": "openai", "reasoning": {"reasoning_effort": "low"}}
        )
    one = client.conversations.create(agent_id=agent)
    with pytest.raises(UnprocessableEntityError, match="context_window_limit"):
        client.conversations.update(one.id, context_window_limit=3000)


def test_conversations_of_one_agent_go_on_at_once_and_are_cancelled_one_by_one(client: Letta, model: FakeModel) -> None:
    both = threading.Barrier(3, timeout=20)
    go_on = threading.Event()

    def think(_: object) -> Answer:
        both.wait()
        go_on.wait(20)
        return Answer("done")

    model.think = think
    agent = client.agents.create(model=model.handle).id
    first, second = (client.conversations.create(agent_id=agent).id for _ in range(2))
    heard: dict[str, list[str]] = {}

    def hear(which: str) -> None:
        heard[which] = say(client, which, "Go")

    jobs = [threading.Thread(target=hear, args=(which,)) for which in (first, second)]
    for job in jobs:
        job.start()
    both.wait()  # both are asked at the same time
    stopped = client.conversations.cancel(first)
    assert list(stopped.values()) == ["cancelled"]
    with client.conversations.messages.stream(second) as following:
        go_on.set()
        kinds = [str(getattr(one, "message_type", "")) for one in following]
    assert "assistant_message" in kinds
    for job in jobs:
        job.join(20)
    assert "assistant_message" not in heard[first]
    assert heard[second][0] == "assistant_message"
    with pytest.raises(NotFoundError):
        client.conversations.messages.stream(second)


def test_an_unknown_conversation_and_one_of_another_agent_are_refused(client: Letta, model: FakeModel) -> None:
    ann, bob = (client.agents.create(model=model.handle).id for _ in range(2))
    one = client.conversations.create(agent_id=ann).id
    with pytest.raises(NotFoundError):
        client.conversations.create(agent_id="agent-00000000-0000-4000-8000-000000000000")
    with pytest.raises(NotFoundError):
        say(client, "conv-00000000-0000-4000-8000-000000000000", "x")
    with pytest.raises(UnprocessableEntityError, match="belongs to agent"):
        say(client, one, "x", agent_id=bob)
    with pytest.raises(UnprocessableEntityError, match="agent_id"):
        say(client, "default", "x")
    with pytest.raises(UnprocessableEntityError, match="client_skills"):
        say(client, one, "x", client_skills=[{"name": "a", "description": "b", "location": "c"}])


def test_a_person_is_asked_in_the_conversation_in_which_the_call_is_to_be_made(client: Letta, model: FakeModel) -> None:
    call = Answer("", (Call("conversation_search", {"query": "x"}),))
    model.think = lambda asked: call if not asked.results and "Search" in asked.user else "done"
    rules: Any = [{"type": "requires_approval", "tool_name": "conversation_search"}]
    agent = client.agents.create(model=model.handle, tool_rules=rules).id
    one = client.conversations.create(agent_id=agent).id
    assert "approval_request_message" in say(client, one, "Search for it")
    client.agents.messages.create(agent, input="Something else")  # withdraws nothing elsewhere
    approval: Any = {"type": "approval", "approve": True}
    with pytest.raises(UnprocessableEntityError, match="nothing waits"):
        client.agents.messages.create(agent, messages=[approval])
    with client.conversations.messages.create(one, messages=[approval]) as stream:
        assert [each.message_type for each in stream][:2] == ["tool_return_message", "assistant_message"]


def test_a_search_looks_through_the_conversation_it_is_made_in(client: Letta, model: FakeModel) -> None:
    search = Answer("", (Call("conversation_search", {"query": "harbour museum"}),))
    model.think = lambda asked: "noted" if "Look" not in asked.user else asked.results[0] if asked.results else search
    agent = client.agents.create(model=model.handle, message_buffer_autoclear=True).id
    one = client.conversations.create(agent_id=agent).id
    client.agents.messages.create(agent, input="The museum opens at nine.")
    say(client, one, "The harbour opens at six.")
    say(client, one, "Look it up")
    assert "harbour opens at six" in words(client, one)[-1]
    assert "museum opens" not in words(client, one)[-1]


def test_a_reset_of_the_agent_leaves_its_conversations_alone(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle).id
    one = client.conversations.create(agent_id=agent).id
    say(client, one, "My name is Grace.")
    client.agents.messages.create(agent, input="I am nobody.")
    client.agents.messages.reset(agent)
    assert words(client, one) == ["My name is Grace.", "yes"]
    assert words(client, "default", agent_id=agent) == []
    say(client, one, "Who am I?")
    assert "My name is Grace." in model.questions[-1].user


def test_a_conversation_goes_on_after_a_restart(tmp_path: Path, model: FakeModel) -> None:
    with running(settings_in(tmp_path)) as server, Letta(base_url=server.url, api_key=server.token) as client:
        agent = client.agents.create(model=model.handle).id
        one = client.conversations.create(agent_id=agent, summary="kept").id
        say(client, one, "My name is Grace.")
    with running(settings_in(tmp_path)) as server, Letta(base_url=server.url, api_key=server.token) as client:
        assert client.conversations.retrieve(one).summary == "kept"
        assert words(client, one) == ["My name is Grace.", "yes"]
        say(client, one, "Who am I?")
        assert "My name is Grace." in model.questions[-1].user
