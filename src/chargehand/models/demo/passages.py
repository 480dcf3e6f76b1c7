"""Passages that a search found, and the one rule by which they answer a clause: they say every word of it."""

import re
from functools import lru_cache

from msgspec import Struct

from chargehand.models.demo.request import Clause
from chargehand.models.demo.tools import ToolCard
from chargehand.models.demo.words import Token, join_words, number_value, stem, stems, tokenize, word_set
from chargehand.models.exhibits import Passage
from chargehand.models.subject import WorkerCard

_MOST_QUOTED = 3
_FEW_WORDS = 2
"""A question of so few words asks for a topic: all that a document says about it is quoted."""
_PREPOSITIONS = frozenset({"about", "of", "on", "regarding", "concerning", "for"})
_EXACT = frozenset({"which", "who", "how many", "how much", "where", "when"})
_NEGATED = "<negation>"
_ABOUT = re.compile(
    r"\b(?:says?|said|state|states|tell|tells|write|writes|know|known|read|recommend|recommends|advise|advises|"
    r"mention|mentions)\b"
    r"(?:\s+(?:us|me))?(?:\s+(?:about|of|on|regarding|concerning|for))?\b",
    re.IGNORECASE,
)
_SOURCES = frozenset(
    map(
        stem,
        word_set(
            """document paper note report page policy handbook guide manual record rule file book playbook
            documentation docs leaflet text archive material contract study"""
        ),
    )
)
_NUMERIC = frozenset(
    {"how many", "how much", "how long", "how often", "how old", "how far", "how high", "how big", "when"}
)
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|half|once|twice|daily|weekly|monthly|yearly|"
    r"january|february|march|april|may|june|july|august|september|october|november|december|"
    r"monday|tuesday|wednesday|thursday|friday|saturday|sunday|morning|evening|noon|spring|summer|autumn|winter|frost)\b",
    re.IGNORECASE,
)


_OPENING = re.compile(r"\A(?:find out|say|tell (?:me|us)|find|report)\s+", re.IGNORECASE)


class Accepted(Struct, frozen=True):
    """The passages that answer a clause."""

    passages: tuple[Passage, ...]


class NotSaid(Struct, frozen=True):
    """Why the passages do not answer a clause."""

    reason: str


def asks_for_text(clause: Clause) -> bool:
    """Whether a clause asks what documents say about something."""
    return _about(clause.text) is not None and clause.question in {"what", "which", ""}


def _about(text: str) -> re.Match[str] | None:
    """Where a text turns from who says something to what it is about."""
    matches = list(_ABOUT.finditer(text))
    full = [match for match in matches if match[0].lower().split()[-1] in _PREPOSITIONS]
    return (full or matches or [None])[0]


def search_words(clause: Clause, tool: ToolCard, worker: WorkerCard) -> list[Token]:
    """What has to be found: the words of a clause without those that only name where to look."""
    where = _source_words(clause, tool, worker)
    wanted = [token for token in clause.content if token.stem not in where and not _is_asking(token)]
    return wanted or [token for token in clause.content if not _is_asking(token)]


def _is_asking(token: Token) -> bool:
    return token.text.lower() in {
        "many",
        "much",
        "long",
        "often",
        "old",
        "far",
        "find",
        "keep",
        "keeps",
        "tell",
        "there",
        "take",
        "takes",
        "last",
        "happen",
        "happens",
        "mean",
        "means",
        "explain",
        "describe",
        "search",
        "summarise",
        "summarize",
        "come",
        "comes",
        "work",
        "works",
    }


def _source_words(clause: Clause, tool: ToolCard, worker: WorkerCard) -> frozenset[str]:
    """Words before "say about" that name the documents: "our incident reports"."""
    match = _about(clause.text)
    if match is None or clause.question not in {"what", "which", ""}:
        return frozenset()
    about = f"{worker.name} {worker.description} {' '.join(worker.tags)} {tool.name} {tool.description}"
    known = _words_in(about) | _SOURCES
    return frozenset(
        token.stem
        for token in clause.tokens
        if token.end <= match.end() and (token.stem in known or token.start >= match.start())
    )


@lru_cache(maxsize=500)
def _words_in(text: str) -> frozenset[str]:
    return frozenset(stems(text))


def search_query(clause: Clause, tool: ToolCard, worker: WorkerCard) -> str:
    """What to search for: the words that have to be found, and the months and years of a period."""
    words = [token.text for token in search_words(clause, tool, worker)]
    words += [word for period in clause.periods for word in period.words.split() if len(word) > 1]
    return " ".join(dict.fromkeys(words))


