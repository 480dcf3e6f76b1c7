"""What is where: the plain page at `/`, health and readiness. A page to look at runs with comes here later."""

from math import ceil
from typing import cast

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from chargehand.server.problem import Problem
from chargehand.server.recovery import Recovery
from chargehand.server.routing import CALLER, Api, Caller
from chargehand.server.tenant_runs import closing
from chargehand.server.tenants import Tenant
from chargehand.server.wire import reply

_INDEX = """chargehand is running.

/api            our own API: teams, runs, memory (docs: /api/openapi.json)
/v1/agents ...  the API of letta-client
/v1/chat/completions, /v1/responses, /v1/models
                a team as a model, for OpenAI clients
/metrics        figures for Prometheus
/healthz        whether the process lives; /readyz whether it takes work
"""


def plain(problem: Problem) -> Response:
    headers = {} if problem.after is None else {"Retry-After": str(ceil(problem.after))}
    return PlainTextResponse(f"{problem.detail}\n", problem.status, headers)


async def _index(_request: Request, _tenant: Tenant) -> Response:
    return PlainTextResponse(_INDEX)


async def _health(_request: Request, _tenant: Tenant) -> Response:
    return reply({"status": "ok"})


async def _ready(request: Request, tenant: Tenant) -> Response:
    """How much is under way is told to who has a token; `left` are open runs that nobody here can go on with."""
    if tenant.runs.closing:
        raise closing()
    if tenant.journal.trouble:
        raise Problem(503, "store_unavailable", "the store cannot be written just now; runs wait for it", after=2.0)
    if not cast("Caller", request.scope[CALLER]).scopes:
        return reply({"status": "ready"})
    tenant_runs = tenant.runs
    recovery = tenant.part(Recovery)
    told = {"status": "ready", "runs": tenant_runs.carried, "waiting": tenant_runs.waiting}
    return reply({**told, "resumed": recovery.resumed, "left": len(recovery.left)})


def index_api() -> Api:
    api = Api("index", plain)
    api.add("GET", "/", _index, "open")
    api.add("GET", "/healthz", _health, "open")
    api.add("GET", "/readyz", _ready, "open")
    return api
