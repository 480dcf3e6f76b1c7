"""What every journal promises, and the words in which each refuses. How entries are kept is not decided here."""

import os
import shlex
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from chargehand.engine.events import Entry
from chargehand.engine.policy import Instant
from chargehand.errors import Corrupt, Fenced, Invalid, Refused, RunBusy, RunUnknown
from chargehand.journal.route_examples import RouteExamples


class Lease(Struct, eq=False):
    """The right to append to one run, until somebody takes it over.

    `seq` is the last sequence number known to be durable. `number` is what the store calls the run, where it has
    a shorter name for it.
    """

    run: str
    epoch: int
    seq: int
    number: int = 0


class RunRow(Struct, frozen=True):
    """One run in a listing. `type` is that of its last event; `held`: a living process has claimed it.

    `damage` says why the first or the last entry cannot be read; the times are 0 and the type is empty then.
    """

    run: str
    seq: int
    started: Instant
    changed: Instant
    type: str
    epoch: int
    held: bool
    damage: str = ""


class DamagedRun(Struct, frozen=True):
    """A run whose first or last entry cannot be read."""

    number: int
    run: str
    damage: str


class Readable(Struct, frozen=True, eq=False):
    """The entries of a run as far as they can be read, and why no more of them; None if these are all."""

    entries: list[Entry]
    damage: Corrupt | None = None


class Ends(Struct, frozen=True):
    """A run by its first and its last entry. The `number` of a run that was begun later is higher."""

    number: int
    run: str
    first: Entry
    last: Entry


class Journal(Protocol):
    """The append-only truth about runs. One append of a lease at a time; many leases at once."""

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

    async def read(self, run: str, *, after: int = 0) -> list[Entry]: ...

    async def release(self, lease: Lease) -> None:
        """Let the run be claimed again. Says nothing if the lease was taken over."""
        ...

    async def runs(self) -> list[RunRow]:
        """Every run that has entries, by name."""
        ...

    async def latest(self, *, before: int, limit: int) -> list[Ends | DamagedRun]:
        """So many runs with a lower number than `before`, the latest first."""
        ...

    def route_examples(self, team: str) -> RouteExamples:
        """The confirmed examples of a team's routes."""
        ...

    async def close(self) -> None: ...


def check_name(run: str) -> None:
    """Raise Invalid for a name no journal can keep."""
    try:
        run.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{run!r} cannot name a run: it has half a surrogate pair") from error
    if not run:
        raise Invalid("a run needs a name that is not empty")


def check_claim(run: str, *, seq: int, process: int, new: bool, steal: bool) -> None:
    """Raise what a claim deserves that does not fit.

    `seq` is 0 for a run without entries, `process` is the one that holds the run, 0 for none.
    """
    if new and seq:
        raise Refused(f"run {run!r} exists already, with {seq} entries; choose another name or resume it")
    if not new and not seq:
        raise RunUnknown(run)
    if process and not steal:
        holder = "this process" if process == os.getpid() else f"process {process}"
        raise RunBusy(f"run {run!r} is being driven by {holder}; wait until it ends there, or stop it there")


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
    shown = f"chargehand runs show {shlex.quote(run)}"
    readable = f"The entries before it can be read: {shown}" if seq > 1 else "No entry of the run can be read"
    return Corrupt(
        f"entry {seq} of run {run!r} {problem}. {readable}. Restore the journal from a backup to go on with the run",
        run=run,
        seq=seq,
    )
