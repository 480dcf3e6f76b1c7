"""Facts that are recorded with notes, results and answers, for readers that are programs. They decide nothing."""

from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.engine.budget import Amount


class _NotedFact(Struct, frozen=True, omit_defaults=True, gc=False):
    pass


class RouteChosen(_NotedFact, frozen=True, tag="route_chosen"):
    """Which workers a request was routed to, and how sure the router is."""

    workers: tuple[str, ...]
    """The workers that get it; none: no worker fits."""
    router: str
    """How they were found, such as `rules`, `meaning` or `model`."""
    confidence: float
    """How sure the router is, from 0 to 1."""
    scores: tuple[tuple[str, float], ...] = ()
    """What the best workers scored, the best first."""


class ModelFellBack(_NotedFact, frozen=True, tag="model_fell_back"):
    """A model did not answer, and the next one is asked."""

    failed: str
    """The model that did not answer."""
    model: str
    """The model that is asked in its place."""


class BreakerChanged(_NotedFact, frozen=True, tag="breaker_changed"):
    """A breaker opened, is tried out, or closed."""

    breaker: str
    """Whose it is, such as `worker:bob` or `model:openai:gpt-5`."""
    state: Literal["open", "half-open", "closed"]
    """How it stands now."""


class StepDiverged(_NotedFact, frozen=True, tag="step_diverged"):
    """A resumed attempt asked for something else than it had recorded, so the call was made anew."""

    step: int
    """Which step of the attempt."""


class Assumed(_NotedFact, frozen=True, tag="assumed"):
    """The planner took something for granted that the request does not say."""

    text: str
    """What it assumed, in its words."""


class ResultAccepted(_NotedFact, frozen=True, tag="result_accepted"):
    """Checks accepted the result of a task."""

    checks: tuple[str, ...]
    """Their names."""
    remarks: tuple[str, ...] = ()
    """What a reviewer found worth saying all the same."""


class CheckRefusal(Struct, frozen=True, gc=False):
    """One check that does not accept a result, and why."""

    check: str
    """Its name."""
    problems: tuple[str, ...]
    """What it finds wrong, in words for the worker."""


class ResultRefused(_NotedFact, frozen=True, tag="result_refused"):
    """Checks did not accept the result of an attempt."""

    refusals: tuple[CheckRefusal, ...]
    """Those that do not; none: the same result was refused before, and was not looked at again."""
    sent_back: bool = False
    """The worker gets it back in the same attempt; `false`: the attempt has failed."""


class NotReviewed(_NotedFact, frozen=True, tag="not_reviewed"):
    """A check could not be made because its model could not be asked; the result stands."""

    check: str
    """Its name."""


class ToolsWithheld(_NotedFact, frozen=True, tag="tools_withheld"):
    """A server of tools is not what was approved; what differs stays off until a person approves it."""

    server: str
    """The server, such as `mcp:docs`."""
    changed: tuple[str, ...] = ()
    """Its tools that are not as they were approved."""
    new: tuple[str, ...] = ()
    """Those that were not approved."""
    missing: tuple[str, ...] = ()
    """Approved tools that it does not have any more."""
    identity: tuple[str, ...] = ()
    """What of the server itself changed, such as `command` or `name`: all of its tools stay off."""


class UsageUnknown(_NotedFact, frozen=True, tag="usage_unknown"):
    """What calls used or cost is not known. It counts as nothing; of a model under a cap, as what was reserved."""

    worker: str
    """The worker, or `supervisor`; empty: whoever asks the model."""
    calls: int
    """How many calls; 0: all of this model."""
    unknown: Literal["tokens", "price"]
    """What of them is not known."""
    model: str = ""
    """The model; empty: its name is not known."""


class CallsLost(_NotedFact, frozen=True, tag="calls_lost"):
    """Calls were made and what they used is not known: what is charged for them is an estimate."""

    used: Amount
    """What is charged for them. It is part of what the run has spent."""
    run: str = ""
    """The nested run that made them; empty: this run."""


