"""What must be so after a process was killed: the journal against what was told and against what really happened."""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from msgspec import Struct

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.fold import replay
from chargehand.engine.plan import NO_TASK, TaskId
from chargehand.journal.codec import decode
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import open_database
from chargehand.postgres.driver import Connection
from chargehand.store_url import postgres_url
from tests.victim import requests_of

_ENTRIES = "SELECT seq, at, epoch, type, version, body, blob FROM entries WHERE run = ? ORDER BY seq"
_STEPS = ("read", "idempotent", "effect")


class Row(Struct, frozen=True):
    seq: int
    at: float
    epoch: int
    type: str
    version: int
    body: bytes
    blob: str


Stand: TypeAlias = tuple[int, str, int, int]
"""Number, name, last entry and epoch of a run."""


def _rows_of_file(connection: sqlite3.Connection, number: int) -> list[Row]:
    return [Row(*one) for one in connection.execute(_ENTRIES, (number,))]


def _rows_of_database(store: str) -> dict[Stand, list[Row]]:
    async def work(connection: Connection) -> dict[Stand, list[Row]]:
        stands = await connection.fetch("SELECT number, run, seq, epoch FROM runs")
        found = {stand[0]: list[Row]() for stand in stands}
        query = "SELECT run, seq, at, epoch, type, version, body, '' FROM entries ORDER BY run, seq"
        for number, *columns in await connection.fetch(query):
            found[number].append(Row(*columns))
        return {(stand[0], stand[1], stand[2], stand[3]): found[stand[0]] for stand in stands}

    async def look() -> dict[Stand, list[Row]]:
        return await (await open_database(postgres_url(store))).read(work)

    return client_thread().wait(look())


