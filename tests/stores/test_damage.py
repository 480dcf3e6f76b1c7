"""Files that are not what they should be: a prefix of the truth, or an error in words."""

import asyncio
import itertools
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from msgspec import structs

from chargehand.engine.events import VERSIONS
from chargehand.errors import Corrupt, RunUnknown, StoreError
from chargehand.journal.protocol import RunRow
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.store import list_runs, read_readable, read_run
from tests.stores.faults import prepared
from tests.stores.samples import entries, noted, numbers
from tests.support.hunts import hunt_size


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
    path = fast / "runs.db"
    whole = fast / "whole.db"
    torn = fast / "torn.db"
    if begun:
        asyncio.run(write(path, count=0))
        change(path, "DELETE FROM runs")
    asyncio.run(write(path, count=3, copy_to=whole))
    log = Path(f"{whole}-wal").read_bytes()
    written = [(run, seq) for run in "abc" for seq in (1, 2, 3)]
    frames = range(32, len(log) + 1, 512 + 24)
    step = hunt_size(quick=1511, thorough=311)
    nearby = hunt_size(quick=(-1, 0), thorough=(-1, 0, 1))
    offsets = {0, len(log), *range(0, len(log), step), *(edge + near for edge in frames for near in nearby)}
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
    path = fast / "runs.db"
    whole = fast / "whole.db"
    torn = fast / "torn.db"
    if begun:
        asyncio.run(write(path, count=0))
        change(path, "DELETE FROM runs")
    asyncio.run(write(path, count=2, copy_to=whole))
    log = Path(f"{whole}-wal").read_bytes()
    written = [(run, seq) for run in "abc" for seq in (1, 2)]
    for offset in range(0, len(log), hunt_size(quick=997, thorough=211)):
        shutil.copy(whole, torn)
        Path(f"{torn}-wal").write_bytes(log[:offset] + bytes([log[offset] ^ 0xFF]) + log[offset + 1 :])
        found = asyncio.run(story(torn))
        assert found == written[: len(found)], offset
        for suffix in ("", "-wal", "-shm"):
            Path(f"{torn}{suffix}").unlink(missing_ok=True)


def shown(row: RunRow) -> RunRow:
    """What must be right. An epoch only counts up, so one that is too high does no harm, and a holder is let go of."""
    return structs.replace(row, epoch=0, held=False)


class Whole:
    """A journal as it was written, and copies of it that are damaged."""

    def __init__(self, folder: Path) -> None:
        path = folder / "runs.db"
        asyncio.run(write(path, count=4))
        asyncio.run(self._write_large(path))
        self.content = path.read_bytes()
        self.entries = {run: read_run(path, run) for run in "abc"}
        self.rows = {row.run: shown(row) for row in list_runs(path)}
        self.torn = folder / "torn.db"
        shutil.copytree(f"{path}-blobs", f"{self.torn}-blobs")
        Path(f"{self.torn}-locks").mkdir()

    async def _write_large(self, path: Path) -> None:
        journal = await SqliteJournal.open(path)
        await journal.append(await journal.claim("c"), [noted(5, "x" * 70_000)])
        await journal.close()

    def put(self, content: bytes) -> Path:
        for suffix in ("-wal", "-shm"):
            Path(f"{self.torn}{suffix}").unlink(missing_ok=True)
        self.torn.write_bytes(content)
        return self.torn

    def flipped(self, offset: int, mask: int) -> bytes:
        return self.content[:offset] + bytes([self.content[offset] ^ mask]) + self.content[offset + 1 :]

    def check(self, label: object) -> int:
        """Every way to read gives the truth or Corrupt; how often it was Corrupt."""
        told = 0
        for run, entries_written in self.entries.items():
            try:
                assert read_run(self.torn, run) == entries_written, label
            except Corrupt:
                told += 1
            with suppress(Corrupt):
                readable = read_readable(self.torn, run)
                assert readable.entries == entries_written[: len(readable.entries)], label
                assert readable.damage is not None or len(readable.entries) == len(entries_written), label
        with suppress(Corrupt):
            listed = list_runs(self.torn)
            assert len(listed) >= 3, label
            for row in listed:
                assert row.damage or shown(row) == self.rows[row.run], label
        return told


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path_factory.mktemp("whole")) as folder:
        yield Whole(Path(folder))


def test_a_file_with_one_flipped_byte_is_read_rightly_or_is_corrupt(whole: Whole) -> None:
    chance = random.Random(7)
    told = 0
    step = hunt_size(quick=53, thorough=11)
    for offset in range(chance.randrange(step), len(whole.content), step):
        mask = chance.choice((1, 2, 4, 8, 16, 32, 64, 128, 255))
        whole.put(whole.flipped(offset, mask))
        told += whole.check((offset, mask))
    assert told > 100


def test_a_file_that_was_cut_is_read_rightly_or_is_corrupt(whole: Whole) -> None:
    told = 0
    for length in range(1, len(whole.content), 131):
        whole.put(whole.content[:length])
        told += whole.check(length)
    assert told > 100


