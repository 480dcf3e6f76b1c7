"""The prices of the package `genai-prices` as a table of ours.

Loading this loads pydantic and the whole package: only where it is newer than our own table, or to make that.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from importlib import metadata
from itertools import product
from math import ceil

from genai_prices import types
from genai_prices.data_snapshot import get_snapshot

from chargehand.models.price_table import PACKAGE, Match, PriceTable, TableModel, TableProvider
from chargehand.models.rates import Price, Rates

_TIER = "service_tier"
_USUAL = "default"


def package_table(made: str) -> PriceTable:
    """Return the prices of the installed package; `made` is the day on which that is done."""
    return PriceTable(
        source=f"{PACKAGE} {metadata.version(PACKAGE)}",
        made=made,
        license=_license(),
        providers=tuple(_provider(provider) for provider in get_snapshot().providers),
    )


def _license() -> str:
    for file in metadata.files(PACKAGE) or ():
        if file.name == "LICENSE":
            return file.read_text()
    return ""


def _provider(provider: types.Provider) -> TableProvider:
    return TableProvider(
        id=provider.id,
        url=provider.api_pattern,
        models=tuple(_model(model) for model in provider.models),
        match=_match(provider.provider_match),
        model_match=_match(provider.model_match),
        fallbacks=tuple(provider.fallback_model_providers or ()),
    )


def _model(model: types.ModelInfo) -> TableModel:
    match = _match(model.match)
    return TableModel(
        id=model.id,
        prices=tuple(_prices(model)) if _has_rates(model) else (),
        match=() if match == (f"={model.id.lower()}",) else match,
    )


def _has_rates(model: types.ModelInfo) -> bool:
    """Whether tokens have prices."""
    prices = [model.prices] if isinstance(model.prices, types.ModelPrice) else [one.prices for one in model.prices]
    return any(price.input_mtok is not None or price.output_mtok is not None for price in prices)


def _prices(model: types.ModelInfo) -> Iterator[tuple[str, Price]]:
    """The prices of a model, with those of service tiers at every day on which one of them changes."""
    variants = [variant for variant in model.price_variants or () if set(variant.when) == {_TIER}]
    conditions = [] if isinstance(model.prices, types.ModelPrice) else [one.constraint for one in model.prices]
    if not variants or any(isinstance(condition, types.TimeOfDateConstraint) for condition in conditions):
        if isinstance(model.prices, types.ModelPrice):
            yield "", _price(model.prices)
        else:
            for one in model.prices:
                yield _when(one.constraint), _price(one.prices)
        return
    conditions += [variant.constraint for variant in variants]
    days = {one.start_date for one in conditions if isinstance(one, types.StartDateConstraint)}
    long_ago = datetime(1970, 1, 1, tzinfo=UTC)
    for moment in (long_ago, *[datetime.combine(day, time(), UTC) for day in sorted(days)]):
        usual = _price(model.get_prices(moment))
        tiers: list[tuple[str, Price]] = []
        for name in dict.fromkeys(variant.when[_TIER] for variant in variants):
            price = _price(model.get_prices(moment, {_TIER: name}))
            if price != usual:
                tiers.append((name, price))
        when = "" if moment == long_ago else moment.date().isoformat()
        yield when, _price(model.get_prices(moment), tuple(tiers))


def _when(condition: types.StartDateConstraint | types.TimeOfDateConstraint | None) -> str:
    match condition:
        case None:
            return ""
        case types.StartDateConstraint():
            return condition.start_date.isoformat()
        case types.TimeOfDateConstraint():
            return f"{_utc(condition.start_time):%H:%M:%S}-{_utc(condition.end_time):%H:%M:%S}"


def _utc(moment: time) -> time:
    if moment.tzinfo is None:
        return moment
    return datetime.combine(datetime(1970, 1, 2, tzinfo=UTC), moment).astimezone(UTC).time()


def _price(table: types.ModelPrice, tiers: tuple[tuple[str, Price], ...] = ()) -> Price:
    starts: set[int] = set()
    for price in _rates_of(table).values():
        if isinstance(price, types.TieredPrices):
            starts.update(tier.start for tier in price.tiers)
    base = _rates(table, 0)
    return Price(
        base.input,
        base.output,
        base.cached,
        base.cache_write,
        base.cache_write_hour,
        base.reasoning,
        call=ceil((_rate(table.requests_kcount, 0) or 0.0) * 1000),
        dearer=tuple((start, _rates(table, start + 1)) for start in sorted(starts)),
        tiers=tiers,
        search=None if table.web_searches_kcount is None else ceil((_rate(table.web_searches_kcount, 0) or 0.0) * 1000),
    )


_Rate = Decimal | types.TieredPrices | None


def _rates_of(table: types.ModelPrice) -> Mapping[str, _Rate]:
    write = table.cache_write_mtok if table.cache_write_5m_mtok is None else table.cache_write_5m_mtok
    hour = table.cache_write_1h_mtok
    return {
        "input": table.input_mtok,
        "output": table.output_mtok,
        "cached": table.cache_read_mtok,
        "cache_write": write,
        "cache_write_hour": table.cache_write_mtok if hour is None and write is not table.cache_write_mtok else hour,
        "reasoning": table.output_reasoning_mtok,
    }


def _rates(table: types.ModelPrice, read: int) -> Rates:
    rates = {name: _rate(price, read) for name, price in _rates_of(table).items()}
    return Rates(
        rates["input"] or 0.0,
        rates["output"] or 0.0,
        rates["cached"],
        rates["cache_write"],
        rates["cache_write_hour"],
        rates["reasoning"],
    )


def _rate(price: _Rate, read: int) -> float | None:
    """What a token costs in a call that reads so many."""
    if price is None:
        return None
    if isinstance(price, Decimal):
        return float(price)
    return float([price.base, *(tier.price for tier in price.tiers if read > tier.start)][-1])


# --- names


def _match(logic: object) -> Match:
    return tuple(part[0] if len(part) == 1 else part for part in _alternatives(logic))


def _alternatives(logic: object) -> tuple[tuple[str, ...], ...]:
    """The conditions on a name as alternatives, each of clauses that must all hold."""
    match logic:
        case types.ClauseOr():
            return tuple(dict.fromkeys(part for one in logic.or_ for part in _alternatives(one)))
        case types.ClauseAnd():
            return tuple(
                tuple(clause for part in parts for clause in part) for parts in product(*map(_alternatives, logic.and_))
            )
        case types.ClauseEquals():
            return ((f"={logic.equals.lower()}",),)
        case types.ClauseStartsWith():
            return ((f"^{logic.starts_with.lower()}",),)
        case types.ClauseEndsWith():
            return ((f"${logic.ends_with.lower()}",),)
        case types.ClauseContains():
            return ((f"*{logic.contains.lower()}",),)
        case types.ClauseRegex():
            return ((f"~{logic.regex}",),)
        case _:
            return ()
