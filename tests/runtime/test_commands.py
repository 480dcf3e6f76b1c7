"""Commands from another process reach the one that drives a run, once, whatever dies in between.

Two opened journals stand for two processes: each has its own connections and its own row among the owners.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy
from chargehand.errors import PlanInvalid, Refused, RunBusy, RunUnknown
from chargehand.journal import postgres_commands, postgres_listener
from chargehand.journal.commands import Commands
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Journal
from chargehand.journal.store import opened_journal, prune_runs
from chargehand.postgres.database import open_database
from chargehand.runtime.commands import send_command
from chargehand.runtime.runner import Outcome, Runner
from chargehand.store_url import postgres_url
from tests.requests import request

PLAN = Plan((Task(TaskId("a"), "look into the matter", "worker"),), "forward")
LONG = Script(otherwise=Move(seconds=60.0))
STOP = ev.CancelRequested("enough")


@asynccontextmanager
async def driven(store: str, *, approve: bool = False) -> AsyncGenerator[tuple[Journal, "asyncio.Task[Outcome]"]]:
    """A run `r` that another process drives: its worker is busy for a minute, or its plan waits to be approved."""
    async with opened_journal(store) as journal, asyncio.TaskGroup() as jobs:
        begun = asyncio.Event()
        runner = Runner(journal, ScriptedExecutor(LONG), listener=lambda _run, _entries: begun.set())
        asked = request(PLAN, policy=Policy(approve=approve))
        drive = jobs.create_task(runner.start("r", asked, wait_for_input=True))
        async with asyncio.timeout(20):
            await begun.wait()
        yield journal, drive
        drive.cancel()


async def never() -> None:
    raise AssertionError("the run is driven, so it must not be resumed")


def commands_of(journal: Journal) -> Commands:
    assert journal.commands is not None
    return journal.commands


def count(entries: list[ev.Entry], kind: type[ev.Event]) -> int:
    return sum(isinstance(entry.event, kind) for entry in entries)


@pytest.mark.parametrize("source", ["notices", "looks"])
async def test_a_run_is_cancelled_from_another_process(
    postgres_store: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "notices":
        monkeypatch.setattr(postgres_listener, "QUERY_INTERVAL", 600.0)
    else:
        monkeypatch.setattr(postgres_listener, "QUERY_INTERVAL", 0.1)
        monkeypatch.setattr(postgres_commands, "COMMAND_CHANNEL", "another")
    async with driven(postgres_store) as (_, drive), opened_journal(postgres_store) as other:
        async with asyncio.timeout(30):
            await send_command(other, "r", STOP, never)
            assert (await drive).ending == "cancelled"
        recorded = [entry.event for entry in await other.read("r") if isinstance(entry.event, ev.CancelRequested)]
        assert [event.reason for event in recorded] == ["enough"]
        assert recorded[0].command
        assert await commands_of(other).open("r") == []
        with pytest.raises(Refused, match="has ended"):
            await send_command(other, "r", STOP, never)


async def test_an_answer_arrives_and_one_that_does_not_fit_is_refused_in_the_words_of_the_run(
    postgres_store: str,
) -> None:
    async with driven(postgres_store, approve=True) as (_, _drive), opened_journal(postgres_store) as other:
        await until(lambda: asks(other))
        with pytest.raises(Refused, match="question 7 is not being asked"):
            await send_command(other, "r", ev.InputAnswered(7, "approve"), never)
        broken = Plan((Task(TaskId("a"), "look", "nobody"),), "forward")
        with pytest.raises(PlanInvalid) as raised:
            await send_command(other, "r", ev.InputAnswered(1, "edit", plan=broken), never)
        assert [finding.place for finding in raised.value.findings]
        await send_command(other, "r", ev.InputAnswered(1, "approve"), never)
        entries = await other.read("r")
        assert count(entries, ev.InputAnswered) == 1


async def test_a_command_that_was_carried_out_before_its_driver_died_is_not_carried_out_again(
    postgres_store: str,
) -> None:
    async with opened_journal(postgres_store) as other:
        async with driven(postgres_store, approve=True) as (journal, drive):
            await until(lambda: asks(other))
            drive.cancel()
            await asyncio.wait([drive])
            command = await commands_of(other).send("r", ev.InputAnswered(1, "approve"))
            (sent,) = await commands_of(other).open("r")
            lease = await journal.claim("r")
            await journal.append(lease, [ev.Entry(lease.seq + 1, time.time(), sent.event)])
        resumed = Runner(other, ScriptedExecutor(Script()))
        assert (await resumed.resume("r")).ending == "complete"
        assert count(await other.read("r"), ev.InputAnswered) == 1
        status = await commands_of(other).status(command)
        assert status is not None
        assert (status.is_settled, status.refusal) == (True, None)


async def test_whoever_resumes_a_run_that_nobody_drives_finds_the_command_first(postgres_store: str) -> None:
    async with opened_journal(postgres_store) as other:
        async with driven(postgres_store, approve=True):
            await until(lambda: asks(other))
        runner = Runner(other, ScriptedExecutor(Script()))
        outcomes: list[Outcome] = []

        async def resume() -> None:
            outcomes.append(await runner.resume("r"))

        async with asyncio.timeout(30):
            await send_command(other, "r", ev.InputAnswered(1, "approve"), resume)
        assert [outcome.ending for outcome in outcomes] == ["complete"]


async def test_what_cannot_be_resumed_for_a_command_leaves_no_command_behind(postgres_store: str) -> None:
    async with opened_journal(postgres_store) as other:
        async with driven(postgres_store):
            pass

        async def resume() -> None:
            raise Refused("nobody has this team")

        with pytest.raises(Refused, match="nobody has this team"):
            await send_command(other, "r", STOP, resume)
        assert await commands_of(other).open("r") == []


async def test_a_command_that_comes_too_late_is_refused_though_nobody_settles_it(postgres_store: str) -> None:
    """The process that drove the run ended it and died before it looked for commands."""
    async with opened_journal(postgres_store) as other:
        async with driven(postgres_store) as (journal, drive):
            drive.cancel()
            await asyncio.wait([drive])
            lease = await journal.claim("r")
            end = ev.Entry(lease.seq + 1, time.time(), ev.RunEnded("complete", "done"))
            async with asyncio.TaskGroup() as jobs:
                sending = jobs.create_task(refusal(send_command(other, "r", STOP, never)))
                await until(lambda: is_sent(other))
                await journal.append(lease, [end])
        assert "has ended" in sending.result()
        assert await commands_of(other).open("r") == []


async def test_a_driver_that_does_not_answer_is_named_and_the_command_stays(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chargehand.runtime.commands._PATIENCE", 0.1)
    async with opened_journal(postgres_store) as other, opened_journal(postgres_store) as frozen:
        async with driven(postgres_store):
            pass
        await frozen.claim("r")
        with pytest.raises(RunBusy, match="has not answered"):
            await send_command(other, "r", STOP, never)
        assert [command.event for command in await commands_of(other).open("r")] != []


async def test_a_run_that_no_process_drives_is_told_as_such_and_the_command_stays(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chargehand.runtime.commands._PATIENCE", 0.1)

    async def no_worker() -> None:
        """The engine keeps it for one that comes."""

    async with opened_journal(postgres_store) as other:
        async with driven(postgres_store):
            pass
        with pytest.raises(RunBusy, match=r"no process drives run 'r'.*doctor --cluster.*is kept"):
            await send_command(other, "r", STOP, no_worker)
        assert [command.event for command in await commands_of(other).open("r")] != []


async def test_commands_are_kept_apart_by_tenant_and_go_with_their_run(postgres_store: str) -> None:
    async with driven(postgres_store) as (_, drive), opened_journal(f"{postgres_store}&tenant=lab") as stranger:
        with pytest.raises(RunUnknown):
            await commands_of(stranger).send("r", STOP)
        drive.cancel()
        await asyncio.wait([drive])
        async with opened_journal(postgres_store) as other:
            command = await commands_of(other).send("r", STOP)
            assert await commands_of(stranger).status(command) is None
            assert await commands_of(stranger).open("r") == []
            await commands_of(stranger).settle(command)
            assert len(await commands_of(other).open("r")) == 1
            await asyncio.to_thread(prune_runs, postgres_store, ["r"])
            assert await commands_of(other).status(command) is None


async def test_settled_commands_are_deleted_when_they_are_old(postgres_store: str) -> None:
    async with driven(postgres_store) as (_, drive):
        drive.cancel()
        await asyncio.wait([drive])
    database = await open_database(postgres_url(postgres_store))
    async with opened_journal(postgres_store) as other:
        settled = await commands_of(other).send("r", STOP)
        waiting = await commands_of(other).send("r", STOP)
        await commands_of(other).settle(settled)
        await database.fetch("UPDATE commands SET at = at - interval '2 days'")
        await commands_of(other).send("r", STOP)
        assert await commands_of(other).status(settled) is None
        assert await commands_of(other).status(waiting) is not None


async def test_only_what_somebody_may_ask_for_is_sent(postgres_store: str) -> None:
    async with opened_journal(postgres_store) as other:
        with pytest.raises(Refused, match="RunEnded is decided by the run"):
            await commands_of(other).send("r", ev.RunEnded("complete", "done"))
    with pytest.raises(Refused, match="carries no commands"):
        await send_command(MemoryJournal(), "r", STOP, never)


# --- waiting


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.01)


async def asks(journal: Journal) -> bool:
    return count(await journal.read("r"), ev.InputRequested) == 1


async def is_sent(journal: Journal) -> bool:
    return len(await commands_of(journal).open("r")) == 1


async def refusal(sending: Awaitable[None]) -> str:
    try:
        await sending
    except Refused as error:
        return str(error)
    return ""
