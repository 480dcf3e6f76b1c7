"""The tools a team may name without further settings, in Python and in a team file."""

import time
from collections.abc import Callable
from typing import TypeAlias

from msgspec import structs

from chargehand.errors import Invalid
from chargehand.text.names import did_you_mean
from chargehand.tools.calculator import calculator
from chargehand.tools.chart import chart
from chargehand.tools.dates import Clock, dates
from chargehand.tools.tool import Tool

Factory: TypeAlias = Callable[[Clock], tuple[Tool, ...]]


def _sandbox(_clock: Clock) -> tuple[Tool, ...]:
    from chargehand.tools.sandbox import python_sandbox  # noqa: PLC0415 - a team pays only for the tools it names

    return (python_sandbox(),)


BUILT_IN: dict[str, Factory] = {
    "calculator": lambda _: (calculator(),),
    "chart": lambda _: (chart(),),
    "dates": dates,
    "sandbox": _sandbox,
}
WITH_SETTINGS = {
    "sql": 'from chargehand.tools.sql import sql, and write tools=[sql("shop.db")]',
    "documents": 'from chargehand.tools.documents import documents, and write tools=[documents("notes/")]',
    "files": 'from chargehand.tools.files import files, and write tools=[*files("out/")]',
    "fetch": 'from chargehand.tools.fetch import fetch, and write tools=[fetch(["example.com"])]',
}
"""The rest of the toolbox: what these work on has to be said. Each with what to write in Python."""


def built_in(name: str, clock: Clock) -> tuple[Tool, ...]:
    """The tools of this name; Invalid with the nearest one when there is none."""
    if name in BUILT_IN:
        return BUILT_IN[name](clock)
    raise Invalid(f"there is no built-in tool {name!r}; {did_you_mean(name, BUILT_IN)}")


def tools_named(source: str, name: str = "") -> tuple[Tool, ...]:
    """The tools of a source as a team has them: one that is alone is called `name`, or like its source."""
    made = built_in(source, time.time)
    return (renamed(made[0], name or source),) if len(made) == 1 else made


def renamed(tool: Tool, name: str) -> Tool:
    return tool if tool.name == name else structs.replace(tool, spec=structs.replace(tool.spec, name=name))
