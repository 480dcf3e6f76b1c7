"""`chargehand run`: a team plans a request, carries it out and answers it."""

import secrets
import time
from argparse import Namespace
from pathlib import Path

from msgspec import structs

from chargehand.cli import USUAL_MEMORY
from chargehand.cli.advice import Advice, program
from chargehand.cli.afford import keep_budget, warn_above_budget
from chargehand.cli.console import short
from chargehand.cli.exhibits import make_folder
from chargehand.cli.request import read_request
from chargehand.cli.script import read_plan
from chargehand.cli.stage import Stage
from chargehand.config.load import load_team
from chargehand.core.fold import replay
from chargehand.errors import Invalid
from chargehand.models.prices import flat
from chargehand.runtime.driver import Driver, Outcome, checked
from chargehand.runtime.result import planned
from chargehand.stores.journal import check_name
from chargehand.stores.reader import read_run
from chargehand.stores.sqlite import SqliteJournal
from chargehand.team import Supervisor
from chargehand.terms.budget import usd_of
from chargehand.terms.plan import Plan

_ANSWERED = (0, 3, 5)  # exit codes of runs that may have an answer


def run(options: Namespace) -> int:
    """A new run of a team. All of the input is checked before the journal is touched."""
    plan = None if options.plan is None else read_plan(options.plan)
    team = team_of(options)
    team = keep_budget(_bound(team, options))
    goal, plan = _asked(options, team, plan)
    name: str = options.run or f"{team.name}-{secrets.token_hex(3)}"
    check_name(name)
    now = time.time()
    request = checked(team.request(goal, now, plan=plan), now)
    if not options.reuse:
        warn_above_budget(team, request)
    if options.save:
        make_folder(Path(options.save))
    words = team_words(options)
    advice = Advice(name, options.journal, words, ("run", "--reuse", name, *words))
    stage = Stage(options, advice, team=team.name, notice=team.notice)

    async def act(driver: Driver, journal: SqliteJournal) -> Outcome:
        if options.reuse:
            return await driver.fork(options.reuse, name, request, wait_for_input=stage.asks)
        also = await team.offered(journal, request)
        return await driver.start(name, request, also=also, wait_for_input=stage.asks)

    code = stage.carry(act, team.crew)
    leave(team, options, code)
    return code


def leave(team: Supervisor, options: Namespace, code: int) -> None:
    """After a run that came to an answer: what background workers have to do is done now."""
    if team.aside and not options.no_background and code in _ANSWERED:
        from chargehand.cli.rest import look_back  # noqa: PLC0415 - few teams have somebody in the background

        look_back(team, Path(options.journal), options.durability, quiet=options.quiet)


def _asked(options: Namespace, team: Supervisor, plan: Plan | None) -> tuple[str, Plan | None]:
    """What is asked, and the plan for it where there is one already."""
    if options.example is not None:
        if options.request:
            raise Invalid("give a request or --example, not both")
        return example_of(team, options.example), plan
    goal = None if options.reuse and not options.request else read_request(options.request)
    if goal is None and options.reuse:  # the same again: what was asked, and how it was to be done
        earlier = replay(read_run(options.journal, options.reuse))
        # a plan that left parts of the request out would pass for all of it: it is made anew
        whole = earlier.tasks and not earlier.unserved
        return earlier.requested.goal, plan or (planned(earlier) if whole else None)
    if goal is None and plan is not None and plan.goal:
        return plan.goal, plan
    if goal is None:
        raise Invalid(nothing_asked(team))
    return goal, plan


def _bound(team: Supervisor, options: Namespace) -> Supervisor:
    """The team within the bounds of the command line, which may be wider or narrower than its own."""
    policy, budget, seconds = team.policy, team.budget, options.timeout
    if options.approve is not None:
        policy = structs.replace(policy, approve=options.approve == "ask")
    if options.budget_usd is not None:
        budget = structs.replace(budget, usd=usd_of(options.budget_usd))
    if seconds is not None:
        budget = structs.replace(budget, seconds=seconds)
    if options.max_parallel is not None:
        policy = structs.replace(policy, limits=structs.replace(policy.limits, width=options.max_parallel))
    return team.bounded(budget=budget, timeout=seconds, policy=policy)


# --- what other verbs need of a team as well


def team_words(options: Namespace) -> tuple[str, ...]:
    """The words that name the same team again."""
    team = ("--team", str(options.team)) if options.team else ()
    memory = ("--memory", str(options.memory)) if options.memory else ()
    price = ("--price", options.price.text) if options.price else ()
    return (*team, *(("--model", options.model) if options.model else ()), *price, *memory)


def example_of(team: Supervisor, number: int) -> str:
    """One of the team's own examples, counted from 1."""
    known = team.examples
    if not 1 <= number <= len(known):
        have = f"it has {len(known)}" if known else "it has none: list some under `examples` in its file"
        raise Invalid(f"team {team.name} has no example {number}; {have}")
    return known[number - 1]


def nothing_asked(team: Supervisor, verb: str = "run") -> str:
    """How to ask."""
    said = f'nothing was asked; say what is to be done: {program()} {verb} "REQUEST"'
    known = team.examples
    if not known:
        return said
    shown = ", ".join(f"{number}: {short(one, 80)}" for number, one in enumerate(known[:5], 1))
    return f"{said}, or try an example of team {team.name} with --example N ({shown})"


def team_of(options: Namespace) -> Supervisor:
    """The team that the options name."""
    team = load_team(
        options.team,
        model=options.model or "",
        memory=USUAL_MEMORY,
        elsewhere=options.memory,
    )
    return team.priced(flat(options.price.read, options.price.written)) if options.price else team
