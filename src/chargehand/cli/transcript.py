"""The transcript of a run, entry by entry: the same words whether it is under way or over. With costs and times."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from chargehand.agents.levels import end_of
from chargehand.cli.console import Console, clean, clean_lines, format_json, short, wrap_words
from chargehand.cli.event_text import QUIET, SUPERVISOR, describe_event
from chargehand.cli.format import counted, describe_gap, money, seconds
from chargehand.cli.plan_view import forecast_lines, plan_heading, plan_tree
from chargehand.cli.questions import format_question
from chargehand.core.fold import begin, fold
from chargehand.core.state import RunState
from chargehand.core.view import gaps, results
from chargehand.errors import Corrupt
from chargehand.runtime.trace import critical_path
from chargehand.terms import events as ev
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.forecast import forecast
from chargehand.terms.plan import Plan, Task, TaskId, in_order, needs
from chargehand.terms.policy import Instant, Seconds
from chargehand.terms.roster import USUAL_SECONDS
from chargehand.terms.value import decode_value

_ROOM = 2000  # characters of a goal: that of a background run holds whole turns, and the journal has all of it
_LEAST_ROOM = 20  # columns beside the names, below which words are not wrapped
_BESIDE = " " * 14  # what stands under a line of the story


class Transcript:
    """`console` is for the story, `data` for the answer, and for the entries where they are asked for (`jsonl`).

    Without `lines` only plans are told, not every event; without `models` nothing of what models were asked and said,
    and nothing of what memory was read for it.
    """

    def __init__(
        self, console: Console, data: Console, *, jsonl: bool, lines: bool = True, models: bool = True
    ) -> None:
        self._console = console
        self._data = data
        self._jsonl = jsonl
        self._lines = lines
        self._models = models
        self._state: RunState | None = None
        self._wide = 0
        self._resumes = False
        self.measures = Measures()

    @property
    def begun(self) -> bool:
        return self._state is not None

    @property
    def state(self) -> RunState:
        assert self._state is not None, "a transcript begins with its first entry"
        return self._state

    def hear(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Tell what was written."""
        if self._resumes:
            self._resumes = False
            goal = short(self.state.requested.goal, _ROOM)
            self._console.prose(f"going on with {clean(run)} after {self.state.seq} entries: {goal}", "bold")
        for entry in entries:
            if self._jsonl:
                self._data.json_line(entry)
            self._tell(entry)

    def catch_up(self, entries: Iterable[ev.Entry]) -> None:
        """Take in what was told before; what is heard next goes on from there."""
        for entry in entries:
            self._take_in(entry)
        self._resumes = True

    def _tell(self, entry: ev.Entry) -> None:
        before = self._state
        event = entry.event
        if isinstance(event, ev.RunRequested):
            self._take_in(entry)
            self._console.prose(f"goal: {short(event.goal, _ROOM)}", "bold")
            if event.plan is not None:
                self._show_plan(event.plan)
            return
        assert before is not None, "a run begins with its request"
        if self._lines and (self._models or not _in_between(before, event)):
            self._tell_event(before, entry)
        self._take_in(entry)
        if isinstance(event, ev.TasksAdded) and event.tasks:
            self._show_plan(Plan(event.tasks, self.state.combine))

    def _tell_event(self, before: RunState, entry: ev.Entry) -> None:
        words = describe_event(before, entry, whole=self._models)
        task = f"{short(words.task, 20):{self._wide}}"
        who = f"{short(words.who, 12):{min(12, max(map(len, (*before.agents, SUPERVISOR))))}}"
        when = f"{entry.at - self.measures.began:8.2f} s"
        room = self._console.columns - len(f"{when}  {task}  {who}  ")
        first, *rest = wrap_words(words.text, room) if self._console.terminal and room > _LEAST_ROOM else [words.text]
        paint = self._console.paint
        self._console.line(f"{paint(when, 'dim')}  {task}  {who}  {paint(first, words.tone)}")
        for line in rest:
            self._console.line(f"{' ' * (self._console.columns - room)}{line.strip()}", words.tone)
        if isinstance(entry.event, ev.InputRequested):
            for line in format_question(entry.event, self._console.columns - len(_BESIDE)):
                self._console.line(f"{_BESIDE}{line}")

    def _take_in(self, entry: ev.Entry) -> None:
        if self._state is None:
            if not isinstance(entry.event, ev.RunRequested):
                raise Corrupt("this run does not begin with its request; restore the journal from a backup")
            self._state = begin(entry)
        else:
            fold(self._state, entry)
        self.measures.hear(self._state, entry)
        if isinstance(entry.event, ev.RunRequested | ev.TasksAdded | ev.TaskExpanded | ev.InputAnswered):
            self._wide = min(20, max(map(len, self._state.tasks), default=0))

    def _show_plan(self, plan: Plan) -> None:
        requested = self.state.requested
        self._console.line()
        self._console.line(plan_heading(plan), "bold")
        for line in plan_tree(plan, self._console.columns):
            self._console.line(line)
        for line in forecast_lines(forecast(plan, requested.roster, requested.policy)):
            self._console.prose(line, "dim")
        self._console.line()

    def close(self) -> None:
        """The timeline, the answer, what is missing, what it cost, how long it took and how it ended."""
        self.show_timeline()
        self.show_answer()
        self.show_gaps()
        self.show_ending()

    def show_timeline(self) -> None:
        console = self._console
        console.line()
        console.line(f"timeline: {seconds(self._took())}   {LEGEND}", "bold")
        for line in self.measures.timeline.lines(console.columns):
            console.line(line)
        console.line()

    def _took(self) -> Seconds:
        return self.state.at - self.measures.began

    def show_gaps(self) -> None:
        """What is missing."""
        state = self.state
        console = self._console
        end = end_of(state)
        missing = end.gaps if end is not None else gaps(state)
        if state.ended is not None:
            console.line(f"gaps: {len(missing) or 'none'}")
            for one in missing:
                console.prose(f"  {describe_gap(one)}", "bad")
        elif missing:
            console.line(f"unfinished: {counted(len(missing), 'task')} of {len(state.tasks)}")

    def show_ending(self) -> None:
        """What it cost, how long it took and how it ended."""
        console = self._console
        console.line(f"cost: {money(self.state.ledger.spent)}")
        console.line(f"time: {seconds(self._took())}, with {seconds(self.measures.timeline.serial())} of work in it")
        console.line(f"ending: {ending(self.state)}", "bold")

    def show_summary(self) -> None:
        """The same in one line, for the end of a screen."""
        state = self.state
        came_to = f"{ending(state)} in" if state.ended is not None else "not finished after"
        if state.ended is None and state.input is not None:
            came_to = f"a person is asked {_ASKED[state.input.what]}, after"
        self._console.prose(f"{came_to} {seconds(self._took())}; cost: {money(state.ledger.spent)}", "bold")

    def show_answer(self) -> None:
        found = answer(self.state)
        if found is not None:
            self._console.line("answer:", "bold")
            # entries asked for: they hold the answer too, and nothing else belongs among them
            to = self._console if self._jsonl else self._data
            (to.markdown if is_prose(self.state) else to.line)(found)
            self._console.line()


