"""Names in a list, of which some may be unknown: the list without them, and with nothing but them.

Who knows which is found out elsewhere; here a sentence is only put together anew.
"""

import re

from chargehand.models.offline.vocabulary import ASKING, AUXILIARY, PREPOSITIONS, RELATIVE, STOP, VERBS
from chargehand.models.offline.words import names

_JOINT = r"(?:\s*,\s*(?:(?:and|or)\s+)?|\s+(?:and|or|versus|vs\.?)\s+)"
_PLAIN = re.compile(r"(?<![\w-])[a-z][\w-]+(?:, [a-z][\w-]+)+,? (?:and|or) [a-z][\w-]+(?![\w-])")
_SPLIT = re.compile(_JOINT)
_COMPARES = re.compile(r"^(?P<lead>(?:please\s+)?)compare\b", re.IGNORECASE)
_NO_THINGS = STOP | VERBS | ASKING | AUXILIARY | PREPOSITIONS | RELATIVE
_MOST = 8


def listed(text: str) -> list[str]:
    """What stands side by side in the first list of names, or else of three plain words or more; nothing for others."""
    found = _list(text)
    return [] if found is None else _items(found[0])


def without(text: str, gone: list[str]) -> str:
    """The text with the rest of its list; empty where nothing would be left of it."""
    kept = [one for one in listed(text) if one not in gone]
    return _put(text, kept) if kept else ""


def only(text: str, kept: list[str]) -> str:
    """The text with these of its list."""
    return _put(text, kept)


def _list(text: str) -> re.Match[str] | None:
    known = sorted(names(text), key=len, reverse=True)
    if len(known) > 1:
        one = "|".join(re.escape(name) for name in known)
        found = re.search(rf"(?<![\w-])(?:{one})(?:{_JOINT}(?:{one}))+(?![\w-])", text)
        if found is not None and 1 < len(_items(found[0])) <= _MOST:
            return found
    plain = _PLAIN.search(text)
    return plain if plain and not set(_items(plain[0])) & _NO_THINGS and len(_items(plain[0])) <= _MOST else None


def _items(said: str) -> list[str]:
    return list(dict.fromkeys(_SPLIT.split(said)))


def _put(text: str, kept: list[str]) -> str:
    found = _list(text)
    if found is None:
        return text
    said = kept[0] if len(kept) == 1 else f"{', '.join(kept[:-1])} and {kept[-1]}"
    new = f"{text[: found.start()]}{said}{text[found.end() :]}"
    return _COMPARES.sub(r"\g<lead>Report", new) if len(kept) == 1 else new
