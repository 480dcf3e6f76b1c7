"""What providers demand of a round that follows a tool call: the thoughts of the model, as it wrote them.

Each rule is a mode of the fault server. A server that follows one thinks before each reply, and refuses a request, in
the words of its provider, whose messages lack what the rule demands. It keeps nothing between requests: whether a
signature is its own can be seen from what it signs.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from chargehand.models.messages import Kept, KeptPart, Reply

Json: TypeAlias = dict[str, object]

THOUGHT = "The user wants me to look first. "
"""How each thought begins. It must never be found in an answer."""
_SKIPPED = "skip_thought_signature_validator"


class ThoughtRule(Struct, frozen=True):
    """One rule of one provider."""

    about: str
    """What a server that follows it does, in one line."""
    path: str
    """How the addresses end that it holds for; others answer without thoughts."""
    sources: tuple[str, ...]
    """Where the provider, or those who met it, say so."""
    problem: Callable[[Json], str]
    """Why a request is refused; empty: it is not."""
    think: Callable[[Json, Reply], Kept | None]
    """What is added to the reply to a request."""


def _digest(*values: object) -> str:
    return "sig" + hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()[:24]


def _messages(body: Json) -> list[Json]:
    return cast("list[Json]", body.get("messages") or [])


def _thought(body: Json) -> str:
    return f"{THOUGHT}I have read {len(_messages(body))} messages."


def _part(kind: str, value: object, place: int = 0, call: str = "") -> KeptPart:
    return KeptPart(kind, Raw(msgspec.json.encode(value)), place, call)


def _tool_calls(body: Json) -> Iterator[tuple[int, Json, list[Json]]]:
    """The messages with calls of OpenAI's protocol: their places, themselves, and their calls."""
    for place, message in enumerate(_messages(body)):
        if calls := message.get("tool_calls"):
            yield place, message, cast("list[Json]", calls)


# --- DeepSeek: the field must be there in every message with tool calls, be it empty


def _deepseek_problem(body: Json) -> str:
    if all(isinstance(message.get("reasoning_content"), str) for _, message, _ in _tool_calls(body)):
        return ""
    return "The `reasoning_content` in the thinking mode must be passed back to the API."


def _deepseek_thoughts(body: Json, _reply: Reply) -> Kept:
    return Kept((_part("reasoning_content", _thought(body)),))


# --- Gemini 3: the first call of each message of the present turn must be signed


