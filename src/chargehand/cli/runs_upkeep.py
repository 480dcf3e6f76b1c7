"""`chargehand runs cancel`, `prune`, `backup` and `restore`: upkeep of a journal, safe while other processes use it."""

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from chargehand.agents.scripted import Script, ScriptedCrew
from chargehand.cli.console import Console, clean, clean_json
from chargehand.cli.run_names import is_nested
from chargehand.core.fold import replay
from chargehand.errors import Invalid, Refused
from chargehand.runtime.driver import Driver
from chargehand.stores.maintenance import back_up, prune_runs
from chargehand.stores.maintenance import restore as restore_journal
from chargehand.stores.reader import Found, read_run, read_runs
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms.events import CancelRequested

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
        console.line(clean_json(msgspec.json.encode(pruned).decode()))
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
