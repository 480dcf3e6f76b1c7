"""The members of a team as they are declared: workers, factories of workers, the supervisor, and its hedging."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import isfinite
from typing import Annotated, TypeAlias

from msgspec import Meta, field, structs

from chargehand.agents.nested import RunnableTeam
from chargehand.agents.strategies import Strategy, Whole
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.declared import (
    Count,
    Declared,
    Length,
    Write,
    WrittenDuration,
    argument_problem,
    is_async,
    seconds_of,
)
from chargehand.engine.plan import Combine, Plan
from chargehand.errors import Invalid
from chargehand.memory.blocks import Access, Grant
from chargehand.models.messages import Settings
from chargehand.models.model import Model
from chargehand.models.providers import BUILT_IN
from chargehand.models.wrappers import AnyModel, as_model
from chargehand.tools.rules import ToolRule
from chargehand.tools.tool import Tool, Toolbox, unpack_toolboxes

Models: TypeAlias = Annotated[Sequence[AnyModel], Write("a list of models")]
REPEATS = 3
"""Replies of an attempt that count as no step because they ask only for what the worker has already."""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def check_worker_name(name: str) -> None:
    """Raise Invalid for what no worker can be called, in Python or in a team file."""
    if not _NAME.match(name):
        raise Invalid(f"{name[:70]!r} is no name for a worker; use up to 64 letters, digits, _, - and .")


def check_queue(owner: str, queue: str) -> None:
    """Raise Invalid for what no queue can be called, in Python or in a team file."""
    if queue and not _NAME.match(queue):
        raise Invalid(f"{owner}: {queue[:70]!r} is no name for a queue; use up to 64 letters, digits, _, - and .")


class AttemptKeys(Declared, frozen=True, kw_only=True):
    """What `defaults` of a team file says for every worker."""

    steps: Count = 10
    """How many times it may call its model in one attempt."""
    timeout: WrittenDuration = 300.0
    """How long one attempt may take, in seconds or as text (`"5m"`)."""
    settings: Settings = Settings()
    """How its model samples, how much it thinks, and how long its replies may be."""


class WorkerKeys(AttemptKeys, frozen=True, kw_only=True):
    """What a worker declares in the same words and types in Python and in a team file."""

    tags: Sequence[str] = ()
    """Words by which a plan or a message may ask for it."""
    fallbacks: Sequence[str] = ()
    """Workers that step in, in order, when it has failed."""
    concurrency: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """How many tasks it does at once; 0 is as many as the run allows."""
    seconds: Length | None = None
    """How long a task is expected to take, for the forecast; left out, the model's usual pace counts."""
    remembers: bool = False
    """It sees its earlier tasks, across runs."""
    skills: Sequence[str] = ()
    """What it can do, in a few words each; a router compares requests with them."""
    examples: Sequence[str] = ()
    """Requests that were for it; a router compares requests with them."""
    accept: Sequence[str] = ()
    """Names of the team's checks that its results must pass."""
    blocks: Mapping[str, Access | Grant] = field(default_factory=dict[str, "Access | Grant"])
    """What it may do with blocks of the team's memory, where that is not what everybody may."""
    archives: Sequence[str] | Mapping[str, Access] | None = None
    """The archives it may use, or how it may use each; left out, all, as they are shared."""
    every: Count | None = None
    """After how many runs of the team it works, in the background; it then gets no tasks. Left out: it gets tasks."""
    queue: str = ""
    """The queue whose processes make its attempts, where an engine carries runs; left out, whatever drives the run."""
    may_estimate: bool = False
    """Its figures may be its own: what no tool returned counts as its words, not as a gap."""


class Worker(WorkerKeys, frozen=True):
    """A member of a team that does tasks, one attempt at a time."""

    name: str
    """What it is called in plans, messages and the journal."""
    description: str = ""
    """What it does; the planner reads this to hand out tasks."""
    prompt: str = ""
    """What it is told about itself."""
    tools: Sequence[Tool | Callable[..., object] | str | Toolbox] = ()
    """Tools, typed functions, toolboxes, and names: of built-in tools (`calculator`), of memory (`memory_rethink`), of
    messages."""
    model: AnyModel = ""
    """A handle or a model; left out, the supervisor's."""
    fallback_models: Models = ()
    """Models to try, in order, when its own does not answer."""
    output: type | dict[str, object] | None = None
    """A type, or a JSON Schema, that its results must have; left out, they are text with what its tools returned."""
    rules: Sequence[ToolRule] = ()
    """Which tools it must call first, last, or never without approval."""
    estimate: Amount = NOTHING
    """What one attempt is expected to use; reserved before it starts."""
    team: RunnableTeam | None = None
    """A team that does its tasks (`Team.as_worker`)."""
    contacts: Sequence[str] = ()
    """The workers it may write to, if it has a tool for messages: names, `tag:NAME` for a tag, `*` for all."""
    replicas: Models = ()
    """Models that serve its calls together, in place of `model`; each call goes to the least loaded."""
    call: Callable[..., Awaitable[object]] | None = None
    """An async function of an `Assignment` and a `StepContext` that makes its attempts, in place of a model."""

    def __post_init__(self) -> None:
        if self.call is not None and not is_async(self.call):
            raise Invalid(
                f"worker {self.name!r}: call must be an async function, or an object with an async __call__; "
                "a plain function waits well in asyncio.to_thread"
            )
        if self.call is not None and (problem := argument_problem(self.call, "assignment", "context")):
            raise Invalid(
                f"worker {self.name!r}: call cannot take an assignment and a context ({problem}); "
                "write: async def work(assignment, context)"
            )
        check_queue(f"worker {self.name!r}", self.queue)
        if self.replicas and self.model:
            raise Invalid(f"worker {self.name!r} has a model and replicas; name its models in one of the two")
        structs.force_setattr(self, "tools", unpack_toolboxes(self.tools))
        structs.force_setattr(self, "model", as_model(self.model))
        structs.force_setattr(self, "replicas", tuple(map(as_model, self.replicas)))
        structs.force_setattr(self, "fallback_models", tuple(map(as_model, self.fallback_models)))
        structs.force_setattr(self, "timeout", seconds_of(f"worker {self.name!r}: timeout", self.timeout))

    @property
    def is_delegated(self) -> bool:
        """Whether a team or a function does its tasks, in place of a model."""
        return self.team is not None or self.call is not None

    @property
    def max_replies(self) -> int:
        """How often its model is asked in one attempt at most."""
        return self.steps + REPEATS if self.tools else self.steps


