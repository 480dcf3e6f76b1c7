"""A development over time is told period by period and drawn as a line; kinds of things stay bars."""

from pathlib import Path

import pytest

from chargehand.agents.worker import Worker
from chargehand.models.offline.axes import in_order_of_time, kind_of_chart
from chargehand.models.offline.schema_text import read_schema
from chargehand.models.offline.text_to_sql import Asked, to_sql
from chargehand.team import Supervisor
from chargehand.tools.chart import chart
from chargehand.tools.sql import sql

LANDINGS = (
    "table landings(day TEXT like '2026-05-02', ship TEXT one of 'Alma','Bella', cargo INTEGER like 3,60,200, "
    "fee_eur REAL like 3.5)"
)
DEALS = (
    "table deals(day TEXT like '2026-05-02', rival TEXT one of 'Acre','Bole', outcome TEXT one of 'won','lost', "
    "amount_eur INTEGER like 100,900)"
)


def query(question: str, schema: str = LANDINGS) -> str:
    found = to_sql(question, read_schema(schema))
    assert isinstance(found, Asked), found
    return found.sql


@pytest.mark.parametrize(
    "question",
    [
        "How did the cargo develop from January 2026 to June 2026?",
        "Show the trend of the cargo of Alma in 2026.",
        "Report the cargo over the months of 2026.",
        "Report the development of the cargo over time.",
        "How did the cargo change from month to month in 2026?",
        "What is the cargo trend?",
    ],
)
def test_a_development_is_told_month_by_month(question: str) -> None:
    sql_ = query(question)
    assert "SUM(landings.cargo)" in sql_
    assert "AS month" in sql_


def test_the_period_is_the_one_that_is_named() -> None:
    assert "AS year" in query("How did the cargo develop over the years?")
    assert "AS week" in query("Report the cargo week by week.")


def test_a_change_between_two_months_stays_one_of_two() -> None:
    assert "AS month" not in query("How did the cargo change from January 2026 to June 2026?")


def test_what_is_called_a_trend_in_the_tables_is_looked_up_there() -> None:
    schema = "table signals(day TEXT like '2026-05-02', share TEXT one of 'A','B', trend INTEGER like 1,2)"
    assert "AS month" not in query("What is the average trend of A?", schema)


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ("How did the cargo develop from January to April 2026? Draw a chart of it.", "Line chart, 4 values"),
        ("Draw a chart of the cargo per month in 2026.", "Line chart, 4 values"),
        ("Draw a bar chart of the cargo per month in 2026.", "Bar chart, 4 values"),
        ("Draw a chart of the cargo per ship in 2026.", "Bar chart, 2 values"),
    ],
)
def test_points_in_time_are_joined_by_a_line_and_kinds_are_bars(tmp_path: Path, request_: str, kind: str) -> None:
    rows = [
        f"2026-0{month}-0{day},{ship},{month * day}"
        for month in (1, 2, 3, 4)
        for day, ship in ((1, "Alma"), (5, "Bella"))
    ]
    (tmp_path / "landings.csv").write_text("\n".join(["day,ship,cargo", *rows]))
    clerk = Worker(
        "clerk", "Answers questions about landings, ships and cargo from the database.", tools=[sql(tmp_path)]
    )
    artist = Worker("artist", "Draws charts of numbers that others have found.", tools=[chart()])
    found = Supervisor([clerk, artist]).run_sync(request_)
    assert found.ending == "complete"
    assert kind in str(found.answer)


@pytest.mark.parametrize(
    ("labels", "ordered"),
    [
        (["2026-01", "2026-02", "2026-03"], True),
        (["2024", "2025", "2026"], True),
        (["January", "February", "March"], True),
        (["Q1 2026", "Q2 2026", "Q3 2026"], True),
        (["2026-W9", "2026-W10", "2026-W11"], True),
        (["2026-03", "2026-01", "2026-02"], False),  # a ranking
        (["2026-01", "2026-02"], False),
        (["Alma", "Bella", "Carla"], False),
        (["1", "2", "3"], False),
    ],
)
def test_which_labels_are_points_in_time_in_their_order(labels: list[str], ordered: bool) -> None:
    assert in_order_of_time(labels) is ordered


def test_a_line_of_products_is_no_line() -> None:
    assert kind_of_chart(("bar", "line"), "Draw a chart of the revenue per product line.", ["a", "b", "c"]) == "bar"
    assert kind_of_chart(("bar", "line"), "Draw it as a line.", ["a", "b", "c"]) == "line"
    assert kind_of_chart(("pie", "ring"), "Draw it.", ["2024", "2025", "2026"]) == ""


# --- what is meant without being named


@pytest.mark.parametrize(
    ("question", "part", "schema"),
    [
        ("How much did we win from Acre in 2026?", "SUM(deals.amount_eur)", DEALS),
        ("What did we lose to Bole in 2026?", "SUM(deals.amount_eur)", DEALS),
        ("What is the lowest cargo of Alma?", "MIN(landings.cargo)", LANDINGS),
        ("What is the last cargo of Alma?", "ORDER BY landings.day DESC LIMIT 1", LANDINGS),
        ("Which ship reaches the highest fee?", "DESC LIMIT 1", LANDINGS),
        ("Compare the cargo of Alma and Bella.", "SUM(landings.cargo)", LANDINGS),
    ],
)
def test_a_number_that_is_meant_is_worked_out(question: str, part: str, schema: str) -> None:
    assert part in query(question, schema)
