"""The team that plans a launch: prices from the survey, days that are working days, headlines that can be proved."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.teams.bundled import accuracy, lacking, ran
from tests.teams.executors import artifacts, asked, examples, module, rows, workers

TEAM = "product_launch"


def test_its_folder_is_complete() -> None:
    assert lacking(TEAM) == []


@pytest.mark.slow("all golden, held out and routing cases of the team are carried out")
def test_its_golden_cases_hold_and_its_routes_lead_where_they_should(tmp_path: Path) -> None:
    found = accuracy(tmp_path, TEAM)
    assert found["run"] == 1
    assert found["routing"] >= 0.95
    assert found["held_out"] >= 0.8


def test_the_first_example_plans_a_launch(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example")
    assert found.code == 0
    assert found.workers == {"pricing", "illustrator", "scheduler", "headliner", "archivist"}
    for fact in ("| launch | 2027-03-15 | Monday |", "Heron Flask: hot for 12 hours", "highest 27.99 EUR with 742.05"):
        assert fact in found.answer


def test_what_was_decided_is_kept_and_what_nobody_counted_is_a_gap(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "6")
    assert found.code == 3
    assert "Added to the block decisions" in found.answer
    assert "visitors" in found.answer.partition("Not answered")[2]


def test_the_best_price_is_worked_out_from_the_survey() -> None:
    budgets = [int(one["budget_eur"]) for one in rows(TEAM, "data/people.csv")]
    cost = sum(float(one["cost_eur"]) for one in rows(TEAM, "data/costs.csv"))
    prices = [whole - 0.01 for whole in range(16, 41, 4)]
    profit = {
        price: round(100 * sum(one >= price for one in budgets) / len(budgets)) * (price - cost) for price in prices
    }
    best = max(profit, key=lambda price: profit[price])
    result = asked(TEAM, "Compare the price points.")
    assert workers(result) == {"pricing"}
    assert f"{best:.2f} EUR {profit[best]:,.2f}" in str(result.answer)


def test_any_price_can_be_looked_at() -> None:
    budgets = [int(one["budget_eur"]) for one in rows(TEAM, "data/people.csv")]
    result = asked(TEAM, "How many people would buy at 24 euros?")
    (table,) = artifacts(result, "table")
    share = round(100 * sum(one >= 24 for one in budgets) / len(budgets))
    assert table["rows"] == [["24.00 EUR", round(share * (24 - 11.5), 2), share]]


@pytest.mark.parametrize("day", [date(2027, 3, 15), date(2027, 9, 6), date(2028, 2, 29)])
def test_nothing_is_due_on_a_weekend_or_too_late(day: date) -> None:
    due = {name: date.fromisoformat(on) for name, on, _ in module(TEAM, "tools").launch_schedule(day).rows}
    for one in rows(TEAM, "milestones.csv"):
        last = day - timedelta(days=int(one["days_before"]))
        assert last - timedelta(days=2) <= due[one["milestone"]] <= last
        assert due[one["milestone"]].weekday() < 5


def test_headlines_fit_their_channel() -> None:
    tools = module(TEAM, "tools")
    for channel, most in tools.LIMITS.items():
        table = tools.headlines(channel, 27.99)
        assert table.rows
        assert all(len(text) <= most and size == f"{len(text)} of {most} characters" for text, size in table.rows)


def test_words_that_nobody_can_prove_are_refused() -> None:
    honest = module(TEAM, "checks").honest
    assert honest({"text": "Heron Flask: hot for 12 hours"}) == ""
    assert "revolutionary" in honest({"text": "A revolutionary flask"})


def test_budgets_are_averaged_per_segment_and_drawn() -> None:
    result = asked(TEAM, examples(TEAM)[1])
    found: dict[str, list[int]] = {}
    for one in rows(TEAM, "data/people.csv"):
        found.setdefault(one["segment"], []).append(int(one["budget_eur"]))
    for segment, budgets in found.items():
        assert f"{segment} {sum(budgets) / len(budgets):.2f}" in str(result.answer)
    assert len(artifacts(result, "chart")) == 1
