"""What goes into a model and what comes out, in our own words. How a provider writes it is the adapters' business."""

import os
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias, cast

import msgspec
from msgspec import Meta, Raw, Struct

from chargehand.engine.declared import Declared, written_as
from chargehand.models.request_facts import Subject

IMAGE_TOKENS = 1_600
"""About what a model reads for a picture."""
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Finish: TypeAlias = Literal["stop", "tools", "length", "refused"]


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
    data: bytes = b""


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
    """A user's message: pictures that the model is shown with the text."""
    kept: Kept | None = None
    """An assistant's: what its provider wants back with it."""


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens. `cached` of the input ones were read from the provider's cache."""

    input: int = 0
    output: int = 0
    cached: int = 0


class Reply(Struct, frozen=True, gc=False, omit_defaults=True):
    """`usage` and `micros` (millionths of a dollar) are left out where they are not known."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    usage: Usage | None = None
    micros: int | None = None
    model: str = ""
    kept: Kept | None = None
    """What the provider wants back with the conversation, such as what the model thought. It is no part of `text`."""

    def message(self) -> Message:
        return Message("assistant", self.text, self.calls, kept=self.kept)


class ToolSpec(Struct, frozen=True, gc=False):
    """A tool as a model sees it: `parameters` is a JSON Schema of one object."""

    name: str
    description: str
    parameters: Raw


class Settings(Declared, frozen=True, cache_hash=True, forbid_unknown_fields=True):
    """How a model samples."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """How freely it samples; left out, the provider decides."""
    max_tokens: Annotated[int, written_as("Size")] | None = None
    """The longest reply in tokens, thinking included; left out, it goes by the model and the budget."""
    parallel_tool_calls: bool | None = None
    """Whether a reply may hold several tool calls; left out, the provider decides."""


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


# --- what a model thought, for people


_THOUGHTS = ("reasoning_content", "thinking", "reasoning", "reasoning_details", "response")
"""The kinds of kept parts that hold readable thoughts. Those of the first kind that is there are shown."""
_TEXTS = ("thinking", "text", "summary", "content", "parts")


def thought_text(kept: Kept | None) -> str:
    """Return what a model thought, as far as its provider shows it; empty: nothing can be read."""
    if kept is None:
        return ""
    for kind in _THOUGHTS:
        texts = [_readable(msgspec.json.decode(part.data)) for part in kept.parts if part.kind == kind]
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
