"""Sums that answer nothing are not made: numbers recorded for different sizes, and rows that are not meant."""

import pytest

from chargehand.models.offline.schema_text import read_schema
from chargehand.models.offline.text_to_sql import Asked, Refusal, to_sql

TRIALS = (
    "table trials(engine TEXT one of 'ant','bee','cow', family TEXT one of 'big','small', "
    "load INTEGER one of 10,100,500, ticks INTEGER like 4,45,1245)"
)
STOCK = "table stock(item TEXT one of 'bolt','nut', quantity INTEGER one of 1,2,10, weight INTEGER like 4,45,1245)"
DATED = (
    "table runs(engine TEXT one of 'ant','bee', load INTEGER one of 10,100,500, day TEXT like '2026-05-01', "
    "ticks INTEGER like 4,45,1245)"
)
BILLS = (
    "table suppliers(supplier_id TEXT like 'S1', supplier TEXT one of 'Alder Works','Birch','Cedar', ends TEXT like "
    "'2026-05-02', notice_days INTEGER like 14,60,180)\n"
    "table bills(bill_id TEXT like 'B1', supplier_id TEXT like 'S1', day TEXT like '2026-05-02', "
    "amount_eur INTEGER like 100,900,4200)"
)
TOPICS = "table topics(topic TEXT like 'sampling', level TEXT one of 'basic','expert', hours INTEGER like 2,3,6)"

KINDS = "table kinds(id INTEGER, topic TEXT one of 'sampling','spread','tests', level TEXT one of 'basic','expert')"


def query(question: str, schema: str) -> str:
    found = to_sql(question, read_schema(schema))
    assert isinstance(found, Asked), found
    return found.sql


def refused(question: str, schema: str) -> str:
    found = to_sql(question, read_schema(schema))
    assert isinstance(found, Refusal), found
    return found.reason


@pytest.mark.parametrize(
    "question",
    ["Count the ticks of ant.", "How many ticks did each engine take?", "How many ticks did the family small take?"],
)
def test_what_was_recorded_for_several_loads_is_told_for_each(question: str) -> None:
    assert "trials.load AS load" in query(question, TRIALS)


@pytest.mark.parametrize(
    ("question", "schema"),
    [
        ("What is the total number of ticks of ant?", TRIALS),
        ("How many ticks did ant take with load 100?", TRIALS),
        ("How many ticks did ant take?", DATED),
        ("What is the average number of ticks per family?", TRIALS),
    ],
)
def test_a_total_that_is_asked_for_or_happened_is_added_up(question: str, schema: str) -> None:
    assert "load AS load" not in query(question, schema)


def test_how_many_there_are_is_no_size_of_a_trial() -> None:
    assert "quantity AS quantity" not in query("What is the weight per item?", STOCK)


def test_the_two_with_the_most_are_two_different_ones() -> None:
    sql = query("Which two engines took the most ticks?", TRIALS)
    assert "MAX(trials.ticks)" in sql
    assert "GROUP BY 1" in sql


def test_a_name_in_part_and_one_in_full_are_alternatives() -> None:
    sql = query("How much did we pay Alder and Birch in May 2026?", BILLS)
    assert "OR" in sql.partition("WHERE")[2]


def test_an_amount_of_money_is_no_number_of_rows() -> None:
    sql = query("How many bills of more than 2 euros did we get per supplier?", BILLS)
    assert "bills.amount_eur > 2" in sql
    assert "HAVING" not in sql


def test_days_that_measure_a_notice_are_no_day_of_another_table() -> None:
    assert "bills" not in query("Which suppliers have a notice of more than 30 days?", BILLS)


def test_things_with_more_than_so_much_are_counted_not_added_up() -> None:
    sql = query("How many topics take more than 3 hours and are not expert?", TOPICS)
    assert "COUNT(*)" in sql
    assert "SUM" not in sql


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Which suppliers had at least 900 euros in every month?", "every time"),
        ("How many bills did Birch have then?", "elsewhere"),
        ("How many bills did Birch have in the same month?", "elsewhere"),
        ("Which of them has the most bills?", "of them"),
        ("How many bills are from Birch or done?", "done"),
    ],
)
def test_what_only_another_sentence_says_is_not_guessed(question: str, reason: str) -> None:
    assert reason in refused(question, BILLS)


def test_the_most_of_two_kinds_is_told_for_both() -> None:
    sql = query("Which level do sampling and spread use most?", KINDS)
    assert "kinds.topic" in sql
    assert "LIMIT 1" not in sql.removesuffix("LIMIT 200")
