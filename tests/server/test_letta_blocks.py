"""Blocks with the real client: every way to list them, limits, versions, and many who write at once."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from letta_client import ConflictError, Letta, UnprocessableEntityError

from tests.server.model_server import Answer, Call, Question, fake_model
from tests.server.running import running, settings_in


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Letta]:
    with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
        yield client


def test_blocks_are_found_by_label_and_tags(client: Letta) -> None:
    client.blocks.create(label="plan", value="buy milk", description="what to do", tags=["a", "b"])
    client.blocks.create(label="persona", value="kind", description="who", tags=["a"])

    def labels(**asked: Any) -> list[str]:
        return [str(one.label) for one in client.blocks.list(**asked)]

    assert labels(label="plan") == ["plan"]
    assert labels(tags=["a", "b"], match_all_tags=True) == ["plan"]
    assert labels(tags=["b", "c"]) == ["plan"]
    with pytest.raises(UnprocessableEntityError, match="identity_id in the query is not supported"):
        labels(identity_id="identity-1")


def test_a_limit_is_kept_and_what_does_not_fit_changes_nothing(client: Letta) -> None:
    """The old server took fifty characters into a block of ten."""
    with pytest.raises(UnprocessableEntityError, match="limit of 10"):
        client.blocks.create(label="small", value="x" * 11, limit=10)
    block = client.blocks.create(label="small", value="one", limit=10)
    with pytest.raises(UnprocessableEntityError, match="limit is 10"):
        client.blocks.update(block.id, value="x" * 11, description="new", tags=["t"])
    kept = client.blocks.retrieve(block.id)
    assert (kept.value, kept.description, kept.tags) == ("one", None, [])
    with pytest.raises(UnprocessableEntityError):
        client.blocks.update(block.id, limit=2)
    assert client.blocks.update(block.id, value="x" * 20, limit=20).value == "x" * 20
    assert client.blocks.update(block.id, value="y", limit=1).limit == 1


def test_a_version_is_told_and_may_be_asked_for(client: Letta) -> None:
    block = client.blocks.create(label="plan", value="one")
    seen = block.to_dict()["version"]
    changed = client.blocks.update(block.id, value="two", extra_body={"version": seen})
    assert changed.to_dict()["version"] != seen
    with pytest.raises(ConflictError) as caught:
        client.blocks.update(block.id, value="three", description="lost", extra_body={"version": seen})
    assert caught.value.response.headers["x-should-retry"] == "false"
    kept = client.blocks.retrieve(block.id)
    assert (kept.value, kept.description) == ("two", None)


def test_of_24_updates_at_once_none_fails_and_one_is_last(client: Letta) -> None:
    """The old server answered 23 of them with a conflict."""
    block = client.blocks.create(label="plan", value="")
    with ThreadPoolExecutor(24) as pool:
        updates = [pool.submit(client.blocks.update, block.id, value=f"v{number}") for number in range(24)]
    values = [one.result().value for one in updates]
    assert sorted(values) == sorted(f"v{n}" for n in range(24))
    assert client.blocks.retrieve(block.id).value in values


def test_fields_change_while_the_text_is_edited_and_both_are_kept(client: Letta) -> None:
    block = client.blocks.create(label="plan", value="")
    with ThreadPoolExecutor(8) as pool:
        for number in range(8):
            pool.submit(client.blocks.update, block.id, value=f"v{number}")
            pool.submit(client.blocks.update, block.id, description=f"d{number}")
    kept = client.blocks.retrieve(block.id)
    assert str(kept.value).startswith("v")
    assert str(kept.description).startswith("d")


def insert_three(asked: Question) -> Answer | str:
    """Three lines, in three steps, then done. Who it is stands in what it was told."""
    done = len(asked.results)
    if done == 3:
        return "All three are in."
    who = f"{asked.system} {asked.user}".partition("I am worker ")[2][:1]
    return Answer(calls=(Call("memory_insert", {"label": "log", "new_string": f"line {done} of {who}"}),))


def test_24_inserts_of_8_agents_into_one_block_are_24_lines(tmp_path: Path) -> None:
    """The old server failed 22 of them and lost one of the other two."""
    with (
        fake_model(insert_three) as model,
        running(settings_in(tmp_path)) as one,
        Letta(base_url=one.url, api_key=one.token) as client,
    ):
        block = client.blocks.create(label="log", value="start")
        agents = [
            client.agents.create(
                name=f"w{n}",
                model=model.handle,
                block_ids=[block.id],
                memory_blocks=[{"label": "persona", "value": f"I am worker {n}"}],
            )
            for n in range(8)
        ]
        with ThreadPoolExecutor(8) as pool:
            sent: Any = [{"role": "user", "content": "Log three lines."}]
            asked = [pool.submit(client.agents.messages.create, agent.id, messages=sent) for agent in agents]
        returns = [
            each for one in asked for each in one.result().messages if each.message_type == "tool_return_message"
        ]
        assert [each.status for each in returns] == ["success"] * 24
        lines = client.blocks.retrieve(block.id).value.splitlines()
        assert sorted(lines) == sorted(["start", *(f"line {step} of {n}" for n in range(8) for step in range(3))])


def test_a_read_only_block_is_kept_from_agents_and_not_from_people(tmp_path: Path) -> None:
    def says(asked: Question) -> Answer | str:
        if asked.results:
            return "I could not."
        return Answer(calls=(Call("memory_insert", {"label": "law", "new_string": "mine"}),))

    with (
        fake_model(says) as model,
        running(settings_in(tmp_path)) as one,
        Letta(base_url=one.url, api_key=one.token) as client,
    ):
        block = client.blocks.create(label="law", value="theirs", read_only=True)
        agent = client.agents.create(model=model.handle, block_ids=[block.id])
        told = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "Change the law."}])
        [back] = [each for each in told.messages if each.message_type == "tool_return_message"]
        assert back.status == "error"
        assert "read" in json.dumps(back.tool_return)
        assert client.blocks.retrieve(block.id).value == "theirs"
        assert client.blocks.update(block.id, value="ours").value == "ours"
