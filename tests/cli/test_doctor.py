"""`chargehand doctor`: one line a thing, what to do about the sick ones, and no secrets."""

import json
import os
import tomllib
from pathlib import Path

import pytest

from chargehand.cli.main import main
from tests.cli.commands import chargehand
from tests.config.files import write
from tests.wheel import ROOT


def test_a_healthy_place_is_told_line_by_line(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    done = chargehand(tmp_path, "doctor", OPENAI_API_KEY="hush-hush", CHARGEHAND_HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stdout
    heads = {line.split()[1] for line in done.stdout.splitlines() if line[:2] in ("ok", "--")}
    assert heads >= {"chargehand", "journal", "sqlite", "team", "keys", "sandbox", "disk"}
    assert "OPENAI_API_KEY" in done.stdout
    assert "hush-hush" not in done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [".git"]


def test_a_sick_place_ends_with_one_and_says_what_to_do(tmp_path: Path) -> None:
    write(tmp_path, "version: 9\n")
    done = chargehand(tmp_path, "doctor")
    assert done.returncode == 1
    (at,) = [n for n, line in enumerate(done.stdout.splitlines()) if line.startswith("NO")]
    bad, todo = done.stdout.splitlines()[at : at + 2]
    assert "this chargehand reads version 1" in bad
    assert "→ see all of it: chargehand check --team" in todo


def test_json_is_one_document(tmp_path: Path) -> None:
    told = json.loads(chargehand(tmp_path, "doctor", "--json").stdout)
    assert {"what", "state", "message", "todo"} == set(told["lines"][0])
    assert told["ok"] is all(line["state"] != "bad" for line in told["lines"])


@pytest.mark.parametrize("verb", ["run", "check", "plan"])
def test_in_a_folder_that_was_deleted_every_verb_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main([verb, *(["hello"] if verb != "check" else [])]) == 2
    assert capsys.readouterr().err == "chargehand: the folder you are in is not there any more; go to one that is\n"


def test_every_extra_is_known_to_the_doctor_and_to_the_page_about_installing(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    shown = chargehand(tmp_path, "doctor").stdout
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for extra in extras - {"sandbox"}:  # which has a line of its own
        assert f"extra {extra} " in shown
        assert f"`{extra}`" in page
