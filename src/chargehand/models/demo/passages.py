"""Passages that a search returned: they answer a clause if they account for every word of it."""

import re
from collections.abc import Sequence

from chargehand.models.artifacts import FoundPassage
from chargehand.models.demo.request import Account, Clause, RefusedError
from chargehand.models.demo.tools import ToolCard, card_words, tool_words
from chargehand.models.demo.words import said_words, stem_set
from chargehand.models.request_facts import WorkerCard
from chargehand.text.words import join_words, split_sentences

_MOST_QUOTED = 3
_ASKING = stem_set(
    """many much long often old far tell there take takes mean means explain describe search summarise summarize come
    comes work works need"""
)
"""Words that ask, and say nothing of what is asked about."""
_SOURCES = stem_set(
    "document documentation docs note paper page file text material archive already know known found kept memory"
)
"""Words for any source. One of a kind, such as a policy, is named by a card, a tool or the passage itself."""
_WANTS_EXACT = frozenset({"which", "who", "how many", "how much", "where", "when"})
_AMOUNT_OR_TIME = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|half|once|twice|daily|weekly|monthly|yearly|"
    r"january|february|march|april|may|june|july|august|september|october|november|december|"
    r"monday|tuesday|wednesday|thursday|friday|saturday|sunday|morning|evening|noon|spring|summer|autumn|winter|frost)\b",
    re.IGNORECASE,
)
_WANTED = dict.fromkeys(
    ("how much", "how long", "how often", "how old", "how far", "how high", "how big", "when"), _AMOUNT_OR_TIME
) | {
    "who": re.compile(r"\bby\b|\s[A-Z][a-z]"),
    "where": re.compile(r"\b(?:in|at|on|near|behind|beside|under|above|opposite|next to)\b", re.IGNORECASE),
    "why": re.compile(
        r"\b(?:because|since|so|due|reasons?|causes?|therefore|otherwise|means?|when|if|for)\b", re.IGNORECASE
    ),
}
"""What a sentence must have to answer a question."""
_OPENING = re.compile(r"\A(?:find out|say|tell (?:me|us)|find|report)\s+", re.IGNORECASE)


def open_search(clause: Clause, tool: ToolCard, worker: WorkerCard) -> Account:
    """An account without the words that only ask or name where to look: the open words are what has to be found."""
    account = Account(clause)
    account.use_words(_ASKING)
    about = clause.about
    if about is not None:
        sources = _SOURCES | card_words(worker) | tool_words(tool)
        before = [at for at, token in account.open_words.items() if token.start < about.start()]
        if len(account.open_words) > len(before):
            account.use_span(about.start(), about.end())
            account.used.update(at for at in before if clause.tokens[at].key in sources)
    return account


def search_query(clause: Clause, tool: ToolCard, worker: WorkerCard) -> str:
    """What to search for: the words that have to be found, and those of periods."""
    words = [token.text for token in open_search(clause, tool, worker).open_words.values()]
    words += [word for period in clause.periods for word in period.text.split() if len(word) > 1]
    return " ".join(dict.fromkeys(words))


def accept_passages(
    clause: Clause, passages: Sequence[FoundPassage], tool: ToolCard, worker: WorkerCard
) -> Sequence[FoundPassage]:
    """The passages that account for every word of a clause."""
    place = "the archive" if tool.kind == "archive" else "the documents"
    wanted = open_search(clause, tool, worker).open_words.values()
    if not wanted:
        raise RefusedError(f"{place} cannot be searched for this: it names nothing to look for")
    if any(token.is_negation for token in wanted) and clause.question in _WANTS_EXACT:
        raise RefusedError(f"{place} cannot be asked what is not so")
    if clause.question == "who" and len(wanted) < 2:
        raise RefusedError(f"{place} cannot be searched for this: who it is takes more than one word to find")
    accepted: list[FoundPassage] = []
    said_somewhere: set[str] = set()
    for passage in passages:
        source = f"{passage.source.replace('-', ' ')} {' '.join(passage.tags)}"
        said_somewhere |= said_words(f"{source} {passage.text}")
        for text in _answering_texts(clause, passage):
            words = said_words(f"{source} {text}")
            account = open_search(clause, tool, worker)
            account.use_words(words)
            account.used_periods.update(period for period in clause.periods if said_words(period.text) <= words)
            if not account.leftover and passage not in accepted:
                accepted.append(passage)
    if accepted:
        return accepted[:_MOST_QUOTED]
    lacking = [token.text for token in wanted if token.key not in said_somewhere]
    lacking += [period.text for period in clause.periods if not said_words(period.text) <= said_somewhere]
    reason = f"no passage speaks of {join_words(lacking)}" if lacking else "no passage has all of it"
    asked = _OPENING.sub("", clause.text.rstrip("?. "))
    raise RefusedError(f"not found in {place}: {asked[:1].lower()}{asked[1:]}; {reason}")


def _answering_texts(clause: Clause, passage: FoundPassage) -> list[str]:
    """The sentences with what a question wants: an amount, a place, a reason; the whole passage for any other."""
    pattern = _WANTED.get(clause.question)
    if pattern is not None:
        return [sentence for sentence in split_sentences(passage.text) if pattern.search(sentence)]
    if clause.question == "how many":
        return []  # a number in the passage may be of something else
    return [passage.text]
