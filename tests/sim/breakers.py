"""`python -m tests.sim.breakers`: breakers in the scheduler and around a provider, seed by seed, and bugs in them.

Each seed is played twice: a run whose provider is out for a while, and callers of a guarded model that has its moods.
"""

import argparse
import asyncio
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context

from msgspec import structs

from chargehand.engine import events as ev
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Breaking, Limits, Retry
from chargehand.engine.roster import Roster
from chargehand.models.guard import Guarded
from chargehand.models.messages import Message, Reply, Request
from chargehand.models.model import Hear, ModelCard, ModelFailed
from tests.sim.breaker_oracles import Began, Ended, Happened, Outcome, Refused, healed, watched
from tests.sim.loop import VirtualLoop
from tests.sim.planted import Bug, hunt
from tests.sim.play import Play
from tests.sim.run import root
from tests.sim.scenario import Scenario, scenario

_MOODS = ("fine", "down", "down", "slow", "hangs", "flaky", "busy", "odd", "refuses")
_REQUEST = Request((Message("user", "How many?"),))

_BREAKER = "engine/breaker.py"
_GUARD = "models/guard.py"
_ROW = "breaker.row >= numbers.consecutive"
_PROBE = "# the probe failed"
_WAIT = "numbers.open * breaker.opened"
_COUNTED = "            note(self.breaker, self._clock(), self._breaking, good=False)\n"
_ANSWERED = "rest\n            note(self.breaker, self._clock(), self._breaking, good=True)"
_HALF_OPEN = '"half-open" if now >= breaker.until else "open"'
_LEASE = "breaker.leased = now + numbers.lease"
_FORGETS = "if probing and self.breaker.leased == probing:"
BUGS = (
    Bug("opens one failure late", _BREAKER, _ROW, "breaker.row > numbers.consecutive"),
    Bug("opens one failure early", _BREAKER, _ROW, "breaker.row + 1 >= numbers.consecutive"),
    Bug("two probes at once", _BREAKER, "if now < breaker.leased:", "if False:"),
    Bug("never admits a probe", _BREAKER, _HALF_OPEN, '"open"'),
    Bug("a success does not close it", _BREAKER, "if breaker.opened:  # the probe", "if False:  # the probe"),
    Bug("a probe that hangs keeps it shut", _BREAKER, _LEASE, "breaker.leased = now + 1e9"),
    Bug("the wait does not grow", _BREAKER, _WAIT, "numbers.open"),
    Bug("a failed probe does not open it again", _BREAKER, f"if breaker.leased:  {_PROBE}", f"if False:  {_PROBE}"),
    Bug("a success does not end the row", _BREAKER, "        breaker.row = 0\n", ""),
    Bug("half-open lets everybody in", _GUARD, "probing = self._pass()", "probing = 0.0"),
    Bug("a cut line is not counted", _GUARD, _COUNTED, "            pass\n"),
    Bug("a reply of no use is counted", _GUARD, _ANSWERED, _ANSWERED.replace("True", "False")),
    Bug("an old probe takes a new one along", _GUARD, _FORGETS, "if probing:"),
)


# --- around a provider


