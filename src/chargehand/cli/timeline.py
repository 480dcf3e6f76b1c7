"""When each task was worked on: one bar a task, out of characters. Works on runs that have not ended."""

from msgspec import Struct

from chargehand.cli.console import short
from chargehand.cli.render import seconds
from chargehand.terms import events as ev
from chargehand.terms.policy import Instant, Seconds

_FILL = {"work": "━", "failed": "─", "refine": "~", "wait": "·"}
LEGEND = "━ work  x failed  · waiting to retry  ~ being refined"
_MOST = 40


class _Span(Struct):
    kind: str
    start: Instant
    end: Instant | None = None


class Timeline:
    """Hears every entry of a run in turn."""

    def __init__(self) -> None:
        self._rows: dict[str, list[_Span]] = {}
        self._open: dict[str, _Span] = {}
        self._first: Instant | None = None
        self._last: Instant = 0.0

    def hear(self, entry: ev.Entry) -> None:
        at, before = entry.at, self._last
        self._last = at
        self._first = at if self._first is None else self._first
        match entry.event:
            case ev.AttemptStarted(task=task):
                self._begin(task, "work", at)
            case ev.SupervisionStarted(duty=duty, task=task) if (task or f"({duty})") not in self._open:
                self._begin(task or f"({duty})", "refine" if duty == "refine" else "work", at)
            case ev.RetryScheduled(task=task, after=after) if after > at:
                self._begin(task, "wait", at)
            case ev.RunResumed():  # between the crash and now nobody worked
                self._end_all(before)
            case event:
                self._hear_an_end(event, at)

    def _hear_an_end(self, event: ev.Event, at: Instant) -> None:
        match event:
            case ev.AttemptSucceeded(task=task) | ev.BackoffEnded(task=task) | ev.TaskRefined(task=task):
                self._end(task, at)
            case ev.AttemptFailed(task=task, failure=failure):
                self._end(task, at, kind="" if failure.kind == "approval" else "failed")
            case ev.SupervisionFailed(duty=duty, task=task):
                self._end(task or f"({duty})", at, kind="failed")
            case ev.TasksAdded(done=True):
                self._end("(plan)", at)
            case ev.AnswerWritten():
                self._end("(answer)", at)
            case ev.TimeRanOut() | ev.RunEnded():
                self._end_all(at)
            case _:
                pass

    def _begin(self, name: str, kind: str, at: Instant) -> None:
        self._open[name] = _Span(kind, at)
        self._rows.setdefault(name, []).append(self._open[name])

    def _end(self, name: str, at: Instant, kind: str = "") -> None:
        span = self._open.pop(name, None)
        if span is not None:
            span.end = at
            span.kind = kind if kind and span.kind == "work" else span.kind

    def _end_all(self, at: Instant) -> None:
        for name in list(self._open):
            self._end(name, at, kind="failed")

    def begun(self, name: str) -> Instant | None:
        """When work on it began."""
        return self._rows[name][0].start if name in self._rows else None

    def serial(self) -> Seconds:
        """How long everything took that was worked on, one after the other; waiting to retry does not count."""
        spans = [span for row in self._rows.values() for span in row if span.kind != "wait"]
        return sum((self._last if span.end is None else span.end) - span.start for span in spans)

    def bar(self, name: str, room: int, now: Instant) -> str:
        """The bar of one row, from the first entry up to now."""
        if self._first is None:
            return ""
        return _bar(self._rows.get(name, []), room, self._first, max(now, self._last))

    def lines(self, columns: int) -> list[str]:
        if self._first is None or not self._rows:
            return []
        shown = dict(list(self._rows.items())[:_MOST])
        name = max(len(short(one, 20)) for one in shown)
        room = max(10, columns - name - 30)
        lines = [
            f"{short(one, 20):{name}} │{_bar(spans, room, self._first, self._last):{room}}│ {_sum(spans, self._last)}"
            for one, spans in shown.items()
        ]
        if len(self._rows) > _MOST:
            lines.append(f"… and {len(self._rows) - _MOST} more")
        return lines


def _bar(spans: list[_Span], room: int, first: Instant, last: Instant) -> str:
    scale = room / max(last - first, 1e-9)
    bar = ""
    for span in spans:  # each gets a cell at least, be it at the expense of the next
        start = max(len(bar), min(room - 1, int((span.start - first) * scale)))
        end = max(start + 1, round(((last if span.end is None else span.end) - first) * scale))
        drawn = _FILL[span.kind] * (end - start)
        bar = bar.ljust(start) + (f"{drawn[:-1]}x" if span.kind == "failed" else drawn)
    return bar[:room]


def _sum(spans: list[_Span], now: Instant) -> str:
    worked = [span for span in spans if span.kind in ("work", "failed")]
    took = sum((now if span.end is None else span.end) - span.start for span in worked)
    return f"{seconds(took)}{f', {len(worked)} attempts' if len(worked) > 1 else ''}"
