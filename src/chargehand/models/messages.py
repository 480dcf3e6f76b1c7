"""What goes into a model and what comes out, in our own words. How a provider writes it is the adapters' business."""

import os
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Raw, Struct
from msgspec.structs import astuple

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

    def message(self) -> Message:
        return Message("assistant", self.text, self.calls)


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
