"""The team file: every key there is, its type, its default and what it means, and how durations and sizes are written.

How a file is read, where a value stands and what becomes of it are not known here.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Annotated, Any, Literal, TypeAlias, cast

from msgspec import Meta, Struct, inspect

from chargehand.agents.hedging import Hedge
from chargehand.agents.strategies import Loop, Recursive, Route, Router
from chargehand.agents.worker import Factory, Worker
from chargehand.memory.blocks import LIMIT
from chargehand.models.known import BUILT_IN
from chargehand.terms.duration import parse_duration, show_value
from chargehand.terms.plan import Combine
from chargehand.terms.policy import Limits, Retry
from chargehand.tools.tool import CAP

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

    @property
    def meta(self) -> Meta:
        return Meta(extra={"scalar": self}, extra_json_schema={"$ref": f"#/$defs/{self.name}"})


_SIZES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)(k|m|g|kib|mib|gib)?", re.IGNORECASE | re.ASCII)
_MAX_SIZE = 10**15
_TIME = r"(\d+(\.\d+)?(ms|s|m|h|d) ?)+"


def parse_span(written: object) -> tuple[float, float]:
    """From the shortest to the longest, in seconds: `1s..20s`, or one duration for both."""
    shortest, dots, longest = written.partition("..") if isinstance(written, str) else (written, "", "")
    low = parse_duration(shortest)
    high = parse_duration(longest) if dots else low
    if high < low:
        raise ValueError(f"is {show_value(written)}; the first duration must not be longer than the second")
    return low, high


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
_SPAN = Scalar(
    name="Span",
    read=parse_span,
    show=lambda span: f"{span[0]:g}s..{span[1]:g}s",
    words="span such as `1s..20s`",
    json_type="number",
    pattern=rf"^{_TIME}(\.\.{_TIME})?$",
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
SCALARS = (_DURATION, _SPAN, _SIZE_SCALAR, _DOLLARS)

Duration: TypeAlias = Annotated[float, _DURATION.meta]
Span: TypeAlias = Annotated[tuple[float, float], _SPAN.meta]
Size: TypeAlias = Annotated[int, _SIZE_SCALAR.meta]
Dollars: TypeAlias = Annotated[float, _DOLLARS.meta]


def scalar_of(kind: inspect.Type) -> Scalar | None:
    """How values of this type are written, where that is not as they are."""
    if not isinstance(kind, inspect.Metadata):
        return None
    extra = cast("dict[str, Scalar]", kind.extra or {})
    return extra.get("scalar")


def bare_type(kind: inspect.Type) -> inspect.Type:
    """The type of a field without its description."""
    return kind.type if isinstance(kind, inspect.Metadata) and not scalar_of(kind) else kind


# --- the tables of a file


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

_WORKER = Worker("")
_RETRY = Retry()
_LIMITS = Limits()
_LOOP = Loop()
_RECURSIVE = Recursive()
_FACTORY = Factory()


def doc(description: str) -> Meta:
    """What a key means."""
    return Meta(description=description)


class Shape(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a team file."""


class RetryShape(Shape, frozen=True):
    attempts: Annotated[Count, doc("how often a task is tried by its worker")] = _RETRY.attempts
    fallback_attempts: Annotated[Count, doc("how often by each fallback")] = _RETRY.fallback_attempts
    backoff: Annotated[Span, doc("the waits in between, from the first ceiling to the highest")] = (
        _RETRY.base,
        _RETRY.ceiling,
    )
    obey_retry_after: Annotated[Duration, doc("the longest wait a provider may ask for")] = _RETRY.obey_retry_after


