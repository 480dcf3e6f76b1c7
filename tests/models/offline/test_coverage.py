"""What a request says must be in the call that answers it, or there is no answer. Each was once passed over."""

import csv
from pathlib import Path

import pytest

import chargehand.config as config
from chargehand import Supervisor, Worker, tool
from chargehand.config.load import load_team
from chargehand.models.exhibits import Passage, Passages
from chargehand.models.offline.carriers import carriers
from chargehand.models.offline.clauses import split
from chargehand.models.offline.evidence import unsaid
from chargehand.models.offline.forms import unknown_form
from chargehand.models.offline.refining import better
from chargehand.models.offline.schema_text import read_schema
from chargehand.models.offline.searching import query
from chargehand.models.offline.text_to_sql import Asked, Refusal, to_sql
from chargehand.team import Result
from chargehand.tools.calculator import calculator
from chargehand.tools.sql import sql
from tests.models.offline.working import do

SHOP = Path(config.__file__).parent / "templates" / "shop"
FURNITURE = read_schema(
    "table customers(customer_id INTEGER, name TEXT like 'Ana Ruiz', city TEXT one of 'Porto','Lyon')\n"
    "table orders(order_id INTEGER, customer_id INTEGER, product_id INTEGER, day TEXT like '2026-05-17', "
    "quantity INTEGER, status TEXT one of 'open','shipped')\n"
    "table products(product_id INTEGER, product TEXT one of 'Oak Desk','Pine Chair', category TEXT one of "
    "'desks','chairs','lamps', price_eur REAL, supplier TEXT one of 'Brasco','Nord')\n"
    "table returns(order_id INTEGER, returned_on TEXT like '2026-05-17')"
)


def shop(goal: str) -> Result:
    return load_team(SHOP).run_sync(goal)


def furniture(question: str) -> str:
    found = to_sql(question, FURNITURE)
    assert isinstance(found, Asked), found
    return found.sql


def told(text: str, source: str = "strike.md") -> list[Passages]:
    return [Passages("", (Passage(source, text),))]


@pytest.mark.parametrize(
    "goal",
    [
        "top 5 customers by revenue",
        "Which customers ordered in April but not in May?",
        "status of order 1042",
        "What did we pay Brasco in 2026?",
        "Who is the head of sales?",
        "What is the weather in Kassel?",
        "How many orders were cancelled in 2026?",
        "How many backpacks do we have in stock?",
        "Which supplier has the longest lead time?",
        "What was revenue yesterday?",
        "Translate the returns policy into French",
        "Write a haiku about tents",
        "draft a reply to the customers",
    ],
)
def test_what_neither_table_nor_document_says_is_not_answered_with_something_else(goal: str) -> None:
    result = shop(goal)
    assert result.ending == "failed"
    assert result.gaps[0].message


def test_who_does_something_is_looked_up_where_a_column_is_called_so() -> None:
    result = shop("How many tents did we sell in Germany in 2026, and who supplies them?")
    assert result.ending == "complete"
    assert "Nordveil" in str(result.answer)
    assert "58" in str(result.answer)


def test_an_amount_is_converted_into_every_currency_that_is_named() -> None:
    result = shop("Convert the revenue of Germany in May 2026 to pounds at the rate of 2026-05-29 and to Swiss francs")
    assert [task.worker for task in result.plan.tasks] == ["analyst", "treasurer"]
    assert "2,148.09 GBP" in str(result.answer)
    assert "2,270.93 CHF" in str(result.answer)


def test_a_reply_is_written_by_who_writes_and_not_looked_for_among_the_customers() -> None:
    result = shop("draft a reply to the customers about late deliveries")
    assert [task.worker for task in result.plan.tasks][-1] == "writer"
    assert "customers" not in result.plan.tasks[0].instruction


def test_a_chart_of_them_is_a_thing_of_its_own() -> None:
    first, second = split("Top 3 products by revenue in 2026 and a chart of them")
    assert (first.text, second.text) == ("Top 3 products by revenue in 2026", "draw a chart of them")


def test_there_is_the_place_and_the_time_that_were_named() -> None:
    result = shop("What was the revenue in Germany in May 2026, and how many orders were placed there?")
    assert "in Germany in May 2026" in result.plan.tasks[1].instruction


