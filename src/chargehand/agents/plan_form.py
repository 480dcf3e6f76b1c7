"""The form of a plan between us and a model: the schema it is asked for, and what its reply amounts to.

Whether the plan can run, `engine.lint` says.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast, get_args

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.agents.shape import choice_schema, encode_schema, find_object, list_schema, object_schema, text_schema
from chargehand.engine.plan import Combine, Edge, Task, TaskId
from chargehand.errors import Invalid
from chargehand.runtime.executor import Proposal

MOST_IN_SCHEMA = 12
NO_TOOL = "none"
Holders: TypeAlias = Mapping[str, Sequence[str]]
"""The workers that have a tool, by its name."""
NOBODY: Holders = {}
_COMBINES = tuple(combine for combine in get_args(Combine) if combine != "none")
_LONGEST = 1200
_MOST_REMARKS = 4
_TASKS = re.compile(r'"tasks"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


@lru_cache(maxsize=64)
def schema(workers: tuple[str, ...], tools: tuple[str, ...], most: int) -> Raw:
    """The schema for at most so many tasks, in a list. Strict modes take it: every object needs all it names."""
    most = min(most, MOST_IN_SCHEMA)
    ids = [f"t{number}" for number in range(1, most + 1)]
    earlier: dict[str, Any] = {"type": "array", "items": {"type": "string", "enum": ids}, "maxItems": most - 1}
    task = object_schema(
        {
            "id": {"type": "string", "enum": ids},
            "instruction": text_schema(_LONGEST, min_length=1),  # what, before who
            "tool": choice_schema([*tools, NO_TOOL]),  # a model that names it first picks better
            "worker": choice_schema(workers),
            "after": earlier,
            "optional": earlier,
        }
    )
    texts = list_schema(text_schema(300), _MOST_REMARKS)
    return encode_schema(
        {
            "tasks": list_schema(task, most),
            "combine": choice_schema(_COMBINES),
            "assumptions": texts,
            "unserved": texts,
        }
    )


class TaskReply(Struct, forbid_unknown_fields=True):
    """A task as a planner writes it."""

    instruction: str
    id: str = ""
    tool: str = NO_TOOL
    worker: str = ""
    after: list[str] = []
    optional: list[str] = []
    replaces: str = ""


class PlanReply(Struct):
    """A plan as a planner writes it."""

    tasks: list[object] | dict[str, dict[str, object]] = []
    """In a list, as it is asked for, or by id."""
    combine: str = "merge"
    assumptions: list[str] = []
    unserved: list[str] = []


class ReadPlan(Struct, frozen=True):
    """A proposal as a reply has it, and what was assumed for it."""

    proposal: Proposal
    assumptions: tuple[str, ...]


def read(text: str, holders: Holders = NOBODY) -> ReadPlan:
    """The plan in a reply; Invalid, in words for whatever wrote it, where there is none."""
    try:
        reply = msgspec.convert(find_object(text), PlanReply)
    except msgspec.ValidationError as error:
        raise Invalid(f"the reply is no plan: {error}") from error
    bodies = reply.tasks
    if isinstance(bodies, dict):
        bodies = [{"id": name, **body} for name, body in bodies.items()]
    tasks = tuple(read_task(body, number, holders) for number, body in enumerate(bodies, 1))
    combine = cast("Combine", reply.combine) if reply.combine in _COMBINES else "merge"
    proposal = Proposal(tasks, combine, unserved=_texts(reply.unserved))
    return ReadPlan(proposal, _texts(reply.assumptions))


def read_task(body: object, number: int, holders: Holders = NOBODY) -> Task:
    """One task of a reply, the one with this number in its list; Invalid for a key that is not read."""
    try:
        reply = msgspec.convert(body, TaskReply)
    except msgspec.ValidationError as error:
        name = cast("dict[str, object]", body).get("id", number) if isinstance(body, dict) else number
        keys = ", ".join(TaskReply.__struct_fields__)
        raise Invalid(f"task {name!r} cannot be read: {error}; the keys of a task are {keys}") from error
    name = reply.id or f"t{number}"
    instruction = reply.instruction.strip()
    if not instruction:
        raise Invalid(f"task {name!r} has no instruction")
    # the only worker that has the tool, where the named one lacks it
    able = holders.get(reply.tool, ())
    worker = able[0] if len(able) == 1 else reply.worker
    inputs = dict.fromkeys([*reply.after, *reply.optional])  # some name an optional input only there
    inputs.pop(name, None)  # nothing waits for itself
    task = Task(TaskId(name), instruction, worker)
    if not inputs and not reply.replaces:
        return task
    after = (Edge(TaskId(given), "optional") if given in reply.optional else TaskId(given) for given in inputs)
    return structs.replace(task, after=tuple(after), replaces=TaskId(reply.replaces))


def _texts(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(text.strip() for text in texts if text.strip())


class PlanStream:
    """Finds tasks in a plan while it is still being written: each is handed out once, when it is complete."""

    def __init__(self, holders: Holders = NOBODY) -> None:
        self._holders = holders
        self._text = ""
        self._searched = 0  # up to here the list of tasks was looked for
        self._next = -1  # where the next task may begin; -1: the list has not begun yet
        self._count = 0

    def feed(self, piece: str) -> list[Task]:
        """The tasks that are complete with this piece. What cannot be read is left for the end."""
        self._text += piece
        if self._next < 0:
            opening = _TASKS.search(self._text, self._searched)
            self._searched = max(0, len(self._text) - 20)
            if opening is None:
                return []
            self._next = opening.end()
        tasks: list[Task] = []
        while "}" in piece:  # no task ends without one
            between = _BETWEEN.match(self._text, self._next)
            try:
                body, self._next = _DECODER.raw_decode(self._text, between.end() if between else self._next)
                self._count += 1
                tasks.append(read_task(body, self._count, self._holders))
            except (ValueError, Invalid):
                break
        return tasks
