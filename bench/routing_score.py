"""Figures from judged requests: accuracy, how well strangers are told, and how many are caught."""

import numpy
from msgspec import Struct


class Judged(Struct, frozen=True):
    """`right` of the test part, how much at `home` its requests are, the `usual` (validation) and `strange` ones."""

    right: numpy.ndarray
    home: numpy.ndarray
    usual: numpy.ndarray
    strange: numpy.ndarray
    sure: numpy.ndarray


def accuracy(seen: Judged) -> float:
    return 100 * float(seen.right.mean())


def ranked(seen: Judged) -> float:
    """AUROC: how often a request that is somebody's is more at home than one that is nobody's. Ties count half."""
    strange = numpy.sort(seen.strange)
    below = numpy.searchsorted(strange, seen.home, "left")
    level = numpy.searchsorted(strange, seen.home, "right") - below
    return 100 * float((below + level / 2).mean()) / len(strange)


def caught(seen: Judged, kept: float = 0.95) -> tuple[float, float]:
    """Strangers below the threshold that keeps so much of the validation part; and what it keeps of the test part."""
    threshold = numpy.quantile(seen.usual, 1 - kept)
    return 100 * float((seen.strange < threshold).mean()), 100 * float((seen.home >= threshold).mean())
