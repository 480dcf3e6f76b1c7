"""What to do next: the commands that go on with a run, look at it, or do it once more."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import which

from msgspec import Struct

from chargehand.agents.result import planned
from chargehand.cli import USUAL_JOURNAL
from chargehand.cli.console import Console, cells, clean
from chargehand.cli.format import roughly
from chargehand.engine.forecast import forecast
from chargehand.engine.state import RunState, Status

_ANSWERS = {
    "plan": ("--approve", "or --reject TEXT or --plan FILE"),
    "tool": ("--approve", "or --reject TEXT"),
    # whoever types what is shown must not pay twice: it is no command until they have found out
    "effect": ("--effect WHAT", "done: it happened; again: it did not; fail: do without"),
}


class Advice(Struct, frozen=True):
    """`executor` are the words that name whoever did the work (`--team FILE`), `again` those that do it once more."""

    run: str
    journal: Path
    executor: Sequence[str]
    again: Sequence[str]

    def resume(self, *more: str) -> str:
        return self.command("resume", self.run, *self.executor, *more)

    def once_more(self) -> str:
        return self.command(*self.again)

    def command(self, *words: str) -> str:
        journal = () if str(self.journal) == USUAL_JOURNAL else ("--journal", str(self.journal))
        return clean(f"{program()} {shlex.join((*words, *journal))}")


def advise(console: Console, state: RunState, advice: Advice, *, mended: bool = False) -> None:
    """What the run is called and what can be done with it; `mended`: something must be put right before that."""
    console.line(f"run: {advice.run} in {advice.journal}")
    console.line(f"  look again:  {advice.command('runs', 'show', advice.run)}")
    if state.ended is None:
        console.line(f"  give up:     {advice.command('runs', 'cancel', advice.run)}")
        console.line(f"  go on:       {going_on(state, advice)}")
    elif advice.again and state.ended.ending != "complete":
        label = "once mended:" if mended else "once more:  "
        option, notes = _wider(state, advice)
        if any(progress.status is Status.DONE for progress in state.tasks.values()):
            notes.append("finished work is taken over")
        command = f"  {label} {advice.once_more()}{option}"
        note = f"({'; '.join(notes)})" if notes else ""
        if console.terminal and cells(f"{command}  {note}") > console.columns:
            console.line(command)  # whole, so that it can be copied
            command = " " * (len(label) + 1)
        console.line(f"{command}  {note}".rstrip())


def going_on(state: RunState, advice: Advice) -> str:
    """The command that takes a run up again, with an answer if something is asked."""
    if state.input is None:
        return advice.resume()
    answer, others = _ANSWERS[state.input.what]
    return f"{advice.resume(*answer.split())}  ({others})"


def _wider(state: RunState, advice: Advice) -> tuple[str, list[str]]:
    """The option that gives a run more of what it lacked, and how much it takes if that is known."""
    reason = "" if state.ended is None else state.ended.reason
    if advice.again[0] != "run":
        return "", []
    if reason == "deadline":
        return " --timeout TIME", []
    if reason != "budget" or state.requested.budget.micros is None:
        return "", []
    cost = forecast(planned(state), state.requested.roster, state.requested.policy).cost
    notes = [f"the plan takes about {roughly(cost.micros)}"] if state.tasks and cost.micros else []
    return " --budget-usd USD", notes


def farewell(advice: Advice) -> str:
    """The last words of a process that a second Ctrl-C ends at once."""
    return f"ended at once; to go on: {advice.resume()}"


def program() -> str:
    """How to type the command again: it need not be on the path."""
    typed = sys.argv[0]
    installed = which("chargehand")
    if typed.endswith("__main__.py"):
        return "python -m chargehand"
    is_installed = installed is not None and Path(installed).resolve() == Path(typed).resolve()
    return "chargehand" if is_installed else shlex.quote(typed)
