"""Words, sentences and the BM25 index."""

import pytest

from chargehand.text.words import (
    BM25,
    FUNCTION_WORDS,
    STOP_WORDS,
    content_words,
    find_sentences,
    quoted_phrases,
    singular,
    split_sentences,
    split_words,
    stem,
    stems,
    tokenize,
    words_by_stem,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("How many orders?", ["how", "many", "orders"]),
        ("order_total and orderTotal", ["order", "total", "and", "order", "total"]),
        ("1,200 units at 3.5 on 2024-03-05", ["1200", "units", "at", "3.5", "on", "2024-03-05"]),
        ("the shop\u2019s prices don't", ["the", "shop", "prices", "don't"]),
        ("", []),
    ],
)
def test_tokens_are_words_and_whole_numbers_in_lower_case(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


def test_every_sign_separates_plain_words() -> None:
    assert split_words("A-1042: it's_here, Straße") == ["a", "1042", "it", "s", "here", "strasse"]


@pytest.mark.parametrize(
    "family",
    [
        "plan plans planned planning",
        "sale sales",
        "city cities",
        "convert converted converting converts",
        "box boxes",
        "price prices priced pricing",
        "quick quickly",
        "operation operate operational",
    ],
)
def test_forms_of_a_word_have_one_stem(family: str) -> None:
    assert len({stem(word) for word in family.split()}) == 1


@pytest.mark.parametrize("pair", ["business busy", "supply sup", "universe unit", "bus bu", "class clas"])
def test_other_words_keep_stems_of_their_own(pair: str) -> None:
    first, second = pair.split()
    assert stem(first) != stem(second)


def test_only_the_plural_is_taken_off_for_the_singular() -> None:
    words = ["days", "studies", "boxes", "glass", "status", "running"]
    assert [singular(word) for word in words] == ["day", "study", "box", "glass", "status", "running"]


def test_stop_words_are_left_out_of_content() -> None:
    assert FUNCTION_WORDS < STOP_WORDS
    assert content_words("What is the price of a bean, please?") == ["price", "bean"]
    assert stems("Which orders were shipped?") == ["order", "ship"]


def test_a_stem_is_shown_as_the_first_word_that_has_it() -> None:
    assert words_by_stem("orders ordered")["order"] == "orders"


def test_quotations_are_found_whatever_their_marks() -> None:
    text = '"one" \u201ctwo\u201d \u201ethree\u201c \u00abfour\u00bb 5" and 6"'
    assert quoted_phrases(text) == ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("A line\nanother", ["A line", "another"]),
        ("It is 3.5 kg. Good.", ["It is 3.5 kg.", "Good."]),
        ("Dr. No pays ca. 5 EUR, e.g. today. Yes.", ["Dr. No pays ca. 5 EUR, e.g. today.", "Yes."]),
        ("Am 3. Mai kam er. Danach nicht.", ["Am 3. Mai kam er.", "Danach nicht."]),
        ("There are 12. Next.", ["There are 12.", "Next."]),
        ("", []),
    ],
)
def test_sentences_end_with_a_mark_or_a_line(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_other_marks_end_sentences_where_asked() -> None:
    assert split_sentences("Buy; sell: hold", marks=".;") == ["Buy;", "sell: hold"]
    assert split_sentences("Buy; sell: hold") == ["Buy; sell: hold"]


def test_sentences_are_found_where_they_stand() -> None:
    text = "One. Two."
    assert [text[start:end] for start, end in find_sentences(text)] == ["One.", "Two."]


def test_a_document_with_rarer_terms_of_the_query_ranks_first() -> None:
    index = BM25([["bean", "price"], ["bean", "soup"], ["price"], []])
    scores = index.scores(["bean", "price"])
    assert max(scores, key=lambda number: scores[number]) == 0
    assert set(scores) == {0, 1, 2}
    assert index.holders("bean") == [0, 1]
    assert index.rarity("soup") > index.rarity("bean")
    assert index.terms == ["bean", "price", "soup"]
    assert BM25([]).scores(["bean"]) == {}
