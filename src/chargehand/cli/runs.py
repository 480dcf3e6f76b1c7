"""`chargehand runs`: list, show, export and compare what a journal holds. Nothing is taken over or written."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from chargehand.cli.console import Console, Tone, clean, clean_json
from chargehand.cli.tale import Tale
from chargehand.errors import Invalid
from chargehand.runtime.trace import trace
from chargehand.stores.reader import Found, read_run, read_runs
from chargehand.terms.events import Entry


def runs(options: Namespace) -> int:
    """One of the things that can be done with runs; to list them, where none is named."""
    what: str = vars(options).get("what") or "list"
    return _WHAT[what](options)


# --- list


def _list(options: Namespace) -> int:
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
        text, tone = standing(one)
        shown = f"{clean(one.row.run):{wide}}  {begun}  {took:8.1f} s  {one.row.seq:6} entries  "
        console.line(shown + console.paint(text, tone))
    return 0


def standing(found: Found) -> tuple[str, Tone]:
    """How a run ended, or where it stands."""
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


# --- show


def _show(options: Namespace) -> int:
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
    _audit(console, options.name, entries)
    if tale.state.ended is None:
        console.line(f"go on, if nobody drives it: chargehand resume {clean(shlex.quote(options.name))}")
    return 0


def _audit(console: Console, name: str, entries: Sequence[Entry]) -> None:
    """What went wrong in ways that crews are known for, where anything did."""
    from chargehand.runtime.audit import audit  # noqa: PLC0415 - only this needs it

    found = audit(name, entries)
    for one in found:
        where = f"{clean(one.task)}: " if one.task else ""
        done = " (prevented)" if one.prevented else ""
        console.line(f"audit: MAST {one.mode}{done}: {where}{clean(one.message)}", "plain" if one.prevented else "warn")


# --- export


def _export(options: Namespace) -> int:
    """Every step of a run as JSON, or as a page to read."""
    found = trace(options.name, read_run(options.journal, options.name))
    if options.report:
        from chargehand.cli.report import report  # noqa: PLC0415 - only a report needs it

        body = report(found)
    else:
        body = clean_json(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    if options.output is None:
        Console(sys.stdout).line(body)
        return 0
    path = Path(options.output)
    try:
        path.write_text(body + "\n", encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}; name another file with -o") from error
    Console(sys.stderr).line(f"written: {clean(str(path))}")
    return 0


# --- diff


def _diff(options: Namespace) -> int:
    """What is different between two runs."""
    from chargehand.cli.differ import differences, lines  # noqa: PLC0415 - only this needs it

    one, other = (trace(name, read_run(options.journal, name)) for name in (options.name, options.other))
    found, console = differences(one, other), Console(sys.stdout)
    if options.json:
        console.line(clean_json(msgspec.json.format(msgspec.json.encode(found), indent=2).decode()))
        return 0
    for text, tone in lines(found):
        console.line(text, tone)
    return 0


_WHAT: dict[str, Callable[[Namespace], int]] = {"list": _list, "show": _show, "export": _export, "diff": _diff}
