"""Dollars at the command line: what a plan is estimated to cost, and that it is above the budget."""

import json
from pathlib import Path

from chargehand.agents.draft import BASIS, CostForecast, PlanForecast
from chargehand.cli.diagrams import forecast_lines
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


def test_a_plan_above_its_budget_ends_where_that_is_used_up(tmp_path: Path) -> None:
    words = ("run", "--plan", "plan.json", *NAMED, "--budget-usd", "0.000001")
    done = chargehand(folder(tmp_path), *words, OPENAI_API_KEY="sk-none", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert done.returncode == 5


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
    basis = f"estimate: {BASIS}"
    assert lines_of(0.00151) == ["cost: about $0.0016", basis]
    assert lines_of(0) == ["cost: $0, since no model that is called costs anything"]
    assert lines_of(None, unknown=("x:y",)) == ["cost: unknown: there is no price for x:y"]
    assert lines_of(0.2, grows="it grows") == ["cost: about $0.20 or more (it grows)", basis]
    assert lines_of(0.2, budget=0.5) == ["cost: about $0.20", basis]
    assert lines_of(0.2, budget=0.05) == ["cost: about $0.20, above the budget of $0.05", basis]
