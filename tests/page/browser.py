"""Debian's Chromium for tests: found, or installed where that is possible, or asked for with the command for it."""

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

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
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["sh", "-c", _INSTALL], env=quiet, capture_output=True, timeout=600, check=False)
        found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.fail(f"the tests of the page need Chromium; install it: {_INSTALL}")
    return found


@contextmanager
def open_browser() -> Generator[Browser]:
    path = find_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS), timeout=120_000)
        try:
            yield browser
        finally:
            browser.close()
