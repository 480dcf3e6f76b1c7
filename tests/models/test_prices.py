"""What calls cost: the same as the kept table says, cheap to work out, and never guessed."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from decimal import ROUND_CEILING

import pytest

from chargehand.models.messages import Message, Request, Usage
from chargehand.models.model import ClosableModel, ModelCard
from chargehand.models.prices import PriceTag, find_price, flat
from chargehand.models.rates import Price, Rates, dearest
from chargehand.models.resolve import find_model
from tests.models.loopback import loopback, whole


def cost(price: Price, usage: Usage) -> int | None:
    return ModelCard("m").with_price(price).price(usage)


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("openai", "gpt-4o"),
        ("openai", "gpt-4.1-nano"),
        ("anthropic", "claude-sonnet-4-5"),
        ("google", "gemini-2.5-pro"),
        ("deepseek", "deepseek-chat"),
        ("openrouter", "openai/gpt-4o"),
    ],
)
@pytest.mark.parametrize("usage", [Usage(0, 0), Usage(1234, 567), Usage(1234, 567, 1000), Usage(300_000, 9, 250_001)])
def test_a_price_is_what_the_table_says(provider: str, name: str, usage: Usage) -> None:
    import genai_prices

    price = find_price(provider, name)
    assert price is not None
    theirs = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=usage.input, output_tokens=usage.output, cache_read_tokens=usage.cached),
        name,
        provider_id=provider,
    )
    assert cost(price, usage) == int((theirs.total_price * 1_000_000).to_integral_value(ROUND_CEILING))


def test_a_model_is_also_found_by_where_it_is_called() -> None:
    assert find_price("", "gpt-4o", "https://api.openai.com/v1") == find_price("openai", "gpt-4o")


@pytest.mark.parametrize(
    ("provider", "name", "url"),
    [("openai", "no-such-model-1", ""), ("nobody", "gpt-4o", ""), ("", "gpt-4o", "https://example.invalid/v1")],
)
def test_a_price_nobody_knows_is_none(provider: str, name: str, url: str) -> None:
    tag = PriceTag(provider, name, url)
    asyncio.run(tag.look_up())
    assert tag.price is None


def test_a_tag_looks_again_only_when_the_price_changes() -> None:
    now = datetime(2026, 11, 19, 0, 30, tzinfo=UTC).timestamp()  # half an hour before the dear hours of this model
    seen: list[tuple[bool, Price | None]] = []

    async def story() -> None:
        nonlocal now
        tag = PriceTag("deepseek", "deepseek-v4-flash", clock=lambda: now)
        for minutes in (0, 29, 1, 179, 1):
            now += 60 * minutes
            before = tag.price
            await tag.look_up()
            seen.append((tag.price is before, tag.price))

    asyncio.run(story())
    assert [kept for kept, _ in seen] == [False, True, False, True, False]
    usual, _, dear, _, again = [cost(price, Usage(1_000_000, 0)) for _, price in seen if price is not None]
    assert usual is not None
    assert dear is not None
    assert usual < dear
    assert again == usual


@pytest.mark.parametrize(
    "url", ["http://localhost:4000/v1", "http://127.0.0.1/v1", "http://10.0.0.1", "https://x.invalid"]
)
def test_a_model_has_its_providers_price_wherever_it_is_called(url: str) -> None:
    assert PriceTag("openai", "gpt-4o", url).find() == find_price("openai", "gpt-4o")
    assert PriceTag("openai", "no-such-model-1", url).find() is None


def test_another_provider_at_the_address_has_a_price_of_its_own() -> None:
    found = PriceTag("openai", "llama-3.1-8b-instant", "https://api.groq.com/openai/v1").find()
    assert found is not None
    assert found == find_price("groq", "llama-3.1-8b-instant")


def test_a_price_of_ones_own_is_exact_and_rounded_up() -> None:
    assert cost(flat(0.1, 0.2), Usage(10, 10)) == 3
    assert cost(flat(0.1, 0.2), Usage(1, 0)) == 1
    assert cost(flat(3, 15, 0.3), Usage(1_000_000, 1_000_000, 1_000_000)) == 300_000 + 15_000_000


async def test_what_anthropic_writes_to_its_cache_costs_what_anthropic_charges() -> None:
    """1,000 tokens read, 20,000 written to the cache and 20 out cost 63,300 where the writes are charged as input."""
    usage = {"input_tokens": 1_000, "cache_creation_input_tokens": 20_000, "output_tokens": 20}
    content = [{"type": "text", "text": "hi"}]
    message = {"type": "message", "model": "claude", "content": content, "stop_reason": "end_turn", "usage": usage}
    async with loopback(lambda _: whole(message)) as server:
        model = find_model("anthropic:claude-sonnet-4-5", lambda _: None, base_url=server.url, key="k", variable="K")
        try:
            came = await model.reply(Request([Message("user", "hello")]))
        finally:
            assert isinstance(model, ClosableModel)
            await model.close()
    assert came.micros == 78_300
    assert model.card.highest_price(21_000, 20) == 21_000 * 3.75 + 20 * 15


def test_the_most_that_a_call_can_cost_takes_the_dearest_rates() -> None:
    price = flat(3, 15, 0.3, dollars_cache_write=3.75, dollars_cache_write_hour=6, dollars_reasoning=20)
    assert price.most(1_000, 100) == 3_750 + 2_000
    assert price.most(1_000, 100, hour=True) == 6_000 + 2_000
    assert flat(3, 15, 4).most(1_000, 100) == 4_000 + 1_500
    falling = Price(3.0, 15.0, dearer=((500, Rates(1.0, 5.0)),))
    assert falling.most(1_000, 100) == 3_000 + 1_500, "a call may read less than was reckoned"


def test_a_call_in_another_service_tier_has_the_price_of_the_tier() -> None:
    flex = flat(1.0, 5.0)
    priority = flat(6.0, 30.0)
    price = Price(3.0, 15.0, tiers=(("flex", flex), ("priority", priority)))
    card = ModelCard("m").with_price(price)
    used = Usage(1_000, 100)
    assert [card.price(used, tier) for tier in ("", "flex", "priority", "auto")] == [4_500, 1_500, 9_000, 4_500]
    assert card.highest_price(1_000, 100, tier="priority") == 9_000
    assert card.highest_price(1_000, 100, tier="flex") == 4_500, "the provider may serve it in its usual tier"


def test_several_prices_have_one_that_is_never_exceeded() -> None:
    prices = [flat(3, 15, 0.3, 3.75), flat(3.5, 10), Price(1.0, 1.0, call=7, dearer=((1_000, Rates(9.0, 9.0)),))]
    bound = dearest(prices)
    for usage in (Usage(900, 90), Usage(900, 90, cache_written=900), Usage(2_000, 5), Usage(2_000, 5, cached=2_000)):
        assert bound.cost(usage) >= max(price.cost(usage) for price in prices)
    assert bound.cost(Usage(100, 10)) == 350 + 150 + 7


def test_the_package_of_prices_is_not_loaded_where_the_table_is_as_new() -> None:
    heavy = "{'genai_prices', 'pydantic'}"
    script = (
        "import sys; from chargehand.models.prices import find_price; assert find_price('openai', 'gpt-4o'); "
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_table_is_not_loaded_before_somebody_asks_for_a_price() -> None:
    heavy = "{'genai_prices', 'pydantic', 'aiohttp', 'pydantic_ai'}"
    script = f"import sys, chargehand.models.resolve; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("read", "micros"), [(1, 761), (1000, 1760), (1001, 3853), (5000, 15_850), (5001, 20_854), (90_000, 360_850)]
)
def test_the_card_of_a_model_says_what_fees_and_long_calls_cost(read: int, micros: int) -> None:
    price = Price(1.0, 2.0, 0.1, call=700, dearer=((1000, Rates(3.0, 5.0, 0.1)), (5000, Rates(4.0, 5.0, 0.1))))
    card = ModelCard("m").with_price(price)
    assert card.price(Usage(read, 30)) == micros
    assert (card.handle, card.micros_cached) == ("m", 0.1)


def test_the_fee_of_a_model_that_is_charged_by_call_is_on_its_card() -> None:
    found = find_price("perplexity", "sonar")
    assert found is not None
    assert found.call > 0
    assert ModelCard("m").with_price(found).price(Usage()) == found.call
