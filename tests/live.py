"""One real request to every provider that has a key in the environment: `make live`.

It costs well below a cent a provider. `LIVE_MODELS` names other models, with blanks between them
(`LIVE_MODELS="openai:gpt-5-nano azure:my-deployment"`), `LIVE_MAX_USD` what each provider's request may cost, and
`LIVE_TRIALS=all` tries everything that `chargehand doctor --ask` does. Exit code 1 where a request failed.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from chargehand.engine.policy import Retry
from chargehand.errors import Invalid
from chargehand.models.providers import OTHERS, OWN, key_variable
from chargehand.models.resolve import Finder
from chargehand.models.trials import TRIALS, TrialResult, try_model

MODELS: dict[str, str] = {
    "openai": "gpt-5-nano",
    "anthropic": "claude-haiku-4-5",
    "openrouter": "openai/gpt-5-nano",
    "alibaba": "qwen-flash",
    "cerebras": "gpt-oss-120b",
    "cohere": "command-r7b-12-2024",
    "deepseek": "deepseek-chat",
    "fireworks": "accounts/fireworks/models/gpt-oss-20b",
    "google": "gemini-flash-lite-latest",
    "google-cloud": "gemini-2.5-flash-lite",
    "groq": "openai/gpt-oss-20b",
    "huggingface": "openai/gpt-oss-20b",
    "mistral": "ministral-8b-latest",
    "moonshotai": "kimi-k2.6",
    "nebius": "openai/gpt-oss-120b",
    "ovhcloud": "gpt-oss-20b",
    "sambanova": "gpt-oss-120b",
    "together": "openai/gpt-oss-20b",
    "vercel": "openai/gpt-5-nano",
    "xai": "grok-4-fast-non-reasoning",
    "zai": "glm-4.5-air",
}
"""A cheap model of each provider."""
OWN_NAMES = ("azure", "bedrock", "heroku", "litellm")
"""Providers whose models have names of the account: they are asked where `LIVE_MODELS` names one."""


class Plan(Struct, frozen=True):
    """What is asked of one provider."""

    provider: str
    handle: str = ""
    """The model that is asked; empty: none."""
    why: str = ""
    """Why none is asked."""


def plan(lookup: Mapping[str, str]) -> Iterator[Plan]:
    """Yield every provider that takes a key, with the model that is asked or the reason why none is."""
    chosen = {handle.partition(":")[0]: handle for handle in lookup.get("LIVE_MODELS", "").split()}
    variables = {name: place.key for name, place in OWN.items() if place.needs_key and not place.api}
    variables |= {name: key_variable(name) for name in OTHERS}
    for provider, variable in variables.items():
        if not lookup.get(variable, "").strip():
            yield Plan(provider, why=f"{variable} is not set")
        elif provider in chosen:
            yield Plan(provider, chosen[provider])
        elif provider in MODELS:
            yield Plan(provider, f"{provider}:{MODELS[provider]}")
        else:
            yield Plan(provider, why=f"its models have names of your own; name one: LIVE_MODELS={provider}:NAME")


async def ask(handle: str, lookup: Mapping[str, str]) -> list[TrialResult]:
    """Try a model as `doctor --ask` does. Raises Invalid for a handle that names no model."""
    finder = Finder(lookup.get)
    try:
        model = finder.find(handle, retry=Retry(attempts=1))
        await finder.prepare()
        trials = TRIALS if lookup.get("LIVE_TRIALS") == "all" else TRIALS[:1]
        max_micros = round(float(lookup.get("LIVE_MAX_USD", "0.05")) * 1_000_000)
        return [result async for result in try_model(model, max_micros=max_micros, trials=trials)]
    finally:
        await finder.close()


async def main(lookup: Mapping[str, str], write: Callable[[str], object] = print) -> int:
    """Ask every provider that has a key. Return the exit code: 1 where a request failed, else 0."""
    plans = list(plan(lookup))
    for each in plans:
        if not each.handle:
            write(f"SKIPPED  {each.provider}: {each.why}")
    asked = [each for each in plans if each.handle]
    if not asked:
        write("no keys: no provider was asked")
        return 0
    failed = 0
    for each in asked:
        try:
            results = await ask(each.handle, lookup)
        except Invalid as error:
            failed += 1
            write(f"FAILED   {each.handle}: {error}")
            continue
        for result in results:
            failed += result.state == "failed"
            cost = "cost unknown" if result.micros is None else f"${result.micros / 1_000_000:.6f}"
            facts = f"{result.input} tokens in, {result.output} out, {result.seconds:.2f} s, {cost}"
            todo = f" → {result.todo}" if result.todo else ""
            write(f"{result.state.upper():8} {each.handle} {result.what}: {result.message} ({facts}){todo}")
    write(f"{len(asked)} of {len(plans)} providers were asked, {failed} requests failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(os.environ)))
