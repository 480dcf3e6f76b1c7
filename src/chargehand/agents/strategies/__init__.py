"""The ways to lead a crew. All of them add tasks to the same growing plan; the scheduler never knows which it is."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import field

from chargehand.errors import Invalid
from chargehand.terms.keywords import Declared

Router: TypeAlias = Literal["auto", "rules", "tags", "words", "meaning", "model", "hybrid"]


class Whole(Declared, frozen=True, tag="plan"):
    """One plan for the whole request; more only when the planner reviews or replans."""


class Route(Declared, frozen=True, tag="route"):
    """One task for the worker that fits best, or for the best two (`secondary`).

    `rules` are tried first: a word or phrase, and the worker it goes to. Nobody fits, or it is not clear who: the
    `generalist` gets it; without one the request is refused in words. With several `samples` who is chosen does it so
    many times side by side, and a judge picks one. With `learn` what came of earlier routes shifts later ones, within
    bounds.
    """

    router: Router = "auto"
    rules: Mapping[str, str] = field(default_factory=dict[str, str])
    secondary: bool = False
    generalist: str = ""
    threshold: float | None = None
    samples: int = 1
    learn: bool = True
    embed: str = "auto"  # what compares meanings: a handle as archives have it


class Loop(Declared, frozen=True, tag="loop"):
    """One task at a time, looking at what came of those before, until it is done or stalls."""

    most_turns: int = 20
    stalls: int = 3
    fresh_starts: int = 2


class Broadcast(Declared, frozen=True, tag="broadcast"):
    """The request to every worker that has all of these tags and, where given, some of those."""

    match_all: tuple[str, ...] = ()
    match_some: tuple[str, ...] = ()


class RoundRobin(Declared, frozen=True, tag="round_robin"):
    """Everybody speaks in turn and hears what was said. Turns left out: one for each worker."""

    most_turns: int = 0
    token: str = ""


class Dynamic(Declared, frozen=True, tag="dynamic"):
    """The supervisor says who speaks next, never the same twice in a row, until somebody says the token."""

    most_turns: int = 0
    token: str = "DONE!"  # noqa: S105 - a word that ends a talk


class Recursive(Declared, frozen=True, tag="recursive"):
    """A request judged too big is split, and each part again, to a depth and a breadth."""

    depth: int = 2
    breadth: int = 4


Way: TypeAlias = Whole | Route | Loop | Broadcast | RoundRobin | Dynamic | Recursive
_WAYS = {one.__struct_config__.tag: one for one in (Whole, Route, Loop, Broadcast, RoundRobin, Dynamic, Recursive)}


def check(way: object) -> None:
    """Raise Invalid for what is no way to lead, or one with settings that mean nothing."""
    if not isinstance(way, Way):
        names = {str(tag): one.__name__ for tag, one in _WAYS.items()}
        said = way.__name__ if isinstance(way, type) else str(way)
        meant = names.get(said, said if said in names.values() else "Route")
        there = ", ".join(sorted(names.values()))
        raise Invalid(f"way is {said[:80]!r}, which is no way to lead; write way={meant}(); there are {there}")
    kind = type(way)
    try:
        msgspec.convert(msgspec.to_builtins(way, enc_hook=dict), kind)  # any mapping will do for rules
    except (ValueError, TypeError) as error:
        raise Invalid(f"way={kind.__name__}(...) cannot be: {error}") from error
    for name in way.__struct_fields__:
        if isinstance(given := getattr(way, name), int) and given < 0:
            raise Invalid(f"way={kind.__name__}({name}={given}) cannot be; give a number from 0")