class DefaultsShape(Shape, frozen=True):
    model: Annotated[
        Text,
        doc(
            f"a handle such as `{BUILT_IN}`, `openai:gpt-5-mini` or `anthropic:claude-sonnet-4-5`; "
            f"left out, the supervisor's, else `{BUILT_IN}`"
        ),
    ] = ""
    timeout: Annotated[Duration, doc("how long an attempt may take")] = parse_duration(_WORKER.timeout)
    retry: Annotated[RetryShape, doc("how often what failed is tried again")] = RetryShape()
    steps: Annotated[Count, doc("how many times a worker may call its model in one attempt")] = _WORKER.steps
    temperature: Annotated[Warmth | None, doc("how free the model is; left out, the provider decides")] = None
    max_tokens: Annotated[
        Size | None,
        doc("the longest reply in tokens, thinking included; left out, it goes by the model and the budget"),
    ] = None


class BudgetShape(Shape, frozen=True):
    usd: Annotated[Dollars | None, doc("dollars; left out, no bound")] = None
    tokens: Annotated[Size | None, doc("tokens; left out, no bound")] = None
    calls: Annotated[Size | None, doc("model calls; left out, no bound")] = None


class HedgeShape(Shape, frozen=True):
    after: Annotated[
        Duration | None, doc("how long is too long; left out, a tenth longer than 95 in 100 of the model's last calls")
    ] = None
    most_usd: Annotated[Dollars | None, doc("what the second call may cost; left out, no more than the first")] = None
    share: Annotated[Half, doc("how many of all calls may be made twice")] = Hedge().share


class PlanShape(Shape, frozen=True):
    max_tasks: Annotated[Count, doc("the most tasks of a plan")] = _LIMITS.tasks
    max_depth: Annotated[Count, doc("the longest chain")] = _LIMITS.depth
    max_nesting: Annotated[
        Count | None,
        doc(
            "how deep teams may be inside each other, counted from the outermost file, whose number holds; "
            f"left out, {_LIMITS.nesting}"
        ),
    ] = None
    approve: Annotated[Approval, doc("whether a person is asked before anything starts")] = "never"


class PromptsShape(Shape, frozen=True):
    plan: Annotated[Prose, doc("told to the planner")] = ""
    work: Annotated[Prose, doc("told to a worker, about itself")] = ""
    task: Annotated[Prose, doc("told to a worker, about its task")] = ""
    refine: Annotated[Prose, doc("told to the planner, about a task that failed")] = ""
    answer: Annotated[Prose, doc("told to whoever writes the answer")] = ""
    reduce: Annotated[Prose, doc("told to whoever writes it in steps")] = ""
    judge: Annotated[Prose, doc("told to whoever decides between results")] = ""
    verify: Annotated[Prose, doc("told to whoever looks for what is wrong with a result")] = ""
    review: Annotated[Prose, doc("told to a worker who reviews the result of another")] = ""
    make: Annotated[Prose, doc("told to whoever makes a worker")] = ""
    summary: Annotated[Prose, doc("told to a worker, to shorten what it remembers")] = ""
    route: Annotated[Prose, doc("told to whoever chooses a worker (`way: route`)")] = ""
    ledger: Annotated[Prose, doc("told to whoever says what comes next (`way: loop`)")] = ""
    speak: Annotated[Prose, doc("told to whoever says who speaks next (`way: dynamic`)")] = ""
    split: Annotated[Prose, doc("told to whoever splits what is too big (`way: recursive`)")] = ""


class RouteShape(Shape, frozen=True):
    router: Annotated[
        Router, doc("how the worker is found; `hybrid` is meaning first, and the model where it is close")
    ] = "auto"
    rules: Annotated[dict[str, Text], doc("phrases and the worker each goes to, tried before all else")] = {}
    secondary: Annotated[bool, doc("the second best gets it too")] = False
    generalist: Annotated[
        Text, doc("the worker for what nobody is meant for; left out, such a request is refused in words")
    ] = ""
    threshold: Annotated[Part | None, doc("how sure it must be; left out, as calibrated")] = None
    samples: Annotated[Samples, doc("how often who is chosen does it, side by side; a judge picks one")] = (
        Route().samples
    )
    learn: Annotated[bool, doc("whether what came of earlier routes shifts later ones, within bounds")] = True
    embed: Annotated[
        Text,
        doc(
            "what compares meanings: `auto` (a small model on this machine if it is there, "
            "`local:multilingual` where workers are not described in English; else words), `words`, "
            "`local:minilm`, `local:multilingual`, or a handle such as `openai:text-embedding-3-small`"
        ),
    ] = "auto"


