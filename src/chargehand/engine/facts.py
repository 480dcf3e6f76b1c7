"""Facts that a note records besides its text. They decide nothing; whoever reads them reads fields, never the text."""

from typing import Literal, TypeAlias

from msgspec import Struct


class _NotedFact(Struct, frozen=True, omit_defaults=True, gc=False):
    pass


class RouteChosen(_NotedFact, frozen=True, tag="route_chosen"):
    """Which workers a request was routed to, and how sure the router is."""

    workers: tuple[str, ...]
    """Who gets it; none: nobody fits."""
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


class NotReviewed(_NotedFact, frozen=True, tag="not_reviewed"):
    """A check could not be made because nobody could be asked; the result stands."""

    check: str
    """Its name."""


NotedFact: TypeAlias = (
    RouteChosen | ModelFellBack | BreakerChanged | StepDiverged | Assumed | ResultAccepted | NotReviewed
)
