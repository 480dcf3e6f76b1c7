"""The ways to lead a team. All of them add tasks to the same growing plan; the scheduler never knows which it is."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from chargehand.engine.declared import Declared, describe_misfit
from chargehand.errors import Invalid

Router: TypeAlias = Literal["auto", "rules", "tags", "words", "meaning", "model", "hybrid"]
Turns: TypeAlias = Annotated[int, Meta(ge=0, le=1000)]
Few: TypeAlias = Annotated[int, Meta(ge=0, le=10)]


class Whole(Declared, frozen=True, tag="plan"):
    """One plan for the whole request; more only when the planner reviews or replans."""


class Route(Declared, frozen=True, tag="route"):
    """One task for the worker that fits best, or for the best two (`secondary`)."""

    router: Router = "auto"
    """How the worker is found; `hybrid` is meaning first, and the model where it is close."""
    rules: Mapping[str, str] = {}
    """Phrases and the worker each goes to, tried before all else."""
    secondary: bool = False
    """The second best gets it too."""
    generalist: str = ""
    """The worker for requests that fit no other; left out, such a request is refused in words."""
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    """How sure it must be; left out, as calibrated."""
    samples: Annotated[int, Meta(ge=1, le=10)] = 1
    """How often the chosen worker does it, side by side; a judge picks one."""
    learn: bool = True
    """Whether what came of earlier routes shifts later ones, within bounds."""
    embed: str = "auto"
    """What compares meanings: `auto` (a small model on this machine if it is there, `local:multilingual` where workers
    are not described in English; else words), `words`, `local:minilm`, `local:multilingual`, or a handle such as
    `openai:text-embedding-3-small`.
    """


class Loop(Declared, frozen=True, tag="loop"):
    """One task at a time, looking at what came of those before, until it is done or stalls."""

    max_turns: Annotated[int, Meta(ge=1, le=1000)] = 20
    """The most tasks."""
    stalls: Few = 3
    """Turns without progress before it starts afresh."""
    fresh_starts: Few = 2
    """How often it may."""


class Broadcast(Declared, frozen=True, tag="broadcast"):
    """The request to every worker that has all of these tags and, where given, some of those."""

    match_all: tuple[str, ...] = ()
    """Tags a worker must have."""
    match_some: tuple[str, ...] = ()
    """Tags of which it must have one."""


class RoundRobin(Declared, frozen=True, tag="round_robin"):
    """Every worker speaks in turn and reads what was said."""

    max_turns: Turns = 0
    """The most turns; 0 is one for each worker."""
    token: str = ""
    """A word that ends the talk when a worker says it."""


class Dynamic(Declared, frozen=True, tag="dynamic"):
    """The supervisor chooses the next speaker, never the same twice in a row, until a worker says the token."""

    max_turns: Turns = 0
    """The most turns; 0 is one for each worker."""
    token: str = "DONE!"  # noqa: S105 - a word that ends a talk
    """A word that ends the talk when a worker says it."""


class Recursive(Declared, frozen=True, tag="recursive"):
    """A request judged too big is split, and each part again, to a depth and a breadth."""

    depth: Few = 2
    """How often a part may be split again."""
    breadth: Few = 4
    """Into how many parts."""


Strategy: TypeAlias = Whole | Route | Loop | Broadcast | RoundRobin | Dynamic | Recursive


def check(strategy: Strategy) -> None:
    """Raise Invalid for a way to lead with settings that mean nothing."""
    kind = type(strategy)
    try:
        settings = msgspec.to_builtins(strategy, enc_hook=dict)  # any mapping will do for rules
    except (ValueError, TypeError) as error:
        raise Invalid(f"strategy={kind.__name__}(...) cannot be: {error}") from error
    try:
        msgspec.convert(settings, kind)
    except msgspec.ValidationError as error:
        misfit = describe_misfit(error, kind)
        field = misfit.place.removeprefix("$.").partition(".")[0].partition("[")[0]
        setting = f"{field}={getattr(strategy, field)!r}" if hasattr(strategy, field) else "..."
        raise Invalid(f"strategy={kind.__name__}({setting}) cannot be: {misfit.message}") from error
