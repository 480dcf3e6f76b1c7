"""The shipped table of prices: what it says is what `genai-prices` says, of every model it knows."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import ROUND_CEILING
from pathlib import Path

import genai_prices
import pytest
from genai_prices import types
from genai_prices.data_snapshot import get_snapshot
from msgspec import structs

from chargehand.models import prices
from chargehand.models.messages import Usage
from chargehand.models.package_prices import package_table
from chargehand.models.price_table import FOREVER
from chargehand.models.prices import is_newer, load_table, read_table
from tests.models.write_prices import FILE, written

TABLE = read_table(FILE.read_bytes())
USAGES = [
    Usage(0, 0),
    Usage(1_234, 567),
    Usage(1_234, 567, cached=1_000, reasoning=500),
    Usage(1_234, 567, cached=200, cache_written=1_000),
    Usage(9_001, 567, cached=200, cache_written=1_000, cache_written_hour=3_000),
    Usage(100_001, 9, cached=50_001),
    Usage(300_007, 9, cached=250_001, cache_written=10_003, cache_written_hour=77, reasoning=9),
    Usage(1_100_003, 70_007, cached=3, cache_written=900_001),
]
MOMENTS = [
    datetime(2025, 2, 3, 12, tzinfo=UTC),
    datetime(2026, 8, 20, 2, 30, tzinfo=UTC),
    datetime(2026, 11, 19, 8, tzinfo=UTC),
    datetime(2026, 12, 1, 23, 59, tzinfo=UTC),
    datetime(2027, 3, 1, 16, 30, tzinfo=UTC),
]


def theirs(
    model: types.ModelInfo, provider: types.Provider, usage: Usage, now: datetime, context: Mapping[str, str] | None
) -> int:
    tokens = {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cached,
        "cache_write_tokens": usage.cache_written + usage.cache_written_hour,
        "cache_write_1h_tokens": usage.cache_written_hour,
        "output_reasoning_tokens": usage.reasoning,
    }
    counted = genai_prices.Usage(**tokens)
    price = model.calc_price(counted, provider, genai_request_timestamp=now, price_context=context)
    return int((price.total_price * 1_000_000).to_integral_value(ROUND_CEILING))


def tiers_of(model: types.ModelInfo) -> Iterator[str]:
    yield ""
    yield from dict.fromkeys(
        one.when["service_tier"] for one in model.price_variants or () if "service_tier" in one.when
    )


@pytest.mark.parametrize("provider", get_snapshot().providers, ids=lambda provider: provider.id)
def test_the_table_prices_every_model_as_the_package_does(provider: types.Provider) -> None:
    for name in [model.id for model in provider.models]:
        model = provider.find_model(name, all_providers=get_snapshot().providers)
        ours = TABLE.find(provider.id, name)
        assert (None if ours is None else ours.id) == (None if model is None else model.id)
        if model is None or ours is None or not ours.prices:
            continue
        changes = isinstance(model.prices, list) or model.price_variants
        for now in MOMENTS if changes else MOMENTS[:1]:
            price, _ = ours.price_at(now)
            assert price is not None
            for tier in tiers_of(model):
                context = {"service_tier": tier} if tier else None
                for usage in USAGES:
                    expected = theirs(model, provider, usage, now, context)
                    assert price.in_tier(tier).cost(usage) == expected, (name, tier, usage, now)
                    assert price.in_tier(tier).most(usage.input, usage.output, hour=True) >= expected


NAMES = [
    ("openai", "gpt-4o-2024-08-06"),
    ("openai", "GPT-5.2-20251211"),
    ("openai-responses", "gpt-5.6-luna-2026-07-30"),
    ("azure", "gpt-4o"),
    ("google-cloud", "claude-sonnet-4-5"),
    ("google-cloud", "gemini-2.5-flash"),
    ("bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ("litellm", "anthropic/claude-sonnet-4-5"),
    ("litellm", "gpt-4o"),
    ("litellm", "nobody/claude-sonnet-4-5"),
    ("openai", "no-such-model-1"),
    ("nobody", "gpt-4o"),
]


@pytest.mark.parametrize(("provider", "name"), NAMES)
def test_a_name_means_the_same_model_as_in_the_package(provider: str, name: str) -> None:
    ours = TABLE.find(provider, name)
    try:
        _, model = get_snapshot().find_provider_model(name, None, provider, None)
    except LookupError:
        model = None
    assert (None if ours is None else ours.id) == (None if model is None else model.id)


def test_the_table_is_what_the_locked_package_says() -> None:
    assert package_table(made=TABLE.made) == TABLE, "make prices"
    assert FILE.read_bytes() == written(TABLE)


def test_the_table_names_its_source_its_day_and_its_license() -> None:
    assert TABLE.source.startswith("genai-prices ")
    assert datetime.strptime(TABLE.made, "%Y-%m-%d").replace(tzinfo=UTC)
    assert "Permission is hereby granted" in TABLE.license


def test_service_tiers_of_a_maker_are_not_those_of_who_resells_it() -> None:
    usage = Usage(1_000, 1_000)
    now = datetime(2026, 11, 19, tzinfo=UTC)
    maker = TABLE.find("openai", "gpt-5-mini")
    reseller = TABLE.find("azure", "gpt-5.6-luna")
    assert maker is not None
    assert reseller is not None
    price, _ = maker.price_at(now)
    assert price is not None
    assert price.in_tier("flex").cost(usage) < price.cost(usage) < price.in_tier("priority").cost(usage)
    resold, _ = reseller.price_at(now)
    assert resold is not None
    assert not resold.tiers


@pytest.mark.parametrize(
    ("now", "until"),
    [
        (datetime(2026, 9, 30, 0, 30, tzinfo=UTC), datetime(2026, 9, 30, 1, tzinfo=UTC)),
        (datetime(2026, 9, 30, 3, 59, tzinfo=UTC), datetime(2026, 9, 30, 4, tzinfo=UTC)),
        (datetime(2026, 9, 30, 23, 59, tzinfo=UTC), datetime(2026, 10, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_price_by_the_hour_holds_until_the_hour_is_over(now: datetime, until: datetime) -> None:
    model = TABLE.find("deepseek", "deepseek-v4-flash")
    assert model is not None
    assert model.price_at(now)[1] == until


def test_a_price_that_never_changes_is_looked_up_once() -> None:
    model = TABLE.find("openai", "gpt-4o")
    assert model is not None
    assert model.price_at(MOMENTS[-1])[1] == FOREVER


def test_only_a_newer_package_takes_the_place_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_table().made == TABLE.made, "the installed package is the one that the table was made from"
    older = structs.replace(TABLE, source="genai-prices 0.0.9", providers=())
    (tmp_path / prices.FILE.name).write_bytes(written(older))
    monkeypatch.setattr(prices, "FILE", tmp_path / prices.FILE.name)
    load_table.cache_clear()
    try:
        table = load_table()
    finally:
        load_table.cache_clear()
    assert table == package_table(made="")
    assert is_newer("0.10.0", "genai-prices 0.9.9")
    assert not is_newer("0.2.1", "genai-prices 0.2.1")