class LoopShape(Shape, frozen=True):
    most_turns: Annotated[Turns, doc("the most tasks")] = _LOOP.most_turns
    stalls: Annotated[Few, doc("turns without progress before it starts afresh")] = _LOOP.stalls
    fresh_starts: Annotated[Few, doc("how often it may")] = _LOOP.fresh_starts


class BroadcastShape(Shape, frozen=True):
    match_all: Annotated[tuple[Text, ...], doc("tags a worker must have")] = ()
    match_some: Annotated[tuple[Text, ...], doc("tags of which it must have one")] = ()


class TalkShape(Shape, frozen=True):
    most_turns: Annotated[Turns | None, doc("the most turns; left out, one for each worker")] = None
    token: Annotated[
        Text | None, doc("a word that ends the talk when a worker says it; left out, `DONE!` in a `dynamic` talk")
    ] = None


class RecursiveShape(Shape, frozen=True):
    depth: Annotated[Few, doc("how often a part may be split again")] = _RECURSIVE.depth
    breadth: Annotated[Few, doc("into how many parts")] = _RECURSIVE.breadth


class WayShape(Shape, frozen=True):
    """Exactly one of them."""

    route: Annotated[RouteShape | None, doc("one task for the worker that fits best")] = None
    loop: Annotated[LoopShape | None, doc("one task at a time, looking at what came of those before")] = None
    broadcast: Annotated[BroadcastShape | None, doc("the request to everybody with certain tags")] = None
    round_robin: Annotated[TalkShape | None, doc("everybody speaks in turn")] = None
    dynamic: Annotated[TalkShape | None, doc("the supervisor says who speaks next")] = None
    recursive: Annotated[RecursiveShape | None, doc("splitting what is too big, and the parts again")] = None


class SupervisorShape(Shape, frozen=True):
    instructions: Annotated[Prose, doc("what it is told about the team")] = ""
    model: Annotated[Text, doc("its model; left out, that of `defaults`")] = ""
    planner: Annotated[Text, doc("the model that plans and refines; left out, its `model`")] = ""
    judge: Annotated[Text, doc("the model that writes the answer; left out, its `model`")] = ""
    combine: Annotated[Combine | None, doc("how results become one answer; left out, the plan decides")] = None
    stream_plan: Annotated[bool, doc("tasks start while the plan is still being written")] = False
    review: Annotated[bool, doc("the planner sees the results and may add tasks")] = False
    refine: Annotated[bool, doc("a task that failed is put better before it is tried again")] = True
    timeout: Annotated[
        Duration | None, doc("how long one plan, refined task or answer may take; left out, 120 seconds")
    ] = None
    uncertain: Annotated[
        Literal["fail", "ask"],
        doc(
            "what becomes of an effect of which nobody knows whether it happened: the task fails, or a person is asked"
        ),
    ] = "fail"
    tainted_effects: Annotated[
        Literal["ask", "allow"],
        doc(
            "what becomes of an effect that a worker wants who has seen text from outside (results of "
            "tools, inputs, messages): a person is asked, or it is allowed"
        ),
    ] = "ask"
    way: Annotated[
        WayShape | WayName, doc("how the team is led: a name, or a table with one of them and its settings")
    ] = "plan"
    plan: Annotated[PlanShape, doc("bounds for plans, and whether a person approves them")] = PlanShape()
    prompts: Annotated[PromptsShape, doc("texts in the place of ours")] = PromptsShape()


