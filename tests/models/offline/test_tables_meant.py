"""Questions over tables that were once answered with another number than the one that was meant."""

from pathlib import Path

import pytest

from chargehand import Supervisor, Worker
from chargehand.models.exhibits import Passage, Passages
from chargehand.models.offline.amounts import amount
from chargehand.models.offline.axes import drawn
from chargehand.models.offline.carriers import carriers
from chargehand.models.offline.choosing import Parameter
from chargehand.models.offline.clauses import split
from chargehand.models.offline.evidence import unsaid
from chargehand.models.offline.material import Material
from chargehand.models.offline.schema_text import read_schema
from chargehand.models.offline.text_to_sql import Asked, Refusal, to_sql
from chargehand.tools.chart import chart
from chargehand.tools.documents import documents
from chargehand.tools.sql import sql

HARBOUR = (
    "table boats(boat TEXT one of 'Alma','Bora','Cirrus','Dune', country TEXT one of 'Malta','Spain', "
    "price_eur REAL one of 9.5,11.0,14.0,20.0, seats INTEGER one of 4,6,8)\n"
    "table hires(day TEXT like '2026-03-02','2026-05-04','2026-06-28', guest_boat TEXT one of 'Bora','Cirrus','Dune', "
    "ended TEXT one of 'lost','kept','won', amount_eur INTEGER like 100,900,4200)"
)
BILLS = (
    "table firms(firm_id TEXT like 'F1','F4','F9', firm TEXT one of 'Alder','Birch', opened INTEGER like "
    "1998,2004,2021)\n"
    "table bills(bill_id TEXT like 'B1','B5','B9', firm_id TEXT like 'F1','F4','F9', day TEXT like "
    "'2025-02-01','2025-06-01','2025-11-30', amount_eur INTEGER like 100,900,4200)"
)
LESSONS = (
    "table lessons(lesson_id TEXT like 'L1','L4','L9', form TEXT one of 'film','game', minutes INTEGER like 5,30,90, "
    "fee_eur INTEGER one of 0,5,12)"
)
TESTS = (
    "table samples(day TEXT like '2026-01-01','2026-02-01','2026-03-01', well TEXT one of 'North','South', "
    "mineral TEXT one of 'iron','lead', sample REAL like 0.1,2.0,5.5)\n"
    "table limits(mineral TEXT one of 'iron','lead', low REAL one of 0.2,0.5, high REAL one of 2.0,3.5)"
)
PLANS = (
    "table plans(plan TEXT one of 'Free','Plus','Team', price_month_usd INTEGER one of 0,20,45)\n"
    "table months(plan TEXT one of 'Free','Plus','Team', month TEXT like '2026-01-01','2026-03-01','2026-06-01', "
    "users INTEGER like 10,200,900)"
)
MARKET = (
    "table brands(brand TEXT one of 'Ash','Elm','Oak', volume_ml INTEGER one of 500,750, market_share INTEGER one of "
    "10,20,30, rating REAL one of 3.5,4.1)"
)


def query(question: str, schema: str) -> str:
    found = to_sql(question, read_schema(schema))
    assert isinstance(found, Asked), found
    return found.sql


def refused(question: str, schema: str) -> str:
    found = to_sql(question, read_schema(schema))
    assert isinstance(found, Refusal), found
    return found.reason


@pytest.mark.parametrize("question", ["Report the total billed by each firm.", "How much did Alder bill us?"])
def test_what_was_billed_is_money_and_not_a_number_of_bills(question: str) -> None:
    assert "SUM(bills.amount_eur)" in query(question, BILLS)


def test_a_total_of_nothing_that_is_named_is_no_count() -> None:
    assert 'of what "average"' in refused("What is the average per form?", LESSONS)


def test_the_number_of_things_and_a_total_are_both_given() -> None:
    found = query("Give the number of lessons and the total minutes of each form.", LESSONS)
    assert "SUM(lessons.minutes) AS minutes, COUNT(*) AS lessons" in found


def test_two_columns_joined_by_and_are_both_measured_each_in_its_way() -> None:
    assert "AVG(lessons.minutes)" in query("What are the average fee and minutes per form?", LESSONS)
    found = query("What are the total minutes and the average fee per form?", LESSONS)
    assert "AVG(lessons.fee_eur)" in found
    assert "SUM(lessons.minutes)" in found


def test_a_count_of_another_table_is_not_left_out_unsaid() -> None:
    reason = refused("What are the number of firms and the total amount of bills per firm?", BILLS)
    assert "leaves out the number of firms" in reason


def test_of_two_tables_that_are_to_be_counted_none_is_left_out_unsaid() -> None:
    assert "leaves out the number of" in refused("How many bills and firms are there?", BILLS)


