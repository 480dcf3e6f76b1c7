"""`chargehand run`, `resume`, `replay`, `play` and `watch`: the verbs that drive, or show, one run."""

import asyncio
import secrets
import shlex
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine, Sequence
from pathlib import Path

from msgspec import structs

from chargehand.agents.result import planned
from chargehand.cli.arguments import RUN_HELP, TEAM, add_execution, add_request, add_shared, duration, positive
from chargehand.cli.console import Console, clean
from chargehand.cli.diagrams import describe_finding, make_save_folder
from chargehand.cli.exit_codes import exit_code
from chargehand.cli.run_session import RunSession
from chargehand.cli.signals import StopSignals
from chargehand.cli.teams import (
    find_executor,
    load_team_of,
    read_goal,
    read_plan,
    read_script,
    read_value,
    script_executor,
    team_executor,
    warn_above_budget,
)
from chargehand.cli.transcript import Transcript
from chargehand.engine import events as ev
from chargehand.engine.events import Entry
from chargehand.engine.fold import replay as fold_entries
from chargehand.engine.lint import lint
from chargehand.engine.plan import Plan, TaskId, in_order, needs
from chargehand.engine.state import RunState
from chargehand.engine.value import encode_value
from chargehand.engine.view import offers
from chargehand.errors import Invalid, PlanInvalid, Refused, RunUnknown
from chargehand.journal.protocol import Journal, RunRow, check_name
from chargehand.journal.store import list_runs, read_run
from chargehand.runtime.runner import Outcome, Runner, checked
from chargehand.team import Team

# --- run


def add_run(parser: ArgumentParser) -> None:
    add_request(parser)
    add_shared(parser, *TEAM)
    about = "whether the plan waits for approval; auto and never: no (default: as the team says)"
    parser.add_argument("--approve", choices=("auto", "ask", "never"), help=about)
    add_shared(parser, "--budget-usd")
    about = "the time it has: 90s, 5m, 1h (default: as the team says)"
    parser.add_argument("--timeout", metavar="TIME", type=duration, help=about)
    parser.add_argument("--plan", metavar="FILE", help="carry out this plan instead of asking the planner")
    about = "what to call the run (default: the team's name and a random part)"
    parser.add_argument("--run", metavar="NAME", help=about)
    add_shared(parser, "--reuse")
    parser.add_argument("--save", metavar="DIR", help="write charts, tables and the answer into this folder")
    add_shared(parser, "--no-background")
    about = "tasks that may run at once; 1: one after the other (default: as the team says)"
    parser.add_argument("--max-parallel", metavar="N", type=positive, help=about)
    add_execution(parser)
    add_shared(parser, "--json")


def run(options: Namespace) -> int:
    """A new run of a team. All of the input is checked before the journal is touched."""
    plan = None if options.plan is None else read_plan(options.plan)
    team = _bound(load_team_of(options), options)
    goal, plan = _read_goal_and_plan(options, team, plan)
    name: str = options.run or f"{team.name}-{secrets.token_hex(3)}"
    check_name(name)
    now = time.time()
    request = checked(team.request(goal, now, plan=plan), now)
    if not options.reuse:
        warn_above_budget(team, request)
    if options.save:
        make_save_folder(Path(options.save))

    async def act(runner: Runner, journal: Journal, session: RunSession) -> Outcome:
        if options.reuse:
            return await runner.fork(options.reuse, name, request, wait_for_input=session.asks)
        also = await team.offered(journal, request)
        return await runner.start(name, request, also=also, wait_for_input=session.asks)

    return team_executor(team, options).execute(options, name, act)


def _read_goal_and_plan(options: Namespace, team: Team, plan: Plan | None) -> tuple[str, Plan | None]:
    """The request, and the plan for it where there is one already."""
    if options.reuse and not options.request and options.example is None:
        # the same again, by the same plan; one that left parts of the request out would pass for all of it
        earlier = fold_entries(read_run(options.journal, options.reuse))
        is_whole = earlier.tasks and not earlier.unserved
        return earlier.requested.goal, plan or (planned(earlier) if is_whole else None)
    return read_goal(team, options, or_else=plan.goal if plan is not None else ""), plan


def _bound(team: Team, options: Namespace) -> Team:
    """The team within the bounds of the command line, which may be wider or narrower than its own."""
    policy = team.policy
    budget = team.budget
    if options.approve is not None:
        policy = structs.replace(policy, approve=options.approve == "ask")
    if options.timeout is not None:
        budget = structs.replace(budget, seconds=options.timeout)
    if options.max_parallel is not None:
        policy = structs.replace(policy, limits=structs.replace(policy.limits, width=options.max_parallel))
    return team.bounded(budget=budget, timeout=options.timeout, policy=policy)


