"""Lessons beside the runs: in memory, in a journal's own hands, and in its file for whoever does not own it."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from chargehand.errors import Invalid, Refused, StoreUnavailable
from chargehand.stores import lessons as kept
from chargehand.stores.lessons import Lesson, Lessons, Source
from chargehand.stores.lessons_file import opened_lessons
from chargehand.stores.memory import MemoryJournal
from chargehand.stores.sqlite import SqliteJournal

Opened = Callable[[str], AbstractAsyncContextManager[Lessons]]


@pytest.fixture(params=["memory", "journal", "file"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Every place there is for lessons; all of them do the same."""
    memory = MemoryJournal()
    path = tmp_path / "runs.db"

    @asynccontextmanager
    async def place(team: str) -> AsyncGenerator[Lessons]:
        if request.param == "memory":
            yield memory.lessons(team)
            return
        journal = await SqliteJournal.open(path)
        if request.param == "journal":
            yield journal.lessons(team)
            await journal.close()
            return
        await journal.close()
        async with opened_lessons(path) as found:
            yield found.lessons(team)

    return place


def lesson(run: str, worker: str = "ann", score: float = 1.0, source: Source = "feedback") -> Lesson:
    return Lesson(request=f"mend the gate of {run}", worker=worker, score=score, source=source, run=run, at=7.0)


async def all_of(lessons: Lessons) -> list[tuple[str, str, float, str]]:
    return [(one.run, one.worker, one.score, one.source) for one in (await lessons.since("", 0)).lessons]


async def test_what_a_source_says_of_a_run_takes_the_place_of_what_it_said_before(opened: Opened) -> None:
    async with opened("shop") as lessons:
        assert await lessons.keep("one", "feedback", [lesson("one"), lesson("one", "bob", 0.0)])
        assert not await lessons.keep("one", "feedback", [lesson("one", "bob", 0.0), lesson("one")])
        first = await lessons.since("", 0)
        assert (len(first.lessons), first.whole) == (2, True)
        assert await lessons.keep("one", "feedback", [lesson("one", score=0.25)])
        assert await lessons.keep("one", "outcome", [lesson("one", source="outcome")])
        assert await all_of(lessons) == [("one", "ann", 0.25, "feedback"), ("one", "ann", 1.0, "outcome")]
        news = await lessons.since(first.generation, first.latest)
        assert ([one.score for one in news.lessons], news.whole) == ([0.25, 1.0], False)
        again = await lessons.since(news.generation, news.latest)
        assert (again.lessons, again.latest, again.whole) == ((), news.latest, False)


async def test_teams_do_not_see_each_other_and_each_forgets_its_own(opened: Opened) -> None:
    async with opened("shop") as lessons:
        await lessons.keep("one", "feedback", [lesson("one")])
        before = await lessons.since("", 0)
        assert await lessons.forget() == 1
        after = await lessons.since(before.generation, before.latest)
        assert (after.lessons, after.whole) == ((), True)
        await lessons.keep("two", "feedback", [lesson("two")])
    async with opened("desk") as others:
        assert await all_of(others) == []
        assert await others.forget() == 0
    async with opened("shop") as lessons:
        assert await all_of(lessons) == [("two", "ann", 1.0, "feedback")]


