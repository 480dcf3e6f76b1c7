"""`chargehand play` and `resume`: real processes, real journals, every ending."""

import json
import os
import re
import sqlite3
import time
from pathlib import Path

import msgspec
import pytest

from chargehand.engine.events import Entry, RunReleased
from chargehand.journal.store import read_run
from tests.cli.commands import JOURNAL, Done, Underway, chargehand, environment, quick_example, run_of, script, task
from tests.cli.forked import Forked


@pytest.fixture(scope="module")
def cascade(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("cascade")
    return folder, chargehand(folder, "play", quick_example(folder, "cascade.json"), "--run", "cascade")


def test_the_example_plays_to_a_complete_end(cascade: tuple[Path, Done]) -> None:
    _, done = cascade
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Order the 4,000 sets from Sun and Hale [memo].\n")
    for words in (
        "├── quotes  ",
        "needs landed, lateness (optional)",
        "critical: shortlist → quotes → landed → memo",
        "cost: about $0.0382",
        "failed (network: connection reset by the rates service)",
        "retry in 0.4 s",
        "falls back to clerk",
        "refined: Estimate freight per set for each supplier, and customs",
        "becomes 3 tasks, one an item",
        "joined: 3 of 3 items",
        "ended: complete",
        "gaps: none",
        "chargehand runs show cascade",
    ):
        assert words in done.stderr, words


def test_data_goes_to_one_stream_and_progress_to_the_other(cascade: tuple[Path, Done]) -> None:
    _, done = cascade
    assert len(done.stdout.splitlines()) == 4
    assert "Sun and Hale [memo]" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_what_is_shown_afterwards_is_what_was_told_live(cascade: tuple[Path, Done]) -> None:
    folder, done = cascade
    shown = chargehand(folder, "runs", "show", "cascade")
    assert shown.returncode == 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("run: ", "  look again:"))]
    assert [line for line in shown.stdout.splitlines() if line not in done.stdout.splitlines()] == lines


def test_the_journal_lists_what_it_holds(cascade: tuple[Path, Done]) -> None:
    folder, _ = cascade
    listed = chargehand(folder, "runs")
    head, line = listed.stdout.splitlines()
    assert head.split() == ["RUN", "STATE", "COST", "AGE", "REQUEST"]
    assert re.fullmatch(r"cascade  complete  \$0\.037  +just now  \S.+", line), line
    assert line.index("complete") == head.index("STATE")
    facts = json.loads(chargehand(folder, "runs", "--json").stdout)
    assert [(run["run"], run["state"]) for run in facts] == [("cascade", "complete")]
    assert facts[0]["request"].startswith(line.split("just now  ", 1)[1].rstrip("…"))
    assert facts[0]["usd"] == 0.03697


def test_a_run_with_gaps_says_so(tmp_path: Path) -> None:
    example = quick_example(tmp_path, "gaps.json")
    done = chargehand(tmp_path, "play", example, "--jsonl")
    assert done.returncode == 3
    assert "T3 skipped (input: it needs 'T1', which did not deliver)" in done.stderr
    assert f"chargehand play {example} --reuse {run_of(done)}" in done.stderr
    told = [msgspec.json.decode(line, type=Entry) for line in done.stdout.splitlines()]
    assert told == read_run(tmp_path / JOURNAL, run_of(done))
    assert "Late parcels" not in done.stdout.splitlines()[0]
    shown = chargehand(tmp_path, "runs", "show", run_of(done), "--jsonl")
    assert shown.stdout == done.stdout


NO = {"fail": "logic", "message": "no", "permanent": True}


@pytest.mark.parametrize(
    ("code", "ending", "given"),
    [
        (0, "complete", {}),
        (1, r"failed \(no_results\)", {"moves": {"a": [NO], "b": [NO]}}),
        (3, r"partial \(gaps\)", {"moves": {"b": [NO]}}),
        (4, "not yet: waiting for plan approval", {"policy": {"approve": True}}),
        (
            5,
            r"partial \(budget\): the cap of 1 call: 1 call used, 1 call needed for the next call",
            {"budget": {"calls": 1}},
        ),
        (
            5,
            r"failed \(deadline\): the cap of \d+ ms: \d+ ms used, \d+ ms kept for the answer",
            {"seconds": 0.3, "otherwise": {"seconds": 20}},
        ),
    ],
)
def test_each_ending_has_its_exit_code(tmp_path: Path, code: int, ending: str, given: dict[str, object]) -> None:
    file = script(tmp_path, task("a"), task("b"), **given)
    done = chargehand(tmp_path, "play", file, "--durability", "process")
    assert re.search(f"^ending: {ending}$", done.stderr, re.MULTILINE)
    assert done.returncode == code


