"""The oracles: a second, naive reading of the journal that shares no code with the scheduler it watches."""

from collections import Counter

from msgspec import Struct, field, json, structs

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.plan import Edge, Task, TaskId
from tests.sim.scenario import Scenario

RUN = "run"
"""The name of the run in every world."""


class Violation(AssertionError):
    """An oracle was broken."""


class Call(Struct):
    """A step of an attempt: finished, or open."""

    name: str
    effect: str
    kind: str
    request: str
    key: str
    look: bool
    arguments: dict[str, object]
    is_open: bool = True

    @property
    def is_open_effect(self) -> bool:
        return self.is_open and self.effect == "effect"


class Refusal(Struct):
    """A call that a person did not allow."""

    tool: str
    arguments: dict[str, object]


MOST_LOOKS = 5


class Node(Struct):
    task: Task
    status: str = "waiting"
    attempt: int = 0
    worker: str = ""
    base: int = 0  # the attempt that began anew last: those after it go on from its steps
    redo: bool = False  # the same attempt goes on
    keep: bool = False  # the next attempt goes on from the steps of the last one
    calls: dict[int, Call] = field(default_factory=dict[int, Call])
    doubts: set[int] = field(default_factory=set[int])  # effects that were open when the attempt was taken up
    looks: int = 0  # how often an attempt was taken up to look up an effect
    failure: str = ""  # the kind of the last one
    failures: int = 0  # of this worker
    tried: list[str] = field(default_factory=list[str])  # workers before this one
    refusals: list[Refusal] = field(default_factory=list[Refusal])  # no later call made them good
    terminal: int = 0
    not_before: float = 0.0
    due: float = 0.0
    starts: int = 0
    resumes: int = 0
    item_of: str = ""
    items: int = -1
    probe: float = 0.0
    given_up_by: str = ""  # who failed for good
    is_partial: bool = False  # its result leaves something out
    is_unwanted: bool = False  # a person skipped it
    is_stopped: bool = False  # a person stopped its last attempt
    is_left_inside: bool = False  # a process died while a run inside it was under way
    awaits_end: bool = False  # it was stopped, and what a run inside it left is not told yet

    def open_steps(self) -> dict[int, Call]:
        return {number: call for number, call in self.calls.items() if call.is_open}

    def open_effects(self) -> dict[int, Call]:
        return {number: call for number, call in self.calls.items() if call.is_open_effect}

    def may_look(self) -> bool:
        """Whether a tool may still say what became of an effect in doubt."""
        return self.looks < MOST_LOOKS and any(call.look for call in self.open_effects().values())

    def drop_reads(self) -> None:
        """Open steps that are no effects are made again, under the same numbers."""
        self.calls = {number: call for number, call in self.calls.items() if not call.is_open or call.is_open_effect}


class Gauge(Struct):
    """A breaker as the rules state it."""

    row: int = 0
    recent: list[tuple[float, bool]] = field(default_factory=list[tuple[float, bool]])
    opened: int = 0
    until: float = 0.0
    probe: float = 0.0


OPEN = (
    "waiting",
    "ready",
    "running",
    "failed attempt",
    "refining",
    "backing off",
    "expanded",
    "asking",
    "asks leave",
    "stopped",
)


