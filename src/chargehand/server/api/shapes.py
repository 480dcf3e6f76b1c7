"""Request bodies, queries and replies of the HTTP API. Money is in dollars.

Instants are seconds since 1970; other times are seconds since the run began. Replies that show a struct of the runtime
are filled from it by field name (`show`), so a field is declared where it is shown and nowhere else.
"""

from typing import Annotated, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from chargehand.agents.audit.assessment import Coverage, Traced
from chargehand.agents.draft import PlanForecast
from chargehand.agents.run_document import CallInDoubt, RunDocument, RunQuestion, State
from chargehand.engine import events as ev
from chargehand.engine.budget import CapReached
from chargehand.engine.facts import Citation, SettledContradiction, Statement
from chargehand.engine.failure import Failure, Gap
from chargehand.engine.plan import Finding, Plan, TaskId
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.state import TextKind
from chargehand.evals.report_files import ReportSummary
from chargehand.runtime.files import MAX_FILES
from chargehand.runtime.runner import LONGEST_GOAL
from chargehand.runtime.stats import WorkerHealth
from chargehand.runtime.trace import NoteTrace, ReusedResult

Goal: TypeAlias = Annotated[str, Meta(min_length=1, max_length=LONGEST_GOAL, pattern=r"\S")]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
Names: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=500)]
_LABEL = r"^[^:]+$"
Labels: TypeAlias = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=63, pattern=_LABEL)], Annotated[str, Meta(max_length=200)]],
    Meta(max_length=32),
]
FileIds: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=MAX_FILES)]
Words: TypeAlias = Annotated[str, Meta(max_length=20_000)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
QuestionNumber: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]
Money: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]
PageSize: TypeAlias = Annotated[int, Meta(ge=1, le=200)]
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


class RequestBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What is sent. Fields that do not exist are refused."""


# --- bodies


class BudgetBody(RequestBody, frozen=True):
    """What a run may use at most. It can be less than its team may use, never more."""

    usd: Money | None = None
    tokens: Count | None = None
    calls: Count | None = None


class BoundedBody(RequestBody, frozen=True):
    budget: BudgetBody | None = None
    seconds: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None
    approve: bool | None = None


class NewRunBody(BoundedBody, frozen=True, kw_only=True):
    """A run. A given plan is not planned anew; with `approve` the run waits for approval of its plan.

    `labels` are for who lists runs: their names have no colon. Runs that are made from this one have them, too. `files`
    are ids of uploaded files that it is given.
    """

    team: Name
    goal: Goal
    plan: Plan | None = None
    labels: Labels = {}
    files: FileIds = ()


class PlanBody(RequestBody, frozen=True):
    """A plan that is given is only checked: nothing is planned."""

    goal: Goal
    plan: Plan | None = None


class RouteBody(RequestBody, frozen=True):
    """A request whose route is wanted."""

    goal: Goal


class ReasonBody(RequestBody, frozen=True):
    reason: Words = ""


class VerdictBody(RequestBody, frozen=True):
    """The decision about a plan. `number` is that of the question.

    `edit` comes with the edited plan, `reject` may come with feedback.
    """

    number: QuestionNumber
    verdict: Literal["approve", "edit", "reject"]
    feedback: Words = ""
    plan: Plan | None = None


_CallResult = Annotated[object, Meta(extra_json_schema={"default": None})]  # a null is a result, no result is not


class CallVerdictBody(RequestBody, frozen=True):
    """The decision about another call of the same question. `call` is its number, as the question has it."""

    call: QuestionNumber
    verdict: Literal["approve", "reject", "done", "again", "fail"]
    feedback: Words = ""
    result: _CallResult = UNSET


class AnswerBody(RequestBody, frozen=True):
    """An answer to the question a run asks: to plans approve, edit, reject; to calls approve, reject; to effects whose
    outcome is unknown done (with a result), again, fail; to questions in words answer (with a result), reject.
    `number` is that of the question. The verdict is about its first call, `also` has those on its other calls; calls
    without a verdict are asked about next.
    """  # noqa: D205 - one sentence

    number: QuestionNumber
    verdict: Literal["approve", "edit", "reject", "done", "again", "fail", "answer"]
    feedback: Words = ""
    plan: Plan | None = None
    result: _CallResult = UNSET
    also: Annotated[tuple[CallVerdictBody, ...], Meta(max_length=500)] = ()


class RetryBody(RequestBody, frozen=True):
    """`tasks` are done again with all that needs them; left out, those that failed or were skipped."""

    tasks: Names = ()


class SkipBody(RequestBody, frozen=True):
    """`in_place`: in this run, which goes on, instead of in a new one; the task must not be running."""

    in_place: bool = False


class ReassignBody(RequestBody, frozen=True):
    """`in_place`: in this run, which goes on, instead of in a new one; the task must not have begun."""

    worker: Name
    in_place: bool = False


class ForkBody(BoundedBody, frozen=True):
    """A new run that takes over what the old one finished, as far as tasks and inputs are the same.

    `again` are tasks whose results are not taken over. A new goal without a plan is planned anew.
    """

    goal: Goal | None = None
    plan: Plan | None = None
    again: Names = ()


class FeedbackBody(RequestBody, frozen=True):
    """How well a routed run went, from 0 to 1, and who should have done it."""

    good: Annotated[float, Meta(ge=0, le=1)]
    worker: Annotated[str, Meta(max_length=200)] = ""


class BlockEdit(RequestBody, frozen=True):
    """The whole new text, and the version it was made from."""

    value: Annotated[str, Meta(max_length=150_000)]
    version: Annotated[int, Meta(ge=1, le=2**53)]


class RestoreBody(RequestBody, frozen=True):
    """The version whose text the block is to have again."""

    version: Annotated[int, Meta(ge=1, le=2**53)]


class SearchBody(RequestBody, frozen=True):
    """`archives` are names or ids; left out, all of the team's."""

    query: Annotated[str, Meta(min_length=1, max_length=10_000, pattern=r"\S")]
    archives: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    tags: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


