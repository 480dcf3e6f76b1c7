"""`python -m tests.victim DIRECTORY`: a process that drives real runs on a real file, to be killed or frozen.

It says on its output what it was told is durable, and writes down in `outside.log`, of which the journal knows
nothing, every call that really happened.
"""

import argparse
import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.events import CallVerdict, Effect, Entry, Failure, InputAnswered, InputRequested, RunRequested
from chargehand.engine.failure import PendingCall
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Limits, Policy, Retry
from chargehand.engine.roster import Agent, Roster
from chargehand.engine.state import Step
from chargehand.errors import Fenced, Refused
from chargehand.journal.codec import encode
from chargehand.journal.protocol import RunRow
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.store import open_journal
from chargehand.runtime import executor as runtime_executor
from chargehand.runtime.executor import Done, EffectUnknown, Proposal, Refined, StepContext, WorkFailed
from chargehand.runtime.runner import Outcome, Runner

FENCED = 3
LONG = 9000  # tasks of a run whose name begins so
EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "effect")
CALL = Amount(calls=1, micros=7)
ROSTER = Roster((Agent("ann", estimate=CALL, fallbacks=("bob",)), Agent("bob", estimate=CALL)), supervision=CALL)


def dice(*key: object) -> random.Random:
    return random.Random("/".join(map(str, key)))


def plan_of(run: str) -> Plan:
    """The same plan for the same run, whichever process asks."""
    rng = dice("plan", run)
    tasks: list[Task] = []
    for number in range(LONG if run.startswith("long") else rng.randint(3, 7)):
        known = [task.id for task in tasks if not task.for_each]
        after = tuple(one if rng.random() < 0.7 else Edge(one, "optional") for one in known[-3:] if rng.random() < 0.4)
        over = known[-1] if known and rng.random() < 0.15 else TaskId("")
        instruction = f"carry out part {number} of {run}"
        tasks.append(Task(TaskId(f"t{number}"), instruction, rng.choice(("ann", "bob")), after=after, for_each=over))
    return Plan(tuple(tasks))


def request_of(run: str) -> RunRequested:
    rng = dice("request", run)
    policy = Policy(
        retry=Retry(base=0.004),
        breaking=Breaking(consecutive=1000, sample=1000),
        limits=Limits(max_tasks=2 * LONG, max_depth=2 * LONG, fan_out=100, replans=rng.randint(0, 1)),
        approve=rng.random() < 0.1,
        uncertain=rng.choice(("fail", "ask")),
    )
    plan = plan_of(run) if rng.random() < 0.5 else None
    return RunRequested(
        goal=run,
        roster=ROSTER,
        policy=policy,
        budget=Budget(calls=1_000_000),
        deadline=time.time() + 3600,
        seed=7,
        plan=plan,
    )


def rounds_of(run: str, task: TaskId) -> tuple[tuple[Effect, ...], ...]:
    """Return what the calls of a task do to the world, in rounds; the calls of a round are made at once."""
    kind = dice("rounds", run, task).choice(("any", "any", "two effects", "one reply"))
    if kind == "two effects":
        return (("read",), ("effect",), ("effect",))
    if kind == "one reply":
        return (("read",), ("effect", "effect"))
    return tuple((dice(f"{run}/{task}/{step}").choice(EFFECTS),) for step in range(dice(run, task).randint(0, 3)))


def requests_of(run: str, task: TaskId) -> list[str]:
    """Return what the calls of a task are asked for, in their order."""
    return [f"{run}/{task}/{step}" for step in range(sum(map(len, rounds_of(run, task))))]


class Outside:
    """The world as it is: one line a call that happened, on the disk before anybody hears of it."""

    def __init__(self, directory: Path, *, sync: bool) -> None:
        self._sync = sync
        self._path = directory / "outside.log"
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def knows(self, key: str) -> bool:
        """Return whether a call happened under an idempotency key."""
        return any(line.split("\t")[2] == key for line in self._path.read_text().splitlines())

    def happened(self, *words: str) -> None:
        os.write(self._file, ("\t".join(words) + "\n").encode())
        if self._sync:
            os.fsync(self._file)