class Shadow:
    def __init__(self, plot: Scenario) -> None:
        self.plot = plot
        self.nodes: dict[TaskId, Node] = {}
        self.agents = {agent.name: agent for agent in plot.roster.agents}
        self.seq = 0
        self.at = 0.0
        self.epoch = 0
        self.spent = [0, 0, 0]
        self.overshoot = [0, 0, 0]
        self.reserved: dict[tuple[str | int, ...], Amount] = {}
        self.expected: dict[tuple[str | int, ...], Amount | None] = {}
        self.gauges: dict[str, Gauge] = {}
        self.ended: ev.RunEnded | None = None
        self.requested: ev.RunRequested | None = None
        self.origin = ""
        self.round: list[TaskId] = []
        self.paused = False
        self.released_at: float | None = None
        self.time_up = False
        self.is_cancelled = False
        self.question: ev.InputRequested | None = None
        self.answered: dict[str, str] = {}  # verdicts of a person, by call
        self.told_planner: dict[str, object] = {}  # what a person answered to the planner, by question
        self.replied: dict[str, object] = {}  # what a person answered, by question
        self.asked_at = 0.0
        self.planner_at_work = False
        self.replanned = False
        self.left_out = False  # the plan was closed although the planner never finished it
        self.answers = 0
        self.bad_plans = 0
        self.planner_failure: ev.Failure | None = None
        self.began = 0.0
        self.waited = 0.0  # how long nobody could go on: it does not count
        self.supervisor_rests: dict[str, float] = {}  # until when a duty is not tried again
        self.again: Counter[str] = Counter()  # how often a person had an effect made again, by task and tool
        self.said_done: dict[str, object] = {}  # what a person says an effect returned, by task and tool
        self.told: dict[str, str] = {}  # what a tool said when it looked up its effect, by task and tool
        self.is_restoring = False  # entries of a journal are read that was judged before
        self.commands: set[str] = set()  # those that were carried out

    def require(self, truth: bool, text: str) -> None:
        if not truth:
            raise self._violation(text)

    def _violation(self, text: str) -> Violation:
        return Violation(f"seed {self.plot.seed}, entry {self.seq}: {text}")

    # --- one entry

    def see(self, epoch: int, entry: ev.Entry) -> None:
        self.require(entry.seq == self.seq + 1, f"13: a hole or repetition before entry {entry.seq}")
        self.require(entry.at >= self.at, "13: time went backwards")
        self.require(epoch >= self.epoch, f"13: an entry of the old epoch {epoch}")
        self.require(self.ended is None, "2: something happened after the end")
        self.seq = entry.seq
        self.at = entry.at
        self.epoch = epoch
        if isinstance(entry.event, ev.Commanded) and entry.event.command:
            self.require(entry.event.command not in self.commands, f"24: {entry.event.command} was carried out twice")
            self.commands.add(entry.event.command)
        name = "_" + type(entry.event).__name__.lower()
        getattr(self, name, self._other)(entry.event)
        self._check_money()

    def _pauseset(self, event: ev.PauseSet) -> None:
        self.paused = event.paused

    def _other(self, event: ev.Event) -> None:
        pass

    def _runrequested(self, event: ev.RunRequested) -> None:
        self.began = self.at
        self.requested = event
        self.origin = event.origin or RUN
        if event.plan is not None:
            self._add(event.plan.tasks)
        for node in self.nodes.values():
            node.attempt = 0 if event.earlier is None else event.earlier.count

    def _tasksadded(self, event: ev.TasksAdded) -> None:
        if event.done:
            if event.fallback is not None:
                self._check_fallback(event, event.fallback)
            elif not self.planner_at_work:  # nobody said so: the planner was given up
                self.left_out = self.left_out or not self.replanned
            else:  # a plan, at last, if perhaps without a task
                self.planner_failure = None
            self.planner_at_work = False
            self.bad_plans = 0
            self._settle(("plan", event.number), event.used)
        self._add(event.tasks)

    def _check_fallback(self, event: ev.TasksAdded, failure: ev.Failure) -> None:
        """Oracle 20: without a plan, one worker who can be reached gets the whole request, and the answer says so."""
        assert self.requested is not None
        self.require(not self.nodes and not self.planner_at_work, "20: a fallback plan beside another plan")
        known = self.planner_failure  # none where there was no time to ask the planner at all
        is_late = known is None and failure.kind == "timeout"
        self.require(is_late or failure == known, f"20: no plan for {failure.message}, not for {known}")
        given = [(task.worker, task.instruction) for task in event.tasks]
        wanted = self.fallback_worker(failure)
        self.require(given == [(wanted, self.requested.goal)], f"20: {given} instead of everything to {wanted!r}")
        is_broken = failure.code_error is not None or failure.refusal is not None
        is_only = len(self.agents) == 1 and not is_broken
        is_meant_for_it = wanted == self.plot.roster.generalist and failure.kind == "logic" and not failure.permanent
        self.left_out = self.left_out or not (is_only or is_meant_for_it)

    def fallback_worker(self, failure: ev.Failure) -> str:
        """Who gets everything when no plan can be made: nobody in these worlds says what it does."""
        roster = self.plot.roster
        down = roster.planner if failure.kind in ("network", "timeout", "resource") else "nothing"
        reachable = [agent.name for agent in roster.agents if not agent.model or agent.model != down]
        if roster.generalist in reachable:
            return roster.generalist
        return reachable[0] if reachable and len(roster.agents) == 1 else ""

    def _add(self, tasks: tuple[Task, ...]) -> None:
        for task in tasks:
            self.require(task.id not in self.nodes, f"a second task {task.id}")
            self.nodes[task.id] = Node(task)
            self.round.append(task.id)

    def _inputanswered(self, event: ev.InputAnswered) -> None:
        self.require(not self.time_up, "12: a question was answered after the deadline")
        asked = self.question
        self.question = None
        self._give_time(self.at - self.asked_at)
        if asked is not None and asked.what in ("tool", "question"):
            words = ("approve", "reject") if asked.what == "tool" else ("answer", "reject")
            self.require(event.verdict in words, f"{event.verdict} does not answer this")
            if asked.task == "":
                said = event.result if event.verdict == "answer" else event.feedback
                self.told_planner[asked.text] = said
                return
            if event.verdict == "answer":
                self.replied[asked.text] = event.result
                self.require(self.replied[asked.text] in ("red", "blue"), "23: an answer that was not to choose from")
            self.answered[asked.text] = event.verdict
            if asked.what == "tool":
                self._approved(asked, event)
            self.nodes[asked.task].status = "ready"
            self.nodes[asked.task].redo = True
        elif asked is not None and asked.what == "effect":
            self._doubts_resolved(asked, event)
        elif event.verdict in ("edit", "reject"):
            for task in self.round:
                del self.nodes[task]
            self.round = []
            self.bad_plans = 0
            if event.plan is not None:
                self._add(event.plan.tasks)
                self.round = []
        elif event.verdict == "approve":
            self.round = []

    def _approved(self, asked: ev.InputRequested, event: ev.InputAnswered) -> None:
        """Each verdict is for one call; a refused one stands until a later call makes it good."""
        verdicts = {verdict.call: verdict.verdict for verdict in event.also} | {asked.calls[0].call: event.verdict}
        node = self.nodes[asked.task]
        for call in asked.calls:
            if call.call not in verdicts:
                continue
            self.answered[call.text] = verdicts[call.call]
            if verdicts[call.call] == "reject":
                node.refusals.append(Refusal(call.tool, call.arguments))

    def _doubts_resolved(self, asked: ev.InputRequested, event: ev.InputAnswered) -> None:
        """Oracle 27: a verdict is for one effect; an attempt goes on when none of its effects is in doubt."""
        verdicts: dict[int, ev.InputAnswered | ev.CallVerdict] = {verdict.call: verdict for verdict in event.also}
        verdicts[asked.calls[0].call] = event
        failed: set[TaskId] = set()
        for call in asked.calls:
            verdict = verdicts.get(call.call)
            calls = self.nodes[call.task].calls
            if verdict is None:
                continue
            if verdict.verdict == "done":
                calls[call.step].is_open = False
                self.said_done[f"{call.task}/{call.tool}"] = verdict.result
            elif verdict.verdict == "again":
                del calls[call.step]
                self.again[f"{call.task}/{call.tool}"] += 1
            else:
                failed.add(call.task)
        for task in {call.task for call in asked.calls}:
            node = self.nodes[task]
            if task in failed:
                self._terminal(task, "failed")
            elif node.open_effects():
                node.status = "failed attempt"
            else:
                node.status = "ready"
                node.redo = True

    def _inputrequested(self, event: ev.InputRequested) -> None:
        self.question = event
        self.asked_at = self.at
        if event.what == "effect":
            self._effects_asked(event)
        elif event.task:
            node = self.nodes[event.task]
            self.require(node.status == "asks leave", f"a person is asked about {event.task}, which is {node.status}")
            node.status = "asking"

    def _effects_asked(self, event: ev.InputRequested) -> None:
        """Oracle 27: one question lists all effects in doubt that no tool can look up, each with its call."""
        asked = [(call.task, call.attempt, call.step, call.tool, call.arguments, call.key) for call in event.calls]
        waiting = {task: node for task, node in self.nodes.items() if self._waits_for_verdict(node)}
        wanted = [
            (task, node.attempt, number, call.name, call.arguments, call.key)
            for task, node in waiting.items()
            for number, call in node.open_effects().items()
        ]
        self.require(self.plot.policy.uncertain == "ask", "27: a person is asked although the policy says to fail")
        self.require(sorted(asked, key=str) == sorted(wanted, key=str), f"27: asked about {asked}, not {wanted}")
        numbers = [call.call for call in event.calls]
        self.require(numbers == list(range(1, len(asked) + 1)), f"27: calls are numbered {numbers}")
        self.require(event.task == event.calls[0].task, f"27: a question of {event.task} about {event.calls[0].task}")
        for node in waiting.values():
            node.status = "asking"

    def _waits_for_verdict(self, node: Node) -> bool:
        return node.status == "failed attempt" and node.failure == "uncertain" and not node.may_look()

    # --- attempts

    def _attemptstarted(self, event: ev.AttemptStarted) -> None:
        node = self.nodes[event.task]
        node.is_left_inside = False
        again = node.redo
        wanted = node.attempt if again else node.attempt + 1
        self.require(event.attempt == wanted, f"14: attempt {event.attempt} after {node.attempt}")
        self.require(node.status in ("waiting", "ready"), f"1: {event.task} started while {node.status}")
        self.require(bool(node.item_of) or self.inputs_met(node.task), f"1: {event.task} started too early")
        self.require(not self.without_source(event.task), f"1: {event.task} started without its item")
        self.require(self.at >= node.not_before, f"{event.task} was asked to wait until {node.not_before}")
        self.require(not self.paused, f"{event.task} started while the run was paused")
        assert self.requested is not None
        self.require(self.at < self.work_until() + 1e-6, f"12: {event.task} started in the time of the answer")
        self._check_clock(f"{event.task} started")
        unapproved = self.plot.policy.approve and event.task.partition("[")[0] in self.round
        self.require(not unapproved, f"{event.task} started before the plan was approved")
        self.require(event.worker in self.allowed(node.task), f"{event.worker} may not take {event.task}")
        crashed_out = again and node.resumes > self.plot.policy.limits.resumes
        self.require(not crashed_out, f"14: {event.task} was resumed after {node.resumes} crashes")
        self._take_up(node, event)
        self.reserved["attempt", event.task] = event.reserve or NOTHING
        self.expected["attempt", event.task] = event.expected
        self._check_width(event)
        self._check_breakers(event)

    def work_until(self) -> float:
        """Until when tasks may be started: what is left belongs to the answer."""
        assert self.requested is not None
        time_for_all = self.requested.deadline - self.waited - self.began
        return self.requested.deadline - min(self.plot.policy.answer, time_for_all / 5)

    def _take_up(self, node: Node, event: ev.AttemptStarted) -> None:
        """Oracle 28: an attempt goes on from finished steps, or begins anew; an effect in doubt is never forgotten."""
        other = bool(node.worker) and node.worker != event.worker
        self.require(not (other and node.redo), f"14: attempt {event.attempt} of {event.task} went to another worker")
        if other:
            node.tried.append(node.worker)
            node.failures = 0
        if other or not (node.redo or node.keep):
            self.require(not node.open_effects(), f"28: {event.task} began anew with an effect in doubt")
            node.calls = {}
            node.keep = False
            node.base = event.attempt
        node.doubts = set(node.open_effects())
        if node.doubts:
            self.require(node.may_look(), f"27: {event.task} was taken up with an effect in doubt, and nobody can tell")
            node.looks += 1
        node.status = "running"
        node.attempt = event.attempt
        node.worker = event.worker
        node.starts += 1
        node.redo = False

    def _check_width(self, event: ev.AttemptStarted) -> None:
        busy = Counter(node.worker for node in self.nodes.values() if node.status == "running")
        width = self.plot.policy.limits.width
        self.require(busy.total() <= width, f"5: {busy.total()} attempts at once, {width} allowed")
        concurrency = self.agents[event.worker].concurrency
        self.require(not concurrency or busy[event.worker] <= concurrency, f"5: {event.worker} is over capacity")

    def inputs_met(self, task: Task) -> bool:
        needs = [(task.for_each, "required")] if task.for_each else []
        needs += [(edge.task, edge.need) if isinstance(edge, Edge) else (edge, "required") for edge in task.after]
        status = {name: self.nodes[name].status for name, _ in needs}
        good = [name for name, need in needs if need == "quorum" and status[name] == "done"]
        return (
            all(status[name] == "done" or self._waived(task, name) for name, need in needs if need == "required")
            and all(status[name] in ("done", "failed", "skipped") for name, need in needs if need == "optional")
            and len(good) >= task.quorum
        )

    def allowed(self, task: Task) -> list[str]:
        named = [task.worker] if task.worker else []
        if not named and task.match is not None:
            wanted = set(task.match.some)
            named = [agent.name for agent in self.agents.values() if wanted & set(agent.tags)]
        return [*named, *(name for one in named for name in self.agents[one].fallbacks)]

    def _stepstarted(self, event: ev.StepStarted) -> None:
        node = self.nodes[event.task]
        self.require(node.status == "running" and node.attempt == event.attempt, f"a step of {event.task} not running")
        self.reserved["attempt", event.task] = NOTHING
        self.require(event.step not in node.calls, f"step {event.step} of {event.task} started twice")
        free = [number for number in range(1, len(node.calls) + 4) if number not in node.calls]
        side_by_side = 3 if "doubts" in self.plot.faults else 1
        self.require(event.step in free[:side_by_side], f"28: step {event.step} of {event.task}, next was {free[0]}")
        self.require(not node.doubts, f"27: {event.task} went on with effects in doubt")
        self._check_key(event)
        has_none = bytes(event.arguments) == b"null"
        arguments = {} if has_none else json.decode(event.arguments, type=dict[str, object])
        node.calls[event.step] = Call(
            event.name, event.effect, event.kind, event.request, event.key, event.look, arguments
        )
        self.reserved["step", event.task, event.step] = event.reserve or NOTHING
        self.expected["step", event.task, event.step] = event.expected

    def _check_key(self, event: ev.StepStarted) -> None:
        """Oracle 29: equal calls of a task have one key, in every attempt; a read has none."""
        key = f"{self.origin}/{event.task}/{event.request}"
        self.require(event.key == ("" if event.effect == "read" else key), f"29: {event.key} is not {key}")

    def _stepfinished(self, event: ev.StepFinished) -> None:
        node = self.nodes[event.task]
        call = node.calls.get(event.step)
        if call is None or not call.is_open:
            raise self._violation(f"step {event.step} of {event.task} is not open")
        if event.step in node.doubts:
            self._looked_up(event.task, call, "happened")
            node.doubts.remove(event.step)
        call.is_open = False
        self._settle(("step", event.task, event.step), event.used)
        if event.good and call.effect != "read":
            self._make_good(node, call)

    def _make_good(self, node: Node, call: Call) -> None:
        """Oracle 30: only the very call that was refused makes the refusal good."""
        made = (call.name, call.arguments)
        node.refusals = [refusal for refusal in node.refusals if (refusal.tool, refusal.arguments) != made]

    def _steplookedup(self, event: ev.StepLookedUp) -> None:
        node = self.nodes[event.task]
        self.require(node.status == "running" and node.attempt == event.attempt, f"{event.task} looks, not running")
        self.require(event.step in node.doubts, f"27: step {event.step} of {event.task} is not in doubt")
        self._looked_up(event.task, node.calls[event.step], event.outcome)
        if event.outcome == "absent":
            del node.calls[event.step]
            node.doubts.remove(event.step)
        else:
            node.calls[event.step].look = False

    def _looked_up(self, task: TaskId, call: Call, outcome: str) -> None:
        """Oracle 27: what is written of a look is what the tool said."""
        self.require(call.look, f"27: {call.name} of {task} was looked up, and cannot be")
        said = self.told.pop(f"{task}/{call.name}", "")
        self.require(self.is_restoring or said == outcome, f"27: {call.name} of {task} is {outcome}; it said {said}")

    def _stepfailed(self, event: ev.StepFailed) -> None:
        is_open = event.step in self.nodes[event.task].open_steps()
        self.require(is_open, f"step {event.step} of {event.task} is not open")
        self._settle(("step", event.task, event.step), event.used)

    def _attemptsucceeded(self, event: ev.AttemptSucceeded) -> None:
        self._close(event.task, event.attempt, event.used)
        doubts = self.nodes[event.task].open_effects()
        self.require(not doubts, f"11: {event.task} succeeded with effects in doubt: {doubts}")
        self.nodes[event.task].items = event.items
        self.nodes[event.task].is_partial = event.missing is not None
        self._count(self.nodes[event.task], None)
        self._terminal(event.task, "done")

    def _attemptfailed(self, event: ev.AttemptFailed) -> None:
        self._close(event.task, event.attempt, event.used, cut_off=event.used is None)
        node = self.nodes[event.task]
        doubts = node.open_effects()
        self.require(
            (event.failure.kind == "uncertain") == bool(doubts),
            f"11: {event.task} left {doubts} in doubt and called it {event.failure.kind}",
        )
        self._count(node, event.failure)
        node.drop_reads()
        if event.failure.kind == "approval":  # it keeps its number and its steps
            node.status = "asks leave"
            return
        self._failed_attempt(node, event.failure)
        if event.failure.retry_after <= self.plot.policy.retry.obey_retry_after:
            node.not_before = self.at + event.failure.retry_after

    def _failed_attempt(self, node: Node, failure: ev.Failure) -> None:
        node.status = "failed attempt"
        node.failure = failure.kind
        node.failures += failure.kind != "uncertain"
        node.resumes = 0
        node.given_up_by = node.worker if failure.permanent else ""
        node.is_stopped = failure.kind == "stopped"

    def _attemptabandoned(self, event: ev.AttemptAbandoned) -> None:
        node = self.nodes[event.task]
        self.require(node.redo and node.attempt == event.attempt, f"14: {event.task} was not interrupted")
        self.require(node.resumes > self.plot.policy.limits.resumes, f"14: {event.task} was given up too early")
        is_in_doubt = event.failure.kind == "uncertain"
        self.require(is_in_doubt == bool(node.open_effects()), f"11: {event.task} given up as {event.failure.kind}")
        node.redo = False
        self._failed_attempt(node, event.failure)

    def _close(self, task: TaskId, attempt: int, used: Amount | None, *, cut_off: bool = False) -> None:
        node = self.nodes[task]
        self.require(node.status == "running" and node.attempt == attempt, f"2: {task} ended an attempt it was not at")
        for step in node.open_steps():
            self._settle(("step", task, step), None, cut_off=True)
        self._settle(("attempt", task), used, cut_off=cut_off)

    def _retryscheduled(self, event: ev.RetryScheduled) -> None:
        node = self.nodes[event.task]
        self.require(node.status == "failed attempt", f"{event.task} is retried while {node.status}")
        self.require(not node.is_stopped, f"22: {event.task} is retried although a person stopped it")
        self._check_clock(f"{event.task} is retried")
        self._check_retry(node, event)
        node.not_before = 0.0 if event.worker else node.not_before  # another worker has other limits
        node.worker = event.worker or node.worker
        self.require(
            node.worker != node.given_up_by, f"{event.task} goes once more to {node.worker}, who failed for good"
        )
        node.status = "backing off" if event.after > self.at else "ready"
        node.due = event.after

    def _check_retry(self, node: Node, event: ev.RetryScheduled) -> None:
        """Oracle 28: after a failure of the line the next attempt goes on from the finished steps, else it begins anew.

        An effect in doubt is looked up by the same worker, which counts for no attempt.
        """
        retry = self.plot.policy.retry
        if node.failure == "uncertain":
            self.require(node.may_look(), f"27: {event.task} is retried, and nobody can tell what is in doubt")
            self.require(event.keep and not event.worker, f"28: {event.task} leaves an effect in doubt behind")
        elif event.worker:
            self.require(not event.keep, f"28: {event.worker} is to go on from steps of {node.worker}")
            known = event.worker in node.tried or event.worker == node.worker
            self.require(not known, f"14: {event.task} goes to {event.worker} once more")
        else:
            allowed = retry.fallback_attempts if node.tried else retry.attempts
            self.require(node.failures < allowed, f"14: attempt {node.failures + 1} of at most {allowed}")
            goes_on = node.failure in ("network", "timeout", "resource")
            self.require(event.keep == goes_on, f"28: keep={event.keep} after {node.failure} of {event.task}")
        node.keep = event.keep
        if event.worker:
            node.tried.append(node.worker)
            node.failures = 0
        if not event.keep:
            node.calls = {}
        node.calls = {number: call for number, call in node.calls.items() if call.kind not in ("subteam", "worker")}

    def _check_clock(self, text: str) -> None:
        """Oracle 12: after the deadline nothing is begun while a person is asked; the answer gives the time back."""
        late = self.question is not None and self.at >= self.work_until() - 1e-6
        self.require(not late, f"12: {text} after the deadline, while a person is asked")

    def _backoffended(self, event: ev.BackoffEnded) -> None:
        self.nodes[event.task].status = "ready"

    # --- the supervisor

    def _supervisionstarted(self, event: ev.SupervisionStarted) -> None:
        key = (event.duty, event.task, event.number) if event.duty == "refine" else (event.duty, event.number)
        if key in self.reserved:  # it is under way, and holds money for more calls
            held = self.reserved[key]
            more = event.reserve or NOTHING
            self.require(more != NOTHING or event.expected is not None, f"14: {event.duty} was begun twice")
            self.expected[key] = event.expected
            added = Amount(held.tokens + more.tokens, held.micros + more.micros, held.calls + more.calls)
            self.reserved[key] = added
            return
        if event.duty == "refine":
            node = self.nodes[event.task]
            self.require(node.status == "failed attempt", f"{event.task} is refined while {node.status}")
            self.require(not node.given_up_by, f"{event.task} is refined although {node.worker} failed for good")
            node.status = "refining"
        self._check_clock(f"{event.duty} is begun")
        self.require(not self.paused or self.time_up, f"the supervisor was asked to {event.duty} during a pause")
        rests_until = self.supervisor_rests.get(event.duty, 0.0)
        self.require(self.at >= rests_until, f"21: {event.duty} was tried again before {rests_until}")
        if event.duty == "plan":
            self.planner_at_work = True
            self.replanned = self.replanned or event.why == "replan"
            self.round = []
            self.bad_plans = 0 if event.why == "replan" else self.bad_plans
            self.require(self.bad_plans < self.plot.policy.limits.plans, "14: the planner was asked once too often")
        if event.duty == "answer":
            self.answers += 1
            unsettled = [task for task, node in self.nodes.items() if node.status in OPEN]
            late = self.requested is not None and self.at >= self.requested.deadline - self.plot.policy.answer
            self.require(not unsettled or late, f"the answer was begun while {unsettled} were open")
        self.reserved[key] = event.reserve or NOTHING
        self.expected[key] = event.expected

    def _supervisionfailed(self, event: ev.SupervisionFailed) -> None:
        if event.duty == "refine":
            cut_off = event.used is None and not event.findings
            self._refined(event.task, event.number, event.used, cut_off=cut_off)
        else:
            if event.duty == "plan" and event.failure.kind != "approval":
                self.bad_plans += 1
                self.planner_failure = event.failure
            self.supervisor_rests[event.duty] = self.at + (0.0 if event.findings else event.failure.retry_after)
            self.planner_at_work = self.planner_at_work and event.duty != "plan"
            cut_off = event.used is None and not event.findings
            self._settle((event.duty, event.number), event.used, cut_off=cut_off)

    def _supervisionretryscheduled(self, event: ev.SupervisionRetryScheduled) -> None:
        rests_until = self.supervisor_rests[event.duty]
        self.require(event.after >= rests_until, f"21: {event.duty} again at {event.after}, not before {rests_until}")
        self.supervisor_rests[event.duty] = event.after

    def _taskrefined(self, event: ev.TaskRefined) -> None:
        self._refined(event.task, event.number, event.used)

    def _refined(self, task: TaskId, number: int, used: Amount | None, *, cut_off: bool = False) -> None:
        self.nodes[task].status = "failed attempt"
        self._settle(("refine", task, number), used, cut_off=cut_off)

    def _answerwritten(self, event: ev.AnswerWritten) -> None:
        self._settle(("answer", event.number), event.used)

    # --- tasks

    def _taskexpanded(self, event: ev.TaskExpanded) -> None:
        node = self.nodes[event.task]
        self.require(self.inputs_met(node.task), f"1: {event.task} was expanded too early")
        node.status = "expanded"
        node.items = event.count
        for index in range(event.count):
            self.nodes[TaskId(f"{event.task}[{index}]")] = Node(node.task, "ready", item_of=event.task)

    def _taskjoined(self, event: ev.TaskJoined) -> None:
        items = [node for node in self.nodes.values() if node.item_of == event.task]
        self.require(all(node.terminal for node in items), f"1: {event.task} was joined too early")
        self._terminal(event.task, "done")

    def _taskfailed(self, event: ev.TaskFailed) -> None:
        node = self.nodes[event.task]
        if event.failure.kind == "uncertain":
            told = self.plot.policy.uncertain == "fail" and not node.may_look()
            self.require(told, f"27: {event.task} failed with an effect in doubt, and nobody was asked")
        if node.status == "failed attempt":
            self._check_clock(f"{event.task} is given up")
            self._check_given_up(node, event)
        self._terminal(event.task, "failed")

    def _check_given_up(self, node: Node, event: ev.TaskFailed) -> None:
        """Oracle 14: a task is given up when its workers failed often enough; effects in doubt are no failures."""
        retry = self.plot.policy.retry
        failure = event.failure
        if failure.kind not in ("network", "timeout", "resource", "logic") or failure.permanent:
            return
        has_time = failure.retry_after <= retry.obey_retry_after and self.work_until() - self.at > 2 * retry.ceiling
        allowed = retry.fallback_attempts if node.tried else retry.attempts
        self.require(not has_time or node.failures >= allowed, f"14: {event.task} given up after {node.failures}")

    def _taskskipped(self, event: ev.TaskSkipped) -> None:
        if event.reason == "person":
            status = self.nodes[event.task].status
            self.require("steered" in self.plot.faults, "skipped by a person who is not there")
            self.require(status in ("waiting", "ready", "backing off"), f"22: {event.task} skipped while {status}")
            self.nodes[event.task].is_unwanted = True
        if event.reason == "input":
            self.require(self.nodes[event.because].status in ("failed", "skipped"), f"{event.task} skipped for nothing")
            self.require(self._hopeless(event.task), f"{event.task} skipped although it could still run")
        self._terminal(event.task, "skipped")

    def without_source(self, task: TaskId) -> bool:
        """Whether this is an item of a list that was put together, and its place in that list is empty."""
        node = self.nodes[task]
        source = self.nodes.get(TaskId(f"{node.task.for_each}{task.removeprefix(node.item_of)}"))
        return bool(node.item_of) and source is not None and source.status != "done"

    def _hopeless(self, task: TaskId) -> bool:
        if self.without_source(task):
            return True
        wanted = self.nodes[task].task
        needs = [(wanted.for_each, "required")] if wanted.for_each else []
        needs += [(edge.task, edge.need) if isinstance(edge, Edge) else (edge, "required") for edge in wanted.after]
        bad = {name for name, _ in needs if self.nodes[name].status in ("failed", "skipped")}
        quorum = [name for name, need in needs if need == "quorum"]
        required = [name for name, need in needs if need == "required" and not self._waived(wanted, name)]
        return any(name in bad for name in required) or (
            len([name for name in quorum if name not in bad]) < wanted.quorum
        )

    def _waived(self, task: Task, needed: TaskId) -> bool:
        """Oracle 22: what needs a task that a person skipped goes on without it, except over its list."""
        return self.nodes[needed].is_unwanted and task.for_each != needed

    def _taskreassigned(self, event: ev.TaskReassigned) -> None:
        node = self.nodes[event.task]
        self.require(node.status in ("waiting", "ready"), f"22: {event.task} was reassigned while {node.status}")
        self.require(node.attempt == 0, f"22: {event.task} was reassigned after attempt {node.attempt}")
        node.task = structs.replace(node.task, worker=event.worker, match=None)

    def _terminal(self, task: TaskId, status: str) -> None:
        node = self.nodes[task]
        node.terminal += 1
        self.require(node.terminal == 1, f"2: {task} settled twice")
        node.status = status

    # --- the run

    def _runresumed(self, event: ev.RunResumed) -> None:
        self.require(event.epoch == self.epoch, "13: resumed under another epoch")
        self.planner_at_work = False
        for task, node in self.nodes.items():
            node.is_left_inside = node.is_left_inside or node.awaits_end
            node.awaits_end = False
            if node.status == "running":
                node.is_left_inside = self._has_run_open(node)
                self._close(task, node.attempt, None, cut_off=True)
                node.resumes += self.released_at is None and not self._has_run(node)
                node.drop_reads()
                if node.open_effects() and not node.may_look():
                    node.status = "failed attempt"
                    node.failure = "uncertain"
                    node.resumes = 0
                else:
                    node.status = "ready"
                    node.redo = True
            if node.status == "refining":
                node.status = "failed attempt"
        for key in [key for key in self.reserved if key[0] in ("plan", "answer", "refine")]:
            self._settle(key, None, cut_off=True)
        for gauge in self.gauges.values():
            gauge.probe = 0.0
        if self.released_at is not None:
            self._give_time(self.at - self.released_at)
            self.asked_at += self.at - self.released_at
        self.released_at = None

    def _give_time(self, seconds: float) -> None:
        assert self.requested is not None
        self.requested = structs.replace(self.requested, deadline=self.requested.deadline + seconds)
        self.waited += seconds

    def _cancelrequested(self, _event: ev.CancelRequested) -> None:
        self.is_cancelled = True

    def _workstopped(self, _event: ev.WorkStopped) -> None:
        """Oracle 31: a cancelled run stops its work, and waits a moment for the runs inside it.

        After a crash the runs are ended that the attempts of the dead process left, also where the time is up.
        """
        self.require(self.is_cancelled or self.time_up, "31: work was stopped, and nobody cancelled the run")
        waiting = [task for task, node in self.nodes.items() if node.status == "running" and self._has_run(node)]
        left = [task for task, node in self.nodes.items() if node.is_left_inside]
        self.require(bool(waiting or left), "31: the end was put off, and no run inside is waited for")
        self._await_ends()
        for task, node in self.nodes.items():
            if node.status == "running":
                self._close(task, node.attempt, None, cut_off=True)
                node.status = "stopped"
        for key in [key for key in self.reserved if key[0] in ("plan", "answer", "refine")]:
            self._settle(key, None, cut_off=True)

    def _attemptstopped(self, event: ev.AttemptStopped) -> None:
        self.nodes[event.task].awaits_end = False

    def _await_ends(self) -> None:
        """Note the nodes that end with what runs inside them."""
        for node in self.nodes.values():
            node.awaits_end = node.is_left_inside or (node.status == "running" and self._has_run_open(node))
            node.is_left_inside = False

    def _has_run_open(self, node: Node) -> bool:
        return any(call.kind in ("subteam", "worker") for call in node.open_steps().values())

    def _has_run(self, node: Node) -> bool:
        pending = node.open_steps().values()
        return bool(pending) and all(call.kind in ("subteam", "worker") for call in pending)

    def _runreleased(self, _event: ev.RunReleased) -> None:
        self.released_at = self.at

    def _timeranout(self, _event: ev.TimeRanOut) -> None:
        self.time_up = True
        self.require(self.question is None, "12: the time ran out while a person was asked")
        assert self.requested is not None
        early = self.requested.deadline - self.plot.policy.answer - 1e-6  # sums of the same parts in another order
        self.require(self.at >= early, "12: time ran out too early")
        self._await_ends()
        waits_for_none = not any(node.status in OPEN for node in self.nodes.values())
        for key in list(self.reserved):
            if key[0] != "answer" or not waits_for_none:
                self._settle(key, None, cut_off=True)
        for node in self.nodes.values():
            if node.status in OPEN:
                node.status = "failed" if node.attempt else "skipped"
                node.terminal += 1

    def _runended(self, event: ev.RunEnded) -> None:
        self.ended = event
        if event.reason == "no_plan" and self.planner_failure is not None:
            wanted = self.fallback_worker(self.planner_failure)
            self.require(not wanted, f"20: no plan, and {wanted} was not given the request")
        if event.reason in ("budget", "deadline") and event.cap is not None:
            cap = event.cap
            exhausted = cap.used + cap.needed + cap.kept
            self.require(exhausted > cap.limit or cap.cap == "time", f"21: {cap} was named, and is not reached")
        by_engine = event.reason == "deadline" or any(gap.reason == "budget" and gap.cap for gap in event.gaps)
        by_engine = by_engine and event.ending != "cancelled"
        self.require(event.cap is not None or not by_engine, "21: a cap ended it and is not named")
        for key in list(self.reserved):
            self._settle(key, None, cut_off=True)

    # --- money

    def _settle(self, key: tuple[str | int, ...], used: Amount | None, *, cut_off: bool = False) -> None:
        held = self.reserved.pop(key, NOTHING)
        expected = self.expected.pop(key, None)
        if cut_off and held != NOTHING:
            used = expected
        booked = held if used is None else used
        amounts = ((booked.tokens, held.tokens), (booked.micros, held.micros), (booked.calls, held.calls))
        for index, (more, planned) in enumerate(amounts):
            self.require(more >= 0, "4: somebody was paid for using nothing")
            self.spent[index] += more
            self.overshoot[index] += max(0, more - planned)

    def _check_money(self) -> None:
        if self.requested is None:
            return
        budget = self.requested.budget
        held = [0, 0, 0]
        for amount in self.reserved.values():
            held[0] += amount.tokens
            held[1] += amount.micros
            held[2] += amount.calls
        for index, cap in enumerate((budget.tokens, budget.micros, budget.calls)):
            taken = self.spent[index] + held[index] - self.overshoot[index]
            self.require(cap is None or taken <= cap, f"4: {taken} of {cap} spent or reserved")

    # --- breakers, as the rules state them

    def _count(self, node: Node, failure: ev.Failure | None) -> None:
        line = self._line(node.worker)
        hung = failure is not None and any(step.kind != "model" for step in failure.running)
        hung = hung and bool(self.agents[node.worker].model)  # in a tool: the model had answered
        if failure is not None and failure.kind in ("network", "timeout") and not hung:
            self._bad(self.gauges.setdefault(line, Gauge()))
        elif failure is None and line in self.gauges:
            self._good(self.gauges[line])
        elif failure is not None and line in self.gauges and node.probe:
            gauge = self.gauges[line]
            limited = failure.kind == "resource" and not failure.permanent
            if gauge.probe == node.probe and not limited:  # nothing is known of the line: the next one probes
                gauge.probe = 0.0

    def _line(self, worker: str) -> str:
        model = self.agents[worker].model
        return f"model:{model}" if model else f"worker:{worker}"

    def _good(self, gauge: Gauge) -> None:
        gauge.row = 0
        gauge.recent.append((self.at, True))
        if gauge.opened:
            gauge.opened = 0
            gauge.probe = 0.0
            gauge.recent = []

    def _bad(self, gauge: Gauge) -> None:
        numbers = self.plot.policy.breaking
        gauge.row += 1
        gauge.recent.append((self.at, False))
        recent = [good for when, good in gauge.recent if when >= self.at - numbers.window][-4 * numbers.sample :]
        crowded = len(recent) >= numbers.sample and recent.count(False) >= numbers.share * len(recent)
        if (gauge.opened and gauge.probe) or (not gauge.opened and (gauge.row >= numbers.consecutive or crowded)):
            gauge.opened += 1
            gauge.probe = 0.0
            gauge.until = self.at + min(numbers.open * gauge.opened, numbers.open_ceiling)

    def barred(self, worker: str, now: float) -> bool:
        return any(gauge.opened and (now < gauge.until or now < gauge.probe) for gauge in self._of(worker).values())

    def _of(self, worker: str) -> dict[str, Gauge]:
        line = self._line(worker)
        return {line: self.gauges[line]} if line in self.gauges else {}

    def _check_breakers(self, event: ev.AttemptStarted) -> None:
        self.require(not self.barred(event.worker, self.at), f"15: {event.worker} was asked although a breaker is open")
        half = {name for name, gauge in self._of(event.worker).items() if gauge.opened}
        self.require(half == set(event.probes), f"15: probes {event.probes}, half-open {half}")
        self.nodes[event.task].probe = 0.0
        for name in half:
            self.gauges[name].probe = self.at + self.plot.policy.breaking.lease
            self.nodes[event.task].probe = self.gauges[name].probe
