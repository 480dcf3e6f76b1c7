"""The verbs that only look: runs, show and plan. They take nothing over and write nothing."""

import shlex
import sys
from argparse import Namespace
from datetime import UTC, datetime

import msgspec

from chargehand.cli.console import Console, Tone, clean, clean_json
from chargehand.cli.render import finding, heading, mermaid, outlook, tree
from chargehand.cli.script import Story, read_story, read_table, told
from chargehand.cli.tale import Tale
from chargehand.cli.words import counted
from chargehand.errors import Invalid
from chargehand.stores.reader import Found, read_run, read_runs
from chargehand.terms.forecast import forecast
from chargehand.terms.lint import Linted, lint
from chargehand.terms.plan import Plan, parse
from chargehand.terms.policy import Policy
from chargehand.terms.roster import Agent, Roster


def runs(options: Namespace) -> int:
    """Every run of a journal, the latest first."""
    found = read_runs(options.journal)
    console = Console(sys.stdout)
    if options.json:
        console.line(clean_json(msgspec.json.encode([_facts(one) for one in found]).decode()))
        return 0
    if not found:
        console.line(f"no runs in {clean(str(options.journal))}")
        return 0
    wide = max(len(clean(one.row.run)) for one in found)
    for one in found:
        begun = datetime.fromtimestamp(one.row.started, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        took = one.row.changed - one.row.started
        text, tone = _standing(one)
        shown = f"{clean(one.row.run):{wide}}  {begun}  {took:8.1f} s  {one.row.seq:6} entries  "
        console.line(shown + console.paint(text, tone))
    return 0


def _standing(found: Found) -> tuple[str, Tone]:
    if found.ended is not None:
        tones: dict[str, Tone] = {"complete": "good", "failed": "bad"}
        return found.ended.ending, tones.get(found.ended.ending, "warn")
    if found.driven:
        return "under way", "plain"
    return ("waits for a person" if found.row.type == "input.requested" else "interrupted: resume it"), "warn"


def _facts(found: Found) -> dict[str, object]:
    ending = found.ended.ending if found.ended is not None else None
    facts: dict[str, object] = msgspec.structs.asdict(found.row)
    return {**facts, "held": found.driven, "ending": ending}


def show(options: Namespace) -> int:
    """What happened in a run, read off its journal."""
    entries = read_run(options.journal, options.name)
    console = Console(sys.stdout)
    if options.jsonl:
        for entry in entries:
            console.line(clean_json(msgspec.json.encode(entry).decode()))
        return 0
    tale = Tale(console, console, jsonl=False)
    tale.hear(options.name, entries)
    tale.close()
    if tale.state.ended is None:
        console.line(f"go on, if nobody drives it: chargehand resume {clean(shlex.quote(options.name))} --script FILE")
    return 0


def plan(options: Namespace) -> int:
    """Check a plan and say what it will take; 2 if it cannot run."""
    found, roster, policy = _planned(options.source, options.roster)
    linted = lint(found.tasks, roster, policy.limits)
    found = Plan(linted.tasks, found.combine, found.goal)
    console = Console(sys.stdout)
    if options.json:
        outcome = {"runs": not linted.errors, "findings": linted.findings, "plan": found}
        said = {**outcome, "forecast": forecast(found, roster, policy)}
        console.line(clean_json(msgspec.json.format(msgspec.json.encode(said), indent=2).decode()))
    elif options.mermaid:
        console.line(mermaid(found))
    else:
        _show(console, found, linted)
        if not linted.errors:
            for line in outlook(forecast(found, roster, policy)):
                console.line(line)
    if linted.errors:
        Console(sys.stderr).line(f"chargehand: the plan cannot run: {counted(len(linted.errors), 'error')}", "bad")
    return 2 if linted.errors else 0


def _show(console: Console, found: Plan, linted: Linted) -> None:
    for one in linted.findings:
        console.line(finding(one), "bad" if one.grave else "warn")
    console.line(heading(found), "bold")
    for line in tree(found, console.columns):
        console.line(line)


def _planned(source: str, roster: str | None) -> tuple[Plan, Roster, Policy]:
    table = read_table(source)
    story: Story | None = None if "tasks" in table else told(source, table)
    found = parse(table) if story is None else story.plan or story.plans[0]
    if roster is not None:
        story = read_story(roster)
    if story is not None:
        return found, story.roster, story.policy
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
