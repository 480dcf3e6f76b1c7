"""One run at the command line: driven while it is shown, questions asked at the terminal, and its end."""

import asyncio
import io
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from shutil import which
from typing import TextIO, TypeAlias

from msgspec import Struct, structs

from chargehand.agents.audit.assessment import assess
from chargehand.agents.result import planned
from chargehand.agents.run_document import read_document
from chargehand.cli import USUAL_JOURNAL
from chargehand.cli.arguments import journal_words
from chargehand.cli.console import Console, clean
from chargehand.cli.diagrams import file_name, save_artifacts
from chargehand.cli.exit_codes import exit_code, stop_code
from chargehand.cli.format import money
from chargehand.cli.questions import QuestionPrompt, answer_command, format_question, may_ask
from chargehand.cli.signals import StopSignals
from chargehand.cli.transcript import Transcript, describe_ending, has_checked_section
from chargehand.concurrency import BareTaskGroup
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, CapName
from chargehand.engine.plan import Task
from chargehand.engine.state import RunState, TextKind, Work
from chargehand.errors import Invalid, RunUnknown, StoreUnavailable
from chargehand.journal.protocol import Journal
from chargehand.journal.store import open_journal, read_run
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Outcome, Runner, outcome
from chargehand.runtime.trace import TaskTrace, Trace, Tracer
from chargehand.store_url import PostgresUrl
from chargehand.waits import collect_waits

Act: TypeAlias = Callable[[Runner, Journal], Coroutine[None, None, Outcome]]
ExecutorSource: TypeAlias = Callable[[], AbstractAsyncContextManager[Executor]]


# --- what can be done with a run next

_WIDER: dict[CapName, str] = {
    "time": " --timeout TIME",
    "usd": " --budget-usd USD",
    "tokens": " --max-tokens N",
    "calls": " --max-calls N",
}
"""How to give a run more of what it lacked."""


class Advice(Struct, frozen=True):
    """The commands that look at a run, go on with it and do it once more."""

    run: str
    journal: Path | PostgresUrl
    executor: Sequence[str] = ()
    """The words that name its executor, such as `--team FILE`."""
    again: Sequence[str] = ()
    """The words of a command that does it once more."""

    def resume(self, *more: str) -> str:
        return self.command("resume", self.run, *self.executor, *more)

    def once_more(self) -> str:
        return self.command(*self.again)

    def command(self, *words: str) -> str:
        return clean(f"{program()} {shlex.join((*words, *journal_words(self.journal)))}")

    def going_on(self, state: RunState) -> str:
        """Return the command that resumes the run, with an answer if something is asked."""
        return self.resume() if state.input is None else self.answering(state.input)

    def answering(self, pending: ev.InputRequested) -> str:
        """Return the command that answers a question, and what else may be said."""
        answer = answer_command(pending)
        return f"{self.resume(*answer.words)}  ({answer.others})"

    def show(self, console: Console, state: RunState, *, mended: bool = False) -> None:
        """What the run is called and what can be done with it; `mended`: something must be put right before that."""
        console.line(f"run: {self.run} in {self.journal}")
        console.line(f"  look again:  {self.command('runs', 'show', self.run)}")
        if state.ended is None:
            console.line(f"  give up:     {self.command('runs', 'cancel', self.run)}")
            console.line(f"  go on:       {self.going_on(state)}")
        elif self.again and state.ended.ending != "complete":
            label = "once mended:" if mended else "once more:  "
            cap = state.ended.cap
            option = _WIDER.get(cap.cap, "") if cap is not None and self.again[0] == "run" else ""
            console.line(f"  {label} {self.once_more()}{option}")  # whole, so that it can be copied


def program() -> str:
    """How to type the command again: it need not be on the path."""
    typed = sys.argv[0]
    installed = which("chargehand")
    if typed.endswith("__main__.py"):
        return "python -m chargehand"
    is_installed = installed is not None and Path(installed).resolve() == Path(typed).resolve()
    return "chargehand" if is_installed else shlex.quote(typed)


# --- driving it


