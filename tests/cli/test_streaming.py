"""What a terminal of 80 by 24 shows of a model that writes word by word: its words, why it waits, the answer last."""

import json
from pathlib import Path

import pytest
from rich.text import Text

from tests.cli.commands import chargehand
from tests.cli.terminal import Terminal
from tests.cli.writing_model import WritingModel
from tests.config.files import write
from tests.picture import screen

TEAM = """
version: 1
name: desk
defaults: {model: "openai:gpt-5-mini"}
workers:
  ann: Counts things.
  bea: Writes things.
"""
REPORT = "Seventeen heavy boxes were found in the cellar, and every single one of them was carefully counted twice."
ANSWER = "There are seventeen boxes in the cellar [count]. " * 6


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    write(tmp_path, TEAM)
    tasks = [
        {"id": "count", "instruction": "Count the boxes in the cellar.", "worker": "ann"},
        {"id": "describe", "instruction": "Describe the boxes.", "worker": "bea", "after": ["count"]},
    ]
    (tmp_path / "plan.json").write_text(json.dumps({"goal": "Count boxes.", "tasks": tasks}))
    return tmp_path


def run_on_terminal(folder: Path, model: WritingModel) -> Terminal:
    words = ("run", "Count boxes.", "--plan", "plan.json")
    return Terminal(folder, *words, columns=80, rows=24, OPENAI_API_KEY="x", OPENAI_BASE_URL=model.url)


def on_screen(terminal: Terminal) -> list[str]:
    """The last 24 lines, as they stand there in the end."""
    lines = [Text.from_ansi(line).plain.rstrip() for line in screen(terminal.drawn.decode())]
    return lines[-24:]


def test_words_are_shown_as_they_come_and_the_answer_is_in_sight_in_the_end(desk: Path) -> None:
    model = WritingModel(REPORT, REPORT, ANSWER, pause=0.01, refuse=1, retry_after=0.5)
    try:
        terminal = run_on_terminal(desk, model)
        terminal.until("answered 429: slow down")
        terminal.until("heavy boxes were found in the cellar, and every")
        terminal.until("answer, as it is written:")
        assert terminal.end() == 0
    finally:
        model.close()
    assert "waits: openai:gpt-5-mini, " in terminal.shown
    assert "expected:" not in terminal.shown  # nobody knows how long it will take
    lines = on_screen(terminal)
    assert max(map(len, lines)) <= 80
    assert "answer:" in lines
    assert " ".join(" ".join(lines).split()).count("There are seventeen boxes in the cellar [count].") == 6
    assert any(line == "ending: complete" for line in lines)


def test_a_typed_ctrl_c_leaves_one_whole_picture(desk: Path) -> None:
    model = WritingModel("word " * 600)
    try:
        terminal = run_on_terminal(desk, model)
        terminal.until("word word word")
        terminal.type("\x03")  # a terminal shows it, where it may
        terminal.interrupt()
        assert terminal.end() == 130
    finally:
        model.close()
    assert "\x03" not in terminal.shown
    lines = on_screen(terminal)
    assert [line[0] for line in lines if line[:1] in ("╭", "╰")] == ["╭", "╰"]
    assert "resume desk-" in [line for line in lines if line][-1]


def test_nothing_of_it_is_written_into_a_pipe(desk: Path) -> None:
    model = WritingModel(REPORT, REPORT, "There are seventeen boxes [count].", pause=0.0)
    try:
        done = chargehand(
            desk, "run", "Count boxes.", "--plan", "plan.json", OPENAI_API_KEY="x", OPENAI_BASE_URL=model.url
        )
    finally:
        model.close()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["There", "are", "seventeen", "boxes", "[count]."]
    assert "\x1b" not in done.stderr
    assert "as it is written" not in done.stderr
