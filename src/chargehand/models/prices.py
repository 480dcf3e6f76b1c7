"""What a call costs, from a kept table of prices. The table is read once per model, off the event loop.

A price that is not known is None, never a guess. Models on this machine cost nothing.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import ip_address
from math import inf
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct, structs

from chargehand.engine.policy import Instant
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import Hear, Model, ModelCard

if TYPE_CHECKING:
    from genai_prices.types import TieredPrices

_SCALE = 1_000_000
_KEPT = 900.0  # some prices change with the time of day


class Rate(Struct, frozen=True, gc=False):
    """Millionths of a dollar per million tokens. From `tiers[i][0]` input tokens on, all cost `tiers[i][1]`."""

    each: int = 0
    tiers: tuple[tuple[int, int], ...] = ()

    @property
    def dollars(self) -> float:
        """Dollars per million tokens, which is millionths of a dollar per token, of a call below the first tier."""
        return self.each / _SCALE

    def at(self, read: int) -> int:
        for start, each in reversed(self.tiers):
            if read > start:
                return each
        return self.each


class Price(Struct, frozen=True, gc=False):
    """What one model charges. `call` is millionths of a dollar for every call, whatever it used."""

    input: Rate
    output: Rate
    cached: Rate
    call: int = 0

    def micros(self, usage: Usage) -> int:
        """Rounded up: a budget must not be overrun by fractions."""
        read = usage.input
        cost = (read - usage.cached) * self.input.at(read) + usage.cached * self.cached.at(read)
        cost += usage.output * self.output.at(read)
        return self.call - (-cost // _SCALE)

    def on(self, card: ModelCard) -> ModelCard:
        """The card of the model, with its price."""
        starts = sorted({start for rate in (self.input, self.output) for start, _ in rate.tiers})
        return structs.replace(
            card,
            micros_in=self.input.dollars,
            micros_out=self.output.dollars,
            micros_cached=self.cached.dollars,
            micros_call=self.call,
            dearer=tuple((at, self.input.at(at + 1) / _SCALE, self.output.at(at + 1) / _SCALE) for at in starts),
        )


FREE = Price(input=Rate(), output=Rate(), cached=Rate())


def flat(dollars_in: float, dollars_out: float, dollars_cached: float | None = None) -> Price:
    """A price of one's own, in dollars per million tokens."""
    cached = dollars_in if dollars_cached is None else dollars_cached
    read, written, cached_rate = (Rate(_scaled(Decimal(str(dollars)))) for dollars in (dollars_in, dollars_out, cached))
    return Price(input=read, output=written, cached=cached_rate)


class PricedModel:
    """A model whose card has no price of its own, at a price that was set for it."""

    def __init__(self, model: Model, price: Price) -> None:
        self._model = model
        self._price = price

    @property
    def card(self) -> ModelCard:
        return self._price.on(self._model.card)

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        return await self._model.reply(request, hear)


def is_local(url: str) -> bool:
    """Whether a base URL is this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class PriceTag:
    """The price of one model, looked up when it is first needed; or one that is known (`fixed`).

    `otherwise` is the price of a model that is not in the table.
    """

    def __init__(
        self,
        provider: str,
        name: str,
        base_url: str = "",
        *,
        fixed: Price | None = None,
        otherwise: Price | None = None,
        wall: Callable[[], Instant] = time.time,
    ) -> None:
        self._provider = provider
        self._name = name
        self._base_url = base_url
        self._wall = wall
        self._price = fixed
        self._otherwise = otherwise
        self._good_until = -inf if fixed is None else inf

    @property
    def price(self) -> Price | None:
        """As far as it was looked up."""
        return self._price

    async def micros(self, usage: Usage | None) -> int | None:
        """What a call cost; None where that is not known."""
        if self._wall() >= self._good_until:
            self._price = await asyncio.to_thread(self.look_up)
            self._good_until = self._wall() + _KEPT
        if usage is None or self._price is None:
            return None
        return self._price.micros(usage)

    def look_up(self) -> Price | None:
        """Takes a while the first time: call it in a thread, or before a run starts."""
        if self._base_url and is_local(self._base_url):
            return FREE
        return look_up(self._provider, self._name, self._base_url, self._wall()) or self._otherwise


def look_up(provider: str, name: str, base_url: str, now: Instant) -> Price | None:
    import genai_prices  # noqa: PLC0415 - it imports pydantic, which takes longer than all of us

    nothing = genai_prices.Usage(input_tokens=0, output_tokens=0)
    when = datetime.fromtimestamp(now, UTC)
    try:
        if provider:
            price = genai_prices.calc_price(nothing, name, provider_id=provider, genai_request_timestamp=when)
        else:
            price = genai_prices.calc_price(nothing, name, provider_api_url=base_url, genai_request_timestamp=when)
    except (LookupError, ValueError):
        return None
    prices = price.model_price
    if prices.input_mtok is None and prices.output_mtok is None:
        return None
    read = _rate(prices.input_mtok)
    cached = prices.cache_read_mtok
    each_call = -(-_rate(prices.requests_kcount).each // 1000)
    return Price(
        input=read, output=_rate(prices.output_mtok), cached=read if cached is None else _rate(cached), call=each_call
    )


def _rate(price: "Decimal | TieredPrices | None") -> Rate:
    if price is None:
        return Rate()
    if isinstance(price, Decimal):
        return Rate(_scaled(price))
    return Rate(_scaled(price.base), tuple((tier.start, _scaled(tier.price)) for tier in price.tiers))


def _scaled(dollars: Decimal) -> int:
    return round(dollars * _SCALE)
