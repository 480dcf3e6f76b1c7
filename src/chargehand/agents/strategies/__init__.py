"""The ways to lead a team. All of them add tasks to the same growing plan; the scheduler never knows which it is.

A new one is a module with its struct, a line in each list below, and a public name.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.agents.strategies.base import Whole
from chargehand.agents.strategies.chat import Broadcast, Dynamic, RoundRobin
from chargehand.agents.strategies.loop import Loop
from chargehand.agents.strategies.recursive import Recursive
from chargehand.agents.strategies.route import Route

Strategy: TypeAlias = Whole | Route | Loop | Broadcast | RoundRobin | Dynamic | Recursive
StrategyName: TypeAlias = Literal["plan", "route", "loop", "broadcast", "round_robin", "dynamic", "recursive"]


class StrategyShape(Struct, frozen=True, forbid_unknown_fields=True):
    """A strategy with settings, as a team file has it: exactly one of them."""

    route: Route | None = None
    """One task for the worker that fits best."""
    loop: Loop | None = None
    """One task at a time, looking at what came of those before."""
    broadcast: Broadcast | None = None
    """The request to everybody with certain tags."""
    round_robin: RoundRobin | None = None
    """Everybody speaks in turn."""
    dynamic: Dynamic | None = None
    """The supervisor says who speaks next."""
    recursive: Recursive | None = None
    """Splitting what is too big, and the parts again."""


STRATEGIES: dict[str, type[Strategy]] = {
    str(kind.__struct_config__.tag): kind for kind in (Whole, Route, Loop, Broadcast, RoundRobin, Dynamic, Recursive)
}
"""By the name that a team file gives them."""
