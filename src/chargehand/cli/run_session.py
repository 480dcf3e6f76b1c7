"""One run at the command line: shown as it goes, questions asked at the terminal, and its end."""

import asyncio
import io
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from chargehand.agents.audit.assessment import assess
from chargehand.agents.result import fallback_answer, planned
from chargehand.cli.advice import Advice, advise, farewell, going_on
from chargehand.cli.artifacts import chart_lines, save_artifacts
from chargehand.cli.console import Console, clean_lines
from chargehand.cli.exit_codes import INTERRUPTED, TERMINATED, Terminated, exit_code
from chargehand.cli.format import describe_gaps, money
from chargehand.cli.questions import QuestionPrompt, may_ask, name_calls
from chargehand.cli.signals import Act, Beside, StopSignals, drive_run
from chargehand.cli.transcript import Transcript, describe_ending
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING
from chargehand.engine.failure import CodeError
from chargehand.engine.plan import Task
from chargehand.engine.policy import Instant
from chargehand.engine.state import RunState, Work
from chargehand.errors import Invalid, RunUnknown, StoreUnavailable
from chargehand.journal.store import read_run
from chargehand.runtime.executor import Executor
from chargehand.runtime.run_log import traceback_text
from chargehand.runtime.runner import Outcome, outcome
from chargehand.runtime.trace import TaskTrace, Trace, Tracer
from chargehand.waits import Wait, collect_waits

if TYPE_CHECKING:
    from chargehand.cli.live_view import LiveView

# seconds that the first line waits for the first outcome, on a terminal and in a file
_FIRST_LINE = 1.0
_FIRST_LINE_OF_A_FILE = 10.0
_BEFORE_OUTCOMES = (
    ev.RunRequested,
    ev.ResultsOffered,
    ev.SupervisionStarted,
    ev.AttemptStarted,
    ev.StepStarted,
    ev.PromptSent,
)
"""Events after which nobody knows yet whether the models answer."""


class RunOutput:
    """Where a run is shown: a live view on a terminal, else one line an event.

    `options` may hold json, jsonl, quiet and verbose. `data` is where the answer or the entries go.
    """

    def __init__(
        self, options: Namespace, run: str, data: Console | None = None, clock: Callable[[], Instant] = time.time
    ) -> None:
        given = vars(options)
        is_quiet = bool(given.get("quiet"))
        jsonl = bool(given.get("jsonl"))
        verbose = bool(given.get("verbose"))
        self.console = Console(sys.stderr, quiet=is_quiet)
        self.data = data or Console(sys.stdout)
        self.waits: Sequence[Wait] = ()
        self._run = run
        mixed = jsonl and self.data.terminal  # entries would be written into the live view
        is_live = self.console.terminal and self.console.draws and not is_quiet and not mixed
        answers = self.console if given.get("json") else self.data
        self.transcript = Transcript(self.console, answers, jsonl=jsonl, lines=not is_live or verbose, models=verbose)
        self.view: LiveView | None = None
        self._is_stopped = False
        if is_live:
            from chargehand.cli import live_view  # noqa: PLC0415 - it brings rich, which only a terminal needs

            self.view = live_view.LiveView(self.console, self.transcript, run, clock=clock, waits=lambda: self.waits)

    def show(self, entries: Sequence[ev.Entry]) -> None:
        self.transcript.show(self._run, entries)
        if self.view is not None:
            self.view.drop_written(entries)
            if not self._is_stopped:
                self.view.start()

    def draw(self) -> None:
        if self.view is not None:
            self.view.draw()

    def start(self) -> None:
        """Show the live view again."""
        self._is_stopped = False
        if self.view is not None:
            self.view.start()

    def stop(self, *, keep: bool = False) -> None:
        """Take the live view away, unless it is to stay, and show none while entries come in."""
        self._is_stopped = True
        if self.view is not None:
            self.view.stop(keep=keep)

    def close(self) -> None:
        """The end of it. A live view that stays shows the timeline already, and the answer comes last below it."""
        self.stop(keep=True)
        if self.view is None:
            self.transcript.close()
            return
        self.transcript.show_gaps()
        self.transcript.show_answer()
        self.transcript.show_summary()


