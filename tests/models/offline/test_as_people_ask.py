"""Requests as people put them: stories before a question, typing mistakes, "its", units, tables asked for advice."""

from typing import Literal

import pytest

from chargehand.agents.claims import unsupported
from chargehand.models.exhibits import Figure, Passage, Passages, Table
from chargehand.models.offline.clauses import split
from chargehand.models.offline.evidence import unsaid
from chargehand.models.offline.material import series
from chargehand.models.offline.mistyped import meant, mistyped
from chargehand.models.offline.phrasing import table_text
from chargehand.models.offline.pointed import with_names
from chargehand.models.offline.references import parts
from chargehand.models.offline.remembering.wishes import Keep, wishes
from chargehand.models.offline.schema_text import read_schema
from chargehand.models.offline.text_to_sql import Asked, Refusal, to_sql
from chargehand.models.offline.words import numbers
from chargehand.models.subject import Given, WorkerCard
from tests.models.offline.working import do, table

BREEDERS = """
table kennels(kennel TEXT one of 'Ashgrove','Briarwood','Cedars', town TEXT one of 'Hull','Leeds', opened_year INTEGER,
 keepers INTEGER, fee_day_eur INTEGER)
table months(kennel TEXT one of 'Ashgrove','Briarwood','Cedars', month TEXT like '2026-01-01', stays INTEGER)
""".replace(",\n", ",")
TRIALS = "table trials(dog TEXT one of 'Rex sort','Tess', breed TEXT one of 'collie','sort', weight REAL, seconds REAL)"
BOARD = """
table posts(post TEXT one of 'gate','fence', area TEXT one of 'garden','yard', votes INTEGER)
table keepers(area TEXT one of 'garden','yard', keeper TEXT one of 'Ida','Jon')
"""


def query(question: str, schema: str = BREEDERS) -> str:
    found = to_sql(question, read_schema(schema))
    assert isinstance(found, Asked), found
    return found.sql


def refusal(question: str, schema: str = BREEDERS) -> str:
    found = to_sql(question, read_schema(schema))
    assert isinstance(found, Refusal), found
    return found.reason


# --- tables


def test_a_table_of_months_is_grouped_by_its_months() -> None:
    found = query("The stays of Cedars per month in 2026.")
    assert found.startswith("SELECT substr(months.month, 1, 7) AS month, SUM(months.stays)")


def test_of_two_that_are_compared_each_row_says_which_it_is() -> None:
    assert query("Compare Ashgrove and Cedars by fee and town.").startswith("SELECT kennels.kennel AS kennel")


def test_what_is_on_record_for_each_is_read_and_nothing_is_counted() -> None:
    found = query("What is the town of each kennel?")
    assert found == "SELECT kennels.kennel AS kennel, kennels.town AS town FROM kennels"


def test_numbers_are_shown_with_what_they_are_of() -> None:
    assert query("Show the fees.").startswith("SELECT kennels.kennel AS kennel")


def test_a_number_behind_part_of_a_columns_name_is_its_value() -> None:
    assert "kennels.fee_day_eur = 0" in query("Which kennels in Hull have a fee of 0?")


def test_two_months_that_are_compared_keep_their_order() -> None:
    found = query("How did the stays of Cedars change from January to June 2026?")
    assert " AS period, SUM(months.stays)" in found
    assert "ORDER BY 1" in found


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("How many stays did the kennel with the most keepers have in May 2026?", '"keepers"'),
        ("Which fee should we ask?", "what should be"),
        ("What happened to Cedars in May 2026?", "what happened"),
        ("I need a kennel in Hull.", "it is a wish"),
    ],
)
def test_what_tables_do_not_say_is_refused(question: str, reason: str) -> None:
    assert reason in refusal(question)


def test_numbers_can_be_groups_where_they_are_named_as_such() -> None:
    assert query("The seconds of Rex sort per weight.", TRIALS).startswith("SELECT trials.weight AS weight, ")
    found = query("Seconds per breed and weight.", TRIALS)
    assert found.startswith("SELECT trials.breed AS breed, trials.weight AS weight, ")


def test_who_asks_for_areas_does_not_get_the_person_in_charge() -> None:
    assert "keepers.keeper AS area" not in query("How many votes are there per area?", BOARD)


def test_a_year_is_no_amount() -> None:
    one = table_text(Table(("opened_year",), ((2023,),)), "")
    several = table_text(Table(("kennel", "opened_year"), (("Ashgrove", 2023), ("Cedars", 2024))), "")
    assert "2023" in one
    assert "Cedars 2024" in several


def test_whom_an_earlier_result_named_stands_in_the_next_question() -> None:
    found = table(("kennel", "keepers"), ("Cedars", 12))
    text = "How many stays did the kennel that has the most keepers (the result of t1) have in May 2026?"
    assert with_names(text, [found]) == "How many stays did Cedars have in May 2026?"
    assert with_names("The fee of the kennel that is best (the result of t1).", [found]) == "The fee of Cedars."
    assert with_names(text, [Given("t1", "", "", "twelve")]) == text


# --- words


@pytest.mark.parametrize(
    ("word", "right"), [("shedule", "schedule"), ("conect", "connect"), ("Crovid", "Corvid"), ("postgress", "postgres")]
)
def test_a_mistyped_word_of_the_team_is_read_as_that(word: str, right: str) -> None:
    card = WorkerCard("clerk", "Keeps the schedule, can connect Corvid and Postgres.")
    found, read = meant(f"Ask for {word} now.", [card])
    assert found == f"Ask for {right} now."
    assert read == [f"{word!r} is read as {right.lower()!r}."]


