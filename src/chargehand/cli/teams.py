"""The team or script of a command: read, priced, kept within its budget, run; its background work after a run."""

import asyncio
import json
import os
import secrets
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct, structs

from chargehand.agents.background import BackgroundRun, run_due
from chargehand.agents.draft import PlanForecast, foreseen
from chargehand.agents.scripted import Script, ScriptedExecutor
from chargehand.cli import USUAL_MEMORY
from chargehand.cli.arguments import read_request
from chargehand.cli.console import Console, short
from chargehand.cli.exit_codes import Terminated
from chargehand.cli.run_session import Advice, ExecutorSource, RunSession, program
from chargehand.cli.signals import StopSignals
from chargehand.cli.tracing import listener_from
from chargehand.config.load import load_team
from chargehand.config.source import near
from chargehand.engine.budget import Budget, usd_of
from chargehand.engine.declared import describe_misfit
from chargehand.engine.events import RunRequested
from chargehand.engine.plan import Plan, parse
from chargehand.engine.policy import Policy, Seconds
from chargehand.engine.roster import Roster
from chargehand.engine.state import RunState
from chargehand.engine.value import encode_value
from chargehand.errors import Invalid, NotJson
from chargehand.journal.protocol import Journal
from chargehand.journal.store import open_journal
from chargehand.models.prices import flat
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Outcome, Runner
from chargehand.store_url import PostgresUrl
from chargehand.team import Team


