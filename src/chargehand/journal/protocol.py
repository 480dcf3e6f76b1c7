"""What every journal promises, and the errors it raises. How entries are kept is not decided here."""

import os
import shlex
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from chargehand.engine.events import Entry, RunEnded, RunRequested
from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import Corrupt, Fenced, Invalid, Refused, RunBusy, RunUnknown
from chargehand.journal.commands import Commands
from chargehand.journal.deliveries import Deliveries, Delivery
from chargehand.journal.files import Files
from chargehand.journal.words import Words

if TYPE_CHECKING:
    import sqlite3  # loaded by whatever opened the database

    from chargehand.sqlite.connection import Durability, Examined
    from chargehand.sqlite.database import Database


# --- confirmed examples of routes


Source: TypeAlias = Literal["judge", "eval", "feedback"]
SOURCES: tuple[Source, ...] = ("judge", "eval", "feedback")
MAX_EXAMPLES = 50
"""How many are kept of each worker and source: the latest."""
MAX_REQUEST_CHARS = 2000


class RouteExample(Struct, frozen=True):
    """A request that was confirmed to be for a worker, and how it was confirmed."""

    request: str
    worker: str
    source: Source
    run: str
    at: Instant = 0.0


class RouteExamples(Protocol):
    """The confirmed examples of one team."""

    @property
    def team(self) -> str: ...

    async def record(
        self, run: str, source: Source, confirmed: Iterable[RouteExample], refuted: Iterable[RouteExample] = ()
    ) -> None:
        """Replace what a source says of a run.

        A refuted example removes every confirmation of the same request for that worker.
        """
        ...

    async def list(self) -> tuple[RouteExample, ...]:
        """Every example, the oldest first."""
        ...

    async def clear(self, run: str = "") -> int:
        """Remove those of a run, or all of the team's, and return how many there were."""
        ...


class SqliteRouteExamples:
    """The examples of a team in the database of its journal."""

    def __init__(self, database: "Database", team: str) -> None:
        self._database = database
        self.team = team

    async def record(
        self, run: str, source: Source, confirmed: Iterable[RouteExample], refuted: Iterable[RouteExample] = ()
    ) -> None:
        wrong = list(refuted)
        right = list(confirmed)

        def work(db: "sqlite3.Connection") -> None:
            db.execute("DELETE FROM route_examples WHERE team = ? AND run = ? AND source = ?", (self.team, run, source))
            for example in wrong:
                key = (self.team, example.worker, shorten_request(example.request))
                db.execute("DELETE FROM route_examples WHERE team = ? AND worker = ? AND request = ?", key)
            for example in right:
                row = (self.team, run, source, example.worker, shorten_request(example.request), example.at)
                db.execute(
                    "INSERT INTO route_examples (team, run, source, worker, request, at) VALUES (?, ?, ?, ?, ?, ?)", row
                )
                db.execute(_TRIM, {"team": self.team, "worker": example.worker, "source": source, "max": MAX_EXAMPLES})

        await self._database.write(work)

    async def list(self) -> tuple[RouteExample, ...]:
        query = "SELECT request, worker, source, run, at FROM route_examples WHERE team = ? ORDER BY number"
        rows = await self._database.read(lambda db: db.execute(query, (self.team,)).fetchall())
        return tuple(
            RouteExample(request=request, worker=worker, source=source, run=run, at=at)
            for request, worker, source, run, at in rows
        )

    async def clear(self, run: str = "") -> int:
        query = "DELETE FROM route_examples WHERE team = ?1 AND ?2 IN ('', run)"
        return await self._database.write(lambda db: db.execute(query, (self.team, run)).rowcount)


async def list_example_teams(database: "Database") -> list[str]:
    """The teams that have examples in a database, by name."""
    query = "SELECT DISTINCT team FROM route_examples ORDER BY team"
    return [team for (team,) in await database.read(lambda db: db.execute(query).fetchall())]


_TRIM = """
    DELETE FROM route_examples WHERE team = :team AND worker = :worker AND source = :source AND number <= (
        SELECT number FROM route_examples WHERE team = :team AND worker = :worker AND source = :source
        ORDER BY number DESC LIMIT 1 OFFSET :max)
"""


def shorten_request(request: str) -> str:
    """A request as it is kept: on one line, without NUL characters, and not all of a long one."""
    return " ".join(request.replace("\0", " ").split())[:MAX_REQUEST_CHARS]


# --- journals


class Lease(Struct, eq=False):
    """The right to append to one run, until another claim takes it over."""

    run: str
    epoch: int
    seq: int
    """The last sequence number known to be durable."""
    number: int = 0
    """What the store calls the run, where it has a shorter name for it."""
    released: bool = False
    """The store let go of it with the entry that ended the run."""


