"""What a card says of a worker, as short texts to compare requests with. How they are compared is not known here."""

import re
from collections.abc import Sequence

from msgspec import Struct

from chargehand.models.subject import WorkerCard
from chargehand.text.sentences import split_sentences
from chargehand.tools.remember import NAMES as MEMORY_TOOLS

# Where a sentence lists what somebody does. `like` lists too, but is a verb as well: both readings cost little.
_CLAUSE = re.compile(
    r"\s*(?:[,:;()\u2013\u2014]|\be\.g\.|\b(?:such as|for example|for instance|including|like|as well as|and|or"
    r"|und|oder|sowie|wie|zum Beispiel|et|ou|tels? que|par exemple)\b)[\s,:]*",
    re.IGNORECASE,
)
_SENTENCE_ENDS = ".!?;"
_LONGEST = 600  # characters of one text
_MOST = 40  # texts taken from descriptions; phrases and examples are taken all


class Said(Struct, frozen=True):
    """`phrases` are what the worker says it can do, `examples` requests that were its."""

    worker: str
    phrases: tuple[str, ...]
    examples: tuple[str, ...]
    clauses: tuple[str, ...] = ()  # the parts of its description: a request is about one thing of many
    described: bool = False  # all that is declared of it is a description: no skill phrases, no examples


def said(cards: Sequence[WorkerCard]) -> tuple[Said, ...]:
    """The texts of each card. Its name counts only where it says nothing else: names of people mean nothing."""
    return tuple(_of(card) for card in cards)


def _of(card: WorkerCard) -> Said:
    # everybody in a team may have the tools of memory: they tell nobody apart
    skills = [skill for skill in card.skills if skill.name not in MEMORY_TOOLS]
    tools = [_first_sentence(skill.description) or _plain(skill.name) for skill in skills]
    sentences = split_sentences(card.description, _SENTENCE_ENDS)
    phrases = _tidy([*card.phrases, *[*sentences, *tools][:_MOST]])
    clauses = _tidy([clause for sentence in sentences for clause in _clauses(sentence)])[:_MOST]
    examples = _tidy([*card.examples, *card.confirmed])
    described = bool(phrases) and not card.phrases and not card.examples
    if not phrases and not examples:
        phrases = _tidy([_plain(card.name), *card.tags])
    return Said(worker=card.name, phrases=phrases, examples=examples, clauses=clauses, described=described)


def _first_sentence(description: str) -> str:
    return next(iter(split_sentences(description, _SENTENCE_ENDS)), "")


def _clauses(sentence: str) -> list[str]:
    """What a sentence lists; nothing where it says one thing."""
    clauses = [clause.strip(" .!?") for clause in _CLAUSE.split(sentence)]
    return clauses if len(clauses) > 1 else []


def _plain(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")


def _tidy(texts: Sequence[str]) -> tuple[str, ...]:
    plain = (" ".join(text.split())[:_LONGEST] for text in texts)
    return tuple(dict.fromkeys(text for text in plain if text))