def test_what_is_asked_of_the_present_is_not_of_the_time_before() -> None:
    result = shop("How many tents did we sell in June 2026, and how many products do we have?")
    assert "2026" not in result.plan.tasks[1].instruction
    assert "Products: 12" in str(result.answer)


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("Which customers ordered in April 2026 but not in May 2026?", "customers.customer_id NOT IN (SELECT"),
        ("How many customers ordered in April 2026 but not in May 2026?", "COUNT(DISTINCT customers.customer_id)"),
        ("Which customers bought desks but not chairs?", "category = 'chairs')"),
        ("Which customers did not order in May 2026?", "NOT IN (SELECT customers.customer_id"),
        ("revenue of all products except desks and chairs in 2026", "NOT products.category IN ('desks', 'chairs')"),
        ("Which products were never returned?", "JOIN returns"),
        ("How many orders had a quantity between 5 and 10?", "orders.quantity >= 5 AND orders.quantity <= 10"),
        ("Which products cost at least 100 euros?", "products.price_eur >= 100"),
        ("Which products have revenue above 1000 in 2026?", "> 1000"),
        ("What is the status of order no. 1042?", "orders.order_id = 1042"),
        ("Who supplies the desks?", "SELECT DISTINCT products.supplier"),
    ],
)
def test_exclusions_thresholds_and_numbers_are_in_the_query(question: str, part: str) -> None:
    assert part in furniture(question)


@pytest.mark.parametrize(
    "question",
    [
        "How many orders over 100?",
        "How many customers placed more than 5 orders?",
        "How many new customers did we win in May 2026?",
        "median price of desks",
        "revenue last month",
        "second highest revenue by product",
        "the cheapest and the most expensive product",
        "How many orders were delivered in May 2026?",
        "Revenue of orders with at least 3 items",
        "Which customers have orders but no returns?",
        "What is the minimum order of Nord?",
        "How many customers did not order in May 2026?",
    ],
)
def test_what_the_query_would_leave_out_is_refused(question: str) -> None:
    assert isinstance(to_sql(question, FURNITURE), Refusal)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Find out how many parcels the second carrier lost.", ["parcels", "lost"]),
        ("Who supplies the tents?", ["supplies"]),
        ("Top 5 customers by revenue", ["customers"]),
        ("Which customers ordered in April?", ["customers", "ordered"]),
        ("How many seats of the red trams are broken?", ["seats", "broken"]),
        ("What should patients do before a blood test?", []),
    ],
)
def test_the_words_that_carry_a_question(question: str, words: list[str]) -> None:
    assert carriers(question) == words


def test_passages_answer_only_what_they_speak_of() -> None:
    strike = told("21 parcels were late in May 2026. Parcels went out through a second carrier.")
    assert not unsaid("How many parcels were late?", strike, "")
    assert "lost" in unsaid("Find out how many parcels the second carrier lost.", strike, "")
    assert "another time" in unsaid("What was late in March 2024?", strike, "")
    assert "1042" in unsaid("What is said about parcel 1042?", strike, "")
    assert unsaid("Why were parcels late?", strike, "")
    assert not unsaid("Why were parcels late?", told("Parcels were late because of a strike."), "")


def test_poems_are_not_written() -> None:
    assert unknown_form("Write a haiku about tents") == "haiku"
    assert unknown_form("Compose a short funny poem on stoves") == "poem"
    assert not unknown_form("Write a short memo about it")
    assert not unknown_form("Draft a polite reply to the customers")


