"""The ASGI application: the APIs, wrapped in middleware, what must be open while they are served, and the listening."""

import asyncio
import fcntl
import gc
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from itertools import accumulate
from pathlib import Path

import uvicorn
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand.code_errors import failure_of
from chargehand.concurrency import first_error
from chargehand.dispatch.job_driver import JobDriver
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid, Refused
from chargehand.journal.postgres_status import Backlog
from chargehand.models.resolve import Lookup
from chargehand.runtime.executor import Listener
from chargehand.runtime.stats import Histogram, Labels
from chargehand.server.api.routes import own_api
from chargehand.server.cluster import WorkSettings, connect_engine, reconciling, resuming_agents, working
from chargehand.server.cluster_metrics import ClusterBacklog, backlog_metrics
from chargehand.server.extension import HttpApi, MountedApi, TenantClient
from chargehand.server.http_server import HttpServer
from chargehand.server.letta.api import letta_api
from chargehand.server.middleware.gate import Keyring, guard
from chargehand.server.middleware.limits import bounded_http
from chargehand.server.middleware.redaction import clean_logs
from chargehand.server.openai.api import openai_api
from chargehand.server.openai.request import render_problem as render_openai_problem
from chargehand.server.page import add_page
from chargehand.server.reload import Reloader
from chargehand.server.routing import CALLER, Api, ApiCaller, Apis, Method
from chargehand.server.run_control import Recovery, recover, reopen
from chargehand.server.run_gauges import run_gauges
from chargehand.server.schedules import run_schedules
from chargehand.server.settings import FIRST, ServerSettings, check
from chargehand.server.teams import CALLER_TRACE, Teams
from chargehand.server.tenant_runs import closing
from chargehand.server.tenants import Tenant, Tenants
from chargehand.server.webhooks import start_webhooks
from chargehand.server.wire import Problem, reply


def all_apis(tenants: Tenants | None = None, added: Sequence[HttpApi] = ()) -> Apis:
    """Every API there is: what is not in here cannot be called. Those that were `added` come from other packages."""
    return Apis([index_api(), own_api(), letta_api(), openai_api(), *map(MountedApi, added)], tenants)


