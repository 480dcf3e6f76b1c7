"""`chargehand feedback` and `chargehand examples`: what a routed team learns from, confirmed by people."""

import asyncio
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from chargehand.agents.routing.feedback import Judgement, record_feedback
from chargehand.cli import USUAL_MEMORY
from chargehand.cli.arguments import add_options, shared
from chargehand.cli.console import Console, print_table
from chargehand.config.load import load_team
from chargehand.journal.store import opened_journal

_SCORES = {"good": 1.0, "bad": 0.0}
_FEEDBACK = """examples:
  chargehand feedback desk-1f2e3d good
  chargehand feedback desk-1f2e3d bad --worker billing    who ought to have it
  chargehand feedback desk-1f2e3d 0.7

"""
_EXAMPLES = """examples:
  chargehand examples
  chargehand examples --team helpdesk --json
  chargehand examples --remove desk-1f2e3d     remove those of a run
  chargehand examples --clear                  remove them all

"""


def add_feedback(parser: ArgumentParser) -> None:
    parser.epilog = _FEEDBACK + (parser.epilog or "")
    add_options(
        parser,
        {
            "name": {"metavar": "RUN", "help": "a run that was led by a route, as  chargehand runs  names it"},
            "good": {"metavar": "good|bad|0..1", "type": _score, "help": "how well it went"},
            "--worker": {"metavar": "NAME", "default": "", "help": "who should have done it"},
            **shared("--store", "--journal", "--json", "--no-color"),
        },
    )


def _score(text: str) -> float:
    """From 0 to 1, as a word or a number."""
    try:
        score = _SCORES.get(text.strip().lower(), -1.0)
        score = float(text) if score < 0 else score
    except ValueError:
        score = -1.0
    if not 0 <= score <= 1:  # also what is no number
        raise ArgumentTypeError(f"{text!r} is no score; say good, bad or a number from 0 to 1")
    return score


def feedback(options: Namespace) -> int:
    """The journal is not taken over: another process may be driving runs of it."""

    async def record() -> Judgement:
        async with opened_journal(options.journal, create=False) as journal:
            return await record_feedback(journal, options.name, options.good, options.worker)

    judgement = asyncio.run(record())
    console = Console(sys.stdout)
    if options.json:
        console.json_line(judgement)
        return 0
    for word, workers in (("confirmed", judgement.confirmed), ("refuted", judgement.refuted)):
        if workers:
            console.line(f"{word} for run {options.name}: {', '.join(workers)}")
    console.line("all confirmed examples: chargehand examples, with the --team of the run", "dim")
    return 0


def add_examples(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES + (parser.epilog or "")
    add_options(
        parser,
        {
            **shared("--team", "--store", "--journal"),
            "--remove": {"metavar": "RUN", "default": "", "help": "remove the confirmed examples of a run"},
            "--clear": {"action": "store_true", "help": "remove all confirmed examples of the team"},
            **shared("--json", "--no-color"),
        },
    )


def examples(options: Namespace) -> int:
    """Nothing is carried out, and no model is asked."""
    console = Console(sys.stdout)
    team = load_team(options.team, memory=USUAL_MEMORY)
    if options.clear or options.remove:
        run = "" if options.clear else options.remove
        count = asyncio.run(team.clear_route_examples(options.journal, run=run))
        if options.json:
            console.json_line({"cleared": count})
        else:
            console.line(f"cleared: {count} examples of team {team.name}")
        return 0
    confirmed = asyncio.run(team.route_examples(options.journal))
    if options.json:
        console.json_line({"team": team.name, "examples": confirmed})
        return 0
    console.line(f"team {team.name}: {len(confirmed)} confirmed examples")
    if confirmed:
        rows = [(example.worker, example.source, example.run, example.request) for example in confirmed]
        print_table(console, ("worker", "source", "run", "request"), rows)
    else:
        console.line("say how a run went: chargehand feedback RUN good|bad [--worker NAME]")
    return 0
