"""A person at a real terminal is asked what became of an effect: which call it was, and what each answer means."""

import json
from pathlib import Path

import pytest

from chargehand.engine.events import InputAnswered
from chargehand.journal.store import read_run
from tests.cli.commands import JOURNAL, chargehand
from tests.cli.terminal import Terminal

TEAM = """
version: 1
name: office
policy: {uncertain: ask}
workers:
  buyer: {description: Says what seedlings cost., tools: [seedling_price]}
tools:
  seedling_price: {python: "tools:seedling_price", effect: effect}
"""
TOOLS = '''
import os
import json
from pathlib import Path

DIED = Path(__file__).with_name("died")


def seedling_price(plant: str, seedlings: int) -> str:
    """What so many seedlings of one plant cost, in euros: tomato or basil."""
    if not DIED.exists():
        DIED.touch()
        os.kill(os.getpid(), 9)
    return f"{seedlings} {plant} seedlings cost 48.00 euros."
'''


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a run whose process died in the midst of an effect."""
    (tmp_path / "team.yaml").write_text(TEAM)
    (tmp_path / "tools.py").write_text(TOOLS)
    assert chargehand(tmp_path, "run", "What do 40 tomato seedlings cost?", "--run", "one").returncode == -9
    return tmp_path


def answers(folder: Path) -> list[tuple[str, bytes]]:
    events = [entry.event for entry in read_run(folder / JOURNAL, "one")]
    return [(one.verdict, bytes(one.result)) for one in events if isinstance(one, InputAnswered)]


def test_the_call_is_named_and_what_came_of_it_is_the_result(here: Path) -> None:
    terminal = Terminal(here, "resume", "one")
    terminal.until("What became of it?")
    asked = terminal.shown
    assert 't1:\nseedling_price\n  {\n    "plant": "tomato",\n    "seedlings": 40\n  }\n' in asked
    for words in ("d (done): it happened.", "a (again): it did not happen.", "f (fail): leave it."):
        assert words in asked
    terminal.type("did not\n")  # the first letter would say the contrary
    terminal.until("say one of: d, a or f")
    terminal.type("d\n")
    terminal.until("What did it return?")
    terminal.type("They cost 47 euros.\n")
    assert terminal.end() == 0
    assert answers(here) == [("done", b'"They cost 47 euros."')]
    assert "They cost 47 euros." in terminal.shown.rpartition("What did it return?")[2].partition("\n")[2]


def test_it_is_decided_later_and_then_done_again(here: Path) -> None:
    later = Terminal(here, "resume", "one")
    later.until("What became of it?")
    later.type("\n")
    assert later.end() == 4
    again = Terminal(here, "resume", "one")
    again.until("What became of it?")
    assert "seedling_price\n" in again.shown
    again.type("again\n")
    assert again.end() == 0
    assert answers(here) == [("again", b"null")]
    assert "48.00 euros" in again.shown


def test_the_call_is_named_with_its_arguments_where_nobody_can_be_asked(here: Path) -> None:
    asked = chargehand(here, "resume", "one", "--no-input", "--json")
    assert asked.returncode == 4
    assert "waiting for confirmation of its effect:\n" in asked.stderr
    lines = [line.strip() for line in asked.stderr.splitlines()]
    at = lines.index("seedling_price")
    assert lines[at + 1 : at + 5] == ["{", '"plant": "tomato",', '"seedlings": 40', "}"]
    question = json.loads(asked.stdout)["question"]["question"]
    assert question["tool"] == "seedling_price"
    assert question["arguments"] == {"plant": "tomato", "seedlings": 40}
    again = chargehand(here, "resume", "one", "--no-input", "-q")
    assert "  seedling_price\n" in again.stderr, "also where it was asked before"


def test_where_it_is_not_asked_about_the_advice_is_to_look_first(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM.replace("policy: {uncertain: ask}\n", ""))
    (tmp_path / "tools.py").write_text(TOOLS)
    assert chargehand(tmp_path, "run", "What do 40 tomato seedlings cost?", "--run", "one").returncode == -9
    resumed = chargehand(tmp_path, "resume", "one")
    assert resumed.returncode == 1
    told = resumed.stdout + resumed.stderr
    assert "may have happened: look whether it did before anything is run again" in told
    assert "with another model" not in told
