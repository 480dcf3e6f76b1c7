"""The programs of the exercises, run as their page says: by Python, in an empty folder, without a key."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.cli.commands import EXAMPLES, ROOT, python

EXERCISES = EXAMPLES / "exercises"
PAGE = ROOT / "docs" / "exercises.md"


@cache
def printed(name: str, at: int = 0) -> str:
    """What a program prints the first time, or another time; it must end well, and warn of nothing."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(EXERCISES / f"{name}.py")
        done = python(Path(folder), f"import runpy; runpy.run_path({program!r}, run_name='__main__')")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert list(Path(folder).iterdir()) == [], "it leaves nothing behind"
    return done.stdout


def undisturbed(name: str, times: Callable[[str], None]) -> None:
    """Check the times that a program measures. It has five tries: a busy machine may stand still in any of them.

    What is wrong in the program is wrong each time.
    """
    for at in range(4):
        try:
            return times(printed(name, at))
        except AssertionError:
            continue
    return times(printed(name, 4))
