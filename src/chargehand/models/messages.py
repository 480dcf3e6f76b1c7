"""What goes into a model and what comes out, in our own words. How a provider writes it is the adapters' business."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Meta, Raw, Struct, structs
from msgspec.structs import astuple

from chargehand.engine.declared import Declared, written_as
from chargehand.engine.facts import Citation
from chargehand.errors import Invalid
from chargehand.models.request_facts import Subject

IMAGE_TOKENS = 1_600
"""About what a model reads for a picture."""
PAGE_TOKENS = 3_000
"""About what a model reads for a page of a PDF: its text, and the page as a picture."""
PDF = "application/pdf"
"""The media type of documents."""
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Finish: TypeAlias = Literal["stop", "tools", "length", "refused", "paused"]
"""How a reply ends. `paused`: the provider's own tools took long, and the model goes on when it is asked again."""
Effort: TypeAlias = Literal["none", "low", "medium", "high", "max"]
ServiceTier: TypeAlias = Literal["auto", "default", "flex", "priority"]
Caching: TypeAlias = Literal["off", "5m", "1h"]


class ToolCall(Struct, frozen=True, gc=False, omit_defaults=True):
    """A call the model asks for. `arguments` is what it wrote: JSON if all is well."""

    id: str
    name: str
    arguments: str = "{}"


class Image(Struct, frozen=True, gc=False, omit_defaults=True):
    """A picture in a message. Its bytes are read from the store right before the call: no journal has them."""

    file: str
    """The id of the file it is."""
    media_type: str
    """Its type, such as `image/png`. What is no picture is refused here: providers refuse it as well."""
    data: bytes = b""
    """Empty until the call is made."""

    def __post_init__(self) -> None:
        if not self.media_type.startswith("image/"):
            raise Invalid(f"{self.file} is of type {self.media_type}, which is no picture; a PDF goes into documents")


class Document(Struct, frozen=True, gc=False, omit_defaults=True):
    """A PDF in a message. Its bytes are read from the store right before the call, like those of a picture."""

    file: str
    """The id of the file it is."""
    name: str
    """What it is called; citations name it."""
    pages: int = 1
    """How many pages it has, about: so much of the window it takes."""
    media_type: str = PDF
    """Its type. Providers take PDFs only."""
    data: bytes = b""
    """Empty until the call is made."""

    def __post_init__(self) -> None:
        if self.media_type != PDF:
            raise Invalid(f"{self.name} is of type {self.media_type}; only a PDF ({PDF}) is shown as a document")


class KeptPart(Struct, frozen=True, gc=False, omit_defaults=True):
    """One part of a reply that only its provider reads: a thought, its signature, or an encrypted item."""

    kind: str
    """What its protocol calls it: a field of the message, or the type of a block."""
    data: Raw
    """Its JSON. It is sent back as it is."""
    place: int = 0
    """Where it stood among the blocks of the reply, counted from 0."""
    call: str = ""
    """The id of the tool call it belongs to; empty: it belongs to the reply."""


class Kept(Struct, frozen=True, gc=False, omit_defaults=True):
    """The parts of a reply that its provider wants back with the conversation. No other model is sent them."""

    parts: tuple[KeptPart, ...]
    provider: str = ""
    """The protocol and the place that they came from."""
    model: str = ""
    """The name by which the model was called."""

    @property
    def size(self) -> int:
        """Return how many bytes all parts have."""
        return sum([len(bytes(part.data)) for part in self.parts])


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """`calls` are an assistant's; `call` is the id of the call that a tool message answers."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call: str = ""
    is_error: bool = False
    """A tool message: the call failed, and the text says why."""
    images: tuple[Image, ...] = ()
    """Pictures that the model is shown with the text: of a user's message, or of a tool's result."""
    documents: tuple[Document, ...] = ()
    """PDFs that the model is shown with the text: of a user's message, or of a tool's result."""
    kept: Kept | None = None
    """An assistant's: what its provider wants back with it."""

    @property
    def has_files(self) -> bool:
        """Whether pictures or documents are shown with the text."""
        return bool(self.images or self.documents)

    @property
    def files_tokens(self) -> int:
        """About what a model reads for its pictures and documents, in tokens."""
        return IMAGE_TOKENS * len(self.images) + PAGE_TOKENS * sum([document.pages for document in self.documents])


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens that a call used."""

    input: int = 0
    """All it read, those of the cache included."""
    output: int = 0
    """All it wrote, thinking included."""
    cached: int = 0
    """Of the input: read from the provider's cache."""
    cache_written: int = 0
    """Of the input: written to the provider's cache, to be kept for its usual time (5 minutes at Anthropic)."""
    cache_written_hour: int = 0
    """Of the input: written to the provider's cache, to be kept for an hour."""
    reasoning: int = 0
    """Of the output: what it thought."""
    searches: int = 0
    """Searches of the web that the provider made: it charges for each, besides the tokens."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*[mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)])


class Reply(Struct, frozen=True, gc=False, omit_defaults=True):
    """`usage` and `micros` (millionths of a dollar) are left out where they are not known."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    usage: Usage | None = None
    micros: int | None = None
    model: str = ""
    notice: str = ""
    """Which settings the model did not take in this call, in words; empty: it took all."""
    kept: Kept | None = None
    """What the provider wants back with the conversation, such as what the model thought. It is no part of `text`."""
    tier: str = ""
    """The service tier that served the call, as the provider calls it; empty: the usual one, or it does not say."""
    provider_calls: int = 0
    """How often tools of the provider itself were used on the way. What they returned is in `kept`."""
    citations: tuple[Citation, ...] = ()
    """What the provider says that the text rests on, in its order."""
    tool_searches: int = 0
    """How often the model searched for tools whose schemas it had not read. What it found is in `kept`."""

    def message(self) -> Message:
        return Message("assistant", self.text, self.calls, kept=self.kept)


