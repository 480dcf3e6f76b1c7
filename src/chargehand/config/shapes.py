"""The shapes of a team file: every key there is, its type and its default.

How a file is read, where a value stands and what becomes of it are not known here.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from chargehand.config.check_shapes import CheckShape
from chargehand.config.memory_shapes import MemoryShape
from chargehand.config.scalars import Dollars, Duration, Size, Span, dollars, duration, size, span
from chargehand.config.way_shapes import WayName, WayShape
from chargehand.terms.plan import Combine

Text: TypeAlias = str
Prose: TypeAlias = str  # inline, or `file:` and a path beside the team file
Count: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
Share: TypeAlias = Annotated[int, Meta(ge=0, le=10_000)]
Copies: TypeAlias = Annotated[int, Meta(ge=1, le=64)]
Warmth: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
Half: TypeAlias = Annotated[float, Meta(ge=0, le=0.5)]
Approval: TypeAlias = bool | Literal["never", "always"]
Effects: TypeAlias = Literal["read", "idempotent", "effect"]


class RetryShape(Struct, frozen=True, forbid_unknown_fields=True):
    attempts: Count | None = None
    fallback_attempts: Count | None = None
    backoff: Span | None = None
    obey_retry_after: Duration | None = None


class DefaultsShape(Struct, frozen=True, forbid_unknown_fields=True):
    model: Text = ""
    timeout: Duration | None = None
    retry: RetryShape = RetryShape()
    steps: Count | None = None
    temperature: Warmth | None = None
    max_tokens: Size | None = None


class BudgetShape(Struct, frozen=True, forbid_unknown_fields=True):
    usd: Dollars | None = None
    tokens: Size | None = None
    calls: Size | None = None


class HedgeShape(Struct, frozen=True, forbid_unknown_fields=True):
    after: Duration | None = None
    most_usd: Dollars | None = None
    share: Half | None = None


class PlanShape(Struct, frozen=True, forbid_unknown_fields=True):
    max_tasks: Count | None = None
    max_depth: Count | None = None
    max_nesting: Count | None = None
    approve: Approval = "never"


class PromptsShape(Struct, frozen=True, forbid_unknown_fields=True):
    plan: Prose = ""
    work: Prose = ""
    task: Prose = ""
    refine: Prose = ""
    answer: Prose = ""
    reduce: Prose = ""
    judge: Prose = ""
    verify: Prose = ""
    review: Prose = ""
    make: Prose = ""
    summary: Prose = ""
    route: Prose = ""
    ledger: Prose = ""
    speak: Prose = ""
    split: Prose = ""


class SupervisorShape(Struct, frozen=True, forbid_unknown_fields=True):
    instructions: Prose = ""
    model: Text = ""
    planner: Text = ""
    judge: Text = ""
    combine: Combine | None = None
    stream_plan: bool = False
    review: bool = False
    refine: bool = True
    timeout: Duration | None = None
    uncertain: Literal["fail", "ask"] = "fail"
    tainted_effects: Literal["ask", "allow"] = "ask"
    way: WayShape | WayName = "plan"
    plan: PlanShape = PlanShape()
    prompts: PromptsShape = PromptsShape()


class FallbackShape(Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[Text, ...] = ()
    workers: tuple[Text, ...] = ()


class EstimateShape(Struct, frozen=True, forbid_unknown_fields=True):
    usd: Dollars | None = None
    tokens: Size | None = None
    calls: Size | None = None
    wall: Duration | None = None


class ChildrenShape(Struct, frozen=True, forbid_unknown_fields=True):
    tool: Text
    children: tuple[Text, ...]


class ParentShape(Struct, frozen=True, forbid_unknown_fields=True):
    tool: Text
    parent: Text


class CasesShape(Struct, frozen=True, forbid_unknown_fields=True):
    tool: Text
    cases: dict[str, Text]
    otherwise: Text = ""


class MostShape(Struct, frozen=True, forbid_unknown_fields=True):
    tool: Text
    most: Count


class RuleShape(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of them."""

    run_first: Text | None = None
    exit_loop: Text | None = None
    continue_loop: Text | None = None
    constrain_child_tools: ChildrenShape | None = None
    parent_last_tool: ParentShape | None = None
    conditional: CasesShape | None = None
    max_count_per_step: MostShape | None = None
    required_before_exit: Text | None = None
    requires_approval: Text | None = None


