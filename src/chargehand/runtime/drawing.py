"""A run as one piece of HTML for notebooks: the answer, the graph of tasks and the timeline, as static SVG.

It stands for itself: no script, no style sheet, nothing to load. Every text in it is escaped.
"""

from collections.abc import Iterator, Sequence
from html import escape

from msgspec import Struct

from chargehand.engine.plan import TaskId
from chargehand.engine.policy import Seconds
from chargehand.runtime.trace import AttemptTrace, TaskTrace, Trace

MAX_TASKS = 60
"""How many tasks are drawn; of the others only the number is given."""
_MAX_TITLE = 26
_CARD_WIDTH = 176
_CARD_HEIGHT = 40
_COLUMN = _CARD_WIDTH + 40
_ROW = _CARD_HEIGHT + 12
_LABEL_WIDTH = 200
_TIME_WIDTH = 520
_BAR_ROW = 20
_COLORS = {
    "done": "#0B6E4F",
    "failed": "#B3261E",
    "skipped": "#66686E",
    "running": "#1659B5",
    "asking": "#8A4B00",
    "reused": "#5646A6",
}
_OTHER_COLOR = "#8E8979"
_ATTEMPT_COLORS = {"succeeded": "#3F6FB0", "failed": "#B3261E", "under way": "#1659B5", "asked": "#8A4B00"}


class _Place(Struct, frozen=True):
    """Where the card of a task stands."""

    left: int
    top: int


def draw_run(trace: Trace, *, answer: str, cost: float) -> str:
    """The HTML of a run; `answer` is its answer as text and `cost` its dollars."""
    drawn = trace.tasks[:MAX_TASKS]
    left_out = len(trace.tasks) - len(drawn)
    ending = trace.ending or "not ended"
    facts = f"{ending} · {len(trace.tasks)} tasks · {trace.seconds:.1f} s · ${cost:.4f}"
    parts = [
        f"<p><b>{escape(trace.goal)}</b><br/>{escape(facts)}</p>",
        f'<pre style="white-space: pre-wrap">{escape(answer)}</pre>',
        _draw_graph(drawn, set(trace.critical_path)),
        _draw_timeline(drawn, trace.seconds),
    ]
    if left_out:
        parts.append(f"<p>{left_out} more tasks are not drawn.</p>")
    return f"<div>{''.join(parts)}</div>"


# --- the graph


def _draw_graph(tasks: Sequence[TaskTrace], critical: set[TaskId]) -> str:
    places = _place_cards(tasks)
    if not places:
        return ""
    width = max(place.left for place in places.values()) + _CARD_WIDTH + 4
    height = max(place.top for place in places.values()) + _CARD_HEIGHT + 4
    edges: list[str] = []
    for task in tasks:
        for need in task.after:
            if need in places:
                is_critical = task.id in critical and need in critical
                edges.append(_draw_edge(places[need], places[task.id], 2.2 if is_critical else 1.0))
    cards = [_draw_card(task, places[task.id]) for task in tasks]
    return _svg(width, height, "tasks and what they need", [*edges, *cards])


def _place_cards(tasks: Sequence[TaskTrace]) -> dict[TaskId, _Place]:
    """A column for each step of the longest chain; within it, cards as high as what they need on average."""
    layers: dict[TaskId, int] = {}
    for task in _inputs_first(tasks):
        layers[task.id] = 1 + max((layers[need] for need in task.after if need in layers), default=-1)
    rows: dict[TaskId, int] = {}
    for layer in range(max(layers.values(), default=-1) + 1):
        column = [task for task in tasks if layers[task.id] == layer]
        column.sort(key=lambda task: _mean_row(task, rows))
        for row, task in enumerate(column):
            rows[task.id] = row
    return {name: _Place(2 + layers[name] * _COLUMN, 2 + rows[name] * _ROW) for name in layers}


def _inputs_first(tasks: Sequence[TaskTrace]) -> Iterator[TaskTrace]:
    """The tasks, each after those it needs. A plan has no cycles."""
    by_id = {task.id: task for task in tasks}
    placed: set[TaskId] = set()
    for first in tasks:
        pending = [first]
        while pending:
            task = pending[-1]
            missing = [by_id[need] for need in task.after if need in by_id and need not in placed]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if task.id not in placed:
                placed.add(task.id)
                yield task


