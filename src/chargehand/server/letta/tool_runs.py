"""Tools of clients called over the wire, and whether a person is asked before an agent calls one."""

from typing import cast

from msgspec import Struct, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.letta.agents import found, told
from chargehand.server.letta.custom import allowed, executed
from chargehand.server.letta.mapping import items
from chargehand.server.letta.source import described
from chargehand.server.letta.tool_routes import named
from chargehand.server.letta.tools import built_in
from chargehand.server.letta.writers import changing
from chargehand.server.problem import Problem, unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, part, reply

_LIMIT = 50_000


class RunSent(Struct):
    source_code: str
    args: dict[str, object]
    name: str | None = None


class ArgumentsSent(Struct):
    args: dict[str, object] | None = None


class ApprovalSent(Struct):
    requires_approval: bool


def add(api: Api) -> None:
    api.add("POST", "/v1/tools/run", run)
    api.add("POST", "/v1/agents/{agent}/tools/{name}/run", run_of_agent)
    api.add("PATCH", "/v1/agents/{agent}/tools/approval/{name}", approve)


async def run(request: Request, tenant: Tenant) -> Response:
    allowed(tenant)
    sent = await body(request, RunSent)
    says = described(sent.source_code, sent.name or "")
    return reply(await executed(sent.source_code, says.name, sent.args, _LIMIT))


async def run_of_agent(request: Request, tenant: Tenant) -> Response:
    allowed(tenant)
    profile = await found(tenant, part(request, "agent"))
    name = part(request, "name")
    sent = await body(request, ArgumentsSent)
    kept = None if name not in profile.tools or name in built_in() else await named(tenant, name)
    if kept is None:
        raise Problem(404, "unknown", f"the agent has no tool of a client called {name[:100]!r}; only those can be run")
    limit = kept.settings.get("limit")
    most = limit if isinstance(limit, int) else _LIMIT
    return reply(await executed(kept.code, kept.name, sent.args or {}, most))


async def approve(request: Request, tenant: Tenant) -> Response:
    """Whether a person must be asked before this agent calls this tool: a rule more, or a rule less."""
    which = part(request, "agent")
    name = part(request, "name")
    sent = await body(request, ApprovalSent)
    async with changing(tenant, which):
        profile = await found(tenant, which)
        if name not in profile.tools:
            raise unknown("tool of this agent", name)
        rule: dict[str, object] = {"type": "requires_approval", "tool_name": name}
        others = [one for one in items(profile.settings.get("tool_rules")) if not _is_rule(one, rule)]
        settings = {**profile.settings, "tool_rules": [*others, rule] if sent.requires_approval else others}
        profile = await tenant.memory.catalog.change(structs.replace(profile, settings=settings))
    return reply(await told(tenant, profile))


def _is_rule(one: object, rule: dict[str, object]) -> bool:
    if not isinstance(one, dict):
        return False
    told = cast("dict[str, object]", one)
    return all(told.get(name) == value for name, value in rule.items())
