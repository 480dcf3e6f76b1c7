"""`chargehand watch` and `replay`: looking on, and doing again from one task on."""

import json
from pathlib import Path

import pytest

from chargehand.engine.events import AttemptStarted, ResultReused
from chargehand.journal.store import read_run
from tests.cli.commands import JOURNAL, Underway, chargehand, script, task
from tests.cli.terminal import Terminal

GIVEN_UP_SOON = "from chargehand.cli import run; run._IDLE = 0.2"
CHAIN = [task("a"), task("b"), task("c", "a"), task("d", "c", "b")]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("played")
    file = script(folder, *CHAIN)
    assert chargehand(folder, "play", file, "--run", "one").returncode == 0
    no = {"fail": "logic", "permanent": True}
    part = script(folder, *CHAIN, moves={"b": [no]}).rename(folder / "part.json")
    script(folder, *CHAIN)
    assert chargehand(folder, "play", part, "--run", "two").returncode == 3
    return folder


def test_a_run_that_is_over_is_told_and_gives_its_exit_code(played: Path) -> None:
    done = chargehand(played, "watch", "one")
    assert done.returncode == 0
    assert "ended: complete" in done.stderr
    assert "[d]" in done.stdout
    assert chargehand(played, "watch", "two").returncode == 3
    told = chargehand(played, "watch", "one", "--jsonl")
    assert [json.loads(line)["seq"] for line in told.stdout.splitlines()] == list(
        range(1, len(read_run(played / JOURNAL, "one")) + 1)
    )


def test_a_run_of_another_process_is_watched_to_its_end(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), task("b", "a"), otherwise={"seconds": 0.3})
    playing = Underway(tmp_path, "play", file, "--run", "long")
    playing.until("a       ann         started")
    done = chargehand(tmp_path, "watch", "long")
    assert done.returncode == 0
    assert "b       ann         done" in done.stderr
    assert "ending: complete" in done.stderr
    assert playing.end() == 0


@pytest.mark.slow("on a busy machine a terminal takes its time, and the run must still be under way")
def test_a_watched_run_moves_on_a_terminal(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), otherwise={"seconds": 4})
    playing = Underway(tmp_path, "play", file, "--run", "long")
    playing.until("a       ann         started")
    terminal = Terminal(tmp_path, "watch", "long")
    terminal.until("● running")
    assert terminal.end() == 0
    assert "run long · complete" in terminal.shown
    assert playing.end() == 0


def test_a_run_that_nobody_drives_is_not_waited_for(tmp_path: Path) -> None:
    playing = Underway(tmp_path, "play", script(tmp_path, task("a"), otherwise={"seconds": 30}), "--run", "long")
    playing.until("started")
    playing.process.kill()
    playing.end()
    done = chargehand(tmp_path, "watch", "long", first=GIVEN_UP_SOON)
    assert done.returncode == 1
    assert "no process drives it; go on: chargehand resume long" in done.stderr
    asked = script(tmp_path, task("a"), policy={"approve": True})
    assert chargehand(tmp_path, "play", asked, "--run", "asked").returncode == 4
    assert chargehand(tmp_path, "watch", "asked", first=GIVEN_UP_SOON).returncode == 4
    assert chargehand(tmp_path, "watch", "none").returncode == 2


def test_a_run_is_done_again_from_one_task_on(played: Path) -> None:
    done = chargehand(played, "replay", "one", "--from", "c", "--script", "script.json", "--run", "again")
    assert done.returncode == 0, done.stderr
    events = [entry.event for entry in read_run(played / JOURNAL, "again")]
    assert {one.task for one in events if isinstance(one, ResultReused)} == {"a", "b"}
    assert {one.task for one in events if isinstance(one, AttemptStarted)} == {"c", "d"}


def test_what_cannot_be_done_again_is_refused(played: Path) -> None:
    for words, said in (
        (["one", "--from", "x", "--script", "script.json"], "this run has no task 'x'; it has a, b, c, d"),
        (["one", "--from", "c"], "run 'one' counts on ann, and team shop has no worker of that name"),
        (["three", "--from", "c"], "there is no run 'three'"),
        (["one"], "the following arguments are required: --from"),
    ):
        done = chargehand(played, "replay", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
