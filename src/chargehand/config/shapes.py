"""The shapes of a team file: every key there is, its type, its default and what it means.

How a file is read, where a value stands and what becomes of it are not known here.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field, inspect

from chargehand.agents.strategies import Router
from chargehand.config.scalars import Dollars, Duration, Size, Span, dollars, duration, size, span
from chargehand.models.known import BUILT_IN
from chargehand.terms.plan import Combine

Text: TypeAlias = str
Prose: TypeAlias = str  # inline, or `file:` and a path beside the team file
Count: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
Share: TypeAlias = Annotated[int, Meta(ge=0, le=10_000)]
Warmth: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
Half: TypeAlias = Annotated[float, Meta(ge=0, le=0.5)]
Approval: TypeAlias = bool | Literal["never", "always"]
Effects: TypeAlias = Literal["read", "idempotent", "effect"]
Words: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000)]
Names: TypeAlias = tuple[Text, ...]
MemoryAccess: TypeAlias = Literal["all", "none", "read", "append", "write"]
Turns: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
Few: TypeAlias = Annotated[int, Meta(ge=0, le=10)]
Samples: TypeAlias = Annotated[int, Meta(ge=1, le=10)]
Part: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
WayName: TypeAlias = Literal["plan", "route", "loop", "broadcast", "round_robin", "dynamic", "recursive"]


class RetryShape(Struct, frozen=True, forbid_unknown_fields=True):
    attempts: Annotated[Count | None, Meta(description="how often a task is tried by its worker")] = None
    fallback_attempts: Annotated[Count | None, Meta(description="how often by each fallback")] = None
    backoff: Annotated[
        Span | None,
        Meta(description="the waits in between, from the first ceiling to the highest"),
    ] = None
    obey_retry_after: Annotated[Duration | None, Meta(description="the longest wait a provider may ask for")] = None


class DefaultsShape(Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[
        Text,
        Meta(description=f"a handle such as `{BUILT_IN}`, `openai:gpt-5-mini` or `anthropic:claude-sonnet-4-5`"),
    ] = ""
    timeout: Annotated[Duration | None, Meta(description="how long an attempt may take")] = None
    retry: Annotated[RetryShape, Meta(description="how often what failed is tried again")] = RetryShape()
    steps: Annotated[Count | None, Meta(description="how many times a worker may call its model in one attempt")] = None
    temperature: Annotated[
        Warmth | None,
        Meta(description="how free the model is; left out, the provider decides"),
    ] = None
    max_tokens: Annotated[
        Size | None,
        Meta(
            description="the longest reply in tokens, thinking included; left out, it goes by the model and the budget"
        ),
    ] = None


class BudgetShape(Struct, frozen=True, forbid_unknown_fields=True):
    usd: Annotated[Dollars | None, Meta(description="dollars; left out, no bound")] = None
    tokens: Annotated[Size | None, Meta(description="tokens; left out, no bound")] = None
    calls: Annotated[Size | None, Meta(description="model calls; left out, no bound")] = None


class HedgeShape(Struct, frozen=True, forbid_unknown_fields=True):
    after: Annotated[
        Duration | None,
        Meta(description="how long is too long; left out, a tenth longer than 95 in 100 of the model's last calls"),
    ] = None
    most_usd: Annotated[
        Dollars | None,
        Meta(description="what the second call may cost; left out, no more than the first"),
    ] = None
    share: Annotated[Half | None, Meta(description="how many of all calls may be made twice")] = None


class PlanShape(Struct, frozen=True, forbid_unknown_fields=True):
    max_tasks: Annotated[Count | None, Meta(description="the most tasks of a plan")] = None
    max_depth: Annotated[Count | None, Meta(description="the longest chain")] = None
    max_nesting: Annotated[
        Count | None,
        Meta(
            description="how deep teams may be inside each other, counted from the outermost file, whose number holds"
        ),
    ] = None
    approve: Annotated[Approval, Meta(description="whether a person is asked before anything starts")] = "never"


class PromptsShape(Struct, frozen=True, forbid_unknown_fields=True):
    plan: Annotated[Prose, Meta(description="told to the planner")] = ""
    work: Annotated[Prose, Meta(description="told to a worker, about itself")] = ""
    task: Annotated[Prose, Meta(description="told to a worker, about its task")] = ""
    refine: Annotated[Prose, Meta(description="told to the planner, about a task that failed")] = ""
    answer: Annotated[Prose, Meta(description="told to whoever writes the answer")] = ""
    reduce: Annotated[Prose, Meta(description="told to whoever writes it in steps")] = ""
    judge: Annotated[Prose, Meta(description="told to whoever decides between results")] = ""
    verify: Annotated[Prose, Meta(description="told to whoever looks for what is wrong with a result")] = ""
    review: Annotated[Prose, Meta(description="told to a worker who reviews the result of another")] = ""
    make: Annotated[Prose, Meta(description="told to whoever makes a worker")] = ""
    summary: Annotated[Prose, Meta(description="told to a worker, to shorten what it remembers")] = ""
    route: Annotated[Prose, Meta(description="told to whoever chooses a worker (`way: route`)")] = ""
    ledger: Annotated[Prose, Meta(description="told to whoever says what comes next (`way: loop`)")] = ""
    speak: Annotated[Prose, Meta(description="told to whoever says who speaks next (`way: dynamic`)")] = ""
    split: Annotated[Prose, Meta(description="told to whoever splits what is too big (`way: recursive`)")] = ""


class RouteShape(Struct, frozen=True, forbid_unknown_fields=True):
    router: Annotated[
        Router,
        Meta(description="how the worker is found; `hybrid` is meaning first, and the model where it is close"),
    ] = "auto"
    rules: Annotated[
        dict[str, Text],
        Meta(description="phrases and the worker each goes to, tried before all else"),
    ] = field(default_factory=dict[str, Text])
    secondary: Annotated[bool, Meta(description="the second best gets it too")] = False
    generalist: Annotated[
        Text,
        Meta(description="the worker for what nobody is meant for; left out, such a request is refused in words"),
    ] = ""
    threshold: Annotated[Part | None, Meta(description="how sure it must be; left out, as calibrated")] = None
    samples: Annotated[
        Samples | None,
        Meta(description="how often who is chosen does it, side by side; a judge picks one"),
    ] = None
    learn: Annotated[
        bool,
        Meta(description="whether what came of earlier routes shifts later ones, within bounds"),
    ] = True
    embed: Annotated[
        Text,
        Meta(
            description="what compares meanings: `auto` (a small model on this machine if it is there, "
            "`local:multilingual` where workers are not described in English; else words), `words`, "
            "`local:minilm`, `local:multilingual`, or a handle such as `openai:text-embedding-3-small`"
        ),
    ] = "auto"


class LoopShape(Struct, frozen=True, forbid_unknown_fields=True):
    most_turns: Annotated[Turns | None, Meta(description="the most tasks")] = None
    stalls: Annotated[Few | None, Meta(description="turns without progress before it starts afresh")] = None
    fresh_starts: Annotated[Few | None, Meta(description="how often it may")] = None


class BroadcastShape(Struct, frozen=True, forbid_unknown_fields=True):
    match_all: Annotated[tuple[Text, ...], Meta(description="tags a worker must have")] = ()
    match_some: Annotated[tuple[Text, ...], Meta(description="tags of which it must have one")] = ()


class TalkShape(Struct, frozen=True, forbid_unknown_fields=True):
    most_turns: Annotated[Turns | None, Meta(description="the most turns; left out, one for each worker")] = None
    token: Annotated[Text | None, Meta(description="a word that ends the talk when a worker says it")] = None


class RecursiveShape(Struct, frozen=True, forbid_unknown_fields=True):
    depth: Annotated[Few | None, Meta(description="how often a part may be split again")] = None
    breadth: Annotated[Few | None, Meta(description="into how many parts")] = None


class WayShape(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of them."""

    route: Annotated[RouteShape | None, Meta(description="one task for the worker that fits best")] = None
    loop: Annotated[
        LoopShape | None,
        Meta(description="one task at a time, looking at what came of those before"),
    ] = None
    broadcast: Annotated[BroadcastShape | None, Meta(description="the request to everybody with certain tags")] = None
    round_robin: Annotated[TalkShape | None, Meta(description="everybody speaks in turn")] = None
    dynamic: Annotated[TalkShape | None, Meta(description="the supervisor says who speaks next")] = None
    recursive: Annotated[
        RecursiveShape | None,
        Meta(description="splitting what is too big, and the parts again"),
    ] = None