class Application:
    """The application, and what must be open while it is served."""

    def __init__(
        self,
        settings: ServerSettings,
        lookup: Lookup,
        apis: Sequence[HttpApi] = (),
        listeners: Sequence[Listener] = (),
        work: WorkSettings | None = None,
        on_reload: Callable[[str], None] | None = None,
    ) -> None:
        """With `work`, it is a worker: it drives runs that others begin, and has only health and metrics over HTTP."""
        check(settings)
        self._settings = settings
        self._work = work
        self._driver: JobDriver | None = None
        self._on_reload = on_reload
        self._keys = Keyring(settings)
        self._has_teams = asyncio.Event()
        """Set when the teams could be loaded: nothing is begun before."""
        self.tenants = Tenants(settings, lookup, self._on_open, listeners=listeners)
        self._added = tuple(apis)
        served = all_apis(self.tenants, self._added) if work is None else Apis([index_api()], self.tenants)
        lifespan = Router(lifespan=lambda _: self.opened())
        guarded = guard(served, settings, self._keys, served, redactor=self.tenants.redactor, lifespan=lifespan)
        self.app: ASGIApp = MeasuredApp(guarded, self.tenants, served)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Open what is served, and go on with what was left open.

        A team or a model that cannot be loaded is told before anybody calls.
        """
        with clean_logs(self.tenants.redactor):
            if self._settings.engine is not None:
                self.tenants.engine = await connect_engine(self._settings)
            async with self._keys, self.tenants, asyncio.TaskGroup() as jobs:
                tenant = await self.tenants.of(FIRST)
                tenant.part(Teams)
                if self._settings.model:
                    tenant.finder.find(self._settings.model)
                self._has_teams.set()
                tasks = [jobs.create_task(reopen(self.tenants)), jobs.create_task(run_schedules(self.tenants))]
                if self._on_reload is not None:
                    tasks.append(jobs.create_task(Reloader(self.tenants, self._on_reload).watch()))
                async with AsyncExitStack() as stack:
                    for api in self._added:
                        await _open_api(api, stack)
                    if self.tenants.engine is not None:
                        await stack.enter_async_context(reconciling(self.tenants, reopen))
                        if self._work is None:
                            await stack.enter_async_context(resuming_agents(self.tenants))
                    if self._work is not None:
                        self._driver = await stack.enter_async_context(working(self.tenants, self._work))
                    yield
                for task in tasks:
                    task.cancel()

    async def _on_open(self, tenant: Tenant) -> None:
        await self._has_teams.wait()
        await start_webhooks(tenant)
        if self._work is None:
            await recover(tenant)

    @property
    def queues(self) -> tuple[str, ...] | None:
        """The queues that a worker serves; None for a server."""
        return None if self._driver is None else self._driver.queues

    @property
    def running_count(self) -> int:
        """How many runs are driven here."""
        if self._driver is not None:
            return self._driver.driving
        return sum(tenant.runs.running_count for tenant in self.tenants.open)

    async def drain(self, grace: Seconds) -> None:
        """Take nothing more, and give what is under way so long."""
        self.tenants.close()
        if self._driver is not None:
            await self._driver.drain(grace)
        await self.tenants.drain(grace)


async def _open_api(api: HttpApi, stack: AsyncExitStack) -> None:
    if api.lifespan is None:
        return
    try:
        await stack.enter_async_context(api.lifespan())
    except Exception as error:  # a foreign package
        raise Invalid(f"API {api.name!r} could not be opened: {failure_of(error).message}") from error


class MeasuredApp:
    """Counts responses, refusals too. Calls without a valid token count for the first tenant, the operator's."""

    def __init__(self, app: ASGIApp, tenants: Tenants, apis: Apis) -> None:
        self._app = app
        self._stats = tenants.stats
        self._apis = apis

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        for name, value in scope.get("headers", ()):
            if name == b"traceparent":
                CALLER_TRACE.set(value.decode("latin-1"))

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                caller: ApiCaller | None = scope.get(CALLER)
                stats = self._stats[FIRST if caller is None else caller.tenant]
                api = self._apis.owner(scope).name
                stats.http_calls[api, str(message["status"])] += 1
                stats.http_seconds.add((api,), time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, count)


def build(
    settings: ServerSettings,
    lookup: Lookup,
    apis: Sequence[HttpApi] = (),
    listeners: Sequence[Listener] = (),
    on_reload: Callable[[str], None] | None = None,
) -> ASGIApp:
    """The whole application. Nothing is opened before it starts. `listeners` hear every entry of every run."""
    return Application(settings, lookup, apis, listeners, on_reload=on_reload).app


# --- the page, health, readiness, metrics


def index_api() -> Api:
    api = Api("index", _render_plain, prefixes=("",))
    add_page(api)
    api.add("GET", "/healthz", _health, "open")
    api.add("GET", "/readyz", _ready, "open")
    api.add("GET", "/metrics", _metrics, "read")
    for method, path in _OPENAI_CALLS:
        api.add(method, path, _misplaced_openai_call, "read")
    return api


_OPENAI_CALLS: tuple[tuple[Method, str], ...] = (
    ("POST", "/chat/completions"),
    ("POST", "/responses"),
    ("GET", "/models"),
    ("POST", "/files"),
)
"""What OpenAI clients call first, by a base URL that lacks its end."""


async def _misplaced_openai_call(_request: Request, _tenant: Tenant) -> Response:
    detail = "there is nothing at this path; the base URL of OpenAI clients ends with /v1"
    return render_openai_problem(Problem(404, "no_route", detail))


def _render_plain(problem: Problem) -> Response:
    return PlainTextResponse(f"{problem.detail}\n", problem.status)


async def _health(_request: Request, _tenant: Tenant) -> Response:
    return reply({"status": "ok"})