def test_two_figures_are_not_the_amount_that_a_tool_takes() -> None:
    price = Parameter("price", type="number", required=True)
    assert amount(price, "Give me two figures per country.", Material(), set()) == []
    assert amount(price, "What is sold at 2 euros?", Material(), set()) == [2.0]


def test_the_number_that_others_are_told_by_comes_first_and_in_order() -> None:
    schema = "table trials(engine TEXT one of 'ant','bee', load INTEGER one of 1,2,3,9, ticks INTEGER like 4,45,99)"
    found = query("Show the ticks of ant by load.", schema)
    assert found.startswith("SELECT trials.load AS load, trials.ticks AS ticks")
    assert found.endswith("ORDER BY 1")


def test_what_lost_hires_were_worth_is_not_called_revenue() -> None:
    assert "AS amount_eur" in query("What was the value of the lost hires by month?", HARBOUR)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("Is the iron of North out of range?", "ELSE 'within' END AS its_range"),
        ("Which samples of North are too high?", "ELSE 'within' END = 'above'"),
        ("Which samples of South are outside the range?", "ELSE 'within' END <> 'within'"),
    ],
)
def test_what_is_asked_of_a_range_is_held_against_it(question: str, wanted: str) -> None:
    found = query(question, TESTS)
    assert "WHEN samples.sample > limits.high THEN 'above'" in found
    assert wanted in found


def test_how_many_are_out_of_range_counts_only_those() -> None:
    found = query("How many of the samples of North are out of range?", TESTS)
    assert found.startswith("SELECT COUNT(*) AS samples")
    assert "END <> 'within'" in found
    assert "held against" in refused("What is the average sample of North out of range?", TESTS)


def test_a_range_without_numbers_to_hold_against_it_is_not_shown_for_an_answer() -> None:
    lone = "table limits(mineral TEXT one of 'iron','lead', low REAL one of 0.2,0.5, high REAL one of 2.0,3.5)"
    assert "held against its range" in refused("Is the iron out of range?", lone)


@pytest.mark.parametrize(
    "question",
    [
        "List the plans with a price of more than 30 dollars a month.",
        "List the plans that cost more than 30 dollars a month.",
    ],
)
def test_dollars_a_month_need_no_months_where_the_price_is_of_a_month(question: str) -> None:
    found = query(question, PLANS)
    assert "WHERE plans.price_month_usd > 30" in found
    assert "JOIN" not in found


@pytest.mark.parametrize(
    ("question", "schema", "wanted"),
    [
        ("How many hires over 3,000 euros were lost?", HARBOUR, "hires.amount_eur > 3000"),
        ("How many lost hires were over 3,000?", HARBOUR, "hires.amount_eur > 3000"),
        ("Which samples of North were above 2?", TESTS, "samples.sample > 2"),
        ("Which wells have iron above 2?", TESTS, "samples.sample > 2"),
        (
            "Which lessons cost nothing and take more than 50 minutes?",
            LESSONS,
            "lessons.fee_eur = 0 AND lessons.minutes",
        ),
    ],
)
def test_a_number_is_compared_with_what_the_rows_are_about(question: str, schema: str, wanted: str) -> None:
    assert wanted in query(question, schema)


def test_a_bare_number_is_not_compared_with_whatever_number_there_is() -> None:
    orders = "table orders(order_id INTEGER, item TEXT one of 'bolt','nut', quantity INTEGER like 1,20,300)"
    assert refused("How many orders over 100?", orders)


def test_who_is_called_so_in_another_table_is_those_who_stand_there() -> None:
    found = query("What is the average price of our guest boats?", HARBOUR)
    assert "boats.boat IN ('Bora', 'Cirrus', 'Dune')" in found


def test_what_charges_the_most_has_the_highest_price_and_says_what_no_table_tells() -> None:
    found = to_sql("Which boat charges the most per hour?", read_schema(HARBOUR))
    assert isinstance(found, Asked)
    assert "ORDER BY boats.price_eur DESC LIMIT 1)" in found.sql
    assert found.overlooked == ("hour",)


@pytest.mark.parametrize(
    ("question", "gone"),
    [
        ("How many hires were lost in 2025?", "nothing is on record for 2025"),
        ("How many hires were lost in July 2026?", "from 2026-03-02 to 2026-06-28"),
        ("How many hires were lost in May 2026?", ""),
        ("How many hires were lost since January 2026?", ""),
        ("How many hires were lost before 2027?", ""),
        ("How many hires were lost before 2026?", "nothing is on record before 2026-01-01"),
    ],
)
def test_days_that_are_not_on_record_are_known(question: str, gone: str) -> None:
    found = to_sql(question, read_schema(HARBOUR))
    assert isinstance(found, Asked)
    assert gone in found.gone
    assert bool(gone) is bool(found.gone)


def test_a_year_is_compared_with_the_column_of_years_that_is_named() -> None:
    found = query("Which firms opened before 2004?", BILLS)
    assert "firms.opened < 2004" in found
    assert "bills" not in found


