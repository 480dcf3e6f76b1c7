"""The live smoke test itself, against servers on this machine: no provider is asked here."""

from chargehand.models.providers import OTHERS, OWN
from chargehand.models.resolve import check_handle
from chargehand.models.testing.fault_server import FaultServer
from tests.live import MODELS, OWN_NAMES, main

KEY = "sk-not-a-real-key-at-all"


async def run(lookup: dict[str, str]) -> tuple[int, list[str]]:
    lines: list[str] = []
    return await main(lookup, lines.append), lines


def test_every_provider_with_a_key_has_a_model() -> None:
    providers = [name for name, place in OWN.items() if place.needs_key and not place.api] + list(OTHERS)
    assert sorted([*MODELS, *OWN_NAMES]) == sorted(providers)
    for provider, name in MODELS.items():
        check_handle(f"{provider}:{name}")


async def test_without_keys_every_provider_is_skipped_loudly() -> None:
    code, lines = await run({})
    assert code == 0
    assert lines[-1] == "no keys: no provider was asked"
    assert "SKIPPED  anthropic: ANTHROPIC_API_KEY is not set" in lines
    assert len(lines) == len(MODELS) + len(OWN_NAMES) + 1


async def test_a_provider_with_a_key_gets_one_request() -> None:
    async with FaultServer() as server:
        lookup = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url("ok").removesuffix("/v1")}
        code, lines = await run(lookup)
    assert code == 0
    assert server.requests["ok"] == 1
    assert lines[-2].startswith("OK       anthropic:claude-haiku-4-5 text: it said ")
    assert lines[-1].startswith("1 of ")


async def test_a_provider_that_fails_or_cannot_be_found_fails_the_test_and_shows_no_key() -> None:
    async with FaultServer() as server:
        lookup = {"OPENROUTER_API_KEY": KEY, "OPENROUTER_BASE_URL": server.url("401")}
        code, lines = await run(lookup)
    assert code == 1
    assert "openrouter refused the key (401)" in "".join(lines)
    assert KEY not in "".join(lines)
    code, lines = await run({"OPENAI_API_KEY": "two words"})
    assert (code, lines[-2].startswith("FAILED   openai")) == (1, True)


async def test_a_provider_with_names_of_its_own_is_asked_for_the_model_that_is_named() -> None:
    code, lines = await run({"AZURE_OPENAI_API_KEY": KEY})
    assert code == 0
    assert "SKIPPED  azure: its models have names of your own; name one: LIVE_MODELS=azure:NAME" in lines