class SupervisorShape(Struct, frozen=True, forbid_unknown_fields=True):
    instructions: Annotated[Prose, Meta(description="what it is told about the team")] = ""
    model: Annotated[Text, Meta(description="its model; left out, that of `defaults`")] = ""
    planner: Annotated[Text, Meta(description="the model that plans and refines; left out, its `model`")] = ""
    judge: Annotated[Text, Meta(description="the model that writes the answer; left out, its `model`")] = ""
    combine: Annotated[
        Combine | None,
        Meta(description="how results become one answer; left out, the plan decides"),
    ] = None
    stream_plan: Annotated[bool, Meta(description="tasks start while the plan is still being written")] = False
    review: Annotated[bool, Meta(description="the planner sees the results and may add tasks")] = False
    refine: Annotated[bool, Meta(description="a task that failed is put better before it is tried again")] = True
    timeout: Annotated[
        Duration | None,
        Meta(description="how long one plan, refined task or answer may take; left out, 120 seconds"),
    ] = None
    uncertain: Annotated[
        Literal["fail", "ask"],
        Meta(
            description="what becomes of an effect of which nobody knows whether it happened: the task fails, or a "
            "person is asked"
        ),
    ] = "fail"
    tainted_effects: Annotated[
        Literal["ask", "allow"],
        Meta(
            description="what becomes of an effect that a worker wants who has seen text from outside (results of "
            "tools, inputs, messages): a person is asked, or it is allowed"
        ),
    ] = "ask"
    way: Annotated[
        WayShape | WayName,
        Meta(description="how the team is led: a name, or a table with one of them and its settings"),
    ] = "plan"
    plan: Annotated[PlanShape, Meta(description="bounds for plans, and whether a person approves them")] = PlanShape()
    prompts: Annotated[PromptsShape, Meta(description="texts in the place of ours")] = PromptsShape()


