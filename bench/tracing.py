"""What traces cost: the entries of a run with 100 tasks become spans, which are sent nowhere."""

import asyncio
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from bench.executor import Fake, team
from bench.measure import MICRO, Lap, Laps, Settings, timed
from bench.table import Row, Target
from chargehand.engine.events import Entry
from chargehand.integrations.otel import OtelListener

_TASKS = 100
_RUNS = 20


class CountingExporter(SpanExporter):
    """Counts spans."""

    def __init__(self) -> None:
        self.count = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.count += len(spans)
        return SpanExportResult.SUCCESS


class EncodingExporter(CountingExporter):
    """Also makes the request of them, as the exporter of OpenTelemetry does."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        encode_spans(spans).SerializeToString()
        return super().export(spans)


def _traced(entries: Sequence[Entry], exporter: CountingExporter) -> Lap:
    """So many runs with these entries, all their spans sent; seconds a span."""
    listener = OtelListener(exporter)
    with timed() as lap:
        for number in range(_RUNS):
            for entry in entries:
                listener(f"run{number}", (entry,))
        assert listener.flush(60)
    listener.close()
    return Lap(lap.wall / exporter.count, lap.cpu / exporter.count)


def spans(settings: Settings) -> list[Row]:
    """CPU of the event loop and of the thread that sends, together."""
    entries = asyncio.run(team(Fake(_TASKS)).run("the goal")).entries
    ours = Laps()
    encoded = Laps()
    for _ in range(settings.repeat):
        ours.laps.append(_traced(entries, CountingExporter()))
        encoded.laps.append(_traced(entries, EncodingExporter()))
    return [
        Row(f"OpenTelemetry: {_TASKS} tasks", "CPU us a span", ours.cpu(MICRO), (), Target("<=", 25)),
        Row("  with OpenTelemetry's own encoding as OTLP", "CPU us a span", encoded.cpu(MICRO)),
    ]
