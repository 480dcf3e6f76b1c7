import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.models.offline.clauses import split


@pytest.mark.parametrize(
    ("request_", "clauses"),
    [
        (
            "What was the revenue in Q2 2026 by region, which product sold best, and how many orders were late?",
            ["What was the revenue in Q2 2026 by region", "which product sold best", "how many orders were late?"],
        ),
        ("List the loans and then draw a chart of them", ["List the loans", "draw a chart of them"]),
        ("1. List the top 5 customers. 2. Convert their total.", ["List the top 5 customers", "Convert their total"]),
        ("Do the following:\n- find the busiest month\n- plot it", ["find the busiest month", "plot it"]),
        ("Compare sales, cost and order value of Germany", ["Compare sales, cost and order value of Germany"]),
        ("Find the product, which sold best, and describe it", ["Find the product, which sold best", "describe it"]),
        ("Hi! Could you please tell me how many there are? Thanks.", ["how many there are?"]),
        ("What is said of 'a, and draw b' by Dr. Okafor?", ["What is said of 'a, and draw b' by Dr. Okafor?"]),
        ("What is 12 * (3 + 4)?", ["What is 12 * (3 + 4)?"]),
        ("What was sold in May 2026 and in June 2026?", ["What was sold in May 2026", "What was sold in June 2026?"]),
        ("I want a chart of visits by month", ["a chart of visits by month"]),
        ("...", []),
        ("Thanks!", []),
    ],
)
def test_a_request_comes_apart_where_something_new_is_asked(request_: str, clauses: list[str]) -> None:
    assert [clause.text for clause in split(request_)] == clauses


def test_a_scope_named_first_holds_for_the_sentence() -> None:
    found = split("For Germany in 2026, list the top products and draw a chart of revenue. Count the customers.")
    assert [clause.scope for clause in found] == ["For Germany in 2026", "For Germany in 2026", ""]


def test_statements_and_limits_ride_along() -> None:
    found = split("My garden is shady. Which plants suit it? Keep it short.")
    assert [(clause.text, clause.given, clause.limits) for clause in found] == [
        ("Which plants suit it?", "My garden is shady", ("Keep it short",))
    ]


def test_a_question_left_short_asks_the_last_one_again() -> None:
    assert [clause.text for clause in split("What was revenue in 2026? And in 2025?")][1] == "What was revenue in 2025?"


@given(st.text(max_size=400))
def test_any_text_comes_apart(text: str) -> None:
    assert split(text) == split(text)


def test_a_megabyte_is_read_in_no_time() -> None:
    assert len(split("list a, and draw b. " * 50_000)) > 10
    assert split("x" * 1_000_000)
    assert split(", and" * 200_000) == []
