"""What a text wants kept: in an archive or a block, word for word or as what is found, and under which tags.

What it wants looked up is in `asks`. Ordinary phrases ("keep it short", "note that ...") are none of its business.
"""

import re

from msgspec import Struct
from msgspec.structs import replace

from chargehand.models.offline.remembering.places import NO_LABELS, OUR, TAGGED, Labels, Place, masked, places, tag_list
from chargehand.models.offline.remembering.stated import LATER, STOP, sentence, stated, unquoted
from chargehand.models.offline.vocabulary import ASKING, VERBS
from chargehand.models.offline.words import quoted

_BEGIN = re.compile(
    r"(?P<joint>\A\s*|(?<=[.!?;:\n])\s+|\s*[,;]\s*|\s+-\s+|\s+(?=(?:and|then|also|but)\b))"
    r"(?:(?:and|then|also|but|please|finally|afterwards|i want you to|(?:can|could|would|will) you(?: please)?|"
    r"make sure (?:to|you)|be sure to|remember to|you should|let us|let's)\b[\s,]*){0,6}"
    r"\b(?P<verb>remember|memori[sz]e|keep|note(?:\s+down)?|store|file|record|save|archive|add|put|log|insert|append|enter|"
    r"write(?:\s+down)?|jot(?:\s+down)?|replace|change|correct|rewrite|rethink|overwrite)\b",
    re.IGNORECASE,
)
_PRONOUN = r"(?:all\s+of\s+)?(?:it|this|that|them|these|those|both)"
_FOUND = re.compile(
    rf"(?P<thing>(?P<pronoun>{_PRONOUN})|everything(?:\s+(?:you|we)\s+(?:find|found|learn(?:ed|t)?))?"
    r"|what(?:ever)?\s+(?:(?:you|we|they)\s+(?:have\s+)?(?:find|found|learn(?:ed|t)?|discover(?:ed)?)(?:\s+out)?"
    r"|(?:is|was|were)\s+(?:found|learn(?:ed|t)|discovered)(?:\s+out)?|comes?\s+out)"
    r"|(?:all\s+)?(?:of\s+)?(?:(?:the|your|our|any|these|those|its|their|all|both)\s+)?(?:(?:main|key|short)\s+)?"
    r"(?:findings?|results?|insights?|conclusions?|answers?|outcomes?|facts)(?:\s+of\s+t\d+(?:(?:\s*,\s*|\s+and\s+)t\d+)*)?)"
    r"(?:\s+(?:about|on|of|regarding)\s+(?P<about>.+))?",
    re.IGNORECASE,
)
_LINE = re.compile(
    r"\s*(?:(?:a|one|the|this|following|new|short|another)\s+)*(?:line|note|entry|sentence|remark|point)?\s*\Z",
    re.IGNORECASE,
)
_TELLS = re.compile(r"\s*(?:,?\s*(?:that|saying(?:\s+that)?|that\s+says)\b|:)\s*", re.IGNORECASE)
_FOLLOWING = re.compile(rf"\s+(?:this|the\s+following)?(?:{LATER.pattern})?\s*:\s*", re.IGNORECASE)
_ONLY = re.compile(r"\s*(?:\bthat\b|,?\s*\bthis\s*:|:|\bin\s+mind\s+that\b)\s*", re.IGNORECASE)
_CLOSED = re.compile(r"\s*(?:[,.;!?)]|\b(?:and|then|but)\b|\Z)", re.IGNORECASE)
_NEW = re.compile(
    rf"(?:,|\band|\bthen)\s+(?:{'|'.join(sorted(VERBS | ASKING))})\b|\b(?:which|whether|how)\b", re.IGNORECASE
)
_NEVER = re.compile(r"\b(?:not|never|n't|without|nobody|to)\s*\Z", re.IGNORECASE)
_TAGS = re.compile(TAGGED, re.IGNORECASE)
_REPLACES = re.compile(
    r"\s+(?:(?:the\s+)?\w+\s+from\s+)?(?P<old>.+?)\s+(?:by|with|to|into)\s+(?P<new>.+?)\s*,?\s*\Z", re.IGNORECASE
)
_HELD = frozenset(("remember", "memorise", "memorize", "note", "keep"))
_ANEW = frozenset(("rewrite", "rethink", "overwrite"))
_SWAPS = frozenset(("replace", "change", "correct"))
_KEEPS = frozenset(("remember", "memorise", "memorize", "keep", "note", "store", "file", "record", "save", "archive"))
_FIRMLY = frozenset(("remember", "memorise", "memorize", "archive", "store", "record", "save"))
_TOLD_TO = re.compile(r"(?:remember|sure|you) to\s*\Z", re.IGNORECASE)
_BEFORE = 40  # characters before a verb that may turn it round, or name its place
_LONGEST = 400  # characters between a verb and its place


