"""A journal in PostgreSQL under everything that can happen to its server, its connections and its processes."""

import asyncio
import gc
import random
import signal
import time
from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from chargehand.engine.events import Entry, RunEnded
from chargehand.errors import Corrupt, Fenced, Refused, RunBusy, RunUnknown, StoreUnavailable
from chargehand.journal import postgres_listener, postgres_notices
from chargehand.journal.postgres import PostgresJournal, tenants_with_open_runs
from chargehand.journal.protocol import Journal, Lease, RouteExample
from chargehand.journal.store import (
    back_up,
    examine_journal,
    list_open_runs,
    list_runs,
    open_journal,
    opened_journal,
    prune_runs,
    read_readable,
    read_run,
)
from chargehand.postgres.database import open_database
from chargehand.postgres.driver import Row
from chargehand.runtime.feed import Feed
from chargehand.store_url import postgres_url
from tests.evidence import Evidence
from tests.kill9 import PATIENCE, Life, one_round
from tests.postgres import PostgresServer
from tests.stores.other_process import Other
from tests.stores.samples import AT, entries, noted, numbers
from tests.support.hunts import hunt_size


async def ask(url: str, query: str, *values: object) -> list[Row]:
    return await (await open_database(postgres_url(url))).fetch(query, *values)


async def begin(journal: Journal, run: str, count: int = 1) -> Lease:
    lease = await journal.claim(run, new=True)
    await journal.append(lease, entries(*range(1, count + 1)))
    return lease


Answer = TypeVar("Answer")


async def outcomes_at_once(calls: Iterable[Coroutine[Any, Any, Answer]]) -> list[Answer | Exception]:
    """What each of the calls of one moment returns or raises."""

    async def outcome(call: Coroutine[Any, Any, Answer]) -> Answer | Exception:
        try:
            return await call
        except Exception as error:  # noqa: BLE001 - it is the outcome
            return error

    async with asyncio.TaskGroup() as jobs:
        tasks = [jobs.create_task(outcome(call)) for call in calls]
    return [task.result() for task in tasks]


# --- appends


async def test_all_that_waits_goes_with_one_commit(postgres_store: str) -> None:
    async with opened_journal(postgres_store) as journal:
        leases = [await journal.claim(f"r{number}", new=True) for number in range(100)]
        async with asyncio.TaskGroup() as jobs:
            for lease in leases:
                jobs.create_task(journal.append(lease, entries(1, 2)))
        ((commits,),) = await ask(postgres_store, "SELECT count(DISTINCT xmin::text) FROM entries")
        assert commits <= 5
        assert len(await journal.runs()) == 100


async def test_runs_of_one_moment_are_created_claimed_and_read_together(postgres_store: str) -> None:
    commits = "SELECT count(DISTINCT xmin::text) FROM runs"
    async with opened_journal(postgres_store) as journal:
        names = [f"r{number}" for number in range(100)]
        await outcomes_at_once(journal.create(name, [noted(1, name), noted(2)]) for name in names)
        assert (await ask(postgres_store, commits))[0][0] <= 10
        leases = await outcomes_at_once(journal.claim(name) for name in names)
        assert [(lease.run, lease.epoch, lease.seq) for lease in leases if isinstance(lease, Lease)] == [
            (name, 1, 2) for name in names
        ]
        assert (await ask(postgres_store, commits))[0][0] <= 10
        whole = await outcomes_at_once(journal.read(name) for name in names)
        assert whole == [[noted(1, name), noted(2)] for name in names]
        parts = await outcomes_at_once(journal.read("r1", after=after) for after in (0, 1, 2))
        assert parts == [[noted(1, "r1"), noted(2)], [noted(2)], []]
        rows = await outcomes_at_once(journal.row(name) for name in names)
        assert [row.run for row in rows if not isinstance(row, Exception)] == names


async def test_what_does_not_fit_in_a_moment_fails_alone(postgres_store: str) -> None:
    async with opened_journal(postgres_store) as journal:
        same, other = [noted(1, "same")], [noted(1, "other")]
        new = (("a", same), ("a", same), ("b", same), ("b", other))
        created = await outcomes_at_once(journal.create(run, first) for run, first in new)
        assert created[:3] == [None, None, None]
        assert isinstance(created[3], Refused)
        assert await journal.read("b") == same
        claims = await outcomes_at_once(journal.claim(run) for run in ("a", "a", "none", "b"))
        assert [type(claim) for claim in claims] == [Lease, RunBusy, RunUnknown, Lease]
        thefts = await outcomes_at_once(journal.claim("a", steal=True) for _ in range(3))
        assert [lease.epoch for lease in thefts if isinstance(lease, Lease)] == [2, 3, 4]
        reads = await outcomes_at_once(journal.read(run) for run in ("a", "none"))
        assert reads[0] == same
        assert isinstance(reads[1], RunUnknown)


