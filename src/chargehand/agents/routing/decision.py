"""What a router decided, and how the load of workers may shift it. Where the load is known from is not known here."""

import logging
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from chargehand.errors import StoreError
from chargehand.journal.route_examples import RouteExamples
from chargehand.models.request_facts import WorkerCard
from chargehand.runtime.load import WorkerLoad

logger = logging.getLogger(__name__)

MOST_SCORES = 10  # that are kept with a decision: nobody reads more
_NEAR = 0.5  # somebody's share of belief, of the first's: below it no load makes up for the worse fit
_TIE = 0.9  # from here on it hardly matters who of the two does it
# how much more strained the first must be: usually, and where it hardly matters who
_STRAIN = 0.5
_LITTLE = 0.15
_MARKED = 1.5  # times as slow or as dear, to break a tie by that


class Decision(Struct, frozen=True):
    """Who should do it, and who would be next (None: nobody).

    `scores` are shares of belief, the best first; they add up to one at most. `confidence` is how likely the first is
    right. `why` is in words.
    """

    worker: str | None
    second: str | None
    confidence: float
    scores: tuple[tuple[str, float], ...]
    why: str
    router: str


class ConfirmedExamples:
    """The examples of one team. What cannot be read does not stand in a route's way."""

    def __init__(self, store: RouteExamples) -> None:
        self._store = store

    async def extend(self, cards: Sequence[WorkerCard]) -> list[WorkerCard]:
        """The cards with the confirmed examples of their workers."""
        try:
            examples = await self._store.list()
        except StoreError as error:
            logger.warning("confirmed examples cannot be read: %s", error)
            return list(cards)
        requests: dict[str, list[str]] = {}
        for example in examples:
            requests.setdefault(example.worker, []).append(example.request)
        return [structs.replace(card, confirmed=tuple(requests.get(card.name, ()))) for card in cards]

    async def fitted(self, key: str) -> bytes | None:
        try:
            return await self._store.fitted(key)
        except StoreError as error:
            logger.info("the router is fitted anew: %s", error)
            return None

    async def keep_fitted(self, key: str, body: bytes) -> None:
        try:
            await self._store.keep_fitted(key, body)
        except StoreError as error:
            logger.warning("the fitted router is not kept: %s", error)


def shared(totals: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Scores as shares of their sum, the best first; ties keep the order of the team."""
    whole = sum(totals.values())
    ranked = sorted(totals.items(), key=lambda one: -one[1])
    return tuple((name, round(score / whole, 4)) for name, score in ranked[:MOST_SCORES] if score > 0)


def choose(router: str, scores: Sequence[tuple[str, float]], confidence: float, why: str) -> Decision:
    """The best of these, and the next."""
    worker, *others = (name for name, _ in scores)
    second = others[0] if others else None
    return Decision(worker=worker, second=second, confidence=confidence, scores=tuple(scores), why=why, router=router)


def nobody(router: str, why: str, scores: Sequence[tuple[str, float]] = ()) -> Decision:
    return Decision(worker=None, second=None, confidence=0.0, scores=tuple(scores), why=why, router=router)


# --- the load


def shifted(decision: Decision, load: Mapping[str, WorkerLoad]) -> Decision:
    """Another instead of the first, where it fits about as well and the first is busy, failing or out of order.

    Where it hardly matters who does it, the less busy one does, or the quicker, or the cheaper.
    """
    first = decision.worker
    if first is None or decision.second is None or not load:
        return decision
    shares = dict(decision.scores)
    one = load.get(first, WorkerLoad())
    named = (decision.second, *shares)
    rivals = [name for name in dict.fromkeys(named) if name != first and shares.get(name, 0.0) > 0]
    whole = shares.get(first, 1.0)
    better: list[tuple[float, float, str, str]] = []
    for name in rivals:
        other = load.get(name, WorkerLoad())
        if why := _why(one, other, shares[name] / whole if whole > 0 else 0.0):
            better.append((other.strain, other.crowd, name, why))
    if not better:
        return decision
    *_, name, why = min(better, key=lambda each: each[:2])  # of equals the one that fits best, which comes first
    told = f"{decision.why}; {name} instead of {first}, which fits about as well, because it is {why}"
    return structs.replace(decision, worker=name, second=first, why=f"{told}: {seen((first, name), load)}")


def _why(one: WorkerLoad, other: WorkerLoad, share: float) -> str:
    """Why somebody whose share of belief is so much of the first's gets it instead; nothing: it does not."""
    if share < _NEAR:
        return ""
    relief = one.strain - other.strain
    if share >= _TIE and relief >= 0:  # both may be full, and the line before one of them the longer
        relief = max(relief, one.crowd - other.crowd)
    if relief >= (_LITTLE if share >= _TIE else _STRAIN):
        return "in order" if one.shut else "less busy, or fails less"
    if share < _TIE or relief <= -_LITTLE or not (one.known and other.known):
        return ""
    if one.seconds is not None and other.seconds is not None and one.seconds > _MARKED * other.seconds:
        return "quicker"
    alike = one.seconds is None or other.seconds is None or _MARKED * one.seconds >= other.seconds
    dearer = one.micros is not None and other.micros is not None and one.micros > _MARKED * other.micros
    return "cheaper" if alike and dearer else ""


def out_of_order(decision: Decision, load: Mapping[str, WorkerLoad]) -> bool:
    """Whether whom it came to is not asked for now, so that anybody else would be better."""
    return decision.worker is not None and load.get(decision.worker, WorkerLoad()).shut


def seen(names: Sequence[str], load: Mapping[str, WorkerLoad]) -> str:
    """What is known of some of them, in words; nothing where there is nothing to tell."""
    return ", ".join(f"{name} {load[name]}" if name in load else f"{name} idle" for name in names)
