"""A worker that asks others by their tags, as its prompt tells it to, and puts together what they said."""

import re
from typing import cast

from chargehand.models.demo.job import Job
from chargehand.models.demo.request import RefusedError, parse_request
from chargehand.models.demo.tools import only_remembers
from chargehand.models.demo.words import MENTIONS_MODEL, content_stems, shorten
from chargehand.models.messages import Reply

_TOOL = "send_message_to_agents_matching_tags"
_RULE = re.compile(r"^\W*for (?P<what>[^:\n]{1,80}):(?P<tags>[^\n]*match_all[^\n]*)$", re.IGNORECASE | re.MULTILINE)
_TAGS = re.compile(r"(match_all|match_some)\s*=\s*\[([^\]]*)\]")
_BROAD = frozenset({"comprehensive", "broad", "all", "every", "overall", "complete", "full"})
_SUBJECT = re.compile(r"\b(?:of|about|on|into)\s+(?P<about>.+?)(?:\s+from (?:all|every)\b.*)?[.?! ]*\Z", re.IGNORECASE)


def ask_others(job: Job, *, is_message: bool) -> Reply | None:
    """The next step of a worker that asks others, those with the tags that its prompt has for such questions.

    Without rules in its prompt it asks everybody, unless it has tools of its own or was asked by another worker itself.
    None for any other worker.
    """
    if job.tool(_TOOL) is None:
        return None
    instruction = job.subject.instruction
    clauses = [clause for clause in parse_request(instruction).clauses if clause.kind == "ask" and clause.content]
    tags = _choose_tags(job.prompt, instruction)
    if tags is None and not _RULE.search(job.prompt) and clauses and not is_message and only_remembers(job.tools):
        tags = {}
    if tags is None:
        return None
    about = _SUBJECT.search(clauses[0].text) if clauses and _is_broad(instruction) else None
    message = f"What do you know about {about['about']}?" if about else instruction
    listed = {name: re.findall(r"[\w-]+", tags[name]) for name in tags}
    outcome = job.outcomes_of(_TOOL, [{"message": message, **listed}])[0]
    if outcome.error:
        raise RefusedError(f"nobody could be asked: {outcome.error}")
    return Reply(_report_replies(outcome.value))


def _is_broad(text: str) -> bool:
    return not _BROAD.isdisjoint(text.lower().replace(".", " ").split())


def _choose_tags(prompt: str, instruction: str) -> dict[str, str] | None:
    """The tags of the rule for broad questions where this is one, else of the first that shares a word with it."""
    asked = set(content_stems(instruction))
    rules = [(match["what"].lower(), dict(_TAGS.findall(match["tags"]))) for match in _RULE.finditer(prompt)]
    broad = [tags for what, tags in rules if _is_broad(what)]
    fitting = [tags for what, tags in rules if asked.intersection(content_stems(what))]
    ordered = [*broad, *fitting] if _is_broad(instruction) else [*fitting, *broad]
    return ordered[0] if ordered else None


def _report_replies(value: object) -> str:
    replies = cast("dict[str, list[dict[str, object]]]", value).get("replies", []) if isinstance(value, dict) else []
    answered: list[str] = []
    failed: list[str] = []
    for reply in replies or [{"reply": value}]:
        name = reply.get("worker") or reply.get("agent_name") or "somebody"
        if reply.get("reply"):
            answered.append(f"{name}: {shorten(str(reply['reply']), 1_500)}")
        else:
            reason = str(reply.get("failure") or "no answer").removesuffix(MENTIONS_MODEL)
            failed.append(f"{name}: {shorten(reason, 300)}")
    if not answered:
        raise RefusedError(f"nobody who was asked had an answer. {' '.join(failed)}")
    return "\n".join([f"{len(answered)} replied.", *answered, *(["No answer:", *failed] if failed else [])])
