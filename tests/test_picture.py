"""The picture at the top of the README shows what the bundled team's example looks like today."""

import re
from pathlib import Path

import pytest

from chargehand.cli.main import main
from tests.cli.commands import chargehand
from tests.picture import COLUMNS, PICTURE, ROOT, chosen, screen, words_of

AGAIN = "make it anew: python -m tests.picture"
NUMBERS = {"five": 5, "six": 6, "seven": 7}


@pytest.fixture(scope="module")
def shown() -> list[str]:
    return words_of(PICTURE.read_text())


def test_the_picture_shows_what_a_run_of_the_example_shows_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], shown: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--example"]) == 3
    told = capfd.readouterr()
    # a terminal has another width than a pipe: how much of an instruction is to be seen differs
    lines = [line.partition("…")[0].rstrip() for line in told.err.splitlines()]
    plan = [line for line in lines if re.search(r"^plan: |^(?:[├└]── )?t\d  \w", line)]
    assert len(plan) > 4
    for line in plan:
        assert any(one.startswith(line) for one in shown), f"{line}: {AGAIN}"
    said = " ".join(" ".join(shown[shown.index("answer:") :]).split())
    answer = told.out.replace("### ", "## ")
    for part in ("", "## Kept", "## Not answered"):
        items = re.findall(r"^- (.*)$", answer.partition(part or "- ")[2].partition("\n## ")[0], re.MULTILINE)
        assert items
        for item in items:
            assert " ".join(item.split()) in said, f"{item}: {AGAIN}"
    assert max(map(len, shown)) <= COLUMNS


def test_the_output_on_the_first_page_is_what_the_example_prints(tmp_path: Path) -> None:
    page = ROOT.joinpath("README.md").read_text(encoding="utf-8")
    block = page.partition("## Sixty seconds")[2].partition("```\n")[2].partition("```")[0]
    done = chargehand(tmp_path, "run", "--example")
    printed = [_without_clock(line) for line in (done.stderr + done.stdout).splitlines()]
    for line in block.splitlines():
        beginning = _without_clock(line.partition("…")[0])
        assert any(whole.startswith(beginning) for whole in printed), line


def _without_clock(line: str) -> str:
    return re.sub(r"^ +\d+\.\d\d s ", "", line).rstrip()


def test_the_words_for_who_cannot_see_the_picture_count_its_tasks(shown: list[str]) -> None:
    said = re.search(
        r"!\[A run in the terminal: (\w+) tasks[^]]*\]\(docs/pictures/run\.svg\)",
        ROOT.joinpath("README.md").read_text(),
    )
    assert said is not None
    assert f"plan: {NUMBERS[said[1]]} tasks, merged into one answer" in shown


def test_a_view_that_moves_leaves_only_its_last_lines() -> None:
    drawn = "first\r\nold a\r\nold b\x1b[1A\r\x1b[2K\x1b[1mnew\x1b[0m a\r\n\x1b[2Knew b\r\nend"
    assert screen(drawn) == ["first", "\x1b[1mnew\x1b[0m a", "new b", "end"]


def test_what_is_left_out_of_the_answer_is_marked_once() -> None:
    lines = [
        "notice",
        "plan: 1 task",
        "answer:",
        "- 4",
        "Notes",
        "- why",
        "Sources",
        "- there",
        "Kept",
        "- it",
        "gaps: 0",
    ]
    assert list(chosen(lines)) == ["plan: 1 task", "answer:", "- 4", " …", "", "Kept", "- it"]
