"""`chargehand resume`: go on with a run that a crash or a question left unfinished."""

import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path

from msgspec import structs

from chargehand.cli.advice import Advice
from chargehand.cli.arguments import RUN_HELP, TEAM, add_execution, add_shared
from chargehand.cli.play import read_plan, read_value
from chargehand.cli.run_session import RunSession
from chargehand.cli.teams import find_executor
from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.state import RunState
from chargehand.engine.value import encode_value
from chargehand.errors import Refused
from chargehand.journal.protocol import Journal
from chargehand.journal.store import read_run
from chargehand.runtime.runner import Outcome, Runner

_YES = ("approve", "yes", "y", "ok")


def add_resume(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=RUN_HELP)
    add_shared(parser, *TEAM, "--script")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--approve", action="store_true", help="the plan may run, the call may be made")
    answer.add_argument("--reject", metavar="TEXT", help="it may not, and why; whoever proposed it is asked again")
    answer.add_argument("--plan", metavar="FILE", help="run this plan instead")
    answer.add_argument("--answer", metavar="TEXT", help="yes, or what to do instead of the call")
    about = "what became of an effect nobody is sure of"
    answer.add_argument("--effect", choices=("done", "again", "fail"), help=about)
    parser.add_argument("--result", metavar="JSON", default="null", help="with --effect done: what the task returns")
    about = "answer question N, and no other that is asked by now"
    parser.add_argument("--question", metavar="N", type=int, help=about)
    add_shared(parser, "--no-background")
    add_execution(parser)
    add_shared(parser, "--json")


def resume(options: Namespace) -> int:
    """Finished work is not repeated. The answer to a question is checked before anything is written."""
    run = str(options.name)
    journal = Path(options.journal)
    reply = _read_reply(options)
    if not journal.exists():  # opening would make it
        raise Refused(f"there is no journal {journal}; name the one that holds {run!r} with --journal")
    executor = find_executor(options, run, lambda: replay(read_run(journal, run)))
    advice = Advice(run, journal, executor.words, (*executor.again, "--reuse", run))
    session = RunSession(options, advice, executor.team, executor.notice)

    async def act(driver: Runner, journal: Journal) -> Outcome:
        session.transcript.catch_up(run, await journal.read(run))
        state = session.transcript.state
        events: list[ev.Event] = [ev.PauseSet(paused=False)] if state.paused else []
        events += _fit_reply(options, state, reply)
        if reply is None and state.input is not None:
            session.ask_first(state.input)
        return await driver.resume(run, *events, wait_for_input=session.asks)

    code = session.execute(act, executor.executor)
    executor.leave(code)
    return code


def _read_reply(options: Namespace) -> ev.InputAnswered | None:
    """What the person answers; the number of the question is not known yet."""
    if options.approve or (options.answer is not None and options.answer.strip().lower() in _YES):
        return ev.InputAnswered(0, "approve")
    if options.answer is not None or options.reject is not None:  # a call that may not be made, and what to do instead
        return ev.InputAnswered(0, "reject", options.answer or options.reject or "")
    if options.plan is not None:
        return ev.InputAnswered(0, "edit", plan=read_plan(options.plan))
    if options.effect is not None:
        return ev.InputAnswered(0, options.effect, result=encode_value(read_value("--result", options.result.encode())))
    return None


def _fit_reply(options: Namespace, state: RunState, reply: ev.InputAnswered | None) -> list[ev.Event]:
    """The reply to what is being asked; whether it fits, the runner says."""
    run: str = options.name
    quoted = shlex.quote(run)
    if state.ended is not None:
        again = "play FILE" if options.script else "run"
        problem = f"run {run!r} has ended ({state.ended.ending})"
        raise Refused(f"{problem}; to do some of it again: chargehand {again} --reuse {quoted}")
    question: int | None = options.question
    if reply is None:
        if question is not None:
            raise Refused(f"--question {question} says which question is answered; add --approve or --reject TEXT")
        return []
    if state.input is None:
        raise Refused(f"run {run!r} asks nothing; resume it without an answer")
    if (parent := state.requested.parent) is not None:  # that one may have ended, and nobody would hear what came of it
        outer = shlex.quote(parent.run)
        raise Refused(f"run {run!r} works for run {parent.run!r}; answer that one: chargehand resume {outer}")
    if question not in (None, state.input.number):
        problem = f"run {run!r} asks question {state.input.number}, not {question}"
        raise Refused(f"{problem}; read it first: chargehand runs show {quoted}")
    return [structs.replace(reply, number=state.input.number)]