async def test_an_append_that_does_not_fit_does_not_fail_its_mates(postgres_store: str) -> None:
    async with opened_journal(postgres_store) as journal:
        good = await journal.claim("good", new=True)
        stolen = await begin(journal, "stolen")
        await journal.claim("stolen", steal=True)
        hole = await begin(journal, "hole")
        outcomes: list[BaseException | None] = []

        async def append(lease: Lease, seq: int) -> None:
            try:
                await journal.append(lease, [noted(seq)])
                outcomes.append(None)
            except (Fenced, Refused) as error:
                outcomes.append(error)

        async with asyncio.TaskGroup() as jobs:
            for lease, seq in ((good, 1), (stolen, 2), (hole, 5)):
                jobs.create_task(append(lease, seq))
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Fenced", "NoneType", "Refused"]
        assert numbers(await journal.read("good")) == [1]


async def test_the_entry_that_ends_a_run_releases_it_and_may_be_repeated(postgres_store: str) -> None:
    async with opened_journal(postgres_store) as journal:
        lease = await begin(journal, "r")
        end = [Entry(2, AT, RunEnded("complete", "done"))]
        await journal.append(lease, end)
        assert [row.held for row in await journal.runs()] == [False]
        await journal.append(lease, end)
        assert await journal.open_runs() == []
        with pytest.raises(Fenced):
            await journal.append(lease, entries(3))
        await journal.release(lease)
        assert (await journal.claim("r")).seq == 2


@pytest.mark.parametrize("seed", range(3))
async def test_two_journals_that_steal_many_runs_from_each_other_never_wait_for_ever(
    postgres_store: str, seed: int
) -> None:
    """Their batches hold some of the same runs: rows are locked in one order, and each run stays one story."""
    runs = [f"r{number}" for number in range(8)]
    first = await open_journal(postgres_store)
    second = await open_journal(postgres_store)
    for run in runs:
        await first.release(await begin(first, run))
    told: dict[str, dict[int, Entry]] = {run: {1: noted(1)} for run in runs}

    async def drive(journal: Journal, run: str, chance: random.Random) -> None:
        for number in range(12):
            lease = await journal.claim(run, steal=True)
            for _ in range(chance.randrange(1, 4)):
                entry = noted(lease.seq + 1, f"{number} {chance.random()}")
                try:
                    await journal.append(lease, [entry])
                except Fenced:
                    break
                told[run][entry.seq] = entry

    async with asyncio.timeout(60), asyncio.TaskGroup() as jobs:
        for number, journal in enumerate((first, second)):
            for run in runs:
                jobs.create_task(drive(journal, run, random.Random(f"{seed}{number}{run}")))
    for run in runs:
        assert await first.read(run) == [told[run][seq] for seq in sorted(told[run])]
    await first.close()
    await second.close()


async def test_connections_that_are_cut_lose_nothing_and_repeat_nothing(
    postgres: PostgresServer, postgres_store: str
) -> None:
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()"
    database = postgres_store.rpartition("/")[0].rpartition("?")[0].rpartition("/")[2]
    journal = await open_journal(postgres_store)
    over = asyncio.Event()

    async def drive(run: str) -> None:
        lease = await journal.claim(run, new=True)
        while not over.is_set():
            try:
                await journal.append(lease, [noted(lease.seq + 1, run)])
            except StoreUnavailable:
                await asyncio.sleep(0.01)
        stored = await journal.read(run)
        assert numbers(stored) == list(range(1, len(stored) + 1))
        assert lease.seq == len(stored)

    async def cut_often() -> None:
        for _ in range(10):
            await asyncio.sleep(0.03)
            await asyncio.to_thread(postgres.execute, cut.format(database))
        over.set()

    async with asyncio.TaskGroup() as jobs:
        for number in range(5):
            jobs.create_task(drive(f"r{number}"))
        jobs.create_task(cut_often())
    assert journal.trouble == ""
    await journal.close()


