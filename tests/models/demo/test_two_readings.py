"""Where two readings of a request fit, the demo model asks which is meant."""

import pytest

from tests.models.demo.asking import ask


@pytest.mark.parametrize(
    ("team", "request_text", "reason"),
    [
        ("support", "How many Owl lamps were ordered in all?", "'ordered' may be"),
        ("support", "Which lamp was ordered on 12 October 2026?", "'ordered' may be"),
        ("shop", "Convert -100 euros to US dollars at the rate of 29 May 2026.", "nothing to convert"),
        ("shop", "How many orders had a quantity above \u22121 in May 2026?", "negative numbers"),
        ("contract_review", "What did Bellwether Paper invoice in all?", "'invoice' and 'in all' belong together"),
        ("shop", "How many orders came in through the web shop in 2026?", "a second value of orders.channel"),
        ("support", "How many orders by customers from Norway are late?", "'by customers' says who does it"),
        ("shop", "How many orders came from Italy or through wholesale?", "ask for one at a time"),
    ],
)
def test_a_word_with_two_meanings_is_refused(team: str, request_text: str, reason: str) -> None:
    result = ask(team, request_text)
    assert result.ending == "failed", result.answer
    assert reason in str(result.answer)


@pytest.mark.parametrize(
    ("team", "request_text"),
    [
        ("shop", "How many orders came from the US in 2026?"),
        ("shop", "How many countries do we sell to?"),
        ("shop", "What do tents cost?"),  # a customer, or us
        ("patient_case", "How many tests did Moreau have?"),  # a tool lists those out of range
        ("expert_router", "When does my lease end with 3 months of notice?"),  # the day of the notice is missing
        ("tech_support", "Who answers questions about exports?"),
        ("shop", "How much did we sell in May 2026?"),
        ("shop", "What was the average revenue per month in 2025?"),
        ("shop", "What is the most expensive product per category?"),
        ("shop", "What is the most expensive product?"),
        ("shop", "Which is the cheapest pack?"),
        ("shop", "How many units of each product category did we sell in April 2026?"),
        ("shop", "How many product returns were damaged?"),
        ("portfolio", "Which fund is the most expensive?"),
        ("shop", "How many products have a price below 20 or above 100?"),
        ("shop", "Orders and revenue per country in May 2026"),
        ("support", "How many desk lamps did Freya Lindgren order?"),
        ("competitive_intelligence", "How many deals did Plotline win?"),
        ("competitive_intelligence", "Which rival won the most deals?"),
        ("curriculum", "What share of the materials are worksheets?"),
        ("shop", "Who brought the highest revenue in 2026?"),
        ("shop", "When was the total revenue in May 2026?"),
        ("shop", "What should the total revenue in May 2026 be?"),
        ("shop", "What is the total revenue to be had in May 2026?"),
        ("support", "How many orders are still to be shipped?"),
    ],
)
def test_what_no_part_of_a_query_accounts_for_is_refused(team: str, request_text: str) -> None:
    result = ask(team, request_text)
    assert result.ending == "failed", result.answer
    assert "docs/first-model.md" in str(result.answer)


@pytest.mark.parametrize(
    ("team", "request_text", "expected"),
    [
        ("shop", "What is the highest price per category?", "sleeping 158"),
        ("patient_case", "Which patient has the most results?", "Moreau 11"),
        ("letta_crew", "In which month did Corvid have the most downloads?", "2026-06 97,000"),
        ("portfolio", "What is the average fee of all funds?", "0.337"),
    ],
)
def test_a_noun_belongs_to_the_word_before_it(team: str, request_text: str, expected: str) -> None:
    assert expected in str(ask(team, request_text).answer)


def test_a_period_at_the_beginning_may_hold_for_all_clauses() -> None:
    result = ask("shop", "In May 2026, how many orders were there and which country had the most revenue?")
    assert result.ending == "partial", result.answer
    assert "Number of orders in May 2026: 36" in str(result.answer)
    assert "which country had the most revenue: whether it is of May 2026 too is not said" in str(result.answer)


def test_a_period_in_another_clause_may_hold_here_too() -> None:
    for request in (
        "What was the revenue in May 2026, and how many orders were there?",
        "How many orders and how much revenue did we have in May 2026?",
    ):
        result = ask("shop", request)
        assert result.ending == "partial", result.answer
        assert "12,223.40" in str(result.answer)
        assert "whether it is of May 2026 too is not said" in str(result.answer)


@pytest.mark.parametrize(
    "time", ["since May 2026", "after May 2026", "before May 2026", "until May 2026", "from May 2026"]
)
def test_a_time_without_an_end_is_refused(time: str) -> None:
    result = ask("shop", f"What was the revenue {time}?")
    assert result.ending == "failed", result.answer
    assert "docs/first-model.md" in str(result.answer)


def test_only_a_whole_result_is_drawn() -> None:
    result = ask("shop", "What was the revenue per country in May 2026? Draw a chart of it without Germany.")
    assert result.ending == "partial", result.answer
    assert "nothing there says 'without' and 'Germany'" in str(result.answer)
