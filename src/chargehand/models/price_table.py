"""What a table of prices says of a model: by its provider or where it is called, its name, the day and the hour."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeAlias

from msgspec import Struct, structs

from chargehand.models.rates import Price

Match: TypeAlias = tuple[str | tuple[str, ...], ...]
"""Alternatives for a name, each a clause or several that must all hold. A clause is an operator and a text."""
PACKAGE = "genai-prices"
"""The package that the table is made from."""
FOREVER = datetime.max.replace(tzinfo=UTC)
_COMPACT_DATE = re.compile(r"-(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")
_DAY = timedelta(days=1)


class TableModel(Struct, frozen=True, array_like=True):
    """The prices of one model."""

    id: str
    prices: tuple[tuple[str, Price], ...]
    """Prices with when they hold; empty where tokens have no price, but pictures, minutes or pages.

    They hold from a day on (`2026-08-17`), at hours of the day in UTC (`01:00:00-04:00:00`), or always (empty). The
    last one that holds counts; the first where none does.
    """
    match: Match = ()
    """The names it has in requests; empty: its id."""

    def is_match(self, name: str) -> bool:
        return matches(self.match, name) if self.match else name == self.id.lower()

    def price_at(self, now: datetime) -> tuple[Price | None, datetime]:
        """Return the price at a moment, if there is one, and until when it is not to be looked up again."""
        if not self.prices:
            return None, FOREVER
        holding = next((price for when, price in reversed(self.prices) if _holds(when, now)), self.prices[0][1])
        return holding, min((_next_change(when, now) for when, _ in self.prices))


class TableProvider(Struct, frozen=True, omit_defaults=True):
    """The models of one provider."""

    id: str
    url: str
    """A regular expression for the beginning of its base URLs."""
    models: tuple[TableModel, ...]
    match: Match = ()
    """Other ids it goes by."""
    model_match: Match = ()
    """The names of models that are taken for its own where no provider is named."""
    fallbacks: tuple[str, ...] = ()
    """Providers whose models it serves at their prices."""


class PriceTable(Struct, frozen=True):
    """Prices of the models of many providers."""

    source: str
    """The name and version of the package that it was made from."""
    made: str
    """The day on which it was made."""
    license: str
    """The license of the package, which holds for its data."""
    providers: tuple[TableProvider, ...]

    def find(self, provider: str, name: str, base_url: str = "") -> TableModel | None:
        """Return the model of a provider, or without one, of whoever serves it at `base_url`."""
        name = name.lower()
        maker, slash, rest = name.partition("/")
        if provider.lower() == "litellm" and slash and self._provider(maker) is not None:
            provider = maker
            name = rest
        seller = self._provider(provider) if provider else self._provider_at(base_url)
        if seller is None and provider.lower() == "litellm":
            seller = next((one for one in self.providers if matches(one.model_match, name)), None)
        if seller is None:
            return None
        return self._model(seller, name) or self._model(seller, _COMPACT_DATE.sub(r"-\1-\2-\3", name))

    def _provider(self, provider: str) -> TableProvider | None:
        wanted = provider.lower().strip()
        exact = next((one for one in self.providers if one.id == wanted), None)
        return exact or next((one for one in self.providers if matches(one.match, wanted)), None)

    def _provider_at(self, base_url: str) -> TableProvider | None:
        return next((one for one in self.providers if re.match(one.url, base_url)), None)

    def _model(self, seller: TableProvider, name: str) -> TableModel | None:
        own = _first_match(seller.models, name)
        if own is not None:
            return own
        for fallback in seller.fallbacks:
            maker = next((one for one in self.providers if one.id == fallback), None)
            model = None if maker is None else _first_match(maker.models, name)
            if model is not None:  # service tiers are an offer of the maker alone
                return _without_tiers(model)
        return None

    def names(self, provider: str) -> Sequence[str]:
        """Return the ids of a provider's models."""
        return [model.id for one in self.providers if one.id == provider for model in one.models]


def matches(match: Match, name: str) -> bool:
    """Whether a name in lower case is one of those that are meant."""
    return any(
        _fits(clause, name) if isinstance(clause, str) else all(_fits(part, name) for part in clause)
        for clause in match
    )


def _fits(clause: str, name: str) -> bool:
    text = clause[1:]
    match clause[0]:
        case "=":
            return name == text
        case "^":
            return name.startswith(text)
        case "$":
            return name.endswith(text)
        case "*":
            return text in name
        case _:
            return re.search(text, name) is not None


def _first_match(models: Sequence[TableModel], name: str) -> TableModel | None:
    return next((model for model in models if model.is_match(name)), None)


def _without_tiers(model: TableModel) -> TableModel:
    prices = tuple((when, structs.replace(price, tiers=())) for when, price in model.prices)
    return structs.replace(model, prices=prices)


# --- when a price holds


def _hours(when: str) -> tuple[time, time] | None:
    """The hours of the day; None for a day from which on it holds."""
    begins, _, ends = when.partition("-")
    return (time.fromisoformat(begins), time.fromisoformat(ends)) if ":" in when else None


def _holds(when: str, now: datetime) -> bool:
    if not when:
        return True
    hours = _hours(when)
    if hours is None:
        return now.date() >= date.fromisoformat(when)
    begins, ends = hours
    clock = now.time()
    return begins <= clock < ends if begins <= ends else clock >= begins or clock < ends


def _next_change(when: str, now: datetime) -> datetime:
    """When the condition may change next."""
    if not when:
        return FOREVER
    hours = _hours(when)
    if hours is None:
        starts = datetime.combine(date.fromisoformat(when), time(), UTC)
        return starts if now < starts else FOREVER
    today = [datetime.combine(now.date(), hour, UTC) for hour in hours]
    return min(moment if now < moment else moment + _DAY for moment in today)
