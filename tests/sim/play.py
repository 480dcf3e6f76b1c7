"""Play one seed: the production driver on virtual time, crashed and disturbed as the scenario says, and judged."""

import asyncio
import contextlib
import random
from collections.abc import Sequence

from msgspec import structs

from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.plan import TaskId
from chargehand.engine.state import RunState, Status
from chargehand.engine.value import decode_value, encode_value
from chargehand.errors import ChargehandError, Fenced, Refused, RunBusy, StoreUnavailable
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import JournalProxy, Lease
from chargehand.runtime.run_loop import RunLoop
from chargehand.runtime.runner import Outcome, Runner, outcome
from tests.sim.loop import VirtualLoop
from tests.sim.reference import expected
from tests.sim.scenario import Scenario
from tests.sim.shadow import OPEN, RUN, Shadow, Violation
from tests.sim.world import World

EPOCH = 1_000_000.0  # virtual time zero; a whole million, so that the world can count from it


class Crash(BaseException):
    """The process is gone. Not an Exception: nobody may handle it."""


class Handle(JournalProxy):
    """One process's hold on the journal. It may fail, and it dies with its process."""

    def __init__(self, play: "Play", rng: random.Random, *, faults: bool) -> None:
        super().__init__(play.journal)
        self.play = play
        self.dead = False
        self.failed = False
        self._rng = rng
        self._faults = faults
        self._failures = rng.randint(1, 6) if faults and "store" in play.plot.faults else 0
        crash = faults and "crash" in play.plot.faults and play.crashes < play.plot.crashes
        self._crash_in = rng.randint(1, play.plot.writes) if crash else 0

    async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        self._check_alive()
        if self._failures and self._rng.random() < 0.2:
            self._failures -= 1
            self.failed = True
            if self._rng.random() < 0.5:
                await self._really(lease, entries)
            raise StoreUnavailable("the disk is full")
        if self._crash_in:
            self._crash_in -= 1
            if not self._crash_in:
                if self._rng.random() < 0.7:
                    await self._really(lease, entries)
                self.die()
                raise Crash
        await self._really(lease, entries)
        self.failed = False

    async def _really(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        await self.play.journal.append(lease, entries)
        self.play.appended(lease, entries)

    async def release(self, lease: Lease) -> None:
        if not self.dead:
            await self.play.journal.release(lease)

    async def close(self) -> None:
        pass

    def die(self) -> None:
        self.dead = True
        for stream in self.play.journal._streams.values():
            stream.held = False  # what a journal's owner held ends with its process

    def _check_alive(self) -> None:
        if self.dead:
            raise Crash


class Play:
    """One seed under way. With `prefix` it begins as if a process had died right after that many entries."""

    def __init__(self, plot: Scenario, *, prefix: Sequence[ev.Entry] = (), deep: bool = False) -> None:
        self.plot = plot
        self.shadow = Shadow(plot)
        self.world = World(plot, self.shadow)
        self.journal = MemoryJournal()
        self.crashes = 0
        self.deep = deep
        self.loop = VirtualLoop(EPOCH)
        self.driver: Runner | None = None
        self.handle: Handle | None = None
        self.entries: list[ev.Entry] = []
        self._prefix = prefix
        self._jump = 0.0
        stops = random.Random(f"stops/{plot.seed}").choice((0, 1, 5))  # orderly ones
        self._stops = stops if "crash" in plot.faults else 0
        self._stopping = False
        self._commands = 0
        self._rng = random.Random(f"play/{plot.seed}")
        self._replayed: RunState | None = None

    def state(self) -> RunState:
        """What the journal says, read again only when there is more of it: nobody changes what is handed out."""
        if self._replayed is None or self._replayed.seq != self.entries[-1].seq:
            self._replayed = replay(self.entries)
        return self._replayed

    def run(self) -> list[ev.Entry]:
        """Play to the end; Violation, Deadlock or StepLimit say what went wrong."""
        self.loop.on_idle = self._idle
        try:
            found = self.loop.run_until_complete(self._main())
            left = asyncio.all_tasks(self.loop)
        except BaseException:
            self._sweep_up()
            raise
        finally:
            self.loop.close()
        self._judge(found, left)
        return self.entries

    def _sweep_up(self) -> None:
        """After a violation: end what still runs, so that it does not speak up later."""
        self.loop.on_idle = None
        self.loop.most_steps = self.loop.steps + 1000
        left = asyncio.all_tasks(self.loop)
        for job in left:
            job.cancel()
        with contextlib.suppress(BaseException):
            self.loop.run_until_complete(asyncio.wait(left))
        for job in left:
            if job.done() and not job.cancelled():
                job.exception()

    # --- incarnations

    async def _main(self) -> Outcome:
        if self._prefix:
            await self._restore()
        for life in range(40):
            faults = life < 6 and not self._prefix
            self.handle = Handle(self, random.Random(f"life/{self.plot.seed}/{life}"), faults=faults)
            self.driver = Runner(self.handle, self.world, wall=self._wall, ticks=self.loop.time)
            async with asyncio.TaskGroup() as jobs:
                main = jobs.create_task(self._live(life))
                others = [jobs.create_task(other) for other in self._disturbances(life, faults=faults)]
                if faults and self._stops:
                    others.append(jobs.create_task(self._stop(main)))
                found = await main
                for other in others:
                    other.cancel()
            if found is not None and found.question is None:
                return found
            await asyncio.sleep(self._rng.uniform(0, 3))
            if self.loop.time() > EPOCH + 200_000:
                break
        raise Violation(f"seed {self.plot.seed}: 12: the run never ended")

    async def _live(self, life: int) -> Outcome | None:
        """One process: what came of it, or None when it died or was fenced."""
        assert self.driver is not None
        try:
            wait = life > 4 or self._rng.random() < 0.5
            if not self.entries:
                return await self.driver.start(RUN, self._request(), wait_for_input=wait)
            state = self.state()
            if state.ended is not None:
                return outcome(RUN, state)
            looks = "slow" in self.plot.faults and life < 30
            only_looks = looks and random.Random(f"looks/{self.plot.seed}/{life}").random() < 0.5
            answers = [] if only_looks else self._answer_to_question()
            return await self.driver.resume(RUN, *answers, wait_for_input=wait, steal=True)  # its holder is gone
        except (Fenced, StoreUnavailable):
            return None
        except BaseExceptionGroup as group:
            if group.subgroup(Crash) is None:
                raise
        except Crash:
            pass
        except asyncio.CancelledError:
            job = asyncio.current_task()
            if not self._stopping or job is None:
                raise
            job.uncancel()
            self._stopped()
            return None
        assert self.handle is not None
        self.handle.die()
        self.crashes += 1
        if "jump" in self.plot.faults:
            self._jump += self._rng.choice((-3600.0, 3600.0))
        return None

    async def _stop(self, main: "asyncio.Task[Outcome | None]") -> None:
        """Tell the process to stop, in an orderly way."""
        await asyncio.sleep(random.Random(f"stop/{self.plot.seed}/{self._stops}").uniform(0, 20))
        if not main.done():
            self._stops -= 1
            self._stopping = True
            main.cancel()

    def _stopped(self) -> None:
        """Oracle 14: a process that stops in an orderly way says so, unless all there is to do is a person's."""
        self._stopping = False
        assert self.handle is not None
        if not self.entries or self.handle.dead or self.handle.failed or "zombie" in self.plot.faults:
            return  # it could not, or another has the run by now
        said = isinstance(self.entries[-1].event, ev.RunReleased)
        state = self.state()
        persons_turn = state.input is not None and not state.owing
        self._require(said or persons_turn or state.ended is not None, "14: an orderly stop was not written down")

    def _request(self) -> ev.RunRequested:
        plot = self.plot
        plan = plot.plan if plot.style == "fixed" else None
        deadline = self._wall() + plot.seconds
        tools = (ev.CallerTool("look_up", encode_value({})),)
        return ev.RunRequested(
            goal="the goal",
            roster=plot.roster,
            policy=plot.policy,
            budget=plot.budget,
            deadline=deadline,
            seed=plot.seed,
            plan=plan,
            answer_format=ev.AnswerFormat(tools=tools) if plot.callers_tools else None,
            earlier=plot.earlier,
        )

    def _wall(self) -> float:
        return self.loop.time() + self._jump

    async def _restore(self) -> None:
        lease = await self.journal.claim(RUN, new=True)
        await self.journal.append(lease, self._prefix)
        epoch = lease.epoch
        self.shadow.is_restoring = True
        for entry in self._prefix:
            epoch = entry.event.epoch if isinstance(entry.event, ev.RunResumed) else epoch
            self.shadow.see(epoch, entry)
        self.shadow.is_restoring = False
        self.journal._streams[RUN].epoch = epoch
        self.entries = list(self._prefix)
        self.loop.now = max(self.loop.now, self._prefix[-1].at)
        self.world.recall(self._prefix)

    # --- people and other disturbances

    def _disturbances(self, life: int, *, faults: bool):
        yield self._person()
        if not faults:
            return
        if "cancel" in self.plot.faults and life == 0:
            yield self._tell(ev.CancelRequested("enough"), self._rng.uniform(0, 40))
        if "pause" in self.plot.faults and life == 0:
            yield self._tell(ev.PauseSet(True), self._rng.uniform(0, 20))
        if "steered" in self.plot.faults:
            yield self._steer(random.Random(f"steer/{self.plot.seed}/{life}"))
        if "zombie" in self.plot.faults and life < 2:
            yield self._rival(self._rng.uniform(0, 20))

    async def _tell(self, report: ev.Event, wait: float) -> None:
        await asyncio.sleep(wait)
        assert self.driver is not None
        if isinstance(report, ev.Commanded):  # as another process would send it
            self._commands += 1
            report = structs.replace(report, command=f"c{self._commands}")
        try:
            await self.driver.ask(RUN, report)
        except (ChargehandError, asyncio.CancelledError):
            return

    async def _steer(self, rng: random.Random) -> None:
        """Skip tasks, give them to others and stop attempts, also where that does not fit."""
        while True:
            await asyncio.sleep(rng.uniform(0, 10))
            tasks = sorted(self.shadow.nodes)
            if not tasks:
                continue
            task = rng.choice(tasks)
            attempt = self.shadow.nodes[task].attempt
            worker = rng.choice(self.plot.roster.agents).name
            order = rng.choice(
                (
                    ev.TaskSkipped(task, "person"),
                    ev.TaskReassigned(task, worker),
                    ev.AttemptFailed(task, attempt, ev.Failure("stopped", "a person stopped it")),
                )
            )
            await self._tell(order, 0.0)

    async def _rival(self, wait: float) -> None:
        """Another process takes the run over while this one still drives it, and is killed when this one notices."""
        await asyncio.sleep(wait)
        handle = Handle(self, self._rng, faults=False)
        driver = Runner(handle, self.world, wall=self._wall, ticks=self.loop.time)
        try:
            await driver.resume(RUN, steal=True, wait_for_input=True)
        except (Refused, Fenced):
            return  # it had ended, or was taken back
        finally:
            handle.die()

    async def _person(self) -> None:
        """Answers whatever is asked, sooner or later, and lets a paused run go on; a silent one does neither."""
        is_slow = "slow" in self.plot.faults
        while True:
            await asyncio.sleep(self._rng.uniform(100, 2_000) if is_slow else self._rng.uniform(1, 20))
            assert self.driver is not None
            paused = self.shadow.paused and "silence" not in self.plot.faults
            for answer in [ev.PauseSet(False)] if paused else self._answer_to_question():
                try:
                    await self.driver.ask(RUN, answer)
                except (Refused, RunBusy):
                    continue
            if "silence" in self.plot.faults and self.loop.time() > EPOCH + 5_000:
                await self._give_up()

    async def _give_up(self) -> None:
        """Oracle 12: long after the deadline what nobody answered is still being asked; a cancel ends it."""
        assert self.driver is not None
        state = self.state()
        if state.ended is not None:
            return
        asked = self.shadow.question
        self._require(asked is not None and state.input == asked, "12: the run waits for nothing")
        with contextlib.suppress(Refused, RunBusy):
            await self.driver.ask(RUN, ev.CancelRequested("nobody answers"))

    def _answer_to_question(self) -> list[ev.Event]:
        if "silence" in self.plot.faults or self.shadow.question is None:
            return []  # a question that only the run knows of is never answered, and the run never ends: that shows
        state = self.state()
        if state.input is None:
            return []
        rng = self.world.rng("person", state.input.number)
        number = state.input.number
        is_under_way = self.driver is not None and RUN in self.driver.under_way
        if state.input.what == "effect":
            right = self._verdicts(state.input, rng)
            return [*self._wrong_verdicts(state.input), right] if is_under_way else [right]
        if state.input.what == "question":
            if rng.random() < 0.3:
                return [ev.InputAnswered(number, "reject", "who knows")]
            wrong = ev.InputAnswered(number, "answer", result="green")  # it is not among the options
            right = ev.InputAnswered(number, "answer", result=rng.choice(("red", "blue")))
            return [wrong, right] if is_under_way else [right]
        if state.input.what == "tool":
            return [self._leave(state.input, rng)]
        if rng.random() < 0.3 and self.plot.style == "whole" and number < 3:
            return [ev.InputAnswered(number, "reject", "not like this")]
        may_edit = self.plot.style in ("whole", "fixed") and self.plot.plan.tasks and not state.replans
        if rng.random() < 0.3 and may_edit and state.round <= 1:
            return [ev.InputAnswered(number, "edit", plan=self.plot.plan)]
        return [ev.InputAnswered(number, "approve")]

    def _verdicts(self, asked: ev.InputRequested, rng: random.Random) -> ev.InputAnswered:
        """A verdict on the first effect in doubt, and on some of the others, in any order."""
        others = [call.call for call in asked.calls[1:] if rng.random() < 0.6]
        rng.shuffle(others)
        words: tuple[ev.CallWord, ...] = ("done", "again", "again", "done", "fail")

        def said(word: ev.CallWord, call: int) -> object:
            return f"a person says so of {asked.number}.{call}" if word == "done" else None

        also = tuple(ev.CallVerdict(call, word := rng.choice(words), result=said(word, call)) for call in others)
        word = rng.choice(words)
        return ev.InputAnswered(asked.number, word, result=said(word, 1), also=also)

    def _wrong_verdicts(self, asked: ev.InputRequested) -> list[ev.Event]:
        """Answers that are refused: no result, a word of another question, a call that is not asked about."""
        number = asked.number
        unknown = ev.CallVerdict(len(asked.calls) + 1, "again")
        return [
            ev.InputAnswered(number, "done"),
            ev.InputAnswered(number, "approve"),
            ev.InputAnswered(number, "again", also=(unknown,)),
            ev.InputAnswered(number - 1, "again"),
        ]

    def _leave(self, asked: ev.InputRequested, rng: random.Random) -> ev.InputAnswered:
        """A verdict on the call, and on some of those that wait behind it, in any order."""
        others = [] if asked.question is None else [one.call for one in asked.question.also if rng.random() < 0.7]
        rng.shuffle(others)
        words: tuple[ev.CallWord, ...] = ("approve", "reject")
        also = tuple(ev.CallVerdict(call, rng.choice(words)) for call in others)
        return ev.InputAnswered(asked.number, rng.choice(words), also=also)

    # --- oracles

    def appended(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        fresh = [entry for entry in entries if entry.seq > self.shadow.seq]
        for entry in fresh:
            self.shadow.see(lease.epoch, entry)
            if isinstance(entry.event, ev.AttemptSucceeded):
                self.world.recorded[entry.event.task] = decode_value(entry.event.result)
        self.entries += fresh
        if self.deep:
            self._same_state()

    def _same_state(self) -> None:
        """Oracle 9: what is in memory is what the journal says."""
        live = self._live_state()
        if live is not None and live.seq == self.entries[-1].seq:
            self._require(snapshot(live) == snapshot(replay(self.entries)), "9: memory and journal disagree")

    def _live_state(self) -> RunState | None:
        drive = self._drive()
        return None if drive is None else drive.state

    def _drive(self) -> RunLoop | None:
        return self.driver._under_way.get(RUN) if self.driver is not None else None

    def _now(self) -> float:
        drive = self._drive()
        assert drive is not None
        return drive._clock()

    def _overdue(self) -> None:
        """Oracle 7: nobody sleeps through a moment at which something was to happen."""
        for task, node in self.shadow.nodes.items():
            waits = node.status == "backing off" and node.due < self._now() - 0.001
            self._require(not waits, f"7: {task} was to go on at {node.due}")

    def _require(self, truth: bool, text: str) -> None:
        self.shadow.require(truth, text)

    def _idle(self) -> None:
        """Oracle 6: no free slot while a task could start."""
        state = self._live_state()
        shadow = self.shadow
        if state is None or self.handle is None or self.handle.dead or self.handle.failed or state.seq != shadow.seq:
            return
        self._overdue()
        is_late = state.input is not None and self._now() >= shadow.work_until()
        blocked = is_late or state.paused or not state.approved or state.time_up or state.cancel is not None
        if blocked or state.ended is not None or state.ledger.capped:
            return
        running = [node.worker for node in shadow.nodes.values() if node.status == "running"]
        if len(running) >= self.plot.policy.limits.width:
            return
        for task, node in shadow.nodes.items():
            free = node.status == "ready" or (node.status == "waiting" and shadow.inputs_met(node.task))
            if not free or (node.task.for_each and not node.item_of) or shadow.without_source(task):
                continue
            named = [node.worker] if node.worker else shadow.allowed(node.task)[:1]
            for name in named:
                if shadow.barred(name, self._now()):
                    continue
                concurrency = shadow.agents[name].concurrency
                self._require(
                    bool(concurrency) and running.count(name) >= concurrency, f"6: {task} is ready and {name} is idle"
                )

    def _judge(self, found: Outcome, left: set[asyncio.Task[object]]) -> None:
        plot = self.plot
        shadow = self.shadow
        state = self.state()
        self._require(not left, f"8: jobs left over: {left}")
        self._require(not self.world.problems, f"3: {self.world.problems[:3]}")
        assert state.ended is not None
        assert shadow.requested is not None
        self._require(state.ended.ending == found.ending, "9: the outcome is not what the journal says")
        self._require(
            state.ledger.reserved.micros == 0 and state.ledger.reserved.calls == 0, "4: reservations left over"
        )
        spent = [state.ledger.tokens, state.ledger.micros, state.ledger.calls]
        self._require(spent == shadow.spent, f"4: the ledger says {spent}, the journal {shadow.spent}")
        latest = shadow.requested.deadline + plot.policy.grace + (0.01 if not self.crashes else 3600 * 8)
        if shadow.question is not None:  # it was cancelled: the time of the question does not count
            latest += self.entries[-1].at - shadow.asked_at
        if not (plot.faults & {"store", "zombie", "crash"}):
            self._require(self.entries[-1].at <= latest, "12: it ended after the deadline")
        missing = {task for task, node in shadow.nodes.items() if node.status != "done"}
        replaced = {node.task.replaces for node in shadow.nodes.values() if node.status == "done"}
        missing -= {task for task in missing & replaced if not shadow.nodes[task].open_effects()}
        named = {gap.task for gap in found.gaps if gap.status not in ("unserved", "unwritten", "unplanned", "refused")}
        self._require(named == missing, f"16: gaps {found.gaps} for {missing}")
        unserved = any(gap.status == "unserved" for gap in found.gaps)
        partial = {task for task, node in shadow.nodes.items() if node.status == "done" and node.is_partial} - replaced
        is_answered = found.ending in ("complete", "partial")
        left_out = shadow.left_out or bool(is_answered and partial)
        self._require(unserved == left_out, f"16: left out {shadow.left_out}, partial {partial}, gaps {found.gaps}")
        self._require(state.commands == shadow.commands, f"24: {shadow.commands} were sent, {state.commands} are known")
        self._statuses(state)
        self._effects()
        self._told_doubts(found)
        refused = self._told_refusals(found, replaced)
        self._ending(state, missing, left_out=left_out or refused)
        unheard = self.world.asks and "silence" in plot.faults
        if plot.calm and not unheard and not plot.policy.approve and "planner" not in plot.faults:
            self._as_expected(state)

    def _statuses(self, state: RunState) -> None:
        for task, progress in state.tasks.items():
            said = self.shadow.nodes[task].status
            self._require(
                progress.status.value == said or said in OPEN, f"9: {task} is {progress.status.value}, not {said}"
            )

    def _effects(self) -> None:
        for key, count in self.world.raw.items():
            most = 1 + self.shadow.again[key]
            self._require(count <= most, f"11: {key} happened {count} times, at most {most} were allowed")

    def _told_doubts(self, found: Outcome) -> None:
        """Oracle 11: however a run ends, each effect in doubt is a gap with its tool and arguments."""
        told = [(gap.task, gap.tool, gap.arguments) for gap in found.gaps if gap.reason == "uncertain"]
        doubts = [
            (task, call.name, call.arguments)
            for task, node in self.shadow.nodes.items()
            for call in node.open_effects().values()
        ]
        self._require(sorted(told, key=str) == sorted(doubts, key=str), f"11: in doubt: {doubts}, told: {told}")

    def _told_refusals(self, found: Outcome, replaced: set[TaskId]) -> bool:
        """Oracle 30: a call that a person refused and no later one made good is a gap; whether there is one."""
        told = [(gap.task, gap.tool, gap.arguments) for gap in found.gaps if gap.status == "refused"]
        refused = [
            (task, refusal.tool, refusal.arguments)
            for task, node in self.shadow.nodes.items()
            for refusal in node.refusals
            if task not in replaced
        ]
        if not self.shadow.nodes:
            return False
        self._require(sorted(told, key=str) == sorted(refused, key=str), f"30: refused: {refused}, told: {told}")
        return bool(refused)

    def _ending(self, state: RunState, missing: set[TaskId], *, left_out: bool) -> None:
        assert state.ended is not None
        ending = state.ended.ending
        done = any(one.status is Status.DONE for one in state.tasks.values())
        if ending == "complete":
            self._require(not missing and not left_out, f"16: complete without {missing}")
            self._require(done or self.plot.callers_tools, "16: complete without a result")
        if ending == "failed":
            self._require(not done and state.answer is None, "a run with results or an answer does not fail")
        if ending == "partial":
            unanswered = state.combine != "none" and state.answer is None
            self._require(bool(missing) or unanswered or left_out, "partial without a gap")
        written = any(isinstance(entry.event, ev.AnswerWritten) for entry in self.entries)
        unwritten = ending == "partial" and state.combine != "none" and not written
        told = [gap for gap in state.ended.gaps if gap.status == "unwritten"]
        self._require(len(told) == unwritten, f"16: answer written: {written}, gaps {told}")
        if ending == "cancelled":
            self._require(bool(self.plot.faults & {"cancel", "silence"}), "cancelled by nobody")
        if self.plot.callers_tools and self.plot.calm and "planner" not in self.plot.faults:
            asked = state.combine == "none" or self.shadow.answers > 0
            self._require(asked and not self.shadow.nodes, "25: the caller's tools were not thought of")
        slow = {"short", "silence", "jump"}
        self._require(
            state.ended.reason != "deadline" or bool(self.plot.faults & slow), "19: it hung until the deadline"
        )
        kept = self.plot.budget.floor.micros >= self.plot.roster.supervision.micros
        if (
            done
            and state.combine != "none"
            and kept
            and ending != "cancelled"
            and not self.plot.faults & {"usage", "crash"}
        ):
            self._require(self.shadow.answers > 0 or state.time_up, "4: nothing was left for the answer")

    def _as_expected(self, state: RunState) -> None:
        if any(one.failure is not None and one.failure.kind == "uncertain" for one in state.tasks.values()):
            return  # a crash left an effect in doubt: the fates do not know
        for task, status in expected(self.plot, self.world).items():
            found = state.tasks[task].status.value
            self._require(found == status, f"{task} ended {found}; by the plan and the fates it is {status}")


def snapshot(state: RunState) -> list[object]:
    """Everything that matters in a state, flat."""
    ledger = state.ledger
    desks = (state.planning, state.answering)
    flat: list[object] = [
        state.seq,
        state.closed,
        state.round,
        state.replans,
        state.approved,
        state.running,
        state.unsettled,
        state.settled_since_plan,
        state.asked,
        state.paused,
        state.released_at,
        state.time_up,
        state.budget_hit,
        state.cap_reached,
        state.combine,
        state.wake,
        ledger.tokens,
        ledger.micros,
        ledger.calls,
        ledger.held_tokens,
        ledger.held_micros,
        ledger.held_calls,
        sorted(state.owing),
        sorted(state.failed_pending),
        sorted(state.unreachable.items()),
        sorted(state.expandable),
        sorted(state.commands),
        state.acted,
        sorted(state.joinable),
        [(one.next, one.number, one.failures, one.is_open, one.redo, one.timer) for one in desks],
        sorted((name, count) for name, count in state.load.items()),
        sorted((name, one.row, one.opened, one.until, one.leased) for name, one in state.breakers.items()),
    ]
    for task, one in state.tasks.items():
        steps = sorted(
            (number, step.request, step.result is None, step.look, step.key)
            for number, step in (one.steps or {}).items()
        )
        flat.append(
            (
                task,
                one.status,
                one.unmet,
                one.wanted,
                one.spare,
                one.rank,
                one.attempt,
                one.failures,
                one.resumes,
                one.redo,
                one.keep,
                one.looks,
                one.calls,
                one.earlier,
                one.refusals,
                sorted((one.failed_calls or {}).items()),
                one.worker,
                one.tried,
                one.instruction,
                one.refined,
                one.because,
                one.items,
                one.timer,
                one.reserved,
                one.taken,
                one.crashes,
                sorted((one.answers or {}).items()),
                sorted((one.replies or {}).items()),
                None if one.result is None else bytes(one.result),
                steps,
                one.items_open,
                one.items_done,
            )
        )
    return flat
