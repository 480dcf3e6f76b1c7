"""`chargehand replay`: tell a run again as it went, or do it again from one task on."""

import secrets
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from chargehand.agents.result import planned
from chargehand.cli.advice import Advice
from chargehand.cli.arguments import RUN_HELP, TEAM, add_execution, add_shared
from chargehand.cli.console import Console, clean
from chargehand.cli.run_session import RunOutput, RunSession
from chargehand.cli.signals import deferred_interrupts
from chargehand.cli.teams import find_executor
from chargehand.engine import events as ev
from chargehand.engine.fold import replay as fold_entries
from chargehand.engine.plan import TaskId, in_order, needs
from chargehand.engine.state import RunState
from chargehand.engine.view import offers
from chargehand.errors import Invalid
from chargehand.journal.protocol import Journal, check_name
from chargehand.journal.store import read_run
from chargehand.runtime.runner import Outcome, Runner, checked

_MAX_PAUSE = 2.0  # seconds that anybody waits between two entries
_PICTURE = 0.125


def add_replay(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=RUN_HELP)
    about = "so many times as fast; 0: at once (default 4 at a terminal, else 0)"
    parser.add_argument("--speed", metavar="X", type=float, help=about)
    about = "a new run that does this task again, and what needs it"
    parser.add_argument("--from", dest="source", metavar="TASK", help=about)
    parser.add_argument("--dry", action="store_true", help="with --from: only say what would be done again")
    parser.add_argument("--run", metavar="NAME", help="with --from: what to call the new run")
    add_shared(parser, *TEAM, "--script")
    add_execution(parser)


def replay(options: Namespace) -> int:
    """Without --from nothing is done: the journal is told once more."""
    entries = read_run(options.journal, options.name)
    if options.source is None:
        return _show_again(options, entries)
    return _do_again(options, fold_entries(entries))


def _show_again(options: Namespace, entries: Sequence[ev.Entry]) -> int:
    now = entries[0].at
    output = RunOutput(options, options.name, clock=lambda: now)
    speed: float = options.speed if options.speed is not None else (4.0 if output.console.terminal else 0.0)
    with deferred_interrupts() as raise_pressed:  # or the live view would be cut in two
        try:
            for entry in entries:
                pause = min(_MAX_PAUSE, (entry.at - now) / speed) if speed > 0 else 0.0
                start = now
                while pause > 0:
                    time.sleep(min(_PICTURE, pause))
                    raise_pressed()
                    pause -= _PICTURE
                    now = min(entry.at, now + _PICTURE * max(speed, (entry.at - start) / _MAX_PAUSE))
                    output.draw()
                now = entry.at
                raise_pressed()
                output.show([entry])
        finally:
            output.stop(keep=True)
    output.close()
    return 0


def _do_again(options: Namespace, state: RunState) -> int:
    """A new run with every result of the old one but those of a task and of what depends on it."""
    redone = _find_dependents(state, TaskId(options.source))
    kept = [offer for offer in offers(state) if offer.task.partition("[")[0] not in redone]
    if options.dry:
        console = Console(sys.stdout)
        console.line(f"done again: {', '.join(map(clean, redone))}")
        names = {offer.task.partition("[")[0] for offer in kept}
        console.line(f"taken over: {', '.join(name for name in state.tasks if name in names) or 'nothing'}")
        return 0
    run: str = options.run or f"{options.name}-again-{secrets.token_hex(2)}"
    check_name(run)
    executor = find_executor(options, options.name, lambda: state)
    now = time.time()
    remaining = state.requested.deadline - state.at
    if state.ended is not None:
        remaining = state.requested.budget.seconds or 3600.0
    old = state.requested
    plan = planned(state)
    request = structs.replace(old, plan=plan, deadline=now + max(1.0, remaining), seed=secrets.randbits(32))
    request = checked(request, now)
    again = ("replay", options.name, "--from", options.source, *executor.words)
    advice = Advice(run, Path(options.journal), executor.words, again)
    session = RunSession(options, advice, executor.team, executor.notice)
    offered = ev.ResultsOffered(options.name, tuple(kept), tuple(state.unserved))

    async def act(driver: Runner, _journal: Journal) -> Outcome:
        return await driver.start(run, request, also=[offered], wait_for_input=session.asks)

    return session.execute(act, executor.executor)


def _find_dependents(state: RunState, first: TaskId) -> list[TaskId]:
    """The task and everything that needs it, directly or not."""
    tasks = planned(state).tasks
    names = [task.id for task in tasks]
    if first not in names:
        raise Invalid(f"this run has no task {first!r}; it has {', '.join(names[:20]) or 'none'}")
    dependents = [first]
    for task in in_order(tasks)[0]:  # inputs come before what needs them
        if any(name in dependents for name, _ in needs(task)):
            dependents.append(task.id)
    return dependents
