"""Scores of routes: which worker each request goes to, which it should, and the confusion matrix of both."""

import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from random import Random

from msgspec import Struct

from chargehand.agents.ways import Route
from chargehand.errors import ChargehandError
from chargehand.evals.bench import Bench, ScoreCase, check_workers, failed_to_try
from chargehand.evals.cases import Case
from chargehand.evals.report import Measure, Score, Section, Table
from chargehand.evals.statistics import mean, measure_accuracy, measure_share, measure_usd, measure_value
from chargehand.runtime.draft import Draft, draft
from chargehand.team import Supervisor

OUT = "out of scope"
"""What stands for no worker in tables."""
_CONFIDENCE = re.compile(r"\bconfidence (\d\.\d+)")
_MATRIX_LABELS = 12
_MISTAKES_SHOWN = 20
_F1_DRAWS = 300


@asynccontextmanager
async def open_route_scorer(bench: Bench) -> AsyncGenerator[ScoreCase]:
    """All cases of a dataset are routed by one crew: a route leaves nothing behind.

    A team that is not led by a `route` is asked for its plan: every worker with a task in it counts.
    """
    team = await bench.new_team().keep_budget()
    async with team.crew() as crew:

        async def score_case(case: Case) -> list[Score]:
            began = time.perf_counter()
            try:
                check_workers(team, case.labels)
                drafted = await draft(crew, team.request(case.request, time.time(), seed=0))
            except ChargehandError as error:
                return [failed_to_try(case, error)]
            return [_score(team, case, drafted, time.perf_counter() - began)]

        yield score_case


def _score(team: Supervisor, case: Case, drafted: Draft, seconds: float) -> Score:
    strategy = team.hiring.way
    wanted = set(case.labels)
    names = [task.worker for task in drafted.plan.tasks]
    if isinstance(strategy, Route) and strategy.secondary and len(wanted) < 2:
        names = names[:1]  # the secondary worker is asked as well; the route is the first
    chosen: set[str] = set(names)
    if not wanted and isinstance(strategy, Route) and chosen == {strategy.generalist}:
        chosen = set()  # what is out of scope goes to the generalist
    got = _label(team, chosen)
    label = _label(team, wanted)
    confidences = [float(match[1]) for note in drafted.notes if (match := _CONFIDENCE.search(note))]
    return Score(
        case=case.name,
        kind="routing",
        passed=chosen == wanted,
        why=() if chosen == wanted else (f"it went to {got}, and is for {label}",),
        values={"confidence": confidences[0]} if confidences else {},
        seconds=seconds,
        usd=None if drafted.spent is None else drafted.spent.micros / 1_000_000,
        request=case.request,
        got=got,
        wanted=label,
        notes=drafted.notes,
    )


def _label(team: Supervisor, names: set[str]) -> str:
    known = [worker.name for worker in team.members if worker.name in names]
    return " + ".join([*known, *sorted(names.difference(known))]) or OUT


# --- the confusion matrix


class Label(Struct, frozen=True):
    """How often a label was wanted, got, and both."""

    name: str
    wanted: int
    got: int
    right: int

    @property
    def precision(self) -> float:
        return self.right / self.got if self.got else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.right / (self.wanted + self.got) if self.wanted + self.got else 0.0


