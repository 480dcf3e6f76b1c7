"""`chargehand store copy`: files into PostgreSQL and back, also after a death. Refusals come before any write."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.owed import Brief
from chargehand.errors import Corrupt
from chargehand.journal.copy import JournalSide, compare_journals
from chargehand.journal.files import StoredFile
from chargehand.journal.protocol import Journal, RouteExample
from chargehand.journal.rows import BLOBS_SUFFIX
from chargehand.journal.store import list_runs, open_journal, read_run
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block, Origin
from chargehand.memory.catalog import SECTIONS, Catalog, Profile
from chargehand.memory.conversations import Turn
from chargehand.memory.copy import MemorySide, compare_memories
from chargehand.memory.edits import Append
from chargehand.memory.session import open_catalog
from chargehand.runtime.executor import Done as TaskDone
from chargehand.runtime.executor import StepContext
from chargehand.runtime.runner import Runner
from chargehand.runtime.trace import trace
from chargehand.server.middleware.gate import open_keys
from chargehand.server.middleware.keys import create_key
from chargehand.store_url import StoreUrl
from tests.cli.commands import Done, Underway, chargehand, python
from tests.histories.kept import entries_of, names, read_lines
from tests.stores.samples import noted
from tests.stores.test_records import fill, records
from tests.support.hunts import hunt_size
from tests.test_histories import Understudy

OPEN = "open"
LONG = "long"


def history(name: str) -> list[ev.Entry]:
    return entries_of(read_lines(name), name)


@asynccontextmanager
async def opened(url: StoreUrl) -> AsyncGenerator[Journal]:
    journal = await open_journal(url, durability="process")
    try:
        yield journal
    finally:
        await journal.close()


async def _write(journal: Journal, run: str, entries: list[ev.Entry]) -> None:
    lease = await journal.claim(run, new=True)
    await journal.append(lease, entries)
    await journal.release(lease)


def _half(entries: list[ev.Entry]) -> list[ev.Entry]:
    """Up to the first result."""
    first = next(place for place, entry in enumerate(entries) if isinstance(entry.event, ev.AttemptSucceeded))
    return entries[: first + 1]


async def _fill_files(folder: Path) -> None:
    async with opened(folder / "runs.db") as journal:
        await _write(journal, OPEN, _half(history("streamed")))
        for name in reversed(names()):
            await _write(journal, name, history(name))
        large = [noted(seq, "x" * 100_000 if seq == 3 else "") for seq in range(2, 1203)]
        await _write(journal, LONG, [history("streamed")[0], *large])
        for run in ("b", "a"):
            confirmed = [RouteExample(f"ask {run}", worker, "judge", run, 5.5) for worker in ("ann", "bob")]
            await journal.route_examples("desk").record(run, "judge", confirmed)
        await journal.files.add(StoredFile("file-1", "a.png", "image/png", 3, 7.5), b"\0\1\2", room=3)
    catalog = await open_catalog(folder / "memory.db", durability="process")
    await fill(catalog.of("desk"))
    await fill(catalog.of("another"))
    await catalog.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs and memory, which no test changes."""
    folder = tmp_path_factory.mktemp("filled")
    asyncio.run(_fill_files(folder))
    return folder


def copy(folder: Path, *words: str | Path) -> Done:
    return chargehand(folder, "store", "copy", *words)


async def _memory(catalog: Catalog) -> dict[str, object]:
    """All that a catalog holds."""
    held: dict[str, object] = {}
    for space in await catalog.spaces():
        for section in SECTIONS:
            held[f"{space} {section}"] = await records(catalog.of(space), section)
    return held


async def _is_equal(source: Path, target: Path | str) -> None:
    """Both have the same runs in the same order, which fold to the same, and the same memory."""
    journals = (source / "runs.db", target / "runs.db" if isinstance(target, Path) else target)
    ours, theirs = (sorted(list_runs(url), key=lambda row: row.number) for url in journals)
    assert [(row.run, row.seq) for row in ours] == [(row.run, row.seq) for row in theirs]
    assert not any(row.held for row in theirs)
    examples: list[object] = []
    async with opened(journals[0]) as original, opened(journals[1]) as copied:
        for row in ours:
            pair = [await journal.read(row.run) for journal in (original, copied)]
            assert pair[0] == pair[1]
            assert replay(pair[0]) == replay(pair[1])
            assert trace(row.run, pair[0]) == trace(row.run, pair[1])
        for journal in (original, copied):
            assert await journal.example_teams() == ["desk"]
            examples.append(await journal.route_examples("desk").list())
    assert examples[0] == examples[1]
    memories = (source / "memory.db", target / "memory.db" if isinstance(target, Path) else target)
    held: list[object] = []
    for url in memories:
        catalog = await open_catalog(url)
        held.append(await _memory(catalog))
        await catalog.close()
    assert held[0] == held[1]


