"""`chargehand doctor`: what works here; how workers, tools and models did; and one real call of a model."""

import asyncio
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from chargehand.cli import DEPLOYMENT, USUAL_MEMORY
from chargehand.cli.arguments import add_options, engine_of, shared
from chargehand.cli.console import Console, Tone, print_table
from chargehand.cli.format import ago, counted, dollars, seconds
from chargehand.config.cluster_doctor import check_cluster
from chargehand.config.doctor import CheckResult, State, check_surroundings
from chargehand.config.environment import lookup
from chargehand.config.load import load_team
from chargehand.engine.events import Entry, RunEnded, RunRequested
from chargehand.engine.policy import Retry
from chargehand.errors import StoreError
from chargehand.journal.store import list_runs, read_run
from chargehand.models.guard import Guarded
from chargehand.models.messages import Message, Request, Settings
from chargehand.models.model import model_failed
from chargehand.models.resolve import Finder
from chargehand.runtime.stats import MAX_RUNS, WorkerHealth, health
from chargehand.store_url import PostgresUrl

_WORDS: dict[State, tuple[str, Tone]] = {"good": ("ok", "good"), "missing": ("--", "dim"), "bad": ("NO", "bad")}


def add_doctor(parser: ArgumentParser) -> None:
    add_options(
        parser,
        {
            **shared("--team"),
            "--workers": {"action": "store_true", "help": "how workers, tools and models did in the latest runs"},
            "--cluster": {"action": "store_true", "help": "the database and the engine that servers and workers share"},
            "--ask": {"metavar": "MODEL", "help": "make one real call of a model and say what came of it"},
            **shared("--store", "--engine", "--journal", "--json", "--no-color"),
        },
    )


def doctor(options: Namespace) -> int:
    """0 when everything that is needed is there, 1 when something is not."""
    console = Console(sys.stdout)
    if options.ask is not None:
        is_well = _check_model(options, console)
    elif options.workers:
        is_well = _check_workers(options, console)
    elif options.cluster:
        is_well = _print_results(asyncio.run(_check_cluster(options)), options, console)
    else:
        lines = check_surroundings(options.journal, options.team, Path(USUAL_MEMORY))
        is_well = _print_results(lines, options, console)
    return 0 if is_well else 1


async def _check_cluster(options: Namespace) -> list[CheckResult]:
    store = options.journal if isinstance(options.journal, PostgresUrl) else None
    queues = load_team(options.team).queues if options.team else ()
    return await check_cluster(store, engine_of(options), lookup(DEPLOYMENT) or "", queues)


def _print_results(lines: Sequence[CheckResult], options: Namespace, console: Console) -> bool:
    """Whether nothing that is needed is missing."""
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


async def _call_model(handle: str) -> tuple[bool, str]:
    """Whether the model answered, and what that took or what went wrong."""
    finder = Finder(os.environ.get)
    try:
        model = finder.find(handle, retry=Retry(attempts=1))
        if isinstance(model, Guarded):
            await model.prepare()
        begun = time.monotonic()
        try:
            reply = await model.reply(_REQUEST)
        except Exception as error:  # noqa: BLE001 - whatever it raises is what is to be told
            failure = model_failed(error).failure
            headline = f"{failure.refusal.headline()}: " if failure.refusal is not None else ""
            return False, f"{headline}{failure.message}"
        facts = [f"answered in {time.monotonic() - begun:.2f} s"]
        micros = reply.micros
        if reply.usage is not None:
            facts.append(f"{counted(reply.usage.input, 'token')} in, {reply.usage.output:,} out")
            micros = model.card.price(reply.usage) if micros is None else micros
        facts.append("cost unknown" if micros is None else dollars(micros))
        return True, f"{model.card.handle}: {', '.join(facts)}"
    finally:
        await finder.close()


def _check_model(options: Namespace, console: Console) -> bool:
    """Whether the model answered; Invalid when there is no such model, or no key for it."""
    is_well, message = asyncio.run(_call_model(options.ask))
    if options.json:
        console.json({"ok": is_well, "message": message})
    else:
        console.prose(f"ok  {message}" if is_well else f"error: {message}", "good" if is_well else "bad")
    return is_well


# --- workers, tools and models

_HEADS = ("what", "name", "state", "calls", "failed", "median", "p95", "now", "last", "failures")
_STATES: dict[str, tuple[str, Tone]] = {
    "closed": ("well", "plain"),
    "open": ("shut, tried again in {:.0f} s", "bad"),
    "failing": ("keeps failing", "bad"),
    "half-open": ("shut, may be tried", "warn"),
    "probing": ("being tried, {:.0f} s left", "warn"),
}


def _check_workers(options: Namespace, console: Console) -> bool:
    """Whether every worker may be called. The journal is only read."""
    now = time.time()
    rows = sorted(list_runs(options.journal), key=lambda row: row.changed, reverse=True)[:MAX_RUNS]
    runs: list[tuple[str, list[Entry]]] = []
    damaged: list[str] = []
    for row in rows:
        try:
            runs.append((row.run, read_run(options.journal, row.run)))
        except StoreError:  # the others are worth a look all the same
            damaged.append(row.run)
    workers = health(runs, now, driven={row.run for row in rows if row.held})
    is_well = not any(worker.state in ("open", "failing") for worker in workers)
    if options.json:
        console.json({"ok": is_well, "runs": len(runs), "damaged": damaged, "workers": workers})
        return is_well
    if workers:
        tones: list[Tone] = [_STATES[worker.state][1] if worker.attempts else "dim" for worker in workers]
        print_table(console, _HEADS, [_table_row(worker, now) for worker in workers], tones)
    else:
        console.line(f"no worker was called in {options.journal} yet")
    console.line(f"from {counted(len(runs), 'run')}", "dim")
    _print_failed_background(console, runs)
    if damaged:
        console.line(f"damaged, not read: {', '.join(damaged)}; restore the journal from a backup", "dim")
    return is_well


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


def _print_failed_background(console: Console, runs: Sequence[tuple[str, list[Entry]]]) -> None:
    for run, entries in runs:
        first = entries[0].event
        last = entries[-1].event
        if isinstance(first, RunRequested) and first.turns and isinstance(last, RunEnded) and last.ending == "failed":
            reason = last.gaps[0].message if last.gaps else last.reason
            console.line(f"background run {run} did not get through: {reason}", "dim")
