"""A real server of the incident team in a process of its own, with a scripted model behind it, that may be killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.page.incident_model import think
from tests.server.model_server import fake_model
from tests.server.running import TOKEN

TEAM = Path(__file__).parent / "incident"
SLOW = (
    "Why was checkout slow on 12 November, who was hit, and what do we tell them? Refund shipping for the worst cases."
)
CASCADE = "Why was checkout slow, going by the archive of the logs? Refund shipping for the worst cases."
PATIENCE = 60.0


class Shop:
    """A server that answers at `url`, until it is killed; `start` brings it up again at the same address."""

    def __init__(self, data: Path, model: str) -> None:
        self.data = data
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)
        self._environment = {**os.environ, "CHARGEHAND_TOKEN": TOKEN, "INCIDENT_MODEL": "openrouter:demo/large"}
        self._environment |= {"OPENROUTER_BASE_URL": model, "OPENROUTER_API_KEY": "sk-or-not-a-key"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "chargehand", "serve", "--team", str(TEAM), "--port", str(self.port)]
        command += ["--data", str(self.data), "--grace", "0.1s"]
        self._process = subprocess.Popen(command, env=self._environment, stdout=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if self.client.get("/healthz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def begin(self, goal: str = SLOW, **more: object) -> str:
        reply = self.client.post("/api/runs", json={"team": "incident", "goal": goal, **more})
        assert reply.status_code == 201, reply.text
        return reply.json()["run"]

    def show(self, run: str) -> dict[str, Any]:
        return self.client.get(f"/api/runs/{run}").json()

    def wait(self, run: str, *states: str) -> dict[str, Any]:
        """The run when it is in one of these states."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            shown = self.show(run)
            if shown["summary"]["state"] in states:
                return shown
            time.sleep(0.1)
        raise AssertionError(f"{run} did not come to {states}: {self.show(run)['summary']}")

    def approve(self, run: str) -> httpx.Response:
        number = self.show(run)["question"]["number"]
        return self.client.post(f"/api/runs/{run}/answer", json={"number": number, "verdict": "approve"})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def open_shop(data: Path) -> Generator[Shop]:
    with fake_model(think) as model:
        shop = Shop(data, model.url)
        shop.start()
        try:
            yield shop
        finally:
            shop.stop()
            shop.client.close()