class Keep(Struct, frozen=True):
    """Something to keep. `label` names a block, else it is for an archive, which `archive` may name.

    `said` is the text itself where it is given; else what is found is kept, and `about` says which part of it. `whole`
    means all that is found, `plain` that the place was named.
    """

    said: str = ""
    about: str = ""
    label: str = ""
    archive: str = ""
    tags: tuple[str, ...] = ()
    whole: bool = False
    plain: bool = True


class Swap(Struct, frozen=True):
    """Words to be put in the place of others in a block."""

    old: str
    new: str
    label: str


class Rewrite(Struct, frozen=True):
    """A block whose whole text is given anew."""

    label: str
    text: str


class Part(Struct, frozen=True):
    """A wish and where it stands in the text."""

    start: int
    end: int
    wish: Keep | Swap | Rewrite


def wishes(text: str, labels: Labels = NO_LABELS) -> list[Part]:
    """What is to be kept or replaced, in the order of the text."""
    found: list[Part] = []
    hidden = masked(text)
    at = 0
    while begin := _BEGIN.search(hidden, at):
        at = begin.end("verb")
        before = hidden[max(0, begin.start("verb") - _BEFORE) : begin.start("verb")]
        if _NEVER.search(before) and not _TOLD_TO.search(before):
            continue
        if (part := _read(text, hidden, begin, labels)) is not None:
            found.append(part)
            at = part.end
    return found


def without(text: str, parts: list[Part]) -> str:
    """The text without these parts."""
    for part in reversed(parts):
        head, tail = text[: part.start], text[part.end :]
        if not head.rstrip() or head.rstrip()[-1] in ".!?;:\n":
            tail = tail.lstrip(" .!?;,")  # a sentence of its own: its stop goes with it
        text = head + (tail if not tail or tail[0] in ".,;!? \n" else f" {tail}")
    return re.sub(r"\A[\s,.;:!?]*(?:(?:and|then|also|but)\b\s*)?|(?:\s*\b(?:and|then)\b)?\s*\Z", "", text)


def _read(text: str, hidden: str, begin: re.Match[str], labels: Labels) -> Part | None:
    stop = STOP.search(hidden, begin.end("verb"))
    end = stop.start() if stop else len(text)
    body = text[begin.end("verb") : end]
    verb = begin["verb"].lower().split()[0]
    if verb in _ANEW:
        return _rewritten(text, begin, labels)
    if verb in _SWAPS:
        return _swapped(text, begin, body, labels)
    for place in places(body, labels):
        read = _placed(text, begin, place, body)
        if read is not None or place.start > _LONGEST:
            return read
    return _unplaced(text, begin, verb, body) if verb in _KEEPS else None


def _swapped(text: str, begin: re.Match[str], body: str, labels: Labels) -> Part | None:
    """Words for others in a block that is named after them, or before."""
    start, end = begin.start(), begin.end("verb")
    ahead = text[max(0, start - _BEFORE) : start]
    after = next((one for one in places(body, labels) if one.label), None)
    before = next((one for one in places(ahead, labels)[::-1] if one.label), None)
    if after is None and before is not None and not ahead[before.end :].strip(" ,"):
        told, label, end = _REPLACES.match(body), before.label, end + len(body)
        start += before.start - len(ahead)
    elif after is not None:
        told, label, end = _REPLACES.match(body[: after.start]), after.label, end + after.end
    else:
        return None
    return Part(start, end, Swap(unquoted(told["old"]), unquoted(told["new"]), label)) if told else None