@pytest.mark.parametrize("kind", ["zeroed", "copied"])
def test_a_file_with_a_page_that_is_not_its_own_is_read_rightly_or_is_corrupt(whole: Whole, kind: str) -> None:
    pages = [whole.content[start : start + 512] for start in range(0, len(whole.content), 512)]
    told = 0
    for number in range(len(pages)):
        other = bytes(512) if kind == "zeroed" else pages[(number * 7 + 3) % len(pages)]
        whole.put(b"".join([*pages[:number], other, *pages[number + 1 :]]))
        told += whole.check((kind, number))
    assert told > 10


VALUES = (
    "0",
    "1",
    "-1",
    "99",
    "9223372036854775807",
    "1e300",
    "9e999",
    "'x'",
    "''",
    "x'ff'",
    "CAST(x'ff' AS TEXT)",
    "x''",
    "zeroblob(3)",
    "CAST({0} AS TEXT)",
    "CAST({0} AS BLOB)",
    "{0} || '1'",
    "{0} + 1",
)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *(("entries", name) for name in ("run", "seq", "at", "epoch", "type", "version", "body", "blob", "crc")),
        *(("runs", name) for name in ("number", "run", "epoch", "seq", "holder", "owner")),
    ],
)
def test_a_row_with_any_other_value_is_read_rightly_or_is_corrupt(whole: Whole, table: str, column: str) -> None:
    for number, value in itertools.product((1, 3), VALUES):
        path = whole.put(whole.content)
        statement = f"UPDATE {table} SET {column} = {value.format(column)} WHERE rowid = {number}"
        with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.IntegrityError, sqlite3.DataError):
            connection.execute("PRAGMA ignore_check_constraints = ON")
            with suppress(sqlite3.OperationalError):
                connection.execute(statement)
            connection.commit()
        whole.check(statement)


@pytest.mark.parametrize(
    "setting",
    [
        "type = CAST(x'ff7374' AS TEXT)",
        "body = CAST(body AS TEXT)",
        "at = 'x'",
        "body = zeroblob(length(body))",
        "version = 'x'",
        "blob = 7",
        "epoch = 9e999",
    ],
)
async def test_a_damaged_entry_is_named_and_those_before_it_can_be_read(path: Path, setting: str) -> None:
    await write(path, count=4)
    change(path, f"UPDATE entries SET {setting} WHERE seq = 3")
    journal = await SqliteJournal.open(path)
    with pytest.raises(Corrupt, match=r"entry 3 of run 'a' .*chargehand runs show a.*from a backup") as caught:
        await journal.read("a")
    assert (caught.value.run, caught.value.seq) == ("a", 3)
    readable = await journal.read_readable("a")
    assert readable.entries == entries(1, 2)
    assert readable.damage is not None
    assert (await journal.read_readable("a", after=1)).entries == entries(2)
    listed = {row.run: row.damage for row in await journal.runs()}
    assert listed == {"a": "", "b": "", "c": ""}
    await journal.close()


async def test_a_run_whose_end_is_damaged_is_listed_among_the_others(path: Path) -> None:
    await write(path, count=3)
    change(path, "UPDATE entries SET at = 'x' WHERE seq = 3 AND run = 2")
    journal = await SqliteJournal.open(path)
    rows = await journal.runs()
    assert [row.run for row in rows if not row.damage] == ["a", "c"]
    assert "entry 3 of run 'b' is damaged" in rows[1].damage
    latest = await journal.latest(before=99, limit=10)
    assert [bool(row.damage) for row in latest] == [False, True, False]
    await journal.close()


@pytest.mark.parametrize("token", ["CAST(x'ff' AS TEXT)", "x'ff'", "'../runs.db'", "'a' || char(0)", "7"])
async def test_an_owner_that_is_damaged_counts_as_dead(path: Path, token: str) -> None:
    await write(path, count=1)
    change(path, f"INSERT INTO owners (number, token, pid, beat) VALUES (77, {token}, 'x', 'x')")
    change(path, "UPDATE runs SET owner = 77, holder = 'x' WHERE run = 'a'")
    assert [row.held for row in list_runs(path)] == [False] * 3
    journal = await SqliteJournal.open(path)
    await journal.append(await journal.claim("a"), entries(2))
    assert await journal.read("a") == entries(1, 2)
    await journal.close()


@pytest.mark.parametrize("offset", [0, 18, 19, 21, 68])
def test_a_journal_whose_header_is_damaged_is_not_taken_for_a_file_of_others(path: Path, offset: int) -> None:
    asyncio.run(write(path, count=1))
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x44
    path.write_bytes(content)
    with pytest.raises(Corrupt, match="is damaged"):
        asyncio.run(SqliteJournal.open(path))


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
    with pytest.raises(Corrupt, match=r"entry 3 of run 'a' is missing"):
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
