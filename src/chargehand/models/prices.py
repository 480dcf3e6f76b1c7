"""What a call costs, from a kept table of prices. The table is read once per model, off the event loop.

A price that is not known is None, never a guess. Where a model is called does not make it free: a gateway on this
machine forwards calls to a provider that bills them.
"""

import asyncio
from decimal import Decimal
from math import ceil
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from chargehand.models.messages import Reply, Request
from chargehand.models.model import Hear, Model, ModelCard
from chargehand.text.words import nearest_names

if TYPE_CHECKING:
    from genai_prices.types import TieredPrices

_TYPO = 0.8
"""How alike two names must be, from 0 to 1, for one to be taken for a slip of the finger."""
_MAX_SIMILAR = 3


class Price(Struct, frozen=True, gc=False):
    """What one model charges: dollars per million tokens, which is millionths of a dollar per token."""

    input: float
    output: float
    cached: float
    """For a token that is read again from the provider's cache."""
    call: int = 0
    """Millionths of a dollar for every call, whatever it used."""
    dearer: tuple[tuple[int, float, float, float], ...] = ()
    """What input, output and cached tokens cost in calls that read more than so many tokens."""

    def on(self, card: ModelCard) -> ModelCard:
        """The card of the model, with its price."""
        return structs.replace(
            card,
            micros_in=self.input,
            micros_out=self.output,
            micros_cached=self.cached,
            micros_call=self.call,
            dearer=self.dearer,
        )


FREE = Price(0.0, 0.0, 0.0)


def flat(dollars_in: float, dollars_out: float, dollars_cached: float | None = None) -> Price:
    """A price of one's own, in dollars per million tokens."""
    return Price(dollars_in, dollars_out, dollars_in if dollars_cached is None else dollars_cached)


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


class PriceTag:
    """The price of one model, looked up when it is first needed; or one that is known (`fixed`).

    It is that of the provider at `base_url`, where the table knows one there, and else that of `provider`. `otherwise`
    is the price of a model that is not in the table.
    """

    def __init__(
        self,
        provider: str,
        name: str,
        base_url: str = "",
        *,
        fixed: Price | None = None,
        otherwise: Price | None = None,
    ) -> None:
        self._provider = provider
        self._name = name
        self._base_url = base_url
        self._otherwise = otherwise
        self._is_known = fixed is not None
        self.price = fixed
        """None until it is looked up, and where it is not known."""

    async def look_up(self) -> None:
        """Find the price, unless that was done. The table takes a while to load, so it is read in a thread."""
        if not self._is_known:
            self.price = await asyncio.to_thread(self.find)
            self._is_known = True

    def find(self) -> Price | None:
        price = find_price("", self._name, self._base_url) if self._base_url else None
        return price or find_price(self._provider, self._name) or self._otherwise


def find_price(provider: str, name: str, base_url: str = "") -> Price | None:
    """What the table says of a model, by its provider or else by where it is called."""
    import genai_prices  # noqa: PLC0415 - it imports pydantic, which takes longer than all of us

    nothing = genai_prices.Usage(input_tokens=0, output_tokens=0)
    try:
        if provider:
            price = genai_prices.calc_price(nothing, name, provider_id=provider)
        else:
            price = genai_prices.calc_price(nothing, name, provider_api_url=base_url)
    except (LookupError, ValueError):
        return None
    table = price.model_price
    if table.input_mtok is None and table.output_mtok is None:
        return None
    cached = table.input_mtok if table.cache_read_mtok is None else table.cache_read_mtok
    starts: set[int] = set()
    for prices in (table.input_mtok, table.output_mtok, cached):
        if prices is not None and not isinstance(prices, Decimal):
            starts.update(tier.start for tier in prices.tiers)

    def rates(read: int) -> tuple[float, float, float]:
        return _rate(table.input_mtok, read), _rate(table.output_mtok, read), _rate(cached, read)

    return Price(
        *rates(0),
        call=ceil(_rate(table.requests_kcount, 0) * 1000),
        dearer=tuple((start, *rates(start + 1)) for start in sorted(starts)),
    )


def _rate(prices: "Decimal | TieredPrices | None", read: int) -> float:
    """What a token costs in a call that reads so many."""
    if prices is None:
        return 0.0
    if isinstance(prices, Decimal):
        return float(prices)
    rates = [prices.base, *(tier.price for tier in prices.tiers if read > tier.start)]
    return float(rates[-1])


def similar_models(provider: str, name: str) -> tuple[str, ...]:
    """The names in the table that are most like one it does not have; none where it has it, or nothing is like it."""
    if find_price(provider, name) is not None:
        return ()
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - as above

    names = [model.id for entry in get_snapshot().providers if entry.id == provider for model in entry.models]
    return tuple(nearest_names(name, names, count=_MAX_SIMILAR, similarity=_TYPO))
