"""`chargehand runs`: list, show, export and compare what a journal holds; upkeep is in `runs_upkeep`."""

import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from chargehand.agents.levels import end_of
from chargehand.cli.console import Console, Tone, clean, clean_json, short
from chargehand.cli.levels import show_levels
from chargehand.cli.phrases import dollars
from chargehand.cli.tale import Tale
from chargehand.core.fold import replay
from chargehand.errors import Corrupt, Invalid
from chargehand.runtime.nested_trace import nested_trace
from chargehand.runtime.trace import trace
from chargehand.runtime.traced import Trace
from chargehand.stores.reader import Found, read_readable, read_run, read_runs
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.events import Entry

_SHOWN = 20  # runs in a list
_AGE_ROOM = 6
_LEAST_REQUEST = 20  # characters
_REQUEST_IN_A_PIPE = 80


def runs(options: Namespace) -> int:
    """One of the things that can be done with runs; to list them, where none is named."""
    what: str = vars(options).get("what") or "list"
    return _WHAT[what](options)


# --- list


def _list(options: Namespace) -> int:
    """Every run of a journal, the latest first."""
    found = read_runs(options.journal)
    limit = options.limit
    if limit is None and not options.json:
        limit = _SHOWN
    listed = [_looked_into(options.journal, run) for run in found[:limit]]
    console = Console(sys.stdout)
    if options.json:
        console.line(clean_json(msgspec.json.encode([_facts(run) for run in listed]).decode()))
        return 0
    if not found:
        console.line(f"no runs in {clean(str(options.journal))}")
        return 0
    _show_list(console, listed)
    if len(found) > len(listed):
        console.line(f"… and {len(found) - len(listed)} older; --limit N shows more", "dim")
    return 0


class _Listed(Struct, frozen=True):
    """A run in the list: what was asked, and what it cost so far."""

    found: Found
    request: str = ""
    spent: Amount = NOTHING


def _looked_into(journal: Path, found: Found) -> _Listed:
    """What only the entries tell; also how it ended, where something is missing in a run inside it (old journals)."""
    if found.row.damage:
        return _Listed(found)
    try:
        state = replay(read_run(journal, found.row.run))
    except Corrupt as error:
        damaged = structs.replace(found.row, damage=str(error))
        return _Listed(structs.replace(found, row=damaged, ended=None))
    if found.ended is not None:
        found = structs.replace(found, ended=end_of(state))
    return _Listed(found, state.requested.goal, state.ledger.spent)


def _show_list(console: Console, listed: Sequence[_Listed]) -> None:
    names = [clean(run.found.row.run) for run in listed]
    states = [standing(run.found) for run in listed]
    costs = [_cost(run.spent) for run in listed]
    name_room = max(map(len, ("RUN", *names)))
    state_room = max(len(text) for text, _ in (("STATE", "plain"), *states))
    cost_room = max(map(len, ("COST", *costs)))
    head = f"{'RUN':{name_room}}  {'STATE':{state_room}}  {'COST':>{cost_room}}  {'AGE':>{_AGE_ROOM}}  "
    console.line(f"{head}REQUEST", "bold")
    room = max(_LEAST_REQUEST, console.columns - len(head)) if console.terminal else _REQUEST_IN_A_PIPE
    now = time.time()
    for run, name, (state, tone), cost in zip(listed, names, states, costs, strict=True):
        if run.found.row.damage:
            console.line(f"{name:{name_room}}  " + console.paint(f"damaged: {clean(run.found.row.damage)}", "bad"))
            continue
        age = _age(now - run.found.row.started)
        shown = f"{console.paint(state, tone)}{' ' * (state_room - len(state))}"
        line = f"{name:{name_room}}  {shown}  {cost:>{cost_room}}  {age:>{_AGE_ROOM}}  {short(run.request, room)}"
        console.line(line.rstrip())


