"""Where a request stands that is worked on task by task: the plan for it, handed out one task at a time.

Which tasks there are is decided in planning, and what to do about one that failed in replanning.
"""

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from chargehand.models.offline.matching import Embedder
from chargehand.models.offline.planning import plan
from chargehand.models.subject import Ledger, Planned, Planning

_MOST = 50
_ID = re.compile(r"\bt\d+\b")


class Step(Struct, frozen=True):
    """A task of a plan, as the planner writes it."""

    instruction: str
    worker: str
    after: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    replaces: str = ""


class Steps(Struct, frozen=True):
    """A plan, as the planner writes it."""

    tasks: dict[str, Step]
    unserved: tuple[str, ...] = ()


def stand(subject: Ledger, embedder: Embedder | None = None) -> str:
    """The ledger as JSON: done, looping, progress, why, and unless it is done, next and instruction."""
    wanted = _planned(Planning(subject.goal, subject.workers, _MOST), embedder)
    names = _names(wanted.tasks, subject)
    delivered = {one.task for one in subject.results if one.value is not None}
    if subject.gaps and (found := _instead(subject, embedder)) is not None:
        return _next(found, f"{found.replaces} failed: it is tried another way.", found.replaces)
    for name, step in wanted.tasks.items():
        needed = [one for one in step.after if one not in step.optional]
        if name not in names and all(names.get(one) in delivered for one in needed):
            why = f"{len(delivered)} of {len(wanted.tasks)} tasks are done."
            return _next(Step(_renamed(step.instruction, names), step.worker), why)
    left = len(wanted.tasks) - sum(one in delivered for one in names.values())
    why = "All tasks are done." if not left else f"{left} of {len(wanted.tasks)} tasks cannot be done."
    ended = {"done": True, "looping": False, "progress": True, "why": why, "unserved": wanted.unserved}
    return msgspec.json.encode(ended).decode()


def _planned(subject: Planning, embedder: Embedder | None) -> Steps:
    return msgspec.json.decode(plan(subject, embedder), type=Steps)


def _next(step: Step, why: str, replaces: str = "") -> str:
    found: dict[str, object] = {
        "done": False, "looping": False, "progress": True, "next": step.worker, "instruction": step.instruction,
        "why": why,
    }  # fmt: skip
    return msgspec.json.encode(found | ({"replaces": replaces} if replaces else {})).decode()


def _names(steps: Mapping[str, Step], subject: Ledger) -> dict[str, str]:
    """What the tasks of the plan are called in the run, for those it has; one that was replaced by its replacement."""
    left = list(subject.tasks)
    found: dict[str, str] = {}
    for name, step in steps.items():
        said = _plain(_renamed(step.instruction, found))
        task = next((one for one in left if _plain(one.instruction) == said and one.worker == step.worker), None)
        if task is not None:
            left.remove(task)
            found[name] = task.id
    lost = [name for name, task in found.items() if not _delivered(subject, task)]
    spare = [one.id for one in left if _delivered(subject, one.id)]
    return found | dict(zip(lost, spare, strict=False))  # the others were put in for what failed, in that order


def _delivered(subject: Ledger, task: str) -> bool:
    return any(one.task == task and one.value is not None for one in subject.results)


def _instead(subject: Ledger, embedder: Embedder | None) -> Step | None:
    """Another way for a task that failed, if one is left that was not tried."""
    again = Planning(
        subject.goal, subject.workers, _MOST, tasks=subject.tasks, results=subject.results, gaps=subject.gaps
    )
    found = _planned(again, embedder).tasks.values()
    return next((one for one in found if one.replaces and not _tried(one, subject.tasks)), None)


def _tried(step: Step, tasks: tuple[Planned, ...]) -> bool:
    return any(one.worker == step.worker and _plain(one.instruction) == _plain(step.instruction) for one in tasks)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return _ID.sub(lambda found: names.get(found[0], found[0]), text)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
