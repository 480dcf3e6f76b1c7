"""Every example of an extension point runs and says what it should."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples" / "extending"
SAID = {
    "worker": "4 words 3e-05",
    "tool": "User 7 is deleted.",
    "toolbox": "There are 12 anvils.",
    "listener": "'RunEnded': 1",
    "api": "",
}


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs(name: str) -> None:
    words = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert SAID[name] in done.stdout
