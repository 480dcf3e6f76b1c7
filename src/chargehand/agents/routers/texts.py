"""What a card says of a worker, as short texts to compare requests with. How they are compared is not known here."""

import re
from collections.abc import Sequence

from msgspec import Struct

from chargehand.models.offline.remembering.family import bare
from chargehand.models.subject import WorkerCard

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_LONGEST = 600  # characters of one text
_MOST = 40  # texts taken from descriptions; phrases and examples are taken all


class Said(Struct, frozen=True):
    """`phrases` are what the worker says it can do, `examples` requests that were its."""

    worker: str
    phrases: tuple[str, ...]
    examples: tuple[str, ...]


def said(cards: Sequence[WorkerCard]) -> tuple[Said, ...]:
    """The texts of each card. Its name counts only where it says nothing else: names of people mean nothing."""
    return tuple(_of(bare(card)) for card in cards)


def _of(card: WorkerCard) -> Said:
    tools = [(_SENTENCE.split(one.description.strip()) or [""])[0] or _plain(one.name) for one in card.skills]
    told = [*_SENTENCE.split(card.does), *tools][:_MOST]
    phrases = _tidy([*card.phrases, *told])
    examples = _tidy(card.examples)
    if not phrases and not examples:
        phrases = _tidy([_plain(card.name), *card.tags])
    return Said(card.name, phrases, examples)


def _plain(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")


def _tidy(texts: Sequence[str]) -> tuple[str, ...]:
    plain = (" ".join(text.split())[:_LONGEST] for text in texts)
    return tuple(dict.fromkeys(text for text in plain if text))
