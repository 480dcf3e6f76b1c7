"""Long texts are cut where reading pauses, and nothing of them is lost."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.memory.chunking import LEAST, LONGEST, Part, cut, heading_of

SENTENCE = "The quick brown fox jumps over the lazy dog of number {}. "


def story(sentences: int, start: int = 0) -> str:
    return "".join(SENTENCE.format(number) for number in range(start, start + sentences)).strip()


def bare(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("text", ["", " \n\t", "\n" * 5000, " " * 5000])
def test_nothing_makes_no_part(text: str) -> None:
    assert cut(text) == []


def test_a_short_text_is_left_as_it_is() -> None:
    assert cut("  as\n\n\nit is ") == [Part("  as\n\n\nit is ")]
    assert cut("x" * LONGEST) == [Part("x" * LONGEST)]


def test_paragraphs_are_kept_whole_where_they_fit() -> None:
    paragraphs = [story(8, number * 8) for number in range(12)]
    parts = cut("\n\n".join(paragraphs))
    assert all(LEAST <= len(part.text) <= LONGEST for part in parts[:-1])
    assert "\n\n".join(part.text for part in parts) == "\n\n".join(paragraphs)
    assert [part.text.split("\n\n")[0] in paragraphs for part in parts] == [True] * len(parts)


def test_a_long_paragraph_is_cut_behind_a_sentence() -> None:
    parts = cut(story(100))
    assert len(parts) > 2
    assert all(part.text.endswith(".") and part.text.startswith("The quick") for part in parts)


def test_a_long_sentence_is_cut_between_words_and_a_long_word_anywhere() -> None:
    words = [f"word{number}" for number in range(1000)]
    assert [word for part in cut(" ".join(words)) for word in part.text.split()] == words
    assert [len(part.text) for part in cut("x" * 4000)] == [1100, 1100, 1100, 700]
    assert all(part.text.endswith("。") for part in cut("これは短い文です。" * 400))


def test_a_heading_goes_along_with_all_that_stands_under_it() -> None:
    text = f"# Guide\n\n{story(12)}\n\n## Returns ##\n{story(80)}\n\n## Last\n\nend"
    parts = cut(text)
    assert parts[0].text.startswith("# Guide\n\nThe quick")
    begins = next(number for number, part in enumerate(parts) if part.text.startswith("## Returns"))
    assert begins == 1, "a section begins a part where the one before it is long enough"
    following = [part for part in parts[begins + 1 :] if not part.text.startswith("## Last")]
    assert {part.heading for part in following} == {"## Returns ##"}
    assert all(str(part).startswith("## Returns ##\n\nThe quick") for part in following)
    assert all(len(str(part)) <= LONGEST for part in parts)
    assert "## Last\n\nend" in parts[-1].text


def test_short_sections_share_a_part() -> None:
    parts = cut("\n".join(f"# Heading {number}\nshort {number}" for number in range(200)))
    assert len(parts) < 20
    assert all(part.text.startswith("# Heading") and part.heading == "" for part in parts)


def test_a_heading_is_never_left_without_what_it_stands_over() -> None:
    parts = cut(f"{story(16)}\n\n# Costs\n\n{story(20, 50)}\n\n# Dates\n\n{story(20, 90)}")
    assert not any(part.text.rstrip().endswith(("# Costs", "# Dates")) for part in parts)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("# a", "a"),
        ("###### a b ##", "a b"),
        ("####### a", ""),
        ("#a", ""),
        ("a # b", ""),
        ("# C# ", "C#"),
        ("#", ""),
        ("", ""),
        ("# ##", "#"),
        ("#\ta", "a"),
        ("#  ", " "),
    ],
)
def test_headings_are_told_from_other_lines(line: str, said: str) -> None:
    assert heading_of(line) == said


pieces = st.sampled_from(
    [
        "a",
        "word ",
        "Ende. ",
        "\n",
        "\n\n",
        "\r\n",
        "# ",
        "\n# Kopf\n",
        "\n```\n",
        "x" * 700,
        "é 。",
        "\u2028",
        "\0",
        "#",
    ]
)


@given(st.lists(pieces, max_size=60).map("".join))
def test_every_character_that_matters_is_in_some_part_in_order(text: str) -> None:
    parts = cut(text)
    assert "".join(bare(part.text) for part in parts) == bare(text)
    assert all(part.text.strip() and len(str(part)) <= LONGEST for part in parts)
    if len(text) > LONGEST and all(len(word) < LONGEST // 2 - 210 for word in text.split()):
        assert [word for part in parts for word in part.text.split()] == text.split()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x" * 10_000_000, id="no blanks"),
        pytest.param("# a" + " " * 3_000_000 + "b", id="one heading"),
        pytest.param("#" * 3_000_000, id="marks"),
        pytest.param(("\n" + " " * 3000 + "x") * 1000, id="blank lines"),
        pytest.param("# h\n" * 100_000, id="headings"),
    ],
)
def test_strange_texts_of_any_length_are_cut_in_time(text: str) -> None:
    began = time.perf_counter()
    parts = cut(text)
    assert "".join(bare(part.text) for part in parts) == bare(text)
    assert time.perf_counter() - began < 5
