"""Which rows a question means: yes and no, a number right behind its column, keys that several tables hold."""

import pytest

from chargehand.models.offline.schema_text import read_schema
from chargehand.models.offline.text_to_sql import Asked, Refusal, to_sql

BILLS = """
table suppliers(supplier_id TEXT like 'S1', supplier TEXT one of 'Ash','Birch', city TEXT one of 'Bath','Leeds')
table bills(bill_id TEXT like 'B1', supplier_id TEXT like 'S1', day TEXT like '2026-05-02', amount_eur INTEGER,
 paid_late TEXT one of 'no','yes', minutes INTEGER)
""".replace(",\n", ",")
COURSES = """
table topics(topic TEXT like 'sampling', hours INTEGER)
table needs(topic TEXT one of 'regression','spread', before TEXT like 'sampling')
"""
RUNS = "table runs(engine TEXT one of 'ant','bee', size INTEGER, steps INTEGER)"


def query(question: str, schema: str) -> str:
    found = to_sql(question, read_schema(schema))
    assert isinstance(found, Asked), found
    return found.sql


@pytest.mark.parametrize(
    ("question", "test"),
    [
        ("How many bills were paid late?", "bills.paid_late = 'yes'"),
        ("How many bills were paid late per supplier?", "bills.paid_late = 'yes'"),
        ("Which bills were not paid late?", "bills.paid_late = 'no'"),
        ("List the bills that were paid late.", "bills.paid_late = 'yes'"),
    ],
)
def test_a_column_of_yes_and_no_says_which_rows_are_meant(question: str, test: str) -> None:
    assert test in query(question, BILLS)


def test_a_column_of_yes_and_no_can_still_be_a_group() -> None:
    assert "WHERE" not in query("What is the total amount by paid late?", BILLS)


def test_minutes_of_something_are_minutes() -> None:
    assert "SUM(bills.minutes)" in query("How many minutes of bills are there per supplier?", BILLS)


@pytest.mark.parametrize(
    "question",
    [
        "How many steps did each engine take with size 1000?",
        "What is the total of steps per engine with a size of 1,000?",
    ],
)
def test_a_number_right_behind_a_column_is_its_value(question: str) -> None:
    sql = query(question, RUNS)
    assert "runs.size = 1000" in sql
    assert "SUM(runs.steps)" in sql


def test_the_price_of_several_things_is_not_their_number() -> None:
    tents = "table tents(tent TEXT one of 'Heron','Wren', price_eur INTEGER)"
    for question in ("What is the price of 3 tents?", "Which tents have a price of 3 Heron tents?"):
        found = to_sql(question, read_schema(tents))
        assert isinstance(found, Refusal) or "= 3" not in found.sql


def test_a_number_that_nothing_explains_is_still_a_reason_to_refuse() -> None:
    assert isinstance(to_sql("How many steps did each engine take 1000?", read_schema(RUNS)), Refusal)


def test_a_value_is_looked_for_where_the_numbers_are() -> None:
    sql = query("How many hours does regression take?", COURSES)
    assert "topics.topic = 'regression'" in sql
    assert "JOIN" not in sql


def test_nothing_is_added_up_over_rows_that_occur_several_times() -> None:
    found = to_sql("What is the total of hours per before?", read_schema(COURSES))
    assert isinstance(found, Refusal)
