"""A journal that ends with the process. Entries are encoded once, which proves that they could be read back.

Nothing here waits, so it may serve a simulated loop. Not safe for several threads.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from chargehand.engine.events import Entry, RunEnded, RunRequested, StepFinished
from chargehand.engine.policy import Instant
from chargehand.errors import RunUnknown
from chargehand.journal.codec import prove
from chargehand.journal.files import MemoryFiles
from chargehand.journal.protocol import (
    AppendNow,
    Lease,
    Readable,
    RunRow,
    SqliteRouteExamples,
    check_claim,
    check_first_entries,
    check_name,
    check_numbers,
    differs,
    fenced,
    list_example_teams,
    misfit,
    nested_runs,
)

if TYPE_CHECKING:
    from chargehand.sqlite.database import Database


class _Stream(Struct, eq=False, gc=False):
    """One run."""

    number: int
    epoch: int = 0
    held: bool = False
    ended: bool = False
    entries: list[Entry] = []
    listed: frozenset[str] | None = None
    """Its files, once they were listed after its end; None: not yet."""

    def list_files(self) -> frozenset[str]:
        """Return the ids of the files that the run was given, and of those that its tools returned."""
        if self.listed is not None:
            return self.listed
        ids: set[str] = set()
        for entry in self.entries:
            event = entry.event
            if isinstance(event, RunRequested):
                ids.update(item.file.id for item in event.inputs if item.file is not None)
            elif isinstance(event, StepFinished):
                ids.update(event.files)
        files = frozenset(ids)
        if self.ended:
            self.listed = files
        return files


class MemoryJournal:
    instant = True
    """False in a subclass that has to wait: then `append_now` is not offered."""

    def __init__(self, *, max_ended_runs: int | None = None) -> None:
        """Keep all runs, or of those that have ended only the latest `max_ended_runs`."""
        self._max_ended_runs = max_ended_runs
        self._ended: deque[str] = deque()
        self._nested: dict[str, list[str]] = {}
        self._streams: dict[str, _Stream] = {}
        self._count = 0
        self._database: Database | None = None
        self.files = MemoryFiles()

    @property
    def notices(self) -> None:
        return None

    @property
    def commands(self) -> None:
        return None

    @property
    def jobs(self) -> None:
        return None

    @property
    def words(self) -> None:
        return None

    @property
    def deliveries(self) -> None:
        return None

    @property
    def trouble(self) -> str:
        return ""

    @property
    def append_now(self) -> AppendNow | None:
        return self._append if self.instant else None

    async def create(self, run: str, entries: Sequence[Entry]) -> None:
        check_first_entries(run, entries)
        prove(entries)
        stream = self._streams.get(run) or _Stream(self._count + 1)
        if stream.entries[: len(entries)] == list(entries):
            return
        check_claim(run, seq=len(stream.entries), process=os.getpid() if stream.held else 0, new=True, steal=False)
        self._streams[run] = stream
        self._count = max(self._count, stream.number)
        stream.entries += entries

    async def claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        check_name(run)
        stream = self._streams.get(run) or _Stream(self._count + 1)
        process = os.getpid() if stream.held else 0
        check_claim(run, seq=len(stream.entries), process=process, new=new, steal=steal)
        self._streams[run] = stream
        self._count = max(self._count, stream.number)
        stream.epoch += 1
        stream.held = True
        return Lease(run, stream.epoch, len(stream.entries))

    async def append(self, lease: Lease, entries: Sequence[Entry]) -> None:
        self._append(lease, entries)

    def _append(self, lease: Lease, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        check_numbers(lease.run, entries)
        stream = self._streams.get(lease.run)
        if stream is None or stream.epoch != lease.epoch or not stream.held:
            raise fenced(lease.run, lease.epoch)
        prove(entries)
        before = entries[0].seq - 1
        last = entries[-1].seq
        stored = len(stream.entries)
        if stored == before:
            stream.entries += entries
            stream.ended = type(entries[-1].event) is RunEnded
        elif stored < last:
            raise misfit(lease.run, stored, before + 1)
        elif stream.entries[before:last] != list(entries):
            raise differs(lease.run, before + 1)
        lease.seq = max(lease.seq, last)

    async def read(self, run: str, *, after: int = 0) -> list[Entry]:
        stream = self._streams.get(run)
        if stream is None or not stream.entries:
            raise RunUnknown(run)
        return stream.entries[max(after, 0) :]

    async def release(self, lease: Lease) -> None:
        stream = self._streams.get(lease.run)
        if stream is not None and stream.epoch == lease.epoch:
            stream.held = False
            if stream.ended and self._max_ended_runs is not None:
                self._forget_old(lease.run, self._max_ended_runs)

    def _forget_old(self, ended: str, max_ended_runs: int) -> None:
        """Drop the runs that ended first, each with the runs inside it."""
        request = self._streams[ended].entries[0].event
        parent = request.parent if isinstance(request, RunRequested) else None
        if parent is not None and parent.root in self._streams:
            self._nested.setdefault(parent.root, []).append(ended)
            return
        self._ended.append(ended)
        while len(self._ended) > max_ended_runs:
            oldest = self._ended.popleft()
            runs = (oldest, *self._nested.pop(oldest, ()))
            streams = [self._streams.pop(run) for run in runs if run in self._streams]
            if unused := _list_files(streams):
                self.files.forget(unused - _list_files(self._streams.values()))

    async def read_readable(self, run: str, *, after: int = 0) -> Readable:
        return Readable(await self.read(run, after=after))

    async def row(self, run: str) -> RunRow:
        stream = self._streams.get(run)
        if stream is None or not stream.entries:
            raise RunUnknown(run)
        return _row(run, stream)

    async def runs(self) -> list[RunRow]:
        return sorted(self._rows(), key=lambda row: row.run)

    async def open_runs(self) -> list[RunRow]:
        return [row for row in await self.runs() if row.ended is None]

    async def changed_since(self, since: Instant) -> list[RunRow]:
        return [row for row in await self.runs() if row.changed >= since]

    async def latest(self, *, before: int, limit: int) -> list[RunRow]:
        return list(islice(self._rows(before), limit))

    async def inside(self, run: str) -> list[str]:
        return nested_runs([run], await self.runs())

    def _rows(self, before: int | None = None) -> Iterator[RunRow]:
        """The latest first; those with a lower number than `before`."""
        for run, stream in reversed(self._streams.items()):
            if stream.entries and (before is None or stream.number < before):
                yield _row(run, stream)

    def route_examples(self, team: str) -> SqliteRouteExamples:
        if self._database is None:
            from chargehand.sqlite.connection import JOURNAL  # noqa: PLC0415 - only teams that route need SQLite
            from chargehand.sqlite.database import MemoryDatabase  # noqa: PLC0415 - as above

            self._database = MemoryDatabase(JOURNAL)
        return SqliteRouteExamples(self._database, team)

    async def example_teams(self) -> list[str]:
        return [] if self._database is None else await list_example_teams(self._database)

    async def close(self) -> None:
        """Nothing to let go of: what was written can still be read."""


def _list_files(streams: Iterable[_Stream]) -> frozenset[str]:
    """Return the ids of the files of several runs."""
    return frozenset[str]().union(*(stream.list_files() for stream in streams))


def _row(run: str, stream: _Stream) -> RunRow:
    return RunRow(
        run,
        number=stream.number,
        seq=len(stream.entries),
        epoch=stream.epoch,
        held=stream.held,
        first=stream.entries[0],
        last=stream.entries[-1],
    )