class RunRow(Struct, frozen=True):
    """One run in a listing, by its first and its last entry."""

    run: str
    number: int
    """Runs that were begun later have higher numbers."""
    seq: int
    epoch: int = 0
    held: bool = False
    """A living process has claimed it."""
    first: Entry | None = None
    last: Entry | None = None
    damage: str = ""
    """Why the first or the last entry cannot be read, then both are None; empty if both can."""

    @property
    def started(self) -> Instant:
        return 0.0 if self.first is None else self.first.at

    @property
    def changed(self) -> Instant:
        return 0.0 if self.last is None else self.last.at

    @property
    def request(self) -> RunRequested | None:
        """The first event of the run."""
        return self.first.event if self.first is not None and isinstance(self.first.event, RunRequested) else None

    @property
    def ended(self) -> RunEnded | None:
        """The last event, if that is the end of the run."""
        return self.last.event if self.last is not None and isinstance(self.last.event, RunEnded) else None


def is_named_inside(run: str, runs: Collection[str]) -> bool:
    """Whether the name of a run is one that runs inside these have; a run that is inside no other may have it, too."""
    return any(sign == "/" and run[:at] in runs for at, sign in enumerate(run))


def nested_runs(runs: Iterable[str], rows: Iterable[RunRow]) -> list[str]:
    """The runs inside these, at any depth. `rows` are sorted by name: a run comes before those inside it.

    Where the request of a run cannot be read, its name decides.
    """
    around = set(runs)
    inside: list[str] = []
    for row in rows:
        request = row.request
        parent = None if request is None else request.parent
        is_nested = is_named_inside(row.run, around) if request is None else parent is not None and parent.run in around
        if is_nested:
            around.add(row.run)
            inside.append(row.run)
    return inside


class Readable(Struct, frozen=True, eq=False):
    """The entries of a run as far as they can be read, and why no more of them; None if these are all."""

    entries: list[Entry]
    damage: Corrupt | None = None


AppendNow: TypeAlias = Callable[[Lease, Sequence[Entry]], None]


class Notices(Protocol):
    """Tell followers what is written to a journal that several processes share."""

    def subscribe(self, run: str, on_entries: Callable[[], None], *, own: bool = False) -> Callable[[], None]:
        """Have `on_entries` called in this event loop when another process may have written a run.

        Args:
            run: the run to follow.
            on_entries: called without arguments, possibly when nothing was written.
            own: call it also for what this process writes.

        Returns:
            A function that ends it.
        """
        ...

    def subscribe_all(self, on_entries: Callable[[], None]) -> Callable[[], None]:
        """The same for whichever run of the journal."""
        ...

    @property
    def lag(self) -> Seconds:
        """For how long nothing was heard of the store; above ten seconds, notices may be late."""
        ...


class UndrivenRun(Struct, frozen=True):
    """An open run that no process drives, though it needs no person."""

    run: str
    queue: str
    job: str | None
    """The job it is in; None: in none yet."""


class Jobs(Protocol):
    """Which job of an engine each run is in. A run is in one job at most, until it has ended or needs a person."""

    async def assign(
        self, runs: Sequence[str], job: str, *, queue: str, instead_of: str | None = None
    ) -> dict[str, str]:
        """Put the runs that are in no job, or in another one, into this one; the job of each, without ended runs."""
        ...

    async def open_runs(self, job: str) -> list[str]:
        """The runs of a job that have not ended."""
        ...

    async def park(self, run: str, job: str) -> None:
        """Take a run that needs a person out of its job; the next `assign` finds it."""
        ...

    async def settled(self, runs: Sequence[str]) -> set[str]:
        """Those of the runs that have ended or need a person."""
        ...

    async def undriven(self, *, limit: int) -> list[UndrivenRun]:
        """Runs that no living process holds, and that are not parked; the oldest first."""
        ...

    async def count_open(self, *, most: int) -> int:
        """How many runs wait for a process or are driven, nested ones too; counted up to `most`."""
        ...