# --- resume

_YES = ("approve", "yes", "y", "ok")


def add_resume(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=RUN_HELP)
    add_shared(parser, *TEAM, "--script")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--approve", action="store_true", help="the plan may run, the call may be made")
    answer.add_argument("--reject", metavar="TEXT", help="it may not, and why; the planner or worker is asked again")
    answer.add_argument("--plan", metavar="FILE", help="run this plan instead")
    answer.add_argument("--answer", metavar="TEXT", help="to a question; or yes, or what to do instead of a call")
    about = "what became of an effect that is in doubt"
    answer.add_argument("--effect", choices=("done", "again", "fail"), help=about)
    parser.add_argument("--result", metavar="JSON", default="null", help="with --effect done: what the task returns")
    about = "answer question N, and no other that is asked by now"
    parser.add_argument("--question", metavar="N", type=int, help=about)
    add_shared(parser, "--no-background")
    add_execution(parser)
    add_shared(parser, "--json")


def resume(options: Namespace) -> int:
    """Finished work is not repeated. The answer to a question is checked before anything is written."""
    name = str(options.name)
    reply = _read_reply(options)
    if not options.journal.exists():  # opening would make it
        raise Refused(f"there is no journal {options.journal}; name the one that holds {name!r} with --journal")
    executor = find_executor(options, name, lambda: fold_entries(read_run(options.journal, name)))

    async def act(runner: Runner, journal: Journal, session: RunSession) -> Outcome:
        session.transcript.catch_up(name, await journal.read(name))
        state = session.transcript.state
        events: list[ev.Event] = [ev.PauseSet(paused=False)] if state.paused else []
        events += _fit_reply(options, state, reply)
        if reply is None and state.input is not None:
            session.ask_first(state.input)
        return await runner.resume(name, *events, wait_for_input=session.asks)

    return executor.execute(options, name, act)


def _read_reply(options: Namespace) -> ev.InputAnswered | None:
    """The answer on the command line; the number of the question is not known yet."""
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
    name: str = options.name
    quoted = shlex.quote(name)
    if state.ended is not None:
        again = "play FILE" if options.script else "run"
        problem = f"run {name!r} has ended ({state.ended.ending})"
        raise Refused(f"{problem}; to do some of it again: chargehand {again} --reuse {quoted}")
    question: int | None = options.question
    if reply is None:
        if question is not None:
            raise Refused(f"--question {question} says which question is answered; add --approve or --reject TEXT")
        return []
    if state.input is None:
        raise Refused(f"run {name!r} asks nothing; resume it without an answer")
    if (parent := state.requested.parent) is not None:  # that one may have ended, and the result would be lost
        outer = shlex.quote(parent.run)
        raise Refused(f"run {name!r} works for run {parent.run!r}; answer that one: chargehand resume {outer}")
    if question not in (None, state.input.number):
        problem = f"run {name!r} asks question {state.input.number}, not {question}"
        raise Refused(f"{problem}; read it first: chargehand runs show {quoted}")
    if state.input.what == "question" and options.answer is not None:
        return [ev.InputAnswered(state.input.number, "answer", result=encode_value(options.answer))]
    return [structs.replace(reply, number=state.input.number)]


# --- replay


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
    """Without --from nothing is done: the journal is shown once more."""
    entries = read_run(options.journal, options.name)
    if options.source is None:
        return show_again(options, entries)
    return _fork_from_task(options, fold_entries(entries))


def _fork_from_task(options: Namespace, state: RunState) -> int:
    """A new run with every result of the old one but those of a task and of what depends on it."""
    redone = _find_dependents(state, TaskId(options.source))
    reused = [offer for offer in offers(state) if offer.task.partition("[")[0] not in redone]
    if options.dry:
        console = Console(sys.stdout)
        console.line(f"done again: {', '.join(map(clean, redone))}")
        names = {offer.task.partition("[")[0] for offer in reused}
        console.line(f"taken over: {', '.join(name for name in state.tasks if name in names) or 'nothing'}")
        return 0
    name: str = options.run or f"{options.name}-again-{secrets.token_hex(2)}"
    check_name(name)
    executor = find_executor(options, options.name, lambda: state)
    now = time.time()
    remaining = state.requested.deadline - state.at
    if state.ended is not None:
        remaining = state.requested.budget.seconds or 3600.0
    deadline = now + max(1.0, remaining)
    request = structs.replace(state.requested, plan=planned(state), deadline=deadline, seed=secrets.randbits(32))
    request = checked(request, now)
    offered = ev.ResultsOffered(options.name, tuple(reused), tuple(state.unserved))

    async def act(runner: Runner, _journal: Journal, session: RunSession) -> Outcome:
        return await runner.start(name, request, also=[offered], wait_for_input=session.asks)

    again = ("replay", options.name, "--from", options.source, *executor.words)
    return executor.execute(options, name, act, again)


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


