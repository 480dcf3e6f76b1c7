"""What a request is about, as plain data. Models that read facts work from it; others read the messages."""

from typing import Literal, TypeAlias

from msgspec import Raw, Struct

from chargehand.engine.events import Gap
from chargehand.engine.plan import Combine

_LONGEST_PARAGRAPH = 600


class Skill(Struct, frozen=True):
    """A tool as a planner sees it: what it is called, what it says of itself, and its JSON Schema."""

    name: str
    description: str
    parameters: Raw
    summary: str = ""
    data: str = ""
    """What the demo model reads in place of the description; empty: the description."""

    @property
    def in_short(self) -> str:
        """What a planner needs to know of it: its summary, else the first paragraph of its description."""
        return self.summary or " ".join(self.description.strip().partition("\n\n")[0].split())[:_LONGEST_PARAGRAPH]


class WorkerCard(Struct, frozen=True):
    """A worker as a planner sees it. `phrases` are what it can do in a few words each, `examples` requests it had."""

    name: str
    description: str
    tags: tuple[str, ...] = ()
    skills: tuple[Skill, ...] = ()
    phrases: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()
    """Requests that were confirmed to be for it, besides the declared examples."""


class Given(Struct, frozen=True, gc=False):
    """A result to work from: its worker, what was asked, and what came of it (None: a gap)."""

    task: str
    instruction: str
    worker: str
    value: object
    from_tool: bool = False
    """A tool returned it, and `task` says which."""


class Planned(Struct, frozen=True, gc=False):
    """A task the plan holds already."""

    id: str
    instruction: str
    worker: str
    after: tuple[str, ...] = ()


class Planning(Struct, frozen=True, gc=False, tag="planning"):
    """A plan is asked for.

    `findings` say in words what was wrong with the last proposal. With `tasks` there is a plan already, `results` and
    `gaps` say how far it came, and what is asked for is what else has to be done (nothing is an answer).
    """

    goal: str
    workers: tuple[WorkerCard, ...]
    max_tasks: int
    findings: tuple[str, ...] = ()
    tasks: tuple[Planned, ...] = ()
    results: tuple[Given, ...] = ()
    gaps: tuple[Gap, ...] = ()


class Shown(Struct, frozen=True, gc=False):
    """A block of shared memory as a model sees it; `access` is what the worker may do with it."""

    label: str
    text: str
    description: str = ""
    access: str = "read"


class Said(Struct, frozen=True, gc=False):
    """An earlier turn of the worker: `user` is what it was asked, `assistant` what came of it."""

    role: str
    text: str


class Working(Struct, frozen=True, gc=False, tag="working"):
    """One task for one worker. It sees what it is asked, its inputs and its memory, and nothing of the rest.

    `chat_turns` is how many messages after the first were said before this task: they are the chat it belongs to.
    """

    instruction: str
    worker: WorkerCard
    inputs: tuple[Given, ...] = ()
    gaps: tuple[Gap, ...] = ()
    blocks: tuple[Shown, ...] = ()
    earlier: tuple[Said, ...] = ()
    chat_turns: int = 0


class Refining(Struct, frozen=True, gc=False, tag="refining"):
    """A task that failed, and why: it is to be put better."""

    instruction: str
    failure: str
    worker: WorkerCard
    inputs: tuple[Given, ...] = ()


class Answering(Struct, frozen=True, gc=False, tag="answering"):
    """Results that are to become one answer, and what is missing."""

    goal: str
    results: tuple[Given, ...]
    gaps: tuple[Gap, ...] = ()
    combine: Combine = "merge"


class Making(Struct, frozen=True, tag="making"):
    """A worker is to be made for a task: a persona and some of these tools."""

    instruction: str
    skills: tuple[Skill, ...]


class Routing(Struct, frozen=True, tag="routing"):
    """Who of these should do this? The reply is JSON: primary, secondary (or null), reason, confidence from 0 to 1."""

    goal: str
    workers: tuple[WorkerCard, ...]


class ProgressLedger(Struct, frozen=True, tag="ledger"):
    """Where does this stand? The reply is JSON: done, looping, progress, next (a worker), instruction, why.

    `done` with no `next` ends it. `results` and `gaps` are what came of the `tasks` so far.
    """

    goal: str
    workers: tuple[WorkerCard, ...]
    tasks: tuple[Planned, ...] = ()
    results: tuple[Given, ...] = ()
    gaps: tuple[Gap, ...] = ()


class Speaking(Struct, frozen=True, tag="speaking"):
    """Who speaks next? The reply is JSON: next (a worker, not `last`), why."""

    goal: str
    workers: tuple[WorkerCard, ...]
    said: tuple[Given, ...] = ()
    last: str = ""


class Splitting(Struct, frozen=True, tag="splitting"):
    """Is this too big for one worker? The reply is JSON: simple; or subtasks, each with instruction and worker."""

    instruction: str
    workers: tuple[WorkerCard, ...]
    most: int


class Judging(Struct, frozen=True, tag="judging"):
    """Which of these results holds? The reply is JSON: why, winner (a task id), and what the `manner` asks for besides.

    On a contradiction, where `claims` are what each says, also ruling, and the winner may be null. In a vote, also
    agree: the ids of all that say what the winner says.
    """

    goal: str
    claims: tuple[str, ...] = ()
    results: tuple[Given, ...] = ()
    manner: Literal["contradiction", "select", "vote"] = "contradiction"


class Reviewing(Struct, frozen=True, tag="reviewing"):
    """Is this result acceptable? The reply is JSON: problems (in words), accepted.

    `text` is the result in words, `material` what there was to work from, `doubts` what stands nowhere in it.
    """

    instruction: str
    result: object
    text: str
    material: tuple[Given, ...] = ()
    doubts: tuple[str, ...] = ()


Subject: TypeAlias = (
    Planning
    | Working
    | Refining
    | Answering
    | Making
    | Routing
    | ProgressLedger
    | Speaking
    | Splitting
    | Judging
    | Reviewing
)
