"""The team file: every key there is, its type, its default and what it means, and how durations and sizes are written.

A key that is a field in Python is declared there: `SupervisorKeys`, `WorkerKeys`, `PolicyKeys`. Here is what only a
file has, and what it writes otherwise. The text under a field is what `chargehand check --explain`, the JSON Schema and
the reference page say of the key.
How a file is read, where a value stands and what becomes of it are not known here.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Annotated, Any, Literal, TypeAlias, cast

from msgspec import Meta, Struct, inspect

from chargehand.agents.roles import (
    AttemptKeys,
    Factory,
    FactoryKeys,
    Hedge,
    Supervisor,
    SupervisorKeys,
    Worker,
    WorkerKeys,
)
from chargehand.agents.schedules import ScheduleKeys
from chargehand.agents.strategies import StrategyName, StrategyShape
from chargehand.agents.webhooks import WebhookKeys
from chargehand.engine.declared import parse_duration, parse_timeout, show_value, written_as
from chargehand.engine.plan import Combine
from chargehand.engine.policy import PolicyKeys
from chargehand.memory.blocks import LIMIT, Access
from chargehand.tools.approval import Condition
from chargehand.tools.built_in import BUILT_IN
from chargehand.tools.mcp_client import McpServerKeys
from chargehand.tools.rules import (
    Conditional,
    ConstrainChildTools,
    MaxCount,
    MaxCountPerStep,
    ParentLastTool,
    RequiresApproval,
)

# --- values as people write them


class Scalar(Struct, frozen=True):
    """A value that is written as text: how it is read, shown and described to people and editors.

    A ValueError of `read` says what is wrong, as the end of a sentence, and what would be right.
    """

    name: str
    read: Callable[[object], object]
    show: Callable[[Any], str]
    words: str
    """What it is, with an example."""
    json_type: str
    """What it may be in JSON besides text."""
    pattern: str
    """Of the text; empty where there is none but a variable."""


_SIZES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)(k|m|g|kib|mib|gib)?", re.IGNORECASE | re.ASCII)
_MAX_SIZE = 10**15
_TIME = r"(\d+(\.\d+)?(ms|s|m|h|d) ?)+"


def parse_size(written: object) -> int:
    """A count: `200k`, `1.5M`, `16KiB`, or a bare number."""
    if isinstance(written, str):
        match = _SIZE.fullmatch(written.strip())
        if not match:
            raise ValueError(f"is {show_value(written)}; write a size such as 200k, 1.5M or 16KiB")
        exact = Decimal(match[1]) * _SIZES[(match[2] or "").lower()]
    elif isinstance(written, int) and not isinstance(written, bool):
        exact = Decimal(written)
    else:
        raise ValueError(f"is {show_value(written)}; write a whole number or a size such as 200k")  # noqa: TRY004
    if exact != exact.to_integral_value() or not 0 <= exact <= _MAX_SIZE:
        raise ValueError(f"is {show_value(written)}; a size is a whole number from 0 to a thousand million million")
    return int(exact)


def parse_dollars(written: object) -> float:
    if isinstance(written, int | float) and not isinstance(written, bool) and isfinite(written):
        if 0 <= written <= _MAX_SIZE / 1_000_000:
            return float(written)
        raise ValueError(f"is {show_value(written)}; money is zero or more")
    raise ValueError(f"is {show_value(written)}; write dollars as a number such as 0.50")


_DURATION = Scalar(
    name="Duration",
    read=parse_duration,
    show=lambda seconds: f"{seconds:g}s",
    words="duration such as `90s`",
    json_type="number",
    pattern=rf"^{_TIME}$",
)
_TIMEOUT = Scalar(
    name="Timeout",
    read=parse_timeout,
    show=_DURATION.show,
    words=_DURATION.words,
    json_type="number",
    pattern=_DURATION.pattern,
)
_SIZE_SCALAR = Scalar(
    name="Size",
    read=parse_size,
    show=str,
    words="size such as `200k`",
    json_type="integer",
    pattern=r"^\d+(\.\d+)?([kKmMgG]([iI][bB])?)?$",
)
_DOLLARS = Scalar(
    name="Dollars", read=parse_dollars, show=str, words="dollars such as `0.50`", json_type="number", pattern=""
)
SCALARS = {scalar.name: scalar for scalar in (_DURATION, _TIMEOUT, _SIZE_SCALAR, _DOLLARS)}

Timeout: TypeAlias = Annotated[float, written_as("Timeout")]
Size: TypeAlias = Annotated[int, written_as("Size")]
Dollars: TypeAlias = Annotated[float, written_as("Dollars")]


def scalar_of(kind: inspect.Type) -> Scalar | None:
    """How values of this type are written, where that is not as they are."""
    if not isinstance(kind, inspect.Metadata):
        return None
    extra = cast("dict[str, str]", kind.extra or {})
    return SCALARS.get(extra.get("scalar", ""))


def bare_type(kind: inspect.Type) -> inspect.Type:
    """The type of a field without its description."""
    return kind.type if isinstance(kind, inspect.Metadata) and not scalar_of(kind) else kind


# --- the tables of a file


Text: TypeAlias = str
Prose: TypeAlias = str  # inline, or `file:` and a path beside the team file
Approval: TypeAlias = bool | Literal["never", "always"] | dict[Text, Condition]
Effects: TypeAlias = Literal["read", "idempotent", "effect"]
Words: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000)]
Names: TypeAlias = tuple[Text, ...]


class FileShape(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a team file that is not declared in Python."""


