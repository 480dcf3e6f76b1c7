"""Figures over scores, each with its interval. Which of them matter for a kind of cases is not known here."""

from collections.abc import Sequence
from random import Random

from chargehand.evals.chance import bootstrap, mean, wilson
from chargehand.evals.scores import Better, Measure, Score


def share(name: str, hits: int, count: int, better: Better = "more") -> Measure:
    """So many of so many."""
    low, high = wilson(hits, count)
    return Measure(name, hits / count if count else 0.0, low, high, count, better)


def accuracy(scores: Sequence[Score]) -> Measure:
    """How many cases passed."""
    return share("accuracy", sum(one.passed for one in scores), len(scores))


def averaged(name: str, scores: Sequence[Score], random: Random, better: Better = "more") -> Measure:
    """The mean of a value that cases have."""
    values = [one.values[name] for one in scores if name in one.values]
    low, high = bootstrap(values, random)
    return Measure(name, mean(values), low, high, len(values), better)


def usd(scores: Sequence[Score], random: Random) -> tuple[Measure, ...]:
    """Dollars a case; nothing where nobody knows."""
    known = [one.micros / 1_000_000 for one in scores if one.micros is not None]
    if not known:
        return ()
    low, high = bootstrap(known, random)
    return (Measure("usd", mean(known), low, high, len(known), "less"),)
