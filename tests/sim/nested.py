"""`python -m tests.sim.nested`: teams inside teams that never spend more than they may, seed by seed.

The production driver on virtual time, with a provider that fails, crashes, a person who cancels, and too little time.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from typing import cast

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget, Ledger
from chargehand.engine.fold import begin, fold, replay
from chargehand.engine.state import RunState
from chargehand.errors import ChargehandError
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Lease
from chargehand.models.resolve import Finder
from chargehand.runtime.dispatch_port import Dispatcher
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Outcome, Runner
from chargehand.team import Team
from tests.runtime.elsewhere import Elsewhere
from tests.runtime.streams import rows, written
from tests.sim.loop import VirtualLoop
from tests.sim.nested_world import World
from tests.sim.run import root

RUN = "r"
EPOCH = 1_000_000.0
_CAPS = ("tokens", "micros", "calls")
_NO_TASKS = ("unserved", "untraced", "unwritten", "unplanned", "refused")
"""Gaps that do not say that a task was not done."""
_LIVES = 60
_QUESTIONS = 12
"""After so many questions a person allows nothing any more."""


class Violation(AssertionError):
    """An oracle was broken."""


class CountingLedger(Ledger, gc=False):
    """A ledger that counts what lost calls may have used beyond what they are expected to."""

    given_back: Amount = NOTHING

    def lose(self, reserved: Amount, expected: Amount | None) -> None:
        super().lose(reserved, expected)
        self.given_back += NOTHING if expected is None else reserved.beyond(expected)


class Crash(BaseException):
    """The process is gone. Not an Exception: nobody may handle it."""


class Mortal(MemoryJournal):
    """A journal whose process dies at one of its writes, before or after it took effect."""

    last = 0  # writes until then; 0: never
    kept = True
    dead = False

    def _append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        if self.dead:
            raise Crash
        self.last -= 1
        if self.last == 0:
            self.dead = True
            if self.kept:
                super()._append(lease, entries)
            raise Crash
        super()._append(lease, entries)


class Seed:
    """One seed, from its request to the end of its run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(f"lives/{seed}")
        self.world = World(seed)
        self.loop = VirtualLoop(EPOCH, most_steps=400_000)
        seconds = self.chance.choice((3.0, 15.0, 60.0, 300.0, 300.0))
        self.budget = self.world.budget() if self.chance.random() < 0.9 else Budget()
        top = self.world.team(self.chance.choice((1, 2, 2, 3)), "a")
        self.top = top.bounded(budget=self.budget, timeout=seconds)
        self.died = False
        self.answer: ev.InputAnswered | None = None
        self.questions = 0
        self.lives = 0
        self.crashes = self.chance.choice((0, 0, 0, 1, 1, 2, 3))
        self.cancel = self.chance.uniform(0, 30) if self.chance.random() < 0.1 else None

    def play(self) -> int:
        """Play it to its end and judge it; how many runs there were."""
        try:
            runs = self.loop.run_until_complete(self._lives())
            left = asyncio.all_tasks(self.loop)
        except BaseException:
            self._sweep_up()
            raise
        finally:
            self.loop.close()
        self.require(not left, f"{len(left)} jobs are left behind")
        self._judge(runs)
        return len(runs)

    @property
    def surprise(self) -> Amount:
        """What may be spent beyond any cap: what was seen of models is forgotten with each process."""
        return self.world.surprise(self.lives)

    def require(self, truth: object, text: str) -> None:
        if not truth:
            raise Violation(f"seed {self.seed}: {text}")

    def _sweep_up(self) -> None:
        self.loop.most_steps = self.loop.steps + 1000
        left = asyncio.all_tasks(self.loop)
        for job in left:
            job.cancel()
        with contextlib.suppress(BaseException):
            self.loop.run_until_complete(asyncio.wait(left))
        for job in left:
            if job.done() and not job.cancelled():
                job.exception()

    # --- lives

    async def _lives(self) -> dict[str, list[ev.Entry]]:
        journal = self._mortal(Mortal(), self.crashes)
        for life in range(_LIVES):
            died = True
            try:
                found = await self._live(journal, self.top)
                if found.ending != "needs_input":
                    return await rows(journal)
                died = False
            except BaseExceptionGroup as group:
                if group.subgroup(Crash) is None:
                    raise
            except Crash:
                pass
            kept = await rows(journal)
            self.died = self.died or died
            if isinstance(kept.get(RUN, [ev.Entry(0, 0.0, ev.TimeRanOut())])[-1].event, ev.RunEnded):
                return kept
            self.crashes -= died
            journal = Mortal()
            copy = await written(kept)
            journal._streams = copy._streams  # the same bytes, in another process
            self._mortal(journal, self.crashes if life < _LIVES - 2 else 0)
            self.answer = self._answered(kept.get(RUN, ()))
            await asyncio.sleep(self.chance.uniform(0, 3) if self.answer is None else self.world.people.uniform(0, 900))
        raise Violation(f"seed {self.seed}: the run never ended")

    def _answered(self, entries: Sequence[ev.Entry]) -> ev.InputAnswered | None:
        """What a person says to the question of the run, if one is open."""
        question = replay(entries).input if entries else None
        if question is None:
            return None
        self.questions += 1
        allows = self.questions < _QUESTIONS and self.world.people.random() < 0.8
        return ev.InputAnswered(question.number, "approve" if allows else "reject", "" if allows else "not now")

    def _mortal(self, journal: Mortal, crashes: int) -> Mortal:
        journal.last = self.chance.randint(1, 60) if crashes > 0 else 0
        journal.kept = self.chance.random() < 0.7
        journal.instant = self.chance.random() < 0.5
        return journal

    async def _live(self, journal: Mortal, top: Team) -> Outcome:
        self.lives += 1
        finder = Finder(lambda _: None)
        try:
            return await self._drive(journal, top, finder)
        finally:
            for model in self.world.models:
                self.require(not finder.observations.of(model).under_way, f"a call of {model.card.handle} never ends")

    async def _drive(self, journal: Mortal, top: Team, finder: Finder) -> Outcome:
        async with top.executor(finder) as executor, asyncio.TaskGroup() as jobs:
            elsewhere = Elsewhere(journal, jobs) if self.world.is_remote else None
            driver = self._runner(journal, executor, elsewhere)
            if elsewhere is not None:
                elsewhere.far = self._runner(journal, executor, elsewhere)
            teller = jobs.create_task(self._called_off(driver))
            try:
                if any(row.run == RUN for row in await journal.runs()):
                    answers = () if self.answer is None else (self.answer,)
                    return await driver.resume(RUN, *answers, steal=True)
                return await driver.start(RUN, top.request("Count the pears", self.loop.time(), seed=self.seed))
            finally:
                teller.cancel()

    def _runner(self, journal: Mortal, executor: Executor, dispatcher: Dispatcher | None) -> Runner:
        return Runner(journal, executor, wall=self.loop.time, ticks=self.loop.time, dispatcher=dispatcher)

    async def _called_off(self, driver: Runner) -> None:
        if self.cancel is None:
            return
        await asyncio.sleep(self.cancel)
        with contextlib.suppress(ChargehandError):
            await driver.ask(RUN, ev.CancelRequested("enough"))

    # --- oracles

    def _judge(self, runs: Mapping[str, Sequence[ev.Entry]]) -> None:
        states = {run: self._followed(run, entries) for run, entries in runs.items()}
        self.require(states[RUN].ended is not None, "the run did not end")
        for run, state in states.items():
            self._judge_end(run, state, runs[run])
            self._judge_family(run, state, states, runs)
        bill = self.world.bill
        ledger = states[RUN].ledger
        if self.world.unanswered and self.lives == 1 and self.budget.tokens is not None:
            self.require(ledger.lost.tokens, f"what {self.world.unanswered} failed calls may have cost is on no bill")
        unsure = [cast("CountingLedger", state.ledger).given_back for state in states.values()]
        for name in _CAPS:
            real = getattr(bill, name)
            cap = getattr(self.budget, name)
            over = getattr(self.surprise, name)
            # of a reply that was given up nobody knows how long it was, nor whether a fallback was asked before
            over += getattr(self.world.unsure, name) + sum(getattr(amount, name) for amount in unsure)
            self.require(
                cap is None or real <= cap + over, f"{real} {name} were really used, and {cap} + {over} may be"
            )
            if cap is not None:
                known = getattr(ledger, name) + over
                self.require(real <= known, f"{real} {name} were used, not {known}")
            lost = getattr(ledger.lost, name)
            self.require(lost <= getattr(ledger, name), f"{lost} {name} of {getattr(ledger, name)} are lost")
            if not (self.world.silent or self.world.is_hedged):
                billed = getattr(ledger, name) - lost
                self.require(billed <= real, f"{billed} {name} are on the bill, and {real} were used")

    def _followed(self, run: str, entries: Sequence[ev.Entry]) -> RunState:
        """The state of a run, its money looked at after every entry."""
        state = begin(entries[0])
        state.ledger = CountingLedger(state.ledger.budget)
        self._within(run, state)
        for entry in entries[1:]:
            fold(state, entry)
            self._within(run, state)
        return state

    def _within(self, run: str, state: RunState) -> None:
        ledger = state.ledger
        budget = state.requested.budget
        for name in _CAPS:
            spent = getattr(ledger, name)
            held = getattr(ledger, f"held_{name}")
            cap = getattr(budget, name)
            where = f"{run}, entry {state.seq}: {name}"
            self.require(spent >= 0 and held >= 0, f"{where}: {spent} spent and {held} held")
            most = None if cap is None else cap + getattr(self.surprise, name)
            self.require(most is None or spent + held <= most, f"{where}: {spent} spent and {held} held of {most}")

    def _judge_end(self, run: str, state: RunState, entries: Sequence[ev.Entry]) -> None:
        if state.ended is None:  # its process died, or it asked a person, and nobody went on with what it worked for
            is_left = self.died or state.input is not None
            self.require(run != RUN and is_left, f"{run} never ended")
            return
        self.require(state.ledger.reserved == NOTHING, f"{run} ended and holds {state.ledger.reserved}")
        done, replaced, known = _read(entries)
        own = [gap for gap in state.ended.gaps if not gap.run]
        of_tasks = [gap for gap in own if gap.status not in _NO_TASKS]
        missing = {gap.task for gap in of_tasks if gap.reason != "uncertain" or gap.task not in replaced}
        wanted = known - done - replaced if state.ended.ending != "complete" else set[str]()
        self.require(missing == wanted, f"{run}: gaps {sorted(missing)}, not done {sorted(wanted)}")
        if state.ended.ending == "complete":
            self.require(known <= done | replaced, f"{run} is complete without {sorted(known - done - replaced)}")

    def _judge_family(
        self, run: str, state: RunState, states: Mapping[str, RunState], runs: Mapping[str, Sequence[ev.Entry]]
    ) -> None:
        parent = state.requested.parent
        if parent is None:
            return
        above = states[parent.run]
        capped = states[parent.run].requested.budget
        held = _held(runs[parent.run], parent)
        for name in _CAPS:
            cap = getattr(capped, name)
            own = getattr(state.requested.budget, name)
            if cap is None:
                continue
            spent = getattr(state.ledger, name)
            self.require(own is not None, f"{run} has no cap on {name}, and {parent.run} has")
            self.require(own <= getattr(held, name), f"{run} may use {own} {name}; held for it: {getattr(held, name)}")
            most = getattr(held, name) + getattr(self.surprise, name)
            self.require(spent <= most, f"{run} used {spent} {name}; held: {most}")
            all_of_it = getattr(above.ledger, name) + getattr(above.ledger, f"held_{name}")
            all_of_it += getattr(self.surprise, name)  # one that is cancelled books what was held for those inside
            self.require(spent <= all_of_it, f"{run} used more {name} than {parent.run}")


