"""Checks a plan before it runs: findings that its planner can act on, and repairs that leave no choice.

Linear in the number of tasks. Vagueness is judged by English words only.
"""

import re
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct, structs

from chargehand.engine.plan import Edge, Finding, Need, Task, TaskId, depth, in_order, needs, title_of
from chargehand.engine.policy import Limits
from chargehand.engine.roster import Agent, Match, Roster, fits
from chargehand.text.words import STOP_WORDS, nearest_names

_MAX_FINDINGS = 20
"""How many findings of one code are reported one by one."""
_MAX_NAMES = 500
"""How many names are compared with one that does not exist."""
_MAX_SHOWN = 200
_ERRORS = {
    "empty_plan": "The plan has no tasks. Give at least one.",
    "too_many_tasks": "The run would have {1} tasks, and {2} are allowed. Merge tasks or drop the least useful.",
    "too_deep": "The longest chain has {1} tasks, and {2} are allowed. Drop inputs that are not needed or merge steps.",
    "bad_id": "{0!r} cannot be an id. Use 1 to 64 printable characters without square brackets, for example 't4'.",
    "duplicate_id": "There is another task {0!r}. Give every task an id of its own.",
    "empty_instruction": "Task {0!r} has no instruction. Say what to do and what to hand back.",
    "unknown_task": "Task {0!r} waits for {1!r}, which does not exist.{near} Name an existing task or drop the input.",
    "unknown_worker": "Task {0!r} is for the worker {2!r}, who does not exist.{near} The workers are: {1}.",
    "no_worker": "Task {0!r} says neither which worker does it nor which tags they carry. The workers are: {1}.",
    "no_match": "Task {0!r} asks for tags that no worker carries together. Ask for fewer. The tags are: {1}.",
    "cycle": "Each of these tasks waits for the one before it, in a circle: {1}. Drop one of these inputs.",
    "bad_quorum": "Task {0!r} wants {1} of its {2} quorum inputs. Set `quorum` from 1 to their number, or to 0.",
    "bad_for_each": "Task {0!r} wants at least {1} items done. Set `at_least` to 0 or more.",
    "bad_replaces": "Task {0!r} replaces {1!r}, which the run does not have.{near} Name one it has, or none.",
}
_WARNINGS = {
    "vague_instruction": "Task {0!r} is vague. Say what to do, with what, and what to hand back.",
    "overlapping_tasks": "Task {0!r} asks the same as {1!r} of the same worker. Merge them, or say how they differ.",
    "unreachable": "Task {0!r} can never run, since it needs {1!r}. Put that one right.",
    "fan_out": "{2} tasks read {1!r}, and {3} are advised. Merge some of them.",
}
_REPAIR = "{1} was read as {2}."
_REPAIRED_FIELDS = ("id", "worker", "after", "for_each", "replaces")
_SCRIPTS_WITHOUT_BLANKS = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_SCRIPTS_WITHOUT_BLANKS}]|\w+")
_SEPARATORS = re.compile(r"[\s_-]")
_MIN_WORDS = 3
_FILLER_WORDS = """analyse analysis analyze anything assist check complete continue data deal details each every
everything execute finish fix from go handle help info information investigate issue it its job look manage needed
next part perform problem proceed process properly question relevant request research rest solve something start step
stuff task tasks that their them these they thing things this those topic user with work"""
_TELLING_WORDS = """above after against answer average based before best both but compare each except given instead
least most never no not only previous result results sum top total unlike use using without"""
_FILLER = frozenset(_FILLER_WORDS.split())
"""Words that say nothing about what is to be done."""
_TELLING = frozenset(_TELLING_WORDS.split())
"""Stop words that an instruction may turn on."""
_VAGUE_WORDS = (STOP_WORDS - _TELLING) | _FILLER
_EMPTY_WORDS = STOP_WORDS - _TELLING - _FILLER


