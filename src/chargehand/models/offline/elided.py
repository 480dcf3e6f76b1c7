"""What the second half of a sentence leaves to the first: the noun that is counted, who is meant, and the period.

Pronouns are the business of `references`; names that are said once, that of `inheriting`.
"""

import re

from chargehand.models.offline.references import when
from chargehand.models.offline.vocabulary import RELATIVE, VERBS
from chargehand.models.offline.words import dates

_WORD = re.compile(r"[\w'\u2019-]+")
_WHO = RELATIVE | {"who", "what", "how"}
_HAVING = frozenset({"have", "has", "had", "are", "is", "were", "was"})
_COMPARED = frozenset({"less", "more", "fewer", "at", "over", "under", "between", "below", "above", "exactly"})
_OBJECT = _COMPARED | {"a", "an", "no", "not", "in", "from", "on", "by", "for", "of"}
_BE = r"(?:is|are|was|were|have|had)"
_DO = r"(?:did|do|does)"
_BARE = re.compile(rf"how (?:many|much)\s+(?=(?:{_BE}|{_DO})\b)(?!(?:is|are|was|were)\s+(?:it|there)\b)", re.IGNORECASE)
_COUNTED = re.compile(rf"how (?:many|much)\s+((?:\w+\s+){{1,3}}?)(?:{_BE}|{_DO})\b", re.IGNORECASE)
_RANKED = re.compile(r"\b(?:most|fewest|least|highest|lowest)\s+(\w+s\b)", re.IGNORECASE)
_EACH = re.compile(r"(?:what|how (?:many|much))\b[^,;]*\beach\s*\??\Z", re.IGNORECASE)
_SEVERAL = re.compile(
    r"which\s+(?P<noun>\w+s)\s+(?:do|does|did)\s+(?P<who>.+?)\s+(?:hold|have|own|use|offer|sell|need|make|run)\b",
    re.IGNORECASE,
)
_TOTAL = re.compile(
    r"(?:(?:and\s+)?how (?:many|much)\s+(?:(?:there|that|they|it)\s+(?:is|are|was|were|makes?|made|come|comes|came)"
    r"|(?:is|are|was|were)\s+(?:there|that|they|it)|(?:does|did|do)\s+(?:that|it|they)\s+(?:make|come to))"
    r"\s+)(?:in total|altogether|in all|all together|overall)\s*\??\Z",
    re.IGNORECASE,
)
_DRAWN = re.compile(
    r"(?:draw|plot|make|show)\s+an?\s+(?:\w+\s+)?(?:chart|graph|diagram)\s+of\s+(?:the\s+)?"
    r"(?:(?:monthly|weekly|daily|yearly|quarterly|annual)\s+)?(?P<what>(?!how\b|which\b|what\b)[^,;?]+)\Z",
    re.IGNORECASE,
)
_APART = re.compile(r"\s+(?:by|per|for each|in each)\s+\w+\b", re.IGNORECASE)
_MANY = re.compile(rf"how (?:many|much)\b.*\b(?:{_BE}|{_DO})\b", re.IGNORECASE)


def with_noun(text: str, before: str) -> str:
    """The clause with the noun of the one before: after "How many posts are open", "how many are new" is of posts."""
    bare = _BARE.match(text)
    if _TOTAL.match(text) and (charted := _DRAWN.match(before)):
        return f"report the total {_APART.sub('', charted['what'], count=1)}"
    if bare is None:
        several = _SEVERAL.match(before) if _EACH.match(text) else None
        return f"{text.rstrip('? ')} of the {several['noun']} of {several['who']}" if several else text
    noun = _COUNTED.match(before) or (_RANKED.search(before) if before else None)
    return f"{bare[0]}{noun[1].strip()} {text[bare.end() :]}" if noun else text


def period_behind(text: str, last: str) -> str:
    """The period that the last clause of a sentence ends with, for an earlier one that asks how many as well."""
    period = when(last)
    if text == last or not period or not last.rstrip("? .").endswith(period) or dates(text):
        return ""
    return period if _MANY.match(text) and _MANY.match(last) else ""


def bare_period(text: str) -> str:
    """Only the period of "how many in 2024?": what is counted was said before."""
    bare = re.match(
        r"how (?:many|much)\s+(?=(?:in|on|during|since|before|after|until|from|between)\b)", text, re.IGNORECASE
    )
    rest = text[bare.end() :] if bare else ""
    return rest if rest and when(rest) == rest.rstrip("? .") else text


def goes_on(before: str, rest: str) -> bool:
    """Whether a question only goes on: "Which rooms face south and have a balcony" is one about rooms that do both."""
    said = [word.lower() for word in _WORD.findall(rest[:60])[:2]]
    asked = [word.lower() for word in _WORD.findall(before)]
    if len(said) < 2 or not asked or asked[0] not in _WHO:
        return False
    if said[0] in _HAVING:
        return said[1] in _OBJECT
    return said[1] in _COMPARED and said[0] in VERBS
