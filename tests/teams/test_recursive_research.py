"""The team that splits what is too big: its bounds hold, its code runs, and its records are what is counted anew."""

from pathlib import Path

import pytest

from tests.teams.bundled import accuracy, lacking, ran
from tests.teams.executors import artifacts, asked, examples, module, rows, workers

TEAM = "recursive_research"


def nothing() -> None:
    """A step nobody counts."""


def test_its_folder_is_complete() -> None:
    assert lacking(TEAM) == []


def test_its_golden_cases_hold_and_its_routes_lead_where_they_should(tmp_path: Path) -> None:
    found = accuracy(tmp_path, TEAM)
    assert found["run"] == 1
    assert found["routing"] >= 0.9
    assert found["held_out"] >= 0.75


def test_the_first_example_is_split_and_split_again(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example")
    assert found.code == 0
    assert found.workers == {"researcher", "coder", "measurer", "analyst", "illustrator"}
    for fact in ("def merge_sort(", "It is stable", "124,750 steps", "| sieve | 1,411 |"):
        assert fact in found.answer


def test_no_part_is_deeper_and_no_split_broader_than_the_file_allows() -> None:
    names = [task.id for task in asked(TEAM, examples(TEAM)[0]).plan.tasks]
    assert max(name.count(".") for name in names) == 1
    assert len({name.partition(".")[0] for name in names}) <= 4


def test_a_simple_request_is_not_split() -> None:
    result = asked(TEAM, "Show the code of binary search.")
    assert [task.worker for task in result.plan.tasks] == ["coder"]
    assert "middle = (low + high) // 2" in str(result.answer)


def test_what_the_notes_do_not_say_is_a_gap(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "5")
    assert found.code == 3
    assert "499,500" in found.answer
    assert "nothing about quantum computers" in found.answer


@pytest.mark.parametrize("one", rows(TEAM, "data/runs.csv"), ids=lambda one: f"{one['algorithm']} {one['size']}")
def test_a_recorded_run_is_what_is_counted_anew(one: dict[str, str]) -> None:
    assert module(TEAM, "tools").counted(one["algorithm"], int(one["size"])) == int(one["steps"])


def test_the_algorithms_are_right() -> None:
    made = module(TEAM, "algorithms")
    items = [5, 3, 8, 1, 9, 2]
    assert made.bubble_sort(items, nothing) == made.merge_sort(items, nothing) == sorted(items)
    assert made.binary_search(sorted(items), 8, nothing) == made.linear_search(sorted(items), 8, nothing) == 4
    assert made.binary_search([1, 2], 3, nothing) == made.linear_search([1, 2], 3, nothing) == -1
    assert made.sieve(30, nothing) == made.trial_division(30, nothing) == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]


def test_a_size_in_words_limits_the_rows() -> None:
    result = asked(TEAM, examples(TEAM)[3])
    assert workers(result) == {"analyst", "illustrator"}
    steps: dict[str, int] = {}
    for one in rows(TEAM, "data/runs.csv"):
        if one["size"] == "100":
            steps[one["family"]] = steps.get(one["family"], 0) + int(one["steps"])
    (table,) = artifacts(result, "table")
    assert table["rows"] == [list(pair) for pair in sorted(steps.items(), key=lambda pair: -pair[1])]
