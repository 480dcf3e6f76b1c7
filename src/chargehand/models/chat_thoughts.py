"""What servers of OpenAI's chat protocol add for thoughts: fields that they want back, and what stands in for them.

The protocol itself has no such fields. DeepSeek and those that follow it write `reasoning_content`; vLLM, Ollama and
Groq `reasoning`; OpenRouter `reasoning_details`; Gemini signs tool calls, in their `extra_content`.
"""

import re
from typing import TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from chargehand.models.messages import KeptPart
from chargehand.models.model import Hear

Json: TypeAlias = dict[str, object]


class StandIn(Struct, frozen=True):
    """What a server takes in the place of a part that is not there, because another model wrote the message."""

    complaint: re.Pattern[str]
    """What the server says where the part is missing."""
    field: str
    value: object
    on_call: bool = False
    """Whether the field belongs to the first tool call; else it belongs to the message."""


STAND_INS = (
    # https://api-docs.deepseek.com/guides/thinking_mode; Kimi says that it is missing
    StandIn(
        re.compile(r"reasoning_content.{0,60}(must be passed back|is missing)", re.DOTALL), "reasoning_content", ""
    ),
    # https://ai.google.dev/gemini-api/docs/thought-signatures
    StandIn(
        re.compile(r"missing a .?thought_signature"),
        "extra_content",
        {"google": {"thought_signature": "skip_thought_signature_validator"}},
        on_call=True,
    ),
)


class Thoughts(Struct):
    """The fields of a message, or of a chunk of it, that hold thoughts. They may be of any shape."""

    reasoning_content: object = None
    reasoning: object = None
    reasoning_details: object = None
    extra_content: object = None


class ThoughtCollector:
    """Collects the thoughts of one reply, and tells them as they come."""

    __slots__ = ("_content", "_details", "_extra", "_hear", "_reasoning")

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._details: list[Json] = []
        self._extra: Json = {}

    def add(self, thoughts: Thoughts) -> bool:
        """Add what a chunk holds; whether that was anything to read."""
        told = ""
        content = thoughts.reasoning_content
        if isinstance(content, str):
            self._content.append(content)
            told = content
        reasoning = thoughts.reasoning
        if isinstance(reasoning, str):
            self._reasoning.append(reasoning)
            told = told or reasoning
        if isinstance(thoughts.reasoning_details, list):
            details = [
                cast("Json", item) for item in cast("list[object]", thoughts.reasoning_details) if _is_json(item)
            ]
            for detail in details:
                self._add_detail(detail)
            told = told or "".join([_text_of(detail) for detail in details])
        self._extra = merge_extra(self._extra, thoughts.extra_content)
        if told:
            self._hear(told, "thought")
        return bool(told)

    def _add_detail(self, detail: Json) -> None:
        """Add an item. The pieces of one text have one index, and are one item when they are sent back."""
        last = self._details[-1] if self._details else None
        names = ("type", "index")
        if last is None or "index" not in detail or any(last.get(name) != detail.get(name) for name in names):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            before = last.get(name)
            if name in ("text", "summary") and isinstance(before, str) and isinstance(value, str):
                last[name] = before + value
            elif value is not None:
                last[name] = value

    def parts(self, *, calls: bool) -> list[KeptPart]:
        """Return what is sent back. With `calls` an empty thought counts, too: servers ask for the field."""
        parts: list[KeptPart] = []
        content = "".join(self._content)
        if content or (calls and self._content):
            parts.append(kept_part("reasoning_content", content))
        if self._details:  # they say more than the text beside them
            parts.append(kept_part("reasoning_details", self._details))
        elif reasoning := "".join(self._reasoning):
            parts.append(kept_part("reasoning", reasoning))
        if self._extra:
            parts.append(kept_part("extra_content", self._extra))
        return parts


def kept_part(kind: str, value: object, call: str = "") -> KeptPart:
    """Return a part that is sent back, written anew: so it is known to be JSON in UTF-8."""
    return KeptPart(kind, Raw(msgspec.json.encode(value)), call=call)


def merge_extra(before: Json, added: object) -> Json:
    """Return both objects as one, with what each vendor added under its name."""
    if not _is_json(added):
        return before
    merged = dict(before)
    for vendor, value in cast("Json", added).items():
        known = merged.get(vendor)
        both = _is_json(known) and _is_json(value)
        merged[vendor] = {**cast("Json", known), **cast("Json", value)} if both else value
    return merged


def add_stand_in(message: Json, stand_in: StandIn) -> None:
    """Put a stand-in into a message with tool calls that lacks the field."""
    if not stand_in.on_call:
        message.setdefault(stand_in.field, stand_in.value)
        return
    calls = cast("list[Json]", message["tool_calls"])
    if all(stand_in.field not in call for call in calls):
        calls[0][stand_in.field] = stand_in.value


def _is_json(value: object) -> bool:
    return isinstance(value, dict)


def _text_of(detail: Json) -> str:
    text = detail.get("text") or detail.get("summary")
    return text if isinstance(text, str) else ""
