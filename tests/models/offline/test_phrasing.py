"""Findings in words: numbers as people write them, tables as sentences, passages with their sources."""

import pytest

from chargehand.models.exhibits import Figure, Passage, Passages, Table
from chargehand.models.offline.composing import compose
from chargehand.models.offline.phrasing import figure_text, passages_text, shown, table_text, words_of
from chargehand.models.offline.text_to_sql import Asked
from chargehand.terms.failure import Gap
from chargehand.terms.plan import TaskId
from tests.models.offline.working import given, table

REVENUE = Table(("country", "revenue_eur"), (("Germany", 1250.5), ("France", 99)))
ASKED = Asked("", measured="revenue_eur", grouped=("country",))


@pytest.mark.parametrize(
    ("value", "money", "expected"),
    [
        (1250.5, True, "1,250.50"),
        (1250, False, "1,250"),
        ("0.08333333", False, "0.0833"),
        (None, False, "nothing"),
        ("007", False, "007"),
        ("A-12", False, "A-12"),
        (-3.5, False, "-3.5"),
        (True, False, "True"),
    ],
)
def test_numbers_as_people_write_them(value: object, money: bool, expected: str) -> None:
    assert shown(value, money=money) == expected


def test_columns_as_words() -> None:
    assert words_of("revenue_eur") == "revenue in EUR"
    assert words_of("return_rate_percent") == "return rate in percent"


def test_a_table_of_names_and_numbers_is_one_sentence_with_its_total() -> None:
    said = table_text(REVENUE, "revenue per country in May 2026", ASKED)
    assert said == "Revenue in EUR by country in May 2026: Germany 1,250.50, France 99.00. Together: 1,349.50."


def test_averages_are_not_added_up() -> None:
    said = table_text(
        Table(("kind", "average_age"), (("cat", 3), ("dog", 5))),
        "",
        Asked("", measured="average_age", grouped=("kind",)),
    )
    assert "Together" not in said


def test_no_rows_are_said_to_be_none() -> None:
    assert table_text(Table(("n",), ()), "orders in May 2026", ASKED) == "No rows were found in May 2026."
    assert table_text(Table(("n",), ((None,),)), "orders", Asked("")) == "No rows were found."


def test_many_rows_are_cut_and_counted() -> None:
    many = Table(("name", "value"), tuple((f"n{at}", at) for at in range(20)), more=5)
    assert "and 17 more" in table_text(many, "")


def test_a_figure_keeps_its_digits() -> None:
    assert figure_text(Figure("0.9380", label="CHF per EUR")) == "CHF per EUR: 0.9380."
    assert figure_text(Figure("372", "15 / 100 * 2480"), "15 / 100 * 2480") == "15 / 100 * 2480 = 372."


def test_passages_of_the_named_document_come_with_their_source() -> None:
    found = Passages(
        "late deliveries",
        (
            Passage("returns.md#a", "Parcels come back.", 9.0),
            Passage("incident-may.md#b", "Nine parcels were late. We paid.", 8.0),
        ),
    )
    said = passages_text(found, "What do our incident reports say about late deliveries?")
    assert said == "Nine parcels were late. We paid. (incident-may.md#b)"


FACTS = [given({"text": "Revenue rose to 20.\nCosts fell to 5.", "exhibits": []}), table(("a", "b"), ("x", 1))]


def test_a_memo_has_a_heading_and_every_fact() -> None:
    said = compose("Write a short memo about the spring results.", FACTS, ())
    assert said.startswith("Memo: Spring results\n\n")
    assert "Revenue rose to 20." in said
    assert "x 1" in said or "a x, b 1" in said.lower()


def test_bullets_and_sentences_as_wished() -> None:
    bullets = compose("Summarise it in bullet points", FACTS, ())
    assert all(line.startswith("- ") for line in bullets.splitlines())
    assert compose("Summarise it in one sentence", FACTS, ()) == "Revenue rose to 20."


def test_what_is_missing_is_named() -> None:
    gap = Gap(TaskId("t9"), "failed", "logic", "no rate for that day")
    assert "Missing: no rate for that day" in compose("Write a summary", FACTS, (gap,))


def test_nothing_comes_of_nothing() -> None:
    assert compose("Write a memo", (), ()) == ""