def test_without_a_synthesis_the_results_are_the_answer(tmp_path: Path) -> None:
    file = script(tmp_path, plan={"tasks": [task("a")], "combine": "none"}, moves={"a": [{"result": {"n": 1}}]})
    done = chargehand(tmp_path, "play", file)
    assert done.stdout == 'ann [a]: {"n":1}\n'
    assert json.loads(chargehand(tmp_path, "play", file, "--json", "-q").stdout)["answer"] == {"a": {"n": 1}}


def test_a_planner_may_propose_and_be_sent_back(tmp_path: Path) -> None:
    circle = {"tasks": [task("a", "b"), task("b", "a")]}
    file = script(tmp_path, plan=None, plans=[circle, {"tasks": [task("a"), task("b", "a")]}])
    done = chargehand(tmp_path, "play", file)
    assert done.returncode == 0
    assert "found no plan (cycle: Each of these tasks waits for the one before it, in a circle: " in done.stderr
    assert "plans again: the plan was rejected" in done.stderr
    assert "\na  ann  " in done.stderr


def asked(folder: Path) -> Path:
    file = script(folder, task("a"), plans=[{"tasks": [task("c")]}], policy={"approve": True})
    done = chargehand(folder, "play", file, "--run", "asked")
    assert done.returncode == 4
    assert "chargehand resume asked --script" in done.stderr
    return file


def test_a_person_approves_once(tmp_path: Path) -> None:
    file = asked(tmp_path)
    assert "needs you" in chargehand(tmp_path, "runs").stdout
    still = chargehand(tmp_path, "resume", "asked", "--script", file)
    assert still.returncode == 4
    done = chargehand(tmp_path, "resume", "asked", "--script", file, "--approve")
    assert done.returncode == 0
    assert "answered: approve" in done.stderr
    again = chargehand(tmp_path, "resume", "asked", "--script", file, "--approve")
    assert again.returncode == 2
    assert again.stderr.count("\n") == 1
    assert "has ended (complete)" in again.stderr


def test_a_person_rejects_and_the_planner_tries_again(tmp_path: Path) -> None:
    file = asked(tmp_path)
    done = chargehand(tmp_path, "resume", "asked", "--script", file, "--reject", "leave a out")
    assert done.returncode == 4  # the new plan waits for approval as well
    assert "answered: reject: leave a out" in done.stderr
    unseen = chargehand(tmp_path, "resume", "asked", "--script", file, "--approve")
    assert unseen.returncode == 2
    assert "asks question 2 now" in unseen.stderr
    done = chargehand(tmp_path, "resume", "asked", "--script", file, "--approve", "2")
    assert done.returncode == 0
    assert "[c]" in done.stdout


def test_a_person_hands_in_a_plan_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    file = asked(tmp_path)
    edited = tmp_path / "plan.json"
    edited.write_text(json.dumps({"tasks": [task("x", "y")]}))
    before = read_run(tmp_path / JOURNAL, "asked")
    refused = chargehand(tmp_path, "resume", "asked", "--script", file, "--plan", edited)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "tasks[0] (x).after: Task 'x' waits for 'y', which does not exist." in refused.stderr
    assert read_run(tmp_path / JOURNAL, "asked") == before
    edited.write_text(json.dumps({"tasks": [task("x")]}))
    done = chargehand(tmp_path, "resume", "asked", "--script", file, "--plan", edited)
    assert done.returncode == 0
    assert "[x]" in done.stdout


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    slow = script(tmp_path, task("a"), task("b", "a"), moves={"b": [{"seconds": 30}]})
    playing = Underway(tmp_path, "play", slow, "--run", "long")
    playing.until("b       ann         started")
    playing.process.kill()
    assert playing.end() == -9
    assert "interrupted" in chargehand(tmp_path, "runs").stdout
    shown = chargehand(tmp_path, "runs", "show", "long").stdout
    assert "ending: not yet" in shown
    assert "chargehand resume long" in shown
    quick = script(tmp_path, task("a"), task("b", "a"))
    done = chargehand(tmp_path, "resume", "long", "--script", quick)
    assert done.returncode == 0
    assert "going on with long after 4 entries: a report" in done.stderr
    assert "resumed by another process\n" in done.stderr
    assert "b       ann         started again where it was" in done.stderr
    assert not re.search(r"a  ann +started", done.stderr)


