"""`python -m tests.kill9`: kill real processes with -9 at random moments, start them again, and look for damage.

A power cut is not played here: that what is synced survives it, we take from SQLite and the disk.
"""

import argparse
import os
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, field

from tests.cli.forked import Forked, has_fork_server
from tests.evidence import Evidence

ROOT = Path(__file__).parents[1]
ROUND = 50  # deaths of one journal before a new one is begun
PATIENCE = 60.0


class Tally(Struct):
    """What was seen. `first` is how long each process took from its start to its first new entry, in seconds."""

    kills: int = 0
    resumes: int = 0
    runs: int = 0
    told: int = 0
    first: list[float] = field(default_factory=list[float])
    problems: list[str] = field(default_factory=list[str])

    def add(self, other: "Tally") -> None:
        self.kills += other.kills
        self.resumes += other.resumes
        self.runs += other.runs
        self.told += other.told
        self.first += other.first
        self.problems += other.problems

    def line(self) -> str:
        first = sorted(self.first) or [0.0]
        return (
            f"{self.kills} kills, {self.resumes} resumes, {self.runs} runs, {self.told} entries told, "
            f"first new entry after {statistics.median(first):.2f} s (p50), {first[-1]:.2f} s (max), "
            f"{len(self.problems)} violations"
        )


def _start_victim(words: Sequence[str], output: int, errors: int) -> "subprocess.Popen[bytes] | Forked":
    """Start `tests.victim`, by a fork where there is a fork server."""
    if has_fork_server():
        code = f"import sys\nfrom tests.victim import main\nsys.argv[1:] = {[*words]!r}\nsys.exit(main())"
        with Path(os.devnull).open("rb") as nothing:
            streams = (nothing.fileno(), output, errors)
            return Forked((), folder=ROOT, environment=os.environ, streams=streams, code=code)
    return subprocess.Popen([sys.executable, "-m", "tests.victim", *words], cwd=ROOT, stdout=output, stderr=errors)


