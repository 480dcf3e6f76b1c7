"""A live view of a run on a terminal: a row a task, what models are writing, and a line about the whole."""

import asyncio
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.console import Console as Page
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from chargehand.agents.levels import end_of
from chargehand.cli.console import STYLES, Console, Tone, clean, clean_lines, short, wrap_words
from chargehand.cli.event_text import SUPERVISOR
from chargehand.cli.format import dollars, seconds
from chargehand.cli.transcript import Measures, Transcript
from chargehand.core.attempts import breaker_name
from chargehand.core.state import Progress, RunState, Status, Work
from chargehand.models.waits import Wait
from chargehand.terms import events as ev
from chargehand.terms.breaker import stand
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.plan import TaskId, needs
from chargehand.terms.policy import Instant

MOST = 20
"""How many rows there are before finished ones are only counted."""


class Row(Struct, frozen=True):
    """`name` is what the timeline calls it, `words` the latest that its model has written."""

    name: str
    state: str
    task: str
    worker: str = ""
    tries: str = ""
    tokens: str = ""
    dollars: str = ""
    note: str = ""
    tone: Tone = "plain"
    words: str = ""


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
_FIRST = {Status.ASKING: 0, Status.RUNNING: 1, Status.REFINING: 1, Status.JUDGED: 1, Status.BACKING_OFF: 2}


def rows(
    state: RunState, measures: Measures, words: Mapping[str, str], most: int = MOST, now: Instant | None = None
) -> list[Row]:
    """At most `most` rows: where there are more tasks, finished ones are counted, then those that wait."""
    now = state.at if now is None else now
    desk = [_desk(state, measures, duty, now) for duty in ("plan", "answer")]
    tasks = sorted(state.tasks.values(), key=_place)
    tail: list[Row] = []
    if len(tasks) > most:
        settled = [one for one in tasks if one.settled]
        if settled:
            tail.append(_count(settled))
        tasks = sorted((one for one in tasks if not one.settled), key=lambda one: _FIRST.get(one.status, 3))
        if len(tasks) > most:
            tail.append(Row(name="", state="", task=f"… and {len(tasks) - most} more"))
            tasks = tasks[:most]
    shown = [_row(state, one, measures.costs.get(one.task.id, NOTHING), words, now) for one in tasks]
    return [*(row for row in desk[:1] if row), *tail[:1], *shown, *tail[1:], *(row for row in desk[1:] if row)]


def _place(progress: Progress) -> tuple[int, int]:
    """In the order of the plan, with what came of repeating a task right below it."""
    return (progress.order if progress.mother is None else progress.mother.order, progress.index)


def _count(settled: Sequence[Progress]) -> Row:
    done = sum(one.status is Status.DONE for one in settled)
    failed = f", {len(settled) - done} not done" if len(settled) > done else ""
    return Row(name="", state="✔ done", task=f"{done} tasks{failed}", tone="warn" if failed else "good")


def _desk(state: RunState, measures: Measures, duty: str, now: Instant) -> Row | None:
    """The supervisor's own work, once there was any."""
    desk = state.planning if duty == "plan" else state.answering
    name = f"({duty})"
    if measures.timeline.begun(name) is None:
        return None
    over = state.closed if duty == "plan" else state.answer is not None
    shown, tone = _STATES[Status.DONE if over else Status.RUNNING if desk.open else Status.WAITING]
    cost = measures.costs.get(name, NOTHING)
    note = f"↻ {short(desk.feedback[0].message, 60)}" if desk.feedback else ""
    if not desk.open and not over and desk.timer > now:
        note = f"↻ again in {desk.timer - now:.0f} s"
    tokens, usd = _spent(cost)
    return Row(
        name=name,
        state=shown,
        task=name,
        worker=SUPERVISOR,
        tries=str(desk.number),
        tokens=tokens,
        dollars=usd,
        note=note,
        tone=tone,
    )


