"""`chargehand doctor`: what works here; how workers, tools and models did; and one real call of a model."""

import asyncio
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from msgspec import Struct

from chargehand.cli import USUAL_MEMORY
from chargehand.cli.arguments import add_shared
from chargehand.cli.console import Console, Tone, clean, print_table
from chargehand.cli.format import ago, counted, dollars, seconds
from chargehand.config.doctor import State, check_surroundings
from chargehand.config.load import load_team
from chargehand.engine.events import Entry, RunEnded, RunRequested
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Retry, Seconds
from chargehand.errors import StoreError
from chargehand.journal.store import list_runs, read_run
from chargehand.models.guard import Guarded
from chargehand.models.messages import Message, Request, Settings, Usage
from chargehand.models.model import model_failed
from chargehand.models.resolve import Finder
from chargehand.runtime.stats import MAX_RUNS, WorkerHealth, health

_WORDS: dict[State, tuple[str, Tone]] = {"good": ("ok", "good"), "missing": ("--", "dim"), "bad": ("NO", "bad")}


def add_doctor(parser: ArgumentParser) -> None:
    add_shared(parser, "--team")
    parser.add_argument("--workers", action="store_true", help="how workers, tools and models did in the latest runs")
    parser.add_argument("--ask", metavar="MODEL", help="make one real call of a model and say what came of it")
    add_shared(parser, "--journal", "--json", "--no-color")


def doctor(options: Namespace) -> int:
    """0 when everything that is needed is there, 1 when something is not."""
    console = Console(sys.stdout)
    if options.ask is not None:
        is_well = _check_model(options, console)
    elif options.workers:
        is_well = _check_workers(options, console)
    else:
        is_well = _check_surroundings(options, console)
    return 0 if is_well else 1


def _check_surroundings(options: Namespace, console: Console) -> bool:
    lines = check_surroundings(options.journal, options.team, Path(USUAL_MEMORY))
    is_well = not any(line.state == "bad" for line in lines)
    if options.json:
        console.json({"ok": is_well, "lines": lines})
        return is_well
    width = max(len(line.what) for line in lines)
    for line in lines:
        word, tone = _WORDS[line.state]
        console.line(f"{word}  {line.what:{width}}  {line.message}", tone)
        if line.todo:
            console.line(f"    {'':{width}}  → {line.todo}")
    return is_well


# --- one call of a model

_REQUEST = Request((Message("user", "Reply with the word ok and nothing else."),), settings=Settings(max_tokens=256))


class _ModelCall(Struct, frozen=True):
    """What one call of a model came to: a reply, or a failure."""

    model: str
    ok: bool
    seconds: Seconds
    usage: Usage | None = None
    micros: int | None = None
    failure: Failure | None = None


async def _call_model(handle: str) -> _ModelCall:
    finder = Finder(os.environ.get)
    try:
        model = finder.find(handle, retry=Retry(attempts=1))
        if isinstance(model, Guarded):
            await model.prepare()
        name = model.card.handle
        begun = time.monotonic()
        try:
            reply = await model.reply(_REQUEST)
        except Exception as error:  # noqa: BLE001 - whatever it raises is what is to be told
            failure = model_failed(error).failure
            return _ModelCall(name, ok=False, seconds=time.monotonic() - begun, failure=failure)
        micros = reply.micros
        if micros is None and reply.usage is not None:
            micros = model.card.price(reply.usage.input, reply.usage.output)
        return _ModelCall(name, ok=True, seconds=time.monotonic() - begun, usage=reply.usage, micros=micros)
    finally:
        await finder.close()


def _check_model(options: Namespace, console: Console) -> bool:
    """Whether the model answered; Invalid when there is no such model, or no key for it."""
    call = asyncio.run(_call_model(options.ask))
    if options.json:
        console.json(call)
    elif call.failure is None:
        facts = [f"answered in {call.seconds:.2f} s"]
        if call.usage is not None:
            facts.append(f"{counted(call.usage.input, 'token')} in, {call.usage.output:,} out")
        facts.append("cost unknown" if call.micros is None else dollars(call.micros))
        console.line(f"ok  {call.model}  {', '.join(facts)}", "good")
    elif call.failure.refusal is not None:
        console.line(f"error: {call.failure.refusal.headline()}", "bad")
        console.line(f"    {call.failure.message}")
    else:
        console.line(f"error: {call.failure.message}", "bad")
    return call.ok


