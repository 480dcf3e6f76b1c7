"""A journal that ends with the process. It keeps entries as they are, once it is proved that they can be read back.

Nothing here waits, so it may serve a simulated loop. Not safe for several threads.
"""

import os
from collections import deque
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from chargehand.engine.events import Entry, RunEnded
from chargehand.errors import RunUnknown
from chargehand.journal.codec import TAGS, encode
from chargehand.journal.protocol import (
    DamagedRun,
    Ends,
    Lease,
    RunRow,
    check_claim,
    check_name,
    check_numbers,
    differs,
    fenced,
    misfit,
)
from chargehand.journal.route_examples import Database, RouteExamples


class _Stream(Struct, eq=False):
    """One run."""

    epoch: int = 0
    held: bool = False
    ended: bool = False
    entries: list[Entry] = []


class MemoryJournal:
    instant = True
    """Whether `append_now` may stand in for `append`: nothing has to be waited for."""

    def __init_subclass__(cls) -> None:
        cls.instant = cls.instant and "append" not in vars(cls)

    def __init__(self, *, max_ended_runs: int | None = None) -> None:
        """Keep all runs, or of those that have ended only the latest `max_ended_runs`."""
        self._max_ended_runs = max_ended_runs
        self._ended: deque[str] = deque()
        self._nested: dict[str, list[str]] = {}
        self._streams: dict[str, _Stream] = {}
        self._door: Database | None = None

    async def claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        check_name(run)
        stream = self._streams.get(run) or _Stream()
        process = os.getpid() if stream.held else 0
        check_claim(run, seq=len(stream.entries), process=process, new=new, steal=steal)
        self._streams[run] = stream
        stream.epoch += 1
        stream.held = True
        return Lease(run, stream.epoch, len(stream.entries))

    async def append(self, lease: Lease, entries: Sequence[Entry]) -> None:
        self.append_now(lease, entries)

    def append_now(self, lease: Lease, entries: Sequence[Entry]) -> None:
        """The same, for callers who cannot wait."""
        if not entries:
            return
        check_numbers(lease.run, entries)
        stream = self._streams.get(lease.run)
        if stream is None or stream.epoch != lease.epoch or not stream.held:
            raise fenced(lease.run, lease.epoch)
        for entry in entries:
            encode(entry.event)
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
        root, _, inside = ended.partition("/")
        if inside and root in self._streams:
            self._nested.setdefault(root, []).append(ended)
            return
        self._ended.append(ended)
        while len(self._ended) > max_ended_runs:
            oldest = self._ended.popleft()
            for run in (oldest, *self._nested.pop(oldest, ())):
                self._streams.pop(run, None)

    async def runs(self) -> list[RunRow]:
        return [self._row(run, stream) for run, stream in sorted(self._streams.items()) if stream.entries]

    def _row(self, run: str, stream: _Stream) -> RunRow:
        first = stream.entries[0]
        last = stream.entries[-1]
        return RunRow(
            run=run,
            seq=last.seq,
            started=first.at,
            changed=last.at,
            type=TAGS[type(last.event)],
            epoch=stream.epoch,
            held=stream.held,
        )

    async def latest(self, *, before: int, limit: int) -> list[Ends | DamagedRun]:
        """So many runs with a lower number than `before`, the latest first."""
        count = len(self._streams)
        older = islice(enumerate(reversed(self._streams.items())), max(0, count - before + 1), None)
        found = ((count - place, run, stream) for place, (run, stream) in older if stream.entries)
        return [
            Ends(number, run, stream.entries[0], stream.entries[-1]) for number, run, stream in islice(found, limit)
        ]

    def route_examples(self, team: str) -> RouteExamples:
        """The confirmed examples of a team's routes; they end with the process."""
        if self._door is None:
            from chargehand.sqlite.connection import JOURNAL  # noqa: PLC0415 - as above
            from chargehand.sqlite.database import MemoryDoor  # noqa: PLC0415 - only who learns needs SQLite

            self._door = MemoryDoor(JOURNAL)
        return RouteExamples(self._door, team)

    async def close(self) -> None:
        """Nothing to let go of: what was written can still be read."""
