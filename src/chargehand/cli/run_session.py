"""One run at the command line: shown as it goes, questions asked at the terminal, and its end."""

import asyncio
import io
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, TextIO, TypeAlias

from chargehand.agents.answer import MISSING
from chargehand.agents.crew import Crew
from chargehand.cli.advice import Advice, advise, farewell, going_on
from chargehand.cli.artifacts import chart_lines, save_artifacts
from chargehand.cli.console import Console, clean, clean_lines
from chargehand.cli.exit_codes import INTERRUPTED, TERMINATED, Terminated, exit_code
from chargehand.cli.format import describe_gap, money
from chargehand.cli.output import Output, ProblemReport, is_first_outcome
from chargehand.cli.questions import QuestionPrompt, format_question, may_ask
from chargehand.cli.signals import Act, Beside, Interruption, Termination, run_until_stopped
from chargehand.cli.transcript import describe_ending
from chargehand.core.state import RunState, Work
from chargehand.errors import Invalid, RunUnknown, StoreUnavailable
from chargehand.models.waits import collect_waits
from chargehand.runtime.assessed import assess
from chargehand.runtime.driver import Outcome, outcome
from chargehand.runtime.result import plain_answer
from chargehand.runtime.trace import TaskTrace, Trace, trace
from chargehand.stores.reader import read_run
from chargehand.terms import events as ev
from chargehand.terms.budget import NOTHING
from chargehand.terms.plan import Task

# seconds that the first line waits for the first outcome
_FIRST_LINE = 1.0
_FIRST_LINE_OF_A_FILE = 10.0
StopSignal: TypeAlias = Literal["Ctrl-C", "SIGTERM"]
EXIT_CODES: dict[StopSignal, int] = {"Ctrl-C": INTERRUPTED, "SIGTERM": TERMINATED}


