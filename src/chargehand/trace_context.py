"""The trace that calls to other systems belong to: what their header `traceparent` says (W3C Trace Context)."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

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


class TraceContext(Struct, frozen=True, gc=False):
    """The trace of a run, and the span outside of it that it belongs to."""

    trace: int
    parent: int = 0
    """The id of that span; 0: there is none."""
    is_sampled: bool = True


_PATTERN = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def parse_traceparent(text: str) -> TraceContext | None:
    """The trace context of a W3C `traceparent`; None for what is none."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None or (match[1] == "00" and match[5]):  # only later versions may have more parts
        return None
    return TraceContext(int(match[2], 16), int(match[3], 16), bool(int(match[4], 16) & 1))


def format_traceparent(trace: int, span: int, *, is_sampled: bool = True) -> str:
    return f"00-{trace:032x}-{span:016x}-{is_sampled:02x}"
