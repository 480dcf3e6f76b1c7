"""`chargehand runs`: list, show, export, compare, cancel and prune the runs of a journal; back it up and restore it."""

import asyncio
import sys
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs
from rich.text import Text
from rich.tree import Tree

from chargehand.agents.audit.assessment import assess
from chargehand.agents.audit.failure_modes import FailureMode, audit_run
from chargehand.agents.scripted import Script, ScriptedExecutor
from chargehand.cli.arguments import RUN_HELP, add_shared, add_verbs, count, duration, is_nested, write_file
from chargehand.cli.console import STYLES, Console, Tone, clean, format_json, print_table, short
from chargehand.cli.format import ago, counted, dollars, money, seconds
from chargehand.cli.report import report
from chargehand.cli.run_session import Advice, run_document
from chargehand.cli.transcript import Transcript
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.events import CancelRequested, Entry
from chargehand.engine.fold import replay
from chargehand.engine.state import RunState
from chargehand.errors import Corrupt, Invalid, Refused
from chargehand.journal.protocol import Readable, RunRow
from chargehand.journal.store import (
    back_up,
    list_open_runs,
    list_runs,
    open_journal,
    prune_runs,
    read_readable,
    read_run,
    restore,
)
from chargehand.runtime.runner import Runner
from chargehand.runtime.trace import Trace, Tracer, attempts_with_runs, nested_trace, trace, trace_readable

RunStatus: TypeAlias = Literal[
    "complete", "partial", "failed", "cancelled", "running", "waiting", "interrupted", "damaged"
]
_ENDED: tuple[RunStatus, ...] = ("complete", "partial", "failed", "cancelled")
_PRUNABLE: tuple[RunStatus, ...] = (*_ENDED, "waiting", "interrupted")
_MAX_LISTED = 20
_MAX_REQUEST = 80  # characters of a request in a pipe
_TONES: dict[str, Tone] = {"complete": "plain", "running": "plain", "failed": "bad", "damaged": "bad"}
_ABOUT = {
    "list": "every run, the latest first",
    "show": "what happened in a run, and why",
    "export": "every step of a run: prompts, calls, results, retries, costs",
    "diff": "what is different between two runs",
    "cancel": "end a run for good; finished work stays in the journal",
    "prune": "delete old runs; safe while a server runs",
    "backup": "copy a journal, as of one moment; safe while a server runs",
    "restore": "put a backup where there is no journal yet",
}


def add_runs(parser: ArgumentParser) -> None:
    verbs = add_verbs(parser, _ABOUT, "--journal", "--no-color")
    add_shared(parser, "--json")
    limit = f"the latest N runs (default: {_MAX_LISTED}; with --json all)"
    parser.add_argument("--limit", metavar="N", type=count, help=limit)
    verbs["list"].add_argument("--limit", metavar="N", type=count, default=SUPPRESS, help=limit)
    for name in ("list", "show", "diff", "prune"):
        add_shared(verbs[name], "--json", nested=True)
    for name in ("show", "export", "diff", "cancel"):
        verbs[name].add_argument("name", metavar="RUN", help=RUN_HELP)
    add_shared(verbs["show"], "--jsonl")
    verbs["export"].add_argument("--report", action="store_true", help="as a Markdown page to read, not as JSON")
    about = "write it there (default: standard output)"
    verbs["export"].add_argument("-o", "--output", metavar="FILE", type=Path, help=about)
    verbs["diff"].add_argument("other", metavar="OTHER", help="the run it is compared with")
    verbs["cancel"].add_argument("--reason", metavar="TEXT", default="", help="why, for the journal")
    about = "runs that changed last before: 12h, 30d"
    verbs["prune"].add_argument("--older-than", metavar="TIME", type=duration, help=about)
    verbs["prune"].add_argument("--keep", metavar="N", type=count, help="all but the latest N of these")
    about = "only these (default: those that ended)"
    states = "|".join(_PRUNABLE)
    verbs["prune"].add_argument("--state", action="append", choices=_PRUNABLE, metavar=states, help=about)
    verbs["prune"].add_argument("--dry-run", action="store_true", help="name them and delete nothing")
    about = "the copy, which must not exist yet; large results lie beside it"
    verbs["backup"].add_argument("file", metavar="FILE", type=Path, help=about)
    verbs["restore"].add_argument("file", metavar="FILE", type=Path, help="the backup")