class Confusion(Struct, frozen=True):
    labels: tuple[Label, ...]
    counts: dict[tuple[str, str], int]
    """How often it was, by the label wanted and the label got."""

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the labels that were wanted: a rare one counts as much as a common one."""
        return mean([label.f1 for label in self.labels if label.wanted])


def count_confusion(scores: Sequence[Score]) -> Confusion:
    counts = Counter((score.wanted, score.got) for score in scores)
    wanted = Counter(score.wanted for score in scores)
    got = Counter(score.got for score in scores)
    names = sorted({*wanted, *got}, key=lambda name: (name == OUT, name))
    labels = tuple(Label(name, wanted=wanted[name], got=got[name], right=counts[name, name]) for name in names)
    return Confusion(labels, dict(counts))


def report_routes(dataset: str, scores: Sequence[Score], random: Random) -> Section:
    tried = [score for score in scores if not score.error]
    measures = [measure_accuracy(scores), *_measure_scope(tried)]
    tables: list[Table] = []
    if tried:
        confusion = count_confusion(tried)
        measures.append(_measure_f1(confusion, tried, random))
        if any("confidence" in score.values for score in tried):
            measures.append(measure_value("confidence", tried, random))
        measures += measure_usd(tried, random)
        if len(confusion.labels) <= _MATRIX_LABELS:
            tables.append(_matrix_table(confusion))
        else:
            tables.append(_mistakes_table(confusion))
        tables.append(_label_table(confusion, tried))
    return Section(
        dataset=dataset, kind="routing", scores=tuple(scores), measures=tuple(measures), tables=tuple(tables)
    )


def _measure_scope(tried: Sequence[Score]) -> list[Measure]:
    """The share of requests out of scope that were recognised, and of the others that were refused."""
    outside = [score for score in tried if score.wanted == OUT]
    inside = [score for score in tried if score.wanted != OUT]
    measures: list[Measure] = []
    if outside:
        measures.append(measure_share("out_of_scope", sum(score.passed for score in outside), len(outside)))
    if inside:
        refused = sum(score.got == OUT for score in inside)
        measures.append(measure_share("refused", refused, len(inside), "less"))
    return measures


def _measure_f1(confusion: Confusion, tried: Sequence[Score], random: Random) -> Measure:
    """Macro F1, with an interval from cases drawn with replacement."""
    value = confusion.macro_f1
    low = value
    high = value
    if len({score.passed for score in tried}) > 1:
        drawn = sorted(count_confusion(random.choices(tried, k=len(tried))).macro_f1 for _ in range(_F1_DRAWS))
        low = drawn[int(0.025 * _F1_DRAWS)]
        high = drawn[-1 - int(0.025 * _F1_DRAWS)]
    return Measure(name="macro_f1", value=value, low=low, high=high, count=len(tried))


def _matrix_table(confusion: Confusion) -> Table:
    columns = [label.name for label in confusion.labels]
    rows = tuple(
        (label.name, *(str(confusion.counts.get((label.name, column), "·")) for column in columns))
        for label in confusion.labels
        if label.wanted
    )
    return Table("Wanted (rows) and got (columns)", ("", *columns), rows)


def _mistakes_table(confusion: Confusion) -> Table:
    """The commonest mistakes, where there are too many labels for a matrix."""
    pairs = [(count, wanted, got) for (wanted, got), count in confusion.counts.items() if wanted != got]
    pairs.sort(reverse=True)
    rows = tuple((wanted, got, str(count)) for count, wanted, got in pairs[:_MISTAKES_SHOWN])
    left = f", {_MISTAKES_SHOWN} of {len(pairs)}" if len(pairs) > _MISTAKES_SHOWN else ""
    return Table(f"The commonest mistakes{left}", ("wanted", "got", "cases"), rows)


def _label_table(confusion: Confusion, tried: Sequence[Score]) -> Table:
    rows: list[tuple[str, ...]] = []
    for label in confusion.labels:
        own = [score for score in tried if score.got == label.name]
        costs = [score.usd for score in own if score.usd is not None]
        rows.append(
            (
                label.name,
                str(label.wanted),
                f"{label.precision:.0%}" if label.got else "",
                f"{label.recall:.0%}" if label.wanted else "",
                f"{label.f1:.2f}",
                f"{mean(costs):.5f}" if costs else "",
                f"{1000 * mean([score.seconds for score in own]):.0f}" if own else "",
            )
        )
    return Table("Routes", ("route", "cases", "precision", "recall", "F1", "usd each", "ms each"), tuple(rows))
