"""A worker that hands what it is asked to others by their tags, and says what they said.

It goes by what it was told of itself: lines that say which tags are meant for which questions, and lines that say who
there is. Where nothing was said of tags, nothing is handed on here.
"""

import re
from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import Struct

from chargehand.models.messages import Message, Reply, ToolCall, ToolSpec
from chargehand.models.offline.material import outcomes
from chargehand.models.offline.reporting import about
from chargehand.models.offline.words import similarity, terms
from chargehand.models.subject import WorkerCard, Working

MATCHING = "send_message_to_agents_matching_tags"
_LIST = r"\s*[=:]\s*\[(?P<{}>[^\]]*)\]"
_ALL = re.compile(r"match_all" + _LIST.format("tags"))
_SOME = re.compile(r"match_some" + _LIST.format("tags"))
_WHO = re.compile(
    r"^\W*(?P<name>[^(\n]{1,80}?)\s*\(\s*tags?\s*[:=]\s*(?P<tags>[^)\n]*)\)\W*(?P<description>[^\n]*)", re.MULTILINE
)
_FOR = re.compile(r"\bfor\s+(?P<what>.+?)\s*(?::|->|=>|\buse\b)", re.IGNORECASE)
_BROAD = re.compile(
    r"\b(?:comprehensive|broad|overall|complete|full|thorough|every(?:thing|\s+angle|\s+aspect)|all\s+(?:perspectives|"
    r"angles|aspects|sides|workers|areas)|from\s+all|in\s+every\s+respect|360)\b",
    re.IGNORECASE,
)
_ACRONYMS = re.compile(r"\b([A-Z]{2,})s\b")  # APIs are about an API
_WORD = re.compile(r"[\w.-]+")


class Rule(Struct, frozen=True):
    """Which tags are meant for what."""

    what: str
    every: tuple[str, ...] = ()
    some: tuple[str, ...] = ()

    @property
    def broad(self) -> bool:
        return not self.some or bool(_BROAD.search(self.what))


def delegate(subject: Working, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply | None:
    """The next step of whoever routes by tags; None for one that does not."""
    if not any(one.name == MATCHING for one in tools):
        return None
    told = "\n".join([messages[0].text if messages else "", *(one.text for one in subject.blocks)])
    rules, people = _rules(told), _people(told)
    if not rules and not people:
        return None
    sent = [one for one in outcomes(messages) if one.call.name == MATCHING]
    if sent:
        return _said(sent[-1].value, sent[-1].error)
    rule = chosen(subject.instruction, rules, people)
    arguments = {"message": subject.instruction, "match_all": rule.every, "match_some": rule.some}
    return Reply(calls=(ToolCall("call_1_1", MATCHING, msgspec.json.encode(arguments).decode()),), finish="tools")


def chosen(request: str, rules: Sequence[Rule], people: Sequence[WorkerCard]) -> Rule:
    """The rule a request falls under: the broad one where it asks for everything, or where no other fits."""
    broad = next((one for one in rules if one.broad), None) or _everybody(rules, people)
    if _BROAD.search(request):
        return broad
    narrow = [one for one in rules if not one.broad] or [Rule(one.name, (), one.tags[-1:]) for one in people]
    wanted = _terms(about(request))  # not what is to be done with it: everybody does that
    scores = [similarity(wanted, _terms(_about(one, people))) for one in narrow]
    best = max(scores, default=0.0)
    return narrow[scores.index(best)] if best > 0 else broad


def _terms(text: str) -> list[str]:
    return terms(_ACRONYMS.sub(r"\1", text))


def _about(rule: Rule, people: Sequence[WorkerCard]) -> str:
    """All that is said of those whom a rule means."""
    meant = [one for one in people if set(rule.some) & set(one.tags)]
    return ". ".join([rule.what, " ".join(rule.some), *(f"{one.name}: {one.description}" for one in meant)])


def _everybody(rules: Sequence[Rule], people: Sequence[WorkerCard]) -> Rule:
    """Those who carry what all of them carry."""
    sets = [set(one.tags) for one in people] or [set(one.every) for one in rules]
    common = {tag for tag in (sets[0] if sets else ()) if all(tag in one for one in sets)}
    first = people[0].tags if people else rules[0].every if rules else ()
    return Rule("everything", tuple(tag for tag in first if tag in common))


def _rules(told: str) -> list[Rule]:
    found: list[Rule] = []
    for line in told.splitlines():
        every, some = _ALL.search(line), _SOME.search(line)
        if every is None and some is None:
            continue
        what = _FOR.search(line)
        if what is None:
            continue
        found.append(Rule(what["what"], _tags(every), _tags(some)))
    return found


def _tags(found: re.Match[str] | None) -> tuple[str, ...]:
    return () if found is None else tuple(_WORD.findall(found["tags"]))


def _people(told: str) -> list[WorkerCard]:
    return [
        WorkerCard(one["name"].strip(), one["description"].strip(), tuple(_WORD.findall(one["tags"])))
        for one in _WHO.finditer(told)
    ]


def _said(value: object, error: str) -> Reply:
    """What those who were asked replied, each under its name; who did not is named too."""
    if error:
        return Reply(f"Nobody could be asked: {error}")
    found = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    inner = found.get("value")
    found = cast("dict[str, object]", inner) if isinstance(inner, dict) else found
    replies = cast("list[dict[str, object]]", found.get("replies") or [])
    if not replies:
        return Reply(f"Nobody was asked. {found.get('note') or ''}".strip())
    lines = [_line(one) for one in replies]
    answered = [one for one in replies if one.get("status") == "answered"]
    if not answered:
        reason = f"none of the {len(replies)} who were asked had an answer: {'; '.join(lines)}"
        arguments = msgspec.json.encode({"reason": reason[:2_000]}).decode()
        return Reply(calls=(ToolCall("call_2_1", "give_up", arguments),), finish="tools")
    if len(replies) == 1 and answered:
        return Reply(lines[0])
    head = (
        f"{len(answered)} of {len(replies)} replied." if len(answered) < len(replies) else f"{len(answered)} replied."
    )
    return Reply("\n\n".join([head, *lines]))


def _line(one: dict[str, object]) -> str:
    name = str(one.get("agent_name") or one.get("worker") or one.get("agent_id") or "somebody")
    if one.get("status") != "answered":
        return f"{name} gave no answer: {one.get('failure') or one.get('status')}"
    said = one.get("reply")
    text = cast("dict[str, object]", said).get("text") if isinstance(said, dict) else said
    return f"{name}: {text if isinstance(text, str) else msgspec.json.encode(said).decode()}"
