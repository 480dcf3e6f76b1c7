"""What is checked before a run begins: that the goal is text, and that its result can be waited for."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from chargehand.errors import Invalid

LONGEST_GOAL = 1024 * 1024
_Found = TypeVar("_Found")


def checked_goal(goal: str) -> str:
    """The goal without white space around it; Invalid for one that no run could pursue."""
    if not isinstance(goal, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not check types
        raise Invalid(f"the request is {type(goal).__name__}, not text; say what is to be done in words")
    if not goal.strip():
        raise Invalid("the request is empty; say what is to be done")
    if len(goal.encode(errors="replace")) > LONGEST_GOAL:
        raise Invalid(f"the request has more than {LONGEST_GOAL} bytes; put the material into files for a tool to read")
    if strange := re.search("[\0\ud800-\udfff]", goal):
        what = "a NUL character" if strange[0] == "\0" else "half a surrogate pair"
        raise Invalid(f"the request holds {what}: it is not text; send plain text in UTF-8")
    return goal.strip()


def without_a_loop(verb: str, start: Callable[[], Coroutine[Any, Any, _Found]]) -> _Found:
    """Run to the end what is awaited elsewhere; Invalid where an event loop is running already."""
    with suppress(RuntimeError):  # left before the run begins: its errors are not raised "during handling" of this one
        asyncio.get_running_loop()
        raise Invalid(
            f"{verb}_sync cannot be called where an event loop is running; write `await team.{verb}(...)` there"
        )
    return asyncio.run(start())