class FactoryKeys(Declared, frozen=True, kw_only=True):
    """What a factory declares in the same words and types in Python and in a team file."""

    name: str = "factory"
    """What it is called in plans."""
    description: str = "makes a worker for a task that no other worker fits"
    """What it does; the planner reads this."""
    max_tools: Count = 4
    """How many tools a made worker may have."""
    steps: Count = 10
    """How many times a made worker may call its model in one attempt."""
    concurrency: Count = 4
    """How many made workers work at the same time."""


class Factory(FactoryKeys, frozen=True):
    """Makes a worker for a task that no worker of the team fits."""

    tools: Sequence[Tool | Callable[..., object] | str | Toolbox] = ()
    """All that a made worker may be given."""
    model: str | Model = ""
    """The model of made workers; left out, the supervisor's."""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "tools", unpack_toolboxes(self.tools))

    @property
    def stand_in(self) -> Worker:
        """A worker with all that a made one may have, for those who plan, schedule and reckon."""
        return Worker(
            self.name,
            self.description,
            tools=self.tools,
            model=self.model,
            steps=self.steps,
            concurrency=self.concurrency,
        )


# --- the supervisor


class Hedge(Declared, frozen=True, forbid_unknown_fields=True):
    """When a worker's call of its model is made a second time, while the first is still running.

    The second goes to the worker's next model, or to the same one where there is none. Calls under a budget are made
    once: what is reserved covers one call of each model.
    """

    after: Length | None = None
    """How long is too long; left out, a tenth longer than 95 in 100 of the model's last calls, once 20 were seen."""
    share: Annotated[float, Meta(ge=0.001, le=0.5)] = 0.05
    """The share of all calls that may be made twice."""

    def __post_init__(self) -> None:
        if self.after is not None and not (self.after > 0 and isfinite(self.after)):
            raise Invalid(f"hedge.after is {self.after}; say how many seconds are too long, or leave it out")


class SupervisorKeys(Declared, frozen=True, kw_only=True):
    """What a supervisor declares in the same words and types in Python and in a team file."""

    instructions: str = ""
    """What it is told about the team."""
    review: bool = False
    """The planner sees the results and may add tasks."""
    stream_plan: bool = False
    """Tasks start while the plan is still being written."""
    ask_person: bool = False
    """The planner may ask the person who made the request, up to three times; the run waits for the answer."""
    timeout: WrittenDuration | None = None
    """How long one plan, refined task or answer may take; left out, 120 seconds."""
    queue: str = ""
    """The queue whose processes drive the runs of the team, where an engine carries runs; left out, the team's name. A
    team that works for another does so in that other's process unless it has a queue.
    """
    settings: Settings = Settings()
    """How its models sample, how much they think, and how long their replies may be."""


class Supervisor(SupervisorKeys, frozen=True, kw_only=True):
    """The role that plans, hands out tasks, refines what failed and writes the answer."""

    model: AnyModel = BUILT_IN
    """Its model, and that of every worker without one of its own: a handle such as `openai:gpt-5-mini`, or a model."""
    planner: AnyModel = ""
    """The model that plans and refines; left out, `model`."""
    judge: AnyModel = ""
    """The model that writes the answer and decides between results; left out, `model`."""
    strategy: Strategy = Whole()
    """How requests become tasks: one plan, a route, a loop, a chat, recursive splitting."""
    plan: Plan | None = None
    """A fixed plan for every request; left out, it makes one."""
    combine: Combine | Callable[..., object] | None = None
    """How results become one answer, or a function that makes it; left out, the plan decides."""
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts in the place of the built-in prompts, by name."""
    factory: Factory | None = None
    """Makes workers for tasks that no worker fits; left out, none are made."""
    output: type | dict[str, object] | None = None
    """A type, or a JSON Schema, that answers must have; left out, they are text."""
    hedge: Hedge | None = None
    """When a worker's model call that takes unusually long is made twice; left out, never."""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "model", as_model(self.model))
        structs.force_setattr(self, "planner", as_model(self.planner))
        structs.force_setattr(self, "judge", as_model(self.judge))
        check_queue("the supervisor", self.queue)
        if self.timeout is not None:
            structs.force_setattr(self, "timeout", seconds_of("Supervisor: timeout", self.timeout))
