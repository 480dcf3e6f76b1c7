"""`chargehand run --file` and `plan --file`: files of this machine, given to a run."""

import json
from pathlib import Path

import pytest

from chargehand.engine.events import RunRequested
from chargehand.journal.store import read_run
from tests.cli.commands import JOURNAL, chargehand

CODE = """
async def look(assignment, context):
    return ", ".join([f"{file.name}: {len(await context.read_file(file.id))}" for file in assignment.files]) or "none"
"""
TEAM = 'version: 1\nname: desk\nworkers:\n  looker: {description: looks at files, call: "tools:look"}\n'
PLAN = {"tasks": [{"id": "t1", "instruction": "Look.", "worker": "looker"}], "combine": "forward", "goal": "Look."}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(CODE)
    (tmp_path / "team.yaml").write_text(TEAM)
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    (tmp_path / "a.csv").write_text("city,people\n")
    (tmp_path / "photo.png").write_bytes(PNG)
    return tmp_path


def test_a_run_is_given_files_and_has_them_when_it_is_done_once_more(folder: Path) -> None:
    files = ("--file", "a.csv", "--file", "photo.png")
    done = chargehand(folder, "run", "Look.", "--plan", "plan.json", *files, "--run", "one", "--quiet")
    assert (done.returncode, done.stdout) == (0, "a.csv: 12, photo.png: 72\n"), done.stderr
    again = chargehand(folder, "run", "--reuse", "one", "--run", "two", "--quiet")
    assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr
    other = chargehand(folder, "run", "--reuse", "one", "--file", "a.csv", "--run", "three", "--quiet")
    assert (other.returncode, other.stdout) == (0, "a.csv: 12\n"), other.stderr
    without = chargehand(folder, "run", "Look.", "--plan", "plan.json", "--run", "four", "--quiet")
    assert (without.returncode, without.stdout) == (0, "none\n"), without.stderr
    first, second = (read_run(folder / JOURNAL, run)[0].event for run in ("one", "two"))
    assert isinstance(first, RunRequested)
    assert isinstance(second, RunRequested)
    assert first.inputs == second.inputs
    assert (first.outside, second.outside) == (True, True)


@pytest.mark.parametrize("verb", ["run", "plan"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.csv", "the file none.csv cannot be read: No such file or directory; name one that is there"),
        (".", ". is a folder; name the files in it"),
        ("data.bin", "the file data.bin is of type application/octet-stream; convert it to what is taken: text"),
    ],
)
def test_a_file_that_cannot_be_given_is_named_before_the_journal_is_touched(
    folder: Path, verb: str, name: str, words: str
) -> None:
    (folder / "data.bin").write_bytes(b"\xff\0")
    done = chargehand(folder, verb, "Look.", "--file", name)
    assert done.returncode == 2
    assert f"chargehand: {words}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / JOURNAL).exists()


def test_a_team_without_a_language_model_says_that_it_takes_no_files(folder: Path) -> None:
    (folder / "team.yaml").write_text("version: 1\nname: desk\nworkers:\n  ann: {description: reads}\n")
    done = chargehand(folder, "run", "Look.", "--model", "demo", "--file", "a.csv")
    assert done.returncode == 2
    assert "the demo model takes no files; give the team a language model" in done.stderr
    refused = chargehand(folder, "plan", "--from", "plan.json", "--file", "a.csv")
    assert (refused.returncode, "--file goes with a request" in refused.stderr) == (2, True)
