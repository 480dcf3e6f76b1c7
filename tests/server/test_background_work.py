"""Background workers of a served team work after its runs, as those of a team that is run from the command line."""

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.server.model_server import Answer, FakeModel, Question, fake_model
from tests.server.running import running, settings_in

_TEAM = """
version: 1
name: desk
defaults: {{model: "{handle}"}}
memory:
  blocks:
    notes: {{description: what we were asked}}
workers:
  clerk:
    description: Answers.
  librarian:
    prompt: LIBRARIAN keep the notes short.
    every: 2
    blocks: {{notes: write}}
"""
_PLAN = {"goal": "g", "tasks": {"t1": {"instruction": "Answer.", "worker": "clerk"}}, "combine": "forward"}


def think(question: Question) -> Answer | str:
    return json.dumps(_PLAN) if "Break the request into tasks" in question.system else "Done."


@contextmanager
def desk(folder: Path) -> Generator[tuple[FakeModel, httpx.Client]]:
    with fake_model(think) as model:
        team = folder / "team.yaml"
        team.write_text(_TEAM.format(handle=model.handle))
        with running(settings_in(folder / "data", teams=(team,), grace=0.5)) as server:
            headers = {"Authorization": f"Bearer {server.token}"}
            with httpx.Client(base_url=server.url, headers=headers, timeout=30) as client:
                yield model, client


def ask(client: httpx.Client, words: str) -> None:
    asked = {"model": "team/desk", "messages": [{"role": "user", "content": words}]}
    assert client.post("/v1/chat/completions", json=asked).status_code == 200


def background_runs(client: httpx.Client, count: int) -> list[Any]:
    """Return the background runs that ended, once there are so many."""
    for _ in range(100):
        runs: Any = client.get("/api/runs").json()["runs"]
        ended = [run for run in runs if run["run"].startswith("desk-librarian-") and run["state"] == "complete"]
        if len(ended) >= count:
            return ended
        time.sleep(0.05)
    raise AssertionError(f"there are fewer than {count} background runs")


def librarian_prompts(model: FakeModel) -> list[str]:
    return [question.user for question in model.questions if "LIBRARIAN" in question.system]


def test_a_background_worker_of_a_served_team_works_after_so_many_runs(tmp_path: Path) -> None:
    with desk(tmp_path) as (model, client):
        ask(client, "Request 1.")
        ask(client, "Request 2.")
        assert [run["run"] for run in background_runs(client, 1)] == ["desk-librarian-1"]
        ask(client, "Request 3.")
        assert len(librarian_prompts(model)) == 1, "it looked back on two runs, and waits for two more"
        ask(client, "Request 4.")
        assert len(background_runs(client, 2)) == 2
        first, second = librarian_prompts(model)
        assert "Request 1." in first
        assert "Request 2." in first
        assert "Request 1." not in second
        assert "Request 4." in second


def test_runs_before_a_restart_count(tmp_path: Path) -> None:
    with desk(tmp_path) as (model, client):
        ask(client, "Request 1.")
        assert librarian_prompts(model) == []
    with desk(tmp_path) as (model, client):
        ask(client, "Request 2.")
        background_runs(client, 1)
        [prompt] = librarian_prompts(model)
        assert "Request 1." in prompt