async def test_the_oldest_go(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST", 3)
    async with opened("shop") as lessons:
        for run in "abcde":
            await lessons.keep(run, "feedback", [lesson(run)])
        assert [run for run, *_ in await all_of(lessons)] == ["c", "d", "e"]


async def test_vectors_are_kept_for_the_embedding_that_made_them(opened: Opened) -> None:
    async with opened("shop") as lessons:
        await lessons.keep("one", "feedback", [lesson("one")])
        (one,) = (await lessons.since("", 0)).lessons
        await lessons.dress("bag", {one.number: b"\0" * 8})
        assert [each.vector for each in (await lessons.since("", 0, "bag")).lessons] == [b"\0" * 8]
        assert [each.vector for each in (await lessons.since("", 0, "other")).lessons] == [None]


async def test_a_score_that_is_none_is_refused_and_long_requests_are_cut(opened: Opened) -> None:
    async with opened("shop") as lessons:
        for score in (-0.1, 1.1, float("nan")):
            with pytest.raises(Invalid, match="from 0 to 1"):
                await lessons.keep("one", "feedback", [lesson("one", score=score)])
        await lessons.keep("one", "feedback", [Lesson("x" * 100_000, "ann", 1.0, "feedback", "one")])
        assert [len(one.request) for one in (await lessons.since("", 0)).lessons] == [kept.LONGEST]


# --- in a file


async def test_what_was_learnt_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    await journal.lessons("shop").keep("one", "feedback", [lesson("one")])
    await journal.close()
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    assert await all_of(journal.lessons("shop")) == [("one", "ann", 1.0, "feedback")]
    await journal.close()


async def test_a_journal_of_an_earlier_version_is_given_room_for_lessons(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await (await SqliteJournal.open(path)).close()
    connection = sqlite3.connect(path)
    connection.executescript(
        "DROP TABLE lessons; DROP TABLE lesson_books; DROP TABLE fitted_routers; PRAGMA user_version = 1"
    )
    connection.close()
    async with opened_lessons(path) as found:
        await found.lessons("shop").keep("one", "feedback", [lesson("one")])
    journal = await SqliteJournal.open(path)
    assert await all_of(journal.lessons("shop")) == [("one", "ann", 1.0, "feedback")]
    await journal.close()


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with pytest.raises(Refused, match="there is no journal"):
        async with opened_lessons(path):
            pass
    assert not await asyncio.to_thread(path.exists)


async def test_whoever_owns_the_journal_sees_what_others_write(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = await SqliteJournal.open(path)
    own = journal.lessons("shop")
    await own.keep("one", "outcome", [lesson("one", source="outcome")])
    before = await own.since("", 0)
    async with opened_lessons(path) as found:
        await found.lessons("shop").keep("one", "feedback", [lesson("one", score=0.0)])
    news = await own.since(before.generation, before.latest)
    assert [(one.source, one.score) for one in news.lessons] == [("feedback", 0.0)]
    await journal.close()


_WRITER = """
import asyncio, sys
from pathlib import Path
from chargehand.stores.lessons import Lesson
from chargehand.stores.lessons_file import opened_lessons

async def main(path, name):
    async with opened_lessons(Path(path)) as found:
        for number in range(40):
            run = f"{name}-{number}"
            await found.lessons("shop").keep(run, "feedback", [Lesson("mend it", name, 1.0, "feedback", run)])
            await found.lessons("shop").keep("both", "feedback", [Lesson("mend it", name, 1.0, "feedback", "both")])

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_write_to_one_file_beside_the_one_that_drives_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = await SqliteJournal.open(path)
    words = (sys.executable, "-W", "error", "-c", _WRITER, str(path))
    both = [await asyncio.create_subprocess_exec(*words, name) for name in ("ann", "bob")]
    for number in range(20):
        await journal.lessons("shop").keep(f"own-{number}", "outcome", [lesson(f"own-{number}", source="outcome")])
    codes = [await one.wait() for one in both]
    found = await all_of(journal.lessons("shop"))
    await journal.close()
    assert codes == [0, 0]
    assert len(found) == len(set(found)) == 40 + 40 + 20 + 1


async def test_a_file_that_is_locked_says_so_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await (await SqliteJournal.open(path)).close()
    async with opened_lessons(path, patience=0.1) as found:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="lock"):
            await found.lessons("shop").keep("one", "feedback", [lesson("one")])
        other.execute("ROLLBACK")
        other.close()
        assert await found.lessons("shop").keep("one", "feedback", [lesson("one")])