async def _metrics(_request: Request, tenant: Tenant) -> Response:
    backlog = await tenant.part(ClusterBacklog).read()
    figures = generate_latest(TenantCollector(tenant, backlog))
    return Response(figures, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


async def _ready(request: Request, tenant: Tenant) -> Response:
    """Counts are shown to callers with a token; `left` are open runs that this server cannot resume."""
    runs = tenant.runs
    if runs.closing:
        raise closing()
    if tenant.journal.trouble:
        raise Problem(503, "store_unavailable", "the store cannot be written just now; runs wait for it", after=2.0)
    caller: ApiCaller = request.scope[CALLER]
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


# --- listening


_BACKLOG = 2048
_KEEP_ALIVE = 30
"""For how many seconds a connection may stand idle."""
_REPLIES = 2
"""How many seconds replies that are under way may take once all runs are over."""

logger = logging.getLogger(__name__)


def serve(
    settings: ServerSettings,
    lookup: Lookup,
    ready: Callable[[int, Sequence[str]], None],
    apis: Sequence[HttpApi] = (),
    listeners: Sequence[Listener] = (),
    on_reload: Callable[[str], None] | None = None,
) -> None:
    """Serve until stopped. `ready` is told the port and the teams when calls are answered.

    With `on_reload` the files of teams are watched; it is told what was loaded anew, and what could not be.
    """
    _make_folder(settings.data)
    with nullcontext() if settings.store is not None else _only_server_of(settings.data):
        application = Application(settings, lookup, apis, listeners, on_reload=on_reload)
        _listen_and_serve(application, settings, ready)


def work(
    settings: ServerSettings,
    lookup: Lookup,
    ready: Callable[[int, Sequence[str]], None],
    todo: WorkSettings,
    listeners: Sequence[Listener] = (),
) -> None:
    """Drive runs that others begin, until stopped. `ready` is told the port of its health and its queues."""
    _listen_and_serve(Application(settings, lookup, listeners=listeners, work=todo), settings, ready)


def _listen_and_serve(
    application: Application, settings: ServerSettings, ready: Callable[[int, Sequence[str]], None]
) -> None:
    _raise_open_files()
    listening = listen(settings.host, settings.port)
    try:
        port: int = listening.getsockname()[1]
        asyncio.run(_serve(application, settings, lambda names: ready(port, names), listening))
    except ExceptionGroup as group:  # what is open together is closed together: one reason for all of it
        raise first_error(group) from None
    finally:
        listening.close()


def serve_one_client(
    settings: ServerSettings, lookup: Lookup, api: str, serve_client: Callable[[TenantClient], Awaitable[None]]
) -> None:
    """Serve the operator's tenant to one client, without listening anywhere, until `serve_client` returns.

    For protocols that are spoken over pipes.
    """
    application = Application(settings, lookup)

    async def run() -> None:
        async with application.opened():
            tenant = await application.tenants.of(FIRST)
            await serve_client(TenantClient(tenant, ApiCaller(FIRST, api, "admin", api), api))
            await application.tenants.drain(settings.grace)

    _make_folder(settings.data)
    try:
        with nullcontext() if settings.store is not None else _only_server_of(settings.data):
            asyncio.run(run())
    except ExceptionGroup as group:  # as above
        raise first_error(group) from None


async def _serve(
    application: Application,
    settings: ServerSettings,
    ready: Callable[[Sequence[str]], None],
    listening: socket.socket,
) -> None:
    """Serve on this socket until SIGTERM or SIGINT. A second one cuts off what still goes on."""
    loop = asyncio.get_running_loop()
    stops = asyncio.Queue[None]()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stops.put_nowait, None)
    try:
        async with application.opened():
            tenant = await application.tenants.of(FIRST)
            teams = tuple(tenant.part(Teams).teams)
            names = teams if application.queues is None else application.queues

            def listens() -> None:
                # what is there now stays: the collector need not look at it ever again
                gc.collect()
                gc.freeze()
                ready(names)

            server = HttpServer(_uvicorn_config(application.app, settings), listens)
            async with asyncio.TaskGroup() as jobs:
                ending = jobs.create_task(_end(server, application, stops))
                await server.serve([listening])
                ending.cancel()
    finally:
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(name)