class Executor(runtime_executor.Executor):
    """Does as the dice say, the same for the same run, task and attempt. The goal is the run's name."""

    def __init__(self, outside: Outside, pace: float) -> None:
        self._outside = outside
        self._pace = pace
        self._rng = random.Random()  # how long things take is the one thing left to chance

    async def _call(self, *words: str) -> None:
        if self._rng.random() < 0.5:  # else it happens at once
            await asyncio.sleep(self._rng.uniform(0, self._pace))
        self._outside.happened(*words)
        await asyncio.sleep(self._rng.uniform(0, self._pace))

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        run = brief.goal
        task = brief.work.task
        number = brief.work.number
        rounds = rounds_of(run, task)
        requests = iter(requests_of(run, task))
        for effects in rounds:
            async with asyncio.TaskGroup() as calls:
                for effect in effects:
                    calls.create_task(self._step(run, next(requests), effect, context))
        await self._call(run, "attempt", f"{task}/{number}")
        used = NOTHING if rounds else CALL
        fate = dice(run, task, number).random()
        if fate < 0.15:
            raise WorkFailed(Failure("network", "the line went dead"), used)
        if fate < 0.25:
            raise WorkFailed(Failure("logic", "this is not what was asked"), used)
        if fate < 0.3:
            raise WorkFailed(Failure("logic", "not allowed", permanent=True))
        return Done([task] * (number % 3 + 1), used)

    async def _step(self, run: str, request: str, effect: Effect, context: StepContext) -> None:
        async def call(key: str) -> Done:
            await self._call(run, effect, key, request, str(context.where.attempt))
            return Done({"request": request}, CALL)

        looks = effect == "effect" and dice("looks", run).random() < 0.4
        await context.step("tool", call, request=request, effect=effect, reserve=CALL, look=looks)

    async def look_up(self, brief: Brief, step: Step) -> Done | None:
        if dice("look", step.key).random() < 0.2:
            raise EffectUnknown
        return Done({"key": step.key}) if self._outside.knows(step.key) else None

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        await self._call(brief.goal, "plan", str(brief.work.number))
        known = {task.id for task in brief.tasks}
        left = [task for task in plan_of(brief.goal).tasks if task.id not in known]
        if len(left) > 2 and not brief.gaps:
            await context.grow(left[:2])
            left = left[2:]
        if left or not brief.gaps:
            return Proposal(tuple(left), used=CALL)
        first = brief.gaps[0].task
        if "[" in first:
            return Proposal((), used=CALL)
        new = Task(TaskId(f"again-{first}"), f"carry out {first} in another way", "bob", replaces=first)
        return Proposal((new,), used=CALL)

    async def refine(self, brief: Brief, context: StepContext) -> Refined:
        await self._call(brief.goal, "refine", f"{brief.work.task}/{brief.work.number}/{brief.worker}")
        return Refined(f"{brief.instruction}, with more care", CALL)

    async def answer(self, brief: Brief, context: StepContext) -> Done:
        await self._call(brief.goal, "answer", str(brief.work.number))
        return Done(f"from {len(brief.inputs)} results, without {len(brief.gaps)}", CALL)


def verdict(run: str, question: InputRequested, outside: Outside) -> InputAnswered:
    """Return what a person says, the same at every asking: what became of an effect is looked up first."""
    if question.what == "plan":
        return InputAnswered(question.number, "approve")
    first, *also = [_became(run, call, outside) for call in question.calls]
    return InputAnswered(question.number, first.verdict, result=first.result, also=tuple(also))


def _became(run: str, call: PendingCall, outside: Outside) -> CallVerdict:
    if dice("person", run, call.key).random() < 0.1:
        return CallVerdict(call.call, "fail")
    if outside.knows(call.key):
        return CallVerdict(call.call, "done", result=["a person says so"])
    return CallVerdict(call.call, "again")


async def carry(driver: Runner, run: str, outside: Outside, *, new: bool) -> Outcome:
    """One run to its end, with somebody to answer its questions."""
    found = await (driver.start(run, request_of(run)) if new else driver.resume(run))
    while found.question is not None:
        found = await driver.resume(run, verdict(run, found.question, outside))
    return found


def say(*words: object) -> None:
    text = "\t".join(map(str, words)) + "\n"
    os.write(1, text.encode())


def tell(run: str, entries: Sequence[Entry]) -> None:
    for entry in entries:
        say("told", run, entry.seq, repr(entry.at), encode(entry.event).decode())


def names(rows: Sequence[RunRow], prefix: str) -> Iterator[str]:
    number = max((int(row.run.removeprefix(prefix)) for row in rows), default=0)
    while True:
        number += 1
        yield f"{prefix}{number}"


async def live(options: argparse.Namespace) -> None:
    directory: Path = options.directory
    durability = "process" if options.quick else "machine"
    if options.store:
        journal = await open_journal(options.store, durability=durability)
    else:
        journal = await SqliteJournal.open(directory / "runs.db", stale=options.stale, durability=durability)
    outside = Outside(directory, sync=not options.quick)
    driver = Runner(journal, Executor(outside, options.pace), listener=tell)
    rows = await journal.runs()
    unfinished = [row.run for row in rows if row.ended is None]
    say("open", len(unfinished))
    fresh = names(rows, options.prefix)

    async def work() -> None:
        while unfinished or not options.finish:
            new = not unfinished
            run = next(fresh) if new else unfinished.pop()
            try:
                found = await carry(driver, run, outside, new=new)
            except Refused as error:  # somebody else has finished it
                say("refused", run, error)
                continue
            say("ended", run, found.ending, found.spent.tokens, found.spent.micros, found.spent.calls)

    async with asyncio.TaskGroup() as jobs:
        for _ in range(options.width):
            jobs.create_task(work())
    await journal.close()
    say("closed")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.victim", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--store", default="", help="the URL of its journal (default: a file in the directory)")
    parser.add_argument("--prefix", default="r", help="how the names of new runs begin")
    parser.add_argument("--width", type=int, default=4, help="how many runs at once")
    parser.add_argument("--pace", type=float, default=0.004, help="the longest sleep of a call in seconds")
    parser.add_argument("--stale", type=float, default=30.0)
    parser.add_argument("--finish", action="store_true", help="begin no new runs, and end when all have ended")
    parser.add_argument("--quick", action="store_true", help="durable against the end of the process only")
    logging.basicConfig(level=logging.WARNING)
    fenced = False
    try:
        asyncio.run(live(parser.parse_args()))
    except* Fenced as group:
        fenced = True
        print(f"fenced: {group.exceptions[0]}", file=sys.stderr)
    return FENCED if fenced else 0


if __name__ == "__main__":
    sys.exit(main())