class RunSession:
    """`options` say who the audience is: json, jsonl, quiet, verbose, no_input, save."""

    def __init__(self, options: Namespace, advice: Advice, team: str = "", notice: str = "") -> None:
        self._given = vars(options)
        self._advice = advice
        self._about = (team, notice)
        self._claim = StdoutClaim()
        self._output = Output(options, advice.run, Console(self._claim.stream, patient=True))
        self.console = self._output.console
        self.transcript = self._output.transcript
        self.asks = may_ask(options, self.console)
        self._asker = (
            QuestionPrompt(self.console, advice.run, self._output.stop, self._output.start) if self.asks else None
        )
        self._left_open: ev.InputRequested | None = None
        self._unsaid = notice
        self._begun = False
        self._stopped_by: StopSignal | None = None
        self._trouble = ProblemReport()
        # what is told first should be whether the models answer at all; a script that is played has none
        self._held: list[ev.Entry] | None = [] if team and not vars(options).get("jsonl") else None

    def put(self, asked: ev.InputRequested) -> None:
        """Ask what was left open, once the run is under way."""
        self._left_open = asked

    def execute(self, act: Act, crew: Callable[[], AbstractAsyncContextManager[Crew]]) -> int:
        """Carry the run, tell its end, and give the exit code."""
        try:
            with Termination() as termination, collect_waits() as waits:
                self._output.waits = waits
                return self._carried(act, crew, termination)
        finally:
            self._claim.restore()

    def _carried(
        self, act: Act, crew: Callable[[], AbstractAsyncContextManager[Crew]], termination: Termination
    ) -> int:
        beside: list[Beside] = [] if self._asker is None else [self._asker.answer]
        found: Outcome | None = None
        try:
            found = run_until_stopped(
                act,
                crew=crew,
                journal=self._advice.journal,
                durability=self._given["durability"],
                listener=self._hear,
                whisper=self._whisper,
                interruption=Interruption(self._announce_stop, farewell(self._advice)),
                termination=termination,
                beside=[*beside, self._output.move, self._release_soon],
            )
        except KeyboardInterrupt as stop:
            self._stopped_by = "SIGTERM" if isinstance(stop, Terminated) else "Ctrl-C"
        except StoreUnavailable as error:
            if not self._begun:
                raise
            raise StoreUnavailable(f"{error}; then once more: {self._advice.once_more()}") from error
        finally:
            self._release()
            self._output.stop(keep=True)
        if self._stopped_by is not None and not self._is_left(self._stopped_by):
            return EXIT_CODES[self._stopped_by]
        found = found or outcome(self._advice.run, self.transcript.state)
        self._close()
        self._output.data.raise_if_lost()
        return exit_code(found.ending, found.reason) if self._stopped_by is None else EXIT_CODES[self._stopped_by]

    def _is_left(self, stopped_by: StopSignal) -> bool:
        """Whether there is a run to go on with after a signal, or one that had just ended; say which it is."""
        try:
            entries = read_run(self._advice.journal, self._advice.run)
        except RunUnknown:
            Console(sys.stderr).line(f"stopped by {stopped_by} before anything was written", "warn")
            return False
        known = self.transcript.state.seq if self.transcript.begun else 0
        self._output.hear(entries[known:])  # the last of it may be written, and not have been told
        if self.transcript.state.ended is not None:
            self._stopped_by = None
        else:
            Console(sys.stderr).line(f"stopped by {stopped_by}; the run is left where it stands, and can go on", "warn")
        return True

    def _announce_stop(self) -> None:
        """After the first Ctrl-C: no picture moves any more."""
        self._release()
        self._output.stop(keep=True)
        self._loud().line("stopping; Ctrl-C once more ends this process at once", "warn")

    def _hear(self, _run: str, entries: Sequence[ev.Entry]) -> None:
        self._begun = True
        if self._held is not None:
            self._held.extend(entries)
            if any(map(is_first_outcome, entries)):
                self._release()
        else:
            self._tell(entries)

    def _whisper(self, _run: str, work: Work, text: str) -> None:
        self._release()  # a model that writes has not refused
        self._output.whisper(work, text)

    async def _release_soon(self, *_: object) -> None:
        """Nobody is kept waiting for the first line longer than this."""
        await asyncio.sleep(_FIRST_LINE if self.console.terminal else _FIRST_LINE_OF_A_FILE)
        self._release()

    def _release(self) -> None:
        """Tell what was held back until it was known whether the models answer."""
        held = self._held
        self._held = None
        if held:
            self._tell(held)

    def _tell(self, entries: Sequence[ev.Entry]) -> None:
        self._trouble.hear(entries, self._loud())
        if self._unsaid:  # quiet or not: nobody may take it for something else
            self._loud().prose(f"notice: {clean(self._unsaid)}", "warn")
            self._unsaid = ""
        self._output.hear(entries)
        if self._asker is not None:
            if self._left_open is not None:
                self._asker.put(self._left_open)
                self._left_open = None
            for entry in entries:
                self._asker.hear(entry)

    # --- its end

    def _say_overspent(self, console: Console) -> None:
        over = self.transcript.state.ledger.overspent
        if over != NOTHING:
            console.line(f"overspent: {money(over)} beyond the budget; a model wrote more than it was asked for", "bad")

    def _close(self) -> None:
        """Everything after the run is read off its journal. Below a picture the answer comes last, to stay in sight."""
        entries = read_run(self._advice.journal, self._advice.run)
        found = trace(self._advice.run, entries)
        words = plain_answer(entries)
        if self._output.moves:
            self._output.stop(keep=True)
            self.transcript.show_gaps()
        else:
            self._output.close()
            self._show_stand_in(words, found.ending)
        saved = self._saved(found)
        for path in saved:
            self.console.line(f"saved: {clean(str(path))}")
        assessed = assess(entries) if found.ending and found.ending != "cancelled" else None
        if assessed is not None and assessed.worth_saying:
            self.console.prose(f"checked: {clean(assessed.line)}")
        self._say_overspent(Console(sys.stderr))
        if self._given.get("quiet") and found.ending != "complete":  # what is wrong is said all the same
            self._say_what_is_wrong(found)
        if self._output.moves:
            for line in chart_lines(found, self.console.columns):
                self.console.line(line)
            self.transcript.show_answer()
            self._show_stand_in(words, found.ending)
            self.transcript.show_summary()
        advise(self.console, self.transcript.state, self._advice, mended=self._trouble.any)
        if self._given.get("json"):
            team, notice = self._about
            told = run_document(found, self.transcript.state, team=team, notice=notice, saved=saved)
            told["answer"] = words or told["answer"]
            told |= assessed.document() if assessed is not None else {}
            asked = self.transcript.state.input if self.transcript.state.ended is None else None
            more: dict[str, object] = {"resume": self._advice.resume()} if self.transcript.state.ended is None else {}
            more |= {"question": asked} if asked is not None else {}
            self._output.data.json({**told, **more})
        self._trouble.close(self._loud(), self._advice.once_more())

    def _show_stand_in(self, words: str, ending: str) -> None:
        """No answer was written: what there is takes its place."""
        # of a run that failed, what is missing was told above
        shown = [part for part in words.split("\n\n") if ending != "failed" or not part.startswith(MISSING)]
        if words and shown:
            apart = ending == "failed" or self._given.get("json") or self._given.get("jsonl")
            (self.console if apart else self._output.data).markdown(clean_lines("\n\n".join(shown)))

    def _loud(self) -> Console:
        """Standard error, for what is said however quiet it is to be: above a picture that moves, if there is one."""
        console = Console(sys.stderr)
        console.pen = self.console.pen
        return console

    def _say_what_is_wrong(self, found: Trace) -> None:
        loud = self._loud()
        for one in found.gaps if found.ending else ():
            loud.line(f"gap: {describe_gap(one)}", "bad")
        state = self.transcript.state
        loud.line(f"ending: {describe_ending(state)}", "bad")
        if found.ending:
            return
        if state.input is not None and state.input.task:
            loud.line(f"asked: {clean(state.input.task)}:")
            for line in format_question(state.input, loud.columns):
                loud.line(f"  {line}")
        loud.line(f"go on: {going_on(state, self._advice)}")

    def _saved(self, found: Trace) -> list[Path]:
        folder = self._given.get("save")
        try:
            return save_artifacts(found, Path(folder) if folder else None, self._advice.journal)
        except Invalid as error:  # what came of the run is worth more
            Console(sys.stderr).line(f"chargehand: {clean(str(error))}", "bad")
            return []


