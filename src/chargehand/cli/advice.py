"""What to do next: the command that goes on with a run, and what is kept where output was lost."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import which

from msgspec import Struct

from chargehand.agents.levels import inner_gaps
from chargehand.cli import USUAL_JOURNAL
from chargehand.cli.console import Console, cells, clean
from chargehand.core.state import RunState, Status


class Advice(Struct, frozen=True):
    """`crew` are the words that name whoever did the work (`--team FILE`), `again` those that do it once more."""

    run: str
    journal: Path
    crew: Sequence[str]
    again: Sequence[str]

    def resume(self, *more: str) -> str:
        return self._command("resume", self.run, *self.crew, *more)

    def once_more(self) -> str:
        return self._command(*self.again)

    def show(self) -> str:
        return self._command("runs", "show", self.run)

    def cancel(self) -> str:
        return self._command("runs", "cancel", self.run)

    def _command(self, *words: str) -> str:
        where = () if str(self.journal) == USUAL_JOURNAL else ("--journal", str(self.journal))
        return clean(f"{program()} {shlex.join((*words, *where))}")


def advise(console: Console, state: RunState, advice: Advice, *, mended: bool = False) -> None:
    """What the run is called and what can be done with it; `mended`: something must be put right before that."""
    console.line(f"run: {clean(advice.run)} in {clean(str(advice.journal))}")
    console.line(f"  look again:  {advice.show()}")
    if state.ended is None:
        console.line(f"  give up:     {advice.cancel()}")
        console.line(f"  go on:       {going_on(state, advice)}")
    elif state.ended.ending != "complete" or inner_gaps(state):
        more = _wider(state, state.ended.reason) if advice.again[:1] == ("run",) else ""
        kept = any(one.status is Status.DONE for one in state.tasks.values())
        label = "once mended:" if mended else "once more:  "
        command = f"  {label} {advice.once_more()}{more}"
        note = "(finished work is taken over)" if kept else ""
        if note and console.terminal and cells(f"{command}  {note}") > console.columns:
            console.line(command)  # whole, so that it can be copied
            console.line(f"{' ' * (len(label) + 3)}{note}")
        else:
            console.line(f"{command}  {note}".rstrip())


def going_on(state: RunState, advice: Advice) -> str:
    """The command that takes a run up again, with an answer if something is asked."""
    if state.input is None:
        return advice.resume()
    answer, others = _answers(state.input.what)
    return f"{advice.resume(*answer.split())}  ({others})"


def _wider(state: RunState, reason: str) -> str:
    """The option that gives a run more of what it lacked."""
    if reason == "budget" and state.requested.budget.micros is not None:
        return " --budget-usd USD"
    return " --timeout TIME" if reason == "deadline" else ""


def _answers(what: str) -> tuple[str, str]:
    if what == "plan":
        return "--approve", "or --reject TEXT or --plan FILE"
    if what == "tool":
        return "--approve", "or --reject TEXT"
    # whoever types what is shown must not pay twice: it is no command until they have found out
    return "--effect WHAT", "done: it happened; again: it did not; fail: do without"


def farewell(advice: Advice) -> str:
    """The last words of a process that a second Ctrl-C ends at once."""
    return f"ended at once; to go on: {advice.resume()}"


def program() -> str:
    """How to type the command again: it need not be on the path."""
    typed = sys.argv[0]
    found = which("chargehand")
    if typed.endswith("__main__.py"):
        return "python -m chargehand"
    return "chargehand" if found and Path(found).resolve() == Path(typed).resolve() else shlex.quote(typed)