def test_a_round_trip_through_postgresql_keeps_everything(tmp_path: Path, filled: Path, postgres_store: str) -> None:
    before = list_runs(filled / "runs.db")
    there = copy(tmp_path, filled, postgres_store)
    assert there.returncode == 0, there.stderr
    assert list_runs(filled / "runs.db") == before, "the source is only read"
    assert there.stdout.startswith("copied to postgresql://")
    assert "both sides are equal: runs 49, entries" in there.stdout
    assert "things in memory 16" in there.stdout
    asyncio.run(_is_equal(filled, postgres_store))
    back = copy(tmp_path, "--json", postgres_store, tmp_path / "back")
    assert back.returncode == 0, back.stderr
    document = json.loads(back.stdout)
    assert (document["runs"], document["things"], document["turns"], document["passages"]) == (49, 16, 28, 14)
    asyncio.run(_is_equal(filled, tmp_path / "back"))
    assert len(list((tmp_path / "back" / f"runs.db{BLOBS_SUFFIX}").iterdir())) == 1, (
        "the large body lies beside the file again"
    )
    again = copy(tmp_path, "-q", filled, postgres_store)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


_DIE = """
import asyncio, os, signal
from pathlib import Path
from chargehand.cli.store import copy_stores
from chargehand.store_url import parse_store_url

def report(what, done, total):
    if what == {what!r} and done >= {done}:
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(copy_stores(Path({source!r}), parse_store_url({target!r}), server=False, report=report))
"""


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_copy_that_was_killed_is_completed_by_the_same_command(
    tmp_path: Path, filled: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    target = request.getfixturevalue("postgres_store") if kind == "postgresql" else str(tmp_path / "target")
    within_long = sum(row.seq for row in list_runs(filled / "runs.db") if row.run != LONG) + 1
    deaths = [
        *(("entries", done) for done in (1, 500, within_long, within_long + 501)),
        *((what, 1) for what in ("things", "turns", "passages")),
    ]
    for what, done in hunt_size(quick=[deaths[1], deaths[3], deaths[-1]], thorough=deaths):
        killed = python(tmp_path, _DIE.format(what=what, done=done, source=str(filled), target=target))
        assert killed.returncode == -9, killed.stderr
    completed = copy(tmp_path, filled, target)
    assert completed.returncode == 0, completed.stderr
    asyncio.run(_is_equal(filled, target if kind == "postgresql" else tmp_path / "target"))


def test_a_copy_that_was_stopped_by_ctrl_c_is_completed_by_the_same_command(tmp_path: Path) -> None:
    source = tmp_path / "source" / "runs.db"
    target = tmp_path / "target" / "runs.db"
    asyncio.run(_add_run(source, "run", history("streamed")))
    asyncio.run(_add_run(target, "other", history("streamed")))
    with closing(sqlite3.connect(target)) as db:
        db.execute("DELETE FROM entries")
        db.execute("DELETE FROM runs")
        db.commit()
        db.execute("BEGIN IMMEDIATE")  # so the copy cannot end before it is stopped
        under_way = Underway(tmp_path, "store", "copy", source.parent, target.parent)
        locks = source.with_name("runs.db-locks")
        while not any(locks.glob("*")):
            time.sleep(0.01)
        under_way.interrupt()
        db.rollback()
    assert under_way.end() == 130
    assert "the same command continues" in under_way.heard.read_text()
    assert copy(tmp_path, "-q", source.parent, target.parent).returncode == 0
    assert read_run(target, "run") == history("streamed")


async def _add_run(url: StoreUrl, run: str, entries: list[ev.Entry]) -> None:
    async with opened(url) as journal:
        await _write(journal, run, entries)


def test_a_target_that_holds_something_else_is_refused_and_left_as_it_is(
    tmp_path: Path, filled: Path, postgres_store: str
) -> None:
    asyncio.run(_add_run(postgres_store, "mine", history("streamed")))
    refused = copy(tmp_path, filled, postgres_store)
    assert refused.returncode == 2
    assert "is not empty: it has run 'mine'" in refused.stderr
    assert "name an empty target" in refused.stderr
    assert [row.run for row in list_runs(postgres_store)] == ["mine"]


def test_a_target_with_files_that_the_source_has_not_is_not_empty(tmp_path: Path, filled: Path) -> None:
    async def add_file(folder: Path) -> None:
        async with opened(folder / "runs.db") as journal:
            await journal.files.add(StoredFile("file-2", "b.png", "image/png", 3, 8.5), b"\0\1\3", room=3)

    (tmp_path / "target").mkdir()
    asyncio.run(add_file(tmp_path / "target"))
    refused = copy(tmp_path, filled, tmp_path / "target")
    assert refused.returncode == 2
    assert "is not empty: it has file 'file-2'" in refused.stderr
    assert list_runs(tmp_path / "target" / "runs.db") == []


def test_a_memory_that_is_not_empty_is_refused_before_runs_are_copied(tmp_path: Path, filled: Path) -> None:
    async def remember() -> str:
        catalog = await open_catalog(tmp_path / "target" / "memory.db")
        block = await catalog.add(Block("notes", "mine"))
        await catalog.close()
        return block.id

    block = asyncio.run(remember())
    refused = copy(tmp_path, filled, "target")
    assert refused.returncode == 2
    assert f"it has {block} in its memory (space 'default')" in " ".join(refused.stderr.split())
    assert not (tmp_path / "target" / "runs.db").exists()


def test_a_run_that_went_on_in_the_target_is_not_overwritten(tmp_path: Path, filled: Path) -> None:
    assert copy(tmp_path, "-q", filled, "target").returncode == 0

    async def go_on() -> None:
        async with opened(tmp_path / "target" / "runs.db") as journal:
            lease = await journal.claim(OPEN)
            await journal.append(lease, [noted(lease.seq + 1)])
            await journal.release(lease)

    asyncio.run(go_on())
    refused = copy(tmp_path, filled, "target")
    assert refused.returncode == 2
    assert f"it has run '{OPEN}', which is not the same" in " ".join(refused.stderr.split())


def test_what_was_added_to_the_source_since_is_added_to_the_target(tmp_path: Path) -> None:
    asyncio.run(_add_run(tmp_path / "source" / "runs.db", "first", _half(history("streamed"))))
    assert copy(tmp_path, "-q", "source", "target").returncode == 0

    async def go_on() -> None:
        async with opened(tmp_path / "source" / "runs.db") as journal:
            lease = await journal.claim("first")
            await journal.append(lease, history("streamed")[lease.seq :])
            await journal.release(lease)
            await _write(journal, "second", history("asked"))

    asyncio.run(go_on())
    done = copy(tmp_path, "source", "target")
    assert done.returncode == 0, done.stderr
    assert "runs 2" in done.stdout
    assert read_run(tmp_path / "target" / "runs.db", "first") == history("streamed")


def test_a_damaged_entry_is_reported_with_its_run(tmp_path: Path) -> None:
    asyncio.run(_add_run(tmp_path / "source" / "runs.db", "bad", history("streamed")))
    with closing(sqlite3.connect(tmp_path / "source" / "runs.db")) as db, db:
        db.execute("UPDATE entries SET body = replace(body, 'a', 'b') WHERE seq = 3")
    failed = copy(tmp_path, "source", "target")
    assert failed.returncode == 1
    assert "entry 3 of run 'bad' is damaged" in " ".join(failed.stderr.split())


async def test_a_run_that_a_process_drives_is_refused_by_name(tmp_path: Path) -> None:
    async with opened(tmp_path / "source" / "runs.db") as journal:
        await _write(journal, "quiet", history("asked"))
        lease = await journal.claim("driven", new=True)
        await journal.append(lease, _half(history("streamed")))
        refused = await asyncio.to_thread(copy, tmp_path, "source", "target")
        assert refused.returncode == 2
        assert "run 'driven' in source/runs.db is being driven" in " ".join(refused.stderr.split())
        assert not (tmp_path / "target").exists()


class _Counted(Understudy):
    """Remembers which tasks it was given."""

    def __init__(self, entries: list[ev.Entry]) -> None:
        super().__init__(entries)
        self.given: list[str] = []

    async def attempt(self, brief: Brief, context: StepContext) -> TaskDone:
        self.given.append(brief.work.task)
        return await super().attempt(brief, context)


async def test_an_open_run_is_resumed_from_the_target_without_repeating_what_is_done(
    tmp_path: Path, filled: Path, postgres_store: str
) -> None:
    assert copy(tmp_path, "-q", filled, postgres_store).returncode == 0
    before = _half(history("streamed"))
    finished = {entry.event.task for entry in before if isinstance(entry.event, ev.AttemptSucceeded)}
    executor = _Counted(history("streamed"))
    async with opened(postgres_store) as journal:
        outcome = await Runner(journal, executor, wall=lambda: before[-1].at + 1).resume(OPEN)
        entries = await journal.read(OPEN)
    assert outcome.state.ended is not None
    assert outcome.state.ended.ending == "complete"
    assert finished
    assert executor.given
    assert not finished & set(executor.given)
    assert entries[: len(before)] == before


def test_a_server_is_copied_with_all_tenants_and_tokens(tmp_path: Path, postgres_store: str) -> None:
    data = tmp_path / "data"
    for tenant in ("main", "lab"):
        asyncio.run(_add_run(data / tenant / "runs.db", f"run of {tenant}", history("asked")))
    made = [create_key(tenant, "laptop", "admin", 5.0)[0] for tenant in ("main", "lab")]
    with closing(open_keys(data / "keys.db")) as keys:
        for key in made:
            keys.add(key)
    hinted = copy(tmp_path, data, postgres_store)
    assert hinted.returncode == 2
    assert "say --server" in hinted.stderr
    there = copy(tmp_path, "--server", data, postgres_store)
    assert there.returncode == 0, there.stderr
    assert "tenants 2, runs 2" in there.stdout
    assert there.stdout.rstrip().endswith("tokens 2")
    assert [row.run for row in list_runs(f"{postgres_store}&tenant=lab")] == ["run of lab"]
    back = copy(tmp_path, "--server", postgres_store, "back")
    assert back.returncode == 0, back.stderr
    assert [row.run for row in list_runs(tmp_path / "back" / "lab" / "runs.db")] == ["run of lab"]
    with closing(open_keys(tmp_path / "back" / "keys.db")) as keys:
        assert {key.id for key in keys.all()} == {key.id for key in made}


def test_a_tenant_whose_name_leads_out_of_the_folder_is_refused(tmp_path: Path, postgres_store: str) -> None:
    asyncio.run(_add_run(f"{postgres_store}&tenant=..%2Foutside", "run", history("asked")))
    refused = copy(tmp_path, "--server", postgres_store, tmp_path / "target")
    assert refused.returncode == 2
    assert "'../outside' is no name for a tenant" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_tokens_of_another_server_are_refused(tmp_path: Path) -> None:
    asyncio.run(_add_run(tmp_path / "data" / "main" / "runs.db", "run", history("asked")))
    key, _ = create_key("main", "laptop", "admin", 5.0)
    with closing(open_keys(tmp_path / "target" / "keys.db")) as keys:
        keys.add(key)
    refused = copy(tmp_path, "--server", "data", "target")
    assert refused.returncode == 2
    assert f"it has token {key.id}" in refused.stderr
    assert not (tmp_path / "target" / "main").exists()


async def test_a_difference_is_reported_by_its_name(tmp_path: Path, filled: Path) -> None:
    assert copy(tmp_path, "-q", filled, "target").returncode == 0
    async with opened(filled / "runs.db") as source, opened(tmp_path / "target" / "runs.db") as target:
        lease = await target.claim(OPEN)
        await target.append(lease, [noted(lease.seq + 1)])
        await target.release(lease)
        with pytest.raises(Corrupt, match=f"run '{OPEN}' from entry {lease.seq} on"):
            await compare_journals(
                JournalSide(source, "source"), JournalSide(target, "target"), lambda _what, _done, _total: None
            )
    memories = [await open_catalog(folder / "memory.db") for folder in (filled, tmp_path / "target")]
    desk = memories[1].of("desk")
    ann = (await desk.find(Profile, name="ann"))[0].id
    await desk.say(ann, [Turn("user", "one more")])
    source_side, target_side = (MemorySide(catalog, "memory") for catalog in memories)
    with pytest.raises(Corrupt, match=rf"turn 11 of {ann} in the memory \(space 'desk'\)"):
        await compare_memories(source_side, target_side, lambda _what, _done, _total: None)
    for catalog in memories:
        await catalog.close()


def test_one_file_is_copied_alone(tmp_path: Path, filled: Path) -> None:
    done = copy(tmp_path, "--json", filled / "memory.db", "other.db")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["runs"], document["passages"]) == (0, 14)


