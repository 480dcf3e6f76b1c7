"""A live view of a run on a terminal: a row a task, what models are writing, and a line about the whole."""

import asyncio
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from rich.console import Console as Page
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chargehand.cli.console import STYLES, Console, Tone, clean, clean_lines, short, wrap_words
from chargehand.cli.diagrams import draw_bar, timeline_rows
from chargehand.cli.event_text import SUPERVISOR
from chargehand.cli.format import dollars, money, seconds
from chargehand.cli.states import STATES, state_of_run
from chargehand.engine import events as ev
from chargehand.engine.breaker import stand
from chargehand.engine.plan import needs
from chargehand.engine.policy import Instant
from chargehand.engine.state import Progress, RunState, Status, TextKind, Work
from chargehand.runtime.trace import Tracer
from chargehand.waits import Wait

MAX_ROWS = 20
_PICTURES_A_SECOND = 8
_FRAME_LINES = 5  # lines of a terminal that hold neither rows nor text
_FRAME_COLUMNS = 4
_ANSWER_LINES = 8
_WIDE = 100  # columns from which there is a timeline beside the notes
_MAX_TEXT = 2000  # characters of what a model is writing
_MAX_WAITS = 3
_ANSWER = "(answer)"
_STATE_COLUMNS = max(len(look.label) for look in STATES.values())
_URGENCY = {Status.ASKING: 0, Status.RUNNING: 1, Status.REFINING: 1, Status.JUDGED: 1, Status.BACKING_OFF: 2}
_ENDS_STEP = (ev.AttemptSucceeded, ev.AttemptFailed, ev.StepFinished, ev.StepFailed)


# --- what is shown


class Row(Struct, frozen=True):
    """One line of the table."""

    name: str
    """What the timeline calls it."""
    task: str
    state: str
    """A key of `STATES`."""
    worker: str
    tries: int
    note: str


def view_rows(tracer: Tracer, now: Instant, max_tasks: int = MAX_ROWS) -> list[Row]:
    """The supervisor's work and the tasks. Of many only those under way or next; the footer counts the others."""
    state = tracer.state
    tasks = sorted(state.tasks.values(), key=_plan_order)
    if len(tasks) > max_tasks:
        tasks = [progress for progress in tasks if not progress.settled]
        tasks.sort(key=lambda progress: _URGENCY.get(progress.status, 3))
    rows = [_task_row(tracer, progress, now) for progress in tasks[:max_tasks]]
    return [*_duty_rows(tracer, "plan"), *rows, *_duty_rows(tracer, "answer")]


def _plan_order(progress: Progress) -> tuple[int, int]:
    """In the order of the plan, with what came of repeating a task right below it."""
    return (progress.order if progress.parent is None else progress.parent.order, progress.index)


def _duty_rows(tracer: Tracer, duty: str) -> list[Row]:
    """The supervisor's own work, once there was any."""
    rounds = [entry for entry in tracer.trace.supervision if entry.duty == duty]
    if not rounds:
        return []
    last = rounds[-1]
    failures = [entry.failure.message for entry in rounds if entry.failure is not None]
    return [
        Row(
            name=f"({duty})",
            task=f"({duty})",
            state=last.ending,
            worker=SUPERVISOR,
            tries=last.number,
            note=f"↻ {clean(failures[-1])}" if failures and last.ending != "succeeded" else "",
        )
    ]


def _task_row(tracer: Tracer, progress: Progress, now: Instant) -> Row:
    task = progress.task
    is_reused = tracer.tasks[task.id].reused is not None
    return Row(
        name=task.id,
        task=f"{short(task.id, 16)} {short(progress.instruction or task.instruction, 60)}",
        state="reused" if is_reused else progress.status.value,
        worker=short(progress.worker or task.worker or "anybody", 14),
        tries=progress.attempt,
        note=clean(_note(progress, now)),
    )


def _note(progress: Progress, now: Instant) -> str:
    """What a task waits for, what it is doing, or what went wrong."""
    failure = f"{progress.failure.kind}: {progress.failure.message}" if progress.failure else ""
    match progress.status:
        case Status.RUNNING:
            steps = [step.name for step in (progress.steps or {}).values() if step.result is None]
            return ", ".join(steps) or (f"↻ {failure}" if failure else "")
        case Status.WAITING:
            return f"waits for {', '.join(name for name, _ in needs(progress.task))}"
        case Status.BACKING_OFF if progress.timer > now:
            return f"↻ again in {progress.timer - now:.0f} s: {failure}"
        case Status.EXPANDED:
            return f"{progress.items_done} of {progress.items} items" if progress.items >= 0 else ""
        case Status.DONE:
            return f"↻ {progress.failure.kind}" if progress.failure else ""
        case Status.SKIPPED:
            return f"{progress.skipped}: {progress.because}".removesuffix(": ")
        case _:
            return failure


def view_title(run: str, state: RunState) -> str:
    """The run and what is going on in it."""
    return f"run {short(run, 40)} · {STATES[state_of_run(state)].word}"


def view_footer(tracer: Tracer, now: Instant) -> str:
    """The line about the whole."""
    state = tracer.state
    tasks = [progress for progress in state.tasks.values() if progress.parent is None]
    done = sum(progress.status is Status.DONE for progress in tasks)
    parts = [seconds(max(now, state.at) - tracer.began), f"{done}/{len(tasks)} done", money(state.ledger.spent)]
    if state.requested.budget.micros is not None:
        parts.append(f"budget {dollars(state.requested.budget.micros)}")
    for name, breaker in state.breakers.items():
        if stand(breaker, now) != "closed":
            parts.append(f"{short(name.partition(':')[2], 24)} is out of order")
    if state.ended is None:
        parts.append("^C stop")
    return " · ".join(parts)