NotedFact: TypeAlias = (
    RouteChosen
    | ModelFellBack
    | BreakerChanged
    | StepDiverged
    | Assumed
    | ResultAccepted
    | ResultRefused
    | NotReviewed
    | ToolsWithheld
    | UsageUnknown
    | CallsLost
)


Kind = Literal["number", "date", "url", "email", "quotation"]
Origin = Literal["tool", "input", "words", ""]
"""A tool returned it; it was given (request, task, memory); only a worker says it; it stands in nothing of these."""
Conflict = Literal["", "row", "unit"]
"""It stands in the sources, but in another row. `unit`, for another currency, is no longer written."""


class Statement(Struct, frozen=True, omit_defaults=True, gc=False):
    """A figure, an address or a quotation in a result or an answer, and what it rests on."""

    kind: Kind
    """What it is."""
    text: str
    """As it stands there."""
    origin: Origin = ""
    """What it rests on. `words`: only a worker says so; empty: nothing that was looked at."""
    conflict: Conflict = ""
    """It stands in the sources, but in another row."""
    sentence: str = ""
    """Where it is said."""
    cited: tuple[str, ...] = ()
    """The tasks that the sentence cites."""
    elsewhere: tuple[str, ...] = ()
    """Tasks that the sentence does not cite, and whose results have it."""

    @property
    def is_supported(self) -> bool:
        return self.origin in ("tool", "input")


class Citation(Struct, frozen=True, omit_defaults=True, gc=False):
    """A citation by the provider of a model: which part of a text rests on what. It is the provider's word."""

    source: str
    """The name of the file, or the title of the page."""
    text: str = ""
    """What it cites from there; empty: the provider does not say."""
    claim: str = ""
    """The part of the reply that rests on it; empty: the provider does not say."""
    url: str = ""
    """The address of the page; empty: it is a file."""
    page: int = 0
    """The first page in the file, counted from 1; 0: it has no pages, or they are not named."""
    last_page: int = 0
    """The last page; 0 like `page`."""
    confirmed: bool = False
    """The cited text was found in a file or in a tool's result that the worker was given."""


class Tracing(Struct, frozen=True, omit_defaults=True, gc=False):
    """How many figures of a result were returned by `tools`, which were `given`, and what is left.

    `sent_back`: it was returned to its worker once because of what could not be traced. `unread`: there was more
    material than is looked at, so nothing was traced.
    """

    tools: int = 0
    """How many figures tools returned, or follow from what they returned."""
    given: tuple[str, ...] = ()
    """Those that stand in the request, the task, memory or a traced input, as often as they are said."""
    untraced: tuple[Statement, ...] = ()
    """Those of neither kind."""
    sent_back: bool = False
    """The result went back to its worker once."""
    unread: bool = False
    """There was more material than is looked at: nothing was traced."""
    citations: tuple[Citation, ...] = ()
    """What the provider of the model cites for the result. None of it counts as traced."""


class Contradiction(Struct, frozen=True, gc=False):
    """Results that say different things of the same."""

    about: str
    """What they speak of."""
    values: tuple[tuple[str, str], ...]
    """Each task with what its result says, in the order of the results."""


class Ruling(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a judge ruled."""

    winner: str
    """The task whose result holds; empty: the judge could not tell."""
    why: str
    """The reason, in the judge's words."""
    ruling: str = ""
    """What holds, in the judge's words."""
    agree: tuple[str, ...] = ()
    """The tasks whose results say what the winner's says."""


class SettledContradiction(Struct, frozen=True, omit_defaults=True, gc=False):
    """A contradiction and the ruling on it."""

    contradiction: Contradiction
    """What was found."""
    ruling: Ruling | None = None
    """What a judge ruled; `null`: there is no ruling."""

    @property
    def winner(self) -> str:
        return self.ruling.winner if self.ruling is not None else ""


class AnswerAudit(Struct, frozen=True, omit_defaults=True, gc=False):
    """What was found when an answer was checked against the results."""

    statements: tuple[Statement, ...] = ()
    """Its numbers, dates, addresses and quotations, and what each rests on."""
    contradictions: tuple[SettledContradiction, ...] = ()
    """Where the results contradict each other."""
    unused: tuple[str, ...] = ()
    """Results that it does not cite."""