class RunSession:
    """`options` say who the audience is: json, jsonl, quiet, verbose, no_input, save."""

    def __init__(self, options: Namespace, advice: Advice, team: str = "", notice: str = "") -> None:
        self.options = vars(options)
        self.advice = advice
        self.team = team
        self.notice = notice
        self._claim = StdoutClaim()
        self.output = RunOutput(options, advice.run, Console(self._claim.stream, patient=True))
        self.transcript = self.output.transcript
        self.asks = may_ask(options, self.output.console)
        self._asker: QuestionPrompt | None = None
        if self.asks:
            self._asker = QuestionPrompt(self.output.console, advice.run, self.output.stop, self.output.start)
        self._open_question: ev.InputRequested | None = None
        self._is_noticed = not notice
        self._has_begun = False
        self._stop_code: int | None = None
        self._problems: dict[tuple[str, str], CodeError | None] = {}
        # what is told first should be whether the models answer at all; a script that is played has none
        self._held: list[ev.Entry] | None = [] if team and not self.options.get("jsonl") else None

    def ask_first(self, request: ev.InputRequested) -> None:
        """Ask what was left open, once the run is under way; show it where nobody can be asked."""
        self._open_question = request
        if self._asker is None:
            self.transcript.show_question()

    def execute(self, act: Act, executor: Callable[[], AbstractAsyncContextManager[Executor]]) -> int:
        """Drive the run, tell its end, and give the exit code."""
        try:
            with StopSignals(self._announce_stop, farewell(self.advice)) as signals, collect_waits() as waits:
                self.output.waits = waits
                result = self._drive(act, executor, signals)
                if self._stop_code is not None and not self._is_resumable():
                    return self._stop_code
                result = result or outcome(self.advice.run, self.transcript.state)
                code = self.finish(result)
                self.output.data.raise_if_lost()
                return code if self._stop_code is None else self._stop_code
        finally:
            self._claim.restore()

    def _drive(
        self, act: Act, executor: Callable[[], AbstractAsyncContextManager[Executor]], signals: StopSignals
    ) -> Outcome | None:
        beside: list[Beside] = [self._keep_drawing, self._release_soon]
        if self._asker is not None:
            beside.append(self._asker.answer)
        try:
            return signals.run(
                drive_run(
                    act,
                    executor=executor,
                    journal=self.advice.journal,
                    durability=self.options.get("durability", "machine"),
                    listener=self._receive,
                    on_text=self._receive_text,
                    beside=beside,
                )
            )
        except KeyboardInterrupt as stop:
            self._stop_code = TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
            return None
        except StoreUnavailable as error:
            if not self._has_begun:
                raise
            raise StoreUnavailable(f"{error}; then once more: {self.advice.once_more()}") from error
        finally:
            self._release()
            self.output.stop(keep=True)

    def _is_resumable(self) -> bool:
        """Whether there is a run to go on with after a signal, or one that had just ended; say which it is."""
        signal = "SIGTERM" if self._stop_code == TERMINATED else "Ctrl-C"
        try:
            entries = read_run(self.advice.journal, self.advice.run)
        except RunUnknown:
            Console(sys.stderr).line(f"stopped by {signal} before anything was written", "warn")
            return False
        last_seq = self.transcript.state.seq if self.transcript.begun else 0
        self.show(entries[last_seq:])  # the last of it may be written, and not have been told
        if self.transcript.state.ended is not None:
            self._stop_code = None
        else:
            Console(sys.stderr).line(f"stopped by {signal}; the run is left where it stands, and can go on", "warn")
        return True

    def _announce_stop(self) -> None:
        """After the first Ctrl-C: the live view stands still."""
        self._release()
        self.output.stop(keep=True)
        self.stderr().line("stopping; Ctrl-C once more ends this process at once", "warn")

    # --- while it goes on

    def _receive(self, _run: str, entries: Sequence[ev.Entry]) -> None:
        self._has_begun = True
        if self._held is None:
            self.show(entries)
            return
        self._held.extend(entries)
        if not all(isinstance(entry.event, _BEFORE_OUTCOMES) for entry in entries):
            self._release()

    def _receive_text(self, _run: str, work: Work, text: str) -> None:
        self._release()  # a model that writes has not refused
        if self.output.view is not None:
            self.output.view.add_text(work, text)

    async def _keep_drawing(self, *_: object) -> None:
        if self.output.view is not None:
            await self.output.view.animate()

    async def _release_soon(self, *_: object) -> None:
        """Nobody is kept waiting for the first line longer than this."""
        await asyncio.sleep(_FIRST_LINE if self.output.console.terminal else _FIRST_LINE_OF_A_FILE)
        self._release()

    def _release(self) -> None:
        """Tell what was held back until it was known whether the models answer."""
        entries = self._held
        self._held = None
        if entries:
            self.show(entries)

    def show(self, entries: Sequence[ev.Entry]) -> None:
        """Show entries, and ask what they ask."""
        for entry in entries:
            self._report_problem(entry.event)
        if not self._is_noticed:  # quiet or not: nobody may take it for something else
            self.stderr().prose(f"notice: {self.notice}", "warn")
            self._is_noticed = True
        self.output.show(entries)
        if self._asker is None:
            return
        if self._open_question is not None:
            self._ask(self._open_question)
            self._open_question = None
        for entry in entries:
            if isinstance(entry.event, ev.InputRequested):
                self._ask(entry.event)

    def _ask(self, request: ev.InputRequested) -> None:
        if self._asker is not None:
            self._asker.put(request, self.transcript.question_lines(request, self.output.console.columns))

    def _report_problem(self, event: ev.Event) -> None:
        """What a person must fix, once: a model that refuses, a mistake in code."""
        failure = ev.failure_in(event)
        if failure is None:
            return
        refusal = failure.refusal
        mistake = failure.code_error
        if refusal is not None and (refusal.model, refusal.cause) not in self._problems:
            self._problems[refusal.model, refusal.cause] = None
            self.stderr().prose(f"error: {refusal.headline()}", "bad")
        if mistake is not None and (mistake.exception, mistake.place()) not in self._problems:
            self._problems[mistake.exception, mistake.place()] = mistake
            self.stderr().text(clean_lines(traceback_text(mistake)), "bad")

    def stderr(self) -> Console:
        """Standard error, for what is said however quiet it is to be: above the live view, if there is one."""
        console = Console(sys.stderr)
        console.pen = self.output.console.pen
        return console

    # --- its end

    def finish(self, result: Outcome) -> int:
        """Show the end, and give the exit code. Below a live view the answer comes last, to stay in sight."""
        traced = self.transcript.tracer.snapshot()
        state = self.transcript.state
        console = self.output.console
        has_view = self.output.view is not None
        if has_view:
            self.transcript.show_gaps()
        else:
            self.transcript.close()
        saved = self._save_artifacts(traced)
        for path in saved:
            console.line(f"saved: {path}")
        assessment = assess(state) if traced.ending and traced.ending != "cancelled" else None
        if assessment is not None and assessment.worth_saying:
            console.prose(f"checked: {assessment.line}")
        self._report_ending(traced, state)
        if has_view:
            for line in chart_lines(traced, console.columns):
                console.line(line)
            self.transcript.show_answer()
            self.transcript.show_summary()
        advise(console, state, self.advice, mended=bool(self._problems))
        if self.options.get("json"):
            document = run_document(self.transcript.tracer)
            document |= {"team": self.team, "notice": self.notice, "saved": [str(path) for path in saved]}
            document |= assessment.document() if assessment is not None else {}
            document |= {"resume": self.advice.resume()} if state.ended is None else {}
            self.output.data.json(document)
        self._report_mistakes()
        return exit_code(result.ending, result.reason)

    def _report_ending(self, traced: Trace, state: RunState) -> None:
        """What is wrong is said however quiet it is to be."""
        stderr = self.stderr()
        overspent = state.ledger.overspent
        if overspent != NOTHING:
            excess = money(overspent)
            stderr.line(f"overspent: {excess} beyond the budget; a model wrote more than it was asked for", "bad")
        if not self.options.get("quiet") or traced.ending == "complete":
            return
        for line in describe_gaps(traced.gaps) if traced.ending else ():
            stderr.line(f"gap: {line}", "bad")
        stderr.line(f"ending: {describe_ending(state)}", "bad")
        if traced.ending:
            return
        if state.input is not None and state.input.task:
            stderr.line(f"asked: {state.input.task}:")
            for line in self.transcript.question_lines(state.input, stderr.columns):
                stderr.line(f"  {line}")
        stderr.line(f"go on: {going_on(state, self.advice)}")

    def _report_mistakes(self) -> None:
        """The last line of a run that met a mistake in code: where it is, and what to do."""
        mistakes = [mistake for mistake in self._problems.values() if mistake is not None]
        if mistakes:
            others = f" (and {len(mistakes) - 1} more, see above)" if len(mistakes) > 1 else ""
            mend = f"Mend the code, then: {self.advice.once_more()}"
            self.stderr().prose(f"error: {mistakes[0].describe()}{others}. {mend}", "bad")

    def _save_artifacts(self, traced: Trace) -> list[Path]:
        folder = self.options.get("save")
        try:
            return save_artifacts(traced, Path(folder) if folder else None, self.advice.journal)
        except Invalid as error:  # what came of the run is worth more
            Console(sys.stderr).line(f"chargehand: {error}", "bad")
            return []


