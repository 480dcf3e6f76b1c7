"""Copying a journal into another, of any kind, and comparing the two.

Entries keep their numbers, times and events. What a target has already must be the beginning of the same copy.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from sys import maxsize
from typing import TypeAlias

from msgspec import Struct, structs

from chargehand.engine.events import Entry, RunRequested
from chargehand.engine.fold import replay
from chargehand.errors import Corrupt, Refused, RunBusy
from chargehand.journal.files import StoredFile
from chargehand.journal.protocol import Journal, RouteExample, RunRow

ReportProgress: TypeAlias = Callable[[str, int, int], None]
"""Takes what is counted, how many are done, and how many there are in all; 0 where that is not known."""
_PAGE = 500
_BATCH = 500
"""Entries appended at once."""
_LAST = 1 << 62


class JournalSide(Struct, frozen=True):
    """A journal that is copied or compared. `place` is how people name it."""

    journal: Journal
    place: str


class CopiedJournal(Struct, frozen=True):
    """What both sides hold after a copy."""

    runs: int = 0
    entries: int = 0
    examples: int = 0


def not_empty(place: str, present: str, source: str) -> Refused:
    """The error for a target that holds something else than the beginning of the copy."""
    return Refused(
        f"{place} is not empty: it has {present}, which is not the same in {source}. "
        "Nothing was copied; name an empty target, or empty this one"
    )


# --- before anything is written


async def check_target_journal(source: JournalSide, target: JournalSide) -> None:
    """Raise unless the source can be copied and the target holds the beginning of the copy, or nothing."""
    wanted = await _list_runs(source)
    present = await _list_runs(target)
    for place, row in enumerate(present):
        if place >= len(wanted) or wanted[place].run != row.run:
            raise not_empty(target.place, f"run {row.run!r}", source.place)
        entries = await target.journal.read(row.run)
        if entries != (await source.journal.read(row.run))[: len(entries)]:
            raise not_empty(target.place, f"run {row.run!r}", source.place)
    for team in await target.journal.example_teams():
        await _list_missing_examples(source, target, team)
    files = await _list_files(source)
    for file in await _list_files(target):
        if file not in files:
            raise not_empty(target.place, f"file {file.id!r}", source.place)


async def _list_runs(side: JournalSide) -> list[RunRow]:
    """Every run in the order of beginning, without its entries; an error for one that cannot be copied."""
    rows: list[RunRow] = []
    before = _LAST
    while page := await side.journal.latest(before=before, limit=_PAGE):
        before = page[-1].number
        for row in page:
            if row.damage:
                raise Corrupt(f"{side.place} cannot be copied: {row.damage}", run=row.run)
            if row.held:
                raise RunBusy(
                    f"run {row.run!r} in {side.place} is being driven by a process; wait until it ends there, or stop "
                    "it there, and copy then"
                )
            rows.append(structs.replace(row, first=None, last=None))
    return rows[::-1]


# --- copying


async def copy_journal(source: JournalSide, target: JournalSide, report: ReportProgress) -> None:
    """Copy what the target has not yet. The target was checked."""
    wanted = await _list_runs(source)
    lengths = {row.run: row.seq for row in await _list_runs(target)}
    total = sum(row.seq for row in wanted)
    done = 0
    for row in wanted:
        present = lengths.get(row.run, 0)
        if present < row.seq:
            entries = await source.journal.read(row.run, after=present)
            await _append(target.journal, row.run, entries, partial(_report_entries, report, done, total))
        done += row.seq
        report("entries", done, total)
    await _copy_files(source, target)
    for team in await source.journal.example_teams():
        missing = await _list_missing_examples(source, target, team)
        for (run, kind), examples in groupby(missing, key=lambda example: (example.run, example.source)):
            await target.journal.route_examples(team).record(run, kind, examples)


async def _copy_files(source: JournalSide, target: JournalSide) -> None:
    for file in await _list_files(source):
        await target.journal.files.add(file, await source.journal.files.read(file.id), room=maxsize)


async def _append(journal: Journal, run: str, entries: Sequence[Entry], report: Callable[[int], None]) -> None:
    """Append batch by batch; `report` is called with the number of the last entry of each."""
    lease = await journal.claim(run, new=entries[0].seq == 1)
    try:
        for begin in range(0, len(entries), _BATCH):
            batch = entries[begin : begin + _BATCH]
            await journal.append(lease, batch)
            report(batch[-1].seq)
    finally:
        await journal.release(lease)


def _report_entries(report: ReportProgress, before: int, total: int, seq: int) -> None:
    """`before` counts the entries of earlier runs."""
    report("entries", before + seq, total)


async def _list_missing_examples(source: JournalSide, target: JournalSide, team: str) -> Sequence[RouteExample]:
    """The examples that the target has not yet. Those of one run and source are written together."""
    wanted = await source.journal.route_examples(team).list()
    present = await target.journal.route_examples(team).list()
    if present != wanted[: len(present)]:
        raise not_empty(target.place, f"route examples of team {team!r}", source.place)
    return wanted[len(present) :]


# --- comparing


async def compare_journals(source: JournalSide, target: JournalSide, report: ReportProgress) -> CopiedJournal:
    """Read both again; Corrupt, with the name of the run, unless they have the same entries and fold to the same."""
    wanted = await _list_runs(source)
    present = await _list_runs(target)
    if [row.run for row in wanted] != [row.run for row in present]:
        names = {row.run for row in wanted} ^ {row.run for row in present}
        which = f"run {min(names)!r} is in one of them only" if names else "the order of their runs differs"
        raise Corrupt(f"{source.place} and {target.place} differ after the copy: {which}. {_ADVICE}")
    total = sum(row.seq for row in wanted)
    entries = 0
    for row in wanted:
        await _compare_run(source, target, row.run)
        entries += row.seq
        report("entries compared", entries, total)
    examples = 0
    for team in sorted({*await source.journal.example_teams(), *await target.journal.example_teams()}):
        listed = await source.journal.route_examples(team).list()
        if listed != await target.journal.route_examples(team).list():
            raise Corrupt(
                f"{source.place} and {target.place} differ after the copy: route examples of team {team!r}. {_ADVICE}"
            )
        examples += len(listed)
    if await _list_files(source) != await _list_files(target):
        raise Corrupt(f"{source.place} and {target.place} differ after the copy: their files. {_ADVICE}")
    return CopiedJournal(runs=len(wanted), entries=entries, examples=examples)


async def _list_files(side: JournalSide) -> list[StoredFile]:
    files: list[StoredFile] = []
    while page := await side.journal.files.list(before=files[-1].id if files else "", limit=_PAGE):
        files += page
    return files


_ADVICE = "Do not use the target; make sure that nothing writes to either of them, empty the target and copy again"


async def _compare_run(source: JournalSide, target: JournalSide, run: str) -> None:
    ours = await source.journal.read(run)
    theirs = await target.journal.read(run)
    place = f"{source.place} and {target.place} differ after the copy: run {run!r}"
    if ours != theirs:
        same = next((at for at, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
        first = min(len(ours), len(theirs)) if same is None else same
        raise Corrupt(f"{place} from entry {first + 1} on. {_ADVICE}", run=run, seq=first + 1)
    if isinstance(ours[0].event, RunRequested) and replay(ours) != replay(theirs):
        raise Corrupt(f"{place} folds to another state. {_ADVICE}", run=run)