class StdoutClaim:
    """Standard output for our data alone: whatever else writes there, a tool or a library, lands on standard error."""

    def __init__(self) -> None:
        self.stream: TextIO = sys.stdout
        try:
            sys.stdout.flush()
            kept = os.dup(sys.stdout.fileno())
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        except (OSError, ValueError, io.UnsupportedOperation):  # it has no file behind it, or was closed
            return
        self.stream = os.fdopen(kept, "w", encoding=sys.stdout.encoding, errors="backslashreplace")

    def restore(self) -> None:
        if self.stream is not sys.stdout:
            sys.stdout.flush()
            os.dup2(self.stream.fileno(), sys.stdout.fileno())
            self.stream.close()


def run_document(
    trace: Trace, state: RunState, *, team: str, notice: str, saved: Sequence[Path] = ()
) -> dict[str, object]:
    """Run, ending, answer, plan with goal and tasks, results, gaps, usage, cost, times."""
    planned = {one.id: one for one in trace.tasks}
    tasks = [one.task for one in state.tasks.values() if one.mother is None]
    results = {one.id: one.result for one in trace.tasks if one.result is not None}
    whole = trace.combine == "none" and state.ended is not None  # then the results are the answer
    return {
        "run": trace.run,
        "team": team,
        "notice": notice,
        "ending": trace.ending or ("needs_input" if state.input is not None else "unfinished"),
        "reason": trace.reason,
        "answer": results if whole and trace.answer is None else trace.answer,
        "plan": {"goal": trace.goal, "combine": trace.combine, "tasks": [_task(one, planned[one.id]) for one in tasks]},
        "results": results,
        "gaps": trace.gaps,
        "usage": {"tokens": trace.used.tokens, "calls": trace.used.calls},
        "cost_usd": trace.used.micros / 1_000_000,
        "seconds": round(trace.seconds, 3),
        "seconds_one_at_a_time": round(trace.serial, 3),
        "critical_path": trace.critical_path,
        "saved": [str(path) for path in saved],
    }


def _task(task: Task, found: TaskTrace) -> dict[str, object]:
    took = None if found.began is None or found.ended is None else round(found.ended - found.began, 3)
    return {
        "id": task.id,
        "instruction": task.instruction,
        "worker": found.worker,
        "after": found.after,
        "status": found.status,
        "attempts": len(found.attempts),
        "seconds": took,
        "tokens": found.used.tokens,
        "cost_usd": found.used.micros / 1_000_000,
    }
