"""Background workers on the command line: after the answer, said in one line, and left where somebody is in a hurry."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from chargehand.journal.store import list_runs, read_run
from tests.cli.commands import JOURNAL, Underway, chargehand
from tests.runtime.desk import covered

TEAM = """
version: 1
name: desk
tools:
  price: {python: "tools:price"}
workers:
  helper: {description: knows the price of a room, tools: [price]}
  librarian: {every: 2, tools: [memory_rethink], blocks: {notes: write}, MORE}
memory:
  blocks:
    notes: {value: ""}
"""
TOOLS = '''
"""One tool."""
def price(city: str) -> int:
    """The price of a room in a city: Ghent or Malmo."""
    return {"Ghent": 90, "Malmo": 120}[city]
'''
ASK = "What is the price of a room in Ghent?"
TIDY = "librarian is tidying memory; Ctrl-C leaves it for the next time"


def team(folder: Path, more: str = "prompt: You keep notes.") -> Path:
    (folder / "team.yaml").write_text(TEAM.replace("MORE", more))
    (folder / "tools.py").write_text(TOOLS)
    return folder


def batches(folder: Path) -> list[list[str]]:
    runs = {one.run: read_run(folder / JOURNAL, one.run) for one in list_runs(folder / JOURNAL)}
    return list(covered(runs).values())


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A model server that takes every call and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}/v1")
        yield


def test_the_answer_comes_first_then_memory_is_tidied(tmp_path: Path) -> None:
    folder = team(tmp_path)
    first = chargehand(folder, "run", ASK, "--run", "one")
    assert TIDY not in first.stderr
    second = chargehand(folder, "run", ASK, "--run", "two")
    assert second.returncode == 0
    assert second.stdout.strip() == "Price (Ghent): 90."
    assert second.stderr.rstrip().endswith(TIDY)
    assert batches(folder) == [["one", "two"]]
    assert "keeps no notes" in chargehand(folder, "runs", "show", "desk-librarian-1").stdout, "the model is demo"
    listed = json.loads(chargehand(folder, "runs", "--json").stdout)
    assert {one["run"]: one["state"] for one in listed}["desk-librarian-1"] == "complete"


def test_it_can_be_left_out_and_said_nothing_of(tmp_path: Path) -> None:
    folder = team(tmp_path)
    for name in ("one", "two"):
        assert TIDY not in chargehand(folder, "run", ASK, "--run", name, "--no-background").stderr
    assert batches(folder) == []
    third = chargehand(folder, "run", ASK, "--run", "three", "--quiet")
    assert TIDY not in third.stderr
    assert batches(folder) == [["one", "two", "three"]]


@pytest.mark.usefixtures("silence")
def test_an_interrupt_leaves_it_for_the_next_time(tmp_path: Path) -> None:
    folder = team(tmp_path, "model: 'ollama:quiet'")
    chargehand(folder, "run", ASK, "--run", "one")
    going = Underway(folder, "run", ASK, "--run", "two")
    going.until(TIDY)
    while not batches(folder):
        assert going.process.poll() is None
    going.interrupt()
    assert going.end() == 0
    assert "memory is left for the next time" in going.heard.read_text()
    assert "interrupted" in chargehand(folder, "runs").stdout
    team(tmp_path)
    assert chargehand(folder, "run", ASK, "--run", "three").returncode == 0
    assert batches(folder) == [["one", "two"]]
    assert "interrupted" not in chargehand(folder, "runs").stdout


@pytest.mark.usefixtures("silence")
def test_one_that_was_killed_can_be_resumed_by_name(tmp_path: Path) -> None:
    folder = team(tmp_path, "model: 'ollama:quiet'")
    chargehand(folder, "run", ASK, "--run", "one")
    going = Underway(folder, "run", ASK, "--run", "two")
    going.until(TIDY)
    while not batches(folder):
        assert going.process.poll() is None
    going.process.send_signal(signal.SIGKILL)
    going.end()
    team(tmp_path)
    done = chargehand(folder, "resume", "desk-librarian-1")
    assert done.returncode == 0, done.stderr
    assert batches(folder) == [["one", "two"]]


def test_a_failure_is_said_tried_three_times_and_changes_no_exit_code(tmp_path: Path) -> None:
    folder = team(tmp_path, "rules: [{run_first: memory_rethink}], steps: 1")
    chargehand(folder, "run", ASK, "--run", "one")
    said = [chargehand(folder, "run", ASK, "--run", name, "-q") for name in ("two", "three", "four")]
    assert [one.returncode for one in said] == [0, 0, 0]
    assert "it is tried three times in all; see run desk-librarian-1" in said[0].stderr
    assert "it is tried three times in all; see run desk-librarian-3" in said[2].stderr
    assert batches(folder)[:3] == [["one", "two"]] * 3
    told = chargehand(folder, "doctor", "--workers").stdout
    assert "background run desk-librarian-1 did not get through" in told
    assert "librarian" in told


def test_a_turn_that_is_gone_on_with_counts_and_memory_is_tidied_after_it(tmp_path: Path) -> None:
    folder = team(tmp_path)
    chargehand(folder, "run", ASK, "--run", "one")
    for name in ("two", "three"):
        assert chargehand(folder, "run", ASK, "--run", name, "--approve", "ask", "--no-input").returncode == 4
    left = chargehand(folder, "resume", "two", "--approve", "--no-background")
    assert (left.returncode, TIDY in left.stderr, batches(folder)) == (0, False, [])
    done = chargehand(folder, "resume", "three", "--approve")
    assert done.returncode == 0
    assert done.stderr.rstrip().endswith(TIDY)
    assert batches(folder) == [["one", "two", "three"]]


def test_a_long_goal_is_shown_in_part(tmp_path: Path) -> None:
    folder = team(tmp_path)
    chargehand(folder, "run", f"{ASK} {'Please. ' * 400}", "--run", "one", "--no-background")
    shown = chargehand(folder, "runs", "show", "one")
    [goal] = [line for line in (shown.stdout + shown.stderr).splitlines() if line.startswith("goal: ")]
    assert len(goal) == len("goal: ") + 2000
    assert goal.endswith("…")
