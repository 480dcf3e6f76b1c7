"""A team is killed while it works, and goes on: what was finished is not asked for and not done again."""

import time
from pathlib import Path

from chargehand.engine.events import AttemptSucceeded
from chargehand.journal.store import read_run
from tests.cli.commands import JOURNAL, Underway, chargehand

TEAM = """
version: 1
name: bakers
defaults: {model: demo}
workers:
  counter: {description: Counts loaves of bread on a shelf., tools: [count_loaves]}
tools:
  count_loaves: {python: "shelves:count_loaves", effect: idempotent}
"""
TOOLS = '''
import time
from pathlib import Path
from typing import Literal


def count_loaves(shelf: Literal["upper", "middle", "lower"]) -> int:
    """Count the loaves of bread on one shelf."""
    with open(Path(__file__).parent / "counted.txt", "a") as file:
        file.write(f"{shelf}\\n")
    if shelf == "lower" and not (Path(__file__).parent / "go").exists():
        time.sleep(30)
    return len(shelf)
'''
REQUEST = (
    "Count the loaves on the upper shelf; count the loaves on the middle shelf; count the loaves on the lower shelf"
)


def waits_for(truth: object, seconds: float = 20.0) -> None:
    assert callable(truth)
    until = time.monotonic() + seconds
    while not truth():
        assert time.monotonic() < until, "it never came so far"
        time.sleep(0.02)


def finished(journal: Path) -> int:
    return sum(isinstance(entry.event, AttemptSucceeded) for entry in read_run(journal, "bread"))


def test_a_killed_team_goes_on_and_repeats_only_what_was_under_way(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM)
    (tmp_path / "shelves.py").write_text(TOOLS)
    counted = tmp_path / "counted.txt"
    process = Underway(tmp_path, "run", REQUEST, "--run", "bread").process
    try:
        waits_for(lambda: counted.exists() and len(counted.read_text().split()) == 3)
        waits_for(lambda: finished(tmp_path / JOURNAL) == 2)
    finally:
        process.kill()
        process.wait()
    (tmp_path / "go").touch()
    done = chargehand(tmp_path, "resume", "bread")
    assert done.returncode == 0, done.stderr
    assert sorted(counted.read_text().split()) == ["lower", "lower", "middle", "upper"]
    assert "5" in done.stdout
    assert "6" in done.stdout
