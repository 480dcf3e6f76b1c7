"""Leave for several calls at once, with the real client: every verdict is about the call it names, and no other."""

from collections.abc import Iterator
from typing import Any

import pytest
from letta_client import Letta, UnprocessableEntityError
from letta_client.types.agents import ApprovalRequestMessage, LettaResponse

from tests.server.model_server import Answer, Call, FakeModel, Question, fake_model
from tests.server.running import Running, running, settings_in

APPEND = "core_memory_append"
RULE = {"type": "requires_approval", "tool_name": APPEND}
BOTH = (Call(APPEND, {"label": "notes", "content": "pay"}), Call(APPEND, {"label": "notes", "content": "delete"}))


def careful(asked: Question) -> Answer:
    return Answer("Done.") if asked.results else Answer(calls=BOTH)


class Desk:
    """A server, a client, and an agent that wants leave for two calls."""

    def __init__(self, server: Running, client: Letta, model: FakeModel) -> None:
        self.server = server
        self.client = client
        self.model = model

    def waiting(self) -> tuple[str, ApprovalRequestMessage]:
        """A new agent that waits for leave, and what it asks."""
        self.model.think = careful
        blocks: Any = [{"label": "notes", "value": ""}]
        rules: Any = [RULE]
        agent = self.client.agents.create(
            model=self.model.handle, tools=[APPEND], memory_blocks=blocks, tool_rules=rules
        )
        told = self.client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "Write it down."}])
        assert told.stop_reason.stop_reason == "requires_approval"
        asked = told.messages[-1]
        assert isinstance(asked, ApprovalRequestMessage)
        return agent.id, asked

    def judge(self, agent: str, *verdicts: tuple[str, bool], **more: Any) -> LettaResponse:
        """Send verdicts on calls, in this order."""
        entries = [{"type": "approval", "tool_call_id": call, "approve": approve} for call, approve in verdicts]
        return self.send(agent, {"approvals": entries, **more})

    def send(self, agent: str, *messages: dict[str, Any], **more: Any) -> LettaResponse:
        sent: Any = [{"type": "approval", **one} for one in messages]
        return self.client.agents.messages.create(agent, messages=sent, **more)  # pyright: ignore[reportUnknownVariableType] - as it is overloaded

    def notes(self, agent: str) -> str:
        return self.client.agents.blocks.retrieve("notes", agent_id=agent).value


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with (
        fake_model(careful) as model,
        running(settings_in(tmp_path_factory.mktemp("approvals"))) as server,
        Letta(base_url=server.url, api_key=server.token) as client,
    ):
        yield Desk(server, client, model)


def ids(asked: ApprovalRequestMessage) -> list[str]:
    calls: Any = asked.tool_calls
    return [one.tool_call_id for one in calls]


def test_one_request_names_every_call_that_waits_and_ids_are_never_used_twice(desk: Desk) -> None:
    first = desk.waiting()[1]
    second = desk.waiting()[1]
    assert len({*ids(first), *ids(second)}) == 4, "the model calls them call_0 and call_1 each time"


@pytest.mark.parametrize("allowed", [0, 1])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_rejected_call_is_never_executed_wherever_it_stands_in_the_list(
    desk: Desk, allowed: int, order: tuple[int, int]
) -> None:
    agent, asked = desk.waiting()
    calls = ids(asked)
    told = desk.judge(agent, *((calls[at], at == allowed) for at in order))
    assert told.stop_reason.stop_reason == "end_turn"
    assert desk.notes(agent) == ("pay", "delete")[allowed]
    returned = {one.tool_call_id: one.status for one in told.messages if one.message_type == "tool_return_message"}
    assert returned == {calls[allowed]: "success", calls[1 - allowed]: "error"}
    results = desk.model.questions[-1].results
    assert ["did not allow" in one for one in results] == [at != allowed for at in (0, 1)]


def test_verdicts_in_messages_of_their_own_are_all_heard(desk: Desk) -> None:
    agent, asked = desk.waiting()
    pay, delete = ids(asked)
    no, yes = (
        {"approvals": [{"tool_call_id": call, "approve": approve}]} for call, approve in ((delete, False), (pay, True))
    )
    desk.send(agent, no, yes)
    assert desk.notes(agent) == "pay"


def test_one_word_for_the_whole_request_is_about_all_of_its_calls(desk: Desk) -> None:
    agent, asked = desk.waiting()
    desk.send(agent, {"approve": True, "approval_request_id": asked.id})
    assert sorted(desk.notes(agent).splitlines()) == ["delete", "pay"]
    agent, asked = desk.waiting()
    desk.send(agent, {"approve": False, "approval_request_id": asked.id, "reason": "not today"})
    assert desk.notes(agent) == ""
    assert all("not today" in one for one in desk.model.questions[-1].results)


