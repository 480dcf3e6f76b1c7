"""What a run writes: as JSON, as it comes (server-sent events), and all of it as a trace."""

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import cast

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.agents.audit.assessment import assess
from chargehand.engine.events import Entry, RunEnded
from chargehand.engine.state import TextKind, Work
from chargehand.errors import Corrupt, Refused
from chargehand.journal.protocol import Readable
from chargehand.runtime.feed import Reader
from chargehand.runtime.trace import Trace, complete_prompts, nested_trace, trace_readable, with_defaults
from chargehand.server.api.operations import operation
from chargehand.server.api.shapes import (
    DamageReport,
    Entries,
    EntriesAfter,
    EntryInfo,
    EventsAfter,
    EventsOfRuns,
    Evidence,
    StreamedWords,
    TraceFormat,
    show,
)
from chargehand.server.run_control import read_run
from chargehand.server.streams import MEDIA_TYPE, GzipStream, Output, event, streamed
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, nothing, reply, unknown

_RETRY = b"retry: 1000\n\n"
_MAX_KEPT = 4096
_LINES = "application/jsonl"
_LARGE = 2048
_WHOLE = frozenset(("messages", "result", "answer"))
"""Fields that hold any JSON: if it is large, none of it is sent to who wants lean entries."""


class EncodedEntries:
    """Entries as events, encoded once for all who read them. `tenant.part(EncodedEntries)` is it."""

    def __init__(self, _tenant: Tenant) -> None:
        self._kept: dict[tuple[str, int, bool], bytes] = {}
        self._encoder = msgspec.json.Encoder()
        self._latest: tuple[tuple[str, int, int, bool], bytes] = (("", 0, 0, False), b"")

    def encode_all(self, run: str, entries: Sequence[Entry], *, lean: bool) -> bytes:
        """Entries that follow each other. Many readers of a run want the same ones at the same time."""
        if not entries:
            return b""
        key = (run, entries[0].seq, entries[-1].seq, lean)
        if self._latest[0] != key:
            encoded = [b"id: %d\n" % entry.seq + self.encode(run, entry, lean=lean) for entry in entries]
            self._latest = key, b"".join(encoded)
        return self._latest[1]

    def encode(self, run: str, entry: Entry, *, lean: bool = False) -> bytes:
        """All of an event but its id."""
        key = (run, entry.seq, lean)
        encoded = self._kept.get(key)
        if encoded is None:
            kind = type(entry.event).__struct_config__.tag
            data = self._encoder.encode(_entry_info(run, entry))
            if lean and len(data) > _LARGE:
                data = self._encoder.encode(_without_large(msgspec.json.decode(data), entry.seq))
            encoded = f"event: {kind}\ndata: ".encode() + data + b"\n\n"
            self._kept[key] = encoded
            if len(self._kept) > _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return encoded


def _entry_info(run: str, entry: Entry) -> EntryInfo:
    return EntryInfo(run=run, seq=entry.seq, at=entry.at, event=entry.event)


def _without_large(value: object, seq: int, name: str = "") -> object:
    """A value with a pointer to its entry instead of every text, result, answer or prompt in it that is large."""
    if isinstance(value, str) or name in _WHOLE:
        size = len(msgspec.json.encode(value))
        if size > _LARGE:
            return {"$entry": seq, "bytes": size}
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _without_large(field, seq, key) for key, field in fields.items()}
    if isinstance(value, list):
        return [_without_large(item, seq) for item in cast("list[object]", value)]
    return value


# --- as JSON


@operation("GET", "/api/runs/{run}/entries", reply=Entries)
async def list_entries(tenant: Tenant, request: Request, run: str, query: EntriesAfter) -> Response:
    """What a run wrote; with `Accept: text/event-stream`, the same as its events."""
    if MEDIA_TYPE in request.headers.get("accept", ""):
        return await follow_run(tenant, request, run, EventsAfter(query.after))
    readable = await _read(tenant, run, query.after)
    entries = readable.entries
    damage = readable.damage
    following = [entry for entry in entries if entry.seq > query.after]
    if damage is not None and not following:
        raise damage
    page = following[: query.limit]
    is_last_page = len(page) == len(following)
    return reply(
        Entries(
            entries=tuple(_entry_info(run, entry) for entry in page),
            last=page[-1].seq if page else query.after,
            over=bool(entries) and isinstance(entries[-1].event, RunEnded) and is_last_page,
            damage=str(damage) if damage is not None and is_last_page else "",
        )
    )


