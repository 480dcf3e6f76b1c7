"""`python -m bench.cluster_engine`: 1,000 tasks of 50 ms over two worker processes, beside the raw Temporal SDK.

`far`: every task is a run of its own on a queue. `near`: the process that drives the run makes the attempts; its floor
is a server that drives the run by itself (`--engine local`). All take turns on the same PostgreSQL and Temporal.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from temporalio.client import Client

from bench.table import Row, Target, rendered
from bench.temporal_raw import QUEUE, Naps
from chargehand.journal.store import read_run
from tests.cluster.harness import PATIENCE, ROOT, Cluster, Process, cluster

_TEAM = """
version: 1
name: errands
timeout: 15m
policy:
  limits: {{width: 500, max_tasks: 10000, fan_out: 10000}}
supervisor: {{combine: none}}
workers:
  runner: {{description: Naps., call: "naps:nap"{queue}}}
"""
_NAP = """
import asyncio
from chargehand import Done


async def nap(assignment, context):
    await asyncio.sleep(0.05)
    return Done("done")
"""


def _write_team(folder: Path, queue: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "team.yaml").write_text(_TEAM.format(queue=f", queue: {queue}" if queue else ""))
    (folder / "naps.py").write_text(_NAP)


def _seconds(made: Cluster, tasks: int, server: Process) -> float:
    """From the first entry of a run to its last."""
    run = made.begin(made.next_errand(), tasks, server)
    assert made.wait_ended(run, 3 * PATIENCE) == "complete"
    entries = read_run(made.store, run)
    return entries[-1].at - entries[0].at


@contextmanager
def _raw_workers(address: str, count: int) -> Generator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            command = [sys.executable, "-m", "bench.temporal_raw", address]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        yield


def _raw_seconds(address: str, tasks: int) -> float:
    async def work() -> float:
        client = await Client.connect(address)
        began = time.perf_counter()
        done = await client.execute_workflow(Naps.run, tasks, id=uuid4().hex, task_queue=QUEUE)
        assert done == tasks
        return time.perf_counter() - began

    return asyncio.run(work())


def measure(tasks: int, rounds: int) -> list[Row]:
    """Each contender in turn, so that a noisy minute hits all of them."""
    laps: dict[str, list[float]] = {"far": [], "raw": [], "near": [], "local": []}
    with cluster() as made, ExitStack() as stack:
        team = made.folder / "team"
        made.heartbeat = 15
        _write_team(team, "")
        near = [made.start_server(), made.start_worker()]
        local = made.start_server(engine="local")
        for process in (*near, local):
            process.wait_ready()
        stack.enter_context(_raw_workers(made.temporal.address, 2))
        contenders: dict[str, Callable[[], float]] = {
            "near": lambda: _seconds(made, tasks, near[0]),
            "local": lambda: _seconds(made, tasks, local),
            "raw": lambda: _raw_seconds(made.temporal.address, tasks),
        }
        for number in range(-1, rounds):
            for name, contender in contenders.items():
                seconds = contender()
                if number >= 0:
                    laps[name].append(seconds)
        for process in (*near, local):
            process.terminate()
        _write_team(team, "far")
        server = made.start_server()
        for queues in ("errands", "far", "far"):
            made.start_worker("--queues", queues, "--slots", "500")
        for process in (server, *made.workers[1:]):
            process.wait_ready()
        for number in range(-1, rounds):
            far, raw = _seconds(made, tasks, server), _raw_seconds(made.temporal.address, tasks)
            if number >= 0:
                laps["far"].append(far)
                laps["raw"].append(raw)
    what = f"{tasks:,} tasks of 50 ms"
    return [
        Row(
            f"{what}, each a run of its own, two workers; raw Temporal",
            "wall s",
            tuple(laps["far"]),
            tuple(laps["raw"]),
            Target("<=", 1.1, of="ratio"),
        ),
        Row(
            f"{what} in the process that drives the run; local engine",
            "wall s",
            tuple(laps["near"]),
            tuple(laps["local"]),
            Target("<=", 1.5, of="ratio"),
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_engine", description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = measure(options.tasks, options.rounds)
    print(rendered(rows))
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
