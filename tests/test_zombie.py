"""A handful of freezes and thaws at every run of the tests; `make zombie` does two hundred."""

from tests.support.hunts import hunt_size
from tests.zombie import many


def test_a_thawed_process_is_fenced_and_appends_nothing() -> None:
    trials = hunt_size(quick=2, thorough=6)
    results = many(trials, seed=20_260_101)
    assert [problem for trial in results for problem in trial.problems] == []
    assert sum(trial.resumed for trial in results) >= trials
