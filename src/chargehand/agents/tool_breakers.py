"""A breaker for each tool of a team, for all its runs in this process: one that is out of order is left alone a while.

Whether a failure is a tool's own is said by the failure (`ToolFailed.broken`). Nothing is called or journaled here.
"""

import asyncio
from collections.abc import Callable
from math import ceil
from typing import Any

from msgspec import Struct

from chargehand.engine.breaker import Breaker, forget_probe, lease, next_change, note, stand
from chargehand.engine.policy import Breaking, Instant
from chargehand.models.call_errors import opening
from chargehand.tools.tool import Tool

_MOST = 256
_LONGEST_REASON = 200


class _Record(Struct):
    """One tool that has failed. Its function is kept: while it is, nobody else has its number."""

    function: Callable[..., Any]
    breaker: Breaker
    since: Instant = 0.0
    reason: str = ""


class Faulty:
    """The tools of a team that failed lately, the latest last. As long as none has, it is empty."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}

    def __bool__(self) -> bool:
        return bool(self._records)

    def find(self, tool: Tool) -> _Record | None:
        return self._records.get(id(tool.function))

    def opened(self, tool: Tool) -> _Record:
        found = self._records.pop(id(tool.function), None) or _Record(tool.function, Breaker())
        if len(self._records) >= _MOST:
            del self._records[next(iter(self._records))]
        self._records[id(tool.function)] = found
        return found

    def forget(self, tool: Tool) -> None:
        self._records.pop(id(tool.function), None)


class ToolBreakers:
    """Who may be called now. The clock is the loop's, and is only looked at once something has failed."""

    __slots__ = ("_faulty", "_numbers")

    def __init__(self, numbers: Breaking, faulty: Faulty) -> None:
        self._numbers = numbers
        self._faulty = faulty

    def __bool__(self) -> bool:
        """Whether there is a tool that failed lately; if not, there is nothing to ask."""
        return bool(self._faulty)

    def objection(self, tool: Tool) -> str:
        """Why a tool is not called now, for a model. Empty: it may be, and where it was shut this is the one probe."""
        found = self._faulty.find(tool)
        if found is None:
            return ""
        now = _now()
        where = stand(found.breaker, now)
        if where == "half-open":
            lease(found.breaker, now, self._numbers)
        if where in ("closed", "half-open"):
            return ""
        wait = ceil(max(0.0, next_change(found.breaker) - now))
        return (
            f"{tool.name} was not called: it has been out of order for {ceil(now - found.since)} s "
            f"(the last failure: {found.reason}). It is tried again in {wait} s. Do without it, or give up and say why."
        )

    def failed(self, tool: Tool, reason: str) -> str:
        """It failed for a reason of its own. What is to be noted: that it is shut, and for how long; else nothing."""
        now = _now()
        found = self._faulty.opened(tool)
        found.reason = opening(" ".join(reason.split()), _LONGEST_REASON)
        before = found.breaker.opened
        note(found.breaker, now, self._numbers, good=False)
        if found.breaker.opened == before:
            return ""
        found.since = found.since if before else now
        wait = ceil(next_change(found.breaker) - now)
        again = "still " if before else ""
        return f"tool {tool.name} is {again}out of order and not called for {wait} s: {found.reason}"

    def worked(self, tool: Tool) -> str:
        """It returned something. What is to be noted: that it works again, if it was shut; else nothing."""
        found = self._faulty.find(tool)
        if found is None:
            return ""
        shut = found.breaker.opened
        note(found.breaker, _now(), self._numbers, good=True)
        if all(good for _, good in found.breaker.recent):  # else half of its calls may be failing
            self._faulty.forget(tool)
        return f"tool {tool.name} works again" if shut else ""

    def probing(self, tool: Tool) -> Instant:
        """Until when a call that nothing was objected to just now is the probe; 0: it is none."""
        found = self._faulty.find(tool)
        return 0.0 if found is None else found.breaker.leased

    def unsettled(self, tool: Tool, probing: Instant) -> None:
        """A call that says nothing of the tool: if it was the probe, the next one is."""
        found = self._faulty.find(tool)
        if found is not None and probing and found.breaker.leased == probing:
            forget_probe(found.breaker)


def _now() -> Instant:
    return asyncio.get_running_loop().time()
