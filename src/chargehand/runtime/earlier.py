"""What failed before somebody else took a task over: told with the failure of whoever took it, so the gap has both.

Who takes a task over, and when, is decided in core.
"""

from msgspec import structs

from chargehand.core.owed import Brief
from chargehand.terms.failure import Failure

_TOLD = frozenset({"network", "timeout", "resource", "logic"})  # the others are read by what they say, or not judged
_MARK = " (before that, "
_LONGEST = 300


def with_first(failure: Failure, brief: Brief) -> Failure:
    """The failure of a fallback, with that of the worker the task was meant for."""
    meant = next((task.worker for task in brief.tasks), "")
    if brief.work.kind != "attempt" or failure.kind not in _TOLD or not brief.failure:
        return failure
    if not meant or meant == brief.worker or _MARK in failure.message:
        return failure
    _, again, told = brief.failure.partition(_MARK)  # a fallback that is tried again has told it already
    first = f"{_MARK}{told}" if again else f"{_MARK}{meant}: {' '.join(brief.failure.split())[:_LONGEST]})"
    return structs.replace(failure, message=f"{failure.message.rstrip('. ')}{first}")
