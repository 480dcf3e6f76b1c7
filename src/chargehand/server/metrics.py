"""`/metrics`: the statistics of a tenant in the text that Prometheus reads, and the middleware that counts HTTP calls.

A tenant sees its own figures. Calls that nobody was let in with are counted for the first tenant: the operator's.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand.runtime.stats import Histogram, Labels
from chargehand.server.routing import CALLER, Apis, Caller
from chargehand.server.settings import FIRST
from chargehand.server.tenants import Tenant, Tenants

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "chargehand_"
Sample: TypeAlias = tuple[str, Labels, float]
"""What follows the name, the values of the labels, and the number."""


async def write_metrics(_request: Request, tenant: Tenant) -> Response:
    return Response("\n".join(exposition(tenant)) + "\n", headers={"Content-Type": _TYPE})


def exposition(tenant: Tenant) -> Iterator[str]:
    """All figures of a tenant, line by line."""
    http = tenant.stats
    stats = http.runs
    models = stats.calls["model"].items()
    tokens = {(name, kind): count for name, model in models for kind, count in model.tokens.items()}
    dollars = {(name,): model.micros / 1_000_000 for name, model in models}
    yield from _counter("runs_total", "Runs that ended.", ("team", "ending"), stats.runs)
    yield from _histogram("run_duration_seconds", "From the request to the end.", ("team",), stats.run_seconds)
    yield from _counter("tasks_total", "Tasks that were settled.", ("team", "ending"), stats.tasks)
    yield from _counter("attempts_total", "Attempts, by how they ended.", ("team", "ending"), stats.attempts)
    yield from _family("queue_depth", "Runs that wait for a slot.", "gauge", (), [("", (), tenant.runs.waiting)])
    yield from _family(
        "runs_under_way", "Runs that are carried now.", "gauge", (), [("", (), tenant.runs.running_count)]
    )
    yield from _counter("tokens_total", "Tokens of models.", ("model", "kind"), tokens)
    yield from _counter("cost_dollars_total", "What models cost.", ("model",), dollars)
    yield from _histogram("tool_duration_seconds", "Calls of tools.", ("tool",), stats.tool_seconds)
    yield from _counter("http_requests_total", "Calls that were answered.", ("api", "status"), http.http_calls)
    yield from _histogram("http_duration_seconds", "Until the reply began.", ("api",), http.http_seconds)


def _counter(name: str, words: str, labels: Labels, counts: Mapping[Labels, float]) -> Iterator[str]:
    return _family(name, words, "counter", labels, [("", values, count) for values, count in sorted(counts.items())])


def _histogram(name: str, words: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    samples: list[Sample] = []
    bounds = [*map(_number, histogram.bounds), "+Inf"]
    for values, row in sorted(histogram.rows.items()):
        total = 0.0
        for bound, count in zip(bounds, row, strict=False):
            total += count
            samples.append(("_bucket", (*values, bound), total))
        samples += [("_sum", values, row[-2]), ("_count", values, row[-1])]
    return _family(name, words, "histogram", (*labels, "le"), samples)


def _family(name: str, words: str, kind: str, labels: Labels, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {words}"
    yield f"# TYPE {_PREFIX}{name} {kind}"
    for suffix, values, number in samples:
        pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=False))
        yield f"{_PREFIX}{name}{suffix}{f'{{{pairs}}}' if pairs else ''} {_number(number)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


class Measured:
    """Around everything else: counts what was answered, refusals too."""

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
