"""`chargehand play`: a scripted run, without any model. And reading scripts, plans and JSON so that errors say where.

What a script means is known to `agents.scripted`; whether its plan can run, to `engine.lint`.
"""

import json
import secrets
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
from msgspec import structs

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.cli.advice import Advice
from chargehand.cli.arguments import add_execution, add_shared
from chargehand.cli.plan_view import describe_finding
from chargehand.cli.run_session import RunSession
from chargehand.config.source import near
from chargehand.engine.budget import Budget
from chargehand.engine.events import RunRequested
from chargehand.engine.lint import lint
from chargehand.engine.plan import Plan, parse
from chargehand.engine.policy import Policy, Seconds
from chargehand.engine.roster import Roster
from chargehand.engine.validation import describe_misfit
from chargehand.engine.value import encode_value
from chargehand.errors import Invalid, NotJson, PlanInvalid
from chargehand.journal.protocol import Journal, check_name
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Outcome, Runner, checked


def add_play(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a script as JSON, for example examples/cascade.json")
    parser.add_argument(
        "--run", metavar="NAME", help="what to call the run (default: the file's name and a random part)"
    )
    add_shared(parser, "--reuse")
    add_execution(parser)
    add_shared(parser, "--json")


def play(options: Namespace) -> int:
    """A new run of a script. All of the input is checked before the journal is touched."""
    file: str = options.file
    story = read_story(file)
    run: str = options.run or f"{Path(file).stem.strip('-') or 'run'}-{secrets.token_hex(3)}"
    check_name(run)
    now = time.time()
    try:
        request = checked(story.request(now), now)
    except PlanInvalid:
        raise
    except Invalid as error:
        raise Invalid(f"{file}: {error}") from error
    advice = Advice(run, options.journal, ("--script", file), ("play", file, "--reuse", run))
    session = RunSession(options, advice)
    if story.plan is not None:
        for warning in lint(story.plan.tasks, story.roster, story.policy.limits).warnings:
            session.output.console.line(describe_finding(warning), "warn")

    async def act(driver: Runner, _journal: Journal) -> Outcome:
        if options.reuse:
            return await driver.fork(options.reuse, run, request, wait_for_input=session.asks)
        return await driver.start(run, request, wait_for_input=session.asks)

    return session.execute(act, scripted(story))


# --- scripts


class Story(Script, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
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


def scripted(story: Story) -> Callable[[], AbstractAsyncContextManager[Executor]]:
    """The executor of a script: there is nothing to connect to."""

    @asynccontextmanager
    async def executor() -> AsyncGenerator[Executor]:
        yield ScriptedExecutor(story)

    return executor


def read_story(path: str) -> Story:
    """A script from a file; Invalid says what is wrong with it, and where."""
    return decode_story(path, read_table(path))


def decode_story(path: str, table: dict[str, object]) -> Story:
    try:
        story = msgspec.convert(table, Story)
    except msgspec.ValidationError as error:
        found = describe_misfit(error, Story, table)
        raise Invalid(f"{path} is not a script: {found}; docs/cli.md lists the fields") from error
    if story.plan is None and not story.plans:
        raise Invalid(f"{path} has no plan: give `plan`, or `plans` for a planner to propose")
    _check_roster(path, story.roster)
    _check_names(path, story)
    for place, moves in (*story.moves.items(), ("answers", story.answers), ("otherwise", (story.otherwise,))):
        _check_moves(path, place, moves)
    return story


def _check_roster(path: str, roster: Roster) -> None:
    names = roster.names()
    for name in names:
        if names.count(name) > 1:
            raise Invalid(f"{path}: there are two workers {name!r}; give each a name of its own")
    for agent in roster.agents:
        if strange := [name for name in agent.fallbacks if name not in names]:
            who = f"{agent.name!r} falls back to {strange[0]!r}"
            raise Invalid(f"{path}: {who}, who is not in the roster{near(strange[0], names)}")


def _check_names(path: str, story: Story) -> None:
    plans = (*story.plans, *([story.plan] if story.plan else []))
    tasks = {str(task.id).strip() for plan in plans for task in plan.tasks}
    for field, names in (("moves", story.moves), ("refined", story.refined)):
        for name in names:
            if name.partition("[")[0] not in tasks:
                raise Invalid(f"{path}: {field} names {name!r}, which is no task of the plan{near(name, tasks)}")


def _check_moves(path: str, place: str, moves: tuple[Move, ...]) -> None:
    for number, move in enumerate(moves, 1):
        amounts = (move.seconds, move.retry_after, *(structs.astuple(move.used) if move.used else ()))
        if min(amounts) < 0:
            raise Invalid(f"{path}: move {number} of {place!r} has a number below zero; times and costs are 0 or more")


def read_table(path: str) -> dict[str, object]:
    """A JSON object from a file, or from standard input for `-`."""
    value = read_value(path, _bytes(path))
    if not isinstance(value, dict):
        raise Invalid(f"{path} holds no JSON object but a {type(value).__name__}; begin with {{")
    return cast("dict[str, object]", value)


def read_plan(path: str) -> Plan:
    """A plan from a file, or the one in a script or in what `plan --json` says."""
    table = read_table(path)
    inside = table.get("plan")
    return parse(cast("dict[str, object]", inside) if isinstance(inside, dict) and "tasks" not in table else table)


def read_value(path: str, body: bytes) -> object:
    """A JSON value; Invalid says where it is none, or holds what nobody can hand on."""
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


def _bytes(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}; name an existing JSON file") from error
