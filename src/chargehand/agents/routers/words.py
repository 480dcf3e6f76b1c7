"""Routing by words: how telling the words are that a request shares with what workers say. Needs no library."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from chargehand.agents.routers.decision import Decision, nobody, shared
from chargehand.agents.routers.texts import said
from chargehand.models.subject import WorkerCard
from chargehand.text.words import stems, words_by_stem
from chargehand.tools.threads import THREADS

_ONE_TEXT = 0.6  # how much the nearest single text counts; the rest is all that the worker says, together
_SURE = 0.4  # of a request's words, that a worker knows: then nothing is taken off the confidence
_LONGEST = 60.0  # seconds
_SHARPER = 3.0  # the power that makes scores into shares: of two scores, twice the one is eight times as likely


_LEAST_SHARE = 0.1  # added to each share where shares are multiplied: words alone shut nobody out


class _Overlap(Struct, frozen=True):
    """Workers that share a word with a request: their place, what their share goes by, how much of it they know."""

    places: dict[str, int]
    powers: dict[str, float]
    known: dict[str, float]

    def sureness(self, worker: str) -> float:
        return min(1.0, self.known[worker] / _SURE)


class Lexicon:
    """What workers say, by word. Cheap to make; a request costs as much as its words are common."""

    def __init__(self, cards: Sequence[WorkerCard]) -> None:
        self._cards = cards
        texts: list[tuple[int, Counter[str]]] = []
        wholes: list[Counter[str]] = []
        for at, (card, one) in enumerate(zip(cards, said(cards), strict=True)):
            lines = [*one.phrases, *one.examples, card.name]
            texts.extend((at, Counter(stems(line))) for line in lines)
            wholes.append(Counter(stems(" ".join([*lines, *card.tags]))))
        held = Counter(term for whole in wholes for term in whole)
        self._weights = {term: math.log(1 + len(cards) / count) for term, count in held.items()}
        self._known = [frozenset(whole) for whole in wholes]
        self._places: dict[str, list[tuple[int, int, float]]] = {}
        for number, (at, counted) in enumerate(texts):
            for term, weight in self._unit(counted).items():
                self._places.setdefault(term, []).append((number, at, weight))

    def decide(self, text: str) -> Decision:
        asked = Counter(stems(text))
        overlap = self._overlap(asked)
        scores = shared(overlap.powers)
        if not scores:
            return nobody("words", "nobody uses a word of the request")
        worker, share = scores[0]
        at = overlap.places[worker]
        common = sorted(self._known[at] & asked.keys(), key=lambda term: (-self._weight(term), term))[:6]
        whole = words_by_stem(text)
        words = ", ".join(whole.get(term, term) for term in common)
        second = scores[1][0] if len(scores) > 1 else None
        confidence = round(share * overlap.sureness(worker), 4)
        return Decision(
            worker=worker,
            second=second,
            confidence=confidence,
            scores=scores,
            why=f"{worker} speaks of: {words}",
            router="words",
        )

    def best_fit(self, text: str) -> tuple[str, float]:
        """The worker that knows most of the words of a text, and which share of them, by how telling they are."""
        overlap = self._overlap(Counter(stems(text)))
        if not overlap.powers:
            return "", 0.0
        worker = max(overlap.powers, key=overlap.powers.__getitem__)
        return worker, overlap.known[worker]

    def log_shares(self, text: str) -> list[float]:
        """What words add to the logits of another router, for each worker; nothing where they tell nothing."""
        overlap = self._overlap(Counter(stems(text)))
        total = sum(overlap.powers.values())
        if not total:
            return [0.0] * len(self._cards)
        best = max(overlap.powers, key=overlap.powers.__getitem__)
        weight = overlap.sureness(best)
        return [weight * math.log(overlap.powers.get(card.name, 0.0) / total + _LEAST_SHARE) for card in self._cards]

    def _overlap(self, asked: Mapping[str, int]) -> "_Overlap":
        nearest = self._nearest(self._unit(asked))
        weights = {term: self._weight(term) for term in asked}
        covered = {at: _share(weights, self._known[at]) for at in nearest}
        names = {at: self._cards[at].name for at in nearest}
        return _Overlap(
            places={name: at for at, name in names.items()},
            powers={
                name: (_ONE_TEXT * nearest[at] + (1 - _ONE_TEXT) * covered[at]) ** _SHARPER
                for at, name in names.items()
            },
            known={name: max(nearest[at], covered[at]) for at, name in names.items()},
        )

    def _weight(self, term: str) -> float:
        """How telling a word is. One that nobody knows tells as much as one that a single worker knows."""
        return self._weights.get(term, math.log(1 + len(self._cards)))

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
        found = {term: (1 + math.log(count)) * self._weight(term) for term, count in counted.items()}
        long = math.sqrt(sum(one * one for one in found.values()))
        return {term: one / long for term, one in found.items()} if long else {}


def _share(weights: Mapping[str, float], known: frozenset[str]) -> float:
    whole = sum(weights.values())
    return sum(weight for term, weight in weights.items() if term in known) / whole if whole else 0.0


async def by_words(text: str, cards: Sequence[WorkerCard]) -> Decision:
    """Beside the event loop: thousands of examples take half a second to read."""
    found: Decision = await THREADS.call(lambda: Lexicon(cards).decide(text), {}, _LONGEST)
    return found