class RunSession:
    """Drives one run. `options` may hold json, jsonl, quiet, verbose, no_input, save and durability."""

    def __init__(self, options: Namespace, advice: Advice, team: str = "", notice: str = "") -> None:
        self.options = vars(options)
        self.advice = advice
        self.team = team
        self.notice = notice
        self._stdout = StdoutClaim()
        self.data = Console(self._stdout.stream, patient=True)
        self.transcript = Transcript.of_command(options, advice.run, self.data)
        # what is wrong is shown however quiet it is to be, and above the live view where there is one
        self.stderr = Console(sys.stderr) if self.options.get("quiet") else self.transcript.console
        self.transcript.problems = self.stderr
        self.asks = may_ask(options, self.transcript.console)
        self._prompt: QuestionPrompt | None = None
        if self.asks:
            self._prompt = QuestionPrompt(self.stderr, self.transcript.live, self._show_question)
        self._open_question: ev.InputRequested | None = None
        self._stop_code: int | None = None

    def ask_first(self, request: ev.InputRequested) -> None:
        """Ask what was left open, once the run is under way; show it where nothing can be asked."""
        self._open_question = request
        if self._prompt is None:
            self.transcript.show_question(request, self.transcript.console)

    def _show_question(self, request: ev.InputRequested) -> None:
        self.transcript.show_question(request, self.stderr, is_driven=True)

    def execute(self, act: Act, executor: ExecutorSource) -> int:
        """Drive the run, show its end, and give the exit code."""
        try:
            with (
                StopSignals(self._announce_stop, f"ended at once; to go on: {self.advice.resume()}") as signals,
                collect_waits() as waits,
            ):
                if self.transcript.live is not None:
                    self.transcript.live.waits = waits
                result = self._run(act, executor, signals)
                if self._stop_code is not None and not self._is_resumable():
                    return self._stop_code
                code = self.finish(result or outcome(self.advice.run, self.transcript.state))
                self.data.raise_if_lost()
                return code if self._stop_code is None else self._stop_code
        finally:
            self._stdout.restore()

    def _run(self, act: Act, executor: ExecutorSource, signals: StopSignals) -> Outcome | None:
        try:
            return signals.run(self._drive(act, executor))
        except KeyboardInterrupt as stop:
            self._stop_code = stop_code(stop)
            return None
        except StoreUnavailable as error:
            if not self.transcript.begun:
                raise
            raise StoreUnavailable(f"{error}; then once more: {self.advice.once_more()}") from error
        finally:
            self.transcript.stop_view()

    async def _drive(self, act: Act, executor: ExecutorSource) -> Outcome | None:
        """Do `act`; None if the run was left where it stands because a question is to be decided later."""
        journal = await open_journal(self.advice.journal, durability=self.options.get("durability", "machine"))
        live = self.transcript.live
        try:
            async with executor() as opened, BareTaskGroup() as jobs:
                runner = Runner(journal, opened, listener=self._receive, on_text=self._receive_text)
                run = jobs.create_task(act(runner, journal))
                company = [jobs.create_task(live.animate())] if live is not None else []
                if self._prompt is not None:
                    company.append(jobs.create_task(self._prompt.answer(runner, self.advice.run, run.cancel)))
                try:
                    await asyncio.wait({run})
                except asyncio.CancelledError:
                    for job in company:  # an open prompt holds lines back
                        job.cancel()
                    if company:
                        await asyncio.wait(company)
                    await self._finish_effects(runner)
                    raise
                for job in company:
                    job.cancel()
            return None if run.cancelled() else run.result()
        finally:
            await journal.close()

    async def _finish_effects(self, runner: Runner) -> None:
        """Let calls that change something finish, and say which."""
        names = runner.effects_under_way
        if not names:
            return
        calls = "1 call that changes" if len(names) == 1 else f"{len(names)} calls that change"
        self.stderr.line(f"finishing {calls} something: {', '.join(names)}; press Ctrl-C again to stop now", "warn")
        await runner.finish_effects()
        if left := runner.effects_under_way:
            self.stderr.line(f"stopped before the outcome was known: {', '.join(left)}", "bad")

    def _is_resumable(self) -> bool:
        """Whether there is a run to go on with after a signal, or one that had just ended; say which it is."""
        signal = "SIGTERM" if self._stop_code == 143 else "Ctrl-C"
        try:
            entries = read_run(self.advice.journal, self.advice.run)
        except RunUnknown:
            self.stderr.line(f"stopped by {signal} before anything was written", "warn")
            return False
        last_seq = self.transcript.state.seq if self.transcript.begun else 0
        self.show(entries[last_seq:])  # the last of it may be written, and not have been shown
        if self.transcript.state.ended is not None:
            self._stop_code = None
        else:
            self.stderr.line(f"stopped by {signal}; the run is left where it stands, and can go on", "warn")
        return True

    def _announce_stop(self) -> None:
        self.transcript.stop_view()
        self.stderr.line("stopping; Ctrl-C once more ends this process at once", "warn")

    # --- while it goes on

    def _receive(self, _run: str, entries: Sequence[ev.Entry]) -> None:
        self.show(entries)

    def _receive_text(self, _run: str, work: Work, text: str, kind: TextKind) -> None:
        if self.transcript.live is not None:
            self.transcript.live.add_text(work, text, kind)

    def show(self, entries: Sequence[ev.Entry]) -> None:
        """Show entries, and ask what they ask."""
        if self.notice and not self.transcript.begun:  # quiet or not: a demo must not pass for a model
            self.stderr.prose(f"notice: {self.notice}", "warn")
        self.transcript.show(self.advice.run, entries)
        if self._prompt is None:
            return
        questions = [entry.event for entry in entries if isinstance(entry.event, ev.InputRequested)]
        for request in [self._open_question, *questions] if self._open_question else questions:
            self._prompt.put(request)
        self._open_question = None

    # --- its end

    def finish(self, result: Outcome) -> int:
        """Show the end, and give the exit code."""
        traced = self.transcript.tracer.snapshot()
        state = self.transcript.state
        saved = self._save_artifacts(traced)
        assessment = assess(state) if traced.ending and traced.ending != "cancelled" else None
        remarks = [f"saved: {', '.join(path.name for path in saved)} in {saved[0].parent}"] if saved else []
        if assessment is not None and assessment.worth_saying and not has_checked_section(state):
            remarks.append(f"checked: {assessment.line}")
        self.transcript.close(remarks)
        self._report_ending(traced, state)
        self.advice.show(self.transcript.console, state, mended=bool(self.transcript.causes))
        if self.options.get("json"):
            document = run_json(self.transcript.tracer)
            document |= {"team": self.team, "notice": self.notice, "saved": [str(path) for path in saved]}
            document |= assessment.document() if assessment is not None else {}
            document |= {"resume": self.advice.resume()} if state.ended is None else {}
            self.data.json(document)
        return exit_code(result.ending, result.reason)

    def _report_ending(self, traced: Trace, state: RunState) -> None:
        """What is wrong is said however quiet it is to be."""
        overspent = state.ledger.overspent
        if overspent != NOTHING:
            excess = money(overspent)
            self.stderr.line(f"overspent: {excess} beyond the budget; a model wrote more than it was asked for", "bad")
        if not self.options.get("quiet") or traced.ending == "complete":
            return
        for line in self.transcript.gap_lines(traced.gaps) if traced.ending else ():
            self.stderr.line(f"gap: {line}", "bad")
        self.stderr.line(f"ending: {describe_ending(state)}", "bad")
        if not traced.ending:
            for line in format_question(state.input) if state.input is not None else ():
                self.stderr.line(f"  {line}")
            for line in self.transcript.lines_in_doubt():
                self.stderr.line(f"  {line}")
            self.stderr.line(f"go on: {self.advice.going_on(state)}")

    def _save_artifacts(self, traced: Trace) -> list[Path]:
        journal = self.advice.journal
        beside = journal.parent if isinstance(journal, Path) else Path(USUAL_JOURNAL).parent
        folder = self.options.get("save") or beside / "artifacts" / file_name(traced.run)
        try:
            return save_artifacts(traced, Path(folder))
        except Invalid as error:  # what came of the run is worth more
            self.stderr.line(f"chargehand: {error}", "bad")
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


def run_json(tracer: Tracer, *, is_driven: bool = False) -> dict[str, object]:
    """Return the run document with the plan, the results and the times, as `--json` prints it.

    Args:
        tracer: has all entries of the run.
        is_driven: whether a process drives the run.
    """
    trace = tracer.snapshot()
    state = tracer.state
    document = read_document(trace.run, state, is_driven=is_driven)
    fields = {name: value for name, value in structs.asdict(document).items() if name not in ("state", "question")}
    results = {task.id: task.result for task in trace.tasks if task.result is not None}
    if trace.combine == "none" and state.ended is not None and document.answer is None:
        fields["answer"] = results
    described: dict[str, object] = {
        **fields,
        "ending": document.state,
        "plan": {
            "goal": trace.goal,
            "combine": trace.combine,
            "tasks": [_task_document(task, tracer.tasks[task.id]) for task in planned(state).tasks],
        },
        "results": results,
        "seconds": round(trace.seconds, 3),
        "seconds_one_at_a_time": round(trace.serial, 3),
        "critical_path": trace.critical_path,
    }
    return described if document.question is None else {**described, "question": document.question}


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
        "usd": traced.used.usd,
    }