class Evidence:
    """One journal over the lives of many processes. `problems` is what is wrong; it should stay empty.

    With `rivals` two processes were at work at once, so calls that are no effects may have been made twice. `store` is
    the URL of a database with the journal; left out, it is a file in the directory.
    """

    def __init__(self, directory: Path, *, rivals: bool = False, store: str = "") -> None:
        self.directory = directory
        self.store = store
        self._rivals = rivals
        self.problems: list[str] = []
        self.told: dict[str, dict[int, tuple[float, bytes]]] = {}
        self.ended: dict[str, tuple[str, Amount]] = {}
        self._checked: dict[str, int] = {}  # runs that have ended, and how long they were then
        self._begun: set[tuple[str, str, str]] = set()
        self._finished: set[tuple[str, str, str]] = set()
        self._first: dict[tuple[str, str], str] = {}
        """The attempt whose finished steps an attempt goes on from, by run and `task/attempt`."""
        self._calls: Counter[tuple[str, str, str]] = Counter()
        self._effects: Counter[tuple[str, str]] = Counter()
        self._made: set[str] = set()
        """What was asked for by calls that happened."""
        self._outside = 0

    def require(self, truth: bool, problem: str) -> None:
        if not truth:
            self.problems.append(problem)

    # --- what a process said

    def hear(self, line: str) -> None:
        word, *rest = line.split("\t")
        if word == "told":
            run, seq, at, body = rest
            known = self.told.setdefault(run, {})
            self.require(int(seq) > max(known, default=0), f"{run}: entry {seq} was told out of order or twice")
            known[int(seq)] = (float(at), body.encode())
        elif word == "ended":
            run, ending, tokens, micros, calls = rest
            self.ended[run] = (ending, Amount(int(tokens), int(micros), int(calls)))
        elif word == "refused":
            self.require(self._rivals, f"refused without reason: {rest}")

    # --- after every death

    def inspect(self) -> None:
        """Look at a copy: the next process must find the scene as it was left."""
        if self.store:
            rows = _rows_of_database(self.store)
            self._check_runs(list(rows), lambda number: next(rows[stand] for stand in rows if stand[0] == number))
            return
        with TemporaryDirectory() as scratch:
            for suffix in ("", "-wal"):
                found = self.directory / f"runs.db{suffix}"
                if found.exists():
                    shutil.copy(found, scratch)
            if not (Path(scratch) / "runs.db").exists():
                self.require(not self.told, "the journal is gone")
                return
            with closing(sqlite3.connect(Path(scratch) / "runs.db")) as connection:
                self._inspect(connection)

    def _inspect(self, connection: sqlite3.Connection) -> None:
        (said,) = connection.execute("PRAGMA integrity_check").fetchone()
        self.require(said == "ok", f"the file is damaged: {said}")
        known = connection.execute("SELECT name FROM sqlite_master WHERE name = 'runs'").fetchone()
        stands = connection.execute("SELECT number, run, seq, epoch FROM runs").fetchall() if known else []
        self._check_runs(stands, lambda number: _rows_of_file(connection, number))

    def _check_runs(self, stands: list[Stand], read: Callable[[int], list[Row]]) -> None:
        missing = self.told.keys() - {run for _, run, _, _ in stands}
        self.require(not missing, f"told and gone: {sorted(missing)}")
        for number, run, *_ in stands:
            if run not in self._checked:
                self._note_retries(run, self._entries(run, read(number)))
        self._look_outside()
        for number, run, seq, epoch in stands:
            if run in self._checked:
                self.require(seq == self._checked[run], f"{run} was written to after its end")
                continue
            rows = read(number)
            self._check_rows(run, rows, seq, epoch)
            self._finish(run, rows)
            if rows and rows[-1].type == "run.ended":
                self._checked[run] = seq
        early = [call for call in self._calls if call[1] in ("step", "attempt") and call not in self._begun]
        self.require(not early, f"made before they were written down: {early}")

    def _check_rows(self, run: str, rows: list[Row], seq: int, epoch: int) -> None:
        self.require([row.seq for row in rows] == list(range(1, seq + 1)), f"{run} has a hole, or not {seq} entries")
        epochs = [row.epoch for row in rows]
        self.require(epochs == sorted(epochs), f"{run}: the epochs go back")
        self.require(not epochs or epochs[-1] <= epoch, f"{run}: an entry of an epoch to come")
        for before, row in pairwise(rows):
            risen = row.epoch > before.epoch
            self.require(risen == (row.type == "run.resumed"), f"{run}: entry {row.seq} is of epoch {row.epoch}")
        stored = {row.seq: row for row in rows}
        for number, (at, body) in self.told.get(run, {}).items():
            row = stored.get(number)
            if row is None:
                self.problems.append(f"{run}: entry {number} was told and is lost")
            else:
                self.require((row.at, self._content(row)) == (at, body), f"{run}: entry {number} is not as told")

    def _content(self, row: Row) -> bytes:
        return (self.directory / "runs.db-blobs" / row.blob).read_bytes() if row.blob else row.body

    def _note_retries(self, run: str, entries: list[ev.Entry]) -> None:
        """Note which attempts go on from the finished steps of the one before."""
        kept: set[TaskId] = set()
        for event in (entry.event for entry in entries):
            if isinstance(event, ev.RetryScheduled):
                (kept.add if event.keep else kept.discard)(event.task)
            elif (
                isinstance(event, ev.AttemptStarted)
                and (run, place := f"{event.task}/{event.attempt}") not in self._first
            ):
                before = self._first.get((run, f"{event.task}/{event.attempt - 1}"), place)
                self._first[run, place] = before if event.task in kept else place

    def _step(self, run: str, task: TaskId, attempt: int, *, key: str, step: int) -> tuple[str, str, str]:
        """Return what names a step outside and in the journal: its first attempt, and its key or its number."""
        first = self._first.get((run, f"{task}/{attempt}"), f"{task}/{attempt}")
        return run, "step", f"{first}: {key or step}"

    def _look_outside(self) -> None:
        """What the process that just died did in the world: nothing that was finished before it began."""
        path = self.directory / "outside.log"
        lines = path.read_text().splitlines() if path.exists() else []
        seen: set[tuple[str, str, str]] = set()
        for line in lines[self._outside :]:
            run, kind, key, *rest = line.split("\t")
            call = (run, kind, key)
            if kind in _STEPS:
                self.require(key.startswith(f"{run}/"), f"{key} could be a key of another run than {run}")
                task, _, tail = key.removeprefix(f"{run}/").partition("/")
                number = int(tail.partition("/")[2]) if kind == "read" else 0
                call = self._step(run, task, int(rest[1]), key="" if kind == "read" else key, step=number)
            self.require(call not in self._finished, f"{call} was finished and made again")
            self.require(self._rivals or call not in seen, f"{call} was made twice by one process")
            seen.add(call)
            self._calls[call] += 1
            if kind == "effect":
                self._effects[run, key] += 1
            if kind in _STEPS:
                self._made.add(rest[0])
        self._outside = len(lines)

    def _finish(self, run: str, rows: list[Row]) -> None:
        workers: dict[TaskId, str] = {}
        keys: dict[tuple[TaskId, int], str] = {}
        for event in (entry.event for entry in self._entries(run, rows)):
            if isinstance(event, ev.StepStarted):
                keys[event.task, event.step] = event.key
                self._begun.add(self._step(run, event.task, event.attempt, key=event.key, step=event.step))
            elif isinstance(event, ev.AttemptStarted):
                self._begun.add((run, "attempt", f"{event.task}/{event.attempt}"))
            if isinstance(event, ev.StepFinished):
                key = keys[event.task, event.step]
                call = self._step(run, event.task, event.attempt, key=key, step=event.step)
                self._finished.add(call)
                self.require(call in self._calls, f"{call} has a result and never happened")
            self._finished.update((run, kind, key) for kind, key in _finished(event, workers))

    def _entries(self, run: str, rows: list[Row]) -> list[ev.Entry]:
        return [
            ev.Entry(row.seq, row.at, decode(row.type, row.version, self._content(row), run=run, seq=row.seq))
            for row in rows
        ]

    # --- after all is done

    def conclude(self) -> int:
        """Every run has ended, paid what its journal says, and did each effect once; returns how many runs."""
        if self.store:
            by_run = {stand[1]: rows for stand, rows in _rows_of_database(self.store).items() if rows}
        else:
            with closing(sqlite3.connect(self.directory / "runs.db")) as connection:
                runs = connection.execute("SELECT number, run FROM runs WHERE seq > 0").fetchall()
                by_run = {run: _rows_of_file(connection, number) for number, run in runs}
        for run, rows in by_run.items():
            self._conclude(run, self._entries(run, rows))
        return len(by_run)

    def _conclude(self, run: str, entries: list[ev.Entry]) -> None:
        state = replay(entries)
        self.require(state.ended is not None, f"{run} never ended")
        self.require(state.ledger.reserved == NOTHING, f"{run} still holds {state.ledger.reserved}")
        self.require(state.ledger.spent == spent(entries), f"{run}: the ledger differs from the journal")
        if state.ended is not None and run in self.ended:
            told = self.ended[run]
            self.require(told == (state.ended.ending, state.ledger.spent), f"{run} ended otherwise than was told")
        # a frozen rival may make a call that nobody could see any more when it was looked up
        allowed = again(entries) if self._rivals else Counter[str]()
        for (name, key), count in self._effects.items():
            if name == run:
                self.require(count <= 1 + allowed[key], f"the effect {key} happened {count} times")
        done = {entry.event.task for entry in entries if isinstance(entry.event, ev.AttemptSucceeded)}
        missing = {request for task in done for request in requests_of(run, task)} - self._made
        self.require(not missing, f"{run}: done without {sorted(missing)}")


