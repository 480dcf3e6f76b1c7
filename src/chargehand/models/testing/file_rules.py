"""How providers refuse pictures and PDFs that are sent otherwise than they take them: what the fault server plays.

Each rule names where its words were seen. Modes of the server are sets of rules, as one model has them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

from msgspec import Struct

from chargehand.models.testing.field_rules import ProtocolName

Json: TypeAlias = dict[str, object]

_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_GITHUB = "https://github.com/"


class FilePart(Struct, frozen=True):
    """A part of a message that is no text."""

    place: int
    """Which message it is in, counted from 0."""
    at: int
    """Which part of the message, counted from 0."""
    role: str
    """The role of the message."""
    part: Json
    """The part itself."""
    result: Json | None = None
    """The result of a tool that it is in; None: it is in none."""

    @property
    def kind(self) -> str:
        return str(self.part.get("type"))


class FileRule(Struct, frozen=True):
    """One rule of one provider about parts of messages."""

    protocol: ProtocolName
    words: str
    """What the provider says; `{place}`, `{at}` and `{role}` are those of the part."""
    source: str
    """Where such words were seen, or where the rule is documented."""
    breaks: Callable[[FilePart, Json], bool]
    """Whether a part of a request breaks it."""
    code: str | None = None
    """The code in an error of OpenAI's."""

    def error(self, part: FilePart) -> Json:
        """The page that the provider answers with, at status 400."""
        message = self.words.format(place=part.place, at=part.at, role=part.role)
        if self.protocol == "anthropic":
            return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": self.code}}


def file_parts(body: Json) -> Iterator[FilePart]:
    """Yield the parts of all messages that are no text, those in results of tools too."""
    for place, message in enumerate(cast("Sequence[Json]", body.get("messages") or ())):
        role = str(message.get("role"))
        for at, part in _parts(message.get("content")):
            if part.get("type") == "tool_result":
                yield from (FilePart(place, at, role, inner, part) for _, inner in _parts(part.get("content")))
            yield FilePart(place, at, role, part)


def _parts(content: object) -> Iterator[tuple[int, Json]]:
    if isinstance(content, list):
        yield from enumerate(cast("list[Json]", content))


def _media_type(part: FilePart) -> str:
    """The type that a part says it has."""
    if part.kind == "image_url":
        url = cast("Json", part.part["image_url"]).get("url")
    elif part.kind == "file":
        url = cast("Json", part.part["file"]).get("file_data")
    else:
        return str(cast("Json", part.part["source"]).get("media_type"))
    return str(url).removeprefix("data:").partition(";")[0]


def _cites(part: FilePart) -> bool:
    return part.kind == "document" and bool(part.part.get("citations"))


def _cites_in_part(part: FilePart, body: Json) -> bool:
    """Whether citations are asked for of one document, and not of all."""
    documents = [each for each in file_parts(body) if each.kind == "document"]
    return _cites(part) and not all(map(_cites, documents))


SHOWN: Sequence[FileRule] = (
    FileRule(
        "openai",
        "Invalid 'messages[{place}]'. Image URLs are only allowed for messages with role 'user', but this message with "
        "role '{role}' contains an image URL.",
        f"{_GITHUB}OpenHands/OpenHands/issues/7700",
        lambda part, _: part.kind == "image_url" and part.role != "user",
    ),
    FileRule(
        "openai",
        "Invalid MIME type. Only image types are supported.",
        f"{_GITHUB}BerriAI/litellm/issues/6120",
        lambda part, _: part.kind == "image_url" and _media_type(part) not in _PICTURES,
        code="invalid_image_format",
    ),
    FileRule(
        "openai",
        "Invalid file data: 'messages[{place}].content[{at}].file.file_data'. Expected a base64-encoded data URL with "
        "an application/pdf MIME type.",
        f"{_GITHUB}pydantic/pydantic-ai/issues/4445",
        lambda part, _: part.kind == "file" and _media_type(part) != "application/pdf",
        code="invalid_value",
    ),
    FileRule(
        "anthropic",
        "messages.{place}.content.{at}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', "
        "'image/gif' or 'image/webp'",
        f"{_GITHUB}expectedparrot/edsl/issues/2057",
        lambda part, _: part.kind == "image" and _media_type(part) not in _PICTURES,
    ),
    FileRule(
        "anthropic",
        "messages.{place}.content.{at}: all content must be type 'text' if 'is_error' is true",
        f"{_GITHUB}vellum-ai/vellum-assistant/pull/18387",
        lambda part, _: part.result is not None and bool(part.result.get("is_error")) and part.kind != "text",
    ),
    FileRule(
        "anthropic",
        "messages.{place}.content.{at}: citations must be enabled on all or none of the documents within a request",
        "https://platform.claude.com/docs/en/build-with-claude/citations",
        _cites_in_part,
    ),
    FileRule(
        "anthropic",
        "output_config.format: citations cannot be used together with structured outputs",
        f"{_GITHUB}agno-agi/agno/pull/7513",
        lambda part, body: _cites(part) and "format" in cast("Json", body.get("output_config") or {}),
    ),
)
"""Models that see, and that read PDFs."""
NO_DOCUMENTS: Sequence[FileRule] = (
    *SHOWN,
    FileRule(
        "openai",
        "Invalid value: 'file'. Supported values are: 'text', 'image_url', 'input_audio', 'refusal', and 'audio'.",
        f"{_GITHUB}openai/openai-dotnet/issues/393",
        lambda part, _: part.kind == "file",
        code="invalid_value",
    ),
    FileRule(
        "anthropic",
        "messages.{place}.content.{at}.type: Input should be 'text', 'image', 'tool_use' or 'tool_result'",
        f"{_GITHUB}modelscope/modelscope/issues/1616",
        lambda part, _: part.kind == "document",
    ),
)
"""Models that see, and that read no PDFs: many servers that speak one of the protocols."""
FILE_MODES: dict[str, tuple[str, Sequence[FileRule]]] = {
    "takes-files": (
        "answers, but refuses pictures and PDFs that are sent in the wrong place or as the wrong type",
        SHOWN,
    ),
    "takes-no-documents": ("answers, but refuses PDFs, and pictures as above", NO_DOCUMENTS),
}
"""By name, what a mode of the fault server does, and its rules."""


def broken_rule(rules: Sequence[FileRule], protocol: ProtocolName, body: Json) -> Json | None:
    """Return the error for the first rule that a request breaks; None where it breaks none."""
    own = [rule for rule in rules if rule.protocol == protocol]
    broken = ((rule, part) for part in file_parts(body) for rule in own if rule.breaks(part, body))
    return next((rule.error(part) for rule, part in broken), None)
