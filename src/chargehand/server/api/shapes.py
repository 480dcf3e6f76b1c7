"""What this API is told and what it tells, apart from what a team remembers. Amounts of money are dollars.

Instants are seconds since 1970; other times are seconds since the run began.
"""

from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import Meta, Struct

from chargehand.agents.audit.report import Traced
from chargehand.agents.cost_forecast import PlanForecast
from chargehand.terms import events as ev
from chargehand.terms.failure import Failure, Gap
from chargehand.terms.plan import Finding, Plan, TaskId
from chargehand.terms.policy import Instant, Seconds
from chargehand.terms.tracing import Conflict, Kind, Origin

Goal: TypeAlias = Annotated[str, Meta(min_length=1, max_length=150_000, pattern=r"\S")]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
Words: TypeAlias = Annotated[str, Meta(max_length=20_000)]
Time: TypeAlias = Annotated[float, Meta(gt=0, le=31_536_000)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
QuestionNumber: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]
Money: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]
State: TypeAlias = Literal[
    "running", "paused", "needs_input", "interrupted", "complete", "partial", "failed", "cancelled", "damaged"
]
"""`damaged`: its entries cannot all be read; `reason` says why. `interrupted`: nobody carries it; resume it.
`needs_input`: a person must answer its question.
"""


_TYPES = [str(kind.__struct_config__.tag) for kind in get_args(ev.Event)]
_EVENT = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string", "enum": _TYPES}}}
Event: TypeAlias = Annotated[object, Meta(extra_json_schema=_EVENT)]
"""An event of a run: its own shape cannot be told to others as JSON Schema, since some fields hold any JSON."""


class Asked(Struct, frozen=True, forbid_unknown_fields=True):
    """What is sent. Fields that do not exist are refused."""


# --- what is sent


class Caps(Asked, frozen=True):
    """What a run may use at most. It can be less than its team may use, never more."""

    usd: Money | None = None
    tokens: Count | None = None
    calls: Count | None = None


class Bounded(Asked, frozen=True):
    budget: Caps | None = None
    seconds: Time | None = None
    approve: bool | None = None


class RunAsked(Bounded, frozen=True, kw_only=True):
    """A run. With a plan nobody plans; with `approve` it waits for a person to agree to its plan."""

    team: Name
    goal: Goal
    plan: Plan | None = None


class DraftAsked(Asked, frozen=True):
    goal: Goal


class Reason(Asked, frozen=True):
    reason: Words = ""


class Verdict(Asked, frozen=True):
    """What a person says to a plan. `number` is that of the question, which asks about one plan and no other.

    `edit` comes with the edited plan, `reject` may come with feedback.
    """

    number: QuestionNumber
    verdict: Literal["approve", "edit", "reject"]
    feedback: Words = ""
    plan: Plan | None = None


class Answer(Asked, frozen=True):
    """An answer to the question a run asks: to plans approve, edit, reject; to calls approve, reject; to effects whose
    outcome nobody knows done (with a result), again, fail. `number` is that of the question.
    """  # noqa: D205 - one sentence

    number: QuestionNumber
    verdict: Literal["approve", "edit", "reject", "done", "again", "fail"]
    feedback: Words = ""
    plan: Plan | None = None
    result: object = None


class RetryAsked(Asked, frozen=True):
    """`tasks` are done again with all that needs them; left out, those that failed or were skipped."""

    tasks: Annotated[tuple[Name, ...], Meta(max_length=500)] = ()


class Skip(Asked, frozen=True):
    """Nothing needs to be said."""


class Reassign(Asked, frozen=True):
    worker: Name


class Fork(Bounded, frozen=True):
    """A new run that takes over what the old one finished, as far as tasks and inputs are the same.

    `again` are tasks whose results are not taken over. A new goal without a plan is planned anew.
    """

    goal: Goal | None = None
    plan: Plan | None = None
    again: Annotated[tuple[Name, ...], Meta(max_length=500)] = ()


class Feedback(Asked, frozen=True):
    """How well a routed run went, from 0 to 1, and who should have done it."""

    good: Annotated[float, Meta(ge=0, le=1)]
    worker: Annotated[str, Meta(max_length=200)] = ""


