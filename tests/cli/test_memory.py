"""`chargehand memory` on blocks: what is there, changing it, its history, and what is refused."""

from pathlib import Path

import pytest

from tests.cli.commands import chargehand
from tests.cli.memories import MEMORY, TEAM, desk, done, here_and_now, memory, told
from tests.cli.terminal import Terminal
from tests.cli.test_bad_input import refused
from tests.config.files import write


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return desk(tmp_path)


def test_the_overview_shows_what_a_team_declares(here: Path) -> None:
    said = done(here)
    assert said.startswith("memory of team desk in .chargehand/memory.db")
    for words in ("guidelines  ━········· 17 of 2,000", "share: append", "findings", "the team file"):
        assert words in said
    whole = told(here)
    assert whole["team"] == "desk"
    assert [one["label"] for one in whole["blocks"]] == ["guidelines", "notes"]
    assert [one["name"] for one in whole["archives"]] == ["findings", "papers"]


def test_a_block_is_set_read_and_restored(here: Path) -> None:
    assert "notes: version 2" in done(here, "set", "notes", "first", "line")
    done(here, "set", "notes", "-", given="first line\nsecond\n")
    assert done(here, "get", "notes") == "first line\nsecond\n"
    assert done(here, "get", "notes", "--version", "2") == "first line\n"
    assert "notes: version 3" in done(here, "set", "notes", "first line\nsecond")
    done(here, "restore", "notes", "2")
    assert done(here, "get", "notes") == "first line\n"
    done(here, "set", "notes", "anew", "--expect", "4")
    assert told(here, "get", "notes")["value"] == "anew"


def test_the_history_says_who_and_how(here: Path) -> None:
    found = memory(here, "set", "notes", "hello", LOGNAME="rea", USER="rea")
    assert found.returncode == 0
    (latest, first) = told(here, "history", "notes")
    assert (latest["kind"], latest["origin"]["by"], latest["origin"]["name"]) == ("rethink", "person", "rea")
    assert (latest["added"], first["origin"]["by"]) == ("hello", "team")
    lines = done(here, "history", "notes", "--limit", "1").splitlines()
    assert lines[0].startswith("v2  ")
    assert lines[0].endswith("just now  rethink  by person rea")
    assert lines[1] == "    + hello"
    assert lines[2] == "… and 1 earlier; see more with --limit"
    assert "by person rea" in done(here)


def test_the_history_shows_whole_lines_also_where_both_texts_end_alike(here: Path) -> None:
    late = f"Parcels to Austria are late{' again' * 19}."
    for text in ("Parcels to Austria are late.", "Parcels to Spain are here.", late):
        done(here, "set", "notes", text)
    changes = [line.strip() for line in done(here, "history", "notes").splitlines() if line.startswith(" ")]
    assert changes == [
        "- Parcels to Spain are here.",
        f"+ {late[:79]}…  (142 characters)",
        "- Parcels to Austria are late.",
        "+ Parcels to Spain are here.",
        "+ Parcels to Austria are late.",
    ]


def test_a_block_is_made_where_that_is_meant(here: Path) -> None:
    refused(here_and_now(here, "set", "persona", "be kind"), "there is no block 'persona'", "memory set --create")
    assert "persona: version 1" in done(here, "set", "persona", "be kind", "--create")
    assert (told(here, "get", "persona")["value"], told(here, "get", "persona")["share"]) == ("be kind", "read")
    assert "persona: version 2" in done(here, "set", "persona", "be brief", "--create")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["get", "note"], "there is no block 'note'; did you mean 'notes'?"),
        (["get", "notes", "--version", "9"], "block 'notes' has no version 9; the last one is 1"),
        (["set", "notes", "x", "--expect", "7"], "is at version 1 by now, not 7"),
        (["set", "guidelines", "x" * 2001], "guidelines"),
        (["set", "notes", "\udcff"], "is not text in UTF-8"),
        (["set", "notes", "a\x1bb"], "is not plain text: character 2"),
        (["set", "a b", "x", "--create"], "'a b' is no name for a block"),
        (["histry", "notes"], "did you mean 'history'?"),
        (["get"], "the following arguments are required: LABEL"),
        (["history", "notes", "--limit", "0"], "'0' is less than 1"),
        (["--team", "none.yaml"], "there is no team file none.yaml"),
        (["--memory", "team.yaml"], "team.yaml"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(here: Path, words: list[str], said: str) -> None:
    refused(here_and_now(here, *words), said, code=1 if words[0] == "--memory" else 2)
    if words[0] != "--memory":
        assert told(here, "get", "notes")["version"] == 1


def test_a_team_without_memory_can_have_one_all_the_same(tmp_path: Path) -> None:
    here = desk(tmp_path, "version: 1\nname: bare\nworkers: {ann: Reads.}\n")
    refused(here_and_now(here), "there is no memory .chargehand/memory.db, and team bare has no memory section")
    assert not (here / MEMORY).exists()
    done(here, "set", "notes", "hello", "--create")
    assert done(here, "get", "notes") == "hello\n"


def test_teams_in_one_file_do_not_see_each_other(tmp_path: Path) -> None:
    here = desk(tmp_path)
    write(here / "other", TEAM.replace("name: desk", "name: other"))
    done(here, "set", "notes", "of the desk")
    assert done(here, "get", "notes", "--team", "other").strip() == ""
    assert done(here, "--team", "other", "--memory", MEMORY, "get", "notes").strip() == ""


def test_a_file_beside_the_team_is_used_unless_another_is_named(tmp_path: Path) -> None:
    here = desk(tmp_path, TEAM.replace("memory:\n", "memory:\n  file: kept.db\n"))
    done(here, "set", "notes", "kept")
    assert (here / "kept.db").exists()
    assert not (here / MEMORY).exists()
    done(here, "set", "notes", "elsewhere", "--memory", "other.db")
    assert done(here, "get", "notes") == "kept\n"
    assert done(here, "get", "notes", "--memory", "other.db") == "elsewhere\n"


def test_nothing_that_is_shown_steers_a_terminal(here: Path) -> None:
    sly = "a \u202e b \u009b31m c"
    done(here, "set", "notes", sly)
    for words in (["history", "notes"], []):
        assert "\u202e" not in done(here, *words)
        assert "\u009b" not in done(here, *words)
    shown = Terminal(here, "memory", "get", "notes")
    assert shown.end() == 0
    assert "a \ufffd b \ufffd31m c" in shown.shown
    assert done(here, "get", "notes") == f"{sly}\n"  # a file gets it as it is
    assert told(here, "get", "notes")["value"] == sly


def test_check_says_how_much_memory_there_is(here: Path) -> None:
    found = chargehand(here, "check")
    assert "team desk: 2 workers, 0 tools; memory: 2 blocks, 2 archives; models: demo" in found.stderr
