"""The form of a plan between us and a model: the schema it is asked for, and what its reply amounts to.

Whether the plan can run, `engine.lint` says.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

from msgspec import Raw, Struct

from chargehand.agents.shape import choice_schema, encode_schema, find_object, list_schema, object_schema, text_schema
from chargehand.engine.plan import Combine, Edge, Task, TaskId
from chargehand.errors import Invalid
from chargehand.runtime.executor import Proposal
from chargehand.text.names import did_you_mean

MOST_IN_SCHEMA = 12
NO_TOOL = "none"
Holders: TypeAlias = Mapping[str, Sequence[str]]
"""The workers that have a tool, by its name."""
NOBODY: Holders = {}
_COMBINES = ("merge", "forward", "select", "vote", "reduce")
_KEYS = ("id", "instruction", "tool", "worker", "after", "optional", "replaces")
_OTHER_KEYS = {
    "description": "instruction",
    "task": "instruction",
    "worker_type": "worker",
    "depends_on": "after",
    "dependencies": "after",
}
"""Other words that models use for a key, and that are understood."""
_MEANT_KEYS = {"needs": "after", "requires": "after", "inputs": "after", "waits_for": "after", "agent": "worker"}
"""Words that a finding about an unknown key answers with the key that was probably meant."""
_LONGEST = 1200
_MOST_REMARKS = 4
_OPENING = re.compile(r"[\[{]")
_BETWEEN = re.compile(r"[\s,:]*")
_DECODER = json.JSONDecoder()
_NUMBERED = re.compile(r"t(\d{1,4})")


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


class DroppedInput(Struct, frozen=True):
    """An input of a task that is no task of the plan, and that the task does without."""

    task: str
    input: str


class ReadPlan(Struct, frozen=True):
    """A proposal as a reply has it, what was assumed for it, and the inputs that were dropped from it."""

    proposal: Proposal
    assumptions: tuple[str, ...]
    dropped: tuple[DroppedInput, ...]


def read(text: str, holders: Holders = NOBODY) -> ReadPlan:
    """The plan in a reply; Invalid, in words for whoever wrote it, where there is none."""
    table = find_object(text)
    entries = _entries(table.get("tasks", {}))
    known = {name for name, _ in entries}
    dropped: list[DroppedInput] = []
    tasks = tuple(read_task(name, _without_later(name, body, known, dropped), holders) for name, body in entries)
    said = table.get("combine")
    combine = cast("Combine", said) if said in _COMBINES else "merge"
    proposal = Proposal(tasks, combine, unserved=_texts(table.get("unserved")))
    return ReadPlan(proposal, _texts(table.get("assumptions")), tuple(dropped))


def _entries(tasks: object) -> list[tuple[str, dict[str, object]]]:
    """Tasks by name, or in a list with ids: models write both."""
    if isinstance(tasks, dict):
        items = list(cast("dict[str, object]", tasks).items())
    elif isinstance(tasks, list):
        listed = cast("list[object]", tasks)
        items = [(_name(one, number), one) for number, one in enumerate(listed, 1)]
    else:
        raise Invalid(f"`tasks` must be an object of tasks by name, not a {type(tasks).__name__}")
    entries: list[tuple[str, dict[str, object]]] = []
    for name, body in items:
        if not isinstance(body, dict):
            raise Invalid(f"task {name!r} must be an object with an instruction and a worker")
        entries.append((name, cast("dict[str, object]", body)))
    return entries


def _without_later(
    name: str, body: dict[str, object], known: set[str], dropped: list[DroppedInput]
) -> dict[str, object]:
    """The task without inputs that are numbered after it and are not in the plan: small models write such.

    Any other name that is not in the plan is sent back: it may be one that is written wrongly. What is left out is
    added to `dropped`.
    """
    kept = dict(body)
    for field in ("after", "optional"):
        given = body.get(field)
        if isinstance(given, list):
            items = cast("list[object]", given)
            later = [item for item in items if item not in known and _is_later(item, name)]
            dropped += [DroppedInput(name, str(item)) for item in later]
            kept[field] = [item for item in items if item not in later]
    return kept


def _is_later(one: object, name: str) -> bool:
    first = _NUMBERED.fullmatch(str(one))
    second = _NUMBERED.fullmatch(name)
    return first is not None and second is not None and int(first[1]) > int(second[1])


def _name(task: object, number: int) -> str:
    if not isinstance(task, dict):
        return f"t{number}"
    found = cast("dict[str, object]", task).get("id")
    return found if isinstance(found, str) and found else f"t{number}"


def read_task(name: str, body: dict[str, object], holders: Holders = NOBODY) -> Task:
    """One task of a reply; other words that models use for the same are understood, and any other key is Invalid."""
    _check_keys(name, body)
    instruction = body.get("instruction") or body.get("description") or body.get("task")
    if not isinstance(instruction, str) or not instruction.strip():
        raise Invalid(f"task {name!r} has no instruction")
    worker = body.get("worker") or body.get("worker_type") or ""
    worker = worker if isinstance(worker, str) else ""
    if "tool" in body:
        worker = _who_has(body["tool"], worker, holders)
    before = body.get("after") or body.get("depends_on") or body.get("dependencies")
    without = body.get("optional")
    replaced = body.get("replaces")
    replaces = TaskId(replaced if isinstance(replaced, str) else "")
    if not before and not without:
        return Task(TaskId(name), instruction.strip(), worker, replaces=replaces)
    optional = dict.fromkeys(_names(name, without))
    inputs = dict.fromkeys(_names(name, before)) | optional  # some name an optional input only there
    after = (Edge(TaskId(given), "optional") if given in optional else TaskId(given) for given in inputs)
    return Task(TaskId(name), instruction.strip(), worker, after=tuple(after), replaces=replaces)


def _check_keys(name: str, body: dict[str, object]) -> None:
    """Invalid for a key that nobody reads: what it says would be lost, such as an input of the task."""
    for key in body:
        if key in _KEYS or key in _OTHER_KEYS:
            continue
        hint = did_you_mean(key, _KEYS, otherwise=f"the keys of a task are {', '.join(_KEYS)}")
        if key.casefold() in _MEANT_KEYS:
            hint = f"did you mean {_MEANT_KEYS[key.casefold()]!r}?"
        raise Invalid(f"task {name!r} has an unknown key {key!r} ({hint})")


def _who_has(tool: object, worker: str, holders: Holders) -> str:
    """The worker of a task; where it lacks the tool that the task names and only one worker has it, that one."""
    having = holders.get(tool, ()) if isinstance(tool, str) else ()
    return having[0] if len(having) == 1 and worker not in having else worker


def _names(name: str, given: object) -> list[str]:
    items: list[object] = cast("list[object]", given) if isinstance(given, list) else [given] if given else []
    if strange := [item for item in items if not isinstance(item, str)]:
        raise Invalid(f"task {name!r} comes after {strange[0]!r}; name tasks by their ids")
    return [one for one in dict.fromkeys(cast("list[str]", items)) if one != name]  # nothing waits for itself


def _texts(given: object) -> tuple[str, ...]:
    items = cast("list[object]", given) if isinstance(given, list) else []
    return tuple(item.strip() for item in items if isinstance(item, str) and item.strip())


class PlanStream:
    """Finds tasks in a plan while it is still being written: each is handed out once, when it is complete."""

    def __init__(self, holders: Holders = NOBODY) -> None:
        self._holders = holders
        self._text = ""
        self._seen = 0  # up to here `tasks` was looked for
        self._at = -1  # where the next task may begin; -1: `tasks` has not come yet
        self._listed = False
        self._count = 0

    def feed(self, piece: str) -> list[Task]:
        """The tasks that are complete with this piece. What cannot be read is left for the end."""
        self._text += piece
        if self._at < 0 and not self._find_tasks():
            return []
        tasks: list[Task] = []
        while "}" in piece:  # no task ends without one
            try:
                name, body = self._next_entry()
                tasks.append(read_task(name, body, self._holders))
            except (ValueError, TypeError, Invalid):
                break
        return tasks

    def _find_tasks(self) -> bool:
        key = self._text.find('"tasks"', self._seen)
        opening = _OPENING.search(self._text, key + 7) if key >= 0 else None
        if opening is None:
            self._seen = key if key >= 0 else max(0, len(self._text) - 7)
            return False
        self._listed = opening[0] == "["
        self._at = opening.end()
        return True

    def _next_entry(self) -> tuple[str, dict[str, object]]:
        """The next item of a list, or name with an object; ValueError while it is not complete, or there is none."""
        end = _skip(self._text, self._at)
        name = ""
        if not self._listed:
            name, end = _DECODER.raw_decode(self._text, end)
            end = _skip(self._text, end)
        body, self._at = _DECODER.raw_decode(self._text, end)
        self._count += 1
        return name or _name(body, self._count), dict(body)


def _skip(text: str, start: int) -> int:
    """Behind the white space and commas that begin here."""
    between = _BETWEEN.match(text, start)
    return start if between is None else between.end()
