"""The team that watches rivals: features, prices, pages and a report that rests on all of them."""

from pathlib import Path

import pytest

from tests.teams.bundled import accuracy, lacking, ran
from tests.teams.executors import asked, rows

TEAM = "competitive_intelligence"


def test_the_folder_has_all_that_a_team_brings() -> None:
    assert lacking(TEAM) == []


def test_a_report_rests_on_features_prices_and_pages(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example")
    assert (found.code, found.workers) == (0, {"comparer", "analyst", "illustrator", "researcher", "writer"})
    found.holds("| offline mode | yes | no | Tidewell |", "| single sign-on | no | yes | Plotline |")
    found.holds("Plotline 15.00", "Orchardly 7.50", "works only with a connection", "features/features.csv")


def test_gaps_and_reasons_are_found_and_kept_for_next_week(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "2")
    assert found.code == 0
    found.holds("| automation rules | 3 | Kanbrio, Plotline, Stackmoor |", "single sign-on is missing")
    found.holds("Added to the block watchlist")


def test_deals_are_added_up_by_rival_and_drawn(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "3")
    assert (found.code, found.workers) == (0, {"analyst", "illustrator"})
    found.holds("Plotline 165,200", "Together: 226,400", "Bar chart")


def test_what_one_run_keeps_the_next_one_knows(tmp_path: Path) -> None:
    kept = ran(tmp_path, TEAM, "--example", "4")
    kept.holds("raised its price from 11.00 to 12.50", "Kept in the archive findings, tagged kanbrio and price")
    before = ran(tmp_path, TEAM, "--example", "5", run="two")
    before.holds("Plotline won most large deals because of single sign-on")
    again = ran(tmp_path, TEAM, "What do we already know about the price of Kanbrio?", run="three")
    again.holds("12.50 euros a seat")


def test_what_no_table_says_is_named_as_a_gap(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "6")
    assert (found.code, found.told["ending"]) == (3, "partial")
    found.holds("Orchardly", "4.6", "Not answered")


@pytest.mark.slow("all golden, held out and routing cases of the team are carried out")
def test_its_own_cases_hold(tmp_path: Path) -> None:
    found = accuracy(tmp_path, TEAM)
    assert (found["run"], found["plan"]) == (1.0, 1.0)
    assert found["routing"] >= 0.85
    assert found["held_out"] >= 0.6


def test_a_win_rate_is_of_the_deals_with_that_rival() -> None:
    deals = [row for row in rows(TEAM, "market/deals.csv") if row["rival"] == "Plotline"]
    share = 100 * sum(row["outcome"] == "won" for row in deals) / len(deals)
    assert f": {share:g} " in str(asked(TEAM, "What is our win rate against Plotline?").answer)


def test_who_has_a_feature_is_said_of_every_product() -> None:
    answer = str(asked(TEAM, "Which rivals have single sign-on?").answer)
    for row in rows(TEAM, "features/features.csv"):
        if row["feature"] == "single sign-on":
            assert f"| {row['product']} | {row['supported']} |" in answer
