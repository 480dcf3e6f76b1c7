"""What a model was seen not to take of a request: the fields are left out from then on, and people are told once.

Providers refuse a field with a 400 or 422 that names it. The rules are data, for all protocols: which fields may go,
what an error calls them, and how a refusal is worded.
"""

import logging
import re
from collections.abc import Mapping
from typing import TypeAlias, cast

from msgspec import Struct

from chargehand.models.tool_search import DEFER

Body: TypeAlias = dict[str, object]

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Levels of thinking that providers know, from the least to the most."""

NO_NAMES: Mapping[str, str] = {}

logger = logging.getLogger(__name__)


class FieldRule(Struct, frozen=True):
    """A field that a request can do without."""

    path: str
    """Where it stands in the body; a dot leads into a table."""
    named: re.Pattern[str]
    """What an error calls it."""


def _rule(path: str, *names: str) -> FieldRule:
    words = "|".join(re.escape(name) for name in (path, *names))
    return FieldRule(path, re.compile(rf"(?<![\w.-])(?:{words})(?![\w-])"))


def _quoted_rule(path: str, name: str = "") -> FieldRule:
    """The rule of a field whose name is also an English word: an error quotes it, or puts a colon behind it."""
    name = re.escape(name or path)
    return FieldRule(path, re.compile(rf"[\"'`]{name}[\"'`]|(?<![\w.-]){name}:|parameters?:? {name}\b"))


_RULES = (
    # Where an error names two, the first of these that was sent goes.
    _rule("tool_choice"),
    _rule("prompt_cache_retention"),
    _rule("prompt_cache_key"),
    _rule("top_p"),
    _rule("temperature"),
    _quoted_rule("seed"),
    _quoted_rule("stop"),
    _rule("stop_sequences"),
    _quoted_rule("stop_sequences", "stop"),
    _rule("service_tier", "service tier"),
    _rule("parallel_tool_calls"),
    _rule("stream_options"),
    _rule("reasoning.summary", "reasoning summaries"),
    _rule("reasoning.effort", "reasoning_effort"),
    _rule("reasoning_effort", "reasoning.effort"),
    _rule("thinking"),
    _rule("output_config.effort", "effort", "output_config"),
    _rule("thinking", "reasoning_effort", "reasoning.effort", "reasoning", "effort"),
)
_EFFORT_PATHS = ("reasoning_effort", "reasoning.effort", "output_config.effort", "thinking")
"""Fields whose value is a level of thinking: a refused one is replaced by the nearest that the error names."""
CHAT_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""Fields of OpenAI's chat protocol that no request can do without, and what else servers call them."""
_KEPT = frozenset(
    (
        *("model", "messages", "system", "tools", "response_format", "output_config", "stream", *CHAT_NAMES),
        *("input", "store", "text", "max_output_tokens"),
    )
)
_UNKNOWN = r"unsupported|not supported|unknown|unrecognized|unexpected|extra|not permitted"
UNKNOWN_FIELD = re.compile(_UNKNOWN, re.IGNORECASE)
_REFUSED = re.compile(
    rf"{_UNKNOWN}|not allowed|not available|deprecated|(?:does not|doesn't) (?:support|take|accept)|cannot both be"
    r"|may only be|invalid service|no longer",
    re.IGNORECASE,
)
_SUPPORTED = re.compile(r"support(?:s|ed)[\w ]*(?:are|is)?:|expected|should be|must be|one of", re.IGNORECASE)
_LEVEL = re.compile(rf"\b(?:{'|'.join(EFFORTS)})\b")
_DEFERRED = re.compile(r"defer_loading|tool_search|tool_reference|deferred|missing namespace", re.IGNORECASE)
"""What an error about tools that are left to be searched for holds."""
_EFFORT_WITH_TOOLS = re.compile(r"tools with reasoning_effort are not supported", re.IGNORECASE)


