"""`python -m tests.zombie`: freeze the process that drives a run, let another finish it, thaw the first.

The first must be fenced: it appends nothing more, and ends by itself with a clear message.
"""

import argparse
import asyncio
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, field

from chargehand.errors import RunBusy, StoreUnavailable
from chargehand.runtime.driver import Driver
from chargehand.stores.sqlite import SqliteJournal
from tests.evidence import Evidence
from tests.kill9 import PATIENCE, Life
from tests.victim import FENCED, Crew, Outside, carry

STALE = 0.3
PACE = 0.01


class Trial(Struct):
    """`busy` counts freezes in the middle of a write: nobody can take over then, and the frozen one is let go on."""

    busy: int = 0
    resumed: int = 0
    problems: list[str] = field(default_factory=list[str])


def content(path: Path) -> list[object]:
    """Everything of all runs, as it lies in the file."""
    with closing(sqlite3.connect(path)) as connection:
        entries = connection.execute("SELECT * FROM entries ORDER BY run, seq").fetchall()
        return [entries, connection.execute("SELECT number, run, epoch, seq FROM runs").fetchall()]


async def take_over(path: Path) -> SqliteJournal | None:
    """The journal, once its owner counts as frozen; None if the owner stands still in the middle of a write."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return await SqliteJournal.open(path, stale=STALE, patience=0.05)
        except (RunBusy, StoreUnavailable) as error:
            # the second: it may stand still with one of SQLite's own locks
            if "in the middle of a write" in str(error) or isinstance(error, StoreUnavailable):
                return None
            if time.monotonic() > until:
                raise
        await asyncio.sleep(0.05)


async def finish(journal: SqliteJournal, directory: Path) -> int:
    """Resume what is unfinished, and drive it to its end."""
    driver = Driver(journal, Crew(Outside(directory, sync=True), PACE))
    unfinished = [row.run for row in await journal.runs() if row.type != "run.ended"]
    async with asyncio.TaskGroup() as jobs:
        for run in unfinished:
            jobs.create_task(carry(driver, run, new=False))
    return len(unfinished)


def frozen(first: Life, path: Path, rng: random.Random, trial: Trial) -> SqliteJournal:
    """Freeze the first process at some moment at which another can take over."""
    while True:
        first.process.send_signal(signal.SIGSTOP)
        journal = asyncio.run(take_over(path))
        if journal is not None:
            return journal
        trial.busy += 1
        first.process.send_signal(signal.SIGCONT)
        first.follow(rng.uniform(0, 0.05))


def one_trial(seed: str) -> Trial:
    trial = Trial()
    with TemporaryDirectory(prefix="chargehand-zombie-") as directory:
        evidence = Evidence(Path(directory), rivals=True)
        with Life(evidence, "--width", "2", "--stale", str(STALE), "--pace", str(PACE)) as first:
            _freeze_and_thaw(first, evidence, random.Random(seed), trial)
        evidence.inspect()
        evidence.conclude()
        trial.problems = [f"{problem} (seed {seed})" for problem in evidence.problems]
    return trial


def _freeze_and_thaw(first: Life, evidence: Evidence, rng: random.Random, trial: Trial) -> None:
    path = evidence.directory / "runs.db"
    wanted = rng.randint(1, 120)
    if not first.follow(PATIENCE, enough=lambda: first.told >= wanted):
        evidence.problems.append(first.trouble())
    first.follow(rng.uniform(0, 0.05))
    journal = frozen(first, path, rng, trial)
    trial.resumed = asyncio.run(finish(journal, evidence.directory))
    before = content(path)
    early = rng.random() < 0.5  # the second may have left before the first wakes up
    if early:
        asyncio.run(journal.close())
    thaw(first, evidence)
    if not early:
        asyncio.run(journal.close())
    evidence.require(content(path) == before, "the thawed process changed the journal")


def thaw(first: Life, evidence: Evidence) -> None:
    first.process.send_signal(signal.SIGCONT)
    if first.follow(PATIENCE):
        evidence.problems.append("the thawed process did not end by itself")
        return
    code = first.process.wait()
    log = (evidence.directory / "errors.log").read_text()
    evidence.require(code == FENCED, f"the thawed process ended with {code}: {log[-1000:]}")
    told = "fenced: " in log and "was taken over by" in log
    evidence.require(told, f"the thawed process did not say why it ended: {log[-1000:]}")


def many(trials: int, seed: int, *, jobs: int = 2, report: Callable[[int], None] = lambda _: None) -> list[Trial]:
    with ThreadPoolExecutor(jobs) as pool:
        pending = [pool.submit(one_trial, f"{seed}/{number}") for number in range(trials)]
        found: list[Trial] = []
        for one in pending:
            found.append(one.result())
            report(len(found))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.zombie", description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()

    def report(done: int) -> None:
        if done % 20 == 0:
            print(f"{done} of {options.trials} trials", file=sys.stderr)

    began = time.monotonic()
    found = many(options.trials, options.seed, jobs=options.jobs, report=report)
    problems = [problem for trial in found for problem in trial.problems]
    print(
        f"{len(found)} trials in {time.monotonic() - began:.0f} s, {sum(trial.resumed for trial in found)} runs taken "
        f"over, {sum(trial.busy for trial in found)} freezes in the middle of a write, {len(problems)} violations"
    )
    for problem in problems[:20]:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
