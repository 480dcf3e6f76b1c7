"""Failure as data: why something did not succeed, and what an answer has to do without."""

from typing import Literal

import msgspec
from msgspec import Struct

from chargehand.engine.budget import CapReached
from chargehand.engine.plan import NO_TASK, TaskId
from chargehand.engine.policy import Instant, Seconds

FailureKind = Literal[
    "network", "timeout", "resource", "logic", "uncertain", "budget", "deadline", "approval", "stopped"
]
FailureCode = Literal[
    "",
    "wrong_output",
    "empty_reply",
    "required_call_missing",
    "repeated_call",
    "too_many_steps",
    "unknown_worker",
    "check_failed",
]
"""What went wrong with the work of a model or a check, where the engine can tell."""
StepKind = Literal[
    "tool", "model", "memory", "remember", "summary", "check", "subteam", "make_worker", "worker", "approval"
]
"""What a step does: calls a tool, asks the worker's model, reads memory, keeps the task in memory, puts earlier tasks
behind a summary, checks the result, has a team do the task, makes the worker, or has the worker make the attempt in
another process.
"""
LINE_FAILURES: frozenset[FailureKind] = frozenset(("network", "timeout", "resource"))
"""Kinds of failure that do not put the work in question: a retry goes on from the finished steps."""
STARTS_RUN: frozenset[StepKind] = frozenset(("subteam", "worker"))
"""The kinds of steps that do all of an attempt in a run of its own."""
RefusalCause = Literal["key", "access", "model", "credit", "address", "request"]
OUTAGES: frozenset[FailureKind] = frozenset(("network", "timeout"))
"""The kinds of failure that waiting may mend, and so the only ones that a breaker counts."""


