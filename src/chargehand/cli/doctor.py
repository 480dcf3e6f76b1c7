"""The verb that looks at the surroundings: one line a thing, and what to do about those that are not well."""

import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from chargehand.cli import USUAL_JOURNAL, USUAL_MEMORY
from chargehand.cli.console import Console, Tone, clean
from chargehand.config.doctor_models import State

_WORDS: dict[State, tuple[str, Tone]] = {"good": ("ok", "good"), "missing": ("--", "dim"), "bad": ("NO", "bad")}


def add_doctor(parser: ArgumentParser) -> None:
    words = "a team file or its folder (default: the nearest team.yaml upwards, else the bundled team)"
    parser.add_argument("--team", metavar="PATH", help=words)
    parser.add_argument("--workers", action="store_true", help="how workers, tools and models did in the latest runs")
    parser.add_argument("--ask", metavar="MODEL", help="make one real call of a model and say what came of it")
    words = f"the SQLite file (default {USUAL_JOURNAL})"
    parser.add_argument("--journal", metavar="PATH", type=Path, default=Path(USUAL_JOURNAL), help=words)
    parser.add_argument("--json", action="store_true", help="one JSON document")


def doctor(options: Namespace) -> int:
    """0 when everything that is needed is there, 1 when something is not."""
    if options.ask is not None:
        from chargehand.cli.doctor_ask import doctor_ask  # noqa: PLC0415 - only this makes a call

        return doctor_ask(options.ask, as_json=options.json)
    if options.workers:
        from chargehand.cli.doctor_workers import doctor_workers  # noqa: PLC0415 - only this needs the runtime

        return doctor_workers(options)
    from chargehand.config.doctor import check_surroundings  # noqa: PLC0415 - --help and completion must not wait for it

    console = Console(sys.stdout)
    lines = check_surroundings(
        options.journal, time.time(), options.team, Path(USUAL_MEMORY), sys.stdout.encoding or ""
    )
    well = not any(line.state == "bad" for line in lines)
    if options.json:
        console.json({"ok": well, "lines": lines})
        return 0 if well else 1
    wide = max(len(clean(line.what)) for line in lines)
    for line in lines:
        word, tone = _WORDS[line.state]
        console.line(f"{word}  {clean(line.what):{wide}}  {clean(line.said)}", tone)
        if line.todo:
            console.line(f"    {'':{wide}}  → {clean(line.todo)}")
    return 0 if well else 1
