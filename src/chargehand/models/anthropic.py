"""Models that speak Anthropic's messages protocol: Anthropic itself, and servers that offer the same.

Replies are read strictly: what is not as it should be fails. Retries, limits and prices are the guard's business.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, Unpack, cast

import msgspec
from msgspec import Raw, Struct

from chargehand.engine.facts import Citation
from chargehand.models.call_errors import NOTHING, Party, Unreadable, error_in_reply, is_present
from chargehand.models.citations import with_citations
from chargehand.models.http import Events
from chargehand.models.messages import (
    Document,
    Effort,
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
from chargehand.models.provider_tools import ANTHROPIC_TOOLS, is_server_block
from chargehand.models.strict_schemas import ANTHROPIC, strict_schema
from chargehand.models.tool_search import ANTHROPIC_SEARCH, DEFER, is_search_call, with_search
from chargehand.models.wire import (
    EndpointOptions,
    HttpModel,
    checked_reply,
    checked_usage,
    decode_strictly,
)

VERSION = "2023-06-01"
_OWN_HOST = "https://api.anthropic.com/"
"""Where documents and searches for tools are taken; other servers of the protocol may not know them."""
_EMPTY = "(empty)"  # an empty text block is an error there
# https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting
_NO_THOUGHT = re.compile(r"Expected .?thinking.? or .?redacted_thinking")
_MAX_THOUGHTLESS = 10_000
_THOUGHTS = frozenset(("thinking", "redacted_thinking"))
_Json: TypeAlias = dict[str, object]
_CACHES: dict[str, _Json | None] = {
    "5m": {"type": "ephemeral"},
    "1h": {"type": "ephemeral", "ttl": "1h"},
    "off": None,
}
_TIERS = {"auto": "auto", "default": "standard_only"}
"""What service tiers are called there; the others it does not have."""
_IN_WORDS = "Reply with one JSON document and nothing else. It must fit this JSON Schema: "
_object = msgspec.json.Decoder(dict[str, Raw])


class ThinkingRule(Struct, frozen=True):
    """How models whose names fit think on demand."""

    names: re.Pattern[str]
    thinking: _Json | None = None
    """How it is turned on; None: by a number of tokens."""
    takes_effort: bool = True
    """Whether a level can be set."""
    most: str = "max"
    """The highest level."""
    off: _Json | None = None
    """How it is turned off; None: by leaving it out, or not at all where it `always` thinks."""
    always: bool = False


_ADAPTIVE: _Json = {"type": "adaptive"}
_DISABLED: _Json = {"type": "disabled"}
_THINKING = (
    # https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking and .../effort
    ThinkingRule(re.compile(r"claude-opus-4[-.]5"), most="high"),
    ThinkingRule(re.compile(r"claude-3[-.]7|claude-\w+-4(?:[-.][015](?!\d))?(?![-.]\d(?!\d))"), takes_effort=False),
    ThinkingRule(re.compile(r"claude-(fable|mythos)|claude-opus-5[-.]5"), _ADAPTIVE, always=True),
    ThinkingRule(re.compile(r"claude-sonnet-5[-.]5"), _ADAPTIVE, off={"type": "between_tools"}),
    ThinkingRule(re.compile(r""), _ADAPTIVE, off=_DISABLED),
)
"""The first that fits counts; the last is for models that came later, and is adapted to what they refuse."""
_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384, "max": 32_768}
"""Tokens to think with, where no level can be set."""
_LEAST_BUDGET = 1_024


class AnthropicMessages(HttpModel):
    """One model behind one base URL (`https://host`). Without `key` no key is sent.

    A schema the strict mode takes is sent as the output format, any other as an instruction. The tools and the system
    message, which are the same in every call of a worker, are marked for the provider's cache, and so is what was said
    so far where the model is called again; unless the settings say `cache: off`. Thoughts are sent back where they
    stood; a model that wants one in every turn, and gets a turn of another model, is asked not to think. Of documents
    citations are asked for, but not where the reply has a schema: the two are refused together.
    """

    protocol = "messages"
    PROVIDER_TOOLS = ANTHROPIC_TOOLS
    TOOL_SEARCH = ANTHROPIC_SEARCH

    def __init__(
        self, handle: str, base_url: str, name: str, key: str = "", **options: Unpack[EndpointOptions]
    ) -> None:
        headers = {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}
        url = base_url.rstrip("/").removesuffix("/v1") + "/v1/messages"
        is_own = url.startswith(_OWN_HOST)
        searches = is_own and ANTHROPIC_SEARCH.names.search(name) is not None
        usual: EndpointOptions = {"window": 200_000, "documents": is_own, "tool_search": searches}
        super().__init__(handle, url, name, key, headers, {**usual, **options})
        self._thinking = next(rule for rule in _THINKING if rule.names.search(name.lower()))
        self._thoughtless: set[str] = set()  # calls of conversations that lack a thought it wants

    def _stream(self, hear: Hear) -> "MessageStream":
        return MessageStream(self._party, hear)

    def _read(self, body: bytes) -> Reply:
        return read_whole(self._party, body)

    def _body(self, request: Request, limit: int, *, streamed: bool) -> dict[str, object]:
        settings = request.settings
        search = self._plan_search(request)
        system, turns = _write_turns(
            request.messages, partial(self._parts_to_send, search=search), cites=request.schema is None
        )
        body: dict[str, object] = {"model": self._name, "max_tokens": limit}
        if settings.effort is not None:
            self._write_effort(body, settings.effort, limit)
        if request.schema is not None:
            strict = strict_schema(request.schema, ANTHROPIC)
            if strict is not None:
                config = cast("_Json", body.setdefault("output_config", {}))
                config["format"] = {"type": "json_schema", "schema": strict}
            else:
                system.append({"type": "text", "text": _IN_WORDS + bytes(request.schema).decode()})
        tools = with_search([_write_tool(tool) for tool in request.tools], search, self.TOOL_SEARCH)
        tools += [dict(self.PROVIDER_TOOLS[name]) for name in request.provider_tools]
        if (cache := _CACHES[settings.cache or "5m"]) is not None:
            _mark_for_cache(cache, system, tools, turns)
        if system:
            body["system"] = system
        body["messages"] = turns
        if tools:
            body["tools"] = tools
            if choice := _write_choice(request, forces="thinking" not in body):
                body["tool_choice"] = choice
        self._write_settings(body, settings)
        if streamed:
            body["stream"] = True
        return self._without_thinking(body, request) if self._thoughtless else body

    def _without_thinking(self, body: dict[str, object], request: Request) -> dict[str, object]:
        """Ask for no thoughts in a conversation that lacks one the server wants."""
        if self._thoughtless.isdisjoint(_call_ids(request)):
            return body
        return {**body, "thinking": {"type": "disabled"}}

    def _mends_history(self, request: Request, status: int, words: str) -> bool:
        if super()._mends_history(request, status, words):
            return True
        ids = _call_ids(request)
        if status != 400 or not _NO_THOUGHT.search(words) or self._thoughtless.issuperset(ids):
            return False
        if len(self._thoughtless) > _MAX_THOUGHTLESS:
            self._thoughtless.clear()
        self._thoughtless.update(ids)
        return True

    def _write_effort(self, body: _Json, effort: Effort, limit: int) -> None:
        """How much it is to think, as models of this name are told."""
        rule = self._thinking
        if effort == "none":
            if rule.always or "thinking" in self._fields.dropped:  # it cannot be turned off
                body["output_config"] = {"effort": "low"}
            elif rule.off is not None:
                body["thinking"] = rule.off
            return
        budget = min(_BUDGETS[effort], limit * 3 // 4)
        if rule.thinking is not None:
            body["thinking"] = rule.thinking
        elif budget >= _LEAST_BUDGET:
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        else:
            self._skip("effort", "some replies are so short that they leave no room to think")
        if rule.takes_effort:
            body["output_config"] = {"effort": rule.most if effort == "max" else effort}

    def _write_settings(self, body: _Json, settings: Settings) -> None:
        thinks = body.get("thinking", _DISABLED) is not _DISABLED
        if settings.temperature is not None:
            if thinks and settings.temperature != 1:
                self._skip("temperature", "with thinking on it cannot be set")
            else:
                body["temperature"] = settings.temperature
        if settings.top_p is not None:
            body["top_p"] = settings.top_p
        if settings.stop:
            body["stop_sequences"] = settings.stop
        if settings.seed is not None:
            self._skip("seed", "the protocol has none")
        if settings.service_tier in _TIERS:
            body["service_tier"] = _TIERS[settings.service_tier]
        elif settings.service_tier is not None:
            self._skip(f"service_tier {settings.service_tier!r}", "the protocol has no such tier")


def _call_ids(request: Request) -> list[str]:
    """The calls of a conversation, each with its arguments: ids alone may repeat in another one."""
    return [f"{call.id} {call.arguments}" for message in request.messages for call in message.calls]


def _mark_for_cache(cache: _Json, system: list[_Json], tools: list[_Json], turns: "list[_MessagesTurn]") -> None:
    """Mark what is the same in the next call."""
    if system:
        system[-1]["cache_control"] = cache
    elif tools:  # those that are not read at first are no part of what is cached, and are refused with a mark
        next(tool for tool in reversed(tools) if DEFER not in tool)["cache_control"] = cache
    # called again: what was said before it is read from the cache the next time; a paused turn goes back as it was
    if len(turns) > 1 and turns[-1].role == "user":
        turns[-1].content[-1]["cache_control"] = cache


def _write_choice(request: Request, *, forces: bool) -> _Json | None:
    """Which tools may be called; None: any. A call is not forced where the model thinks: it would be refused."""
    if request.tool_choice == "none":
        return {"type": "none"}
    choice: _Json = {"type": "auto"}
    if request.tool_choice and forces:
        choice = {"type": "tool", "name": request.tool_choice}
    if request.settings.parallel_tool_calls is False:
        choice["disable_parallel_tool_use"] = True
    return choice if len(choice) > 1 else None


class _MessagesTurn(Struct):
    role: str
    content: list[_Json]


def _write_turns(
    messages: Sequence[Message], own_parts: Callable[[Message], Sequence[KeptPart]], *, cites: bool
) -> tuple[list[_Json], list[_MessagesTurn]]:
    """System blocks, and turns: several messages of one speaker are one turn, and so are all results of one round.

    `cites`: citations of documents are asked for. It must be the same for all of them.
    """
    system: list[_Json] = []
    turns: list[_MessagesTurn] = []
    for message in messages:
        blocks = _write_blocks(message, cites=cites)
        if message.role == "system":
            system += blocks
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if message.kept is not None:
            _insert_kept(blocks, own_parts(message))
        if not blocks:  # it said nothing and called nothing
            continue
        if turns and turns[-1].role == role:
            turns[-1].content += blocks
        else:
            turns.append(_MessagesTurn(role, blocks))
    if not turns and system:  # the protocol wants at least one turn
        turns.append(_MessagesTurn("user", [system.pop()]))
    return system, turns


def _write_blocks(message: Message, *, cites: bool) -> list[_Json]:
    """The content blocks of one message."""
    if message.role == "tool":
        return [_write_result(message, cites=cites)]
    blocks = _write_files(message, cites=cites) if message.has_files else []
    if message.text.strip() or message.role != "assistant":
        blocks.append({"type": "text", "text": message.text if message.text.strip() else _EMPTY})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
        for call in message.calls
    ]
    return blocks


def _write_result(message: Message, *, cites: bool) -> _Json:
    """The result of a call, with the files that came with it."""
    result: _Json = {"type": "tool_result", "tool_use_id": message.call, "content": message.text}
    if message.is_error:  # then only text may be in it
        result["is_error"] = True
    elif message.has_files:
        text: _Json = {"type": "text", "text": message.text if message.text.strip() else _EMPTY}
        result["content"] = [text, *_write_files(message, cites=cites)]
    return result


def _write_files(message: Message, *, cites: bool) -> list[_Json]:
    """The documents and pictures of a message."""
    documents = [_write_document(document, cites=cites) for document in message.documents]
    return [*documents, *map(_write_image, message.images)]


def _insert_kept(blocks: list[_Json], parts: Sequence[KeptPart]) -> None:
    """Put thoughts, and calls of the provider's tools, where they stood, from the first on.

    With such calls all texts are kept too: they stand between results, and hold what cites these.
    """
    if not blocks and not any(is_server_block(part.kind) for part in parts):
        return
    if any(part.kind == "text" for part in parts):
        blocks[:] = [block for block in blocks if block["type"] != "text"]
    for part in parts:
        blocks.insert(part.place, msgspec.json.decode(part.data, type=_Json))


def _write_image(image: Image) -> _Json:
    data = b64encode(image.data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": data}}


def _write_document(document: Document, *, cites: bool) -> _Json:
    data = b64encode(document.data).decode()
    written: _Json = {
        "type": "document",
        "source": {"type": "base64", "media_type": document.media_type, "data": data},
        "title": document.name,
    }
    if cites:
        written["citations"] = {"enabled": True}
    return written


def _input(arguments: str) -> object:
    """Arguments have to be an object there: what the model wrote is shown to it even where it is none."""
    try:
        return _object.decode(arguments)
    except (ValueError, RecursionError):
        return {"unreadable": arguments}


def _write_tool(tool: ToolSpec) -> _Json:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


# --- replies


_FINISHES: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
    "pause_turn": "paused",
}


class _CacheCreation(Struct):
    """What was written to the cache, by how long it is kept."""

    ephemeral_1h_input_tokens: int | None = None


class _OutputDetails(Struct):
    thinking_tokens: int | None = None


class _ServerToolUse(Struct):
    web_search_requests: int | None = None


class _MessagesUsage(Struct):
    """`input_tokens` leaves out what was read from or written to the cache; `output_tokens` holds the thinking."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None
    server_tool_use: _ServerToolUse | None = None


