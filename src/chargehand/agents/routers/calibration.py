"""From a router's own measure to how likely it is right, learnt from requests that it has not stored.

On stored requests a router is nearly always right: what is learnt from them is worth nothing, so they are refused.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from chargehand.errors import Invalid

FEWEST = 20  # held-out requests, below which nothing is learnt from them
_ROUNDS = 50
_TRUST = 20.0  # requests of one worker at which its own threshold counts as much as that of all


class Calibration(Struct, frozen=True):
    """A logistic curve over log odds."""

    slope: float = 1.0
    offset: float = 0.0

    def confidence(self, odds: float) -> float:
        return _logistic(self.slope * odds + self.offset)


def apart(stored: Collection[str], held: Sequence[str]) -> None:
    """Raise Invalid where a request to calibrate with is one of those that are stored."""
    known = {_plain(text) for text in stored}
    if same := next((text for text in held if _plain(text) in known), None):
        raise Invalid(
            f"{same[:80]!r} is an example of a worker already; calibrate with requests that are not, or confidence "
            "comes out too high"
        )


def calibrated(odds: Sequence[float], right: Sequence[bool], start: Calibration | None = None) -> Calibration:
    """The curve through what was right (Platt's, with his smoothed targets); `start` itself, of too few."""
    start = start or Calibration()
    if len(odds) < FEWEST:
        return start
    hits = sum(right)
    high = (hits + 1.0) / (hits + 2.0)
    low = 1.0 / (len(right) - hits + 2.0)
    wanted = [high if one else low for one in right]
    slope = start.slope
    offset = start.offset
    for _ in range(_ROUNDS):
        turn, shift = _step(odds, wanted, slope, offset)
        if abs(turn) + abs(shift) < 1e-6:
            break
        loss = _loss(odds, wanted, slope, offset)
        while _loss(odds, wanted, slope - turn, offset - shift) > loss and abs(turn) + abs(shift) > 1e-6:
            # Newton's method goes too far where the curve is flat
            turn = turn / 2
            shift = shift / 2
        slope = slope - turn
        offset = offset - shift
    return Calibration(max(0.05, slope), offset)


def _loss(odds: Sequence[float], wanted: Sequence[float], slope: float, offset: float) -> float:
    total = 0.0
    for at, want in zip(odds, wanted, strict=True):
        value = slope * at + offset
        total += max(value, 0.0) - value * want + math.log1p(math.exp(-abs(value)))
    return total


def _step(odds: Sequence[float], wanted: Sequence[float], slope: float, offset: float) -> tuple[float, float]:
    """Where Newton's method goes from here; the loss is convex, and has two unknowns."""
    pull = lift = second = mixed = level = 0.0
    for at, want in zip(odds, wanted, strict=True):
        chance = _logistic(slope * at + offset)
        bend = chance * (1 - chance)
        pull = pull + (chance - want) * at
        lift = lift + chance - want
        second = second + bend * at * at
        mixed = mixed + bend * at
        level = level + bend
    # never flat
    second += 0.001
    level += 0.001
    whole = second * level - mixed * mixed
    return (level * pull - mixed * lift) / whole, (second * lift - mixed * pull) / whole


def thresholds(held: Mapping[str, Sequence[float]], kept: float) -> tuple[float, dict[str, float]]:
    """Below what so few requests lie that `kept` of them stay: for all, and for each as far as its own number tells."""
    every = sorted(one for many in held.values() for one in many)
    whole = _low(every, kept)
    own: dict[str, float] = {}
    for name, many in held.items():
        trust = len(many) / (len(many) + _TRUST)
        own[name] = trust * _low(sorted(many), kept) + (1 - trust) * whole if many else whole
    return whole, own


def _low(ranked: Sequence[float], kept: float) -> float:
    assert ranked, "nobody asks for a threshold of nothing"
    place = (1.0 - kept) * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (place - below) * (ranked[above] - ranked[below])


def _logistic(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, odds))))


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
