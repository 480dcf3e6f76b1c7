"""What both protocols share: a model behind a URL, replies read strictly, and schemas that strict modes take."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from sys import maxsize
from typing import ClassVar, Protocol, TypedDict, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, structs

from chargehand.engine.failure import Failure
from chargehand.models.call_errors import (
    CallFailed,
    Party,
    Unreadable,
    call_refused,
    error_words,
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
from chargehand.models.reply_limit import depends_on_request, known_limit, reply_limit, smaller_limit

_T = TypeVar("_T")
_LONG = 100_000  # bytes of a reply that hold the event loop up if they are read on it
_SPOILT = re.compile(
    r"(?:invalid|corrupted)\W{1,3}(?:thought.?)?signature|bound to a different conversation"
    r"|blocks? .{0,80}cannot be modified",
    re.IGNORECASE | re.DOTALL,
)
"""What a provider says of a kept part that it does not take back, because something before it has changed."""
_MAX_REFUSED = 10_000


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


def checked_usage(read: int | None, written: int | None, cached: int | None) -> Usage | None:
    """None when the provider does not say. Raises Unreadable for counts that cannot be."""
    if read is None or written is None:
        return None
    cached = cached or 0
    if read < 0 or written < 0 or cached < 0:
        raise Unreadable("it counts tokens below zero")
    return Usage(input=read, output=written, cached=min(cached, read))


def checked_reply(
    party: Party,
    text: str,
    calls: Sequence[ToolCall],
    finish: Finish,
    usage: Usage | None,
    model: str,
    micros: int | None = None,
    kept: Sequence[KeptPart] = (),
) -> Reply:
    """A reply that can be worked with; else CallFailed."""
    if calls:
        if finish == "length":
            raise useless_reply(
                party, "the reply was cut off inside its tool calls; raise max_tokens, or ask for less", usage
            )
        if len({call.id for call in calls}) < len(calls):
            raise unreadable_reply(party, "two of its tool calls have the same id", usage)
        if finish == "stop":  # several servers say so
            finish = "tools"
    elif finish == "tools":
        raise unreadable_reply(party, "it ends with tool calls and holds none", usage)
    if not text.strip() and not calls and finish != "refused":
        why = " (all its tokens went elsewhere: raise max_tokens)" if finish == "length" else ""
        raise useless_reply(party, f"the model answered with nothing{why}; put the request differently", usage)
    parts = Kept(tuple(kept)) if kept else None
    return Reply(text=text, calls=tuple(calls), finish=finish, usage=usage, micros=micros, model=model, kept=parts)


class EndpointOptions(TypedDict, total=False):
    """How a model behind a URL is called, and what its card says besides."""

    transport: Transport | None
    timeouts: Timeouts
    window: int
    max_bytes: int
    native_tools: bool
    schema: bool
    images: bool
    variable: str
    free: bool
    notice: str


class ReplyStream(Taker, Protocol):
    """A streamed reply while it comes in."""

    def reply(self) -> Reply: ...


class HttpModel(ABC):
    """One model behind one URL. A protocol says how requests are written and replies are read.

    With `hear` a reply is streamed, without it is not. A server that refuses so many tokens is asked for fewer. What a
    reply has to be sent back with is sent back to the same model at the same place, until that refuses it.
    """

    protocol: ClassVar[str] = ""
    """Its name in what is kept of a reply."""

    def __init__(
        self, handle: str, url: str, name: str, key: str, headers: Mapping[str, str], options: EndpointOptions
    ) -> None:
        self._card = ModelCard(
            handle=handle,
            window=options.get("window", 128_000),
            native_tools=options.get("native_tools", True),
            schema=options.get("schema", True),
            images=options.get("images", True),
            notice=options.get("notice", ""),
            max_tokens=known_limit(name),
            keeps_limit=True,
            free=options.get("free", False),
        )
        transport = options.get("transport")
        self._transport = transport or Transport()
        self._owned = transport is None
        self._party = Party(
            handle=handle,
            place=urlsplit(url).netloc.rpartition("@")[2],
            secrets=(key,) if key else (),
            variable=options.get("variable", ""),
        )
        self._endpoint = Endpoint(
            party=self._party,
            url=url,
            headers=headers,
            timeouts=options.get("timeouts", PATIENCE),
            max_bytes=options.get("max_bytes", MOST_BYTES),
        )
        self._most_tokens = maxsize
        self._name = name
        self._provider = f"{self.protocol} {self._party.place}"
        self._refused: dict[bytes, None] = {}  # kept parts that are not sent any more, the oldest first

    @property
    def card(self) -> ModelCard:
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
        while True:
            stream = None if hear is None else self._stream(hear)
            answer = await self._transport.post(self._endpoint, self._written(request, limit, hear), stream)
            if stream is not None and answer.streamed:
                return self._signed(stream.reply())
            if answer.status == 200:
                break
            words = error_words(answer.body)
            if self._changes_request(answer.status, words) or self._mends_history(request, answer.status, words):
                continue
            smaller = smaller_limit(answer.status, words, limit)
            if smaller is None:
                raise call_refused(self._party, answer.status, words, requested_wait(answer.headers))
            limit = smaller
            if not depends_on_request(words):
                self._most_tokens = limit
        if len(answer.body) < _LONG:
            reply = self._read(answer.body)
        else:
            reply = await asyncio.to_thread(self._read, answer.body)
        if hear is not None:  # asked to stream, it did not: a reply all the same
            tell_whole(reply, hear)
        return self._signed(reply)

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

    def _mends_history(self, request: Request, status: int, words: str) -> bool:
        """Whether the server refused what was kept of earlier replies, and that is sent otherwise from now on.

        A provider may tie a thought to all that was said before it, which is cut when it grows too long.
        """
        if status != 400 or not _SPOILT.search(words):
            return False
        parts = [part for message in request.messages for part in self._own_parts(message)]
        self._refused |= dict.fromkeys(bytes(part.data) for part in parts)
        while len(self._refused) > _MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        return bool(parts)

    def _written(self, request: Request, limit: int, hear: Hear | None) -> bytes:
        try:
            return msgspec.json.encode(self._body(request, limit, streamed=hear is not None))
        except ValueError as error:  # half a character, for example
            message = f"{self._party.handle}: the request cannot be written as JSON ({error}); change its text"
            raise CallFailed(Failure("logic", message, permanent=True), billed=False, sent=False) from error

    @abstractmethod
    def _body(self, request: Request, limit: int, *, streamed: bool) -> dict[str, object]:
        """The request in the protocol."""

    @abstractmethod
    def _read(self, body: bytes) -> Reply:
        """A reply that came whole; Unreadable where it is none."""

    @abstractmethod
    def _stream(self, hear: Hear) -> ReplyStream:
        """What takes a reply that is streamed."""

    def _changes_request(self, status: int, words: str) -> bool:  # noqa: ARG002 - a protocol may know better
        """Whether the server refused how something was put, and it is put otherwise from now on."""
        return False


# --- the part of a JSON Schema that providers can hold a model to

_PLAIN = frozenset(("$ref", "additionalProperties", "const", "description", "enum", "required", "title", "type"))
_BOUNDS = frozenset(
    (
        *("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "pattern", "format", "default"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems"),
    )
)
"""Strict modes refuse lengths, ranges and patterns: they are checked when the reply is there."""
_MOST_DEPTH = 20


def strict_schema(schema: Raw, *, optional: bool) -> Raw | None:
    """The schema without its bounds, if a strict mode takes that; None if it does not.

    Every object has to name all it may hold. Unless `optional`, it must also need all of it.
    """
    strict = _strict_schema(bytes(schema), optional)
    return Raw(strict) if strict else None


@lru_cache(maxsize=256)
def _strict_schema(schema: bytes, optional: bool) -> bytes:  # noqa: FBT001 - a key of the cache
    try:
        strict = _without_bounds(msgspec.json.decode(schema), _MOST_DEPTH, optional=optional)
    except (ValueError, RecursionError):
        return b""
    return msgspec.json.encode(strict) if strict.get("type") == "object" else b""


def _without_bounds(schema: object, depth: int, *, optional: bool) -> dict[str, object]:
    """The same schema without its bounds; ValueError where a strict mode would refuse it."""
    if not isinstance(schema, dict) or depth == 0:
        raise ValueError("not a schema, or nested too deep")
    fields = cast("dict[str, object]", schema)
    strict: dict[str, object] = {}
    for name, part in fields.items():
        if name in ("properties", "$defs"):
            parts = cast("dict[str, object]", part).items()
            strict[name] = {key: _without_bounds(value, depth - 1, optional=optional) for key, value in parts}
        elif name == "anyOf":
            strict[name] = [
                _without_bounds(value, depth - 1, optional=optional) for value in cast("list[object]", part)
            ]
        elif name == "items":
            strict[name] = _without_bounds(part, depth - 1, optional=optional)
        elif name in _PLAIN:
            strict[name] = part
        elif name not in _BOUNDS:
            raise ValueError(f"strict modes do not know {name}")
    if fields.get("type") == "object" or "properties" in fields:
        properties = cast("dict[str, object]", fields.get("properties") or {})
        needs_all = set(properties) == set(cast("list[str]", fields.get("required") or []))
        if fields.get("additionalProperties") is not False or not (optional or needs_all):
            raise ValueError("an object does not name, or does not need, all it may hold")
    return strict
