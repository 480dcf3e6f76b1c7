"""The shapes of a trace, which `runtime.trace` fills. Times are seconds since the run began, unless said otherwise."""

import msgspec
from msgspec import Struct

from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.events import CallVerdict, Failure, Finding, Gap, Question
from chargehand.terms.plan import NO_TASK, TaskId
from chargehand.terms.policy import Instant, Seconds


class Prompt(Struct, omit_defaults=True):
    """What a model was first told for a piece of work."""

    model: str
    messages: object
    tools: tuple[str, ...] = ()


class StepTrace(Struct, omit_defaults=True):
    """One recorded call; without `seconds` it never came back."""

    step: int
    name: str
    effect: str
    began: Seconds
    seconds: Seconds | None = None
    arguments: object = None
    result: object = None
    good: bool = True
    used: Amount = NOTHING


class AttemptTrace(Struct, omit_defaults=True):
    """`ending` is one of: under way, succeeded, failed, stopped. `nested` are the runs of teams that do its work.

    `runs` are all that were started in it, messages as well, where somebody put them there (`nested_trace`).
    """

    attempt: int
    worker: str
    instruction: str
    began: Seconds
    seconds: Seconds | None = None
    ending: str = "under way"
    failure: Failure | None = None
    prompts: list[Prompt] = []
    steps: list[StepTrace] = []
    used: Amount = NOTHING
    nested: list[str] = []
    runs: "list[Trace]" = []


class DutyTrace(Struct, omit_defaults=True):
    """Planning, refining a task or writing the answer: one call of the supervisor."""

    duty: str
    number: int
    began: Seconds
    seconds: Seconds | None = None
    ending: str = "under way"
    why: str = ""
    task: TaskId = NO_TASK
    failure: Failure | None = None
    findings: tuple[Finding, ...] = ()
    tasks: tuple[TaskId, ...] = ()
    instruction: str = ""
    prompts: list[Prompt] = []
    used: Amount = NOTHING


class Retry(Struct, omit_defaults=True):
    """`worker` is set where another one takes over."""

    at: Seconds
    wait: Seconds
    worker: str = ""


class TaskTrace(Struct, omit_defaults=True):
    """`reused` names the run and the task a result was taken over from."""

    id: TaskId
    instruction: str
    worker: str
    after: tuple[TaskId, ...] = ()
    status: str = "waiting"
    began: Seconds | None = None
    ended: Seconds | None = None
    attempts: list[AttemptTrace] = []
    refinements: list[str] = []
    retries: list[Retry] = []
    reused: str = ""
    failure: Failure | None = None
    result: object = None
    used: Amount = NOTHING


class QuestionTrace(Struct, omit_defaults=True):
    number: int
    what: str
    asked: Seconds
    task: TaskId = NO_TASK
    text: str = ""
    question: Question | None = None
    verdict: str = ""
    feedback: str = ""
    answered: Seconds | None = None
    also: tuple[CallVerdict, ...] = ()
    """Verdicts on the other calls that `question` names."""


class Trace(Struct, omit_defaults=True):
    """`began` is an instant. `serial` is what it would have taken one piece of work at a time, without the waits.

    `dropped` tasks were planned and thrown away when a person rejected the plan. An empty `ending` means: not yet.
    `damage` says which entry of the journal cannot be read: this is told by those before it.
    """

    run: str
    goal: str
    began: Instant
    seconds: Seconds = 0.0
    serial: Seconds = 0.0
    ending: str = ""
    reason: str = ""
    combine: str = "merge"
    answer: object = None
    used: Amount = NOTHING
    critical_path: tuple[TaskId, ...] = ()
    gaps: tuple[Gap, ...] = ()
    tasks: list[TaskTrace] = []
    supervision: list[DutyTrace] = []
    questions: list[QuestionTrace] = []
    notes: list[str] = []
    dropped: list[TaskTrace] = []
    damage: str = ""


class _Call(Struct):
    name: str
    arguments: str = "{}"


class _Said(Struct):
    calls: list[_Call] = []


def calls_in(result: object) -> list[tuple[str, object]]:
    """The tool calls a model asked for, with their arguments, if this is what a model said."""
    try:
        return [(one.name, _parsed(one.arguments)) for one in msgspec.convert(result, _Said).calls]
    except msgspec.ValidationError:
        return []


def _parsed(arguments: str) -> object:
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments
