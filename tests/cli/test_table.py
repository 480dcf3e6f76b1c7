"""Tables and times: aligned whatever stands in them, and never wider than a terminal."""

import io

import pytest
from rich.cells import cell_len

from chargehand.cli.console import Console, print_table
from chargehand.cli.format import ago, bar, when


class _Screen(io.StringIO):
    encoding = "utf-8"  # what a terminal says of itself


def test_columns_are_aligned_also_with_signs_that_take_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    screen = _Screen()
    print_table(Console(screen), ("name", "does"), [("日本", "x"), ("e\u0301a", "y"), ("\x1b[2J", "z")])
    lines = screen.getvalue().splitlines()
    assert [cell_len(line[: line.rindex(line[-1])]) for line in lines[1:]] == [6, 6, 6]
    assert "\x1b" not in screen.getvalue()


def test_the_last_column_is_cut_where_a_terminal_ends() -> None:
    screen = _Screen()
    console = Console(screen)
    console.terminal = True
    console.columns = 40
    print_table(console, ("name", "does"), [("ann", "x" * 100)])
    assert cell_len(screen.getvalue().splitlines()[1]) == 40


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (7200, "2 h ago"),
        (86_400, "1 day ago"),
        (200_000, "2 days ago"),
    ],
)
def test_a_time_that_is_not_long_ago_is_said_so(seconds: int, said: str) -> None:
    assert ago(2e9 - seconds, 2e9) == said


def test_a_time_long_ago_is_a_day_and_one_that_cannot_be_is_no_error() -> None:
    assert ago(2e9 - 1e7, 2e9) == when(2e9 - 1e7)[:10]
    assert (when(0), ago(0, 2e9), when(1e300)) == ("never", "never", "no known time")


def test_a_bar_shows_whatever_is_not_nothing() -> None:
    assert [bar(0), bar(0.001), bar(0.5), bar(1), bar(7)] == [
        "··········",
        "━·········",
        "━━━━━·····",
        "━━━━━━━━━━",
        "━━━━━━━━━━",
    ]
