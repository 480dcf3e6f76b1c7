"""Dollars at the command line: what a plan is estimated to cost, and a warning where that is above the budget."""

import json
from pathlib import Path

from chargehand.agents.draft import BASIS, CostForecast, PlanForecast
from chargehand.cli.diagrams import forecast_lines
from chargehand.cli.teams import above_budget
from chargehand.engine.budget import Amount
from tests.cli.commands import chargehand

TEAM = "version: 1\nname: cellar\nworkers:\n  ann: {description: counts apples}\n"
PLAN = {
    "goal": "How many apples are there?",
    "tasks": [{"id": "t1", "instruction": "Count the apples in the cellar and say how many.", "worker": "ann"}],
}
NAMED = ("--team", "team.yaml", "--model", "openai:gpt-5-mini")


def folder(at: Path) -> Path:
    (at / "team.yaml").write_text(TEAM)
    (at / "plan.json").write_text(json.dumps(PLAN))
    return at


def test_a_plan_above_its_budget_is_warned_of_and_ends_where_that_is_used_up(tmp_path: Path) -> None:
    words = ("run", "--plan", "plan.json", *NAMED, "--budget-usd", "0.000001")
    done = chargehand(folder(tmp_path), *words, OPENAI_API_KEY="sk-none")
    assert done.returncode == 5
    assert "warning: this plan is estimated at $0.0" in done.stderr
    assert "the budget is $0.000001" in done.stderr


def test_a_budget_that_does_not_cover_planning_ends_plan_as_it_ends_a_run(tmp_path: Path) -> None:
    words = ("plan", "How many apples are there?", *NAMED, "--budget-usd", "0.000001")
    done = chargehand(folder(tmp_path), *words, OPENAI_API_KEY="sk-none")
    assert done.returncode == 5
    assert "the budget does not cover" in done.stderr


def test_a_plan_in_a_file_is_reckoned_from_list_prices(tmp_path: Path) -> None:
    words = ("plan", "--from", "plan.json", *NAMED, "--budget-usd", "0.01", "--json")
    done = chargehand(folder(tmp_path), *words, OPENAI_API_KEY="sk-none")
    assert done.returncode == 0
    usd = json.loads(done.stdout)["forecast"]["usd"]
    assert 0 < usd["about"] < usd["budget"] == 0.01


def lines_of(
    about: float | None, *, unknown: tuple[str, ...] = (), grows: str = "", budget: float | None = None
) -> list[str]:
    cost = CostForecast(about=about, unknown=unknown, grows=grows, budget=budget)
    return forecast_lines(PlanForecast(usd=cost, cost=Amount(tokens=10, micros=7, calls=1)))[2:]


def test_dollars_are_told_in_words() -> None:
    taken = "10 tokens, 1 call"
    basis = f"estimate: {BASIS}"
    assert lines_of(0.00151) == [f"cost: about $0.0016, {taken}", basis]
    assert lines_of(0) == [f"cost: $0, since no model that is called costs anything, {taken}"]
    assert lines_of(None, unknown=("x:y",)) == [f"cost: unknown: there is no price for x:y, {taken}"]
    assert lines_of(0.2, grows="it grows") == [f"cost: about $0.20 or more (it grows), {taken}", basis]
    assert lines_of(0.2, budget=0.5) == [f"cost: about $0.20, {taken}", basis]
    assert lines_of(0.2, budget=0.05) == [f"cost: about $0.20, above the budget of $0.05, {taken}", basis]


def test_the_warning_says_what_it_costs_and_what_to_do() -> None:
    words = above_budget(CostForecast(about=0.0021, budget=0.001))
    assert words.startswith("this plan is estimated at $0.0021, the budget is $0.001:")
    assert "--budget-usd" in words


def test_a_cap_without_models_is_refused(tmp_path: Path) -> None:
    done = chargehand(folder(tmp_path), "plan", "--from", "plan.json", "--budget-usd", "1")
    assert done.returncode == 2
    assert "name the team with --team" in done.stderr