class Life:
    """One process, from its start to its death."""

    def __init__(self, evidence: Evidence, *options: str) -> None:
        self.evidence = evidence
        self.told = 0
        self.resumes = 0
        self.first: float | None = None
        self.opened = False
        self._rest = b""
        self._errors = (evidence.directory / "errors.log").open("ab")
        self.began = time.monotonic()
        words = [str(evidence.directory), "--store", evidence.store, *options]
        output, written = os.pipe()
        self._output = os.fdopen(output, "rb", buffering=0)
        try:
            self.process = _start_victim(words, written, self._errors.fileno())
        finally:
            os.close(written)

    def __enter__(self) -> "Life":
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever went wrong, nobody is left behind, not even a frozen one."""
        self.process.kill()
        self.process.wait()
        self._close()

    def follow(self, seconds: float, *, enough: Callable[[], bool] = lambda: False) -> bool:
        """Listen for so long, or until it is enough; False when the process has closed its mouth."""
        pipe = self._output.fileno()
        until = time.monotonic() + seconds
        while not enough() and (left := until - time.monotonic()) > 0:
            if not select.select([pipe], [], [], left)[0]:
                break
            heard = os.read(pipe, 1 << 16)
            if not heard:
                return False
            *lines, self._rest = (self._rest + heard).split(b"\n")
            for line in lines:
                self._hear(line.decode())
        return True

    def _hear(self, line: str) -> None:
        if line.startswith("told"):
            if self.first is None:
                self.first = time.monotonic() - self.began
            self.told += 1
        elif line.startswith("open"):
            self.opened = True
            self.resumes = int(line.split("\t")[1])
        self.evidence.hear(line)

    def kill(self) -> None:
        """The end, and what it managed to say before. A line cut off in the middle was not said."""
        self.process.kill()
        self.follow(PATIENCE)
        self.process.wait()

    def _close(self) -> None:
        self._output.close()
        self._errors.close()

    def trouble(self) -> str:
        if self.process.poll() is None:
            self.process.kill()
        log = (self.evidence.directory / "errors.log").read_text(errors="replace")
        return f"a process ended by itself with {self.process.wait()}: {log[-2000:]}"


def one_death(evidence: Evidence, rng: random.Random) -> Life:
    """Begin a process and end it: early, after some time, or after so many entries."""
    with Life(evidence) as life:
        _end(life, rng)
    return life


def _end(life: Life, rng: random.Random) -> None:
    moment = rng.choice(("early", "time", "time", "entries", "entries", "entries"))
    wanted = rng.randint(1, 150) if moment == "entries" else 0
    if moment == "early":
        alive = life.follow(rng.uniform(0, 0.5))
    else:
        alive = life.follow(PATIENCE, enough=lambda: life.opened and life.told >= wanted)
        life.evidence.require(life.opened and life.told >= wanted, f"it stopped short of {wanted} entries")
    if moment == "time":
        alive = alive and life.follow(rng.uniform(0, 0.6))
    if alive:
        life.kill()
    else:
        life.evidence.problems.append(life.trouble())


def one_round(seed: str, kills: int, report: Callable[[], None] = lambda: None, store: str = "") -> Tally:
    """One journal through many deaths, and then to the end of all its runs."""
    rng = random.Random(seed)
    tally = Tally()
    with TemporaryDirectory(prefix="chargehand-kill9-") as directory:
        evidence = Evidence(Path(directory), store=store)
        for _ in range(kills):
            _count(tally, one_death(evidence, rng))
            tally.kills += 1
            evidence.inspect()
            report()
            if evidence.problems:
                break
        with Life(evidence, "--finish") as last:
            if last.follow(2 * PATIENCE) or last.process.wait() != 0:
                evidence.problems.append(f"the last process did not finish: {last.trouble()}")
        _count(tally, last)
        evidence.inspect()
        tally.runs = evidence.conclude()
        tally.problems = [f"{problem} (seed {seed})" for problem in evidence.problems]
    return tally


def _count(tally: Tally, life: Life) -> None:
    tally.resumes += life.resumes
    tally.told += life.told
    if life.first is not None:
        tally.first.append(life.first)


def many(kills: int, seed: int, *, size: int = ROUND, jobs: int = 2, aloud: bool = False) -> Tally:
    """So many deaths, in rounds."""
    total = Tally()
    done = [0]
    began = time.monotonic()

    def report() -> None:
        done[0] += 1
        pace = 60 * done[0] / (time.monotonic() - began)
        if aloud and sys.stderr.isatty():
            print(f"{done[0]} of {kills} kills, {pace:.0f} a minute", end="\r", file=sys.stderr)
        elif aloud and done[0] % 50 == 0:
            print(f"{done[0]} of {kills} kills, {pace:.0f} a minute", file=sys.stderr)

    sizes = [size] * (kills // size) + ([kills % size] if kills % size else [])
    with ThreadPoolExecutor(jobs) as pool:
        rounds = [pool.submit(one_round, f"{seed}/{number}", part, report) for number, part in enumerate(sizes)]
        for one in rounds:
            total.add(one.result())
    return total


def resume_time(entries: int) -> tuple[int, float]:
    """How long a new process takes from its start to its first new entry when a run of this size was cut off."""
    with TemporaryDirectory(prefix="chargehand-resume-") as directory:
        evidence = Evidence(Path(directory))
        long = ("--prefix", "long", "--width", "1", "--pace", "0")
        with Life(evidence, *long, "--quick") as life:
            if not life.follow(600.0, enough=lambda: life.told >= entries):
                raise AssertionError(life.trouble())
            life.kill()
        evidence.inspect()
        size = max(evidence.told["long1"])
        with Life(evidence, *long) as again:
            if not again.follow(PATIENCE, enough=lambda: again.first is not None):
                raise AssertionError(again.trouble())
            again.kill()
        evidence.inspect()
        assert not evidence.problems, evidence.problems
        assert again.first is not None
        return size, again.first


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kill9", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--measure-resume", action="store_true", help="measure how long resuming takes, and only that")
    options = parser.parse_args()
    if options.measure_resume:
        slow = False
        for entries, target in ((1000, 2.0), (50_000, 5.0)):
            size, seconds = min((resume_time(entries) for _ in range(3)), key=lambda found: found[1])
            print(
                f"resume at {size} entries: {seconds:.2f} s from process start to first new entry (target {target} s)"
            )
            slow = slow or seconds > target
        return int(slow)
    began = time.monotonic()
    found = many(options.kills, options.seed, jobs=options.jobs, aloud=True)
    minutes = (time.monotonic() - began) / 60
    print(f"{found.line()}, {found.kills / minutes:.0f} kills/min")
    for problem in found.problems[:20]:
        print(problem)
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
