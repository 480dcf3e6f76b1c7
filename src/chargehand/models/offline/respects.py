"""Several things in several respects in one breath: "Compare A and B: their price and their weight" is four.

Where nothing is listed in this way a sentence stays as it is. Taking sentences apart otherwise is up to `clauses`.
"""

import re

from chargehand.models.offline.vocabulary import ASKING, AUXILIARY, PREPOSITIONS, RELATIVE, VERBS
from chargehand.models.offline.words import dates, terms
from chargehand.models.offline.words import names as proper

_OPENING = re.compile(
    r"(?:please\s+)?(?P<verb>compare|contrast|describe|analyse|analyze|research|review|assess|report(?:\s+on)?|"
    r"look\s+(?:at|into)|(?:tell|show)\s+(?:me|us)\s+about)\s+",
    re.IGNORECASE,
)
_LISTS = re.compile(
    r"\s*:\s+|,?\s+(?:in terms of|with (?:regard|respect) to|with)\s+(?=(?:their|its)\b)", re.IGNORECASE
)
_JOINTS = re.compile(r"\s*[,;]\s*(?:and\s+|as well as\s+)?|\s+(?:and|as well as)\s+(?=(?:their|its|the|what|how)\b)")
_NAMES = re.compile(r"\s*,\s*(?:and\s+)?|\s+(?:and|with|to|versus|vs\.?)\s+", re.IGNORECASE)
_OWN = re.compile(
    r"(?:their|its)\s+(?P<what>.+?)(?P<rest>\s+(?:with|for|in|at|on|of|from|since|during)\b.*)?$", re.IGNORECASE
)
_THEM = re.compile(r"\b(?:them|they|it|both)\b", re.IGNORECASE)
_BOTH = re.compile(
    r"(?P<asks>what\s+(?:do|does))\s+(?P<one>(?:the|our)\s+\w+)\s+and\s+(?P<other>(?:the|our)\s+\w+)\s+"
    r"(?P<what>say\s+(?:about|on)\b.+)",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"(?P<asks>.*\b(?:say|says|said)\s+about)\s+(?P<one>[^,]+?),?\s+and\s+about\s+(?P<other>.+)", re.IGNORECASE
)
_MOST_NAMES, _LONGEST_NAME = 4, 5
_MOST = 16


def in_respects(sentence: str) -> list[str]:
    """The sentence, or one for each respect of each thing it names."""
    opening, lists = _OPENING.match(sentence), _LISTS.search(sentence)
    if lists is None or (opening and lists.start() <= opening.end()):
        return [sentence]
    head = sentence[opening.end() if opening else 0 : lists.start()]
    if opening is None and (":" not in lists[0] or not proper(head)):
        return [sentence]  # "Two things: its price and its weight" names nothing
    names = [one.strip() for one in _NAMES.split(head) if one.strip()]
    items = [one.strip(" .?!") for one in _JOINTS.split(sentence[lists.end() :]) if one.strip(" .?!")]
    if not _named(names) or not _respects(items) or len(names) * len(items) > _MOST:
        return [sentence]
    return [_of(item, name) for item in items for name in names]


def _named(names: list[str]) -> bool:
    """Whether these are names of things: few and short, and no order or question."""
    first = {one.split()[0].lower() for one in names}
    if first & (VERBS | ASKING | RELATIVE | AUXILIARY | PREPOSITIONS) or any(map(dates, names)):
        return False
    return 0 < len(names) <= _MOST_NAMES and all(len(one.split()) <= _LONGEST_NAME and terms(one) for one in names)


def _respects(items: list[str]) -> bool:
    """Whether each item speaks of what was named before, and none is an order of its own."""
    return bool(items) and all(
        one.split()[0].lower() not in VERBS and (_OWN.match(one) or _THEM.search(one)) for one in items
    )


def _of(item: str, name: str) -> str:
    if own := _OWN.match(item):
        return f"Report the {own['what']} of {name}{own['rest'] or ''}"
    said = _THEM.sub(lambda _: name, item)
    return said if item.split(maxsplit=1)[0].lower() in ASKING | RELATIVE | AUXILIARY else f"Report {said}"


def sides(piece: str) -> list[str]:
    """Of two who are asked what they say, or two they are asked about, each for itself."""
    if found := _BOTH.match(piece.strip()):
        return [f"{found['asks']} {one} {found['what']}" for one in (found["one"], found["other"])]
    if found := _ABOUT.match(piece.strip()):
        return [f"{found['asks']} {one}" for one in (found["one"], found["other"])]
    return [piece]