class DefaultsShape(AttemptKeys, frozen=True, forbid_unknown_fields=True):
    model: Text = ""
    """The model of workers that name none; left out, the supervisor's, else `demo`."""


class AmountShape(FileShape, frozen=True):
    usd: Dollars | None = None
    """Dollars."""
    tokens: Size | None = None
    """Tokens, read and written."""
    calls: Size | None = None
    """Calls of models, and of tools that are paid for."""


class PromptsShape(FileShape, frozen=True):
    plan: Prose = ""
    """Told to the planner."""
    work: Prose = ""
    """Told to a worker, about itself."""
    task: Prose = ""
    """Told to a worker, about its task."""
    refine: Prose = ""
    """Told to the planner, about a task that failed."""
    answer: Prose = ""
    """Instructions for writing the answer."""
    reduce: Prose = ""
    """Instructions for writing it in steps."""
    judge: Prose = ""
    """Instructions for deciding between results."""
    verify: Prose = ""
    """Instructions for reviewing a result."""
    review: Prose = ""
    """Told to a worker who reviews the result of another."""
    make: Prose = ""
    """Instructions for making a worker."""
    summary: Prose = ""
    """Told to a worker, to shorten what it remembers."""
    route: Prose = ""
    """Instructions for choosing a worker (`strategy: route`)."""
    ledger: Prose = ""
    """Instructions for choosing the next step (`strategy: loop`)."""
    speak: Prose = ""
    """Instructions for choosing the next speaker (`strategy: dynamic`)."""
    split: Prose = ""
    """Instructions for splitting what is too big (`strategy: recursive`)."""


class FactoryShape(FactoryKeys, frozen=True, forbid_unknown_fields=True):
    tools: Names = ()
    model: Text = ""


class SupervisorShape(SupervisorKeys, frozen=True, forbid_unknown_fields=True):
    model: Text = ""
    planner: Text = ""
    judge: Text = ""
    strategy: StrategyShape | StrategyName = "plan"
    combine: Combine | None = None
    prompts: PromptsShape = PromptsShape()
    factory: FactoryShape | None = None
    hedge: Hedge | bool = False


class RuleShape(FileShape, frozen=True):
    """Exactly one of them."""

    run_first: Text | None = None
    """This tool is called before any other."""
    exit_loop: Text | None = None
    """After this tool the attempt ends with its result."""
    continue_loop: Text | None = None
    """After this tool the attempt may not end."""
    constrain_child_tools: ConstrainChildTools | None = None
    """Right after one tool only certain others may be called."""
    parent_last_tool: ParentLastTool | None = None
    """A tool is called only right after another."""
    conditional: Conditional | None = None
    """The result of a tool says what must follow."""
    max_count_per_step: MaxCountPerStep | None = None
    """A tool is called at most so often in one step."""
    max_count: MaxCount | None = None
    """A tool is called at most so often in one attempt."""
    required_before_exit: Text | None = None
    """The attempt does not end before this tool was called."""
    requires_approval: Text | None = None
    """A person is asked before this tool is called."""
    requires_approval_when: RequiresApproval | None = None
    """A person is asked before the calls of a tool whose arguments meet conditions."""


class WorkerShape(WorkerKeys, frozen=True, forbid_unknown_fields=True):
    """One with a `team` is another team file, and has nothing of its own to work with."""

    description: Text = ""
    team: Text = ""
    """Another team file, or its folder, from here: that team does its tasks. Beside it only `description`, `tags`,
    `fallbacks`, `concurrency`, `timeout`, `seconds`, `estimate`, `queue`, `skills`, `examples` and `accept`.
    """
    call: Text = ""
    """`module:attribute` of an async function that makes its attempts, in place of a model. Beside it only what may
    stand beside `team`.
    """
    prompt: Prose = ""
    tools: Names = ()
    """Names of `tools`, tools of MCP servers (`mcp:docs/search`, `mcp:docs/*`), tools that the provider of its model
    runs (`provider:web_search`), or those that need no entry:
    `ask_person`, `calculator`, `chart`, `dates`, `sandbox`, the memory tools, and those for messages.
    """
    model: Text = ""
    fallback_models: Names = ()
    output: Prose | dict[str, Any] | None = None
    """A JSON Schema its results must have: inline, or `file:schemas/review.json`."""
    rules: tuple[RuleShape, ...] = ()
    estimate: AmountShape = AmountShape()
    contacts: Names = ()
    replicas: Names = ()


