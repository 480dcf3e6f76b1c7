"""`chargehand serve --open` opens the page with a token that works."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx


def test_serve_opens_the_page_with_a_token_that_works(tmp_path: Path) -> None:
    opened = tmp_path / "address"
    browser = tmp_path / "browser"
    browser.write_text(f"#!{sys.executable}\nimport sys\nopen({str(opened)!r}, 'w').write(sys.argv[1])\n")
    browser.chmod(0o755)
    command = [sys.executable, "-m", "chargehand", "serve", "--open", "--port", "0", "--data", str(tmp_path / "data")]
    environment = {**os.environ, "BROWSER": f"{browser} %s"}
    environment.pop("CHARGEHAND_TOKEN", None)
    for expected in ("first", "browser"):  # the second time there is a token already, and its text is not kept
        opened.unlink(missing_ok=True)
        served = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            for _ in range(600):
                if opened.exists() and opened.read_text():
                    break
                time.sleep(0.1)
            address, _, token = opened.read_text().partition("#key=")
            assert "text/html" in httpx.get(address, headers={"Accept": "text/html"}).headers["content-type"]
            me = httpx.get(f"{address}api/me", headers={"Authorization": f"Bearer {token}"}).json()
            assert me["name"] == expected
            assert "run" in me["scopes"]
        finally:
            served.send_signal(signal.SIGTERM)
            assert served.wait(30) == 0