def _row(state: RunState, progress: Progress, cost: Amount, words: Mapping[str, str], now: Instant) -> Row:
    task = progress.task
    shown, tone = _STATES[progress.status]
    label = f"{short(task.id, 16)} {short(progress.instruction or task.instruction, 60)}"
    tries = str(progress.attempt) if progress.attempt else ""
    worker = progress.worker or task.worker or "anybody"
    note = _note(state, progress, now)
    latest = words.get(task.id, "") if progress.status is Status.RUNNING else ""
    tokens, usd = _spent(cost)
    return Row(
        name=task.id,
        state=shown,
        task=label,
        worker=short(worker, 14),
        tries=tries,
        tokens=tokens,
        dollars=usd,
        note=note,
        tone=tone,
        words=latest,
    )


def _spent(cost: Amount) -> tuple[str, str]:
    tokens = f"{cost.tokens / 1000:.1f}k" if cost.tokens >= 1000 else str(cost.tokens or "")
    return tokens, f"{cost.micros / 1_000_000:.3f}" if cost.micros else ""


def _note(state: RunState, progress: Progress, now: Instant) -> str:
    failure = f"{progress.failure.kind}: {clean(progress.failure.message)}" if progress.failure else ""
    match progress.status:
        case Status.RUNNING:
            under_way = [one.name for one in (progress.steps or {}).values() if one.result is None]
            return ", ".join(map(clean, under_way)) or (f"↻ {failure}" if failure else "")
        case Status.READY:
            return _why_not_started(state, progress, now)
        case Status.WAITING:
            return f"waits for {', '.join(clean(name) for name, _ in needs(progress.task))}"
        case Status.BACKING_OFF if progress.timer > now:
            return f"↻ again in {progress.timer - now:.0f} s: {failure}"
        case Status.BACKING_OFF | Status.REFINING | Status.JUDGED:
            return f"↻ {failure}"
        case Status.EXPANDED:
            return f"{progress.items_done} of {progress.items} items" if progress.items >= 0 else ""
        case Status.ASKING:
            return "a person is asked"
        case Status.DONE:
            return f"↻ {progress.failure.kind}" if progress.failure else ""
        case Status.SKIPPED:
            return f"{progress.skipped}: {clean(progress.because)}" if progress.because else str(progress.skipped)
        case _:
            return failure


def _why_not_started(state: RunState, progress: Progress, now: Instant) -> str:
    """What a task waits for that has all of its inputs."""
    if state.paused:
        return "the run is paused"
    if not state.approved:
        return "waits for approval of the plan"
    if state.running >= state.requested.policy.limits.width:
        return f"{state.running} tasks at once are the most"
    agent = state.agents.get(progress.worker or progress.task.worker)
    if agent is None:
        return ""
    breaker = state.breakers.get(breaker_name(agent))
    if breaker is not None and stand(breaker, now) in ("open", "probing"):
        return f"{short(agent.name, 24)} is out of order for another {max(0.0, breaker.until - now):.0f} s"
    if agent.capacity and state.load.get(agent.name, 0) >= agent.capacity:
        return f"{short(agent.name, 24)} is busy"
    if not state.ledger.covers(agent.estimate, keep=state.requested.budget.floor):
        return "the budget is reserved for calls under way"
    return ""


def title(run: str, state: RunState) -> str:
    """The run and what is going on in it."""
    if (end := end_of(state)) is not None:
        doing = end.ending
    elif state.input is not None:
        doing = "a person is asked"
    elif state.answering.open:
        doing = "answering"
    elif state.planning.open and not state.tasks:
        doing = "planning"
    else:
        doing = "working"
    return f"run {short(run, 40)} · {doing}"


def _shut(state: RunState, now: Instant) -> list[str]:
    """Who is out of order, and for how long."""
    words = {"open": "{} out of order, {:.0f} s", "half-open": "{} out of order", "probing": "{} is tried again"}
    stands = [(name.partition(":")[2], stand(one, now), one.until - now) for name, one in state.breakers.items()]
    return [words[where].format(short(name, 24), left) for name, where, left in stands if where in words]