# --- workers, tools and models

_MAX_ENTRIES = 200_000
_HEADS = ("what", "name", "state", "calls", "failed", "median", "p95", "now", "last", "failures")
_STATES: dict[str, tuple[str, Tone]] = {
    "closed": ("well", "plain"),
    "open": ("shut, tried again in {:.0f} s", "bad"),
    "failing": ("keeps failing", "bad"),
    "half-open": ("shut, may be tried", "warn"),
    "probing": ("being tried, {:.0f} s left", "warn"),
}


class _ReadRuns(Struct):
    """The latest runs of a journal, as many as are looked at."""

    runs: list[tuple[str, list[Entry]]] = []
    driven: set[str] = set()
    unread: int = 0
    damaged: list[str] = []


def _check_workers(options: Namespace, console: Console) -> bool:
    """Whether every worker may be called. The journal is only read."""
    now = time.time()
    part = _read_journal(options.journal)
    workers = health(part.runs, now, driven=part.driven)
    if options.team:
        workers = _select_team(Path(options.team), workers)
    is_well = not any(worker.state in ("open", "failing") for worker in workers)
    if options.json:
        console.json({"ok": is_well, "runs": len(part.runs), "damaged": part.damaged, "workers": workers})
        return is_well
    if workers:
        tones: list[Tone] = [_STATES[worker.state][1] if worker.attempts else "dim" for worker in workers]
        print_table(console, _HEADS, [_table_row(worker, now) for worker in workers], tones)
    else:
        console.line(f"no worker was called in {options.journal} yet")
    _print_remarks(console, part)
    return is_well


def _read_journal(journal: Path) -> _ReadRuns:
    rows = sorted(list_runs(journal), key=lambda row: row.changed, reverse=True)
    part = _ReadRuns()
    entries = 0
    for number, row in enumerate(rows):
        entries += row.seq
        if number >= MAX_RUNS or (entries > _MAX_ENTRIES and part.runs):
            part.unread = len(rows) - number
            break
        try:
            part.runs.append((row.run, read_run(journal, row.run)))
        except StoreError:  # the others are worth a look all the same
            part.damaged.append(row.run)
        if row.held:
            part.driven.add(row.run)
    return part


def _select_team(team: Path, workers: tuple[WorkerHealth, ...]) -> tuple[WorkerHealth, ...]:
    """Those of one team, also workers that were never called."""
    loaded = load_team(team)
    agents = loaded.staff.agents
    members = {("worker", agent.name) for agent in agents} | {("model", agent.model) for agent in agents if agent.model}
    members |= {("tool", tool) for agent in agents for tool in agent.tools}
    own = [worker for worker in workers if (worker.what, worker.name) in members]
    called = {(worker.what, worker.name) for worker in own}
    idle = [name for what, name in sorted(members - called) if what == "worker"]
    return (*own, *(WorkerHealth(what="worker", name=name) for name in idle))


def _table_row(worker: WorkerHealth, now: float) -> tuple[str, ...]:
    failed = sum(worker.failures.values())
    kinds = sorted(worker.failures.items(), key=lambda item: -item[1])
    state = _STATES[worker.state][0].format(max(0.0, worker.retry_at - now))
    return (
        worker.what,
        worker.name,
        state if worker.attempts else "not called yet",
        str(worker.attempts),
        f"{failed} ({worker.rate:.0%})" if failed else "0",
        "" if worker.median is None else seconds(worker.median),
        "" if worker.p95 is None else seconds(worker.p95),
        str(worker.in_flight or ""),
        ago(worker.last, now),
        ", ".join(f"{count} {kind}" for kind, count in kinds),
    )


def _print_remarks(console: Console, part: _ReadRuns) -> None:
    unread = f"; {part.unread} older ones were not read" if part.unread else ""
    console.line(f"from {counted(len(part.runs), 'run')}{unread}", "dim")
    for run, entries in part.runs:
        first = entries[0].event
        last = entries[-1].event
        if isinstance(first, RunRequested) and first.turns and isinstance(last, RunEnded) and last.ending == "failed":
            reason = last.gaps[0].message if last.gaps else last.reason
            console.line(f"background run {run} did not get through: {reason}", "dim")
    if part.damaged:
        names = ", ".join(map(clean, part.damaged[:5]))
        console.line(f"damaged, not read: {names}; restore the journal from a backup", "dim")
