"""What is measured over scores, with an interval for each figure: Wilson's for shares, the bootstrap for the rest.

Randomness is passed in.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal

from msgspec import Struct

from chargehand.evals.cases import KINDS, Kind
from chargehand.evals.report import Better, Measure, Score, Section, Table, format_figure

OUT = "out of scope"
"""What stands for no worker in tables."""
_Z = 1.959964
"""95 % of a normal distribution lie within so many standard deviations."""
_DRAWS = 2000
_MATRIX_LABELS = 12
_MISTAKES_SHOWN = 20


# --- statistics


def seeded_random(*parts: object) -> Random:
    """A source of randomness that is the same whenever these are."""
    return Random(" ".join(map(str, parts)))  # noqa: S311 - nothing is kept secret by it


def wilson(hits: float, count: int) -> tuple[float, float]:
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
    values: Sequence[Any], random: Random, figure: Callable[[Sequence[Any]], float] = mean
) -> tuple[float, float]:
    """The percentile interval of a figure, from samples drawn with replacement."""
    if len(set(values)) <= 1:
        return figure(values), figure(values)
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


# --- metrics


def _p95(values: Sequence[float]) -> float:
    return quantile(values, 0.95)


def macro_f1(labels: Sequence[tuple[str, str]]) -> float:
    """The mean F1 of the labels that were wanted: a rare one counts as much as a common one."""
    counts = Counter(labels)
    wanted = Counter(label for label, _ in labels)
    got = Counter(label for _, label in labels)
    return mean([2 * counts[name, name] / (wanted[name] + got[name]) for name in wanted])


def _labels(score: Score) -> tuple[str, str] | None:
    return None if score.error else (score.wanted, score.got)


class Metric(Struct, frozen=True):
    """A figure that is taken over the cases of some kinds."""

    name: str
    kinds: tuple[Kind, ...]
    scale: Literal["share", "fraction", "number"]
    """A share counts cases, a fraction lies between 0 and 1 for each case; both are shown in percent."""
    better: Better = "more"
    read: Callable[[Score], Any] | None = None
    """What is read from a score; the value of the metric's name where nothing else is said."""
    figure: Callable[[Sequence[Any]], float] = mean

    def values(self, scores: Sequence[Score]) -> list[Any]:
        values = [score.value(self.name) if self.read is None else self.read(score) for score in scores]
        return [value for value in values if value is not None]


_ANSWERS: tuple[Kind, ...] = ("worker", "run")
METRICS = (
    Metric("accuracy", KINDS, "share"),
    Metric("out_of_scope", ("routing",), "share"),
    Metric("refused", ("routing",), "share", "less"),
    Metric("macro_f1", ("routing",), "fraction", read=_labels, figure=macro_f1),
    Metric("confidence", ("routing",), "fraction"),
    Metric("workers", ("plan",), "fraction"),
    Metric("edges", ("plan",), "fraction"),
    Metric("width", ("plan",), "number"),
    Metric("needless", ("plan",), "number", "less"),
    Metric("vague", ("plan",), "number", "less"),
    Metric("unserved", ("plan",), "number", "less"),
    Metric("caught", ("verifier",), "share"),
    Metric("false_alarms", ("verifier",), "share", "less"),
    Metric("usd", KINDS, "number", "less"),
    Metric("seconds", _ANSWERS, "number", "less"),
    Metric("seconds_p95", _ANSWERS, "number", "less", read=lambda score: score.value("seconds"), figure=_p95),
    Metric("coverage", _ANSWERS, "fraction"),
    Metric("gaps", _ANSWERS, "number", "less"),
    Metric("failure_modes", ("run",), "number", "less"),
    Metric("regressions", KINDS, "number", "less", read=lambda _: None),
)
"""What can be measured. Regressions are counted against a baseline."""
METRICS_BY_NAME = {metric.name: metric for metric in METRICS}


def metrics_of(kind: Kind) -> list[str]:
    return [metric.name for metric in METRICS if kind in metric.kinds]