@operation("GET", "/api/runs/{run}/entries/{seq}")
async def show_entry(tenant: Tenant, run: str, seq: str) -> EntryInfo:
    """One entry, whole."""
    number = int(seq) if seq.isascii() and seq.isdigit() and len(seq) <= 15 else 0
    entries = (await tenant.journal.read_readable(run, after=number - 1)).entries if number else []
    if not entries:
        raise unknown("entry", seq)
    return _entry_info(run, entries[0])


@operation("GET", "/api/runs/{run}/evidence")
async def show_evidence(tenant: Tenant, run: str) -> Evidence:
    """What was counted about the answer: what it covers, what its figures rest on, where results contradict."""
    return show(assess((await read_run(tenant, run)).state), Evidence)


async def _read(tenant: Tenant, run: str, after: int) -> Readable:
    """What follows an entry, and that entry itself: it tells whether it was the last."""
    readable = await tenant.journal.read_readable(run, after=max(after - 1, 0))
    if after and not readable.entries and readable.damage is None:
        raise Refused(f"run {run!r} has no entry {after} yet; read on from one that it has")
    return readable


# --- as they come


@operation("GET", "/api/runs/{run}/events", media=(MEDIA_TYPE,), may_be_empty=True)
async def follow_run(tenant: Tenant, request: Request, run: str, query: EventsAfter) -> Response:
    """Entries as server-sent events, from `after` or Last-Event-ID on; 204 when nothing will follow.
    A damaged run ends with an event `damaged`.
    """  # noqa: D205 - it is one summary
    return await _follow(tenant, request, (run,), str(query.after), lean=query.lean, words=query.words)


@operation("GET", "/api/events", media=(MEDIA_TYPE,), may_be_empty=True)
async def follow_runs(tenant: Tenant, request: Request, query: EventsOfRuns) -> Response:
    """The same of several runs in one stream; ids have a number for each run, with dots between.
    One that is damaged ends with an event `damaged`, and the others go on.
    """  # noqa: D205 - it is one summary
    runs = tuple(dict.fromkeys(query.run))
    return await _follow(tenant, request, runs, query.after or ".".join("0" * len(runs)))


class Followed(Struct, frozen=True):
    """One run of a stream: the entries that are there already, and the reader of those to come.

    Without a reader none follow, because of the damage.
    """

    run: str
    first: Sequence[Entry]
    reader: Reader | None = None
    damage: Corrupt | None = None

    @property
    def is_over(self) -> bool:
        return not self.first and (self.reader is None or self.reader.over)


async def _follow(
    tenant: Tenant, request: Request, runs: Sequence[str], after: str, *, lean: bool = False, words: bool = False
) -> Response:
    marks = dict(zip(runs, _last_seen(request, after, len(runs)), strict=True))
    followed = [await _subscribe(tenant, name, mark) for name, mark in marks.items()]
    if not all(run.is_over for run in followed):
        slot = tenant.runs.take_stream_slot()
        is_packed = lean and "gzip" in request.headers.get("accept-encoding", "")
        gzip = GzipStream() if is_packed else None
        if words:
            return streamed(*_events_and_words(tenant, followed[0], marks, lean=lean), slot=slot, gzip=gzip)
        return streamed(*(_events(tenant, run, marks, lean=lean) for run in followed), slot=slot, gzip=gzip)
    for run in followed:
        if run.damage is not None:
            raise run.damage
    return nothing()


def _last_seen(request: Request, usual: str, count: int) -> list[int]:
    """How far each run was seen. Who comes back says it in a header, while the address is still that of before."""
    text = request.headers.get("last-event-id", "") or usual
    marks = text.split(".")
    if len(marks) != count or not all(mark.isascii() and mark.isdigit() and len(mark) <= 15 for mark in marks):
        raise Problem(422, "invalid", f"{text[:60]!r} does not say how far {count} runs were seen; give a number each")
    return [int(mark) for mark in marks]


