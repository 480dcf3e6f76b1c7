"""Models that speak OpenAI's Responses API: those of OpenAI that reason, and servers that offer the same.

Nothing is stored at the provider: each request holds the whole conversation, and what the model thought comes back
encrypted. Replies are read strictly: what is not as it should be fails. Retries, limits and prices are the guard's
business.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import TypeAlias, Unpack, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct

from chargehand.engine.facts import Citation
from chargehand.models.call_errors import NOTHING, Party, Unreadable, error_in_reply, is_present
from chargehand.models.citations import with_citations
from chargehand.models.http import Events
from chargehand.models.messages import (
    Document,
    Finish,
    Image,
    KeptPart,
    Message,
    Reply,
    Request,
    Settings,
    ToolCall,
    ToolSpec,
    Usage,
)
from chargehand.models.model import Hear
from chargehand.models.provider_tools import MAX_USES, RESPONSES_CALLS, RESPONSES_TOOLS
from chargehand.models.providers import is_openai, reads_pdfs, reasons
from chargehand.models.strict_schemas import OPENAI, OTHERS, StrictMode, strict_schema
from chargehand.models.tool_search import NO_SEARCH, RESPONSES_SEARCH, Searching, with_search
from chargehand.models.wire import (
    EndpointOptions,
    HttpModel,
    checked_reply,
    checked_usage,
    decode_strictly,
)

_Json: TypeAlias = dict[str, object]
_INCLUDE = ("reasoning.encrypted_content",)
_LONGEST_KEY = 64  # characters of a key for the cache
_ROLES = {"system": "developer", "user": "user"}
_COMMENTARY = "commentary"
"""The phase of a message that goes before tool calls or the answer, and is neither."""


class OpenAIResponses(HttpModel):
    """One model behind one base URL (`https://host/v1`). Without `key` no key is sent.

    The items of a reply are sent back in their order, thoughts as they came and the others with their ids and phases.
    A summary of the thoughts is asked for where somebody hears the reply.
    """

    protocol = "responses"
    PROVIDER_TOOLS = RESPONSES_TOOLS
    TOOL_SEARCH = RESPONSES_SEARCH

    def __init__(
        self, handle: str, base_url: str, name: str, key: str = "", **options: Unpack[EndpointOptions]
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        host = urlsplit(base_url).hostname or ""
        usual: EndpointOptions = {
            "documents": is_openai(host) and reads_pdfs(name),
            "tool_search": is_openai(host) and RESPONSES_SEARCH.names.match(name) is not None,
        }
        super().__init__(handle, base_url.rstrip("/") + "/responses", name, key, headers, {**usual, **options})
        self._at_openai = is_openai(self._party.place)
        self._reasons = not self._at_openai or reasons(name)
        self._strict_mode = OPENAI if self._at_openai and not name.startswith("ft:") else OTHERS

    def _stream(self, hear: Hear) -> "ResponseStream":
        return ResponseStream(self._party, hear)

    def _read(self, body: bytes) -> Reply:
        return read_whole(self._party, body)

    def _body(self, request: Request, limit: int, *, streamed: bool) -> dict[str, object]:
        settings = request.settings
        search = self._plan_search(request)
        body: _Json = {"model": self._name, "input": self._write_input(request.messages, search), "store": False}
        if self._reasons:
            body["include"] = _INCLUDE
        if request.tools:  # without tools the other two would be refused
            tools = [_write_tool(tool, self._strict_mode) for tool in request.tools]
            body["tools"] = with_search(tools, search, self.TOOL_SEARCH)
            if settings.parallel_tool_calls is False:
                body["parallel_tool_calls"] = False
            if request.tool_choice:
                body["tool_choice"] = _write_choice(request.tool_choice)
        self._write_provider_tools(body, request.provider_tools)
        if request.schema is not None:
            strict = strict_schema(request.schema, self._strict_mode)
            shape = {"name": "reply", "schema": strict or request.schema, "strict": strict is not None}
            body["text"] = {"format": {"type": "json_schema", **shape}}
        self._write_settings(body, settings, streamed=streamed)
        if self._at_openai and settings.cache != "off" and request.asker:
            body["prompt_cache_key"] = f"chargehand-{request.asker}"[:_LONGEST_KEY]
            if settings.cache == "1h":
                body["prompt_cache_retention"] = "24h"
        body["max_output_tokens"] = limit
        if streamed:
            body["stream"] = True
        return body

    def _write_provider_tools(self, body: _Json, names: Sequence[str]) -> None:
        """Ask for tools that the provider runs, a bounded number of times, and for what the code printed."""
        if not names:
            return
        entries = [dict(self.PROVIDER_TOOLS[name]) for name in names]
        body["tools"] = [*cast("list[object]", body.get("tools") or []), *entries]
        body["max_tool_calls"] = MAX_USES
        if "code_execution" in names:
            body["include"] = [*cast("Sequence[str]", body.get("include") or ()), "code_interpreter_call.outputs"]

    def _write_settings(self, body: _Json, settings: Settings, *, streamed: bool) -> None:
        reasoning: _Json = {}
        if settings.effort is not None:
            reasoning["effort"] = settings.effort
        if self._reasons and streamed and settings.effort != "none" and "reasoning" not in (settings.extra or ()):
            reasoning["summary"] = "auto"
        if reasoning:
            body["reasoning"] = reasoning
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.top_p is not None:
            body["top_p"] = settings.top_p
        if settings.service_tier is not None:
            body["service_tier"] = settings.service_tier
        if settings.seed is not None:
            self._skip("seed", "the Responses API has none")
        if settings.stop:
            self._skip("stop", "the Responses API has none")

    def _write_input(self, messages: Sequence[Message], search: Searching = NO_SEARCH) -> list[object]:
        items: list[object] = []
        for message in messages:
            if message.role == "assistant":
                parts = self._parts_to_send(message, search) if message.kept is not None else ()
                items += _write_items(message, parts, search)
            elif message.role == "tool":
                output = _write_content(message)
                items.append({"type": "function_call_output", "call_id": message.call, "output": output})
            else:
                items.append({"role": _ROLES[message.role], "content": _write_content(message)})
        return items


# --- requests


class _KeptMessage(Struct, omit_defaults=True):
    """What is kept of a message beside its words."""

    length: int = 0
    """How many characters it has."""
    id: str | None = None
    phase: str | None = None


class _KeptCall(Struct, omit_defaults=True):
    """What is kept of a tool call beside its name and arguments."""

    id: str | None = None
    namespace: str | None = None


_kept_message = msgspec.json.Decoder(_KeptMessage)
_kept_call = msgspec.json.Decoder(_KeptCall)


def _write_items(message: Message, parts: Sequence[KeptPart], search: Searching) -> list[object]:
    """The items of a reply in the order in which they were written. A thought that led to nothing is left out.

    A call has a namespace where its tool is left to be searched for: the one it came with, else that of such a tool,
    which is called like itself.
    """
    items: list[object] = []
    calls = {call.id: call for call in message.calls}
    left = _cut_text(message.text, [_kept_message.decode(part.data) for part in parts if part.kind == "message"])
    if not left and message.text.strip():
        items.append(_write_message(message.text, _KeptMessage()))
    thoughts = 0  # how many of the last items are thoughts
    for part in parts:
        if part.kind == "reasoning":
            items.append(part.data)
            thoughts += 1
            continue
        if part.kind == "function_call":
            call = calls.pop(part.call, None)
            item = None if call is None else _write_call(call, _kept_call.decode(part.data), search)
        elif part.kind == "message":
            text, kept = left.pop(0)
            item = _write_message(text, kept) if text.strip() else None
        else:
            item = part.data
        if item is not None:
            items.append(item)
            thoughts = 0
    del items[len(items) - thoughts :]
    return items + [_write_call(call, _KeptCall(), search) for call in calls.values()]


def _cut_text(text: str, messages: Sequence[_KeptMessage]) -> list[tuple[str, _KeptMessage]]:
    """The words of each message. Where the text has changed since, the last one has them all."""
    if not messages:
        return []
    if sum([kept.length for kept in messages]) != len(text):
        return [*(("", kept) for kept in messages[:-1]), (text, messages[-1])]
    pieces: list[tuple[str, _KeptMessage]] = []
    at = 0
    for kept in messages:
        pieces.append((text[at : at + kept.length], kept))
        at += kept.length
    return pieces


def _write_message(text: str, kept: _KeptMessage) -> _Json:
    phase: _Json = {} if kept.phase is None else {"phase": kept.phase}
    if kept.id is None:
        return {"role": "assistant", "content": text, **phase}
    content: list[_Json] = [{"type": "output_text", "text": text, "annotations": []}]
    item: _Json = {"type": "message", "role": "assistant", "id": kept.id, "status": "completed", "content": content}
    return item | phase


def _write_call(call: ToolCall, kept: _KeptCall, search: Searching) -> _Json:
    item: _Json = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
    if kept.id is not None:
        item["id"] = kept.id
    if call.name in search.deferred:
        item["namespace"] = kept.namespace or call.name
    return item


def _write_content(message: Message) -> object:
    if not message.has_files:
        return message.text
    return [_write_text(message.text), *map(_write_document, message.documents), *map(_write_image, message.images)]


def _write_text(text: str) -> _Json:
    return {"type": "input_text", "text": text}


def _write_document(document: Document) -> _Json:
    data = b64encode(document.data).decode()
    return {
        "type": "input_file",
        "filename": document.name,
        "file_data": f"data:{document.media_type};base64,{data}",
    }


def _write_image(image: Image) -> _Json:
    data = b64encode(image.data).decode()
    return {"type": "input_image", "detail": "auto", "image_url": f"data:{image.media_type};base64,{data}"}


def _write_tool(tool: ToolSpec, mode: StrictMode) -> _Json:
    strict = strict_schema(tool.parameters, mode)
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": strict or tool.parameters,
        "strict": strict is not None,
    }


def _write_choice(choice: str) -> object:
    return choice if choice == "none" else {"type": "function", "name": choice}


# --- replies


_INCOMPLETE: dict[str, Finish] = {"max_output_tokens": "length", "content_filter": "refused"}


class _ResponseInputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _ResponseOutputDetails(Struct):
    reasoning_tokens: int | None = None


class _ResponseUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _ResponseInputDetails | None = None
    output_tokens_details: _ResponseOutputDetails | None = None


class _ItemAnnotation(Struct):
    """What a text rests on: a page of the web or a file."""

    type: str = ""
    url: str | None = None
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None
    filename: str | None = None
    file_id: str | None = None


class _Part(Struct):
    """A part of a message or of a thought."""

    type: str = ""
    text: str = ""
    refusal: str = ""
    annotations: list[_ItemAnnotation] | None = None


class _Item(Struct):
    """One thing that the model put out: a thought, a message, a tool call, or the use of a tool of the provider."""

    type: str
    id: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: object = None

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.content or () if part.type == "output_text"])

    @property
    def refusal(self) -> str:
        return "".join([part.refusal for part in self.content or () if part.type == "refusal"])

    @property
    def thought(self) -> str:
        """What can be read of a thought."""
        return "\n\n".join([part.text for part in self.summary or self.content or ()])


class _ItemKind(Struct):
    type: str
    id: str | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    status: str | None = None
    output: list[Raw] | None = None
    incomplete_details: _Incomplete | None = None
    usage: _ResponseUsage | None = None
    model: str | None = None
    service_tier: str | None = None
    error: Raw = NOTHING


class _StreamEvent(Struct):
    """An event of a stream. Fields that only some kinds have are of any shape: new kinds may come."""

    type: str = ""
    output_index: int = -1
    item_id: str | None = None
    item: Raw = NOTHING
    delta: object = None
    response: _Response | None = None
    error: Raw = NOTHING
    code: object = None
    message: object = None


_RESPONSE = msgspec.json.Decoder(_Response)
_ITEM = msgspec.json.Decoder(_Item)
_KIND = msgspec.json.Decoder(_ItemKind)
_READ = frozenset(("message", "function_call", "reasoning"))
"""The kinds of items that are read. Others are only kept."""
_EVENT = msgspec.json.Decoder(_StreamEvent)


def read_whole(party: Party, body: bytes) -> Reply:
    """A reply that came whole. Raises Unreadable as streams do."""
    response = decode_strictly(_RESPONSE, body)
    if is_present(response.error):
        raise error_in_reply(party, response.error)
    if response.output is None:
        raise Unreadable("it holds no response")
    return _read_reply(party, list(map(_read_item, response.output)), response)


def _read_item(raw: Raw) -> tuple[_Item, Raw]:
    """An item, and how it was written. Of one of a kind that is not read, the other fields may be of any shape."""
    try:
        return _ITEM.decode(raw), raw
    except (ValueError, RecursionError):
        kind = decode_strictly(_KIND, bytes(raw))
        if kind.type in _READ:
            return decode_strictly(_ITEM, bytes(raw)), raw
        return _Item(kind.type, kind.id), raw


def _read_reply(party: Party, items: Sequence[tuple[_Item, Raw]], response: _Response) -> Reply:
    calls = [_read_call(item) for item, _ in items if item.type == "function_call"]
    messages = [item for item, _ in items if item.type == "message"]
    answers = [item for item in messages if item.phase != _COMMENTARY]
    if not answers and not calls:  # nothing follows the commentary: it is the answer
        answers = messages
    refusal = "".join([item.refusal for item in messages])
    reply = checked_reply(
        party=party,
        text=refusal or "".join([item.text for item in answers]),
        calls=calls,
        finish=_ending(response, refused=bool(refusal), calls=bool(calls)),
        usage=_spent(response.usage, searches=sum(item.type == "web_search_call" for item, _ in items)),
        model=response.model or "",
        kept=_kept_parts(items, answers),
        tier=response.service_tier or "",
        provider_calls=sum(item.type in RESPONSES_CALLS for item, _ in items),
        tool_searches=sum(item.type == "tool_search_call" for item, _ in items),
    )
    citations = [
        _citation(annotation, part.text)
        for item in answers
        for part in item.content or ()
        for annotation in part.annotations or ()
    ]
    return with_citations(reply, filter(None, citations)) if citations else reply


def _citation(annotation: _ItemAnnotation, text: str) -> Citation | None:
    """A citation of a page or a file; None for an annotation that is neither."""
    if annotation.type == "url_citation":
        claim = text[max(0, annotation.start_index or 0) : max(0, annotation.end_index or 0)].strip()
        return Citation(annotation.title or annotation.url or "", claim=claim, url=annotation.url or "")
    name = annotation.filename or annotation.file_id
    return Citation(name) if name else None


def _read_call(item: _Item) -> ToolCall:
    if not item.call_id or not item.name:
        raise Unreadable("one of its tool calls has no name or no id")
    if not isinstance(item.arguments, str):
        raise Unreadable("the arguments of one of its tool calls are no text")
    return ToolCall(id=item.call_id, name=item.name, arguments=item.arguments or "{}")


def _kept_parts(items: Sequence[tuple[_Item, Raw]], answers: Sequence[_Item]) -> list[KeptPart]:
    """What is sent back of each item, in their order. Where there are no thoughts and no phases, no part is needed.

    The words of `answers` are in the text of the reply.
    """
    if all(item.type in ("message", "function_call") and item.phase is None for item, _ in items):
        return []
    parts: list[KeptPart] = []
    for place, (item, raw) in enumerate(items):
        kind = item.type
        call = ""
        if kind == "function_call":
            data = msgspec.json.encode(_KeptCall(item.id, item.namespace))
            call = item.call_id or ""
        elif kind == "message" and any(item is answer for answer in answers):
            data = msgspec.json.encode(_KeptMessage(len(item.text), item.id, item.phase))
        else:
            data = _rewrite(raw)
            kind = _COMMENTARY if kind == "message" else kind
        parts.append(KeptPart(kind, Raw(data), place, call))
    return parts


def _rewrite(raw: Raw) -> bytes:
    """An item as it came, without the fields that are null: servers that write them refuse them all the same."""
    fields = msgspec.json.decode(raw, type=_Json)
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})


def _ending(response: _Response, *, refused: bool, calls: bool) -> Finish:
    if response.status == "incomplete":
        reason = response.incomplete_details.reason if response.incomplete_details is not None else None
        if reason not in _INCOMPLETE:
            raise Unreadable(f"it ended for a reason that is not known: {str(reason)[:40]!r}")
        return _INCOMPLETE[reason]
    if response.status != "completed":
        raise Unreadable(f"it is not finished (its status is {str(response.status)[:40]!r})")
    if refused:
        return "refused"
    return "tools" if calls else "stop"


def _spent(usage: _ResponseUsage | None, *, searches: int) -> Usage | None:
    if usage is None:
        return None
    read = usage.input_tokens_details or _ResponseInputDetails()
    written = usage.output_tokens_details or _ResponseOutputDetails()
    return checked_usage(
        usage.input_tokens,
        usage.output_tokens,
        read.cached_tokens,
        cache_written=read.cache_write_tokens,
        reasoning=written.reasoning_tokens,
        searches=searches,
    )


# --- streams


_KEEP_ALIVE = "keepalive"
"""Comes while a model thinks, and is not documented: https://github.com/openai/openai-node/issues/1964"""
_NO_TOKENS = frozenset(("response.created", "response.queued", "response.in_progress"))
"""Events that come at once, and are no token yet."""


