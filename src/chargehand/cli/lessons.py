"""`chargehand lessons`: what a team learnt from its routes, what goes elsewhere because of it, and how to forget it."""

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chargehand.cli import USUAL_JOURNAL, USUAL_MEMORY
from chargehand.cli.console import Console, clean, clean_json, short

if TYPE_CHECKING:
    from chargehand.runtime.lesson_report import Report

_HEADS = ("worker", "feedback", "eval", "judge", "outcome", "success")
_SHOWN = 20


def add_lessons(parser: ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  chargehand lessons\n"
        "  chargehand lessons --team helpdesk --json\n"
        "  chargehand lessons --forget                  drop all that was learnt\n\n" + (parser.epilog or "")
    )
    words = "a team file or its folder (default: the nearest team.yaml upwards, else the bundled team)"
    parser.add_argument("--team", metavar="PATH", help=words)
    words = f"the SQLite file (default {USUAL_JOURNAL})"
    parser.add_argument("--journal", metavar="PATH", type=Path, default=Path(USUAL_JOURNAL), help=words)
    parser.add_argument("--forget", action="store_true", help="drop all that the team learnt")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--no-color", action="store_true", help="no colours")


def lessons(options: Namespace) -> int:
    """Nothing is carried out, and no model is asked."""
    from chargehand.config.load import load_team  # noqa: PLC0415 - --help must not wait for it

    console = Console(sys.stdout)
    team = load_team(options.team, memory=USUAL_MEMORY)
    if options.forget:
        count = asyncio.run(team.forget_lessons(options.journal))
        told = (
            f'{{"forgotten":{count}}}' if options.json else f"forgotten: {_count(count, 'lesson')} of team {team.name}"
        )
        console.line(clean(told))
        return 0
    report = asyncio.run(team.learnt(options.journal))
    if options.json:
        console.line(clean_json(msgspec.json.encode(report).decode()))
        return 0
    _show(console, report)
    return 0


def _show(console: Console, report: "Report") -> None:
    from chargehand.cli.console import print_table  # noqa: PLC0415 - only who looks needs it

    sums = Counter[str]()
    for worker in report.workers:
        sums.update(worker.lessons)
    said = f" ({', '.join(f'{name} {count}' for name, count in sums.items())})" if sums else ""
    console.line(f"team {clean(report.team)}: {_count(report.kept, 'lesson')}{said}")
    if report.workers:
        rows = [
            (
                one.worker,
                *(str(one.lessons.get(name, "")) for name in ("feedback", "eval", "judge", "outcome")),
                f"{one.success:.0%}",
            )
            for one in report.workers
        ]
        print_table(console, _HEADS, rows)
        console.line()
        looked = f"of {_count(report.looked_at, 'request')} looked at, by {clean(report.router)}"
        many = len(report.turned) or "none"
        console.line(f"{many} {looked}, would go elsewhere than without lessons{':' if report.turned else ''}")
        for one in report.turned[:_SHOWN]:
            console.line(f"  {short(one.request, 70)}: {clean(one.without or 'nobody')} → {clean(one.now or 'nobody')}")
        if len(report.turned) > _SHOWN:
            console.line(f"  and {len(report.turned) - _SHOWN} more: --json shows all")
    else:
        console.line("say how a run went: chargehand feedback RUN good|bad [--worker NAME]")
    console.line()
    if report.learns:
        forget = "   forget it: chargehand lessons --forget" if report.kept else ""
        console.line(f"turn it off:  way: {{route: {{learn: false}}}}{forget}", "dim")
    else:
        console.line("it is off (learn: false): nothing of this is used, and how runs end is not kept", "warn")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
