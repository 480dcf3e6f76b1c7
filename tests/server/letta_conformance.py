"""What every client of its kind can do here, from 1.0.0 on: one walk through it all, with whichever is installed.

It needs nothing but `letta_client`:  python tests/server/letta_conformance.py URL TOKEN MODEL
The model is to say something, whatever it is asked. Raises AssertionError at the first thing that is not as it should.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import letta_client
from letta_client import APIStatusError, Letta, NotFoundError, UnprocessableEntityError


def conform(url: str, token: str, model: str) -> list[str]:
    """The parts of the API that were walked through; those that this client does not have are not among them."""
    client: Any = Letta(base_url=url, api_key=token)  # its methods differ from version to version
    parts = [blocks, archives, agents, attachments, messages, tools, lists, passages, clean]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what is old is meant to work
        return [part.__name__ for part in parts if part(client, model)]


def agent_of(client: Any, model: str, **more: Any) -> Any:
    return client.agents.create(
        name="ann", model=model, tags=["matrix"], memory_blocks=[{"label": "persona", "value": "Kind."}], **more
    )


def blocks(client: Any, _model: str) -> bool:
    block = client.blocks.create(label="plan", value="one", description="what to do", limit=100)
    assert client.blocks.retrieve(block.id).value == "one"
    assert client.blocks.update(block.id, value="two").value == "two"
    assert [one.id for one in client.blocks.list(label="plan", limit=1)] == [block.id]
    assert refused(lambda: client.blocks.update(block.id, value="x" * 101), UnprocessableEntityError)
    client.blocks.delete(block.id)
    assert refused(lambda: client.blocks.retrieve(block.id), NotFoundError)
    return True


def refused(call: Callable[[], object], error: type[APIStatusError]) -> bool:
    """Whether a call is refused as it should be; pytest is not everywhere this runs."""
    try:
        call()
    except error:
        return True
    return False


def archives(client: Any, _model: str) -> bool:
    archive = client.archives.create(name="findings", description="what was found")
    assert client.archives.update(archive.id, name="found").name == "found"
    assert client.archives.retrieve(archive.id).description == "what was found"
    assert [one.id for one in client.archives.list(name="found")] == [archive.id]
    if hasattr(client.archives, "passages") and hasattr(client.archives.passages, "create"):
        passage = client.archives.passages.create(archive.id, text="The bridge is 312 m long.", tags=["bridge"])
        assert passage.text == "The bridge is 312 m long."
        client.archives.passages.delete(passage.id, archive_id=archive.id)
    client.archives.delete(archive.id)
    assert [one.id for one in client.archives.list(name="found")] == []
    return True


def agents(client: Any, model: str) -> bool:
    shared = client.blocks.create(label="guidelines", value="Cite.")
    agent = agent_of(client, model, block_ids=[shared.id], tools=["archival_memory_insert"], description="reads")
    for one in (agent, client.agents.retrieve(agent.id), next(iter(client.agents.list(tags=["matrix"])))):
        assert (one.name, one.description, one.tags) == ("ann", "reads", ["matrix"])
        assert {block.label for block in one.memory.blocks} == {"guidelines", "persona"}
        assert "archival_memory_insert" in [tool.name for tool in one.tools]
    assert client.agents.update(agent.id, name="bob", tags=["matrix", "new"]).name == "bob"
    assert client.agents.retrieve(agent.id).tags == ["matrix", "new"]
    client.agents.delete(agent.id)
    client.blocks.delete(shared.id)
    return True


def attachments(client: Any, model: str) -> bool:
    agent = agent_of(client, model)
    block = client.blocks.create(label="plan", value="x")
    archive = client.archives.create(name="findings")
    client.agents.blocks.attach(block.id, agent_id=agent.id)
    assert client.agents.blocks.retrieve("plan", agent_id=agent.id).value == "x"
    assert client.agents.blocks.update("plan", agent_id=agent.id, value="y").value == "y"
    assert {one.label for one in client.agents.blocks.list(agent.id)} == {"plan", "persona"}
    client.agents.blocks.detach(block.id, agent_id=agent.id)
    assert {one.label for one in client.agents.blocks.list(agent.id)} == {"persona"}
    client.agents.archives.attach(archive.id, agent_id=agent.id)
    assert [one.id for one in client.archives.list(agent_id=agent.id)] == [archive.id]
    client.agents.archives.detach(archive.id, agent_id=agent.id)
    tool = next(iter(client.tools.list(name="archival_memory_search")))
    client.agents.tools.attach(tool.id, agent_id=agent.id)
    assert tool.name in [one.name for one in client.agents.tools.list(agent.id, limit=50)]
    client.agents.tools.detach(tool.id, agent_id=agent.id)
    assert tool.name not in [one.name for one in client.agents.tools.list(agent.id, limit=50)]
    return True


def messages(client: Any, model: str) -> bool:
    agent = agent_of(client, model)
    told = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "Hello."}])
    assert told.messages[-1].message_type == "assistant_message"
    assert told.messages[-1].content
    assert told.stop_reason.stop_reason == "end_turn"
    kinds = [one.message_type for one in client.agents.messages.list(agent.id)]
    assert {"user_message", "assistant_message"} <= set(kinds)
    streamed = client.agents.messages.stream(agent.id, messages=[{"role": "user", "content": "Again."}])
    assert "assistant_message" in [one.message_type for one in streamed]
    run = client.agents.messages.create_async(agent.id, messages=[{"role": "user", "content": "Later."}])
    assert client.runs.retrieve(run.id).agent_id == agent.id
    return True


def tools(client: Any, _model: str) -> bool:
    names = [one.name for one in client.tools.list(limit=3)]
    assert len(names) == len(set(names))
    assert "memory_insert" in names
    one = next(iter(client.tools.list(name="memory_insert")))
    assert client.tools.retrieve(one.id).json_schema["name"] == "memory_insert"
    return True


def lists(client: Any, model: str) -> bool:
    made = [agent_of(client, model).id for _ in range(3)]
    found = [one.id for one in client.agents.list(tags=["matrix"], limit=2)]
    assert len(found) == len(set(found))
    assert set(made) <= set(found)
    assert "matrix" in list(client.tags.list())
    assert [one.handle for one in client.models.list()]
    assert client.health().status == "ok"
    return True


def passages(client: Any, model: str) -> bool:
    if not hasattr(client.agents, "passages"):
        return False
    agent = agent_of(client, model)
    [kept] = client.agents.passages.create(agent.id, text="The tower is 88 m high.")
    assert client.agents.passages.search(agent.id, query="how high is the tower").count == 1
    assert [one.text for one in client.agents.passages.list(agent.id)] == [kept.text]
    client.agents.passages.delete(kept.id, agent_id=agent.id)
    assert client.agents.passages.list(agent.id) == []
    return True


def clean(client: Any, _model: str) -> bool:
    for one in [*client.agents.list(tags=["matrix"], limit=100)]:
        client.agents.delete(one.id)
    assert list(client.agents.list(tags=["matrix"])) == []
    return True


if __name__ == "__main__":
    walked = conform(*sys.argv[1:4])
    sys.stdout.write(f"letta-client {letta_client.__version__}: {', '.join(walked)}\n")