class Moody:
    """A provider whose moods change with time, and which is well in the end."""

    def __init__(self, chance: random.Random, loop: VirtualLoop) -> None:
        self.card = ModelCard("moody")
        self.happened: list[Happened] = []
        self._chance = chance
        self._loop = loop
        self._moods: list[tuple[float, str]] = []
        at = 0.0
        for _ in range(chance.randint(1, 5)):
            at += chance.choice((chance.uniform(1, 20), chance.uniform(20, 400)))
            self._moods.append((at, chance.choice(_MOODS)))
        self.well = at

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        number = len(self.happened)
        now = self._loop.time()
        self.happened.append(Began(now, number))
        mood = next((mood for until, mood in self._moods if now < until), "fine")
        outcome: Outcome = "other"
        try:
            reply = await self._said(mood)
        except ModelFailed as error:
            if error.failure.kind in ("network", "timeout"):
                outcome = "bad"
            elif error.failure.kind == "logic" and not error.failure.permanent:  # it answers, if with nothing of use
                outcome = "good"
            raise
        else:
            outcome = "good"
            return reply
        finally:
            self.happened.append(Ended(self._loop.time(), number, outcome))

    async def _said(self, mood: str) -> Reply:
        chance = self._chance
        await asyncio.sleep(chance.uniform(0.01, 3))
        if mood == "hangs":
            await asyncio.sleep(chance.choice((50, 100, 1000)))
        if mood == "down" or (mood == "flaky" and chance.random() < 0.5):
            raise ModelFailed(Failure("network", "the line is dead"))
        if mood in ("slow", "hangs"):
            await asyncio.sleep(chance.uniform(0, 40))
            raise ModelFailed(Failure("timeout", "no reply"))
        if mood == "busy":
            raise ModelFailed(Failure("resource", "too many calls", chance.uniform(0.1, 20)))
        if mood == "odd":
            raise ModelFailed(Failure("logic", "no such thing", permanent=chance.random() < 0.5))
        return Reply("", finish="refused") if mood == "refuses" else Reply("seven")


