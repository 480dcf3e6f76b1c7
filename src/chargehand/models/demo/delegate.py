"""A worker that asks others by their tags, as its prompt tells it to, and puts together what they said."""

import re
from collections.abc import Sequence
from typing import cast

import msgspec

from chargehand.models.demo.request import parse_request
from chargehand.models.demo.results import Outcome
from chargehand.models.demo.tools import ToolCard, only_remembers
from chargehand.models.demo.words import MENTIONS_MODEL, content_stems, shorten
from chargehand.models.messages import Message, Reply, ToolCall
from chargehand.models.subject import Working

TOOL = "send_message_to_agents_matching_tags"
_RULE = re.compile(r"^\W*for (?P<what>[^:\n]{1,80}):(?P<tags>[^\n]*match_all[^\n]*)$", re.IGNORECASE | re.MULTILINE)
_TAGS = re.compile(r"(match_all|match_some)\s*=\s*\[([^\]]*)\]")
_BROAD = frozenset({"comprehensive", "broad", "all", "every", "overall", "complete", "full"})
_SUBJECT = re.compile(r"\b(?:of|about|on|into)\s+(?P<about>.+?)(?:\s+from (?:all|every)\b.*)?[.?! ]*\Z", re.IGNORECASE)


def delegate(
    subject: Working,
    messages: Sequence[Message],
    tools: list[ToolCard],
    outcomes: list[Outcome],
    *,
    may_ask_all: bool,
) -> Reply | None:
    """The next step of a worker that asks others, those with the tags that its prompt has for such questions.

    Without rules in its prompt it asks everybody if it may, unless it has tools of its own. None for any other worker.
    """
    prompt = messages[0].text if messages else ""
    rules: list[tuple[str, dict[str, str]]] = [
        (match["what"].lower(), dict(_TAGS.findall(match["tags"]))) for match in _RULE.finditer(prompt)
    ]
    if not rules and may_ask_all and only_remembers(tools):
        rules = [("all", {})]
    if not rules or not any(tool.name == TOOL for tool in tools):
        return None
    sent = [outcome for outcome in outcomes if outcome.call.name == TOOL]
    if sent:
        return _report(sent[-1])
    words = set(subject.instruction.lower().replace(".", " ").split())
    asked = set(content_stems(subject.instruction))
    broad = [tags for what, tags in rules if set(what.split()) & _BROAD]
    fitting = [tags for what, tags in rules if set(content_stems(what)) & asked]
    chosen = broad if words & _BROAD and broad else fitting or broad
    if not chosen:
        return None
    about = _SUBJECT.search(parse_request(subject.instruction).clauses[0].text) if words & _BROAD else None
    message = f"What do you know about {about['about']}?" if about else subject.instruction
    arguments: dict[str, object] = {"message": message}
    for name, listed in chosen[0].items():
        arguments[name] = re.findall(r"[\w-]+", listed)
    call = ToolCall(id="call_1_1", name=TOOL, arguments=msgspec.json.encode(arguments).decode())
    return Reply(calls=(call,), finish="tools")


def _report(outcome: Outcome) -> Reply:
    if outcome.error:
        return _give_up(f"nobody could be asked: {outcome.error}")
    value = outcome.value
    held = cast("dict[str, object]", value).get("replies") if isinstance(value, dict) else None
    replies: list[object] = cast("list[object]", held) if isinstance(held, list) else [cast("object", value)]
    answered: list[str] = []
    failed: list[str] = []
    for reply in replies:
        fields = cast("dict[str, object]", reply) if isinstance(reply, dict) else {"reply": reply}
        name = str(fields.get("worker") or fields.get("agent_name") or "somebody")
        if fields.get("reply"):
            answered.append(f"{name}: {shorten(str(fields['reply']), 1_500)}")
        else:
            reason = str(fields.get("failure") or "no answer").removesuffix(MENTIONS_MODEL)
            failed.append(f"{name}: {shorten(reason, 300)}")
    if not answered:
        return _give_up(f"nobody who was asked had an answer. {' '.join(failed)} {MENTIONS_MODEL}")
    lines = [f"{len(answered)} replied.", *answered]
    if failed:
        lines += ["No answer:", *failed]
    return Reply("\n".join(lines))


def _give_up(reason: str) -> Reply:
    call = ToolCall(
        id="call_2_1", name="give_up", arguments=msgspec.json.encode({"reason": reason, "final": True}).decode()
    )
    return Reply(calls=(call,), finish="tools")