class ScriptedRun(Script, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A script with the request it answers. Without `plan` the first of `plans` is proposed by the planner.

    `seconds` is the time the run has. `seed` fixes the waits between attempts; left out, each run has its own.
    """

    goal: str
    roster: Roster
    plan: Plan | None = None
    policy: Policy = Policy()
    budget: Budget = Budget()
    seconds: Seconds = 3600.0
    seed: int | None = None

    def request(self, now: float) -> RunRequested:
        seed = secrets.randbits(32) if self.seed is None else self.seed
        return RunRequested(
            goal=self.goal,
            roster=self.roster,
            policy=self.policy,
            budget=self.budget,
            deadline=now + self.seconds,
            seed=seed,
            plan=self.plan,
        )


def read_script(path: str) -> ScriptedRun:
    """A script from a file; Invalid says what is wrong with it, and where."""
    return decode_script(path, read_table(path))


def decode_script(path: str, table: dict[str, object]) -> ScriptedRun:
    try:
        script = msgspec.convert(table, ScriptedRun)
    except msgspec.ValidationError as error:
        problem = describe_misfit(error, ScriptedRun, table)
        raise Invalid(f"{path} is not a script: {problem}; docs/cli.md lists the fields") from error
    if script.plan is None and not script.plans:
        raise Invalid(f"{path} has no plan: give `plan`, or `plans` for a planner to propose")
    plans = (*script.plans, *([script.plan] if script.plan else []))
    tasks = {str(task.id).strip() for plan in plans for task in plan.tasks}
    for field, names in (("moves", script.moves), ("refined", script.refined)):
        for name in names:
            if name.partition("[")[0] not in tasks:
                raise Invalid(f"{path}: {field} names {name!r}, which is no task of the plan{near(name, tasks)}")
    return script


def read_table(path: str) -> dict[str, object]:
    """A JSON object from a file, or from standard input for `-`."""
    try:
        body = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}; name an existing JSON file") from error
    value = read_value(path, body)
    if not isinstance(value, dict):
        raise Invalid(f"{path} holds no JSON object but a {type(value).__name__}; begin with {{")
    return cast("dict[str, object]", value)


def read_plan(path: str) -> Plan:
    """A plan from a file, or the one in a script or in what `plan --json` prints."""
    table = read_table(path)
    inside = table.get("plan")
    return parse(cast("dict[str, object]", inside) if isinstance(inside, dict) and "tasks" not in table else table)


def read_value(path: str, body: bytes) -> object:
    """A JSON value; Invalid says where it is none, or holds what cannot be stored."""
    try:
        value: object = json.loads(body.decode())
        encode_value(value)
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise Invalid(f"{where}: this is not JSON: {error.msg}") from error
    except NotJson as error:
        raise Invalid(f"{path}: {error}") from error
    except RecursionError as error:
        raise Invalid(f"{path} is nested too deeply; send something flatter") from error
    except UnicodeError as error:
        raise Invalid(f"{path} is not JSON: it is not text in UTF-8") from error
    except ValueError as error:
        raise Invalid(f"{path} is not JSON: {error}") from error
    return value


# --- the team of a command


_MAY_HAVE_ANSWERED = (0, 3, 5)  # exit codes


def load_team_of(options: Namespace) -> Team:
    """The team that the options name, with a budget that can be kept; a warning, where a price is unknown."""
    team = load_team(
        options.team,
        model=options.model or "",
        effort=options.effort,
        memory=USUAL_MEMORY,
        elsewhere=options.memory,
    )
    tracing = listener_from(os.environ)
    if tracing is not None:
        team.add_listener(tracing)
    if options.price:
        team = team.priced(flat(*options.price.dollars))
    team = team.bounded(budget=_budget_of(options, team.budget))
    if team.budget.usd is None:
        return _with_unpriced(team)
    capped = asyncio.run(team.keep_budget())
    if capped.call_cap is not None:
        Console(sys.stderr).prose(f"warning: {capped.call_cap.warning}", "warn")
    return capped


def _with_unpriced(team: Team) -> Team:
    """The team, which knows the models whose cost is not known; a warning for each."""
    team.unpriced = asyncio.run(team.unpriced_models())
    for note in team.budget_notes():
        Console(sys.stderr).prose(f"warning: {note.text}", "warn")
    return team


def _budget_of(options: Namespace, budget: Budget) -> Budget:
    """The caps of the command line in the place of the team's, where there are any."""
    arguments = vars(options)
    micros: int | None = arguments.get("budget_usd")
    calls: int | None = arguments.get("max_calls")
    tokens: int | None = arguments.get("max_tokens")
    return structs.replace(
        budget,
        usd=budget.usd if micros is None else usd_of(micros),
        calls=calls or budget.calls,
        tokens=tokens or budget.tokens,
    )


def team_arguments(options: Namespace) -> tuple[str, ...]:
    """The words that name the same team again."""
    price = options.price.text if options.price else None
    memory = None if isinstance(options.memory, PostgresUrl) else options.memory  # --store names it
    values = {
        "--team": options.team,
        "--model": options.model,
        "--effort": options.effort,
        "--price": price,
        "--memory": memory,
    }
    return tuple(word for option, value in values.items() if value for word in (option, str(value)))


def read_goal(team: Team, options: Namespace, verb: str = "run", *, or_else: str = "") -> str:
    """What is asked: words, standard input, one of the team's own examples, or else what is there already."""
    examples = team.examples
    number: int | None = options.example
    if number is None:
        goal = read_request(options.request, verb) or or_else
        if goal:
            return goal
        listing = "".join(f"\n  {number}: {short(example, 80)}" for number, example in enumerate(examples, 1))
        own = f", or --example N with an example of team {team.name}:{listing}" if examples else ""
        raise Invalid(f'no request given. Try: {program()} {verb} "REQUEST"{own}')
    if options.request:
        raise Invalid("give a request or --example, not both")
    if not 1 <= number <= len(examples):
        raise Invalid(f"team {team.name} has no example {number}; it has {len(examples)}, under `examples` in its file")
    return examples[number - 1]


# --- the executor of a run

_RunAct: TypeAlias = Callable[[Runner, Journal, RunSession], Coroutine[None, None, Outcome]]


class RunExecutor(Struct, frozen=True):
    """The team or the script whose runs a command drives."""

    source: ExecutorSource
    words: tuple[str, ...]
    """Name it on a command line."""
    again: tuple[str, ...]
    """Begin a command that does a run once more."""
    team: str = ""
    notice: str = ""
    """What people must know about its models."""
    after: Callable[[int], None] = lambda _: None
    """Called with the exit code of the run."""

    def execute(self, options: Namespace, run: str, act: _RunAct, again: tuple[str, ...] = ()) -> int:
        """Drive a run while it is shown; the exit code. Finished work is taken over where it is done once more."""
        advice = Advice(run, options.journal, self.words, again or (*self.again, "--reuse", run))
        session = RunSession(options, advice, self.team, self.notice)
        code = session.execute(lambda runner, journal: act(runner, journal, session), self.source)
        self.after(code)
        return code


def team_executor(team: Team, options: Namespace) -> RunExecutor:
    words = team_arguments(options)
    return RunExecutor(
        source=team.executor,
        words=words,
        again=("run", *words),
        team=team.name,
        notice=team.notice,
        after=partial(finish_background, team, options),
    )


def script_executor(file: str, script: ScriptedRun) -> RunExecutor:
    @asynccontextmanager
    async def executor() -> AsyncGenerator[Executor]:
        yield ScriptedExecutor(script)

    return RunExecutor(executor, ("--script", file), ("play", file))


def find_executor(options: Namespace, run: str, state: Callable[[], RunState]) -> RunExecutor:
    """The executor that the options name; Refused where the run needs a worker it does not have."""
    if options.script:
        return script_executor(options.script, read_script(options.script))
    team = load_team_of(options)
    team.check_recorded(state().requested.budget)
    if state().requested.parent is None:  # a run inside another is refused later, with the one to answer
        next_step = "name the team it began with (--team), or its script (--script)"
        team.staff.check_recorded(run, state().requested.roster, next_step)
    return team_executor(team, options)


# --- what a plan costs


async def forecast_plan(team: Team, request: RunRequested) -> PlanForecast:
    """What the plan of a request takes."""
    if request.plan is None:
        raise Invalid("there is no plan to reckon with; name one with --plan")
    async with team.executor() as executor:
        return foreseen(executor, request.plan, request)


# --- background workers


def finish_background(team: Team, options: Namespace, code: int) -> None:
    """After a run that came to an answer, do what background workers have to do. Its exit code stays as it is."""
    if not team.background_agents or options.no_background or code not in _MAY_HAVE_ANSWERED:
        return
    console = Console(sys.stderr)
    started: set[str] = set()

    def announce(worker: str) -> None:
        if not options.quiet and worker not in started:
            console.line(f"{worker} is tidying memory; Ctrl-C leaves it for the next time", "dim")
        started.add(worker)

    async def main() -> list[BackgroundRun]:
        journal = await open_journal(options.journal, durability=options.durability)
        try:
            return await run_due(team, journal, announce)
        finally:
            await journal.close()

    results: list[BackgroundRun] = []
    try:
        with StopSignals() as signals:
            results = signals.run(main())
    except KeyboardInterrupt as stop:
        console.line("memory is left for the next time", "warn")
        if isinstance(stop, Terminated):
            raise
    except Exception as error:  # noqa: BLE001 - tools and models of others: the turn is over, and keeps its exit code
        console.line(f"memory was not tidied: {type(error).__name__}: {error}", "bad")
    for result in results:
        _report_failure(console, result)


def _report_failure(console: Console, result: BackgroundRun) -> None:
    """What went wrong; what went well is in the journal."""
    outcome = result.outcome
    if outcome.ending in ("complete", "partial"):
        return
    reason = outcome.gaps[0].message if outcome.gaps else outcome.reason
    then = "it is tried three times in all" if result.failed else "its question must be answered first"
    console.line(f"{result.worker} did not get through ({reason}); {then}; see run {outcome.run}", "bad")
