"""A part that a worker left of its task, at every door: whoever asks how the run ended is told that it is partial."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.server.model_server import Question, fake_model
from tests.server.running import Running, running, settings_in

PEARS = "Count the pears in the loft."
GAP = {"task": "", "status": "unserved", "reason": "unserved", "message": PEARS}
_TEAM = """
version: 1
name: desk
defaults: {{model: "{handle}"}}
workers:
  counter:
    description: Counts things.
"""
_PLAN = {"goal": "g", "tasks": {"t1": {"instruction": f"Count. {PEARS}", "worker": "counter"}}, "combine": "forward"}


@contextmanager
def desk(folder: Path) -> Generator[tuple[Running, httpx.Client]]:
    """A server whose only worker does a part."""

    def think(question: Question) -> str:
        plans = "Break the request into tasks" in question.system
        return json.dumps(_PLAN) if plans else f"There are 12 apples.\n\nNot answered here: {PEARS}"

    with fake_model(think) as model:
        team = folder / "team.yaml"
        team.write_text(_TEAM.format(handle=model.handle))
        with running(settings_in(folder / "data", teams=(team,), grace=0.5)) as server:
            headers = {"Authorization": f"Bearer {server.token}"}
            with httpx.Client(base_url=server.url, headers=headers, timeout=30) as client:
                yield server, client


def test_every_door_tells_partial(tmp_path: Path) -> None:
    with desk(tmp_path) as (_, client):
        asked = {"model": "team/desk", "messages": [{"role": "user", "content": "Count."}]}
        chat: Any = client.post("/v1/chat/completions", json=asked).json()
        run = chat["chargehand"]["run"]
        assert chat["chargehand"]["ending"] == "partial"
        assert PEARS in chat["choices"][0]["message"]["content"]
        shown: Any = client.get(f"/api/runs/{run}").json()
        assert (shown["summary"]["state"], shown["summary"]["reason"], shown["summary"]["gaps"]) == (
            "partial",
            "gaps",
            1,
        )
        assert shown["gaps"] == [GAP]
        listed: Any = client.get("/api/runs", params={"state": "partial"}).json()
        assert [one["run"] for one in listed["runs"]] == [run]
        stream = client.get(f"/api/runs/{run}/events", headers={"Accept": "text/event-stream"}).text
        last = json.loads(
            [line for line in stream.splitlines() if line.startswith("data: ")][-1].removeprefix("data: ")
        )
        assert last["event"] == {"type": "run.ended", "ending": "partial", "reason": "gaps", "gaps": [GAP]}
        assert 'chargehand_runs_total{ending="partial",team="desk"} 1.0' in client.get("/metrics").text
        again: Any = client.post(f"/api/runs/{run}/cancel").json()
        assert "(partial)" in json.dumps(again)
        alone: Any = client.post("/v1/chat/completions", json={**asked, "model": "team/desk:counter"}).json()
        assert alone["chargehand"]["ending"] == "partial"
