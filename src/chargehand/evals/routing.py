"""Scores of routes as a report: who is taken for whom, what each route costs, what overlaps, what to change."""

from collections.abc import Sequence
from random import Random

from msgspec import Struct

from chargehand.agents.ways import Route
from chargehand.evals.advice import overlaps, suggestions
from chargehand.evals.cases import Case
from chargehand.evals.chance import mean
from chargehand.evals.confusion import Confusion, confusion
from chargehand.evals.measures import accuracy, averaged, share, usd
from chargehand.evals.remedy import tried as remedied
from chargehand.evals.routes import OUT, routes
from chargehand.evals.scores import Measure, Part, Score, Table
from chargehand.evals.trials import Bench, Each
from chargehand.models.subject import WorkerCard


class Routed(Struct, frozen=True):
    """Scores, and the team as those saw it who routed. `by_route`: it is led by a route, not by a plan.

    `remedy` says what came of the examples that are advised.
    """

    scores: tuple[Score, ...]
    cards: tuple[WorkerCard, ...]
    by_route: bool
    remedy: str


async def score_routes(bench: Bench, cases: Sequence[Case], each: Each, again: Each) -> Routed:
    """All cases of the kind `routing`; `again` tries them a second time, with what is advised."""
    team = bench.team()
    scores = await routes(team, cases, each)
    remedy = await remedied(team.hiring, cases, scores, bench.lookup, again)
    return Routed(scores, team.hiring.cards(), isinstance(team.hiring.way, Route), remedy)


def report_routes(dataset: str, routed: Routed, random: Random) -> Part:
    """All that is to be said of such cases: who is taken for whom, what each route costs, and what to change."""
    scores = routed.scores
    tried = [one for one in scores if not one.error]
    names = [card.name for card in routed.cards]
    found = confusion(tried, [*names, OUT])
    measures = [accuracy(scores), *_scope(tried)]
    if tried:
        measures.append(Measure("macro_f1", *_f1(found, tried, names, random), len(tried)))
    if any(one.values for one in tried):
        measures.append(averaged("confidence", tried, random))
    measures += usd(tried, random)
    warnings = overlaps(routed.cards)
    advice = suggestions(tried, routed.cards, OUT, by_route=routed.by_route)
    advice += (routed.remedy,) if routed.remedy else ()
    mistakes = found.mistakes()
    tables = (found.table(), *([mistakes] if mistakes else ()), _classes(found, tried)) if tried else ()
    return Part(dataset, "routing", scores, tuple(measures), tables, warnings, advice)


def _scope(tried: Sequence[Score]) -> list[Measure]:
    """How many requests that are for nobody were told apart, and how many of the others were refused."""
    outside = [one for one in tried if one.wanted == OUT]
    inside = [one for one in tried if one.wanted != OUT]
    found = [share("out_of_scope", sum(one.passed for one in outside), len(outside))] if outside else []
    return [*found, share("refused", sum(one.got == OUT for one in inside), len(inside), "less")] if inside else found


def _f1(found: Confusion, tried: Sequence[Score], names: list[str], random: Random) -> tuple[float, float, float]:
    """The mean of the F1 of all labels, and the interval it lies in, drawing the cases anew."""
    draws: list[float] = []
    if len({one.passed for one in tried}) > 1:
        order = [*names, OUT]
        draws = sorted(confusion(random.choices(tried, k=len(tried)), order).macro_f1 for _ in range(300))
    value = found.macro_f1
    return (value, draws[7], draws[-8]) if draws else (value, value, value)


def _classes(found: Confusion, tried: Sequence[Score]) -> Table:
    rows: list[tuple[str, ...]] = []
    for one in found.classes:
        own = [score for score in tried if score.got == one.label]
        cost = [score.micros / 1e6 for score in own if score.micros is not None]
        exact = f"{one.precision:.0%}" if one.got else ""
        found_of = f"{one.recall:.0%}" if one.wanted else ""
        took = f"{1000 * mean([score.seconds for score in own]):.0f}" if own else ""
        price = f"{mean(cost):.5f}" if cost else ""
        rows.append((one.label, str(one.wanted), exact, found_of, f"{one.f1:.2f}", price, took))
    return Table("Routes", ("route", "cases", "precision", "recall", "F1", "dollars each", "ms each"), tuple(rows))