class FallbackShape(Shape, frozen=True):
    models: Annotated[tuple[Text, ...], doc("models to try, in order, when its own does not answer")] = ()
    workers: Annotated[tuple[Text, ...], doc("workers who step in, in order, when it has failed")] = ()


class EstimateShape(Shape, frozen=True):
    usd: Annotated[Dollars | None, doc("dollars, reserved before an attempt")] = None
    tokens: Annotated[Size | None, doc("tokens, reserved too")] = None
    calls: Annotated[Size | None, doc("model calls, reserved too")] = None
    wall: Annotated[Duration | None, doc("how long it takes, for the forecast; left out, no time is forecast")] = None


class ChildrenShape(Shape, frozen=True):
    tool: Annotated[Text, doc("the tool that comes first")]
    children: Annotated[tuple[Text, ...], doc("what may be called right after it")]


class ParentShape(Shape, frozen=True):
    tool: Annotated[Text, doc("the tool that is bound")]
    parent: Annotated[Text, doc("the one it must follow")]


class CasesShape(Shape, frozen=True):
    tool: Annotated[Text, doc("the tool whose result counts")]
    cases: Annotated[dict[str, Text], doc("from a result to the tool that must follow")]
    otherwise: Annotated[Text, doc("the tool that follows any other result; left out, any may")] = ""


class MostShape(Shape, frozen=True):
    tool: Annotated[Text, doc("the tool that is bound")]
    most: Annotated[Count, doc("how often")]


class RuleShape(Shape, frozen=True):
    """Exactly one of them."""

    run_first: Annotated[Text | None, doc("this tool is called before any other")] = None
    exit_loop: Annotated[Text | None, doc("after this tool the attempt ends with its result")] = None
    continue_loop: Annotated[Text | None, doc("after this tool the attempt may not end")] = None
    constrain_child_tools: Annotated[
        ChildrenShape | None, doc("right after one tool only certain others may be called")
    ] = None
    parent_last_tool: Annotated[ParentShape | None, doc("a tool is called only right after another")] = None
    conditional: Annotated[CasesShape | None, doc("the result of a tool says what must follow")] = None
    max_count_per_step: Annotated[MostShape | None, doc("a tool is called at most so often in one step")] = None
    required_before_exit: Annotated[Text | None, doc("the attempt does not end before this tool was called")] = None
    requires_approval: Annotated[Text | None, doc("a person is asked before this tool is called")] = None


class ContactsShape(Shape, frozen=True):
    to: Annotated[tuple[Text, ...], doc("names, tags or everybody, as in the short form")]
    most: Annotated[
        Count | None,
        doc("how many messages it may send for one task; left out, its steps and its money are the only bounds"),
    ] = None


