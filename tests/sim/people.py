"""`python -m tests.sim.people`: programs of workers, persons who are asked, deaths and repetitions; seed by seed.

The production agents, runner and journals on virtual time. The services keep books of their own, and `people_oracle`
judges by them what must have happened once, never, or on a yes.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from typing import cast

from chargehand import Block
from chargehand.concurrency import BareTaskGroup
from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.state import RunState
from chargehand.errors import ChargehandError, Invalid, Refused, RunUnknown
from chargehand.journal.store import open_journal
from chargehand.runtime.answers import read_answer
from chargehand.runtime.approving import ApprovalRequest, Callbacks, PersonQuestion
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Runner
from tests.postgres import postgres_server
from tests.runtime.elsewhere import Elsewhere
from tests.runtime.streams import rows
from tests.sim.loop import VirtualLoop
from tests.sim.nested import EPOCH, Crash, Violation
from tests.sim.people_oracle import Evidence, judge, violation
from tests.sim.people_persons import Persons
from tests.sim.people_planted import hunt_planted
from tests.sim.people_stores import MemoryPlace, StoreLoop, StorePlace
from tests.sim.people_teams import Casting, draw_scenario
from tests.sim.people_world import World
from tests.sim.run import root

_LIVES = 60
_MOST_STEPS = 8_000
_MOMENT = 1.0
_DRAIN = 30.0


class Stopped(BaseException):
    """The process was stopped in an orderly way."""


class Seed:
    """One seed, from its request to the end of its last run; `store` is the URL of its journal, empty: in memory."""

    def __init__(self, seed: int, store: str = "") -> None:
        self.seed = seed
        self.chance = random.Random(f"lives/{seed}")
        self.scenario = draw_scenario(seed)
        self.world = World(
            seed,
            random.Random(f"world/{seed}"),
            parrot=self.chance.random() < 0.2,
            lies=self.chance.random() < 0.5,
            looks=self.chance.random() < 0.4,
        )
        self.cast = Casting(seed, self.scenario, self.world).draw()
        self.persons = Persons(seed, self.scenario.manner, self.world)
        self.store = store
        self.loop = StoreLoop(EPOCH) if store else VirtualLoop(EPOCH, most_steps=_MOST_STEPS)
        self.place: MemoryPlace | StorePlace = MemoryPlace()
        self.deaths = self.scenario.deaths
        self.evidence = Evidence(seed, self.scenario, self.cast, self.world)
        self._cancelled: set[str] = set()
        self._is_draining = False
        self._far: Runner | None = None
        """The runner of the far workers."""
        self._trouble: list[Exception] = []

    def play(self) -> list[str]:
        """Play it to its end and judge it; return what happened, one line for each fact."""
        try:
            self.loop.run_until_complete(self._in_store())
        finally:
            self._sweep_up()
            self.loop.close()
        return judge(self.evidence)

    def _sweep_up(self) -> None:
        """End what is left when a seed stops in the middle."""
        left = asyncio.all_tasks(self.loop)
        for job in left:
            job.cancel()
        if isinstance(self.loop, VirtualLoop):
            self.loop.most_steps = self.loop.steps + 1000
        if left:
            with contextlib.suppress(BaseException):
                self.loop.run_until_complete(asyncio.wait(left, timeout=60.0))

    def _violation(self, number: int, text: str) -> Violation:
        return violation(self.seed, number, text)

    async def _in_store(self) -> None:
        if not self.store:
            await self._both_runs()
            return
        assert isinstance(self.loop, StoreLoop)
        journal = await self.loop.count(open_journal(self.store, durability="process"))
        self.place = StorePlace(journal, self.loop)
        try:
            await self._both_runs()
        finally:
            await self.loop.count(journal.close())

    async def _both_runs(self) -> None:
        async with self.cast.team as team:
            team.add_listener(self._hear)
            await self._phase("r")
            if self.scenario.redo:
                self.world.phase = 2
                if self.scenario.mended:
                    self.world.faults.clear()
                    self.world.service_faults.clear()
                await self._phase("r2")
            async with team.remembering() as memory:
                assert memory is not None
                (block,) = await memory.catalog.find(Block, name="notes")
                self.evidence.block = block.value
        self.evidence.runs = await rows(self.place.journal)

    # --- lives

    async def _phase(self, run: str) -> None:
        """Play a run until it has ended."""
        for _ in range(_LIVES):
            state = await self._state(run)
            if state is not None and state.ended is not None:
                return
            if state is None or state.input is None:
                await self._live_with_functions(run)
            elif self.scenario.door == "alive" and not self._wants_cancel(run):
                await self._live(run)
            else:
                await self._visit(run, state, state.input)
        raise self._violation(20, f"{run} never ended")

    async def _state(self, run: str) -> RunState | None:
        try:
            return replay(await self.place.journal.read(run))
        except RunUnknown:
            return None

    async def _live_with_functions(self, run: str, *events: ev.Event) -> None:
        """Drive a run whose questions functions may answer; one of them may say what does not fit."""
        try:
            await self._live(run, *events)
        except Invalid:
            state = await self._state(run)
            if self.scenario.door != "callbacks" or state is None or state.input is None:
                raise

    async def _visit(self, run: str, state: RunState, asked: ev.InputRequested) -> None:
        """A person comes to a run that asks something."""
        persons = self.persons
        if self._wants_cancel(run):
            self._cancelled.add(run)
            await self._live(run, ev.CancelRequested("not wanted any more"))
            return
        if self.chance.random() < persons.manner.looks:
            await asyncio.sleep(persons.late())
            await self._live_with_functions(run)
            if self._is_silent:
                await self._still_asked(run, asked, "a look")
            return
        await asyncio.sleep(persons.late())
        for wrong in persons.wrong_answers(asked) if self._is_silent else ():
            await self._must_refuse(run, asked, wrong)
        answer: ev.InputAnswered | ev.Event = persons.answer(asked)
        if self.scenario.door == "words":
            answer = read_answer(run, state, persons.words(asked), question=asked.number)
        self._report_problems()
        await self._live_with_functions(run, answer)
        now = await self._state(run)
        is_answered = now is not None and (now.input is None or now.input.number != asked.number)
        if (
            self._is_silent
            and is_answered
            and now is not None
            and now.ended is None
            and self.chance.random() < persons.manner.twice
        ):
            self._must_refuse_words(run, now, asked)
            await self._must_refuse(run, now.input, answer, number=2)

    @property
    def _is_silent(self) -> bool:
        """Whether nobody answers while the run is driven."""
        return self.scenario.door in ("events", "words")

    async def _must_refuse(
        self, run: str, asked: ev.InputRequested | None, answer: ev.Event, *, number: int = 5
    ) -> None:
        """Give an answer that fits nothing; the question stays open."""
        try:
            await self._live(run, answer, mortal=False)
        except (Refused, Invalid):
            if asked is not None:
                await self._still_asked(run, asked, f"refused: {answer}")
            return
        raise self._violation(number, f"{run} asked {asked} and took {answer}")

    def _must_refuse_words(self, run: str, state: RunState, seen: ev.InputRequested) -> None:
        """Answer in a word without a number, by a person who has seen an earlier question."""
        try:
            answer = read_answer(run, state, "approve", shown=seen.number)
        except (Refused, Invalid):
            return
        raise self._violation(2, f"{run}: who has seen {seen} answered {state.input}: {answer}")

    async def _still_asked(self, run: str, asked: ev.InputRequested, after: str) -> None:
        state = await self._state(run)
        assert state is not None
        if state.input is None or state.input.number != asked.number:
            raise self._violation(3, f"after {after}, question {asked.number} of {run} is gone")

    def _wants_cancel(self, run: str) -> bool:
        is_due = bool(self.scenario.cancel) and self.loop.time() > EPOCH + self.scenario.cancel
        return is_due and run == "r" and run not in self._cancelled

    async def _live(self, run: str, *events: ev.Event, mortal: bool = True) -> None:
        """Drive a run in a process of its own, until it ends, asks, or dies."""
        world = self.world
        world.life += 1
        self._is_draining = False
        is_mortal = mortal and self.deaths > 0
        is_drained = is_mortal and self.scenario.drains and self.chance.random() < 0.5
        journal = self.place.journal
        journal.last = self.chance.randint(1, 60) if is_mortal and not is_drained else 0
        journal.kept = self.chance.random() < 0.7
        journal.instant = self.chance.random() < 0.5
        try:
            await self._drive(run, events, drain=self.chance.uniform(0, 15) if is_drained else None)
        except BaseExceptionGroup as group:
            self._check_end(group)
            await self._die(group)
        except (Crash, Stopped) as end:
            await self._die(end)
        self._report_problems()

    def _check_end(self, group: BaseExceptionGroup[BaseException]) -> None:
        if (refused := group.subgroup((Refused, Invalid))) is not None:
            raise refused.exceptions[0]
        if group.subgroup((Crash, Stopped)) is None:
            raise group

    async def _die(self, end: BaseException) -> None:
        """Go on with the same bytes in another process; what a dying one refused is nobody's fault."""
        self._trouble.clear()
        self.deaths -= 1
        self.evidence.died[self.world.life] = "stop" if _is_stop(end) else "crash"
        kept = await rows(self.place.journal)
        self.world.recorded = [bytes(event.result) for event in _finished(kept)]
        if _is_stop(end):
            self.evidence.stops.append(kept)
        await self.place.next_process()

    async def _drive(self, run: str, events: Sequence[ev.Event], *, drain: float | None) -> None:
        async with self.cast.team.executor() as executor, self._runner(executor) as runner, BareTaskGroup() as jobs:
            job = jobs.create_task(self._begin(runner, run, events))
            helpers = [jobs.create_task(self._cancel_later(runner, run))]
            if drain is not None:
                helpers.append(jobs.create_task(self._stop_later(runner, job, drain)))
            if self.scenario.door == "alive":
                helpers.append(jobs.create_task(self._answer_alive(runner, run)))
            try:
                await asyncio.wait({job})
            finally:
                for helper in helpers:
                    helper.cancel()
            if job.cancelled():
                raise Stopped

    @asynccontextmanager
    async def _runner(self, executor: Executor) -> AsyncGenerator[Runner]:
        journal = self.place.journal
        time_of = self.loop.time
        callbacks = Callbacks(self._on_approval, self._on_question) if self.scenario.door == "callbacks" else None
        self._far = None
        if not self.scenario.far:
            yield Runner(journal, executor, wall=time_of, ticks=time_of, callbacks=callbacks)
            return
        async with asyncio.TaskGroup() as jobs:
            elsewhere = Elsewhere(journal, jobs)
            self._far = Runner(journal, executor, wall=time_of, ticks=time_of, dispatcher=elsewhere)
            elsewhere.far = self._far
            yield Runner(journal, executor, wall=time_of, ticks=time_of, callbacks=callbacks, dispatcher=elsewhere)
            elsewhere.stop()

    async def _begin(self, runner: Runner, run: str, events: Sequence[ev.Event]) -> None:
        self._runner_now = runner
        self._run_now = run
        is_alive = self.scenario.door == "alive"
        if await self._state(run) is not None:
            await runner.resume(run, *events, steal=True, wait_for_input=is_alive)
            return
        request = self.cast.team.request(self.cast.goal, self.loop.time(), seed=self.seed)
        if run == "r":
            await runner.start(run, request, wait_for_input=is_alive)
        else:
            await runner.fork("r", run, request, wait_for_input=is_alive)

    def _hear(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Keep the results of steps as they are written."""
        self.world.recorded += [bytes(event.result) for event in _finished({run: entries})]

    # --- what happens meanwhile

    async def _cancel_later(self, runner: Runner, run: str) -> None:
        if run != "r" or not self.scenario.cancel:
            return
        await asyncio.sleep(max(0.0, EPOCH + self.scenario.cancel - self.loop.time()))
        if run in runner.under_way and run not in self._cancelled:
            self._cancelled.add(run)
            with contextlib.suppress(ChargehandError):
                await runner.ask(run, ev.CancelRequested("not wanted any more"))

    async def _stop_later(self, runner: Runner, job: asyncio.Task[None], seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._is_draining = True
        await runner.drain(_DRAIN)
        if self._far is not None:
            await self._far.drain(_DRAIN)
        job.cancel()

    async def _answer_alive(self, runner: Runner, run: str) -> None:
        """Answer the questions of a run while it is driven."""
        number = 0
        while True:
            state = runner.under_way.get(run)
            asked = None if state is None else state.input
            if asked is None or asked.number == number:
                await asyncio.sleep(0.1)
                continue
            await asyncio.sleep(self.persons.late())
            for wrong in self.persons.wrong_answers(asked):
                await self._must_refuse_alive(runner, run, asked, wrong)
            number = asked.number
            answer = self.persons.answer(asked)
            state = runner.under_way.get(run)
            if state is None or state.input is None or state.input.number != number:
                self._lost(run, asked)
                return
            try:
                await runner.ask(run, answer)
            except Refused as error:
                await asyncio.sleep(_MOMENT)  # a process that dies may refuse
                if run in runner.under_way and not self._is_draining:
                    raise self._violation(3, f"{run} refused {answer}: {error}") from error
                return
            if self.chance.random() < self.persons.manner.twice:
                await self._must_refuse_alive(runner, run, None, answer)

    def _lost(self, run: str, asked: ev.InputRequested) -> None:
        if run not in self._cancelled:
            self._trouble.append(self._violation(3, f"question {asked.number} of {run} is gone unanswered"))

    async def _must_refuse_alive(
        self, runner: Runner, run: str, asked: ev.InputRequested | None, answer: ev.InputAnswered
    ) -> None:
        try:
            await runner.ask(run, answer)
        except (Refused, Invalid):
            return
        raise self._violation(5 if asked else 2, f"{run} asked {asked} and took {answer}")

    async def _on_approval(self, request: ApprovalRequest) -> str | None:
        await asyncio.sleep(self.persons.late())
        state = self._runner_now.under_way.get(self._run_now)
        asked = None if state is None else state.input
        if asked is None:
            self._lost(self._run_now, ev.InputRequested(0, "tool"))
            return None
        return self.persons.decide(request, asked.calls)

    async def _on_question(self, question: PersonQuestion) -> str | int | None:
        await asyncio.sleep(self.persons.late())
        return self.persons.tell(question)

    def _report_problems(self) -> None:
        if self._trouble:
            raise self._trouble[0]
        if self.persons.problems:
            raise self._violation(*self.persons.problems[0])


def _finished(runs: Mapping[str, Sequence[ev.Entry]]) -> list[ev.StepFinished]:
    return [entry.event for entries in runs.values() for entry in entries if isinstance(entry.event, ev.StepFinished)]


def _is_stop(end: BaseException) -> bool:
    if isinstance(end, BaseExceptionGroup):
        return any(map(_is_stop, cast("BaseExceptionGroup[BaseException]", end).exceptions))
    return isinstance(end, Stopped)


# --- many seeds


def trouble(seed: int, store: str = "") -> tuple[int, str]:
    """Return a seed and what is wrong with it, or nothing.

    Args:
        seed: The seed.
        store: Where its journal is: empty for memory, `sqlite`, or the URL of a database of PostgreSQL.
    """
    try:
        if store == "sqlite":
            with TemporaryDirectory(prefix="chargehand-people-") as folder:
                Seed(seed, f"sqlite:///{folder}/runs.db").play()
        else:
            Seed(seed, f"{store}&tenant=seed{seed}" if store else "").play()
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is what is looked for
        return seed, root(error)
    return seed, ""


def _trouble_of(job: tuple[int, str]) -> tuple[int, str]:
    return trouble(*job)


def play_all(seeds: Sequence[int], *, jobs: int, sqlite: int, postgres: int) -> dict[int, str]:
    """Return what is wrong, by seed.

    Args:
        seeds: The seeds.
        jobs: How many are played at once.
        sqlite: Each seed that this number divides has its journal in a file.
        postgres: So many of the first have theirs in a database.
    """
    with ExitStack() as stack:
        url = ""
        if postgres:
            server = stack.enter_context(postgres_server())
            url = stack.enter_context(server.database())
        pool = stack.enter_context(get_context("fork").Pool(jobs))
        stores = [
            url if place < postgres else "sqlite" if sqlite and seed % sqlite == 0 else ""
            for place, seed in enumerate(seeds)
        ]
        found = pool.imap_unordered(_trouble_of, zip(seeds, stores, strict=True), chunksize=8)
        return {seed: said for seed, said in found if said}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.people", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000, help="how many (default 20,000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default 0)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", type=int, default=20, help="how many wrong seeds are shown (default 20)")
    parser.add_argument("--sqlite", type=int, default=50, help="each of so many has a journal in a file; 0: none")
    parser.add_argument("--postgres", type=int, default=100, help="so many have theirs in PostgreSQL (default 100)")
    parser.add_argument("--hunt", type=int, default=0, help="play so many until one is wrong, and stop there")
    parser.add_argument("--planted", action="store_true", help="hunt bugs that are planted on purpose")
    parser.add_argument("--only", default="", help="of the planted bugs only those whose name contains this")
    options = parser.parse_args()
    if options.planted:
        return hunt_planted(options.only)
    if options.hunt:
        wrong_one = next((found for found in map(trouble, range(options.hunt)) if found[1]), None)
        print(wrong_one[1] if wrong_one else f"nothing wrong in {options.hunt} seeds")
        return 1 if wrong_one else 0
    begun = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    wrong = play_all(seeds, jobs=options.jobs, sqlite=options.sqlite, postgres=options.postgres)
    seconds = time.monotonic() - begun
    print(f"{options.seeds} seeds in {seconds:.0f} s ({options.seeds / seconds:.0f} seeds/s), {len(wrong)} wrong")
    for seed, said in sorted(wrong.items())[: options.show]:
        print(said if said.startswith("Violation") else f"seed {seed}: {said}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
