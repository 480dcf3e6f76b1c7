"""The words of a result, as an audit reads them: what it is about, its numbers, what it claims to have done.

The words are English: in other languages less is noticed, never more. What follows from them is not known here.
"""

import re
from collections.abc import Iterator
from typing import cast

from chargehand.models.exhibits import PICTURES

LONGEST = 64 * 1024  # characters of one value that are looked at
_MOST = 20_000  # parts of one value
_STEM = 5
_WORD = re.compile(r"[^\W\d_]{3,}")
_NUMBER = re.compile(r"\d+(?:[,.'\u00a0\u202f]\d+)*")
_QUOTED = re.compile(
    r"“[^”\n]{1,400}”|«[^»\n]{1,400}»|\"[^\"\n]{1,400}\"|`[^`\n]{1,400}`|^[ \t]*>[^\n]*$", re.MULTILINE
)
_HIDDEN = PICTURES | frozenset(("query", "score", "id", "kind", "when"))  # of exhibits: no words of anybody
# words that carry no matter of their own, as they begin
_LITTLE = """about above after again all also and any are ask back been befor below being best both but can come could
    did does doing done down each either else ever every find first for found from full gave get give given goes had has
    have her here him his how into its itsel just last least less let like list look made main make many may mean
    might mine more most much must name need never new next nor not now off old once one only onto other our out over
    own part pleas put quite rathe say says see seem set shall she short shoul show since small some still such sure
    take task tell than that the their them then there these they thing this those three throu too top two under until
    upon use used using very want was way well were what when where which while who whole whom whose why will with
    withi work would write yes yet you your retur resul answe input outpu repor state relev infor detai data"""
_EMPTY = frozenset(_LITTLE.split())
_LANGUAGES = re.compile(
    r"\btranslat|\b(?:in|into|to) (?:arabic|chinese|czech|danish|dutch|english|estonian|finnish|french|german|greek"
    r"|hebrew|hindi|hungarian|italian|japanese|korean|latin|norwegian|polish|portuguese|romanian|russian|spanish"
    r"|swedish|turkish|ukrainian|verse|code)\b",
    re.IGNORECASE,
)
# what is claimed, and how it is asked for or how a tool for it is called
_KEEP, _SEND, _DROP = "save|store|write|keep|insert|append|put|add|record", "send|mail|email|post", "delete|remove|drop"
_DEEDS = {
    "saved": _KEEP, "stored": _KEEP, "sent": _SEND, "emailed": _SEND, "mailed": _SEND, "posted": f"{_SEND}|publish",
    "forwarded": f"forward|{_SEND}", "notified": f"notify|tell|{_SEND}", "submitted": f"submit|{_SEND}",
    "uploaded": f"upload|{_KEEP}|{_SEND}", "published": "publish|post", "booked": "book|reserve",
    "reserved": "book|reserve", "scheduled": "schedule|book", "deleted": f"{_DROP}|clear", "removed": f"{_DROP}|clear",
    "updated": f"update|edit|change|set|replace|rethink|{_KEEP}", "ordered": "order|buy", "paid": "pay|transfer",
    "transferred": "transfer|pay|send|move", "refunded": "refund|pay", "cancelled": "cancel", "canceled": "cancel",
    "deployed": "deploy|release",
}  # fmt: skip
_VERBS = "|".join(_DEEDS)
_ALREADY = r"(?:just |now |already |also |successfully )?"
_BY_ME = re.compile(rf"\bI(?:'ve|\u2019ve| have)? {_ALREADY}({_VERBS})\b")
_BARE = re.compile(
    rf"^[-*# \t]*(?:done[,:.!] )?(?:successfully )?({_VERBS}) (?:the|it|them|this|that|your|my|a|an|all|everything)\b"
    rf"|^[-*# \t]*(saved|sent|emailed|mailed|uploaded|posted) to\b|\bit (?:is|was|has been) {_ALREADY}({_VERBS})[.!]",
    re.MULTILINE | re.IGNORECASE,
)
_OF_IT = re.compile(rf"\b(?:is|are|was|were|has been|have been|we|we have) {_ALREADY}({_VERBS})\b", re.IGNORECASE)
_ASKED = r"(?:^|[.;:!?]\s+|,\s+|\b(?:and|then|please)\s+)(?:{})\b"
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n+")
_PROMISE = re.compile(
    r"^(?:(?:Next|Now|First|OK|Okay|Sure|Alright)[,!.:]? ?)?(?:I will|I'll|I\u2019ll|I am going to|I'm going to|Let me)"
    r"\b(?! know\b)",
    re.IGNORECASE,
)
_ASSUMED = re.compile(r"\bI(?:'ve|\u2019ve| have|'ll|\u2019ll| will)?(?: simply| just)? assum(?:e|ed)\b", re.IGNORECASE)
_UNFILLED = re.compile(
    r"\{\{\s*\w[\w .-]{0,40}\}\}|\[(?:insert|your|tbd|todo)\b[^\]\n]{0,60}\]|<(?:insert|your)\b[^>\n]{0,60}>|\bTBD\b",
    re.IGNORECASE,
)
_ATTACHED = re.compile(
    r"\b(?:the|this|my|our) attached (?:file|document|table|list|sheet|spreadsheet|picture|image|photo|pdf|report)s?\b",
    re.IGNORECASE,
)
_CHECKS = re.compile(
    r"\b(?:re-?)?(?:check|verif|confirm|validat|inspect|audit|review|test|make sure|ensure|prove)", re.IGNORECASE
)


