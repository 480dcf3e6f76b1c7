"""The team that builds courses: prerequisites come first, solutions are right, and what nobody teaches is a gap."""

import statistics
from pathlib import Path
from typing import cast

import pytest

from chargehand.config.load import load_team
from tests.teams.bundled import TEAMS, accuracy, lacking, model_of, ran
from tests.teams.executors import artifacts, asked, examples, module, rows, workers

TEAM = "curriculum"


def test_its_folder_is_complete() -> None:
    assert lacking(TEAM) == []


@pytest.mark.slow("all golden, held out and routing cases of the team are carried out")
def test_its_golden_cases_hold_and_its_routes_lead_where_they_should(tmp_path: Path) -> None:
    found = accuracy(tmp_path, TEAM)
    assert found["run"] == 1
    assert found["routing"] >= 0.95
    assert found["held_out"] >= 0.7


def test_the_first_example_builds_a_course(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example")
    assert found.code == 0
    assert found.workers == {"planner", "librarian", "illustrator", "researcher", "examiner"}
    for fact in ("| hypothesis tests | 6 | 5 |", "Bar chart, 10 values", "How likely is a sum of"):
        assert fact in found.answer


def test_a_topic_nobody_wrote_about_is_a_gap(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "6")
    assert found.code == 3
    assert "nothing about neural networks" in found.answer
    costs = [float(one["cost_eur"]) for one in rows(TEAM, "data/materials.csv") if one["kind"] == "project"]
    assert f"{statistics.mean(costs):.2f}" in found.answer


def test_a_path_teaches_everything_after_what_it_needs() -> None:
    tools = module(TEAM, "tools")
    needs = [(one["topic"], one["needs"]) for one in rows(TEAM, "data/prerequisites.csv")]
    for goal in (one["topic"] for one in rows(TEAM, "data/topics.csv")):
        path = tools.order(goal)
        assert path[-1] == goal or goal in path
        assert all(path.index(before) < path.index(topic) for topic, before in needs if topic in path)


def test_hours_a_week_are_taken_from_the_request() -> None:
    result = asked(TEAM, examples(TEAM)[3])
    assert workers(result) == {"planner", "writer"}
    (table, *_) = artifacts(result, "table")
    assert table["columns"] == ["topic", "week", "hours", "done in week"]
    weeks = {row[0]: row[1] for row in cast("list[list[object]]", table["rows"])}
    assert (weeks["mean and median"], weeks["regression"]) == (1, 5)


def test_solutions_of_exercises_are_right() -> None:
    table = module(TEAM, "tools").exercises("spread", 4)
    assert len(table.rows) == 4
    for exercise, solution in table.rows:
        values = [int(one) for one in exercise.partition(" of ")[2].split(", ")]
        right = max(values) - min(values) if "range" in exercise else statistics.pstdev(values)
        assert float(solution) == round(right, 2)


def test_minutes_are_added_up_per_topic() -> None:
    minutes: dict[str, int] = {}
    for one in rows(TEAM, "data/materials.csv"):
        minutes[one["topic"]] = minutes.get(one["topic"], 0) + int(one["minutes"])
    answer = str(asked(TEAM, examples(TEAM)[1]).answer)
    for topic, total in minutes.items():
        assert f"| {topic} | {total} |" in answer


def test_the_secretary_keeps_a_log_after_three_turns() -> None:
    team = load_team(TEAMS / TEAM, model=model_of(TEAM))
    for request in (
        "What do our notes say about sampling?",
        "Make a quiz on spread.",
        "How many hours does regression take?",
    ):
        assert team.run_sync(request).ending == "complete"
    (done,) = team.rest_sync()
    assert done.ending == "complete"


def test_materials_for_it_are_those_for_the_topic_and_not_all_there_are() -> None:
    answer = str(asked(TEAM, "Build a path to the normal distribution, and list the materials for it.").answer)
    assert "M11" in answer
    assert "M12" in answer
    assert "M13" not in answer
