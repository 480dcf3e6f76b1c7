"""Tables the demo model was not written for: what a figure is of is said in the answer, or the question is refused."""

from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from chargehand import Supervisor, Team, Worker, tool
from chargehand.tools.sql import sql

Weekday = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
City = Literal["Lyon", "Turin", "Basel"]

TABLES = {
    "wards": """ward_id,ward,beds,wing
W1,Cardiology,24,north
W2,Oncology,22,east
W3,Paediatrics,18,north
""",
    "staff": """staff_id,name,role,ward_id,salary_eur,hired
S1,Imani Cole,nurse,W1,4200,2012-03-01
S2,Luis Ortega,nurse,W2,2700,2015-03-01
S3,Anna Weiss,physician,W1,6100,2019-03-01
""",
    "admissions": """admission_id,day,ward_id,nights,kind
A1,2025-05-03,W1,3,emergency
A2,2025-05-09,W1,5,planned
A3,2025-06-11,W2,2,emergency
A4,2026-05-02,W1,9,planned
""",
    "sales": """sale_id,day,quantity,unit_price,discount
X1,2025-05-03,2,10,1
X2,2025-05-04,1,30,5
""",
    "deliveries": """delivery_id,day,kegs,status
D1,2025-05-03,4,delivered
D2,2025-05-04,6,returned
""",
    "enrolment": """month,pupils
2025-01-01,400
2025-02-01,410
2026-01-01,420
""",
}


@tool
def duty_doctor(weekday: Weekday) -> str:
    """Who is the doctor on duty on a weekday."""
    return f"Dr {weekday}"


@tool
def route_time(start: City, end: City) -> str:
    """How long a truck takes from one city to another."""
    return f"{start} to {end}"


@tool
def toll(country: Literal["France", "Italy"], axles: int) -> str:
    """The toll in a country for some axles."""
    return f"{country} {axles}"


@tool
def free_beds(day: str) -> int:
    """How many beds are free on a day (YYYY-MM-DD)."""
    if day < "2026-01-01":
        raise ValueError("no bed plan before 2026")
    return 7


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@tool
def reduced_price(price: float, rate: float) -> str:
    """A price reduced at a rate."""
    return f"{price} at {rate}"


@cache
def team(folder: Path) -> Team:
    for name, text in TABLES.items():
        (folder / f"{name}.csv").write_text(text, "utf-8")
    records = Worker("records", "Answers questions about the hospital from its database.", tools=[sql(folder)])
    tools = [duty_doctor, route_time, toll, free_beds, weather, reduced_price]
    desk = Worker("desk", "Knows the doctor on duty, routes, tolls, beds and the weather.", tools=tools)
    return Team([records, desk], supervisor=Supervisor(model="demo"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hospital")


@pytest.mark.parametrize(
    ("request_text", "facts"),
    [
        ("What is the salary of nurses?", ["Imani Cole", "4,200", "Luis Ortega", "2,700"]),
        ("What is the total salary of nurses?", ["6,900"]),
        ("How many beds does Oncology have?", ["beds 22"]),
        ("How many beds are there in total?", ["Total beds: 64"]),
        ("How many nights in total did Cardiology have in May 2025?", ["Total nights (Cardiology) in May 2025: 8"]),
        ("What were the pupils in 2025?", ["2025-01-01 400", "2025-02-01 410"]),
        ("How many staff are in the Cardiology ward?", ["Number of staff (Cardiology): 2"]),
        ("Who is the doctor on duty on Monday and Friday?", ["Dr Monday", "Dr Friday"]),
        ("How long does a truck take from Lyon to Turin?", ["Lyon to Turin"]),
    ],
)
def test_what_is_answered_says_what_it_is_of(folder: Path, request_text: str, facts: list[str]) -> None:
    result = team(folder).run_sync(request_text)
    for fact in facts:
        assert fact in str(result.answer)


@pytest.mark.parametrize(
    "request_text",
    [
        "How many pupils did we have in 2025?",  # a level, not a sum of months
        "What was the number of pupils in 2025?",
        "How many beds does the north wing have?",
        "How many nights did Cardiology have in May 2025?",
        "Which role has the highest salary?",
        "Which role has the most emergency admissions?",
        "Which ward had the fewest admissions in 2025?",  # Paediatrics had none, and is in no row
        "Which month had the fewest admissions?",
        "What was the revenue in May 2025?",  # there is a discount
        "How many kegs did we deliver in 2025?",  # all deliveries, or those with this status
        "How many admissions did I have in 2025?",
        "How many admissions will Cardiology have in 2026?",
        "How many short admissions were there in 2025?",
        "Who is the doctor on duty from Tuesday to Thursday?",
        "Who is the doctor on duty Monday-Friday?",
        "Who is the doctor on duty on Monday through Friday?",
        "How long does a truck take to Lyon from Turin?",
        "What is the toll from France to Italy for 4 axles?",
        "How many beds are free from 2026-03-03?",
        "What is the weather tomorrow?",
        "What is a price of 80 reduced at a rate of 20%?",
    ],
)
def test_where_another_reading_fits_it_is_refused(folder: Path, request_text: str) -> None:
    result = team(folder).run_sync(request_text)
    assert result.ending == "failed", result.answer
    assert "docs/first-model.md" in str(result.answer)


@pytest.mark.parametrize(
    ("request_text", "scope"),
    [
        ("How many admissions were there in May 2025? And what were the total nights?", "May 2025"),
        ("How many admissions did Cardiology have? And what were the total nights?", "Cardiology"),
        ("What are the total nights and how many admissions did Cardiology have?", "Cardiology"),
    ],
)
def test_what_a_question_beside_it_names_may_hold_too(folder: Path, request_text: str, scope: str) -> None:
    result = team(folder).run_sync(request_text)
    assert result.ending == "partial", result.answer
    assert f"whether it is of {scope} too is not said" in str(result.answer)


def test_a_language_model_would_not_help_where_a_tool_refuses(folder: Path) -> None:
    result = team(folder).run_sync("How many beds are free on 2025-03-03?")
    assert "no bed plan before 2026" in str(result.answer)
    assert "language model" not in str(result.answer)