def _gemini_problem(body: Json) -> str:
    last_user = max((at for at, message in enumerate(_messages(body)) if message.get("role") == "user"), default=0)
    for place, _, calls in _tool_calls(body):
        function = cast("Json", calls[0]["function"])
        extra = cast("dict[str, dict[str, str]]", calls[0].get("extra_content") or {})
        signature = extra.get("google", {}).get("thought_signature", "")
        if not signature and place > last_user:
            return (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{function['name']}`, position {place + 1}."
            )
        if signature and signature not in (_SKIPPED, _digest(function["name"], function["arguments"])):
            return "Corrupted thought signature."
    return ""


def _gemini_thoughts(_body: Json, reply: Reply) -> Kept:
    first = reply.calls[:1]
    signed = [
        _part("extra_content", {"google": {"thought_signature": _digest(call.name, call.arguments)}}, call=call.id)
        for call in first
    ]
    return Kept(tuple(signed))


# --- Anthropic: a message with calls must begin with its thoughts, unchanged


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    return cast("list[Json]", content) if isinstance(content, list) else []


def _thinking_problem(body: Json) -> str:
    if body.get("thinking") == {"type": "disabled"}:
        return ""
    for place, message in enumerate(_messages(body)):
        kinds = [block.get("type") for block in _blocks(message)]
        if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
            return (
                f"messages.{place}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
                f"`{kinds[0]}`. When `thinking` is enabled, a final `assistant` message must start with a thinking "
                "block (preceding the lastmost set of `tool_use` and `tool_result` blocks)."
            )
        for number, block in enumerate(_blocks(message)):
            if block.get("type") == "thinking" and block.get("signature") != _digest(block.get("thinking")):
                return f"messages.{place}.content.{number}: Invalid `signature` in `thinking` block"
        if kinds.count("thinking") != kinds.count("redacted_thinking"):  # it always writes one of each
            return f"messages.{place}: thinking blocks in the latest assistant message cannot be modified."
    return ""


def _thinking_thoughts(body: Json, _reply: Reply) -> Kept | None:
    if body.get("thinking") == {"type": "disabled"}:
        return None
    thought = _thought(body)
    block = {"type": "thinking", "thinking": thought, "signature": _digest(thought)}
    return Kept((_part("thinking", block), _part("redacted_thinking", _redacted(thought), 1)))


def _redacted(thought: str) -> Json:
    return {"type": "redacted_thinking", "data": _digest("redacted", thought)}


# --- Anthropic, newer models: nothing before a thought may have changed since it was written


def _prefix(body: Json, end: int) -> str:
    messages = [(message.get("role"), _unmarked(message.get("content"))) for message in _messages(body)[:end]]
    return _digest(_unmarked(body.get("system")), _unmarked(body.get("tools")), messages)


def _unmarked(content: object) -> object:
    """Blocks without their marks for the cache, which may move."""
    if not isinstance(content, list):
        return content
    blocks = cast("Sequence[Json]", content)
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]


def _bound_problem(body: Json) -> str:
    for place, message in enumerate(_messages(body)):
        for number, block in enumerate(_blocks(message)):
            if block.get("type") == "thinking" and block.get("signature") != _prefix(body, place):
                return (
                    f"messages.{place}.content.{number}: Invalid `signature` in `thinking` block. The block is bound "
                    "to a different conversation. Remove the block, or set "
                    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
                )
    return ""


def _bound_thoughts(body: Json, _reply: Reply) -> Kept:
    signature = _prefix(body, len(_messages(body)))
    return Kept((_part("thinking", {"type": "thinking", "thinking": _thought(body), "signature": signature}),))


# --- OpenAI, Responses API: what follows a thought names it, and neither may come without the other


def _items(body: Json) -> list[Json]:
    items = body.get("input")
    return [item for item in cast("list[Json]", items) if item.get("id")] if isinstance(items, list) else []


def _encrypt(id: str, summary: object) -> str:  # noqa: A002 - what the protocol calls it
    return "gAAA" + _digest("reasoning", id, summary)


def _reasoning_problem(body: Json) -> str:
    thoughts: set[str] = set()
    items = _items(body)
    for at, item in enumerate(items):
        id = str(item["id"])  # noqa: A001 - what the protocol calls it
        thought = "rs_" + id.split("_")[1]
        if item.get("type") != "reasoning":
            if thought.startswith("rs_sig") and thought not in thoughts:
                return (
                    f"Item '{id}' of type '{item['type']}' was provided without its required 'reasoning' item: "
                    f"'{thought}'."
                )
            continue
        thoughts.add(id)
        content = str(item.get("encrypted_content", ""))
        if content != _encrypt(id, item.get("summary")):
            return f"The encrypted content {content[:4]}...{content[-4:]} could not be verified."
        if at + 1 == len(items) or id.removeprefix("rs_") not in str(items[at + 1]["id"]):
            return f"Item '{id}' of type 'reasoning' was provided without its required following item."
    return ""


def _reasoning_thoughts(body: Json, _reply: Reply) -> Kept | None:
    if "reasoning.encrypted_content" not in cast("list[str]", body.get("include") or []):
        return None
    items = cast("list[Json]", body.get("input") or [])
    reasoning = cast("Json", body.get("reasoning") or {})
    text = f"{THOUGHT}I have read {len(items)} items."
    summary = [{"type": "summary_text", "text": text}] if reasoning.get("summary") else []
    id = f"rs_{_digest(items)}"  # noqa: A001 - what the protocol calls it
    item = {"id": id, "type": "reasoning", "summary": summary, "encrypted_content": _encrypt(id, summary)}
    return Kept((_part("reasoning", item),))


RULES: dict[str, ThoughtRule] = {
    "deepseek": ThoughtRule(
        "answers as DeepSeek V4 does: refuses tool calls without their reasoning_content (chat completions)",
        "/chat/completions",
        ("https://api-docs.deepseek.com/guides/thinking_mode", "https://github.com/crewAIInc/crewAI/issues/5878"),
        _deepseek_problem,
        _deepseek_thoughts,
    ),
    "gemini": ThoughtRule(
        "answers as Gemini 3 does: refuses tool calls without their thought_signature (chat completions)",
        "/chat/completions",
        (
            "https://ai.google.dev/gemini-api/docs/thought-signatures",
            "https://discuss.ai.google.dev/t/openai-api-compatibility-broken-due-to-thought-signature-on-gemini-3-pro-preview/109823",
        ),
        _gemini_problem,
        _gemini_thoughts,
    ),
    "thinking": ThoughtRule(
        "answers as Anthropic does with thinking on: refuses tool calls without their thinking blocks (messages)",
        "/messages",
        ("https://platform.claude.com/docs/build-with-claude/thinking-tool-workflows",),
        _thinking_problem,
        _thinking_thoughts,
    ),
    "thinking-bound": ThoughtRule(
        "answers as newer models of Anthropic do: refuses thinking blocks behind anything that has changed (messages)",
        "/messages",
        ("https://platform.claude.com/docs/en/build-with-claude/preserved-thinking",),
        _bound_problem,
        _bound_thoughts,
    ),
    "reasoning": ThoughtRule(
        "answers as OpenAI's models that reason do: refuses calls without their reasoning items (Responses API)",
        "/responses",
        (
            "https://github.com/mastra-ai/mastra/issues/8738",
            "https://github.com/continuedev/continue/issues/8933",
            "https://github.com/openai/codex/issues/8145",
        ),
        _reasoning_problem,
        _reasoning_thoughts,
    ),
}
