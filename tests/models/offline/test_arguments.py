"""Arguments filled by schema, and tools chosen by it: from the words of a task, from inputs, or not at all."""

from datetime import date
from typing import Annotated, Literal

import pytest
from msgspec import Struct

from chargehand.models.offline.arguments import fill
from chargehand.models.offline.choosing import choices
from chargehand.models.offline.computing import sums
from chargehand.models.offline.currencies import currencies
from chargehand.models.offline.material import Material, gather
from chargehand.models.offline.searching import query
from chargehand.models.offline.task_text import asked, title, to_say
from chargehand.tools.calculator import calculator
from chargehand.tools.chart import chart
from chargehand.tools.tool import Tool, tool
from tests.models.offline.working import table

NOTHING = Material()


def filled(function: Tool, text: str, have: Material = NOTHING) -> list[dict[str, object]]:
    (choice,) = choices([function.spec])
    found = fill(choice, text, have)
    assert not found.missing, found.missing
    return list(found.calls)


def missing(function: Tool, text: str, have: Material = NOTHING) -> tuple[str, ...]:
    (choice,) = choices([function.spec])
    return fill(choice, text, have).missing


@tool
def exchange_rate(currency: Literal["USD", "GBP", "CHF"], day: date) -> str:
    """The rate of the euro on a day."""
    return f"{currency} {day}"


@tool
def book_room(room: str, day: date, guests: int, breakfast: bool = False) -> str:
    """Book a room."""
    return f"{room} {day} {guests} {breakfast}"


@tool
def forecast(city: str, start: Annotated[str, "YYYY-MM-DD"], end: Annotated[str, "YYYY-MM-DD"]) -> str:
    """The weather in a city."""
    return f"{city} {start} {end}"


@tool
def convert(amount: float, source: Literal["EUR", "USD"], target: Literal["EUR", "USD"]) -> str:
    """Convert an amount of money."""
    return f"{amount} {source} {target}"


@tool
def send_mail(recipient: str, subject: str, body: str) -> str:
    """Send a mail."""
    return f"{recipient} {subject} {body}"


class Point(Struct):
    name: str
    value: float


@tool
def plot(title: str, points: list[Point]) -> str:
    """Plot points."""
    return f"{title} {points}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Find the US dollar rate of 30 May 2026", [{"currency": "USD", "day": "2026-05-30"}]),
        ("the exchange rate in GBP on 2026-03-31", [{"currency": "GBP", "day": "2026-03-31"}]),
        (
            "Rates of Swiss francs and pounds on June 3, 2026",
            [{"currency": "CHF", "day": "2026-06-03"}, {"currency": "GBP", "day": "2026-06-03"}],
        ),
        (
            "USD rate on 2 June 2026 and 3 June 2026",
            [{"currency": "USD", "day": "2026-06-02"}, {"currency": "USD", "day": "2026-06-03"}],
        ),
    ],
)
def test_codes_and_days(text: str, expected: list[dict[str, object]]) -> None:
    assert filled(exchange_rate, text) == expected


def test_the_day_of_the_argument_is_told_from_other_days() -> None:
    text = "Convert the sales of 4 May 2026 to USD at the rate of 29 May 2026"
    assert filled(exchange_rate, text)[0]["day"] == "2026-05-29"


def test_a_day_that_was_refused_is_not_taken_again() -> None:
    text = "Convert it to USD at the rate of 2026-05-29. There is no rate for 2026-05-30."
    assert filled(exchange_rate, text) == [{"currency": "USD", "day": "2026-05-29"}]
    assert (
        filled(exchange_rate, "Convert it to USD at the rate of 30 May 2026. Use the day 2026-05-29.")[0]["day"]
        == "2026-05-29"
    )


def test_a_month_is_no_day_and_that_is_said() -> None:
    assert missing(exchange_rate, "the USD rate in May 2026") == ("day",)


def test_numbers_names_and_truth() -> None:
    assert filled(book_room, "Book room Bluebell for 3 guests on 5 July 2026 with breakfast") == [
        {"room": "Bluebell", "day": "2026-07-05", "guests": 3, "breakfast": True}
    ]
    assert (
        filled(book_room, "Book room Bluebell for 3 guests on 5 July 2026 without breakfast")[0]["breakfast"] is False
    )


def test_a_month_has_a_first_and_a_last_day() -> None:
    assert filled(forecast, "The weather in Graz in February 2026") == [
        {"city": "Graz", "start": "2026-02-01", "end": "2026-02-28"}
    ]


