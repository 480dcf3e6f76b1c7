"""Models, providers and health, and empty lists of what there is not here: folders, identities, jobs.

Which models can be had is the business of `models`; an agent may name any other, and another stands in for it.
"""

from collections.abc import Iterable
from importlib.metadata import version

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from chargehand.errors import Invalid
from chargehand.memory.catalog import Profile
from chargehand.models.known import BUILT_IN, OWN
from chargehand.models.model import ModelCard
from chargehand.server.letta.agents import found
from chargehand.server.letta.model_access import is_named, may_name
from chargehand.server.problem import unknown
from chargehand.server.routing import Api, Handler
from chargehand.server.tenants import Tenant
from chargehand.server.wire import part, reply

_LISTS = ("folders", "sources", "identities", "jobs", "mcp-servers", "templates", "environments", "sandbox-config")
_EMBEDDING = "auto"
_MOST = 10_000


class ModelListed(Struct):
    """A model as the client lists it."""

    model: str
    name: str
    display_name: str
    handle: str
    context_window: int
    max_context_window: int
    model_endpoint_type: str
    provider_type: str
    provider_name: str
    provider_category: str = "base"
    model_type: str = "llm"


def for_letta(scope: Scope) -> bool:
    """Whether a call for `/v1/models` is one of Letta's client: it ends the path with a slash, and says who it is."""
    if scope.get("chargehand.slash"):
        return True
    agents = [value for name, value in scope["headers"] if name == b"user-agent"]
    return any(b"Letta/" in one for one in agents)


def add(api: Api) -> None:
    api.add("GET", "/v1/models", listing, "read", when=for_letta)
    api.add("GET", "/v1/models/embedding", embeddings, "read")
    api.add("GET", "/v1/providers", providers, "read")
    api.add("GET", "/v1/health", health, "open")
    for name in _LISTS:
        api.add("GET", f"/v1/{name}", _empty, "read")
        api.add("GET", f"/v1/{name}/{{which}}", _missing(name.replace("-", " ").removesuffix("s")), "read")
    for name in ("folders", "sources", "identities"):
        api.add("GET", f"/v1/agents/{{agent}}/{name}", _none, "read")
    api.add("GET", "/v1/agents/{agent}/files", _no_files, "read")


async def listing(request: Request, tenant: Tenant) -> Response:
    """What can be had for sure: no model, the one that stands in for others, and those that agents name."""
    profiles = await tenant.memory.catalog.find(Profile, limit=_MOST)
    named = [one.model for one in profiles if may_name(one.model, tenant.settings, tenant.lookup)]
    handles = dict.fromkeys((BUILT_IN, tenant.settings.model, *named))
    wanted = request.query_params.get("provider_type")
    name = request.query_params.get("provider_name")
    told = [_told(one) for one in _cards(tenant, filter(None, handles))]
    return reply([one for one in told if wanted in (None, one.provider_type) and name in (None, one.provider_name)])


def _cards(tenant: Tenant, handles: Iterable[str]) -> Iterable[ModelCard]:
    found: dict[str, ModelCard] = {}
    for handle in handles:
        try:
            card = tenant.finder.find(handle).card
        except Invalid:  # an agent may name what is not to be had
            continue
        found[card.handle] = card
    return found.values()


def _told(card: ModelCard) -> ModelListed:
    provider, _, name = card.handle.replace("/", ":", 1).partition(":")
    name = name or provider
    kind = OWN[provider].protocol if provider in OWN else "openai"
    return ModelListed(
        model=name,
        name=name,
        display_name=name,
        handle=card.handle,
        context_window=card.window,
        max_context_window=card.window,
        model_endpoint_type=kind,
        provider_type=kind,
        provider_name=provider,
    )


async def embeddings(_request: Request, tenant: Tenant) -> Response:
    """The one that archives get; with none, archives are searched by words."""
    found = tenant.embedding(_EMBEDDING)
    if found is None:
        return reply([])
    provider, _, name = found.handle.partition(":")
    told: dict[str, object] = {
        "handle": found.handle,
        "name": name or provider,
        "display_name": name or provider,
        "provider_name": provider,
        "provider_type": "openai",
        "embedding_model": name or provider,
        "embedding_dim": found.width,
        "embedding_endpoint_type": "openai",
        "model_type": "embedding",
        "batch_size": 256,
    }
    return reply([told])


async def providers(_request: Request, tenant: Tenant) -> Response:
    """Those whose key is known, or that need none. Keys are never told."""
    named = [name for name in OWN if is_named(name, tenant.settings, tenant.lookup)]
    there = [name for name in named if not OWN[name].needs_key or tenant.lookup(OWN[name].key)]
    return reply([{"id": f"provider-{name}", "name": name, "provider_type": OWN[name].protocol} for name in there])


async def health(_request: Request, _tenant: Tenant) -> Response:
    return reply({"status": "ok", "version": version("chargehand")})


async def _none(request: Request, tenant: Tenant) -> Response:
    """Nothing, for an agent that is there."""
    await found(tenant, part(request, "agent"))
    return reply([])


async def _no_files(request: Request, tenant: Tenant) -> Response:
    """The same, as a page of files is told."""
    await found(tenant, part(request, "agent"))
    return reply({"files": [], "next_cursor": None, "has_more": False})


async def _empty(_request: Request, _tenant: Tenant) -> Response:
    return reply([])


def _missing(what: str) -> Handler:
    async def handler(request: Request, _tenant: Tenant) -> Response:
        raise unknown(what, part(request, "which"))

    return handler
