"""The trace that calls to other systems belong to: what their header `traceparent` says (W3C Trace Context)."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

TRACEPARENT = "traceparent"
"""The name of the header, and of the label of a run that says which trace it belongs to."""
_OUTGOING: ContextVar[str] = ContextVar("chargehand_outgoing_trace", default="")


@contextmanager
def outgoing_trace(traceparent: str) -> Generator[None]:
    """Let HTTP calls in the block carry this `traceparent`."""
    token = _OUTGOING.set(traceparent)
    try:
        yield
    finally:
        _OUTGOING.reset(token)


def trace_headers() -> dict[str, str]:
    """The headers of an HTTP call that is made here; empty without tracing."""
    traceparent = _OUTGOING.get()
    return {TRACEPARENT: traceparent} if traceparent else {}
