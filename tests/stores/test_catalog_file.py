"""A catalog's file: whose it may be, what it survives, and that several processes share it."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

from chargehand.engine.roster import Match
from chargehand.errors import Corrupt, Refused, StoreError, StoreUnavailable
from chargehand.journal.sqlite import SqliteJournal
from chargehand.memory.blocks import PERSON, Block, Grant
from chargehand.memory.catalog import Catalog, Group, Profile
from chargehand.memory.conversations import Turn
from chargehand.memory.edits import Append, Undo
from chargehand.memory.sqlite_catalog import SqliteCatalog, SqliteStore
from chargehand.sqlite.connection import connect
from chargehand.sqlite.database import Database
from tests.stores.faults import Fault, failing
from tests.stores.test_catalog import made, worker
from tests.support.hunts import hunt_size

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def refusal(opening: Awaitable[Catalog | SqliteJournal]) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await (await opening).close()
    return caught.value


async def test_what_was_kept_is_there_when_it_is_opened_again_folders_and_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "deeper" / "memory.db"
    catalog: Catalog = await SqliteCatalog.open(path)
    agent = await catalog.add(Profile("ann"))
    block = await catalog.add(Block("facts", "one"))
    await catalog.attach(agent.id, block.id, Grant("append"))
    await catalog.say(agent.id, [Turn("user", "hello")], key="k")
    edited = await catalog.edit(block.id, Append("two"), PERSON)
    await catalog.close()
    catalog = await SqliteCatalog.open(str(path))
    assert [(one.thing, one.grant) for one in await catalog.attached(agent.id)] == [(edited, Grant("append"))]
    assert [turn.text for turn in await catalog.recall(agent.id, "hello")] == ["hello"]
    assert not await catalog.say(agent.id, [Turn("user", "hello")], key="k")
    assert await catalog.text_at(block.id, 1) == "one"
    await catalog.close()


async def test_an_opened_file_shows_one_space(file: Path) -> None:
    catalog = await SqliteCatalog.open(file, space="ours")
    kept = await catalog.add(Profile("ann"))
    await catalog.close()
    catalog = await SqliteCatalog.open(file)
    assert await catalog.find(Profile) == []
    assert await catalog.of("ours").find(Profile) == [kept]
    await catalog.close()


async def test_a_journal_is_no_catalog_and_a_catalog_no_journal(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    memory = tmp_path / "memory.db"
    await (await SqliteJournal.open(journal)).close()
    await (await SqliteCatalog.open(memory)).close()
    assert "is a journal of chargehand; name another file for the memory" in str(
        await refusal(SqliteCatalog.open(journal))
    )
    assert "is a memory file of chargehand; name another" in str(await refusal(SqliteJournal.open(memory)))
    await (await SqliteJournal.open(journal)).close()
    await (await SqliteCatalog.open(memory)).close()


async def test_files_of_others_are_left_alone(file: Path, tmp_path: Path) -> None:
    change(file, "CREATE TABLE theirs (x)")
    assert "another program" in str(await refusal(SqliteCatalog.open(file)))
    text = tmp_path / "notes.txt"
    text.write_text("not a database at all, and longer than a header of one hundred bytes" * 3)
    assert "is not a memory file, nor any SQLite database" in str(await refusal(SqliteCatalog.open(text)))
    assert text.read_text().startswith("not a database")
    for place in (tmp_path, text / "below"):
        assert isinstance(await refusal(SqliteCatalog.open(place)), StoreUnavailable)


async def test_a_newer_schema_is_refused(file: Path) -> None:
    catalog = await SqliteCatalog.open(file)
    kept = await catalog.add(Block("facts"))
    change(file, "PRAGMA user_version = 99")
    error = await refusal(SqliteCatalog.open(file))
    assert isinstance(error, Corrupt)
    assert "schema 99" in str(error)
    with pytest.raises(Corrupt, match="upgrade"):  # also for whoever had it open when it was brought there
        await catalog.edit(kept.id, Append("x"), PERSON)
    await catalog.close()


async def test_a_writer_waits_for_another_as_long_as_it_was_told(file: Path) -> None:
    catalog = await SqliteCatalog.open(file, patience=0.2)
    kept = await catalog.add(Block("facts"))
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="lock"):
        await catalog.edit(kept.id, Append("x"), PERSON)
    assert await catalog.get(Block, kept.id) == kept
    other.execute("ROLLBACK")
    other.close()
    assert (await catalog.edit(kept.id, Append("x"), PERSON)).value == "x"
    await catalog.close()


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done, and the answer lost"])
async def test_an_edit_is_made_once_whatever_statement_fails(fast: Path, after: bool) -> None:
    for at in range(1, 60):
        path = fast / f"{after}-{at}.db"
        plain = await SqliteCatalog.open(path)
        block = (await plain.add(Block("facts"))).id
        agent = (await plain.add(Profile("ann"))).id
        await plain.close()
        fault = Fault()
        catalog = await SqliteCatalog.open(path, connect=failing(fault), patience=0.1)
        fault._which = range(len(fault.statements) + at, len(fault.statements) + at + 1)
        fault._after = after
        made = 0
        for number in range(3):
            try:
                await catalog.edit(block, Append(str(number)), PERSON)
                await catalog.say(agent, [Turn("user", str(number))])
                made += 1
            except StoreError:
                continue
        if not fault.fired:
            await catalog.close()
            return
        found = await catalog.get(Block, block)
        turns = await catalog.turns(agent)
        assert found is not None
        assert made == 3, at
        assert found.value == "0\n1\n2"
        assert [turn.text for turn in turns] == ["0", "1", "2"]
        await catalog.close()
    raise AssertionError("there is always another statement to fail")


def database_of(catalog: SqliteCatalog) -> Database:
    assert isinstance(catalog._store, SqliteStore)
    return catalog._store.database


async def test_a_bug_in_one_piece_of_work_does_not_end_the_writer(file: Path) -> None:
    catalog = await SqliteCatalog.open(file)

    def broken(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM things")
        raise KeyError("a bug")

    kept = await catalog.add(Block("facts"))
    with pytest.raises(StoreError, match="a bug"):
        await database_of(catalog).write(broken)
    assert (await catalog.edit(kept.id, Append("x"), PERSON)).value == "x"
    await catalog.close()


async def test_what_is_not_attached_is_not_read(tmp_path: Path) -> None:
    catalog = await SqliteCatalog.open(tmp_path / "memory.db")
    agent, block = await made(catalog, Block("facts"))
    other = (await catalog.add(Block("other"))).id
    await database_of(catalog).write(
        lambda db: db.execute("UPDATE things SET body = 'torn' WHERE id = ?", (other,)).rowcount
    )
    assert [one.thing.id for one in await catalog.attached(agent)] == [block]
    await catalog.edit(block, Append("x"), worker(), agent=agent)
    with pytest.raises(Corrupt, match="restore a backup"):
        await catalog.get(Block, other)
    with pytest.raises(Corrupt):
        await catalog.edit(other, Append("x"), PERSON)
    await catalog.close()


async def test_nothing_walks_through_a_whole_table(tmp_path: Path) -> None:
    """What is asked for again and again must not get slower by what lies beside it."""
    catalog = await SqliteCatalog.open(tmp_path / "memory.db")
    agent, block = await made(catalog, Block("facts", tags=("a",)))
    group = await catalog.add(Group("crew", (agent,)))
    await catalog.attach(group.id, block, Grant("write"))
    asked: list[str] = []
    for watched in (asked.append, None):
        for door in (database_of(catalog).write, database_of(catalog).read):
            await door(lambda db, watched=watched: db.set_trace_callback(watched))
        if watched is not None:
            await use(catalog, agent, block)
    plans = await database_of(catalog).read(
        lambda db: [
            (question, row[3])
            for question in asked
            if question.lstrip().startswith(("SELECT", "UPDATE", "DELETE"))
            for row in db.execute("EXPLAIN QUERY PLAN " + question).fetchall()
        ]
    )
    assert len(plans) > 20
    # the rest is the index's own, or the list that the question itself brings
    ours = [(question, plan) for question, plan in plans if "turns_words" not in plan and "json_each" not in plan]
    assert [(question, plan) for question, plan in ours if plan.startswith("SCAN")] == []
    await catalog.close()


async def use(catalog: Catalog, agent: str, block: str) -> None:
    await catalog.get(Block, block)
    await catalog.find(Block, name="facts", after=block)
    await catalog.find(Block, tags=Match(("a",), ("b",)))
    await catalog.attached(agent)
    await catalog.owners(block)
    await catalog.edit(block, Append("x"), worker(key="k"), agent=agent)
    await catalog.edit(block, Undo(), PERSON)
    await catalog.history(block)
    await catalog.tags(Block)
    await catalog.say(agent, [Turn("user", "hello")])
    said = (await catalog.turns(agent, before=99))[0]
    await catalog.turns(agent, old=True)
    await catalog.summarise(agent, Turn("summary", "hi", upto=said.number))
    await catalog.recall(agent, "hello")
    await catalog.recall(agent, "")
    await catalog.reset(agent)
    await catalog.delete(Block, block)
    await catalog.delete(Profile, agent)


async def test_bad_text_in_a_question_is_an_error_in_words(catalog: Catalog) -> None:
    with pytest.raises(StoreError, match="could not take"):
        await catalog.get(Block, "\ud800")
    kept = await catalog.add(Block("facts"))
    assert await catalog.get(Block, kept.id) == kept


# --- several processes


async def other_process(path: str, block: str, count: int) -> None:
    catalog = await SqliteCatalog.open(path)
    for number in range(count):
        await catalog.edit(block, Append(f"theirs {number}"), PERSON)
    found = await catalog.get(Block, block)
    print(found.value if found else "")
    await catalog.close()


async def test_two_processes_see_each_others_changes(file: Path) -> None:
    catalog = await SqliteCatalog.open(file)
    block = (await catalog.add(Block("facts", "ours"))).id
    command = [sys.executable, "-m", "tests.stores.test_catalog_file", str(file), block, "2"]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert output.decode() == "ours\ntheirs 0\ntheirs 1\n"
    found = await catalog.get(Block, block)
    assert found is not None
    assert found.value == "ours\ntheirs 0\ntheirs 1"
    await catalog.close()


def test_many_processes_may_make_the_same_file_at_once(file: Path) -> None:
    command = [sys.executable, "-m", "tests.stores.test_catalog_file", str(file)]
    count = hunt_size(quick=4, thorough=6)
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    for process in processes:  # all stand ready before the first begins
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=30)[0].strip() for process in processes]
    assert sorted(answers) == ["made"] + ["there already"] * (count - 1)


async def race(path: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    catalog = await SqliteCatalog.open(path)
    try:
        await catalog.add(Block("facts", id="block-00000000-0000-0000-0000-000000000001"))
        print("made")
    except Refused:
        print("there already")
    await catalog.close()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run(other_process(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    else:
        asyncio.run(race(sys.argv[1]))


async def test_an_opening_that_nobody_waits_for_any_more_leaves_nothing_open(file: Path) -> None:
    def writers() -> int:
        return sum(one.name == "chargehand-writer" for one in threading.enumerate())

    begun = threading.Event()
    held = threading.Event()
    before = writers()
    made = list[sqlite3.Connection]()

    def slowly(*given: object, **more: object) -> sqlite3.Connection:
        begun.set()
        held.wait(5)
        made.append(connect(*given, **more))  # pyright: ignore[reportArgumentType] - handed on as it came
        return made[-1]

    async with asyncio.TaskGroup() as jobs:
        opening = jobs.create_task(SqliteCatalog.open(file, connect=slowly))
        await asyncio.to_thread(begun.wait, 5)
        opening.cancel()
        await asyncio.sleep(0)
        held.set()
    for _ in range(1000):
        if made and writers() == before:
            break
        await asyncio.sleep(0.01)
    assert made, "the thread went on"
    assert writers() == before
