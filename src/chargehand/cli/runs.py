"""`chargehand runs`: list, show, export, cancel and prune the runs of a journal; its webhooks; backups."""

import asyncio
import sys
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs
from rich.text import Text
from rich.tree import Tree

from chargehand.agents.audit.assessment import assess
from chargehand.agents.audit.failure_modes import FailureMode, audit_run
from chargehand.agents.run_document import State, explain_end, read_state
from chargehand.agents.scripted import Script, ScriptedExecutor
from chargehand.cli.arguments import (
    RUN_HELP,
    Options,
    Verb,
    add_options,
    add_verbs,
    count,
    duration,
    shared,
    write_file,
)
from chargehand.cli.console import STYLES, Console, Tone, clean, format_json, print_table, short
from chargehand.cli.format import ago, cost, counted, dollars, seconds
from chargehand.cli.run_session import Advice, run_json
from chargehand.cli.states import STATES, state_of_run
from chargehand.cli.transcript import Transcript, has_checked_section
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.events import CancelRequested, Entry
from chargehand.engine.failure import describe_call
from chargehand.engine.fold import replay
from chargehand.engine.state import RunState
from chargehand.errors import Corrupt, Invalid, Refused, RunBusy
from chargehand.journal.protocol import Readable, RunRow, nested_runs
from chargehand.journal.store import (
    back_up,
    list_deliveries,
    list_inside,
    list_runs,
    opened_journal,
    prune_runs,
    read_readable,
    read_row,
    read_run,
    restore,
)
from chargehand.runtime.commands import send_command
from chargehand.runtime.runner import Runner
from chargehand.runtime.trace import (
    Trace,
    Tracer,
    attempts_with_runs,
    nested_trace,
    trace_readable,
)

_MAX_LISTED = 20
_MAX_REQUEST = 80  # characters of a request


def add_runs(parser: ArgumentParser) -> None:
    add_verbs(parser, _VERBS, "--store", "--journal", "--no-color")
    add_options(parser, {**shared("--json"), **_LIMIT})


def runs(options: Namespace) -> int:
    """One of the things that can be done with runs; to list them, where none is named."""
    verb: str = vars(options).get("what") or "list"
    return _VERBS[verb].function(options, Console(sys.stdout))


# --- list


def _list(options: Namespace, console: Console) -> int:
    """Every run of a journal, the latest first."""
    rows = list_runs(options.journal)
    limit = options.limit
    if limit is None and not options.json:
        limit = _MAX_LISTED
    listed = [_read_state(options.journal, row) for row in rows[:limit]]
    if options.json:
        console.json([_document(row, state) for row, state in listed])
        return 0
    if not rows:
        console.line(f"no runs in {options.journal}")
        return 0
    tones: list[Tone] = []
    lines: list[tuple[str, ...]] = []
    for row, state in listed:
        tones.append(STATES[_state(row, state)].tone)
        lines.append(_table_row(row, state))
        if state is not None and (why := explain_end(state)):
            tones.append("dim")
            lines.append(("", "", "", "", f"  {why}"))
    print_table(console, ("RUN", "STATE", "COST", "AGE", "REQUEST"), lines, tones, right=("COST", "AGE"))
    if len(rows) > len(listed):
        console.line(f"… and {len(rows) - len(listed)} older; --limit N shows more", "dim")
    return 0


def _table_row(row: RunRow, state: RunState | None) -> tuple[str, ...]:
    word = STATES[_state(row, state)].word
    if state is None:
        return (row.run, word, "", "", row.damage)
    request = short(state.requested.goal, _MAX_REQUEST)
    return (row.run, word, _cost(state.ledger.spent), ago(row.started, time.time()), request)


def _read_state(journal: Path, row: RunRow) -> tuple[RunRow, RunState | None]:
    """The row of a run with its state; None where it is damaged."""
    try:
        return row, None if row.damage else replay(read_run(journal, row.run))
    except Corrupt as error:
        return structs.replace(row, damage=str(error)), None