class WorkerShape(Shape, frozen=True):
    """One with a `team` is another team file, and has nothing of its own to work with."""

    description: Annotated[Text, doc("what it does; the planner reads this to hand out tasks")] = ""
    team: Annotated[
        Text,
        doc(
            "another team file, or its folder, from here: that team does its tasks. Beside it only "
            "`description`, `tags`, `fallback` (workers), `concurrency`, `timeout`, `estimate`, "
            "`skills`, `examples` and `accept`"
        ),
    ] = ""
    prompt: Annotated[Prose, doc("what it is told about itself")] = ""
    tags: Annotated[tuple[Text, ...], doc("words by which a plan may ask for somebody")] = ()
    tools: Annotated[
        tuple[Text, ...],
        doc(
            "names of `tools`, or of those that need no entry: `calculator`, `chart`, `dates`, "
            "`sandbox`, the memory tools, and those for messages"
        ),
    ] = ()
    model: Annotated[Text, doc("its own model; left out, that of `defaults`")] = ""
    fallback: Annotated[FallbackShape, doc("who or what steps in when it fails")] = FallbackShape()
    output_schema: Annotated[
        Prose | dict[str, Any] | None, doc("a JSON Schema its results must have: inline, or `file:schemas/review.json`")
    ] = None
    rules: Annotated[
        tuple[RuleShape, ...], doc("what it must call first, last, or never without leave; each entry is one rule")
    ] = ()
    steps: Annotated[Count | None, doc("as in `defaults`")] = None
    concurrency: Annotated[Share, doc("how many tasks it does at once; 0 is as many as the run allows")] = 0
    timeout: Annotated[Duration | None, doc("as in `defaults`")] = None
    estimate: Annotated[EstimateShape, doc("what one attempt is expected to use")] = EstimateShape()
    temperature: Annotated[Warmth | None, doc("as in `defaults`")] = None
    max_tokens: Annotated[Size | None, doc("as in `defaults`")] = None
    remembers: Annotated[bool, doc("it has its earlier tasks before its eyes, across runs")] = False
    may_estimate: Annotated[
        bool, doc("its figures may be its own: what no tool returned counts as its words, not as a gap")
    ] = False
    every: Annotated[
        Count | None,
        doc(
            "after how many turns of the team it works, in the background; it then gets no tasks. Left "
            "out: it works in the turns"
        ),
    ] = None
    skills: Annotated[
        tuple[Text, ...], doc("what it can do, in a few words each; a router compares requests with them")
    ] = ()
    examples: Annotated[
        tuple[Text, ...], doc("requests that were for it; a router compares and, with enough of them, learns")
    ] = ()
    accept: Annotated[tuple[Text, ...], doc("names of `checks` that its results must pass")] = ()
    contacts: Annotated[
        ContactsShape | tuple[Text, ...],
        doc('whom it may write to: names, `"tag:NAME"` for everybody with a tag, `"*"` for everybody; or settings'),
    ] = ()
    replicas: Annotated[
        tuple[Text, ...], doc("models that serve its calls together, each call the least loaded; in place of `model`")
    ] = ()


class FetchShape(Shape, frozen=True):
    allow: Annotated[
        tuple[Text, ...], doc('the hosts, such as `[example.com, "*.example.org"]`; left out, all public ones')
    ] = ()


class NothingShape(Shape, frozen=True):
    """Nothing to set: `{}`, or `true`."""


Nothing: TypeAlias = NothingShape | bool


class ToolShape(Shape, frozen=True):
    """Exactly one source, and what is to be known of the tool besides."""

    python: Annotated[
        Text | None,
        doc(
            "`module:attribute`, or `file.py:attribute`: a module beside the team file, else an "
            "installed one. The attribute is a function with types and a docstring, a `Tool`, or a "
            "function without arguments that says it returns tools (`-> Tool`, `-> list[Tool]`)"
        ),
    ] = None
    sql: Annotated[Text | None, doc("an SQLite file, a CSV file or a folder of CSV files; it can only be read")] = None
    documents: Annotated[Text | None, doc("a folder of texts to search")] = None
    files: Annotated[
        Text | None, doc("a folder to list and read; brings two tools, `NAME_list_files` and `NAME_read_file`")
    ] = None
    fetch: Annotated[FetchShape | None, doc("web pages of certain hosts")] = None
    sandbox: Annotated[Nothing | None, doc("Python that a model wrote, walled in")] = None
    calculator: Annotated[Nothing | None, doc("exact arithmetic")] = None
    chart: Annotated[Nothing | None, doc("a chart as SVG")] = None
    dates: Annotated[Nothing | None, doc("today, days between, and the like; brings several tools")] = None
    effect: Annotated[Effects | None, doc("what it does to the world; left out, what the tool says of itself")] = None
    timeout: Annotated[Duration | None, doc("how long a call may take")] = None
    cap: Annotated[
        Size | None,
        doc(f"how many bytes of a result the model sees; left out, what the tool says, else {CAP // 1024}KiB"),
    ] = None
    approve: Annotated[
        Approval | None, doc("whether a person is asked before each call; `true` is `always`, `false` is `never`")
    ] = None
    embed: Annotated[
        Literal["auto", "words"] | None,
        doc(
            "of `documents` only: `auto` (left out, too) compares meanings as well, with the small model "
            "on this machine if it is there; `words` never does"
        ),
    ] = None


