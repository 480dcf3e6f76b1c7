"""When each task was worked on: one bar a task, out of characters. Works on runs that have not ended."""

from msgspec import Struct

from chargehand.cli.console import short
from chargehand.cli.render import seconds
from chargehand.terms import events as ev
from chargehand.terms.policy import Instant

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
        at = self._last = entry.at
        self._first = at if self._first is None else self._first
        match entry.event:
            case ev.AttemptStarted(task=task):
                self._begin(task, "work", at)
            case ev.SupervisionStarted(duty=duty, task=task):
                self._begin(task or f"({duty})", "refine" if duty == "refine" else "work", at)
            case ev.RetryScheduled(task=task, after=after) if after > at:
                self._begin(task, "wait", at)
            case event:
                self._hear_an_end(event, at)

    def _hear_an_end(self, event: ev.Event, at: Instant) -> None:
        match event:
            case ev.AttemptSucceeded(task=task) | ev.BackoffEnded(task=task) | ev.TaskRefined(task=task):
                self._end(task, at)
            case ev.AttemptFailed(task=task):
                self._end(task, at, kind="failed")
            case ev.SupervisionFailed(duty=duty, task=task):
                self._end(task or f"({duty})", at, kind="failed")
            case ev.TasksAdded(done=True):
                self._end("(plan)", at)
            case ev.AnswerWritten():
                self._end("(answer)", at)
            case ev.RunResumed() | ev.TimeRanOut() | ev.RunEnded():
                for name in list(self._open):
                    self._end(name, at, kind="failed")
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

    def lines(self, columns: int) -> list[str]:
        if self._first is None or not self._rows:
            return []
        shown = dict(list(self._rows.items())[:_MOST])
        name = max(len(short(one, 20)) for one in shown)
        room = max(10, columns - name - 30)
        lines = [
            f"{short(one, 20):{name}} │{self._bar(spans, room)}│ {_sum(spans, self._last)}"
            for one, spans in shown.items()
        ]
        if len(self._rows) > _MOST:
            lines.append(f"… and {len(self._rows) - _MOST} more")
        return lines

    def _bar(self, spans: list[_Span], room: int) -> str:
        assert self._first is not None, "there are spans only after the first entry"
        scale = room / max(self._last - self._first, 1e-9)
        bar = ""
        for span in spans:  # each gets a cell at least, be it at the expense of the next
            start = max(len(bar), min(room - 1, int((span.start - self._first) * scale)))
            end = max(start + 1, round(((self._last if span.end is None else span.end) - self._first) * scale))
            drawn = _FILL[span.kind] * (end - start)
            bar = bar.ljust(start) + (f"{drawn[:-1]}x" if span.kind == "failed" else drawn)
        return f"{bar:{room}}"[:room]


def _sum(spans: list[_Span], now: Instant) -> str:
    worked = [span for span in spans if span.kind in ("work", "failed")]
    took = sum((now if span.end is None else span.end) - span.start for span in worked)
    return f"{seconds(took)}{f', {len(worked)} attempts' if len(worked) > 1 else ''}"
