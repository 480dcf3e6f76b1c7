"""Texts of 100 kB that are made to take long, wherever a client can send one: others are served meanwhile."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from chargehand.server.settings import ServerLimits
from tests.server.api import BOTH, team_in
from tests.server.hostile import KINDS, hostile_text
from tests.server.model_server import Answer, FakeModel, Question, fake_model
from tests.server.running import running, settings_in
from tests.support.hunts import hunt_size

LENGTH = 100_000
LONGEST_WAIT = 0.5
"""Seconds of work in this process until `/healthz` answers, whatever else is asked."""
_ECHO = 4_000
_LED = {
    "garden": "",
    "routed": "supervisor: {strategy: {route: {router: words}}}",
    "stepwise": "supervisor: {strategy: {loop: {}}}",
    "split": "supervisor: {strategy: {recursive: {}}}",
}


class Health:
    """Asks `/healthz` all the time, and keeps how long the slowest answer took.

    Time in which this process did nothing does not count: others had the machine.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._asked = self._now()
        self._slowest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def take_slowest(self) -> float:
        """The slowest answer since this was called last."""
        slowest = max(self._slowest, self._waited())
        self._slowest = 0.0
        return slowest

    def stop(self) -> None:
        self._over.set()
        self._thread.join(10)

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.monotonic(), time.process_time()

    def _waited(self) -> float:
        """Seconds since it was asked last, by the clock or of work, whichever is less."""
        asked, worked = self._asked
        return min(time.monotonic() - asked, time.process_time() - worked)

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._over.wait(0.01):
                self._asked = self._now()
                client.get("/healthz")
                self._slowest = max(self._slowest, self._waited())
                self._asked = self._now()


class Place:
    """A server with teams, agents and an archive, somebody who sends texts to it, and who looks after its health."""

    def __init__(self, client: httpx.Client, model: FakeModel, health: Health) -> None:
        self.client = client
        self.health = health
        self.agents = {
            name: self._make_agent(name, handle) for name, handle in (("rules", "demo"), ("model", model.handle))
        }
        self.archive = client.post("/v1/archives/", json={"name": "finds"}).json()["id"]

    def _make_agent(self, name: str, model: str) -> str:
        return self.client.post("/v1/agents/", json={"name": name, "model": model}).json()["id"]

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.client.post(path, json=body)

    def run(self, team: str, text: str) -> httpx.Response:
        """Begin a run and wait for its end."""
        begun = self.post("/api/runs", team=team, goal=text)
        assert begun.status_code == 201, begun.text
        path, seen = f"/api/runs/{begun.json()['run']}/entries", 0
        while True:
            shown = self.client.get(path, params={"after": seen})
            entries = shown.json()["entries"]
            if any(entry["event"]["type"] == "run.ended" for entry in entries):
                return shown
            seen = entries[-1]["seq"] if entries else seen
            time.sleep(0.02)

    def search(self, team: str, text: str) -> httpx.Response:
        """Look for it in a team's memory: what is too long is refused, and looked for as far as it may be."""
        assert self.post(f"/api/teams/{team}/search", query=text).status_code in (200, 422)
        return self.post(f"/api/teams/{team}/search", query=text[:10_000])

    def chat(self, model: str, *texts: str) -> httpx.Response:
        messages = [{"role": "user", "content": text} for text in texts]
        return self.post("/v1/chat/completions", model=model, messages=messages)

    def say(self, agent: str, text: str) -> httpx.Response:
        messages = [{"role": "user", "content": text}]
        return self.post(f"/v1/agents/{self.agents[agent]}/messages", messages=messages)