def accept_passages(
    clause: Clause, found: tuple[Passage, ...], tool: ToolCard, worker: WorkerCard, places: str = "the documents"
) -> Accepted | NotSaid:
    """The passages that account for every word of a clause.

    A topic ("what do our notes say about X") may be spread over one document; a question is answered by one passage.
    """
    wanted = {token.stem: token.text for token in search_words(clause, tool, worker)}
    for period in clause.periods:
        wanted |= {stem(word): word for word in period.words.split() if not word.isdigit() or len(word) == 4}
    if any(token.is_negation for token in clause.tokens):
        negations = {token.stem for token in clause.tokens if token.is_negation}
        wanted = {word: text for word, text in wanted.items() if word not in negations} | {_NEGATED: "not"}
    if not wanted:
        return NotSaid(f"{places} cannot be searched for this: it names nothing to look for")
    if any(token.is_negation for token in clause.tokens) and clause.question in _EXACT:
        return NotSaid(f"{places} cannot be asked what is not so")
    said = [(passage, _words_of(passage)) for passage in found]
    if not asks_for_text(clause) and not (clause.question == "what" and len(wanted) <= _FEW_WORDS):
        return _accept_one(clause, said, wanted, places)
    return _accept_document(clause, said, wanted, places)


def _words_of(passage: Passage) -> frozenset[str]:
    words = set(stems(f"{passage.source.replace('-', ' ')} {passage.text} {' '.join(passage.tags)}"))
    if any(token.is_negation for token in tokenize(passage.text)):
        words.add(_NEGATED)
    return frozenset(words)


def _accept_one(
    clause: Clause, said: list[tuple[Passage, frozenset[str]]], wanted: dict[str, str], places: str
) -> Accepted | NotSaid:
    full = [passage for passage, words in said if wanted.keys() <= words]
    if clause.question in _NUMERIC:
        full = [passage for passage in full if _NUMBER.search(passage.text)]
    if clause.question == "how many":
        full = [passage for passage in full if _counts(clause, passage)]
    if full:
        return Accepted(tuple(full[:_MOST_QUOTED]))
    return _not_said(clause, said, wanted, places)


def _counts(clause: Clause, passage: Passage) -> bool:
    """Whether a number stands right before the thing that is to be counted."""
    after_many = [token for token in clause.tokens if not token.is_free]
    at = next((at for at, token in enumerate(after_many) if token.text.lower() == "many"), -1) + 1
    head = after_many[at].stem if at < len(after_many) else ""
    tokens = tokenize(passage.text)
    return any(
        number_value(token.text) is not None and head in (other.stem for other in tokens[place + 1 : place + 4])
        for place, token in enumerate(tokens)
    )


def _accept_document(
    clause: Clause, said: list[tuple[Passage, frozenset[str]]], wanted: dict[str, str], places: str
) -> Accepted | NotSaid:
    documents: dict[str, list[tuple[Passage, frozenset[str]]]] = {}
    for passage, words in said:
        documents.setdefault(passage.source.partition("#")[0], []).append((passage, words))
    times = {stem(word) for period in clause.periods for word in period.words.split() if stem(word) in wanted}
    accepted: list[Passage] = []
    for held in documents.values():
        together = frozenset[str]().union(*(words for _, words in held))
        if wanted.keys() <= together:
            accepted += [passage for passage, words in held if _says_most(wanted, words, clause) and times <= words]
    if accepted:
        return Accepted(tuple(passage for passage in [one for one, _ in said] if passage in accepted)[:_MOST_QUOTED])
    return _not_said(clause, said, wanted, places)


def _says_most(wanted: dict[str, str], words: frozenset[str], clause: Clause) -> bool:
    """Whether a passage says more than half of what is wanted; of a short question half is enough."""
    shared = 2 * len(wanted.keys() & words)
    return shared > len(wanted) or (shared == len(wanted) and not asks_for_text(clause))


def _not_said(
    clause: Clause, said: list[tuple[Passage, frozenset[str]]], wanted: dict[str, str], places: str
) -> NotSaid:
    asked = _asked(clause)
    if not said:
        return NotSaid(f"{places} do not say {asked}: nothing was found")
    missing = min(
        ([text for word, text in wanted.items() if word not in words] for _, words in said),
        key=len,
    )
    all_words = frozenset[str]().union(*(words for _, words in said))
    nowhere = [text for word, text in wanted.items() if word not in all_words]
    closest = said[0][0].source.partition("#")[0]
    lacking = nowhere or missing
    what = f"nothing found speaks of {join_words(lacking)}" if lacking else "no passage has all of it"
    return NotSaid(f"{places} do not say {asked}: {what} ({closest} comes closest)")


def _asked(clause: Clause) -> str:
    text = clause.text.rstrip("?. ")
    match = _about(text)
    if match is not None and asks_for_text(clause) and text[match.end() :].strip():
        return f"anything about{text[match.end() :]}"
    text = _OPENING.sub("", text)
    return text[:1].lower() + text[1:]
