"""OpenTelemetry: the spans of runs, sent over OTLP/HTTP. Needs `pip install 'chargehand[otel]'`.

A span is sent once the journal has its end. Its ids are hashes of the run and of its place in it, so a process that
resumes a run goes on with the same trace. What a process that died may not have sent is sent again, under the same ids
and with the same content: together the processes send every span, and never two for one thing.
"""

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from chargehand.concurrency import log_errors
from chargehand.engine import events as ev
from chargehand.engine.policy import Seconds
from chargehand.engine.state import Work
from chargehand.extras import OfExtra
from chargehand.integrations.spans import (
    NO_CONTENT,
    Content,
    RunSpans,
    ShownContent,
    Span,
    span_id,
    trace_id,
)
from chargehand.runtime.executor import TracingListener
from chargehand.trace_context import TRACEPARENT, TraceContext, format_traceparent, parse_traceparent

with OfExtra("OpenTelemetry", "otel"):
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

logger = logging.getLogger(__name__)

_MAX_RUNS = 5000
"""Runs that are followed at once. One that was forgotten is read again when it is resumed."""
_MAX_WAITING = 100_000
"""Spans that may wait to be sent."""
_MAX_BATCH = 512
_DELAY: Seconds = 1.0
_FIRST_PAUSE: Seconds = 0.5
_LONGEST_PAUSE: Seconds = 30.0
_GIVE_UP: Seconds = 600.0
"""How long a batch that is not taken is sent again."""


class _TracedRun(NamedTuple):
    spans: RunSpans
    context: TraceContext


class OtelListener(TracingListener):
    """A listener that sends the spans of every run it hears.

    `team.add_listener(OtelListener())` sends them to the collector that the usual variables name
    (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` ...), or
    to another exporter. Prompts, replies, arguments and results are sent only with `content`; `redact` takes secrets
    out of them.
    """

    def __init__(
        self,
        exporter: SpanExporter | None = None,
        *,
        content: bool = False,
        redact: Callable[[str], str] = str,
        delay: Seconds = _DELAY,
        first_pause: Seconds = _FIRST_PAUSE,
    ) -> None:
        """Create the listener.

        Args:
            exporter: Where spans are sent; None: to the collector of the usual variables.
            content: Send prompts, replies, arguments and results, too.
            redact: Takes secrets out of what is sent.
            delay: How long a span may wait for others.
            first_pause: How long to wait before a batch that was not taken is sent again; it doubles each time.
        """
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._sampler = provider.sampler
        self._content: Content = ShownContent(redact) if content else NO_CONTENT
        self._runs: dict[str, _TracedRun] = {}
        self._sender = SpanSender(
            exporter or _otlp_exporter(), provider.resource, redact, delay=delay, first_pause=first_pause
        )

    def __call__(self, run: str, entries: Sequence[ev.Entry]) -> None:
        traced = self._runs.get(run)
        for entry in entries:
            if traced is None:
                if not isinstance(entry.event, ev.RunRequested):
                    return  # it began elsewhere, and what came before is not known
                traced = self._follow(run, entry)
            elif entry.seq > traced.spans.seq:
                ended = traced.spans.record(entry)
                if ended and traced.context.is_sampled:
                    self._sender.put(traced, ended)
            elif isinstance(entry.event, ev.RunRequested) and entry.event != traced.spans.requested:
                traced = self._follow(run, entry)  # another run of that name, in another journal
        if traced is not None and entries and isinstance(entries[-1].event, ev.RunEnded):
            self._runs.pop(run, None)

    def recall(self, run: str, entries: Sequence[ev.Entry]) -> None:
        self(run, entries)

    def _follow(self, run: str, first: ev.Entry) -> _TracedRun:
        spans = RunSpans(run, first, self._content)
        traced = self._runs[run] = _TracedRun(spans, self._context(run, spans.requested))
        if len(self._runs) > _MAX_RUNS:
            del self._runs[next(iter(self._runs))]
        return traced

    def _context(self, run: str, requested: ev.RunRequested) -> TraceContext:
        """The trace a run belongs to: that of the run around it, that of its label, or its own."""
        parent = requested.parent
        around = None if parent is None else self._runs.get(parent.run)
        if parent is not None and around is not None:
            spans = around.spans
            key = spans.step_key(parent.task, parent.attempt, parent.step)
            outer = span_id(spans.run, spans.requested.seed, key)
            return TraceContext(around.context.trace, outer, around.context.is_sampled)
        caller = parse_traceparent(requested.labels.get(TRACEPARENT, ""))
        if caller is not None:
            return caller
        trace = trace_id(run, requested.seed)
        sampled = self._sampler.should_sample(Context(), trace, "invoke_workflow")
        return TraceContext(trace, is_sampled=sampled.decision.is_sampled())

    def traceparent(self, run: str, work: Work, *, step: int = 0, call: int = 0) -> str:
        traced = self._runs.get(run)
        if traced is None:
            return ""
        spans = traced.spans
        key = spans.step_key(work.task, work.number, step) if step else spans.call_key(work, call)
        context = traced.context
        return format_traceparent(context.trace, span_id(run, spans.requested.seed, key), is_sampled=context.is_sampled)

    def log_ids(self, run: str) -> dict[str, str]:
        """The ids of the trace and the span of a run that is under way here, for log lines; empty for another."""
        traced = self._runs.get(run)
        if traced is None:
            return {}
        span = span_id(run, traced.spans.requested.seed, "")
        return {"trace_id": f"{traced.context.trace:032x}", "span_id": f"{span:016x}"}

    def flush(self, timeout: Seconds = 5.0) -> bool:
        """Wait until everything is sent; False if that takes longer than `timeout`."""
        return self._sender.flush(timeout)

    def close(self, timeout: Seconds = 5.0) -> None:
        """Send what is left, for at most `timeout` seconds, and stop."""
        self._sender.close(timeout)


