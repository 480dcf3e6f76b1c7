"""`chargehand replay`: tell a run again as it went, or do it again from one task on."""

import secrets
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import structs

from chargehand.cli.advice import Advice
from chargehand.cli.arguments import RUN_HELP, TEAM, add_execution, add_shared
from chargehand.cli.console import Console, clean
from chargehand.cli.run_session import RunOutput, RunSession
from chargehand.cli.signals import deferred_interrupts
from chargehand.cli.teams import find_executor
from chargehand.core.fold import replay as folded
from chargehand.core.reuse import offers
from chargehand.core.state import RunState
from chargehand.errors import Invalid
from chargehand.runtime.driver import Driver, Outcome, checked
from chargehand.stores.journal import check_name
from chargehand.stores.reader import read_run
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms import events as ev
from chargehand.terms.plan import Task, TaskId, needs


def add_replay(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=RUN_HELP)
    words = "so many times as fast; 0: at once (default 4 at a terminal, else 0)"
    parser.add_argument("--speed", metavar="X", type=float, help=words)
    parser.add_argument(
        "--from", dest="source", metavar="TASK", help="a new run that does this task again, and what needs it"
    )
    parser.add_argument("--dry", action="store_true", help="with --from: only say what would be done again")
    parser.add_argument("--run", metavar="NAME", help="with --from: what to call the new run")
    add_shared(parser, *TEAM)
    add_shared(parser, "--script")
    add_execution(parser)


_LONGEST = 2.0  # seconds that anybody waits between two entries
_PICTURE = 0.125


def replay(options: Namespace) -> int:
    """Without --from nothing is done: the journal is told once more."""
    entries = read_run(options.journal, options.name)
    if options.source is None:
        return _told(options, entries)
    return _forked(options, folded(entries))


# --- told again


def _told(options: Namespace, entries: Sequence[ev.Entry]) -> int:
    now = entries[0].at
    output = RunOutput(options, options.name, clock=lambda: now)
    speed: float = options.speed if options.speed is not None else (4.0 if output.console.terminal else 0.0)
    with deferred_interrupts() as raise_pressed:  # or a picture would be cut in two
        try:
            for entry in entries:
                pause = min(_LONGEST, (entry.at - now) / speed) if speed > 0 else 0.0
                start = now
                while pause > 0:
                    time.sleep(min(_PICTURE, pause))
                    raise_pressed()
                    pause -= _PICTURE
                    now = min(entry.at, now + _PICTURE * max(speed, (entry.at - start) / _LONGEST))
                    output.draw()
                now = entry.at
                raise_pressed()
                output.hear([entry])
        finally:
            output.stop(keep=True)
    output.close()
    return 0


# --- done again


def _forked(options: Namespace, state: RunState) -> int:
    """A new run with every result of the old one but those of a task and of what depends on it."""
    redone = _affected(state, TaskId(options.source))
    kept = [offer for offer in offers(state) if offer.task.partition("[")[0] not in redone]
    if options.dry:
        _say(redone, state, {offer.task.partition("[")[0] for offer in kept})
        return 0
    from chargehand.runtime.result import planned  # noqa: PLC0415 - telling a run again needs no team

    run: str = options.run or f"{options.name}-again-{secrets.token_hex(2)}"
    check_name(run)
    executor = find_executor(options, options.name, lambda: state)
    now = time.time()
    given = max(1.0, state.requested.deadline - state.at if state.ended is None else _span(state))
    old = structs.replace(state.requested, plan=planned(state), deadline=now + given, seed=secrets.randbits(32))
    request = checked(old, now)
    again = ("replay", options.name, "--from", options.source, *executor.words)
    session = RunSession(
        options, Advice(run, Path(options.journal), executor.words, again), executor.team, executor.notice
    )
    offered = ev.ResultsOffered(options.name, tuple(kept), tuple(state.unserved))

    async def act(driver: Driver, _journal: SqliteJournal) -> Outcome:
        return await driver.start(run, request, also=[offered], wait_for_input=session.asks)

    return session.execute(act, executor.crew)


def _span(state: RunState) -> float:
    return state.requested.budget.seconds or 3600.0


def _affected(state: RunState, first: TaskId) -> dict[str, None]:
    """The task and everything that needs it, directly or not."""
    tasks: list[Task] = [one.task for one in state.tasks.values() if one.mother is None]
    if first not in {task.id for task in tasks}:
        raise Invalid(f"this run has no task {first!r}; it has {', '.join(task.id for task in tasks[:20]) or 'none'}")
    readers: dict[str, list[str]] = {}
    for task in tasks:
        for name, _ in needs(task):
            readers.setdefault(name, []).append(task.id)
    found: dict[str, None] = {first: None}
    line: list[str] = [first]
    for name in line:  # grows while it is walked
        fresh = [one for one in readers.get(name, ()) if one not in found]
        found.update(dict.fromkeys(fresh))
        line += fresh
    return found


def _say(again: Iterable[str], state: RunState, kept: set[str]) -> None:
    console = Console(sys.stdout)
    console.line(f"done again: {', '.join(map(clean, again))}")
    console.line(f"taken over: {', '.join(clean(name) for name in state.tasks if name in kept) or 'nothing'}")
