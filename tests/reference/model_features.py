"""The table of models and what works with them, for docs/models.md: each model is made, and asked how it would call."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.models.guard import Guarded
from chargehand.models.messages import Message, Request, Settings
from chargehand.models.model import Model
from chargehand.models.providers import OTHERS, OWN, key_variable
from chargehand.models.pydantic_ai_models import ProviderModel
from chargehand.models.resolve import find_model
from chargehand.models.wire import HttpModel
from tests.reference.markdown import code, table

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN = "<!-- features: written by `make reference` -->"
END = "<!-- end of features -->"

FAMILIES: Mapping[str, str] = {
    "openai:gpt-5.4": "OpenAI, from GPT-5.4",
    "openai:gpt-5-mini": "OpenAI, models that reason",
    "openai:gpt-4o-mini": "OpenAI, other models",
    "anthropic:claude-opus-5": "Anthropic, from Claude 4.6",
    "anthropic:claude-haiku-4-5": "Anthropic, before",
    "openrouter:openai/gpt-5-mini": "OpenRouter",
    "ollama:qwen3": "Ollama, vLLM, llama.cpp",
    "openai+http://127.0.0.1:1/v1#m": "any URL, OpenAI's protocol",
    "anthropic+http://127.0.0.1:1#m": "any URL, Anthropic's protocol",
    "google:gemini-3-flash-preview": "Google Gemini",
    "google-cloud:gemini-3-flash-preview": "Vertex AI",
    "azure:gpt-5-mini": "Azure",
    "bedrock:us.anthropic.claude-haiku-4-5-20251001-v1:0": "Amazon Bedrock, Claude",
    "deepseek:deepseek-chat": "DeepSeek",
    "groq:openai/gpt-oss-120b": "Groq",
    "mistral:mistral-large-latest": "Mistral",
    "moonshotai:kimi-k2.6": "Moonshot",
    "cohere:command-a-03-2025": "Cohere",
    "huggingface:openai/gpt-oss-120b": "Hugging Face",
    "zai:glm-4.7": "Z.ai",
    "demo": "the demo model",
}
"""A model of each family, by its handle."""
_ENDPOINTS = {
    "AZURE_OPENAI_ENDPOINT": "https://azure.invalid/openai/v1",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "GOOGLE_CLOUD_PROJECT": "my-project",
}
_IGNORED = {"cache": "supports_cache", "thinking": "supports_thinking"}
"""Settings that pydantic_ai takes for every model, with what its profile has where they do something."""
_NONE = Settings()
_YES = "yes"
_NO = "no"
_SCHEMA = Raw(b'{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}')
_TIERS = ("flex", "priority")
_HEADS = (
    "model family",
    "tools",
    "thoughts kept",
    "effort",
    "schema",
    "pictures",
    "PDFs",
    "cache",
    "tiers",
    "`provider:`",
    "tool search",
)


class Features(Struct, frozen=True):
    """What works with one model."""

    tools: bool
    thoughts: bool
    effort: tuple[str, ...]
    """The fields of a request that say it."""
    schema: bool
    images: bool
    documents: bool
    cache: bool
    tiers: tuple[str, ...]
    provider_tools: tuple[str, ...]
    searches_tools: bool


def features(handle: str) -> Features:
    """Return what works with a model, by its card and the requests that it would send."""
    known = {place.key: "dummy" for place in OWN.values()} | {key_variable(name): "dummy" for name in OTHERS}
    model = find_model(handle, {**known, **_ENDPOINTS}.get)
    if isinstance(model, Guarded):
        model = model._model
    card = structs.asdict(model.card)
    return Features(
        tools=model.card.native_tools,
        thoughts=isinstance(model, HttpModel | ProviderModel),
        effort=_changed(model, Settings(effort="high")),
        schema=model.card.schema,
        images=model.card.images,
        documents=bool(card.get("documents")),
        cache=bool(_changed(model, Settings(cache="1h"), Settings(cache="off"))),
        tiers=tuple(tier for tier in _TIERS if _changed(model, Settings(service_tier=tier))),
        provider_tools=model.card.provider_tools,
        searches_tools=model.card.searches_tools,
    )


def _changed(model: Model, settings: Settings, than: Settings = _NONE) -> tuple[str, ...]:
    """The fields of a request that settings change."""
    with_it = _written(model, settings)
    without = _written(model, than)
    return tuple(name for name in with_it if with_it[name] != without.get(name))


def _written(model: Model, settings: Settings) -> dict[str, object]:
    messages = (Message("system", "You are Ann."), Message("user", "Hello."))
    request = Request(messages, settings=settings, schema=_SCHEMA, asker="ann")
    if isinstance(model, HttpModel):
        written = model._body(request, 20_000, streamed=False)
        return cast("dict[str, object]", msgspec.json.decode(msgspec.json.encode(written)))
    if not isinstance(model, ProviderModel):
        return {}
    profile = model._model.profile
    ignored = {name for name, feature in _IGNORED.items() if not profile.get(feature)}
    return {name: value for name, value in model._settings(request).items() if name not in ignored}


def features_table() -> str:
    """Return the table as the page has it."""
    return table(_HEADS, list(_rows()))


def _rows() -> Iterator[tuple[str, ...]]:
    for handle, family in FAMILIES.items():
        found = features(handle)
        yield (
            family,
            _mark(found.tools),
            _mark(found.thoughts),
            ", ".join(map(code, found.effort)) or _NO,
            "strict" if found.schema else "told",
            _mark(found.images),
            _mark(found.documents),
            _mark(found.cache),
            ", ".join(found.tiers) or _NO,
            ", ".join(found.provider_tools) or _NO,
            _mark(found.searches_tools),
        )


def _mark(has: bool) -> str:
    return _YES if has else _NO


def page_with_features(page: str) -> str:
    """Return the page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{features_table()}\n{END}{after}"


def write() -> None:
    """Write the table into the page."""
    PAGE.write_text(page_with_features(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