class FallbackShape(Struct, frozen=True, forbid_unknown_fields=True):
    models: Annotated[tuple[Text, ...], Meta(description="models to try, in order, when its own does not answer")] = ()
    workers: Annotated[tuple[Text, ...], Meta(description="workers who step in, in order, when it has failed")] = ()


class EstimateShape(Struct, frozen=True, forbid_unknown_fields=True):
    usd: Annotated[Dollars | None, Meta(description="dollars, reserved before an attempt")] = None
    tokens: Annotated[Size | None, Meta(description="tokens, reserved too")] = None
    calls: Annotated[Size | None, Meta(description="model calls, reserved too")] = None
    wall: Annotated[
        Duration | None,
        Meta(description="how long it takes, for the forecast; left out, no time is forecast"),
    ] = None


class ChildrenShape(Struct, frozen=True, forbid_unknown_fields=True):
    tool: Annotated[Text, Meta(description="the tool that comes first")]
    children: Annotated[tuple[Text, ...], Meta(description="what may be called right after it")]


class ParentShape(Struct, frozen=True, forbid_unknown_fields=True):
    tool: Annotated[Text, Meta(description="the tool that is bound")]
    parent: Annotated[Text, Meta(description="the one it must follow")]


class CasesShape(Struct, frozen=True, forbid_unknown_fields=True):
    tool: Annotated[Text, Meta(description="the tool whose result counts")]
    cases: Annotated[dict[str, Text], Meta(description="from a result to the tool that must follow")]
    otherwise: Annotated[Text, Meta(description="the tool that follows any other result; left out, any may")] = ""


