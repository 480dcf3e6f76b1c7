"""A handful of freezes and thaws at every run of the tests; `make zombie` does two hundred."""

from tests.zombie import many


def test_a_thawed_process_is_fenced_and_appends_nothing() -> None:
    found = many(6, seed=20_260_101)
    assert [problem for trial in found for problem in trial.problems] == []
    assert sum(trial.resumed for trial in found) >= 6
