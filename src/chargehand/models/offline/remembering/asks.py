"""What a text wants looked up in memory: in an archive, on a block, or in what was asked and said earlier.

Plain questions ("What do we know about our suppliers?") are not for memory: that is what documents are for.
"""

import re
from datetime import date, timedelta
from typing import Literal

from msgspec import Struct

from chargehand.models.offline.question.periods import period
from chargehand.models.offline.remembering.places import (
    NO_LABELS,
    OUR,
    TAGGED,
    Labels,
    archive_named,
    archive_pattern,
    tag_list,
)
from chargehand.models.offline.words import dates

_WHO = r"(?:we|you|i|they|the\s+team|anybody|anyone|somebody|someone|others|the\s+others|colleagues)"
_LEARNT = (
    r"(?:find|found|record(?:ed)?|note[d]?|store[d]?|learn(?:ed|t)?|ke(?:ep|pt)|archive[d]?|remember(?:ed)?|save[d]?|"
    r"writ(?:e|ten)\s+down|discover(?:ed)?|collect(?:ed)?|gather(?:ed)?)"
)
_ABOUT = r"(?:about|on|of|regarding|concerning)"
_TOPIC = r"(?P<topic>[^?!\n]+?)\s*[?.!]*\s*\Z"
_ARCHIVE = archive_pattern()
_THERE = rf"(?:in|from|by|to|with)\s+{OUR}{_ARCHIVE}"
_BEFORE = (
    r"(?:(?:the\s+)?last\s+time|before|earlier|previously|in\s+the\s+past|"
    r"in\s+(?:an|the|your|our)\s+(?:earlier|last|previous)\s+\w+)"
)
_SAID = (
    r"(?:do|done|find|found|say|said|answer(?:ed)?|tell|told|report(?:ed)?|work(?:ed)?\s+on|talk(?:ed)?\s+about|"
    r"discuss(?:ed)?|ask(?:ed)?|see|seen)"
)
_LOOK = r"(?:search|check|consult|query|scan|look\s+(?:in|into|through|at)|go\s+through)(?:\s+in)?"
_ARCHIVED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\A{_LOOK}\s+{OUR}{_ARCHIVE}\s+(?:for|{_ABOUT}|whether|to\s+(?:see|find(?:\s+out)?)(?:\s+(?:what|whether))?)\s+{_TOPIC}",
        rf"\A(?:search|look)\s+for\s+(?P<topic>.+?)\s+{_THERE}\s*[?.!]*\s*\Z",
        rf"\A(?:find|look\s+up|get|retrieve|list|show|fetch|recall|give|collect)\s+(?:out\s+)?(?:me\s+|us\s+)?(?P<topic>.+?)\s+{_THERE}\s*[?.!]*\s*\Z",
        rf"\Awhat\s+(?:(?:does|do|did|has|have)\s+)?{OUR}{_ARCHIVE}\s+(?:already\s+)?(?:says?|holds?|ha(?:ve|s)|contains?|knows?|tells?(?:\s+us)?|got)\s+{_ABOUT}\s+{_TOPIC}",
        rf"\A(?:is|are|was|were)\s+there\s+(?:anything|something|passages?|entries)\s+{_THERE}\s+{_ABOUT}\s+{_TOPIC}",
        rf"\Awhat\s+(?:is|do\s+we\s+have|have\s+we(?:\s+got)?)\s+(?:already\s+)?(?:there\s+)?{_THERE}\s+{_ABOUT}\s+{_TOPIC}",
        rf"\A(?:do|have)\s+we\s+(?:already\s+)?(?:have\s+|know\s+|got\s+)?(?:anything|something)\s+{_THERE}\s+{_ABOUT}\s+{_TOPIC}",
        rf"\A(?P<topic>(?:what|which|who|how|when|where|why|is|are|do|does|did|has|have)\b.+?),?\s+(?:according\s+to|in)\s+{OUR}{_ARCHIVE}\s*[?.!]*\s*\Z",
        rf"\Aaccording\s+to\s+{OUR}{_ARCHIVE},?\s+{_TOPIC}",
    )
)
_KNOWN = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\Awhat\s+(?:(?:do|did|have|has)\s+)?{_WHO}\s+(?:already|ever|so\s+far|until\s+now)\s+(?:know[n]?|{_LEARNT})(?:\s+out)?\s+{_ABOUT}\s+{_TOPIC}",
        rf"\Awhat\s+(?:(?:do|have)\s+)?{_WHO}\s+know[n]?\s+(?:already|so\s+far|by\s+now|until\s+now)\s+{_ABOUT}\s+{_TOPIC}",
        rf"\Awhat\s+(?:(?:did|have|has)\s+)?{_WHO}\s+(?:(?:have|has)\s+)?(?:already\s+|ever\s+)?{_LEARNT}(?:\s+out)?\s+(?:so\s+far\s+)?{_ABOUT}\s+{_TOPIC}",
        rf"\Awhat\s+(?:is|was|has\s+been)\s+(?:already\s+)?(?:known\s+already|already\s+known|recorded|on\s+record|on\s+file|kept|archived|noted)\s+{_ABOUT}\s+{_TOPIC}",
        rf"\Awhat\s+(?:is|was)\s+already\s+known\s+{_ABOUT}\s+{_TOPIC}",
        rf"\A(?:do|have|did)\s+{_WHO}\s+(?:already|ever)\s+(?:know|have|{_LEARNT})\s+(?:anything|something)\s+{_ABOUT}\s+{_TOPIC}",
        rf"\Ahave\s+{_WHO}\s+{_LEARNT}\s+(?:anything|something)\s+{_ABOUT}\s+{_TOPIC}",
        rf"\A(?:remind\s+(?:me|us)|recall|tell\s+(?:me|us))\s+(?:of\s+)?what\s+we\s+(?:already\s+)?(?:know|{_LEARNT})\s+{_ABOUT}\s+{_TOPIC}",
        rf"\Awhat\s+do\s+you\s+remember\s+{_ABOUT}\s+{_TOPIC}",
    )
)
_EARLIER = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\Awhat\s+(?:(?:did|have|had)\s+)?(?:you|we|i)\s+(?:\w+\s+)?{_SAID}(?:\s+(?:me|us|you))?(?:\s+out)?\s+{_BEFORE}(?:\s*,?\s*{_ABOUT}\s+(?P<topic>[^?!\n]+?))?\s*[?.!]*\s*\Z",
        rf"\Awhat\s+(?:(?:did|have|had)\s+)?(?:you|we|i)\s+{_SAID}(?:\s+(?:me|us|you))?(?:\s+out)?\s+{_ABOUT}\s+(?P<topic>[^?!\n]+?)\s+{_BEFORE}\s*[?.!]*\s*\Z",
        rf"\Awhat\s+(?:was|were|have|had)\s+(?:i|we|you)\s+(?:been\s+)?(?:told|asked)(?:\s+{_BEFORE})?(?:\s+{_ABOUT}\s+(?P<topic>[^?!\n]+?))?(?:\s+{_BEFORE})?\s*[?.!]*\s*\Z",
        rf"\Awhat\s+(?:did|have)\s+(?:you|i)\s+(?:tell|told|ask|asked)\s+(?:me|us|you)(?:\s+{_ABOUT}\s+(?P<topic>[^?!\n]+?))?\s*[?.!]*\s*\Z",
        rf"\A(?:search|check|look\s+(?:in|through))\s+{OUR}(?:conversations?|earlier\s+(?:tasks|conversations?|turns)|history|past\s+tasks)(?:\s+history)?\s+(?:for|{_ABOUT})\s+{_TOPIC}",
        rf"\A(?:in|from)\s+(?:our|your|the)\s+(?:last|earlier|previous)\s+(?:conversation|task|run|session),?\s+{_TOPIC}",
    )
)
_KEPT_WHEN = re.compile(
    r",?\s*\b(?:that\s+(?:was|were)\s+|which\s+(?:was|were)\s+)?(?:recorded|kept|stored|noted|added|archived|saved|written\s+down|entered)"
    r"\s+(?P<how>in|on|since|after|before|until|from|between|during)\s+(?P<when>[^?.!]+)",
    re.IGNORECASE,
)
_TAGS = re.compile(TAGGED, re.IGNORECASE)
_LEAD = re.compile(
    r"\A(?:(?:please|find\s+out|tell\s+(?:me|us)|say|report|also|and|then|first|(?:can|could|would|will)\s+you(?:\s+please)?)\b[\s,:]*)+",
    re.IGNORECASE,
)
_HOLLOW = re.compile(
    r"\A(?:everything|anything|all|something|passages?|entries|what\s+(?:there\s+)?is(?:\s+known)?|what\s+we\s+(?:know|have))\s+(?:about|on|of)\s+",
    re.IGNORECASE,
)