def _finished(event: ev.Event, workers: dict[TaskId, str]) -> list[tuple[str, str]]:
    """The calls an event says are over, as they are called outside."""
    match event:
        case ev.AttemptStarted():
            workers[event.task] = event.worker
        case ev.AttemptFailed() if event.failure.kind == "uncertain":
            pass  # it goes on when it is known what became of its effect
        case ev.AttemptSucceeded() | ev.AttemptFailed():
            return [("attempt", f"{event.task}/{event.attempt}")]
        case ev.TaskRefined():
            return [("refine", f"{event.task}/{event.number}/{workers[event.task]}")]
        case ev.TasksAdded() if event.done:
            return [("plan", str(event.number))]
        case ev.AnswerWritten():
            return [("answer", str(event.number))]
        case _:
            pass
    return []


def again(entries: list[ev.Entry]) -> Counter[str]:
    """How often an effect was made once more after a look outside, by key."""
    asked: ev.InputRequested | None = None
    keys: dict[tuple[TaskId, int], str] = {}
    found: Counter[str] = Counter()
    for event in (entry.event for entry in entries):
        if isinstance(event, ev.StepStarted):
            keys[event.task, event.step] = event.key
        elif isinstance(event, ev.StepLookedUp):
            found[keys[event.task, event.step]] += event.outcome == "absent"
        elif isinstance(event, ev.InputRequested):
            asked = event
        elif isinstance(event, ev.InputAnswered) and asked is not None and asked.what == "effect":
            said = {verdict.call: verdict.verdict for verdict in event.also} | {asked.calls[0].call: event.verdict}
            found.update(call.key for call in asked.calls if said.get(call.call) == "again")
    return found


