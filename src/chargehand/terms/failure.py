"""Failure as data: why something did not succeed, and what an answer has to do without."""

from typing import Literal

from msgspec import Struct

from chargehand.terms.plan import NO_TASK, TaskId
from chargehand.terms.policy import Seconds

FailureKind = Literal["network", "timeout", "resource", "logic", "uncertain", "budget", "deadline", "approval"]
FailureCode = Literal[
    "",
    "wrong_output",
    "empty_reply",
    "required_call_missing",
    "repeated_call",
    "too_many_steps",
    "unknown_worker",
]
"""What went wrong with the work of a model, where the engine can tell."""
RefusalCause = Literal["key", "access", "model", "credit", "address", "request"]
OUTAGES: frozenset[FailureKind] = frozenset(("network", "timeout"))
"""The kinds of failure that waiting may mend, and so the only ones that a breaker counts."""


class Frame(Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of a traceback."""

    file: str
    line: int
    function: str
    source: str = ""


class CodeError(Struct, frozen=True, omit_defaults=True, gc=False):
    """A mistake in the code of a tool, a model or a worker: the exception, and where it was raised."""

    exception: str
    """The name of its class, for example `AttributeError`."""
    message: str
    frames: tuple[Frame, ...] = ()
    """The last frames of the traceback, the innermost last."""

    def describe(self) -> str:
        """One line: what was raised, and where."""
        said = f"{self.exception}: {self.message}" if self.message else self.exception
        return f"{said} ({self.place()})" if self.frames else said

    def place(self) -> str:
        """Where it was raised: file, line and function."""
        if not self.frames:
            return "somewhere"
        last = self.frames[-1]
        return f"{last.file}, line {last.line}, in {last.function}"


class Refusal(Struct, frozen=True, omit_defaults=True, gc=False):
    """A provider that will not answer whatever is asked of this model, until a person changes something."""

    provider: str
    """Who refused: the name before the colon of the model's handle, else the host."""
    model: str
    """The handle of the model."""
    cause: RefusalCause
    status: int
    """The HTTP status, or that of an error inside a reply."""
    variable: str = ""
    """The environment variable that the key was taken from."""


Asked = Literal["plan", "effect", "tool"]
AskedBecause = Literal["declared", "repeated", "tainted"]


class PendingCall(Struct, frozen=True, omit_defaults=True, gc=False):
    """Another call of the same reply that needs leave, too."""

    call: int
    """Its place among the calls of the reply, from 1."""
    text: str
    """The call in one line; what a person says of it is kept under this."""
    tool: str
    arguments: dict[str, object] = {}
    because: AskedBecause = "declared"


class Question(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a person is asked about, in fields: a call, whole, and who wants it.

    `because`: the call needs leave by declaration (of the tool, or by a rule), is an effect that was had already with
    the same arguments, or is an effect and the worker has seen text from outside. `workers` want it: where a team works
    for another, the worker that is the team, and so on inwards. `run` is the run inside this one that asks, and `task`
    its task there (empty: this run asks itself). `number` is that of the question in the run directly below. `plan` are
    the tasks of a team inside that are to be approved, one in each line. `call` is the place of the call among those of
    the model's reply, from 1, and `also` are the other calls of that reply that need leave.
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
    call: int = 0
    also: tuple[PendingCall, ...] = ()


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why something did not succeed."""

    kind: FailureKind
    message: str
    retry_after: Seconds = 0.0
    permanent: bool = False
    """The same worker would fail again."""
    question: Question | None = None
    """What a person must decide before it goes on (kind `approval`)."""
    code_error: CodeError | None = None
    """It failed because of a mistake in somebody's code."""
    refusal: Refusal | None = None
    """It failed because the provider refuses the key, the account, the model, or how it is called."""
    code: FailureCode = ""
    """What went wrong with the work of a model, where the engine can tell."""


class Gap(Struct, frozen=True, omit_defaults=True, gc=False):
    """One task the answer has to do without, and why; or (without a task) a part of the request nobody took on.

    `untraced`: there is a result, but something in it that no tool returned and nobody gave its worker. `unwritten`:
    there are results, but the answer could not be written from them.
    """

    task: TaskId
    status: Literal["failed", "skipped", "unfinished", "unserved", "untraced", "unwritten"]
    reason: str
    message: str
    because: TaskId = NO_TASK
