"""The package as users get it: built from the checkout, and installed where the checkout is not on the path."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_OURS = ("PYTHONPATH", "VIRTUAL_ENV", "CHARGEHAND_HOME", "CHARGEHAND_TEAM", "CHARGEHAND_TOKEN")


def run(words: Sequence[str | Path], folder: Path, allowed: tuple[int, ...] = (0,)) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    done = subprocess.run(words, cwd=folder, env=kept, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode in allowed, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def build(kind: str, tree: Path, into: Path) -> Path:
    """One build with the locked backend, in a process of its own: a build looks at the folder it is in."""
    code = f"import sys; from hatchling import build; print(build.build_{kind}(sys.argv[1]))"
    done = run([sys.executable, "-c", code, str(into)], tree)
    return into / done.splitlines()[-1]


class Environment:
    """A Python environment with nothing in it but what is put there."""

    def __init__(self, place: Path) -> None:
        run([sys.executable, "-m", "venv", "--without-pip", place], place.parent)
        self.place = place
        self.python = place / "bin" / "python"
        (self.packages,) = place.glob("lib/python3*/site-packages")

    def pip(self, *words: str | Path) -> None:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "--quiet",
            "--python",
            self.python,
        ]
        run([*pip, "--python", self.python, *words], self.place.parent)

    def install(self, wheel: Path) -> None:
        self.pip("install", "--no-deps", "--no-index", "--no-compile", wheel)
