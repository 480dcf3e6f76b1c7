"""An audit that cries wolf is not read: crews that do well get no finding, and what is reported of others is so."""

import asyncio
import shutil
import time
from pathlib import Path

import msgspec
import pytest
import yaml
from msgspec import Raw

import chargehand.config as config
from chargehand.agents.scripted import ScriptedCrew
from chargehand.cli.script import read_story
from chargehand.config.load import load_team
from chargehand.runtime.audit import AuditFinding, audit
from chargehand.runtime.audit_words import assumed, claims, matter, missing_from, own_words, promised
from chargehand.runtime.driver import Driver
from chargehand.stores.memory import MemoryJournal
from chargehand.terms import events as ev
from chargehand.terms.plan import Plan, Task, TaskId
from tests.requests import request
from tests.sim.loop import VirtualLoop

ROOT = Path(__file__).parents[2]
TEMPLATES = Path(config.__file__).parent / "templates"
TEAMS = ("shop", "minimal", "support", "code-review")
VISITORS = "How many tents did we sell in June 2026, and how many visitors did our website have?"
HISTORIES = sorted((ROOT / "tests" / "histories").glob("*.jsonl"))
TRUE = {
    "asked": [("1.4", "send")],  # its crew records a prompt that does not hold what it was given
    "cancelled": [("3.2", "send")],  # something was sent, and nobody looked
    "crash": [("3.2", "send")],
}


def briefly(findings: tuple[AuditFinding, ...]) -> list[tuple[str, str]]:
    return [(one.mode, one.task) for one in findings]


def examples() -> list[tuple[str, str]]:
    told = {team: yaml.safe_load((TEMPLATES / team / "team.yaml").read_text(encoding="utf-8")) for team in TEAMS}
    return [(team, goal) for team, said in told.items() for goal in said["examples"]]


@pytest.mark.parametrize(("team", "goal"), examples(), ids=lambda one: one[:40])
def test_the_bundled_teams_do_well_on_their_own_examples(tmp_path: Path, team: str, goal: str) -> None:
    shutil.copytree(TEMPLATES / team, tmp_path / team)  # what is remembered is kept beside the team
    found = load_team(tmp_path / team).run_sync(goal)
    # nobody there knows of visitors: the planner says itself that it assumes where they may be looked up
    assert briefly(audit(found.run, found.entries)) == ([("2.2", "")] if goal == VISITORS else [])


def test_there_are_as_many_examples_as_we_think() -> None:
    teams = [team for team, _ in examples()]
    assert [teams.count(team) >= 2 for team in TEAMS] == [True] * len(TEAMS)
    assert ("shop", VISITORS) in examples()


@pytest.mark.parametrize("script", ["cascade", "gaps"])
def test_the_scripts_that_come_as_examples_have_no_findings(script: str) -> None:
    story = read_story(str(ROOT / "examples" / f"{script}.json"))
    loop = VirtualLoop()
    journal = MemoryJournal()

    async def play() -> list[ev.Entry]:
        clock = loop.time
        await Driver(journal, ScriptedCrew(story), wall=clock, ticks=clock).start("run", story.request(clock()))
        return await journal.read("run")

    try:
        entries = loop.run_until_complete(play())
    finally:
        loop.close()
    assert isinstance(entries[-1].event, ev.RunEnded)
    assert briefly(audit("run", entries)) == []


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_run_can_be_audited_at_every_moment_and_only_what_is_so_is_said(history: Path) -> None:
    entries = [msgspec.json.decode(line, type=ev.Entry) for line in history.read_bytes().splitlines()]
    for cut in range(1, len(entries)):
        audit("run", entries[:cut])
    assert briefly(audit("run", entries)) == TRUE.get(history.stem, [])


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("The parcel was sent on 3 May and paid in June.", "Find out what became of the parcel."),
        ("Paid orders: 45. Updated figures are in the table.", "How many orders were paid?"),
        ("We ordered 12 tents and cancelled 3.", "How many tents did we order?"),
        ("Booked revenue is 14,000. Reserved seats: 12.", "What was booked in May?"),
        ("Deleted items stay in the bin for 30 days, says the handbook.", "What becomes of deleted items?"),
        ("Sent by post, a parcel takes 3 days.", "How long does a parcel take?"),
        ("I could not send it: the post office is closed.", "Send the letter."),
        ("The letter should be sent before noon.", "Write a letter."),
    ],
)
def test_facts_about_deeds_are_no_claims_to_have_done_them(said: str, asked: str) -> None:
    assert claims(said, asked) == []


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("I have emailed the report to Bob.", "Write a report."),
        ("Saved the report to the archive.", "Write a report."),
        ("- Sent to Bob.", "Write a report."),
        ("The flight is booked.", "Look for a flight to Rome and book it."),
        ("All 12 rows have been successfully deleted.", "Delete the old rows."),
        ("It has been published.", "Say what is new."),
    ],
)
def test_claims_to_have_done_something_are_heard(said: str, asked: str) -> None:
    assert len(claims(said, asked)) == 1