class StdoutClaim:
    """Standard output for our data alone: whatever else writes there, a tool or a library, lands on standard error."""

    def __init__(self) -> None:
        self.stream: TextIO = sys.stdout
        try:
            sys.stdout.flush()
            copy = os.dup(sys.stdout.fileno())
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        except (OSError, ValueError, io.UnsupportedOperation):  # it has no file behind it, or was closed
            return
        self.stream = os.fdopen(copy, "w", encoding=sys.stdout.encoding, errors="backslashreplace")

    def restore(self) -> None:
        if self.stream is not sys.stdout:
            sys.stdout.flush()
            os.dup2(self.stream.fileno(), sys.stdout.fileno())
            self.stream.close()


def run_document(tracer: Tracer) -> dict[str, object]:
    """Run, ending, answer, plan with goal and tasks, results, gaps, usage, cost, times; an open question."""
    trace = tracer.snapshot()
    state = tracer.state
    results = {task.id: task.result for task in trace.tasks if task.result is not None}
    answer = trace.answer if state.answer is not None else fallback_answer(state) or None
    if trace.combine == "none" and state.ended is not None and trace.answer is None:
        answer = results
    document = {
        "run": trace.run,
        "ending": trace.ending or ("needs_input" if state.input is not None else "unfinished"),
        "reason": trace.reason,
        "answer": answer,
        "plan": {
            "goal": trace.goal,
            "combine": trace.combine,
            "tasks": [_task_document(task, tracer.tasks[task.id]) for task in planned(state).tasks],
        },
        "results": results,
        "gaps": trace.gaps,
        "usage": {"tokens": trace.used.tokens, "calls": trace.used.calls},
        "cost_usd": trace.used.micros / 1_000_000,
        "seconds": round(trace.seconds, 3),
        "seconds_one_at_a_time": round(trace.serial, 3),
        "critical_path": trace.critical_path,
    }
    if state.ended is None and state.input is not None:
        document["question"] = name_calls(state.input, tracer.tasks.get(state.input.task))[0]
    return document


def _task_document(task: Task, traced: TaskTrace) -> dict[str, object]:
    worked = traced.seconds_worked
    return {
        "id": task.id,
        "instruction": task.instruction,
        "worker": traced.worker,
        "after": traced.after,
        "status": traced.status,
        "attempts": traced.attempt_count,
        "seconds": None if worked is None else round(worked, 3),
        "tokens": traced.used.tokens,
        "cost_usd": traced.used.micros / 1_000_000,
    }
