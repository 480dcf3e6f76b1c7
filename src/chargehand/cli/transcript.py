"""A run as people see it, entry by entry and at its end: lines, or a live view on a terminal."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from chargehand.agents.inputs import own_words
from chargehand.agents.result import fallback_answer, planned
from chargehand.agents.run_document import describe_calls_in_doubt, read_calls_in_doubt
from chargehand.cli.console import Console, clean, clean_lines, format_json, short, wrap_words
from chargehand.cli.diagrams import LEGEND, print_plan, timeline_lines
from chargehand.cli.event_text import MEMORY_STEPS, SUPERVISOR, describe_event
from chargehand.cli.format import cost, describe_gaps, seconds
from chargehand.cli.questions import format_question
from chargehand.engine import events as ev
from chargehand.engine.facts import UsageUnknown
from chargehand.engine.forecast import forecast
from chargehand.engine.plan import Plan
from chargehand.engine.policy import Instant
from chargehand.engine.state import RunState
from chargehand.engine.value import decode_value
from chargehand.engine.view import results
from chargehand.runtime.run_log import traceback_text
from chargehand.runtime.trace import Tracer

if TYPE_CHECKING:
    from chargehand.cli.live_view import LiveView

_MAX_GOAL = 2000  # characters; the journal has all of it
_MIN_TASK = 6  # columns for names such as t12, t1.2 or t3[0]: the first lines come before the plan is known
_MAX_TASK = 20
_MAX_WORKER = 12
_LEAST_ROOM = 20  # columns beside the names, below which words are not wrapped
_INDENT = " " * 14  # of what belongs to the line of an event
_WAITS_FOR_CALLS = {"tool": "approval of {} calls", "effect": "confirmation of {} effects"}
_WAITS_FOR = {
    "plan": "plan approval",
    "tool": "approval of a call",
    "effect": "confirmation of an effect",
    "question": "an answer",
}


class Transcript:
    """One run. `console` is for the events, `data` for the answer, or for the entries where those are wanted (`jsonl`).

    Without `lines` only plans are shown, not every event; without `internals` nothing of what models were asked and
    replied, and nothing of what memory was read for it.
    """

    def __init__(
        self,
        console: Console,
        data: Console,
        *,
        jsonl: bool = False,
        lines: bool = True,
        internals: bool = True,
        live: "LiveView | None" = None,
    ) -> None:
        self.console = console
        self.data = data
        self.live = live
        self._jsonl = jsonl
        self._lines = lines
        self._internals = internals
        self.causes: dict[tuple[str, str], str] = {}
        """What a person must put right and was told in full: a mistake in code, or what a provider refuses; each with
        the words that refer to it.
        """
        self.problems = console
        """Where those are told."""
        self._tracer: Tracer | None = None
        self._resumes = False

    @classmethod
    def of_command(
        cls, options: Namespace, run: str, data: Console, clock: Callable[[], Instant] = time.time
    ) -> "Transcript":
        """The transcript for the options json, jsonl, quiet and verbose, where the command has them."""
        values = vars(options)
        jsonl = bool(values.get("jsonl"))
        verbose = bool(values.get("verbose"))
        console = Console(sys.stderr, quiet=bool(values.get("quiet")))
        live = None
        mixed = jsonl and data.terminal  # entries would be written into the live view
        if console.terminal and console.draws and not mixed and not values.get("quiet"):
            from chargehand.cli.live_view import LiveView  # noqa: PLC0415 - it brings rich, which only a terminal needs

            live = LiveView(console, run, clock)
        answers = console if values.get("json") else data
        lines = live is None or verbose
        return cls(console, answers, jsonl=jsonl, lines=lines, internals=verbose, live=live)

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
        if self._resumes:
            self._resumes = False
            goal = short(self.state.requested.goal, _MAX_GOAL)
            self.console.prose(f"going on with {run} after {self.state.seq} entries: {goal}", "bold")
        for entry in entries:
            if self._jsonl:
                self.data.json_line(entry)
            self._record(run, entry)
            self._show_entry(entry)
        if self.live is not None and self._tracer is not None:
            self.live.show(self._tracer, entries)

    def catch_up(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Record what was shown before; what is shown next goes on from there."""
        for entry in entries:
            self._record(run, entry)
            self._resumes = True

    def _record(self, run: str, entry: ev.Entry) -> None:
        if self._tracer is None:
            self._tracer = Tracer(run, entry)
        else:
            self._tracer.record(entry)

    def _show_entry(self, entry: ev.Entry) -> None:
        event = entry.event
        failure = ev.failure_in(event)
        if failure is not None:
            self._show_cause(failure)
        if isinstance(event, ev.RunRequested):
            self.console.prose(f"goal: {short(event.goal, _MAX_GOAL)}", "bold")
            if event.plan is not None:
                self._show_plan(event.plan)
            return
        if self._lines and (self._internals or not self._is_internal(event)):
            self._show_event(entry)
        if isinstance(event, ev.TasksAdded) and event.tasks:
            self._show_plan(Plan(event.tasks, self.state.combine))

    def _is_internal(self, event: ev.Event) -> bool:
        """Whether this is only between a worker, its model and its memory."""
        if isinstance(event, ev.StepStarted):
            return event.kind in ("model", *MEMORY_STEPS)
        if isinstance(event, ev.StepFinished):
            steps = self.state.tasks[event.task].steps or {}
            return event.step in steps and steps[event.step].kind in ("model", *MEMORY_STEPS)
        return isinstance(event, ev.PromptSent | ev.ModelCalled)

    def _show_cause(self, failure: ev.Failure) -> None:
        """Tell in full what a person must put right, once, however many tasks fail for it."""
        key = _cause_of(failure)
        if key is None or key in self.causes:
            return
        if failure.code_error is not None:
            place = failure.code_error.place()
            raised = f"{failure.code_error.exception} in {place}" if place else failure.code_error.exception
            self.causes[key] = f"{raised}, shown above"
            self.problems.text(clean_lines(traceback_text(failure.code_error)), "bad")
        elif failure.refusal is not None:
            self.causes[key] = f"refused by {failure.refusal.provider}, as said above"
            self.problems.prose(f"error: {failure.refusal.headline()}", "bad")

    def _message_of(self, failure: ev.Failure) -> str:
        """What a failure says; where that was told in full already, a reference to it."""
        key = _cause_of(failure)
        return self.causes.get(key, failure.message) if key is not None else failure.message

    def gap_lines(self, gaps: Sequence[ev.Gap]) -> list[str]:
        """What an answer does without, a line each."""
        described: list[ev.Gap] = []
        for gap in gaps:
            failure = self._failure_behind(gap)
            key = None if failure is None else _cause_of(failure)
            reference = None if key is None else self.causes.get(key)
            described.append(gap if reference is None else structs.replace(gap, message=reference))
        return describe_gaps(described)

    def _failure_behind(self, gap: ev.Gap) -> ev.Failure | None:
        if gap.status == "unplanned":
            return self.state.planning.failure
        progress = self.state.tasks.get(gap.task) if gap.status == "failed" and not gap.run else None
        return None if progress is None else progress.failure

    def _show_event(self, entry: ev.Entry) -> None:
        console = self.console
        if isinstance(entry.event, ev.AttemptFailed | ev.AttemptAbandoned | ev.SupervisionFailed):
            failure = structs.replace(entry.event.failure, message=self._message_of(entry.event.failure))
            entry = structs.replace(entry, event=structs.replace(entry.event, failure=failure))
        event = describe_event(self.tracer, entry, whole=self._internals)
        worker_room = min(_MAX_WORKER, max(map(len, (*self.state.agents, SUPERVISOR))))
        task_room = min(_MAX_TASK, max([_MIN_TASK, *map(len, self.state.tasks)]))
        when = f"{entry.at - self.tracer.began:8.2f} s"
        lead = f"{when}  {short(event.task, _MAX_TASK):{task_room}}  {short(event.who, _MAX_WORKER):{worker_room}}  "
        lines = [event.text]
        if console.terminal and console.columns - len(lead) > _LEAST_ROOM:
            lines = wrap_words(event.text, console.columns - len(lead))
        for line in lines:
            console.line(f"{lead}{line.strip()}", event.tone)
            lead = " " * len(lead)
        if isinstance(entry.event, ev.InputRequested):
            for line in format_question(entry.event):
                console.line(f"{_INDENT}{line}")

    def _show_plan(self, plan: Plan, console: Console | None = None) -> None:
        requested = self.state.requested
        console = console or self.console
        console.line()
        print_plan(console, plan, forecast(plan, requested.roster, requested.policy))
        console.line()

    def show_question(self, request: ev.InputRequested, console: Console, *, is_driven: bool = False) -> None:
        """Write all there is to say about a question, with the plan if it waits for approval.

        Calls in doubt that wait behind it follow. `is_driven`: this process drives the run already.
        """
        console.line(f"waiting for {describe_wait(request)}:", "warn")
        if request.task:
            console.line(f"{request.task}:", "bold")
        elif request.what == "plan":
            self._show_plan(planned(self.state), console)
        for line in (*format_question(request), *self.lines_in_doubt(is_driven=is_driven)):
            console.line(line)

    def lines_in_doubt(self, *, is_driven: bool = False) -> list[str]:
        """Return the calls in doubt that no open question asks about, each in a line."""
        return [clean(line) for line in describe_calls_in_doubt(read_calls_in_doubt(self.state, is_driven=is_driven))]

    # --- the end

    def stop_view(self) -> None:
        """Leave the last picture of a live view as it is."""
        if self.live is not None:
            self.live.stop(keep=True)

    def close(self, remarks: Sequence[str] = (), *, is_driven: bool = False) -> None:
        """The timeline, what is missing, remarks, the answer, what it cost, how long it took and how it ended.

        A live view that stays shows the timeline already. `is_driven`: a process drives the run.
        """
        trace = self.tracer.snapshot()
        console = self.console
        self.stop_view()
        if self.live is None:
            console.line()
            console.line(f"timeline: {seconds(trace.seconds)}   {LEGEND}", "bold")
            for line in timeline_lines(trace, console.columns):
                console.line(line)
            console.line()
        self._show_gaps()
        failure = fallback_answer(self.state, name_gaps=False, message_of=self._message_of) if self._has_failed else ""
        if failure:  # it is no data
            console.line()
            console.markdown(clean_lines(failure))
            console.line()
        for remark in remarks:
            console.prose(remark)
        self._show_answer()
        facts = [note.fact for note in trace.notes]
        unpriced = [fact.model for fact in facts if isinstance(fact, UsageUnknown) and fact.unknown == "price"]
        console.line(f"cost: {cost(trace.used, trace.lost, unpriced)}")
        console.line(f"time: {seconds(trace.seconds)}, with {seconds(trace.serial)} of work in it")
        console.line(f"ending: {describe_ending(self.state)}", "bold")
        for line in self.lines_in_doubt(is_driven=is_driven):
            console.line(line, "warn")

    @property
    def _has_failed(self) -> bool:
        return self.state.ended is not None and self.state.ended.ending == "failed"

    def _show_gaps(self) -> None:
        """What is missing. Why there is no plan or no answer at all is said below."""
        end = self.state.ended
        if end is None:
            return
        gaps = list(end.gaps)
        if self._has_failed:
            gaps = [gap for gap in gaps if gap.status not in ("unplanned", "unwritten")]
        if gaps or not self._has_failed:
            self.console.line(f"gaps: {len(gaps) or 'none'}")
        for line in self.gap_lines(gaps):
            self.console.prose(f"  {line}", "bad")

    def _show_answer(self) -> None:
        """The answer: text as it is, anything else as JSON. Where none is to be written, the results are the answer."""
        state = self.state
        # where entries are asked for, they hold the answer too, and nothing else belongs among them
        output = self.console if self._jsonl else self.data
        if state.answer is not None:
            answer = decode_value(state.answer)
        elif state.combine == "none" and state.ended is not None:
            answer = self._results()
        else:
            answer = fallback_answer(state)
        if state.answer is None and (not answer or self._has_failed):
            return
        self.console.line("answer:", "bold")
        if isinstance(answer, str):
            output.markdown(clean_lines(answer))
        else:
            output.text(format_json(answer))
        self.console.line()

    def _results(self) -> str:
        """The results in words, each with the worker and the task it comes from."""
        lines: list[str] = []
        for result in results(self.state):
            if result.value is not None:
                worker = self.state.tasks[result.task].worker
                lines.append(f"{worker} [{result.task}]: {own_words(decode_value(result.value))}")
        return "\n\n".join(lines)


def _cause_of(failure: ev.Failure) -> tuple[str, str] | None:
    """What a person must put right, as far as it is the same for several failures; None: nothing of the kind."""
    if failure.code_error is not None:
        return (failure.code_error.exception, failure.code_error.place() or failure.code_error.message)
    if failure.refusal is not None:
        return (failure.refusal.model, failure.refusal.cause)
    return None


def has_checked_section(state: RunState) -> bool:
    """Whether the answer itself says what was checked in it."""
    written = state.answer_written
    return written is not None and any(section.kind == "counted" for section in written.sections)


def describe_wait(request: ev.InputRequested) -> str:
    """Return what a run waits for, of how many calls."""
    count = len(request.calls)
    return _WAITS_FOR_CALLS[request.what].format(count) if count > 1 else _WAITS_FOR[request.what]


def describe_ending(state: RunState) -> str:
    """How a run ended, or why it has not."""
    end = state.ended
    if end is not None:
        if end.reason in ("done", end.ending):
            return end.ending
        cap = "" if end.cap is None else f": {end.cap.describe()}"
        return f"{end.ending} ({end.reason}){cap}"
    if state.input is not None:
        return f"not yet: waiting for {describe_wait(state.input)}"
    return "not yet"
