"""Tools that the client runs itself, with the real client: the agent asks for a call and goes on with its return."""

from pathlib import Path
from typing import Any

import pytest
from letta_client import Letta, UnprocessableEntityError

from tests.server.model_server import Answer, Call, FakeModel
from tests.server.running import running, settings_in

ADD: Any = {
    "name": "local_read",
    "description": "Reads a file on the client's machine.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


@pytest.fixture
def model(served: tuple[Letta, FakeModel]) -> FakeModel:
    served[1].think = lambda asked: f"It says: {asked.results[-1]}" if asked.results else reads("a.txt")
    served[1].questions.clear()
    return served[1]


def reads(*paths: str) -> Answer:
    return Answer("", tuple(Call("local_read", {"path": path}) for path in paths))


def returns(calls: Any, text: str = "42 apples", status: str = "success") -> Any:
    given = [{"tool_call_id": call.tool_call_id, "tool_return": text, "status": status} for call in calls]
    return {"type": "tool_return", "tool_returns": given}


def kinds(answer: Any) -> list[str]:
    return [str(one.message_type) for one in answer.messages]


def test_the_client_runs_the_tool_and_the_agent_goes_on_with_its_return(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle).id
    asked = client.agents.messages.create(agent, input="Read a.txt", client_tools=[ADD])
    assert (asked.stop_reason.stop_reason, kinds(asked)) == ("requires_approval", ["approval_request_message"])
    request: Any = asked.messages[0]
    assert (request.tool_call.name, request.tool_call.arguments) == ("local_read", '{"path": "a.txt"}')
    assert "local_read" in model.questions[-1].tools
    answer = client.agents.messages.create(agent, messages=[returns(request.tool_calls)], client_tools=[ADD])
    assert kinds(answer) == ["tool_return_message", "assistant_message"]
    assert "42 apples" in str(answer.messages[-1])
    assert answer.stop_reason.stop_reason == "end_turn"
    again = {"x-stainless-retry-count": "1"}  # the client sends it again: it joins what it began
    repeated = client.agents.messages.create(
        agent, messages=[returns(request.tool_calls)], client_tools=[ADD], extra_headers=again
    )
    assert [one.id for one in repeated.messages] == [one.id for one in answer.messages]
    listed = [one.message_type for one in client.agents.messages.list(agent, order="asc")]
    assert listed == [
        "user_message",
        "approval_request_message",
        "approval_response_message",
        "tool_return_message",
        "assistant_message",
    ]
    client.agents.messages.create(agent, input="And without?")
    assert "local_read" not in model.questions[-1].tools  # it is for one message


def test_several_calls_are_asked_for_at_once_and_an_error_is_told_as_one(client: Letta, model: FakeModel) -> None:
    model.think = lambda asked: " ".join(asked.results) if asked.results else reads("a.txt", "b.txt")
    agent = client.agents.create(model=model.handle).id
    asked = client.agents.messages.create(agent, input="Read both", client_tools=[ADD])
    request: Any = asked.messages[0]
    assert [call.arguments for call in request.tool_calls] == ['{"path": "a.txt"}', '{"path": "b.txt"}']
    first, second = request.tool_calls
    good = returns([first], "forty-two")
    bad = returns([second], "no such file", "error")
    approval: Any = {"type": "approval", "approvals": [*good["tool_returns"], *bad["tool_returns"]]}
    answer = client.agents.messages.create(agent, messages=[approval])
    assert [one.status for one in answer.messages if one.message_type == "tool_return_message"] == ["success", "error"]
    assert "forty-two" in str(answer.messages[-1])
    assert "no such file" in str(answer.messages[-1])


def test_a_loop_of_calls_goes_on_until_the_agent_is_done(client: Letta, model: FakeModel) -> None:
    paths = iter(["a", "a", "b"])
    model.think = lambda _: reads(path) if (path := next(paths, "")) else "read all"
    agent = client.agents.create(model=model.handle).id
    answer: Any = client.agents.messages.create(agent, input="Read on", client_tools=[ADD])
    for text in ("one", "two", "three"):
        assert answer.stop_reason.stop_reason == "requires_approval"
        answer = client.agents.messages.create(agent, messages=[returns(answer.messages[-1].tool_calls, text)])
        assert text in str(answer.messages[0])
    assert answer.messages[-1].content == "read all"


def test_a_call_that_the_client_does_not_make_is_told_to_the_model(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle).id
    client.agents.messages.create(agent, input="Read a.txt", client_tools=[ADD])
    rejection: Any = {"type": "approval", "approve": False, "reason": "not today"}
    answer = client.agents.messages.create(agent, messages=[rejection])
    assert "not today" in str(answer.messages[-1])


def test_answers_that_do_not_fit_are_refused_and_nothing_is_done(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle).id
    asked: Any = client.agents.messages.create(agent, input="Read a.txt", client_tools=[ADD])
    call = asked.messages[0].tool_call
    no_status = {"type": "tool_return", "tool_returns": [{"tool_call_id": call.tool_call_id, "tool_return": "x"}]}
    other = {"type": "tool_return", "tool_returns": [{"tool_call_id": "x", "tool_return": "x", "status": "success"}]}
    before = len(model.questions)
    wrong: list[tuple[Any, str]] = [
        ({"type": "approval", "approve": True}, "send what it returned"),
        (no_status, "status"),
        (other, "waits"),
    ]
    for message, said in wrong:
        with pytest.raises(UnprocessableEntityError, match=said):
            client.agents.messages.create(agent, messages=[message])
    assert len(model.questions) == before
    answer = client.agents.messages.create(agent, messages=[returns([call])])
    assert "42 apples" in str(answer.messages[-1])


def test_arguments_that_do_not_fit_are_not_sent_to_the_client(client: Letta, model: FakeModel) -> None:
    replies = iter([Answer("", (Call("local_read", {"file": 1}),)), reads("a.txt")])
    model.think = lambda _: next(replies)
    agent = client.agents.create(model=model.handle).id
    asked = client.agents.messages.create(agent, input="Read", client_tools=[ADD])
    assert kinds(asked) == ["tool_call_message", "tool_return_message", "approval_request_message"]
    assert "lacks 'path'" in model.questions[-1].results[0]


@pytest.mark.parametrize(
    ("tools", "named"),
    [
        ([{"name": "give_up"}], "client_tools[0].name"),
        ([{"name": "no spaces"}], "client_tools[0]: a tool cannot be called 'no spaces'"),
        ([ADD, ADD], "client_tools[1].name"),
        ([{"name": "x", "parameters": {"type": "array"}}], "client_tools[0]: the schema of tool 'x'"),
    ],
)
def test_tools_that_no_model_could_be_told_of_are_refused(
    client: Letta, model: FakeModel, tools: Any, named: str
) -> None:
    agent = client.agents.create(model=model.handle).id
    with pytest.raises(UnprocessableEntityError) as refused:
        client.agents.messages.create(agent, input="x", client_tools=tools)
    assert named in str(refused.value.body)


def test_a_return_is_taken_after_a_restart_and_in_a_conversation(tmp_path: Path, model: FakeModel) -> None:
    with running(settings_in(tmp_path)) as server, Letta(base_url=server.url, api_key=server.token) as client:
        agent = client.agents.create(model=model.handle).id
        one = client.conversations.create(agent_id=agent).id
        with client.conversations.messages.create(one, input="Read a.txt", client_tools=[ADD]) as stream:
            request: Any = next(each for each in stream if each.message_type == "approval_request_message")
    with running(settings_in(tmp_path)) as server, Letta(base_url=server.url, api_key=server.token) as client:
        sent = [returns(request.tool_calls)]
        with client.conversations.messages.create(one, messages=sent, client_tools=[ADD]) as stream:
            told = [str(each) for each in stream]
    assert "42 apples" in told[1]
