"""Intervals and tests: known values."""

from random import Random
from statistics import fmean, stdev

import pytest

from chargehand.evals.measures import mean_interval, report_section, sign_test, wilson
from chargehand.evals.report import Score


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_an_interval_of_a_share_is_wilsons(hits: int, count: int, low: float, high: float) -> None:
    assert wilson(hits, count) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize("count", [1, 5, 7, 100])
def test_an_interval_ends_at_what_is_possible(count: int) -> None:
    assert wilson(0, count)[0] == 0.0
    assert wilson(count, count)[1] == 1.0


def test_nothing_seen_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert mean_interval([3.0]) == (3.0, 3.0)


@pytest.mark.parametrize(("count", "bound"), [(6, 2.571), (30, 2.045)])
def test_an_interval_of_a_mean_is_students(count: int, bound: float) -> None:
    values = [float(at) for at in range(count)]
    low, high = mean_interval(values)
    assert low + high == pytest.approx(2 * fmean(values))
    assert (high - low) / 2 == pytest.approx(bound * stdev(values) / count**0.5, rel=0.01)


@pytest.mark.parametrize("count", [1, 3, 12, 57])
def test_wilsons_interval_is_where_the_share_seen_just_lies_within_the_normal_range(count: int) -> None:
    for hits in range(count + 1):
        for bound, other in zip(wilson(hits, count), (0.0, 1.0), strict=True):
            if bound != other:  # (share - bound) is 1.96 deviations of a share that is the bound
                deviation = (bound * (1 - bound) / count) ** 0.5
                assert abs(hits / count - bound) == pytest.approx(1.959964 * deviation, rel=1e-6)


@pytest.mark.parametrize(
    ("won", "lost", "likely"),
    [(0, 0, 1.0), (3, 0, 0.25), (0, 5, 0.0625), (6, 0, 0.03125), (1, 7, 0.0703125), (4, 4, 1.0)],
)
def test_odds_are_those_of_tossing_coins(won: int, lost: int, likely: float) -> None:
    assert sign_test(won, lost) == pytest.approx(likely)


def test_a_difference_without_a_change_is_called_one_in_at_most_one_of_twenty() -> None:
    random = Random("no change")
    for count, share in ((6, 0.5), (6, 1.0), (12, 0.5), (20, 0.3)):
        alarms = 0
        for _ in range(2000):
            turns = [random.random() < share for _ in range(count)]
            won = sum(turn and random.random() < 0.5 for turn in turns)
            alarms += sign_test(won, sum(turns) - won) <= 0.05
        assert alarms <= 120, (count, share)


def test_the_interval_of_a_fraction_stays_between_nothing_and_all() -> None:
    scores = [Score(f"c{share}", "run", passed=True, values={"coverage": share}) for share in (1.0, 1.0, 0.4)]
    (coverage,) = [measure for measure in report_section("d", "run", scores).measures if measure.name == "coverage"]
    assert coverage.high == 1.0
    assert 0.0 <= coverage.low < 0.8