def _uvicorn_config(app: ASGIApp, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=bounded_http(settings.limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=_BACKLOG,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_REPLIES,
    )


async def _end(server: HttpServer, application: Application, stops: "asyncio.Queue[None]") -> None:
    """Told to stop, take nothing more, and end when what is under way is done; told again, at once."""
    await stops.get()
    grace = application.tenants.settings.grace
    logger.info("stopping: %d runs have %g s to end", application.running_count, grace)
    async with asyncio.TaskGroup() as jobs:
        drained = jobs.create_task(application.drain(grace))
        hurry = jobs.create_task(stops.get())
        await asyncio.wait((drained, hurry), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not drained.done():
            server.force_exit = True
            await application.drain(0.0)
    server.stop()
    await stops.get()
    server.force_exit = True


@contextmanager
def _only_server_of(data: Path) -> Generator[None]:
    """Hold the data folder, where the stores are files: the order of an agent's messages is kept in memory then."""
    handle = os.open(data / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(handle, 20).decode() or "another"
            raise Refused(f"{data} is in use by process {pid}; stop that server, or name another --data") from None
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        os.close(handle)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; Invalid, saying why, where that cannot be."""
    try:
        return _bound(*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0])
    except OSError as error:
        reason = error.strerror or str(error)
        raise Invalid(f"{host} port {port} cannot be used: {reason}; name another with --host or --port") from error


def _bound(family: int, kind: int, protocol: int, _name: str, address: tuple[object, ...]) -> socket.socket:
    # with its protocol said: asyncio lets small replies out at once only where it sees TCP (else they wait 40 ms)
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _make_folder(data: Path) -> None:
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        detail = f"{data} cannot be the folder of the data: {error.strerror}; name another with --data"
        raise Invalid(detail) from error


def _raise_open_files() -> None:
    """As many open files as we may have: a thousand streams need more than the usual bound."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# --- `/metrics`: the statistics of a tenant in the text that prometheus reads. a tenant sees it


class TenantCollector(Collector):
    """All figures of one tenant; with a backlog also those of the cluster."""

    def __init__(self, tenant: Tenant, backlog: Backlog | None) -> None:
        self._tenant = tenant
        self._backlog = backlog

    def collect(self) -> Iterator[Metric]:
        http = self._tenant.stats
        stats = http.runs
        runs = self._tenant.runs
        models = stats.calls["model"].items()
        tokens = {(name, kind): count for name, model in models for kind, count in model.tokens.items()}
        dollars = {(name,): model.micros / 1_000_000 for name, model in models}
        yield _counter("runs", "Runs that ended.", ("team", "ending"), stats.runs)
        yield _histogram("run_duration_seconds", "From the request to the end.", "team", stats.run_seconds)
        yield _counter("tasks", "Tasks that were settled.", ("team", "ending"), stats.tasks)
        yield _counter("attempts", "Attempts, by how they ended.", ("team", "ending"), stats.attempts)
        yield GaugeMetricFamily("chargehand_queue_depth", "Runs that wait for a slot.", runs.waiting)
        yield GaugeMetricFamily("chargehand_runs_under_way", "Runs that are under way now.", runs.running_count)
        yield from run_gauges(self._tenant)
        yield _counter(
            "tokens",
            "Tokens of models, and parts of them.",
            ("model", "kind"),
            tokens,
        )
        yield _counter("cost_dollars", "What models cost.", ("model",), dollars)
        yield _histogram("tool_duration_seconds", "Calls of tools.", "tool", stats.tool_seconds)
        yield _counter("http_requests", "Calls that were answered.", ("api", "status"), http.http_calls)
        yield _histogram("http_duration_seconds", "Until the reply began.", "api", http.http_seconds)
        yield _counter("resumed_runs", "Runs that this process continued.", (), stats.resumed)
        notices = self._tenant.journal.notices
        if notices is not None:
            description = "For how long nothing was heard of the store."
            yield GaugeMetricFamily("chargehand_notice_lag_seconds", description, notices.lag)
        if self._backlog is not None:
            yield from backlog_metrics(self._backlog)


def _counter(name: str, description: str, labels: Labels, counts: Mapping[Labels, float]) -> Metric:
    family = CounterMetricFamily(f"chargehand_{name}", description, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def _histogram(name: str, description: str, label: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(f"chargehand_{name}", description, labels=(label,))
    bounds = [*map(str, histogram.bounds), "+Inf"]
    for values, row in sorted(histogram.rows.items()):
        family.add_metric(values, list(zip(bounds, accumulate(row), strict=False)), row[-2])
    return family
