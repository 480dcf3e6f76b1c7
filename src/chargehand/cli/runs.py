"""`chargehand runs`: list, show, export, compare, cancel and prune the runs of a journal; back it up and restore it."""

import asyncio
import shlex
import sys
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from chargehand.agents.levels import end_of
from chargehand.agents.scripted import Script, ScriptedCrew
from chargehand.cli.arguments import RUN_HELP, add_color, add_journal, count, duration
from chargehand.cli.console import Console, Tone, clean, format_json, print_table, short
from chargehand.cli.format import counted, dollars, money, seconds
from chargehand.cli.run_names import is_nested
from chargehand.cli.transcript import Transcript
from chargehand.core.fold import replay
from chargehand.errors import Corrupt, Invalid, Refused
from chargehand.runtime.driver import Driver
from chargehand.runtime.trace import TaskTrace, Trace, attempts_of, nested_trace, trace
from chargehand.stores.maintenance import back_up, prune_runs
from chargehand.stores.maintenance import restore as restore_journal
from chargehand.stores.reader import Found, read_readable, read_run, read_runs
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.events import CancelRequested, Entry

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage] - what add_subparsers returns


_PRUNABLE = ("complete", "partial", "failed", "cancelled", "waiting", "interrupted")
_LIMIT = "the latest N runs (default: 20; with --json all)"


