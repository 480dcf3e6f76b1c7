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
from chargehand.agents.audit.failure_modes import FailureMode, audit_run
from chargehand.agents.scripted import ScriptedExecutor
from chargehand.cli.teams import read_script
from chargehand.config.load import load_team
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.runner import Runner
from tests.requests import request
from tests.sim.loop import VirtualLoop

ROOT = Path(__file__).parents[2]
TEMPLATES = Path(config.__file__).parent / "templates"
TEAMS = ("shop", "minimal", "support", "code-review")
VISITORS = "How many tents did we sell in June 2026, and how many visitors did our website have?"
HISTORIES = sorted((ROOT / "tests" / "histories").glob("*.jsonl"))
TRUE = {
    "cancelled": [("3.2", "send")],  # something was sent, and nobody looked
    "checked": [("1.1", "apples")],  # refused by a check, and done again
    "crash": [("3.2", "send")],
    "effect_again": [("3.2", "send")],
    "tool_calls": [("1.2", "apples"), ("2.6", "apples")],  # a tool that is not its own, and a figure of nobody's
}


def briefly(findings: tuple[FailureMode, ...]) -> list[tuple[str, str]]:
    return [(one.mode, one.task) for one in findings]


def examples() -> list[tuple[str, str]]:
    told = {team: yaml.safe_load((TEMPLATES / team / "team.yaml").read_text(encoding="utf-8")) for team in TEAMS}
    return [(team, goal) for team, said in told.items() for goal in said["examples"]]


@pytest.mark.parametrize(("team", "goal"), examples(), ids=lambda one: one[:40])
def test_the_bundled_teams_do_well_on_their_own_examples(tmp_path: Path, team: str, goal: str) -> None:
    shutil.copytree(TEMPLATES / team, tmp_path / team)  # what is remembered is kept beside the team
    found = load_team(tmp_path / team).run_sync(goal)
    assert briefly(audit_run(found.entries)) == []


def test_there_are_as_many_examples_as_we_think() -> None:
    teams = [team for team, _ in examples()]
    assert [teams.count(team) >= 2 for team in TEAMS] == [True] * len(TEAMS)
    assert ("shop", VISITORS) in examples()


@pytest.mark.parametrize("script", ["cascade", "gaps"])
def test_the_scripts_that_come_as_examples_have_no_findings(script: str) -> None:
    story = read_script(str(ROOT / "examples" / f"{script}.json"))
    loop = VirtualLoop()
    journal = MemoryJournal()

    async def play() -> list[ev.Entry]:
        clock = loop.time
        await Runner(journal, ScriptedExecutor(story), wall=clock, ticks=clock).start("run", story.request(clock()))
        return await journal.read("run")

    try:
        entries = loop.run_until_complete(play())
    finally:
        loop.close()
    assert isinstance(entries[-1].event, ev.RunEnded)
    assert briefly(audit_run(entries)) == []


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_run_can_be_audited_at_every_moment_and_only_what_is_so_is_said(history: Path) -> None:
    entries = [msgspec.json.decode(line, type=ev.Entry) for line in history.read_bytes().splitlines()]
    for cut in range(1, len(entries)):
        audit_run(entries[:cut])
    assert briefly(audit_run(entries)) == TRUE.get(history.stem, [])


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
        assert audit_run(entries) == ()
        return time.process_time() - began

    small = _long(300)
    large = _long(1200)
    assert min(seconds(large) for _ in range(3)) < 8 * min(seconds(small) for _ in range(3))


def test_an_audit_needs_no_loop_and_changes_nothing() -> None:
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    entries = _long(10)
    before = msgspec.json.encode(entries)
    assert audit_run(entries) == audit_run(entries) == ()
    assert msgspec.json.encode(entries) == before
