"""What a request itself says: a text it brings along, and the question about it. Nothing is looked up."""

import re

from chargehand.models.exhibits import Passage, Passages
from chargehand.models.offline.evidence import unsaid
from chargehand.models.offline.phrasing import passages_text
from chargehand.models.offline.vocabulary import ASKING, AUXILIARY, RELATIVE, VERBS
from chargehand.models.offline.words import quoted, tokens

_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z\"'(])|\n+|(?<=:)\s+(?=[A-Z\"'(])")
_ORDERS = VERBS | ASKING | RELATIVE | AUXILIARY | frozenset(("please", "review", "study", "consider", "conduct"))
_SHORTEST = 5  # words of a statement
_MOST = 3


def from_request(text: str) -> str:
    """What the text it brings along says to its question, or its first sentences; empty where it brings none."""
    parts = [part.strip() for part in _SENTENCE.split(text) if part and part.strip()]
    said = [part for part in parts if _states(part)]
    said += [one for part in parts if not _states(part) for one in quoted(part) if len(tokens(one)) >= _SHORTEST]
    asked = " ".join(part for part in parts if part.endswith("?"))
    if not said:
        return ""
    if not asked:
        return f"{' '.join(said[:_MOST])} (the request)"
    found = Passages(asked, tuple(Passage("the request", one) for one in said))
    return "" if unsaid(asked, [found], "") else passages_text(found, asked)


def _states(part: str) -> bool:
    words = tokens(part)
    return len(words) >= _SHORTEST and not part.endswith(("?", ":")) and words[0] not in _ORDERS
