"""Scripts, plans and JSON values from files, so that errors say where.

What a script means is known to `agents.scripted`; whether its plan can run, to `engine.lint`.
"""

import json
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import msgspec
from msgspec import structs

from chargehand.agents.scripted import Script
from chargehand.config.source import near
from chargehand.engine.budget import Budget
from chargehand.engine.events import RunRequested
from chargehand.engine.plan import Plan, parse
from chargehand.engine.policy import Policy, Seconds
from chargehand.engine.roster import Roster
from chargehand.engine.validation import describe_misfit
from chargehand.engine.value import encode_value
from chargehand.errors import Invalid, NotJson


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
    workers = script.roster.names()
    if len(set(workers)) < len(workers):
        twice = next(name for name in workers if workers.count(name) > 1)
        raise Invalid(f"{path}: there are two workers {twice!r}; give each a name of its own")
    for agent in script.roster.agents:
        _check_known(f"{path}: worker {agent.name!r} falls back to", agent.fallbacks, workers, "worker of the roster")
    plans = (*script.plans, *([script.plan] if script.plan else []))
    tasks = {str(task.id).strip() for plan in plans for task in plan.tasks}
    for field, names in (("moves", script.moves), ("refined", script.refined)):
        _check_known(f"{path}: {field} names", [name.partition("[")[0] for name in names], tasks, "task of the plan")
    for place, moves in (*script.moves.items(), ("answers", script.answers), ("otherwise", (script.otherwise,))):
        for move in moves:
            amounts = (move.seconds, move.retry_after, *(structs.astuple(move.used) if move.used else ()))
            if min(amounts) < 0:
                raise Invalid(f"{path}: a move of {place!r} has a number below zero; times and costs are 0 or more")
    return script


def _check_known(lead: str, names: Iterable[str], known: Iterable[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise Invalid(f"{lead} {name!r}, which is no {what}{near(name, known)}")


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
