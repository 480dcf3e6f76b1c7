"""What a request is about, as plain data. The offline model works from this; others read the messages made from it."""

from typing import TypeAlias

from msgspec import Raw, Struct

from chargehand.terms.events import Gap
from chargehand.terms.plan import Combine


class Skill(Struct, frozen=True):
    """A tool as a planner sees it: what it is called, what it says of itself, and its JSON Schema."""

    name: str
    description: str
    parameters: Raw


class WorkerCard(Struct, frozen=True):
    """A worker as a planner sees it."""

    name: str
    does: str
    tags: tuple[str, ...] = ()
    skills: tuple[Skill, ...] = ()


class Given(Struct, frozen=True):
    """A result somebody works from: whose it is, what was asked, and what came of it (None: a gap)."""

    task: str
    instruction: str
    worker: str
    value: object


class Planned(Struct, frozen=True):
    """A task the plan holds already."""

    id: str
    instruction: str
    worker: str
    after: tuple[str, ...] = ()


class Planning(Struct, frozen=True, tag="planning"):
    """A plan is asked for.

    `findings` say in words what was wrong with the last proposal. With `tasks` there is a plan already, `results` and
    `gaps` say how far it came, and what is asked for is what else has to be done (nothing is an answer).
    """

    goal: str
    workers: tuple[WorkerCard, ...]
    most_tasks: int
    findings: tuple[str, ...] = ()
    tasks: tuple[Planned, ...] = ()
    results: tuple[Given, ...] = ()
    gaps: tuple[Gap, ...] = ()


class Shown(Struct, frozen=True):
    """A block of shared memory as a model sees it; `access` is what whoever sees it may do with it."""

    label: str
    text: str
    description: str = ""
    access: str = "read"


class Said(Struct, frozen=True):
    """An earlier turn of whoever works: `user` is what it was asked, `assistant` what came of it."""

    role: str
    text: str


class Working(Struct, frozen=True, tag="working"):
    """One task for one worker. It sees what it is asked, its inputs and its memory, and nothing of the rest."""

    instruction: str
    worker: WorkerCard
    inputs: tuple[Given, ...] = ()
    gaps: tuple[Gap, ...] = ()
    blocks: tuple[Shown, ...] = ()
    earlier: tuple[Said, ...] = ()


class Refining(Struct, frozen=True, tag="refining"):
    """A task that failed, and why: it is to be put better."""

    instruction: str
    failure: str
    worker: WorkerCard
    inputs: tuple[Given, ...] = ()


class Answering(Struct, frozen=True, tag="answering"):
    """Results that are to become one answer, and what is missing."""

    goal: str
    results: tuple[Given, ...]
    gaps: tuple[Gap, ...] = ()
    combine: Combine = "merge"


class Making(Struct, frozen=True, tag="making"):
    """A worker is to be made for a task: a persona and some of these tools."""

    instruction: str
    skills: tuple[Skill, ...]


Subject: TypeAlias = Planning | Working | Refining | Answering | Making
