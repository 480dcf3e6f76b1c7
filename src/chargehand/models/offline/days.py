"""Which day an argument means: the one whose neighbourhood in the task speaks of it, or the edges of a period."""

import re
from collections.abc import Sequence
from datetime import date, timedelta

from chargehand.models.offline.choosing import Parameter
from chargehand.models.offline.question.periods import period
from chargehand.models.offline.words import Dated, dates, terms, tokens

_NAMED = frozenset({"day", "date"})
_FIRST = frozenset({"start", "from", "begin", "since", "after", "first"})
_LAST = frozenset({"end", "to", "until", "before", "last"})
# a date after one of these is the one that is not meant
_AGAINST = re.compile(
    r"\b(?:no \w+ (?:for|on)|instead of|not|rather than|without|unlike|failed (?:for|on|with)|in place of)"
    r"(?: the)?(?: \w+ (?:of|for|on))?\s+\(?\Z",
    re.IGNORECASE,
)
_JOINED = re.compile(r"\A\s*(?:,|and|or|,\s*and|versus|vs\.?)\s*(?:on\s+|of\s+)?\Z", re.IGNORECASE)
_TOLD = re.compile(r"\buse (?:the |that of )?(?:(?:day|date|rate of|rate for)\s+)?\Z", re.IGNORECASE)
_SAMPLE = re.compile(r"\d{4}-\d\d-\d\d|yyyy-mm-dd|iso date", re.IGNORECASE)
_WINDOW = 40


def is_day(parameter: Parameter) -> bool:
    """Whether an argument is a date."""
    if parameter.type not in {"string", ""} or parameter.enum:
        return False
    words = set(tokens(parameter.name))
    sampled = bool(_SAMPLE.search(parameter.description)) and bool((_NAMED | _FIRST | _LAST) & words)
    return parameter.format in {"date", "date-time"} or bool(_NAMED & words) or sampled


def days(parameter: Parameter, tool: str, text: str) -> list[str]:
    """The day meant; of several that stand side by side, each."""
    known = [one for one in dates(text) if not _AGAINST.search(text[: one.start]) and not one.normal.startswith("-")]
    words = set(tokens(parameter.name))
    if _FIRST & words or _LAST & words:
        return _edge(known, first=bool(_FIRST & words))
    whole = [one for one in known if len(one.normal) == 10]
    if not whole:
        return []
    about = set(terms(f"{tool} {parameter.name} {parameter.description}"))

    def fit(one: Dated) -> tuple[bool, int, int]:
        before = text[max(0, one.start - _WINDOW) : one.start]
        return _TOLD.search(before) is not None, len(about & set(terms(before))), -one.start

    chosen = [max(whole, key=fit)]
    for one in whole[whole.index(chosen[0]) + 1 :]:
        if not _JOINED.match(text[chosen[-1].end : one.start]):
            break
        chosen.append(one)
    return list(dict.fromkeys(one.normal for one in chosen))


def _edge(known: Sequence[Dated], *, first: bool) -> list[str]:
    """The first or the last day of what the dates span."""
    if not known:
        return []
    span = period(known[0 if first else -1].normal)
    if first:
        return [span.begin]
    return [(date.fromisoformat(span.end) - timedelta(days=1)).isoformat()]