class Journal(Protocol):
    """The append-only truth about runs. One append of a lease at a time; many leases at once."""

    @property
    def append_now(self) -> AppendNow | None:
        """`append` without waiting; None if this journal has to wait for a disk or a server."""
        ...

    @property
    def notices(self) -> Notices | None:
        """What other processes write; None if this journal is not told."""
        ...

    @property
    def commands(self) -> Commands | None:
        """What processes ask of runs that others drive; None if only the process that drives a run can be asked."""
        ...

    @property
    def jobs(self) -> Jobs | None:
        """The jobs of its runs; None if no engine may drive them."""
        ...

    @property
    def words(self) -> Words | None:
        """What models write in runs that other processes drive; None if no process hears another."""
        ...

    @property
    def deliveries(self) -> Deliveries | None:
        """What is owed to webhooks; None if this journal ends with its process."""
        ...

    @property
    def files(self) -> Files:
        """The files that runs are given."""
        ...

    @property
    def trouble(self) -> str:
        """Why nothing can be written at the moment; empty when all is well."""
        ...

    async def create(self, run: str, entries: Sequence[Entry]) -> None:
        """Write the first entries of a new run that no process holds: the first claim of it has epoch 1.

        All of it durable on return, or none of it written. Refused if the run exists, unless with these very entries:
        it may be repeated.
        """
        ...

    async def claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        """The right to append, with an epoch above all before.

        A new run must not exist, any other must have entries. RunBusy, with the process that holds it, unless it is
        stolen. What a dead process held is free.
        """
        ...

    async def append(self, lease: Lease, entries: Sequence[Entry]) -> None:
        """All of it durable on return, or none of it written.

        Entries continue the run without a hole. Fenced if the lease was taken over. After an error, or when
        cancelled, the same entries may be appended again: they are written once.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Let the run be claimed again. No error if the lease was taken over."""
        ...

    async def read(self, run: str, *, after: int = 0) -> list[Entry]:
        """The entries that follow number `after`; RunUnknown if the run has none, Corrupt if one cannot be read."""
        ...

    async def read_readable(self, run: str, *, after: int = 0) -> Readable:
        """The entries up to the first that is damaged, with what is wrong there. For views: do not resume from it."""
        ...

    async def row(self, run: str) -> RunRow:
        """One run as listings have it; RunUnknown if it has no entries."""
        ...

    async def runs(self) -> list[RunRow]:
        """Every run that has entries, by name."""
        ...

    async def open_runs(self) -> list[RunRow]:
        """The runs that have not ended, by name; without those that are damaged."""
        ...

    async def changed_since(self, since: Instant) -> list[RunRow]:
        """The runs whose last entry is not older, by name."""
        ...

    async def latest(self, *, before: int, limit: int) -> list[RunRow]:
        """At most `limit` runs with a lower number than `before`, the latest first."""
        ...

    async def inside(self, run: str) -> list[str]:
        """The names of the runs nested in a run, at any depth, sorted."""
        ...

    def route_examples(self, team: str) -> RouteExamples:
        """The confirmed examples of a team's routes."""
        ...

    async def example_teams(self) -> list[str]:
        """The teams that have confirmed examples, by name."""
        ...

    async def close(self) -> None: ...


