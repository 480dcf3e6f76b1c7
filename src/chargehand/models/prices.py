"""What a call costs, from the table of prices in `price_table.json`. It is read once, off the event loop.

The table is made from the package `genai-prices`. Where that is installed in a newer version, its prices are used.

A price that is not known is None, never a guess. Where a model is called does not make it free: a gateway on this
machine forwards calls to a provider that bills them.
"""

import asyncio
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from chargehand.errors import Invalid
from chargehand.models.messages import Reply, Request
from chargehand.models.model import Hear, Model, ModelCard
from chargehand.models.price_table import FOREVER, PACKAGE, PriceTable
from chargehand.models.rates import Price
from chargehand.text.words import nearest_names

_TYPO = 0.8
"""How alike two names must be, from 0 to 1, for one to be taken for a slip of the finger."""
_MAX_SIMILAR = 3


FREE = Price(0.0, 0.0, 0.0)

_NEEDED = ("dollars_in", "dollars_out")
_MAX_DOLLARS = 1e6  # for a million tokens
_HOUR_TIMES = 2.0
"""What writing to the cache for an hour costs at Anthropic, the only one who has it, in times of the price of input
(https://platform.claude.com/docs/en/build-with-claude/prompt-caching)."""


# --- the table

FILE = Path(__file__).with_name("price_table.json")


@cache
def load_table() -> PriceTable:
    """Return the table of this package, or that of `genai-prices` where it is newer."""
    shipped = read_table(FILE.read_bytes())
    if find_spec("genai_prices") is None:
        return shipped
    from importlib.metadata import version  # noqa: PLC0415 - as below

    if not is_newer(version(PACKAGE), shipped.source):
        return shipped
    from chargehand.models.package_prices import package_table  # noqa: PLC0415 - it imports pydantic, which is slow

    return package_table(made="")


def read_table(data: bytes) -> PriceTable:
    return msgspec.json.decode(data, type=PriceTable)


def is_newer(installed: str, source: str) -> bool:
    """Whether a version is later than that of the source of a table (`genai-prices 0.2.1`)."""
    return _numbers(installed) > _numbers(source.rpartition(" ")[2])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


# --- prices of models


def flat(
    dollars_in: float,
    dollars_out: float,
    dollars_cached: float | None = None,
    dollars_cache_write: float | None = None,
    dollars_cache_write_hour: float | None = None,
    dollars_reasoning: float | None = None,
) -> Price:
    """Return a price of one's own, in dollars per million tokens.

    Args:
        dollars_in: For what the model reads.
        dollars_out: For what it writes.
        dollars_cached: For what it reads from the provider's cache; left out, as for anything it reads.
        dollars_cache_write: For what is written to the cache for 5 minutes; left out, as for anything it reads.
        dollars_cache_write_hour: For what is written to it for an hour; left out, twice `dollars_in`, or
            `dollars_cache_write` if that is more; as for 5 minutes where that is left out, too.
        dollars_reasoning: For what it thinks; left out, as for anything it writes.

    Raises:
        Invalid: one of them is no number of dollars: below 0, not finite, or a text.
    """
    dollars = {
        "dollars_in": dollars_in,
        "dollars_out": dollars_out,
        "dollars_cached": dollars_cached,
        "dollars_cache_write": dollars_cache_write,
        "dollars_cache_write_hour": dollars_cache_write_hour,
        "dollars_reasoning": dollars_reasoning,
    }
    for name, amount in dollars.items():
        if amount is not None or name in _NEEDED:
            _check_dollars(name, amount)
    if dollars_cache_write_hour is None and dollars_cache_write is not None:
        dollars_cache_write_hour = max(dollars_cache_write, _HOUR_TIMES * dollars_in)
    return Price(
        dollars_in,
        dollars_out,
        dollars_cached,
        dollars_cache_write,
        dollars_cache_write_hour,
        dollars_reasoning,
    )


def _check_dollars(name: str, amount: object) -> None:
    """Raise Invalid for what is no price of a million tokens."""
    if not isinstance(amount, int | float) or isinstance(amount, bool) or not 0 <= amount < _MAX_DOLLARS:
        raise Invalid(f"{name} is {amount!r}, which is no price; give dollars per million tokens, from 0, like 0.25")


class PricedModel:
    """A model whose card has no price of its own, at a price that was set for it."""

    def __init__(self, model: Model, price: Price) -> None:
        self._model = model
        self._price = price

    @property
    def card(self) -> ModelCard:
        return self._model.card.with_price(self._price)

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        return await self._model.reply(request, hear)


class PriceTag:
    """The price of one model, looked up when it is first needed and when it changes; or one that is known (`fixed`).

    It is that of the provider at `base_url`, where the table knows one there, and else that of `provider`. `otherwise`
    is the price of a model that is not in the table. `clock` tells the time in seconds since 1970.
    """

    def __init__(
        self,
        provider: str,
        name: str,
        base_url: str = "",
        *,
        fixed: Price | None = None,
        otherwise: Price | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._provider = provider
        self._name = name
        self._base_url = base_url
        self._otherwise = otherwise
        self._clock = clock
        self._until = 0.0 if fixed is None else float("inf")
        """When it is to be looked up again, by the clock."""
        self.price = fixed
        """None until it is looked up, and where it is not known."""

    async def look_up(self) -> None:
        """Find the price that holds now. The table takes a while to load, so it is read in a thread."""
        if self._clock() >= self._until:
            await asyncio.to_thread(self.find)

    def find(self) -> Price | None:
        """Return the price that holds now, and keep it for as long as it does."""
        now = datetime.fromtimestamp(self._clock(), UTC)
        table = load_table()
        model = table.find("", self._name, self._base_url) if self._base_url else None
        model = model or table.find(self._provider, self._name)
        price, until = (None, FOREVER) if model is None else model.price_at(now)
        self.price = price or self._otherwise
        self._until = until.timestamp()
        return self.price


def find_price(provider: str, name: str, base_url: str = "") -> Price | None:
    """Return what the table says of a model, by its provider or else by where it is called."""
    return PriceTag(provider, name, base_url).find()


def similar_models(provider: str, name: str) -> tuple[str, ...]:
    """The names in the table that are most like one it does not have; none where it has it, or nothing is like it."""
    table = load_table()
    if table.find(provider, name) is not None:
        return ()
    return tuple(nearest_names(name, table.names(provider), count=_MAX_SIMILAR, similarity=_TYPO))