def said(value: object) -> str:
    """The text of a value: its strings and numbers, one a line, without pictures and queries."""
    if isinstance(value, str):
        return value[:LONGEST]
    parts: list[str] = []
    size = 0
    for part in _leaves(value):
        parts.append(part)
        size += len(part) + 1
        if size > LONGEST or len(parts) > _MOST:
            break
    return "\n".join(parts)[:LONGEST]


def own_words(value: object) -> str:
    """What a worker said itself: the text of a product without what its tools returned, and without quotations."""
    text = cast("dict[str, object]", value).get("text") if isinstance(value, dict) else None
    return _QUOTED.sub(" ", text[:LONGEST] if isinstance(text, str) else said(cast("object", value)))


def _leaves(value: object) -> Iterator[str]:
    stack: list[object] = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            table = cast("dict[str, object]", one)
            stack.extend(item for name, item in reversed(table.items()) if name not in _HIDDEN)
        elif isinstance(one, list):
            stack.extend(reversed(cast("list[object]", one)))
        elif isinstance(one, str | int | float) and not isinstance(one, bool):
            yield str(one)


def matter(text: str) -> frozenset[str]:
    """What a text is about: how its words of substance begin, and its numbers of two digits or more."""
    words = {word.group().casefold()[:_STEM] for word in _WORD.finditer(text)}
    numbers = {_plain(number.group()) for number in _NUMBER.finditer(text)}
    return frozenset(words - _EMPTY) | frozenset(one for one in numbers if len(one) > 1)


def _plain(number: str) -> str:
    """A number without separators and without the zeros at the end of its fraction."""
    found = re.sub(r"[,'\u00a0\u202f]", "", number)
    return found.rstrip("0").rstrip(".") if "." in found else found


def other_language(instruction: str) -> bool:
    """Whether a result need share no word with what was asked: it is to be in another language, or in verse."""
    return _LANGUAGES.search(instruction) is not None


def claims(text: str, instruction: str) -> list[tuple[str, str]]:
    """Deeds a text claims, each with how a fitting tool is called.

    That something was sent may be a fact of the matter: it counts where the speaker says so of itself, or where the
    instruction asks for it.
    """
    found = [one[1] for one in _BY_ME.finditer(text)]
    found += [next(filter(None, one.groups())) for one in _BARE.finditer("\n".join(_SENTENCE.split(text)))]
    passive = dict.fromkeys(one[1].casefold() for one in _OF_IT.finditer(text))
    found += [deed for deed in passive if _asked(deed, instruction[:LONGEST])]
    return [(deed, _DEEDS[deed]) for deed in dict.fromkeys(map(str.casefold, found))]


def _asked(deed: str, instruction: str) -> bool:
    return re.search(_ASKED.format(_DEEDS[deed]), instruction, re.IGNORECASE) is not None


def promised(text: str) -> str:
    """The last sentence, if it only says what its speaker will do next."""
    last = next((one.strip() for one in reversed(_SENTENCE.split(text.strip())) if one.strip()), "")
    return last if _PROMISE.match(last) else ""


def assumed(text: str) -> str:
    """Where somebody says that they assumed something."""
    found = _ASSUMED.search(text)
    return "" if found is None else text[found.start() : found.start() + 160].partition("\n")[0]


def missing_from(goal: str) -> str:
    """What a request leaves open in so many words: a slot nobody filled, or something attached that is not there."""
    slot = _UNFILLED.search(goal)
    if slot is not None:
        return slot.group()
    attached = _ATTACHED.search(goal)
    # lines that follow may be what was attached
    return attached.group() if attached is not None and "\n" not in goal[attached.end() :].strip() else ""


def checks(instruction: str) -> bool:
    """Whether a task is there to look at what others did."""
    return _CHECKS.search(instruction) is not None
