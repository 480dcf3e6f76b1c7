"""A worker with a queue in a process of its own: real servers, workers, PostgreSQL and Temporal."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import httpx
import pytest

from tests.cluster.harness import PATIENCE, TOKEN, Cluster, cluster, wait_for
from tests.postgres import PostgresServer
from tests.support.hunts import hunt_size
from tests.temporal import TemporalServer

_TEAM = """
version: 1
name: studio
defaults:
  model: openai+http://127.0.0.1:{port}/v1#work-10-1
timeout: 5m
policy:
  limits: {{width: 100, max_tasks: 100, fan_out: 100}}
supervisor: {{combine: none}}
workers:
  clerk: {{description: Runs errands., tools: [note], queue: gpu}}
  renderer: {{description: Renders scenes., call: "render:render", queue: gpu}}
tools:
  note: {{python: "tools.py:note", effect: effect, approve: true}}
"""
_RENDER = """
import asyncio, os, time
from pathlib import Path

LOG = Path({log!r})


def write(what, task):
    with LOG.open("a") as file:
        file.write(f"{{what}} {{task}} {{time.time()}} {{os.getpid()}}\\n")


async def render(assignment, context):
    write("begin", assignment.task)
    try:
        for frame in range(600):
            if context.heard:
                context.say(f"frame {{frame}} ")
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        write("cancelled", assignment.task)
        raise
    return "rendered"
