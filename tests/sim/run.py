"""`python -m tests.sim.run`: play many seeds, and resume from every prefix of some of their journals."""

import argparse
import sys
import time
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import cast

from msgspec import Struct

from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.state import RunState
from tests.sim.play import Play
from tests.sim.scenario import FAULTS, Scenario, scenario

CORPUS = Path(__file__).with_name("corpus.txt")


class Case(Struct, frozen=True):
    """A seed, and what is left of its faults and its size after minimising."""

    seed: int
    faults: frozenset[str] = frozenset(FAULTS)
    tasks: int = 12

    def plot(self) -> Scenario:
        return scenario(self.seed, self.faults, self.tasks)

    def line(self) -> str:
        return f"{self.seed} {self.tasks} {','.join(sorted(self.faults))}"


def play(plot: Scenario, *, deep: bool = False) -> list[ev.Entry]:
    """One seed in safety mode, ending in liveness mode: the last lives have no faults and must come to an end."""
    return Play(plot, deep=deep).run()


def resume_everywhere(plot: Scenario, entries: list[ev.Entry], most: int = 0) -> int:
    """Oracle 10: whatever entry the process died after, resuming ends well; in a calm world it ends the same.

    Args:
        plot: the scenario that made the journal
        entries: the whole journal
        most: how many places are tried, spread over the journal and others in each seed; 0 means all

    Returns:
        How many places were tried.
    """
    whole = essence(replay(entries))
    stride = max(1, len(entries) // most) if most else 1
    cuts = range(1 + plot.seed % stride, len(entries), stride)
    for cut in cuts:
        again = Play(plot, prefix=entries[:cut])
        again.run()
        # an effect under way when the process died is not repeated, so that ending may differ
        if plot.calm and not any(one.in_doubt() for one in replay(entries[:cut]).tasks.values()):
            found = essence(again.state())
            again.shadow.require(found == whole, f"10: resumed after entry {cut}: {found}, not {whole}")
    return len(cuts)


def essence(state: RunState) -> object:
    """What a run came to, whatever happened on the way."""
    assert state.ended is not None
    tasks = {task: (one.status.value, one.result and bytes(one.result)) for task, one in state.tasks.items()}
    return state.ended.ending, state.ended.reason, state.answer is not None, tasks


def trouble(case: Case, *, prefixes: bool, most: int = 0) -> str:
    """What is wrong with a case, or nothing; with `prefixes` it is resumed after `most` entries, or after all."""
    try:
        plot = case.plot()
        entries = play(plot, deep=prefixes)
        if prefixes:
            resume_everywhere(plot, entries, most)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is what we are looking for
        return root(error)
    return ""


def root(error: BaseException) -> str:
    """What lies at the bottom of an exception, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return f"{type(error).__name__}: {error}"


def minimised(case: Case, *, prefixes: bool) -> Case:
    """Drop faults, then tasks, as long as something is still wrong."""
    for fault in sorted(case.plot().faults):
        smaller = Case(case.seed, case.faults - {fault}, case.tasks)
        if trouble(smaller, prefixes=prefixes):
            case = smaller
    for tasks in range(1, case.tasks):
        smaller = Case(case.seed, case.faults, tasks)
        if trouble(smaller, prefixes=prefixes):
            return smaller
    return case


def corpus() -> list[Case]:
    """Cases that were wrong once."""
    cases: list[Case] = []
    for line in CORPUS.read_text().splitlines() if CORPUS.exists() else ():
        seed, tasks, faults, *_ = [*line.split("#")[0].split(), "", "", ""]
        if seed:
            cases.append(Case(int(seed), frozenset(filter(None, faults.split(","))), int(tasks)))
    return cases


def _one(job: tuple[int, bool]) -> tuple[int, int, str]:
    seed, prefixes = job
    case = Case(seed)
    found = trouble(case, prefixes=prefixes)
    if found or not prefixes:
        return seed, 0, found
    return seed, len(play(case.plot())) - 1, ""


def sweep(seeds: Iterable[int], *, every: int, jobs: int, stop: bool) -> tuple[int, int, dict[int, str]]:
    """Play seeds on several cores; every n-th is resumed from all its prefixes."""
    count = resumed = 0
    wrong: dict[int, str] = {}
    work = ((seed, bool(every) and seed % every == 0) for seed in seeds)
    with get_context("fork").Pool(jobs) as pool:
        for seed, more, found in pool.imap_unordered(_one, work, chunksize=8):
            count += 1
            resumed += more
            if found:
                wrong[seed] = found
                if stop:
                    break
    return count, resumed, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default 0)")
    parser.add_argument("--every", type=int, default=10, help="resume every n-th from all its prefixes; 0: none")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--stop", action="store_true", help="stop at the first that is wrong; do not minimise")
    parser.add_argument("--keep", action="store_true", help="minimise what is wrong and add it to the corpus")
    options = parser.parse_args()
    begun = time.monotonic()
    for case in corpus():
        if found := trouble(case, prefixes=True):
            print(f"corpus {case.line()}: {found}")
            return 1
    seeds = range(options.first, options.first + options.seeds)
    count, resumed, wrong = sweep(seeds, every=options.every, jobs=options.jobs, stop=options.stop)
    seconds = time.monotonic() - begun
    print(f"{count} seeds and {resumed} resumes in {seconds:.1f} s ({count / seconds:.0f} seeds/s), {len(wrong)} wrong")
    for seed, found in sorted(wrong.items())[:10]:
        print(f"seed {seed}: {found}")
        if options.stop:
            continue
        prefixes = bool(options.every) and seed % options.every == 0
        small = minimised(Case(seed), prefixes=prefixes)
        print(f"  smaller: {small.line()}: {trouble(small, prefixes=prefixes)}")
        if options.keep:
            with CORPUS.open("a") as file:
                file.write(f"{small.line()}  # {found.splitlines()[0][:80]}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
