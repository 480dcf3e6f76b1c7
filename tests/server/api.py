"""For tests of our own API: a real server with a small team whose tool waits until it is let go, and who calls it."""

import itertools
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from chargehand.server.middleware.gate import open_keys
from chargehand.server.middleware.keys import create_key
from chargehand.server.settings import key_store_url
from tests.server.running import Running, running, settings_in

GOAL = "What do 40 tomato seedlings cost?"
BOTH = "What do 40 tomato seedlings cost, and what do our notes say about planting out tomatoes?"
_TEAM = """
version: 1
name: garden
workers:
  reader:
    description: Finds what the garden's notes say about plants, watering, soil and dates.
    tools: [notes]
  buyer:
    description: Says what seedlings cost and adds up prices.
    tools: [seedling_price]
  clerk:
    description: Says what seedlings cost, by an older list.
    tools: [seedling_price]
tools:
  notes: {documents: notes/}
  seedling_price: {python: "tools:seedling_price"}
memory:
  blocks:
    rules: {value: "Prices are in euros.", share: read}
  archives:
    findings: {description: What earlier runs found out.}
examples:
  - What do 40 tomato seedlings cost?
"""
_TOOLS = '''
import time
from pathlib import Path

HELD = Path(__file__).with_name("held")
WAIT = 0.0


def seedling_price(plant: str, seedlings: int) -> str:
    """What so many seedlings of one plant cost, in euros: tomato or basil."""
    time.sleep(WAIT)
    for _ in range(1000):
        if not HELD.exists():
            break
        time.sleep(0.02)
    return f"{seedlings} {plant} seedlings at 1.20 euros each cost {seedlings * 1.2:.2f} euros."
'''
_TENANTS = itertools.count(1)
_NOTES = "# Tomatoes\n\nPlant out tomatoes after 15 May, when there is no more frost.\n"


def team_in(folder: Path, wait: float = 0.0) -> Path:
    """A team file. Its tool takes `wait` seconds, and as long as there is a file `held` beside it."""
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "tomatoes.md").write_text(_NOTES)
    (folder / "tools.py").write_text(_TOOLS.replace("WAIT = 0.0", f"WAIT = {wait}"))
    (folder / "team.yaml").write_text(_TEAM)
    return folder / "team.yaml"


class Garden:
    """A server with that team, and a client of it."""

    def __init__(self, server: Running, client: httpx.Client, folder: Path) -> None:
        self.server = server
        self.client = client
        self._folder = folder

    def hold(self) -> None:
        """Let the tool wait, from now on."""
        (self._folder / "held").touch()

    def let_go(self) -> None:
        (self._folder / "held").unlink()

    def free(self) -> "Garden":
        """As it was when it was opened, but for the runs: for tests that share one."""
        (self._folder / "held").unlink(missing_ok=True)
        return self

    def begin(self, goal: str = GOAL, **more: object) -> str:
        found = self.client.post("/api/runs", json={"team": "garden", "goal": goal, **more})
        assert found.status_code == 201, found.text
        return found.json()["run"]

    def show(self, run: str) -> dict[str, object]:
        found = self.client.get(f"/api/runs/{run}")
        assert found.status_code == 200, found.text
        return found.json()

    def state(self, run: str) -> str:
        return str(self.client.get(f"/api/runs/{run}").json()["summary"]["state"])

    def wait(self, run: str, *states: str) -> dict[str, object]:
        """The run, once it is in one of these states; in any but `running` where none is named."""
        for _ in range(1000):
            found = self.show(run)
            state = found["summary"]["state"]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType] - JSON
            if state in states or (not states and state != "running"):
                return found
            time.sleep(0.02)
        raise AssertionError(f"{run} is {self.state(run)}, not {states}")

    def tool_called(self, run: str) -> None:
        """Back when the tool was begun."""
        for _ in range(1000):
            entries = self.client.get(f"/api/runs/{run}/entries").json()["entries"]
            if any(one["event"].get("name") == "seedling_price" for one in entries):
                return
            time.sleep(0.02)
        raise AssertionError("the tool was not called")


@contextmanager
def garden(folder: Path, **changes: object) -> Generator[Garden]:
    team = folder / "team" / "team.yaml"
    if not team.exists():
        team_in(folder / "team")
    with (
        running(settings_in(folder / "data", teams=(team,), grace=0.5, **changes)) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield Garden(server, client, folder / "team")


class SharedGarden:
    """A server for many tests."""

    def __init__(self, home: Garden, folder: Path) -> None:
        self._home = home
        self._folder = folder

    @contextmanager
    def tenant(self) -> Generator[Garden]:
        """A tenant that has nothing yet; the tool is let go before and after."""
        server = new_tenant(self._home.server, self._folder)
        with httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client:
            home = Garden(server, client, self._folder / "team").free()
            yield home
            home.free()


@contextmanager
def shared_garden(folder: Path) -> Generator[SharedGarden]:
    with garden(folder) as home:
        yield SharedGarden(home, folder)


def new_tenant(server: Running, folder: Path) -> Running:
    """Return the same server with the key of a tenant that has nothing yet: for tests that share a server."""
    headers = key_for(folder, f"tenant-{next(_TENANTS)}", "admin", name="operator")
    return Running(server.port, headers["Authorization"].removeprefix("Bearer "))


def key_for(folder: Path, tenant: str, scope: str = "run", *, name: str = "for a test") -> dict[str, str]:
    """Headers with a new key of a tenant."""
    key, token = create_key(tenant, name, scope, time.time(), None)  # pyright: ignore[reportArgumentType] - a scope
    keys = open_keys(key_store_url(folder / "data"))
    keys.add(key)
    keys.close()
    return {"Authorization": f"Bearer {token}"}