# --- tenants and readers


async def test_tenants_have_runs_of_the_same_name_and_see_only_their_own(postgres_store: str) -> None:
    lab = f"{postgres_store}&tenant=lab"
    async with opened_journal(postgres_store) as one, opened_journal(lab) as other:
        await begin(one, "r", 2)
        await begin(other, "r", 3)
        await begin(other, "s")
        ended = await one.claim("over", new=True)
        await one.append(ended, [Entry(1, AT, RunEnded("complete", "done"))])
        assert (numbers(await one.read("r")), numbers(await other.read("r"))) == ([1, 2], [1, 2, 3])
        with pytest.raises(RunUnknown):
            await one.read("s")
        assert [row.run for row in await one.runs()] == ["over", "r"]
    await ask(f"{postgres_store}&tenant=idle", "SELECT 1")
    assert await tenants_with_open_runs(postgres_url(postgres_store)) == ["lab", "main"]


async def test_a_journal_is_read_and_pruned_without_being_opened(empty_database: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="nothing of chargehand"):
        list_runs(empty_database)
    assert examine_journal(empty_database).fault == ""
    journal = await open_journal(empty_database)
    lease = await begin(journal, "held")
    ended = await begin(journal, "ended")
    await journal.append(ended, [Entry(2, AT, RunEnded("complete", "done"))])
    assert {row.run for row in list_runs(empty_database)} == {"held", "ended"}
    assert [row.run for row in list_open_runs(empty_database)] == ["held"]
    assert numbers(read_run(empty_database, "ended", after=1)) == [2]
    assert read_readable(empty_database, "held").entries == entries(1)
    confirmed = [RouteExample("whose is it", "clerk", "feedback", run) for run in ("held", "ended")]
    for example in confirmed:
        await journal.route_examples("desk").record(example.run, "feedback", [example])
    pruned = prune_runs(empty_database, ["held", "ended", "none"])
    assert await journal.route_examples("desk").list() == (confirmed[0],), "a deleted run is no example any more"
    assert (pruned.runs, pruned.held) == (("ended",), ("held",))
    with pytest.raises(Refused, match="pg_dump"):
        back_up(empty_database, tmp_path / "copy")
    await journal.append(lease, entries(2))
    await journal.close()
    assert prune_runs(empty_database, ["held"]).runs == ("held",)
    assert await ask(empty_database, "SELECT * FROM entries") == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = 'x' WHERE seq = 2",
        "UPDATE entries SET at = at + 1 WHERE seq = 2",
        "UPDATE entries SET epoch = epoch + 1 WHERE seq = 2",
        "UPDATE entries SET type = 'run.paused' WHERE seq = 2",
        "DELETE FROM entries WHERE seq = 2",
    ],
)
async def test_an_entry_that_was_tampered_with_is_corrupt(postgres_store: str, statement: str) -> None:
    async with opened_journal(postgres_store) as journal:
        await begin(journal, "r", 3)
        await ask(postgres_store, statement)
        with pytest.raises(Corrupt, match="entry 2 of run 'r'"):
            await journal.read("r")
        assert (await journal.read_readable("r")).entries == entries(1)
        await ask(postgres_store, "DELETE FROM entries WHERE seq = 3")
        assert "entry 3 of run 'r' is missing" in (await journal.runs())[0].damage


# --- live readers


