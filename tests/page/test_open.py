"""`chargehand serve --open` opens the page with a token that works."""

import os
import sys
import time
from pathlib import Path

import httpx

from tests.cli.forked import Forked


def test_serve_opens_the_page_with_a_token_that_works(tmp_path: Path) -> None:
    opened = tmp_path / "address"
    browser = tmp_path / "browser"
    browser.write_text(f"#!{sys.executable}\nimport sys\nopen({str(opened)!r}, 'w').write(sys.argv[1])\n")
    browser.chmod(0o755)
    command = ["serve", "--open", "--port", "0", "--data", str(tmp_path / "data")]
    environment = {**os.environ, "BROWSER": f"{browser} %s"}
    environment.pop("CHARGEHAND_TOKEN", None)
    for expected in ("first", "browser"):  # the second time there is a token already, and its text is not kept
        opened.unlink(missing_ok=True)
        with Path(os.devnull).open("r+b") as nothing:
            streams = nothing.fileno(), nothing.fileno(), nothing.fileno()
            served = Forked(command, folder=tmp_path, environment=environment, streams=streams)
        try:
            address, _, token = wait_for_text(opened).partition("#key=")
            assert "text/html" in httpx.get(address, headers={"Accept": "text/html"}).headers["content-type"]
            me = httpx.get(f"{address}api/me", headers={"Authorization": f"Bearer {token}"}).json()
            assert me["name"] == expected
            assert "run" in me["scopes"]
        finally:
            served.terminate()
            assert served.wait(30) == 0


def wait_for_text(path: Path) -> str:
    for _ in range(3000):
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.02)
    raise AssertionError("no browser was opened")
