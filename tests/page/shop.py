"""A real server in a process of its own, with a scripted model behind it, that may be killed. It has three
teams: the incident team, which the scripted model leads, a routed one, which needs no model, and a hostile one.
"""

import os
import shutil
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

from tests.page.hostile_team import NAME, write_hostile_team
from tests.page.incident_model import IncidentModel
from tests.server.model_server import fake_model
from tests.server.running import TOKEN
from tests.wheel import NOT_OURS, ROOT

TEAMS = {"incident": Path(__file__).parent / "incident", "expert_router": ROOT / "teams" / "expert_router"}
SLOW = (
    "Why was checkout slow on 12 November, who was hit, and what do we tell them? Refund shipping for the worst cases."
)
CASCADE = "Why was checkout slow, going by the archive of the logs? Refund shipping for the worst cases."
LONG_TASK = "caused the slowdown"
"""Words of the task t5, which most others wait for; see `IncidentModel.hold`."""
DEMO_PACE = 0.2
"""How long a second of the script takes, in seconds: slow enough to watch."""
QUICK_PACE = 0.01
PATIENCE = 60.0


class Shop:
    """A server that answers at `url`, until it is killed; `start` brings it up again at the same address."""

    def __init__(self, data: Path, python: Path, model: IncidentModel, model_url: str, pace: float) -> None:
        self.data = data
        self.model = model
        self.python = python
        self.teams = [*(data / "teams" / name for name in TEAMS), data / "teams" / NAME]
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)
        self._environment = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
        self._environment |= {"CHARGEHAND_TOKEN": TOKEN, "INCIDENT_MODEL": "openrouter:demo/large"}
        self._environment["INCIDENT_PACE"] = str(pace)
        self._environment |= {"OPENROUTER_BASE_URL": model_url, "OPENROUTER_API_KEY": "sk-or-not-a-key"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["serve", "--port", str(self.port), "--data", str(self.data), "--grace", "0.1s"]
        command += ["--price", "0.01/0.01"]  # reserved before a call; the model itself says what it cost
        for team in self.teams:
            command += ["--team", str(team)]
        words = [self.python, "-m", "chargehand", *command]
        self._process = subprocess.Popen(words, env=self._environment, stdout=subprocess.DEVNULL, cwd=self.data)
        for _ in range(600):
            try:
                if self.client.get("/healthz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def command(self, *words: str) -> str:
        """Run the command line beside the server; whatever it ends with, what it printed."""
        done = subprocess.run(
            [self.python, "-m", "chargehand", *words],
            env=self._environment,
            cwd=self.data,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        return done.stdout + done.stderr

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
            time.sleep(0.01)
        raise AssertionError(f"{run} did not come to {states}: {self.show(run)['summary']}")

    def wait_for_tasks(self, run: str, *names: str) -> None:
        """Until these tasks are done or have failed."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            tasks = self.show(run)["tasks"]
            if set(names) <= {task["id"] for task in tasks if task["status"] in ("done", "failed")}:
                return
            time.sleep(0.01)
        raise AssertionError(f"{run} did not settle {names}: {self.show(run)['tasks']}")

    def approve(self, run: str) -> httpx.Response:
        number = self.show(run)["question"]["number"]
        return self.client.post(f"/api/runs/{run}/answer", json={"number": number, "verdict": "approve"})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def open_shop(data: Path, python: Path = Path(sys.executable), *, pace: float = DEMO_PACE) -> Generator[Shop]:
    """`python` is where the package is installed; left out, that of the tests."""
    for name, folder in TEAMS.items():
        shutil.copytree(folder, data / "teams" / name, ignore=shutil.ignore_patterns(".chargehand", "__pycache__"))
    write_hostile_team(data / "teams" / NAME)
    model = IncidentModel(pace)
    with fake_model(model.think) as served:
        shop = Shop(data, python, model, served.url, pace)
        shop.start()
        try:
            yield shop
        finally:
            shop.stop()
            shop.client.close()
