"""Agents in files: out and in again with the real client, files of others, and files that mean harm."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from letta_client import APIStatusError, Letta, PermissionDeniedError, UnprocessableEntityError

from tests.server.model_server import Question, fake_model
from tests.server.running import running, settings_in

SOURCE = 'def shout(text: str) -> str:\n    """Say it loud."""\n    return text.upper()\n'


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Letta]:
    with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
        yield client


def take_in(client: Letta, file: object, **wishes: Any) -> list[str]:
    raw = file if isinstance(file, bytes) else json.dumps(file).encode()
    return client.agents.import_file(file=("agent.af", raw, "application/json"), **wishes).agent_ids


def test_an_agent_goes_into_a_file_and_comes_back_as_it_was(tmp_path: Path) -> None:
    def think(asked: Question) -> str:
        return "I know of the bridge." if "bridge" in asked.user else "I know of nothing."

    with (
        fake_model(think) as model,
        running(settings_in(tmp_path, custom_tools=True)) as one,
        Letta(base_url=one.url, api_key=one.token) as client,
    ):
        client.tools.create(source_code=SOURCE)
        block = client.blocks.create(label="plan", value="Ask first.", description="how", limit=500, read_only=True)
        made = client.agents.create(
            name="ann",
            description="reads",
            system="You read.",
            model=model.handle,
            tags=["worker"],
            memory_blocks=[{"label": "persona", "value": "Kind."}],
            block_ids=[block.id],
            metadata={"n": 1},
            tools=["shout", "archival_memory_search"],
            tool_rules=[{"type": "run_first", "tool_name": "shout"}],
        )
        client.agents.update(
            made.id, tool_rules=[{"type": "max_count_per_step", "tool_name": "shout", "max_count_limit": 2}]
        )
        client.agents.messages.create(made.id, messages=[{"role": "user", "content": "The bridge is closed."}])
        file = json.loads(client.agents.export_file(made.id))
        assert set(file) >= {"agents", "groups", "blocks", "files", "sources", "tools", "mcp_servers", "skills"}
        [back] = take_in(client, file)
        twin = client.agents.retrieve(back)
        first = client.agents.retrieve(made.id)
        for name in ("name", "description", "system", "model", "tags", "metadata", "tool_rules"):
            assert getattr(twin, name) == getattr(first, name), name
        assert [one.name for one in twin.tools] == [one.name for one in first.tools]
        assert [(one.label, one.value, one.limit, one.read_only) for one in twin.blocks] == [
            (one.label, one.value, one.limit, one.read_only) for one in first.blocks
        ]
        assert not {one.id for one in twin.blocks} & {one.id for one in first.blocks}
        told = client.agents.messages.create(back, messages=[{"role": "user", "content": "What do you know?"}])
        assert told.messages[-1].to_dict()["content"] == "I know of the bridge."  # it remembers what it was told
        [bare] = take_in(client, file, strip_messages=True, name="bob")
        assert client.agents.retrieve(bare).name == "bob"
        told = client.agents.messages.create(bare, messages=[{"role": "user", "content": "What do you know?"}])
        assert told.messages[-1].to_dict()["content"] == "I know of nothing."
        assert "bridge" not in client.agents.export_file(made.id, scrub_messages=True)


def test_a_file_of_another_server_comes_in_with_what_is_known_here(client: Letta) -> None:
    file: dict[str, Any] = {
        "agents": [
            {
                "id": "agent-0",
                "name": "ann",
                "agent_type": "memgpt_v2_agent",
                "system": "You read.",
                "block_ids": ["block-0"],
                "tool_ids": ["tool-0", "tool-1"],
                "unheard_of": {"a": [1]},
                "llm_config": {"model": "gpt-4o", "model_endpoint_type": "openai", "context_window": 8000},
                "tool_rules": [{"type": "exit_loop", "tool_name": "send_message", "prompt_template": None}],
                "messages": [
                    {"role": "system", "content": [{"type": "text", "text": "rules"}]},
                    {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
                    {"role": "tool", "content": None, "tool_returns": []},
                    {"role": "assistant", "content": "Hi.", "model": "x"},
                ],
            },
            {"id": "agent-1", "block_ids": ["block-0"]},
        ],
        "blocks": [{"id": "block-0", "label": "human", "value": "Sam", "is_template": False, "strange": 1}],
        "tools": [
            {"id": "tool-0", "name": "send_message", "tool_type": "letta_core", "source_code": None},
            {"id": "tool-1", "name": "memory_insert", "tool_type": "letta_memory_core"},
        ],
        "groups": [],
        "files": [],
        "sources": [],
        "mcp_servers": [],
        "created_at": "2025-01-01",
        "revision": "x",
    }
    ann, other = (client.agents.retrieve(one) for one in take_in(client, file))
    assert (ann.name, ann.system, [one.name for one in ann.tools]) == ("ann", "You read.", ["memory_insert"])
    assert ann.blocks[0].id == other.blocks[0].id  # what was shared is shared
    assert len(other.name) > 3
    assert ann.llm_config.context_window == 8000


def test_what_is_asked_of_an_import_takes_effect_or_is_refused_by_name(client: Letta) -> None:
    file = {"agents": [{"name": "ann", "model": "openai/gpt-4o"}]}
    for wishes in (
        {"name": "bob", "model": "anthropic/claude-sonnet-4-5"},
        {"override_name": "bob", "override_model_handle": "anthropic/claude-sonnet-4-5"},
    ):
        agent = client.agents.retrieve(take_in(client, file, project_id="project-1", **wishes)[0])
        assert (agent.name, agent.model) == ("bob", "anthropic/claude-sonnet-4-5")
    with pytest.raises(UnprocessableEntityError, match="conversation_id"):
        client.agents.export_file(take_in(client, file)[0], conversation_id="conversation-1")
    before = len(client.agents.list().items)
    two = {"agents": [{"name": "ann"}, {"name": "bob"}]}
    refused: list[tuple[object, dict[str, Any], str]] = [
        (file, {"secrets": '{"KEY": "x"}'}, "secrets"),
        (file, {"env_vars_json": '{"KEY": "x"}'}, "env_vars_json"),
        (file, {"override_existing_tools": True}, "override_existing_tools"),
        (file, {"override_model_handle": "nonsense"}, "nonsense"),
        (file, {"extra_body": {"append_copy": "1"}}, "append_copy"),
        (two, {"override_name": "cid"}, "name"),
    ]
    for sent, wishes, word in refused:
        with pytest.raises(UnprocessableEntityError, match=word):
            take_in(client, sent, **wishes)
    assert len(client.agents.list().items) == before


DEEP = b'{"agents": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"not json",
        b"[]",
        b'{"agents": "ann"}',
        b'{"agents": []}',
        b'{"agents": [{"name": 1.5, "tags": {}}]}',
        b'{"agents": [{"block_ids": ["block-9"]}]}',
        b"\x80\x04\x95pickle",
        DEEP,
        json.dumps({"agents": [{"tags": ["x"]}] * 101}).encode(),
        json.dumps({"agents": [{}], "blocks": [{"label": "a", "value": "x" * 11, "limit": 10}]}).encode(),
        json.dumps({"agents": [{"messages": [{}] * 10_001}]}).encode(),
        json.dumps(
            {
                "agents": [{}, {"tool_rules": [{"type": "fly", "tool_name": "x"}]}],
                "blocks": [{"id": "b", "label": "a", "value": "x"}],
            }
        ).encode(),
    ],
)
def test_a_file_that_is_none_is_refused_in_words_and_leaves_nothing(client: Letta, file: bytes) -> None:
    with pytest.raises(UnprocessableEntityError) as caught:
        take_in(client, file)
    assert len(caught.value.response.json()["detail"]) > 10
    assert client.agents.list().items == []
    assert client.blocks.list().items == []


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token, max_retries=0) as client:
        with pytest.raises(APIStatusError) as caught:
            take_in(client, b" " * (17 * 1024 * 1024))
        assert caught.value.status_code == 413


def test_tools_in_a_file_need_the_same_leave_and_are_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    source = f"open({str(trap)!r}, 'w').write('x')\n\n{SOURCE}"
    file = {"agents": [{"tool_ids": ["tool-0"]}], "tools": [{"id": "tool-0", "name": "shout", "source_code": source}]}
    with running(settings_in(tmp_path / "off")) as one, Letta(base_url=one.url, api_key=one.token) as client:
        with pytest.raises(PermissionDeniedError, match="shout"):
            take_in(client, file)
        assert client.agents.list().items == []
    with (
        running(settings_in(tmp_path / "on", custom_tools=True)) as one,
        Letta(base_url=one.url, api_key=one.token) as client,
    ):
        [made] = take_in(client, file)
        assert [tool.name for tool in client.agents.retrieve(made).tools] == ["shout"]
        bad = {
            "agents": [{"tool_ids": ["tool-0"]}],
            "tools": [{"id": "tool-0", "name": "shout", "source_code": "def other(): ..."}],
        }
        with pytest.raises(UnprocessableEntityError, match="shout"):
            take_in(client, bad)
    assert not trap.exists()
