"""The timeline of a trace: a row for each task and for the supervisor's own work, drawn with characters."""

from operator import attrgetter
from typing import Literal

from msgspec import Struct

from chargehand.cli.console import short
from chargehand.cli.format import seconds
from chargehand.engine.policy import Seconds
from chargehand.runtime.trace import AttemptTrace, DutyTrace, Trace

LEGEND = "━ work  x failed  · waiting to retry  ~ being refined"
_FILL = {"work": "━", "failed": "─", "refine": "~", "wait": "·"}
_MAX_ROWS = 40
_MAX_NAME = 20


class Span(Struct, frozen=True):
    """What was done from `start` to `end`, in seconds since the run began; without an end it is under way."""

    kind: Literal["work", "failed", "refine", "wait"]
    start: Seconds
    end: Seconds | None
    attempt: int = 0
    """Its number: what was interrupted, or waited for a person, goes on under the same one."""


def timeline_rows(trace: Trace) -> dict[str, list[Span]]:
    """The spans of each task and duty, in the order in which they began."""
    rows: dict[str, list[Span]] = {}
    for duty in trace.supervision:
        span = _span_of(duty)
        if duty.duty == "refine":
            span = Span("refine", span.start, span.end)
        rows.setdefault(duty.task or f"({duty.duty})", []).append(span)
    for task in (*trace.tasks, *trace.dropped):
        waits = [Span("wait", retry.at, retry.at + retry.wait) for retry in task.retries if retry.wait > 0]
        spans = [*map(_span_of, task.attempts), *waits]
        if spans:
            rows.setdefault(task.id, []).extend(spans)
    for spans in rows.values():
        spans.sort(key=attrgetter("start"))
    return dict(sorted(rows.items(), key=lambda row: row[1][0].start))


def _span_of(work: AttemptTrace | DutyTrace) -> Span:
    end = None if work.seconds is None else work.began + work.seconds
    number = work.attempt if isinstance(work, AttemptTrace) else work.number
    return Span("failed" if work.ending == "failed" else "work", work.began, end, number)


def draw_bar(spans: list[Span], room: int, until: Seconds) -> str:
    """The spans of one row in so many columns, from the beginning of the run."""
    scale = room / max(until, 1e-9)
    bar = ""
    for span in spans:  # each gets a cell at least, be it at the expense of the next
        start = max(len(bar), min(room - 1, int(span.start * scale)))
        end = max(start + 1, round((until if span.end is None else min(span.end, until)) * scale))
        drawn = _FILL[span.kind] * (end - start)
        bar = bar.ljust(start) + (f"{drawn[:-1]}x" if span.kind == "failed" else drawn)
    return bar[:room]


def timeline_lines(trace: Trace, columns: int) -> list[str]:
    """A line for each row: its name, its bar, how long was worked on it."""
    rows = timeline_rows(trace)
    name_room = max((len(short(name, _MAX_NAME)) for name in rows), default=0)
    bar_room = max(10, columns - name_room - 30)
    lines: list[str] = []
    for name, spans in list(rows.items())[:_MAX_ROWS]:
        bar = draw_bar(spans, bar_room, trace.seconds)
        lines.append(f"{short(name, _MAX_NAME):{name_room}} │{bar:{bar_room}}│ {_describe_work(spans, trace.seconds)}")
    if len(rows) > _MAX_ROWS:
        lines.append(f"… and {len(rows) - _MAX_ROWS} more")
    return lines


def _describe_work(spans: list[Span], until: Seconds) -> str:
    worked = [span for span in spans if span.kind in ("work", "failed")]
    took = sum((until if span.end is None else span.end) - span.start for span in worked)
    attempts = len({span.attempt for span in worked})
    return f"{seconds(took)}, {attempts} attempts" if attempts > 1 else seconds(took)
