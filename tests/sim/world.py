"""The outside world of one seed: workers, planner, person, effects. What happens under a key never changes.

So any two executions are comparable, whatever crashed in between.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.events import Effect
from chargehand.engine.failure import Failure, FailureKind, Missing, PendingCall, Question, Refusal
from chargehand.engine.owed import Brief
from chargehand.engine.plan import NO_TASK, Edge, Plan, Task, TaskId
from chargehand.engine.state import Step
from chargehand.engine.value import decode_value
from chargehand.errors import NotJson
from chargehand.runtime.executor import Done, EffectUnknown, Executor, Proposal, Refined, StepContext, WorkFailed
from tests.sim.scenario import Scenario
from tests.sim.shadow import RUN, Shadow

KINDS: tuple[FailureKind, ...] = ("network", "timeout", "resource")
FINAL = {
    "permanent": Failure("logic", "not allowed", permanent=True),
    "give up": Failure("logic", "the drawer is empty, and nobody else has one"),
    "refused": Failure(
        "resource", "401: no such key", permanent=True, refusal=Refusal("acme", "acme:small", "key", 401, "ACME_KEY")
    ),
}


class Receipt:
    """What an effect returns that no JSON can carry."""

    def __repr__(self) -> str:
        return "a receipt"


class World(Executor):
    """`started` is virtual time zero of the first incarnation; outages are measured from it."""

    def __init__(self, plot: Scenario, shadow: Shadow) -> None:
        self.plot = plot
        self.raw: Counter[str] = Counter()  # effects as the outside sees them: task and request
        self.problems: list[str] = []
        self.shadow = shadow
        self.expected_inputs: dict[tuple[TaskId, int], object] = {}
        self.recorded: dict[TaskId, object] = {}
        self.asks = self.rng("asks").random() < 0.25
        self.under_way: Counter[str] = Counter()  # calls of effects, by task and tool
        self.tries: Counter[str] = Counter()
        self.looks: Counter[str] = Counter()

    def rng(self, *key: object) -> random.Random:
        return random.Random("/".join(map(str, (self.plot.seed, *key))))

    # --- workers

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        task = brief.work.task
        number = brief.work.number
        node = self.shadow.nodes.get(task)
        is_written = node is not None and node.attempt == number
        # one that a person stops just as it begins is cancelled at its first wait
        if node is None or not is_written or (node.status != "running" and not node.is_stopped):
            self.problems.append(f"attempt {number} of {task} was made before it was written down")
        self._check_inputs(brief)
        if node is not None and node.keep != brief.keep:
            self.problems.append(f"attempt {number} of {task} was told keep={brief.keep}")
        base = number if node is None else node.base  # what it does was settled when it began anew
        rng = self.rng("attempt", task, base)
        fate = self.fate(task, number)
        latency = rng.choice((0.0, rng.uniform(0, 5), rng.uniform(0, 20)))  # with three steps: below every timeout
        steps = rng.choice((0, 0, 1, 2, 3))
        reached = steps
        if fate in KINDS:  # the line breaks after some of the steps
            reached = self.rng("breaks", task, number).randint(0, steps)
        await self._steps(task, base, reached, context)
        if reached < steps:
            self._deliver(task, number, fate, NOTHING)
        for earlier in range(base, number + 1):
            if earlier == number:
                self._leave(brief)
            steps += await self._make_good(brief, earlier, context)
        try:
            await asyncio.sleep(10_000 if fate == "hang" else latency)
            self._outage(brief)
        except asyncio.CancelledError:
            if "late" in self.plot.faults and rng.random() < 0.5:
                return Done({"late": task})
            raise
        done = self._deliver(task, number, fate, NOTHING if steps else self._used(rng))  # steps were paid one by one
        self._check_effects(task, base, reached)
        return done

    async def _steps(self, task: TaskId, base: int, count: int, context: StepContext) -> None:
        """One after the other, or side by side as the calls of one reply are: one that fails lets the others end."""
        if "doubts" not in self.plot.faults or self.rng("side by side", task, base).random() < 0.5:
            for step in range(count):
                await self._step(task, base, step, context)
            return
        failed: list[Exception] = []

        async def make(step: int) -> None:
            try:
                await self._step(task, base, step, context)
            except Exception as error:  # noqa: BLE001 - it is raised when the others have ended
                failed.append(error)

        async with asyncio.TaskGroup() as group:
            for step in range(count):
                group.create_task(make(step))
        if failed:
            raise failed[0]

    def _check_effects(self, task: TaskId, base: int, steps: int) -> None:
        """Oracle 27: an attempt that reached its end had each of its effects, or a person says so."""
        for step in range(steps):
            key = f"{task}/tool{step}"
            is_effect = self._effect(task, base, step) == "effect"
            if is_effect and not self.raw[key] and key not in self.shadow.said_done:
                self.problems.append(f"{task} ended without the effect {key}")

    async def _make_good(self, brief: Brief, number: int, context: StepContext) -> int:
        """After a refusal some models read it and call the same tool again, the same way or not.

        Returns:
            How many steps it took.
        """
        task = brief.work.task
        wishes = [text for text, why in (brief.answers or {}).items() if why and text.startswith(f"{task}/{number}/")]
        if "which?" in "".join(wishes):
            return 0
        steps = 0
        for text in sorted(wishes):
            if self.rng("makes good", text).random() < 0.5:
                continue

            async def call(_key: str) -> Done:
                await asyncio.sleep(0.1)
                return Done("paid less", NOTHING)

            await context.step("model", call, kind="model", request=text)
            wish = text.rpartition("/")[2] if self.rng("the same", text).random() < 0.5 else "less"
            await context.step("pay", call, request=text, effect="idempotent", arguments=f'{{"wish":"{wish}"}}')
            steps += 2
        return steps

    def _leave(self, brief: Brief) -> None:
        """In some worlds some attempts ask a person first. What the person says does not change how they go."""
        task = brief.work.task
        number = brief.work.number
        if not self.asks or self.rng("leave", task, number).random() < 0.7:
            return
        if self.rng("in words", task, number).random() < 0.3:
            self._ask_in_words(brief)
            return
        wishes = [f"{task}/{number}/{wish}" for wish in range(self.rng("wishes", task, number).randint(1, 3))]
        answers = brief.answers or {}
        for text, verdict in self.shadow.answered.items():
            if text in wishes and text not in answers:
                self.problems.append(f"what was said about {text} was forgotten")
            elif text in wishes and bool(answers[text]) != (verdict == "reject"):
                self.problems.append(f"the verdict on {text} was {verdict}, and another was taken for it")
        known = {*answers, *self.shadow.answered}
        waiting = [
            PendingCall(place, text, "pay", {"wish": text.rpartition("/")[2]}, key=text)
            for place, text in enumerate(wishes, 1)
            if text not in known
        ]
        if waiting:
            first, *others = waiting
            question = Question(
                "tool", "pay", arguments=first.arguments, call=first.call, also=tuple(others), key=first.key
            )
            raise WorkFailed(Failure("approval", waiting[0].text, question=question), NOTHING)

    def _ask_in_words(self, brief: Brief) -> None:
        text = f"{brief.work.task}/{brief.work.number}/which?"
        said = self.shadow.replied.get(text)
        got = (brief.replies or {}).get(text)
        if (None if got is None else decode_value(got)) != said:
            self.problems.append(f"the answer to {text} was {said}, and {got} was taken for it")
        if text not in self.shadow.answered:
            question = Question("question", key=text, options=("red", "blue"))
            raise WorkFailed(Failure("approval", text, question=question), NOTHING)
        if text not in (brief.answers or {}):
            self.problems.append(f"what was said to {text} was forgotten")

    def fate(self, task: TaskId, number: int) -> str:
        """How this attempt goes, whoever makes it: nothing else decides it."""
        rng = self.rng("fate", task, number)
        if "provider" in self.plot.faults and rng.random() < 0.3:
            return rng.choice((*KINDS, "hang", "park"))
        if "work" in self.plot.faults and rng.random() < 0.3:
            return rng.choice(("logic", "raise", "nan", "permanent", "quit"))
        if "mistakes" in self.plot.faults and self.rng("mistake", task, number).random() < 0.4:
            return self.rng("which mistake", task, number).choice(("bug", "bug", "give up", "refused"))
        return "fine"

    def value(self, task: TaskId) -> object:
        if task.startswith("l") and "[" not in task:
            return [f"{task}/{index}" for index in range(self.rng("items", task).randint(0, 4))]
        return {"task": task, "salt": self.rng("value", task).randint(0, 9)}

    def _deliver(self, task: TaskId, number: int, fate: str, used: Amount | None) -> Done:
        for kind in KINDS:
            if kind != fate:
                continue
            wait = self.rng("after", task, number).uniform(0, 50) if kind == "resource" else 0.0
            raise WorkFailed(Failure(kind, f"{fate} trouble", wait), used)
        if fate == "park":
            raise WorkFailed(Failure("resource", "come back tomorrow", 86_400.0), used)
        if fate == "logic":
            raise WorkFailed(Failure("logic", "this is not what was asked"), used)
        if fate in FINAL:
            raise WorkFailed(FINAL[fate], used)
        if fate == "bug":
            raise TypeError("a mistake in a worker's code")
        if fate == "raise":
            raise ZeroDivisionError("an input nobody reckoned with")
        if fate == "quit":
            raise asyncio.CancelledError
        value = float("nan") if fate == "nan" else self.value(task)
        is_partial = "partial" in self.plot.faults and self.rng("missing", task).random() < 0.1
        return Done(value, used, missing=Missing((f"the colour of {task}",)) if is_partial else None)

    def _used(self, rng: random.Random) -> Amount | None:
        if "usage" not in self.plot.faults:
            return Amount(calls=1, micros=1)
        return rng.choice((None, Amount(calls=1, micros=-3), Amount(calls=1, micros=1), Amount(calls=2, micros=20)))

    def _effect(self, task: TaskId, base: int, step: int) -> Effect:
        effects: tuple[Effect, ...] = ("read", "idempotent", "effect")
        drawn = self.rng("step", task, base, step).choice(effects)
        return "idempotent" if drawn == "effect" and self._waits(task) else drawn

    def _waits(self, task: TaskId) -> bool:
        """Whether the steps of a task wait for a run of their own."""
        return self.rng("waits", task).random() < 0.15

    async def _step(self, task: TaskId, base: int, step: int, context: StepContext) -> None:
        rng = self.rng("step", task, base, step)
        rng.random()
        effect = self._effect(task, base, step)
        request = f"{step}" if effect == "effect" else f"{base}/{step}"
        name = f"tool{step}"
        effect_key = f"{task}/{name}"

        async def call(key: str) -> Done:
            pending = self.shadow.nodes[task].open_steps()
            written = any(key == (one.key or f"{RUN}/{task}/{self._attempt(task)}/{at}") for at, one in pending.items())
            if not written and (paid or effect != "read"):  # a call that neither costs nor acts may run ahead
                self.problems.append(f"{key} was called before it was written down")
            if effect != "effect":
                await asyncio.sleep(rng.uniform(0, 6))
                return Done(Receipt() if odd else result, used)
            self.under_way[effect_key] += 1
            try:
                await self._act(effect_key, rng)
            finally:
                self.under_way[effect_key] -= 1
            return Done(Receipt() if odd else result, used)

        paid = self.plot.roster.supervision != NOTHING and rng.random() < 0.5
        reserve, used = (Amount(calls=1, micros=2), Amount(calls=1, micros=1)) if paid else (NOTHING, NOTHING)
        odd = effect != "read" and self.rng("odd", task, base, step).random() < 0.2
        result = {"value": {"step": step}} if effect == "effect" else {"step": step}
        try:
            got = await context.step(
                name,
                call,
                kind="worker" if self._waits(task) else "tool",
                request=request,
                effect=effect,
                reserve=reserve,
                arguments=f'{{"step":{step}}}' if effect == "effect" else "",
                look=effect == "effect" and self.rng("can look", task, step).random() < 0.5,
            )
        except NotJson as error:
            self.problems.append(f"what {task} did in step {step} was not kept: {error}")
            raise
        if effect == "effect" and effect_key in self.shadow.said_done:
            result = {"value": self.shadow.said_done[effect_key]}
        if got not in (result, "a receipt"):
            self.problems.append(f"step {step} of {task} returned {got}, not {result}")

    def _attempt(self, task: TaskId) -> int:
        return self.shadow.nodes[task].attempt

    async def _act(self, key: str, rng: random.Random) -> None:
        """An effect happens. In some worlds it breaks off before or after that, or never returns."""
        self.tries[key] += 1
        mood = "fine"
        if "doubts" in self.plot.faults:
            moods = ("fine", "fine", "breaks before", "breaks after", "hangs before", "hangs after")
            mood = self.rng("mood", key, self.tries[key]).choice(moods)
        await asyncio.sleep(rng.uniform(0, 3))
        if mood == "breaks before":
            raise WorkFailed(Failure("network", "the line broke"), NOTHING)
        if mood == "hangs before":
            await asyncio.sleep(10_000)
        self.raw[key] += 1
        await asyncio.sleep(10_000 if mood == "hangs after" else rng.uniform(0, 3))
        if mood == "breaks after":
            raise WorkFailed(Failure("network", "the line broke"), NOTHING)

    async def look_up(self, brief: Brief, step: Step) -> Done | None:
        """Some tools know what became of their effects, some do not, some fail or hang when they are asked."""
        task = brief.work.task
        key = f"{task}/{step.name}"
        node = self.shadow.nodes[task]
        opened = [call.key for call in node.open_effects().values() if call.look]
        if step.key not in opened or node.status != "running":
            self.problems.append(f"{key} was looked up although it is not in doubt")
        self.looks[key] += 1
        kind = self.rng("look", key, self.looks[key]).choice(("tells", "tells", "unknown", "fails", "hangs"))
        await asyncio.sleep(10_000 if kind == "hangs" else self.rng("look takes", key, self.looks[key]).uniform(0, 2))
        if kind == "fails":
            raise WorkFailed(Failure("network", "nobody answers"), NOTHING)
        if kind == "unknown" or self.under_way[key]:
            self.shadow.told[key] = "unknown"
            raise EffectUnknown
        self.shadow.told[key] = "happened" if self.raw[key] else "absent"
        return Done({"value": {"step": int(step.name.removeprefix("tool"))}}) if self.raw[key] else None

    def recall(self, entries: Sequence[ev.Entry]) -> None:
        """What the outside has seen by the end of these entries; of an open effect nobody knows, so it is drawn."""
        opened: dict[tuple[TaskId, int], str] = {}
        for entry in entries:
            event = entry.event
            if isinstance(event, ev.AttemptSucceeded):
                self.recorded[event.task] = decode_value(event.result)
            if isinstance(event, ev.StepStarted) and event.effect == "effect":
                opened[event.task, event.step] = f"{event.task}/{event.name}"
                self.tries[f"{event.task}/{event.name}"] += 1
            if isinstance(event, ev.StepFinished) and (event.task, event.step) in opened:
                self.raw[opened.pop((event.task, event.step))] = 1
            if isinstance(event, ev.StepLookedUp) and event.outcome == "absent":
                del opened[event.task, event.step]
        for key in opened.values():
            self.raw[key] = max(self.raw[key], self.rng("happened", key, self.tries[key]).randint(0, 1))

    def _outage(self, brief: Brief) -> None:
        if "outage" not in self.plot.faults:
            return
        agent = next(agent for agent in self.plot.roster.agents if agent.name == brief.worker)
        rng = self.rng("outage", agent.model)
        begins = rng.uniform(0, 20)
        now = asyncio.get_running_loop().time() % 1_000_000
        if agent.model == "m1" and begins < now < begins + rng.uniform(10, 300):
            raise WorkFailed(Failure("network", "the provider is down"), NOTHING)

    def _check_inputs(self, brief: Brief) -> None:
        """Oracle 3: a worker sees exactly what was recorded for it, the same at every try."""
        seen = [(one.task, None if one.value is None else decode_value(one.value), one.gaps) for one in brief.inputs]
        before = self.expected_inputs.setdefault((brief.work.task, 0), seen)
        if before != seen:
            self.problems.append(f"{brief.work.task} was given {seen} after {before}")
        self._check_complete(brief, {one.task for one in brief.inputs})
        self._check_earlier(brief)
        for task, value, gaps in seen:
            plain = "[" not in brief.work.task and not gaps and task in self.recorded
            if plain and value != self.recorded[task]:
                self.problems.append(f"{brief.work.task} was given {value} for {task}, not {self.recorded[task]}")

    def _check_earlier(self, brief: Brief) -> None:
        """Oracle 26: what attempts in the run around this one left is known to each attempt."""
        earlier = self.plot.earlier
        if earlier is None or brief.work.task != self.plot.plan.tasks[0].id:
            return
        pairs = (
            (earlier.effects, brief.effects),
            (earlier.answers, brief.answers),
            (earlier.replies, brief.replies),
        )
        known = all(left.items() <= (got or {}).items() for left, got in pairs)
        if not known or not set(earlier.refused) <= set(brief.refused):
            self.problems.append(f"{brief.work.task} was not told what was before the run")
        is_first = brief.work.number == earlier.count + 1
        if is_first and earlier.failure is not None and brief.failure != earlier.failure.message:
            self.problems.append(f"{brief.work.task} was not told what failed before the run")

    def _check_complete(self, brief: Brief, seen: set[TaskId]) -> None:
        asked = self.shadow.nodes[brief.work.task].task
        edges = [edge if isinstance(edge, Edge) else Edge(edge) for edge in asked.after]
        wanted = ({edge.task for edge in edges if edge.need != "quorum"} | {asked.for_each}) - {NO_TASK}
        quorum = seen & {edge.task for edge in edges if edge.need == "quorum"}
        if not wanted <= seen or len(quorum) < asked.quorum:
            self.problems.append(f"{brief.work.task} was given only {seen}")

    # --- the supervisor

    def _asks_to_wait(self, duty: str, task: str, number: int) -> None:
        """A provider that wants no calls for a while: for some seconds, or for longer than the run has."""
        rng = self.rng("pause", duty, task, number)
        if "pauses" in self.plot.faults and rng.random() < 0.3:
            wait = rng.choice((rng.uniform(1, 50), self.plot.seconds * rng.uniform(1, 2), 7 * 86_400.0))
            raise WorkFailed(Failure("resource", f"{duty}: come back later", wait), NOTHING)

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        rng = self.rng("plan", brief.work.number)
        await asyncio.sleep(rng.uniform(0, 5))
        self._asks_to_wait("plan", "", brief.work.number)
        if "planner" in self.plot.faults and rng.random() < 0.4:
            return self._nonsense(rng)
        self._wonder(brief)
        known = {task.id for task in brief.tasks}
        left = [task for task in self.plot.plan.tasks if task.id not in known]
        if not left:
            new = self._again(brief) if brief.replan else ()
            return Proposal(new, self.plot.plan.combine, used=self._used(rng))
        if self.plot.style == "rounds" and len(left) > 2:
            wake = "any" if rng.random() < 0.5 else "all"
            return Proposal(tuple(left[:2]), self.plot.plan.combine, closed=False, wake=wake, used=self._used(rng))
        if self.plot.style == "pieces" and len(left) > 1:
            cut = rng.randint(1, len(left))
            await context.grow(left[:cut])
            await asyncio.sleep(rng.uniform(0, 10))
            left = left[cut:]
        return Proposal(tuple(left), self.plot.plan.combine, used=self._used(rng))

    def _wonder(self, brief: Brief) -> None:
        """In some worlds the planner asks a person once, and plans the same whatever the answer is."""
        said = {text: decode_value(reply) for text, reply in (brief.replies or {}).items()}
        if said != self.shadow.told_planner:
            self.problems.append(f"the planner was told {said}, and a person had said {self.shadow.told_planner}")
        if self.asks and self.rng("wonders").random() < 0.5 and not said:
            question = Question("question", key="why", options=("red", "blue"))
            raise WorkFailed(Failure("approval", "why?", question=question), NOTHING)

    def _again(self, brief: Brief) -> tuple[Task, ...]:
        """A replan: one new task in the place of the first missing one."""
        missing = [gap.task for gap in brief.gaps if "[" not in gap.task]
        if not missing:
            return ()
        worker = self.plot.roster.agents[0].name
        new = TaskId(f"r{brief.work.number}")
        return (Task(new, f"carry out {missing[0]} differently", worker, replaces=missing[0]),)

    def _nonsense(self, rng: random.Random) -> Proposal:
        kind = rng.choice(("cycle", "unknown", "huge", "raise", "network"))
        if kind == "raise":
            raise ValueError("the model wrote prose")
        if kind == "network":
            raise WorkFailed(Failure("network", "no line to the planner"))
        worker = self.plot.roster.agents[0].name
        a = TaskId("a")
        b = TaskId("b")
        plans = {
            "cycle": Plan((Task(a, "carry out a first", worker, after=(b,)), Task(b, "then do b", worker, after=(a,)))),
            "unknown": Plan((Task(a, "ask somebody else entirely", "nobody"),)),
            "huge": Plan(tuple(Task(TaskId(f"h{n}"), f"part {n} of very many", worker) for n in range(60))),
        }
        return Proposal(plans[kind].tasks)

    async def refine(self, brief: Brief, context: StepContext) -> Refined:
        rng = self.rng("refine", brief.work.task, brief.work.number)
        await asyncio.sleep(rng.uniform(0, 5))
        self._asks_to_wait("refine", brief.work.task, brief.work.number)
        if "work" in self.plot.faults and rng.random() < 0.2:
            raise WorkFailed(Failure("network", "no line to the refiner"))
        if brief.failure == "":
            self.problems.append(f"the refiner of {brief.work.task} was not told what failed")
        return Refined(f"carry out {brief.work.task} with more care", self._used(rng))

    async def answer(self, brief: Brief, context: StepContext) -> Done:
        rng = self.rng("answer", brief.work.number)
        await asyncio.sleep(rng.uniform(0, 3))
        self._asks_to_wait("answer", "", brief.work.number)
        if "provider" in self.plot.faults and rng.random() < 0.2:
            raise WorkFailed(Failure("network", "no line to the synthesiser"))
        return Done(
            {"from": [one.task for one in brief.inputs], "gaps": [gap.task for gap in brief.gaps]}, self._used(rng)
        )