# --- queries


class RunFilter(RequestBody, frozen=True):
    """`text` occurs in the goal or the name; `since` is an instant; `cost` the least a run has cost, in dollars.

    `label` is `name:value`; of several, a run has all. `worker` has a task in it.
    """

    team: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    state: State | UnsetType = UNSET
    text: Annotated[str, Meta(max_length=200)] = ""
    since: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    cost: Money = 0.0
    nested: bool = False
    before: Count = LATEST
    limit: PageSize = 50
    label: Annotated[tuple[Annotated[str, Meta(max_length=264, pattern=r"^[^:]+:")], ...], Meta(max_length=8)] = ()
    worker: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET


class RunQuery(RequestBody, frozen=True):
    """`lean`: without what its entries tell: `plan`, `tasks`, `notes` and `answer` are empty.

    `plain`: the answer as it was written, without the sections below it.
    """

    lean: bool = False
    plain: bool = False


class EntriesAfter(RequestBody, frozen=True):
    """`after` is the number of the last entry that was seen."""

    after: Count = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class ListChanges(RequestBody, frozen=True):
    """`team`: only runs of this team."""

    team: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET


class EventsAfter(RequestBody, frozen=True):
    """`lean`: instead of texts, results and prompts of more than 2 kB comes where they are to be had.

    That is `{"$entry": NUMBER, "bytes": SIZE}`, for `/entries/NUMBER`. `words`: also what models write as it comes, in
    events `words`.
    """

    after: Count = 0
    lean: bool = False
    words: bool = False


class EventsOfRuns(RequestBody, frozen=True):
    """`after` has a number for each run, in the order of `run`, with dots between."""

    run: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...], Meta(min_length=1, max_length=32)]
    after: Annotated[str, Meta(pattern=r"^[0-9]{1,15}(\.[0-9]{1,15})*$")] | UnsetType = UNSET


class TraceFormat(RequestBody, frozen=True):
    """`json` is the trace, with the runs inside it where they are wanted; `jsonl` are the entries, one a line.

    `whole`: every field of the trace is there, also one that has its default, and prompts have all their messages.
    """

    format: Literal["json", "jsonl"] = "json"
    nested: bool = False
    whole: bool = False