def test_another_word_is_not_taken_for_a_mistake() -> None:
    assert not mistyped("corvin", "corvid")
    assert not mistyped("reverse", "reserve")
    card = WorkerCard("clerk", "Keeps the country houses and country inns.")
    for said in ("Visit the houses.", 'It says "contry".', "An outing."):
        assert meant(said, [card]) == (said, [])


def test_a_million_is_a_number() -> None:
    assert numbers("with a million rows") == ["1000000"]
    assert numbers("2 million rows at 8000") == ["2000000", "8000"]


# --- requests


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        (
            "Do the market research, work out the best price and draft launch copy.",
            ["analyse the market", "work out the best price", "draft launch copy"],
        ),
        ("My dog does not eat, and I have a cough.", ["My dog does not eat", "I have a cough"]),
        (
            "What do the papers and the manual say about worms?",
            ["What do the papers say about worms?", "What do the manual say about worms?"],
        ),
        ("I want to borrow 900 for 2 years. What do I pay?", ["What do I pay?"]),
        ("I want to compare the fees.", ["compare the fees"]),
    ],
)
def test_a_request_falls_into_what_is_asked(request_: str, asked: list[str]) -> None:
    assert [one.text for one in split(request_)] == asked


def test_what_it_says_of_the_first_thing_is_said_with_its_name() -> None:
    found = parts("heap search with its code and the steps it takes with 500 items", "write")
    assert found == ["heap search", "the code of heap search", "the steps heap search takes with 500 items"]


def test_what_is_to_be_done_is_not_noted() -> None:
    (part,) = wishes("Note in the archive that we look into worms, and find out what the papers say about them.")
    assert isinstance(part.wish, Keep)
    assert part.wish.said == "We look into worms."


def test_a_story_need_not_stand_in_the_documents() -> None:
    passage = Passage("kennel.md", "The kennel gives the deposit back within 60 days after the dog has left.")
    found = [Passages("", (passage,))]
    told = "I left with my dog weeks ago and the kennel still has my deposit."
    assert unsaid(f"{told} What are my rights?", found, "") == ""
    assert "worms" in unsaid(f"{told} Which worms are dangerous?", found, "")


# --- tools


def fence(length: float, rate: float, years: int) -> Figure:
    """What a fence costs.

    Args:
        length: how long it is
        rate: the interest in percent
        years: how many years it lasts

    """
    return Figure(f"{length} {rate} {years}", label="fence")


def ration(breed: Literal["collie", "beagle"], weight: float) -> Figure:
    """How much food a dog of some breed gets by what it weighs.

    Args:
        breed: which breed
        weight: what the dog weighs, in kilograms

    """
    return Figure(f"{breed} {weight}", label="ration")


def test_a_number_goes_to_the_argument_with_its_unit() -> None:
    found = do("What does a fence cost over 25 years at 3.5 percent with 150 metres?", [fence])
    assert found.arguments() == {"length": 150.0, "rate": 3.5, "years": 25}


def test_each_of_several_numbers_is_asked_for() -> None:
    found = do("How much food does a collie of 10, 20 and 30.50 kg get?", [ration])
    assert [one.arguments for one in found.calls if one.name == "ration"] == [
        '{"breed":"collie","weight":10.0}',
        '{"breed":"collie","weight":20.0}',
        '{"breed":"collie","weight":30.5}',
    ]
    assert found.gave_up == ""


def test_what_a_tool_must_be_told_it_does_not_find_out() -> None:
    found = do("How many years does a fence of 150 metres last at 3 percent for 20 euros?", [fence])
    assert "must be given the years" in found.gave_up


def test_how_many_rows_are_not_shown_needs_no_source() -> None:
    result = Given("t1", "List the dogs.", "clerk", "Rex is 3 and Tess is 4.")
    assert unsupported("Rex is 3 [t1].\n\n… 11 more rows", [result]) == ()
    assert [one.text for one in unsupported("There are 11 dogs [t1].", [result])] == ["11"]


def test_months_are_not_years() -> None:
    assert "needs years" in do("What does a fence of 150 metres cost over 24 months at 3 percent?", [fence]).gave_up


def test_all_choices_that_are_meant_are_asked_for() -> None:
    def show(dog: Literal["red setter", "pug", "irish setter"]) -> str:
        """Show a dog."""
        return f"This is a {dog}."

    found = do("Show all setter dogs.", [show])
    assert {one.arguments for one in found.calls} == {'{"dog":"red setter"}', '{"dog":"irish setter"}'}


def test_a_noun_that_is_left_out_is_that_of_the_question_before() -> None:
    found = [one.text for one in split("How many dogs are awake and how many are asleep?")]
    assert found == ["How many dogs are awake", "how many dogs are asleep?"]


def test_numbers_that_are_groups_are_not_what_is_drawn() -> None:
    rows = ((10, "pug", 4), (20, "pug", 9), (10, "setter", 5), (20, "setter", 7))
    found = series(Table(("size", "dog", "steps"), rows), "dogs by steps for each size")
    assert found is not None
    assert found.value == "steps"
    assert found.labels == ("pug, 10", "pug, 20", "setter, 10", "setter, 20")
