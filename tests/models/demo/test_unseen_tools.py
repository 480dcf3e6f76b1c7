"""A team the demo model was not written for: arguments by schema and type, and nothing that a call leaves out."""

from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from chargehand import Supervisor, Team, Worker, tool
from chargehand.tools.calculator import calculator
from chargehand.tools.documents import documents

City = Literal["Ghent", "Bruges", "Antwerp", "Brussels"]
RULES = """# Luggage
Each guest may bring two suitcases. Dogs are not allowed in the rooms.

# Breakfast
Breakfast is served from 7 to 10 and costs 12 euros. Vegetarian meals are available.
"""


@tool
def room_price(city: str, nights: int, breakfast: bool = False) -> int:
    """What a room in a city costs for some nights, in euros."""
    return (90 + 12 * breakfast) * nights if city else 0


@tool
def find_flights(origin: str, destination: str, day: str, stars: Literal[1, 2, 3] = 1) -> str:
    """Find flights between two places on a day (YYYY-MM-DD), with airlines of some stars."""
    return f"flights {origin} to {destination} on {day}, {stars} stars"


@tool
def train_time(start: City, end: City) -> str:
    """How long the train takes from one city to another."""
    return f"{start} to {end}: 40 minutes"


@tool
def train_count(city: City, day: str) -> str:
    """How many trains leave a city on a day (YYYY-MM-DD)."""
    return f"{city}: 30 trains on {day}"


@tool
def book_table(restaurant: str, people: int, day: str) -> str:
    """Book a table in a restaurant for some people on a day (YYYY-MM-DD)."""
    return f"booked {restaurant} for {people} on {day}"


@cache
def team(folder: Path) -> Team:
    (folder / "rules.md").write_text(RULES, "utf-8")
    travel = Worker(
        "travel",
        "Knows what rooms and trains cost and take.",
        tools=[room_price, train_time, train_count, find_flights],
    )
    host = Worker("host", "Books tables in restaurants.", tools=[book_table])
    reader = Worker("reader", "Finds what the house rules say.", tools=[documents(folder)])
    return Team(
        [travel, host, reader, Worker("sums", "Calculates.", tools=[calculator()])], supervisor=Supervisor(model="demo")
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rules")


@pytest.mark.parametrize(
    ("request_text", "facts"),
    [
        ("What does a room in Ghent cost for three nights?", ["(Ghent, 3): 270"]),
        ("How many trains leave Ghent and Bruges on 1 June 2026?", ["Ghent: 30 trains", "Bruges: 30 trains"]),
        ("Book a table at Luigi for 4 people on 1 June 2026.", ["booked Luigi for 4 on 2026-06-01"]),
        ("What is 10% of 270?", ["10% of 270: 27"]),
        ("What do the house rules say about suitcases?", ["two suitcases"]),
        ("When is breakfast served?", ["from 7 to 10"]),
    ],
)
def test_what_a_schema_says_is_enough(folder: Path, request_text: str, facts: list[str]) -> None:
    result = team(folder).run_sync(request_text)
    assert result.ending == "complete", result.answer
    for fact in facts:
        assert fact in str(result.answer)


@pytest.mark.parametrize(
    "request_text",
    [
        "What does a room in Ghent cost?",
        "What do 3 rooms in Ghent cost?",
        "What does a room in Ghent or Bruges cost for 3 nights?",
        "What does a room for smokers in Ghent cost for 3 nights?",
        "What does a room in Ghent cost for 3 nights with breakfast?",
        "How much is a room in Ghent for 3 nights and 2 people?",
        "Is Ghent cheaper than 100 euros?",
        "How long does the train take from Ghent to Bruges?",  # which is the start, and which the end
        "How many trains leave Paris on 1 June 2026?",
        "How long does the train take from Brussels to Ghent and back?",
        "Book a table at Luigi for 4 people.",
        "Book a table at Bistro 44 on 1 June 2026.",
        "Find flights from Oslo to Rome on 3 December 2026.",
        "Find flights to Prague on 3 December 2026.",
        "Find 5-star flights from Oslo to Rome on 3 December 2026.",
        "Cancel the table at Luigi.",
        "How many dogs are allowed?",
        "How many suitcases may a guest bring?",
        "Why are dogs not allowed?",
        "Where is breakfast served?",
        "How much is a vegetarian breakfast?",  # the price stands in a sentence of its own
        "Who serves breakfast?",
    ],
)
def test_what_no_call_accounts_for_is_refused(folder: Path, request_text: str) -> None:
    result = team(folder).run_sync(request_text)
    assert result.ending == "failed", result.answer
    assert any("docs/first-model.md" in gap.message for gap in result.gaps)


def test_a_day_in_another_clause_may_hold_here_too() -> None:
    @tool
    def guest_count(day: str = "2026-01-01") -> str:
        """How many guests the house has on a day (YYYY-MM-DD)."""
        return f"12 guests on {day}"

    hotel = Worker("hotel", "Knows how many guests the house has.", tools=[guest_count])
    request = "How many guests does the house have and how many guests does the house have on 1 June 2026?"
    result = Team([hotel], supervisor=Supervisor(model="demo")).run_sync(request)
    assert "12 guests on 2026-06-01" in str(result.answer)
    assert "2026-01-01" not in str(result.answer)
    assert ["whether the day is that of another question is not said" in gap.message for gap in result.gaps] == [True]


def test_a_tool_that_fails_is_named_as_it_is_called() -> None:
    @tool
    def room_count(city: str) -> int:
        """How many rooms there are in a city."""
        raise RuntimeError(city)

    hotel = Worker("hotel", "Knows how many rooms there are in a city.", tools=[room_count])
    answer = str(
        Team([hotel], supervisor=Supervisor(model="demo")).run_sync("How many rooms are there in Ghent?").answer
    )
    assert "`room_count` failed: " in answer
    assert "Room_count" not in answer


def test_after_a_mistake_in_a_tool_the_answer_says_only_what_went_wrong() -> None:
    @tool
    def room_size(city: str) -> int:
        """How large the rooms are in a city."""
        return city + 1  # pyright: ignore[reportOperatorIssue, reportUnknownVariableType]

    hotel = Worker("hotel", "Knows how large the rooms are in a city.", tools=[room_size])
    sums = Worker("sums", "Calculates.", tools=[calculator()])
    team = Team([hotel, sums], supervisor=Supervisor(model="demo"))
    answer = str(team.run_sync("How large are the rooms in Ghent? What is 10% of 270?").answer)
    assert "27" in answer
    assert "room_size: TypeError" in answer
    assert "language model" not in answer
