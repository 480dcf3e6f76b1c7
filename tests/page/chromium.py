"""Debian's Chromium for tests: found, or installed where that is possible, or asked for with the command for it."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_INSTALL = "apt-get update && apt-get install -y chromium"


def find_browser() -> str:
    """The browser of this machine. It is installed where we are root and there is apt."""
    found = _which()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with Path(__file__).open() as held:  # tests that run side by side wait for each other
            fcntl.flock(held, fcntl.LOCK_EX)
            if _which() is None:
                quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
                subprocess.run(["sh", "-c", _INSTALL], env=quiet, capture_output=True, timeout=240, check=False)
        found = _which()
    if found is None:
        pytest.fail(f"the tests of the page need Chromium; install it: {_INSTALL}")
    return found


def _which() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def open_browser() -> Generator[Browser]:
    path = find_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS), timeout=120_000)
        try:
            yield browser
        finally:
            browser.close()