class SpanSender:
    """Sends spans from a thread of its own, in batches, and again where a batch was not taken."""

    def __init__(
        self,
        exporter: SpanExporter,
        resource: Resource,
        redact: Callable[[str], str],
        *,
        delay: Seconds,
        first_pause: Seconds,
    ) -> None:
        self._exporter = exporter
        self._delay = delay
        self._first_pause = first_pause
        self._resource = resource
        self._redact = redact
        self._scope = InstrumentationScope("chargehand")
        self._waiting: deque[tuple[_TracedRun, Span]] = deque()
        self._wakeup = threading.Event()
        self._idle = threading.Condition()
        self._asleep = False
        self._hurried = False
        self._sending = 0
        self._over = False
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def put(self, traced: _TracedRun, spans: Sequence[Span]) -> None:
        """Take spans to be sent soon. Called from the event loop, so nothing is waited for."""
        self._waiting.extend([(traced, span) for span in spans])
        while len(self._waiting) > _MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        if self._asleep:
            self._wakeup.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="chargehand-otel", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def flush(self, timeout: Seconds) -> bool:
        if self._thread is None:
            return True
        self._hurried = True
        self._wakeup.set()
        with self._idle:
            return self._idle.wait_for(lambda: not self._waiting and not self._sending, timeout)

    def close(self, timeout: Seconds = 5.0) -> None:
        if self._over:
            return
        is_sent = self.flush(timeout)
        self._over = True
        self._wakeup.set()
        atexit.unregister(self.close)
        if not is_sent:
            unsent = len(self._waiting) + self._sending
            logger.warning("%d spans were not sent: the collector did not take them in time", unsent)
        self._exporter.shutdown()

    def _work(self) -> None:
        while not self._over:
            self._asleep = True
            if not self._waiting:
                self._wakeup.wait()
            self._asleep = False
            self._wakeup.clear()
            if not self._hurried:
                self._wakeup.wait(self._delay)  # for more spans
            self._hurried = False
            while self._waiting and not self._over:
                self._sending = min(len(self._waiting), _MAX_BATCH)
                self._send([self._waiting.popleft() for _ in range(self._sending)])
                self._sending = 0
            self._report_dropped()
            with self._idle:
                self._idle.notify_all()

    def _report_dropped(self) -> None:
        if self._dropped:
            logger.warning("%d spans were dropped: the collector takes them too slowly", self._dropped)
            self._dropped = 0

    def _send(self, batch: Sequence[tuple[_TracedRun, Span]]) -> None:
        """Send a batch, again after a pause if it was not taken."""
        spans = [self._readable(traced, span) for traced, span in batch]
        give_up = time.monotonic() + _GIVE_UP
        pause = self._first_pause
        while not self._over:
            with log_errors("spans could not be sent"):
                if self._exporter.export(spans) is SpanExportResult.SUCCESS:
                    return
            if time.monotonic() > give_up:
                logger.warning("%d spans are given up: the collector has not taken them for 10 minutes", len(spans))
                return
            self._wakeup.clear()
            self._wakeup.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _readable(self, traced: _TracedRun, span: Span) -> ReadableSpan:
        context = traced.context
        spans = traced.spans
        seed = spans.requested.seed
        own = SpanContext(context.trace, span_id(spans.run, seed, span.key), is_remote=False, trace_flags=_SAMPLED)
        outer = span_id(spans.run, seed, span.parent) if span.key else context.parent
        parent = SpanContext(context.trace, outer, is_remote=not span.key, trace_flags=_SAMPLED) if outer else None
        return ReadableSpan(
            name=span.name,
            context=own,
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            kind=SpanKind.CLIENT if span.is_client else SpanKind.INTERNAL,
            instrumentation_scope=self._scope,
            status=self._status(span),
            start_time=int(span.start * 1e9),
            end_time=int(span.end * 1e9),
        )

    def _status(self, span: Span) -> Status:
        if not span.error:
            return _UNSET
        return Status(StatusCode.ERROR, self._redact(span.message)[:_LONGEST_MESSAGE] or span.error)


_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)
_LONGEST_MESSAGE = 500


def _resource() -> Resource:
    """What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say of this process; its name is `chargehand` otherwise."""
    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        return resource.merge(Resource({"service.name": "chargehand"}))
    return resource


def _otlp_exporter() -> SpanExporter:
    with OfExtra("OpenTelemetry", "otel"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - as needed
    return OTLPSpanExporter()