class Frame(Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of a traceback."""

    file: str
    """The file, from the working folder; one that is elsewhere by its name alone."""
    line: int
    """The line in it."""
    function: str
    """The function."""
    source: str = ""
    """The line itself, where the file can be read."""


class CodeError(Struct, frozen=True, omit_defaults=True, gc=False):
    """A mistake in the code of a tool, a model or a worker: the exception, and where it was raised."""

    exception: str
    """The class of the exception, such as `AttributeError`."""
    message: str
    """What it says."""
    frames: tuple[Frame, ...] = ()
    """The last frames of its traceback, the innermost last."""

    def describe(self) -> str:
        """One line: what was raised, and where."""
        text = f"{self.exception}: {self.message}" if self.message else self.exception
        return f"{text} ({self.place()})" if self.frames else text

    def place(self) -> str:
        """Where it was raised: file, line and function; empty: it is not known."""
        if not self.frames:
            return ""
        last = self.frames[-1]
        return f"{last.file}, line {last.line}, in {last.function}"


class OpenStep(Struct, frozen=True, omit_defaults=True, gc=False):
    """A step that had begun and not ended."""

    name: str
    """Its name."""
    kind: StepKind = "tool"
    """What it does."""


_HEADLINES: dict[RefusalCause, str] = {
    "key": "{provider} refused the key ({status}). Check {variable}.",
    "access": "{provider} does not let this key use {model} ({status}). Ask for access, or name another model.",
    "model": "{provider} has no model {model!r} ({status}). Check the model's name and the base URL.",
    "credit": "{provider} has no credit left for this key ({status}). Top up the account, or name another model.",
    "address": "{provider} sends calls on to another address ({status}). Set the base URL to where it is now.",
    "request": "{provider} rejects how {model} is called ({status}). Check its settings, or name another model.",
}


class Refusal(Struct, frozen=True, omit_defaults=True, gc=False):
    """A provider that will not answer whatever is asked of this model, until a person changes something."""

    provider: str
    """Who refused: the name before the colon of the model, else the host."""
    model: str
    """The model, as it is named in the team file."""
    cause: RefusalCause
    """What is refused."""
    status: int
    """The HTTP status."""
    variable: str = ""
    """The environment variable that the key was taken from."""
    keyless: bool = False
    """No key was sent: none is, to a model that is named by its URL."""
    near: tuple[str, ...] = ()
    """Models of this provider with a similar name, the nearest first (cause `model`)."""

    def headline(self) -> str:
        """One line: who refused what, and what to do. Never to try again: that would be refused again."""
        if self.cause == "key" and self.keyless:
            return f"{self.provider} wants a key ({self.status}), and {keyless_advice(self.model)}."
        _, _, name = self.model.rpartition("#" if "://" in self.model else ":")
        variable = self.variable or "the key it is given"
        line = _HEADLINES[self.cause].format(provider=self.provider, model=name, status=self.status, variable=variable)
        return f"{line} Did you mean {' or '.join(self.near)}?" if self.near else line


def keyless_advice(model: str) -> str:
    """How to send a key to a model that is named by its URL."""
    address, _, name = model.rpartition("#" if "#" in model else ":")
    protocol, _, _ = address.partition("+")
    handle = f"{protocol}:{name} with {protocol.upper()}_BASE_URL and {protocol.upper()}_API_KEY"
    return f"no key is sent to this address; use {handle}"


Asked = Literal["plan", "effect", "tool", "question"]
AskedBecause = Literal["declared", "repeated", "tainted"]


class EarlierCall(Struct, frozen=True, omit_defaults=True, gc=False):
    """A call that an earlier attempt or an earlier run made, or may have made."""

    tool: str
    """The tool that was called."""
    arguments: dict[str, object] = {}
    """Its arguments."""
    result: object = None
    """What it returned; `null` where `happened` is false."""
    happened: bool = True
    """`false`: the call was begun, and nobody knows whether it happened."""
    at: Instant = 0.0
    """When it was begun, in seconds since 1970."""
    run: str = ""
    """The run that made it; empty: this one."""
    task: TaskId = NO_TASK
    """The task that made it, in that run."""


def describe_call(tool: str, arguments: object) -> str:
    """Return a call in one line: `pay({"id":"A"})`, or `agent()` if it has no arguments."""
    return f"{tool}({msgspec.json.encode(arguments).decode() if arguments else ''})"


class PendingCall(Struct, frozen=True, omit_defaults=True, gc=False):
    """A call that a question asks about."""

    call: int
    """Its number in the question, which an answer names: the place among the calls of the reply, or of effects in
    doubt the place in the question.
    """
    text: str
    """The call in one line."""
    tool: str
    """The tool that is to be called."""
    arguments: dict[str, object] = {}
    """Its arguments, whole."""
    because: AskedBecause = "declared"
    """As for the question itself."""
    key: str = ""
    """What a person says of it is kept under this. Of an effect in doubt: the call's idempotency key."""
    task: TaskId = NO_TASK
    """The task that makes the call; empty: the task of the question."""
    attempt: int = 0
    """Of an effect in doubt: the attempt that began it."""
    step: int = 0
    """Of an effect in doubt: the step that began it."""
    earlier: EarlierCall | None = None
    """The call that this one may repeat; `null`: none, or one of the same attempt."""


class Question(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a person is asked about, in fields: a call, whole, and who wants it.

    A question about effects in doubt lists all of that moment, also of several tasks: the first in the fields, the
    others in `also`.
    """

    what: Asked = "tool"
    """What is asked about: a call of a tool, a plan, an effect whose outcome is not known; or a question in words."""
    tool: str = ""
    """The tool that is to be called."""
    arguments: dict[str, object] = {}
    """Its arguments, whole."""
    because: AskedBecause = "declared"
    """`declared`: the tool or a rule says so; `repeated`: the call may repeat an earlier one (`earlier`); `tainted`: an
    effect, and the worker has seen text from outside.
    """
    workers: tuple[str, ...] = ()
    """Who wants it; of a team inside, the worker that is the team first, then those inside it."""
    run: str = ""
    """The run inside this one that asks; empty: this run itself."""
    task: TaskId = NO_TASK
    """Its task there."""
    number: int = 0
    """The number of the question in the run directly below."""
    plan: tuple[str, ...] = ()
    """The tasks of a team inside that are to be approved, a line each."""
    call: int = 0
    """The number of the call, which an answer names: its place among the calls of the reply, or of effects in doubt its
    place in the question; from 1.
    """
    also: tuple[PendingCall, ...] = ()
    """The other calls that the question asks about."""
    key: str = ""
    """What a person says of it is kept under this: the attempt finds it there when it goes on. Of an effect in doubt:
    the call's idempotency key, under which it can be looked up outside.
    """
    attempt: int = 0
    """Of an effect in doubt: the attempt that began it."""
    step: int = 0
    """Of an effect in doubt: the step that began it."""
    earlier: EarlierCall | None = None
    """The call that this one may repeat; `null`: none, or one of the same attempt."""
    options: tuple[str, ...] = ()
    """Of a question in words: the answers to choose from; none: any."""
    free_text: bool = False
    """Of a question with options: another answer may be given as well."""
    schema: object = None
    """Of a question in words: the JSON Schema of the answer; `null`: it is text."""


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why something did not succeed."""

    kind: FailureKind
    """What went wrong; it decides what is done about it ([all kinds](errors.md#failures-of-tasks))."""
    message: str
    """What, where, and what to do."""
    retry_after: Seconds = 0.0
    """How many seconds the other side wants to be left alone."""
    permanent: bool = False
    """The same worker would fail again, so it is not tried again by it."""
    question: Question | None = None
    """What a person must decide before it goes on (kind `approval`)."""
    code_error: CodeError | None = None
    """The mistake in the code of a tool, a model or a worker that it failed for."""
    refusal: Refusal | None = None
    """What the provider refuses until a person changes something: the key, the account, the model."""
    code: FailureCode = ""
    """What went wrong with the work of a model, where the engine can tell."""
    first: str = ""
    """Of a fallback that fails: why the worker failed that the task was meant for."""
    running: tuple[OpenStep, ...] = ()
    """The steps that were still running when the time of an attempt was over."""
    cap: CapReached | None = None
    """The cap of the budget that did not cover it (kind `budget`); `null`: another reason, or it is not known."""
    cause: str = ""
    """What ended the attempt while its effect was open (kind `uncertain`); empty: it is not known."""
    gaps: tuple["Gap", ...] = ()
    """Of a run inside, which has ended or waits for a person: its refused calls and its effects in doubt."""
    ended: Literal["", "deadline", "budget"] = ""
    """Of a team that works for another: the reason its run ended early for; empty: another reason."""


class Gap(Struct, frozen=True, omit_defaults=True, gc=False):
    """One task the answer has to do without, and why; or (without a task) a part of the request that no task covers.

    `untraced`: there is a result, but something in it that no tool returned and that was not in its inputs.
    `unwritten`: there are results, but the answer could not be written from them. `unplanned`: no plan could be made,
    and no worker was found for the whole request. `refused`: a person did not allow a call, and no later call did the
    same.
    """

    task: TaskId
    """The task's id; empty: a part of the request that no task covers."""
    status: Literal["failed", "skipped", "unfinished", "unserved", "untraced", "unwritten", "unplanned", "refused"]
    """What became of it."""
    reason: str
    """The kind of failure, or why it was skipped."""
    message: str
    """The same in words."""
    because: TaskId = NO_TASK
    """The task that did not deliver, if it needed one."""
    worker: str = ""
    """Of a gap inside a team that works for this one: the team that has it, inwards, with ` > ` between."""
    run: str = ""
    """The run inside in which it is missing; empty: this one."""
    inner: TaskId = NO_TASK
    """The task of that run."""
    cap: CapReached | None = None
    """The cap that is the reason for it (`budget` or `deadline`); `null`: another reason, or it is not known."""
    tool: str = ""
    """The tool of the call that was refused, or of an effect in doubt; empty: the gap is about no single call."""
    arguments: dict[str, object] = {}
    """The arguments of that call."""

    @property
    def is_about_call(self) -> bool:
        """Whether a call was refused or is in doubt: the result of a task may claim that it happened."""
        return self.status == "refused" or self.reason == "uncertain"


class Missing(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a result leaves out."""

    parts: tuple[str, ...]
    """The parts of its task that were not done, in words."""
    gaps: tuple[Gap, ...] = ()
    """The gaps of the nested run that the result is from; empty: a worker left these parts itself."""


EFFECT_IN_DOUBT = Failure("uncertain", "an effect was begun and it is not known whether it happened")


def effect_in_doubt(ended: Failure) -> Failure:
    """The failure of an attempt whose effect is in doubt, with the failure that ended the attempt."""
    if ended == EFFECT_IN_DOUBT:
        return ended
    cause = ended.message if ended.code_error is None else ended.code_error.describe()
    message = f"{EFFECT_IN_DOUBT.message}; it ended with {cause}"
    return Failure("uncertain", message, code_error=ended.code_error, running=ended.running, cause=cause)