class FactoryShape(Shape, frozen=True):
    tools: Annotated[tuple[Text, ...], doc("all that a made worker may be given")] = ()
    most_tools: Annotated[Count, doc("how many at once")] = _FACTORY.most_tools
    capacity: Annotated[Count, doc("how many made workers at the same time")] = _FACTORY.capacity
    steps: Annotated[Count, doc("how many times one may call its model in one attempt")] = _FACTORY.steps
    model: Annotated[Text, doc("their model; left out, that of `defaults`")] = ""


class BlockShape(Shape, frozen=True):
    """`read`, `append`, `write` and `none` list workers with a grant of their own; see `memory` for `tainted`."""

    value: Annotated[Prose, doc("what stands in it to begin with")] = ""
    description: Annotated[Text, doc("what it is for; whoever sees the block sees this too")] = ""
    limit: Annotated[Size, doc("how many characters it may hold")] = LIMIT
    trusted: Annotated[
        bool,
        doc(
            "it gives instructions. Text from outside (what a tool returned, what another worker wrote) "
            "is refused unless the worker is listed under `tainted`"
        ),
    ] = False
    read_only: Annotated[bool, doc("nobody but people changes it")] = False
    tags: Annotated[Names, doc("words by which it is found")] = ()
    share: Annotated[MemoryAccess, doc("what every worker may do with it; `all` is the same as `read`")] = "read"
    read: Annotated[Names, doc("workers who may only read it, whatever `share` says")] = ()
    append: Annotated[Names, doc("workers who may add lines")] = ()
    write: Annotated[Names, doc("workers who may change anything")] = ()
    none: Annotated[Names, doc("workers who do not see it")] = ()
    tainted: Annotated[Names, doc("workers who may put text from outside into it although it is `trusted`")] = ()


class ArchiveShape(Shape, frozen=True):
    description: Annotated[Text, doc("what it holds; whoever may search it reads this")] = ""
    embed: Annotated[
        Text,
        doc(
            "what compares meanings: `auto` (the small model on this machine if it is there, else "
            "words), `words`, `local:minilm`, `local:multilingual`, a handle such as "
            "`openai:text-embedding-3-small`, or a server with the name of its model: "
            "`openai+http://127.0.0.1:8080/v1#name`"
        ),
    ] = "auto"
    add: Annotated[
        Text,
        doc(
            "a folder, or a file, of texts (`.md`, `.txt`) beside the team file; they are put into it "
            "when it is opened, each once. At most 2,000 files and 32 MiB"
        ),
    ] = ""
    tags: Annotated[Names, doc("words by which it is found")] = ()
    share: Annotated[
        MemoryAccess,
        doc(
            "what every worker may do with it: `read` is to search, `append` and `write` to add to it, "
            "too; `all` is the same as `write`"
        ),
    ] = "write"
    read: Annotated[Names, doc("workers who may only search it")] = ()
    write: Annotated[Names, doc("workers who may add to it")] = ()
    none: Annotated[Names, doc("workers who may not use it")] = ()


class MemoryShape(Shape, frozen=True):
    file: Annotated[
        Text,
        doc(
            "where it is kept, beside the team file; made where it is missing. Left out: "
            "`.chargehand/memory.db` where the command is typed, and for `load_team` whatever it is "
            "given, else this process alone"
        ),
    ] = ""
    blocks: Annotated[
        dict[str, BlockShape | Text],
        doc("by label: small texts that are always before everybody's eyes. One that is only a text is its value"),
    ] = {}
    archives: Annotated[
        dict[str, ArchiveShape | Text],
        doc("by name: large stores of texts that are searched. One that is only a text is its description"),
    ] = {}


