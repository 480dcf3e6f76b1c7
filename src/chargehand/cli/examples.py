"""`chargehand examples`: requests that were confirmed to be for a worker of a routed team."""

import asyncio
import sys
from argparse import ArgumentParser, Namespace

import msgspec

from chargehand.cli import USUAL_MEMORY
from chargehand.cli.arguments import add_shared
from chargehand.cli.console import Console, clean, clean_json, print_table

_EXAMPLES = """examples:
  chargehand examples
  chargehand examples --team helpdesk --json
  chargehand examples --clear                  remove them all

"""


def add_examples(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES + (parser.epilog or "")
    add_shared(parser, "--team", "--journal", "--json", "--no-color")
    parser.add_argument("--clear", action="store_true", help="remove all confirmed examples of the team")


def examples(options: Namespace) -> int:
    """Nothing is carried out, and no model is asked."""
    from chargehand.config.load import load_team  # noqa: PLC0415 - --help must not wait for it

    console = Console(sys.stdout)
    team = load_team(options.team, memory=USUAL_MEMORY)
    if options.clear:
        count = asyncio.run(team.clear_route_examples(options.journal))
        text = f'{{"cleared":{count}}}' if options.json else f"cleared: {count} examples of team {team.name}"
        console.line(clean(text))
        return 0
    confirmed = asyncio.run(team.route_examples(options.journal))
    if options.json:
        document = {"team": team.name, "examples": confirmed}
        console.line(clean_json(msgspec.json.encode(document).decode()))
        return 0
    console.line(f"team {clean(team.name)}: {len(confirmed)} confirmed examples")
    if confirmed:
        rows = [(example.worker, example.source, example.run, example.request) for example in confirmed]
        print_table(console, ("worker", "source", "run", "request"), rows)
    else:
        console.line("say how a run went: chargehand feedback RUN good|bad [--worker NAME]")
    return 0
