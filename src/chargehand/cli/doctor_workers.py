"""`chargehand doctor --workers`: how workers, tools and models are doing, in a table. The journal is only read."""

import sys
from argparse import Namespace
from pathlib import Path

from msgspec import Struct

from chargehand.cli.console import Console, Tone, clean, print_table
from chargehand.cli.format import ago, now
from chargehand.errors import StoreError
from chargehand.runtime.health import MAX_RUNS, State, WorkerHealth, health
from chargehand.stores.reader import read_run, read_runs
from chargehand.terms.events import Entry, RunEnded, RunRequested

_MOST_ENTRIES = 200_000
_HEADS = ("what", "name", "state", "calls", "failed", "median", "p95", "now", "last", "failures")
_TONES: dict[State, Tone] = {
    "closed": "plain",
    "open": "bad",
    "failing": "bad",
    "half-open": "warn",
    "probing": "warn",
}


class _Read(Struct):
    """What was read of a journal: the latest runs, as many as are looked at."""

    runs: list[tuple[str, list[Entry]]]
    driven: set[str]
    more: int = 0
    damaged: list[str] = []


def doctor_workers(options: Namespace) -> int:
    """0 when everybody may be called, 1 when somebody may not, or keeps failing."""
    console = Console(sys.stdout)
    present = now()
    read = _read(options.journal)
    found = health(read.runs, present, driven=read.driven)
    if options.team:
        found = _of_team(Path(options.team), found)
    well = not any(one.state in ("open", "failing") for one in found)
    if options.json:
        document = {"ok": well, "runs": len(read.runs), "damaged": read.damaged, "workers": found}
        console.json(document)
        return 0 if well else 1
    if found:
        tones: list[Tone] = ["dim" if not one.attempts else _TONES[one.state] for one in found]
        print_table(console, _HEADS, [_row(one, present) for one in found], tones)
    else:
        console.line(f"nobody was called in {clean(str(options.journal))} yet")
    for line in _remarks(read):
        console.line(line, "dim")
    return 0 if well else 1


def _read(journal: Path) -> _Read:
    listed = sorted(read_runs(journal), key=lambda one: one.row.changed, reverse=True)
    read = _Read([], set())
    room = _MOST_ENTRIES
    for number, one in enumerate(listed):
        room -= one.row.seq
        if number >= MAX_RUNS or (room < 0 and read.runs):
            read.more = len(listed) - number
            break
        try:
            read.runs.append((one.row.run, read_run(journal, one.row.run)))
        except StoreError:  # the others are worth a look all the same
            read.damaged.append(one.row.run)
        if one.driven:
            read.driven.add(one.row.run)
    return read


def _of_team(team: Path, found: tuple[WorkerHealth, ...]) -> tuple[WorkerHealth, ...]:
    """Those of one team, also who was never called."""
    from chargehand.config.load import load_team  # noqa: PLC0415 - only who names a team needs one

    loaded = load_team(team)
    agents = [*loaded.roster.agents, *(agent for agent, _ in loaded.aside)]
    named = {("worker", one.name) for one in agents} | {("model", one.model) for one in agents if one.model}
    named |= {("tool", tool) for one in agents for tool in one.tools}
    known = [one for one in found if (one.what, one.name) in named]
    called = {(one.what, one.name) for one in known}
    idle = [name for what, name in sorted(named - called) if what == "worker"]
    return (*known, *(WorkerHealth(what="worker", name=name) for name in idle))


def _row(one: WorkerHealth, present: float) -> tuple[str, ...]:
    failed = sum(one.failures.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(one.failures.items(), key=lambda item: -item[1]))
    return (
        one.what,
        one.name,
        _state(one, present),
        str(one.attempts),
        f"{failed} ({one.rate:.0%})" if failed else "0",
        _seconds(one.median),
        _seconds(one.p95),
        str(one.in_flight or ""),
        ago(one.last, present),
        kinds,
    )


def _state(one: WorkerHealth, present: float) -> str:
    if not one.attempts:
        return "not called yet"
    wait = f"{max(0.0, one.retry_at - present):.0f} s"
    words: dict[State, str] = {
        "closed": "well",
        "open": f"shut, tried again in {wait}",
        "half-open": "shut, may be tried",
        "probing": f"being tried, {wait} left",
        "failing": "keeps failing",
    }
    return words[one.state]


def _seconds(found: float | None) -> str:
    if found is None:
        return ""
    return f"{found * 1000:.0f} ms" if found < 1 else f"{found:.1f} s"


def _unrested(read: _Read) -> list[tuple[str, str]]:
    """Runs of background workers that failed, and why."""
    found: list[tuple[str, str]] = []
    for run, entries in read.runs:
        first = entries[0].event
        last = entries[-1].event
        if isinstance(first, RunRequested) and first.turns and isinstance(last, RunEnded) and last.ending == "failed":
            found.append((run, last.gaps[0].message if last.gaps else last.reason))
    return found


def _remarks(read: _Read) -> list[str]:
    count = len(read.runs)
    said = [
        f"from {count} run{'' if count == 1 else 's'}" + (f"; {read.more} older ones were not read" * bool(read.more))
    ]
    said += [f"background run {clean(run)} did not get through: {clean(why)}" for run, why in _unrested(read)][:5]
    if read.damaged:
        said.append(f"damaged, not read: {', '.join(map(clean, read.damaged[:5]))}; restore the journal from a backup")
    return said
