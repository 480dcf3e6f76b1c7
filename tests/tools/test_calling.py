"""Results cut to size, and standard output kept clean."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.tools.calling import capped, quiet_stdout


def test_what_fits_is_left_alone() -> None:
    assert capped("abc", 3) == ("abc", False)
    assert capped("", 1) == ("", False)


def test_a_long_text_is_cut_after_a_line_and_says_how_much_is_missing() -> None:
    text = "".join(f"line {n}\n" for n in range(100))
    assert capped(text, 60) == (text[:56] + "[cut here: 734 of 790 bytes are not shown]", True)


def test_a_text_without_lines_is_cut_between_characters() -> None:
    assert capped("ä" * 10, 5) == ("ää\n[cut here: 16 of 20 bytes are not shown]", True)


@given(st.text(alphabet="aä€😀\n\ud800", max_size=60), st.integers(1, 80))
def test_what_is_kept_is_a_beginning_that_fits(text: str, cap: int) -> None:
    kept, cut = capped(text, cap)
    size = len(text.encode(errors="replace"))
    assert cut == (size > cap)
    if cut:
        body = kept[: kept.rindex("[cut here")].removesuffix("\n")
        assert text.encode(errors="replace").decode().startswith(body)
        assert len(body.encode()) <= cap


PRINTING = """
import asyncio, os, subprocess, sys
from chargehand.tools.calling import quiet_stdout
from chargehand.tools.tool import tool

@tool
def chatty() -> int:
    print("printed")
    sys.__stdout__.write("held on to\\n")
    os.write(1, b"written\\n")
    subprocess.run(["echo", "from a child"])
    return 1

print("before")
with quiet_stdout() as out:
    found = asyncio.run(chatty.call("{}", "k"))
    out.write('{"found": %d, "word": "ä"}\\n' % found)
print("after")
"""


def test_a_tool_that_prints_does_not_reach_standard_output() -> None:
    done = subprocess.run([sys.executable, "-X", "utf8", "-c", PRINTING], capture_output=True, timeout=20, check=True)
    assert done.stdout.decode() == 'before\n{"found": 1, "word": "ä"}\nafter\n'
    lines = sorted(done.stderr.decode().split("\n"))
    assert lines == ["", "from a child", "held on to", "printed", "written"]


def test_standard_output_comes_back_after_an_exception(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        with quiet_stdout() as out:
            print("quiet")
            out.write("loud\n")
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        interrupted()
    print("again")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("loud\nagain\n", "quiet\n")