class BlockVersion(RequestBody, frozen=True):
    """`version`: the text as it was then; left out, as it is."""

    version: Annotated[int, Meta(ge=1, le=2**53)] | UnsetType = UNSET


class PassagesAfter(RequestBody, frozen=True):
    """`after` is the id of the last passage that was seen."""

    after: Annotated[str, Meta(max_length=200)] = ""
    limit: PageSize = 50


class HistoryQuery(RequestBody, frozen=True):
    before: Count = LATEST
    limit: PageSize = 50


# --- replies: teams


class CallerInfo(Struct, frozen=True):
    """Who is calling: `key` is the id of the token, `name` what it was called, `scopes` what it allows.

    `now` is the clock of the server; `unlocked`: it asks for no token.
    """

    tenant: str
    key: str
    name: str
    scopes: tuple[str, ...]
    version: str
    now: Instant
    unlocked: bool = False


class WorkerInfo(Struct, frozen=True):
    """`acts` are those of its tools that change something outside."""

    name: str
    description: str
    tags: tuple[str, ...]
    tools: tuple[str, ...]
    model: str
    concurrency: int
    acts: tuple[str, ...] = ()


class TeamLimits(Struct, frozen=True):
    """What a run of the team may use at most; null is no cap."""

    seconds: Seconds
    usd: float | None
    tokens: int | None
    calls: int | None
    max_tasks: int
    max_depth: int
    width: int


class TeamInfo(Struct, frozen=True):
    """`strategy` is how it is led; `notice` what people must know about the models behind it."""

    name: str
    strategy: str
    workers: tuple[WorkerInfo, ...]
    examples: tuple[str, ...]
    limits: TeamLimits
    approve: bool
    memory: bool
    notice: str


class TeamList(Struct, frozen=True):
    teams: tuple[TeamInfo, ...]


class PlanDraft(Struct, frozen=True):
    """A plan that was not run, with what it would take. `usd` is what planning cost; null: unknown."""

    plan: Plan
    findings: tuple[Finding, ...]
    forecast: PlanForecast | None
    unserved: tuple[str, ...]
    notes: tuple[str, ...]
    usd: float | None


class WorkerScore(Struct, frozen=True):
    worker: str
    score: float


class RouteDraft(Struct, frozen=True):
    """Where a request would go. Nothing was done about it.

    `router` is how it was found: that of a route, such as `rules`, `words`, `meaning` or `model`; else `plan`, and
    `workers` are those with a task in the plan, without scores. No `workers`: no worker fits, and `unserved` says why.
    `confidence` is from 0 to 1, null for a plan; `scores` are those of the best workers, the best first. `usd` is what
    asking cost; null: unknown.
    """

    workers: tuple[str, ...]
    router: str
    confidence: float | None
    scores: tuple[WorkerScore, ...]
    unserved: tuple[str, ...]
    notes: tuple[str, ...]
    usd: float | None


class ReportList(Struct, frozen=True):
    """The saved reports of a team, the newest first; at most 200."""

    reports: tuple[ReportSummary, ...]


class HealthReport(Struct, frozen=True):
    """`runs` is how many were looked at, the latest ones; times are seconds."""

    workers: tuple[WorkerHealth, ...]
    runs: int
    at: Instant


# --- replies: runs


class RunCreated(Struct, frozen=True):
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


class AmountInfo(Struct, frozen=True):
    usd: float = 0.0
    tokens: int = 0
    calls: int = 0


class RunLimits(Struct, frozen=True):
    """What a run may use at most; null is no cap."""

    usd: float | None
    tokens: int | None
    calls: int | None


class OpenQuestion(Struct, frozen=True):
    """What a run asks a person, in short; the run itself has all of it. `tool` is the one that is to be called."""

    what: str
    task: TaskId
    text: str
    tool: str = ""
    calls: int = 0
    """How many calls it asks about."""


