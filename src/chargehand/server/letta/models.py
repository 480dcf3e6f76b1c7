"""Models, providers and health, and empty lists of what there is not here: folders, identities, jobs.

An agent may name a model that is not listed; if it is not available, the default one answers.
"""

from collections.abc import Iterable
from importlib.metadata import version

from starlette.types import Scope

from chargehand.errors import Invalid
from chargehand.memory.catalog import Profile
from chargehand.models.model import ModelCard
from chargehand.models.providers import BUILT_IN, OWN
from chargehand.server.letta.executor import is_enabled, may_name
from chargehand.server.letta.routing import Call, Routes
from chargehand.server.letta.wire import Table
from chargehand.server.problem import unknown
from chargehand.server.routing import SLASH

routes = Routes()
_EMPTY = ("folders", "sources", "identities", "jobs", "mcp-servers", "templates", "environments", "sandbox-config")
_EMPTY_OF_AGENT = ("folders", "sources", "identities")
_MAX_AGENTS = 10_000


def is_from_letta(scope: Scope) -> bool:
    """Whether it is a call of `/v1/models` by Letta's client: it ends the path with a slash, and says who it is."""
    if scope["path"] != "/v1/models":
        return False
    if SLASH in scope:
        return True
    return any(name == b"user-agent" and b"Letta/" in value for name, value in scope["headers"])


@routes.get("/v1/models")
async def list_models(call: Call) -> list[Table]:
    """What is available for sure: the built-in model, the default one, and those that agents name."""
    settings = call.tenant.settings
    profiles = await call.catalog.find(Profile, limit=_MAX_AGENTS)
    named = [profile.model for profile in profiles if may_name(profile.model, settings, call.tenant.lookup)]
    models = [_describe(card) for card in _find_cards(call, dict.fromkeys((BUILT_IN, settings.model, *named)))]
    for name in ("provider_type", "provider_name"):
        wanted = call.query.get(name)
        models = [model for model in models if wanted in (None, model[name])]
    return models


def _find_cards(call: Call, handles: Iterable[str]) -> Iterable[ModelCard]:
    cards: dict[str, ModelCard] = {}
    for handle in filter(None, handles):
        try:
            card = call.tenant.finder.find(handle).card
        except Invalid:  # an agent may name what is not available
            continue
        cards[card.handle] = card
    return cards.values()


def _describe(card: ModelCard) -> Table:
    provider, _, name = card.handle.replace("/", ":", 1).partition(":")
    protocol = OWN[provider].protocol if provider in OWN else "openai"
    return {
        **dict.fromkeys(("model", "name", "display_name"), name or provider),
        **dict.fromkeys(("context_window", "max_context_window"), card.window),
        **dict.fromkeys(("model_endpoint_type", "provider_type"), protocol),
        "handle": card.handle,
        "provider_name": provider,
        "provider_category": "base",
        "model_type": "llm",
    }


@routes.get("/v1/models/embedding")
async def list_embeddings(call: Call) -> list[Table]:
    """The one that archives get; if there is none, archives are searched by words."""
    embedding = call.tenant.embedding("auto")
    if embedding is None:
        return []
    provider, _, name = embedding.handle.partition(":")
    model: Table = {
        **dict.fromkeys(("name", "display_name", "embedding_model"), name or provider),
        **dict.fromkeys(("provider_type", "embedding_endpoint_type"), "openai"),
        "handle": embedding.handle,
        "provider_name": provider,
        "embedding_dim": embedding.width,
        "model_type": "embedding",
        "batch_size": 256,
    }
    return [model]


@routes.get("/v1/providers")
async def list_providers(call: Call) -> list[dict[str, str]]:
    """Those whose key is known, or that need none. Keys are never sent."""
    lookup = call.tenant.lookup
    return [
        {"id": f"provider-{name}", "name": name, "provider_type": place.protocol}
        for name, place in OWN.items()
        if is_enabled(name, call.tenant.settings, lookup) and (not place.needs_key or lookup(place.key))
    ]


@routes.add("GET", "/v1/health", "open")
async def health(_call: Call) -> dict[str, str]:
    return {"status": "ok", "version": version("chargehand")}


# --- what there is not


async def _list_nothing(call: Call) -> list[object]:
    if "agent" in call.request.path_params:
        await call.agent()
    return []


async def _find_nothing(call: Call) -> None:
    kind = call.request.url.path.split("/")[2]
    raise unknown(kind.replace("-", " ").removesuffix("s"), call.path("which"))


for _name in _EMPTY:
    routes.get(f"/v1/{_name}")(_list_nothing)
    routes.get(f"/v1/{_name}/{{which}}")(_find_nothing)
for _name in _EMPTY_OF_AGENT:
    routes.get(f"/v1/agents/{{agent}}/{_name}")(_list_nothing)


@routes.get("/v1/agents/{agent}/files")
async def list_files(call: Call) -> Table:
    await call.agent()
    return {"files": [], "next_cursor": None, "has_more": False}
