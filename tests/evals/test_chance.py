"""Intervals: known values, coverage of the truth, and that chance is passed in."""

import pytest

from chargehand.evals.chance import bootstrap, mean, quantile, seeded_by, wilson


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
    assert bootstrap([], seeded_by(1)) == (0.0, 0.0)


def test_the_truth_lies_within_the_interval_about_as_often_as_it_should() -> None:
    random = seeded_by("truth")
    caught = 0
    for _ in range(200):
        values = [random.gauss(5, 2) for _ in range(30)]
        low, high = bootstrap(values, random)
        caught += low <= 5 <= high
    assert 176 <= caught <= 199


def test_the_same_seed_draws_the_same() -> None:
    values = [1.0, 2.0, 5.0, 9.0]
    assert bootstrap(values, seeded_by(3)) == bootstrap(values, seeded_by(3))
    low, high = bootstrap(values, seeded_by(3))
    assert low < mean(values) < high


def test_a_quantile_is_a_value_that_was_seen() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.95) == 4.0
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert quantile([], 0.5) == 0.0
