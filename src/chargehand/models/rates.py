"""What tokens cost: the rates of one model, what a call comes to by them, and the most that a call can come to."""

from collections.abc import Sequence
from math import ceil

from msgspec import Struct

from chargehand.models.messages import Usage

SEARCH_MICROS = 10_000
"""Millionths of a dollar for a search of the web where no table has its price: what Anthropic and OpenAI charge
(https://platform.claude.com/docs/en/about-claude/pricing, https://developers.openai.com/api/docs/pricing)."""


class Rates(Struct, frozen=True, gc=False, omit_defaults=True):
    """What tokens cost: dollars per million tokens, which is millionths of a dollar per token."""

    input: float
    output: float
    cached: float | None = None
    """For a token that is read again from the provider's cache; None: as any it reads."""
    cache_write: float | None = None
    """For a token it reads and writes to the provider's cache for 5 minutes; None: as any it reads."""
    cache_write_hour: float | None = None
    """The same for an hour; None: as for 5 minutes."""
    reasoning: float | None = None
    """For a token it thinks; None: as any it writes."""

    def resolve(self) -> tuple[float, float, float, float, float, float]:
        """Return the six rates in the order of the fields, none of them None."""
        cached = self.input if self.cached is None else self.cached
        write = self.input if self.cache_write is None else self.cache_write
        write_hour = write if self.cache_write_hour is None else self.cache_write_hour
        reasoning = self.output if self.reasoning is None else self.reasoning
        return self.input, self.output, cached, write, write_hour, reasoning

    def micros(self, usage: Usage) -> float:
        """Return millionths of a dollar for these tokens, not rounded."""
        read, written, cached, write, write_hour, reasoning = self.resolve()
        plain = usage.input - usage.cached - usage.cache_written - usage.cache_written_hour
        return (
            plain * read
            + usage.cached * cached
            + usage.cache_written * write
            + usage.cache_written_hour * write_hour
            + (usage.output - usage.reasoning) * written
            + usage.reasoning * reasoning
        )

    def most_micros(self, read: int, written: int, *, hour: bool) -> float:
        """Return the most that so many tokens can cost, not rounded; `hour`: they may be cached for an hour."""
        plain, output, cached, write, write_hour, reasoning = self.resolve()
        dearest = max(plain, cached, write, write_hour if hour else 0.0)
        return read * dearest + written * max(output, reasoning)


class Price(Rates, frozen=True, gc=False, omit_defaults=True):
    """What one model charges."""

    call: int = 0
    """Millionths of a dollar for every call, whatever it used."""
    dearer: tuple[tuple[int, Rates], ...] = ()
    """The rates of calls that read more than so many tokens, the fewest first."""
    tiers: tuple[tuple[str, "Price"], ...] = ()
    """What calls cost that the provider serves in another tier than its usual one, by the provider's name for it."""
    search: int | None = None
    """Millionths of a dollar for each search of the web that the provider makes; None: the usual price of one."""

    def in_tier(self, tier: str) -> "Price":
        """Return the price of calls served in this tier: the usual one where the tier has none of its own."""
        return next((price for name, price in self.tiers if name == tier), self)

    def rates(self, read: int) -> Rates:
        """Return the rates of a call that reads so many tokens."""
        rates: Rates = self
        for above, dearer in self.dearer:
            if read > above:
                rates = dearer
        return rates

    def cost(self, usage: Usage) -> int:
        """Return millionths of a dollar for one call, rounded up."""
        return self.call + ceil(round(self.rates(usage.input).micros(usage), 6)) + self.search_micros(usage.searches)

    def search_micros(self, searches: int) -> int:
        """Return millionths of a dollar for so many searches of the web."""
        return searches * (SEARCH_MICROS if self.search is None else self.search) if searches else 0

    def most(self, read: int, written: int, *, hour: bool = False, searches: int = 0) -> int:
        """Return millionths of a dollar that one call costs at most, rounded up.

        Args:
            read: Tokens that it reads at most, all of which the provider may write to its cache.
            written: Tokens that it writes at most, thinking included.
            hour: Whether what it reads may be cached for an hour, else for 5 minutes.
            searches: Searches of the web that the provider makes at most.
        """
        micros = self.most_micros(read, written, hour=hour)
        for above, dearer in self.dearer:
            if read > above:
                micros = max(micros, dearer.most_micros(read, written, hour=hour))
        return self.call + ceil(round(micros, 6)) + self.search_micros(searches)


def dearest(prices: Sequence[Price]) -> Price:
    """Return a price that no call costs more than: at every length of what it reads, the highest of all rates."""

    def highest(read: int) -> tuple[float, ...]:
        rates = [price.rates(read).resolve() for price in prices]
        return tuple(max(alike) for alike in zip(*rates, strict=True))

    starts = sorted({above for price in prices for above, _ in price.dearer})
    return Price(
        *highest(0),
        call=max(price.call for price in prices),
        search=max(price.search_micros(1) for price in prices),
        dearer=tuple((above, Rates(*highest(above + 1))) for above in starts),
    )
