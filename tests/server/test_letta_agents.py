"""Agents with the real client: made, found, changed, told in full, deleted with all that hangs on them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, BadRequestError, Letta, NotFoundError, UnprocessableEntityError

from tests.server.running import Running, running, settings_in

MISSING = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(settings_in(tmp_path)) as one:
        yield one


@pytest.fixture
def client(server: Running) -> Iterator[Letta]:
    with Letta(base_url=server.url, api_key=server.token, _strict_response_validation=True) as client:
        yield client


def test_an_agent_is_told_in_full_by_create_retrieve_and_list(client: Letta) -> None:
    shared = client.blocks.create(label="guidelines", value="Cite.")
    made = client.agents.create(
        name="ann",
        description="reads",
        system="You read.",
        model="openai/gpt-4o",
        tags=["worker", "technical"],
        memory_blocks=[{"label": "persona", "value": "Kind."}],
        block_ids=[shared.id],
        tools=["archival_memory_insert"],
        metadata={"n": 1},
        timezone="UTC",
    )
    for one in (made, client.agents.retrieve(made.id), client.agents.list().items[0]):
        assert (one.name, one.description, one.system, one.model) == ("ann", "reads", "You read.", "openai/gpt-4o")
        assert one.tags == ["worker", "technical"]
        assert [block.label for block in one.blocks] == ["guidelines", "persona"]
        assert [block.label for block in one.memory.blocks] == ["guidelines", "persona"]
        assert [tool.name for tool in one.tools] == [
            "archival_memory_insert",
            "conversation_search",
            "memory_insert",
            "memory_replace",
        ]
        assert (one.metadata, one.timezone) == ({"n": 1}, "UTC")


def test_agents_without_a_name_get_one_of_their_own(client: Letta) -> None:
    names = {client.agents.create().name for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("agent-") for name in names)


def test_agents_are_found_by_any_and_by_all_tags_by_name_and_by_words(client: Letta) -> None:
    client.agents.create(name="ann", tags=["worker", "technical"], description="reads papers")
    client.agents.create(name="bob", tags=["worker", "market"], description="reads prices")
    client.agents.create(name="cid", tags=["boss"])

    def names(**asked: Any) -> list[str]:
        return [one.name for one in client.agents.list(order="asc", **asked)]

    assert names(tags=["technical", "boss"]) == ["ann", "cid"]
    assert names(tags=["worker", "market"], match_all_tags=True) == ["bob"]
    assert names(tags=["worker", "worker"], match_all_tags=True) == ["ann", "bob"]  # a tag said twice misses nobody
    assert names(name="bob") == ["bob"]
    assert names(query_text="PRICES") == ["bob"]
    assert names(include=["agent.blocks", "agent.tags"]) == ["ann", "bob", "cid"]
    for other in ({"identity_id": "identity-1"}, {"project_id": "p"}, {"last_stop_reason": "error"}):
        with pytest.raises(UnprocessableEntityError, match="is not supported here"):
            names(**other)


def test_a_list_ends_in_every_order(client: Letta) -> None:
    for name in ("cid", "ann", "bob"):
        client.agents.create(name=name)
    assert [one.name for one in client.agents.list(limit=2)] == ["bob", "ann", "cid"]
    assert [one.name for one in client.agents.list(limit=1, order="asc")] == ["cid", "ann", "bob"]
    assert [one.name for one in client.agents.list(limit=1, order_by="created_at")] == ["bob", "ann", "cid"]
    with pytest.raises(UnprocessableEntityError, match="order_by"):
        client.agents.list(extra_query={"order_by": "shoe_size"})


def test_tags_and_tools_are_replaced_and_what_is_not_sent_stays(client: Letta) -> None:
    block = client.blocks.create(label="one", value="x")
    agent = client.agents.create(name="ann", tags=["a"], block_ids=[block.id], description="reads")
    search = next(tool for tool in agent.tools if tool.name == "conversation_search")
    changed = client.agents.update(agent.id, tags=["b", "c"], tool_ids=[search.id])
    assert (changed.tags, changed.description) == (["b", "c"], "reads")
    assert [block.label for block in changed.blocks] == ["one"]
    assert [tool.name for tool in changed.tools] == ["conversation_search"]
    assert client.agents.update(agent.id, tool_ids=[], tags=[]).tools == []
    assert client.agents.retrieve(agent.id).tags == []
    with pytest.raises(UnprocessableEntityError, match="block_ids is not supported here: attach and detach"):
        client.agents.update(agent.id, block_ids=[block.id])


def test_changes_of_different_fields_at_once_are_all_kept(client: Letta) -> None:
    agent = client.agents.create(name="ann")
    fields: list[dict[str, Any]] = [
        {"description": "d"},
        {"tags": ["t"]},
        {"system": "s"},
        {"metadata": {"m": 1}},
        {"name": "bob"},
    ]
    with ThreadPoolExecutor(5) as pool:
        for each in fields:
            pool.submit(client.agents.update, agent.id, **each)
    kept = client.agents.retrieve(agent.id)
    assert (kept.name, kept.description, kept.tags, kept.system, kept.metadata) == ("bob", "d", ["t"], "s", {"m": 1})


def test_what_is_wrong_with_a_new_agent_is_said_and_nothing_is_kept(client: Letta) -> None:
    block = client.blocks.create(label="plan", value="x")
    with pytest.raises(NotFoundError, match="block"):
        client.agents.create(block_ids=[f"block-{MISSING}"])
    with pytest.raises(BadRequestError, match="archival_memory_insert"):
        client.agents.create(tools=["no_such_tool"])
    with pytest.raises(UnprocessableEntityError, match="persona"):
        client.agents.create(memory_blocks=[{"label": "persona", "value": "a"}, {"label": "persona", "value": "b"}])
    with pytest.raises(UnprocessableEntityError, match="plan"):
        client.agents.create(memory_blocks=[{"label": "plan", "value": "a"}], block_ids=[block.id])
    with pytest.raises(UnprocessableEntityError, match="limit"):
        client.agents.create(
            memory_blocks=[{"label": "persona", "value": "a"}, {"label": "human", "value": "x" * 11, "limit": 10}]
        )
    assert client.agents.list().items == []
    assert [one.label for one in client.blocks.list()] == ["plan"]


def test_a_deleted_agent_leaves_nothing_but_what_others_may_share(client: Letta) -> None:
    block = client.blocks.create(label="plan", value="x")
    archive = client.archives.create(name="findings")
    agent = client.agents.create(name="ann", block_ids=[block.id], tags=["gone"])
    client.agents.archives.attach(archive.id, agent_id=agent.id)
    client.agents.delete(agent.id)
    with pytest.raises(NotFoundError):
        client.agents.retrieve(agent.id)
    with pytest.raises(NotFoundError):
        client.agents.delete(agent.id)
    assert list(client.blocks.agents.list(block.id)) == []
    assert list(client.tags.list()) == []
    assert client.blocks.retrieve(block.id).value == "x"
    assert client.archives.retrieve(archive.id).name == "findings"


def test_agents_that_hold_a_block_are_told(client: Letta) -> None:
    block = client.blocks.create(label="plan", value="x")
    names = [client.agents.create(name=name, block_ids=[block.id]).name for name in ("ann", "bob", "cid")]
    client.agents.create(name="dan")
    assert [one.name for one in client.blocks.agents.list(block.id, limit=2, order="asc")] == names


def test_two_archives_are_one_archival_memory(client: Letta) -> None:
    """The old server knew one archive an agent, and answered the second with its own SQL."""
    agent = client.agents.create(name="ann")
    for name, text in (("bridges", "The bridge is 312 m long."), ("towers", "The tower is 88 m high.")):
        archive = client.archives.create(name=name)
        client.archives.passages.create(archive.id, text=text)
        client.agents.archives.attach(archive.id, agent_id=agent.id)
        client.agents.archives.attach(archive.id, agent_id=agent.id)
    assert {one.text for one in client.agents.passages.list(agent.id)} == {
        "The bridge is 312 m long.",
        "The tower is 88 m high.",
    }
    found = client.agents.passages.search(agent.id, query="how high is the tower", top_k=1)
    assert [one.content for one in found.results] == ["The tower is 88 m high."]
    assert [one.name for one in client.archives.list(agent_id=agent.id, order="asc")] == ["bridges", "towers"]


def test_an_agent_without_an_archive_gets_one_with_its_first_passage_and_only_one(client: Letta) -> None:
    agent = client.agents.create(name="ann")
    assert client.agents.passages.list(agent.id) == []
    assert client.agents.passages.search(agent.id, query="bridge").count == 0
    with ThreadPoolExecutor(4) as pool:
        for number in range(4):
            pool.submit(client.agents.passages.create, agent.id, text=f"Bridge {number} is closed.")
    assert len(list(client.archives.list(agent_id=agent.id))) == 1
    kept = client.agents.passages.create(agent.id, text="The canal is open.", tags=["canal"])
    assert [(one.text, one.tags) for one in kept] == [("The canal is open.", ["canal"])]
    assert len(client.agents.passages.list(agent.id)) == 5
    assert [one.text for one in client.agents.passages.list(agent.id, search="CANAL")] == ["The canal is open."]
    first = client.agents.passages.list(agent.id, limit=2)
    rest = client.agents.passages.list(agent.id, after=first[-1].id)
    assert len({one.id for one in [*first, *rest]}) == 5
    tagged = client.agents.passages.search(agent.id, query="open or closed", tags=["canal"])
    assert [one.content for one in tagged.results] == ["The canal is open."]
    client.agents.passages.delete(str(kept[0].id), agent_id=agent.id)
    assert len(client.agents.passages.list(agent.id)) == 4
    with pytest.raises(NotFoundError):
        client.agents.passages.delete(str(kept[0].id), agent_id=agent.id)


def test_a_passage_of_another_agent_is_not_this_ones_to_delete(client: Letta) -> None:
    ann = client.agents.create(name="ann")
    bob = client.agents.create(name="bob")
    kept = client.agents.passages.create(ann.id, text="Mine.")
    client.agents.passages.create(bob.id, text="His.")
    with pytest.raises(NotFoundError):
        client.agents.passages.delete(str(kept[0].id), agent_id=bob.id)
    assert [one.passage.text for one in client.passages.search(query="mine", agent_id=ann.id)] == ["Mine."]


def test_models_health_and_what_there_is_not(client: Letta, server: Running) -> None:
    client.agents.create(model="anthropic/claude-nobody-has")
    assert "demo" in [one.handle for one in client.models.list()]
    assert isinstance(client.models.embeddings.list(), list)
    assert client.health().status == "ok"
    with httpx.Client(base_url=server.url, headers=server.headers) as raw:
        assert raw.get("/v1/models/embedding").status_code == 200
        assert raw.get("/v1/folders/").json() == []
        assert raw.get("/v1/folders/source-1").status_code == 404


def test_a_foreign_id_is_unknown_and_nothing_is_sent_again(client: Letta) -> None:
    with pytest.raises(APIStatusError) as caught:
        client.agents.retrieve(f"agent-{MISSING}")
    assert caught.value.status_code == 404
    assert caught.value.response.headers["x-should-retry"] == "false"