def test_the_number_behind_a_superlative_is_what_is_ranked() -> None:
    assert "ORDER BY brands.market_share DESC" in query("Which brand has the largest market share?", MARKET)


@pytest.mark.parametrize(
    "question", ["Which plan grew the most in users?", "Which plan had the largest increase of users?"]
)
def test_the_largest_change_is_not_the_largest_number(question: str) -> None:
    assert "changes are not ranked" in refused(question, PLANS)


@pytest.mark.parametrize("question", ["How many hires were there in her boat?", "How many hires were kept there?"])
def test_who_or_where_is_said_elsewhere_is_not_everybody(question: str) -> None:
    assert "said elsewhere" in refused(question, HARBOUR)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("the hires per month as a line chart", "draw a line chart of the hires per month"),
        ("Show me the hires per boat as a chart.", "draw a chart of the hires per boat"),
        ("chart the hires", "draw a chart of the hires"),
        ("show the hires", "show the hires"),
    ],
)
def test_a_chart_is_drawn_however_it_is_asked_for(text: str, wanted: str) -> None:
    assert drawn(text) == wanted


def test_whoever_shares_the_first_place_is_named_too(tmp_path: Path) -> None:
    team = _team(tmp_path)
    lowest = team.run_sync("Which boat had the fewest hires?")
    assert "Bora" in str(lowest.answer)
    assert "Cirrus" in str(lowest.answer)
    assert "Alma" not in str(lowest.answer)


def test_the_most_people_are_counted_and_not_the_one_with_the_highest_number() -> None:
    people = "table people(person_id INTEGER, town TEXT one of 'Bath','Leith', budget_eur INTEGER like 5,20,90)"
    found = query("Which town has the most people with a budget above 30 euros?", people)
    assert found.startswith("SELECT people.town AS town, COUNT(*) AS people FROM people WHERE people.budget_eur > 30")


def test_a_value_stands_in_the_column_that_is_named_right_before_it() -> None:
    schema = (
        "table topics(topic TEXT one of 'spread','tests', hours INTEGER one of 1,2)\n"
        "table order_of(topic TEXT one of 'spread','tests', needs TEXT one of 'spread','sums')"
    )
    assert "WHERE order_of.needs = 'spread'" in query("How many topics need spread?", schema)


def test_by_how_many_percent_something_grew_is_no_share() -> None:
    found = query("By how many percent did the users of Plus grow from January 2026 to June 2026?", PLANS)
    assert "SUM(months.users) AS users" in found
    assert "100.0" not in found


def test_what_holds_at_the_moment_is_what_is_on_record() -> None:
    assert [one.text for one in split("What is Alma worth at the moment?")] == ["What is Alma worth?"]


def test_what_somebody_has_is_asked_for_and_not_only_who() -> None:
    assert "sails" in carriers("Does the Alma have red sails?")


@pytest.mark.parametrize("question", ["What does the Alma cost for 25 guests?", "What would 40 seats of Alma cost?"])
def test_the_cost_of_so_many_is_not_the_price_of_one(question: str) -> None:
    found = Passages(question, (Passage("alma.md", "The Alma costs 12 euros a seat for guests.", 1.0),))
    assert "nothing there speaks of" in unsaid(question, [found], "boats")
    assert unsaid("What does the Alma cost?", [found], "boats") == ""


def _team(folder: Path) -> Supervisor:
    (folder / "books").mkdir()
    rows = (
        "day,boat,amount",
        "2026-05-02,Alma,200",
        "2026-05-09,Bora,60",
        "2026-05-30,Cirrus,140",
        "2026-06-01,Alma,90",
    )
    (folder / "books/hires.csv").write_text("\n".join(rows))
    (folder / "papers").mkdir()
    (folder / "papers/terms.md").write_text("# Hires\nHires of boats are paid in advance.\n")
    return Supervisor(
        [
            Worker(
                "clerk",
                description="Answers questions about hires of boats from the database.",
                tools=[sql(folder / "books")],
            ),
            Worker("archivist", description="Finds what our documents say.", tools=[documents(folder / "papers")]),
            Worker("artist", description="Draws charts of numbers that others have found.", tools=[chart()]),
        ]
    )


def test_no_rows_of_a_year_that_is_not_on_record_are_no_zero(tmp_path: Path) -> None:
    found = _team(tmp_path).run_sync("How many hires were there in 2024?")
    assert found.ending == "failed"
    assert "nothing is on record for 2024" in found.gaps[0].message


def test_the_chart_of_who_has_most_shows_all_of_them(tmp_path: Path) -> None:
    found = _team(tmp_path).run_sync("Which boat had the most hires? Draw a chart.")
    assert found.ending == "complete"
    assert "3 values" in str(found.answer)