def test_a_run_under_way_can_be_looked_at_but_not_resumed_and_ctrl_c_leaves_it_to_be_resumed(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), task("b", "a"), moves={"b": [{"seconds": 30}]})
    playing = Underway(tmp_path, "play", file, "--run", "long")
    playing.until("b       ann         started")
    assert "running" in chargehand(tmp_path, "runs").stdout
    before = read_run(tmp_path / JOURNAL, "long")
    busy = chargehand(tmp_path, "resume", "long", "--script", file)
    assert busy.returncode == 2
    assert busy.stderr.count("\n") == 1
    assert f"run 'long' is being driven by process {playing.process.pid}" in busy.stderr
    refused = chargehand(tmp_path, "runs", "cancel", "long")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"is being driven by process {playing.process.pid}" in refused.stderr
    assert read_run(tmp_path / JOURNAL, "long") == before
    playing.interrupt()
    assert playing.end() == 130
    told = playing.heard.read_text()
    assert "stopping; Ctrl-C once more ends this process at once" in told
    assert "stopped by Ctrl-C; the run is left where it stands, and can go on" in told
    assert told.splitlines()[-1] == f"  go on:       python -m chargehand resume long --script {file}"
    assert read_run(tmp_path / JOURNAL, "long")[-1].event == RunReleased()
    script(tmp_path, task("a"), task("b", "a"))
    done = chargehand(tmp_path, "resume", "long", "--script", file)
    assert done.returncode == 0
    assert "a       ann         started" not in done.stderr
    assert "crash" not in done.stderr


def test_a_run_that_was_stopped_can_be_cancelled_for_good(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), task("b", "a"), moves={"b": [{"seconds": 30}]})
    playing = Underway(tmp_path, "play", file, "--run", "long")
    playing.until("b       ann         started")
    playing.interrupt()
    assert playing.end() == 130
    assert "  give up:     python -m chargehand runs cancel long" in playing.heard.read_text()
    done = chargehand(tmp_path, "runs", "cancel", "long", "--reason", "not needed")
    assert (done.returncode, done.stdout) == (0, "cancelled: long\n")
    shown = chargehand(tmp_path, "runs", "show", "long").stdout
    assert "asked to cancel: not needed" in shown
    assert "b unfinished" in shown
    again = chargehand(tmp_path, "runs", "cancel", "long")
    assert again.returncode == 2
    assert "run 'long' has ended (cancelled)" in again.stderr
    reused = chargehand(tmp_path, "play", script(tmp_path, task("a"), task("b", "a")), "--reuse", "long")
    assert reused.returncode == 0
    assert "taken over from a of run long" in reused.stderr


def test_a_second_ctrl_c_ends_the_process_and_the_run_can_go_on(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), moves={"a": [{"seconds": 30}]})
    playing = Underway(tmp_path, "play", file, "--run", "long")
    playing.until("started")
    # another program has locked the journal, so that it was stopped in order cannot be written
    lock = sqlite3.connect(tmp_path / JOURNAL, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    playing.interrupt()
    playing.until("stopping")
    time.sleep(0.25)  # sooner it would count as the same
    playing.interrupt()
    assert playing.end() == -2
    lock.close()
    assert "to go on: python -m chargehand resume long --script" in playing.heard.read_text()
    done = chargehand(tmp_path, "resume", "long", "--script", script(tmp_path, task("a")))
    assert done.returncode == 0


def test_a_reader_who_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), task("b", "a"), otherwise={"seconds": 0.1})
    gone, end = os.pipe()
    os.close(gone)
    words = ("play", file, "--run", "alone", "--jsonl")
    with Path(os.devnull).open("rb") as nothing:
        run = Forked(words, folder=tmp_path, environment=environment(), streams=(nothing.fileno(), end, end))
    os.close(end)
    assert run.wait(timeout=20) == 0
    assert "ending: complete" in chargehand(tmp_path, "runs", "show", "alone").stdout


def test_a_run_that_waits_is_shown_and_resumed_with_its_question(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), policy={"approve": True})
    assert chargehand(tmp_path, "play", file, "--run", "asked").returncode == 4
    shown = chargehand(tmp_path, "runs", "show", "asked").stdout
    assert "resume asked --approve 1  (or --question 1 with --reject TEXT or --plan FILE)" in shown
    again = chargehand(tmp_path, "resume", "asked", "--script", file)
    assert again.returncode == 4
    assert "waiting for plan approval:\n\nplan: 1 task" in again.stderr


def test_an_answer_that_is_nothing_much_is_an_answer_all_the_same(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), answers=[{"result": 0}])
    done = chargehand(tmp_path, "play", file)
    assert (done.returncode, done.stdout) == (0, "0\n")
