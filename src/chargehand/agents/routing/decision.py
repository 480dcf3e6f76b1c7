"""What a router decided, the confirmed examples of a team, and how the load of workers may shift a decision."""

import logging
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, structs

from chargehand.errors import StoreError
from chargehand.journal.protocol import RouteExamples
from chargehand.models.request_facts import WorkerCard
from chargehand.runtime.load import WorkerLoad

logger = logging.getLogger(__name__)

MOST_SCORES = 10  # kept with a decision
# A rival's share of belief, as a fraction of that of the worker chosen first:
_NEAR = 0.5  # below it no load makes up for the worse fit
_TIE = 0.9  # from here on both fit equally well
# how much more strained the first must be: usually, and in a tie
_STRAIN = 0.5
_LITTLE = 0.15


class Decision(Struct, frozen=True):
    """The worker a router chose for a request."""

    worker: str | None
    """None: no worker fits."""
    second: str | None
    """The next best."""
    confidence: float
    """How likely the worker is right."""
    scores: tuple[tuple[str, float], ...]
    """Shares of belief, the best first; they add up to one at most."""
    why: str
    """In words."""
    router: str


async def with_confirmed(cards: Sequence[WorkerCard], store: RouteExamples) -> list[WorkerCard]:
    """The cards with the confirmed examples of their workers. A store that fails does not fail the route."""
    try:
        examples = await store.list()
    except StoreError as error:
        logger.warning("confirmed examples cannot be read: %s", error)
        return list(cards)
    requests: dict[str, list[str]] = {}
    for example in examples:
        requests.setdefault(example.worker, []).append(example.request)
    return [structs.replace(card, confirmed=tuple(requests.get(card.name, ()))) for card in cards]


def share_scores(totals: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Scores as shares of their sum, the best first; ties keep the order of the team."""
    whole = sum(totals.values())
    ranked = sorted(totals.items(), key=lambda item: -item[1])
    return tuple((name, round(score / whole, 4)) for name, score in ranked[:MOST_SCORES] if score > 0)


def choose(router: str, scores: Sequence[tuple[str, float]], confidence: float, why: str) -> Decision:
    """The best of these, and the next."""
    worker, *others = (name for name, _ in scores)
    second = others[0] if others else None
    return Decision(worker=worker, second=second, confidence=confidence, scores=tuple(scores), why=why, router=router)


def pool_equals(decision: Decision, equals: Collection[str]) -> Decision:
    """Return a decision that is as sure as all workers together that fit as well as the chosen one, for equal reasons.

    Which of them gets the request is decided by their load.
    """
    shares = dict(decision.scores)
    first = shares.get(decision.worker or "", 0.0)
    pool = [name for name, share in decision.scores if name in equals and share >= _TIE * first]
    if len(pool) < 2:
        return decision
    confidence = min(1.0, decision.confidence * sum(shares[name] for name in pool) / first)
    others = ", ".join(name for name in pool if name != decision.worker)
    why = f"{decision.why}; {others} fit{'s' if len(pool) == 2 else ''} as well"
    return structs.replace(decision, confidence=round(confidence, 4), why=why)


def no_worker(router: str, why: str, scores: Sequence[tuple[str, float]] = ()) -> Decision:
    return Decision(worker=None, second=None, confidence=0.0, scores=tuple(scores), why=why, router=router)


# --- the load


def shift_by_load(decision: Decision, load: Mapping[str, WorkerLoad]) -> Decision:
    """Another worker instead of the first, where it fits about as well and the first is busy, failing or out of order.

    In a tie the less busy worker is chosen.
    """
    first = decision.worker
    if first is None or decision.second is None or not load:
        return decision
    shares = dict(decision.scores)
    whole = shares.get(first) or 1.0
    rivals = [(name, load.get(name, WorkerLoad()), share / whole) for name, share in decision.scores if name != first]
    rivals.sort(key=lambda rival: (rival[1].strain, rival[1].crowd))  # of equals, the one that fits best stays first
    for name, rival_load, share in rivals:
        if why := _shift_reason(load.get(first, WorkerLoad()), rival_load, share):
            text = f"{decision.why}; {name} instead of {first}, which fits about as well, because it is {why}"
            return structs.replace(decision, worker=name, second=first, why=f"{text}: {load_text((first, name), load)}")
    return decision


def _shift_reason(first: WorkerLoad, rival: WorkerLoad, share: float) -> str:
    """Why a rival with this fraction of the first's share is chosen instead; empty: it is not."""
    if share < _NEAR:
        return ""
    relief = first.strain - rival.strain
    is_full = rival.concurrency > 0 and rival.crowd >= 1
    if relief >= 0 and (share >= _TIE or is_full):  # both may be full, and the line before one of them the longer
        relief = max(relief, first.crowd - rival.crowd)
    if relief < (_LITTLE if share >= _TIE else _STRAIN):
        return ""
    return "in order" if first.shut else "less busy, or fails less"


def is_out_of_order(decision: Decision, load: Mapping[str, WorkerLoad]) -> bool:
    """Whether the breaker of the chosen worker is open, so that any other worker would be better."""
    return decision.worker is not None and load.get(decision.worker, WorkerLoad()).shut


def load_text(names: Sequence[str], load: Mapping[str, WorkerLoad]) -> str:
    """The load of some workers in words."""
    return ", ".join(f"{name} {load[name]}" if name in load else f"{name} idle" for name in names)
