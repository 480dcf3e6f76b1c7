"""The one thing a model can be asked, and how it fails."""

from math import ceil
from typing import Protocol, runtime_checkable

from chargehand.code_errors import failure_of
from chargehand.engine.declared import Declared
from chargehand.engine.events import Failure
from chargehand.engine.state import TextKind
from chargehand.models.messages import Reply, Request, Usage, thought_text


class Hear(Protocol):
    """Is told the text of a reply piece by piece as it comes."""

    def __call__(self, text: str, kind: TextKind = "answer", /) -> None: ...


def tell_whole(reply: Reply, hear: Hear) -> None:
    """Tell a reply that came in one piece: what the model thought, then what it says."""
    if thought := thought_text(reply.kept):
        hear(thought, "thought")
    if reply.text:
        hear(reply.text)


class ModelCard(Declared, frozen=True):
    """What is known of a model. Prices are in millionths of a dollar, and None where they are not known."""

    handle: str
    window: int = 128_000
    """How many tokens it reads."""
    native_tools: bool = True
    """Whether it calls tools by itself; else it is given a schema of actions."""
    schema: bool = True
    """Whether a reply can be held to a JSON Schema."""
    images: bool = False
    """Whether it can be shown pictures."""
    notice: str = ""
    """What people must know about its answers, for example that no language model was asked."""
    micros_in: float | None = None
    """For a token it reads."""
    micros_out: float | None = None
    """For a token it writes."""
    micros_cached: float | None = None
    """For a token it reads again from the provider's cache."""
    micros_call: int = 0
    """For each call besides."""
    dearer: tuple[tuple[int, float, float, float], ...] = ()
    """For a token it reads, writes and reads again, in calls that read more than so many tokens."""
    max_tokens: int = 0
    """How many tokens it writes at most, thinking included; 0 where that is not known."""
    keeps_limit: bool = False
    """Whether it never writes more than a request's `max_tokens`; else calls under a cap start slowly."""
    in_process: bool = False
    """Whether it runs in this process, so that a second call only takes time from the first."""
    free: bool = False
    """Whether its calls cost nothing."""
    reads_facts: bool = False
    """Whether it works from the facts of a request and reads no instructions, so that it repeats itself when told."""

    def price(self, tokens_in: int, tokens_out: int, tokens_cached: int = 0) -> int | None:
        """Millionths of a dollar for so many tokens, rounded up; None when that is not known.

        `tokens_cached` of those it reads come from the provider's cache.
        """
        if self.micros_in is None or self.micros_out is None:
            return None
        read = self.micros_in
        written = self.micros_out
        cached = self.micros_in if self.micros_cached is None else self.micros_cached
        for start, *rates in self.dearer:
            if tokens_in > start:
                read, written, cached = rates
        cost = (tokens_in - tokens_cached) * read + tokens_cached * cached + tokens_out * written
        return self.micros_call + ceil(round(cost, 6))


class Model(Protocol):
    @property
    def card(self) -> ModelCard: ...

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        """Answer once. `hear` is told text piece by piece as it comes. ModelFailed when it does not work out."""
        ...


@runtime_checkable
class ClosableModel(Protocol):
    """A model that holds connections or a process until it is closed."""

    async def close(self) -> None: ...


class ModelFailed(Exception):
    """A call that did not work out: what kind of failure it is, and what it cost as far as that is known.

    Without `usage` the cost is not known, unless it was not `billed`: it never got through, or was refused. One that
    was not `sent` does not count as a call either.
    """

    def __init__(self, failure: Failure, usage: Usage | None = None, *, billed: bool = True, sent: bool = True) -> None:
        self.failure = failure
        self.usage = usage
        self.billed = billed
        self.sent = sent
        super().__init__(failure.message)


def model_failed(error: Exception, usage: Usage | None = None) -> ModelFailed:
    """What a call of a model came to that raised this: its own failure, or that of the code behind it."""
    if isinstance(error, ModelFailed):
        return error
    failed = ModelFailed(failure_of(error), usage)
    failed.__cause__ = error
    return failed
