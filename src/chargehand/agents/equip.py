"""Workers as they go to work: tools by name, specs for the model, the shape of the result, models to try in turn."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.agents.contacts import contract
from chargehand.agents.factory import Factory
from chargehand.agents.mail import Post
from chargehand.agents.recall import Desk
from chargehand.agents.shape import Shape
from chargehand.agents.subteam import Team
from chargehand.agents.worker import Worker
from chargehand.errors import Invalid
from chargehand.models.messages import ToolSpec
from chargehand.models.model import Model
from chargehand.models.subject import Skill, WorkerCard
from chargehand.terms.budget import NOTHING
from chargehand.terms.duration import parse_duration
from chargehand.terms.plan import digest
from chargehand.terms.roster import Agent
from chargehand.text.names import did_you_mean
from chargehand.tools.remember import described
from chargehand.tools.rules import check
from chargehand.tools.tool import Tool, as_tool
from chargehand.tools.toolbox import BUILT_IN, WITH_SETTINGS, tools_named

AnyTool: TypeAlias = Tool | Callable[..., object] | str
"""A tool as a worker brings it: made by `@tool`, a typed function, or a name."""
_Owner = TypeVar("_Owner", Worker, Factory)
GIVE_UP = ToolSpec(
    "give_up",
    "Say that the task cannot be done, and what was missing. `final`: no other wording would help.",
    Raw(
        b'{"type":"object","properties":{"reason":{"type":"string"},"final":{"type":"boolean"}},'
        b'"required":["reason"],"additionalProperties":false}'
    ),
)
READ_MORE = ToolSpec(
    "read_more",
    "Read on in a result or an input that was too long to show whole.",
    Raw(
        b'{"type":"object","properties":{"handle":{"type":"string"},"start":{"type":"integer","minimum":0}},'
        b'"required":["handle","start"],"additionalProperties":false}'
    ),
)
OURS = frozenset((GIVE_UP.name, READ_MORE.name))


class Equipped(Struct, frozen=True):
    """A worker ready to work. `models` are tried in turn; `specs` are its tools as a model sees them.

    With a `desk` it is shown its memory before each call of its model. One that `takes_cut_replies` answers with what
    there is of a reply that reached its limit; else such a reply is asked for again.
    """

    worker: Worker
    tools: dict[str, Tool]
    specs: tuple[ToolSpec, ...]
    models: tuple[Model, ...]
    shape: Shape | None
    card: WorkerCard
    names: tuple[str, ...]
    window: int
    desk: Desk | None = None
    takes_cut_replies: bool = False


def toolset(owner: str, tools: Sequence[AnyTool], named: Mapping[str, Tool] | None = None) -> dict[str, Tool]:
    """Tools by name; Invalid where two share one, or one has a name of ours.

    `named` are those that may be named instead of being brought; left out, they can be looked at but not called.
    """
    found: dict[str, Tool] = {}
    for one in tools:
        tool = _named(owner, one, nameable() if named is None else named) if isinstance(one, str) else as_tool(one)
        if tool.name in found:
            raise Invalid(f"{owner} has two tools called {tool.name!r}; give one of them another name")
        if tool.name in OURS:
            raise Invalid(f"{owner} has a tool called {tool.name!r}, which every worker has already; rename it")
        found[tool.name] = tool
    return found


@cache
def nameable() -> Mapping[str, Tool]:
    """The tools a worker may name, as models are told of them."""
    return {**described(), **Post().tools()}


def with_toolbox(owner: _Owner) -> _Owner:
    """A worker, or a factory, with tools of the toolbox in the place of their names. Names of other tools stay."""
    if isinstance(owner.tools, str):
        name = f"{type(owner).__name__.lower()} {owner.name!r}"
        raise Invalid(f"{name}: tools is the text {owner.tools[:80]!r}; make it a list: [{owner.tools[:80]!r}]")
    if not any(isinstance(tool, str) and tool in BUILT_IN for tool in owner.tools):
        return owner
    tools: list[AnyTool] = []
    for tool in owner.tools:
        if isinstance(tool, str) and tool in BUILT_IN:
            tools.extend(tools_named(tool))
        else:
            tools.append(tool)
    return structs.replace(owner, tools=tuple(tools))


def _named(owner: str, name: str, known: Mapping[str, Tool]) -> Tool:
    if name in known:
        return known[name]
    if name in WITH_SETTINGS:
        raise Invalid(f"{owner} names the tool {name!r}, which needs settings; {WITH_SETTINGS[name]}")
    names = [*BUILT_IN, *known]
    raise Invalid(f"{owner} names the tool {name!r}, which there is not; {did_you_mean(name, names)}")


def skills(tools: Mapping[str, Tool]) -> tuple[Skill, ...]:
    return tuple(
        Skill(name=one.name, description=one.spec.description, parameters=one.spec.parameters, summary=one.summary)
        for one in tools.values()
    )


def equip(
    worker: Worker, models: Sequence[Model], named: Mapping[str, Tool] | None = None, desk: Desk | None = None
) -> Equipped:
    """Make a worker ready; Invalid, naming it, where it cannot work."""
    owner = f"worker {worker.name!r}"
    tools = toolset(owner, worker.tools, named)
    try:
        check(worker.rules, tuple(tools))
    except Invalid as error:
        raise Invalid(f"{owner}: {error}") from error
    if worker.steps < 1:
        raise Invalid(f"{owner} may make {worker.steps} steps; give it at least one")
    shape = None if worker.output is None else Shape(worker.output)
    if worker.team is not None:
        _check_team(owner, worker)
    for what, given in (("tags", worker.tags), ("skills", worker.skills), ("examples", worker.examples)):
        if isinstance(given, str):
            raise Invalid(f"{owner}: {what} is the text {given[:80]!r}; make it a list: [{given[:80]!r}]")
    phrases = tuple(worker.skills)
    examples = tuple(worker.examples)
    card = WorkerCard(
        name=worker.name,
        description=worker.description,
        tags=tuple(worker.tags),
        skills=skills(tools),
        phrases=phrases,
        examples=examples,
    )
    specs = (*(one.spec for one in tools.values()), GIVE_UP)
    window = min((model.card.window for model in models), default=0)
    return Equipped(
        worker=worker,
        tools=tools,
        specs=specs,
        models=tuple(models),
        shape=shape,
        card=card,
        names=tuple(tools),
        window=window,
        desk=desk,
    )


def _check_team(owner: str, worker: Worker) -> None:
    """Raise Invalid for a worker that is a team and has something of its own to work with."""
    own = {
        "tools": worker.tools,
        "rules": worker.rules,
        "a model": worker.model,
        "a prompt": worker.prompt,
        "fallback models": worker.fallback_models,
        "an output": worker.output is not None,
        "blocks": worker.blocks,
        "archives": worker.archives,
        "earlier tasks": worker.remembers,
        "contacts": worker.contacts,
    }
    for what, given in own.items():
        if given:
            raise Invalid(f"{owner} is a team and has {what} of its own; give that to those who are in the team")


def listed(worker: Worker, model: str) -> Agent:
    """A worker as the scheduler sees it. `spec` changes when anything does that its results depend on."""
    if worker.team is not None:
        return _team_listed(worker, worker.team)
    tools = toolset(f"worker {worker.name!r}", worker.tools)
    says = [worker.prompt, model, *(f"{one.name}{one.spec.description}{one.effect}" for one in tools.values())]
    if worker.contacts:
        made = contract(worker.contacts)
        says.append(f"{tuple(made.to)} {made.most}")
    output = "" if worker.output is None else msgspec.json.encode(Shape(worker.output).schema).decode()
    return Agent(
        name=worker.name,
        description=worker.description,
        tags=tuple(worker.tags),
        tools=tuple(tools),
        model=model,
        fallbacks=tuple(worker.fallbacks),
        capacity=worker.capacity,
        estimate=worker.estimate,
        seconds=worker.seconds,
        timeout=parse_duration(worker.timeout),
        spec=digest(*says, output),
    )


def _team_listed(worker: Worker, team: Team) -> Agent:
    """A team has no model of its own: a line that is dead for it says nothing about anybody else's.

    What it may use is reserved by its only step: an attempt that is taken up after a crash has been charged already.
    """
    return Agent(
        name=worker.name,
        description=worker.description,
        tags=tuple(worker.tags),
        tools=(),
        model="",
        fallbacks=tuple(worker.fallbacks),
        capacity=worker.capacity,
        estimate=NOTHING,
        seconds=worker.seconds,
        timeout=parse_duration(worker.timeout),
        spec=digest(team.name, msgspec.json.encode(team.roster).decode()),
    )
