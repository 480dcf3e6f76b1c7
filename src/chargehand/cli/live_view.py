"""A live view of a run on a terminal: a row a task, what models are writing, and a line about the whole."""

import asyncio
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from rich.cells import cell_len
from rich.console import Console as Page
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chargehand.cli.console import STYLES, Console, Tone, clean, clean_lines, short, wrap_words
from chargehand.cli.event_text import SUPERVISOR
from chargehand.cli.format import dollars, seconds
from chargehand.cli.timeline import draw_bar, timeline_rows
from chargehand.cli.transcript import Transcript
from chargehand.engine import events as ev
from chargehand.engine.breaker import stand
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.plan import needs
from chargehand.engine.policy import Instant
from chargehand.engine.state import Progress, RunState, Status, Work
from chargehand.runtime.trace import DutyTrace, Tracer
from chargehand.waits import Wait

MAX_ROWS = 20
"""How many rows there are before finished ones are only counted."""
_PICTURES_A_SECOND = 8
_FRAME_LINES = 6  # lines of a terminal that are no rows
_WIDE = 100  # columns from which notes stand beside a task, not below it
_MAX_WORDS = 400  # characters of what a worker's model is writing
_MAX_ANSWER = 8000
_MAX_WAITS = 3  # lines
_STATES: dict[Status, tuple[str, Tone]] = {
    Status.WAITING: ("○ waits", "dim"),
    Status.READY: ("○ ready", "plain"),
    Status.RUNNING: ("● works", "bold"),
    Status.JUDGED: ("● judged", "warn"),
    Status.REFINING: ("~ refined", "warn"),
    Status.BACKING_OFF: ("↻ retries", "warn"),
    Status.EXPANDED: ("▸ repeats", "plain"),
    Status.ASKING: ("? asks", "warn"),
    Status.DONE: ("✔ done", "good"),
    Status.FAILED: ("✘ failed", "bad"),
    Status.SKIPPED: ("- skipped", "bad"),
    Status.DROPPED: ("- dropped", "dim"),
}
_URGENCY = {Status.ASKING: 0, Status.RUNNING: 1, Status.REFINING: 1, Status.JUDGED: 1, Status.BACKING_OFF: 2}
_ENDS_WRITING = (
    ev.AttemptSucceeded,
    ev.AttemptFailed,
    ev.StepFinished,
    ev.StepFailed,
    ev.TaskFailed,
    ev.TaskSkipped,
)


# --- what is shown


class Row(Struct, frozen=True):
    """One line of the table. `name` is what the timeline calls it."""

    name: str
    task: str
    state: str = ""
    tone: Tone = "plain"
    worker: str = ""
    tries: int = 0
    used: Amount = NOTHING
    note: str = ""


def view_rows(tracer: Tracer, now: Instant, max_tasks: int = MAX_ROWS) -> list[Row]:
    """Where there are more tasks than may be shown, finished ones are counted, then those that wait."""
    state = tracer.state
    tasks = sorted(state.tasks.values(), key=_plan_order)
    rows = _duty_rows(tracer, "plan", is_over=state.closed, now=now)
    left_out = 0
    if len(tasks) > max_tasks:
        settled = [progress for progress in tasks if progress.settled]
        rows += _count_settled(settled)
        tasks = [progress for progress in tasks if not progress.settled]
        tasks.sort(key=lambda progress: _URGENCY.get(progress.status, 3))
        left_out = max(0, len(tasks) - max_tasks)
    rows += [_task_row(tracer, progress, now) for progress in tasks[:max_tasks]]
    if left_out:
        rows.append(Row(name="", task=f"… and {left_out} more"))
    return rows + _duty_rows(tracer, "answer", is_over=state.answer is not None, now=now)


def _plan_order(progress: Progress) -> tuple[int, int]:
    """In the order of the plan, with what came of repeating a task right below it."""
    return (progress.order if progress.parent is None else progress.parent.order, progress.index)


def _count_settled(settled: Sequence[Progress]) -> list[Row]:
    if not settled:
        return []
    done = sum(progress.status is Status.DONE for progress in settled)
    failed = f", {len(settled) - done} not done" if len(settled) > done else ""
    state, tone = _STATES[Status.DONE]
    return [Row(name="", task=f"{done} tasks{failed}", state=state, tone="warn" if failed else tone)]


