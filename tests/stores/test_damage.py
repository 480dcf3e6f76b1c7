"""Files that are not what they should be: a prefix of the truth, or an error in words."""

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from chargehand.errors import Corrupt, RunUnknown, StoreError
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms.events import VERSIONS
from tests.stores.faults import prepared
from tests.stores.samples import entries, noted, numbers


async def write(path: Path, *, count: int, copy_to: Path | None = None) -> None:
    """Three runs of some entries; copied, if wanted, while all of it is still in the write-ahead log."""
    journal = await SqliteJournal.open(path, connect=prepared("PRAGMA page_size = 512"))
    for run in ("a", "b", "c"):
        lease = await journal.claim(run, new=True)
        for seq in range(1, count + 1):
            await journal.append(lease, entries(seq))
    if copy_to is not None:
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy_to}{suffix}")
    await journal.close()


async def story(path: Path) -> list[tuple[str, int]]:
    """What a journal tells, in the order in which it was written."""
    journal = await SqliteJournal.open(path, durability="process")
    found: list[tuple[str, int]] = []
    try:
        for run in ("a", "b", "c"):
            try:
                found += [(run, seq) for seq in numbers(await journal.read(run))]
            except RunUnknown:
                found += []
    finally:
        await journal.close()
    return found


def change(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement, values).rowcount != 0
    connection.close()


@pytest.mark.parametrize("begun", [True, False], ids=["schema on disk", "schema in the log"])
def test_a_log_torn_anywhere_leaves_a_prefix(fast: Path, begun: bool) -> None:
    path, whole, torn = fast / "runs.db", fast / "whole.db", fast / "torn.db"
    if begun:
        asyncio.run(write(path, count=0))
        change(path, "DELETE FROM runs")
    asyncio.run(write(path, count=3, copy_to=whole))
    log = Path(f"{whole}-wal").read_bytes()
    written = [(run, seq) for run in "abc" for seq in (1, 2, 3)]
    frames = range(32, len(log) + 1, 512 + 24)
    offsets = {0, len(log), *range(0, len(log), 311), *(edge + near for edge in frames for near in (-1, 0, 1))}
    lengths: list[int] = []
    for offset in sorted(offsets):
        shutil.copy(whole, torn)
        Path(f"{torn}-wal").write_bytes(log[:offset])
        found = asyncio.run(story(torn))
        assert found == written[: len(found)], offset
        lengths.append(len(found))
        for suffix in ("", "-wal", "-shm"):
            Path(f"{torn}{suffix}").unlink(missing_ok=True)
    assert lengths == sorted(lengths)
    assert set(lengths) == set(range(10))


@pytest.mark.parametrize("begun", [True, False])
def test_a_log_overwritten_anywhere_is_a_prefix_or_an_error(fast: Path, begun: bool) -> None:
    path, whole, torn = fast / "runs.db", fast / "whole.db", fast / "torn.db"
    if begun:
        asyncio.run(write(path, count=0))
        change(path, "DELETE FROM runs")
    asyncio.run(write(path, count=2, copy_to=whole))
    log = Path(f"{whole}-wal").read_bytes()
    written = [(run, seq) for run in "abc" for seq in (1, 2)]
    for offset in range(0, len(log), 211):
        shutil.copy(whole, torn)
        Path(f"{torn}-wal").write_bytes(log[:offset] + bytes([log[offset] ^ 0xFF]) + log[offset + 1 :])
        found = asyncio.run(story(torn))
        assert found == written[: len(found)], offset
        for suffix in ("", "-wal", "-shm"):
            Path(f"{torn}{suffix}").unlink(missing_ok=True)


