"""Whether a result is acceptable, by rules: nothing made up, nothing missing that can be seen to be missing.

What is made up was found by comparison already; what is true is not known here.
"""

import re
from decimal import Decimal

import msgspec

from chargehand.models.offline.words import terms
from chargehand.models.subject import Reviewing

_REFUSES = re.compile(
    r"^\W*(?:(?:i am |i'm |i\u2019m )?(?:sorry|afraid)\b|unfortunately,? i\b|as an? (?:ai|language model)\b|"
    r"i (?:cannot|can't|can\u2019t|could not|am unable|was unable|do not have|don't have)\b|"
    r"i(?:'m|\u2019m) (?:unable|not able)\b|n/?a\W*$|(?:tbd|todo|unknown|none|null)\W*$)",
    re.IGNORECASE,
)
_UNFILLED = re.compile(
    r"\{\{\s*\w[\w .-]{0,40}\}\}|\[(?:insert|your|tbd|todo)\b[^\]\n]{0,60}\]|\blorem ipsum\b", re.IGNORECASE
)
_OPEN_END = re.compile(
    r"(?:[,;:(\[{\u2013-]|\b(?:and|or|the|a|an|of|to|for|with|by|in|on|at|from|is|are|was|were|because|that|which|but|than"
    r"|as|its|their|our|this|these))\s*\Z",
    re.IGNORECASE,
)
_ENDED = re.compile(r"[.!?\u2026:;)\]}>|\"'`\u201d\u2019*_%\d]\s*\Z")
_NUMBER = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?<![\w.,])\d+(?:\.\d+)?")
_FEW = 12
_LONG = 12  # words of prose that end with a full stop, if they end
_TELLING = 8  # words of substance without one in common
_LANGUAGES = re.compile(
    r"\b(?:translat|german|french|spanish|italian|dutch|japanese|chinese|arabic|portuguese|polish|poem|haiku)",
    re.IGNORECASE,
)


def review(subject: Reviewing) -> str:
    """The verdict as JSON text."""
    found = _problems(subject)
    return msgspec.json.encode({"problems": found[:8], "accepted": not found}).decode()


def _problems(subject: Reviewing) -> list[str]:
    text = subject.text.strip()
    if re.search(r"[^\W_]", text) is None or subject.result in (None, [], {}):
        return ["The result is empty."]
    if _REFUSES.match(text) and len(text.split()) < 60:
        return ["It does not do the task but says that it cannot, or does not know."]
    doubts = [one for one in subject.doubts if not _worked_out(one, subject)]
    found = [f"This stands in no input and in no result of a tool: {one}." for one in doubts]
    if unfilled := _UNFILLED.search(text):
        found.append(f"A slot was left unfilled: {unfilled[0]}.")
    if isinstance(subject.result, dict | str) and _cut(text):
        found.append("It is cut off: it has no end.")
    if _elsewhere(subject, text):
        found.append("It does not speak of what was asked.")
    return found


def _worked_out(doubt: str, subject: Reviewing) -> bool:
    """Whether a number is the product of two that were given, or what all others of the result come to."""
    found = _numbers(doubt)
    if len(found) != 1 or not re.fullmatch(r"[\d.,'\s]+", doubt):
        return False
    given = [one for held in subject.material for one in _numbers(msgspec.json.encode(held.value).decode())]
    said = _numbers(subject.text)
    if len(said) > 2 and 2 * found[0] == sum(said, Decimal(0)):
        return True
    few = given if len(given) <= _FEW else []  # of many numbers nearly anything is a product
    return any(found[0] == a * b for at, a in enumerate(few) for b in few[at + 1 :])


def _numbers(text: str) -> list[Decimal]:
    return [Decimal(one.replace(",", "")) for one in _NUMBER.findall(text[:20000])]


def _cut(text: str) -> bool:
    if text.startswith(("{", "[{")):
        return _no_json(text)
    last = text.splitlines()[-1].strip()
    if last.startswith(("|", "- ", "* ", "#", ">", "```")) or "://" in last.rpartition(" ")[2]:
        return text.count("```") % 2 == 1
    if text.count("```") % 2 == 1 or _OPEN_END.search(last):
        return True
    return len(last.split()) >= _LONG and not _ENDED.search(last)


def _no_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return True
    return False


def _elsewhere(subject: Reviewing, text: str) -> bool:
    """Whether neither the task nor what there was to work from has a word of the result."""
    said = set(terms(text))
    asked = set(terms(subject.instruction))
    if len(said) < _TELLING or len(asked) < 2 or _LANGUAGES.search(subject.instruction):
        return False
    known = asked.union(*(terms(msgspec.json.encode(one.value).decode()[:20000]) for one in subject.material))
    return said.isdisjoint(known)
