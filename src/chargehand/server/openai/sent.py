"""What clients of OpenAI send, as far as it means anything here. What is not named in here is ignored."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from chargehand.server.openai.conversation import Turn
from chargehand.server.openai.problem import refused

_TEXTS = ("text", "input_text", "output_text")
_MANY = 10_000
Content: TypeAlias = str | list[dict[str, Any]] | None
ModelName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300)]


class MessageSent(Struct, frozen=True):
    """A message, or another item of an input; those that say nothing (calls, reasoning) have no content."""

    role: str = ""
    content: Content = None
    type: str = "message"
    output: Content = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class ChatSent(Struct, frozen=True):
    model: ModelName
    messages: Annotated[list[MessageSent], Meta(min_length=1, max_length=_MANY)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: list[dict[str, Any]] | None = None
    functions: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    logprobs: bool | None = None


class ResponseSent(Struct, frozen=True):
    model: ModelName
    input: str | Annotated[list[MessageSent], Meta(max_length=_MANY)]
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: Annotated[str, Meta(max_length=400)] | None = None
    conversation: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None


def check_chat(sent: ChatSent) -> None:
    """Raise a problem for what cannot be honoured: better said than done otherwise."""
    if sent.n not in (None, 1):
        raise refused("n", f"n is {sent.n}, but a team gives one answer; leave n out, and call again for another")
    _check_tools("tools", sent.tools, sent.tool_choice)
    _check_tools("functions", sent.functions, sent.tool_choice)
    _check_form("response_format", sent.response_format)
    if sent.modalities and sent.modalities != ["text"]:
        raise refused("modalities", "a team answers in text only; leave modalities out")
    if sent.logprobs:
        raise refused("logprobs", "a team has no log probabilities; leave logprobs out")


def check_response(sent: ResponseSent) -> None:
    _check_tools("tools", sent.tools, sent.tool_choice)
    _check_form("text.format", (sent.text or {}).get("format"))
    if sent.conversation is not None:
        raise refused("conversation", "there are no conversation objects here; use previous_response_id")
    if sent.background and sent.stream:
        raise refused("stream", "a response in the background is not streamed; retrieve it by its id")
    if sent.background and sent.store is False:
        raise refused("store", "a response in the background must be stored, or nobody could retrieve it")


def _check_tools(param: str, tools: Sequence[object] | None, choice: object) -> None:
    if tools and choice != "none":
        raise refused(
            param,
            "a team uses the tools its workers have, and calls none of yours; leave them out, or send "
            'tool_choice: "none"',
        )


def _check_form(param: str, form: object) -> None:
    kind = "text" if form is None else str(form.get("type")) if isinstance(form, Mapping) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - JSON of anybody
    if kind != "text":
        raise refused(
            param, "a team answers in words, and cannot promise a form; leave the format out, or ask in words"
        )


def turns(messages: Sequence[MessageSent], param: str) -> list[Turn]:
    """What was said. Calls of tools and the like say nothing; pictures and sounds are refused."""
    found: list[Turn] = []
    for at, one in enumerate(messages):
        if one.type == "function_call_output":
            found.append(Turn("tool", _text(one.output, f"{param}[{at}].output")))
        elif one.type == "message" and one.role:
            found.append(
                Turn("tool" if one.role == "function" else one.role, _text(one.content, f"{param}[{at}].content"))
            )
        elif one.type in ("item_reference", "message"):
            said = "an item that is only referred to cannot be read here; send it, or use previous_response_id"
            raise refused(f"{param}[{at}]", said if one.type == "item_reference" else "a message needs a role")
    return found


def _text(content: Content, param: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    said: list[str] = []
    for at, one in enumerate(content):
        kind = str(one.get("type", "text"))
        if kind == "refusal":
            continue
        if kind not in _TEXTS:
            raise refused(
                f"{param}[{at}]", f"this part is of type {kind[:40]!r}; a team reads text only, so describe it in words"
            )
        text = one.get("text", "")
        if not isinstance(text, str):
            raise refused(f"{param}[{at}].text", "the text of a part is a string")
        said.append(text)
    return "\n".join(said)
