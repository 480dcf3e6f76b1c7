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
from chargehand.journal.sqlite import SqliteJournal
from chargehand.runtime.runner import Runner
from tests.evidence import Evidence
from tests.kill9 import PATIENCE, Life
from tests.victim import FENCED, Executor, Outside, carry

STALE = 0.3
PACE = 0.01


class Trial(Struct):
    """`busy` counts freezes between runs or in the middle of a write: there is nothing to take over then."""

    busy: int = 0
    resumed: int = 0
    problems: list[str] = field(default_factory=list[str])


def content(path: Path, runs: list[str]) -> list[object]:
    """Everything of these runs, as it lies in the file."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT number, run, seq FROM runs").fetchall()
        taken = {number for number, run, *_ in rows if run in runs}
        entries = connection.execute("SELECT * FROM entries ORDER BY run, seq").fetchall()
        return [[row for row in entries if row[0] in taken], [row for row in rows if row[0] in taken]]


async def unfinished(journal: SqliteJournal) -> list[str]:
    return [row.run for row in await journal.runs() if row.ended is None]


async def take_over(path: Path) -> SqliteJournal | None:
    """The journal; None if its owner has nothing under way, or stands still in the middle of a write."""
    try:
        journal = await SqliteJournal.open(path, stale=STALE, patience=0.05)
    except StoreUnavailable:
        return None
    if await unfinished(journal):
        return journal
    await journal.close()
    return None


async def finish(journal: SqliteJournal, directory: Path) -> list[str]:
    """Resume what is unfinished, once its owner counts as frozen, and drive it to its end."""
    outside = Outside(directory, sync=True)
    driver = Runner(journal, Executor(outside, PACE))
    runs = await unfinished(journal)
    async with asyncio.TaskGroup() as jobs:
        for run in runs:
            jobs.create_task(_finish_run(driver, run, outside))
    return runs


async def finish_new(path: Path, directory: Path) -> None:
    """What the thawed process began and could not finish: its other runs were nobody else's."""
    journal = await SqliteJournal.open(path, stale=STALE)
    await finish(journal, directory)
    await journal.close()


async def _finish_run(driver: Runner, run: str, outside: Outside) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            await carry(driver, run, outside, new=False)
        except RunBusy:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)
        else:
            return


def frozen(first: Life, path: Path, rng: random.Random, trial: Trial) -> SqliteJournal:
    """Freeze the first process at some moment at which another can take over a run."""
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
    taken = asyncio.run(finish(journal, evidence.directory))
    trial.resumed = len(taken)
    before = content(path, taken)
    early = rng.random() < 0.5  # the second may have left before the first wakes up
    if early:
        asyncio.run(journal.close())
    thaw(first, evidence)
    if not early:
        asyncio.run(journal.close())
    asyncio.run(finish_new(path, evidence.directory))
    evidence.require(content(path, taken) == before, "the thawed process changed a run that was taken over")


def thaw(first: Life, evidence: Evidence) -> None:
    first.process.send_signal(signal.SIGCONT)
    if first.follow(PATIENCE):
        evidence.problems.append("the thawed process did not end by itself")
        return
    code = first.process.wait()
    log = (evidence.directory / "errors.log").read_text()
    evidence.require(code == FENCED, f"the thawed process ended with {code}: {log[-1000:]}")
    told = "fenced: " in log and "it was released or taken over" in log
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
        f"over, {sum(trial.busy for trial in found)} freezes with nothing to take over, {len(problems)} violations"
    )
    for problem in problems[:20]:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
