"""What a terminal is shown: safe, readable without colour, quick."""

import io
import json
import os
import pty
import resource
import subprocess
from contextlib import redirect_stdout
from pathlib import Path
from typing import get_args

import pytest

from chargehand.cli import event_text
from chargehand.cli.console import Console, clean, clean_json, clean_lines, short
from chargehand.cli.format import dollars, money
from chargehand.cli.main import VERBS, parser
from chargehand.engine.budget import Amount
from chargehand.engine.events import Event
from tests.cli.commands import COMMAND, EXAMPLES, chargehand, environment, script, task

EVIL = "\x1b[2Jred\x1b]0;title\x07 \x9b31m \u202egnp.exe \u2066x\u2069 \x00\x7f \u200bzero\U000e0041"


def steering(text: str) -> list[str]:
    """The characters that could steer a terminal, but for line ends."""
    return [
        one for one in text.replace("\n", "") if one < " " or "\x7f" <= one <= "\x9f" or one in "\u202e\u2066\u2069"
    ]


def test_nothing_from_a_plan_a_result_or_an_error_steers_the_terminal(tmp_path: Path) -> None:
    name = "t\u00b7 evil"
    moves = {name: [{"fail": "logic", "message": EVIL}, {"result": EVIL}], "b": [{"result": [EVIL]}]}
    tasks = [{"id": name, "instruction": f"say {EVIL} to them", "worker": "ann"}, task("b", name)]
    roster = {"agents": [{"name": "ann"}, {"name": EVIL}]}
    more: dict[str, object] = {"goal": EVIL, "refined": {name: EVIL}, "answers": [{"result": f"{EVIL}\nline two"}]}
    file = script(tmp_path, *tasks, moves=moves, roster=roster, **more)
    done = chargehand(tmp_path, "play", file, "--run", f"run{EVIL[1:8]}")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == "line two"
    told = chargehand(tmp_path, "play", file, "--run", "two", "--jsonl")
    entries = [json.loads(line) for line in told.stdout.splitlines()]
    assert entries[0]["event"]["goal"] == EVIL
    shown = [
        chargehand(tmp_path, *words)
        for words in (["runs", "show", "two"], ["runs"], ["runs", "show", "two", "--jsonl"])
    ]
    plans = [chargehand(tmp_path, "plan", "--from", file, *how) for how in ([], ["--json"])]
    assert [one.returncode for one in (*shown, *plans)] == [0] * 5
    for one in (done, told, *shown, *plans):
        assert steering(one.stdout) == []
        assert steering(one.stderr) == []


def test_errors_do_not_steer_the_terminal_either(tmp_path: Path) -> None:
    for words in (
        ["play", f"{EVIL[:5]}.json"],
        ["runs", "show", EVIL[:5], "--journal", "x"],
        ["play", EVIL[:5], "--bad\x1b[2J"],
    ):
        done = chargehand(tmp_path, *words)
        assert done.returncode == 2
        assert steering(done.stderr) == []


def test_cleaning_leaves_words_alone() -> None:
    assert clean("naïve Straße 東京 👍 a\tb\nc") == "naïve Straße 東京 👍 a b c"
    assert clean_lines("a\tb\r\nc\rd") == "a\tb\nc\ufffdd"
    assert clean("a\x1b[31mb\u202ec") == "a\ufffd[31mb\ufffdc"
    assert json.loads(clean_json(json.dumps(EVIL, ensure_ascii=False))) == EVIL
    assert short("abcdef", 4) == "abc…"


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Console(_Terminal()).paint("x", "bad") == "\x1b[31mx\x1b[0m"
    assert Console(io.StringIO()).paint("x", "bad") == "x"
    monkeypatch.setenv("TERM", "dumb")
    assert Console(_Terminal()).paint("x", "bad") == "x"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert Console(_Terminal()).paint("x", "bad") == "x"


def test_a_real_terminal_gets_colour(tmp_path: Path) -> None:
    screen, keyboard = pty.openpty()
    words = [*COMMAND, "plan", "--from", str(script(tmp_path, task("a", "b")))]
    done = subprocess.run(words, env=environment(TERM="xterm"), stdout=keyboard, stderr=keyboard, check=False)
    os.close(keyboard)
    said = os.read(screen, 65536).decode()
    os.close(screen)
    assert done.returncode == 2
    assert "\x1b[31merror: tasks[0] (a).after" in said


def test_a_terminal_without_unicode_gets_letters(tmp_path: Path) -> None:
    words = [*COMMAND, "plan", "--from", str(EXAMPLES / "gaps.json")]
    ascii_only = environment(PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    done = subprocess.run(words, cwd=tmp_path, env=ascii_only, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "`-- T4" in done.stdout
    assert done.stdout.isascii()


def test_every_event_has_its_words() -> None:
    source = Path(event_text.__file__).read_text(encoding="utf-8")
    assert [shape.__name__ for shape in get_args(Event) if f"ev.{shape.__name__}(" not in source] == []


def test_amounts_are_exact() -> None:
    assert dollars(1) == "$0.000001"
    assert dollars(1_234_500_000) == "$1,234.50"
    assert money(Amount()) == "nothing"
    assert money(Amount(tokens=1, micros=20_000, calls=2)) == "$0.02, 1 token, 2 calls"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_fits_into_eighty_columns(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = io.StringIO()
    with redirect_stdout(page), pytest.raises(SystemExit):
        parser(verb).parse_args([verb, "--help"])
    _, _, below = page.getvalue().partition("\n\n")  # what stands above is argparse's own: it breaks no group in two
    assert [line for line in below.splitlines() if len(line) > 80] == []


def test_help_comes_at_once_and_version_is_told(tmp_path: Path) -> None:
    took: list[float] = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([*COMMAND, "--help"], env=environment(), capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0
        assert "exit codes: 0 complete" in done.stdout
    assert min(took) < 0.2  # of CPU: a machine that others use as well takes longer by the clock
    assert chargehand(tmp_path, "--version").stdout == "chargehand 0.1.0\n"
    assert "--reuse RUN" in chargehand(tmp_path, "play", "--help").stdout
