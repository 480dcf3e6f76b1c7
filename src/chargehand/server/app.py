"""The ASGI application: the APIs, wrapped in middleware, and what must be open while they are served."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand.models.resolve import Lookup
from chargehand.server.api.routes import own_api
from chargehand.server.letta.api import letta_api
from chargehand.server.middleware.gate import Keyring, guard
from chargehand.server.middleware.redaction import clean_logs
from chargehand.server.openai.api import openai_api
from chargehand.server.problem import Problem
from chargehand.server.recovery import Recovery, recover, reopen
from chargehand.server.routing import CALLER, Api, Apis, Caller
from chargehand.server.settings import FIRST, Settings, check
from chargehand.server.tenant_runs import closing
from chargehand.server.tenants import Tenant, Tenants
from chargehand.server.wire import reply

_INDEX = """chargehand is running.

/api            our own API: teams, runs, memory (docs: /api/openapi.json)
/v1/agents ...  the API of letta-client
/v1/chat/completions, /v1/responses, /v1/models
                a team as a model, for OpenAI clients
/metrics        figures for Prometheus
/healthz        whether the process lives; /readyz whether it takes work
"""


def all_apis(tenants: Tenants | None = None) -> Apis:
    """Every API there is: what is not in here cannot be called."""
    return Apis([index_api(), own_api(), letta_api(), openai_api()], tenants)


class Application:
    """The application, and what must be open while it is served."""

    def __init__(self, settings: Settings, lookup: Lookup) -> None:
        check(settings)
        self._keys = Keyring(settings)
        self.tenants = Tenants(settings, lookup, recover)
        apis = all_apis(self.tenants)
        lifespan = Router(lifespan=lambda _: self.opened())
        guarded = guard(apis, settings, self._keys, apis, redactor=self.tenants.redactor, lifespan=lifespan)
        self.app: ASGIApp = Measured(guarded, self.tenants, apis)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Open what is served, and go on with what was left open. What cannot be opened is said before it listens."""
        with clean_logs(self.tenants.redactor):
            async with self._keys, self.tenants, asyncio.TaskGroup() as jobs:
                await self.tenants.of(FIRST)
                others = jobs.create_task(reopen(self.tenants))
                yield
                others.cancel()


class Measured:
    """Counts responses, refusals too. Calls without a valid token count for the first tenant, the operator's."""

    def __init__(self, app: ASGIApp, tenants: Tenants, apis: Apis) -> None:
        self._app = app
        self._stats = tenants.stats
        self._apis = apis

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                caller: Caller | None = scope.get(CALLER)
                stats = self._stats[FIRST if caller is None else caller.tenant]
                api = self._apis.owner(scope).name
                stats.http_calls[api, str(message["status"])] += 1
                stats.http_seconds.add((api,), time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, count)


def build(settings: Settings, lookup: Lookup) -> ASGIApp:
    """The whole application. Nothing is opened before it starts."""
    return Application(settings, lookup).app


# --- the plain page at `/`, health, readiness, metrics


def index_api() -> Api:
    api = Api("index", _render_plain, prefixes=("",))
    api.add("GET", "/", _index, "open")
    api.add("GET", "/healthz", _health, "open")
    api.add("GET", "/readyz", _ready, "open")
    api.add("GET", "/metrics", _metrics, "read")
    return api


def _render_plain(problem: Problem) -> Response:
    return PlainTextResponse(f"{problem.detail}\n", problem.status)


async def _index(_request: Request, _tenant: Tenant) -> Response:
    return PlainTextResponse(_INDEX)


async def _health(_request: Request, _tenant: Tenant) -> Response:
    return reply({"status": "ok"})


async def _metrics(_request: Request, tenant: Tenant) -> Response:
    from chargehand.server.metrics import write_metrics  # noqa: PLC0415 - it loads prometheus_client, which few need

    return write_metrics(tenant)


async def _ready(request: Request, tenant: Tenant) -> Response:
    """Counts are shown to callers with a token; `left` are open runs that this server cannot resume."""
    runs = tenant.runs
    if runs.closing:
        raise closing()
    if tenant.journal.trouble:
        raise Problem(503, "store_unavailable", "the store cannot be written just now; runs wait for it", after=2.0)
    caller: Caller = request.scope[CALLER]
    if caller.scope == "open":
        return reply({"status": "ready"})
    recovery = tenant.part(Recovery)
    counts = {
        "runs": runs.running_count,
        "waiting": runs.waiting,
        "resumed": recovery.resumed,
        "left": len(recovery.left),
    }
    return reply({"status": "ready", **counts})