class _GrowingItem:
    """An item while it comes in."""

    __slots__ = ("item", "open", "pieces", "raw", "refusal")

    def __init__(self, item: _Item, raw: Raw) -> None:
        self.item = item
        self.raw = raw
        self.pieces: list[str] = []
        self.refusal: list[str] = []
        self.open = True


class ResponseStream:
    """Takes a streamed reply and tells its words as they come. A commentary is told like a thought."""

    def __init__(self, party: Party, hear: Hear) -> None:
        self.ended = False
        self._party = party
        self._hear = hear
        self._events = Events()
        self._begun = False
        self._items: list[_GrowingItem] = []
        self._response: _Response | None = None
        self._handlers: dict[str, Callable[[_StreamEvent], None]] = {
            "response.created": self._begin,
            "response.output_item.added": self._start,
            "response.output_item.done": self._finish,
            "response.output_text.delta": self._add_text,
            "response.refusal.delta": self._add_refusal,
            "response.reasoning_summary_part.added": self._begin_summary,
            "response.reasoning_summary_text.delta": self._add_thought,
            "response.reasoning_text.delta": self._add_thought,
            "response.function_call_arguments.delta": self._add_arguments,
            "response.completed": self._end,
            "response.incomplete": self._end,
            "response.failed": self._end,
            "error": self._fail,
        }

    def take(self, chunk: bytes) -> bool:
        moved = False
        for frame in self._events.feed(chunk):
            if frame.data == b"[DONE]" and self.ended:  # some servers end every stream so
                continue
            event = decode_strictly(_EVENT, frame.data)
            if event.type == _KEEP_ALIVE:
                moved = moved or self._is_thinking()
                continue
            if self.ended:
                raise Unreadable("its stream goes on after its end mark")
            self._event(event)
            begins_thought = event.type == "response.output_item.added" and self._is_thinking()
            moved = moved or not (event.type in _NO_TOKENS or begins_thought)
        return moved or self._events.growing()

    def _is_thinking(self) -> bool:
        """Whether a thought has begun and is not over. It may take minutes, of which nothing is told."""
        return bool(self._items) and self._items[-1].open and self._items[-1].item.type == "reasoning"

    def _event(self, event: _StreamEvent) -> None:
        if is_present(event.error):
            raise error_in_reply(self._party, event.error)
        handle = self._handlers.get(event.type)
        if handle is not None:
            handle(event)
        elif not event.type:
            raise Unreadable("an event of its stream has no type")
        # new kinds of events may come, and are passed over

    def _fail(self, event: _StreamEvent) -> None:
        """Raise what an `error` event says."""
        words = {"message": str(event.message or "it does not say why"), "code": str(event.code or "")}
        raise error_in_reply(self._party, Raw(msgspec.json.encode(words)))

    def _begin(self, event: _StreamEvent) -> None:
        if self._begun or event.response is None:
            raise Unreadable("its stream begins twice, or with no response")
        self._begun = True

    def _start(self, event: _StreamEvent) -> None:
        if not self._begun:
            raise Unreadable("its stream holds an item outside a response")
        if event.output_index != len(self._items):
            raise Unreadable("its stream begins an item out of turn")
        self._items.append(_GrowingItem(*_read_item(event.item)))

    def _open_item(self, event: _StreamEvent) -> _GrowingItem:
        index = event.output_index
        if not 0 <= index < len(self._items) or not self._items[index].open:
            raise Unreadable("its stream gives a piece of an item that is not open")
        growing = self._items[index]
        if event.item_id and growing.item.id and event.item_id != growing.item.id:
            raise Unreadable("its stream mixes two items")
        return growing

    def _piece(self, event: _StreamEvent, kind: str) -> tuple[_GrowingItem, str]:
        growing = self._open_item(event)
        if growing.item.type != kind or not isinstance(event.delta, str):
            raise Unreadable("its stream mixes two kinds of items")
        return growing, event.delta

    def _add_text(self, event: _StreamEvent) -> None:
        growing, piece = self._piece(event, "message")
        if growing is not self._items[-1]:
            raise Unreadable("its stream mixes two items")
        growing.pieces.append(piece)
        self._tell(growing.item, piece)

    def _tell(self, item: _Item, piece: str) -> None:
        if not piece:
            return
        if item.type == "reasoning" or item.phase == _COMMENTARY:
            self._hear(piece, "thought")
        else:
            self._hear(piece)

    def _add_refusal(self, event: _StreamEvent) -> None:
        growing, piece = self._piece(event, "message")
        growing.refusal.append(piece)

    def _begin_summary(self, event: _StreamEvent) -> None:
        growing = self._open_item(event)
        if growing.pieces:
            growing.pieces.append("\n\n")
            self._tell(growing.item, "\n\n")

    def _add_thought(self, event: _StreamEvent) -> None:
        growing, piece = self._piece(event, "reasoning")
        growing.pieces.append(piece)
        self._tell(growing.item, piece)

    def _add_arguments(self, event: _StreamEvent) -> None:
        growing, piece = self._piece(event, "function_call")
        growing.pieces.append(piece)

    def _finish(self, event: _StreamEvent) -> None:
        """Take an item as it is at its end. It says again what came in pieces, and may have come at once."""
        growing = self._open_item(event)
        item, _ = _read_item(event.item)
        if item.type != growing.item.type or item.id != growing.item.id:
            raise Unreadable("its stream mixes two items")
        growing.open = False
        growing.item = item
        growing.raw = event.item
        told = "".join(growing.pieces)
        if item.type == "message":
            if not item.text.startswith(told) or not item.refusal.startswith("".join(growing.refusal)):
                raise Unreadable("its stream takes back what it said")
            self._tell(item, item.text[len(told) :])
        elif item.type == "function_call" and told not in ("", item.arguments):
            raise Unreadable("its stream takes back the arguments of a tool call")
        elif item.type == "reasoning" and not told:
            self._tell(item, item.thought)

    def _end(self, event: _StreamEvent) -> None:
        response = event.response
        if response is None or not self._begun:
            raise Unreadable("its stream ends with no response")
        if is_present(response.error):
            raise error_in_reply(self._party, response.error)
        is_cut = response.status == "incomplete"
        if response.output and not is_cut and len(response.output) != len(self._items):
            raise Unreadable("its stream left out a part of the reply")
        if any(growing.open for growing in self._items) and not is_cut:
            raise Unreadable("its stream ends in the middle of an item")
        self._response = response
        self.ended = True

    def reply(self) -> Reply:
        """What it came to, once the body is over."""
        if self._response is None:
            raise Unreadable("the stream stopped before its end mark")
        items = [(_cut_item(growing) if growing.open else growing.item, growing.raw) for growing in self._items]
        whole = [each for each, growing in zip(items, self._items, strict=True) if _is_kept(growing)]
        reply = _read_reply(self._party, whole, self._response)
        if reply.text and all(item.phase == _COMMENTARY for item, _ in items if item.type == "message"):
            self._hear(reply.text)  # it was told as a thought, and is all there is
        return reply


def _is_kept(growing: _GrowingItem) -> bool:
    """Whether an item can be used: a thought that was cut off cannot."""
    return not growing.open or growing.item.type in ("message", "function_call")


def _cut_item(growing: _GrowingItem) -> _Item:
    """An item that was cut off at the limit, with what came of it."""
    words = "".join(growing.pieces)
    content = [_Part("output_text", words), _Part("refusal", refusal="".join(growing.refusal))]
    return msgspec.structs.replace(growing.item, content=content, arguments=words)
