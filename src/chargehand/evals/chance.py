"""How sure a figure is: Wilson's interval for shares, the bootstrap for means, exact odds for cases won and lost.

Chance is passed in.
"""

import math
from collections.abc import Callable, Sequence
from random import Random

_Z = 1.959964  # 95 % of a normal distribution lie within so many deviations
_DRAWS = 2000


def seeded_by(*parts: object) -> Random:
    """Chance that is the same whenever these are."""
    return Random(" ".join(map(str, parts)))  # noqa: S311 - nothing is kept secret by it


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Between what the true share lies, when so many of so many were seen; everything where nothing was seen."""
    if count <= 0:
        return 0.0, 1.0
    share, square = hits / count, _Z * _Z
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
    """Between what a figure of these values lies, drawing as many of them anew again and again."""
    if len(set(values)) <= 1:
        found = figure(values)
        return found, found
    drawn = sorted(figure(random.choices(values, k=len(values))) for _ in range(_DRAWS))
    tail = _tail(len(values))
    return quantile(drawn, tail), quantile(drawn, 1 - tail)


def _tail(count: int) -> float:
    """The share of draws to leave out at each end.

    Draws of few values spread too little: by as much as the t distribution is wider than the normal one, and the
    variance of a sample is smaller than that of what it was taken from.
    """
    free = count - 1
    wide = _Z + (_Z**3 + _Z) / (4 * free) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * free**2)
    return math.erfc(wide * math.sqrt(count / free) / math.sqrt(2)) / 2


def turned(won: int, lost: int, count: int) -> tuple[float, float]:
    """Between what the difference of two shares lies, of the same cases tried twice (Bonett and Price)."""
    gain, loss = (won + 1) / (count + 2), (lost + 1) / (count + 2)
    half = _Z * math.sqrt((gain + loss - (gain - loss) ** 2) / (count + 2))
    seen = (won - lost) / count
    return max(-1.0, min(gain - loss - half, seen)), min(1.0, max(gain - loss + half, seen))


def odds(won: int, lost: int) -> float:
    """How likely so lopsided a split is where winning and losing are equally likely: the exact sign test."""
    both = won + lost
    return min(1.0, 2 * sum(math.comb(both, one) for one in range(min(won, lost) + 1)) / 2**both)
