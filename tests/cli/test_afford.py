"""Dollars at the command line: what a plan will cost, and plans that are refused because nobody could pay for them."""

import json
from pathlib import Path

from chargehand.agents.outlook import Outlay, Outlook, Share
from chargehand.cli.afford import above
from chargehand.cli.render import outlook
from chargehand.terms.budget import Amount
from chargehand.terms.plan import NO_TASK
from tests.cli.commands import chargehand

TEAM = "version: 1\nname: cellar\nworkers:\n  ann: {description: counts apples}\n"
PLAN = {
    "goal": "How many apples are there?",
    "tasks": [{"id": "t1", "instruction": "Count the apples in the cellar and say how many.", "worker": "ann"}],
}
NAMED = ("--team", "team.yaml", "--model", "openai:gpt-5-mini")
FREE = Share(NO_TASK, "", "offline", 0, 0, 0)


def folder(at: Path) -> Path:
    (at / "team.yaml").write_text(TEAM)
    (at / "plan.json").write_text(json.dumps(PLAN))
    return at


def test_a_plan_nobody_could_pay_for_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    words = ("run", "--plan", "plan.json", *NAMED, "--budget-usd", "0.000001")
    done = chargehand(folder(tmp_path), *words, OPENAI_API_KEY="sk-none")
    assert done.returncode == 5
    assert done.stdout == ""
    assert "this plan costs $0.0000" in done.stderr
    assert "the budget is $0.000001; nobody was asked: allow it more with --budget-usd" in done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["plan.json", "team.yaml"]


def test_a_plan_in_a_file_is_reckoned_from_list_prices(tmp_path: Path) -> None:
    words = ("plan", "--from", "plan.json", *NAMED, "--budget-usd", "0.01", "--json")
    done = chargehand(folder(tmp_path), *words, OPENAI_API_KEY="sk-none")
    assert done.returncode == 0
    usd = json.loads(done.stdout)["forecast"]["usd"]
    assert 0 < usd["least"] < usd["about"] < usd["most"] == usd["budget"] == 0.01
    assert [one["model"] for one in usd["tasks"]] == ["openai:gpt-5-mini"]


def said(
    *costs: float | None, unknown: tuple[str, ...] = (), grows: str = "", budget: float | None = None
) -> list[str]:
    least, about, most = costs
    found = Outlay(least, about, most, (), FREE, unknown, grows, "list prices", budget)
    return outlook(Outlook(usd=found, low=Amount(10, 7, 1), high=Amount(20, 9, 2)))[2:]


def test_dollars_are_told_in_words() -> None:
    taken = "10 to 20 tokens, 1 to 2 calls"
    rests = "estimate: list prices"
    assert said(0.000123, 0.00151, 2.611) == [f"cost: about $0.0016, $0.00012 to $2.70, {taken}", rests]
    assert said(0, 0, 0) == [f"cost: $0, since no model that is asked costs anything, {taken}"]
    assert said(None, None, None, unknown=("x:y",)) == [f"cost: unknown, since nobody knows what x:y costs, {taken}"]
    assert said(0.1, 0.2, None, grows="it grows") == [f"cost: about $0.20, $0.10 or more (it grows), {taken}", rests]
    assert said(0.1, 0.2, 0.5, budget=0.5) == [f"cost: about $0.20, $0.10 to $0.50 (the budget), {taken}", rests]
    refused = "cost: $0.10 at the least, above the budget, so it will be refused"
    assert said(0.1, 0.1, 0.05, budget=0.05) == [refused, rests]


def test_who_refuses_says_what_it_costs_and_what_to_do() -> None:
    words = above(Outlay(0.0021, 0.0021, 0.001, (), FREE, budget=0.001))
    assert words.startswith("this plan costs $0.0021 at the least, the budget is $0.001; nobody was asked:")
    assert "--budget-usd" in words


def test_a_cap_without_models_is_refused(tmp_path: Path) -> None:
    done = chargehand(folder(tmp_path), "plan", "--from", "plan.json", "--budget-usd", "1")
    assert done.returncode == 2
    assert "name the team with --team" in done.stderr
