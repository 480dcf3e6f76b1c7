"""The transcript of a run, entry by entry: the same words whether it is under way or over."""

from collections.abc import Sequence

from chargehand.agents.result import fallback_answer, planned
from chargehand.cli.console import Console, clean_lines, format_json, short, wrap_words
from chargehand.cli.event_text import MEMORY_STEPS, SUPERVISOR, EventText, describe_event
from chargehand.cli.format import describe_gaps, money, seconds
from chargehand.cli.plan_view import print_plan
from chargehand.cli.questions import format_question, name_calls
from chargehand.cli.timeline import LEGEND, timeline_lines
from chargehand.engine import events as ev
from chargehand.engine.forecast import forecast
from chargehand.engine.plan import Plan
from chargehand.engine.state import RunState, Status
from chargehand.engine.value import decode_value
from chargehand.engine.view import results
from chargehand.runtime.trace import Tracer

_MAX_GOAL = 2000  # characters; the journal has all of it
_MIN_TASK = 3  # columns for names such as t12, kept free before there is a plan
_MAX_TASK = 20
_MAX_WORKER = 12
_LEAST_ROOM = 20  # columns beside the names, below which words are not wrapped
_INDENT = " " * 14  # of what belongs to the line of an event
_QUESTIONS = {"plan": "to approve the plan", "tool": "to approve a call", "effect": "what became of an effect"}


