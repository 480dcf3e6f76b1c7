"""Workers, and factories of workers, as people declare them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeAlias

from msgspec import field, structs

from chargehand.agents.nested import Team
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.declared_types import Write
from chargehand.engine.duration import WrittenDuration, seconds_of
from chargehand.engine.keywords import Declared
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.memory.blocks import Access, Grant
from chargehand.models.messages import Settings
from chargehand.models.model import Model
from chargehand.models.own import AnyModel, as_model
from chargehand.tools.rules import ToolRule
from chargehand.tools.tool import Tool

Models: TypeAlias = Annotated[Sequence[AnyModel], Write("a list of models")]
REPEATS = 3
"""Replies of an attempt that count as no step because they ask only for what the worker has already."""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def check_worker_name(name: str) -> None:
    """Raise Invalid for what no worker can be called, in Python or in a team file."""
    if not _NAME.match(name):
        raise Invalid(f"{name[:70]!r} is no name for a worker; use up to 64 letters, digits, _, - and .")


class Contacts(Declared, frozen=True):
    """Whom a worker may write to: names, `tag:NAME` for everybody with that tag, `*` for everybody.

    `most` is how many messages it may send for one task; left out, its steps and its money are the only bounds.
    """

    to: Sequence[str] = ()
    most: int | None = None


class Worker(Declared, frozen=True):
    """Somebody who does one task at a time.

    `description` is what a planner reads, `prompt` what the worker is told about itself. `tools` are
    tools, typed functions, and names: of the toolbox (`calculator`) and of memory (`memory_rethink`). `timeout` is how
    long one attempt may take, in seconds or as text (`"5m"`). `model` is a handle or a model; left
    out, it is the team's. `output` is a type (or a JSON Schema) its results must have; left out, they are prose with
    what its tools returned. `fallbacks` are workers who step in, `fallback_models` models that do. `seconds` is a guess
    of how long a task takes, for the forecast; left out, the model's usual pace counts. `blocks` says what it may do
    with the team's blocks, where that is not what everybody may; `archives` names those it may use, or says
    how it may use each of them (left out: all, as they are shared). One who `remembers` has its earlier tasks before
    its eyes, across runs. `skills` are what it can do, in a few words each, and `examples` requests that were its:
    a router compares new requests with both. One that is a `team` has that team do its tasks (`Supervisor.as_worker`).
    `accept` names checks of the team that its results must pass.
    `contacts` are those it may write to, if it has a tool for messages: names, `tag:NAME`, `*` for everybody.
    One with `every` does no tasks: it looks back on every so many turns of its team, to keep its memory in order.
    `replicas` are models that serve its calls together, in place of one `model`: each call goes to the least loaded.
    Figures of one that `may_estimate` count as its words where no tool returned them, and are no gap.
    """

    name: str
    description: str = ""
    prompt: str = ""
    tools: Sequence[Tool | Callable[..., object] | str] = ()
    tags: Sequence[str] = ()
    model: AnyModel = ""
    fallbacks: Sequence[str] = ()
    fallback_models: Models = ()
    output: type | dict[str, object] | None = None
    rules: Sequence[ToolRule] = ()
    steps: int = 10
    capacity: int = 0
    timeout: WrittenDuration = 300.0
    seconds: Seconds | None = None
    estimate: Amount = NOTHING
    settings: Settings = Settings()
    blocks: Mapping[str, Access | Grant] = field(default_factory=dict[str, "Access | Grant"])
    archives: Sequence[str] | Mapping[str, Access] | None = None
    remembers: bool = False
    skills: Sequence[str] = ()
    examples: Sequence[str] = ()
    team: Team | None = None
    accept: Sequence[str] = ()
    contacts: Contacts | Sequence[str] = ()
    every: int | None = None
    replicas: Models = ()
    may_estimate: bool = False

    def __post_init__(self) -> None:
        if self.replicas and self.model:
            raise Invalid(f"worker {self.name!r} has a model and replicas; name its models in one of the two")
        structs.force_setattr(self, "model", as_model(self.model))
        structs.force_setattr(self, "replicas", tuple(map(as_model, self.replicas)))
        structs.force_setattr(self, "fallback_models", tuple(map(as_model, self.fallback_models)))
        structs.force_setattr(self, "timeout", seconds_of(f"worker {self.name!r}: timeout", self.timeout))

    @property
    def contract(self) -> Contacts:
        """Whom it may write to, and how often."""
        return self.contacts if isinstance(self.contacts, Contacts) else Contacts(self.contacts)

    @property
    def most_replies(self) -> int:
        """How often its model is asked in one attempt at most."""
        return self.steps + REPEATS if self.tools else self.steps


class Factory(Declared, frozen=True):
    """Makes a worker for a task nobody on the team is meant for.

    `tools` are all it may hand out, `most_tools` how many at once; `capacity` is how many such workers are at work at
    the same time.
    """

    tools: Sequence[Tool | Callable[..., object] | str] = ()
    name: str = "factory"
    description: str = "makes a worker for a task that nobody else is meant for"
    model: str | Model = ""
    most_tools: int = 4
    steps: int = 10
    capacity: int = 4