class ToolSpec(Struct, frozen=True, gc=False, omit_defaults=True):
    """A tool as a model sees it: `parameters` is a JSON Schema of one object."""

    name: str
    description: str
    parameters: Raw
    at_once: bool = False
    """Whether its schema is always sent, and never left for the model to search for."""


_LIMITS = (
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens_to_sample"),
    "num_predict",
)
_COPIES = ("n", "best_of", "candidate_count", "num_return_sequences")
_NO_EXTRA = {
    **{name: name for name in ("temperature", "top_p", "seed", "stop", "service_tier", "parallel_tool_calls")},
    **dict.fromkeys(_LIMITS, "max_tokens"),
    "stop_sequences": "stop",
    **dict.fromkeys(("cache_control", "prompt_cache_retention"), "cache"),
    **dict.fromkeys(("model", "messages", "input", "system", "instructions"), ""),
    **dict.fromkeys(("tools", "tool_choice", "functions", "function_call", "response_format", "max_tool_calls"), ""),
    **dict.fromkeys(("stream", "stream_options", "background", "previous_response_id", "conversation"), ""),
    **dict.fromkeys(_COPIES, ""),
}
"""What `extra` may not hold, and the setting to use instead; empty: every call sets it itself."""
_TABLES = frozenset(("extrabody", "generationconfig", "inferenceconfig", "options", "parameters"))
"""Tables in which servers also read the limits of a reply, as `_same_name` writes them."""


def _same_name(name: str) -> str:
    """Return a field's name without underscores and capitals: some servers read `max_tokens` and `maxTokens` alike."""
    return name.replace("_", "").lower()


_REFUSED = {_same_name(name): setting for name, setting in _NO_EXTRA.items()}
_REFUSED_INSIDE = {_same_name(name): _NO_EXTRA[name] for name in (*_LIMITS, *_COPIES)} | {"maxlength": "max_tokens"}
_EFFORTS = ("reasoning_effort", "reasoning", "thinking")


class ExtraFields(dict[str, object]):
    """Fields for the body of a request that are compared and hashed by what they hold. Nothing changes them."""

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(msgspec.json.encode(self, order="deterministic"))


class Settings(Declared, frozen=True, cache_hash=True, forbid_unknown_fields=True):
    """How a model samples, how much it thinks, and how its provider serves it."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """How freely it samples; left out, the provider decides."""
    max_tokens: Annotated[int, written_as("Size")] | None = None
    """The longest reply in tokens, thinking included, 1 at least; left out, it goes by the model and the budget."""
    parallel_tool_calls: bool | None = None
    """Whether a reply may hold several tool calls; left out, the provider decides."""
    effort: Effort | None = None
    """How much it thinks; a level that the model lacks becomes the nearest it has. Left out, the provider decides."""
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The share of likely tokens it samples from; left out, the provider decides."""
    seed: int | None = None
    """Makes samples repeatable where the provider can; left out, they are not."""
    stop: Sequence[str] | None = None
    """Texts that end a reply before they are written; left out, none."""
    service_tier: ServiceTier | None = None
    """How fast and at what price the provider serves it; left out, the provider decides."""
    cache: Caching | None = None
    """How long the provider keeps what it has read: `off`, `5m` or `1h`; left out, `5m` where that can be set."""
    extra: Mapping[str, Any] | None = None
    """Further fields of the request, as the provider calls them; left out, none."""

    def __post_init__(self) -> None:
        if self.stop is None and self.extra is None and (self.max_tokens is None or self.max_tokens > 0):
            return
        for name, problem in settings_problems(structs.asdict(self)):
            raise Invalid(f"Settings: {name} {problem}")
        if self.stop is not None:
            structs.force_setattr(self, "stop", tuple(self.stop))
        if self.extra is not None and not isinstance(self.extra, ExtraFields):
            structs.force_setattr(self, "extra", ExtraFields(self.extra))


