"""The tools a team may name without further settings."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import TypeAlias

from chargehand.errors import Invalid
from chargehand.tools.calculator import calculator
from chargehand.tools.chart import chart
from chargehand.tools.dates import Clock, dates
from chargehand.tools.tool import Tool

Factory: TypeAlias = Callable[[Clock], tuple[Tool, ...]]

BUILT_IN: dict[str, Factory] = {
    "calculator": lambda _: (calculator(),),
    "chart": lambda _: (chart(),),
    "dates": dates,
}


def built_in(name: str, clock: Clock) -> tuple[Tool, ...]:
    """The tools of this name; Invalid with the nearest one when there is none."""
    if name in BUILT_IN:
        return BUILT_IN[name](clock)
    near = get_close_matches(name, BUILT_IN, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(BUILT_IN)}"
    raise Invalid(f"there is no built-in tool {name!r}; {hint}")
