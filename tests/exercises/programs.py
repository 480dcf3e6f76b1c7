"""The programs of the exercises, run as their page says: by Python, in an empty folder, without a key."""

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.cli.commands import EXAMPLES, ROOT, environment

EXERCISES = EXAMPLES / "exercises"
PAGE = ROOT / "docs" / "exercises.md"


@cache
def printed(name: str) -> str:
    """What a program prints; it must end well, and warn of nothing."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-W", "error", str(EXERCISES / f"{name}.py")]
        done = subprocess.run(
            words, cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=30
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert list(Path(folder).iterdir()) == [], "it leaves nothing behind"
    return done.stdout
