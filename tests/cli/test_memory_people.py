"""`chargehand memory` as people use it: streams that are closed, Ctrl-C half-way, texts there and back again."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import COMMAND, Underway, environment
from tests.cli.memories import TEAM, desk, done, here_and_now, memory, told
from tests.cli.terminal import Terminal
from tests.config.files import write

MANY = 2_000


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return desk(tmp_path)


def many(folder: Path) -> Path:
    texts = folder / "many"
    texts.mkdir()
    for number in range(MANY):
        (texts / f"{number}.txt").write_text(f"order number {number} came late")
    return texts


def test_a_text_goes_out_and_comes_back_as_it_was(here: Path) -> None:
    odd = "  - a list \u202e \u200b\n\n\ttab \x9b and 日本\n"
    done(here, "set", "guidelines", "-", given=odd + "\n")
    out = here_and_now(here, "get", "guidelines").stdout
    done(here, "set", "notes", "-", given=out)
    assert told(here, "get", "notes")["value"] == odd


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_break_nothing(here: Path, closed: str) -> None:
    words = ["memory", "set", "notes", "hello"]
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closed}', "sh", *COMMAND, *words],
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert told(here, "get", "notes")["value"] == "hello"


def test_after_ctrl_c_the_same_command_does_the_rest(here: Path) -> None:
    folder = many(here)
    seen = Terminal(here, "memory", "add", "findings", folder)
    seen.until("findings: texts")
    seen.interrupt()
    assert seen.end() == 130
    before = told(here)["archives"][0]["passages"]
    assert before < MANY
    said = done(here, "add", "findings", folder)
    assert f"findings: {MANY - before:,} new passages, {before:,} were there already" in said


@pytest.mark.slow("commands run while the run is under way")
def test_people_may_change_memory_while_a_run_goes_on(here: Path) -> None:
    script = {"goal": "wait", "roster": {"agents": [{"name": "ann"}]}, "otherwise": {"result": 1, "seconds": 1.5}}
    plan = {"tasks": [{"id": "a", "instruction": "wait a while for the others", "worker": "ann"}]}
    (here / "wait.json").write_text(json.dumps({**script, "plan": plan}))
    run = Underway(here, "play", "wait.json")
    run.until("started")
    assert memory(here, "set", "notes", "meanwhile").returncode == 0
    assert run.end() == 0
    assert told(here, "get", "notes")["value"] == "meanwhile"


def test_a_full_block_stands_out_and_changes_are_coloured(tmp_path: Path) -> None:
    here = desk(tmp_path, TEAM.replace("  blocks:\n", "  blocks:\n    tight: {value: '123456789', limit: 10}\n"))
    blocks = Terminal(here, "memory")
    history = Terminal(here, "memory", "history", "tight")
    assert (blocks.end(), history.end()) == (0, 0)
    assert b"\x1b[33mtight" in blocks.drawn
    assert b"\x1b[32m    + 123456789" in history.drawn
    assert "\x1b" not in done(here, "history", "tight")


def test_an_empty_block_says_so_on_a_terminal(here: Path) -> None:
    seen = Terminal(here, "memory", "get", "notes")
    assert seen.end() == 0
    assert "notes is empty" in seen.shown
    assert done(here, "get", "notes") == "\n"


def test_what_people_made_is_the_same_when_a_team_file_declares_it(here: Path) -> None:
    done(here, "set", "status", "All is well.", "--create")
    done(here, "add", "letters", "Dear all", "--create")
    text = TEAM.replace("  blocks:\n", "  blocks:\n    status: {value: Begin., share: write}\n")
    write(
        here, text.replace("  archives:\n", "  archives:\n    letters: {description: What we wrote., embed: words}\n")
    )
    (status,) = [one for one in told(here)["blocks"] if one["label"] == "status"]
    assert (status["value"], status["share"], status["version"]) == ("All is well.", "write", 1)
    (letters,) = [one for one in told(here)["archives"] if one["name"] == "letters"]
    assert (letters["passages"], letters["description"]) == (1, "What we wrote.")


def test_a_block_that_is_no_longer_declared_is_kept_and_said_to_be_seen_by_nobody(here: Path) -> None:
    done(here, "set", "notes", "keep me")
    text = TEAM.replace("    notes: {share: append}\n", "")
    write(here, text.replace(", blocks: {notes: write}", "").replace(", blocks: {notes: none}", ""))
    (line,) = [line for line in done(here).splitlines() if line.startswith("notes")]
    assert "no worker sees it" in line
    assert done(here, "get", "notes") == "keep me\n"
