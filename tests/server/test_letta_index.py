"""What every index of agents' runs and messages promises, whatever store it is in."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chargehand.server.letta.index import Index, IndexedRunFilter, ListPage, MessageFilter, SavedLog
from chargehand.server.letta.message_log import MessageLog
from chargehand.server.letta.request import AgentRequest
from chargehand.server.letta.sessions import open_index
from chargehand.server.letta.wire import LettaMessage

ALL_RUNS = IndexedRunFilter()


@pytest.fixture(params=["sqlite", "postgres"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    is_file = request.param == "sqlite"
    index = open_index(tmp_path / "letta.db" if is_file else request.getfixturevalue("postgres_store"), bytes)
    yield index
    asyncio.run(index.close())


def log(name: str, began: float, *, agent: str = "ann", conversation: str = "", stop: str = "end_turn") -> SavedLog:
    """A run with two messages; one without a `stop` is under way."""
    log = MessageLog(name, AgentRequest(agent, (), conversation=conversation))
    log.began = began
    log.stop = stop
    log.over = stop not in ("", "requires_approval")
    for kind in ("user_message", "assistant_message"):
        log.messages.append(LettaMessage(kind, f"{name} {kind[:4]}", "2026-01-01", name))
    return SavedLog(log, has_messages=True)


async def fill(index: Index) -> None:
    """Seven runs; the last two began at the same time."""
    await index.save(
        [
            log("run-1", 1.0),
            log("run-2", 2.0, conversation="conv-1"),
            log("run-3", 3.0, agent="bob", stop="error"),
            log("run-4", 4.0, stop="requires_approval"),
            log("run-5", 5.0, agent="bob", stop=""),
            log("run-6", 6.0, conversation="conv-1", stop="requires_approval"),
            log("run-7", 6.0),
        ]
    )


async def runs(index: Index, wanted: IndexedRunFilter = ALL_RUNS, **page: object) -> str:
    """The numbers of the runs that are listed."""
    bodies = await index.runs(wanted, msgspec.convert(page, ListPage))
    return "".join(msgspec.json.decode(body)["id"][-1] for body in bodies)


async def messages(index: Index, wanted: MessageFilter, **page: object) -> list[str]:
    return [
        msgspec.json.decode(body)["id"][4:] for body in await index.messages(wanted, msgspec.convert(page, ListPage))
    ]


async def test_runs_are_listed_by_what_they_are(index: Index) -> None:
    await fill(index)
    assert await runs(index) == "1234567"
    assert await runs(index, IndexedRunFilter(agents=("bob",))) == "35"
    assert await runs(index, IndexedRunFilter(agents=("ann", "bob", "eve"))) == "1234567"
    assert await runs(index, IndexedRunFilter(stop="requires_approval")) == "46"
    assert await runs(index, IndexedRunFilter(statuses=("failed", "created"))) == "35"
    assert await runs(index, IndexedRunFilter(is_active=True)) == "5"
    assert await runs(index, IndexedRunFilter(statuses=("failed",), is_active=True)) == ""
    assert await runs(index, IndexedRunFilter(conversation="conv-1")) == "26"
    assert await runs(index, IndexedRunFilter(agents=("ann",), conversation="default")) == "147"
    assert await runs(index, IndexedRunFilter(agents=("\0",))) == ""


async def test_runs_are_listed_page_by_page(index: Index) -> None:
    await fill(index)
    assert await runs(index, order="desc") == "7654321"
    assert await runs(index, limit=2) == "12"
    assert await runs(index, after="run-2", limit=2) == "34"
    assert await runs(index, before="run-6", limit=2) == "45"
    assert await runs(index, after="run-6", order="desc", limit=2) == "54"
    assert await runs(index, before="run-3", order="desc", limit=2) == "54"
    assert await runs(index, after="run-1", before="run-6", limit=2) == "23"
    assert await runs(index, after="run-unknown") == ""
    assert await runs(index, IndexedRunFilter(agents=("ann",)), after="run-3") == "467"


async def test_messages_are_listed_from_the_oldest_to_the_newest(index: Index) -> None:
    await fill(index)
    bobs = MessageFilter(agent="bob")
    assert await messages(index, bobs) == ["3 user", "3 assi"]
    assert await messages(index, MessageFilter(agent="ann", conversation="conv-1")) == [
        "2 user",
        "2 assi",
        "6 user",
        "6 assi",
    ]
    assert await messages(index, MessageFilter(run="run-1", types=("user_message", "reasoning_message"))) == ["1 user"]
    replies = MessageFilter(agent="ann", types=("assistant_message",))
    assert await messages(index, replies, order="desc", limit=2) == ["6 assi", "7 assi"]
    assert await messages(index, replies, order="asc", limit=2) == ["1 assi", "2 assi"]
    assert await messages(index, replies, before="run-6 user", limit=2, order="desc") == ["2 assi", "4 assi"]
    assert await messages(index, replies, after="run-4 user", limit=2, order="desc") == ["4 assi", "6 assi"]


async def test_of_a_deleted_agent_only_the_place_of_its_runs_is_left(index: Index) -> None:
    await fill(index)
    await index.forget_agent("bob")
    assert await runs(index) == "12467"
    assert await runs(index, after="run-3", limit=2) == "46"
    assert await index.run("run-3") is None
    assert await index.run("\0") is None
    assert await messages(index, MessageFilter(agent="bob")) == []
    assert "run-3" in await index.ended()


async def test_what_waits_is_found_by_its_lane(index: Index) -> None:
    await fill(index)
    assert await index.waiting_run("ann") == "run-4"
    assert await index.waiting_run("conv-1") == "run-6"
    assert await index.waiting_run("bob") == ""
    assert await index.waiting_agents() == ["ann"]
    assert await index.latest_run("ann") == "run-7"
    assert await index.latest_run("conv-1") == "run-6"
    assert await index.latest_run("eve") is None
    assert await index.ended() == {"run-1", "run-2", "run-3", "run-7"}
