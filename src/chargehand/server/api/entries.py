"""What a run writes: as JSON, as it comes (server-sent events), and all of it as a trace."""

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from chargehand.errors import Corrupt, Refused
from chargehand.runtime.feed import Reader
from chargehand.runtime.trace import Trace, nested_trace
from chargehand.server.api.shapes import Count, Entries, EntryShown
from chargehand.server.api.table import Operation, asked
from chargehand.server.problem import Problem
from chargehand.server.streams import event, streamed
from chargehand.server.tenants import Tenant
from chargehand.server.wire import nothing, part, reply
from chargehand.stores.journal import Readable
from chargehand.terms.events import Entry, RunEnded

SSE = "text/event-stream"
_RETRY = b"retry: 1000\n\n"
_MOST_KEPT = 4096
_LINES = "application/jsonl"


class After(Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is the number of the last entry that was seen."""

    after: Count = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class From(Struct, frozen=True, forbid_unknown_fields=True):
    after: Count = 0


class Several(Struct, frozen=True, forbid_unknown_fields=True):
    """`after` has a number for each run, in the order of `run`, with dots between."""

    run: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...], Meta(min_length=1, max_length=32)]
    after: Annotated[str, Meta(pattern=r"^[0-9]{1,15}(\.[0-9]{1,15})*$")] | UnsetType = UNSET


class Export(Struct, frozen=True, forbid_unknown_fields=True):
    """`json` is the trace, with the runs inside it where they are wanted; `jsonl` are the entries, one a line."""

    format: Literal["json", "jsonl"] = "json"
    nested: bool = False


class Damaged(Struct, frozen=True):
    """The last event of a damaged run: the first entry that cannot be read, and what is wrong with it."""

    run: str
    seq: int
    detail: str


class Written:
    """Entries as events, made once for all who read them. `house.part(Written)` is it."""

    def __init__(self, _tenant: Tenant) -> None:
        self._kept: dict[tuple[str, int], bytes] = {}
        self._encoder = msgspec.json.Encoder()
        self._latest: tuple[tuple[str, int, int], bytes] = (("", 0, 0), b"")

    def together(self, run: str, entries: Sequence[Entry]) -> bytes:
        """Entries that follow each other. Many readers of a run want the same ones at the same time."""
        if not entries:
            return b""
        key = (run, entries[0].seq, entries[-1].seq)
        if self._latest[0] != key:
            self._latest = key, b"".join(b"id: %d\n" % one.seq + self.data(run, one) for one in entries)
        return self._latest[1]

    def data(self, run: str, entry: Entry) -> bytes:
        """All of an event but its id."""
        key = (run, entry.seq)
        found = self._kept.get(key)
        if found is None:
            shown = EntryShown(run, entry.seq, entry.at, entry.event)
            kind = type(entry.event).__struct_config__.tag
            found = f"event: {kind}\ndata: ".encode() + self._encoder.encode(shown) + b"\n\n"
            self._kept[key] = found
            if len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return found


# --- as JSON


async def entries(request: Request, tenant: Tenant) -> Response:
    if SSE in request.headers.get("accept", ""):
        return await events(request, tenant)
    wanted = asked(request, After)
    run = part(request, "run")
    readable = await _read(tenant, run, wanted.after)
    found = readable.entries
    damage = readable.damage
    more = [one for one in found if one.seq > wanted.after]
    if damage is not None and not more:
        raise damage
    told = more[: wanted.limit]
    last = told[-1].seq if told else wanted.after
    whole = len(told) == len(more)
    over = bool(found) and isinstance(found[-1].event, RunEnded) and whole
    shown = tuple(EntryShown(run, one.seq, one.at, one.event) for one in told)
    return reply(Entries(shown, last, over, str(damage) if damage is not None and whole else ""))


async def _read(tenant: Tenant, run: str, after: int) -> Readable:
    """What follows an entry, and that entry itself: it tells whether it was the last."""
    readable = await tenant.journal.read_readable(run, after=max(after - 1, 0))
    if after and not readable.entries and readable.damage is None:
        raise Refused(f"run {run!r} has no entry {after} yet; read on from one that it has")
    return readable


# --- as they come


async def events(request: Request, tenant: Tenant) -> Response:
    run = part(request, "run")
    after = _seen(request, str(asked(request, From).after), 1)[0]
    reader = tenant.feed.subscribe(run, after)
    try:
        found = await reader.first()
    except Corrupt:
        return await _until_damage(tenant, run, after)
    if reader.over and not found:
        return nothing()
    return streamed(_coming(tenant, run, found, reader), slot=tenant.runs.take_stream_slot())


async def _until_damage(tenant: Tenant, run: str, after: int) -> Response:
    """The entries before the damage as events, and then one that says what is damaged; Corrupt where there are none."""
    readable = await tenant.journal.read_readable(run, after=after)
    damage = readable.damage
    if damage is None or not readable.entries:
        raise damage or Refused(f"run {run!r} was mended meanwhile; read it again")

    async def told() -> AsyncGenerator[bytes]:
        yield _RETRY + tenant.part(Written).together(run, readable.entries) + _damaged(run, damage)

    return streamed(told(), slot=tenant.runs.take_stream_slot())


async def _coming(tenant: Tenant, run: str, found: Sequence[Entry], reader: Reader) -> AsyncGenerator[bytes]:
    together = tenant.part(Written).together
    yield _RETRY + together(run, found)
    async for entry in reader:
        yield together(run, (entry, *reader.at_once()))  # what was written together is sent together


async def several(request: Request, tenant: Tenant) -> Response:
    wanted = asked(request, Several)
    runs = tuple(dict.fromkeys(wanted.run))
    marks = _seen(request, wanted.after or ".".join("0" * len(runs)), len(runs))
    nothing_follows = True
    damage: Corrupt | None = None
    for run, after in zip(runs, marks, strict=True):
        readable = await _read(tenant, run, after)
        last = readable.entries[-1] if readable.entries else None
        is_seen = last is None or last.seq <= after
        is_over = readable.damage is not None or (last is not None and isinstance(last.event, RunEnded))
        nothing_follows = nothing_follows and is_seen and is_over
        damage = damage or readable.damage
    if nothing_follows and damage is not None:
        raise damage
    if nothing_follows:
        return nothing()
    far = dict(zip(runs, marks, strict=True))
    return streamed(*(_one_of(tenant, run, far) for run in runs), slot=tenant.runs.take_stream_slot())


async def _one_of(tenant: Tenant, run: str, marks: dict[str, int]) -> AsyncGenerator[bytes]:
    """One of several runs. The id of an event says how far all of them were seen."""
    data = tenant.part(Written).data
    reader = tenant.feed.subscribe(run, marks[run])

    def told(entries: Sequence[Entry]) -> bytes:
        events: list[bytes] = []
        for entry in entries:
            marks[run] = entry.seq
            events.append(f"id: {'.'.join(map(str, marks.values()))}\n".encode() + data(run, entry))
        return b"".join(events)

    yield _RETRY
    try:
        async for entry in reader:
            yield told((entry, *reader.at_once()))
    except Corrupt:
        readable = await tenant.journal.read_readable(run, after=marks[run])
        yield told(readable.entries) + (b"" if readable.damage is None else _damaged(run, readable.damage))


def _damaged(run: str, damage: Corrupt) -> bytes:
    """The last event of a run that cannot be read on."""
    return event(Damaged(run, damage.seq, str(damage)), name="damaged")


def _seen(request: Request, usual: str, count: int) -> list[int]:
    """How far each run was seen. Who comes back says it in a header, while the address is still that of before."""
    said = request.headers.get("last-event-id", "") or usual
    marks = said.split(".")
    if len(marks) != count or not all(one.isascii() and one.isdigit() and len(one) <= 15 for one in marks):
        raise Problem(422, "invalid", f"{said[:60]!r} does not say how far {count} runs were seen; give a number each")
    return [int(one) for one in marks]


# --- all of it


async def export(request: Request, tenant: Tenant) -> Response:
    wanted = asked(request, Export)
    run = part(request, "run")
    names = await tenant.journal.inside(run) if wanted.nested and wanted.format == "json" else []
    readable = {name: await tenant.journal.read_readable(name) for name in (run, *names)}
    if wanted.format == "json":
        return reply(nested_trace(run, names, readable.__getitem__))
    entries = readable[run].entries
    damage = readable[run].damage
    if damage is not None and not entries:
        raise damage
    told: list[EntryShown | Damaged] = [EntryShown(run, one.seq, one.at, one.event) for one in entries]
    if damage is not None:
        told.append(Damaged(run, damage.seq, str(damage)))
    return Response(msgspec.json.Encoder().encode_lines(told), media_type=_LINES)


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs/{run}/entries",
        call=entries,
        name="list_entries",
        group="entries",
        query=After,
        told=Entries,
        problems=(404, 409, 422),
        summary="What a run wrote; with `Accept: text/event-stream`, the same as its events.",
    ),
    Operation(
        method="GET",
        path="/api/runs/{run}/events",
        call=events,
        name="follow_run",
        group="entries",
        query=From,
        media=(SSE,),
        empty=True,
        problems=(404, 409, 422, 429),
        summary="Entries as server-sent events, from `after` or Last-Event-ID on; 204 when nothing will follow. "
        "A damaged run ends with an event `damaged`.",
    ),
    Operation(
        method="GET",
        path="/api/events",
        call=several,
        name="follow_runs",
        group="entries",
        query=Several,
        media=(SSE,),
        empty=True,
        problems=(404, 409, 422, 429),
        summary="The same of several runs in one stream; ids have a number for each run, with dots between. "
        "One that is damaged ends with an event `damaged`, and the others go on.",
    ),
    Operation(
        method="GET",
        path="/api/runs/{run}/trace",
        call=export,
        name="export_trace",
        group="entries",
        query=Export,
        told=Trace,
        media=(_LINES,),
        problems=(404, 422),
        summary="Every step of a run; of a damaged one, what can be read, and `damage` says what cannot.",
    ),
)