class _Cited(Struct):
    """A citation. Of a page the last one is the one behind it."""

    cited_text: str | None = None
    document_title: str | None = None
    title: str | None = None
    source: str | None = None
    url: str | None = None
    start_page_number: int | None = None
    end_page_number: int | None = None


class _Block(Struct):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")
    thinking: str | None = None
    signature: str | None = None
    data: object = None
    citations: list[_Cited] | None = None


class _Whole(Struct):
    type: str = ""
    content: list[_Block] | None = None
    stop_reason: str | None = None
    usage: _MessagesUsage | None = None
    model: str = ""
    error: Raw = NOTHING


class _Delta(Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str | None = None
    signature: str | None = None
    citation: _Cited | None = None
    stop_reason: str | None = None


class _Event(Struct):
    type: str
    index: int = -1
    message: _Whole | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _MessagesUsage | None = None
    error: Raw = NOTHING


_WHOLE = msgspec.json.Decoder(_Whole)
_EVENT = msgspec.json.Decoder(_Event)


class _RawWhole(Struct):
    content: list[Raw]


_RAW = msgspec.json.Decoder(_RawWhole)


def read_whole(party: Party, body: bytes) -> Reply:
    """A reply that came whole. Raises Unreadable as streams do."""
    message = decode_strictly(_WHOLE, body)
    if is_present(message.error):
        raise error_in_reply(party, message.error)
    if message.type != "message" or message.content is None:
        raise Unreadable("it holds no message")
    blocks = [_GrowingMessage(block) for block in message.content]
    if any(is_server_block(block.type) for block in message.content):
        for growing, source in zip(blocks, _RAW.decode(body).content, strict=True):
            growing.source = bytes(source)
    return _read_reply(party, blocks, message.stop_reason, message.usage, message.model)


def _read_reply(
    party: Party,
    blocks: "Sequence[_GrowingMessage]",
    stop_reason: str | None,
    spent: _MessagesUsage | None,
    model: str,
) -> Reply:
    texts: list[str] = []
    calls: list[ToolCall] = []
    kept: list[KeptPart] = []
    used = [growing.block.name for growing in blocks if growing.block.type == "server_tool_use"]
    searches = sum(map(is_search_call, used))
    citations: list[Citation] = []
    for growing in blocks:
        block = growing.block
        written = "".join(growing.pieces)
        if block.type == "text":
            texts.append(block.text + written)
            if used and texts[-1].strip():
                kept.append(KeptPart("text", growing.whole(), len(kept) + len(calls)))
            citations += [_citation(cited, texts[-1]) for cited in (*(block.citations or ()), *growing.citations)]
        elif block.type == "tool_use":
            calls.append(_call(block.id, block.name, written or bytes(block.input).decode()))
        elif block.type in _THOUGHTS:
            # all of the text is one block when it is sent back, unless it is kept
            has_text = not used and any(text.strip() for text in texts)
            place = len(kept) + has_text + len(calls)
            kept.append(KeptPart(block.type, _thought_block(block, written, growing.signature), place))
        elif is_server_block(block.type):
            kept.append(KeptPart(block.type, growing.whole(), len(kept) + len(calls)))
    reply = checked_reply(
        party=party,
        text="".join(texts),
        calls=calls,
        finish=_ending(stop_reason),
        usage=_spent(spent),
        model=model,
        kept=kept,
        provider_calls=len(used) - searches,
        tool_searches=searches,
    )
    return with_citations(reply, citations) if citations else reply


def _citation(cited: _Cited, claim: str) -> Citation:
    first = cited.start_page_number or 0
    return Citation(
        source=cited.document_title or cited.title or cited.source or cited.url or "",
        text=cited.cited_text or "",
        claim=claim.strip(),
        url=cited.url or "",
        page=first,
        last_page=max(first, (cited.end_page_number or 0) - 1),
    )


def _thought_block(block: _Block, written: str, signature: str) -> Raw:
    """A thought as it is sent back. What is encrypted has no text."""
    thought: _Json = {"type": block.type}
    if block.type == "thinking":
        thought["thinking"] = (block.thinking or "") + written
        if whole_signature := (block.signature or "") + signature:
            thought["signature"] = whole_signature
    else:
        thought["data"] = block.data
    return Raw(msgspec.json.encode(thought))


class _GrowingMessage:
    """A block while it comes in."""

    __slots__ = ("block", "citation_events", "citations", "open", "pieces", "signature", "source")

    def __init__(self, block: _Block) -> None:
        self.block = block
        self.pieces: list[str] = []
        self.signature = ""
        self.citations: list[_Cited] = []
        self.open = True
        self.source = b""
        """The JSON of the block as it began, alone or in the event that began it."""
        self.citation_events: list[bytes] = []
        """The events that cite a source of its text."""

    def whole(self) -> Raw:
        """Return the block as it is sent back, with all that came in after its beginning."""
        source = msgspec.json.decode(self.source, type=_Json)
        block = cast("_Json", source.get("content_block", source))
        written = "".join(self.pieces)
        if block["type"] == "text":
            block["text"] = self.block.text + written
            cited = [cast("_Json", msgspec.json.decode(event)["delta"])["citation"] for event in self.citation_events]
            if cited:
                block["citations"] = [*cast("list[object]", block.get("citations") or []), *cited]
        elif written:
            block["input"] = _input(written)
        return Raw(msgspec.json.encode(block))


class MessageStream:
    """Takes a streamed reply and tells its words as they come."""

    def __init__(self, party: Party, hear: Hear) -> None:
        self.ended = False
        self._party = party
        self._hear = hear
        self._events = Events()
        self._begun = False
        self._blocks: list[_GrowingMessage] = []
        self._stop: str | None = None
        self._usage: _MessagesUsage | None = None
        self._model = ""

    def take(self, chunk: bytes) -> bool:
        data = False
        for frame in self._events.feed(chunk):
            if frame.name == b"ping":
                continue
            event = decode_strictly(_EVENT, frame.data)
            if event.type == "ping":
                continue
            if self.ended:
                raise Unreadable("its stream goes on after its end mark")
            self._event(event, frame.data)
            data = data or event.type != "message_start"  # which comes at once, and is no token yet
        return data or self._events.growing()

    def _event(self, event: _Event, source: bytes) -> None:
        match event.type:
            case "content_block_delta":
                self._grow(event)
                if event.delta is not None and event.delta.type == "citations_delta":
                    self._open_block(event.index).citation_events.append(bytes(source))
            case "content_block_start":
                self._start(event)
                self._blocks[-1].source = bytes(source)
            case "content_block_stop":
                self._open_block(event.index).open = False
            case "message_start":
                self._begin(event)
            case "message_delta":
                self._close(event)
            case "message_stop":
                self._end()
            case "error":
                raise error_in_reply(self._party, event.error)
            case _:
                pass  # the protocol says that new kinds of events may come, and are to be passed over

    def _begin(self, event: _Event) -> None:
        if self._begun or event.message is None:
            raise Unreadable("its stream begins twice, or with no message")
        self._begun = True
        self._model = event.message.model
        self._usage = event.message.usage

    def _start(self, event: _Event) -> None:
        if not self._begun or self._stop is not None:
            raise Unreadable("its stream holds a block outside a message")
        if event.content_block is None or event.index != len(self._blocks):
            raise Unreadable("its stream begins a block out of turn")
        self._blocks.append(_GrowingMessage(event.content_block))
        block = event.content_block
        if block.type == "text" and block.text:
            self._hear(block.text)
        elif block.type == "thinking" and block.thinking:
            self._hear(block.thinking, "thought")

    def _grow(self, event: _Event) -> None:
        growing = self._open_block(event.index)
        delta = event.delta
        kind = growing.block.type
        if delta is None or (delta.text and kind != "text") or (delta.partial_json and kind == "text"):
            raise Unreadable("its stream mixes two kinds of block")
        if delta.type == "text_delta":
            growing.pieces.append(delta.text)
            if delta.text:
                self._hear(delta.text)
        elif delta.type == "input_json_delta":
            growing.pieces.append(delta.partial_json)
        elif delta.type == "thinking_delta" and kind == "thinking":
            if delta.thinking:
                growing.pieces.append(delta.thinking)
                self._hear(delta.thinking, "thought")
        elif delta.citation is not None:
            growing.citations.append(delta.citation)
        elif delta.type == "signature_delta":
            growing.signature += delta.signature or ""

    def _open_block(self, index: int) -> _GrowingMessage:
        if not 0 <= index < len(self._blocks) or not self._blocks[index].open:
            raise Unreadable("its stream gives a piece of a block that is not open")
        return self._blocks[index]

    def _close(self, event: _Event) -> None:
        if event.delta is not None and event.delta.stop_reason is not None:
            self._stop = event.delta.stop_reason
        self._usage = _later(self._usage, event.usage)

    def _end(self) -> None:
        if self._stop is None or any(growing.open for growing in self._blocks):
            raise Unreadable("its stream ends in the middle of a message")
        self.ended = True

    def reply(self) -> Reply:
        """What it came to, once the body is over."""
        return _read_reply(self._party, self._blocks, self._stop, self._usage, self._model)


def _call(id: str, name: str, arguments: str) -> ToolCall:  # noqa: A002 - what the protocol calls it
    if not id or not name:
        raise Unreadable("one of its tool calls has no name or no id")
    return ToolCall(id=id, name=name, arguments=arguments)


def _ending(reason: str | None) -> Finish:
    if reason is None:
        raise Unreadable("it does not say why it ended")
    if reason not in _FINISHES:
        raise Unreadable(f"it ended for a reason that is not known: {reason[:40]!r}")
    return _FINISHES[reason]


def _later(first: _MessagesUsage | None, last: _MessagesUsage | None) -> _MessagesUsage | None:
    """Counts in a stream are totals so far: what is said last holds, what is not said again stays."""
    if first is None or last is None:
        return last or first
    old = msgspec.structs.asdict(first)
    new = msgspec.structs.asdict(last)
    return _MessagesUsage(**{name: old[name] if value is None else value for name, value in new.items()})


def _spent(usage: _MessagesUsage | None) -> Usage | None:
    """What a call used, all it read counted together. Of what the cache was given, only the hour's is told apart."""
    if usage is None:
        return None
    creation = usage.cache_creation
    details = usage.output_tokens_details
    written = usage.cache_creation_input_tokens or 0
    hour = (creation.ephemeral_1h_input_tokens if creation is not None else None) or 0
    cached = usage.cache_read_input_tokens or 0
    if min(written, hour, cached, usage.input_tokens or 0) < 0:
        raise Unreadable("it counts tokens below zero")
    return checked_usage(
        None if usage.input_tokens is None else usage.input_tokens + written + cached,
        usage.output_tokens,
        cached,
        cache_written=written - min(hour, written),
        cache_written_hour=min(hour, written),
        reasoning=None if details is None else details.thinking_tokens,
        searches=None if usage.server_tool_use is None else usage.server_tool_use.web_search_requests,
    )
