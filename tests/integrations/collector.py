"""An OTLP/HTTP collector in this process, and the tree of spans that a journal should have given."""

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from chargehand.runtime.trace import AttemptTrace, Trace


class Collector:
    """Keeps every span that comes in. It takes nothing while `closed` is set, and is slow while `slow` is."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[Span] = []
        self.requests = 0
        self.service = ""
        self.headers: dict[str, str] = {}
        self.closed = threading.Event()
        self.slow = 0.0
        self.changed = threading.Condition()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self.changed:
            for resource in request.resource_spans:
                names = {item.key: item.value.string_value for item in resource.resource.attributes}
                self.service = names["service.name"]
                for scope in resource.scope_spans:
                    self.received.extend(scope.spans)
            self.changed.notify_all()

    def wait_for(self, count: int, seconds: float = 30.0) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.by_id()) >= count, seconds), f"{len(self.received)} spans"

    def by_id(self) -> dict[bytes, Span]:
        """The spans by their ids. One that came twice must be the same."""
        spans: dict[bytes, Span] = {}
        for span in tuple(self.received):
            first = spans.setdefault(span.span_id, span)
            assert first == span, f"two spans have one id: {first} and {span}"
        return spans

    def tree(self) -> Counter[tuple[str, ...]]:
        """How often each path of names, from the root on, occurs."""
        spans = self.by_id()
        assert len({span.trace_id for span in spans.values()}) == 1, "one trace"
        return Counter(_path(span, spans) for span in spans.values())


def _path(span: Span, spans: dict[bytes, Span]) -> tuple[str, ...]:
    if not span.parent_span_id or span.parent_span_id not in spans:
        return (span.name,)
    return (*_path(spans[span.parent_span_id], spans), span.name)


def attributes_of(span: Span) -> dict[str, object]:
    values: dict[str, object] = {}
    for item in span.attributes:
        kind = item.value.WhichOneof("value")
        assert kind is not None
        value = getattr(item.value, kind)
        values[item.key] = [part.string_value for part in value.values] if kind == "array_value" else value
    return values


@contextmanager
def collecting() -> Generator[Collector]:
    """A collector on a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
            """Nobody reads it."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests += 1
            collector.headers = {name.lower(): value for name, value in self.headers.items()}
            assert self.path == "/v1/traces"
            if collector.slow:
                time.sleep(collector.slow)
            status = 503 if collector.closed.is_set() else 200
            if status == 200:
                collector.take(body)
            try:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:  # who sent it is dead
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()


# --- what the journal says


_STEPS = {
    "tool": "execute_tool",
    "memory": "search_memory",
    "remember": "update_memory",
    "check": "check",
    "subteam": "invoke_agent",
    "make_worker": "create_agent",
}


def expected_tree(trace: Trace, team: str) -> Counter[tuple[str, ...]]:
    """The tree of an ended run, by its trace: an independent reading of the same entries."""
    root: tuple[str, ...] = (f"invoke_workflow {team}",)
    tree: Counter[tuple[str, ...]] = Counter([root])
    stopped: set[tuple[str, str, int]] = set()
    for duty in trace.supervision:
        path = (*root, "plan supervisor" if duty.duty == "plan" else "invoke_agent supervisor")
        key = (duty.duty, duty.task, duty.number)
        if key not in stopped:  # else it is taken up again after a crash
            tree[path] += 1
        if duty.ending == "stopped":
            stopped.add(key)
        for call in duty.calls:
            tree[*path, f"chat {call.model}"] += 1
    for question in trace.questions:
        tree[*root, f"wait_for_input {question.what}"] += 1
    for task in (*trace.tasks, *trace.dropped):
        for attempt in _merged(task.attempts):
            path = (*root, f"invoke_agent {attempt[0].worker}")
            tree[path] += 1
            for name in _steps(attempt):
                tree[*path, name] += 1
            for call in (call for part in attempt for call in part.calls):
                tree[*path, f"chat {call.model}"] += 1
    return tree


def _merged(attempts: Iterable[AttemptTrace]) -> list[list[AttemptTrace]]:
    """What was interrupted and taken up again is one attempt."""
    merged: dict[int, list[AttemptTrace]] = {}
    for attempt in attempts:
        merged.setdefault(attempt.attempt, []).append(attempt)
    return list(merged.values())


def _steps(attempts: Sequence[AttemptTrace]) -> list[str]:
    """The calls of an attempt: one that was lost and made again is one call."""
    steps = {step.step: step for attempt in attempts for step in attempt.steps}
    chats = ("model", "summary")
    return ["chat" if step.kind in chats else f"{_STEPS[step.kind]} {step.name}" for step in steps.values()]


def without_models(tree: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """The same where a call is `chat`, whichever model it asks: the trace of a step does not name it."""
    plain: Counter[tuple[str, ...]] = Counter()
    for path, count in tree.items():
        plain[tuple("chat" if name.startswith("chat ") else name for name in path)] += count
    return plain
