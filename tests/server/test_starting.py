"""A server starts on an empty folder, says how it is, and stops."""

from pathlib import Path

import httpx

from tests.server.running import running, settings_in


def test_a_fresh_server_says_that_it_lives_and_takes_work(tmp_path: Path) -> None:
    with running(settings_in(tmp_path)) as one, httpx.Client(base_url=one.url, headers=one.headers) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json()["status"] == "ready"
        assert "chargehand is running" in client.get("/").text