def test_what_a_team_wrote_to_its_memory_goes_on_in_the_target(tmp_path: Path, filled: Path) -> None:
    assert copy(tmp_path, "-q", filled, "target").returncode == 0

    async def go_on() -> None:
        catalog = (await open_catalog(tmp_path / "target" / "memory.db", space="desk")).of("desk")
        (notes,) = await catalog.find(Block, name="notes")
        assert (await catalog.edit(notes.id, Append("more"), Origin())).version == notes.version + 1
        (papers,) = await catalog.find(Archive, name="papers")
        assert (await catalog.search([papers.id], "soil", limit=1))[0].passage.archive == papers.id
        assert len(await catalog.find(Profile)) == 2

    asyncio.run(go_on())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nowhere", "target"), 2, "there is no folder nowhere"),
        (("empty", "target"), 2, "neither runs.db nor memory.db"),
        (("same", "same"), 2, "cannot be copied to itself"),
        (("--server", "empty", "target"), 2, "there are no tenants"),
        (("--server", "empty", "postgresql://localhost/x?tenant=lab"), 2, "names one tenant"),
        (("http://x", "target"), 2, "is not the URL of a store"),
        ((), 2, "required"),
    ],
)
def test_places_that_cannot_be_meant_are_refused(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    (tmp_path / "empty").mkdir()
    done = copy(tmp_path, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in " ".join(done.stderr.split())
