"""The words that carry a question: the thing that is asked for and what happens to it. No answer may lack them.

"How many parcels did the carrier lose in May?" is about parcels, and about losing them.
"""

import re

from chargehand.models.offline.vocabulary import ASKING, AUXILIARY, PAST, PREPOSITIONS, RELATIVE, STOP, VERBS
from chargehand.models.offline.words import dates, names, stem

_COUNTED = re.compile(r"\b(?:how many|how much|number of)\s+", re.IGNORECASE)
_ABOUT = re.compile(r"\b(?:about|regarding|concerning)\s+", re.IGNORECASE)
_WORD = re.compile(r"[^\W_][\w'\u2019-]*")
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z])|\s*\((?:the result of|from) t\d")
_BE = frozenset({"is", "are", "was", "were", "be", "been"})
_DETERMINERS = frozenset(
    [
        "the",
        "a",
        "an",
        "our",
        "my",
        "your",
        "their",
        "its",
        "this",
        "that",
        "these",
        "those",
        "any",
        "all",
        "each",
        "every",
        "some",
        "we",
        "i",
        "you",
        "they",
        "he",
        "she",
        "it",
        "us",
    ]
)
_ENDS = (PREPOSITIONS | RELATIVE | frozenset({"of", "by", "to", "than", "and", "or", "but", "about", "per", "not"})) - {
    "as"
}
_HOLLOW = """information detail thing rule policy term condition procedure document note way kind sort type report guide
paper handbook manual rest result answer name fact file page text question reason much many most more top list first
word passage content total sum amount figure value number convert other exactly happen happened
anything something everything nothing usually typically normally generally currently ever"""
_EMPTY = frozenset(map(stem, _HOLLOW.split()))


def carriers(text: str) -> list[str]:
    """The words a question cannot do without, in lower case, the thing first; empty where it is not clear."""
    plain = _undated(_SENTENCE.split(text.strip())[0])
    for name in names(plain):
        plain = plain.replace(name, " ")  # who looks for carriers looks for names anyway
    found: list[str] = []
    if counted := _COUNTED.search(plain):
        found = _thing_and_deed(_words(plain[counted.end() :]))
    elif about := _ABOUT.search(plain):
        found = _thing(_words(plain[about.end() :]))[0]
    else:
        found = _asked(_words(plain))
    return [word for word in dict.fromkeys(found) if stem(word) not in _EMPTY]


def _undated(text: str) -> str:
    for one in reversed(dates(text)):
        text = text[: one.start] + " " + text[one.end :]
    return text


def _words(text: str) -> list[str]:
    return [re.sub(r"['\u2019]s$", "", word.lower()) for word in _WORD.findall(text)]


def _asked(words: list[str]) -> list[str]:
    if not words:
        return []
    first, rest = words[0], words[1:]
    if first in {"who", "whom"} and rest and rest[0] not in AUXILIARY:
        return rest[:1]
    if first in ASKING | {"when", "where", "whether"} and rest and rest[0] in AUXILIARY:
        thing, after = _thing(rest[1:])
        if rest[0] in _BE or after[:1] != ["do"]:
            return thing if rest[0] in _BE else _last(rest[1:])
        return []  # "what should patients do" is about what comes after
    if first in {"which", "what", "whose"}:
        return _thing_and_deed(rest)
    if first in VERBS and len(rest) > 1:
        return _thing([word for word in rest if word not in {"out", "me", "us", "up"}])[0]
    if first in AUXILIARY:
        return _thing(rest)[0]
    return _thing(words)[0] if first not in ASKING else []


def _thing_and_deed(words: list[str]) -> list[str]:
    thing, rest = _thing(words)
    if rest and rest[0] in _ENDS - RELATIVE - {"that"}:  # "seats of the red trams are broken"
        at = next((place for place, word in enumerate(rest) if word in AUXILIARY), len(rest))
        rest = rest[at:]
    if not rest:
        return thing
    deed = rest[:1] if _verb(rest[0]) else _last(rest)
    return [*thing, *deed]


def _thing(words: list[str]) -> tuple[list[str], list[str]]:
    """The last word of the noun phrase at the beginning, and what follows the phrase."""
    at = 0
    while at < len(words) and (words[at] in _DETERMINERS or words[at] in _BE or words[at][0].isdigit()):
        at += 1
    begin = at
    while at < len(words) and not (
        words[at] in _ENDS or words[at] in AUXILIARY or words[at] in _DETERMINERS or (at > begin and _verb(words[at]))
    ):
        at += 1
    said = [word for word in words[begin:at] if word not in STOP and word.isalpha()]
    return said[-1:], words[at:]


def _last(words: list[str]) -> list[str]:
    """The last telling word before a preposition: what is done, in a question with "did"."""
    found: list[str] = []
    for word in words:
        if word in _ENDS and found:
            break
        if word not in STOP and word not in AUXILIARY and word.isalpha():
            found = [word]
    return found


def _verb(word: str) -> bool:
    return word in PAST or (word.endswith("ed") and len(word) > 4)
