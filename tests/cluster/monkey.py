"""`python -m tests.cluster.monkey`: runs by the hundred, and every few seconds something happens to the cluster.

Processes are killed, stopped and frozen, Temporal and PostgreSQL are killed and come back, networks are cut. In the end
every run must be complete, and no call may have been made after its result was recorded.
"""

import argparse
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from tests.cluster.harness import PATIENCE, Cluster, Process, cluster, wait_for
from tests.cluster.proxy import TcpProxy

_SHOWN = 20
_REPLY = 3_000
"""Milliseconds of a reply: 1,000 runs take ten minutes, so that enough happens to them."""
_CUT_FROM_STORE, _CUT_FROM_ENGINE = 1, 2
"""Which workers reach PostgreSQL and Temporal through a network that can be cut."""


class Monkey:
    """A cluster, the networks of two of its workers, and what was done to it."""

    def __init__(self, made: Cluster, stack: ExitStack, chance: random.Random) -> None:
        self.made = made
        self.deeds: Counter[str] = Counter()
        self._chance = chance
        self._store_network, store = stack.enter_context(made.store_proxy())
        self._engine_network, engine = stack.enter_context(made.engine_proxy())
        made.start(servers=2, workers=1)
        made.start_worker(store=store)
        made.start_worker(engine=engine)
        made.replace_dead()

    def act(self) -> str:
        """Do something, and put it right again."""
        deeds: tuple[Callable[[], None], ...] = (
            self.kill_worker,
            self.kill_worker,
            self.kill_server,
            self.terminate_worker,
            self.freeze_worker,
            self.kill_temporal,
            self.stop_postgres,
            self.cut_store,
            self.cut_engine,
        )
        deed = self._chance.choice(deeds)
        deed()
        self.deeds[deed.__name__] += 1
        self.start_dead()
        return deed.__name__

    def start_dead(self) -> None:
        for processes in (self.made.servers, self.made.workers):
            for number, process in enumerate(processes):
                if not process.is_alive:
                    processes[number] = process.start_again()

    def kill_worker(self) -> None:
        self._worker().kill()

    def kill_server(self) -> None:
        self._chance.choice(self.made.servers).kill()

    def terminate_worker(self) -> None:
        self._worker().terminate()

    def freeze_worker(self) -> None:
        worker = self._worker()
        worker.freeze()
        try:
            self._wait(self.made.heartbeat / 2, 5 * self.made.heartbeat)
        finally:
            worker.thaw()

    def kill_temporal(self) -> None:
        self.made.temporal.kill()
        self._wait(1, 5)
        self.made.temporal.start()

    def stop_postgres(self) -> None:
        self.made.postgres.stop()
        self._wait(1, 6)
        self.made.postgres.start()

    def cut_store(self) -> None:
        self._cut(self._store_network, self.made.workers[_CUT_FROM_STORE])

    def cut_engine(self) -> None:
        self._cut(self._engine_network, self.made.workers[_CUT_FROM_ENGINE])

    def _cut(self, network: TcpProxy, worker: Process) -> None:
        kind = self._chance.choice(("both", "there", "back", "reset"))
        if kind == "reset":
            network.reset()
            return
        network.lose(kind)
        self._wait(1, 6 * self.made.heartbeat)
        network.heal()
        worker.note_return()

    def _worker(self) -> Process:
        return self._chance.choice(self.made.workers)

    def _wait(self, least: float, most: float) -> None:
        time.sleep(self._chance.uniform(least, most))


def _feed(made: Cluster, runs: int, tasks: int, at_once: int, until: float, problems: list[str]) -> None:
    """Begin runs, a bounded number at the same time, and none after `until`."""
    open_runs: list[str] = []
    for number in range(runs):
        if time.monotonic() > until:
            problems.append(f"no time was left after {number} of {runs} runs")
            return
        try:
            open_runs.append(made.begin(f"m{number}", tasks))
            while len(open_runs) >= at_once:
                open_runs = [run for run in open_runs if made.ending(run) is None]
                time.sleep(0.2)
        except AssertionError as error:
            problems.append(f"run {number}: {error}")
            return


def play(*, runs: int, tasks: int, at_once: int, pause: tuple[float, float], seconds: float, seed: int) -> int:
    chance = random.Random(f"monkey/{seed}")
    problems: list[str] = []
    began = time.monotonic()
    with ExitStack() as stack:
        made = stack.enter_context(cluster())
        made.write_team(milliseconds=_REPLY)
        monkey = Monkey(made, stack, chance)
        until = began + seconds
        feeder = threading.Thread(target=_feed, args=(made, runs, tasks, at_once, until, problems), daemon=True)
        feeder.start()
        while feeder.is_alive():
            feeder.join(chance.uniform(*pause))
            if feeder.is_alive():
                deed = monkey.act()
                print(f"{time.monotonic() - began:6.0f} s  {deed}, {len(made.acknowledged)} runs begun", flush=True)
        monkey.start_dead()
        for run in made.acknowledged:
            try:
                wait_for(f"run {run} ends", lambda run=run: made.ending(run), 3 * PATIENCE)
            except AssertionError as error:
                problems.append(str(error))
                break
        verdict = made.verdict()
        problems += verdict.problems
        if problems:
            for process in (*made.servers, *made.workers):
                print(f"--- the end of the log of {process.name}\n{process.text()[-3000:]}", file=sys.stderr)
    print(f"{sum(monkey.deeds.values())} deeds: {dict(monkey.deeds)}")
    for problem in problems[:_SHOWN]:
        print(f"  WRONG: {problem}")
    print(
        f"monkey: seed {seed}, {verdict}, {sum(monkey.deeds.values())} deeds, {len(verdict.lost)} results lost, "
        f"{len(verdict.repeated)} finished calls repeated, {len(verdict.not_ended)} runs not ended, "
        f"{len(verdict.epochs_go_back)} stale appends, {len(problems)} problems, {time.monotonic() - began:.0f} s"
    )
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.monkey", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=4, help="tasks of each run")
    parser.add_argument("--at-once", type=int, default=20, help="runs at the same time")
    parser.add_argument("--pause", type=float, nargs=2, default=(5.0, 40.0), metavar=("LEAST", "MOST"))
    parser.add_argument("--minutes", type=float, default=20, help="after so long no run begins, which is a problem")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    return play(
        runs=options.runs,
        tasks=options.tasks,
        at_once=options.at_once,
        pause=tuple(options.pause),
        seconds=60 * options.minutes,
        seed=options.seed,
    )


if __name__ == "__main__":
    sys.exit(main())