def test_verdicts_that_do_not_fit_the_calls_that_wait_are_refused_and_nothing_is_done(desk: Desk) -> None:
    agent, asked = desk.waiting()
    pay, delete = ids(asked)
    yes_to_both = [{"tool_call_id": call, "approve": True} for call in (pay, delete)]
    unfit: list[list[dict[str, Any]]] = [
        [{"approvals": [*yes_to_both, {"tool_call_id": "call_9", "approve": True}]}],
        [{"approvals": [{"tool_call_id": "call_9", "approve": True}]}],
        [{"approvals": yes_to_both[:1]}],
        [{"approvals": [*yes_to_both, {"tool_call_id": pay, "approve": False}]}],
        [{"approvals": [{"approve": True}]}],
        [{"approvals": [{"tool_call_id": pay}, {"tool_call_id": delete}]}],
        [{"approvals": yes_to_both, "approve": False}],
        [{"approvals": yes_to_both}, {"approve": False}],
        [{"approvals": yes_to_both, "approval_request_id": "message-00000000-0000-4000-8000-000000000000"}],
        [{"approvals": []}],
        [{"type": None, "approvals": yes_to_both, "role": "approval"}, {"type": "message", "content": "and hurry"}],
    ]
    for messages in unfit:
        with pytest.raises(UnprocessableEntityError) as refused:
            desk.send(agent, *messages)
        assert "Nothing was done" in str(refused.value), messages
        if len(messages) == 1 or messages[1].get("type") != "message":
            assert pay in str(refused.value)
            assert delete in str(refused.value)
    assert desk.notes(agent) == ""
    waits = desk.client.agents.retrieve(agent).pending_approval
    assert waits is not None
    assert waits.id == asked.id
    twice = desk.judge(agent, (delete, False), (pay, True), (delete, False))
    assert twice.stop_reason.stop_reason == "end_turn"
    assert desk.notes(agent) == "pay"


def test_a_verdict_that_is_sent_again_joins_what_the_first_began(desk: Desk) -> None:
    agent, asked = desk.waiting()
    pay, delete = ids(asked)
    first = desk.judge(agent, (pay, True), (delete, False))
    with pytest.raises(UnprocessableEntityError, match="nothing waits"):
        desk.judge(agent, (pay, True), (delete, False))
    verdicts = ((pay, True), (delete, False))
    entries = [{"type": "approval", "tool_call_id": call, "approve": approve} for call, approve in verdicts]
    retried = {"x-stainless-retry-count": "1"}
    again = desk.send(agent, {"approvals": entries}, extra_headers=retried)
    assert [one.id for one in again.messages] == [one.id for one in first.messages]
    with pytest.raises(UnprocessableEntityError, match="nothing waits"):
        desk.send(agent, {"approvals": [{**one, "approve": True} for one in entries]}, extra_headers=retried)
    assert desk.notes(agent) == "pay"


def test_the_same_call_twice_in_a_reply_needs_one_verdict_and_is_made_once(desk: Desk) -> None:
    agent, _ = desk.waiting()
    desk.model.think = lambda asked: Answer("Done.") if asked.results else Answer(calls=(BOTH[0], BOTH[0]))
    told = desk.client.agents.messages.create(agent, messages=[{"role": "user", "content": "Twice."}])
    asked = next(one for one in told.messages if one.message_type == "approval_request_message")
    assert isinstance(asked, ApprovalRequestMessage)
    assert len(ids(asked)) == 1
    desk.judge(agent, (ids(asked)[0], True))
    assert desk.notes(agent) == "pay"


def test_a_refused_call_is_a_gap_of_the_run_with_its_reason(desk: Desk) -> None:
    agent, asked = desk.waiting()
    pay, delete = ids(asked)
    desk.send(
        agent,
        {
            "approvals": [
                {"type": "approval", "tool_call_id": pay, "approve": True},
                {"type": "approval", "tool_call_id": delete, "approve": False, "reason": "not that"},
            ]
        },
    )
    run = next(iter(desk.client.runs.list(agent_id=agent)))
    told: Any = run.metadata
    assert told["chargehand"]["ending"] == "partial"
    (gap,) = told["chargehand"]["gaps"]
    assert (gap["status"], gap["tool"], gap["arguments"]["content"]) == ("refused", APPEND, "delete")
    assert "not that" in gap["message"]


def test_a_cancelled_run_says_why_and_who_cancelled_it(desk: Desk) -> None:
    agent, _ = desk.waiting()
    desk.client.agents.messages.cancel(agent)
    run = next(iter(desk.client.runs.list(agent_id=agent)))
    told: Any = run.metadata
    assert told["chargehand"]["why"] == "cancelled: its client stopped it (by operator)"
