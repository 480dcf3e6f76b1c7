"""Runs that teach: what their end says by itself, what people say of them, and that nothing of it gets in the way."""

import asyncio
import json
import logging
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from chargehand.agents.subteam import seen_before
from chargehand.agents.ways import Loop, Route, Way
from chargehand.agents.worker import Worker
from chargehand.errors import Invalid, Refused, StoreUnavailable, Unknown
from chargehand.models.messages import Request
from chargehand.models.subject import Answering, Judging, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.result import Result
from chargehand.stores.lessons import Lesson, Lessons
from chargehand.stores.memory import MemoryJournal
from chargehand.stores.sqlite import SqliteJournal
from chargehand.team import Supervisor
from chargehand.terms import events as ev
from chargehand.terms.failure import Failure
from chargehand.terms.plan import Combine
from chargehand.terms.policy import Policy, Retry
from tests.agents.crowd import FREE

QUICK = Policy(retry=Retry(attempts=1, base=0.001), refine=False)
SHOP = (
    Worker("billing", "answers questions about invoices", skills=["invoices", "refunds", "payment methods"]),
    Worker("repairs", "helps when something is broken", skills=["error messages", "devices that do not start"]),
    Worker("desk", "answers everything else"),
)
BY_WORDS = Route("words", generalist="desk")
T = TypeVar("T")
TORN = "the card payment shows error messages"
LIKE = "this card payment shows an error message"


def does(request: Request) -> Line:
    match request.subject:
        case Working() as subject:
            return Failure("logic", "it cannot be done", permanent=True) if "broken" in subject.instruction else "Done."
        case Answering():
            return "All done [t1]."
        case Judging():
            return json.dumps({"why": "it is shorter", "winner": "t2"})
        case _:
            raise AssertionError(f"nobody asks for this: {request.subject}")


def shop(
    journal: MemoryJournal | Path | SqliteJournal | None = None,
    way: Way = BY_WORDS,
    combine: Combine | None = None,
    name: str = "shop",
) -> Supervisor:
    model = ScriptedModel(does, card=FREE)
    return Supervisor(SHOP, model=model, way=way, journal=journal, policy=QUICK, name=name, combine=combine)


def routed(result: Result) -> str:
    notes = [one.event.text for one in result.entries if isinstance(one.event, ev.Noted)]
    return next(text for text in notes if text.startswith("route to "))


def whom(result: Result) -> list[str]:
    return [one.worker for one in result.plan.tasks]


async def kept(journal: MemoryJournal, team: str = "shop") -> list[Lesson]:
    return list((await journal.lessons(team).since("", 0)).lessons)


# --- how a run ended


async def test_a_routed_run_that_ended_well_is_a_lesson_and_one_that_failed_too() -> None:
    journal = MemoryJournal()
    team = shop(journal)
    good = await team.run("where are my invoices")
    bad = await team.run("my device is broken and does not start")
    assert (good.ending, bad.ending != "complete") == ("complete", True)
    lessons = [(one.run, one.worker, one.score, one.source) for one in await kept(journal)]
    assert (good.run, "billing", 1.0, "outcome") in lessons
    assert (bad.run, "repairs", 0.0, "outcome") in lessons


@pytest.mark.parametrize("way", [Route("words", generalist="desk", learn=False), Loop()])
async def test_nothing_is_kept_where_it_is_off_or_led_otherwise(way: Way) -> None:
    journal = MemoryJournal()
    team = Supervisor(SHOP, model="demo", way=way, journal=journal, policy=QUICK, name="shop")
    await team.run("where are my invoices")
    assert await kept(journal) == []


async def test_what_nobody_took_on_teaches_nothing() -> None:
    journal = MemoryJournal()
    found = await shop(journal, Route("words")).run("sing a song of sixpence")
    assert found.ending != "complete"
    assert await kept(journal) == []


async def test_a_judge_who_chose_between_two_workers_is_a_lesson_of_its_own() -> None:
    journal = MemoryJournal()
    model = ScriptedModel(
        lambda request: (
            f"{request.subject.worker.name} says it." if isinstance(request.subject, Working) else does(request)
        ),
        card=FREE,
    )
    way = Route("words", secondary=True)
    team = Supervisor(SHOP, model=model, way=way, journal=journal, policy=QUICK, name="shop", combine="select")
    found = await team.run(TORN)
    assert whom(found) == ["repairs", "billing"]
    scores = {one.worker: one.score for one in await kept(journal) if one.source == "judge"}
    assert scores == {"billing": 1.0, "repairs": 0.3}


async def test_a_request_that_holds_text_from_outside_teaches_nothing() -> None:
    journal = MemoryJournal()
    await shop(journal).run(seen_before("where are my invoices"))
    assert await kept(journal) == []


