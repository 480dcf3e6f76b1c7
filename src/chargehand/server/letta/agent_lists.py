"""Lists of agents: of all of them, by what they are, and of those that hold a block."""

from collections.abc import Callable

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.catalog import Group, Profile
from chargehand.server.letta.agents import all_told
from chargehand.server.letta.blocks import found as found_block
from chargehand.server.letta.finding import Wanted, found
from chargehand.server.letta.last_runs import with_last_runs
from chargehand.server.letta.mapping import items
from chargehand.server.letta.pages import Page, cut, page_of
from chargehand.server.problem import Problem
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import flag, part, reply
from chargehand.terms.roster import Match

_MOST = 100_000
_KEPT = ("last_stop_reason", "project_id", "template_id", "base_template_id", "created_by_id")  # as they were sent
_ORDERS: dict[str, Callable[[Profile], float | str]] = {
    "created_at": lambda one: one.created,
    "updated_at": lambda one: one.updated,
    "last_run_completion": lambda one: str(one.settings.get("last_run_completion") or ""),
    "name": lambda one: one.name,
}


def add(api: Api) -> None:
    api.add("GET", "/v1/agents", listing, "read")
    api.add("GET", "/v1/agents/count", count, "read")
    api.add("GET", "/v1/blocks/{block}/agents", holders, "read")


async def listing(request: Request, tenant: Tenant) -> Response:
    asked = request.query_params
    page = page_of(request, 50, "desc")
    order = asked.get("order_by") or asked.get("sort_by") or "created_at"
    if order not in _ORDERS:
        raise Problem(422, "invalid", f"order_by is {order[:40]!r}; it must be one of {', '.join(_ORDERS)}")
    if order == "created_at" and not _particular(request):
        return reply(await all_told(tenant, await _found(request, tenant, page), asked.getlist("include")))
    everybody = await with_last_runs(tenant, await _found(request, tenant, Page("", "", _MOST, "asc")))
    wanted = sorted((one for one in everybody if _is_meant(one, request)), key=_ORDERS[order])
    return reply(await all_told(tenant, cut([(one.id, one) for one in wanted], page), asked.getlist("include")))


async def count(_request: Request, tenant: Tenant) -> Response:
    return reply(len(await tenant.memory.catalog.find(Profile, limit=_MOST)))


async def _found(request: Request, tenant: Tenant, page: Page) -> list[Profile]:
    asked = request.query_params
    tags = tuple(dict.fromkeys(asked.getlist("tags")))
    match = Match(tags, ()) if flag(request, "match_all_tags") else Match((), tags)
    wanted = Wanted(asked.get("name"), asked.get("query_text", ""), match)
    return await found(tenant, Profile, page, wanted, None if flag(request, "show_hidden_agents") else _is_hidden)


def _is_hidden(profile: Profile) -> bool:
    return profile.settings.get("hidden") is True


def _particular(request: Request) -> bool:
    """Whether it is asked for what the catalog has no index for."""
    asked = request.query_params
    return any(asked.get(name) for name in (*_KEPT, "identity_id", "identifier_keys"))


def _is_meant(profile: Profile, request: Request) -> bool:
    asked = request.query_params
    for name in _KEPT:
        if (wanted := asked.get(name)) and profile.settings.get(name, UNSET) != wanted:
            return False
    identities = {str(asked["identity_id"])} if asked.get("identity_id") else set(asked.getlist("identifier_keys"))
    return not identities or not identities.isdisjoint(items(profile.settings.get("identity_ids")))


async def holders(request: Request, tenant: Tenant) -> Response:
    """The agents that have a block, by themselves or through a group."""
    block = await found_block(tenant, part(request, "block"))
    catalog = tenant.memory.catalog
    ids: dict[str, None] = {}
    for owner in await catalog.owners(block.id):
        group = await catalog.get(Group, owner)
        ids |= dict.fromkeys((owner,) if group is None else group.members)
    profiles = [one for which in ids if (one := await catalog.get(Profile, which)) is not None]
    profiles.sort(key=lambda one: one.created)
    page = cut([(one.id, one) for one in profiles], page_of(request, 50, "desc"))
    return reply(await all_told(tenant, page))
