"""What a router decided, and how the load of workers may shift it. Where the load is known from is not known here."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

MOST_SCORES = 10  # that are kept with a decision: nobody reads more
_NEAR = 0.5  # the second's share of belief, of the first's: below it no load makes up for the worse fit
_STRAIN = 0.5  # how much more strained the first must be


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


class Load(Struct, frozen=True):
    """How busy and how well somebody is: tasks at work, at most so many (0: no limit), the share of late failures."""

    busy: int = 0
    capacity: int = 0
    failures: float = 0.0

    @property
    def strain(self) -> float:
        """0 for idle and healthy, 2 for full and failing."""
        full = min(1.0, self.busy / self.capacity) if self.capacity else 0.0
        return full + min(1.0, max(0.0, self.failures))

    def __str__(self) -> str:
        said = [f"{self.busy} of {self.capacity} at work" if self.capacity else f"{self.busy} at work"]
        return ", ".join([*said, f"{self.failures:.0%} failed lately"] if self.failures else said)


def shared(totals: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Scores as shares of their sum, the best first; ties keep the order of the team."""
    whole = sum(totals.values())
    ranked = sorted(totals.items(), key=lambda one: -one[1])
    return tuple((name, round(score / whole, 4)) for name, score in ranked[:MOST_SCORES] if score > 0)


def nobody(router: str, why: str, scores: Sequence[tuple[str, float]] = ()) -> Decision:
    return Decision(None, None, 0.0, tuple(scores), why, router)


def shifted(decision: Decision, load: Mapping[str, Load]) -> Decision:
    """The second instead of the first, where it fits about as well and the first is busy or unhealthy."""
    first, second = decision.worker, decision.second
    if first is None or second is None:
        return decision
    shares = dict(decision.scores)
    one, other = load.get(first, Load()), load.get(second, Load())
    near = shares.get(second, 0.0) >= _NEAR * shares.get(first, 1.0) > 0
    if not near or one.strain - other.strain < _STRAIN:
        return decision
    why = f"{decision.why}; {second} instead of {first}, which fits about as well: {first} {one}, {second} {other}"
    return structs.replace(decision, worker=second, second=first, why=why)