def _rewritten(text: str, begin: re.Match[str], labels: Labels) -> Part | None:
    """Only with the whole new text beside it."""
    end = begin.end("verb")
    named = re.match(
        rf"\s+{OUR}{labels.pattern}\s*(?:as|to|with|so that it says)?\s*:?\s*(?=[\"\u201c])", text[end:], re.IGNORECASE
    )
    if named is None:
        return None
    new, stop = stated(text, end + named.end(), whole=False)
    return Part(begin.start(), stop, Rewrite(labels.named(named, text[end:]), new))


def _placed(text: str, begin: re.Match[str], place: Place, body: str) -> Part | None:
    """A verb and its place; what is kept stands between them or after both."""
    start = begin.end("verb")
    between = body[: place.start].strip()
    between, tags, end = _tagged(between, body, place.end)
    keep = Keep(label=place.label, archive=place.archive, tags=tags)
    tells = _TELLS.match(body, end)
    if tells is not None and (_LINE.match(between) or _FOUND.fullmatch(between)):
        said, stop = stated(text, start + tells.end(), whole=":" in tells[0])
        return Part(begin.start(), stop, replace(keep, said=said)) if said else None
    if not _CLOSED.match(body, end) or not between:
        return None
    return _object(begin, between, replace(keep), start + end)


def _tagged(between: str, body: str, end: int) -> tuple[str, tuple[str, ...], int]:
    """Tags before or after the place, and what is left of both sides."""
    if after := _TAGS.match(body, end):
        return between, tag_list(after["tags"]), after.end()
    before = _TAGS.search(between)
    if before is not None and before.end() == len(between):
        return between[: before.start()].strip(), tag_list(before["tags"]), end
    later = LATER.match(body, end)
    return between, (), later.end() if later else end


def _object(begin: re.Match[str], between: str, keep: Keep, end: int) -> Part | None:
    exact = quoted(between)
    if exact and len(exact[0]) >= 0.6 * len(between):
        return Part(begin.start(), end, replace(keep, said=sentence(exact[0])))
    if told := _FOUND.fullmatch(between):
        whole = told["pronoun"] is None and told["about"] is None
        return Part(begin.start(), end, replace(keep, about=told["about"] or "", whole=whole))
    if claims := re.match(r"that\s+", between, re.IGNORECASE):
        return Part(begin.start(), end, replace(keep, said=sentence(between[claims.end() :])))
    if _NEW.search(masked(between)):
        return None  # another order has begun by then
    return Part(begin.start(), end, replace(keep, about=between))


def _unplaced(text: str, begin: re.Match[str], verb: str, body: str) -> Part | None:
    """Without a place: what is found, where the verb means keeping; or a text that is given."""
    tags, plain, end = tuple[str, ...](), body, len(body)
    if tagged := _TAGS.search(body):
        tags, plain, end = tag_list(tagged["tags"]), body[: tagged.start()], tagged.end()
    elif cut := re.search(r",|\s+(?:and|then|but)\s+", body):
        plain, end = body[: cut.start()], cut.start()
    later = LATER.search(plain)
    told = _FOUND.fullmatch(plain[: later.start() if later else len(plain)].strip(" ,"))
    if told is None or _FOLLOWING.match(body):
        return _given(text, begin, verb, body)
    if told["pronoun"] and not (later or tags or verb in _FIRMLY):
        return None
    keep = Keep(about=told["about"] or "", tags=tags, whole=not told["pronoun"] and not told["about"], plain=False)
    return Part(begin.start(), begin.end("verb") + end, keep)


def _given(text: str, begin: re.Match[str], verb: str, body: str) -> Part | None:
    """What follows "Remember this for later:"; what follows "Remember that" only where nothing else is asked for."""
    following = _FOLLOWING.match(body)
    only = _ONLY.match(body) if not text[: begin.start()].strip() and verb in _HELD else None
    tells = following if following and (LATER.search(following[0]) or verb in _FIRMLY) else only
    if tells is None:
        return None
    said, stop = stated(text, begin.end("verb") + tells.end(), whole=True)
    alone = tells is following or not text[stop:].strip(" .!")
    return Part(begin.start(), stop, Keep(said=said, plain=False)) if said and alone else None
