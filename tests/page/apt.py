"""Commands that tests of the page need. Set-up installs them where it can; a test only looks for them."""

import os
import shutil
import subprocess

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def find_command(*names: str) -> str | None:
    """Return the path of the first of these commands that is installed, or None."""
    return next(filter(None, map(shutil.which, names)), None)


def need_command(*names: str, packages: str) -> str:
    """Return the path of the first of these commands, or fail the test with the line that installs it.

    A test that is skipped proves nothing.
    """
    path = find_command(*names)
    if path is None:
        pytest.fail(f"the tests of the page need {names[0]}; install it: {install_line(packages)}")
    return path


def install_line(packages: str) -> str:
    return f"apt-get update && apt-get install -y {packages}"


def install_command(*names: str, packages: str) -> bool:
    """Install the packages as root where there is apt and none of the commands, and return whether one is there now."""
    if find_command(*names) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["sh", "-c", install_line(packages)], env=quiet, capture_output=True, timeout=240, check=False)
    return find_command(*names) is not None