class RunSummary(Struct, frozen=True, kw_only=True):
    """A run in a list. `team` is empty for talks with agents of the other API; `parent` is the run it is inside of.

    `title` are the first words of its goal. `running` and `failed` count tasks. `workers` have a task in it. `cap` is
    the cap that is the `reason` for its end (`budget`, `deadline` or `overspent`); null: another reason. `why` is the
    reason in words: the cap, the first gap, or who cancelled it and why. `lost` is the
    part of `spent` that is an estimate, for calls whose outcome is not known.
    """

    run: str
    team: str = ""
    goal: str = ""
    state: State
    started: Instant = 0.0
    changed: Instant = 0.0
    ended: Instant | None = None
    reason: str = ""
    entries: int = 0
    spent: AmountInfo = AmountInfo()
    lost: AmountInfo = AmountInfo()
    tasks: int = 0
    done: int = 0
    gaps: int = 0
    parent: str = ""
    source: str = ""
    title: str = ""
    running: int = 0
    failed: int = 0
    question: OpenQuestion | None = None
    labels: dict[str, str] = {}
    workers: tuple[str, ...] = ()
    cap: CapReached | None = None
    why: str = ""


class RunPage(Struct, frozen=True):
    """`next` is what `before` must be for the next page; null after the last. A page may be short, even empty."""

    runs: tuple[RunSummary, ...]
    next: int | None


class AttemptInfo(Struct, frozen=True):
    attempt: int
    worker: str
    began: Seconds
    seconds: Seconds | None
    ending: str
    failure: Failure | None


class TaskInfo(Struct, frozen=True):
    id: TaskId
    instruction: str
    worker: str
    after: tuple[TaskId, ...]
    status: str
    began: Seconds | None
    ended: Seconds | None
    attempts: tuple[AttemptInfo, ...]
    failure: Failure | None
    reused: ReusedResult | None
    result: object
    used: AmountInfo
    title: str = ""


class RunInfo(Struct, frozen=True):
    """A run as it stands, by what is on disk. `notice` is what people must know: of its models, and of tools left off.

    `traced` counts what the figures of its answer rest on, and `untraced` are those that no tool returned and no
    input gave, by the task that says them; those of the answer itself are under the empty name. `now` is the clock of
    the server; `forecast` is what the whole plan takes, null where there is no plan, and after the end of the run.
    `question` is the recorded event of the open question; `asks` is the same as every API tells it, with all calls.
    `in_doubt` are calls that may have happened and that the question does not ask about.
    """

    summary: RunSummary
    plan: Plan
    tasks: tuple[TaskInfo, ...]
    gaps: tuple[Gap, ...]
    answer: object
    notice: str
    question: ev.InputRequested | None
    deadline: Instant
    limits: RunLimits | None
    notes: tuple[NoteTrace, ...]
    traced: Traced
    untraced: dict[str, tuple[Statement, ...]]
    now: Instant = 0.0
    forecast: PlanForecast | None = None
    asks: RunQuestion | None = None
    in_doubt: tuple[CallInDoubt, ...] = ()
    citations: dict[str, tuple[Citation, ...]] = {}
    """By task, what the providers of models cite for its result. It is their word, and none of it counts as traced."""

    @property
    def document(self) -> RunDocument:
        """Return the run document that this was made from."""
        summary = self.summary
        return RunDocument(
            run=summary.run,
            team=summary.team,
            state=summary.state,
            reason=summary.reason,
            why=summary.why,
            cap=summary.cap,
            answer=self.answer,
            gaps=self.gaps,
            usd=summary.spent.usd,
            tokens=summary.spent.tokens,
            calls=summary.spent.calls,
            lost_usd=summary.lost.usd,
            question=self.asks,
            in_doubt=self.in_doubt,
        )


class EntryInfo(Struct, frozen=True):
    """`event` is as docs/journal.md says, by its `type`."""

    run: str
    seq: int
    at: Instant
    event: Event


class StreamedWords(Struct, frozen=True):
    """Some words of a model as they come: what it does (`attempt`, `plan`, `refine`, `answer`), and which try it is."""

    run: str
    work: str
    task: TaskId
    attempt: int
    text: str
    kind: TextKind = "answer"
    """`thought`: what the model thinks before it answers."""