class Ask(Struct, frozen=True):
    """Something to look up. `topic` is what about, `since` and `until` days between which it was kept.

    `plain` means that memory itself was named; else somebody only asks for what is known already.
    """

    kind: Literal["archive", "block", "earlier"]
    topic: str = ""
    label: str = ""
    archive: str = ""
    tags: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    plain: bool = True


def ask(text: str, labels: Labels = NO_LABELS) -> Ask | None:
    """What one sentence wants from memory; None where it wants something else."""
    said = _LEAD.sub("", " ".join(text.split()))[:1000]
    found = _block(said, labels) or _earlier(said)
    if found is not None:
        return found
    tags, since, until = (), "", ""
    if tagged := _TAGS.search(said):
        tags, said = tag_list(tagged["tags"]), said[: tagged.start()] + said[tagged.end() :]
    if kept := _KEPT_WHEN.search(said):
        since, until = _span(kept["how"].lower(), kept["when"])
        said = said[: kept.start()] + said[kept.end() :] if since or until else said
    for patterns, plain in ((_ARCHIVED, True), (_KNOWN, False)):
        for pattern in patterns:
            if match := pattern.search(said):
                name = archive_named(match, said) if plain else ""
                topic = _HOLLOW.sub("", match["topic"].strip(" ,?."))
                return Ask("archive", topic, "", name, tags, since, until, plain)
    return None


