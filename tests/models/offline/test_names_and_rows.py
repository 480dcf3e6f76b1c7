"""Several names of which one thing is asked, names that are alike, and tables that are not told twice."""

from typing import Literal

import pytest

from chargehand.models.exhibits import Product, Table
from chargehand.models.offline.answering import answer
from chargehand.models.offline.choosing import choices
from chargehand.models.offline.closing import tabled
from chargehand.models.offline.composing import compose
from chargehand.models.offline.material import series
from chargehand.models.offline.phrasing import table_text
from chargehand.models.offline.references import parts
from chargehand.models.offline.refining import better
from chargehand.models.subject import Answering, Given
from chargehand.tools.tool import as_tool
from tests.models.offline.working import do, table

Tree = Literal["Ash", "Birch", "Cedar"]
ROWS = (("Ash", 12, 0.4, "hard"), ("Birch", 9, 0.7, "soft"))
WOOD = Table(("tree", "height", "growth", "wood"), ROWS, "trees.csv")


def compared(first: Tree, second: Tree) -> Table:
    """Compare two trees side by side."""
    return Table(("what", first, second), (("height", 12, 9), ("age", 80, 40)), "trees.csv")


def hours(rows: int, speed: int) -> int:
    """How many hours it takes to plant so many rows of trees at a speed."""
    return rows // speed


@pytest.mark.parametrize(
    ("phrase", "found"),
    [
        ("the height of Ash and Birch", ["the height of Ash", "the height of Birch"]),
        ("the height of Ash, Birch and Cedar", ["the height of Ash", "the height of Birch", "the height of Cedar"]),
        ("the height of Ash and our rules", ["the height of Ash", "our rules"]),
        ("the height of trees and Birch", ["the height of trees", "Birch"]),
        ("Ash and Birch", ["Ash", "Birch"]),
    ],
)
def test_what_is_asked_of_the_first_name_is_asked_of_the_others(phrase: str, found: list[str]) -> None:
    assert parts(phrase, "write") == found


def test_arguments_with_the_same_choices_get_one_name_each_in_the_order_they_are_said() -> None:
    worked = do("Compare the trees Cedar and Ash side by side.", [compared])
    assert [worked.arguments(at) for at in range(len(worked.calls))] == [{"first": "Cedar", "second": "Ash"}]


def test_a_number_of_rows_does_not_make_a_tool_draw() -> None:
    tool = as_tool(hours)
    assert [one.role for one in choices([tool.spec])] == ["other"]
    worked = do("How many hours does it take to plant 900 rows of trees at a speed of 30?", [hours])
    assert worked.arguments() == {"rows": 900, "speed": 30}


def test_a_row_is_called_by_its_first_column_where_that_tells_them_apart() -> None:
    alone = series(WOOD, "height")
    assert alone is not None
    assert alone.labels == ("Ash", "Birch")
    both = series(Table(("tree", "year", "height"), (("Ash", "May", 1), ("Ash", "June", 2))), "height")
    assert both is not None
    assert both.labels == ("Ash, May", "Ash, June")


def test_rows_in_words_begin_with_their_name() -> None:
    assert table_text(WOOD, "the trees").splitlines() == [
        "2 rows:",
        "- Ash: height 12, growth 0.4, wood hard",
        "- Birch: height 9, growth 0.7, wood soft",
    ]


def test_an_answer_shows_a_table_and_does_not_tell_its_rows_as_well() -> None:
    text = table_text(WOOD, "the trees")
    assert tabled(Product(text, (WOOD,))).text == ""
    assert tabled(Product(f"{text}\nThe oldest is Ash.", (WOOD,))).text == "The oldest is Ash."
    assert tabled(Product(text)).text == text
    result = Given("t1", "Show the trees. Return the answer.", "ann", Product(text, (WOOD,), ("trees.csv",)))
    other = Given("t2", "Say what is old.", "ben", "Ash is 80 years old.")
    said = answer(Answering("Show the trees, and say what is old.", (result, other)))
    assert said.startswith("Trees: 2 rows, below [t1]. Ash is 80 years old [t2].")
    assert said.count("hard") == 1


def test_a_letter_about_a_table_has_a_subject_and_not_a_count() -> None:
    letter = compose("Write a letter.", [table(WOOD.columns, *ROWS, text=table_text(WOOD, ""))], [])
    assert letter.startswith("Subject: What was found\n\nDear all,")
    assert "- Ash: height 12" in letter


def test_a_name_that_is_like_another_by_chance_is_not_put_in_its_place() -> None:
    failure = "nobody has asked for 'teleporter' before; one of: Excel export, dark mode"
    assert better("Add a teleporter.", failure).text.startswith("Add a teleporter. Use only these names: Excel export")
    assert better("Add a drak mode.", failure.replace("teleporter", "drak mode")).text.startswith("Add a dark mode.")
