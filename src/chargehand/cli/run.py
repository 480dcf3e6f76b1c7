"""`chargehand run`: a team plans a request, carries it out and answers it."""

import secrets
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from msgspec import structs

from chargehand.agents.result import planned
from chargehand.cli.advice import Advice
from chargehand.cli.arguments import TEAM, add_execution, add_request, add_shared, duration, positive
from chargehand.cli.artifacts import make_save_folder
from chargehand.cli.play import read_plan
from chargehand.cli.run_session import RunSession
from chargehand.cli.teams import finish_background, load_team_of, read_goal, team_arguments, warn_above_budget
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan
from chargehand.journal.protocol import Journal, check_name
from chargehand.journal.store import read_run
from chargehand.runtime.runner import Outcome, Runner, checked
from chargehand.team import Team


def add_run(parser: ArgumentParser) -> None:
    add_request(parser)
    add_shared(parser, *TEAM)
    about = "whether a person is asked about the plan; auto and never: no (default: as the team says)"
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
    words = team_arguments(options)
    advice = Advice(name, options.journal, words, ("run", "--reuse", name, *words))
    session = RunSession(options, advice, team=team.name, notice=team.notice)

    async def act(driver: Runner, journal: Journal) -> Outcome:
        if options.reuse:
            return await driver.fork(options.reuse, name, request, wait_for_input=session.asks)
        also = await team.offered(journal, request)
        return await driver.start(name, request, also=also, wait_for_input=session.asks)

    code = session.execute(act, team.executor)
    finish_background(team, options, code)
    return code


def _read_goal_and_plan(options: Namespace, team: Team, plan: Plan | None) -> tuple[str, Plan | None]:
    """What is asked, and the plan for it where there is one already."""
    if options.reuse and not options.request and options.example is None:
        # the same again: what was asked, and how it was to be done; a plan that left parts of the request out would
        # pass for all of it, and is made anew
        earlier = replay(read_run(options.journal, options.reuse))
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
