"""Whether a chart is wanted, and of which kind: points in time are joined by a line, others are bars.

Where the numbers come from is not known here.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from chargehand.models.offline.vocabulary import MONTHS

_KINDS = frozenset(("bar", "line"))
_SAID = re.compile(
    r"\b(?P<one>bar|line)s?[ -](?:chart|graph|plot|diagram)s?\b"
    r"|\b(?:as|with|in)\s+(?:a\s+)?(?P<other>bar|line)s?\s*(?:[.,;?!]|$)",
    re.IGNORECASE,
)
_DAY = re.compile(
    r"(?P<year>\d{4})(?:-(?P<part>\d\d|[QW]\d\d?))?(?:-(?P<day>\d\d))?(?:[T ]\d\d:\d\d.*)?", re.IGNORECASE
)
_QUARTER = re.compile(r"(?P<part>[QW]\d\d?)(?:[ /-](?P<year>\d{4}))?", re.IGNORECASE)
_MONTH = re.compile(r"(?P<month>[A-Za-z]{3,9})\.?(?:[ /-](?P<year>\d{4}))?")
_FEWEST = 3
_CHARTED = re.compile(r"^(?:chart|graph)\s+(?=(?:the|our|all|its|their|how|it|them|this|that|these)\b)", re.IGNORECASE)
_AS_CHART = re.compile(
    r"^(?:(?:show|give|display|present|report)\s+(?:(?:me|us)\s+)?)?"
    r"(?P<what>(?!draw|plot|make|chart|graph|how\b|what\b|which\b)\w.+?)"
    r"\s+as\s+an?\s+(?P<kind>(?:(?:bar|line|small|simple)\s+)?(?:chart|graph|diagram))[.?!]?$",
    re.IGNORECASE | re.DOTALL,
)


def drawn(text: str) -> str:
    """A clause that wants a chart in other words than "draw": "chart the sales", "the sales as a line chart"."""
    if found := _AS_CHART.match(text):
        return f"draw a {found['kind']} of {found['what']}"
    return _CHARTED.sub("draw a chart of ", text)


def kind_of_chart(choices: Sequence[str], text: str, labels: Sequence[str]) -> str:
    """`line` or `bar`, where these may be chosen: what the text says, else what the labels are. Empty elsewhere."""
    if not set(choices) >= _KINDS:
        return ""
    if said := _SAID.search(text):
        return (said["one"] or said["other"]).lower()
    return "line" if in_order_of_time(labels) else "bar"


def in_order_of_time(labels: Sequence[str]) -> bool:
    """Whether three labels or more are days, months, quarters or years, each later than the one before."""
    points = [_point(one.strip()) for one in labels]
    if len(points) < _FEWEST or any(one is None for one in points):
        return False
    known = [one for one in points if one is not None]
    return all(earlier < later for earlier, later in pairwise(known))


def _point(label: str) -> tuple[str, str, str] | None:
    if found := _DAY.fullmatch(label):
        return found["year"], _padded(found["part"]), found["day"] or ""
    if found := _QUARTER.fullmatch(label):
        return found["year"] or "", _padded(found["part"]), ""
    if (found := _MONTH.fullmatch(label)) is None:
        return None
    said = found["month"].lower()
    number = next((at for at, month in enumerate(MONTHS, 1) if month.startswith(said)), 0)
    return (found["year"] or "", f"{number:02}", "") if number else None


def _padded(part: str | None) -> str:
    """Weeks and quarters in the order they come: W9 before W10."""
    return (part or "")[:1].lower() + (part or "")[1:].rjust(2, "0") if part and not part.isdigit() else part or ""
