"""What all protocols share: a model behind a URL, and replies read strictly."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from sys import maxsize
from typing import ClassVar, Protocol, TypedDict, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from chargehand.engine.failure import Failure
from chargehand.errors import Invalid
from chargehand.models.call_errors import (
    CallFailed,
    Party,
    Unreadable,
    call_refused,
    error_param,
    error_words,
    file_advice,
    requested_wait,
    unreadable_reply,
    useless_reply,
)
from chargehand.models.http import MOST_BYTES, PATIENCE, Endpoint, Taker, Timeouts, Transport
from chargehand.models.messages import (
    Finish,
    Kept,
    KeptPart,
    Message,
    Reply,
    Request,
    ToolCall,
    Usage,
)
from chargehand.models.model import Hear, ModelCard, tell_whole
from chargehand.models.provider_tools import NO_TOOLS
from chargehand.models.refused_fields import NO_NAMES, Body, memory_of
from chargehand.models.reply_limit import depends_on_request, known_limit, reply_limit, smaller_limit
from chargehand.models.tool_search import (
    DEFER,
    NO_SEARCH,
    NO_TOOL_SEARCH,
    Searching,
    ToolSearch,
    plan_search,
    without_searches,
)

_T = TypeVar("_T")
_LONG = 100_000  # bytes of a reply that hold the event loop up if they are read on it
_SPOILT = re.compile(
    r"(?:invalid|corrupted)\W{1,3}(?:thought.?)?signature|bound to a different conversation"
    r"|blocks? .{0,80}cannot be modified|invalid_encrypted_content|encrypted content .{0,200}could not be verified"
    r"|was provided without its required|Items are not persisted",
    re.IGNORECASE | re.DOTALL,
)
"""What a provider says of a kept part that it does not take back, because something before it has changed."""
_MAX_REFUSED = 10_000
_MAX_SEARCHES = 10_000  # in one call


def decode_strictly(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T:
    """Raises Unreadable for anything but one whole document of the right shape."""
    if not data.strip():
        raise Unreadable("it is empty")
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise Unreadable(f"it has another shape than the protocol says ({error})") from None
    except (ValueError, RecursionError):  # cut off, two documents in one, not UTF-8, nested beyond reason
        what = "it is an HTML page" if data.lstrip()[:1] == b"<" else "it is no whole JSON document"
        raise Unreadable(what) from None


def checked_usage(
    read: int | None,
    written: int | None,
    cached: int | None = None,
    *,
    cache_written: int | None = None,
    cache_written_hour: int | None = None,
    reasoning: int | None = None,
    searches: int | None = None,
) -> Usage | None:
    """Return what a call used; None when the provider does not say. Raises Unreadable for counts that cannot be.

    A part is never more than the whole it is a part of.
    """
    if read is None or written is None:
        return None
    counts = [read, written, *[count or 0 for count in (cached, cache_written, cache_written_hour, reasoning)]]
    if min(counts) < 0:
        raise Unreadable("it counts tokens below zero")
    if not 0 <= (searches or 0) <= _MAX_SEARCHES:
        raise Unreadable("it counts searches that cannot be")
    parts: list[int] = []
    rest = read
    for count in counts[2:5]:
        parts.append(min(count, rest))
        rest -= parts[-1]
    return Usage(read, written, *parts, reasoning=min(counts[5], written), searches=searches or 0)


def checked_reply(
    party: Party,
    text: str,
    calls: Sequence[ToolCall],
    finish: Finish,
    usage: Usage | None,
    model: str,
    micros: int | None = None,
    kept: Sequence[KeptPart] = (),
    tier: str = "",
    provider_calls: int = 0,
    tool_searches: int = 0,
) -> Reply:
    """A reply that can be worked with; else CallFailed."""
    if calls:
        if finish == "length":
            raise useless_reply(
                party, "the reply was cut off inside its tool calls; raise max_tokens, or ask for less", usage
            )
        if len({call.id for call in calls}) < len(calls):
            raise unreadable_reply(party, "two of its tool calls have the same id", usage)
        if finish in ("stop", "paused"):  # several servers say so
            finish = "tools"
    elif finish == "tools":
        raise unreadable_reply(party, "it ends with tool calls and holds none", usage)
    if not text.strip() and not calls and finish not in ("refused", "paused"):
        why = " (all its tokens went elsewhere: raise max_tokens)" if finish == "length" else ""
        raise useless_reply(party, f"the model answered with nothing{why}; put the request differently", usage)
    parts = Kept(tuple(kept)) if kept else None
    return Reply(
        text=text,
        calls=tuple(calls),
        finish=finish,
        usage=usage,
        micros=micros,
        model=model,
        kept=parts,
        tier=tier,
        provider_calls=provider_calls,
        tool_searches=tool_searches,
    )


class EndpointOptions(TypedDict, total=False):
    """How a model behind a URL is called, and what its card says besides."""

    transport: Transport | None
    timeouts: Timeouts
    window: int
    max_bytes: int
    native_tools: bool
    schema: bool
    images: bool
    documents: bool
    tool_search: bool
    variable: str
    free: bool
    notice: str
    headers: Mapping[str, str]


class ReplyStream(Taker, Protocol):
    """A streamed reply while it comes in."""

    def reply(self) -> Reply: ...


class HttpModel(ABC):
    """One model behind one URL. A protocol says how requests are written and replies are read.

    With `hear` a reply is streamed, without it is not. A server that refuses so many tokens is asked for fewer, and one
    that refuses a field by its name is asked without it from then on. What a reply has to be sent back with is sent
    back to the same model at the same place, until that refuses it.
    """

    OTHER_NAMES: ClassVar[Mapping[str, str]] = NO_NAMES
    """What else servers call fields that cannot be left out."""
    protocol: ClassVar[str] = ""
    """Its name in what is kept of a reply."""
    PROVIDER_TOOLS: ClassVar[Mapping[str, Mapping[str, object]]] = NO_TOOLS
    """How tools that the provider runs itself stand in a request, by our names."""
    TOOL_SEARCH: ClassVar[ToolSearch] = NO_TOOL_SEARCH
    """How the model is left to search for tools."""

    def __init__(
        self, handle: str, url: str, name: str, key: str, headers: Mapping[str, str], options: EndpointOptions
    ) -> None:
        self._card = ModelCard(
            handle=handle,
            window=options.get("window", 128_000),
            native_tools=options.get("native_tools", True),
            schema=options.get("schema", True),
            images=options.get("images", True),
            documents=options.get("documents", False),
            notice=options.get("notice", ""),
            max_tokens=known_limit(name),
            keeps_limit=True,
            free=options.get("free", False),
            provider_tools=tuple(self.PROVIDER_TOOLS),
            searches_tools=options.get("tool_search", False) and bool(self.TOOL_SEARCH.tool),
        )
        own_headers = checked_headers(handle, options.get("headers", {}))
        replaced = {name.lower() for name in own_headers}
        transport = options.get("transport")
        self._transport = transport or Transport()
        self._owned = transport is None
        self._party = Party(
            handle=handle,
            place=urlsplit(url).netloc.rpartition("@")[2],
            secrets=(*((key,) if key else ()), *own_headers.values()),
            variable=options.get("variable", ""),
        )
        self._fields = memory_of(url, name, self.OTHER_NAMES)
        self._notice = self._card.notice
        self._noted = 0
        self._endpoint = Endpoint(
            party=self._party,
            url=url,
            headers={name: value for name, value in headers.items() if name.lower() not in replaced} | own_headers,
            timeouts=options.get("timeouts", PATIENCE),
            max_bytes=options.get("max_bytes", MOST_BYTES),
        )
        self._most_tokens = maxsize
        self._name = name
        self._provider = f"{self.protocol} {self._party.place}"
        self._refused: dict[bytes, None] = {}  # kept parts that are not sent any more, the oldest first

    @property
    def card(self) -> ModelCard:
        notes = self._fields.notes
        if len(notes) != self._noted:
            self._noted = len(notes)
            notice = " ".join(filter(None, (self._notice, *notes)))
            searches = self._card.searches_tools and DEFER not in self._fields.dropped
            self._card = structs.replace(self._card, notice=notice, searches_tools=searches)
        return self._card

    async def close(self) -> None:
        if self._owned:
            await self._transport.close()

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        try:
            return await self._ask(request, hear)
        except Unreadable as error:
            raise unreadable_reply(self._party, str(error)) from None

    async def _ask(self, request: Request, hear: Hear | None) -> Reply:
        limit = min(reply_limit(self._card, request.settings), self._most_tokens)
        notes: list[str] = []
        while True:
            stream = None if hear is None else self._stream(hear)
            body = self._write(request, limit, hear)
            answer = await self._transport.post(self._endpoint, self._encode(body), stream)
            if stream is not None and answer.streamed:
                return noted(self._signed(stream.reply()), notes)
            if answer.status == 200:
                break
            words = error_words(answer.body)
            note = self._fields.learn(self._party.handle, answer.status, words, error_param(answer.body), body)
            if note:
                notes.append(note)
                continue
            if self._mends_history(request, answer.status, words):
                continue
            smaller = smaller_limit(answer.status, words, limit)
            if smaller is None:
                wait = requested_wait(answer.headers)
                raise call_refused(self._party, answer.status, words, wait, advice=file_advice(request.messages))
            limit = smaller
            if not depends_on_request(words):
                self._most_tokens = limit
        if len(answer.body) < _LONG:
            reply = self._read(answer.body)
        else:
            reply = await asyncio.to_thread(self._read, answer.body)
        if hear is not None:  # asked to stream, it did not: a reply all the same
            tell_whole(reply, hear)
        return noted(self._signed(reply), notes)

    def _signed(self, reply: Reply) -> Reply:
        """The reply, with where what it has to be sent back with came from."""
        if reply.kept is None:
            return reply
        return structs.replace(reply, kept=Kept(reply.kept.parts, self._provider, self._name))

    def _own_parts(self, message: Message) -> Sequence[KeptPart]:
        """What this model wants back with a message: what it wrote itself and has not refused."""
        kept = message.kept
        if kept is None or kept.provider != self._provider or kept.model != self._name:
            return ()
        if not self._refused:
            return kept.parts
        return [part for part in kept.parts if bytes(part.data) not in self._refused]

    def _plan_search(self, request: Request) -> Searching:
        """Return which tools of a request the model is left to search for."""
        if not self.card.searches_tools:
            return NO_SEARCH
        return plan_search(request, [part for message in request.messages for part in self._own_parts(message)])

    def _parts_to_send(self, message: Message, search: Searching) -> Sequence[KeptPart]:
        """What this model is sent back of a message."""
        parts = self._own_parts(message)
        return parts if search.keeps_searches else without_searches(parts)

    def _mends_history(self, request: Request, status: int, words: str) -> bool:
        """Whether the server refused what was kept of earlier replies, and that is sent otherwise from now on.

        A provider may tie a thought to all that was said before it, which is cut when it grows too long.
        """
        if status not in (400, 404) or not _SPOILT.search(words):
            return False
        parts = [part for message in request.messages for part in self._own_parts(message)]
        self._refused |= dict.fromkeys(bytes(part.data) for part in parts)
        while len(self._refused) > _MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        return bool(parts)

    def _write(self, request: Request, limit: int, hear: Hear | None) -> Body:
        """The request as the model takes it."""
        try:
            body = self._body(request, limit, streamed=hear is not None)
        except ValueError as error:
            raise self._not_json(error) from error
        if (extra := request.settings.extra) is not None:
            add_extra(body, extra)
        return self._fields.adapt(body)

    def _encode(self, body: Body) -> bytes:
        try:
            return msgspec.json.encode(body)
        except ValueError as error:  # half a character, for example
            raise self._not_json(error) from error

    def _not_json(self, error: ValueError) -> CallFailed:
        message = f"{self._party.handle}: the request cannot be written as JSON ({error}); change its text"
        return CallFailed(Failure("logic", message, permanent=True), billed=False, sent=False)

    def _skip(self, setting: str, why: str) -> None:
        """Tell people once that a setting is not sent."""
        self._fields.note(self._party.handle, f"{setting} is not sent: {why}")

    @abstractmethod
    def _body(self, request: Request, limit: int, *, streamed: bool) -> dict[str, object]:
        """The request in the protocol."""

    @abstractmethod
    def _read(self, body: bytes) -> Reply:
        """A reply that came whole; Unreadable where it is none."""

    @abstractmethod
    def _stream(self, hear: Hear) -> ReplyStream:
        """What takes a reply that is streamed."""


def noted(reply: Reply, notes: Sequence[str]) -> Reply:
    """The reply with what the model did not take."""
    return structs.replace(reply, notice=" ".join(notes)) if notes else reply


def add_extra(body: Body, extra: Mapping[str, object]) -> None:
    """Add the fields of `Settings.extra`. Of a table that is there already, what is missing in it is added."""
    for name, value in extra.items():
        own = body.get(name)
        if isinstance(own, dict) and isinstance(value, Mapping):
            body[name] = {**cast("Mapping[str, object]", value), **cast("Body", own)}
        else:
            body[name] = value


_OWN_HEADERS = frozenset(
    ("accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding")
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


def checked_headers(handle: str, headers: object) -> dict[str, str]:
    """The headers that are sent with every call of a model; Invalid, without their values, where one cannot be."""
    checked: dict[str, str] = {}
    if not isinstance(headers, Mapping):
        raise Invalid(f'{handle}: headers is no mapping of names to texts; write it like {{"x-team": "blue"}}')
    for name, value in cast("Mapping[object, object]", headers).items():
        if not isinstance(name, str) or not isinstance(value, str):
            wrong = f"the header {str(name)[:40]!r} has a name or a value that is no text"
            raise Invalid(f'{handle}: {wrong}; write both as texts, like {{"x-team": "5"}}')
        if not _HEADER_NAME.fullmatch(name):
            raise Invalid(f"{handle}: {name[:40]!r} is no name of a header; use letters, digits and -")
        if name.lower() in _OWN_HEADERS:
            raise Invalid(f"{handle}: the header {name} is set for every call; leave it out of headers")
        if not value or not value.isascii() or not value.isprintable():
            raise Invalid(f"{handle}: the header {name} is empty or holds characters that no header can carry")
        checked[name] = value
    return checked
