"""The words that carry a question: the thing that is asked for and what happens to it. No answer may lack them.

"How many parcels did the carrier lose in May?" is about parcels, and about losing them.
"""

import re

from chargehand.models.offline.vocabulary import ASKING, AUXILIARY, PAST, PREPOSITIONS, RELATIVE, STOP, VERBS
from chargehand.models.offline.words import dates, names, related, stem

_COUNTED = re.compile(r"\b(?:how many|how much|number of)\s+", re.IGNORECASE)
_ABOUT = re.compile(r"\b(?:about|regarding|concerning)\s+", re.IGNORECASE)
FIND = re.compile(r"find what is said about\s+(?=(?:how|what|when|where|who|which|why|whether)\b)", re.IGNORECASE)
_WORD = re.compile(r"[^\W_][\w'\u2019-]*")
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z])|\s*\((?:the result of|from) t\d")
_BE = frozenset({"is", "are", "was", "were", "be", "been"})
_DO = frozenset({"do", "does", "did", "will"})
_OPEN = frozenset({"what", "when", "where", "who"})
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
wrong anything something everything nothing usually typically normally generally currently ever"""
_EMPTY = frozenset(map(stem, _HOLLOW.split()))


def carriers(text: str) -> list[str]:
    """The words a question cannot do without, in lower case, the thing first; empty where it is not clear."""
    plain = _bare(text)
    found: list[str] = []
    if counted := _COUNTED.search(plain):
        found = _thing_and_deed(_words(plain[counted.end() :]))
    elif about := _ABOUT.search(plain):
        found = _thing(_words(plain[about.end() :]))[0]
    else:
        found = _asked(_words(plain))
    return [word for word in dict.fromkeys(found) if stem(word) not in _EMPTY]


def _bare(text: str) -> str:
    plain = _undated(_SENTENCE.split(FIND.sub("", text.strip()))[0])
    for name in names(plain):
        plain = re.sub(rf"{re.escape(name)}(?:['\u2019]s)?", " ", plain)  # names are looked for anyway
    return plain


def qualifiers(text: str) -> list[str]:
    """What else must be said where a question is for a number or a day, which stand nearly everywhere.

    Who asks for a credit rating does not ask for any rating, and who asks what parking costs not for any price.
    """
    plain = _bare(text)
    words = _words(plain)
    measured = words[:1] == ["how"] and words[2:3] != [] and words[1] not in {"many", "much"} and words[2] in _BE | _DO
    words = ["what", *words[2:]] if measured else words
    if _ABOUT.search(plain) or len(words) < 3 or words[0] not in _OPEN or words[1] not in _BE | _DO:
        return []
    said, rest = _phrase(words[2:])
    said = said[:-1] if words[1] in _BE and not measured else said
    while rest[:1] in (["of"], ["for"]):  # the price of parking, a month of parking
        more, rest = _phrase(rest[1:])
        said = [*said, *more[-1:]]
    if rest[:1] == ["to"]:  # what it costs to open something
        said = [*said, *_phrase(rest[1:])[0][:1]]
    return [word for word in said if stem(word) not in _EMPTY and word not in VERBS and not _ranks(stem(word))]


def _ranks(term: str) -> bool:
    return related(term, "most") >= 0.8 or related(term, "least") >= 0.8


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
    if first == "what" and rest[:1] in (["happens"], ["happened"]) and rest[1:2] in (["when"], ["if"]):
        return _told(rest[2:])
    if first in {"which", "what", "whose"}:
        return _thing_and_deed(rest)
    if first in VERBS and len(rest) > 1:
        return _thing([word for word in rest if word not in {"out", "me", "us", "up"}])[0]
    if first in AUXILIARY:
        thing, after = _thing(rest)
        return [*thing, *(_thing(after[1:])[0] if after[:1] == ["have"] else [])]  # what somebody has is asked for too
    return _thing(words)[0] if first not in ASKING else []


def _told(words: list[str]) -> list[str]:
    """Every telling word of what happens, as far as it goes without a preposition; general verbs tell little."""
    end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
    said = [word for word in words[:end] if word.isalpha() and word not in STOP | AUXILIARY]
    return [word for word in said if word not in VERBS and stem(word) not in VERBS] or said


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
    said, rest = _phrase(words)
    return said[-1:], rest


def _phrase(words: list[str]) -> tuple[list[str], list[str]]:
    """The telling words of the noun phrase at the beginning, and what follows it."""
    at = 0
    while at < len(words) and (words[at] in _DETERMINERS or words[at] in _BE or words[at][0].isdigit()):
        at += 1
    begin = at
    while at < len(words) and not (
        words[at] in _ENDS or words[at] in AUXILIARY or words[at] in _DETERMINERS or (at > begin and _verb(words[at]))
    ):
        at += 1
    said = [word for word in words[begin:at] if word not in STOP and word.replace("-", "").isalpha()]
    return said, words[at:]


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