class Transcript:
    """`console` is for the events, `data` for the answer, and for the entries where they are asked for (`jsonl`).

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
        self._tracer: Tracer | None = None
        self._task_room = 0
        self._resumes = False

    @property
    def begun(self) -> bool:
        return self._tracer is not None

    @property
    def tracer(self) -> Tracer:
        assert self._tracer is not None, "a transcript begins with its first entry"
        return self._tracer

    @property
    def state(self) -> RunState:
        return self.tracer.state

    def show(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Show what was written."""
        self._widen_tasks(entries)
        if self._resumes:
            self._resumes = False
            goal = short(self.state.requested.goal, _MAX_GOAL)
            self._console.prose(f"going on with {run} after {self.state.seq} entries: {goal}", "bold")
        for entry in entries:
            if self._jsonl:
                self._data.json_line(entry)
            self._record(run, entry)
            self._show_entry(entry)

    def catch_up(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Record what was shown before; what is shown next goes on from there."""
        self._widen_tasks(entries)
        for entry in entries:
            self._record(run, entry)
            self._resumes = True

    def _record(self, run: str, entry: ev.Entry) -> None:
        if self._tracer is None:
            self._tracer = Tracer(run, entry)
        else:
            self._tracer.record(entry)

    def _widen_tasks(self, entries: Sequence[ev.Entry]) -> None:
        """Make room for the names of tasks before the first line that stands beside them."""
        names: list[str] = []
        for entry in entries:
            event = entry.event
            plan = event.plan if isinstance(event, ev.RunRequested | ev.InputAnswered) else None
            tasks = event.tasks if isinstance(event, ev.TasksAdded) else () if plan is None else plan.tasks
            names += [task.id for task in tasks]
            if isinstance(event, ev.TaskExpanded):
                names.append(f"{event.task}[{event.count - 1}]")
        longest = max(map(len, names), default=0)
        self._task_room = min(_MAX_TASK, max(self._task_room, longest))

    def _show_entry(self, entry: ev.Entry) -> None:
        event = entry.event
        if isinstance(event, ev.RunRequested):
            self._console.prose(f"goal: {short(event.goal, _MAX_GOAL)}", "bold")
            if event.plan is not None:
                self._show_plan(event.plan)
            return
        if self._lines and (self._models or not self._is_internal(event)):
            self._show_event(entry, describe_event(self.tracer, entry, whole=self._models))
        if isinstance(event, ev.TasksAdded) and event.tasks:
            self._show_plan(Plan(event.tasks, self.state.combine))

    def _is_internal(self, event: ev.Event) -> bool:
        """Whether this is only between a worker, its model and its memory."""
        if isinstance(event, ev.StepStarted):
            return event.kind in ("model", *MEMORY_STEPS)
        if isinstance(event, ev.StepFinished):
            steps = self.state.tasks[event.task].steps or {}
            return event.step in steps and steps[event.step].kind in ("model", *MEMORY_STEPS)
        return isinstance(event, ev.PromptSent)

    def _show_event(self, entry: ev.Entry, words: EventText) -> None:
        console = self._console
        worker_room = min(_MAX_WORKER, max(map(len, (*self.state.agents, SUPERVISOR))))
        when = f"{entry.at - self.tracer.began:8.2f} s"
        task_room = self._task_room or _MIN_TASK
        names = f"{short(words.task, _MAX_TASK):{task_room}}  {short(words.who, _MAX_WORKER):{worker_room}}"
        indent = len(f"{when}  {names}  ")
        lines = [words.text]
        if console.terminal and console.columns - indent > _LEAST_ROOM:
            lines = wrap_words(words.text, console.columns - indent)
        console.text(f"{console.paint(when, 'dim')}  {names}  {console.paint(lines[0], words.tone)}")
        for line in lines[1:]:
            console.line(f"{' ' * indent}{line.strip()}", words.tone)
        if isinstance(entry.event, ev.InputRequested):
            for line in self.question_lines(entry.event, console.columns - len(_INDENT)):
                console.line(f"{_INDENT}{line}")

    def _show_plan(self, plan: Plan) -> None:
        requested = self.state.requested
        self._console.line()
        print_plan(self._console, plan, forecast(plan, requested.roster, requested.policy))
        self._console.line()

    # --- the end

    def close(self) -> None:
        """The timeline, the answer, what is missing, what it cost, how long it took and how it ended."""
        trace = self.tracer.snapshot()
        console = self._console
        console.line()
        console.line(f"timeline: {seconds(trace.seconds)}   {LEGEND}", "bold")
        for line in timeline_lines(trace, console.columns):
            console.line(line)
        console.line()
        self.show_answer()
        self.show_gaps()
        console.line(f"cost: {money(trace.used)}")
        console.line(f"time: {seconds(trace.seconds)}, with {seconds(trace.serial)} of work in it")
        console.line(f"ending: {describe_ending(self.state)}", "bold")

    def show_gaps(self) -> None:
        """What is missing."""
        end = self.state.ended
        if end is not None:
            self._console.line(f"gaps: {len(end.gaps) or 'none'}")
            for line in describe_gaps(end.gaps):
                self._console.prose(f"  {line}", "bad")
            return
        tasks = [progress for progress in self.state.tasks.values() if progress.parent is None]
        unfinished = sum(progress.status is not Status.DONE for progress in tasks)
        if unfinished:
            self._console.line(f"unfinished: {unfinished} of {len(tasks)} tasks")

    def show_question(self) -> None:
        """What a person is asked, with the plan if it waits for approval."""
        request = self.state.input
        if request is None:
            return
        self._console.line(f"a person is asked {_QUESTIONS[request.what]}:", "warn")
        if request.what == "plan" and not request.task:
            self._show_plan(planned(self.state))
        for line in self.question_lines(request, self._console.columns):
            self._console.line(line)

    def question_lines(self, request: ev.InputRequested, columns: int) -> list[str]:
        """All there is to say about a question of this run: the calls it is about, with their arguments."""
        requests = name_calls(request, self.tracer.tasks.get(request.task))
        return [line for each in requests for line in format_question(each, columns)]

    def show_summary(self) -> None:
        """How it ended, how long it took and what it cost in one line, for the end of a screen."""
        state = self.state
        ending = f"{describe_ending(state)} in" if state.ended is not None else "not finished after"
        if state.ended is None and state.input is not None:
            ending = f"a person is asked {_QUESTIONS[state.input.what]}, after"
        took = seconds(state.at - self.tracer.began)
        self._console.prose(f"{ending} {took}; cost: {money(state.ledger.spent)}", "bold")

    def show_answer(self) -> None:
        """The answer: text as it is, anything else as JSON. Where none is to be written, the results are the answer."""
        state = self.state
        # where entries are asked for, they hold the answer too, and nothing else belongs among them
        output = self._console if self._jsonl else self._data
        if state.answer is not None:
            answer = decode_value(state.answer)
        elif state.combine == "none" and state.ended is not None:
            answer = {result.task: decode_value(result.value) for result in results(state) if result.value is not None}
        else:
            self._show_fallback(output)
            return
        self._console.line("answer:", "bold")
        if isinstance(answer, str):
            output.markdown(clean_lines(answer))
        else:
            output.text(format_json(answer))
        self._console.line()

    def _show_fallback(self, output: Console) -> None:
        """What there is to say instead of an answer. Of a run that failed it is no data, and the gaps are shown."""
        has_failed = self.state.ended is not None and self.state.ended.ending == "failed"
        fallback = fallback_answer(self.state, name_gaps=not has_failed)
        if fallback:
            (self._console if has_failed else output).markdown(clean_lines(fallback))
            self._console.line()


def describe_ending(state: RunState) -> str:
    """How a run ended, or why it has not."""
    end = state.ended
    if end is not None:
        return end.ending if end.reason in ("done", end.ending) else f"{end.ending} ({end.reason})"
    if state.input is not None:
        return f"not yet: a person is asked {_QUESTIONS[state.input.what]}"
    return "not yet"
