"""Whom a word means that points back to a question for a number: not the number, but whose it is.

How pointing words are found is the business of `references`; that they are written out, that of `spelling`.
"""

import re

from chargehand.models.offline.references import RESULT, Pointer, owner_of
from chargehand.models.offline.words import names, stem, tokens

_UNITS = "seconds|minutes|hours|days|weeks|months|years|euros|dollars|pounds|kilos|kilograms|metres|litres"
_MEASURED = re.compile(
    rf"how (?:many|much)\s+(?:{_UNITS})\s+(?:do|does|did)\s+(?P<who>(?:the|our)\s+(?:\w+\s+){{0,3}}?\w+)\s+"
    r"(?:take|cost|last|need|run|weigh|bring|earn|spend)\b",
    re.IGNORECASE,
)
_AMOUNT = re.compile(rf"(?:{RESULT}|price|cost|value|share|rate|period|percentage|way|reason|case)\Z", re.IGNORECASE)


def bearer_of(text: str, pointer: Pointer) -> str:
    """Who or what a word means that follows a question for their number: "them" are the alerts that have the votes.

    A noun that was not said yet is that of the only name: after "the notice for Ash", "that lease" is that of Ash.
    """
    measured = _MEASURED.match(text.strip())
    owner = owner_of(text) or (measured["who"] if measured else "")
    if owner and not pointer.noun and pointer.text.lower() in ("it", "they", "them"):
        return owner if owner.partition(" of ")[0].endswith("s") == pointer.many else ""
    named = names(text)
    fresh = pointer.noun and not pointer.owns and stem(pointer.noun) not in map(stem, tokens(text))
    if (
        fresh
        and len(named) == 1
        and pointer.text.lower().startswith(("this ", "that "))
        and not _AMOUNT.match(pointer.noun)
    ):
        return f"the {pointer.noun} of {named[0]}"
    return ""
