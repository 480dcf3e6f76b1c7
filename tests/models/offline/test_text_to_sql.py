"""Questions in plain English over the bundled shop's tables, each answer worked out again in plain Python."""

import asyncio
import csv
import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest

import chargehand.config as config
from chargehand.models.exhibits import Table
from chargehand.models.offline.schema_text import Column, links, read_schema
from chargehand.models.offline.text_to_sql import Asked, Refusal, to_sql
from chargehand.tools.sql import sql

SHOP = Path(config.__file__).parent / "templates" / "shop"
Rows = list[dict[str, str]]


@cache
def rows(name: str) -> Rows:
    with (SHOP / "data" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def tool():
    return sql(SHOP / "data", name="sales")


def ask(question: str) -> Table:
    asked = to_sql(question, read_schema(tool().spec.description))
    assert isinstance(asked, Asked), asked
    found = asyncio.run(tool().call(json.dumps({"sql": asked.sql}), "key"))
    assert isinstance(found, Table)
    return found


def product(order: dict[str, str]) -> dict[str, str]:
    return next(one for one in rows("products") if one["product_id"] == order["product_id"])


def country(order: dict[str, str]) -> str:
    return next(one["name"] for one in rows("countries") if one["country"] == order["country"])


def revenue(order: dict[str, str]) -> Decimal:
    return Decimal(order["quantity"]) * Decimal(product(order)["price_eur"])


def summed(
    by: Callable[[dict[str, str]], str], what: Callable[[dict[str, str]], Decimal], within: str = ""
) -> dict[str, Decimal]:
    found: Counter[str] = Counter()
    for order in rows("orders"):
        if order["day"].startswith(within):
            found[by(order)] += what(order)  # pyright: ignore[reportArgumentType] - a Counter adds up whatever can be added
    return {name: Decimal(value) for name, value in found.items()}


def pairs(found: Table) -> dict[str, Decimal]:
    return {str(row[0]): Decimal(str(row[-1])) for row in found.rows}


def number(found: Table) -> Decimal:
    ((cell,),) = found.rows
    return Decimal(str(cell))


def test_a_sum_of_a_product_of_two_columns_is_grouped_by_the_name_behind_a_code() -> None:
    found = ask("Compare the revenue per country in May 2026")
    assert pairs(found) == summed(country, revenue, "2026-05")
    assert found.columns == ("country", "revenue_eur")
    amounts = list(pairs(found).values())
    assert amounts == sorted(amounts, reverse=True)


def test_the_top_three_are_the_first_three() -> None:
    best = sorted(summed(lambda one: product(one)["product"], revenue, "2026").items(), key=lambda pair: -pair[1])
    assert list(pairs(ask("Which three products brought the most revenue in 2026?")).items()) == best[:3]


def test_which_with_a_superlative_is_one_row() -> None:
    ((name, value),) = pairs(ask("Which country had the highest revenue in June 2026?")).items()
    expected = summed(country, revenue, "2026-06")
    assert (name, value) == max(expected.items(), key=lambda pair: pair[1])


def test_two_quarters_are_held_against_each_other() -> None:
    expected = {
        f"{year}-Q1": sum(revenue(one) for one in rows("orders") if f"{year}-01" <= one["day"] < f"{year}-04")
        for year in (2025, 2026)
    }
    question = "How did revenue change from the first quarter of 2025 to the first quarter of 2026?"
    assert pairs(ask(question)) == expected


def test_months_are_in_order() -> None:
    found = ask("monthly revenue in 2026")
    assert pairs(found) == summed(lambda one: one["day"][:7], revenue, "2026")
    assert [row[0] for row in found.rows] == sorted(str(row[0]) for row in found.rows)


def test_two_groups_at_once() -> None:
    found = ask("revenue by category and channel in Q2 2026")
    expected: Counter[tuple[str, str]] = Counter()
    for order in rows("orders"):
        if "2026-04-01" <= order["day"] < "2026-07-01":
            expected[product(order)["category"], order["channel"]] += revenue(order)  # pyright: ignore[reportArgumentType] - see above
    assert {(row[0], row[1]): Decimal(str(row[2])) for row in found.rows} == dict(expected)


def test_a_return_rate_counts_orders_with_a_return_among_all() -> None:
    returned = {one["order_id"] for one in rows("returns")}
    orders = Counter(product(one)["category"] for one in rows("orders"))
    back = Counter(product(one)["category"] for one in rows("orders") if one["order_id"] in returned)
    expected = {name: round(Decimal(100 * back[name]) / count, 1) for name, count in orders.items()}
    assert pairs(ask("What is the return rate per product category?")) == expected


def test_a_thing_no_list_of_values_names_is_looked_for_in_the_names() -> None:
    expected = sum(
        int(one["quantity"])
        for one in rows("orders")
        if "Backpack" in product(one)["product"] and product(one)["supplier"] == "Sellmark" and one["day"] >= "2026"
    )
    assert number(ask("How many Sellmark backpacks did we sell in 2026?")) == expected


def test_a_span_of_days_includes_both_ends() -> None:
    expected = sum(
        int(one["quantity"])
        for one in rows("orders")
        if product(one)["product"] == "Owl Headlamp" and "2026-03-01" <= one["day"] <= "2026-05-31"
    )
    assert number(ask("how many units of the Owl Headlamp were sold between 1 March 2026 and 31 May 2026")) == expected


def share_of_germany() -> Decimal:
    return round(Decimal(100 * sum(one["country"] == "DE" for one in rows("orders"))) / len(rows("orders")), 1)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many orders did we have in May 2026?", lambda: sum("2026-05" in one["day"] for one in rows("orders"))),
        ("revenue since April 2026", lambda: sum(revenue(one) for one in rows("orders") if one["day"] >= "2026-04")),
        ("How many orders were returned late?", lambda: sum(one["reason"] == "late" for one in rows("returns"))),
        ("What percentage of orders came from Germany?", share_of_germany),
    ],
)
def test_one_number(question: str, expected: Callable[[], object]) -> None:
    assert number(ask(question)) == expected()


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the price of the Heron Tent?", {("Heron Tent", 289.0)}),
        ("list the products of Brasco", {("Otter Stove",), ("Marten Pot Set",), ("Teal Bottle",)}),
        ("cheapest product", {("Teal Bottle", 18.9)}),
        ("VAT in Italy", {("Italy", 22)}),
        ("number of products per supplier", {("Sellmark", 4), ("Brasco", 3), ("Nordveil", 3), ("Luminor", 2)}),
    ],
)
def test_rows_as_they_are(question: str, expected: set[tuple[object, ...]]) -> None:
    assert set(ask(question).rows) == expected