class JournalProxy:
    """A journal that passes everything on to another: the base of wrappers, which override what they change."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @property
    def append_now(self) -> AppendNow | None:
        return None

    @property
    def notices(self) -> Notices | None:
        return self._journal.notices

    @property
    def commands(self) -> Commands | None:
        return self._journal.commands

    @property
    def jobs(self) -> Jobs | None:
        return self._journal.jobs

    @property
    def words(self) -> Words | None:
        return self._journal.words

    @property
    def deliveries(self) -> Deliveries | None:
        return self._journal.deliveries

    @property
    def files(self) -> Files:
        return self._journal.files

    @property
    def trouble(self) -> str:
        return self._journal.trouble

    async def create(self, run: str, entries: Sequence[Entry]) -> None:
        await self._journal.create(run, entries)

    async def claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        return await self._journal.claim(run, new=new, steal=steal)

    async def append(self, lease: Lease, entries: Sequence[Entry]) -> None:
        await self._journal.append(lease, entries)

    async def release(self, lease: Lease) -> None:
        await self._journal.release(lease)

    async def read(self, run: str, *, after: int = 0) -> list[Entry]:
        return await self._journal.read(run, after=after)

    async def read_readable(self, run: str, *, after: int = 0) -> Readable:
        return await self._journal.read_readable(run, after=after)

    async def row(self, run: str) -> RunRow:
        return await self._journal.row(run)

    async def runs(self) -> list[RunRow]:
        return await self._journal.runs()

    async def open_runs(self) -> list[RunRow]:
        return await self._journal.open_runs()

    async def changed_since(self, since: Instant) -> list[RunRow]:
        return await self._journal.changed_since(since)

    async def latest(self, *, before: int, limit: int) -> list[RunRow]:
        return await self._journal.latest(before=before, limit=limit)

    async def inside(self, run: str) -> list[str]:
        return await self._journal.inside(run)

    def route_examples(self, team: str) -> RouteExamples:
        return self._journal.route_examples(team)

    async def example_teams(self) -> list[str]:
        return await self._journal.example_teams()

    async def close(self) -> None:
        await self._journal.close()


class Pruned(Struct, frozen=True):
    """What was deleted."""

    runs: tuple[str, ...]
    held: tuple[str, ...]
    """Runs that a living process drives, which stay."""
    blobs: int
    bytes: int
    """The size of the blobs. Pages of the file itself are used again, it does not shrink."""


class BackedUp(Struct, frozen=True):
    runs: int
    blobs: int


class JournalStore(Protocol):
    """Where one journal is kept: opened to write, or used without claiming a run. All but `open` blocks."""

    async def open(self, *, durability: "Durability", create: bool) -> Journal:
        """Refused if there is no journal yet and none is to be created."""
        ...

    def read(self, run: str, *, after: int) -> list[Entry]: ...

    def read_readable(self, run: str) -> Readable: ...

    def row(self, run: str) -> RunRow: ...

    def runs(self) -> list[RunRow]: ...

    def latest(self, *, before: int, limit: int) -> list[RunRow]: ...

    def names(self, prefix: str) -> list[str]:
        """The names that begin so, the latest first; without damaged ones."""
        ...

    def inside(self, run: str) -> list[str]: ...

    def deliveries(self) -> list[Delivery]:
        """What is owed to webhooks, and what was given up."""
        ...

    def examine(self) -> "Examined":
        """What is wrong with a journal that is there. Takes a few seconds at most."""
        ...

    def prune(self, runs: Sequence[str]) -> Pruned: ...

    def back_up(self, target: Path) -> BackedUp: ...

    def restore(self, backup: Path) -> BackedUp: ...


def check_name(run: str) -> None:
    """Raise Invalid for a name no journal can keep."""
    try:
        run.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{run!r} cannot name a run: it has half a surrogate pair") from error
    if not run or "\0" in run:
        raise Invalid(f"{run!r} cannot name a run: a name is not empty and has no NUL character")


def check_claim(run: str, *, seq: int, process: int, new: bool, steal: bool, host: str = "") -> None:
    """Raise what a claim deserves that does not fit.

    `seq` is 0 for a run without entries, `process` is the one that holds the run, 0 for none; `host` is where it runs,
    in a store of several hosts.
    """
    if new and seq:
        raise Refused(f"run {run!r} exists already, with {seq} entries; choose another name or resume it")
    if not new and not seq:
        raise RunUnknown(run)
    if process and not steal:
        is_here = process == os.getpid() and host in ("", socket.gethostname())
        holder = "this process" if is_here else f"process {process}{host and f' on {host}'}"
        raise RunBusy(f"run {run!r} is being driven by {holder}; wait until it ends there, or stop it there")


def check_first_entries(run: str, entries: Sequence[Entry]) -> None:
    """Raise Invalid for entries that no run begins with."""
    check_name(run)
    if not entries or entries[0].seq != 1:
        raise Invalid(f"run {run!r} would begin without its first entry; number entries from 1")
    check_numbers(run, entries)


def check_numbers(run: str, entries: Sequence[Entry]) -> None:
    """Raise Invalid if entries have a hole among themselves."""
    for number, entry in enumerate(entries, max(entries[0].seq, 1)):
        if entry.seq != number:
            raise Invalid(f"entry {entry.seq} of run {run!r} stands where {number} belongs; number them one by one")


def fenced(run: str, epoch: int) -> Fenced:
    return Fenced(
        f"epoch {epoch} of run {run!r} is over: it was released or taken over. Drop it, and claim the run anew"
    )


def misfit(run: str, stored: int, first: int) -> Refused:
    return Refused(f"run {run!r} has {stored} entries, so one numbered {first} does not follow; read it and go on")


def differs(run: str, seq: int) -> Corrupt:
    return Corrupt(
        f"entry {seq} of run {run!r} is stored already, with another content. "
        "After a failed append, repeat the very same entries, or claim the run anew and read it",
        run=run,
        seq=seq,
    )


def damaged(run: str, seq: int, problem: str) -> Corrupt:
    """The error for an entry that cannot be read, with what can be read and what to do."""
    command = f"chargehand runs show {shlex.quote(run)}"
    readable = f"The entries before it can be read: {command}" if seq > 1 else "No entry of the run can be read"
    return Corrupt(
        f"entry {seq} of run {run!r} {problem}. {readable}. Restore the journal from a backup to go on with the run",
        run=run,
        seq=seq,
    )