def _state(row: RunRow, state: RunState | None) -> State:
    """How a run ended, or where it stands: a key of `STATES`."""
    return "damaged" if state is None else read_state(state, is_driven=row.held)


def _cost(spent: Amount) -> str:
    """Dollars, or tokens where nothing was charged."""
    if spent.micros:
        return dollars(round(spent.micros, -2) or spent.micros)
    return f"{spent.tokens:,} tok" if spent.tokens else "-"


def _document(row: RunRow, state: RunState | None) -> dict[str, object]:
    spent = NOTHING if state is None else state.ledger.spent
    return {
        "run": row.run,
        "state": _state(row, state),
        "seq": row.seq,
        "started": row.started,
        "changed": row.changed,
        "damage": row.damage,
        "reason": "" if state is None or state.ended is None else state.ended.reason,
        "why": "" if state is None else explain_end(state),
        "request": "" if state is None else state.requested.goal,
        "usd": spent.usd,
        "tokens": spent.tokens,
    }


# --- show and export


def _show(options: Namespace, console: Console) -> int:
    """What happened in a run, read off its journal."""
    readable = read_readable(options.journal, options.name)
    transcript = Transcript(console, console)
    if options.jsonl:
        for entry in readable.entries:
            console.json_line(entry)
    elif not options.json:
        transcript.show(options.name, readable.entries)
    if readable.damage is not None:  # what comes of a run cannot be said by a part of it
        raise readable.damage
    is_driven = read_row(options.journal, options.name).held
    if options.json:
        console.json(run_json(Tracer.replay(options.name, readable.entries), is_driven=is_driven))
    elif not options.jsonl:
        _show_end(options, transcript, readable.entries, is_driven=is_driven)
    return 0


def _show_end(options: Namespace, transcript: Transcript, entries: Sequence[Entry], *, is_driven: bool) -> None:
    console = transcript.console
    transcript.close(is_driven=is_driven)
    assessment = assess(transcript.state)
    checked = assessment.lines() if assessment.worth_saying else []
    for line in checked[1:] if has_checked_section(transcript.state) else checked:
        console.line(line)
    traced = nested_trace(transcript.tracer, _read_nested(options))
    if any(attempts_with_runs(traced)):
        console.line("levels:", "bold")
        tree = Tree(_level_label(traced, ""))
        _add_levels(tree, traced)
        console.draw(tree)
    for finding in audit_run(entries, transcript.state):
        console.line(f"audit: {_describe_mode(finding)}", "plain" if finding.prevented else "warn")
    if transcript.state.ended is None:
        queue = transcript.state.requested.queue
        if queue and state_of_run(transcript.state) in ("running", "planning"):
            console.line(f"workers of the queue {queue} drive it; whether there are any: chargehand doctor --cluster")
        else:
            advice = Advice(options.name, options.journal)
            console.line(f"go on, if no process drives it: {advice.going_on(transcript.state)}")


def _describe_mode(finding: FailureMode) -> str:
    """A failure mode of agent teams that a run met."""
    task = f"{finding.task}: " if finding.task else ""
    return f"MAST {finding.mode}{' (prevented)' if finding.prevented else ''}: {task}{finding.message}"


def _read_nested(options: Namespace) -> dict[str, Readable]:
    """The entries of the runs inside a run."""
    return {name: read_readable(options.journal, name) for name in list_inside(options.journal, options.name)}


def _add_levels(tree: Tree, traced: Trace) -> None:
    for task, attempt in attempts_with_runs(traced):
        for run in attempt.runs:
            kind = "in" if run.combine != "none" else "asks in"  # the results of a message are not combined
            _add_levels(tree.add(_level_label(run, f"{task} {attempt.worker} {kind} ")), run)


def _level_label(traced: Trace, lead: str) -> Text:
    facts = (traced.ending or "not yet", counted(len(traced.tasks), "task"), seconds(traced.seconds))
    style = STYLES[STATES[traced.ending or "interrupted"].tone]
    return Text(clean(f"{lead}{traced.run}: {', '.join(facts)}; cost: {cost(traced.used, traced.lost)}"), style)