class Foot:
    """The line about the whole; it remembers the critical path of a run that has ended."""

    def __init__(self) -> None:
        self._path: tuple[TaskId, ...] = ()

    def line(self, state: RunState, measures: Measures, now: Instant) -> str:
        tasks = [one for one in state.tasks.values() if one.mother is None]
        done = sum(one.status is Status.DONE for one in tasks)
        if state.ended is not None and not self._path:  # before that it would be a guess
            self._path = measures.critical(state, now)
        end = state.at if state.ended is not None else max(now, state.at)
        parts = [seconds(end - measures.began), f"{done}/{len(tasks)} done"]
        if len(self._path) > 1:
            path = [short(name, 12) for name in self._path]
            parts.append(f"critical {'→'.join(path if len(path) <= 6 else ['…', *path[-5:]])}")
        spent = state.ledger.micros
        cap = state.requested.budget.micros
        if spent or cap is not None:
            parts.append(dollars(spent) + (f" of {dollars(cap)}" if cap is not None else ""))
        parts += _shut(state, now)
        if state.ended is None:
            parts.append("^C stop")
        return " · ".join(parts)


_PICTURES = 8  # a second
_AROUND = 6  # lines of a terminal that are no rows
_WIDE = 100  # columns from which notes stand beside a task, not below it
_KEPT_WORDS = 400  # characters of what a worker's model is writing
_KEPT_ANSWER = 8000
_MOST_WAITS = 3  # lines
_WRITTEN = (
    ev.AttemptSucceeded,
    ev.AttemptFailed,
    ev.StepFinished,
    ev.StepFailed,
    ev.TaskFailed,
    ev.TaskSkipped,
)


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
        self._foot = Foot()
        self._words: dict[str, str] = {}
        self._answer = ""
        self._answering: Work | None = None
        colours = "auto" if console.coloured else None
        self._page = Page(file=console.stream, force_terminal=True, color_system=colours, highlight=False, markup=False)
        self._live: Live | None = None
        self._echo = KeyEcho()

    # --- while it goes on

    def start(self) -> None:
        if self._live is None:
            kept = Live(console=self._page, auto_refresh=False, transient=False)
            self._live = kept
            self._echo.hide()
            kept.start()
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

    async def move(self) -> None:
        """A new picture several times a second, until cancelled."""
        while True:
            self.draw()
            await asyncio.sleep(1 / _PICTURES)

    def draw(self) -> None:
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)

    def hear(self, _run: str, work: Work, text: str) -> None:
        """Text that a model is writing."""
        if work.task:
            self._words[work.task] = (self._words.get(work.task, "") + clean(text))[-_KEPT_WORDS:]
        elif work.kind == "answer":
            written = self._answer if work == self._answering else ""
            self._answering = work
            self._answer = (written + clean_lines(text))[-_KEPT_ANSWER:]

    def forget(self, entries: Sequence[ev.Entry]) -> None:
        """What was being written is written."""
        for entry in entries:
            match entry.event:
                case ev.AnswerWritten() | ev.SupervisionFailed(duty="answer"):
                    self._answer = ""
                case event if isinstance(event, _WRITTEN):
                    self._words.pop(event.task, None)
                case _:
                    pass

    # --- one picture

    def _picture(self) -> RenderableType:
        if not self._transcript.begun:
            return Text("")
        state = self._transcript.state
        measures = self._transcript.measures
        now = state.at if state.ended is not None else self._clock()
        width = self._page.width - 4  # within the frame
        room = max(3, self._page.height - _AROUND)
        most = max(3, room // 3) if self._answer else room
        board = rows(state, measures, self._words, min(MOST, most), now)
        lines = list(self._table(board, width, room, now)) if board else []
        lines += self._answer_lines(width, room - len(lines))
        lines += self._wait_lines(width)
        lines.append(Text(self._foot.line(state, measures, now), no_wrap=True, overflow="ellipsis"))
        return Panel(Group(*lines), title=Text(title(self._run, state)), padding=(0, 1))

    def _table(self, board: Sequence[Row], width: int, room: int, now: Instant) -> Iterator[Text]:
        """A header and a line a row; below it, while there is room, the latest words, or a note without a column."""
        table = _Columns(board, width, beside=self._page.width >= _WIDE)
        took = max(now - self._transcript.measures.began, 0.0)
        yield table.header(f"0..{took:.1f} s")
        spare = room - len(board)
        for row in board:
            bar = self._transcript.measures.timeline.bar(row.name, table.bar, now)
            yield table.line(row, bar)
            below = row.words or ("" if table.note or not bar or row.state.endswith("done") else row.note)
            if below and spare > 0:
                spare -= 1
                yield Text(f"    {_tail(below, width - 4) if row.words else short(below, width - 4)}", style="dim")

    def _answer_lines(self, width: int, room: int) -> list[Text]:
        """The end of the answer that is being written, as much as there is room for."""
        if not self._answer or room < 2:
            return []
        wrapped = [line for text in self._answer.splitlines() for line in wrap_words(text, width)]
        shown = [Text(line, no_wrap=True, overflow="ellipsis") for line in wrapped[1 - room :]]
        return [Text("answer, as it is written:", style="dim"), *shown]

    def _wait_lines(self, width: int) -> list[Text]:
        now = time.time()
        lines: list[Text] = []
        for wait in dict.fromkeys(self._waits()):
            left = f", {max(0.0, wait.until - now):.0f} s more" if wait.until is not None else ""
            words = wrap_words(f"waits: {short(wait.who, 30)}{left}: {clean(wait.why)}", width)
            lines += [Text(line, style=STYLES["warn"], no_wrap=True, overflow="ellipsis") for line in words]
        return lines[:_MOST_WAITS]


def _tail(text: str, room: int) -> str:
    """The end of a text, from the beginning of a word."""
    words = " ".join(text.split())
    if cell_len(words) <= room:
        return words
    cut = words
    while cell_len(cut) > room - 2:
        cut = cut[1:]
    _, space, rest = cut.partition(" ")
    return f"… {rest if space and rest else cut}"


class _Columns:
    """How wide each column is. Dollars have one only where something was paid."""

    def __init__(self, board: Sequence[Row], width: int, *, beside: bool) -> None:
        self.state = 9
        self.worker = max(6, *(cell_len(row.worker) for row in board))
        self.bar = max(8, width // 4)
        self.tries = 3
        self.tokens = max(3, *(len(row.tokens) for row in board))
        self.dollars = max(len(row.dollars) for row in board)
        fixed = self.state + self.worker + self.bar + self.tries + self.tokens + self.dollars
        rest = width - fixed - (7 if self.dollars else 6)
        self.note = max(0, rest * 4 // 9) if beside else 0
        self.task = max(8, rest - self.note)

    def header(self, took: str) -> Text:
        bar = f"timeline {took}" if self.bar > len(took) + 9 else took
        cells = ("", "task", "worker", bar, "try", "tok", "$" if self.dollars else "", "")
        return Text(self._joined(cells), style="dim", no_wrap=True, overflow="crop")

    def line(self, row: Row, bar: str) -> Text:
        note = row.note
        if not bar:  # what did not begin has room there
            bar = note
            note = ""
        line = Text(self._joined((row.state, row.task, row.worker, bar, row.tries, row.tokens, row.dollars, note)))
        line.no_wrap = True
        line.overflow = "crop"
        style = STYLES[row.tone]
        line.stylize(style, 0, self.state)
        if note and self.note:
            line.stylize(style, len(line.plain) - self.note)
        return line

    def _joined(self, cells: Sequence[str]) -> str:
        state, task, worker, bar, tries, tokens, dollars, note = cells
        left = [_fitted(state, self.state), _fitted(task, self.task), _fitted(worker, self.worker)]
        right = [_fitted(bar, self.bar), tries.rjust(self.tries), tokens.rjust(self.tokens)]
        money = [dollars.rjust(self.dollars)] if self.dollars else []
        return " ".join([*left, *right, *money, _fitted(note, self.note)])


def _fitted(text: str, room: int) -> str:
    """The text in so many cells: padded, or cut with a sign that it was."""
    if cell_len(text) > room > 1:
        return set_cell_size(text, room - 1) + "…"
    return set_cell_size(text, room)


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
