"""The one thing a model can be asked, and how it fails."""

from collections.abc import Callable
from math import ceil
from typing import Protocol, TypeAlias

from chargehand.code_errors import failure_of
from chargehand.engine.declared import Declared
from chargehand.engine.events import Failure
from chargehand.models.messages import Reply, Request, Usage

Hear: TypeAlias = Callable[[str], None]


class ModelCard(Declared, frozen=True):
    """What is known of a model.

    `window` is how many tokens it reads, `native_tools` whether it calls tools by itself (else it is given a schema of
    actions), `schema` whether a reply can be held to a JSON Schema. `notice` is what people must know about its
    answers, for example that no language model was asked. `micros_in`, `micros_out` and `micros_cached` (read again
    from the provider's cache) are millionths of a dollar a token; left out, nobody knows. `micros_call` is what each
    call costs besides. `dearer`: what a token costs, in and out, in calls that read more than so many tokens.
    `max_tokens` is how many tokens it writes at most, thinking included (0: nobody knows). `keeps_limit`: it never
    writes more than a request's `max_tokens`; where that is not known, calls under a cap start slowly. `in_process`:
    it runs in this process, so a second call only takes time from the first. `free`: nobody charges for its calls.
    `reads_facts`: it works from the subject of a request and reads no instructions, so told again it says the same.
    """

    handle: str
    window: int = 128_000
    native_tools: bool = True
    schema: bool = True
    notice: str = ""
    micros_in: float | None = None
    micros_out: float | None = None
    micros_cached: float | None = None
    micros_call: int = 0
    dearer: tuple[tuple[int, float, float], ...] = ()
    max_tokens: int = 0
    keeps_limit: bool = False
    in_process: bool = False
    free: bool = False
    reads_facts: bool = False

    def price(self, tokens_in: int, tokens_out: int) -> int | None:
        """Millionths of a dollar for so many tokens, rounded up; None when nobody knows."""
        if self.micros_in is None or self.micros_out is None:
            return None
        read = self.micros_in
        written = self.micros_out
        for start, more_in, more_out in self.dearer:
            if tokens_in > start:
                read = more_in
                written = more_out
        return self.micros_call + ceil(tokens_in * read + tokens_out * written)


class Model(Protocol):
    @property
    def card(self) -> ModelCard: ...

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        """Answer once. `hear` is told the text piece by piece as it comes. ModelFailed when it does not work out."""
        ...


class ModelFailed(Exception):
    """A call that did not work out: what kind of failure it is, and what it cost as far as anybody knows.

    Without `usage` nobody knows what it cost, unless it was not `billed`: it never got through, or was refused.
    """

    def __init__(self, failure: Failure, usage: Usage | None = None, *, billed: bool = True) -> None:
        self.failure = failure
        self.usage = usage
        self.billed = billed
        super().__init__(failure.message)


def model_failed(error: Exception, usage: Usage | None = None) -> ModelFailed:
    """What a call of a model came to that raised this: its own failure, or that of the code behind it."""
    if isinstance(error, ModelFailed):
        return error
    failed = ModelFailed(failure_of(error), usage)
    failed.__cause__ = error
    return failed
