"""Failure as data: why something did not succeed, and what an answer has to do without."""

from typing import Literal

from msgspec import Struct

from chargehand.terms.plan import NO_TASK, TaskId
from chargehand.terms.policy import Seconds

FailureKind = Literal["network", "timeout", "resource", "logic", "uncertain", "budget", "deadline", "approval"]


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why something did not succeed. `permanent`: the same worker would fail again."""

    kind: FailureKind
    message: str
    retry_after: Seconds = 0.0
    permanent: bool = False


class Gap(Struct, frozen=True, omit_defaults=True, gc=False):
    """One task the answer has to do without, and why; or (without a task) a part of the request nobody took on."""

    task: TaskId
    status: Literal["failed", "skipped", "unfinished", "unserved"]
    reason: str
    message: str
    because: TaskId = NO_TASK