class MostShape(Struct, frozen=True, forbid_unknown_fields=True):
    tool: Annotated[Text, Meta(description="the tool that is bound")]
    most: Annotated[Count, Meta(description="how often")]


class RuleShape(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of them."""

    run_first: Annotated[Text | None, Meta(description="this tool is called before any other")] = None
    exit_loop: Annotated[Text | None, Meta(description="after this tool the attempt ends with its result")] = None
    continue_loop: Annotated[Text | None, Meta(description="after this tool the attempt may not end")] = None
    constrain_child_tools: Annotated[
        ChildrenShape | None,
        Meta(description="right after one tool only certain others may be called"),
    ] = None
    parent_last_tool: Annotated[
        ParentShape | None,
        Meta(description="a tool is called only right after another"),
    ] = None
    conditional: Annotated[CasesShape | None, Meta(description="the result of a tool says what must follow")] = None
    max_count_per_step: Annotated[
        MostShape | None,
        Meta(description="a tool is called at most so often in one step"),
    ] = None
    required_before_exit: Annotated[
        Text | None,
        Meta(description="the attempt does not end before this tool was called"),
    ] = None
    requires_approval: Annotated[Text | None, Meta(description="a person is asked before this tool is called")] = None


class ContactsShape(Struct, frozen=True, forbid_unknown_fields=True):
    to: Annotated[tuple[Text, ...], Meta(description="names, tags or everybody, as in the short form")]
    most: Annotated[
        Count | None,
        Meta(
            description="how many messages it may send for one task; left out, its steps and its money are the only "
            "bounds"
        ),
    ] = None


class WorkerShape(Struct, frozen=True, forbid_unknown_fields=True):
    """One with a `team` is another team file, and has nothing of its own to work with."""

    description: Annotated[Text, Meta(description="what it does; the planner reads this to hand out tasks")] = ""
    team: Annotated[
        Text,
        Meta(
            description="another team file, or its folder, from here: that team does its tasks. Beside it only "
            "`description`, `tags`, `fallback` (workers), `concurrency`, `timeout`, `estimate`, "
            "`skills`, `examples` and `accept`"
        ),
    ] = ""
    prompt: Annotated[Prose, Meta(description="what it is told about itself")] = ""
    tags: Annotated[tuple[Text, ...], Meta(description="words by which a plan may ask for somebody")] = ()
    tools: Annotated[
        tuple[Text, ...],
        Meta(
            description="names of `tools`, or of those that need no entry: `calculator`, `chart`, `dates`, "
            "`sandbox`, the memory tools, and those for messages"
        ),
    ] = ()
    model: Annotated[Text, Meta(description="its own model; left out, that of `defaults`")] = ""
    fallback: Annotated[FallbackShape, Meta(description="who or what steps in when it fails")] = FallbackShape()
    output_schema: Annotated[
        Prose | dict[str, Any] | None,
        Meta(description="a JSON Schema its results must have: inline, or `file:schemas/review.json`"),
    ] = None
    rules: Annotated[
        tuple[RuleShape, ...],
        Meta(description="what it must call first, last, or never without leave; each entry is one rule"),
    ] = ()
    steps: Annotated[Count | None, Meta(description="as in `defaults`")] = None
    concurrency: Annotated[
        Share,
        Meta(description="how many tasks it does at once; 0 is as many as the run allows"),
    ] = 0
    timeout: Annotated[Duration | None, Meta(description="as in `defaults`")] = None
    estimate: Annotated[EstimateShape, Meta(description="what one attempt is expected to use")] = EstimateShape()
    temperature: Annotated[Warmth | None, Meta(description="as in `defaults`")] = None
    max_tokens: Annotated[Size | None, Meta(description="as in `defaults`")] = None
    remembers: Annotated[bool, Meta(description="it has its earlier tasks before its eyes, across runs")] = False
    may_estimate: Annotated[
        bool,
        Meta(description="its figures may be its own: what no tool returned counts as its words, not as a gap"),
    ] = False
    every: Annotated[
        Count | None,
        Meta(
            description="after how many turns of the team it works, in the background; it then gets no tasks. Left "
            "out: it works in the turns"
        ),
    ] = None
    skills: Annotated[
        tuple[Text, ...],
        Meta(description="what it can do, in a few words each; a router compares requests with them"),
    ] = ()
    examples: Annotated[
        tuple[Text, ...],
        Meta(description="requests that were for it; a router compares and, with enough of them, learns"),
    ] = ()
    accept: Annotated[tuple[Text, ...], Meta(description="names of `checks` that its results must pass")] = ()
    contacts: Annotated[
        ContactsShape | tuple[Text, ...],
        Meta(
            description='whom it may write to: names, `"tag:NAME"` for everybody with a tag, `"*"` for everybody; or '
            "settings"
        ),
    ] = ()
    replicas: Annotated[
        tuple[Text, ...],
        Meta(description="models that serve its calls together, each call the least loaded; in place of `model`"),
    ] = ()


class FetchShape(Struct, frozen=True, forbid_unknown_fields=True):
    allow: Annotated[
        tuple[Text, ...],
        Meta(description='the hosts, such as `[example.com, "*.example.org"]`; left out, all public ones'),
    ] = ()


class NothingShape(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to set: `{}`, or `true`."""


Nothing: TypeAlias = NothingShape | bool


class ToolShape(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one source, and what is to be known of the tool besides."""

    python: Annotated[
        Text | None,
        Meta(
            description="`module:attribute`, or `file.py:attribute`: a module beside the team file, else an "
            "installed one. The attribute is a function with types and a docstring, a `Tool`, or a "
            "function without arguments that says it returns tools (`-> Tool`, `-> list[Tool]`)"
        ),
    ] = None
    sql: Annotated[
        Text | None,
        Meta(description="an SQLite file, a CSV file or a folder of CSV files; it can only be read"),
    ] = None
    documents: Annotated[Text | None, Meta(description="a folder of texts to search")] = None
    files: Annotated[
        Text | None,
        Meta(description="a folder to list and read; brings two tools, `NAME_list_files` and `NAME_read_file`"),
    ] = None
    fetch: Annotated[FetchShape | None, Meta(description="web pages of certain hosts")] = None
    sandbox: Annotated[Nothing | None, Meta(description="Python that a model wrote, walled in")] = None
    calculator: Annotated[Nothing | None, Meta(description="exact arithmetic")] = None
    chart: Annotated[Nothing | None, Meta(description="a chart as SVG")] = None
    dates: Annotated[Nothing | None, Meta(description="today, days between, and the like; brings several tools")] = None
    effect: Annotated[
        Effects | None,
        Meta(description="what it does to the world; left out, what the tool says of itself"),
    ] = None
    side_effects: Annotated[Effects | None, Meta(description="another word for `effect`")] = None
    timeout: Annotated[Duration | None, Meta(description="how long a call may take")] = None
    cap: Annotated[Size | None, Meta(description="how many bytes of a result the model sees")] = None
    approve: Annotated[
        Approval | None,
        Meta(description="whether a person is asked before each call; `true` is `always`, `false` is `never`"),
    ] = None
    embed: Annotated[
        Literal["auto", "words"] | None,
        Meta(
            description="of `documents` only: `auto` (left out, too) compares meanings as well, with the small model "
            "on this machine if it is there; `words` never does"
        ),
    ] = None


class FactoryShape(Struct, frozen=True, forbid_unknown_fields=True):
    tools: Annotated[tuple[Text, ...], Meta(description="all that a made worker may be given")] = ()
    most_tools: Annotated[Count | None, Meta(description="how many at once")] = None
    capacity: Annotated[Count | None, Meta(description="how many made workers at the same time")] = None
    steps: Annotated[Count | None, Meta(description="how many times one may call its model in one attempt")] = None
    model: Annotated[Text, Meta(description="their model; left out, that of `defaults`")] = ""


class BlockShape(Struct, frozen=True, forbid_unknown_fields=True):
    """`read`, `append`, `write` and `none` list workers with a grant of their own; see `memory` for `tainted`."""

    value: Annotated[Prose, Meta(description="what stands in it to begin with")] = ""
    description: Annotated[Text, Meta(description="what it is for; whoever sees the block sees this too")] = ""
    limit: Annotated[Size | None, Meta(description="how many characters it may hold")] = None
    trusted: Annotated[
        bool,
        Meta(
            description="it gives instructions. Text from outside (what a tool returned, what another worker wrote) "
            "is refused unless the worker is listed under `tainted`"
        ),
    ] = False
    read_only: Annotated[bool, Meta(description="nobody but people changes it")] = False
    tags: Annotated[Names, Meta(description="words by which it is found")] = ()
    share: Annotated[
        MemoryAccess,
        Meta(description="what every worker may do with it; `all` is the same as `read`"),
    ] = "read"
    read: Annotated[Names, Meta(description="workers who may only read it, whatever `share` says")] = ()
    append: Annotated[Names, Meta(description="workers who may add lines")] = ()
    write: Annotated[Names, Meta(description="workers who may change anything")] = ()
    none: Annotated[Names, Meta(description="workers who do not see it")] = ()
    tainted: Annotated[
        Names,
        Meta(description="workers who may put text from outside into it although it is `trusted`"),
    ] = ()


class ArchiveShape(Struct, frozen=True, forbid_unknown_fields=True):
    description: Annotated[Text, Meta(description="what it holds; whoever may search it reads this")] = ""
    embed: Annotated[
        Text,
        Meta(
            description="what compares meanings: `auto` (the small model on this machine if it is there, else "
            "words), `words`, `local:minilm`, `local:multilingual`, a handle such as "
            "`openai:text-embedding-3-small`, or a server with the name of its model: "
            "`openai+http://127.0.0.1:8080/v1#name`"
        ),
    ] = "auto"
    add: Annotated[
        Text,
        Meta(
            description="a folder, or a file, of texts (`.md`, `.txt`) beside the team file; they are put into it "
            "when it is opened, each once. At most 2,000 files and 32 MiB"
        ),
    ] = ""
    tags: Annotated[Names, Meta(description="words by which it is found")] = ()
    share: Annotated[
        MemoryAccess,
        Meta(
            description="what every worker may do with it: `read` is to search, `append` and `write` to add to it, "
            "too; `all` is the same as `write`"
        ),
    ] = "write"
    read: Annotated[Names, Meta(description="workers who may only search it")] = ()
    write: Annotated[Names, Meta(description="workers who may add to it")] = ()
    none: Annotated[Names, Meta(description="workers who may not use it")] = ()


class MemoryShape(Struct, frozen=True, forbid_unknown_fields=True):
    file: Annotated[
        Text,
        Meta(
            description="where it is kept, beside the team file; made where it is missing. Left out: "
            "`.chargehand/memory.db` where the command is typed, and for `load_team` whatever it is "
            "given, else this process alone"
        ),
    ] = ""
    blocks: Annotated[
        dict[str, BlockShape | Text],
        Meta(
            description="by label: small texts that are always before everybody's eyes. One that is only a text is "
            "its value"
        ),
    ] = field(default_factory=dict[str, BlockShape | Text])
    archives: Annotated[
        dict[str, ArchiveShape | Text],
        Meta(
            description="by name: large stores of texts that are searched. One that is only a text is its description"
        ),
    ] = field(default_factory=dict[str, ArchiveShape | Text])


class VerifierShape(Struct, frozen=True, forbid_unknown_fields=True):
    prompt: Annotated[Prose, Meta(description="what it is told, in the place of ours")] = ""
    model: Annotated[Text, Meta(description="its model; left out, the `judge`")] = ""


class CheckShape(Struct, frozen=True, forbid_unknown_fields=True):
    """One of python, schema, reviewer and verifier; or as many of the others as must hold together."""

    python: Annotated[
        Text | None,
        Meta(
            description="`checks.py:function` beside the team file, or `module:function`: it gets the result and "
            "returns `True`, or what is wrong"
        ),
    ] = None
    schema: Annotated[
        Prose | dict[str, Any] | None,
        Meta(description="a JSON Schema: inline, or `file:schemas/order.json`"),
    ] = None
    reviewer: Annotated[Text | None, Meta(description="a worker of the team who is asked")] = None
    verifier: Annotated[
        VerifierShape | bool | None,
        Meta(description="`true`, or settings: a model that looks for mistakes"),
    ] = None
    contains: Annotated[Text | tuple[Text, ...] | None, Meta(description="words that must stand in it")] = None
    matches: Annotated[Text | None, Meta(description="a regular expression that must be found in it")] = None
    at_least_words: Annotated[Words | None, Meta(description="how many words there must be")] = None
    at_most_words: Annotated[Words | None, Meta(description="how many there may be")] = None
    cites: Annotated[bool | None, Meta(description="it names a source")] = None
    has_number: Annotated[bool | None, Meta(description="there is a number in it")] = None


class TeamShape(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole team file."""

    version: Annotated[Literal[1], Meta(description="the version of this format")]
    name: Annotated[Text, Meta(description="what the team is called")] = "team"
    description: Annotated[Text, Meta(description="a sentence for people")] = ""
    examples: Annotated[tuple[Text, ...], Meta(description="requests that suit the team")] = ()
    defaults: Annotated[DefaultsShape, Meta(description="what holds unless a worker says otherwise")] = DefaultsShape()
    timeout: Annotated[
        Duration | None,
        Meta(description="the time a run has, from the request to the answer, such as `5m`"),
    ] = None
    budget: Annotated[BudgetShape, Meta(description="the most one run may use")] = BudgetShape()
    cache: Annotated[
        Duration | None,
        Meta(
            description="for how long another run may use a result again instead of doing the same once more, such "
            "as `10m`; left out, never. Only for workers whose tools all only read, while they are the "
            "same"
        ),
    ] = None
    hedge: Annotated[
        HedgeShape | bool,
        Meta(description="`true`, or settings: a worker's call that takes unusually long is made twice"),
    ] = False
    supervisor: Annotated[SupervisorShape, Meta(description="who plans, refines and answers")] = SupervisorShape()
    workers: Annotated[
        dict[str, WorkerShape | Text],
        Meta(description="by name: who does the work. One that is only a text is its description"),
    ] = field(default_factory=dict[str, WorkerShape | Text])
    tools: Annotated[
        dict[str, ToolShape | Text],
        Meta(
            description="by name: what they may use. One that is only a text is `module:attribute`, or the word of a "
            "source that needs no settings"
        ),
    ] = field(default_factory=dict[str, ToolShape | Text])
    factory: Annotated[FactoryShape | None, Meta(description="workers made on the fly; left out, none are")] = None
    memory: Annotated[
        MemoryShape | None,
        Meta(description="what the team remembers together: blocks and archives"),
    ] = None
    checks: Annotated[
        dict[str, CheckShape],
        Meta(description="by name: what results must pass"),
    ] = field(default_factory=dict[str, CheckShape])


SOURCES = ("python", "sql", "documents", "files", "fetch", "sandbox", "calculator", "chart", "dates")
"""Where a tool may come from: a tool names exactly one."""

PLAIN_SOURCES = ("calculator", "chart", "dates", "sandbox")
"""Sources that need no settings: a worker may name them without an entry under `tools`."""
CHECK_KINDS = ("python", "schema", "reviewer", "verifier")
"""A check is one of these, or a rule."""


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


def bare_type(kind: inspect.Type) -> inspect.Type:
    """The type of a field without its description."""
    return kind.type if isinstance(kind, inspect.Metadata) else kind