class ContactsShape(Struct, frozen=True, forbid_unknown_fields=True):
    to: tuple[Text, ...]
    most: Count | None = None


class WorkerShape(Struct, frozen=True, forbid_unknown_fields=True):
    """One with a `team` is another team file, and has nothing of its own to work with."""

    description: Text = ""
    team: Text = ""
    prompt: Prose = ""
    tags: tuple[Text, ...] = ()
    tools: tuple[Text, ...] = ()
    model: Text = ""
    fallback: FallbackShape = FallbackShape()
    output_schema: Prose | dict[str, Any] | None = None
    rules: tuple[RuleShape, ...] = ()
    steps: Count | None = None
    concurrency: Share = 0
    timeout: Duration | None = None
    estimate: EstimateShape = EstimateShape()
    temperature: Warmth | None = None
    max_tokens: Size | None = None
    remembers: bool = False
    may_estimate: bool = False
    every: Count | None = None
    skills: tuple[Text, ...] = ()
    examples: tuple[Text, ...] = ()
    accept: tuple[Text, ...] = ()
    contacts: ContactsShape | tuple[Text, ...] = ()
    instances: Copies | tuple[Text, ...] = 1


class FetchShape(Struct, frozen=True, forbid_unknown_fields=True):
    allow: tuple[Text, ...] = ()


class NothingShape(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to set: `{}`, or `true`."""


Nothing: TypeAlias = NothingShape | bool


class ToolShape(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one source, and what is to be known of the tool besides."""

    python: Text | None = None
    sql: Text | None = None
    documents: Text | None = None
    files: Text | None = None
    fetch: FetchShape | None = None
    sandbox: Nothing | None = None
    calculator: Nothing | None = None
    chart: Nothing | None = None
    dates: Nothing | None = None
    effect: Effects | None = None
    side_effects: Effects | None = None
    timeout: Duration | None = None
    cap: Size | None = None
    approve: Approval | None = None
    embed: Literal["auto", "words"] | None = None


class FactoryShape(Struct, frozen=True, forbid_unknown_fields=True):
    tools: tuple[Text, ...] = ()
    most_tools: Count | None = None
    capacity: Count | None = None
    steps: Count | None = None
    model: Text = ""


class TeamShape(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole team file."""

    version: Literal[1]
    name: Text = "team"
    description: Text = ""
    examples: tuple[Text, ...] = ()
    defaults: DefaultsShape = DefaultsShape()
    timeout: Duration | None = None
    budget: BudgetShape = BudgetShape()
    cache: Duration | None = None
    hedge: HedgeShape | bool = False
    supervisor: SupervisorShape = SupervisorShape()
    workers: dict[str, WorkerShape | Text] = field(default_factory=dict[str, WorkerShape | Text])
    tools: dict[str, ToolShape | Text] = field(default_factory=dict[str, ToolShape | Text])
    factory: FactoryShape | None = None
    memory: MemoryShape | None = None
    checks: dict[str, CheckShape] = field(default_factory=dict[str, CheckShape])


SOURCES = ("python", "sql", "documents", "files", "fetch", "sandbox", "calculator", "chart", "dates")
"""Where a tool may come from: a tool names exactly one."""

PLAIN_SOURCES = ("calculator", "chart", "dates", "sandbox")
"""Sources that need no settings: a worker may name them without an entry under `tools`."""

LATER = {
    "mcp_servers": "the use of MCP servers",
    "expose": "serving a team to other programs",
}
"""Sections that a later version will read."""

_READERS: dict[type, Callable[[object], object]] = {Duration: duration, Size: size, Span: span, Dollars: dollars}


def scalar(kind: type, written: object) -> object:
    """What msgspec asks for types it does not know."""
    reader = _READERS.get(kind)
    if reader is None:
        raise NotImplementedError(f"no reader for {kind.__name__}")
    return reader(written)