async def _subscribe(tenant: Tenant, run: str, after: int) -> Followed:
    reader = tenant.feed.subscribe(run, after)
    try:
        return Followed(run, await reader.first(), reader)
    except Corrupt:
        readable = await tenant.journal.read_readable(run, after=after)
        return Followed(run, readable.entries, damage=readable.damage)


def _events_and_words(
    tenant: Tenant, followed: Followed, marks: dict[str, int], *, lean: bool
) -> tuple[AsyncGenerator[bytes], AsyncGenerator[bytes]]:
    """The events of a run, and what models write meanwhile. Both are over when the run is."""
    pieces = Output[bytes]()

    def add(words: StreamedWords) -> None:
        pieces.add(event(words, name="words" if words.kind == "answer" else "thoughts"))

    async def events() -> AsyncGenerator[bytes]:
        try:
            async for part in _events(tenant, followed, marks, lean=lean):
                yield part
        finally:
            pieces.close()

    async def words() -> AsyncGenerator[bytes]:
        with listen_to_words(tenant, followed.run, add):
            async for piece in pieces.read():
                yield piece

    return events(), words()


@contextmanager
def listen_to_words(tenant: Tenant, run: str, add: Callable[[StreamedWords], None] | None) -> Generator[None]:
    """Have what models write for a run handed to `add` as it comes, inside the context; None: nothing is heard."""
    if add is None:
        yield
        return

    def hear(work: Work, text: str, kind: TextKind) -> None:
        add(StreamedWords(run=run, work=work.kind, task=work.task, attempt=work.number, text=text, kind=kind))

    leave = tenant.listen_to_words(run, hear)
    try:
        yield
    finally:
        leave()


async def _events(tenant: Tenant, followed: Followed, marks: dict[str, int], *, lean: bool) -> AsyncGenerator[bytes]:
    """The events of one run. The id of each says how far all runs of the stream were seen."""
    run = followed.run
    encoded = tenant.part(EncodedEntries)

    def encode(entries: Sequence[Entry]) -> bytes:
        if len(marks) == 1:
            return encoded.encode_all(run, entries, lean=lean)
        events: list[bytes] = []
        for entry in entries:
            marks[run] = entry.seq
            events.append(f"id: {'.'.join(map(str, marks.values()))}\n".encode() + encoded.encode(run, entry))
        return b"".join(events)

    yield _RETRY + encode(followed.first)
    damage = followed.damage
    reader = followed.reader
    last = followed.first[-1].seq if followed.first else marks[run]
    try:
        if reader is not None:
            async for entry in reader:
                entries = (entry, *reader.at_once())  # what was written together is sent together
                last = entries[-1].seq
                yield encode(entries)
    except Corrupt:
        readable = await tenant.journal.read_readable(run, after=last)
        damage = readable.damage
        yield encode(readable.entries)
    if damage is not None:
        yield event(_damaged(run, damage), name="damaged")


def _damaged(run: str, damage: Corrupt) -> DamageReport:
    return DamageReport(run=run, seq=damage.seq, detail=str(damage))


# --- all of it


@operation("GET", "/api/runs/{run}/trace", reply=Trace, media=(_LINES,))
async def export_trace(tenant: Tenant, run: str, query: TraceFormat) -> Response:
    """Every step of a run; of a damaged one, what can be read, and `damage` says what cannot."""
    if query.format == "json":
        names = await tenant.journal.inside(run) if query.nested else []
        tracer = trace_readable(run, await tenant.journal.read_readable(run))
        inside = {name: await tenant.journal.read_readable(name) for name in names}
        trace = nested_trace(tracer, inside)
        if not query.whole:
            return reply(trace)
        entries = {run: (await tenant.journal.read_readable(run)).entries}
        complete_prompts(trace, entries | {name: readable.entries for name, readable in inside.items()})
        return reply(with_defaults(trace))
    written = await tenant.journal.read_readable(run)
    lines: list[EntryInfo | DamageReport] = [_entry_info(run, entry) for entry in written.entries]
    if written.damage is not None:
        if not lines:
            raise written.damage
        lines.append(_damaged(run, written.damage))
    return Response(msgspec.json.Encoder().encode_lines(lines), media_type=_LINES)
