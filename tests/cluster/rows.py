"""`python -m tests.cluster.rows`: everything that can happen to a cluster, so many times, judged from outside.

Each row has a cluster of its own: servers, workers, PostgreSQL, Temporal and a model that logs every call. Its trials
follow each other; after the last one the journal of all runs is compared with the log.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from msgspec import Struct, field

from chargehand.engine import events as ev
from chargehand.journal.store import read_run
from tests.cluster.harness import Cluster, Process, cluster, wait_for
from tests.cluster.judge import Verdict

_TASKS = 40


class Trials(Struct):
    """What the trials of one row came to, in seconds."""

    figures: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    verdict: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list[str])

    def note(self, name: str, seconds: float) -> None:
        self.figures.setdefault(name, []).append(seconds)


Row = Callable[[Cluster, Trials, random.Random], None]


def _begin(made: Cluster, errand: str, tasks: int = _TASKS) -> tuple[str, Process]:
    """A run whose work is well under way, and the process that drives it."""
    before = sum(call.phase == "end" for call in made.calls())
    run = made.begin(errand, tasks)
    made.wait_calls(before + tasks // 2, "end")
    return run, wait_for(f"{run} is driven", lambda: made.driver_of(run))


def _taken_over(made: Cluster, run: str, since: float) -> float:
    """Seconds from a moment until another process drove the run."""

    def look() -> float | None:
        resumed = [entry.at for entry in read_run(made.store, run) if isinstance(entry.event, ev.RunResumed)]
        return max((at - since for at in resumed if at > since), default=None)

    return wait_for(f"{run} is taken over", look)


# --- processes


def worker_killed(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """kill -9 of the worker that drives a run."""
    run, driver = _begin(made, made.next_errand())
    at = time.time()
    driver.kill()
    trials.note("taken over", _taken_over(made, run, at))
    made.wait_ended(run)


def worker_terminated(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """SIGTERM of the worker that drives a run."""
    run, driver = _begin(made, made.next_errand())
    at = time.time()
    trials.note("process gone", driver.terminate())
    trials.note("taken over", _taken_over(made, run, at))
    made.wait_ended(run)


def worker_frozen(made: Cluster, trials: Trials, chance: random.Random) -> None:
    """SIGSTOP of the worker that drives a run, and SIGCONT when another has taken over."""
    run, driver = _begin(made, made.next_errand())
    at = time.time()
    driver.freeze()
    try:
        trials.note("taken over", _taken_over(made, run, at))
        made.wait_calls(len([call for call in made.calls() if call.phase == "end"]) + chance.randrange(20), "end")
    finally:
        driver.thaw()
    made.wait_ended(run)


def server_killed(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """kill -9 of the server that began a run, as soon as it has acknowledged it."""
    run = made.begin(made.next_errand(), _TASKS, made.servers[0])
    at = time.time()
    made.servers[0].kill()
    made.wait_ended(run)
    trials.note("ended", time.time() - at)


# --- servers


def temporal_killed(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """kill -9 of Temporal, back after three seconds, with its data."""
    run, _ = _begin(made, made.next_errand())
    at = time.time()
    made.temporal.kill()
    time.sleep(3)
    made.temporal.start()
    made.wait_ended(run)
    trials.note("ended", time.time() - at)


def postgres_stopped(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """An immediate stop of PostgreSQL, back after five seconds."""
    run, _ = _begin(made, made.next_errand())
    made.postgres.stop()
    time.sleep(5)
    made.postgres.start()
    at = time.time()
    made.wait_ended(run)
    trials.note("ended after it was back", time.time() - at)


# --- networks


def store_partitioned(made: Cluster, trials: Trials, chance: random.Random) -> None:
    """No network between one worker and PostgreSQL: one way or both, or every connection cut."""
    _partition(made, trials, chance, to_engine=False)


def engine_partitioned(made: Cluster, trials: Trials, chance: random.Random) -> None:
    """No network between one worker and Temporal: one way or both, or every connection cut."""
    _partition(made, trials, chance, to_engine=True)


def _partition(made: Cluster, trials: Trials, chance: random.Random, *, to_engine: bool) -> None:
    with ExitStack() as stack:
        network, url = stack.enter_context(made.engine_proxy() if to_engine else made.store_proxy())
        worker = made.start_worker(engine=url) if to_engine else made.start_worker(store=url)
        stack.callback(worker.kill)
        worker.wait_ready()
        others = [other for other in made.workers if other is not worker]
        for other in others:  # so that the one behind the network gets the run
            other.freeze()
        try:
            run, _ = _begin(made, made.next_errand())
        finally:
            for other in others:
                other.thaw()
        kind = chance.choice(("both", "there", "back", "reset"))
        at = time.time()
        if kind == "reset":
            network.reset()
        else:
            network.lose(kind)
        stack.callback(network.heal)
        made.wait_ended(run)
        trials.note(f"ended, {kind}", time.time() - at)
        network.heal()
        wait_for("the worker is ready again or gone", lambda: not worker.is_alive or worker.is_ready())
        worker.kill()
        made.workers.remove(worker)


# --- commands


def cancelled(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """Cancel a run of 40 calls from a server that does not drive it."""
    errand = made.next_errand()
    run = made.begin(errand, _TASKS)
    began = wait_for(
        "all calls are under way",
        lambda: {call.part for call in made.calls() if call.errand == errand} >= set(range(_TASKS)),
    )
    assert began
    at = time.time()
    made.call("POST", f"/api/runs/{run}/cancel", {})
    made.wait_ended(run)
    del made.acknowledged[run]  # it is not complete, as it should be
    trials.note("acknowledged", time.time() - at)

    def look() -> float | None:
        calls = [call for call in made.calls() if call.errand == errand and call.what == "model"]
        last = {(call.part, call.turn): call for call in calls}
        open_calls = [call for call in last.values() if call.phase == "begin"]
        return None if open_calls else max(call.at for call in last.values())

    trials.note("last call cut", wait_for("every call is over", look) - at)
    later = [call for call in made.calls() if call.errand == errand and call.phase == "begin" and call.at > at + 2]
    trials.problems += [f"{call} began after the run was cancelled" for call in later]


NEAR: Mapping[str, Row] = {
    row.__name__: row
    for row in (
        worker_killed,
        worker_terminated,
        worker_frozen,
        server_killed,
        temporal_killed,
        postgres_stopped,
        store_partitioned,
        engine_partitioned,
        cancelled,
    )
}
"""Rows whose attempts are made by the process that drives the run."""


def far_worker_killed(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """kill -9 of a process that makes attempts of a run another drives."""
    run, driver = _begin(made, made.next_errand())
    victim = next(worker for worker in made.workers if worker is not driver)
    victim.kill()
    at = time.time()
    made.wait_ended(run)
    trials.note("ended", time.time() - at)


def far_driver_killed(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """kill -9 of the driver: its attempts go on elsewhere, and nothing is repeated."""
    run, driver = _begin(made, made.next_errand())
    at = time.time()
    driver.kill()
    trials.note("taken over", _taken_over(made, run, at))
    made.wait_ended(run)


FAR: Mapping[str, Row] = {"far_cancelled": cancelled, "far_worker_killed": far_worker_killed}
"""Rows whose attempts are runs of their own, on a queue."""
ROWS: Mapping[str, Row] = {**NEAR, **FAR, "far_driver_killed": far_driver_killed}


def play(name: str, times: int, seed: int) -> Trials:
    """All trials of one row."""
    trials = Trials()
    chance = random.Random(f"{name}/{seed}")
    with cluster() as made:
        is_slow = name.endswith("cancelled")
        made.write_team(milliseconds=60_000 if is_slow else 200, queue="far" if name.startswith("far") else "")
        if name == "far_driver_killed":
            made.start(servers=1, workers=0)
            for queues in ("errands", "errands", "far", "far"):
                made.start_worker("--queues", queues)
            made.replace_dead()
        else:
            made.start(servers=2, workers=2)
        for _ in range(times):
            try:
                ROWS[name](made, trials, chance)
            except AssertionError as error:
                trials.problems.append(f"{name}: {error}")
                break
            made.replace_dead()
        trials.verdict = made.verdict()
        trials.problems += trials.verdict.problems
        if trials.problems:
            _keep_logs(made, name)
    return trials


def _keep_logs(made: Cluster, name: str) -> None:
    for process in (*made.servers, *made.workers):
        print(f"--- {name}: the end of the log of {process.name}\n{process.text()[-1500:]}", file=sys.stderr)


def describe(name: str, trials: Trials) -> str:
    figures = "; ".join(
        f"{what} {min(seconds):.1f}-{max(seconds):.1f} s" for what, seconds in sorted(trials.figures.items())
    )
    return f"{name:20} {trials.verdict}; {figures}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.rows", description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="trials of each row")
    parser.add_argument("--row", choices=tuple(ROWS), action="append", help="only this one; repeatable")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    is_well = True
    for name in options.row or ROWS:
        trials = play(name, options.times, options.seed)
        print(describe(name, trials), flush=True)
        for problem in trials.problems[:10]:
            print(f"  WRONG: {problem}")
        is_well = is_well and not trials.problems
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
