"""`chargehand runs`: list, show, export, cancel and prune the runs of a journal; back it up and restore it."""

import asyncio
import re
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
from chargehand.agents.inputs import without_pictures
from chargehand.agents.scripted import Script, ScriptedExecutor
from chargehand.cli.arguments import (
    RUN_HELP,
    Options,
    Verb,
    add_options,
    add_verbs,
    count,
    duration,
    is_nested,
    shared,
    write_file,
)
from chargehand.cli.console import STYLES, Console, Tone, clean, clean_lines, format_json, print_table, short
from chargehand.cli.diagrams import timeline_lines
from chargehand.cli.format import ago, counted, describe_gaps, dollars, money, seconds
from chargehand.cli.run_session import Advice, run_document
from chargehand.cli.states import STATES, state_of_run
from chargehand.cli.transcript import Transcript, has_checked_section
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.events import CancelRequested, Entry, Failure
from chargehand.engine.fold import replay
from chargehand.engine.state import RunState
from chargehand.errors import Corrupt, Invalid, Refused
from chargehand.journal.protocol import Readable, RunRow
from chargehand.journal.store import (
    back_up,
    list_inside,
    list_open_runs,
    list_runs,
    open_journal,
    prune_runs,
    read_readable,
    read_run,
    restore,
)
from chargehand.runtime.run_log import traceback_text
from chargehand.runtime.runner import Runner
from chargehand.runtime.trace import (
    AttemptTrace,
    DutyTrace,
    Prompt,
    QuestionTrace,
    StepTrace,
    TaskTrace,
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
    tones: list[Tone] = [STATES[_state(row, state)].tone for row, state in listed]
    lines = [_table_row(row, state) for row, state in listed]
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


def _state(row: RunRow, state: RunState | None) -> str:
    """How a run ended, or where it stands: a key of `STATES`."""
    if state is None:
        return "damaged"
    current = state_of_run(state)
    return "interrupted" if current in ("running", "planning") and not row.held else current


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
    return Text(clean(f"{lead}{traced.run}: {', '.join(facts)}; cost: {money(traced.used)}"), style)


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
    """Runs that ended before that time, but for the latest; with those inside them."""
    names = [row.run for row in rows]
    all_names = set(names)
    outer = [row for row in rows if _has_ended(row) and not is_nested(row.run, all_names)]
    outer.sort(key=lambda row: row.changed, reverse=True)
    before = time.time() - (options.older_than or 0)
    chosen = {row.run for row in outer[options.keep or 0 :] if row.changed < before}
    return [name for name in names if name in chosen or is_nested(name, chosen)]


def _has_ended(row: RunRow) -> bool:
    return not row.damage and row.ended is not None and row.ended.ending != "needs_input"


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
            "--report": {"action": "store_true", "help": "as a Markdown page to read, not as JSON"},
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


# --- a trace as a page to read, in markdown: what was planned, asked, called, refined and answe

_MAX_CHARS = 1500  # of a prompt or a result
_COLUMNS = 100
_DEEPEST_HEADING = 6
_NESTED = 3  # levels that the page of a run inside another goes down


def report(trace: Trace) -> str:
    """The page."""
    page = _Page()
    page.add_run(trace)
    return "\n".join(page.lines)


def _escape(text: str) -> str:
    return re.sub(r"([\\`*\[<|])", r"\\\1", clean(text))


class _Page:
    """Lines of Markdown. `depth` is how many levels down the headings are."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        """A paragraph or a list."""
        self.lines += [*lines, ""]

    def heading(self, level: int, text: str) -> None:
        self.add(f"{'#' * min(_DEEPEST_HEADING, level + self.depth)} {text}")

    def fence(self, value: object) -> None:
        """A text as it is, whatever it holds, or anything else as JSON; pictures are left out. Nothing for None."""
        if value is None:
            return
        body = clean_lines(value) if isinstance(value, str) else format_json(without_pictures(value))
        if len(body) > _MAX_CHARS:
            body = f"{body[:_MAX_CHARS]}\n… {len(body) - _MAX_CHARS:,} more characters"
        longest = max(map(len, re.findall(r"`+", body)), default=0)
        fence = "`" * max(3, longest + 1)
        self.add(fence, *body.splitlines(), fence)

    def failure(self, failure: Failure | None) -> None:
        if failure is None:
            return
        self.add(f"Failed: {failure.kind}: {_escape(failure.message)}")
        if failure.code_error is not None:
            self.fence(traceback_text(failure.code_error))

    def prompts(self, prompts: list[Prompt]) -> None:
        for prompt in prompts:
            self.add(f"Prompt to {_escape(prompt.model)}, tools: {_escape(', '.join(prompt.tools)) or 'none'}")
            self.fence(prompt.messages)

    # --- the parts of a run

    def add_run(self, trace: Trace) -> None:
        self.heading(1, f"Run {_escape(trace.run)}")
        self.add(f"> {_escape(trace.goal)}")
        facts = [
            f"ending: {trace.ending or 'not yet'} {trace.reason}".rstrip(),
            f"time: {seconds(trace.seconds)}, with {seconds(trace.serial)} of work in it",
            f"cost: {money(trace.used)}",
            f"critical path: {' → '.join(map(_escape, trace.critical_path))}",
            *(f"gap: {_escape(line)}" for line in describe_gaps(trace.gaps)),
            *(f"{note.at:.2f} s: {_escape(f'{note.task} {note.text}'.strip())}" for note in trace.notes),
        ]
        self.add(*(f"- {fact}" for fact in facts))
        self.heading(2, "Timeline")
        self.fence("\n".join(timeline_lines(trace, _COLUMNS)))
        for duty in trace.supervision:
            self.add_duty(duty)
        for task in (*trace.tasks, *trace.dropped):
            self.add_task(task)
        for question in trace.questions:
            self.add_question(question)
        self.heading(2, "Answer")
        if isinstance(trace.answer, str) and not self.depth:
            self.lines.append(clean_lines(trace.answer))
        else:  # inside a page prose could open a fence that is never closed
            self.fence("There is none." if trace.answer is None else trace.answer)

    def add_duty(self, duty: DutyTrace) -> None:
        title = f"{duty.duty.capitalize()} {_escape(duty.task)}".strip()
        self.heading(2, f"{title}, number {duty.number}: {duty.ending}, {money(duty.used)}")
        self.prompts(duty.prompts)
        for finding in duty.findings:
            self.add(f"- {_escape(finding.place)}: {_escape(finding.message)} ({finding.code})")
        self.failure(duty.failure)

    def add_task(self, task: TaskTrace) -> None:
        state = "reused" if task.reused is not None else task.status
        self.heading(2, f"Task {_escape(task.id)}: {STATES[state].word}")
        needs = f", needs {_escape(', '.join(task.after))}" if task.after else ""
        self.add(f"Worker {_escape(task.worker or 'not chosen yet')}{needs}, {money(task.used)}.")
        if task.reused is not None:
            self.add(f"Its result was taken over from {_escape(task.reused.task)} of run {_escape(task.reused.run)}.")
        for attempt in task.attempts:
            self.add_attempt(attempt)
        if not task.attempts:
            self.fence(task.instruction)
        self.fence(task.result)

    def add_attempt(self, attempt: AttemptTrace) -> None:
        took = "" if attempt.seconds is None else f" after {seconds(attempt.seconds)}"
        self.heading(3, f"Attempt {attempt.attempt} by {_escape(attempt.worker)}: {attempt.ending}{took}")
        self.fence(attempt.instruction)
        self.prompts(attempt.prompts)
        for step in attempt.steps:
            self.add_step(step)
        self.depth += _NESTED
        for run in attempt.runs:
            self.add_run(run)
        self.depth -= _NESTED
        self.failure(attempt.failure)

    def add_step(self, step: StepTrace) -> None:
        took = "never came back" if step.seconds is None else f"{step.seconds:.3f} s"
        self.add(f"Step {step.step}: **{_escape(step.name)}** ({step.effect}), {took}, {money(step.used)}")
        self.fence(step.arguments)
        self.fence(step.result)

    def add_question(self, request: QuestionTrace) -> None:
        verdict = f"{request.verdict or 'not answered yet'} {_escape(request.feedback)}".rstrip()
        self.heading(2, f"Question {request.number} ({request.what}) {_escape(request.task)}: {verdict}")
        self.fence(request.question)
