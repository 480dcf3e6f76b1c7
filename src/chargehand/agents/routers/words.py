"""Routing by words: how telling the words are that a request shares with what workers say. Needs no library."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from chargehand.agents.routers.decision import Decision, nobody, shared
from chargehand.agents.routers.texts import said
from chargehand.models.offline.mistyped import meant
from chargehand.models.offline.words import spoken, terms
from chargehand.models.subject import WorkerCard
from chargehand.tools.threads import THREADS

_ONE_TEXT = 0.6  # how much the nearest single text counts; the rest is all that the worker says, together
_SURE = 0.4  # of a request's words, that a worker knows: then nothing is taken off the confidence
_LONGEST = 60.0  # seconds
_SHARPER = 3.0  # the power that makes scores into shares: of two scores, twice the one is eight times as likely


class Lexicon:
    """What workers say, by word. Cheap to make; a request costs as much as its words are common."""

    def __init__(self, cards: Sequence[WorkerCard]) -> None:
        self._cards = cards
        texts: list[tuple[int, Counter[str]]] = []
        wholes: list[Counter[str]] = []
        for at, (card, one) in enumerate(zip(cards, said(cards), strict=True)):
            lines = [*one.phrases, *one.examples, card.name]
            texts.extend((at, Counter(terms(line))) for line in lines)
            wholes.append(Counter(terms(" ".join([*lines, *card.tags]))))
        held = Counter(term for whole in wholes for term in whole)
        self._weights = {term: math.log(1 + len(cards) / count) for term, count in held.items()}
        self._known = [frozenset(whole) for whole in wholes]
        self._places: dict[str, list[tuple[int, int, float]]] = {}
        for number, (at, counted) in enumerate(texts):
            for term, weight in self._unit(counted).items():
                self._places.setdefault(term, []).append((number, at, weight))

    def decide(self, text: str) -> Decision:
        text, _ = meant(text, self._cards)
        asked = Counter(terms(text))
        best = self._nearest(self._unit(asked))
        rare = math.log(1 + len(self._cards))  # a word nobody knows tells as much as one that one worker knows
        weights = {term: self._weights.get(term, rare) for term in asked}
        covered = {at: _share(weights, self._known[at]) for at in best}
        totals = {self._cards[at].name: _ONE_TEXT * best[at] + (1 - _ONE_TEXT) * covered[at] for at in best}
        scores = shared({name: total**_SHARPER for name, total in totals.items()})
        if not scores:
            return nobody("words", "nobody uses a word of the request")
        worker, share = scores[0]
        at = next(at for at in best if self._cards[at].name == worker)
        common = sorted(self._known[at] & asked.keys(), key=lambda term: (-weights[term], term))[:6]
        whole = spoken(text)
        words = ", ".join(whole.get(term, term) for term in common)
        second = scores[1][0] if len(scores) > 1 else None
        sure = min(1.0, max(best[at], covered[at]) / _SURE)
        return Decision(worker, second, round(share * sure, 4), scores, f"{worker} speaks of: {words}", "words")

    def _nearest(self, asked: Mapping[str, float]) -> dict[int, float]:
        """The cosine of the nearest text of each worker that shares a word."""
        sums: dict[int, float] = {}
        owner: dict[int, int] = {}
        for term, weight in asked.items():
            for number, at, own in self._places.get(term, ()):
                sums[number] = sums.get(number, 0.0) + weight * own
                owner[number] = at
        best: dict[int, float] = {}
        for number, total in sums.items():
            best[owner[number]] = max(best.get(owner[number], 0.0), total)
        return best

    def _unit(self, counted: Mapping[str, int]) -> dict[str, float]:
        rare = math.log(1 + len(self._cards))
        found = {term: (1 + math.log(count)) * self._weights.get(term, rare) for term, count in counted.items()}
        long = math.sqrt(sum(one * one for one in found.values()))
        return {term: one / long for term, one in found.items()} if long else {}


def _share(weights: Mapping[str, float], known: frozenset[str]) -> float:
    whole = sum(weights.values())
    return sum(weight for term, weight in weights.items() if term in known) / whole if whole else 0.0


async def by_words(text: str, cards: Sequence[WorkerCard]) -> Decision:
    """Beside the event loop: thousands of examples take half a second to read."""
    found: Decision = await THREADS.call(lambda: Lexicon(cards).decide(text), {}, _LONGEST)
    return found