"""


class Studio:
    """A server, a process that drives runs, and one that serves only the queue of two workers."""

    def __init__(self, made: Cluster, port: int) -> None:
        self.cluster = made
        self.log = made.folder / "render.log"
        folder = made.write_team(tool_seconds=0)
        (folder / "team.yaml").write_text(_TEAM.format(port=port))
        (folder / "render.py").write_text(_RENDER.format(log=str(self.log)))
        self.server = made.start_server()
        self.driver = made.start_worker("--queues", "studio", "--heartbeat", "5s")
        self.far = made.start_worker("--queues", "gpu", "--heartbeat", "5s")
        for process in (self.server, self.driver, self.far):
            process.wait_ready()

    def begin(self, worker: str, count: int = 1) -> str:
        tasks = [
            {"id": f"t{number}", "instruction": f"errand e part p{number}", "worker": worker} for number in range(count)
        ]
        body = {"team": "studio", "goal": "errand e", "plan": {"tasks": tasks, "combine": "none"}}
        return str(self.cluster.call("POST", "/api/runs", body)["run"])

    def lines(self, what: str, since: float) -> list[tuple[float, int]]:
        """When something happened in a call, and in which process."""
        if not self.log.exists():
            return []
        rows = [line.split() for line in self.log.read_text().splitlines()]
        return [(float(row[2]), int(row[3])) for row in rows if row[0] == what and float(row[2]) >= since]


@pytest.fixture(scope="module")
def studio(postgres: PostgresServer, temporal: TemporalServer) -> Iterator[Studio]:
    with cluster(postgres, temporal) as made:
        yield Studio(made, made.model_port)


def test_a_person_approves_a_call_of_a_worker_in_another_process(studio: Studio) -> None:
    run = studio.begin("clerk")
    made = studio.cluster
    wait_for("a question", lambda: made.state(run) == "needs_input")
    assert made.calls() == [] or all(call.what == "model" for call in made.calls())
    (question,) = _questions(studio, run)
    assert (question["tool"], question["workers"]) == ("note", ["clerk"])
    made.call("POST", f"/api/runs/{run}/answer", {"number": question["number"], "verdict": "approve"})
    assert made.wait_ended(run) == "complete"
    tools = {call.process for call in made.calls() if call.what == "tool"}
    assert tools == {studio.far.name}


def _questions(studio: Studio, run: str) -> list[dict[str, Any]]:
    entries = cast("list[dict[str, Any]]", studio.cluster.call("GET", f"/api/runs/{run}/entries")["entries"])
    asked = [entry["event"] for entry in entries if entry["event"]["type"] == "input.requested"]
    return [{**event["question"], "number": event["number"]} for event in asked]


def test_cancelling_a_run_stops_forty_calls_in_another_process(studio: Studio) -> None:
    began = time.time()
    run = studio.begin("renderer", 40)
    wait_for("forty calls", lambda: len(studio.lines("begin", began)) == 40)
    assert {process for _, process in studio.lines("begin", began)} == {studio.far.pid}
    cancelled = time.time()
    studio.cluster.call("POST", f"/api/runs/{run}/cancel", {"reason": "enough"})
    stopped = wait_for("forty stops", lambda: (lines := studio.lines("cancelled", began))[39:] and lines)
    assert studio.cluster.wait_ended(run) == "cancelled"
    last = max(at for at, _ in stopped) - cancelled
    assert last < PATIENCE / 10, "well below half a second on a machine that is not busy"


def test_what_a_worker_says_in_another_process_is_streamed_by_the_server(studio: Studio) -> None:
    run = studio.begin("renderer")
    url = f"{studio.server.url}/api/runs/{run}/events?words=true"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.stream("GET", url, headers=headers, timeout=PATIENCE) as stream, closing(stream):
        name = ""
        for line in stream.iter_lines():
            name = line.removeprefix("event: ") if line.startswith("event: ") else name
            if name == "words" and line.startswith("data: "):
                words = json.loads(line.removeprefix("data: "))
                break
        else:
            pytest.fail("the stream ended without words")
    assert (words["run"], words["work"], words["task"], words["attempt"]) == (run, "attempt", "t0", 1)
    assert words["text"].startswith("frame ")
    studio.cluster.call("POST", f"/api/runs/{run}/cancel", {"reason": "enough"})
    assert studio.cluster.wait_ended(run) == "cancelled"


@pytest.mark.slow("five processes start, and two of them are killed one after another")
def test_killed_processes_of_a_worker_and_of_its_run_repeat_only_calls_under_way(
    postgres: PostgresServer, temporal: TemporalServer
) -> None:
    with cluster(postgres, temporal) as made:
        made.write_team(milliseconds=300, tool_calls=2, queue="gpu")
        server = made.start_server()
        drivers = [made.start_worker("--queues", "errands") for _ in range(2)]
        far = [made.start_worker("--queues", "gpu") for _ in range(2)]
        for process in (server, *drivers, *far):
            process.wait_ready()
        tasks = hunt_size(quick=8, thorough=20)
        run = made.begin("e1", tasks)
        made.wait_calls(tasks * 3 // 4, "end")
        far[0].kill()
        assert made.wait_ended(run) == "complete"
        repeated = made.verdict()
        assert repeated.problems == []
        run = made.begin("e2", tasks)
        made.wait_calls(len([call for call in made.calls() if call.phase == "end"]) + tasks // 2, "end")
        drivers[0].kill()
        assert made.wait_ended(run) == "complete"
        assert made.verdict().problems == []
        assert made.verdict().in_flight == repeated.in_flight, "what runs elsewhere goes on when its run's process dies"


@pytest.mark.timeout(180)
@pytest.mark.slow("a server and a worker start with a team of their own")
def test_the_function_of_a_team_decides_in_the_process_that_drives_its_run(
    postgres: PostgresServer, temporal: TemporalServer
) -> None:
    options = ("--team", "tests.cluster.desk:desk")
    with cluster(postgres, temporal) as made:
        for process in (made.start_server(*options), made.start_worker(*options)):
            process.wait_ready()
        run = str(made.call("POST", "/api/runs", {"team": "desk", "goal": "Refund me."})["run"])

        def second_question() -> int | None:
            question = cast("dict[str, Any] | None", made.call("GET", f"/api/runs/{run}")["asks"])
            return question["number"] if question and "500" in question["text"] else None

        number = wait_for("what the function leaves open is asked of a person", second_question)
        entries = cast("list[dict[str, Any]]", made.call("GET", f"/api/runs/{run}/entries")["entries"])
        answers = [entry["event"]["verdict"] for entry in entries if entry["event"]["type"] == "input.answered"]
        assert answers == ["approve"], "the function approved the small one"
        made.call("POST", f"/api/runs/{run}/answer", {"number": number, "verdict": "approve"})
        assert made.wait_ended(run) == "complete"
