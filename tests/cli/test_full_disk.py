"""A journal that cannot grow any more: what was written stays, and the error says what to type next."""

import subprocess
import sys
from pathlib import Path

import pytest

from chargehand.cli.main import main
from chargehand.config.source import TEMPLATES
from tests.cli.commands import COMMAND, chargehand, environment, script, task

FULL = "chargehand: the output cannot be written: No space left on device; "
CHANGED = "what the command was to change is changed"
SMALL_FILES = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (80 * 1024, 80 * 1024))"
SHOP = str(TEMPLATES / "shop")


@pytest.mark.parametrize("more", [[], ["--json"], ["--jsonl"]])
def test_an_answer_that_cannot_be_written_is_said_in_a_line_and_the_run_is_kept(
    tmp_path: Path, more: list[str]
) -> None:
    words = [*COMMAND, "play", str(script(tmp_path, task("a"))), "--run", "one", "-q", *more]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=30,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "chargehand: the output cannot be written: No space left on device; runs are kept: chargehand runs"
    )
    assert "Traceback" not in done.stderr
    assert " complete " in chargehand(tmp_path, "runs").stdout


def test_progress_that_cannot_be_written_does_not_stop_a_run(tmp_path: Path) -> None:
    words = [*COMMAND, "play", str(script(tmp_path, task("a")))]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
            timeout=30,
        )
    assert done.returncode == 0
    assert done.stdout


def test_a_run_that_cannot_be_written_any_further_says_how_to_do_it_once_more(tmp_path: Path) -> None:
    moves = {"a": [{"result": "kept"}], "b": [{"result": "x" * 60_000}]}
    policy = {"grace": 0.2, "retry": {"base": 0.01}}
    file = script(tmp_path, task("a"), task("b", "a"), moves=moves, policy=policy, seconds=1.0)
    assert chargehand(tmp_path, "play", file, "--run", "made").returncode == 0  # the journal is there
    full = chargehand(tmp_path, "play", file, "--run", "full", first=SMALL_FILES)
    assert full.returncode == 1
    assert "a       ann         done: kept" in full.stderr
    last = full.stderr.splitlines()[-1]
    assert "Nothing was lost" in last
    assert last.endswith(f"; then once more: python -m chargehand play {file} --reuse full")
    again = chargehand(tmp_path, "play", file, "--reuse", "full")
    assert again.returncode == 0, again.stderr
    assert "taken over from a of run full" in again.stderr


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (f"eval {SHOP}/evals/routing.jsonl --team {SHOP} -q", CHANGED),
        ("init minimal", CHANGED),
        ("tokens create", CHANGED),
        ("memory set notes milk --json", CHANGED),
    ],
)
def test_what_is_kept_of_lost_output_is_said_for_each_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: str, kept: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        assert main(words.split()) == 1
    said = capfd.readouterr().err
    assert said.splitlines()[-1] == FULL + kept
    assert "Traceback" not in said