def is_prose(state: RunState) -> bool:
    return state.answer is not None and isinstance(decode_value(state.answer), str)


def _in_between(state: RunState, event: ev.Event) -> bool:
    """Whether this is only what goes on between a worker, its model and its memory."""
    if isinstance(event, ev.StepStarted):
        return event.name in ("model", *QUIET)
    if isinstance(event, ev.StepFinished):
        steps = state.tasks[event.task].steps or {}
        return event.step in steps and steps[event.step].name in ("model", *QUIET)
    return isinstance(event, ev.PromptSent)


def answer(state: RunState) -> str | None:
    """The answer: text as it is, anything else as JSON. Where none is to be written, the results are the answer."""
    if state.answer is not None:
        found = decode_value(state.answer)
    elif state.combine == "none" and state.ended is not None:
        found = {one.task: decode_value(one.value) for one in results(state) if one.value is not None}
    else:
        return None
    if isinstance(found, str):
        return clean_lines(found)
    return format_json(found)


_ASKED = {"plan": "to approve the plan", "tool": "to approve a call", "effect": "what became of an effect"}


def ending(state: RunState) -> str:
    """How a run ended, or why it has not."""
    end = end_of(state)
    if end is not None:
        return end.ending if end.reason in ("done", end.ending) else f"{end.ending} ({end.reason})"
    if state.input is not None:
        return f"not yet: a person is asked {_ASKED[state.input.what]}"
    return "not yet"


class Measures:
    """Hears every entry of a run in turn, with the state after it."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.began: Instant = 0.0
        self.costs: dict[str, Amount] = {}
        self.ends: dict[TaskId, Instant] = {}
        self._spent = NOTHING

    def hear(self, state: RunState, entry: ev.Entry) -> None:
        self.timeline.hear(entry)
        self.began = self.began or entry.at
        spent = state.ledger.spent
        before = self._spent
        name = part_of(entry.event)
        if spent != before:
            had = self.costs.get(name, NOTHING)
            self.costs[name] = Amount(
                tokens=had.tokens + spent.tokens - before.tokens,
                micros=had.micros + spent.micros - before.micros,
                calls=had.calls + spent.calls - before.calls,
            )
            self._spent = spent
        progress = state.tasks.get(TaskId(name))
        if progress is not None and progress.settled:
            self.ends.setdefault(progress.task.id, entry.at)

    def critical(self, state: RunState, now: Instant) -> tuple[TaskId, ...]:
        """The chain of tasks that decides when the run is over: as it was, and as it will be if guesses hold."""
        tasks = [one.task for one in state.tasks.values() if one.mother is None]
        return critical_path(tasks, self._expected(state, tasks, now))

    def _expected(self, state: RunState, tasks: list[Task], now: Instant) -> Mapping[TaskId, Instant]:
        ends: dict[TaskId, Instant] = {}
        for task in in_order(tasks)[0]:
            known = self.ends.get(task.id)
            if known is None:
                begun = self.timeline.begun(task.id)
                start = max([now, *(ends.get(name, now) for name, _ in needs(task))]) if begun is None else begun
                known = max(now, start + _guess(state, task))
            ends[task.id] = known
        return ends


def _guess(state: RunState, task: Task) -> Seconds:
    if task.seconds is not None:
        return task.seconds
    agent = state.agents.get(state.tasks[task.id].worker or task.worker)
    return USUAL_SECONDS if agent is None or agent.seconds is None else agent.seconds


def part_of(event: ev.Event) -> str:
    """The task an event is about, or the duty of the supervisor."""
    task = getattr(event, "task", "")
    if task:
        return task
    match event:
        case ev.TasksAdded():
            return "(plan)"
        case ev.AnswerWritten():
            return "(answer)"
        case ev.SupervisionStarted(duty=duty) | ev.SupervisionFailed(duty=duty):
            return f"({duty})"
        case _:
            return ""


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
        at = entry.at
        before = self._last
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