def _duty_rows(tracer: Tracer, duty: str, *, is_over: bool, now: Instant) -> list[Row]:
    """The supervisor's own work, once there was any."""
    rounds: list[DutyTrace] = [entry for entry in tracer.trace.supervision if entry.duty == duty]
    if not rounds:
        return []
    desk = tracer.state.planning if duty == "plan" else tracer.state.answering
    status = Status.RUNNING if desk.is_open else Status.WAITING
    note = f"↻ {short(desk.feedback[0].message, 60)}" if desk.feedback else ""
    if not desk.is_open and not is_over and desk.timer > now:
        note = f"↻ again in {desk.timer - now:.0f} s"
    state, tone = _STATES[Status.DONE if is_over else status]
    name = f"({duty})"
    used = sum((entry.used for entry in rounds), start=NOTHING)
    return [
        Row(name=name, task=name, state=state, tone=tone, worker=SUPERVISOR, tries=desk.number, used=used, note=note)
    ]


def _task_row(tracer: Tracer, progress: Progress, now: Instant) -> Row:
    task = progress.task
    state, tone = _STATES[progress.status]
    return Row(
        name=task.id,
        task=f"{short(task.id, 16)} {short(progress.instruction or task.instruction, 60)}",
        state=state,
        tone=tone,
        worker=short(progress.worker or task.worker or "anybody", 14),
        tries=progress.attempt,
        used=tracer.tasks[task.id].used,
        note=_note(tracer.state, progress, now),
    )


def _note(state: RunState, progress: Progress, now: Instant) -> str:
    """What a task waits for, what it is doing, or what went wrong."""
    failure = f"{progress.failure.kind}: {clean(progress.failure.message)}" if progress.failure else ""
    match progress.status:
        case Status.RUNNING:
            steps = [step.name for step in (progress.steps or {}).values() if step.result is None]
            return ", ".join(map(clean, steps)) or (f"↻ {failure}" if failure else "")
        case Status.READY:
            return _why_not_started(state, progress)
        case Status.WAITING:
            return f"waits for {', '.join(clean(name) for name, _ in needs(progress.task))}"
        case Status.BACKING_OFF if progress.timer > now:
            return f"↻ again in {progress.timer - now:.0f} s: {failure}"
        case Status.EXPANDED:
            return f"{progress.items_done} of {progress.items} items" if progress.items >= 0 else ""
        case Status.ASKING:
            return "a person is asked"
        case Status.DONE:
            return f"↻ {progress.failure.kind}" if progress.failure else ""
        case Status.SKIPPED:
            return clean(f"{progress.skipped}: {progress.because}".removesuffix(": "))
        case _:
            return failure


def _why_not_started(state: RunState, progress: Progress) -> str:
    """What a task waits for that has all of its inputs; breakers stand in the footer."""
    if state.paused:
        return "the run is paused"
    if not state.approved:
        return "waits for approval of the plan"
    if state.running >= state.requested.policy.limits.width:
        return f"{state.running} tasks at once are the most"
    agent = state.agents.get(progress.worker or progress.task.worker)
    if agent is None:
        return ""
    if agent.concurrency and state.load.get(agent.name, 0) >= agent.concurrency:
        return f"{short(agent.name, 24)} is busy"
    if not state.ledger.covers(agent.estimate, keep=state.requested.budget.floor):
        return "the budget is reserved for calls under way"
    return ""


def view_title(run: str, state: RunState) -> str:
    """The run and what is going on in it."""
    end = state.ended
    doing = "working"
    if end is not None:
        doing = end.ending
    elif state.input is not None:
        doing = "a person is asked"
    elif state.answering.is_open:
        doing = "answering"
    elif state.planning.is_open and not state.tasks:
        doing = "planning"
    return f"run {short(run, 40)} · {doing}"


_OUT_OF_ORDER = {"open": "{} out of order, {:.0f} s", "half-open": "{} out of order", "probing": "{} is tried again"}