def test_money_goes_from_and_to() -> None:
    assert filled(convert, "Convert 1,250.50 USD to EUR") == [{"amount": 1250.5, "source": "USD", "target": "EUR"}]


def test_an_amount_is_the_total_of_a_table_that_was_given() -> None:
    have = gather([table(("country", "revenue_eur"), ("Germany", 10.25), ("France", 5)).value])
    assert filled(convert, "Convert the total from EUR to USD", have)[0]["amount"] == 15.25
    assert filled(convert, "Convert the revenue of France from EUR to USD", have)[0]["amount"] == 5.0


def test_addresses_titles_and_bodies() -> None:
    have = gather([{"text": "All is well.", "exhibits": []}])
    (call,) = filled(send_mail, "Send a mail to ann@example.org about the summer plan", have)
    assert call["recipient"] == "ann@example.org"
    assert call["body"] == "All is well."


def test_a_chart_gets_names_and_numbers_and_a_title() -> None:
    have = gather([table(("country", "orders", "revenue_eur"), ("Germany", 3, 10.5), ("France", 2, 7)).value])
    (call,) = filled(chart(), "Draw a bar chart of the revenue per country in May 2026 (the result of t1).", have)
    assert call == {
        "title": "Revenue per country in May 2026",
        "labels": ["Germany", "France"],
        "values": [10.5, 7],
        "kind": "bar",
    }
    (points,) = filled(plot, "Plot the orders", have)
    assert points["points"] == [{"name": "Germany", "value": 3.0}, {"name": "France", "value": 2.0}]


def test_without_numbers_there_is_no_chart() -> None:
    assert missing(chart(), "Draw a chart of the revenue") == ("labels", "values")


def test_a_tool_is_known_by_what_it_wants() -> None:
    roles = {one.name: one.role for one in choices([calculator().spec, chart().spec, exchange_rate.spec])}
    assert roles == {"calculate": "compute", "draw_chart": "draw", "exchange_rate": "other"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in US dollars", ["USD"]),
        ("500 Canadian dollars to francs", ["CAD", "CHF"]),
        ("the eurozone", []),
        ("5 \u20ac", ["EUR"]),
    ],
)
def test_currencies_by_name_code_and_sign(text: str, expected: list[str]) -> None:
    assert currencies(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is 15% of 2480?", "15 / 100 * 2480"),
        ("Compute (12.5 + 7) * 3", "(12.5 + 7) * 3"),
        ("What is 1,200 divided by 16?", "1200 / 16"),
        ("the sum of 3, 4 and 5", "3 + 4 + 5"),
        ("What percentage is 30 of 120?", "30 / 120 * 100"),
        ("How much did it grow from 80 to 100?", "100 - 80"),
        ("square root of 144", "sqrt(144)"),
    ],
)
def test_expressions_from_words(text: str, expected: str) -> None:
    assert sums(text, NOTHING, rounds=False)[0].expression == expected


def test_a_conversion_multiplies_or_divides_as_the_rate_is_quoted() -> None:
    rate = {"kind": "figure", "value": "1.25", "label": "USD per EUR on 2026-05-29"}
    amounts = table(("country", "revenue_eur"), ("Germany", 10), ("France", 20)).value
    (there,) = sums("Convert the total to US dollars", gather([amounts, rate]), rounds=True)
    assert (there.expression, there.unit) == ("round((10 + 20) * 1.25, 2)", "USD")
    (back,) = sums("Convert 50 dollars to euros", gather([rate]), rounds=False)
    assert (back.expression, back.unit) == ("50 / 1.25", "EUR")


def test_nothing_is_computed_that_nobody_asked_for() -> None:
    have = gather([table(("country", "revenue"), ("Germany", 10), ("France", 20), ("Italy", 3)).value])
    assert sums("Report the revenue per country", have, rounds=True, queried=True) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Find out what our policy says about late deliveries. Return the passages.", "policy late deliveries"),
        ('Search the notes for "second carrier"', '"second carrier" notes'),
    ],
)
def test_a_query_is_what_carries_the_subject(text: str, expected: str) -> None:
    assert query(text) == expected


def test_what_is_asked_is_told_from_its_form() -> None:
    text = "Compare A and B (the result of t1). Return a table. The day 2026-05-29 is the nearest there is: say so."
    assert asked(text) == "Compare A and B."
    assert to_say(text) == ["The day 2026-05-29 is the nearest there is."]
    assert title("Draw a chart of it") == ""