class Street:
    """One seed: some who call the same guarded model for as long as it has moods, and for a while after."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"guard/{seed}")
        self.loop = VirtualLoop(0.0, most_steps=2_000_000)
        self.moody = Moody(self.chance, self.loop)
        self.numbers = Breaking() if self.chance.random() < 0.7 else Breaking(consecutive=3, sample=8, lease=20.0)
        self.guard = Guarded(
            self.moody,
            retry=Retry(attempts=self.chance.choice((1, 3))),
            breaking=self.numbers,
            clock=self.loop.time,
            random=random.Random(seed),
        )
        self.until = self.moody.well + 600

    def play(self) -> list[str]:
        async def all_of_them() -> None:
            async with asyncio.TaskGroup() as jobs:
                for _ in range(self.chance.randint(1, 6)):
                    jobs.create_task(self._caller(self.chance.choice((0.5, 2.0, 8.0))))

        try:
            self.loop.run_until_complete(all_of_them())
        finally:
            self.loop.close()
        happened = self.moody.happened
        numbers = self.numbers
        patience = numbers.open_ceiling + numbers.lease + 120  # a pause that was asked for, and the time between calls
        return watched(happened, numbers) + healed(happened, self.moody.well, patience)

    async def _caller(self, pace: float) -> None:
        while self.loop.time() < self.until:
            await asyncio.sleep(self.chance.uniform(0, 2 * pace))
            try:
                async with asyncio.timeout(self.chance.choice((30.0, 200.0))):
                    await self.guard.reply(_REQUEST)
            except TimeoutError:
                continue
            except ModelFailed as error:
                if "not called" in error.failure.message:
                    self.moody.happened.append(Refused(self.loop.time()))


# --- in the scheduler


def outage(seed: int) -> Scenario:
    """A scenario with a provider that is out for a while, and numbers small enough for a breaker to matter."""
    chance = random.Random(f"outage/{seed}")
    plot = scenario(seed, max_tasks=30)
    faults = plot.faults - {"short", "tight", "silence", "cancel"} | {"outage"}
    wait, lease = chance.choice(((30.0, 60.0), (30.0, 5.0), (5.0, 10.0)))  # who fails twice waits out any lease
    breaking = Breaking(consecutive=chance.choice((2, 3, 5)), sample=chance.choice((4, 8, 20)), open=wait, lease=lease)
    policy = structs.replace(
        plot.policy,
        breaking=breaking,
        limits=Limits(width=chance.randint(2, 8), replans=0),
        retry=structs.replace(plot.policy.retry, attempts=3),
    )
    agents = tuple(structs.replace(one, model=chance.choice(("m1", "m1", "m2"))) for one in plot.roster.agents)
    roster = Roster(agents, plot.roster.supervision)
    return structs.replace(plot, faults=faults, policy=policy, roster=roster, seconds=50_000.0)


class Lines:
    """What happened to each model, off the bare entries of a run: every worker here has one."""

    def __init__(self, plot: Scenario) -> None:
        self.found: dict[str, list[Happened]] = {}
        self._models = {one.name: one.model for one in plot.roster.agents}
        self._open: dict[str, tuple[int, str]] = {}

    def hear(self, entry: ev.Entry) -> None:
        match entry.event:
            case ev.AttemptStarted(task=task, worker=worker):
                self._open[task] = (entry.seq, worker)
                self.found.setdefault(self._models[worker], []).append(Began(entry.at, entry.seq))
            case ev.AttemptSucceeded(task=task):
                self._over(task, entry.at, "good")
            case ev.AttemptFailed(task=task, failure=failure):
                self._over(task, entry.at, failure.kind)
            case ev.RunResumed() | ev.TimeRanOut() | ev.RunEnded():
                for task in list(self._open):
                    self._over(task, entry.at, "cut off")
            case _:
                pass

    def _over(self, task: str, at: float, kind: str) -> None:
        if task not in self._open:
            return
        call, worker = self._open.pop(task)
        outcome: Outcome = "other"
        if kind == "good":
            outcome = "good"
        elif kind in ("network", "timeout"):
            outcome = "bad"
        self.found[self._models[worker]].append(Ended(at, call, outcome))


# --- many seeds


def around(seed: int) -> str:
    """What is wrong with the guard in this seed."""
    return "; ".join(Street(seed).play()[:3])


def inside(seed: int) -> str:
    """What is wrong with the scheduler's breakers in this seed: the simulation's own oracles hold too."""
    plot = outage(seed)
    heard = Lines(plot)
    numbers = plot.policy.breaking
    for entry in Play(plot).run():
        heard.hear(entry)
    wrong = [f"{name}: {one}" for name, happened in heard.found.items() for one in watched(happened, numbers)]
    return "; ".join(wrong[:3])


def trouble(seed: int) -> tuple[int, str]:
    for what, play in (("guard", around), ("run", inside)):
        try:
            if found := play(seed):
                return seed, f"{what}: {found}"
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is what we are looking for
            return seed, f"{what}: {root(error)}"
    return seed, ""


def planted(seeds: int) -> int:
    """How many of the planted bugs are not found."""
    missed = 0
    with ThreadPoolExecutor(2) as pool:
        hunts = pool.map(partial(hunt, seeds=seeds, module="tests.sim.breakers", arguments=("--hunt",)), BUGS)
        for bug, (caught, seconds, said) in zip(BUGS, hunts, strict=True):
            missed += not caught
            print(f"{'found ' if caught else 'MISSED'} {seconds:5.1f} s  {bug.name}: {said[:110]}", flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.breakers", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (default 10,000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default 0)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=25.0, help="stop after so many (default 25)")
    parser.add_argument("--hunt", type=int, default=0, help="play so many until one is wrong, and stop there")
    options = parser.parse_args()
    if options.hunt:
        found = next((one for one in map(trouble, range(options.hunt)) if one[1]), None)
        print(f"seed {found[0]}: {found[1]}" if found else f"nothing wrong in {options.hunt} seeds")
        return 1 if found else 0
    begun = time.monotonic()
    count = 0
    wrong = dict[int, str]()
    with get_context("fork").Pool(options.jobs) as pool:
        for seed, said in pool.imap_unordered(trouble, range(options.first, options.first + options.seeds), 16):
            count += 1
            if said:
                wrong[seed] = said
            if time.monotonic() - begun > 60 * options.minutes:
                print("the time is up")
                break
    seconds = time.monotonic() - begun
    print(f"{count} seeds of each in {seconds:.0f} s ({count / seconds:.0f} seeds/s), {len(wrong)} wrong")
    for seed, said in sorted(wrong.items())[:20]:
        print(f"seed {seed}: {said}")
    return 1 if wrong or planted(400) else 0


if __name__ == "__main__":
    sys.exit(main())
