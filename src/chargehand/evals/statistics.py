"""How sure a figure is: Wilson's interval for shares, the bootstrap for means, the sign test for cases won and lost.

Randomness is passed in.
"""

import math
from collections.abc import Callable, Sequence
from random import Random

from chargehand.evals.report import Better, Measure, Score

_Z = 1.959964
"""95 % of a normal distribution lie within so many standard deviations."""
_DRAWS = 2000


def seeded_random(*parts: object) -> Random:
    """A source of randomness that is the same whenever these are."""
    return Random(" ".join(map(str, parts)))  # noqa: S311 - nothing is kept secret by it


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Wilson's score interval of a share; everything where nothing was seen."""
    if count <= 0:
        return 0.0, 1.0
    share = hits / count
    square = _Z * _Z
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _Z / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    return (middle - half if hits else 0.0), (middle + half if hits < count else 1.0)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """The least value that at least so large a share of them does not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else 0.0


def bootstrap(
    values: Sequence[float], random: Random, figure: Callable[[Sequence[float]], float] = mean
) -> tuple[float, float]:
    """The percentile interval of a figure, from samples drawn with replacement."""
    if len(set(values)) <= 1:
        figure_of_all = figure(values)
        return figure_of_all, figure_of_all
    drawn = sorted(figure(random.choices(values, k=len(values))) for _ in range(_DRAWS))
    tail = _tail(len(values))
    return quantile(drawn, tail), quantile(drawn, 1 - tail)


def _tail(count: int) -> float:
    """The share of draws to leave out at each end.

    Draws of few values spread too little: by as much as the t distribution is wider than the normal one, and the
    variance of a sample is smaller than that of its population.
    """
    free = count - 1
    wide = _Z + (_Z**3 + _Z) / (4 * free) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * free**2)
    return math.erfc(wide * math.sqrt(count / free) / math.sqrt(2)) / 2


def paired_difference(won: int, lost: int, count: int) -> tuple[float, float]:
    """The interval of the difference of two shares over the same cases (Bonett and Price)."""
    gain = (won + 1) / (count + 2)
    loss = (lost + 1) / (count + 2)
    half = _Z * math.sqrt((gain + loss - (gain - loss) ** 2) / (count + 2))
    seen = (won - lost) / count
    return max(-1.0, min(gain - loss - half, seen)), min(1.0, max(gain - loss + half, seen))


def sign_test(won: int, lost: int) -> float:
    """The exact two-sided probability of so uneven a split where winning and losing are equally likely."""
    both = won + lost
    return min(1.0, 2 * sum(math.comb(both, count) for count in range(min(won, lost) + 1)) / 2**both)


# --- measures over scores


def measure_share(name: str, hits: int, count: int, better: Better = "more") -> Measure:
    low, high = wilson(hits, count)
    value = hits / count if count else 0.0
    return Measure(name=name, value=value, low=low, high=high, count=count, better=better)


def measure_accuracy(scores: Sequence[Score]) -> Measure:
    """The share of cases that passed."""
    return measure_share("accuracy", sum(score.passed for score in scores), len(scores))


def measure_mean(name: str, values: Sequence[float], random: Random, better: Better = "more") -> Measure:
    low, high = bootstrap(values, random)
    return Measure(name=name, value=mean(values), low=low, high=high, count=len(values), better=better)


def measure_value(name: str, scores: Sequence[Score], random: Random, better: Better = "more") -> Measure:
    """The mean of a value by name, over the scores that have it."""
    return measure_mean(name, [score.values[name] for score in scores if name in score.values], random, better)


def measure_usd(scores: Sequence[Score], random: Random) -> list[Measure]:
    """Dollars a case; nothing where no cost is known."""
    known = [score.usd for score in scores if score.usd is not None]
    return [measure_mean("usd", known, random, "less")] if known else []
