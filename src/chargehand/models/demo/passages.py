"""Passages that a search found, and the one rule by which they answer a clause: they say every word of it."""

import re
from collections.abc import Sequence
from functools import lru_cache

from chargehand.models.artifacts import Passage
from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.tools import ToolCard, card_words
from chargehand.models.demo.words import Token, join_words, number_value, stem, stem_set, tokenize, word_set
from chargehand.models.request_facts import WorkerCard
from chargehand.text.sentences import split_sentences

_MOST_QUOTED = 3
_FEW_WORDS = 2
"""A question of so few words asks for a topic: all that a document says about it is quoted."""
_NEGATION = "<negation>"
_ASKING = word_set(
    """many much long often old far find keep keeps tell there take takes last happen happens mean means explain
    describe search summarise summarize come comes work works"""
)
"""Words that ask, and say nothing of what is asked about."""
_SOURCES = stem_set(
    "document documentation docs note paper page file text material archive already know known found kept memory"
)
"""Words for any source. One of a kind, such as a policy, is named by a card, a tool or the passage itself."""
_WANTS_EXACT = frozenset({"which", "who", "how many", "how much", "where", "when"})
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|half|once|twice|daily|weekly|monthly|yearly|"
    r"january|february|march|april|may|june|july|august|september|october|november|december|"
    r"monday|tuesday|wednesday|thursday|friday|saturday|sunday|morning|evening|noon|spring|summer|autumn|winter|frost)\b",
    re.IGNORECASE,
)
_WANTED = dict.fromkeys(
    ("how much", "how long", "how often", "how old", "how far", "how high", "how big", "when"), _NUMBER
) | {
    "where": re.compile(r"\b(?:in|at|on|near|behind|beside|under|above|opposite|next to)\b", re.IGNORECASE),
    "why": re.compile(
        r"\b(?:because|since|so|due|reasons?|causes?|therefore|otherwise|means?|when|if|for)\b", re.IGNORECASE
    ),
}
"""What a passage must have to answer a question."""
_OPENING = re.compile(r"\A(?:find out|say|tell (?:me|us)|find|report)\s+", re.IGNORECASE)


def search_words(clause: Clause, tool: ToolCard, worker: WorkerCard) -> list[Token]:
    """What has to be found: the words of a clause without those that only name where to look."""
    asked = [token for token in clause.content if token.text.lower() not in _ASKING]
    about = clause.about
    if about is None:
        return asked
    known = _SOURCES | card_words(worker) | _words(f"{tool.name} {tool.description}")
    wanted = [
        token for token in asked if token.end > about.end() or (token.start < about.start() and token.stem not in known)
    ]
    return wanted or asked


def search_query(clause: Clause, tool: ToolCard, worker: WorkerCard) -> str:
    """What to search for: the words that have to be found, and the months and years of a period."""
    words = [token.text for token in search_words(clause, tool, worker)]
    words += [word for period in clause.periods for word in period.words.split() if len(word) > 1]
    return " ".join(dict.fromkeys(words))


@lru_cache(maxsize=2_000)
def _words(text: str) -> frozenset[str]:
    """The stems of a text; all negations are one."""
    return frozenset(map(_key, tokenize(text.replace("_", " "))))


def _key(token: Token) -> str:
    return _NEGATION if token.is_negation else token.stem


def accept_passages(
    clause: Clause, passages: Sequence[Passage], tool: ToolCard, worker: WorkerCard
) -> Sequence[Passage]:
    """The passages that account for every word of a clause.

    A topic ("what do our notes say about X") may be spread over one document; a question is answered by one passage.
    """
    place = "the archive" if tool.kind == "archive" else "the documents"
    asked = _OPENING.sub("", clause.text.rstrip("?. "))
    wanted = {_key(token): token.text for token in search_words(clause, tool, worker)}
    times = {stem(word): word for period in clause.periods for word in period.words.split()}
    times = {word: text for word, text in times.items() if not text.isdigit() or len(text) == 4}
    wanted |= times
    if not wanted:
        raise RefusedError(f"{place} cannot be searched for this: it names nothing to look for")
    if _NEGATION in wanted and clause.question in _WANTS_EXACT:
        raise RefusedError(f"{place} cannot be asked what is not so")
    is_topic = clause.about is not None or (clause.question == "what" and len(wanted) <= _FEW_WORDS)
    documents: dict[str, set[str]] = {}
    for passage in passages:
        documents.setdefault(_document(passage), set()).update(_passage_words(passage))
    accepted: list[Passage] = []
    for passage in passages:
        own = _passage_words(passage)
        says_all = wanted.keys() <= (documents[_document(passage)] if is_topic else own)
        says_most = 2 * len(wanted.keys() & own) > len(wanted) - (clause.about is None)
        if says_all and says_most and times.keys() <= own and _may_answer(clause, passage):
            accepted.append(passage)
    if accepted:
        return accepted[:_MOST_QUOTED]
    spoken = wanted.keys() & frozenset[str]().union(*map(_passage_words, passages))
    lacking = join_words([text for word, text in wanted.items() if word not in spoken])
    why = f"no passage speaks of {lacking}" if lacking else "no passage has all of it"
    raise RefusedError(f"not found in {place}: {asked[:1].lower()}{asked[1:]}; {why}")


def _document(passage: Passage) -> str:
    return passage.source.partition("#")[0]


def _passage_words(passage: Passage) -> frozenset[str]:
    return _words(f"{passage.source.replace('-', ' ')} {passage.text} {' '.join(passage.tags)}")


def _may_answer(clause: Clause, passage: Passage) -> bool:
    """Whether a passage has what a question wants: a number, a place, a reason; "how many" a number of the thing."""
    pattern = _WANTED.get(clause.question)
    if clause.question != "how many":
        return pattern is None or pattern.search(passage.text) is not None
    words = [token.stem for token in clause.content]
    counted = set(words[words.index("many") + 1 :][:1])
    for sentence in split_sentences(passage.text):
        tokens = tokenize(sentence)
        for place, token in enumerate(tokens):
            is_number = number_value(token.text) is not None and token.text.lower() != "one"
            if is_number and counted.intersection(other.stem for other in tokens[place + 1 : place + 4]):
                return True
    return False
