"""The one thing a model can be asked, and how it fails."""

from typing import Protocol, runtime_checkable

from msgspec import structs

from chargehand.code_errors import failure_of
from chargehand.engine.declared import Declared
from chargehand.engine.events import Failure
from chargehand.engine.state import TextKind
from chargehand.models.messages import Reply, Request, Usage, thought_text
from chargehand.models.rates import Price, Rates


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
    documents: bool = False
    """Whether it can be shown PDFs; if not, it is given their text."""
    notice: str = ""
    """What people must know about its answers, for example that no language model was asked."""
    micros_in: float | None = None
    """For a token it reads."""
    micros_out: float | None = None
    """For a token it writes."""
    micros_cached: float | None = None
    """For a token it reads again from the provider's cache; None: as any it reads."""
    micros_call: int = 0
    """For each call besides."""
    dearer: tuple[tuple[int, Rates], ...] = ()
    """The rates of calls that read more than so many tokens, the fewest first."""
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

    micros_cache_write: float | None = None
    """For a token it reads and writes to the provider's cache for 5 minutes; None: as any it reads."""
    micros_cache_write_hour: float | None = None
    """The same for an hour; None: as for 5 minutes."""
    micros_reasoning: float | None = None
    """For a token it thinks; None: as any it writes."""
    tiers: tuple[tuple[str, Price], ...] = ()
    """Prices of the provider's other service tiers, by their names."""
    micros_search: int | None = None
    """For each search of the web that the provider makes; None: the usual price of one."""
    provider_tools: tuple[str, ...] = ()
    """Tools that its provider runs itself, by our names: `web_search`."""
    searches_tools: bool = False
    """Whether it reads the schemas of many tools only once it has searched for them."""

    @property
    def rates(self) -> Price | None:
        """What the model charges; None where that is not known."""
        if self.micros_in is None or self.micros_out is None:
            return None
        return Price(
            self.micros_in,
            self.micros_out,
            self.micros_cached,
            self.micros_cache_write,
            self.micros_cache_write_hour,
            self.micros_reasoning,
            call=self.micros_call,
            dearer=self.dearer,
            tiers=self.tiers,
            search=self.micros_search,
        )

    @property
    def is_priced(self) -> bool:
        """Whether it is known what a call costs."""
        return self.micros_in is not None and self.micros_out is not None

    def with_price(self, price: Price) -> "ModelCard":
        """Return the card with this price."""
        return structs.replace(
            self,
            micros_in=price.input,
            micros_out=price.output,
            micros_cached=price.cached,
            micros_cache_write=price.cache_write,
            micros_cache_write_hour=price.cache_write_hour,
            micros_reasoning=price.reasoning,
            micros_call=price.call,
            dearer=price.dearer,
            tiers=price.tiers,
            micros_search=price.search,
        )

    def price(self, usage: Usage, tier: str = "") -> int | None:
        """Return millionths of a dollar for a call that used so much, rounded up; None where that is not known.

        `tier` is the provider's service tier that served it, where that is not the usual one.
        """
        rates = self.rates
        return None if rates is None else rates.in_tier(tier).cost(usage)

    def highest_price(
        self, read: int, written: int, *, hour: bool = False, tier: str = "", searches: int = 0
    ) -> int | None:
        """Return millionths of a dollar that a call of so many tokens costs at most; None where that is not known.

        Args:
            read: Tokens that it reads at most, all of which the provider may write to its cache.
            written: Tokens that it writes at most, thinking included.
            hour: Whether what it reads may be cached for an hour, else for 5 minutes.
            tier: The service tier that is asked for; the provider may serve it in the usual one.
            searches: Searches of the web that the provider makes at most.
        """
        rates = self.rates
        if rates is None:
            return None
        usual = rates.most(read, written, hour=hour, searches=searches)
        if not tier:
            return usual
        return max(usual, rates.in_tier(tier).most(read, written, hour=hour, searches=searches))


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
