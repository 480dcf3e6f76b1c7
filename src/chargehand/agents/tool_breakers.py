"""A breaker for each tool of a team, for all its runs in this process: a tool out of order is not called for a while.

Whether a failure is a tool's own is said by the failure (`ToolFailed.broken`). Nothing is called or journaled here.
"""

import asyncio
from collections.abc import Callable
from math import ceil
from typing import Any

from msgspec import Struct

from chargehand.engine.breaker import Breaker, forget_probe, lease, next_change, note, stand
from chargehand.engine.policy import Breaking, Instant
from chargehand.models.call_errors import shorten_words
from chargehand.tools.tool import Tool

_MAX_RECORDS = 256
_LONGEST_REASON = 200


class _Record(Struct):
    """One tool that has failed. Its function is kept: while it is, no other has its id."""

    function: Callable[..., Any]
    breaker: Breaker
    since: Instant = 0.0
    reason: str = ""


class ToolBreakers:
    """Which tools may be called now. The clock is the loop's, and is only read once a tool has failed."""

    def __init__(self, settings: Breaking) -> None:
        self._settings = settings
        self._records: dict[int, _Record] = {}
        """Tools that failed lately, the latest last."""

    def __bool__(self) -> bool:
        """Whether there is a tool that failed lately; if not, there is nothing to ask."""
        return bool(self._records)

    def _find(self, tool: Tool) -> _Record | None:
        return self._records.get(id(tool.function))

    def objection(self, tool: Tool) -> str:
        """Why a tool is not called now, for a model. Empty: it may be, and where it was shut this is the one probe."""
        record = self._find(tool)
        if record is None:
            return ""
        now = _now()
        where = stand(record.breaker, now)
        if where == "half-open":
            lease(record.breaker, now, self._settings)
        if where in ("closed", "half-open"):
            return ""
        wait = ceil(max(0.0, next_change(record.breaker) - now))
        return (
            f"{tool.name} was not called: it has been out of order for {ceil(now - record.since)} s "
            f"(the last failure: {record.reason}). "
            f"It is tried again in {wait} s. Do without it, or give up and say why."
        )

    def failed(self, tool: Tool, reason: str) -> str:
        """It failed for a reason of its own. What is to be noted: that it is shut, and for how long; else nothing."""
        now = _now()
        record = self._records.pop(id(tool.function), None) or _Record(tool.function, Breaker())
        if len(self._records) >= _MAX_RECORDS:
            del self._records[next(iter(self._records))]
        self._records[id(tool.function)] = record
        record.reason = shorten_words(" ".join(reason.split()), _LONGEST_REASON)
        before = record.breaker.opened
        note(record.breaker, now, self._settings, good=False)
        if record.breaker.opened == before:
            return ""
        record.since = record.since if before else now
        wait = ceil(next_change(record.breaker) - now)
        again = "still " if before else ""
        return f"tool {tool.name} is {again}out of order and not called for {wait} s: {record.reason}"

    def worked(self, tool: Tool) -> str:
        """It returned something. What is to be noted: that it works again, if it was shut; else nothing."""
        record = self._find(tool)
        if record is None:
            return ""
        shut = record.breaker.opened
        note(record.breaker, _now(), self._settings, good=True)
        if all(good for _, good in record.breaker.recent):  # else half of its calls may be failing
            del self._records[id(tool.function)]
        return f"tool {tool.name} works again" if shut else ""

    def probing(self, tool: Tool) -> Instant:
        """Until when a call that nothing was objected to just now is the probe; 0: it is none."""
        record = self._find(tool)
        return 0.0 if record is None else record.breaker.leased

    def unsettled(self, tool: Tool, probing: Instant) -> None:
        """A call that says nothing of the tool: if it was the probe, the next one is."""
        record = self._find(tool)
        if record is not None and probing and record.breaker.leased == probing:
            forget_probe(record.breaker)


def _now() -> Instant:
    return asyncio.get_running_loop().time()