def runs(options: Namespace) -> int:
    """One of the things that can be done with runs; to list them, where none is named."""
    verb: str = vars(options).get("what") or "list"
    return _VERBS[verb](options, Console(sys.stdout))


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
        status = _status(row, state)
        tones.append(_TONES.get(status, "warn"))
        if state is None:
            lines.append((row.run, status, "", "", row.damage))
            continue
        goal = state.requested.goal
        request = goal if console.terminal else short(goal, _MAX_REQUEST)
        lines.append((row.run, status, _cost(state.ledger.spent), ago(row.started, time.time()), request))
    print_table(console, ("RUN", "STATE", "COST", "AGE", "REQUEST"), lines, tones, right=("COST", "AGE"))
    if len(rows) > len(listed):
        console.line(f"… and {len(rows) - len(listed)} older; --limit N shows more", "dim")
    return 0


def _read_state(journal: Path, row: RunRow) -> tuple[RunRow, RunState | None]:
    """The row of a run with its state; None where it is damaged."""
    try:
        return row, None if row.damage else replay(read_run(journal, row.run))
    except Corrupt as error:
        return structs.replace(row, damage=str(error)), None


def _status(row: RunRow, state: RunState | None) -> RunStatus:
    """How a run ended, or where it stands."""
    if state is None:
        return "damaged"
    if state.ended is not None and state.ended.ending != "needs_input":
        return state.ended.ending
    if row.held:
        return "running"
    return "waiting" if state.input is not None else "interrupted"


def _cost(spent: Amount) -> str:
    """Dollars, or tokens where nothing was charged."""
    if spent.micros:
        return dollars(round(spent.micros, -2) or spent.micros)
    return f"{spent.tokens:,} tok" if spent.tokens else "-"


