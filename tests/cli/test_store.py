"""Commands on a database: named by a flag, the environment or the team file, and the same verbs as on files."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import chargehand, script, task
from tests.postgres import PASSWORD

_TEAM = """
version: 1
name: desk
store: ${DATABASE}
workers:
  clerk: Answers questions.
memory:
  blocks:
    notes: Nothing is known yet.
"""


def names(folder: Path, *words: str, **variables: str) -> list[str]:
    done = chargehand(folder, "runs", "--json", *words, **variables)
    assert done.returncode == 0, done.stderr
    return [row["run"] for row in json.loads(done.stdout)]


def test_every_verb_works_on_a_database_as_on_a_file(tmp_path: Path, postgres_store: str) -> None:
    store = {"CHARGEHAND_STORE": postgres_store}
    story = script(tmp_path, task("one"), task("two", "one"))
    played = chargehand(tmp_path, "play", story, "--run", "first", **store)
    assert played.returncode == 0, played.stderr
    told = played.stdout + played.stderr
    assert names(tmp_path, **store) == ["first"]
    assert names(tmp_path, "--store", postgres_store) == ["first"]
    for words in (
        ("runs", "show", "last"),
        ("runs", "export", "first"),
        ("watch", "fi"),
        ("replay", "first", "--from", "two", "--script", str(story), "--run", "again"),
        ("doctor", "--workers"),
    ):
        done = chargehand(tmp_path, *words, **store)
        assert done.returncode == 0, (words, done.stderr)
        told += done.stdout + done.stderr
    assert names(tmp_path, **store) == ["again", "first"]
    refused = chargehand(tmp_path, "resume", "first", "--script", story, **store)
    assert "has ended" in refused.stderr
    assert chargehand(tmp_path, "runs", "prune", "--keep", "1", **store).returncode == 0
    assert names(tmp_path, **store) == ["again"]
    assert PASSWORD not in told
    assert list(tmp_path.rglob("*.db")) == []


def test_a_team_file_may_name_the_database_of_runs_and_memory(tmp_path: Path, postgres_store: str) -> None:
    (tmp_path / "team.yaml").write_text(_TEAM)
    variables = {"DATABASE": postgres_store}
    done = chargehand(tmp_path, "run", "--run", "asked", "What is known?", **variables)
    assert "run: asked in postgresql://" in done.stderr, done.stderr
    assert names(tmp_path, **variables) == ["asked"]
    blocks = chargehand(tmp_path, "memory", "list", **variables)
    assert "notes" in blocks.stdout, blocks.stderr
    assert list(tmp_path.rglob("*.db")) == []


def test_a_file_that_is_named_precedes_the_database(tmp_path: Path, empty_database: str) -> None:
    story = script(tmp_path, task("one"))
    played = chargehand(
        tmp_path, "play", story, "--run", "here", "--journal", "here.db", CHARGEHAND_STORE=empty_database
    )
    assert played.returncode == 0, played.stderr
    assert names(tmp_path, "--journal", "here.db") == ["here"]
    assert "nothing of chargehand" in chargehand(tmp_path, "runs", "--store", empty_database).stderr


@pytest.mark.parametrize("variable", ["mysql://me:hidden@here/runs", "runs.db"])
def test_a_variable_that_names_no_database_is_refused(tmp_path: Path, variable: str) -> None:
    done = chargehand(tmp_path, "runs", CHARGEHAND_STORE=variable)
    assert done.returncode == 2
    assert "CHARGEHAND_STORE: " in done.stderr
    assert "hidden" not in done.stderr