def _earlier(said: str) -> Ask | None:
    for pattern in _EARLIER:
        if match := pattern.search(said):
            topic = (match["topic"] or "").strip(" ,?.")
            return None if dates(f"before {topic}") and not topic else Ask("earlier", topic)
    return None


def _block(said: str, labels: Labels) -> Ask | None:
    """A question to a block: what it says about something, or what stands on it."""
    label = labels.pattern
    shapes = (
        rf"\A(?:what|which|how|do|does)\b.*?\b{OUR}{label}\s+(?:say|tell|hold|contain|require|state|ask|mention|demand|prescribe)s?(?:\s+us)?(?:\s+(?:{_ABOUT}|for|to)\s+(?P<topic>[^?!]+?))?\s*[?.!]*\Z",
        rf"\A(?:what|which)\s+(?:is|are|stands?|does\s+it\s+say|do\s+we\s+have|was|were)\s+(?:there\s+|written\s+|noted\s+)?(?:in|on)\s+{OUR}{label}(?:\s+{_ABOUT}\s+(?P<topic>[^?!]+?))?\s*[?.!]*\Z",
        rf"\A(?:show|read|print|list|quote|give|display)\s+(?:me\s+|us\s+)?(?:what\s+is\s+(?:in|on)\s+)?{OUR}{label}(?:\s+{_ABOUT}\s+(?P<topic>[^?!]+?))?\s*[?.!]*\Z",
        rf"\A(?:look|check|search)\s+(?:in\s+|on\s+|at\s+)?{OUR}{label}\s+(?:for|{_ABOUT})\s+(?P<topic>[^?!]+?)\s*[?.!]*\Z",
        rf"\A(?P<topic>.+?),?\s+according\s+to\s+{OUR}{label}\s*[?.!]*\Z",
        rf"\Aaccording\s+to\s+{OUR}{label},?\s+(?P<topic>.+?)\s*[?.!]*\Z",
    )
    for shape in shapes:
        if match := re.search(shape, said, re.IGNORECASE):
            named = match[0][match.start("label") :] if match["label"] else ""
            plain = not match["label"] or bool(re.match(r"[\w-]+\W+block\b", named)) or "block " in match[0]
            return Ask("block", (match["topic"] or "").strip(" ,?."), labels.named(match, said), plain=plain)
    return None


def _span(how: str, when: str) -> tuple[str, str]:
    """The days between which something was kept."""
    known = [one.normal for one in dates(f"in {when}") if not one.normal.startswith("-")]
    if not known:
        return "", ""
    first, last = period(known[0]), period(known[-1])
    end = (date.fromisoformat(last.end) - timedelta(days=1)).isoformat()
    if how in ("since", "from") and len(known) == 1:
        return first.begin, ""
    if how == "after":
        return first.end, ""
    if how == "before":
        return "", (date.fromisoformat(first.begin) - timedelta(days=1)).isoformat()
    return ("", end) if how == "until" else (first.begin, end)
