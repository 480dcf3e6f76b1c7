"""`chargehand plan`: what a team would do, or whether a plan in a file can run. Nothing is carried out."""

import asyncio
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from msgspec import structs

from chargehand.agents.draft import Draft, PlanForecast
from chargehand.cli.arguments import REQUEST, TEAM, add_options, shared, write_file
from chargehand.cli.console import Console, format_json
from chargehand.cli.diagrams import describe_finding, print_plan
from chargehand.cli.format import counted, money
from chargehand.cli.teams import (
    decode_script,
    forecast_plan,
    load_team_of,
    read_goal,
    read_table,
)
from chargehand.engine.budget import NOTHING
from chargehand.engine.forecast import forecast
from chargehand.engine.lint import lint
from chargehand.engine.plan import Plan, parse
from chargehand.engine.policy import Policy
from chargehand.engine.roster import Agent, Roster
from chargehand.errors import Invalid
from chargehand.team import Team


def add_plan(parser: ArgumentParser) -> None:
    add_options(
        parser,
        {
            **REQUEST,
            **shared(*TEAM, "--store"),
            "--from": {
                "dest": "source",
                "metavar": "FILE",
                "help": "check this plan or script (JSON); - for standard input",
            },
            **shared("--budget-usd", "--max-calls", "--max-tokens"),
            "-o --output": {
                "metavar": "FILE",
                "type": Path,
                "help": "also write the plan there, as run --plan takes it",
            },
            "--json": {"action": "store_true", "help": "findings, repaired plan and forecast as JSON"},
            **shared("--no-color"),
        },
    )


def plan(options: Namespace) -> int:
    """Say what a plan holds and what it will take; 2 if it cannot run."""
    if options.source is not None and (options.request or options.example is not None):
        raise Invalid("give a request or --from FILE, not both")
    if options.source is not None and options.files:
        raise Invalid("--file goes with a request, not with --from; leave one of them out")
    draft, about = _draft_of_team(options) if options.source is None else (_draft_of_file(options), {})
    console = Console(sys.stdout)
    stderr = Console(sys.stderr)
    errors = [finding for finding in draft.findings if finding.grave]
    text = format_json(draft.plan)
    if options.json:
        document = {"runs": not errors, "findings": draft.findings, "plan": draft.plan, "forecast": draft.forecast}
        text = format_json(document | about)
        console.text(text)
    else:
        _show(console, draft)
    if options.output is not None:
        write_file(options.output, text)
    if errors:
        stderr.line(f"chargehand: the plan cannot run: {counted(len(errors), 'error')}", "bad")
    if not draft.plan.tasks and draft.unserved:
        stderr.line("chargehand: no worker of this team can do any of it", "bad")
        return 1
    return 2 if errors else 0


def _show(console: Console, draft: Draft) -> None:
    for finding in draft.findings:
        console.line(describe_finding(finding), "bad" if finding.grave else "warn")
    print_plan(console, draft.plan, draft.forecast)
    for text in draft.unserved:
        console.line(f"no worker can: {text}", "warn")
    for text in draft.notes:
        console.line(f"note: {text}", "dim")
    if draft.spent != NOTHING:
        console.line(f"planning cost: {'unknown' if draft.spent is None else money(draft.spent)}")


# --- where a plan comes from


def _draft_of_team(options: Namespace) -> tuple[Draft, dict[str, object]]:
    """The plan that a team makes, and what a document says besides."""
    team = load_team_of(options)
    goal = read_goal(team, options, "plan")
    if team.notice:
        Console(sys.stderr).line(f"notice: {team.notice}", "warn")
    draft = asyncio.run(team.plan(goal, files=options.files))
    return draft, {"team": team.name, "notice": team.notice, "unserved": draft.unserved, "spent": draft.spent}


def _draft_of_file(options: Namespace) -> Draft:
    team = load_team_of(options) if options.team else None
    source_plan, roster, policy = _read_plan(options, team)
    linted = lint(source_plan.tasks, roster, policy.limits)
    repaired = Plan(linted.tasks, source_plan.combine, source_plan.goal)
    if linted.errors and not options.json:
        return Draft(repaired, linted.findings, None)
    if team is not None and not linted.errors:
        request = team.request(repaired.goal or "this plan", time.time(), plan=repaired)
        return Draft(repaired, linted.findings, asyncio.run(forecast_plan(team, request)))
    plain = structs.asdict(forecast(repaired, roster, policy))
    return Draft(repaired, linted.findings, PlanForecast(**plain))


def _read_plan(options: Namespace, team: Team | None) -> tuple[Plan, Roster, Policy]:
    table = read_table(options.source)
    if "tasks" not in table:
        script = decode_script(options.source, table)
        return script.plan or script.plans[0], script.roster, script.policy
    source_plan = parse(table)
    if team is not None:
        return source_plan, team.roster, Policy()
    return source_plan, _named_workers(source_plan), Policy()


def _named_workers(source_plan: Plan) -> Roster:
    """Without a roster: every worker that the plan names is taken to exist."""
    names = dict.fromkeys(task.worker.strip() for task in source_plan.tasks if task.worker.strip())
    matches = [task.match for task in source_plan.tasks if task.match is not None]
    agents = [Agent(name) for name in names]
    if matches:
        tags = {tag for match in matches for tag in (*match.all, *match.some)}
        agents.append(Agent("anybody", tags=tuple(sorted(tags))))
    if not agents:
        raise Invalid("the plan names no workers; name those there are with --team PATH")
    return Roster(tuple(agents))
