"""What is wrong with a plan, in sentences its planner can act on; and the repairs that leave no choice.

Linear, but for two looks that end early: nearly equal tasks among at most 200, inputs nobody seems to read among at
most 2,000. The words are English: other languages get fewer warnings. Not its business: fallbacks, money, the goal.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, structs

from chargehand.engine.plan import Edge, Finding, Need, Task, TaskId, depth, in_order, needs
from chargehand.engine.policy import Limits
from chargehand.engine.roster import Agent, Match, Roster, fits
from chargehand.text.names import nearest_names
from chargehand.text.words import STOP_WORDS

_MOST = 20  # findings of one code
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
    "unread_input": "Task {0!r} waits for {1!r} but does not seem to use it. Drop the input, or say what it is for.",
    "unreachable": "Task {0!r} can never run, since it needs {1!r}. Put that one right.",
    "fan_out": "{2} tasks read {1!r}, and {3} are advised. Merge some of them.",
}
_SIGN = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|\w+")  # scripts without blanks
_PLAIN = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}
# words that say little; how words begin that gather anew, or speak of an input; words that turn a sense
_LISTS = """a analyse analysis
analyze anything assist check complete continue data deal details each every everything execute finish fix from go
handle help info information investigate issue it its job look manage needed next part perform problem proceed process
properly question relevant request research rest solve something start step stuff task tasks that their them these they
thing things this those topic user with work | brows colle downl fetch find gathe list look query resea retri scrap
searc | above answe based best both cheap check combi compa each earli evalu findi from given highe input it its large
least lowes merge most outpu previ prior rank recom resul revie stron summa synth that their them these they this those
top use using verif with | after against average before but except instead never no not only sum total
unlike without"""
_FILLER, _GATHERS, _READS, _TURNS = (frozenset(words.split()) for words in _LISTS.split("|"))
_STOP = STOP_WORDS - _FILLER - _READS - _TURNS
_VAGUE = _STOP | _FILLER


class Linted(Struct, frozen=True):
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

    `planned` says how many of the known ones were planned, where some came from repeating a task over a list.
    """
    look = _Look([*tasks], {agent.name: agent for agent in roster.agents}, limits, known)
    look.planned = len(known) if planned is None else planned
    look.over_tasks()
    look.over_words()
    look.over_order(look.over_inputs())
    more = [(code, count - _MOST) for code, count in look.counts.items() if count > _MOST]
    rest = [
        Finding(code=code, place="tasks", message=f"There are {n} more of {code!r}.", grave=code in _ERRORS)
        for code, n in more
    ]
    return Linted(tuple(look.tasks), (*look.findings, *rest))


def _did_you_mean(name: str, near: Sequence[Iterable[str]]) -> str:
    """A sentence with the names that come nearest; empty where none does."""
    names = [other for others in near for other in others]
    names.sort(key=lambda other: (abs(len(other) - len(name)), other))
    alike = " or ".join(map(repr, nearest_names(name, names[:500])))
    return f" Did you mean {alike}?" if alike else ""