def _cost(spent: Amount) -> str:
    """Dollars, or tokens where nothing was charged."""
    if spent.micros:
        return dollars(round(spent.micros, -2) or spent.micros)
    return f"{spent.tokens:,} tok" if spent.tokens else "-"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def standing(found: Found) -> tuple[str, Tone]:
    """How a run ended, or where it stands."""
    if found.row.damage:
        return "damaged", "bad"
    if found.ended is not None:
        tones: dict[str, Tone] = {"complete": "good", "failed": "bad"}
        return found.ended.ending, tones.get(found.ended.ending, "warn")
    if found.waits:
        return "waits for a person", "warn"
    return ("under way", "plain") if found.driven else ("interrupted: resume it", "warn")


def _facts(run: _Listed) -> dict[str, object]:
    found = run.found
    ending = found.ended.ending if found.ended is not None else None
    facts: dict[str, object] = msgspec.structs.asdict(found.row)
    more = {"request": run.request, "cost_usd": run.spent.micros / 1_000_000, "tokens": run.spent.tokens}
    return {**facts, "held": found.driven, "waits": found.waits, "ending": ending, **more}


# --- show


def _show(options: Namespace) -> int:
    """What happened in a run, read off its journal."""
    readable = read_readable(options.journal, options.name)
    entries = readable.entries
    console = Console(sys.stdout)
    if options.jsonl:
        for entry in entries:
            console.line(clean_json(msgspec.json.encode(entry).decode()))
        if readable.damage is not None:
            raise readable.damage
        return 0
    tale = Tale(console, console, jsonl=False)
    tale.hear(options.name, entries)
    if readable.damage is not None:  # what comes of a run cannot be said by a part of it
        raise readable.damage
    tale.close()
    _assessed(console, entries)
    show_levels(console, _traced(options, options.name))
    _audit(console, options.name, entries)
    if tale.state.ended is None:
        console.line(f"go on, if nobody drives it: chargehand resume {clean(shlex.quote(options.name))}")
    return 0


def _assessed(console: Console, entries: Sequence[Entry]) -> None:
    """How far the answer can be relied on, where there is more to say than that all was done."""
    from chargehand.runtime.assessed import assess  # noqa: PLC0415 - only this needs it

    found = assess(entries)
    for line in found.lines() if found.worth_saying else ():
        console.line(clean(line))


def _audit(console: Console, name: str, entries: Sequence[Entry]) -> None:
    """What went wrong in ways that crews are known for, where anything did."""
    from chargehand.runtime.audit import audit  # noqa: PLC0415 - only this needs it

    found = audit(name, entries)
    for one in found:
        where = f"{clean(one.task)}: " if one.task else ""
        done = " (prevented)" if one.prevented else ""
        console.line(f"audit: MAST {one.mode}{done}: {where}{clean(one.message)}", "plain" if one.prevented else "warn")


# --- export


def _traced(options: Namespace, run: str) -> Trace:
    """The trace of a run, with those of the runs inside it."""
    known = [one.row.run for one in read_runs(options.journal)]
    return nested_trace(run, known, lambda name: read_readable(options.journal, name))


def _export(options: Namespace) -> int:
    """Every step of a run as JSON, or as a page to read. Of a damaged one, what can be read, and an error."""
    found = _traced(options, options.name)
    if options.report:
        from chargehand.cli.report import report  # noqa: PLC0415 - only a report needs it

        body = report(found)
    else:
        body = clean_json(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    if options.output is None:
        Console(sys.stdout).line(body)
    else:
        _write(Path(options.output), body)
    if found.damage:
        raise Corrupt(found.damage, run=options.name)
    return 0


def _write(path: Path, body: str) -> None:
    try:
        path.write_text(body + "\n", encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}; name another file with -o") from error
    Console(sys.stderr).line(f"written: {clean(str(path))}")


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


def _upkeep(options: Namespace) -> int:
    from chargehand.cli import runs_upkeep  # noqa: PLC0415 - only this needs it

    verbs = {
        "cancel": runs_upkeep.cancel,
        "prune": runs_upkeep.prune,
        "backup": runs_upkeep.backup,
        "restore": runs_upkeep.restore,
    }
    return verbs[options.what](options)


_WHAT: dict[str, Callable[[Namespace], int]] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "diff": _diff,
    "cancel": _upkeep,
    "prune": _upkeep,
    "backup": _upkeep,
    "restore": _upkeep,
}