# --- what is told


class WorkerShown(Struct, frozen=True):
    name: str
    description: str
    tags: tuple[str, ...]
    tools: tuple[str, ...]
    model: str
    capacity: int


class Limits(Struct, frozen=True):
    """What a run of the team may use at most; null is no cap."""

    seconds: Seconds
    usd: float | None
    tokens: int | None
    calls: int | None
    tasks: int
    depth: int
    width: int


class TeamLine(Struct, frozen=True):
    name: str
    way: str
    workers: tuple[str, ...]


class TeamList(Struct, frozen=True):
    teams: tuple[TeamLine, ...]


class TeamShown(Struct, frozen=True):
    """`way` is how it is led; `notice` what people must know about the models behind it."""

    name: str
    way: str
    workers: tuple[WorkerShown, ...]
    examples: tuple[str, ...]
    limits: Limits
    approve: bool
    memory: bool
    notice: str


class Drafted(Struct, frozen=True):
    """A plan that was not run, with what it would take. `usd` is what making it cost; null: nobody knows."""

    plan: Plan
    findings: tuple[Finding, ...]
    forecast: PlanForecast | None
    unserved: tuple[str, ...]
    notes: tuple[str, ...]
    usd: float | None


class Begun(Struct, frozen=True):
    """A run that is on disk. `source` is the run that it takes results over from."""

    run: str
    team: str
    goal: str
    started: Instant
    source: str = ""


class Spent(Struct, frozen=True):
    usd: float
    tokens: int
    calls: int


class RunLine(Struct, frozen=True):
    """A run in a list. `team` is empty for talks with agents of the other API; `parent` is the run it is inside of."""

    run: str
    team: str
    goal: str
    state: State
    started: Instant
    changed: Instant
    ended: Instant | None
    reason: str
    entries: int
    spent: Spent
    tasks: int
    done: int
    gaps: int
    parent: str
    source: str


class RunPage(Struct, frozen=True):
    """`next` is what `before` must be for the next page; null after the last. A page may be short, even empty."""

    runs: tuple[RunLine, ...]
    next: int | None


class AttemptShown(Struct, frozen=True):
    attempt: int
    worker: str
    began: Seconds
    seconds: Seconds | None
    ending: str
    failure: Failure | None


class TaskShown(Struct, frozen=True):
    id: TaskId
    instruction: str
    worker: str
    after: tuple[TaskId, ...]
    status: str
    began: Seconds | None
    ended: Seconds | None
    attempts: tuple[AttemptShown, ...]
    failure: Failure | None
    reused: str
    result: object
    spent: Spent


class UntracedShown(Struct, frozen=True):
    """A figure of the answer that no tool returned and nobody gave. `task` says it; empty: the answer itself does."""

    task: str
    kind: Kind
    text: str
    origin: Origin
    conflict: Conflict
    sentence: str


class RunShown(Struct, frozen=True):
    """A run as it stands, by what is on disk. `traced` counts what the figures of its answer rest on."""

    line: RunLine
    plan: Plan
    tasks: tuple[TaskShown, ...]
    gaps: tuple[Gap, ...]
    answer: object
    question: ev.InputRequested | None
    deadline: Instant
    limits: Spent | None
    notes: tuple[str, ...]
    traced: Traced
    untraced: tuple[UntracedShown, ...]


class EntryShown(Struct, frozen=True):
    """`event` is as docs/journal.md says, by its `type`."""

    run: str
    seq: int
    at: Instant
    event: Event


class Entries(Struct, frozen=True):
    """`last` is the number of the last entry told; `over`: the run has ended and nothing follows.

    `damage` says why the entries after the last one cannot be read; empty when they can.
    """

    entries: tuple[EntryShown, ...]
    last: int
    over: bool
    damage: str


class FeedbackShown(Struct, frozen=True):
    """What was made of feedback: workers that the request is an example of now, and of which it is none any more."""

    run: str
    request: str
    confirmed: tuple[str, ...]
    refuted: tuple[str, ...]