def settings_problems(written: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with settings whose types are right: the setting, and the end of a sentence about it."""
    most = cast("int | None", written.get("max_tokens"))
    if most is not None and most < 1:
        yield "max_tokens", f"is {most}; a reply has at least one token: write 1 or more, or leave it out"
    stop = cast("Sequence[str]", written.get("stop") or ())
    if not all(text.strip() for text in stop):
        yield "stop", "holds an empty text; each text must hold more than blanks"
    extra = cast("Mapping[str, object]", written.get("extra") or {})
    for problem in _extra_problems(extra):
        yield "extra", problem
    for name in _EFFORTS:
        if name in extra and written.get("effort") is not None:
            yield "extra", f"holds {name!r} and effort is set; both say how much the model thinks: leave one out"


def _extra_problems(extra: Mapping[str, object]) -> Iterator[str]:
    try:
        msgspec.json.encode(extra)
        json.dumps(msgspec.to_builtins(extra, str_keys=True), allow_nan=False)  # msgspec writes NaN as null
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        yield f"cannot be written as JSON ({error}); use text, numbers, lists and tables"
        return
    yield from _refused_fields(extra, _REFUSED)
    for name, value in extra.items():
        if _same_name(name) in _TABLES and isinstance(value, Mapping):
            yield from _refused_fields(cast("Mapping[str, object]", value), _REFUSED_INSIDE, f"{name}.")


def _refused_fields(fields: Mapping[str, object], refused: Mapping[str, str], table: str = "") -> Iterator[str]:
    for name in fields:
        setting = refused.get(_same_name(name))
        if setting:
            yield f"holds {table + name!r}, which has a setting of its own; write {setting} beside extra"
        elif setting is not None:
            yield f"holds {table + name!r}, which every call sets itself; leave it out"


def ways_to_answer(settings: Settings) -> dict[str, object]:
    """The settings besides the temperature that change what a model answers, as far as they are set."""
    names = ("effort", "top_p", "seed", "stop", "extra")
    return {name: value for name in names if (value := getattr(settings, name)) is not None}


class Request(Struct, frozen=True, gc=False):
    """One call of a model. `messages` may grow once it is over: copy them to keep them.

    With `schema` (a JSON Schema) the text of the reply is to be JSON of that shape. `subject` says in plain data what
    the messages say in prose; models that read prose ignore it. `pay_once`: money was reserved for one call, so one
    that was billed, or may have been, is not tried again on the way.
    """

    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    schema: Raw | None = None
    settings: Settings = Settings()
    subject: Subject | None = None
    pay_once: bool = False
    tool_choice: str = ""
    """`none`: no tool is called. The name of a tool: that one is. Empty: the model decides."""
    asker: str = ""
    """Who asks: the name of a worker, or `supervisor`. Its calls begin alike, so a provider may cache them together."""
    provider_tools: tuple[str, ...] = ()
    """Tools that the provider runs itself, by our names: `web_search`."""


# --- what a model thought, for people


_THOUGHTS = (
    ("reasoning_content",),
    ("thinking",),
    ("reasoning", "commentary"),
    ("reasoning_details",),
    ("response",),
)
"""The kinds of kept parts that hold readable thoughts. Those of the first line of which one is there are shown."""
_TEXTS = ("thinking", "text", "summary", "content", "parts")


def thought_text(kept: Kept | None) -> str:
    """Return what a model thought, as far as its provider shows it; empty: nothing can be read."""
    if kept is None:
        return ""
    for kinds in _THOUGHTS:
        texts = [_readable(msgspec.json.decode(part.data)) for part in kept.parts if part.kind in kinds]
        if any(texts):
            return "".join(texts)
    return ""


def _readable(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_readable, cast("list[object]", value)))
    if not isinstance(value, dict):
        return ""
    fields = cast("dict[str, object]", value)
    if isinstance(summary := fields.get("summary"), list):  # of paragraphs
        paragraphs = "\n\n".join(map(_readable, cast("list[object]", summary)))
        return paragraphs or _readable(fields.get("content"))
    return next((text for name in _TEXTS if (text := _readable(fields.get(name)))), "")


def drop_changed_parts(before: Reply, after: Reply) -> Reply:
    """Return the second reply without the kept parts that differ from those of the first.

    A provider refuses a part that was changed, for example because a secret was taken out of it.
    """
    if before.kept is None or after.kept is None:
        return after
    same = tuple(part for part in after.kept.parts if part in before.kept.parts)
    if len(same) == len(after.kept.parts):
        return after
    if after.provider_calls or after.tool_searches:  # calls and results are of no use without each other
        same = ()
    kept = msgspec.structs.replace(after.kept, parts=same) if same else None
    return msgspec.structs.replace(after, kept=kept)


# --- text from outside, marked as such


def new_nonce() -> str:
    """What delimits material that a model is shown: the author of the material could not know it.

    It begins with a letter: a model may repeat it, and it must not be taken for a figure.
    """
    return "d" + os.urandom(8).hex()[1:]


def wrap(nonce: str, origin: str, text: str) -> str:
    """`text` as data from `origin`; a closing line inside it is made harmless."""
    source = origin.replace('"', "'").replace("\n", " ")
    return f'<data {nonce} from "{source}">\n{text.replace(f"</data {nonce}>", "</data>")}\n</data {nonce}>'
