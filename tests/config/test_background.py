"""Background workers in a team file: what they need is checked, and said of the line it stands on."""

from pathlib import Path

import pytest

from chargehand.config.describe import describe
from chargehand.config.load import load_team
from tests.config.files import write

TEAM = """\
version: 1
name: desk
workers:
  helper: knows things
  librarian: {every: 2, tools: [memory_rethink], blocks: {notes: write}}
memory:
  blocks:
    notes: {value: ""}
"""


def told(folder: Path, text: str) -> list[str]:
    return [str(one).rpartition("/")[2] for one in describe(write(folder, text)).findings]


def test_a_worker_with_every_is_in_the_background(tmp_path: Path) -> None:
    assert told(tmp_path, TEAM) == []
    team = load_team(tmp_path)
    assert [(agent.name, every) for agent, every in team.background_agents] == [("librarian", 2)]
    assert list(team.roster.names()) == ["helper"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("every: 2", "every: 0", "every"),
        ("every: 2", "every: -1", "every"),
        ("every: 2", "every: soon", "every"),
        ("every: 2", "every: 2, fallbacks: [helper]", "has no fallback workers"),
        ("every: 2", "every: 2, team: other", "does not go with `team`"),
        ('value: ""', "read_only: true", "nothing it may write that to"),
        ('value: ""', "trusted: true", "nothing it may write that to"),
    ],
)
def test_what_is_wrong_is_said_of_its_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    write(tmp_path / "other", "version: 1\nname: other\nworkers: {ann: counts}\n")
    found = told(tmp_path, TEAM.replace(old, new))
    assert any(one.startswith("team.yaml:5") and words in one for one in found), found


def test_without_a_memory_there_is_nothing_to_do(tmp_path: Path) -> None:
    bare = TEAM.partition("memory:")[0].replace(", tools: [memory_rethink], blocks: {notes: write}", "")
    [found] = told(tmp_path, bare)
    assert found.startswith("team.yaml:5")
    assert "works on the team's memory, and there is none" in found


def test_one_that_instructs_needs_a_grant_for_text_from_outside(tmp_path: Path) -> None:
    trusted = TEAM.replace('value: ""', "trusted: true")
    granted = trusted.replace("notes: write", "notes: {access: write, tainted: true}")
    assert told(tmp_path, granted) == []
