"""Deleting runs, backing a journal up and restoring it, while somebody writes."""

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from chargehand.errors import Corrupt, Refused, RunUnknown
from chargehand.journal import rows
from chargehand.journal.codec import encode
from chargehand.journal.protocol import Lease
from chargehand.journal.rows import FileBlobs
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.store import back_up, list_runs, prune_runs, read_run, restore
from chargehand.sqlite.database import read_at_once
from tests.stores.samples import entries, noted, numbers

LARGE = "x" * 100_000


async def write(journal: SqliteJournal, run: str, text: str = "small") -> Lease:
    lease = await journal.claim(run, new=True)
    await journal.append(lease, [noted(1, text), noted(2, run)])
    return lease


def old(path: Path) -> None:
    for blob in path.with_name(path.name + "-blobs").iterdir():
        os.utime(blob, (1.0, 1.0))


def names(path: Path) -> list[str]:
    return sorted(row.run for row in list_runs(path))


async def test_runs_are_deleted_with_the_blobs_that_only_they_name(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    for run, text in (("a", LARGE), ("b", LARGE), ("c", LARGE + "y"), ("d", "small")):
        await journal.release(await write(journal, run, text))
    old(path)
    pruned = prune_runs(path, ["a", "c"])
    assert (pruned.runs, pruned.held, pruned.blobs) == (("a", "c"), (), 1)
    assert pruned.bytes > 100_000
    assert names(path) == ["b", "d"]
    assert read_run(path, "b") == [noted(1, LARGE), noted(2, "b")]
    with pytest.raises(RunUnknown):
        await journal.read("a")
    await write(journal, "a")  # a new one of that name is another
    assert numbers(await journal.read("a")) == [1, 2]
    await journal.close()


async def test_a_run_that_a_process_drives_is_not_deleted(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    lease = await write(journal, "mine")
    assert prune_runs(path, ["mine"]).held == ("mine",)
    await journal.append(lease, [noted(3)])
    await journal.release(lease)
    assert prune_runs(path, ["mine"]).runs == ("mine",)
    await journal.close()


async def test_a_lease_of_a_deleted_run_is_fenced(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    lease = await write(journal, "r")
    await journal.release(lease)
    prune_runs(path, ["r"])
    with pytest.raises(Exception, match="epoch 1 of run 'r' is over"):
        await journal.append(lease, [noted(3)])
    await journal.close()


async def test_a_blob_that_was_put_a_moment_ago_stays(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    await journal.release(await write(journal, "a", LARGE))
    assert prune_runs(path, ["a"]).blobs == 0
    await journal.close()


def test_a_blob_that_is_put_again_is_not_deleted(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    reference = blobs.put(b"body")
    os.utime(tmp_path / "blobs" / reference, (1.0, 1.0))
    assert blobs.put(b"body") == reference
    assert blobs.delete(reference, before=1000.0) == 0
    assert blobs.get(reference) == b"body"
    assert blobs.delete("f" * 64, before=1e12) == 0


async def test_deleting_beside_a_writer_loses_nothing_of_his(path: Path) -> None:
    journal = await SqliteJournal.open(path, durability="process")
    for number in range(150):
        await journal.release(await write(journal, f"old{number}"))

    async def pour() -> int:
        lease = await journal.claim("new", new=True)
        for seq in range(1, 301):
            await journal.append(lease, [noted(seq)])
        return lease.seq

    async with asyncio.TaskGroup() as jobs:
        pouring = jobs.create_task(pour())
        pruning = jobs.create_task(asyncio.to_thread(prune_runs, path, [f"old{number}" for number in range(150)]))
    assert pouring.result() == 300
    assert len(pruning.result().runs) == 150
    assert numbers(await journal.read("new")) == list(range(1, 301))
    assert names(path) == ["new"]
    await journal.close()


async def test_a_run_that_is_read_while_it_is_written_is_never_damaged(path: Path) -> None:
    journal = await SqliteJournal.open(path, durability="process")
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries(1))
    done = asyncio.Event()

    async def pour() -> None:
        for seq in range(2, 400):
            await journal.append(lease, [noted(seq)])
        done.set()

    async def look() -> int:
        looks = 0
        while not done.is_set():
            first = 1 + looks % 3
            stored = numbers(await journal.read("r", after=first - 1))
            assert stored == list(range(first, first + len(stored)))
            looks += 1
        return looks

    async with asyncio.TaskGroup() as jobs:
        jobs.create_task(pour())
        looking = [jobs.create_task(look()) for _ in range(3)]
    assert sum(job.result() for job in looking) > 10
    await journal.close()


@pytest.mark.parametrize("statement", range(1, 5))
async def test_a_run_that_begins_between_two_statements_of_its_reader_is_not_damaged(
    path: Path, statement: int
) -> None:
    journal = await SqliteJournal.open(path, durability="process")
    lease = await journal.claim("r", new=True)
    written = [rows.make_row(lease, entry, encode(entry.event)) for entry in (noted(1), noted(2))]
    statements = 0

    class Reader(sqlite3.Connection):
        def execute(self, sql: str, parameters: Sequence[object] = (), /) -> sqlite3.Cursor:  # pyright: ignore[reportIncompatibleMethodOverride]
            nonlocal statements
            statements += 1
            if statements == statement:
                with closing(sqlite3.connect(path)) as writer, writer:
                    rows.append(writer, lease, written)
            return super().execute(sql, tuple(parameters))

    with closing(sqlite3.connect(path, isolation_level=None, factory=Reader)) as reader:
        try:
            seen = numbers(read_at_once(reader, lambda db: rows.read(db, FileBlobs.beside(path), "r", 0)))
        except RunUnknown:
            seen = []
    assert seen in ([], [1, 2])
    await journal.close()


async def test_a_backup_made_while_somebody_writes_is_whole_and_can_be_restored(path: Path) -> None:
    journal = await SqliteJournal.open(path, durability="process")
    await write(journal, "large", LARGE)
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries(1))
    copy = path.with_name("copy.db")

    async def pour() -> None:
        while not copy.exists():
            await journal.append(lease, [noted(lease.seq + 1)])

    async with asyncio.TaskGroup() as jobs:
        jobs.create_task(pour())
        made = jobs.create_task(asyncio.to_thread(back_up, path, copy))
    assert (made.result().runs, made.result().blobs) == (2, 1)
    stored = numbers(read_run(copy, "r"))
    assert stored == list(range(1, len(stored) + 1))
    assert read_run(copy, "large") == [noted(1, LARGE), noted(2, "large")]
    assert [row.held for row in list_runs(copy)] == [False, False]
    await journal.close()
    place = path.with_name("elsewhere") / "runs.db"
    restore(copy, place)
    opened = await SqliteJournal.open(place)
    lease = await opened.claim("r")
    assert (lease.seq, lease.epoch) == (len(stored), 2)
    await opened.close()


async def test_nothing_is_overwritten_and_nothing_damaged_is_restored(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    await journal.release(await write(journal, "r"))
    await journal.close()
    copy = path.with_name("copy.db")
    back_up(path, copy)
    with pytest.raises(Refused, match="exists already"):
        back_up(path, copy)
    with pytest.raises(Refused, match="exists already"):
        restore(copy, path)
    with pytest.raises(Refused, match="there is no journal"):
        restore(path.with_name("none.db"), path.with_name("new.db"))
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET rootpage = 2 WHERE name = 'entries'")
        connection.commit()
    with pytest.raises(Corrupt):
        restore(copy, path.with_name("new.db"))
    assert not path.with_name("new.db").exists()