@pytest.mark.parametrize("source", ["notices", "looks"])
async def test_a_reader_hears_what_another_process_writes(
    postgres_store: str, other: Other, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "notices":
        monkeypatch.setattr(postgres_listener, "QUERY_INTERVAL", 600.0)
    else:
        monkeypatch.setattr(postgres_listener, "QUERY_INTERVAL", 0.1)
        monkeypatch.setattr(postgres_notices, "CHANNEL", "another")
    assert other.hear() == "open"
    async with opened_journal(postgres_store) as journal:
        reader = Feed(journal).subscribe("r", expected=True)
        assert await reader.first() == []
        for seq in range(1, 4):
            assert other.tell("append") == f"done {seq}"
            async with asyncio.timeout(30):
                assert (await anext(reader)).seq == seq


@pytest.fixture
def own_store(own_postgres: PostgresServer) -> Iterator[str]:
    """A database of a server that may be stopped."""
    with own_postgres.database() as url:
        yield url


async def test_a_reader_goes_on_after_the_server_was_restarted(
    own_postgres: PostgresServer, own_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_listener, "QUERY_INTERVAL", 0.2)
    async with opened_journal(own_store) as writing, opened_journal(own_store) as journal:
        lease = await begin(writing, "r")
        reader = Feed(journal).subscribe("r")
        assert numbers(await reader.first()) == [1]
        own_postgres.stop()
        own_postgres.start()
        await writing.append(lease, entries(2))
        async with asyncio.timeout(30):
            assert (await anext(reader)).seq == 2


async def test_a_subscription_ends_with_its_last_reader(postgres_store: str) -> None:
    async with opened_journal(postgres_store) as journal:
        assert isinstance(journal, PostgresJournal)
        await begin(journal, "r")
        feed = Feed(journal)
        first = feed.subscribe("r")
        second = feed.subscribe("r")
        assert len(journal.notices.runs) == 1
        del first
        assert len(journal.notices.runs) == 1
        del second
        gc.collect()
        assert journal.notices.runs == set()


# --- processes


@pytest.fixture
def other(postgres_store: str) -> Iterator[Other]:
    made = Other(postgres_store)
    yield made
    made.end()


async def test_a_frozen_process_is_fenced_when_it_thaws(postgres_store: str, other: Other) -> None:
    assert other.hear() == "open"
    assert other.tell("append") == "done 1"
    other.process.send_signal(signal.SIGSTOP)
    journal = await open_journal(postgres_store)
    with pytest.raises(RunBusy, match=f"process {other.process.pid}"):  # it was seen alive a moment ago
        await journal.claim("r")
    await ask(postgres_store, "UPDATE owners SET beat = beat - interval '1 min' WHERE pid = $1", other.process.pid)
    lease = await journal.claim("r")
    await journal.append(lease, [noted(2, "by the new one")])
    other.process.send_signal(signal.SIGCONT)
    assert other.tell("append") == "Fenced"
    assert await journal.read("r") == [noted(1, "by the other"), noted(2, "by the new one")]
    await journal.close()


def test_kills_lose_nothing_that_was_told_and_repeat_nothing_that_was_done(postgres_store: str) -> None:
    kills = hunt_size(quick=2, thorough=6)
    tally = one_round("postgres", kills, store=postgres_store)
    assert tally.problems == []
    assert tally.kills == kills
    assert tally.resumes > kills / 6


# --- the server


async def test_after_a_restart_of_the_server_those_who_held_runs_have_time_to_return(
    own_postgres: PostgresServer, own_store: str
) -> None:
    first = await open_journal(own_store)
    second = await open_journal(own_store)
    lease = await begin(first, "r")
    own_postgres.stop()
    with pytest.raises(StoreUnavailable) as caught:
        await first.append(lease, entries(2))
    assert first.trouble == str(caught.value)
    own_postgres.start()
    with pytest.raises(RunBusy):
        await second.claim("r")
    await first.append(lease, entries(2))
    assert first.trouble == ""
    assert numbers(await second.read("r")) == [1, 2]
    await first.close()
    assert (await second.claim("r")).epoch == 2
    await second.close()


@pytest.mark.timeout(180)
@pytest.mark.slow("two processes start, and the server stops in between")
def test_runs_go_on_over_immediate_stops_of_the_server(
    own_postgres: PostgresServer, own_store: str, tmp_path: Path
) -> None:
    evidence = Evidence(tmp_path, store=own_store)
    with Life(evidence, "--width", "4") as life:
        for _ in range(hunt_size(quick=1, thorough=3)):
            wanted = life.told + 60
            assert life.follow(PATIENCE, enough=lambda wanted=wanted: life.told >= wanted), life.trouble()
            own_postgres.stop()
            time.sleep(0.2)
            own_postgres.start()
        wanted = life.told + 60
        assert life.follow(PATIENCE, enough=lambda: life.told >= wanted), life.trouble()
        life.kill()
    evidence.inspect()
    began = time.monotonic()
    with Life(evidence, "--finish") as last:
        assert not last.follow(PATIENCE), last.trouble()
        assert last.process.wait() == 0
    assert time.monotonic() - began < PATIENCE
    evidence.inspect()
    assert evidence.conclude() > hunt_size(quick=1, thorough=3)
    assert evidence.problems == []