# --- how it is drawn


class LiveView:
    """`clock` tells the time in the entries: the wall's, unless a run is shown again."""

    def __init__(self, console: Console, run: str, clock: Callable[[], Instant] = time.time) -> None:
        self.waits: Sequence[Wait] = ()
        """Calls that are not made yet, and why."""
        self._console = console
        self._run = run
        self._clock = clock
        self._tracer: Tracer | None = None
        self._texts: dict[str, str] = {}
        self._thinking: set[str] = set()  # whose text is what a model thinks
        self._page = Page(
            file=console.stream,
            force_terminal=True,
            color_system="auto" if console.coloured else None,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live: Live | None = None
        self._is_stopped = False
        self._echo = KeyEcho()

    def show(self, tracer: Tracer, entries: Sequence[ev.Entry]) -> None:
        """Show the run as it is after these entries."""
        self._tracer = tracer
        for entry in entries:
            if isinstance(entry.event, _ENDS_STEP):
                self._texts.pop(entry.event.task, None)
            elif isinstance(entry.event, ev.AnswerWritten | ev.SupervisionFailed):
                self._texts.pop(_ANSWER, None)
        if not self._is_stopped:
            self.start()

    def add_text(self, work: Work, text: str, kind: TextKind = "answer") -> None:
        """Text that a model is writing, or thinking: what it writes takes the place of what it thought."""
        name = _ANSWER if work.kind == "answer" else work.task
        if not name:
            return
        is_thought = kind == "thought"
        if is_thought != (name in self._thinking):
            self._texts.pop(name, None)
            self._thinking ^= {name}
        self._texts[name] = (self._texts.get(name, "") + clean_lines(text))[-_MAX_TEXT:]

    def start(self) -> None:
        self._is_stopped = False
        if self._live is None:
            self._live = Live(console=self._page, auto_refresh=False, transient=False)
            self._echo.hide()
            self._live.start()
            self._console.pen = lambda text: self._page.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True)
            self.draw()

    def stop(self, *, keep: bool = False) -> None:
        """Take it away until it is started again, or `keep` its last picture."""
        self._is_stopped = True
        if self._live is not None:
            self._texts.pop(_ANSWER, None)  # it is printed whole
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

    def _picture(self) -> RenderableType:
        tracer = self._tracer
        if tracer is None:
            return Text("")
        now = tracer.state.at if tracer.state.ended is not None else self._clock()
        below = [*self._text_lines(), *self._wait_lines(), _line(view_footer(tracer, now))]
        rows = view_rows(tracer, now, max(3, min(MAX_ROWS, self._page.height - _FRAME_LINES - len(below))))
        parts = [self._table(tracer, rows, now), *below]
        return Panel(Group(*parts), title=Text(view_title(self._run, tracer.state)), padding=(0, 1))

    def _table(self, tracer: Tracer, rows: Sequence[Row], now: Instant) -> Table:
        """A line a row."""
        is_wide = self._page.width >= _WIDE
        bar_room = self._page.width // 4
        until = max(now - tracer.began, 0.0)
        spans = timeline_rows(tracer.snapshot())
        table = Table(box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("", width=_STATE_COLUMNS, no_wrap=True)
        table.add_column("task", ratio=5, no_wrap=True)
        table.add_column("worker", no_wrap=True)
        table.add_column("try", justify="right", no_wrap=True)
        if is_wide:
            table.add_column(f"0..{until:.1f} s", width=bar_room, no_wrap=True)
        table.add_column("", ratio=4, no_wrap=True)
        for row in rows:
            look = STATES[row.state]
            style = STYLES[look.tone]
            bars = [draw_bar(spans.get(row.name, []), bar_room, until)] if is_wide else []
            tries = str(row.tries or "")
            table.add_row(Text(look.label, style), row.task, row.worker, tries, *bars, Text(row.note, style))
        return table

    def _text_lines(self) -> list[Text]:
        """The end of what models are writing: a line for each task, several for the answer."""
        width = self._page.width - _FRAME_COLUMNS
        lines: list[Text] = []
        for name, text in self._texts.items():
            if name != _ANSWER:
                lead = f"  {short(name, 16)}{' thinks' if name in self._thinking else ''}: "
                lines.append(_line(lead + clean(text)[len(lead) - width :], "dim"))
        answer = [line for text in self._texts.get(_ANSWER, "").splitlines() for line in wrap_words(text, width)]
        if answer:
            is_thought = _ANSWER in self._thinking
            lines.append(_line("thoughts, before the answer:" if is_thought else "answer, as it is written:", "dim"))
            lines += [_line(line, "dim" if is_thought else "plain") for line in answer[-_ANSWER_LINES:]]
        return lines

    def _wait_lines(self) -> list[Text]:
        lines: list[Text] = []
        for wait in list(dict.fromkeys(self.waits))[:_MAX_WAITS]:
            remaining = f", {max(0.0, wait.until - time.time()):.0f} s more" if wait.until is not None else ""
            lines.append(Text(f"waits: {short(wait.who, 30)}{remaining}: {clean(wait.why)}", STYLES["warn"]))
        return lines


def _line(text: str, tone: Tone = "plain") -> Text:
    return Text(text, STYLES[tone], no_wrap=True, overflow="ellipsis")


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
        except (OSError, ValueError, termios.error):  # standard input is no keyboard
            return
        self._restore = lambda: termios.tcsetattr(keyboard, termios.TCSANOW, before)

    def show(self) -> None:
        if self._restore is not None:
            with suppress(OSError, termios.error):
                self._restore()
            self._restore = None
