"""A plan: tasks and what each needs first. Reading one from JSON, and walking its graph without recursion.

Progress is not kept here: a task has no status.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.engine.declared import Declared
from chargehand.engine.policy import Seconds
from chargehand.engine.roster import Match
from chargehand.errors import PlanInvalid

TaskId: TypeAlias = str
NO_TASK = TaskId("")
Need = Literal["required", "optional", "quorum"]
Combine = Literal["merge", "select", "vote", "reduce", "forward", "none"]


class Edge(Declared, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """An input. In JSON a bare task id is a required one."""

    task: TaskId
    """The id of the task whose result is read."""
    need: Need = "required"
    """Without it: `required` the reader is skipped, `optional` it goes on, `quorum` it counts with others."""


class Task(Declared, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One piece of work for one worker.

    `quorum` is how many of the quorum inputs suffice. `for_each` names the task whose list result this one is done
    once an item of; it then counts as done when at least `at_least` items are. An item whose source failed is skipped,
    and `null` stands in its place in the list that readers are given, with its cause as a gap. `replaces` names a task
    whose gap this one closes. `seconds` is a guess of the duration, where the worker's own is no good. `accept` are
    checks by name.
    """

    id: TaskId
    """What other tasks and answers call it."""
    instruction: str
    """What is to be done."""
    worker: str = ""
    """The worker that does it; empty: one with the tags of `match`."""
    match: Match | None = None
    """Tags its worker must have."""
    after: tuple[TaskId | Edge, ...] = ()
    """The tasks whose results it reads; a bare id is required."""
    quorum: int = 0
    """How many of its `quorum` inputs suffice."""
    for_each: TaskId = NO_TASK
    """The task with a list result, of which this one is done once an item."""
    at_least: int = 1
    """How many items must be done."""
    replaces: TaskId = NO_TASK
    """The task whose gap this one closes."""
    seconds: Seconds | None = None
    """A guess how long it takes; `null`: as its worker says."""
    accept: tuple[str, ...] = ()
    """Names of checks its result must pass."""
    title: str = ""
    """What it is called in lists and pictures, in at most 48 characters; empty: the first words of the instruction."""


class Plan(Declared, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Tasks and how their results become one answer (`none`: no synthesis, the results are the answer)."""

    tasks: tuple[Task, ...]
    """The tasks, in any order."""
    combine: Combine = "merge"
    """How results become one answer."""
    goal: str = ""
    """What it is a plan for."""


class LoopState(Struct, frozen=True, omit_defaults=True, gc=False):
    """How far a plan has come that is made one task at a time."""

    stalls: int = 0
    """Turns in a row, up to the last task, that brought nothing."""
    fresh_starts: int = 0
    """How often it started afresh."""
    ended: bool = False
    """It was given up."""


class Finding(Struct, frozen=True, omit_defaults=True):
    """One thing a check has to say. Errors stop a plan, warnings ride along."""

    code: str
    """What was found, in a word ([all codes](errors.md#findings-of-a-plan))."""
    place: str
    """Where in the plan, such as `tasks[2] (t3).after`."""
    message: str
    """The same for people and planners, with what to do."""
    grave: bool = True
    """`true`: the plan cannot run; `false`: a warning."""


LONGEST_TITLE = 48


def title_of(text: str) -> str:
    """The first words of a text, as many as a title may have."""
    words = " ".join(text.split())
    if len(words) <= LONGEST_TITLE:
        return words
    cut = words[:LONGEST_TITLE]
    whole, _, _ = cut.rpartition(" ")
    return f"{(whole or cut[:-1]).rstrip(' ,;:.')}…"


_DECODER = msgspec.json.Decoder(Plan)


def parse(source: bytes | str | Mapping[str, object]) -> Plan:
    """A plan from JSON text or from plain data; PlanInvalid says where it is not one."""
    try:
        if isinstance(source, Mapping):
            return msgspec.convert(source, Plan)
        return _DECODER.decode(source)
    except msgspec.ValidationError as error:
        finding = Finding(code="wrong_shape", place=_place(error), message=f"This is not a plan: {error}.")
    except (msgspec.DecodeError, UnicodeError) as error:
        finding = Finding(
            code="not_json",
            place="plan",
            message=f"This is not JSON: {error}. Send one JSON object with a list `tasks`.",
        )
    raise PlanInvalid([finding])


def _place(error: msgspec.ValidationError) -> str:
    _, separator, place = str(error).rpartition("at `")
    return place.rstrip("`") if separator else "plan"


def needs(task: Task) -> list[tuple[TaskId, Need]]:
    """Every input of a task, the one it is repeated over first."""
    inputs: list[tuple[TaskId, Need]] = [(task.for_each, "required")] if task.for_each else []
    if task.after:
        inputs.extend((edge.task, edge.need) if isinstance(edge, Edge) else (edge, "required") for edge in task.after)
    return inputs


def in_order(tasks: Iterable[Task]) -> tuple[list[Task], list[TaskId]]:
    """The tasks with every input before its reader, and, where there is one, a cycle that prevents it."""
    by_id = {task.id: task for task in tasks}
    unmet = {task.id: sum(need in by_id for need, _ in needs(task)) for task in by_id.values()}
    readers: dict[TaskId, list[TaskId]] = {}
    for task in by_id.values():
        for need, _ in needs(task):
            readers.setdefault(need, []).append(task.id)
    line = [task for task in by_id.values() if not unmet[task.id]]
    for task in line:  # grows while it is walked
        for reader in readers.get(task.id, ()):
            unmet[reader] -= 1
            if not unmet[reader]:
                line.append(by_id[reader])
    stuck = [task_id for task_id, count in unmet.items() if count]
    return line, _cycle(by_id, frozenset(stuck), stuck[0]) if stuck else []


def _cycle(by_id: Mapping[TaskId, Task], stuck: frozenset[TaskId], start: TaskId) -> list[TaskId]:
    # every stuck task waits for a stuck one, so walking backwards must meet itself
    places: dict[TaskId, int] = {}
    path: list[TaskId] = []
    here = start
    while here not in places:
        places[here] = len(path)
        path.append(here)
        here = next(need for need, _ in needs(by_id[here]) if need in stuck)
    return [*reversed(path[places[here] :]), path[-1]]


def depth(line: Sequence[Task]) -> int:
    """How many tasks the longest chain has, given tasks in order."""
    level: dict[TaskId, int] = {}
    for task in line:
        level[task.id] = 1 + max((level.get(need, 0) for need, _ in needs(task)), default=0)
    return max(level.values(), default=0)


def fingerprint(task: Task) -> tuple[object, ...]:
    """What a task asks for, whatever it is called: a replan that only renames changes nothing."""
    return (" ".join(task.instruction.split()).casefold(), task.worker, task.match, task.for_each)


def digest(*parts: bytes | str) -> str:
    """A short hash of a sequence; where one part ends is part of it."""
    hashed = blake2b(digest_size=16)
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        hashed.update(len(raw).to_bytes(8, "big") + raw)
    return hashed.hexdigest()
