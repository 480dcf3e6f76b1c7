"""The API of `letta-client`: all its routes, models, health, and problems as that client reads them."""

from importlib.metadata import version

from starlette.responses import Response
from starlette.types import Scope

from chargehand.models.model import ModelCard
from chargehand.models.providers import BUILT_IN
from chargehand.server.letta import agent_files, agents, conversations, memory, messages, tools
from chargehand.server.letta.models import protocol_of
from chargehand.server.letta.routing import ROUTES, LettaCall, route
from chargehand.server.letta.wire import Table
from chargehand.server.routing import SLASH, Api
from chargehand.server.wire import Problem, reply

_DECLARED_IN = (agent_files, agents, conversations, memory, messages, tools)
_RETRIED = (429, 502, 503, 504)  # what it makes sense to send again as it was
_EMPTY = ("folders", "mcp-servers", "templates", "environments")


def letta_api() -> Api:
    api = Api("letta", _render, prefixes=("/v1", "/v1/models/embedding"), claims=_is_from_letta)
    for each in ROUTES:
        api.add(each.method, each.path, each.answer, each.scope)
    return api


def _render(problem: Problem) -> Response:
    """`{"detail": ...}`. The client repeats conflicts unless it is told not to: what lost once would lose again."""
    headers = {} if problem.status in _RETRIED else {"x-should-retry": "false"}
    return reply({"detail": problem.detail, "code": problem.code}, problem.status, headers)


def _is_from_letta(scope: Scope) -> bool:
    """Whether it is a call of `/v1/models` by Letta's client: it ends the path with a slash, and says who it is."""
    if scope["path"] != "/v1/models":
        return False
    if SLASH in scope:
        return True
    return any(name == b"user-agent" and b"Letta/" in value for name, value in scope["headers"])


@route("GET", "/v1/models")
async def list_models(call: LettaCall) -> list[Table]:
    """What is available for sure: the built-in model, and the default one."""
    handles = dict.fromkeys((BUILT_IN, call.tenant.settings.model or BUILT_IN))
    return [_describe(call.tenant.finder.find(handle).card) for handle in handles]


def _describe(card: ModelCard) -> Table:
    provider, _, name = card.handle.replace("/", ":", 1).partition(":")
    return {
        **dict.fromkeys(("model", "name", "display_name"), name or provider),
        **dict.fromkeys(("context_window", "max_context_window"), card.window),
        **dict.fromkeys(("model_endpoint_type", "provider_type"), protocol_of(provider)),
        "handle": card.handle,
        "provider_name": provider,
        "provider_category": "base",
        "model_type": "llm",
    }


@route("GET", "/v1/models/embedding")
async def list_embeddings(call: LettaCall) -> list[Table]:
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


@route("GET", "/v1/health", "open")
async def health(_call: LettaCall) -> dict[str, str]:
    return {"status": "ok", "version": version("chargehand")}


async def _list_nothing(_call: LettaCall) -> list[object]:
    """Of what there is not here: clients list it all the same."""
    return []


for _name in _EMPTY:
    route("GET", f"/v1/{_name}")(_list_nothing)
