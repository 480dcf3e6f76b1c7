"""Tool rules as the real client sends them: taken, kept, told again, and kept to."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from letta_client import Letta, UnprocessableEntityError
from letta_client.types import AgentState

from chargehand.server.letta.settings import read_rules
from chargehand.tools import rules as ours
from tests.server.model_server import Answer, Call, FakeModel, Question, fake_model
from tests.server.running import running, settings_in

TOOLS = ["archival_memory_search", "archival_memory_insert", "conversation_search", "core_memory_append"]
Think = Callable[[Question], Answer | str]
SEARCH = Call("archival_memory_search", {"query": "bridge"})
INSERT = Call("archival_memory_insert", {"content": "The bridge is closed."})
RECALL = Call("conversation_search", {"query": "bridge"})


@contextmanager
def agent_with(
    folder: Path, think: Think, *rules: dict[str, Any], name: str = "ann"
) -> Generator[tuple[Letta, AgentState, FakeModel]]:
    with (
        fake_model(think) as model,
        running(settings_in(folder)) as one,
        Letta(base_url=one.url, api_key=one.token) as client,
    ):
        sent: Any = list(rules)
        agent = client.agents.create(
            name=name, model=model.handle, tools=TOOLS, include_base_tools=False, tool_rules=sent
        )
        yield client, agent, model


def asked(client: Letta, agent: AgentState) -> list[str]:
    """What tools returned to an agent that was asked something: names and how it went."""
    told = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "Look after the bridge."}])
    return [f"{one.name} {one.status}" for one in told.messages if one.message_type == "tool_return_message"]


def script(*answers: Answer | str) -> Think:
    """Answers in turn, one a question; the last one again and again."""
    left = list(answers)
    return lambda _asked: left.pop(0) if len(left) > 1 else left[0]


def test_rules_of_all_nine_types_are_kept_and_told_as_they_were_sent(tmp_path: Path) -> None:
    """Rules that were taken and not kept were a complaint of those who used the old server."""
    rules: list[dict[str, Any]] = [
        {"type": "run_first", "tool_name": TOOLS[0]},
        {"type": "exit_loop", "tool_name": TOOLS[3]},
        {"type": "continue_loop", "tool_name": TOOLS[1]},
        {"type": "conditional", "tool_name": TOOLS[2], "child_output_mapping": {"yes": TOOLS[1]}},
        {"type": "constrain_child_tools", "tool_name": TOOLS[0], "children": [TOOLS[1], TOOLS[2]]},
        {"type": "max_count_per_step", "tool_name": TOOLS[1], "max_count_limit": 2},
        {"type": "parent_last_tool", "tool_name": TOOLS[1], "children": [TOOLS[3]]},
        {"type": "required_before_exit", "tool_name": TOOLS[1]},
        {"type": "requires_approval", "tool_name": TOOLS[3]},
    ]
    with agent_with(tmp_path, script("Done."), *rules) as (client, agent, _):
        kept = client.agents.retrieve(agent.id).tool_rules or []
        assert [one.to_dict(exclude_none=True) for one in kept] == rules
        client.agents.update(agent.id, tool_rules=[{"type": "exit_loop", "tool_name": TOOLS[3]}])
        assert [one.type for one in client.agents.retrieve(agent.id).tool_rules or []] == ["exit_loop"]


def test_what_runs_first_is_all_that_is_offered_at_first(tmp_path: Path) -> None:
    think = script(Answer(calls=(SEARCH,)), "Done.")
    with agent_with(tmp_path, think, {"type": "run_first", "tool_name": SEARCH.name}) as (client, agent, model):
        assert asked(client, agent) == [f"{SEARCH.name} success"]
        first, second = (set(one.tools) & set(TOOLS) for one in model.questions[:2])
        assert first == {SEARCH.name}
        assert second == set(TOOLS)


def test_after_the_tool_that_ends_the_loop_the_model_is_not_asked_again(tmp_path: Path) -> None:
    think = script(Answer(calls=(RECALL,)), Answer(calls=(INSERT,)), "Said only later.")
    with agent_with(tmp_path, think, {"type": "exit_loop", "tool_name": INSERT.name}) as (client, agent, model):
        told = client.agents.messages.create(agent.id, input="Look after the bridge.")
        assert told.stop_reason.stop_reason == "tool_rule"
        assert len(model.questions) == 2
        called = ["tool_call_message", "tool_return_message"]
        assert [one.message_type for one in told.messages] == [*called, *called], "what it returned is told once"
        listed = client.agents.messages.list(agent.id)
        assert [one.message_type for one in listed] == ["user_message", *called, *called]
        run = client.runs.retrieve((told.usage.run_ids or [""])[0])
        assert (run.status, run.stop_reason) == ("completed", "tool_rule")
        told = client.agents.messages.create(agent.id, input="Thank you.")
        assert told.stop_reason.stop_reason == "end_turn"


def test_children_are_all_that_is_offered_right_after_their_parent(tmp_path: Path) -> None:
    think = script(Answer(calls=(SEARCH,)), Answer(calls=(RECALL,)), "Done.")
    rule = {"type": "constrain_child_tools", "tool_name": SEARCH.name, "children": [RECALL.name]}
    with agent_with(tmp_path, think, rule) as (client, agent, model):
        asked(client, agent)
        assert set(model.questions[1].tools) & set(TOOLS) == {RECALL.name}
        assert set(model.questions[2].tools) & set(TOOLS) == set(TOOLS)


def test_children_of_a_last_tool_are_hidden_until_it_was_called(tmp_path: Path) -> None:
    think = script(Answer(calls=(SEARCH,)), "Done.")
    rule = {"type": "parent_last_tool", "tool_name": SEARCH.name, "children": [INSERT.name]}
    with agent_with(tmp_path, think, rule) as (client, agent, model):
        asked(client, agent)
        assert INSERT.name not in model.questions[0].tools
        assert INSERT.name in model.questions[1].tools


def test_a_count_is_that_of_one_message_and_not_of_one_step(tmp_path: Path) -> None:
    think = script(*(Answer(calls=(RECALL,)),) * 3, "Done.", *(Answer(calls=(RECALL,)),) * 2, "Done.")
    rule = {"type": "max_count_per_step", "tool_name": RECALL.name, "max_count_limit": 2}
    with agent_with(tmp_path, think, rule) as (client, agent, _):
        assert asked(client, agent) == [f"{RECALL.name} {how}" for how in ("success", "success", "error")]
        assert asked(client, agent) == [f"{RECALL.name} success"] * 2


def test_an_answer_is_sent_back_until_what_is_required_was_called(tmp_path: Path) -> None:
    think = script("Done.", Answer(calls=(INSERT,)), "Done.")
    with agent_with(tmp_path, think, {"type": "required_before_exit", "tool_name": INSERT.name}) as one:
        client, agent, model = one
        assert asked(client, agent) == [f"{INSERT.name} success"]
        assert INSERT.name in model.questions[1].user


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"type": "dance", "tool_name": "x"}, "run_first"),
        ({"type": "run_first"}, "tool_name"),
        ({"type": "run_first", "tool_name": TOOLS[0], "args": {"query": "x"}}, "beforehand"),
        ({"type": "conditional", "tool_name": TOOLS[0]}, "child_output_mapping"),
        ({"type": "constrain_child_tools", "tool_name": TOOLS[0], "children": []}, "children must not be empty"),
        ({"type": "max_count_per_step", "tool_name": TOOLS[0], "max_count_limit": 0}, "max_count_limit"),
    ],
)
def test_a_rule_that_could_not_be_kept_is_refused_in_words(tmp_path: Path, rule: dict[str, Any], words: str) -> None:
    with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
        with pytest.raises(UnprocessableEntityError, match=words):
            client.agents.create(tools=TOOLS, tool_rules=[rule])  # pyright: ignore[reportArgumentType] - wrong on purpose
        assert client.agents.list().items == []


def test_a_rule_about_a_tool_that_is_not_there_sleeps() -> None:
    written = [
        {"type": "exit_loop", "tool_name": "send_message"},
        {"type": "constrain_child_tools", "tool_name": "a", "children": ["b", "c"]},
    ]
    assert read_rules(written, ["a", "b"]) == (ours.ConstrainChildTools("a", ("b",)),)
    assert read_rules(written, ["a"]) == (ours.ExitLoop("a"),)
    assert read_rules([], ["a"]) == ()


def test_results_that_python_and_json_write_differently_are_the_same_case() -> None:
    written = [{"type": "conditional", "tool_name": "a", "child_output_mapping": {"True": "b"}, "default_child": "c"}]
    assert read_rules(written, ["a", "b", "c"]) == (ours.Conditional("a", {"True": "b", "true": "b"}, "c"),)