def _export(options: Namespace, console: Console) -> int:
    """Every step of a run as JSON. Of a damaged one, what can be read, and an error."""
    tracer = trace_readable(options.name, read_readable(options.journal, options.name))
    traced = nested_trace(tracer, _read_nested(options))
    if options.output is None:
        console.json(traced)
    else:
        write_file(options.output, format_json(traced))
        Console(sys.stderr).line(f"written: {options.output}")
    if traced.damage:
        raise Corrupt(traced.damage, run=options.name)
    return 0


# --- cancel and prune, backup and restore


def _cancel(options: Namespace, console: Console) -> int:
    """End a run, with the runs inside it. One that a process drives is told to stop, where the store carries that."""
    state = replay(read_run(options.journal, options.name))
    if state.ended is not None:
        raise Refused(f"run {options.name!r} has ended ({state.ended.ending}); there is nothing to cancel")
    if (parent := state.requested.parent) is not None:
        raise Refused(f"run {options.name!r} works for run {parent.run!r}; cancel that one")
    inside = [read_row(options.journal, name) for name in list_inside(options.journal, options.name)]
    nested = [row.run for row in inside if row.ended is None and not row.damage]
    described: set[str] = set()
    for name in asyncio.run(_cancel_all(options, nested)):
        doubts = [doubt for doubt in _describe_doubts(options, name) if doubt not in described]
        described.update(doubts)
        console.line("; ".join((f"cancelled: {name}", *doubts)), "warn" if doubts else "plain")
    return 0


def _describe_doubts(options: Namespace, name: str) -> list[str]:
    """Return the calls of a cancelled run of which nobody knows whether they happened, in words."""
    end = replay(read_run(options.journal, name)).ended
    doubts = [gap for gap in end.gaps if gap.reason == "uncertain" and gap.tool] if end is not None else []
    return list(dict.fromkeys(f"not known whether {describe_call(gap.tool, gap.arguments)} happened" for gap in doubts))


async def _cancel_all(options: Namespace, nested: list[str]) -> list[str]:
    """The runs that were cancelled: a process that drives the run cancels those inside it by itself."""
    async with opened_journal(options.journal) as journal:
        runner = Runner(journal, ScriptedExecutor(Script()))  # no worker is called
        if not await _cancel_here(runner, options.name, options.reason):
            return [options.name]
        for name in nested:
            if (await journal.row(name)).ended is None:
                await _cancel_here(runner, name, options.reason)
        return [options.name, *nested]


async def _cancel_here(runner: Runner, name: str, reason: str) -> bool:
    """Cancel a run; False if another process drives it and did so."""
    cancelled = CancelRequested(reason)
    try:
        await runner.resume(name, cancelled)
    except RunBusy:
        if runner.journal.commands is None:
            raise
        await send_command(runner.journal, name, cancelled, lambda: runner.resume(name))
        return False
    return True


def _prune(options: Namespace, console: Console) -> int:
    """Delete old runs, with the runs inside them."""
    if options.older_than is None and options.keep is None:
        raise Invalid("say which runs may go: --older-than 30d, --keep 100, or both")
    rows = list_runs(options.journal)
    names = _choose_prunable(rows, options)
    if options.dry_run:
        for name in names:
            console.line(name)
        console.line(f"{len(names)} of {len(rows)} runs would be deleted")
        return 0
    pruned = prune_runs(options.journal, names)
    if options.json:
        console.json(pruned)
        return 0
    blobs = f" and {pruned.blobs} large results ({pruned.bytes:,} bytes)" if pruned.blobs else ""
    console.line(f"deleted {len(pruned.runs)} of {len(rows)} runs{blobs}")
    for name in pruned.held:
        console.line(f"kept, because a process drives it: {name}", "warn")
    return 0


