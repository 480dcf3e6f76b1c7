"""Which words of a question are looked for, and what they weigh against likeness of meaning."""

import pytest

from chargehand.memory.ranking import BARE, MOST_TERMS, fused, telling


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("What happened with ERR-4021?", ("ERR-4021", "ERR4021")),
        ("what happened with err4021 again", ("err4021", "err 4021")),
        ("Please look up order 121840.", ("121840",)),
        ("Which bug does 3.8.11 fix?", ("3.8.11",)),
        ("Why do we see E_BASKET_STALE in the logs?", ("E_BASKET_STALE",)),
        ("Where is asyncio.gather explained to us?", ("asyncio.gather",)),
        ("Which import fails with PermissionError?", ("PermissionError",)),
        ("Did Okonjo-Baptiste or Tszyu complain?", ("Okonjo-Baptiste", "Tszyu")),
        ("Was PFOA found anywhere?", ("PFOA",)),
        ('Who said "a sauna with a zip" of our bag?', ("a sauna with a zip",)),
        ("Wer sagte „wie im Ofen“ zu uns allen?", ("wie im Ofen",)),
        ("write to anna@example.com about it", ("anna@example.com",)),
        ("How long may I stay in 5 of the 12 huts?", ()),
        ("Tents and mats. Stoves too: how do they burn?", ()),
        ("HOW DO I GET MY MONEY BACK FROM YOU?", ()),
        ("how do i get my money back", ()),
        ("quillfeather", ("quillfeather",)),
        ("Imhof", ("Imhof",)),
        ("hang tags ostrowell", ("hang", "tags", "ostrowell")),
        ("what did mbeki-strand raise", ("mbeki-strand",)),
        ("Zoë asked Zoë about Zoë and Jörg", ("Zoë", "Jörg")),
        ("", ()),
        ("?!", ()),
        ('""', ()),
    ],
)
def test_the_words_that_name_something_are_told_from_the_others(query: str, terms: tuple[str, ...]) -> None:
    assert telling(query) == terms


def test_of_very_many_names_the_first_few_are_looked_for() -> None:
    assert telling(" ".join(f"AB-{number}" for number in range(1000))) == (
        "AB-0",
        "AB0",
        "AB-1",
        "AB1",
        "AB-2",
        "AB2",
        "AB-3",
        "AB3",
    )
    assert len(telling("x-1 " * 1_000_000)) <= MOST_TERMS
    assert telling("-" * 1_000_000 + '"' * 1_000_000) == ()


def test_without_words_the_more_alike_comes_first() -> None:
    assert fused({3: 0.2, 1: 0.714, 2: 0.4}, {}) == [
        (1, 0.714, "alike 0.71"),
        (2, 0.4, "alike 0.40"),
        (3, 0.2, "alike 0.20"),
    ]


def test_without_vectors_the_better_match_by_words_comes_first() -> None:
    found = fused({}, {7: (0.4, ("refund",)), 5: (1.0, ("refund", "tent")), 6: (0.4, ())})
    assert found == [(5, 1.0, "words only: refund, tent"), (6, 0.4, "words only"), (7, 0.4, "words only: refund")]


def test_nothing_found_is_nothing() -> None:
    assert fused({}, {}) == []


@pytest.mark.parametrize("term", ["ERR-4021", "121840", "a sauna with a zip", "E_BASKET"])
def test_who_holds_the_identifier_comes_before_all_that_is_on_topic(term: str) -> None:
    on_topic = {number: 0.7 - number / 100 for number in range(1, 20)}
    found = fused({**on_topic, 99: 0.25}, {99: (1.0, (term,))})
    assert found[0][0] == 99
    assert found[0][2] == f"alike 0.25; has {term}"


def test_a_name_counts_for_less_than_an_identifier_and_for_more_than_a_word() -> None:
    def lift(term: str) -> float:
        return fused({1: 0.3}, {1: (0.0, (term,))})[0][1] - 0.3

    assert lift("ERR-4021") > 2 * lift("Okonjo") > 2 * lift("tent") > 0


def test_a_passage_with_both_names_comes_before_those_with_one() -> None:
    words = {1: (0.5, ("Plover",)), 2: (0.5, ("3.8.1",)), 3: (1.0, ("Plover", "3.8.1"))}
    assert fused({1: 0.5, 2: 0.5, 3: 0.4}, words)[0][0] == 3


def test_a_name_that_many_passages_hold_counts_for_less() -> None:
    one = fused({1: 0.5}, {1: (0.0, ("Oslo",))})[0][1]
    many = fused(dict.fromkeys(range(50), 0.5), dict.fromkeys(range(50), (0.0, ("Oslo",))))[0][1]
    assert 0.5 < many < one - 0.03


def test_among_those_that_hold_it_the_more_alike_comes_first() -> None:
    words = dict.fromkeys(range(1, 4), (0.9, ("AB-1",)))
    assert [number for number, _, _ in fused({1: 0.3, 2: 0.6, 3: 0.4, 4: 0.65}, words)] == [2, 3, 1, 4]


def test_the_same_score_goes_by_number() -> None:
    assert [number for number, _, _ in fused({9: 0.5, 2: 0.5, 4: 0.5}, {})] == [2, 4, 9]


def test_a_passage_without_a_vector_is_not_lost_among_those_that_have_one() -> None:
    found = fused({1: 0.9, 2: 0.1}, {3: (1.0, ())})
    assert [number for number, _, _ in found] == [1, 3, 2]
    assert found[1][1] >= BARE
    assert found[1][2] == "words only"