def view_footer(tracer: Tracer, now: Instant) -> str:
    """The line about the whole. The critical path is known only of a run that has ended."""
    state = tracer.state
    tasks = [progress for progress in state.tasks.values() if progress.parent is None]
    done = sum(progress.status is Status.DONE for progress in tasks)
    parts = [seconds(max(now, state.at) - tracer.began), f"{done}/{len(tasks)} done"]
    if state.ended is not None:
        path = [short(name, 12) for name in tracer.snapshot().critical_path]
        if len(path) > 1:
            parts.append(f"critical {'→'.join(path if len(path) <= 6 else ['…', *path[-5:]])}")
    spent = state.ledger.micros
    cap = state.requested.budget.micros
    if spent or cap is not None:
        parts.append(dollars(spent) + (f" of {dollars(cap)}" if cap is not None else ""))
    for name, breaker in state.breakers.items():
        template = _OUT_OF_ORDER.get(stand(breaker, now))
        if template:
            parts.append(template.format(short(name.partition(":")[2], 24), breaker.until - now))
    if state.ended is None:
        parts.append("^C stop")
    return " · ".join(parts)


# --- how it is drawn


class LiveView:
    """`clock` tells the time in the entries: the wall's, unless a run is told again. `waits` is what waits now."""

    def __init__(
        self,
        console: Console,
        transcript: Transcript,
        run: str,
        clock: Callable[[], Instant] = time.time,
        waits: Callable[[], Sequence[Wait]] = tuple,
    ) -> None:
        self._console = console
        self._transcript = transcript
        self._run = run
        self._clock = clock
        self._waits = waits
        self._words: dict[str, str] = {}
        self._answer = ""
        self._answering: Work | None = None
        colours = "auto" if console.coloured else None
        self._page = Page(
            file=console.stream, force_terminal=True, color_system=colours, highlight=False, markup=False, emoji=False
        )
        self._live: Live | None = None
        self._echo = KeyEcho()

    def start(self) -> None:
        if self._live is None:
            self._live = Live(console=self._page, auto_refresh=False, transient=False)
            self._echo.hide()
            self._live.start()
            self._console.pen = lambda text: self._page.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True)
            self.draw()

    def stop(self, *, keep: bool = True) -> None:
        """End it; the last picture stays, unless it is to go on after a question."""
        if self._live is not None:
            self._answer = ""  # it is printed whole
            self.draw()
            self._live.transient = not keep
            self._live.stop()
            self._console.pen = None
            self._live = None
            self._echo.show()

    async def animate(self) -> None:
        """A new picture several times a second, until cancelled."""
        while True:
            self.draw()
            await asyncio.sleep(1 / _PICTURES_A_SECOND)

    def draw(self) -> None:
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)

    def add_text(self, work: Work, text: str) -> None:
        """Text that a model is writing."""
        if work.task:
            self._words[work.task] = (self._words.get(work.task, "") + clean(text))[-_MAX_WORDS:]
        elif work.kind == "answer":
            written = self._answer if work == self._answering else ""
            self._answering = work
            self._answer = (written + clean_lines(text))[-_MAX_ANSWER:]

    def drop_written(self, entries: Sequence[ev.Entry]) -> None:
        """What was being written is written."""
        for entry in entries:
            if isinstance(entry.event, ev.AnswerWritten):
                self._answer = ""
            elif isinstance(entry.event, _ENDS_WRITING):
                self._words.pop(entry.event.task, None)

    def _picture(self) -> RenderableType:
        if not self._transcript.begun:
            return Text("")
        tracer = self._transcript.tracer
        state = tracer.state
        now = state.at if state.ended is not None else self._clock()
        width = self._page.width - 4  # within the frame
        room = max(3, self._page.height - _FRAME_LINES)
        rows = view_rows(tracer, now, min(MAX_ROWS, max(3, room // 3) if self._answer else room))
        below = self._lines_below(rows, width)[: max(0, room - len(rows))]
        answer = self._answer_lines(width, room - len(rows) - len(below))
        footer = _line(view_footer(tracer, now))
        parts = [self._table(rows, width, now), *below, *answer, *self._wait_lines(width), footer]
        return Panel(Group(*parts), title=Text(view_title(self._run, state)), padding=(0, 1))

    def _table(self, rows: Sequence[Row], width: int, now: Instant) -> Table:
        """A line a row. Dollars have a column only where something was paid."""
        bar_room = max(8, width // 4)
        until = max(now - self._transcript.tracer.began, 0.0)
        spans = timeline_rows(self._transcript.tracer.snapshot())
        is_wide = self._page.width >= _WIDE
        is_paid = any(row.used.micros for row in rows)
        table = Table(box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("", width=9, no_wrap=True)
        table.add_column("task", ratio=5, no_wrap=True)
        table.add_column("worker", no_wrap=True)
        table.add_column(f"0..{until:.1f} s", width=bar_room, no_wrap=True)
        table.add_column("try", justify="right", no_wrap=True)
        table.add_column("tok", justify="right", no_wrap=True)
        if is_paid:
            table.add_column("$", justify="right", no_wrap=True)
        if is_wide:
            table.add_column("", ratio=4, no_wrap=True)
        for row in rows:
            bar = draw_bar(spans.get(row.name, []), bar_room, until)
            cells = [Text(row.state, STYLES[row.tone]), row.task, row.worker, bar or row.note, str(row.tries or "")]
            cells.append(_format_tokens(row.used.tokens))
            cells += [f"{row.used.micros / 1_000_000:.3f}" if row.used.micros else ""] if is_paid else []
            cells += [Text(row.note if bar else "", STYLES[row.tone])] if is_wide else []
            table.add_row(*cells)
        return table

    def _lines_below(self, rows: Sequence[Row], width: int) -> list[Text]:
        """What models are writing; where notes have no column, also those of tasks that are not done."""
        lines: list[Text] = []
        for row in rows:
            words = self._words.get(row.name, "")
            if words:
                lines.append(_line(f"  {row.worker}: {_tail(words, width - len(row.worker) - 4)}", "dim"))
            elif row.note and self._page.width < _WIDE and row.tries and row.tone != "good":
                lines.append(_line(f"  {row.worker}: {row.note}", "dim"))
        return lines

    def _answer_lines(self, width: int, room: int) -> list[Text]:
        """The end of the answer that is being written, as much as there is room for."""
        if not self._answer or room < 2:
            return []
        lines = [line for text in self._answer.splitlines() for line in wrap_words(text, width)]
        return [_line("answer, as it is written:", "dim"), *map(_line, lines[1 - room :])]

    def _wait_lines(self, width: int) -> list[Text]:
        lines: list[Text] = []
        for wait in dict.fromkeys(self._waits()):
            left = f", {max(0.0, wait.until - time.time()):.0f} s more" if wait.until is not None else ""
            text = f"waits: {short(wait.who, 30)}{left}: {clean(wait.why)}"
            lines += [_line(line, "warn") for line in wrap_words(text, width)]
        return lines[:_MAX_WAITS]


def _line(text: str, tone: Tone = "plain") -> Text:
    return Text(text, STYLES[tone], no_wrap=True, overflow="ellipsis")


def _format_tokens(count: int) -> str:
    return f"{count / 1000:.1f}k" if count >= 1000 else str(count or "")


def _tail(text: str, room: int) -> str:
    """The end of a text, from the beginning of a word."""
    words = " ".join(text.split())
    while cell_len(words) > room - 2:
        words = words.partition(" ")[2] or words[1:]
    return words


class KeyEcho:
    """Whether the terminal shows what is typed: a ^C at the end of a picture would move the next one down."""

    def __init__(self) -> None:
        self._restore: Callable[[], None] | None = None

    def hide(self) -> None:
        try:
            keyboard = sys.stdin.fileno()
            before = termios.tcgetattr(keyboard)
            quiet = termios.tcgetattr(keyboard)
            quiet[3] &= ~termios.ECHO
            termios.tcsetattr(keyboard, termios.TCSANOW, quiet)
        except (OSError, ValueError, termios.error):  # nobody types here
            return
        self._restore = lambda: termios.tcsetattr(keyboard, termios.TCSANOW, before)

    def show(self) -> None:
        if self._restore is not None:
            with suppress(OSError, termios.error):
                self._restore()
            self._restore = None