def books(home: Path) -> Path:
    with (home / "orders.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("order_id", "day", "amount"), (1, "2026-05-02", 260), (2, "2026-05-09", 140)])
    return home


def test_a_part_in_percent_is_worked_out_or_not_answered(tmp_path: Path) -> None:
    asked = "What is 15% of the total amount in May 2026?"
    done = do(asked, [sql(books(tmp_path)), calculator()])
    assert "60" in done.text
    assert do(asked, [sql(tmp_path)]).gave_up


@tool
def stock(product: str) -> int:
    """How many of a product are in stock: anvils, bellows or tongs."""
    return {"anvils": 5, "bellows": 6, "tongs": 7}[product]


def test_a_value_that_the_description_lists_is_what_is_meant() -> None:
    done = do("How many anvils are in stock?", [stock])
    assert done.arguments() == {"product": "anvils"}
    assert done.text == "Anvils in stock: 5."
    assert do("How many hammers are in stock?", [stock]).calls[0].arguments == '{"product":"hammers"}'


def test_a_tool_is_not_taken_at_its_word_for_what_it_does_not_know() -> None:
    @tool
    def weather(place: str) -> str:
        """The weather in a place."""
        return f"Sun in {place}"

    assert "stolen" in do("How many anvils were stolen?", [stock]).gave_up
    assert "3 May 2026" in do("What is the weather in Graz on 3 May 2026?", [weather]).gave_up
    assert do("What is the weather in Graz?", [weather]).text == "Sun in Graz"


def test_the_only_number_is_for_the_only_argument_that_is_one() -> None:
    @tool
    def sleeper(number: int = 1) -> str:
        """Who sleeps in a bed of the hostel."""
        return f"Guest {number}"

    assert do("Who sleeps in bed 12?", [sleeper]).arguments() == {"number": 12}


def test_several_counts_say_what_they_count() -> None:
    @tool
    def loaves(shelf: str) -> int:
        """How many loaves are on a shelf: upper, middle or lower."""
        return {"upper": 5, "middle": 6, "lower": 5}[shelf]

    team = Supervisor([Worker("baker", description="Knows how many loaves are on the shelves.", tools=[loaves])])
    asked = " ".join(f"How many loaves are on the {shelf} shelf?" for shelf in ("upper", "middle", "lower"))
    assert "Loaves on the upper shelf: 5 [t1]. Loaves on the middle shelf: 6 [t2]." in str(team.run_sync(asked).answer)


def test_a_search_that_is_tried_again_is_not_for_our_own_words() -> None:
    again = better("Find what is said about ferries. Return the passages.", "nothing found for 'ferries'").text
    assert "Words that matter" in again
    assert query(again) == "ferries"
    assert "passag," not in better("What do our notes say about the storm?", "nothing found for 'storm'").text


def test_what_a_document_does_not_say_offers_no_other_value() -> None:
    said = "the documents do not say what the fee is: nothing found speaks of fee (nearest: shipping.md)"
    assert not better("What is the fee?", said).offers


GYM = read_schema(
    "table members(member_id INTEGER, name TEXT like 'Ida Holm', plan TEXT one of 'basic','premium', "
    "joined_on TEXT like '2024-02-01', city TEXT one of 'Oslo','Bergen')\n"
    "table visits(visit_id INTEGER, member_id INTEGER, day TEXT like '2026-03-02', minutes INTEGER)\n"
    "table classes(class_id INTEGER, title TEXT one of 'Yoga','Boxing', trainer TEXT one of 'Mona Vik','Jon Ness', "
    "capacity INTEGER)"
)


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("Total minutes of premium members in 2026", "SUM(visits.minutes)"),
        ("How many visits lasted longer than 50 minutes?", "visits.minutes > 50"),
        ("Which members came in March 2026 but not in April 2026?", "(visits.day >= '2026-04-01'"),
        ("Who trains Boxing?", "SELECT DISTINCT classes.trainer"),
        ("How many members live in Oslo?", "members.city = 'Oslo'"),
        ("Average minutes per visit in April 2026", "SELECT ROUND(AVG(visits.minutes), 2) AS average_minutes FROM"),
    ],
)
def test_a_question_about_a_gym_is_put_to_the_right_column(question: str, part: str) -> None:
    found = to_sql(question, GYM)
    assert isinstance(found, Asked), found
    assert part in found.sql


@pytest.mark.parametrize(
    "question",
    [
        "Which trainer is the most popular?",
        "How many members are women?",
        "How many classes are booked?",
        "How many places are available in Yoga?",
        "How old is Ida Holm?",
        "How many members cancelled in 2026?",
    ],
)
def test_what_the_books_of_a_gym_do_not_say_is_refused(question: str) -> None:
    assert isinstance(to_sql(question, GYM), Refusal)