async def test_a_nested_team_learns_by_itself() -> None:
    journal = MemoryJournal()
    inner = shop(None, name="inner")
    outer = Supervisor(
        [inner.as_worker("counter", "answers questions about invoices")],
        model=ScriptedModel(does, card=FREE),
        way=Route("words", threshold=0.0),
        journal=journal,
        policy=QUICK,
        name="outer",
    )
    await outer.run("where are my invoices")
    assert [one.worker for one in await kept(journal, "outer")] == ["counter"]
    (inside,) = await kept(journal, "inner")
    assert (inside.worker, inside.request) == ("billing", "where are my invoices")


async def test_lessons_that_cannot_be_kept_do_not_cost_a_run(caplog: pytest.LogCaptureFixture) -> None:
    class Full(MemoryJournal):
        def lessons(self, team: str) -> Lessons:
            return Lessons(Stuck(), team, "nowhere")

    class Stuck:
        async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
            raise StoreUnavailable("the disk is full")

        async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
            raise StoreUnavailable("the disk is gone")

    caplog.set_level(logging.WARNING, "chargehand.runtime.lessons")  # the simulation turns the runtime's warnings off
    found = await Supervisor(
        SHOP, model=ScriptedModel(does, card=FREE), way=Route("words"), journal=Full(), policy=QUICK, name="shop"
    ).run("where are my invoices")
    assert found.ending == "complete"
    assert "nothing is learnt from earlier routes: the disk is gone" in caplog.text
    assert "the disk is full" in caplog.text


# --- what people say


@pytest.mark.parametrize("place", ["memory", "file"])
async def test_feedback_shifts_a_like_request_and_the_journal_says_why(place: str, tmp_path: Path) -> None:
    team = shop(MemoryJournal() if place == "memory" else tmp_path / "runs.db")
    first = await team.run(TORN)
    assert whom(first) == ["repairs"]
    lessons = await team.feedback(first.run, good=False, worker="billing")
    assert {one.worker: one.score for one in lessons} == {"repairs": 0.0, "billing": 1.0}
    then = await team.run(LIKE)
    assert whom(then) == ["billing"]
    assert "learnt from 2 like requests: " in routed(then)
    assert "so billing instead of repairs" in routed(then)
    other = await team.run("the device does not start")
    assert "learnt" not in routed(other)


async def test_the_switch_turns_it_off() -> None:
    journal = MemoryJournal()
    first = await shop(journal).run(TORN)
    await shop(journal).feedback(first.run, good=False, worker="billing")
    off = shop(journal, Route("words", generalist="desk", learn=False))
    found = await off.run(LIKE)
    assert (whom(found), "learnt" in routed(found)) == (["repairs"], False)
    assert whom(await shop(journal).run(LIKE)) == ["billing"]


async def test_wrong_feedback_is_undone_by_right_feedback_and_once_is_as_good_as_often() -> None:
    journal = MemoryJournal()
    team = shop(journal)
    runs = [(await team.run(TORN)).run for _ in range(3)]
    for _ in range(5):
        for run in runs:
            await team.feedback(run, good=False, worker="billing")
    assert whom(await team.run(LIKE)) == ["billing"]
    last = await team.run(TORN)
    assert whom(last) == ["billing"]
    await team.feedback(last.run, good=False, worker="repairs")
    assert whom(await team.run(LIKE)) == ["repairs"]


async def test_a_flood_of_wrong_feedback_does_not_turn_what_is_clear() -> None:
    journal = MemoryJournal()
    team = shop(journal)
    request = "invoices, refunds and payment methods"
    for at in range(30):
        run = f"flood-{at}"
        said = [
            Lesson(f"{request} {at}", "billing", 0.0, "feedback", run),
            Lesson(f"{request} {at}", "repairs", 1.0, "feedback", run),
        ]
        await journal.lessons("shop").keep(run, "feedback", said)
    assert whom(await team.run(request)) == ["billing"]


async def test_a_resumed_run_keeps_the_worker_it_was_routed_to() -> None:
    journal = MemoryJournal()
    asked = Policy(retry=QUICK.retry, refine=False, approve=True)
    model = ScriptedModel(does, card=FREE)
    team = Supervisor(SHOP, model=model, way=Route("words"), journal=journal, policy=asked, name="shop")
    waiting = await team.run(TORN)
    assert waiting.question is not None
    said = [Lesson(TORN, "repairs", 0.0, "feedback", "x"), Lesson(TORN, "billing", 1.0, "feedback", "x")]
    await journal.lessons("shop").keep("x", "feedback", said)
    done = await team.resume(waiting.run, ev.InputAnswered(waiting.question.number, "approve"))
    assert whom(done) == ["repairs"]
    assert [one.worker for one in await kept(journal) if one.source == "outcome"] == ["repairs"]


