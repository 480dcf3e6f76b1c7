"""Commands that tests of the page need: found, or installed where that is possible, or asked for by name."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest


def need_command(*names: str, packages: str) -> str:
    """The first of these commands. It is installed where we are root and there is apt; else the test fails, and says
    what to do: a test that is left out proves nothing.
    """
    install = f"apt-get update && apt-get install -y {packages}"
    found = _which(names)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with Path(__file__).open() as held:  # tests that run side by side wait for each other
            fcntl.flock(held, fcntl.LOCK_EX)
            if _which(names) is None:
                quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
                subprocess.run(["sh", "-c", install], env=quiet, capture_output=True, timeout=240, check=False)
        found = _which(names)
    if found is None:
        pytest.fail(f"the tests of the page need {names[0]}; install it: {install}")
    return found


def _which(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)