class _Bill:
    """What a journal amounts to in money, counted anew: what is open is charged when it is cut off."""

    def __init__(self) -> None:
        self.spent = [0, 0, 0]
        self.open: dict[tuple[str, ...], Amount] = {}

    def close(self, *key: str, used: Amount | None) -> None:
        held = self.open.pop(key, NOTHING)
        booked = held if used is None else used
        self.spent = [sum(pair) for pair in zip(self.spent, (booked.tokens, booked.micros, booked.calls), strict=True)]

    def cut_off(self, task: str = "") -> None:
        for key in [key for key in self.open if not task or key[:2] == ("step", task)]:
            self.close(*key, used=None)

    def see(self, event: ev.Event) -> None:
        match event:
            case ev.SupervisionStarted():
                held = self.open.get((event.duty, event.task), NOTHING)
                more = event.reserve or NOTHING
                both = Amount(held.tokens + more.tokens, held.micros + more.micros, held.calls + more.calls)
                self.open[event.duty, event.task] = both
            case ev.SupervisionFailed():
                self.close(event.duty, event.task, used=event.used)
            case ev.TasksAdded() if event.done:
                self.close("plan", NO_TASK, used=event.used)
            case ev.TaskRefined():
                self.close("refine", event.task, used=event.used)
            case ev.AnswerWritten():
                self.close("answer", NO_TASK, used=event.used)
            case ev.RunResumed() | ev.TimeRanOut() | ev.RunEnded():
                self.cut_off()
            case _:
                self._see_attempt(event)

    def _see_attempt(self, event: ev.Event) -> None:
        match event:
            case ev.AttemptStarted():
                self.open["attempt", event.task] = event.reserve or NOTHING
            case ev.StepStarted():
                self.open.pop(("attempt", event.task), None)
                self.open["step", event.task, str(event.step)] = event.reserve or NOTHING
            case ev.StepFinished():
                self.close("step", event.task, str(event.step), used=event.used)
            case ev.AttemptSucceeded() | ev.AttemptFailed():
                self.cut_off(event.task)
                self.close("attempt", event.task, used=event.used)
            case _:
                pass


def spent(entries: list[ev.Entry]) -> Amount:
    bill = _Bill()
    for entry in entries:
        bill.see(entry.event)
    return Amount(*bill.spent)