def add_runs(parser: ArgumentParser) -> None:
    add_journal(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    what = parser.add_subparsers(dest="what", metavar="list|show|export|diff|cancel|prune|backup|restore")
    parser.add_argument("--limit", metavar="N", type=count, help=_LIMIT)
    listed = _part(what, "list", "every run, the latest first")
    listed.add_argument("--limit", metavar="N", type=count, default=SUPPRESS, help=_LIMIT)
    listed.add_argument("--json", action="store_true", default=SUPPRESS, help="one JSON document")
    show = _part(what, "show", "what happened in a run, and why")
    show.add_argument("name", metavar="RUN", help=RUN_HELP)
    show.add_argument("--jsonl", action="store_true", help="the entries as JSON lines, and nothing else")
    export = _part(what, "export", "every step of a run: prompts, calls, results, retries, costs")
    export.add_argument("name", metavar="RUN", help=RUN_HELP)
    export.add_argument("--report", action="store_true", help="as a Markdown page to read, not as JSON")
    export.add_argument("-o", "--output", metavar="FILE", help="write it there (default: standard output)")
    diff = _part(what, "diff", "what is different between two runs")
    diff.add_argument("name", metavar="RUN", help=RUN_HELP)
    diff.add_argument("other", metavar="OTHER", help="the run it is compared with")
    diff.add_argument("--json", action="store_true", default=SUPPRESS, help="one JSON document")
    cancel = _part(what, "cancel", "end a run for good; finished work stays in the journal")
    cancel.add_argument("name", metavar="RUN", help=RUN_HELP)
    cancel.add_argument("--reason", metavar="TEXT", default="", help="why, for the journal")
    prune = _part(what, "prune", "delete old runs; safe while a server runs")
    prune.add_argument("--older-than", metavar="TIME", type=duration, help="runs that changed last before: 12h, 30d")
    prune.add_argument("--keep", metavar="N", type=count, help="all but the latest N of these")
    states = "|".join(_PRUNABLE)
    prune.add_argument(
        "--state", action="append", choices=_PRUNABLE, metavar=states, help="only these (default: those that ended)"
    )
    prune.add_argument("--dry-run", action="store_true", help="name them and delete nothing")
    prune.add_argument("--json", action="store_true", default=SUPPRESS, help="one JSON document")
    backup = _part(what, "backup", "copy a journal, as of one moment; safe while a server runs")
    backup.add_argument("file", metavar="FILE", help="the copy, which must not exist yet; large results lie beside it")
    restore = _part(what, "restore", "put a backup where there is no journal yet")
    restore.add_argument("file", metavar="FILE", help="the backup")
    for verb in (listed, show, export, diff, cancel, prune, backup, restore):
        add_journal(verb, nested=True)
        add_color(verb)


def _part(of: "_SubParsersAction[ArgumentParser]", name: str, words: str) -> ArgumentParser:
    return of.add_parser(name, help=words, description=f"{words[:1].upper()}{words[1:]}.")


_SHOWN = 20  # runs in a list
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
        console.json([_facts(run) for run in listed])
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
    now = time.time()
    rows: list[tuple[str, ...]] = []
    tones: list[Tone] = []
    for run in listed:
        row = run.found.row
        state, tone = standing(run.found)
        request = run.request if console.terminal else short(run.request, _REQUEST_IN_A_PIPE)
        facts = ("", "", row.damage) if row.damage else (_cost(run.spent), _age(now - row.started), request)
        rows.append((row.run, state, *facts))
        tones.append("plain" if tone == "good" else tone)
    print_table(console, ("RUN", "STATE", "COST", "AGE", "REQUEST"), rows, tones, right=("COST", "AGE"))


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
            console.json_line(entry)
        if readable.damage is not None:
            raise readable.damage
        return 0
    transcript = Transcript(console, console, jsonl=False)
    transcript.hear(options.name, entries)
    if readable.damage is not None:  # what comes of a run cannot be said by a part of it
        raise readable.damage
    transcript.close()
    _assessed(console, entries)
    print_levels(console, _traced(options, options.name))
    _audit(console, entries)
    if transcript.state.ended is None:
        console.line(f"go on, if nobody drives it: chargehand resume {clean(shlex.quote(options.name))}")
    return 0


def _assessed(console: Console, entries: Sequence[Entry]) -> None:
    """How far the answer can be relied on, where there is more to say than that all was done."""
    from chargehand.runtime.assessed import assess  # noqa: PLC0415 - only this needs it

    found = assess(entries)
    for line in found.lines() if found.worth_saying else ():
        console.line(clean(line))


def _audit(console: Console, entries: Sequence[Entry]) -> None:
    """What went wrong in ways that crews are known for, where anything did."""
    from chargehand.agents.failure_modes import audit_run  # noqa: PLC0415 - only this needs it

    for one in audit_run(entries):
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
        body = format_json(found)
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
    one, other = (trace(name, read_run(options.journal, name)) for name in (options.name, options.other))
    found = differences(one, other)
    console = Console(sys.stdout)
    if options.json:
        console.json(found)
        return 0
    for text, tone in lines(found):
        console.line(text, tone)
    return 0


_TONES: dict[str, Tone] = {"complete": "plain", "failed": "bad"}


def print_levels(console: Console, found: Trace) -> None:
    """The tree, where there is more than one run in it."""
    if not any(attempts_of(found)):
        return
    console.line("levels:", "bold")
    for line, tone in _lines(found, clean(found.run), "  ", "  "):
        console.line(line, tone)


def _lines(found: Trace, name: str, first: str, rest: str) -> Iterator[tuple[str, Tone]]:
    inside = [(task, attempt.worker, one) for task, attempt in attempts_of(found) for one in attempt.runs]
    own = _less(found.used, [one.used for _, _, one in inside])
    reason = f" ({found.reason})" if found.reason in ("budget", "deadline") else ""
    parts = [f"{found.ending or 'not yet'}{reason}", counted(len(found.tasks), "task"), seconds(found.seconds)]
    cost = money(found.used) + (f", of its own {money(own)}" if inside else "")
    yield f"{first}{name}: {', '.join(parts)}; cost: {cost}", _TONES.get(found.ending, "warn")
    for number, (task, worker, one) in enumerate(inside, 1):
        last = number == len(inside)
        branch, under = ("└─ ", "   ") if last else ("├─ ", "│  ")
        label = f"{clean(task)} {clean(worker)} {_kind(one)}"
        yield from _lines(one, f"{label} {clean(one.run)}", f"{rest}{branch}", f"{rest}{under}")


def _kind(found: Trace) -> str:
    return "in" if found.combine != "none" else "asks in"  # nobody sums up what came of a message


def _less(whole: Amount, parts: list[Amount]) -> Amount:
    tokens = sum(one.tokens for one in parts)
    micros = sum(one.micros for one in parts)
    calls = sum(one.calls for one in parts)
    return Amount(
        tokens=max(0, whole.tokens - tokens), micros=max(0, whole.micros - micros), calls=max(0, whole.calls - calls)
    )


class Side(Struct, frozen=True):
    """One of the two runs."""

    run: str
    goal: str
    ending: str
    tasks: int
    attempts: int
    used: Amount
    seconds: float


class Changed(Struct, frozen=True):
    """One thing about a task that is not the same in both runs."""

    task: str
    what: str
    one: str
    other: str


class Differences(Struct, frozen=True):
    one: Side
    other: Side
    only_one: tuple[str, ...]
    only_other: tuple[str, ...]
    changed: tuple[Changed, ...]
    answer: tuple[str, ...]


def differences(one: Trace, other: Trace) -> Differences:
    left, right = ({task.id: task for task in side.tasks} for side in (one, other))
    changed = [found for name, task in left.items() if name in right for found in _changed(task, right[name])]
    return Differences(
        one=_side(one),
        other=_side(other),
        only_one=tuple(name for name in left if name not in right),
        only_other=tuple(name for name in right if name not in left),
        changed=tuple(changed),
        answer=tuple(unified_diff(_answer(one), _answer(other), one.run, other.run, lineterm="", n=1)),
    )


def _side(found: Trace) -> Side:
    attempts = sum(len(task.attempts) for task in found.tasks)
    ending = found.ending or "not yet"
    return Side(
        run=found.run,
        goal=found.goal,
        ending=ending,
        tasks=len(found.tasks),
        attempts=attempts,
        used=found.used,
        seconds=found.seconds,
    )


def _answer(found: Trace) -> list[str]:
    if isinstance(found.answer, str):
        return found.answer.splitlines()
    return [] if found.answer is None else format_json(found.answer).splitlines()


def _changed(one: TaskTrace, other: TaskTrace) -> Iterator[Changed]:
    pairs = (
        ("instruction", one.instruction, other.instruction),
        ("worker", one.worker, other.worker),
        ("needs", ", ".join(one.after), ", ".join(other.after)),
        ("status", one.status, other.status),
        ("attempts", str(len(one.attempts)), str(len(other.attempts))),
        ("result", _short_value(one.result), _short_value(other.result)),
    )
    yield from (Changed(task=one.id, what=what, one=left, other=right) for what, left, right in pairs if left != right)


def _short_value(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def lines(found: Differences) -> Iterator[tuple[str, Tone]]:
    """The differences in words, a tone for each line."""
    wide = max(len(clean(found.one.run)), len(clean(found.other.run)))
    for side in (found.one, found.other):
        facts = f"{side.ending}, {side.tasks} tasks, {side.attempts} attempts, {seconds(side.seconds)}"
        yield f"{clean(side.run):{wide}}  {facts}, {money(side.used)}", "bold"
    if found.one.goal != found.other.goal:
        yield f"- goal: {short(found.one.goal, 100)}", "bad"
        yield f"+ goal: {short(found.other.goal, 100)}", "good"
    for name in found.only_one:
        yield f"- task {clean(name)}", "bad"
    for name in found.only_other:
        yield f"+ task {clean(name)}", "good"
    for one in found.changed:
        yield f"  {clean(one.task)}: {one.what}", "plain"
        yield f"-   {short(one.one, 100)}", "bad"
        yield f"+   {short(one.other, 100)}", "good"
    for line in found.answer:
        tone: Tone = "bad" if line.startswith("-") else "good" if line.startswith("+") else "dim"
        yield clean(line), tone
    if not (found.only_one or found.only_other or found.changed or found.answer):
        yield "no difference in plan, results or answer", "plain"


RunStatus: TypeAlias = Literal["complete", "partial", "failed", "cancelled", "running", "waiting", "interrupted"]
ENDED: tuple[RunStatus, ...] = ("complete", "partial", "failed", "cancelled")


def status_of(found: Found) -> RunStatus:
    """How a run ended, or where it stands."""
    if found.ended is not None and found.ended.ending != "needs_input":
        return found.ended.ending
    if found.driven:
        return "running"
    return "waiting" if found.waits else "interrupted"


def prune(options: Namespace) -> int:
    """Delete old runs, with the runs inside them."""
    if options.older_than is None and options.keep is None:
        raise Invalid("say which runs may go: --older-than 30d, --keep 100, or both")
    found = read_runs(options.journal)
    before = None if options.older_than is None else time.time() - options.older_than
    chosen = _chosen(found, states=options.state or ENDED, before=before, keep=options.keep or 0)
    names = _with_nested([run.row.run for run in chosen], [run.row.run for run in found])
    console = Console(sys.stdout)
    if options.dry_run:
        for name in names:
            console.line(clean(name))
        console.line(f"{len(names)} of {len(found)} runs would be deleted")
        return 0
    pruned = prune_runs(options.journal, names)
    if options.json:
        console.json(pruned)
        return 0
    blobs = f" and {pruned.blobs} large results ({pruned.bytes:,} bytes)" if pruned.blobs else ""
    console.line(f"deleted {len(pruned.runs)} of {len(found)} runs{blobs}")
    for name in pruned.held:
        console.line(f"kept, because a process drives it: {clean(name)}", "warn")
    return 0


def cancel(options: Namespace) -> int:
    """End a run that nobody drives, with the runs inside it."""
    journal = Path(options.journal)
    state = replay(read_run(journal, options.name))
    if state.ended is not None:
        raise Refused(f"run {options.name!r} has ended ({state.ended.ending}); there is nothing to cancel")
    if (parent := state.requested.parent) is not None:
        raise Refused(f"run {options.name!r} works for run {parent.run!r}; cancel that one")
    unfinished = [run.row.run for run in read_runs(journal) if run.ended is None]
    names = [options.name, *(name for name in unfinished if is_nested(name, {options.name}))]
    asyncio.run(_cancel(journal, names, options.reason))
    console = Console(sys.stdout)
    for name in names:
        console.line(f"cancelled: {clean(name)}")
    return 0


async def _cancel(journal: Path, names: Sequence[str], reason: str) -> None:
    opened = await SqliteJournal.open(journal)
    try:
        driver = Driver(opened, ScriptedCrew(Script()))  # nobody is asked to do anything
        for name in names:
            await driver.resume(name, CancelRequested(reason))
    finally:
        await opened.close()


def _chosen(found: Sequence[Found], *, states: Sequence[str], before: float | None, keep: int) -> list[Found]:
    """Runs in these states that changed last before this time, but for the latest `keep`; not those inside others."""
    names = {run.row.run for run in found}
    roots = [run for run in found if not is_nested(run.row.run, names)]
    fitting = [run for run in roots if status_of(run) in states]
    fitting.sort(key=lambda run: run.row.changed, reverse=True)
    return [run for run in fitting[keep:] if before is None or run.row.changed < before]


def _with_nested(chosen: Sequence[str], names: Sequence[str]) -> list[str]:
    roots = set(chosen)
    return [name for name in names if name in roots or is_nested(name, roots)]


def backup(options: Namespace) -> int:
    """Copy a journal and its large results, as of one moment."""
    target = Path(options.file)
    copied = back_up(options.journal, target)
    Console(sys.stdout).line(f"{clean(str(target))}: {copied.runs} runs, {copied.blobs} large results")
    return 0


def restore(options: Namespace) -> int:
    """Put a backup where there is no journal."""
    copied = restore_journal(Path(options.file), options.journal)
    Console(sys.stdout).line(f"{clean(str(options.journal))}: {copied.runs} runs, {copied.blobs} large results")
    return 0


_WHAT: dict[str, Callable[[Namespace], int]] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "diff": _diff,
    "cancel": cancel,
    "prune": prune,
    "backup": backup,
    "restore": restore,
}