def test_groups_can_be_limited_by_their_number() -> None:
    counts = Counter(country(one) for one in rows("orders"))
    assert pairs(ask("countries with more than 50 orders")) == {name: n for name, n in counts.items() if n > 50}


@pytest.mark.parametrize(
    "question",
    [
        "How many visitors did our website have in May 2026?",
        "average delivery time per country",
        "Which supplier has the longest payment terms?",
        "What is the weather in Paris?",
        "",
    ],
)
def test_what_no_table_says_is_refused_with_what_there_is(question: str) -> None:
    asked = to_sql(question, read_schema(tool().spec.description))
    assert isinstance(asked, Refusal)
    assert "orders(" in asked.reason


def test_values_that_hold_quotes_and_statements_stay_values() -> None:
    schema = read_schema("table notes(id INTEGER, author TEXT one of 'O''Brien','x; DROP TABLE notes', words INTEGER)")
    asked = to_sql("total words by O'Brien", schema)
    assert isinstance(asked, Asked)
    assert "'O''Brien'" in asked.sql
    quoted = to_sql(
        'list notes of author "Z\'; DROP TABLE notes"', read_schema("table notes(id INTEGER, author TEXT like 'Ann')")
    )
    assert not isinstance(quoted, Asked) or "'%Z''" in quoted.sql


def test_a_schema_is_read_with_odd_names_commas_and_quotes() -> None:
    (one,) = read_schema(
        "table \"order lines\"(id INTEGER, \"unit price\" REAL like 1.5,2, kind TEXT one of 'a, b','it''s', and 3 more)"
    )
    assert [(column.name, column.values) for column in one.columns] == [
        ("id", ()),
        ("unit price", ()),
        ("kind", ("a, b", "it's")),
    ]
    assert one.columns[1].sql == '"order lines"."unit price"'


def test_tables_are_tied_by_equal_names_and_by_ids() -> None:
    schema = read_schema(
        "table visits(id INTEGER, patient_id INTEGER, day TEXT like '2026-01-02', doctor INTEGER)\n"
        "table patients(id INTEGER, name TEXT like 'Ann')\ntable doctors(id INTEGER, name TEXT like 'Bo')"
    )
    assert {(link.many.sql, link.one.sql) for link in links(schema)} >= {("visits.patient_id", "patients.id")}


def test_a_column_knows_a_day_by_its_values() -> None:
    assert Column("t", "seen", "TEXT", (), ("2026-05-17",)).dated
    assert not Column("t", "code", "TEXT", (), ("20260517",)).dated