@pytest.mark.parametrize("said", ["Let me know what you think.", "He said that he will call.", "It will rain.", ""])
def test_not_everything_about_the_future_is_a_promise(said: str) -> None:
    assert promised(said) == ""


@pytest.mark.parametrize("goal", ["Explain `List[int]` and <div>.", "Sum the table:\nthe attached list\n1, 2\n3, 4"])
def test_not_every_bracket_is_a_hole_in_a_request(goal: str) -> None:
    assert missing_from(goal) == ""


def test_whoever_speaks_of_assumptions_has_not_made_one() -> None:
    assert assumed("The report assumes a growth of 3 percent.") == ""


def test_a_number_is_the_same_however_it_is_written() -> None:
    assert matter("12,223.40") == matter("12223.4") == {"12223.4"}


@pytest.mark.parametrize("text", ["“" * 60_000, "is sent " * 8000, "[your " * 10_000, "> " * 30_000, "1," * 30_000])
def test_no_text_takes_long_to_read(text: str) -> None:
    began = time.thread_time()
    claims(own_words(text), text)
    promised(text)
    missing_from(text)
    matter(text)
    assert time.thread_time() - began < 2.0


def _long(count: int) -> list[ev.Entry]:
    """A run of so many tasks in chains of ten, each of which calls a tool."""
    names = [TaskId(f"t{n}") for n in range(count)]
    plan = Plan(
        tuple(
            Task(name, f"Count the apples on shelf {n}.", "worker", after=(names[n - 1],) if n % 10 else ())
            for n, name in enumerate(names)
        )
    )
    events: list[ev.Event] = []
    for n, name in enumerate(names):
        said = msgspec.json.encode({"text": f"There are {n + 100} apples on shelf {n}, most of them red and ripe."})
        events += [
            ev.AttemptStarted(name, 1, "worker", 1e9),
            ev.StepStarted(name, 1, 1, "look"),
            ev.StepFinished(name, 1, 1, Raw(b'{"value":"shelf"}')),
            ev.AttemptSucceeded(name, 1, Raw(said)),
        ]
    return [ev.Entry(at, float(at), one) for at, one in enumerate([request(plan), *events], 1)]


def test_a_longer_journal_takes_longer_in_proportion() -> None:
    def seconds(entries: list[ev.Entry]) -> float:
        began = time.process_time()  # others on this machine must not count
        assert audit("run", entries) == ()
        return time.process_time() - began

    small = _long(300)
    large = _long(1200)
    assert min(seconds(large) for _ in range(3)) < 8 * min(seconds(small) for _ in range(3))


def test_an_audit_needs_no_loop_and_changes_nothing() -> None:
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    entries = _long(10)
    before = msgspec.json.encode(entries)
    assert audit("run", entries) == audit("run", entries) == ()
    assert msgspec.json.encode(entries) == before