def _choose_prunable(rows: Sequence[RunRow], options: Namespace) -> list[str]:
    """Runs that ended before that time, but for the latest; with those inside them."""
    outer = [row for row in rows if _has_ended(row) and row.request is not None and row.request.parent is None]
    outer.sort(key=lambda row: row.changed, reverse=True)
    before = time.time() - (options.older_than or 0)
    chosen = [row.run for row in outer[options.keep or 0 :] if row.changed < before]
    return sorted((*chosen, *nested_runs(chosen, rows)))


def _has_ended(row: RunRow) -> bool:
    return not row.damage and row.ended is not None and row.ended.ending != "needs_input"


def _webhooks(options: Namespace, console: Console) -> int:
    """What is owed to webhooks, and what was given up."""
    deliveries = list_deliveries(options.journal)
    if options.json:
        console.json([structs.asdict(delivery) for delivery in deliveries])
        return 0
    late = [delivery for delivery in deliveries if delivery.tries]
    rows = [
        (
            delivery.run,
            delivery.webhook,
            "given up" if delivery.given_up else "late",
            str(delivery.tries),
            delivery.error,
        )
        for delivery in late
    ]
    tones: list[Tone] = ["bad" if delivery.given_up else "warn" for delivery in late]
    if rows:
        print_table(console, ("RUN", "WEBHOOK", "STATE", "TRIES", "ERROR"), rows, tones, right=("TRIES",))
    console.line(f"{len(deliveries) - len(late)} webhooks wait for events of their runs, {len(late)} could not be told")
    return 0


def _backup(options: Namespace, console: Console) -> int:
    """Copy a journal and its large results, as of one moment."""
    copied = back_up(options.journal, options.file)
    console.line(f"{options.file}: {copied.runs} runs, {copied.blobs} large results")
    return 0


def _restore(options: Namespace, console: Console) -> int:
    """Put a backup where there is no journal."""
    copied = restore(options.file, options.journal)
    console.line(f"{options.journal}: {copied.runs} runs, {copied.blobs} large results")
    return 0


# --- the verbs

_LIMIT: Options = {
    "--limit": {"metavar": "N", "type": count, "help": f"the latest N runs (default: {_MAX_LISTED}; with --json all)"}
}
_NAME: Options = {"name": {"metavar": "RUN", "help": RUN_HELP}}
_JSON = shared("--json", nested=True)
_VERBS = {
    "list": Verb(
        "every run, the latest first", {**_JSON, "--limit": {**_LIMIT["--limit"], "default": SUPPRESS}}, _list
    ),
    "show": Verb("what happened in a run, and why", {**_NAME, **_JSON, **shared("--jsonl")}, _show),
    "export": Verb(
        "every step of a run: prompts, calls, results, retries, costs",
        {
            **_NAME,
            "-o --output": {"metavar": "FILE", "type": Path, "help": "write it there (default: standard output)"},
        },
        _export,
    ),
    "cancel": Verb(
        "end a run for good; finished work stays in the journal",
        {**_NAME, "--reason": {"metavar": "TEXT", "default": "", "help": "why, for the journal"}},
        _cancel,
    ),
    "prune": Verb(
        "delete old runs; safe while a server runs",
        {
            **_JSON,
            "--older-than": {"metavar": "TIME", "type": duration, "help": "runs that ended before: 12h, 30d"},
            "--keep": {"metavar": "N", "type": count, "help": "all but the latest N of these"},
            "--dry-run": {"action": "store_true", "help": "name them and delete nothing"},
        },
        _prune,
    ),
    "webhooks": Verb("what webhooks could not be told of", _JSON, _webhooks),
    "backup": Verb(
        "copy a journal, as of one moment; safe while a server runs",
        {"file": {"metavar": "FILE", "type": Path, "help": "the copy, which must not exist yet"}},
        _backup,
    ),
    "restore": Verb(
        "put a backup where there is no journal yet",
        {"file": {"metavar": "FILE", "type": Path, "help": "the backup"}},
        _restore,
    ),
}
