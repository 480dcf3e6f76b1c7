import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.models.offline import words


def test_names_of_columns_and_classes_come_apart() -> None:
    assert words.tokens("unit_price orderLines HTTPFetch") == ["unit", "price", "order", "lines", "http", "fetch"]
    assert words.tokens("What's 1,234.5 on 2026-05-30?") == ["what", "1234.5", "on", "2026-05-30"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("countries", "country"),
        ("planning", "plan"),
        ("calculation", "calculate"),
        ("monthly", "month"),
        ("sold", "sold"),
    ],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert words.stem(one) == words.stem(other)


def test_terms_leave_out_what_says_nothing_and_read_phrases_as_one_word() -> None:
    assert words.terms("How many of the orders were late?") == ["count", "order", "lat"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("in Q2 2026", [("Q2 2026", "2026-Q2")]),
        ("the second quarter of 2025", [("second quarter of 2025", "2025-Q2")]),
        ("on 30 May 2026 or May 3, 2026", [("30 May 2026", "2026-05-30"), ("May 3, 2026", "2026-05-03")]),
        ("March and April 2026", [("March", "2026-03"), ("April 2026", "2026-04")]),
        ("sales in 2025 and 2026", [("2025", "2025"), ("2026", "2026")]),
        ("first half of 2024", [("first half of 2024", "2024-H1")]),
        ("in May", [("May", "--05")]),
        ("2026-05-30", [("2026-05-30", "2026-05-30")]),
        ("May I pay 2000 EUR? It may be 2024 * 3.", []),
        ("on 31 February 2026", [("February 2026", "2026-02")]),
    ],
)
def test_dates_have_a_place_and_a_normal_form(text: str, found: list[tuple[str, str]]) -> None:
    dated = words.dates(text)
    assert [(one.text, one.normal) for one in dated] == found
    assert all(text[one.start : one.end] == one.text for one in dated)


def test_numbers_are_plain_and_not_those_of_dates_and_names() -> None:
    assert words.numbers("5k, 3.5 million, -4, 12% and 1,200.50 for ORD-1042 on 30 May 2026") == [
        "5000",
        "3500000",
        "-4",
        "12",
        "1200.50",
    ]
    assert words.numbers("the top three") == ["3"]


def test_what_is_quoted_is_found_whatever_the_marks() -> None:
    text = "'Blue Mug', \"the red one\", \u201cx y\u201d and 'it's odd', but I don't and can't"
    assert words.quoted(text) == ["Blue Mug", "the red one", "x y", "it's odd"]


def test_names_are_capitals_that_do_not_only_begin_a_sentence() -> None:
    text = "Compare Acme Corp with the Bank of England. Orders like ORD-1042 go to New York in May 2026."
    assert words.names(text) == ["Acme Corp", "Bank of England", "ORD-1042", "New York"]


def test_similar_words_count_for_less_than_the_same() -> None:
    same = words.similarity(["revenu"], ["revenu"])
    near = words.similarity(["revenu"], words.terms("turnover"))
    assert same == 1.0 > near > 0.5 > words.similarity(["revenu"], ["frost"]) == 0.0
    assert words.similarity(["a1", "b1"], ["a1"], {"a1": 3.0}) == 0.75
    assert words.kinship("dollars", "USD") > words.kinship("dollars", "EUR") > 0


@given(st.text(max_size=300))
def test_any_text_has_words(text: str) -> None:
    assert words.terms(text) == words.terms(text)
    assert len(words.names(text)) + len(words.quoted(text)) + len(words.numbers(text)) <= 3 * len(text)
    for one in words.dates(text):
        assert text[one.start : one.end] == one.text
