"""What a run writes: as JSON, as it comes (server-sent events), and all of it as a trace."""

from collections.abc import AsyncGenerator, Sequence

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.engine.events import Entry, RunEnded
from chargehand.errors import Corrupt, Refused
from chargehand.journal.protocol import Readable
from chargehand.runtime.feed import Reader
from chargehand.runtime.trace import Trace, nested_trace, trace_readable
from chargehand.server.api.operations import operation
from chargehand.server.api.shapes import (
    DamageReport,
    Entries,
    EntriesAfter,
    EntryInfo,
    EventsAfter,
    EventsOfRuns,
    TraceFormat,
)
from chargehand.server.streams import MEDIA_TYPE, event, streamed
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, nothing, reply

_RETRY = b"retry: 1000\n\n"
_MAX_KEPT = 4096
_LINES = "application/jsonl"


class EncodedEntries:
    """Entries as events, encoded once for all who read them. `tenant.part(EncodedEntries)` is it."""

    def __init__(self, _tenant: Tenant) -> None:
        self._kept: dict[tuple[str, int], bytes] = {}
        self._encoder = msgspec.json.Encoder()
        self._latest: tuple[tuple[str, int, int], bytes] = (("", 0, 0), b"")

    def encode_all(self, run: str, entries: Sequence[Entry]) -> bytes:
        """Entries that follow each other. Many readers of a run want the same ones at the same time."""
        if not entries:
            return b""
        key = (run, entries[0].seq, entries[-1].seq)
        if self._latest[0] != key:
            self._latest = key, b"".join(b"id: %d\n" % entry.seq + self.encode(run, entry) for entry in entries)
        return self._latest[1]

    def encode(self, run: str, entry: Entry) -> bytes:
        """All of an event but its id."""
        key = (run, entry.seq)
        encoded = self._kept.get(key)
        if encoded is None:
            kind = type(entry.event).__struct_config__.tag
            encoded = f"event: {kind}\ndata: ".encode() + self._encoder.encode(_entry_info(run, entry)) + b"\n\n"
            self._kept[key] = encoded
            if len(self._kept) > _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return encoded


def _entry_info(run: str, entry: Entry) -> EntryInfo:
    return EntryInfo(run=run, seq=entry.seq, at=entry.at, event=entry.event)


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
    return await _follow(tenant, request, (run,), str(query.after))


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


async def _follow(tenant: Tenant, request: Request, runs: Sequence[str], after: str) -> Response:
    marks = dict(zip(runs, _last_seen(request, after, len(runs)), strict=True))
    followed = [await _subscribe(tenant, name, mark) for name, mark in marks.items()]
    if not all(run.is_over for run in followed):
        return streamed(*(_events(tenant, run, marks) for run in followed), slot=tenant.runs.take_stream_slot())
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


async def _events(tenant: Tenant, followed: Followed, marks: dict[str, int]) -> AsyncGenerator[bytes]:
    """The events of one run. The id of each says how far all runs of the stream were seen."""
    run = followed.run
    encoded = tenant.part(EncodedEntries)

    def encode(entries: Sequence[Entry]) -> bytes:
        if len(marks) == 1:
            return encoded.encode_all(run, entries)
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
        return reply(nested_trace(tracer, inside))
    written = await tenant.journal.read_readable(run)
    lines: list[EntryInfo | DamageReport] = [_entry_info(run, entry) for entry in written.entries]
    if written.damage is not None:
        if not lines:
            raise written.damage
        lines.append(_damaged(run, written.damage))
    return Response(msgspec.json.Encoder().encode_lines(lines), media_type=_LINES)
