"""`chargehand doctor`: what works here; how workers, tools and models did; and what a model can do."""

import asyncio
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from chargehand.cli import DEPLOYMENT, USUAL_MEMORY
from chargehand.cli.arguments import add_options, engine_of, shared, usd
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
from chargehand.models.resolve import Finder
from chargehand.models.trials import MAX_MICROS, TRIALS, TrialResult, TrialState, try_model
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
            "--ask": {"metavar": "MODEL", "help": "try text, a tool, a schema, a picture and a PDF in real calls"},
            "--max-usd": {
                "metavar": "DOLLARS",
                "type": usd,
                "default": MAX_MICROS,
                "help": "what the calls of --ask may cost together (default: 0.10)",
            },
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


# --- trials of a model

_TRIAL_WORDS: dict[TrialState, tuple[str, Tone]] = {
    "ok": ("ok", "good"),
    "failed": ("NO", "bad"),
    "unsupported": ("--", "dim"),
    "skipped": ("--", "dim"),
}
_NOT_SUPPORTED = "not supported: "
_NOT_SENT = "not sent: "
_TRIAL_WIDTH = max(len(trial.what) for trial in TRIALS)


async def _try_model(options: Namespace, console: Console) -> list[TrialResult]:
    """Try what a model can do, and tell each result as it comes; Invalid when there is no such model, or no key."""
    finder = Finder(os.environ.get)
    try:
        model = finder.find(options.ask, retry=Retry(attempts=1))
        await finder.prepare()
        results: list[TrialResult] = []
        async for result in try_model(model, max_micros=options.max_usd):
            results.append(result)
            if not options.json:
                _print_trial(result, console)
    finally:
        await finder.close()
    return results


def _print_trial(result: TrialResult, console: Console) -> None:
    word, tone = _TRIAL_WORDS[result.state]
    lead = {"unsupported": _NOT_SUPPORTED, "skipped": _NOT_SENT}.get(result.state, "")
    facts: list[str] = []
    if result.input or result.output:
        facts.append(f"{counted(result.input, 'token')} in, {result.output:,} out")
    if result.state in ("ok", "failed"):
        facts += [f"{result.seconds:.2f} s", _cost(result.micros)]
    shown = f" ({', '.join(facts)})" if facts else ""
    console.line(f"{word}  {result.what:{_TRIAL_WIDTH}}  {lead}{result.message}{shown}", tone)
    if result.todo:
        console.line(f"    {'':{_TRIAL_WIDTH}}  → {result.todo}")


def _cost(micros: int | None) -> str:
    return "cost unknown" if micros is None else dollars(micros)


def _check_model(options: Namespace, console: Console) -> bool:
    """Whether nothing that was tried failed, and something was tried where that is possible."""
    results = asyncio.run(_try_model(options, console))
    is_well = results[0].state != "skipped" and not any(result.state == "failed" for result in results)
    costs = [result.micros for result in results]
    micros = None if None in costs else sum(filter(None, costs))
    if options.json:
        console.json({"ok": is_well, "model": options.ask, "trials": results, "micros": micros})
        return is_well
    tokens = sum(result.input + result.output for result in results)
    seconds_taken = sum(result.seconds for result in results)
    console.line(f"{options.ask}: {counted(tokens, 'token')}, {seconds_taken:.2f} s, {_cost(micros)}", "dim")
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