class VerifierShape(Shape, frozen=True):
    prompt: Annotated[Prose, doc("what it is told, in the place of ours")] = ""
    model: Annotated[Text, doc("its model; left out, the `judge`")] = ""


class CheckShape(Shape, frozen=True):
    """One of python, schema, reviewer and verifier; or as many of the others as must hold together."""

    python: Annotated[
        Text | None,
        doc(
            "`checks.py:function` beside the team file, or `module:function`: it gets the result and "
            "returns `True`, or what is wrong"
        ),
    ] = None
    schema: Annotated[Prose | dict[str, Any] | None, doc("a JSON Schema: inline, or `file:schemas/order.json`")] = None
    reviewer: Annotated[Text | None, doc("a worker of the team who is asked")] = None
    verifier: Annotated[VerifierShape | bool | None, doc("`true`, or settings: a model that looks for mistakes")] = None
    contains: Annotated[Text | tuple[Text, ...] | None, doc("words that must stand in it")] = None
    matches: Annotated[Text | None, doc("a regular expression that must be found in it")] = None
    at_least_words: Annotated[Words | None, doc("how many words there must be")] = None
    at_most_words: Annotated[Words | None, doc("how many there may be")] = None
    cites: Annotated[bool | None, doc("it names a source")] = None
    has_number: Annotated[bool | None, doc("there is a number in it")] = None


class TeamShape(Shape, frozen=True):
    """A whole team file."""

    version: Annotated[Literal[1], doc("the version of this format")]
    name: Annotated[Text, doc("what the team is called")] = "team"
    description: Annotated[Text, doc("a sentence for people")] = ""
    examples: Annotated[tuple[Text, ...], doc("requests that suit the team")] = ()
    defaults: Annotated[DefaultsShape, doc("what holds unless a worker says otherwise")] = DefaultsShape()
    timeout: Annotated[
        Duration | None, doc("the time a run has, from the request to the answer, such as `5m`; left out, 300 seconds")
    ] = None
    budget: Annotated[BudgetShape, doc("the most one run may use")] = BudgetShape()
    cache: Annotated[
        Duration | None,
        doc(
            "for how long another run may use a result again instead of doing the same once more, such "
            "as `10m`; left out, never. Only for workers whose tools all only read, while they are the "
            "same"
        ),
    ] = None
    hedge: Annotated[
        HedgeShape | bool, doc("`true`, or settings: a worker's call that takes unusually long is made twice")
    ] = False
    supervisor: Annotated[SupervisorShape, doc("who plans, refines and answers")] = SupervisorShape()
    workers: Annotated[
        dict[str, WorkerShape | Text], doc("by name: who does the work. One that is only a text is its description")
    ] = {}
    tools: Annotated[
        dict[str, ToolShape | Text],
        doc(
            "by name: what they may use. One that is only a text is `module:attribute`, or the word of a "
            "source that needs no settings"
        ),
    ] = {}
    factory: Annotated[FactoryShape | None, doc("workers made on the fly; left out, none are")] = None
    memory: Annotated[MemoryShape | None, doc("what the team remembers together: blocks and archives")] = None
    checks: Annotated[dict[str, CheckShape], doc("by name: what results must pass")] = {}


SOURCES = ("python", "sql", "documents", "files", "fetch", "sandbox", "calculator", "chart", "dates")
"""Where a tool may come from: a tool names exactly one."""

PLAIN_SOURCES = ("calculator", "chart", "dates", "sandbox")
"""Sources that need no settings: a worker may name them without an entry under `tools`."""
CHECK_KINDS = ("python", "schema", "reviewer", "verifier")
"""A check is one of these, or a rule."""


LATER = {"mcp_servers": "the use of MCP servers", "expose": "serving a team to other programs"}
"""Sections that a later version will read."""
