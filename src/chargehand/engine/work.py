"""What the runtime must be doing, and what it is given for it."""

from typing import Literal

from msgspec import Raw, Struct

from chargehand.engine.failure import Gap
from chargehand.engine.plan import TaskId
from chargehand.engine.tracing import Tracing


class Work(Struct, frozen=True, gc=False, order=True, cache_hash=True):
    """One thing the runtime must be doing: an attempt, or a duty of the supervisor."""

    kind: Literal["attempt", "plan", "refine", "answer"]
    task: TaskId
    number: int


class Input(Struct, frozen=True, gc=False):
    """What one needed task delivers: a value, a gap, or (a list with holes) both."""

    task: TaskId
    value: Raw | None
    gaps: tuple[Gap, ...] = ()
    tracing: Tracing | None = None
    """What the figures of the value rest on, where its worker was asked to show it."""
