"""What calls cost: the same as the kept table says, cheap to work out, and never guessed."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from decimal import ROUND_CEILING

import pytest

from chargehand.models.messages import Usage
from chargehand.models.model import ModelCard
from chargehand.models.prices import FREE, Price, PriceTag, Rate, flat, is_local, look_up

NOW = 1_760_000_000.0


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

    price = look_up(provider, name, "", NOW)
    assert price is not None
    theirs = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=usage.input, output_tokens=usage.output, cache_read_tokens=usage.cached),
        name,
        provider_id=provider,
        genai_request_timestamp=datetime.fromtimestamp(NOW, UTC),
    )
    assert price.micros(usage) == int((theirs.total_price * 1_000_000).to_integral_value(ROUND_CEILING))


def test_a_model_is_also_found_by_where_it_is_called() -> None:
    assert look_up("", "gpt-4o", "https://api.openai.com/v1", NOW) == look_up("openai", "gpt-4o", "", NOW)


@pytest.mark.parametrize(
    ("provider", "name", "url"),
    [("openai", "no-such-model-1", ""), ("nobody", "gpt-4o", ""), ("", "gpt-4o", "https://example.invalid/v1")],
)
def test_a_price_nobody_knows_is_none(provider: str, name: str, url: str) -> None:
    assert look_up(provider, name, url, NOW) is None
    assert asyncio.run(PriceTag(provider, name, url, wall=lambda: NOW).micros(Usage(10, 10))) is None


def test_a_tag_looks_once_and_again_after_a_while() -> None:
    now = [NOW]
    looked: list[float] = []

    class Counted(PriceTag):
        def look_up(self) -> None:
            looked.append(now[0])

    async def story() -> None:
        tag = Counted("openai", "gpt-4o", wall=lambda: now[0])
        for _ in range(3):
            await tag.micros(Usage(1, 1))
        now[0] += 1000.0
        await tag.micros(Usage(1, 1))

    asyncio.run(story())
    assert looked == [NOW, NOW + 1000.0]


def test_without_usage_there_is_no_price() -> None:
    assert asyncio.run(PriceTag("", "m", fixed=flat(1.0, 1.0)).micros(None)) is None


@pytest.mark.parametrize(
    "url", ["http://localhost:1/v1", "http://127.0.0.1/v1", "http://[::1]:80", "http://a.localhost"]
)
def test_what_runs_on_this_machine_is_free(url: str) -> None:
    assert is_local(url)
    assert PriceTag("", "any", url).look_up() == FREE


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/v1", "https://localhost.example.com", "https://api.openai.com/v1", "", "x"]
)
def test_what_runs_elsewhere_is_not(url: str) -> None:
    assert not is_local(url)


def test_a_price_of_ones_own_is_exact_and_rounded_up() -> None:
    assert flat(0.1, 0.2).micros(Usage(10, 10)) == 3
    assert flat(0.1, 0.2).micros(Usage(1, 0)) == 1
    assert flat(3, 15, 0.3).micros(Usage(1_000_000, 1_000_000, 1_000_000)) == 300_000 + 15_000_000


def test_the_table_is_not_loaded_before_somebody_asks_for_a_price() -> None:
    heavy = "{'genai_prices', 'pydantic', 'aiohttp', 'pydantic_ai'}"
    script = f"import sys, chargehand.models.resolve; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("read", [1, 999, 1000, 1001, 5000, 5001, 90_000])
def test_the_card_of_a_model_says_what_fees_and_long_calls_cost(read: int) -> None:
    steps = Rate(1_000_000, ((1000, 3_000_000), (5000, 4_000_000)))
    price = Price(steps, Rate(2_000_000, ((1000, 5_000_000),)), Rate(100_000), call=700)
    card = price.on(ModelCard("m"))
    assert card.price(read, 30) == price.micros(Usage(read, 30))
    assert (card.handle, card.micros_cached) == ("m", 0.1)


def test_the_fee_of_a_model_that_is_charged_by_call_is_on_its_card() -> None:
    found = look_up("perplexity", "sonar", "", NOW)
    assert found is not None
    assert found.call > 0
    assert found.on(ModelCard("m")).price(0, 0) == found.call
