"""Intervals: known values, coverage of the truth, and that chance is passed in."""

import pytest

from chargehand.evals.measures import bootstrap, mean, paired_difference, quantile, sign_test, wilson
from chargehand.evals.scoring import seeded_random


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
    assert bootstrap([], seeded_random(1)) == (0.0, 0.0)


def test_the_truth_lies_within_the_interval_about_as_often_as_it_should() -> None:
    random = seeded_random("truth")
    caught = 0
    for _ in range(200):
        values = [random.gauss(5, 2) for _ in range(30)]
        low, high = bootstrap(values, random)
        caught += low <= 5 <= high
    assert 176 <= caught <= 199


def test_the_same_seed_draws_the_same() -> None:
    values = [1.0, 2.0, 5.0, 9.0]
    assert bootstrap(values, seeded_random(3)) == bootstrap(values, seeded_random(3))
    low, high = bootstrap(values, seeded_random(3))
    assert low < mean(values) < high


def test_a_quantile_is_a_value_that_was_seen() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.95) == 4.0
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert quantile([], 0.5) == 0.0


@pytest.mark.parametrize("count", [1, 3, 12, 57])
def test_wilsons_interval_is_where_the_share_seen_just_lies_within_the_normal_range(count: int) -> None:
    for hits in range(count + 1):
        for bound, other in zip(wilson(hits, count), (0.0, 1.0), strict=True):
            if bound != other:  # (share - bound) is 1.96 deviations of a share that is the bound
                deviation = (bound * (1 - bound) / count) ** 0.5
                assert abs(hits / count - bound) == pytest.approx(1.959964 * deviation, rel=1e-6)


@pytest.mark.parametrize("count", [6, 8])
def test_the_truth_is_within_the_interval_of_few_values_too(count: int) -> None:
    random = seeded_random("few", count)
    caught = 0
    for _ in range(150):
        low, high = bootstrap([random.gauss(5, 2) for _ in range(count)], random)
        caught += low <= 5 <= high
    assert caught >= 135  # without the wider tails it is about 128


@pytest.mark.parametrize(
    ("won", "lost", "likely"),
    [(0, 0, 1.0), (3, 0, 0.25), (0, 5, 0.0625), (6, 0, 0.03125), (1, 7, 0.0703125), (4, 4, 1.0)],
)
def test_odds_are_those_of_tossing_coins(won: int, lost: int, likely: float) -> None:
    assert sign_test(won, lost) == pytest.approx(likely)


def test_a_difference_without_a_change_is_called_one_in_at_most_one_of_twenty() -> None:
    random = seeded_random("no change")
    for count, share in ((6, 0.5), (6, 1.0), (12, 0.5), (20, 0.3)):
        alarms = 0
        for _ in range(2000):
            turns = [random.random() < share for _ in range(count)]
            won = sum(turn and random.random() < 0.5 for turn in turns)
            alarms += sign_test(won, sum(turns) - won) <= 0.05
        assert alarms <= 120, (count, share)


def test_the_interval_of_a_difference_holds_what_was_seen_and_stays_possible() -> None:
    for count in (1, 5, 30):
        for won in range(count + 1):
            for lost in range(count + 1 - won):
                low, high = paired_difference(won, lost, count)
                assert -1 <= low <= (won - lost) / count <= high <= 1
    assert paired_difference(10, 2, 100) == (pytest.approx(0.00816, abs=1e-5), pytest.approx(0.14870, abs=1e-5))