def test_a_database_overwritten_anywhere_is_read_rightly_or_not_at_all(fast: Path) -> None:
    path, torn = fast / "runs.db", fast / "torn.db"
    asyncio.run(write(path, count=3))
    body = path.read_bytes()
    told = 0
    for offset in range(0, len(body), 101):
        torn.write_bytes(body[:offset] + bytes([body[offset] ^ 0x10]) + body[offset + 1 :])
        try:
            found = asyncio.run(story(torn))
        except StoreError:
            told += 1
        else:
            # a run may be lost with the row that names it, but none is ever told with a hole or another content
            for run in "abc":
                assert [seq for name, seq in found if name == run] in ([1, 2, 3], []), offset
        for suffix in ("", "-wal", "-shm", "-lock"):
            Path(f"{torn}{suffix}").unlink(missing_ok=True)
    assert told > 10


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = CAST(replace(body, 'note 2', 'note 3') AS BLOB) WHERE seq = 2",
        "UPDATE entries SET at = at + 1 WHERE seq = 2",
        "UPDATE entries SET epoch = epoch + 1 WHERE seq = 2",
        "UPDATE entries SET type = 'run.paused' WHERE seq = 2",
        "UPDATE entries SET version = 7 WHERE seq = 2",
        "UPDATE entries SET blob = 'x' WHERE seq = 2",
        "UPDATE entries SET crc = crc + 1 WHERE seq = 2",
        "DELETE FROM entries WHERE seq = 2",
        "UPDATE entries SET seq = seq + 100 WHERE seq = 2",
    ],
)
async def test_an_entry_that_was_tampered_with_is_corrupt(path: Path, statement: str) -> None:
    await write(path, count=3)
    change(path, statement)
    journal = await SqliteJournal.open(path)
    with pytest.raises(Corrupt, match="entry 2 of run 'a'"):
        await journal.read("a")
    await journal.close()


async def test_a_lost_tail_is_corrupt(path: Path) -> None:
    await write(path, count=3)
    change(path, "DELETE FROM entries WHERE seq = 3")
    journal = await SqliteJournal.open(path)
    with pytest.raises(Corrupt, match="entry 3 of run 'a' is missing"):
        await journal.read("a")
    await journal.close()


def only_file(directory: Path) -> Path:
    (found,) = directory.iterdir()
    return found


async def test_a_lost_or_damaged_blob_is_corrupt(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    lease = await journal.claim("r", new=True)
    await journal.append(lease, [noted(1), noted(2, "x" * 70_000)])
    blob = only_file(Path(f"{path}-blobs"))
    blob.write_bytes(b"y" * 70_000)
    with pytest.raises(Corrupt, match=f"blob {blob.name} .* damaged"):
        await journal.read("r")
    blob.unlink()
    with pytest.raises(Corrupt, match=f"blob {blob.name} is missing"):
        await journal.read("r")
    await journal.close()


async def test_an_entry_of_a_newer_version_asks_for_an_upgrade(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, "noted", 2)
    await write(path, count=3)
    monkeypatch.undo()
    journal = await SqliteJournal.open(path)
    with pytest.raises(Corrupt, match=r"entry 1 of run 'a' is a 'noted' of version 2.* upgrade chargehand"):
        await journal.read("a")
    await journal.close()


def refused(path: Path) -> StoreError:
    """The error with which a file is not opened, and left as it is."""
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        asyncio.run(SqliteJournal.open(path))
    assert path.read_bytes() == before
    return caught.value


def test_a_schema_of_a_newer_version_asks_for_an_upgrade(path: Path) -> None:
    asyncio.run(write(path, count=3))
    change(path, "PRAGMA user_version = 99")
    error = refused(path)
    assert isinstance(error, Corrupt)
    assert "upgrade chargehand" in str(error)


@pytest.mark.parametrize(
    "content", [b"hello\n", b"# Notes\n" * 1000, b"\x00" * 5000, b"SQLite format 3\x00" + b"?" * 500]
)
def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "runs.db" in str(refused(path))


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    change(path, "CREATE TABLE songs (name TEXT)")
    assert "another program" in str(refused(path))


def test_an_empty_file_becomes_a_journal(path: Path) -> None:
    path.touch()
    asyncio.run(write(path, count=1))
    assert len(asyncio.run(story(path))) == 3
