"""What clients of this API send, and what they are told. Amounts of money are dollars.

Instants are seconds since 1970; other times are seconds since the run began. Replies that show a struct of the runtime
are filled from it by field name (`show`), so a field is declared where it is shown and nowhere else.
"""

from typing import Annotated, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from chargehand.agents.audit.report import Traced
from chargehand.agents.cost_forecast import PlanForecast
from chargehand.engine import events as ev
from chargehand.engine.facts import Statement
from chargehand.engine.failure import Failure, Gap
from chargehand.engine.plan import Finding, Plan, TaskId
from chargehand.engine.policy import Instant, Seconds
from chargehand.runtime.stats import WorkerHealth
from chargehand.runtime.trace import NoteTrace, ReusedResult

Goal: TypeAlias = Annotated[str, Meta(min_length=1, max_length=150_000, pattern=r"\S")]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
Names: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=500)]
Words: TypeAlias = Annotated[str, Meta(max_length=20_000)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
QuestionNumber: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]
Money: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]
PageSize: TypeAlias = Annotated[int, Meta(ge=1, le=200)]
State: TypeAlias = Literal[
    "running", "paused", "needs_input", "interrupted", "complete", "partial", "failed", "cancelled", "damaged"
]
"""`damaged`: its entries cannot all be read; `reason` says why. `interrupted`: nobody carries it; resume it.
`needs_input`: a person must answer its question.
"""
LATEST = 2**53
"""What `before` is for the first page."""
_TYPES = [str(kind.__struct_config__.tag) for kind in get_args(ev.Event)]
_EVENT = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string", "enum": _TYPES}}}
Event: TypeAlias = Annotated[object, Meta(extra_json_schema=_EVENT)]
"""An event of a run: its own shape cannot be told to others as JSON Schema, since some fields hold any JSON."""
_Shown = TypeVar("_Shown", bound=Struct)


def show(value: object, shape: type[_Shown]) -> _Shown:
    """What of a struct is shown: the fields of `shape`, by name, properties included."""
    return msgspec.convert(value, shape, from_attributes=True)


class Sent(Struct, frozen=True, forbid_unknown_fields=True):
    """What is sent. Fields that do not exist are refused."""


# --- bodies


class Caps(Sent, frozen=True):
    """What a run may use at most. It can be less than its team may use, never more."""

    usd: Money | None = None
    tokens: Count | None = None
    calls: Count | None = None


class Bounded(Sent, frozen=True):
    budget: Caps | None = None
    seconds: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None
    approve: bool | None = None


class RunAsked(Bounded, frozen=True, kw_only=True):
    """A run. With a plan nobody plans; with `approve` it waits for a person to agree to its plan."""

    team: Name
    goal: Goal
    plan: Plan | None = None


class DraftAsked(Sent, frozen=True):
    goal: Goal


class Reason(Sent, frozen=True):
    reason: Words = ""


class Verdict(Sent, frozen=True):
    """What a person says to a plan. `number` is that of the question, which asks about one plan and no other.

    `edit` comes with the edited plan, `reject` may come with feedback.
    """

    number: QuestionNumber
    verdict: Literal["approve", "edit", "reject"]
    feedback: Words = ""
    plan: Plan | None = None


class Answer(Sent, frozen=True):
    """An answer to the question a run asks: to plans approve, edit, reject; to calls approve, reject; to effects whose
    outcome nobody knows done (with a result), again, fail. `number` is that of the question.
    """  # noqa: D205 - one sentence

    number: QuestionNumber
    verdict: Literal["approve", "edit", "reject", "done", "again", "fail"]
    feedback: Words = ""
    plan: Plan | None = None
    result: object = None


class RetryAsked(Sent, frozen=True):
    """`tasks` are done again with all that needs them; left out, those that failed or were skipped."""

    tasks: Names = ()


class Skip(Sent, frozen=True):
    """Nothing needs to be said."""


class Reassign(Sent, frozen=True):
    worker: Name


class Fork(Bounded, frozen=True):
    """A new run that takes over what the old one finished, as far as tasks and inputs are the same.

    `again` are tasks whose results are not taken over. A new goal without a plan is planned anew.
    """

    goal: Goal | None = None
    plan: Plan | None = None
    again: Names = ()


class Feedback(Sent, frozen=True):
    """How well a routed run went, from 0 to 1, and who should have done it."""

    good: Annotated[float, Meta(ge=0, le=1)]
    worker: Annotated[str, Meta(max_length=200)] = ""


class BlockEdit(Sent, frozen=True):
    """The whole new text, and the version it was made from."""

    value: Annotated[str, Meta(max_length=150_000)]
    version: Annotated[int, Meta(ge=1, le=2**53)]


class Search(Sent, frozen=True):
    """`archives` are names or ids; left out, all of the team's."""

    query: Annotated[str, Meta(min_length=1, max_length=10_000, pattern=r"\S")]
    archives: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    tags: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


# --- queries


class RunFilter(Sent, frozen=True):
    """`text` occurs in the goal or the name; `since` is an instant; `cost` the least a run has cost, in dollars."""

    team: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    state: State | UnsetType = UNSET
    text: Annotated[str, Meta(max_length=200)] = ""
    since: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    cost: Money = 0.0
    nested: bool = False
    before: Count = LATEST
    limit: PageSize = 50


class EntriesAfter(Sent, frozen=True):
    """`after` is the number of the last entry that was seen."""

    after: Count = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class EventsAfter(Sent, frozen=True):
    after: Count = 0