def _think(question: Question) -> Answer | str:
    """A plan of one task that repeats the request; from workers what they were sent."""
    if "Break the request into tasks" in question.system:
        task = {"instruction": question.user[-_ECHO:], "worker": "reader"}
        return json.dumps({"goal": "it", "tasks": {"t1": task}, "combine": "merge"})
    return question.user.replace(" ", "_")[-_ECHO:]  # a word at a time is streamed: not a hundred thousand of them


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("hostile")
    with fake_model(_think) as model:
        led = {**_LED, "modelled": f'defaults: {{model: "{model.handle}"}}'}
        files: list[Path] = []
        for name, lines in led.items():
            file = team_in(folder / name)
            file.write_text(file.read_text().replace("name: garden", f"name: {name}\n{lines}"))
            files.append(file)
        settings = settings_in(folder / "data", teams=tuple(files), limits=ServerLimits(calls=1_000_000))
        with (
            running(settings) as server,
            httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client,
        ):
            health = Health(server.url)
            yield Place(client, model, health)
            health.stop()


Send = Callable[[Place, str], httpx.Response]
_SENT: dict[str, Send] = {
    "a plan": lambda place, text: place.post("/api/teams/garden/plan", goal=text),
    "a search in a team's memory": lambda place, text: place.search("garden", text),
    "a message to an agent": lambda place, text: place.say("model", text),
    "a passage": lambda place, text: place.post(f"/v1/archives/{place.archive}/passages", text=text[:20_000]),
    "a search in passages": lambda place, text: place.post("/v1/passages/search", query=text),
    "a block": lambda place, text: place.post("/v1/blocks/", label="notes", value=text, limit=200_000),
    "a run led by rules": lambda place, text: place.run("garden", text),
    "a run whose model makes no plan": lambda place, text: place.run("modelled", text),
    "a routed run": lambda place, text: place.run("routed", text),
    "a run led step by step": lambda place, text: place.run("stepwise", text),
    "a run split in parts": lambda place, text: place.run("split", text),
    "a chat with a team": lambda place, text: place.chat("garden", text),
    "a chat about what was said before": lambda place, text: place.chat("garden", text, BOTH),
    "a chat with a team that has a model": lambda place, text: place.chat("modelled", text),
    "a chat with a worker": lambda place, text: place.chat("team/modelled:buyer", text),
    "a response": lambda place, text: place.post("/v1/responses", model="garden", input=text),
    "a message to an agent of rules": lambda place, text: place.say("rules", text),
}


_KINDS_AN_ENTRY = hunt_size(quick=3, thorough=len(KINDS))


def kinds_for(entry: str) -> list[str]:
    """Return the kinds of text to send there. The quick size deals all kinds out to the entries in turn."""
    first = list(_SENT).index(entry) * _KINDS_AN_ENTRY
    return [KINDS[number % len(KINDS)] for number in range(first, first + _KINDS_AN_ENTRY)]


@pytest.mark.parametrize("entry", _SENT)
def test_hostile_texts_do_not_keep_others_waiting(place: Place, entry: str) -> None:
    send = _SENT[entry]
    send(place, BOTH)  # what is imported at the first call of all is not what is measured
    place.health.take_slowest()
    for kind in kinds_for(entry):
        response = send(place, f"{BOTH} {hostile_text(kind, LENGTH)} x?")
        assert response.status_code == 200 or _is_too_long(response), (kind, response.text[:300])
        waited = place.health.take_slowest()
        assert waited < LONGEST_WAIT, f"{kind}: /healthz answered after {waited:.2f} s"


def _is_too_long(response: httpx.Response) -> bool:
    """Whether it says that the demo model refused the text for its length, and so the run failed."""
    refused = response.json().get("error", {})
    return refused.get("code") == "run_failed" and "longer than 4,000 characters" in refused["message"]


def test_texts_that_the_demo_model_reads_do_not_keep_others_waiting(place: Place) -> None:
    """Longer ones it refuses before it reads them."""
    for kind in KINDS[:: hunt_size(quick=8, thorough=1)]:
        response = place.run("garden", f"{BOTH} {hostile_text(kind, 3_800)} x?")
        assert response.status_code == 200, (kind, response.text[:300])
        waited = place.health.take_slowest()
        assert waited < LONGEST_WAIT, f"{kind}: /healthz answered after {waited:.2f} s"