class FetchShape(FileShape, frozen=True):
    allow: tuple[Text, ...] = ()
    """The hosts, such as `[example.com, "*.example.org"]`; left out, all public ones."""


class NothingShape(FileShape, frozen=True):
    """Nothing to set: `{}`, or `true`."""


Nothing: TypeAlias = NothingShape | bool


class ToolSources(FileShape, frozen=True):
    """Where a tool comes from: exactly one of them."""

    python: Text | None = None
    """`module:attribute`, or `file.py:attribute`: a module beside the team file, else an installed one. The attribute
    is a function with types and a docstring, a `Tool`, or a list of them.
    """
    sql: Text | None = None
    """An SQLite file, a CSV file or a folder of CSV files; it can only be read."""
    documents: Text | None = None
    """A folder of texts to search."""
    files: Text | None = None
    """A folder to list and read; brings two tools, `NAME_list_files` and `NAME_read_file`."""
    skills: Text | None = None
    """A folder of skills: folders with a `SKILL.md` that tell a worker how to do something."""
    fetch: FetchShape | None = None
    """Web pages of certain hosts."""
    sandbox: Nothing | None = None
    """Python that a model wrote, walled in."""
    calculator: Nothing | None = None
    """Exact arithmetic."""
    chart: Nothing | None = None
    """A chart as SVG."""
    ask_person: Nothing | None = None
    """A question to the person who made the request; the run waits for the answer."""
    dates: Nothing | None = None
    """Today, days between, and the like; brings several tools."""


class ToolShape(ToolSources, frozen=True):
    """Exactly one source, and what is to be known of the tool besides."""

    effect: Effects | None = None
    """What it does to the world; left out, what the tool says of itself."""
    timeout: Timeout | None = None
    """How long a call may take."""
    cap: Size | None = None
    """How many bytes of a result the model sees; left out, what the tool says, else 16KiB."""
    approve: Approval | None = None
    """Whether a person is asked before each call; `true` is `always`, `false` is `never`. Conditions on arguments, such
    as `{euros: "> 500"}`, ask before calls that meet all of them.
    """
    show_values: dict[Text, tuple[Text, ...]] | None = None
    """Of `sql` only: the columns of which its description shows values, by table, such as `{orders: [status]}`. A model
    reads a description as instructions: name only columns that no outsider writes to.
    """
    embed: Literal["auto", "words"] | None = None
    """Of `documents` only: `auto` (left out, too) compares meanings as well, with the small model on this machine if
    it is there; `words` never does.
    """


class McpServerShape(McpServerKeys, frozen=True, forbid_unknown_fields=True):
    """An MCP server: a `command` or a `url`, and what is to be known of it besides."""


class BlockShape(FileShape, frozen=True):
    value: Prose = ""
    """What stands in it to begin with."""
    description: Text = ""
    """What it is for; shown with the block."""
    limit: Size = LIMIT
    """How many characters it may hold."""
    trusted: bool = False
    """It gives instructions. Text from outside (what a tool returned, what another worker wrote) is refused unless a
    worker's grant says `tainted: true`.
    """
    read_only: bool = False
    """Only people change it."""
    tags: Names = ()
    """Words by which it is found."""
    share: Access = "read"
    """What every worker may do with it, unless its own `blocks` says otherwise."""


class ArchiveShape(FileShape, frozen=True):
    description: Text = ""
    """What it holds; shown to workers that may search it."""
    embed: Text = "auto"
    """What compares meanings: `auto` (the small model on this machine if it is there, else words), `words`,
    `local:minilm`, `local:multilingual`, a handle such as `openai:text-embedding-3-small`, or a server with the
    name of its model: `openai+http://127.0.0.1:8080/v1#name`.
    """
    add: Text = ""
    """A folder, or a file, of texts (`.md`, `.txt`) beside the team file; they are put into it when it is opened, each
    once. At most 2,000 files and 32 MiB.
    """
    tags: Names = ()
    """Words by which it is found."""
    share: Access = "write"
    """What every worker may do with it, unless its own `archives` says otherwise: `read` is to search, `append` and
    `write` to add to it, too.
    """