class Evidence(Struct, frozen=True):
    """What was counted about the answer of a run (`Result.assessment` in Python); `line` is all of it in a few words.

    `untraced` are pairs: the task that says it (empty: the answer itself), and the figure.
    """

    coverage: Coverage
    traced: Traced
    untraced: tuple[tuple[str, Statement], ...]
    claims: tuple[Statement, ...]
    contradictions: tuple[SettledContradiction, ...]
    line: str


class Entries(Struct, frozen=True):
    """`last` is the number of the last entry told; `over`: the run has ended and nothing follows.

    `damage` says why the entries after the last one cannot be read; empty when they can.
    """

    entries: tuple[EntryInfo, ...]
    last: int
    over: bool
    damage: str


class DamageReport(Struct, frozen=True):
    """The last event of a damaged run: the first entry that cannot be read, and what is wrong with it."""

    run: str
    seq: int
    detail: str


class ForkPreview(Struct, frozen=True):
    """What a fork would take over, and do again; `usd` is what the latter cost in this run."""

    reused: tuple[TaskId, ...]
    again: tuple[TaskId, ...]
    usd: float


class DeletedRuns(Struct, frozen=True):
    """The run and those inside it, which are gone."""

    runs: tuple[str, ...]
    kept_in: tuple[str, ...] = ()
    """Later runs of its conversation, which hold what was said in it until they are deleted, too."""


class FeedbackResult(Struct, frozen=True):
    """What was made of feedback: workers that the request is an example of now, and of which it is none any more."""

    run: str
    request: str
    confirmed: tuple[str, ...]
    refuted: tuple[str, ...]


# --- replies: memory


class BlockInfo(Struct, frozen=True):
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
    blocks: tuple[BlockInfo, ...]


class ChangeOrigin(Struct, frozen=True):
    by: str
    name: str
    run: str
    task: str


_PERSON = ChangeOrigin(by="person", name="", run="", task="")


class BlockChange(Struct, frozen=True):
    """`added` took the place of `removed`, from character `start` on."""

    version: int
    kind: str
    origin: ChangeOrigin
    when: Instant
    start: int
    removed: str
    added: str
    tainted: bool


class History(Struct, frozen=True):
    """The latest first; `next` is what `before` must be for more, null after the last."""

    changes: tuple[BlockChange, ...]
    next: int | None


class ArchiveInfo(Struct, frozen=True):
    id: str
    name: str
    description: str
    embedding: str
    passages: int


class ArchiveList(Struct, frozen=True):
    archives: tuple[ArchiveInfo, ...]


class PassageInfo(Struct, frozen=True):
    """`origin` says who kept it, in which run and task; `source` where the text itself was found."""

    id: str
    text: str
    tags: tuple[str, ...]
    source: str
    tainted: bool
    created: Instant
    origin: ChangeOrigin = _PERSON


class PassageUse(Struct, frozen=True):
    """A search by a worker that found a passage; `score` is how well it fitted."""

    run: str
    task: TaskId
    attempt: int
    at: Instant
    query: str
    score: float


class PassageUses(Struct, frozen=True):
    """The latest first. `runs` is how many runs were looked at, the latest ones of the team."""

    uses: tuple[PassageUse, ...]
    runs: int


class PassageList(Struct, frozen=True):
    """In the order of inserting; `next` is what `after` must be for more, null after the last."""

    passages: tuple[PassageInfo, ...]
    next: str | None


class SearchHit(Struct, frozen=True):
    """A passage that fits. `archive` is the name of its archive, `why` says for people what matched.

    `origin` says who kept it, in which run and task; `source` where the text itself was found.
    """

    id: str
    archive: str
    text: str
    score: float
    why: str
    tags: tuple[str, ...]
    source: str
    tainted: bool
    created: Instant
    origin: ChangeOrigin = _PERSON


class SearchHits(Struct, frozen=True):
    hits: tuple[SearchHit, ...]