def _document(row: RunRow, state: RunState | None) -> dict[str, object]:
    status = _status(row, state)
    spent = NOTHING if state is None else state.ledger.spent
    return {
        "run": row.run,
        "seq": row.seq,
        "started": row.started,
        "changed": row.changed,
        "type": "" if row.last is None else row.last.event.__struct_config__.tag,
        "epoch": row.epoch,
        "damage": row.damage,
        "state": status,
        "held": status == "running",
        "waits": state is not None and state.ended is None and state.input is not None,
        "ending": state.ended.ending if state is not None and state.ended is not None else None,
        "request": "" if state is None else state.requested.goal,
        "cost_usd": spent.micros / 1_000_000,
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
    if options.json:
        console.json(run_document(Tracer.replay(options.name, readable.entries)))
    elif not options.jsonl:
        _show_end(options, transcript, readable.entries)
    return 0


def _show_end(options: Namespace, transcript: Transcript, entries: Sequence[Entry]) -> None:
    console = transcript.console
    transcript.close()
    assessment = assess(transcript.state)
    for line in assessment.lines() if assessment.worth_saying else ():
        console.line(line)
    traced = nested_trace(transcript.tracer, _read_nested(options))
    if any(attempts_with_runs(traced)):
        console.line("levels:", "bold")
        tree = Tree(_level_label(traced, ""))
        _add_levels(tree, traced)
        console.draw(tree)
    for finding in audit_run(entries, transcript.state):
        console.line(f"audit: {describe_mode(finding)}", "plain" if finding.prevented else "warn")
    if transcript.state.ended is None:
        advice = Advice(options.name, options.journal)
        console.line(f"go on, if no process drives it: {advice.going_on(transcript.state)}")


def describe_mode(finding: FailureMode) -> str:
    """A failure mode of agent teams that a run met."""
    task = f"{finding.task}: " if finding.task else ""
    return f"MAST {finding.mode}{' (prevented)' if finding.prevented else ''}: {task}{finding.message}"


def _read_nested(options: Namespace) -> dict[str, Readable]:
    """The entries of the runs inside a run."""
    names = [row.run for row in list_runs(options.journal) if row.run.startswith(f"{options.name}/")]
    return {name: read_readable(options.journal, name) for name in names}


def _add_levels(tree: Tree, traced: Trace) -> None:
    for task, attempt in attempts_with_runs(traced):
        for run in attempt.runs:
            kind = "in" if run.combine != "none" else "asks in"  # the results of a message are not combined
            _add_levels(tree.add(_level_label(run, f"{task} {attempt.worker} {kind} ")), run)


def _level_label(traced: Trace, lead: str) -> Text:
    inner = [run.used for _, attempt in attempts_with_runs(traced) for run in attempt.runs]
    reason = f" ({traced.reason})" if traced.reason in ("budget", "deadline") else ""
    facts = [f"{traced.ending or 'not yet'}{reason}", counted(len(traced.tasks), "task"), seconds(traced.seconds)]
    cost = money(traced.used)
    if inner:
        cost += f", of its own {money(traced.used.beyond(sum(inner, start=NOTHING)))}"
    tone = _TONES.get(traced.ending, "warn")
    return Text(clean(f"{lead}{traced.run}: {', '.join(facts)}; cost: {cost}"), STYLES[tone])


def _export(options: Namespace, console: Console) -> int:
    """Every step of a run as JSON, or as a page to read. Of a damaged one, what can be read, and an error."""
    tracer = trace_readable(options.name, read_readable(options.journal, options.name))
    traced = nested_trace(tracer, _read_nested(options))
    body = report(traced) if options.report else format_json(traced)
    if options.output is None:
        console.text(body)
    else:
        write_file(options.output, body)
        Console(sys.stderr).line(f"written: {options.output}")
    if traced.damage:
        raise Corrupt(traced.damage, run=options.name)
    return 0


# --- diff


def _diff(options: Namespace, console: Console) -> int:
    """What is different between two runs: goal, tasks, results, answer."""
    traces = [trace(name, read_run(options.journal, name)) for name in (options.name, options.other)]
    before, after = (_comparable_lines(traced) for traced in traces)
    changes = list(unified_diff(before, after, options.name, options.other, lineterm="", n=1))
    if options.json:
        console.json({"runs": [_summarize(traced) for traced in traces], "diff": changes})
        return 0
    width = max(len(traced.run) for traced in traces)
    for traced in traces:
        console.line(f"{traced.run:{width}}  {_summarize(traced)}", "bold")
    for line in changes:
        tone: Tone = "bad" if line.startswith("-") else "good" if line.startswith("+") else "dim"
        console.line(line, tone)
    if not changes:
        console.line("no difference in plan, results or answer")
    return 0


def _summarize(traced: Trace) -> str:
    attempts = sum(task.attempt_count for task in traced.tasks)
    counts = f"{counted(len(traced.tasks), 'task')}, {counted(attempts, 'attempt')}"
    return f"{traced.ending or 'not yet'}, {counts}, {seconds(traced.seconds)}, {money(traced.used)}"


def _comparable_lines(traced: Trace) -> list[str]:
    lines = [f"goal: {traced.goal}"]
    for task in traced.tasks:
        facts = {
            "instruction": task.instruction,
            "worker": task.worker,
            "needs": ", ".join(task.after),
            "status": task.status,
            "attempts": task.attempt_count,
            "result": msgspec.json.encode(task.result).decode(),
        }
        lines += [f"task {task.id}", *(f"  {task.id}: {name}: {value}" for name, value in facts.items())]
    answer = traced.answer if isinstance(traced.answer, str) else format_json(traced.answer)
    return [*lines, "answer:", *answer.splitlines()]


# --- cancel and prune, backup and restore


def _cancel(options: Namespace, console: Console) -> int:
    """End a run that no process drives, with the runs inside it."""
    state = replay(read_run(options.journal, options.name))
    if state.ended is not None:
        raise Refused(f"run {options.name!r} has ended ({state.ended.ending}); there is nothing to cancel")
    if (parent := state.requested.parent) is not None:
        raise Refused(f"run {options.name!r} works for run {parent.run!r}; cancel that one")
    nested = [row.run for row in list_open_runs(options.journal) if is_nested(row.run, {options.name})]
    names = [options.name, *nested]

    async def cancel_all() -> None:
        journal = await open_journal(options.journal)
        try:
            driver = Runner(journal, ScriptedExecutor(Script()))  # no worker is called
            for name in names:
                await driver.resume(name, CancelRequested(options.reason))
        finally:
            await journal.close()

    asyncio.run(cancel_all())
    for name in names:
        console.line(f"cancelled: {name}")
    return 0


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
    """Runs in the states that are named which changed last before that time, but for the latest; with those inside."""
    names = [row.run for row in rows]
    all_names = set(names)
    statuses = options.state or _ENDED
    outer = [row for row in rows if not is_nested(row.run, all_names) and read_status(options.journal, row) in statuses]
    outer.sort(key=lambda row: row.changed, reverse=True)
    before = time.time() - (options.older_than or 0)
    chosen = {row.run for row in outer[options.keep or 0 :] if row.changed < before}
    return [name for name in names if name in chosen or is_nested(name, chosen)]


def read_status(journal: Path, row: RunRow) -> RunStatus:
    """Of a run that has ended only the last entry is read: a journal may hold very many."""
    if row.damage:
        return "damaged"
    try:
        if row.ended is not None:
            return "waiting" if row.ended.ending == "needs_input" else row.ended.ending
        return _status(row, replay(read_run(journal, row.run)))
    except Corrupt:
        return "damaged"


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


_VERBS: dict[str, Callable[[Namespace, Console], int]] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "diff": _diff,
    "cancel": _cancel,
    "prune": _prune,
    "backup": _backup,
    "restore": _restore,
}