# --- play


def add_play(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a script as JSON, for example examples/cascade.json")
    about = "what to call the run (default: the file's name and a random part)"
    parser.add_argument("--run", metavar="NAME", help=about)
    add_shared(parser, "--reuse")
    add_execution(parser)
    add_shared(parser, "--json")


def play(options: Namespace) -> int:
    """A new run of a script. All of the input is checked before the journal is touched."""
    file: str = options.file
    script = read_script(file)
    name: str = options.run or f"{Path(file).stem.strip('-') or 'run'}-{secrets.token_hex(3)}"
    check_name(name)
    now = time.time()
    try:
        request = checked(script.request(now), now)
    except PlanInvalid:
        raise
    except Invalid as error:
        raise Invalid(f"{file}: {error}") from error
    if script.plan is not None:
        for warning in lint(script.plan.tasks, script.roster, script.policy.limits).warnings:
            Console(sys.stderr, quiet=options.quiet).line(describe_finding(warning), "warn")

    async def act(runner: Runner, _journal: Journal, session: RunSession) -> Outcome:
        if options.reuse:
            return await runner.fork(options.reuse, name, request, wait_for_input=session.asks)
        return await runner.start(name, request, wait_for_input=session.asks)

    return script_executor(file, script).execute(options, name, act)


# --- watch, and a finished run shown again


_LOOK = 0.2  # seconds between two looks at the journal
_IDLE = 1.0  # a run that no process has driven for so long is not going on
_MAX_PAUSE = 2.0  # seconds between two entries that are shown again
_PICTURE = 0.125


def add_watch(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--from-seq", metavar="N", type=int, default=0, help="show what happened from entry N on")
    add_shared(parser, "--jsonl", "--journal", "--no-color")


def watch(options: Namespace) -> int:
    """Until the run ends, or no process drives it any more; the exit code is that of the run."""
    transcript = Transcript.of_command(options, options.name, Console(sys.stdout))
    _run(transcript, _follow(transcript, options))
    end = transcript.state.ended
    if end is not None:
        return exit_code(end.ending, end.reason)
    resume = f"chargehand resume {shlex.quote(options.name)}"
    transcript.console.line(f"no process drives it; go on: {resume}", "warn")
    return 4 if transcript.state.input is not None else 1


async def _follow(transcript: Transcript, options: Namespace) -> None:
    run: str = options.name
    entries = read_run(options.journal, run)
    first = max(0, min(options.from_seq - 1, len(entries)))
    transcript.catch_up(run, entries[:first])
    transcript.show(run, entries[first:])
    idle = 0.0
    while transcript.state.ended is None and idle < _IDLE:
        await asyncio.sleep(_LOOK)
        row = _find_row(options.journal, run)
        idle = 0.0 if row.held or row.seq > transcript.state.seq else idle + _LOOK
        if row.seq > transcript.state.seq:
            transcript.show(run, read_run(options.journal, run, after=transcript.state.seq))
        if transcript.live is not None:
            transcript.live.draw()


def _find_row(journal: Path, run: str) -> RunRow:
    for row in list_runs(journal):
        if row.run == run:
            return row
    raise RunUnknown(run)


def show_again(options: Namespace, entries: Sequence[Entry]) -> int:
    """A run as it went, at --speed."""
    now = entries[0].at
    transcript = Transcript.of_command(options, options.name, Console(sys.stdout), lambda: now)
    usual = 4.0 if transcript.console.terminal else 0.0
    speed: float = usual if options.speed is None else options.speed

    async def play() -> None:
        nonlocal now
        for entry in entries:
            pause = min(_MAX_PAUSE, (entry.at - now) / speed) if speed > 0 else 0.0
            pictures = int(pause / _PICTURE)
            step = (entry.at - now) / (pictures + 1)
            for _ in range(pictures):
                await asyncio.sleep(_PICTURE)
                now += step
                if transcript.live is not None:
                    transcript.live.draw()
            now = entry.at
            transcript.show(options.name, [entry])

    _run(transcript, play())
    return 0


def _run(transcript: Transcript, main: Coroutine[None, None, None]) -> None:
    """Show a run to its end. Ctrl-C is raised between two pictures, and leaves a whole one."""
    try:
        with StopSignals() as signals:
            signals.run(main)
    finally:
        if transcript.live is not None:
            transcript.live.stop(keep=True)
    transcript.close()
