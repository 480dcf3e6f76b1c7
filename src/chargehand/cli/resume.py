"""`chargehand resume`: go on with a run that a crash or a question left unfinished."""

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from chargehand.cli.advice import Advice
from chargehand.cli.arguments import RUN_HELP, TEAM, add_execution, add_shared
from chargehand.cli.run_session import RunSession
from chargehand.cli.script import read_plan, read_value
from chargehand.cli.signals import Act
from chargehand.cli.teams import find_executor
from chargehand.core.fold import replay
from chargehand.core.state import RunState
from chargehand.errors import Refused
from chargehand.runtime.driver import Driver, Outcome
from chargehand.stores.reader import read_run
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms import events as ev
from chargehand.terms.value import encode_value


def add_resume(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=RUN_HELP)
    add_shared(parser, *TEAM)
    add_shared(parser, "--script")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--approve", action="store_true", help="the plan may run, the call may be made")
    answer.add_argument("--reject", metavar="TEXT", help="it may not, and why; whoever proposed it is asked again")
    answer.add_argument("--plan", metavar="FILE", help="run this plan instead")
    answer.add_argument("--answer", metavar="TEXT", help="yes, or what to do instead of the call")
    answer.add_argument(
        "--effect", choices=("done", "again", "fail"), help="what became of an effect nobody is sure of"
    )
    parser.add_argument("--result", metavar="JSON", default="null", help="with --effect done: what the task returns")
    parser.add_argument(
        "--question", metavar="N", type=int, help="answer question N, and no other that is asked by now"
    )
    add_shared(parser, "--no-background")
    add_execution(parser)
    add_shared(parser, "--json")


_YES = ("approve", "yes", "y", "ok")
_Reply: TypeAlias = Callable[[int], ev.InputAnswered]


def resume(options: Namespace) -> int:
    """Finished work is not repeated. The answer to a question is checked before anything is written."""
    run = str(options.name)
    journal = Path(options.journal)
    reply = _reply(options)
    if not journal.exists():  # opening would make it
        raise Refused(f"there is no journal {journal}; name the one that holds {run!r} with --journal")
    executor = find_executor(options, run, lambda: replay(read_run(journal, run)))
    advice = Advice(run, journal, executor.words, (*executor.again, "--reuse", run))
    session = RunSession(options, advice, executor.team, executor.notice)
    act = _going_on(session, run, reply, "play FILE" if options.script else "run", options.question)
    code = session.execute(act, executor.crew)
    executor.leave(code)
    return code


def _going_on(session: RunSession, run: str, reply: _Reply | None, again: str, question: int | None) -> Act:
    async def act(driver: Driver, journal: SqliteJournal) -> Outcome:
        entries = await journal.read(run)
        session.transcript.catch_up(run, entries)
        state = session.transcript.state
        replies = _replies(run, state, reply, again, question)
        if reply is None and state.input is not None:
            session.put(state.input)
        return await driver.resume(run, *replies, wait_for_input=session.asks)

    return act


def _reply(options: Namespace) -> _Reply | None:
    """What the person answers, once the number of the question is known."""
    if options.approve or (options.answer is not None and options.answer.strip().lower() in _YES):
        return lambda number: ev.InputAnswered(number, "approve")
    if options.answer is not None:  # a call that may not be made, and what to do instead
        return lambda number: ev.InputAnswered(number, "reject", options.answer)
    if options.reject is not None:
        return lambda number: ev.InputAnswered(number, "reject", options.reject)
    if options.plan is not None:
        plan = read_plan(options.plan)
        return lambda number: ev.InputAnswered(number, "edit", plan=plan)
    if options.effect is not None:
        result = encode_value(read_value("--result", options.result.encode(errors="surrogateescape")))
        return lambda number: ev.InputAnswered(number, options.effect, result=result)
    return None


def _replies(run: str, state: RunState, reply: _Reply | None, again: str, question: int | None) -> tuple[ev.Event, ...]:
    """The reply to what is being asked; whether it fits, the driver says."""
    if state.ended is not None:
        said = f"run {run!r} has ended ({state.ended.ending})"
        raise Refused(f"{said}; to do some of it again: chargehand {again} --reuse {shlex.quote(run)}")
    going_on = (ev.PauseSet(paused=False),) if state.paused else ()
    if reply is None:
        if question is not None:
            raise Refused(f"--question {question} says which question is answered; add --approve or --reject TEXT")
        return going_on
    if state.input is None:
        raise Refused(f"run {run!r} asks nothing; resume it without an answer")
    if (parent := state.requested.parent) is not None:  # that one may have ended, and nobody would hear what came of it
        outer = shlex.quote(parent.run)
        raise Refused(f"run {run!r} works for run {parent.run!r}; answer that one: chargehand resume {outer}")
    if question not in (None, state.input.number):
        outer = shlex.quote(run)
        said = f"run {run!r} asks question {state.input.number}, not {question}"
        raise Refused(f"{said}; read it first: chargehand runs show {outer}")
    return (*going_on, reply(state.input.number))
