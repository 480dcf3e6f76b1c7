"""`python -m tests.cluster.rows`: everything that can happen to a cluster, round after round, judged from outside.

Each row has a cluster of its own: servers, workers, PostgreSQL, Temporal and a model that logs every call. Its trials
follow each other; after the last one the journal of all runs is compared with the log.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from msgspec import Struct, field

from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.journal.store import read_run
from tests.cluster.harness import Cluster, Process, cluster, wait_for
from tests.cluster.judge import Verdict
from tests.cluster.namespaces import NoNamespaces, inside, namespace_link
from tests.cluster.proxy import TcpProxy

_TASKS = 40
_DRAINED_RUNS = 50
_DRAIN = 20.0
"""Seconds that a worker which is told to stop gives its calls, unless an option says otherwise."""
_CUTS = ("both", "there", "back", "reset")


class Trials(Struct):
    """What the trials of one row came to, in seconds."""

    done: int = 0
    skipped: str = ""
    """Why there were none."""
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
    """SIGSTOP of the worker that drives a run, and SIGCONT when another has taken over and writes.

    Some forty calls are under way when it stops: it has their results to write when it goes on.
    """
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


def worker_drained(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """SIGTERM of a worker that drives fifty runs, with a call under way in each."""
    victim, *others = made.workers
    with _frozen(others), ThreadPoolExecutor(8) as threads:  # the first run must not be over before the last begins
        errands = [made.next_errand() for _ in range(_DRAINED_RUNS)]
        runs = list(threads.map(made.begin, errands, [1] * _DRAINED_RUNS))
        wait_for("the worker drives all runs", lambda: _drives_all(victim, runs, made.drivers()))
    repeated = _made_again(made)
    seconds = victim.terminate()
    trials.note("process gone", seconds)
    at = time.time()
    for run in runs:
        made.wait_ended(run)
    trials.note("all ended", time.time() - at)
    if seconds > _DRAIN + 5:
        trials.problems.append(f"the worker ended {seconds:.1f} s after SIGTERM, with --drain {_DRAIN:.0f}s")
    if (again := _made_again(made) - repeated) > 0:
        trials.problems.append(f"{again} calls were made again after an orderly stop")
    for run in runs:
        for task in replay(read_run(made.store, run)).tasks.values():
            if (task.attempt, task.crashes) != (1, 0):
                trials.problems.append(f"{run}: attempt {task.attempt}, {task.crashes} crashes, after an orderly stop")


def _drives_all(process: Process, runs: Sequence[str], drivers: Mapping[str, Process]) -> bool:
    return all(drivers.get(run) is process for run in runs)


def _made_again(made: Cluster) -> int:
    """How often a call was made that had been made before."""
    begun = [(call.what, call.errand, call.part, call.turn) for call in made.calls() if call.phase == "begin"]
    return len(begun) - len(set(begun))


@contextmanager
def _frozen(workers: Sequence[Process]) -> Generator[None]:
    """Meanwhile these get nothing to do."""
    for worker in workers:
        worker.freeze()
    try:
        yield
    finally:
        for worker in workers:
            worker.thaw()


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


def store_partitioned(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """No network between one worker and PostgreSQL: one way or both, or every connection cut."""
    _partition(made, trials, to_engine=False)


def engine_partitioned(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """No network between one worker and Temporal: one way or both, or every connection cut."""
    _partition(made, trials, to_engine=True)


def _partition(made: Cluster, trials: Trials, *, to_engine: bool) -> None:
    with made.engine_proxy() if to_engine else made.store_proxy() as (network, url):
        worker = made.start_worker(engine=url) if to_engine else made.start_worker(store=url)
        worker.wait_ready()
        kind = _CUTS[trials.done % len(_CUTS)]
        _cut_off(made, trials, worker, kind, lose=lambda: _cut(network, kind), heal=network.heal)
        wait_for("the worker is ready again or gone", lambda: not worker.is_alive or worker.is_ready())
        worker.kill()
        made.workers.remove(worker)


def _cut(network: TcpProxy, kind: str) -> None:
    if kind == "reset":
        network.reset()
    elif kind in ("both", "there", "back"):
        network.lose(kind)


def _cut_off(
    made: Cluster,
    trials: Trials,
    worker: Process,
    kind: str,
    *,
    lose: Callable[[], None],
    heal: Callable[[], None],
) -> None:
    """Cut a worker off while it drives a run, until the run has ended."""
    with _frozen([other for other in made.workers if other is not worker]):
        run, driver = _begin(made, made.next_errand())
    assert driver is worker, f"{driver.name} drives the run, and is frozen"
    at = time.time()
    lose()
    try:
        made.wait_ended(run)
        trials.note(f"ended, {kind}", time.time() - at)
    finally:
        heal()
        worker.note_return()


def worker_unplugged(made: Cluster, trials: Trials, _chance: random.Random) -> None:
    """The link of a worker in a network namespace of its own goes down, and comes back when its run has ended."""
    with ExitStack() as stack:
        link = stack.enter_context(namespace_link(made.model_port))
        _, store = stack.enter_context(made.store_proxy(link.listen()))
        _, engine = stack.enter_context(made.engine_proxy(link.listen()))
        worker = made.start_worker(store=store, engine=engine, prefix=link.prefix)
        stack.callback(made.workers.remove, worker)
        stack.callback(worker.kill)
        wait_for("the worker is ready", lambda: inside(link.spoke, worker.is_ready))
        _cut_off(made, trials, worker, "unplugged", lose=link.lose, heal=link.heal)
        at = time.time()
        wait_for("the worker is ready again", lambda: inside(link.spoke, worker.is_ready))
        trials.note("ready again", time.time() - at)


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
        worker_drained,
        server_killed,
        temporal_killed,
        postgres_stopped,
        store_partitioned,
        engine_partitioned,
        worker_unplugged,
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


def play(name: str, times: int, seed: int, until: float) -> Trials:
    """All trials of one row; none begins after `until`, a moment of the monotonic clock."""
    trials = Trials()
    chance = random.Random(f"{name}/{seed}")
    with cluster() as made:
        _start(made, name)
        while trials.done < times and not trials.problems and not trials.skipped:
            if time.monotonic() > until:
                trials.problems.append(f"no time was left after {trials.done} of {times} trials")
                break
            try:
                ROWS[name](made, trials, chance)
                trials.done += 1
                made.replace_dead()
            except NoNamespaces as reason:
                trials.skipped = str(reason)
            except AssertionError as error:
                trials.problems.append(f"{name}: {error}")
        trials.verdict = made.verdict()
        trials.problems += trials.verdict.problems
        if trials.problems:
            _keep_logs(made, name)
    return trials


def _start(made: Cluster, name: str) -> None:
    milliseconds = {"cancelled": 60_000, "far_cancelled": 60_000, "worker_drained": 6_000}.get(name, 200)
    made.write_team(milliseconds=milliseconds, queue="far" if name.startswith("far") else "")
    if name == "far_driver_killed":
        made.start(servers=1, workers=0)
        for queues in ("errands", "errands", "far", "far"):
            made.start_worker("--queues", queues)
        made.replace_dead()
    else:
        made.start(servers=2, workers=2)


def _keep_logs(made: Cluster, name: str) -> None:
    for process in (*made.servers, *made.workers):
        print(f"--- {name}: the end of the log of {process.name}\n{process.text()[-1500:]}", file=sys.stderr)


def describe(name: str, trials: Trials) -> str:
    if trials.skipped:
        return f"{name:20} SKIPPED: {trials.skipped}"
    figures = "; ".join(
        f"{what} {min(seconds):.1f}-{max(seconds):.1f} s" for what, seconds in sorted(trials.figures.items())
    )
    return f"{name:20} {trials.done} trials: {trials.verdict}; {figures}"


def summarize(rows: Mapping[str, Trials], seconds: float) -> str:
    """One line with all counts."""
    verdicts = [trials.verdict for trials in rows.values()]
    counts = {
        "rows": len(rows),
        "trials": sum(trials.done for trials in rows.values()),
        "of them freezes": rows["worker_frozen"].done if "worker_frozen" in rows else 0,
        "runs": sum(verdict.runs for verdict in verdicts),
        "takeovers": sum(verdict.takeovers for verdict in verdicts),
        "stale appends": sum(len(verdict.epochs_go_back) for verdict in verdicts),
        "finished calls repeated": sum(len(verdict.repeated) for verdict in verdicts),
        "results lost": sum(len(verdict.lost) for verdict in verdicts),
        "runs not ended": sum(len(verdict.not_ended) for verdict in verdicts),
        "problems": sum(len(trials.problems) for trials in rows.values()),
        "rows skipped": sum(bool(trials.skipped) for trials in rows.values()),
    }
    return f"cluster-test: {', '.join(f'{name} {count}' for name, count in counts.items())}, {seconds:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.rows", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="trials of each row")
    parser.add_argument("--freezes", type=int, default=100, help="trials of the row worker_frozen")
    parser.add_argument(
        "--minutes", type=float, default=75, help="after so long no trial begins; those left are problems"
    )
    parser.add_argument("--row", choices=tuple(ROWS), action="append", help="only this one; repeatable")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    rows: dict[str, Trials] = {}
    for name in options.row or ROWS:
        times = options.freezes if name == "worker_frozen" else options.rounds
        rows[name] = play(name, times, options.seed, began + 60 * options.minutes)
        print(describe(name, rows[name]), flush=True)
        for problem in rows[name].problems[:10]:
            print(f"  WRONG: {problem}", flush=True)
    print(summarize(rows, time.monotonic() - began))
    return 1 if any(trials.problems for trials in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
