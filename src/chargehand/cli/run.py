"""`chargehand run`, `resume`, `replay`, `play` and `watch`: the verbs that drive, or show, one run."""

import asyncio
import secrets
import shlex
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from msgspec import structs

from chargehand.agents.result import planned
from chargehand.cli.answers import ALTERNATIVES, DETAILS, TypedAnswer, make_event, read_reply
from chargehand.cli.arguments import (
    EXECUTION,
    REQUEST,
    RUN_HELP,
    TEAM,
    add_alternatives,
    add_options,
    duration,
    positive,
    shared,
)
from chargehand.cli.console import Console
from chargehand.cli.exit_codes import exit_code
from chargehand.cli.run_session import RunSession
from chargehand.cli.signals import StopSignals
from chargehand.cli.teams import (
    find_executor,
    load_team_of,
    read_goal,
    read_plan,
    read_script,
    script_executor,
    team_executor,
)
from chargehand.cli.transcript import Transcript
from chargehand.engine import events as ev
from chargehand.engine.fold import replay as fold_entries
from chargehand.engine.plan import Plan, TaskId, in_order, needs
from chargehand.engine.state import RunState
from chargehand.engine.view import offers
from chargehand.errors import Invalid, PlanInvalid, Refused
from chargehand.journal.protocol import Journal, check_name
from chargehand.journal.store import read_row, read_run
from chargehand.runtime.files import keep_files, with_material
from chargehand.runtime.runner import Outcome, Runner, checked, offer_results
from chargehand.team import Team

# --- run


def add_run(parser: ArgumentParser) -> None:
    add_options(
        parser,
        {
            **REQUEST,
            **shared(*TEAM),
            "--approve": {
                "choices": ("auto", "ask"),
                "help": "ask: the plan waits for approval; auto: it runs",
            },
            **shared("--budget-usd", "--max-calls", "--max-tokens"),
            "--timeout": {
                "metavar": "TIME",
                "type": duration,
                "help": "the time it has: 90s, 5m, 1h (default: the team's)",
            },
            "--plan": {"metavar": "FILE", "help": "carry out this plan instead of making one"},
            "--run": {"metavar": "NAME", "help": "name of the run (default: the team and a random part)"},
            **shared("--reuse"),
            "--save": {"metavar": "DIR", "help": "for charts and tables (default: beside the journal)"},
            **shared("--no-background"),
            "--max-parallel": {
                "metavar": "N",
                "type": positive,
                "help": "tasks that may run at once (default: the team's)",
            },
            **EXECUTION,
            **shared("--json"),
        },
    )


def run(options: Namespace) -> int:
    """A new run of a team. All of the input is checked before the journal is touched."""
    plan = None if options.plan is None else read_plan(options.plan)
    team = _bound(load_team_of(options), options)
    files = asyncio.run(team.load_files(options.files))
    earlier = _repeated_run(options)
    goal, plan = _read_goal_and_plan(options, team, plan, earlier)
    name: str = options.run or f"{team.name}-{secrets.token_hex(3)}"
    check_name(name)
    now = time.time()
    request = checked(team.request(goal, now, plan=plan), now)

    async def act(runner: Runner, journal: Journal, session: RunSession) -> Outcome:
        material = await keep_files(journal.files, files)
        if earlier is not None and not files:
            material = earlier.requested.inputs
        given = with_material(request, material)
        if options.reuse:
            return await runner.fork(options.reuse, name, given, wait_for_input=session.asks)
        also = await team.offered(journal, given)
        return await runner.start(name, given, also=also, wait_for_input=session.asks)

    return team_executor(team, options).execute(options, name, act)


def _repeated_run(options: Namespace) -> RunState | None:
    """The run that is done once more, with its request and, unless others are named, its files."""
    is_named = options.reuse and not options.request and options.example is None
    return fold_entries(read_run(options.journal, options.reuse)) if is_named else None


def _read_goal_and_plan(
    options: Namespace, team: Team, plan: Plan | None, earlier: RunState | None
) -> tuple[str, Plan | None]:
    """The request, and the plan for it where there is one already."""
    if earlier is not None:
        # by the same plan; one that left parts of the request out would pass for all of it
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


def add_resume(parser: ArgumentParser) -> None:
    add_options(parser, {"name": {"metavar": "RUN", "help": RUN_HELP}})
    add_alternatives(parser, ALTERNATIVES)
    add_options(
        parser,
        {
            **DETAILS,
            **shared(*TEAM, "--script"),
            **shared("--no-background"),
            **EXECUTION,
            **shared("--json"),
        },
    )


