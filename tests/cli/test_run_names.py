"""A run is named by its whole name, by the beginning of it, or as the last one; and a bare command prints the help."""

import json
from pathlib import Path

import pytest

from chargehand.cli.arguments import resolve_run
from chargehand.errors import Refused
from tests.cli.commands import JOURNAL, chargehand, script, task


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: desk-a1, desk-a2 and, as the last, shop-b1."""
    folder = tmp_path_factory.mktemp("runs")
    file = script(folder, task("a"))
    for name in ("desk-a1", "desk-a2", "shop-b1"):
        assert chargehand(folder, "play", file, "--run", name, "--durability", "process").returncode == 0
    return folder


def test_the_beginning_of_a_name_or_last_is_enough_wherever_a_run_is_named(folder: Path) -> None:
    exported = json.loads(chargehand(folder, "runs", "export", "sho").stdout)
    assert exported["run"] == "shop-b1"
    assert json.loads(chargehand(folder, "runs", "export", "last").stdout)["run"] == "shop-b1"
    again = chargehand(folder, "resume", "last", "--script", folder / "script.json")
    assert "run 'shop-b1' has ended" in again.stderr
    assert chargehand(folder, "watch", "last").returncode == 0
    assert "'shop-b1' has ended" in chargehand(folder, "runs", "cancel", "last").stderr
    reused = chargehand(folder, "play", folder / "script.json", "--reuse", "desk-a2", "--run", "reused")
    assert "taken over from a of run desk-a2" in reused.stderr


def test_a_beginning_of_several_names_is_an_error_that_lists_them(folder: Path) -> None:
    done = chargehand(folder, "runs", "show", "desk-a")
    assert (done.returncode, done.stdout) == (2, "")
    said = "'desk-a' may be any of 2 runs: desk-a2, desk-a1; type more of its name"
    assert done.stderr == f"chargehand: {said}\n"


def test_a_whole_name_is_meant_before_any_that_begin_with_it(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"))
    for name in ("desk", "desk-more", "last"):
        assert chargehand(tmp_path, "play", file, "--run", name, "--durability", "process").returncode == 0
    journal = tmp_path / JOURNAL
    assert resolve_run(journal, "desk") == "desk"
    assert resolve_run(journal, "last") == "last"
    assert resolve_run(journal, "desk-") == "desk-more"
    assert resolve_run(journal, "nobody") == "nobody"  # whoever reads it says that there is none
    with pytest.raises(Refused, match="2 runs: desk-more, desk"):
        resolve_run(journal, "des")


def test_the_list_is_as_long_as_is_wanted(folder: Path) -> None:
    listed = chargehand(folder, "runs", "--limit", "1").stdout.splitlines()
    assert len(listed) == 3
    assert listed[2].startswith("… and ")
    assert len(json.loads(chargehand(folder, "runs", "list", "--json", "--limit", "2").stdout)) == 2


def test_a_bare_command_prints_the_help(tmp_path: Path) -> None:
    bare = chargehand(tmp_path)
    asked = chargehand(tmp_path, "--help")
    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout == asked.stdout
