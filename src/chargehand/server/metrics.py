"""`/metrics`: the statistics of a tenant in the text that Prometheus reads. A tenant sees its own figures."""

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from chargehand.runtime.stats import Histogram, Labels
from chargehand.server.tenants import Tenant


def write_metrics(tenant: Tenant) -> Response:
    return Response(generate_latest(TenantCollector(tenant)), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


class TenantCollector(Collector):
    """All figures of one tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant

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
        yield _counter("tokens", "Tokens of models.", ("model", "kind"), tokens)
        yield _counter("cost_dollars", "What models cost.", ("model",), dollars)
        yield _histogram("tool_duration_seconds", "Calls of tools.", "tool", stats.tool_seconds)
        yield _counter("http_requests", "Calls that were answered.", ("api", "status"), http.http_calls)
        yield _histogram("http_duration_seconds", "Until the reply began.", "api", http.http_seconds)


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