class FieldMemory:
    """What one model at one place does not take. It is the same for all who call that model in this process."""

    def __init__(self, other_names: Mapping[str, str] = NO_NAMES) -> None:
        self._other_names = other_names
        self.notes: list[str] = []
        """What people are told: a sentence for each field."""
        self.dropped: set[str] = set()
        """Paths of fields that are not sent."""
        self._replaced: dict[tuple[str, object], object] = {}
        """By path and refused value, the value that is sent instead."""
        self._renamed: dict[str, str] = {}
        self._effort_with_tools: str | None = None
        """The effort sent with tools; empty: none is sent with them. None: as wanted."""

    def adapt(self, body: Body) -> Body:
        """Return the body without what the model does not take."""
        if not self.notes:
            return body
        for path in self.dropped:
            _remove(body, path)
        for (path, refused), value in self._replaced.items():
            if _read(body, path) == refused:
                _write(body, path, value)
        for name, other in self._renamed.items():
            if name in body:
                body[other] = body.pop(name)
        if self._effort_with_tools is not None and body.get("tools"):
            body.pop("reasoning_effort", None)
            if self._effort_with_tools:
                body["reasoning_effort"] = self._effort_with_tools
        return body

    def learn(self, handle: str, status: int, words: str, param: str, body: Body) -> str:
        """Return what is done about a refusal of this body, in words; empty where it is about no field.

        `words` are those of the error, and `param` is the field that it blames, if it says so apart from them.
        """
        if status not in (400, 422):
            return ""
        if body.get("tools") and _EFFORT_WITH_TOOLS.search(words):
            return self._limit_effort(handle, words, body)
        if DEFER not in self.dropped and _defers(body) and _DEFERRED.search(words):
            self.dropped.add(DEFER)
            return self.note(handle, f"{DEFER} is not taken: the schemas of all tools are sent")
        if renamed := self._rename(handle, words, body):
            return renamed
        path = _refused_path(words, param, body)
        value = _read(body, path)
        nearest = _nearest_level(words, value) if path in _EFFORT_PATHS else ""
        if not path or not (nearest or _REFUSED.search(words)):
            return ""
        replacements = [new for (replaced, _), new in self._replaced.items() if replaced == path]
        if nearest and value not in replacements:
            self._replaced[path, value] = nearest
            return self.note(handle, f"{path} {value!r} is not taken; {nearest!r} is sent instead")
        self.dropped.add(path)
        return self.note(handle, f"{path} is not taken, and is left out")

    def note(self, handle: str, text: str) -> str:
        """Tell people once what becomes of a field; the sentence."""
        sentence = f"{handle}: {text}."
        if sentence not in self.notes:
            self.notes.append(sentence)
            logger.warning("%s", sentence)
        return sentence

    def _rename(self, handle: str, words: str, body: Body) -> str:
        if not UNKNOWN_FIELD.search(words):
            return ""
        for name, other in self._other_names.items():
            if name in body and name in words and other not in self._renamed:
                self._renamed[name] = other
                return self.note(handle, f"{name} is not taken; {other} is sent instead")
        return ""

    def _limit_effort(self, handle: str, words: str, body: Body) -> str:
        """Handle models that think only without tools, in this protocol."""
        sent = body.get("reasoning_effort")
        if sent != "none" and "'none'" in words:
            self._effort_with_tools = "none"
            return self.note(handle, "with tools it does not think in this protocol: effort is 'none' there")
        if sent is not None:
            self._effort_with_tools = ""
            return self.note(handle, "with tools no effort can be set in this protocol, and it is left out there")
        return ""


def _defers(body: Body) -> bool:
    """Whether some tools of a request are left to be searched for."""
    tools = cast("list[Mapping[str, object]]", body.get("tools") or [])
    return any(DEFER in tool for tool in tools)


_memories: dict[tuple[str, str], FieldMemory] = {}


def memory_of(place: str, name: str, other_names: Mapping[str, str] = NO_NAMES) -> FieldMemory:
    """Return what this process has learned of the model of this name at a place.

    Args:
        place: The URL that is called, or the provider.
        name: What the model is called there.
        other_names: What else servers call fields that cannot be left out.
    """
    return _memories.setdefault((place, name), FieldMemory(other_names))


def forget_refusals() -> None:
    """Begin anew, as a new process does."""
    _memories.clear()


def _refused_path(words: str, param: str, body: Body) -> str:
    """The field that an error is about, among those that were sent and that can be left out; empty: none of them."""
    for rule in _RULES:
        if _read(body, rule.path) is not None and (param == rule.path or rule.named.search(words)):
            return rule.path
    others = [name for name in body if name not in _KEPT]
    return next((name for name in others if param == name or _quoted_rule(name).named.search(words)), "")


def _nearest_level(words: str, value: object) -> str:
    """The supported level that is nearest to a refused one, as the error lists them; empty: it lists none."""
    parts = _SUPPORTED.split(words)
    supported = [level for level in _LEVEL.findall(parts[-1]) if level != value] if len(parts) > 1 else []
    if value not in EFFORTS or not supported:
        return ""
    wanted = EFFORTS.index(str(value))
    return min(supported, key=lambda level: abs(EFFORTS.index(level) - wanted))


def _parent(body: Body, path: str) -> tuple[Body, str]:
    """The table in which a field stands, and its name there."""
    table, _, name = path.rpartition(".")
    inner = body.get(table) if table else body
    return (cast("Body", inner) if isinstance(inner, Mapping) else {}), name


def _read(body: Body, path: str) -> object:
    table, name = _parent(body, path)
    return table.get(name)


def _write(body: Body, path: str, value: object) -> None:
    table, name = _parent(body, path)
    table[name] = value


def _remove(body: Body, path: str) -> None:
    table, name = _parent(body, path)
    table.pop(name, None)
    if not table and "." in path:
        body.pop(path.rpartition(".")[0], None)