class MemoryShape(FileShape, frozen=True):
    file: Text = ""
    """Where it is kept, beside the team file; made where it is missing. Left out: `.chargehand/memory.db` where the
    command is typed, and for `load_team` whatever it is given, else this process alone.
    """
    blocks: dict[str, BlockShape | Text] = {}
    """By label: small texts that are always before everybody's eyes. One that is only a text is its value."""
    archives: dict[str, ArchiveShape | Text] = {}
    """By name: large stores of texts that are searched. One that is only a text is its description."""


class VerifierShape(FileShape, frozen=True):
    prompt: Prose = ""
    """What it is told, in the place of ours."""
    model: Text = ""
    """Its model; left out, the `judge`."""


class CheckShape(FileShape, frozen=True):
    """One of python, schema, reviewer and verifier; or as many of the others as must hold together."""

    python: Text | None = None
    """`checks.py:function` beside the team file, or `module:function`: it gets the result and returns `True`, or what
    is wrong.
    """
    schema: Prose | dict[str, Any] | None = None
    """A JSON Schema: inline, or `file:schemas/order.json`."""
    reviewer: Text | None = None
    """A worker of the team who is asked."""
    verifier: VerifierShape | bool | None = None
    """`true`, or settings: a model that looks for mistakes."""
    contains: Text | tuple[Text, ...] | None = None
    """Words that must stand in it."""
    matches: Text | None = None
    """A regular expression that must be found in it."""
    min_words: Words | None = None
    """How many words there must be."""
    max_words: Words | None = None
    """How many there may be."""
    cites: bool | None = None
    """It names a source."""
    has_number: bool | None = None
    """There is a number in it."""


class ScheduleShape(ScheduleKeys, frozen=True, forbid_unknown_fields=True):
    """A request that a server makes at certain times."""


class WebhookShape(WebhookKeys, frozen=True, forbid_unknown_fields=True):
    """An address that a server tells of the runs of the team."""


class TeamShape(FileShape, frozen=True):
    """A whole team file."""

    version: Literal[1]
    """The version of this format."""
    name: Text = "team"
    """What the team is called."""
    description: Text = ""
    """A sentence for people."""
    examples: tuple[Text, ...] = ()
    """Requests that suit the team."""
    defaults: DefaultsShape = DefaultsShape()
    """What holds unless a worker says otherwise."""
    timeout: Timeout | None = None
    """The time a run has, from the request to the answer, such as `5m`; left out, 300 seconds."""
    budget: AmountShape = AmountShape()
    """The most one run may use."""
    store: Text = ""
    """The database of its runs and its memory, as `postgresql://host/name`; left out, files. User and password belong
    into the environment: `PGUSER` and `PGPASSWORD`, or the whole URL as a variable.
    """
    cache: Timeout | None = None
    """For how long another run may use a result again instead of doing the same once more, such as `10m`; left out,
    never. Only for workers whose tools all only read, while they are the same.
    """
    policy: PolicyKeys = PolicyKeys()
    """Retries, breakers, limits and approvals."""
    supervisor: SupervisorShape = SupervisorShape()
    """Who plans, refines and answers."""
    workers: dict[str, WorkerShape | Text] = {}
    """By name: who does the work. One that is only a text is its description."""
    tools: dict[str, ToolShape | Text] = {}
    """By name: what they may use. One that is only a text is `module:attribute`, or the word of a source that needs no
    settings.
    """
    mcp_servers: dict[str, McpServerShape] = {}
    """By name: MCP servers. Workers name their tools as `mcp:NAME/TOOL`, with `*` for several; those that were approved
    stand in `mcp.lock` beside this file (`chargehand mcp pin`).
    """
    memory: MemoryShape | None = None
    """What the team remembers together: blocks and archives."""
    checks: dict[str, CheckShape] = {}
    """By name: what results must pass."""
    schedules: dict[str, ScheduleShape] = {}
    """By name: requests that `chargehand serve` makes at certain times."""
    webhooks: dict[str, WebhookShape] = {}
    """By name: addresses that `chargehand serve` tells of the team's runs."""


SOURCES = ToolSources.__struct_fields__
"""Where a tool may come from: a tool names exactly one."""

PLAIN_SOURCES = tuple(BUILT_IN)
"""Sources that need no settings: a worker may name them without an entry under `tools`."""
CHECK_KINDS = ("python", "schema", "reviewer", "verifier")
"""A check is one of these, or a rule."""


DECLARED: dict[type[Struct], type[Struct]] = {
    FactoryShape: Factory,
    SupervisorShape: Supervisor,
    WorkerShape: Worker,
}
"""What a table of the file declares: a key without a text of its own means what the field of that name means."""