class Linted(Struct, frozen=True):
    """The tasks with their repairs, and what was found."""

    tasks: tuple[Task, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple([finding for finding in self.findings if finding.grave])

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple([finding for finding in self.findings if not finding.grave])


def lint(
    tasks: Sequence[Task], roster: Roster, limits: Limits, *, known: Collection[TaskId] = (), planned: int | None = None
) -> Linted:
    """Repair and check tasks that are to join those `known` in the run, whose depth does not count here.

    `planned` is how many of the known ones were planned, where some came from repeating a task over a list.
    """
    agents = {agent.name: agent for agent in roster.agents}
    linter = _Linter(tasks=list(tasks), agents=agents, limits=limits, known=known)
    linter.check_size(len(known) if planned is None else planned)
    for index, task in enumerate(tasks):
        linter.check_task(index, linter.repair(index, task))
    linter.check_instructions()
    longest = linter.check_inputs()
    linter.check_order(longest)
    linter.report_unlisted()
    return Linted(tuple(linter.tasks), tuple(linter.findings))


class _Linter(Struct):
    tasks: list[Task]
    agents: dict[str, Agent]
    limits: Limits
    known: Collection[TaskId]
    index: dict[TaskId, int] = {}
    """Where each task stands."""
    matched: dict[Match, bool] = {}
    """Whether a worker carries the tags."""
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    broken: set[TaskId] = set()
    """Tasks with an error."""

    def add(self, code: str, index: int, field: str, *details: object, near: Iterable[str] = ()) -> None:
        """Report a finding about the task at an index, -1 for the whole plan.

        `near` are the names that the last detail may be a misspelling of.
        """
        task = self.tasks[index].id if index >= 0 else TaskId("")
        is_error = code in _ERRORS
        if is_error:
            self.broken.add(task)
        self.counts[code] = self.counts.get(code, 0) + 1
        if self.counts[code] > _MAX_FINDINGS:
            return
        shown = [_shorten(str(detail)) for detail in (task, *details)]
        hint = _did_you_mean(shown[-1], near)
        template = _ERRORS.get(code) or _WARNINGS.get(code, _REPAIR)
        place = f"tasks[{index}] ({shown[0]}).{field}" if index >= 0 else "tasks"
        message = template.format(*shown, near=hint)
        self.findings.append(Finding(code=code, place=place, message=message, grave=is_error))

    def report_unlisted(self) -> None:
        """One finding for those of a code that were too many to list."""
        for code, count in self.counts.items():
            if count > _MAX_FINDINGS:
                message = f"There are {count - _MAX_FINDINGS} more of {code!r}."
                self.findings.append(Finding(code=code, place="tasks", message=message, grave=code in _ERRORS))

    # --- each task by itself

    def check_size(self, planned: int) -> None:
        total = len(self.tasks) + planned
        if total == 0:
            self.add("empty_plan", -1, "")
        elif total > self.limits.max_tasks:
            self.add("too_many_tasks", -1, "", total, self.limits.max_tasks)

    def repair(self, index: int, task: Task) -> Task:
        """The task without blanks around names, with its worker spelled right, each input once and no long title."""
        repaired = structs.replace(
            task,
            id=task.id.strip(),
            worker=self._repair_worker(task),
            after=_unique_inputs(task) if task.after else (),
            for_each=task.for_each.strip(),
            replaces=task.replaces.strip(),
            title=title_of(task.title) if task.title else "",
        )
        if repaired == task:
            return task
        for field in _REPAIRED_FIELDS:
            before = getattr(task, field)
            after = getattr(repaired, field)
            if before != after:
                self.add(f"repaired_{field}", index, field, repr(before), repr(after))
        self.tasks[index] = repaired
        return repaired

    def _repair_worker(self, task: Task) -> str:
        """The worker a task means: written a little differently, or left out where there is only one."""
        worker = task.worker.strip()
        if worker in self.agents:
            return worker
        if not worker:
            return next(iter(self.agents)) if len(self.agents) == 1 and task.match is None else worker
        alike = [name for name in self.agents if _plain_name(name) == _plain_name(worker)]
        return alike[0] if len(alike) == 1 else worker

    def check_task(self, index: int, task: Task) -> None:
        if not 0 < len(task.id) <= 64 or not task.id.isprintable() or "[" in task.id or "]" in task.id:
            self.add("bad_id", index, "id")
        if task.id in self.index or task.id in self.known:
            self.add("duplicate_id", index, "id")
        self.index[task.id] = index
        if task.worker not in self.agents:
            self._check_worker(index, task)

    def _check_worker(self, index: int, task: Task) -> None:
        names = ", ".join(self.agents)
        if task.worker or not self.agents:
            self.add("unknown_worker", index, "worker", names, task.worker, near=self.agents)
        elif task.match is None:
            self.add("no_worker", index, "worker", names)
        elif not self._is_matched(task.match):
            tags = sorted({tag for agent in self.agents.values() for tag in agent.tags})
            self.add("no_match", index, "match", ", ".join(tags))

    def _is_matched(self, match: Match) -> bool:
        if match not in self.matched:
            self.matched[match] = any(fits(match, agent.tags) for agent in self.agents.values())
        return self.matched[match]

    def check_instructions(self) -> None:
        """Find instructions that say nothing, and those that say the same to the same worker with the same inputs."""
        first: dict[tuple[object, ...], int] = {}
        for index, task in enumerate(self.tasks):
            words = _WORD.findall(task.instruction.lower())
            if len(words) < _MIN_WORDS or _VAGUE_WORDS.issuperset(words):
                code = "vague_instruction" if task.instruction.strip() else "empty_instruction"
                self.add(code, index, "instruction")
            meaning = frozenset(words) - _EMPTY_WORDS or task.instruction
            same = first.setdefault((meaning, task.worker, task.match, task.after, task.for_each), index)
            if same != index:
                self.add("overlapping_tasks", index, "instruction", self.tasks[same].id)

    # --- the graph

    def check_inputs(self) -> int:
        """Check the inputs of each task. Returns an upper bound of the longest chain.

        It is higher than the number of tasks where an input stands after its reader.
        """
        levels: dict[TaskId, int] = {}
        readers: dict[TaskId, int] = {}
        for index, task in enumerate(self.tasks):
            level = 0
            quorum = 0
            for name, need in needs(task):
                readers[name] = readers.get(name, 0) + 1
                quorum += need == "quorum"
                if name in self.index:
                    level = max(level, levels.get(name, len(self.tasks)))
                elif name not in self.known:
                    field = "for_each" if name == task.for_each else "after"
                    self.add("unknown_task", index, field, name, near=[*self.index, *self.known])
            levels[task.id] = level + 1
            self._check_counts(index, task, quorum)
        for name, count in readers.items():
            if count > self.limits.fan_out:
                self.add("fan_out", self.index.get(name, -1), "id", name, count, self.limits.fan_out)
        return max(levels.values(), default=0)

    def _check_counts(self, index: int, task: Task, quorum: int) -> None:
        if (quorum or task.quorum) and not 1 <= task.quorum <= quorum:
            self.add("bad_quorum", index, "quorum", task.quorum, quorum)
        if task.at_least < 0:
            self.add("bad_for_each", index, "at_least", task.at_least)
        if task.replaces and task.replaces not in self.known:
            self.add("bad_replaces", index, "replaces", task.replaces, near=self.known)

    def check_order(self, longest: int) -> None:
        """Find cycles, chains that are too long, and tasks that can never run."""
        line = self.tasks
        cycle: list[TaskId] = []
        if longest > len(self.tasks):
            line, cycle = in_order(self.tasks)
        if not cycle and longest > self.limits.max_depth:
            longest = depth(line)
            if longest > self.limits.max_depth:
                self.add("too_deep", -1, "", longest, self.limits.max_depth)
        while cycle and self.counts.get("cycle", 0) < _MAX_FINDINGS:
            self.add("cycle", self.index[cycle[0]], "after", " -> ".join(cycle))
            self.broken.update(cycle)
            line, cycle = in_order([task for task in self.tasks if task.id not in self.broken])
        if self.broken:
            self._check_reachable(line)

    def _check_reachable(self, line: Sequence[Task]) -> None:
        for task in line:
            if task.id in self.broken:
                continue
            causes = [name for name, need in needs(task) if need == "required" and name in self.broken]
            if causes:
                self.add("unreachable", self.index[task.id], "after", causes[0])
                self.broken.add(task.id)


def _unique_inputs(task: Task) -> tuple[TaskId | Edge, ...]:
    """The inputs, each once with its strongest need, and without the task that this one is repeated over."""
    written = needs(task)[bool(task.for_each) :]
    strongest: dict[TaskId, Need] = {}
    for name, need in written:
        stripped = name.strip()
        strongest[stripped] = max(need, strongest.get(stripped, need))  # the alphabet has the strongest need last
    strongest.pop(task.for_each.strip(), None)
    if list(strongest.items()) == written:
        return task.after
    return tuple(name if need == "required" else Edge(name, need) for name, need in strongest.items())


def _plain_name(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()


def _shorten(text: str) -> str:
    return text if len(text) < _MAX_SHOWN else f"{text[: _MAX_SHOWN - 4]} ..."


def _did_you_mean(name: str, near: Iterable[str]) -> str:
    """A sentence with the names that come nearest; empty where none does."""
    if not near:
        return ""
    by_length = sorted(near, key=lambda other: (abs(len(other) - len(name)), other))
    alike = " or ".join(map(repr, nearest_names(name, by_length[:_MAX_NAMES])))
    return f" Did you mean {alike}?" if alike else ""
