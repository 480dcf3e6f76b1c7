"""Text that a request gives word for word: a quotation, a sentence, or the statements after a colon."""

import re

from chargehand.models.offline.remembering.places import masked
from chargehand.models.offline.vocabulary import AFTER_VERB, ASKING, AUXILIARY, RELATIVE, VERBS
from chargehand.models.offline.words import quoted

LATER = re.compile(
    r"[\s,]*\b(?:for\s+(?:later|next\s+time|the\s+(?:next\s+time|future|record))|in\s+future)\b", re.IGNORECASE
)
STOP = re.compile(r"[.!?](?=\s|$)|;|\n|\Z")
_NEXT = re.compile(r"[.!]\s+(?P<next>\S[^.!?\n]*)")
_ORDERS = VERBS | ASKING | RELATIVE | AUXILIARY
_ORDER = re.compile(rf",\s+and\s+(?:{'|'.join(sorted(VERBS))})\s+(?:{'|'.join(sorted(AFTER_VERB))})\b", re.IGNORECASE)
_LONGEST = 600


def stated(text: str, at: int, *, whole: bool) -> tuple[str, int]:
    """What is said from here on: a quotation, else a sentence; after a colon also the statements that follow it."""
    rest = text[at:]
    exact = quoted(rest[:_LONGEST])
    if exact and rest[1 : 1 + len(exact[0])].strip() == exact[0]:
        return sentence(exact[0]), at + 2 + len(exact[0])
    hidden = masked(rest)
    stop = STOP.search(hidden)
    end = stop.start() if stop else len(rest)
    if not whole and (order := _ORDER.search(hidden, 0, end)):
        end = order.start()  # "..., and find out what": that is to be done, and not to be noted
    while whole and (more := _NEXT.match(hidden, end)):
        first = more["next"].split()[0].lower()
        if first in _ORDERS or hidden[more.end() : more.end() + 1] == "?":
            break
        end = more.end()
    return sentence(rest[:end]), at + end


def unquoted(said: str) -> str:
    """The quotation in a phrase, else the phrase."""
    exact = quoted(said)
    return exact[0] if exact else said.strip(" ,.")


def sentence(said: str) -> str:
    """What is said as a sentence, without words for later; empty where it says nothing."""
    plain = LATER.sub("", said.strip(" ,;")).strip(" ,;")
    if not re.search(r"\w", plain):
        return ""
    return f"{plain[:1].upper()}{plain[1:]}{'' if plain.endswith(('.', '!', '?')) else '.'}"
