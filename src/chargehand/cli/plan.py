"""`chargehand plan`: what a team would do, or whether a plan in a file can run. Nothing is carried out."""

import asyncio
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from chargehand.agents.cost_forecast import PlanForecast
from chargehand.cli.arguments import TEAM, add_request, add_shared, read_request
from chargehand.cli.console import Console, clean, format_json
from chargehand.cli.format import counted, money
from chargehand.cli.plan_view import describe_finding, forecast_lines, mermaid, plan_heading, plan_tree
from chargehand.cli.script import Story, decode_story, read_story, read_table
from chargehand.errors import Invalid
from chargehand.runtime.draft import Draft
from chargehand.terms.budget import NOTHING, usd_of
from chargehand.terms.forecast import forecast
from chargehand.terms.lint import lint
from chargehand.terms.plan import Plan, parse
from chargehand.terms.policy import Policy
from chargehand.terms.roster import Agent, Roster

if TYPE_CHECKING:
    from chargehand.team import Supervisor


def add_plan(parser: ArgumentParser) -> None:
    add_request(parser)
    add_shared(parser, *TEAM)
    parser.add_argument(
        "--from", dest="source", metavar="FILE", help="check this plan or script (JSON); - for standard input"
    )
    parser.add_argument("--roster", metavar="SCRIPT", help="with --from: a script whose workers and policy count")
    add_shared(parser, "--budget-usd")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the plan there, as run --plan takes it")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="findings, repaired plan and forecast as JSON")
    how.add_argument("--mermaid", action="store_true", help="the plan as a Mermaid flowchart")
    add_shared(parser, "--no-color")


def plan(options: Namespace) -> int:
    """Say what a plan holds and what it will take; 2 if it cannot run."""
    if options.source is not None and (options.request or options.example is not None):
        raise Invalid("give a request or --from FILE, not both")
    if options.budget_usd is not None and options.source is not None and not options.team:
        raise Invalid("--budget-usd is of no use without models that cost something; name the team with --team")
    team = ""
    notice = ""
    if options.source is not None:
        draft = _of_file(options)
    else:
        draft, team, notice = _of_team(options)
    console = Console(sys.stdout)
    errors = [one for one in draft.findings if one.grave]
    if options.json:
        console.json(_document(draft, team, notice, options))
    elif options.mermaid:
        console.line(mermaid(draft.plan))
    else:
        _show(console, draft)
    if options.output is not None:
        _write(Path(options.output), _file_text(draft, team, notice, options))
    if errors:
        Console(sys.stderr).line(f"chargehand: the plan cannot run: {counted(len(errors), 'error')}", "bad")
    if not draft.plan.tasks and draft.unserved:
        Console(sys.stderr).line("chargehand: nobody on this team can do any of it", "bad")
        return 1
    return 2 if errors else 0


def _document(draft: Draft, team: str, notice: str, options: Namespace) -> dict[str, object]:
    can_run = not any(finding.grave for finding in draft.findings)
    document: dict[str, object] = {"runs": can_run, "findings": draft.findings, "plan": draft.plan}
    document["forecast"] = draft.forecast
    if options.source is None:
        document |= {"team": team, "notice": notice, "unserved": draft.unserved, "spent": draft.spent}
    return document


def _file_text(draft: Draft, team: str, notice: str, options: Namespace) -> str:
    """What goes into a file: what was asked for, else the plan as `run --plan` takes it."""
    if options.mermaid:
        return mermaid(draft.plan)
    return format_json(_document(draft, team, notice, options) if options.json else draft.plan)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}; name another file with -o") from error


def _show(console: Console, draft: Draft) -> None:
    for one in draft.findings:
        console.line(describe_finding(one), "bad" if one.grave else "warn")
    console.line(plan_heading(draft.plan), "bold")
    for line in plan_tree(draft.plan, console.columns):
        console.line(line)
    if draft.forecast is not None:
        for line in forecast_lines(draft.forecast):
            console.line(line)
    for text in draft.unserved:
        console.line(f"nobody here can: {clean(text)}", "warn")
    for text in draft.notes:
        console.line(f"note: {clean(text)}", "dim")
    if draft.spent != NOTHING:
        console.line(f"planning cost: {'unknown' if draft.spent is None else money(draft.spent)}")


# --- where a plan comes from


def _of_team(options: Namespace) -> tuple[Draft, str, str]:
    from chargehand.cli.teams import (  # noqa: PLC0415 - as above
        describe_missing_request,
        example_request,
        keep_budget,
        load_team_of,
    )

    team = keep_budget(_capped(load_team_of(options), options))
    goal = read_request(options.request, "plan") if options.example is None else example_request(team, options.example)
    if goal is None:
        raise Invalid(describe_missing_request(team, "plan"))
    if team.notice:
        Console(sys.stderr).line(f"notice: {clean(team.notice)}", "warn")
    return asyncio.run(team.plan(goal)), team.name, team.notice


def _of_file(options: Namespace) -> Draft:
    found, roster, policy = _planned(options)
    linted = lint(found.tasks, roster, policy.limits)
    repaired = Plan(linted.tasks, found.combine, found.goal)
    if linted.errors and not options.json:
        return Draft(repaired, linted.findings, None)
    seen = None if linted.errors or options.roster is not None else _with_dollars(repaired, options)
    plain = structs.asdict(forecast(repaired, roster, policy))
    return Draft(repaired, linted.findings, seen or PlanForecast(**plain))


def _with_dollars(found: Plan, options: Namespace) -> PlanForecast | None:
    """The forecast of a team that knows what its models cost; a plan can be checked without their keys."""
    if not options.team:
        return None
    from chargehand.cli.teams import (  # noqa: PLC0415 - it brings all of a team
        forecast_plan,
        keep_budget,
        load_team_of,
    )

    team = keep_budget(_capped(load_team_of(options), options))
    try:
        return asyncio.run(forecast_plan(team, team.request(found.goal or "this plan", time.time(), plan=found)))
    except Invalid as error:
        Console(sys.stderr).line(f"notice: what it costs is not reckoned: {clean(str(error))}", "warn")
        return None


def _capped(team: "Supervisor", options: Namespace) -> "Supervisor":
    if options.budget_usd is None:
        return team
    return team.bounded(budget=structs.replace(team.budget, usd=usd_of(options.budget_usd)))


def _planned(options: Namespace) -> tuple[Plan, Roster, Policy]:
    source: str = options.source
    table = read_table(source)
    bare = "tasks" in table
    story: Story | None = None if bare else decode_story(source, table)
    found = parse(table) if story is None else story.plan or story.plans[0]
    if options.roster is not None:
        story = read_story(options.roster)
    if story is not None:
        return found, story.roster, story.policy
    if options.team:
        from chargehand.cli.teams import load_team_of  # noqa: PLC0415 - as above

        return found, load_team_of(options).roster, Policy()
    return found, _everybody(found), Policy()


def _everybody(found: Plan) -> Roster:
    """Without a roster: whoever the plan names is taken to exist."""
    names = dict.fromkeys(task.worker.strip() for task in found.tasks if task.worker.strip())
    matches = [task.match for task in found.tasks if task.match is not None]
    tags = tuple(sorted({tag for match in matches for tag in (*match.all, *match.some)}))
    agents = [Agent(name) for name in names]
    if not agents and not matches:
        raise Invalid("the plan names no workers; name those there are with --roster SCRIPT")
    return Roster((*agents, *([Agent("anybody", tags=tags)] if matches else [])))
