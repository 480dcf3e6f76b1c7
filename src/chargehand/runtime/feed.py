"""What is written, for any number of readers: first what the journal has, then live, in order, each entry once.

A reader never holds a runner up: one that falls behind goes back to reading the journal. What a runner of this process
writes arrives live; of what others write the reader is told where the journal has notices. Where many readers follow
one run, what is written within a moment is handed out together: else most of the time goes into waking them for
one entry.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from itertools import islice
from weakref import WeakSet, WeakValueDictionary, finalize, ref

from chargehand.engine.events import Entry, RunEnded
from chargehand.engine.policy import Seconds
from chargehand.errors import Refused, RunUnknown
from chargehand.journal.protocol import Journal

MOST = 1000
"""How many entries wait for a reader before it has to fetch them from the journal."""
MANY = 50
"""How many readers of one run are so many that entries are gathered for them."""
_EACH: Seconds = 20e-6  # about what it takes to wake one of them and send it something
_LONGEST: Seconds = 0.05


class Feed:
    """A runner's listener with any number of readers. It forgets a reader that is not referenced any more."""

    def __init__(self, journal: Journal, *, most: int = MOST) -> None:
        self._journal = journal
        self._most = most
        self._readers: WeakValueDictionary[str, WeakSet[Reader]] = WeakValueDictionary()
        self._gathered: dict[str, list[Entry]] = {}
        self._latest: dict[str, deque[Entry]] = {}  # of runs that many read: who comes back needs no journal

    def __call__(self, run: str, entries: Sequence[Entry]) -> None:
        readers = self._readers.get(run)
        if readers is None or not entries:
            self._latest.pop(run, None)
            return
        count = len(readers)
        waiting = run in self._gathered
        if count < MANY and not waiting:
            self._latest.pop(run, None)
            self._hand_out(readers, entries)
            return
        self._gathered.setdefault(run, []).extend(entries)
        self._latest.setdefault(run, deque(maxlen=self._most)).extend(entries)
        if isinstance(entries[-1].event, RunEnded):
            del self._latest[run]
            self._give(run)
        elif not waiting:
            asyncio.get_running_loop().call_later(min(count * _EACH, _LONGEST), self._give, run)

    def _give(self, run: str) -> None:
        """Hand out what was gathered; nothing, if that was done already."""
        if entries := self._gathered.pop(run, None):
            self._hand_out(self._readers.get(run, ()), entries)

    def _hand_out(self, readers: "Iterable[Reader]", entries: Sequence[Entry]) -> None:
        for reader in tuple(readers):
            reader.hear(entries)

    def subscribe(self, run: str, after: int = 0, *, expected: bool = False) -> "Reader":
        """The entries of a run that follow number `after`, up to the end of the run.

        A run without entries is RunUnknown to the reader, unless it is `expected` to begin.
        """
        mates = self._readers.get(run)
        if mates is None:
            mates = self._readers[run] = WeakSet()
            if self._journal.notices is not None:
                # only the readers hold their set: with the last of them the subscription ends
                finalize(mates, self._journal.notices.subscribe(run, partial(_look_again, ref(mates))))
        reader = Reader(journal=self._journal, run=run, after=after, most=self._most, mates=mates, expected=expected)
        mates.add(reader)
        latest = self._latest.get(run)
        if latest and latest[0].seq <= after <= latest[-1].seq:
            reader.begin_with(islice(latest, after - latest[0].seq + 1, None))
        return reader

    @property
    def readers(self) -> int:
        """How many there are."""
        return sum(map(len, self._readers.values()))


def _look_again(readers: "ref[WeakSet[Reader]]") -> None:
    """Have the readers of a run read what another process wrote."""
    for reader in tuple(readers() or ()):
        reader.look_again()


class Reader(AsyncIterator[Entry]):
    """One reader's place in a run. Nothing is lost when a wait is cancelled or raises: ask for the next again."""

    def __init__(
        self, journal: Journal, run: str, after: int, most: int, mates: "WeakSet[Reader]", *, expected: bool
    ) -> None:
        self._mates = mates  # the feed knows them only as long as one of them does
        self._journal = journal
        self._run = run
        self._seen: int = max(after, 0)
        self._most = most
        self._expected = expected
        self._past: deque[Entry] = deque()
        self._live: deque[Entry] = deque()
        self._behind = True
        self._over = False
        self._wakeup = asyncio.Event()

    def begin_with(self, entries: Iterable[Entry]) -> None:
        """Take what follows and was not handed out before it came: the journal need not be asked."""
        self._behind = False
        self._past.extend(entries)

    async def first(self) -> list[Entry]:
        """What is there already, which may be nothing. RunUnknown for a run that is not there."""
        if self._behind:
            await self._catch_up()
        return self.at_once()

    @property
    def over(self) -> bool:
        """Whether nothing follows what was handed on."""
        return self._over

    def hear(self, entries: Iterable[Entry]) -> None:
        """Take what was written just now, or, if that is too much, note that the journal has it."""
        if self._behind or self._over:
            return
        self._live.extend(entries)
        if len(self._live) > self._most:
            self._fall_behind()
        self._wakeup.set()

    def look_again(self) -> None:
        """Read the journal: another process may have written to it."""
        if not self._over:
            self._fall_behind()
            self._wakeup.set()

    def _fall_behind(self) -> None:
        self._live.clear()
        self._behind = True

    async def __anext__(self) -> Entry:
        while not self._over:
            if (entry := self._next()) is not None:
                return entry
            if self._behind:
                await self._catch_up()
            else:
                self._wakeup.clear()
                await self._wakeup.wait()
        raise StopAsyncIteration

    def at_once(self) -> list[Entry]:
        """What follows and is here already: for who hands on many at a time."""
        entries: list[Entry] = []
        while not self._over and (entry := self._next()) is not None:
            entries.append(entry)
        return entries

    def _next(self) -> Entry | None:
        for line in (self._past, self._live):
            while line:
                entry = line.popleft()
                if entry.seq == self._seen + 1:
                    self._seen = entry.seq
                    self._over = isinstance(entry.event, RunEnded)
                    return entry
                if entry.seq > self._seen:  # another runner wrote in between
                    self._fall_behind()
        return None

    async def _catch_up(self) -> None:
        # from here on what is written is heard: it is in the journal's answer, or in the line, or in both
        self._behind = False
        try:
            entries = await self._journal.read(self._run, after=max(self._seen - 1, 0))
        except BaseException as error:
            if self._expected and not self._seen and isinstance(error, RunUnknown):
                return
            self._fall_behind()
            raise
        if self._seen and not entries:
            self._fall_behind()
            raise Refused(f"run {self._run!r} has no entry {self._seen} yet; read on from one that it has")
        # the last entry seen comes along, to tell whether it was the end
        self._over = bool(self._seen) and isinstance(entries[0].event, RunEnded)
        self._past.extend(entries)