def resume(options: Namespace) -> int:
    """Finished work is not repeated. The answer to a question is checked before anything is written."""
    name = str(options.name)
    reply = read_reply(options)
    if isinstance(options.journal, Path) and not options.journal.exists():  # opening would make it
        raise Refused(f"there is no journal {options.journal}; name the one that holds {name!r} with --journal")
    executor = find_executor(options, name, lambda: fold_entries(read_run(options.journal, name)))

    async def act(runner: Runner, journal: Journal, session: RunSession) -> Outcome:
        session.transcript.catch_up(name, await journal.read(name))
        state = session.transcript.state
        events: list[ev.Event] = []
        pending = _answerable(options, state, reply)
        if pending is not None and reply is not None:
            events.append(make_event(name, state, pending, reply, session.advice.answering(pending)))
        elif state.input is not None:
            session.ask_first(state.input)
        return await runner.resume(name, *events, wait_for_input=session.asks, unpause=True)

    return executor.execute(options, name, act)


def _answerable(options: Namespace, state: RunState, reply: TypedAnswer | None) -> ev.InputRequested | None:
    """Return the question that a reply answers; Refused where the run has ended or asks nothing."""
    name: str = options.name
    if state.ended is not None:
        again = "play FILE" if options.script else "run"
        problem = f"run {name!r} has ended ({state.ended.ending})"
        raise Refused(f"{problem}; to do some of it again: chargehand {again} --reuse {shlex.quote(name)}")
    if reply is None:
        return None
    if state.input is None:
        raise Refused(f"run {name!r} asks nothing; resume it without an answer")
    if (parent := state.requested.parent) is not None:  # that one may have ended, and the result would be lost
        outer = shlex.quote(parent.run)
        raise Refused(f"run {name!r} works for run {parent.run!r}; answer that one: chargehand resume {outer}")
    return state.input


# --- replay


def add_replay(parser: ArgumentParser) -> None:
    add_options(
        parser,
        {
            "name": {"metavar": "RUN", "help": RUN_HELP},
            "--from": {
                "dest": "source",
                "metavar": "TASK",
                "required": True,
                "help": "the task to do again, with all that needs it",
            },
            "--run": {"metavar": "NAME", "help": "what to call the new run"},
            **shared(*TEAM, "--script"),
            **EXECUTION,
        },
    )


def replay(options: Namespace) -> int:
    """A new run with every result of the old one but those of a task and of what depends on it."""
    state = fold_entries(read_run(options.journal, options.name))
    redone = _find_dependents(state, TaskId(options.source))
    reused = [offer for offer in offers(state) if offer.task.partition("[")[0] not in redone]
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

    async def act(runner: Runner, journal: Journal, session: RunSession) -> Outcome:
        entries = await journal.read(options.name)
        offered = await offer_results(journal, options.name, entries, reused, unserved=tuple(state.unserved))
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
    add_options(
        parser,
        {
            "file": {"metavar": "FILE", "help": "a script as JSON, for example examples/cascade.json"},
            "--run": {"metavar": "NAME", "help": "name of the run (default: the file and a random part)"},
            **shared("--reuse"),
            **EXECUTION,
            **shared("--json"),
        },
    )


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

    async def act(runner: Runner, _journal: Journal, session: RunSession) -> Outcome:
        if options.reuse:
            return await runner.fork(options.reuse, name, request, wait_for_input=session.asks)
        return await runner.start(name, request, wait_for_input=session.asks)

    return script_executor(file, script).execute(options, name, act)


# --- watch


_LOOK = 0.2  # seconds between two looks at the journal
_IDLE = 1.0  # a run that no process has driven for so long is not going on


def add_watch(parser: ArgumentParser) -> None:
    add_options(
        parser,
        {"name": {"metavar": "RUN", "help": RUN_HELP}, **shared("--jsonl", "--store", "--journal", "--no-color")},
    )


def watch(options: Namespace) -> int:
    """Until the run ends, or no process drives it any more; the exit code is that of the run."""
    transcript = Transcript.of_command(options, options.name, Console(sys.stdout))
    try:
        with StopSignals() as signals:
            signals.run(_follow(transcript, options))
    finally:
        transcript.stop_view()
    transcript.close()
    end = transcript.state.ended
    if end is not None:
        return exit_code(end.ending, end.reason)
    resume = f"chargehand resume {shlex.quote(options.name)}"
    transcript.console.line(f"no process drives it; go on: {resume}", "warn")
    return 4 if transcript.state.input is not None else 1


async def _follow(transcript: Transcript, options: Namespace) -> None:
    run: str = options.name
    transcript.show(run, read_run(options.journal, run))
    idle = 0.0
    while transcript.state.ended is None and idle < _IDLE:
        await asyncio.sleep(_LOOK)
        row = read_row(options.journal, run)
        idle = 0.0 if row.held or row.seq > transcript.state.seq else idle + _LOOK
        if row.seq > transcript.state.seq:
            transcript.show(run, read_run(options.journal, run, after=transcript.state.seq))
        if transcript.live is not None:
            transcript.live.draw()