def report_section(dataset: str, kind: Kind, scores: Sequence[Score], seed: int) -> Section:
    """The scores of the cases of one kind, with what is measured over them."""
    random = seeded_random(seed, dataset, kind)
    measures: list[Measure] = []
    for metric in METRICS:
        values = metric.values(scores) if kind in metric.kinds else []
        if values:
            measures.append(_take_measure(metric, values, random))
    tried = [score for score in scores if not score.error]
    tables = _TABLES[kind](tried) if tried else ()
    return Section(dataset=dataset, kind=kind, scores=tuple(scores), measures=tuple(measures), tables=tables)


def _take_measure(metric: Metric, values: Sequence[Any], random: Random) -> Measure:
    if metric.scale == "share":
        low, high = wilson(sum(values), len(values))
    else:
        low, high = bootstrap(values, random, metric.figure)
    return Measure(
        name=metric.name,
        value=metric.figure(values),
        low=low,
        high=high,
        count=len(values),
        better=metric.better,
        percent=metric.scale != "number",
    )


# --- tables


def _case_tables(title: str, *columns: str) -> Callable[[Sequence[Score]], tuple[Table, ...]]:
    """A row for each case, with these values."""

    def make_table(scores: Sequence[Score]) -> tuple[Table, ...]:
        rows: list[tuple[str, ...]] = []
        for score in scores:
            values = [(name, score.value(name)) for name in columns]
            cells = ["?" if value is None else _format(name, value) for name, value in values]
            rows.append((score.case, "passed" if score.passed else "failed", *cells))
        return (Table(title, ("case", "", *columns), tuple(rows)),)

    return make_table


def _format(name: str, value: float) -> str:
    metric = METRICS_BY_NAME.get(name)
    return format_figure(value, percent=metric is not None and metric.scale != "number")


def _mistake_tables(scores: Sequence[Score]) -> tuple[Table, ...]:
    """What checks made of right results and of each kind of wrong ones."""
    results = Counter(score.mistake for score in scores)
    passed = Counter(score.mistake for score in scores if score.passed)
    rows = tuple((mistake, str(count), str(passed[mistake])) for mistake, count in results.items())
    return (Table("Results by mistake", ("mistake", "results", "judged rightly"), rows),)


def _route_tables(scores: Sequence[Score]) -> tuple[Table, ...]:
    """The confusion matrix, or the commonest mistakes where there are many labels; then each route."""
    counts = Counter((score.wanted, score.got) for score in scores)
    names = sorted({name for pair in counts for name in pair}, key=lambda name: (name == OUT, name))
    wanted = Counter(score.wanted for score in scores)
    if len(names) <= _MATRIX_LABELS:
        matrix = tuple((row, *(str(counts[row, name] or "·") for name in names)) for row in names if wanted[row])
        first = Table("Wanted (rows) and got (columns)", ("", *names), matrix)
    else:
        mistakes = [(pair, count) for pair, count in counts.most_common() if pair[0] != pair[1]]
        rows = tuple((*pair, str(count)) for pair, count in mistakes[:_MISTAKES_SHOWN])
        first = Table("The commonest mistakes", ("wanted", "got", "cases"), rows)
    heads = ("route", "cases", "precision", "recall", "F1", "usd each", "ms each")
    return first, Table("Routes", heads, tuple(_route_row(name, scores) for name in names))


def _route_row(name: str, scores: Sequence[Score]) -> tuple[str, ...]:
    got = [score for score in scores if score.got == name]
    wanted = [score for score in scores if score.wanted == name]
    right = sum(score.passed for score in got)
    costs = [score.usd for score in got if score.usd is not None]
    return (
        name,
        str(len(wanted)),
        f"{right / len(got):.0%}" if got else "",
        f"{right / len(wanted):.0%}" if wanted else "",
        f"{2 * right / (len(got) + len(wanted)):.2f}",
        f"{mean(costs):.5f}" if costs else "",
        f"{1000 * mean([score.seconds for score in got]):.0f}" if got else "",
    )


_TABLES: dict[Kind, Callable[[Sequence[Score]], tuple[Table, ...]]] = {
    "routing": _route_tables,
    "plan": _case_tables("Plans", "tasks", "width", "needless", "vague", "unserved"),
    "worker": _case_tables("Answers", "coverage", "gaps", "seconds", "usd"),
    "run": _case_tables("Answers", "coverage", "gaps", "seconds", "usd"),
    "verifier": _mistake_tables,
}