def _mean_row(task: TaskTrace, rows: dict[TaskId, int]) -> float:
    needed = [rows[need] for need in task.after if need in rows]
    return sum(needed) / len(needed) if needed else 0.0


def _draw_edge(start: _Place, end: _Place, width: float) -> str:
    x1 = start.left + _CARD_WIDTH
    y1 = start.top + _CARD_HEIGHT // 2
    y2 = end.top + _CARD_HEIGHT // 2
    middle = (x1 + end.left) // 2
    path = f"M {x1} {y1} C {middle} {y1} {middle} {y2} {end.left} {y2}"
    return f'<path d="{path}" fill="none" stroke="{_OTHER_COLOR}" stroke-width="{width}"/>'


def _draw_card(task: TaskTrace, place: _Place) -> str:
    color = _COLORS.get(_state(task), _OTHER_COLOR)
    tries = f" {task.attempt_count}x" if task.attempt_count > 1 else ""
    dashes = ' stroke-dasharray="4 3"' if task.began is None and task.reused is None else ""
    size = f'width="{_CARD_WIDTH}" height="{_CARD_HEIGHT}"'
    return (
        f"<g><title>{escape(task.instruction)}</title>"
        f'<rect x="{place.left}" y="{place.top}" {size} rx="5" fill="none" stroke="{color}"{dashes}/>'
        f'<rect x="{place.left}" y="{place.top}" width="4" height="{_CARD_HEIGHT}" fill="{color}"/>'
        f"{_text(place.left + 10, place.top + 15, f'{task.id} {task.worker} · {_state(task)}{tries}', size=11)}"
        f"{_text(place.left + 10, place.top + 31, _short(task.instruction, _MAX_TITLE), size=12)}</g>"
    )


def _state(task: TaskTrace) -> str:
    return "reused" if task.reused is not None else task.status


# --- the timeline


def _draw_timeline(tasks: Sequence[TaskTrace], seconds: Seconds) -> str:
    begun = [task for task in tasks if task.attempts]
    if not begun or seconds <= 0:
        return ""
    scale = _TIME_WIDTH / seconds
    rows: list[str] = []
    for row, task in enumerate(begun):
        top = 2 + row * _BAR_ROW
        rows.append(_text(2, top + 12, _short(f"{task.id} {task.worker}", 30), size=11))
        rows += [_draw_attempt(attempt, top, scale, seconds) for attempt in task.attempts]
    bottom = 2 + len(begun) * _BAR_ROW
    rows.append(_text(_LABEL_WIDTH, bottom + 12, "0 s", size=11))
    rows.append(_text(_LABEL_WIDTH + _TIME_WIDTH - 40, bottom + 12, f"{seconds:.1f} s", size=11))
    return _svg(_LABEL_WIDTH + _TIME_WIDTH + 8, bottom + 18, "when the tasks were worked on", rows)


def _draw_attempt(attempt: AttemptTrace, top: int, scale: float, end: Seconds) -> str:
    length = end - attempt.began if attempt.seconds is None else attempt.seconds
    color = _ATTEMPT_COLORS.get(attempt.ending, _OTHER_COLOR)
    left = _LABEL_WIDTH + attempt.began * scale
    width = max(2.0, length * scale)
    about = f"attempt {attempt.attempt} by {attempt.worker}, {attempt.ending}, {length:.2f} s"
    return (
        f'<rect x="{left:.1f}" y="{top + 3}" width="{width:.1f}" height="12" fill="{color}">'
        f"<title>{escape(about)}</title></rect>"
    )


# --- parts


def _svg(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    frame = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{label}"'
    style = 'style="max-width: 100%; font-family: sans-serif"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame} {style}>{"".join(parts)}</svg>'


def _text(left: float, baseline: float, text: str, *, size: int) -> str:
    return f'<text x="{left:g}" y="{baseline:g}" font-size="{size}" fill="currentColor">{escape(text)}</text>'


def _short(text: str, most: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"
