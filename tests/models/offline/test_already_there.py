"""What an answer holds already, or a task was told, is not missing: totals, parts of a table, amounts said before."""

import msgspec
import pytest

from chargehand.models.exhibits import Passage, Passages, Table
from chargehand.models.offline.clauses import split
from chargehand.models.offline.evidence import unsaid
from chargehand.models.offline.ledger import Steps
from chargehand.models.offline.material import series
from chargehand.models.offline.planning import plan
from chargehand.models.offline.schema_text import read_schema
from chargehand.models.offline.text_to_sql import Asked, to_sql
from chargehand.models.subject import Planning, WorkerCard
from tests.models.offline.teams import search, sql
from tests.models.offline.working import do, table

TRIALS = (
    "table trials(glue TEXT one of 'Bond','Grip','Tack', load INTEGER one of 5,20,80,200, seconds INTEGER like "
    "12,900,70000)"
)
FLEET = table(["ship", "share_percent", "crew"], ["Alma", 12.5, 4], ["Bora", 61.0, 9], ["Red Cirrus", 26.5, 6])
PART = "Which ship makes up the biggest part of {} (the result of t1)?"


@pytest.mark.parametrize(
    "question",
    [
        "Report how the seconds of Grip grow with the load",
        "Report the seconds of Grip against the load",
        "Report the seconds of Grip over its load",
        "Report the seconds and the load of Grip",
    ],
)
def test_of_two_numbers_the_one_that_orders_the_rows_comes_first_and_the_other_is_charted(question: str) -> None:
    found = to_sql(question, read_schema(TRIALS))
    assert isinstance(found, Asked)
    assert found.sql.startswith("SELECT trials.load AS load, trials.seconds AS seconds ")
    assert found.sql.endswith(" ORDER BY 1")
    drawn = series(Table(("load", "seconds"), ((5, 12), (20, 900))), question)
    assert drawn is not None
    assert (drawn.label, drawn.value, drawn.labels, drawn.values) == ("load", "seconds", ("5", "20"), ("12", "900"))


def test_two_numbers_of_which_none_orders_the_rows_stay_as_they_were_said() -> None:
    schema = "table jars(jar TEXT one of 'Oak','Elm', price INTEGER one of 3,9,20, weight INTEGER like 100,300,700)"
    found = to_sql("Report the weight and the price of Elm", read_schema(schema))
    assert isinstance(found, Asked)
    assert found.sql.startswith("SELECT jars.weight AS weight, jars.price AS price ")


def test_amounts_told_before_the_question_of_a_sentence_are_no_question_of_their_own() -> None:
    found = split("I want to lease a boat for 900 a month, how much is the deposit?")
    assert [(one.text, one.given) for one in found] == [
        ("how much is the deposit?", "I want to lease a boat for 900 a month")
    ]


def test_a_sentence_that_only_tells_and_ends_with_a_question_mark_is_asked() -> None:
    found = split("I can lease a boat for 900 a month?")
    assert [(one.text, one.given) for one in found] == [("I can lease a boat for 900 a month?", "")]


@pytest.mark.parametrize("total", ["tell me how many there were in total", "how many were there altogether"])
def test_the_total_of_what_was_charted_is_asked_for_by_name(total: str) -> None:
    found = split(f"Show the monthly visits of Alma as a line chart and {total}.")
    assert [one.text for one in found] == [
        "draw a line chart of the monthly visits of Alma",
        "report the total visits of Alma",
    ]


def test_the_biggest_part_is_read_from_the_table_a_task_was_given() -> None:
    found = do(PART.format("the fleet of Ostrava"), inputs=[FLEET])
    assert found.text == "The biggest share percent: Bora with 61."
    assert not found.calls


@pytest.mark.parametrize("whole", ["the red ships of the fleet", "the ships in port of the fleet"])
def test_the_biggest_part_of_some_rows_is_not_that_of_all(whole: str) -> None:
    assert "The biggest share percent" not in do(PART.format(whole), inputs=[FLEET]).text


def test_the_biggest_part_of_another_kind_of_thing_is_not_in_the_table() -> None:
    found = do(PART.replace("ship", "fishing ship").format("the fleet"), inputs=[FLEET])
    assert "The biggest share percent" not in found.text


def test_two_that_are_equally_big_are_both_named() -> None:
    even = table(["ship", "share"], ["Alma", 50], ["Bora", 50])
    assert do(PART.format("the fleet"), inputs=[even]).text == "The biggest share: Alma and Bora with 50."


NOTE = Passage(
    "camps.md#night-hikes", "Night hikes: groups carry two lamps and stay on the marked way. Dogs stay home."
)


@pytest.mark.parametrize(
    "question",
    [
        "What do our notes recommend for groups on night hikes?",
        "Which lamps do you mention for night hikes?",
        "How did the hikes of the groups go?",
    ],
)
def test_a_word_for_what_documents_do_anyway_need_not_be_said(question: str) -> None:
    assert unsaid(question, [Passages("", (NOTE,))], "") == ""


@pytest.mark.parametrize(
    "question",
    [
        "What do our notes recommend for groups on glaciers?",
        "Which tents do you mention for night hikes?",
        "What do our notes recommend for dogs?",
    ],
)
def test_what_else_is_asked_must_still_be_said(question: str) -> None:
    assert "nothing found speaks of" in unsaid(question, [Passages("", (NOTE,))], "")


TRIPS = (
    "\ntable trips(trip_id TEXT like 'T1','T5','T9', place TEXT one of 'Ghent','Turin', fee_eur INTEGER like 5,12,40, "
    "outcome TEXT one of 'lost','kept', hours INTEGER like 1,3,9, owner TEXT one of 'Ann','Bo')"
)
CLUB = (
    WorkerCard("clerk", "Answers questions about trips from the book of the club.", ("data",), (sql(TRIPS),)),
    WorkerCard("reader", "Finds what our pages say.", ("documents",), (search("our pages"),)),
)


def planned_for(request: str) -> list[tuple[str, list[str]]]:
    found = msgspec.json.decode(plan(Planning(request, CLUB, 6)), type=Steps)
    return [(one.worker, list(one.after)) for one in found.tasks.values()]


@pytest.mark.parametrize(
    "request_",
    [
        "Which trips cost more than 10 euros, and who owns them?",
        "How many trips over 20 euros did we lose, and how much were they worth in total?",
    ],
)
def test_what_is_asked_of_rows_just_found_stays_with_who_found_them(request_: str) -> None:
    assert planned_for(request_) == [("clerk", []), ("clerk", ["t1"])]


def test_what_the_rows_do_not_say_is_looked_for_elsewhere() -> None:
    assert planned_for("Which trips cost more than 10 euros, and what insurance do they need?")[1:] == [
        ("reader", ["t1"])
    ]
