"""Failure as data: why something did not succeed, and what an answer has to do without."""

from typing import Literal

from msgspec import Struct

from chargehand.terms.plan import NO_TASK, TaskId
from chargehand.terms.policy import Seconds

FailureKind = Literal["network", "timeout", "resource", "logic", "uncertain", "budget", "deadline", "approval"]


Asked = Literal["plan", "effect", "tool"]
AskedBecause = Literal["declared", "repeated", "tainted"]


class Question(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a person is asked about, in fields: a call, whole, and who wants it.

    `because`: the call needs leave by declaration (of the tool, or by a rule), is an effect that was had already with
    the same arguments, or is an effect and the worker has seen text from outside. `workers` want it: where a team works
    for another, the worker that is the team, and so on inwards. `run` is the run inside this one that asks, and `task`
    its task there (empty: this run asks itself). `number` is that of the question in the run directly below. `plan` are
    the tasks of a team inside that are to be approved, one in each line.
    """

    what: Asked = "tool"
    tool: str = ""
    arguments: dict[str, object] = {}
    because: AskedBecause = "declared"
    workers: tuple[str, ...] = ()
    run: str = ""
    task: TaskId = NO_TASK
    number: int = 0
    plan: tuple[str, ...] = ()


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why something did not succeed. `permanent`: the same worker would fail again.

    `question` is what a person must decide before it goes on (kind `approval`).
    """

    kind: FailureKind
    message: str
    retry_after: Seconds = 0.0
    permanent: bool = False
    question: Question | None = None


class Gap(Struct, frozen=True, omit_defaults=True, gc=False):
    """One task the answer has to do without, and why; or (without a task) a part of the request nobody took on."""

    task: TaskId
    status: Literal["failed", "skipped", "unfinished", "unserved"]
    reason: str
    message: str
    because: TaskId = NO_TASK