async def test_a_person_may_say_who_should_have_done_what_nobody_did() -> None:
    team = shop(MemoryJournal(), Route("words"))
    lost = await team.run("sing a song of sixpence")
    with pytest.raises(Invalid, match="nobody did run"):
        await team.feedback(lost.run, good=False)
    await team.feedback(lost.run, good=False, worker="desk")
    assert whom(await team.run("sing us a song of sixpence")) == ["desk"]


async def test_what_cannot_be_judged_is_refused_in_words() -> None:
    journal = MemoryJournal()
    team = shop(journal)
    run = (await team.run(TORN)).run
    planned = await Supervisor(SHOP, journal=journal, policy=QUICK, name="shop").run("Where are the invoices?")
    with pytest.raises(Unknown, match="there is no run 'nope'"):
        await team.feedback("nope", good=True)
    with pytest.raises(Refused, match="was not led by a route"):
        await team.feedback(planned.run, good=True)
    with pytest.raises(Unknown, match=r"no worker 'bilings' in run .*; did you mean 'billing'"):
        await team.feedback(run, good=False, worker="bilings")
    with pytest.raises(Invalid, match="say bad if billing should have done it"):
        await team.feedback(run, good=True, worker="billing")
    with pytest.raises(Invalid, match=r"repairs did run .* already"):
        await team.feedback(run, good=False, worker="repairs")
    for nonsense in (2, -0.5, float("nan"), "great"):
        with pytest.raises(Invalid, match="is no score"):
            await team.feedback(run, good=nonsense)  # pyright: ignore[reportArgumentType] - as people do
    with pytest.raises(Invalid, match="'outcome' is nobody who judges runs"):
        await team.feedback(run, good=True, source="outcome")
    with pytest.raises(Refused, match="there is no journal"):
        await shop(Path("nowhere.db")).feedback(run, good=True)


async def test_feedback_needs_no_event_loop_and_no_ownership(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first = await shop(path).run(TORN)
    owner = await SqliteJournal.open(path)
    await shop(path).feedback(first.run, good=False, worker="billing")
    await asyncio.to_thread(shop(path).feedback_sync, first.run, good=False, worker="billing")
    scores = {
        one.worker: one.score for one in (await owner.lessons("shop").since("", 0)).lessons if one.source == "feedback"
    }
    await owner.close()
    assert scores == {"billing": 1.0, "repairs": 0.0}


# --- the report


async def test_the_report_counts_and_says_what_goes_elsewhere() -> None:
    team = shop(MemoryJournal())
    await team.run("where are my invoices")
    run = (await team.run(TORN)).run
    await team.feedback(run, good=False, worker="billing")
    report = await team.learnt()
    assert (report.team, report.learns, report.kept, report.looked_at, report.router) == ("shop", True, 4, 2, "words")
    assert {one.worker: (one.lessons, one.success) for one in report.workers} == {
        "billing": ({"outcome": 1, "feedback": 1}, 1.0),
        "repairs": ({"outcome": 1, "feedback": 1}, 0.0),
    }
    (turned,) = report.turned
    assert (turned.request, turned.without, turned.now) == (TORN, "repairs", "billing")
    assert await team.forget_lessons() == 4
    assert (await team.learnt()).workers == ()


async def test_only_routes_are_reported() -> None:
    with pytest.raises(Invalid, match="not led by a route"):
        await Supervisor(SHOP).learnt()


# --- killed before the lesson

_VICTIM = """
import asyncio, os, sys
from pathlib import Path
from chargehand.runtime import lessons
from tests.runtime.test_lessons import TORN, shop

async def killed(self, run, state):
    os.kill(os.getpid(), 9)

lessons.School.ended = killed
asyncio.run(shop(Path(sys.argv[1])).run(TORN, run="victim"))
"""


async def test_a_kill_between_the_end_of_a_run_and_its_lesson_costs_only_the_lesson(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    victim = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _VICTIM,
        str(path),
        cwd=Path(__file__).parents[2],
        stderr=asyncio.subprocess.PIPE,
    )
    _, trouble = await victim.communicate()
    assert victim.returncode == -9, trouble.decode()
    team = shop(path)
    journal = await SqliteJournal.open(path)
    entries: Sequence[ev.Entry] = await journal.read("victim")
    assert isinstance(entries[-1].event, ev.RunEnded)
    assert (await journal.lessons("shop").since("", 0)).lessons == ()
    await journal.close()
    await team.feedback("victim", good=False, worker="billing")
    assert whom(await team.run(LIKE)) == ["billing"]
