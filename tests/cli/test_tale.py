"""Any run can be told, at any moment of it: those of the simulation hold nearly everything that can happen."""

import io
from typing import get_args

from chargehand import Plan, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.agents.checks import Reviewer
from chargehand.cli.console import Console
from chargehand.cli.format import describe_gaps
from chargehand.cli.transcript import Transcript
from chargehand.engine.events import Entry, Event, Noted
from chargehand.engine.failure import Gap
from chargehand.engine.plan import TaskId
from tests.sim.run import Case, play


def told(entries: list[Entry]) -> list[str]:
    page = io.StringIO()
    transcript = Transcript(Console(page), Console(page), jsonl=False)
    transcript.show("run", entries)
    transcript.close()
    return page.getvalue().splitlines()


def test_any_run_can_be_told_at_any_moment() -> None:
    met: set[str] = set()
    for seed in range(80):
        entries = play(Case(seed).plot())
        met.update(type(entry.event).__name__ for entry in entries)
        whole = told(entries)
        assert sum(" s  " in line for line in whole) >= len(entries) - 1  # one line an event, but for the request
        assert any(line.startswith("ending: ") and "not yet" not in line for line in whole)
        for cut in {1, len(entries) // 3, len(entries) // 2, len(entries) - 1} - {0}:
            assert any(line.startswith("ending: not yet") for line in told(entries[:cut]))
    unmet = {shape.__name__ for shape in get_args(Event)} - met
    never = {"AttemptAbandoned", "ModelCalled", "Noted", "PromptSent", "ResultsOffered", "ResultReused", "StepFailed"}
    never |= {"AttemptStopped", "WorkStopped"}  # of runs inside others, which these are not
    assert unmet <= never


def test_a_note_is_told_beside_its_task() -> None:
    first = play(Case(0).plot())[0]
    lines = told([first, Entry(2, first.at + 1, Noted("half way", TaskId("t0"), 1))])
    assert any(line.startswith("    1.00 s  t0") and line.endswith("note: half way") for line in lines)


def test_a_note_is_whole_where_all_is_told_and_short_elsewhere() -> None:
    first = play(Case(0).plot())[0]
    why = "route to south, because " + "it fits better and " * 20 + "is less busy"
    note = Entry(2, first.at + 1, Noted(why))
    assert any(line.endswith(why) for line in told([first, note]))
    page = io.StringIO()
    Transcript(Console(page), Console(page), jsonl=False, internals=False).show("run", [first, note])
    assert max(map(len, page.getvalue().splitlines()[-1:])) < 120


def test_a_verdict_is_told_in_words() -> None:
    team = Team(
        [
            Worker("ann", description="Counts things.", accept=["sound"]),
            Worker("bob", description="Reads with a sharp eye."),
        ],
        supervisor=Supervisor(
            model=ScriptedModel(
                [
                    "Twelve.",
                    '{"accepted": false, "problems": ["no place"]}',
                    "12 in the cellar.",
                    '{"accepted": true, "problems": []}',
                ]
            ),
            plan=Plan((Task(TaskId("count"), "Count the apples.", "ann"),), "forward"),
        ),
        checks={"sound": Reviewer("bob")},
    )
    result = team.run_sync("How many?")
    assert result.answer == "12 in the cellar."
    lines = told(list(result.entries))
    assert any(line.endswith("  sound does not accept it: no place") for line in lines)
    assert any(line.endswith("  sound accepts it") for line in lines)
    assert not any('{"accepted"' in line for line in lines)


def test_a_gap_says_once_what_it_is() -> None:
    assert describe_gaps([Gap(TaskId("a"), "unfinished", "unfinished", "the run ended")]) == [
        "a unfinished (the run ended)"
    ]
    assert describe_gaps([Gap(TaskId("a"), "failed", "network", "the line is dead")]) == [
        "a failed (network: the line is dead)"
    ]


def test_tasks_that_are_missing_for_the_same_reason_share_a_line() -> None:
    dead = [Gap(TaskId(f"t{number}"), "failed", "network", "the line is dead") for number in range(60)]
    late = Gap(TaskId("late"), "skipped", "deadline", "the time ran out before it could start")
    assert describe_gaps([*dead[:2], late]) == [
        "t0, t1 failed (network: the line is dead)",
        "late skipped (deadline: the time ran out before it could start)",
    ]
    (line,) = describe_gaps(dead)
    assert line == "t0, t1, t2, t3, t4, t5, t6, t7 and 52 more failed (network: the line is dead)"
