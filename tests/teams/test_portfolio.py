"""The portfolio team: what has drifted, what to trade, under which rule, and what nobody knows."""

from pathlib import Path

import pytest

from tests.teams.bundled import accuracy, lacking, ran
from tests.teams.executors import asked, module, rows

TEAM = "portfolio"


def test_the_folder_has_all_that_a_team_brings() -> None:
    assert lacking(TEAM) == []


def test_an_allocation_is_drawn_and_the_trades_are_worked_out_under_the_rule_that_holds(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example")
    assert (found.code, found.workers) == (0, {"allocator", "illustrator", "policy"})
    found.holds("| equity | 208,964.50 | 68.1 | 55.0 | 13.1 | outside 5 |", "Bar chart, 4 values", "second adviser")
    found.holds("| equity | sell | 40,255.80 |", "| bonds | buy | 31,285.89 |")
    assert "accepted by sourced" in found.notes
    assert list(tmp_path.rglob("*.svg"))


def test_a_letter_is_written_from_trades_and_rules(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "2")
    assert (found.code, found.workers) == (0, {"allocator", "policy", "writer"})
    found.holds("Dear all", "gold: trade buy", "may not exceed 40 percent", "Kind regards")


@pytest.mark.parametrize(
    ("example", "workers", "facts"),
    [
        ("3", {"market", "illustrator"}, ["property 0.58", "bonds 0.16", "Bar chart"]),
        (
            "4",
            {"allocator"},
            ["| Fintry Gold | -13.9 | 17.4 | 17.7 |", "| Aldermere World Equity | 16.2 | 7.1 | 3.1 |"],
        ),
        ("5", {"allocator", "policy"}, ["20,761.48", "3 working days for all other funds"]),
    ],
)
def test_each_question_goes_to_whoever_can_work_it_out(
    tmp_path: Path, example: str, workers: set[str], facts: list[str]
) -> None:
    found = ran(tmp_path, TEAM, "--example", example)
    assert (found.code, found.workers) == (0, workers)
    found.holds(*facts)


def test_what_the_policy_does_not_say_is_named_as_a_gap(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "6")
    assert (found.code, found.told["ending"]) == (3, "partial")
    assert "bitcoin" in found.gaps
    found.holds("outside 4", "Not answered")


def test_the_trades_of_a_portfolio_add_up_to_nothing(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "List the trades that rebalance Harrow.")
    rows = [line.split(" | ") for line in found.answer.splitlines() if " | sell | " in line or " | buy | " in line]
    amounts = [float(row[2].replace(",", "")) * (1 if row[1] == "buy" else -1) for row in rows]
    assert len(rows) == 4
    assert sum(amounts) == pytest.approx(0, abs=0.02)


def test_its_own_cases_hold(tmp_path: Path) -> None:
    found = accuracy(tmp_path, TEAM)
    assert (found["run"], found["plan"]) == (1.0, 1.0)
    assert found["routing"] >= 0.9
    assert found["held_out"] >= 0.65


@pytest.mark.parametrize("client", ["Harrow", "Lindqvist", "Okafor"])
def test_sales_pay_for_purchases_also_where_a_small_trade_is_left_out(client: str) -> None:
    trades = module(TEAM, "tools").rebalancing_trades(client).rows
    assert sum(row[2] * (1 if row[1] == "buy" else -1) for row in trades) == pytest.approx(0, abs=0.02)
    assert all(row[2] >= 500 for row in trades)


def test_what_a_client_holds_is_worth_its_units_at_the_last_prices() -> None:
    prices = {row["fund"]: float(row["price"]) for row in rows(TEAM, "prices/prices.csv")}
    held = [row for row in rows(TEAM, "data/holdings.csv") if row["client"] == "Okafor"]
    total = sum(float(row["units"]) * prices[row["fund"]] for row in held)
    answer = str(asked(TEAM, "What is the portfolio of Okafor worth in total?").answer)
    assert f"{total:,.2f} in all" in answer


def test_prices_are_never_added_up() -> None:
    answer = str(asked(TEAM, "Draw a chart of the price of Fintry Gold by month.").answer)
    assert "47.90" in answer
    assert "Together" not in answer
