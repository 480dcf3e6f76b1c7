"""`/metrics`: the statistics of a tenant in the text that Prometheus reads, and the middleware that counts HTTP calls.

A tenant sees its own figures. Calls that nobody was let in with are counted for the first tenant: the operator's.
"""

import time
from collections.abc import Iterator, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand.runtime.stats import Histogram, Labels
from chargehand.server.index import plain
from chargehand.server.middleware.manners import SLASH, api_name
from chargehand.server.routing import CALLER, Api, Caller
from chargehand.server.settings import FIRST
from chargehand.server.tenants import Tenant, Tenants

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "chargehand_"


def metrics_api() -> Api:
    api = Api("metrics", plain)
    api.add("GET", "/metrics", _metrics, "read")
    return api


async def _metrics(_request: Request, tenant: Tenant) -> Response:
    return Response("\n".join(exposition(tenant)) + "\n", headers={"Content-Type": _TYPE})


def exposition(tenant: Tenant) -> Iterator[str]:
    """All figures of a tenant, line by line."""
    stats = tenant.stats.runs
    yield from _counter("runs_total", "Runs that ended.", ("team", "ending"), stats.runs)
    yield from _histogram("run_duration_seconds", "From the request to the end.", ("team",), stats.run_seconds)
    yield from _counter("tasks_total", "Tasks that were settled.", ("team", "ending"), stats.tasks)
    yield from _counter("attempts_total", "Attempts, by how they ended.", ("team", "ending"), stats.attempts)
    yield from _gauge("queue_depth", "Runs that wait for a place.", tenant.runs.waiting)
    yield from _gauge("runs_under_way", "Runs that are carried now.", tenant.runs.carried)
    models = stats.calls["model"].items()
    tokens = {(name, kind): count for name, model in models for kind, count in model.tokens.items()}
    yield from _counter("tokens_total", "Tokens of models.", ("model", "kind"), tokens)
    dollars = {(name,): model.micros / 1_000_000 for name, model in models}
    yield from _counter("cost_dollars_total", "What models cost.", ("model",), dollars)
    yield from _histogram("tool_duration_seconds", "Calls of tools.", ("tool",), stats.tool_seconds)
    http = tenant.stats
    yield from _counter("http_requests_total", "Calls that were answered.", ("door", "status"), http.http_calls)
    yield from _histogram("http_duration_seconds", "Until the reply began.", ("door",), http.http_seconds)


def _counter(name: str, words: str, labels: Labels, counts: Mapping[Labels, float]) -> Iterator[str]:
    yield from _head(name, words, "counter")
    for values, number in sorted(counts.items()):
        yield f"{_PREFIX}{name}{_labels(labels, values)} {_number(number)}"


def _gauge(name: str, words: str, number: float) -> Iterator[str]:
    yield from _head(name, words, "gauge")
    yield f"{_PREFIX}{name} {_number(number)}"


def _histogram(name: str, words: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    yield from _head(name, words, "histogram")
    names = (*labels, "le")
    bounds = [*map(_number, histogram.bounds), "+Inf"]
    for values, row in sorted(histogram.rows.items()):
        total = 0.0
        for bound, number in zip(bounds, row, strict=False):
            total += number
            yield f"{_PREFIX}{name}_bucket{_labels(names, (*values, bound))} {_number(total)}"
        yield f"{_PREFIX}{name}_sum{_labels(labels, values)} {_number(row[-2])}"
        yield f"{_PREFIX}{name}_count{_labels(labels, values)} {_number(row[-1])}"


def _head(name: str, words: str, kind: str) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {words}"
    yield f"# TYPE {_PREFIX}{name} {kind}"


def _labels(names: Labels, values: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


class Measured:
    """Around everything else: counts what was answered, refusals too."""

    def __init__(self, app: ASGIApp, tenants: Tenants) -> None:
        self._app = app
        self._stats = tenants.stats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, counted)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        caller: Caller | None = scope.get(CALLER)
        tenant = FIRST if caller is None else caller.tenant
        api = "metrics" if scope["path"] == "/metrics" else api_name(scope["path"], SLASH in scope)
        stats = self._stats[tenant]
        stats.http_calls[api, str(status)] += 1
        stats.http_seconds.add((api,), seconds)