class _Look(Struct):
    tasks: list[Task]
    agents: dict[str, Agent]
    limits: Limits
    known: Collection[TaskId]
    planned: int = 0
    index: dict[TaskId, int] = {}
    answered: dict[Match, bool] = {}
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    broken: set[TaskId] = set()  # tasks that an error is about

    def add(self, code: str, at: int, field: str, *given: object, near: Sequence[Iterable[str]] = ()) -> None:
        """`at` is the task's place, -1 for the whole plan; `near` holds what the last thing given may stand for."""
        task = self.tasks[at].id if at >= 0 else TaskId("")
        if code in _ERRORS:
            self.broken.add(task)
        self.counts[code] = self.counts.get(code, 0) + 1
        if self.counts[code] <= _MOST:
            shown = [text if len(text) < 200 else f"{text[:196]} ..." for text in map(str, (task, *given))]
            hint = _did_you_mean(shown[-1], near) if near else ""
            sentence = _ERRORS.get(code) or _WARNINGS.get(code, "{1} was read as {2}.")
            place = f"tasks[{at}] ({shown[0]}).{field}" if at >= 0 else "tasks"
            self.findings.append(
                Finding(code=code, place=place, message=sentence.format(*shown, near=hint), grave=code in _ERRORS)
            )

    def over_tasks(self) -> None:
        total = len(self.tasks) + self.planned
        if not 0 < total <= self.limits.max_tasks:
            self.add("too_many_tasks" if total else "empty_plan", -1, "", total, self.limits.max_tasks)
        for at, given in enumerate(self.tasks):
            task = self.tasks[at] = self.mended(at, given)
            if not 0 < len(task.id) <= 64 or not task.id.isprintable() or "[" in task.id or "]" in task.id:
                self.add("bad_id", at, "id")
            if task.id in self.index or task.id in self.known:
                self.add("duplicate_id", at, "id")
            self.index[task.id] = at
            if task.worker not in self.agents:
                self.nobody(at, task)

    def mended(self, at: int, task: Task) -> Task:
        worker = task.worker.strip()
        if worker not in self.agents:
            bare = re.sub(r"[\s_-]", "", worker).casefold()
            alike = [name for name in self.agents if not bare or re.sub(r"[\s_-]", "", name).casefold() == bare]
            worker = alike[0] if len(alike) == 1 and (bare or task.match is None) else worker
        after = _once_each(task) if task.after else ()
        each = task.for_each.strip()
        replaces = task.replaces.strip()
        if (task.id.strip(), worker, each, replaces) == (task.id, task.worker, task.for_each, task.replaces) and (
            after is task.after or after == task.after
        ):
            return task
        mended = structs.replace(task, id=task.id.strip(), worker=worker, after=after, for_each=each, replaces=replaces)
        for field in ("id", "worker", "after", "for_each", "replaces") if mended != task else ():
            if (given := getattr(task, field)) != (read := getattr(mended, field)):
                self.add(f"repaired_{field}", at, field, repr(given), repr(read))
        return mended

    def nobody(self, at: int, task: Task) -> None:
        match = task.match
        agents = self.agents.values()
        names = ", ".join(self.agents)
        if match is not None and match not in self.answered:
            self.answered[match] = any(fits(match, agent.tags) for agent in agents)
        if task.worker or not agents:
            self.add("unknown_worker", at, "worker", names, task.worker, near=[self.agents])
        elif match is None:
            self.add("no_worker", at, "worker", names)
        elif not self.answered[match]:
            self.add("no_match", at, "match", ", ".join(sorted({tag for agent in agents for tag in agent.tags})))

    def over_words(self) -> None:
        bags: dict[int, frozenset[str]] = {}
        asked: dict[tuple[object, ...], tuple[dict[str, int], dict[str, list[int]]]] = {}
        total = len(self.tasks)
        for at, task in enumerate(self.tasks):
            text = task.instruction
            said = text.translate(_PLAIN).split() if text.isascii() else _SIGN.findall(text.lower())
            if len(said) < 3 or _VAGUE.issuperset(said):
                self.add("vague_instruction" if text.strip() else "empty_instruction", at, "instruction")
            rivals, places = asked.setdefault((task.worker, task.match, task.after, task.for_each), ({}, {}))
            twin = rivals.setdefault(" ".join(said), at)
            if total <= 2000:
                bags[at] = frozenset(said) - _STOP
            if total <= 200 and twin == at:
                # tasks that are alike differ in at most a fifth of their words, so they share one of the rarest
                lists = sorted([places.setdefault(word, []) for word in bags[at]], key=len)
                near = [other for found in lists[: len(lists) // 5 + 1] for other in found]
                twin = next((other for other in near if _alike(bags[at], bags[other])), at)
                for found in lists:
                    found.append(at)
            if twin != at:
                self.add("overlapping_tasks", at, "instruction", self.tasks[twin].id)
        self.over_reading(bags)

    def over_reading(self, bags: Mapping[int, frozenset[str]]) -> None:
        for at in [at for at in bags if self.tasks[at].after]:
            task = self.tasks[at]
            own = frozenset([word[:5] for word in bags[at]])
            if task.for_each or own.isdisjoint(_GATHERS) or not own.isdisjoint(_READS):
                continue
            stems = {word[:4] for word in bags[at] - _FILLER if word[:5] not in _GATHERS}
            for name, need in needs(task):
                source = bags.get(self.index.get(name, -1)) if need == "required" else ()
                if source and stems.isdisjoint([word[:4] for word in source]) and name not in task.instruction:
                    self.add("unread_input", at, "after", name)

    def over_inputs(self) -> int:
        """And how long the longest chain is: longer than there are tasks, where an input stands after its reader."""
        levels: dict[TaskId, int] = {}
        readers: dict[TaskId, int] = {}
        for at, task in enumerate(self.tasks):
            level = quorum = 0
            for name, need in needs(task):
                readers[name] = readers.get(name, 0) + 1
                quorum += need == "quorum"
                if name in self.index:
                    level = max(level, levels.get(name, len(self.tasks)))
                elif name not in self.known:
                    field = "for_each" if name == task.for_each else "after"
                    self.add("unknown_task", at, field, name, near=[self.index, self.known])
            levels[task.id] = level + 1
            if (quorum or task.quorum) and not 1 <= task.quorum <= quorum:
                self.add("bad_quorum", at, "quorum", task.quorum, quorum)
            if task.at_least < 0:
                self.add("bad_for_each", at, "at_least", task.at_least)
            if task.replaces and task.replaces not in self.known:
                self.add("bad_replaces", at, "replaces", task.replaces, near=[self.known])
        for name in [name for name, count in readers.items() if count > self.limits.fan_out]:
            self.add("fan_out", self.index.get(name, -1), "id", name, readers[name], self.limits.fan_out)
        return max(levels.values(), default=0)

    def over_order(self, longest: int) -> None:
        line, circle = (self.tasks, []) if longest <= len(self.tasks) else in_order(self.tasks)
        if not circle and longest > self.limits.max_depth and (longest := depth(line)) > self.limits.max_depth:
            self.add("too_deep", -1, "", longest, self.limits.max_depth)
        while circle and self.counts.get("cycle", 0) < _MOST:
            self.add("cycle", self.index[circle[0]], "after", " -> ".join(circle))
            self.broken.update(circle)
            line, circle = in_order(task for task in self.tasks if task.id not in self.broken)
        for task in line if self.broken else ():
            cause = [name for name, need in needs(task) if need == "required" and name in self.broken]
            if cause and task.id not in self.broken:
                self.add("unreachable", self.index[task.id], "after", cause[0])
                self.broken.add(task.id)


def _once_each(task: Task) -> tuple[TaskId | Edge, ...]:
    given = needs(task)
    kept: dict[TaskId, Need] = {TaskId(name.strip()): need for name, need in given}
    if list(kept.items()) == given:
        return task.after
    for name, need in given:
        kept[TaskId(name.strip())] = max(need, kept[TaskId(name.strip())])  # the alphabet has the strongest need last
    kept.pop(TaskId(task.for_each.strip()), None)  # what a task is repeated over is its input already
    return tuple(name if need == "required" else Edge(name, need) for name, need in kept.items())


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    # where each side has a word the other lacks, that is mostly what tells two good tasks apart: ... Rome, ... Oslo
    small, large = (one, other) if len(one) <= len(other) else (other, one)
    return small <= large and 5 * len(small) >= 4 * len(large) > 0 and _TURNS.isdisjoint(large - small)