def _read(entries: Sequence[ev.Entry]) -> tuple[set[str], set[str], set[str]]:
    """The tasks that were done, those another one was done for, and all there are, off the bare events."""
    done: set[str] = set()
    tasks: dict[str, str] = {}
    for entry in entries:
        match entry.event:
            case ev.RunRequested(plan=plan) if plan is not None:
                tasks |= {one.id: one.replaces for one in plan.tasks}
            case ev.TasksAdded(tasks=added):
                tasks |= {one.id: one.replaces for one in added}
            case ev.AttemptSucceeded(task=task) | ev.TaskJoined(task=task) | ev.ResultReused(task=task):
                done.add(task)
            case _:
                pass
    return done, {tasks[one] for one in done if tasks.get(one)}, set(tasks)


def _held(entries: Sequence[ev.Entry], parent: ev.Parent) -> Amount:
    """All that was reserved for the attempt which a run works for; its step is begun again after a crash."""
    steps = [one.event for one in entries if isinstance(one.event, ev.StepStarted)]
    this = [one.reserve or NOTHING for one in steps if (one.task, one.attempt) == (parent.task, parent.attempt)]
    return Amount(sum(one.tokens for one in this), sum(one.micros for one in this), sum(one.calls for one in this))


# --- many seeds


def trouble(seed: int) -> tuple[int, int, str]:
    """A seed, how many runs it had, and what is wrong with it, or nothing."""
    try:
        return seed, Seed(seed).play(), ""
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is what we are looking for
        return seed, 0, root(error)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.nested", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=20_000, help="how many (default 20,000; runs inside runs come of half of them)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first one (default 0)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=25.0, help="stop after so many (default 25)")
    parser.add_argument("--hunt", type=int, default=0, help="play so many until one is wrong, and stop there")
    options = parser.parse_args()
    if options.hunt:
        violation = next(
            (wrong for _, _, wrong in map(trouble, range(options.first, options.first + options.hunt)) if wrong), ""
        )
        print(violation or f"nothing wrong in {options.hunt} seeds")
        return 1 if violation else 0
    begun = time.monotonic()
    count = 0
    deep = 0
    runs = 0
    wrong: dict[int, str] = {}
    with get_context("fork").Pool(options.jobs) as pool:
        seeds = range(options.first, options.first + options.seeds)
        for seed, nested, found in pool.imap_unordered(trouble, seeds, chunksize=16):
            count += 1
            deep = deep + (nested > 1)
            runs = runs + nested
            if found:
                wrong[seed] = found
            if time.monotonic() - begun > 60 * options.minutes:
                print("the time is up")
                break
    seconds = time.monotonic() - begun
    print(f"{count} seeds ({deep} with runs inside runs, {runs} runs in all) in {seconds:.0f} s", end="")
    print(f" ({count / seconds:.0f} seeds/s), {len(wrong)} wrong")
    for seed, found in sorted(wrong.items())[:20]:
        print(found if found.startswith("Violation") else f"seed {seed}: {found}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