class EventsOfRuns(Sent, frozen=True):
    """`after` has a number for each run, in the order of `run`, with dots between."""

    run: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...], Meta(min_length=1, max_length=32)]
    after: Annotated[str, Meta(pattern=r"^[0-9]{1,15}(\.[0-9]{1,15})*$")] | UnsetType = UNSET


class TraceFormat(Sent, frozen=True):
    """`json` is the trace, with the runs inside it where they are wanted; `jsonl` are the entries, one a line."""

    format: Literal["json", "jsonl"] = "json"
    nested: bool = False


class Past(Sent, frozen=True):
    before: Count = LATEST
    limit: PageSize = 50


# --- replies: teams


class WorkerShown(Struct, frozen=True):
    name: str
    description: str
    tags: tuple[str, ...]
    tools: tuple[str, ...]
    model: str
    concurrency: int


class Limits(Struct, frozen=True):
    """What a run of the team may use at most; null is no cap."""

    seconds: Seconds
    usd: float | None
    tokens: int | None
    calls: int | None
    max_tasks: int
    max_depth: int
    width: int


class TeamShown(Struct, frozen=True):
    """`strategy` is how it is led; `notice` what people must know about the models behind it."""

    name: str
    strategy: str
    workers: tuple[WorkerShown, ...]
    examples: tuple[str, ...]
    limits: Limits
    approve: bool
    memory: bool
    notice: str


class TeamList(Struct, frozen=True):
    teams: tuple[TeamShown, ...]


class Drafted(Struct, frozen=True):
    """A plan that was not run, with what it would take. `usd` is what making it cost; null: nobody knows."""

    plan: Plan
    findings: tuple[Finding, ...]
    forecast: PlanForecast | None
    unserved: tuple[str, ...]
    notes: tuple[str, ...]
    usd: float | None


class Healths(Struct, frozen=True):
    """`runs` is how many were looked at, the latest ones; times are seconds."""

    found: tuple[WorkerHealth, ...]
    runs: int
    at: Instant


# --- replies: runs


class Begun(Struct, frozen=True):
    """A run that is on disk. `source` is the run that it takes results over from.

    `notice` says which limits were asked for beyond what its team may use, and which hold instead; empty if none were.
    """

    run: str
    team: str
    goal: str
    started: Instant
    deadline: Instant
    source: str = ""
    notice: str = ""


class Spent(Struct, frozen=True):
    usd: float = 0.0
    tokens: int = 0
    calls: int = 0


class RunLine(Struct, frozen=True, kw_only=True):
    """A run in a list. `team` is empty for talks with agents of the other API; `parent` is the run it is inside of."""

    run: str
    team: str = ""
    goal: str = ""
    state: State
    started: Instant = 0.0
    changed: Instant = 0.0
    ended: Instant | None = None
    reason: str = ""
    entries: int = 0
    spent: Spent = Spent()
    tasks: int = 0
    done: int = 0
    gaps: int = 0
    parent: str = ""
    source: str = ""


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
    reused: ReusedResult | None
    result: object
    used: Spent


class RunShown(Struct, frozen=True):
    """A run as it stands, by what is on disk. `notice` is what people must know about the models of its team.

    `traced` counts what the figures of its answer rest on, and `untraced` are those that no tool returned and nobody
    gave, by the task that says them; those of the answer itself are under the empty name.
    """

    line: RunLine
    plan: Plan
    tasks: tuple[TaskShown, ...]
    gaps: tuple[Gap, ...]
    answer: object
    notice: str
    question: ev.InputRequested | None
    deadline: Instant
    limits: Spent | None
    notes: tuple[NoteTrace, ...]
    traced: Traced
    untraced: dict[str, tuple[Statement, ...]]


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


class Damaged(Struct, frozen=True):
    """The last event of a damaged run: the first entry that cannot be read, and what is wrong with it."""

    run: str
    seq: int
    detail: str


class FeedbackShown(Struct, frozen=True):
    """What was made of feedback: workers that the request is an example of now, and of which it is none any more."""

    run: str
    request: str
    confirmed: tuple[str, ...]
    refuted: tuple[str, ...]


# --- replies: memory


class BlockShown(Struct, frozen=True):
    """`version` counts changes: an edit that names another than the present one is refused.

    `instruction` is what of it gives instructions: of a trusted block all, or what it held before it was tainted.
    """

    id: str
    label: str
    value: str
    description: str
    limit: int
    version: int
    read_only: bool
    trusted: bool
    tainted: bool
    instruction: str
    share: str
    tags: tuple[str, ...]
    updated: Instant


class BlockList(Struct, frozen=True):
    blocks: tuple[BlockShown, ...]


class OriginShown(Struct, frozen=True):
    by: str
    name: str
    run: str
    task: str


class ChangeShown(Struct, frozen=True):
    """`added` took the place of `removed`, from character `start` on."""

    version: int
    kind: str
    origin: OriginShown
    when: Instant
    start: int
    removed: str
    added: str
    tainted: bool


class History(Struct, frozen=True):
    """The latest first; `next` is what `before` must be for more, null after the last."""

    changes: tuple[ChangeShown, ...]
    next: int | None


class ArchiveShown(Struct, frozen=True):
    id: str
    name: str
    description: str
    embedding: str
    passages: int


class ArchiveList(Struct, frozen=True):
    archives: tuple[ArchiveShown, ...]


class Found(Struct, frozen=True):
    """A passage that fits. `archive` is the name of its archive, `why` says for people what matched."""

    id: str
    archive: str
    text: str
    score: float
    why: str
    tags: tuple[str, ...]
    source: str
    tainted: bool
    created: Instant


class FoundList(Struct, frozen=True):
    found: tuple[Found, ...]
