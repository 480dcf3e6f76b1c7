"""Conversations as models see them, with the real client: chat turns, as many as the window holds, and each once."""

from typing import Any

from letta_client import Letta

from chargehand.models.token_count import count_tokens
from tests.server.model_server import Answer, Call, FakeModel, Question


def say(client: Letta, agent: str, text: str) -> str:
    answer = client.agents.messages.create(agent, input=text)
    return str(getattr(answer.messages[-1], "content", ""))


def chat(question: Question) -> list[tuple[str, str]]:
    """What was said, without the system message and without what is told beside the last message."""
    return [(str(one["role"]), str(one["content"])) for one in question.messages[1:]]


def size(question: Question) -> int:
    return sum(count_tokens(str(one["content"])) for one in question.messages)


def test_earlier_messages_are_turns_of_a_chat(client: Letta, model: FakeModel) -> None:
    model.think = lambda asked: f"answer {len(asked.messages)}"
    agent = client.agents.create(model=model.handle, system="You are Ada.").id
    said = ["My name is Grace.", "I live in Rome.", "Who am I?"]
    answers = [say(client, agent, text) for text in said]
    turns = chat(model.questions[-1])
    assert turns[:-1] == [("user", said[0]), ("assistant", answers[0]), ("user", said[1]), ("assistant", answers[1])]
    assert turns[-1][0] == "user"
    assert turns[-1][1].endswith("Who am I?")
    assert "earlier task" not in str(model.questions[-1].messages)
    assert "Task:" not in str(model.questions[-1].messages)


def test_the_demo_model_takes_no_earlier_turn_for_one_of_this_task(client: Letta) -> None:
    agent = client.agents.create(model="demo").id
    said = "I could not do this: none of the tools is for this"
    assert say(client, agent, "What is the price of item 4?").startswith(said)
    say(client, agent, "Item 4 costs 12 euros.")
    assert say(client, agent, "What is the price of item 4?").startswith(said)


def test_all_that_the_window_holds_is_shown(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle).id
    long = "long " * 4000  # 20,000 characters, of which 4,000 were kept once
    say(client, agent, long)
    for number in range(32):
        say(client, agent, f"line {number}")
    turns = chat(model.questions[-1])
    assert turns[0] == ("user", long)
    assert [text for role, text in turns[:-1] if role == "user"][1:] == [f"line {number}" for number in range(31)]


def test_a_context_window_limit_bounds_what_is_shown_and_older_turns_are_summarised(
    client: Letta, model: FakeModel
) -> None:
    model.think = lambda asked: "they spoke of fruit" if "summary" in asked.system.lower() else "yes"
    agent = client.agents.create(model=model.handle, context_window_limit=4000, include_base_tools=False).id
    for number in range(16):
        say(client, agent, f"number {number} " + "apple " * 250)
    last = model.questions[-1]
    assert max(size(one) for one in model.questions if one.tools or one is last) <= 4000
    turns = chat(last)
    assert "they spoke of fruit" in turns[0][1]
    assert turns[-3][1].startswith("number 14 ")
    assert not any("number 0 " in text for _, text in turns)
    assert client.agents.retrieve(agent).llm_config.context_window == 4000


def test_an_agent_that_clears_its_buffer_is_shown_no_earlier_turns(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle, message_buffer_autoclear=True).id
    say(client, agent, "My name is Grace.")
    say(client, agent, "Who am I?")
    assert [role for role, _ in chat(model.questions[-1])] == ["user"]
    assert "Grace" not in str(model.questions[-1].messages)
    client.agents.update(agent, message_buffer_autoclear=False)
    say(client, agent, "And now?")
    assert "My name is Grace." in model.questions[-1].user


def test_a_chat_is_the_same_after_a_person_was_asked(client: Letta, model: FakeModel) -> None:
    model.think = lambda asked: (
        Answer("", (Call("conversation_search", {"query": "x"}),))
        if "Search" in asked.messages[-1]["content"]
        else "done"
    )
    rules: Any = [{"type": "requires_approval", "tool_name": "conversation_search"}]
    agent = client.agents.create(model=model.handle, tool_rules=rules).id
    say(client, agent, "My name is Grace.")
    waiting = client.agents.messages.create(agent, input="Search for it")
    assert waiting.stop_reason.stop_reason == "requires_approval"
    before = chat(model.questions[-1])[:-1]
    request = waiting.messages[-1]
    approval: Any = {"type": "approval", "approve": True, "approval_request_id": request.id}
    client.agents.messages.create(agent, messages=[approval])
    after = chat(model.questions[-1])
    assert after[: len(before)] == before == [("user", "My name is Grace."), ("assistant", "done")]
    assert [role for role, _ in after[len(before) :]] == ["user", "assistant", "tool"]
