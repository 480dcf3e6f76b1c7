"""A worker that is there several times: the planner sees one, the scheduler all of them, and the idlest gets the task.

Each instance carries a tag that says whose instance it is. Which of them works is the scheduler's choice; how they are
declared is the business of `copies`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, field, structs

from chargehand.core.owed import Brief
from chargehand.terms.plan import Task
from chargehand.terms.roster import Agent, Match, Roster

_OF = "one of "
_T = TypeVar("_T")
_SIGNS = re.compile(r"[\s_-]")


def tag_of(name: str) -> str:
    """The tag that all instances of a worker carry."""
    return f"{_OF}{name}"


def kind_of(agent: Agent) -> str:
    """The worker an agent is an instance of; its own name where it is none."""
    for tag in agent.tags:
        if tag.startswith(_OF) and re.fullmatch(rf"{re.escape(tag[len(_OF) :])}-\d{{1,2}}", agent.name):
            return tag[len(_OF) :]
    return agent.name


def meant(task: Task) -> str:
    """The worker a task names, or whose instances it is for; empty where it names tags, or nobody."""
    if task.worker or task.match is None or task.match.some or len(task.match.all) != 1:
        return task.worker
    return task.match.all[0].removeprefix(_OF) if task.match.all[0].startswith(_OF) else ""


class Instances(Struct, frozen=True):
    """Who of a team is there several times, and as whom. `others` are those who are there once."""

    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    others: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def spread(self, tasks: Iterable[Task]) -> tuple[Task, ...]:
        """Tasks for a worker that is there several times, as tasks for whoever of them is idlest."""
        return tuple(self._spread(task) for task in tasks) if self.kinds else tuple(tasks)

    def _spread(self, task: Task) -> Task:
        kind = self._kind(task)
        return structs.replace(task, worker="", match=Match((tag_of(kind),))) if kind else task

    def _kind(self, task: Task) -> str:
        """Who is meant, also by a name that is written a little differently, or by none where there is only one."""
        if task.worker in self.kinds:
            return task.worker
        own = (*self.others, *(one for names in self.kinds.values() for one in names))
        if task.worker in own or (not task.worker.strip() and task.match is not None):
            return ""
        bare = _bare(task.worker)
        names = (*self.kinds, *self.others)
        alike = [name for name in names if not bare or _bare(name) == bare]
        return alike[0] if len(alike) == 1 and alike[0] in self.kinds else ""

    def gathered(self, tasks: Iterable[Task]) -> tuple[Task, ...]:
        """The other way round: tasks as who leads sees them."""
        return tuple(
            structs.replace(task, worker=meant(task), match=None) if meant(task) in self.kinds else task
            for task in tasks
        )

    def brief(self, brief: Brief) -> Brief:
        """A brief in which nobody is told of instances."""
        worker = next((kind for kind, names in self.kinds.items() if brief.worker in names), brief.worker)
        return structs.replace(brief, worker=worker, tasks=self.gathered(brief.tasks))

    def each(self, by_kind: Mapping[str, _T]) -> dict[str, _T]:
        """What is kept by worker, for instances too."""
        own = {one: by_kind[kind] for kind, names in self.kinds.items() if kind in by_kind for one in names}
        return {**by_kind, **own}

    def named(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names, with those of instances in the place of who is there several times."""
        return tuple(one for name in names for one in self.kinds.get(name, (name,)))


def of_roster(roster: Roster) -> Instances:
    """The same, as a run has it."""
    kinds: dict[str, tuple[str, ...]] = {}
    for one in roster.agents:
        if (kind := kind_of(one)) != one.name:
            kinds[kind] = (*kinds.get(kind, ()), one.name)
    return Instances(kinds, tuple(one.name for one in roster.agents if kind_of(one) == one.name))


def turned(agents: Sequence[Agent], chance: int) -> tuple[Agent, ...]:
    """A roster in which another instance of each worker comes first: of equally idle ones the first gets the task."""
    found: list[Agent] = []
    at = 0
    while at < len(agents):
        kind = kind_of(agents[at])
        end = at + 1
        while kind != agents[at].name and end < len(agents) and kind_of(agents[end]) == kind:
            end += 1
        first = chance % (end - at)
        found += [*agents[at + first : end], *agents[at : at + first]]
        at = end
    return tuple(found)


def _bare(name: str) -> str:
    return _SIGNS.sub("", name).casefold()
