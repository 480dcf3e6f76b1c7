import msgspec

from chargehand.models.offline.making import make
from chargehand.models.subject import Making
from tests.models.offline.teams import CALCULATE, CHART, CONVERT, search, skill, sql

SKILLS = (
    CHART,
    CALCULATE,
    CONVERT,
    search("the handbook"),
    sql("visits(day, patient, doctor)"),
    skill("now", "The date and time of day.", {}),
)


def made(instruction: str) -> dict[str, object]:
    return msgspec.json.decode(make(Making(instruction, SKILLS)), type=dict[str, object])


def test_tools_are_chosen_by_what_the_task_needs() -> None:
    assert made("Convert 250 USD to EUR.")["tools"] == ["convert_currency"]
    assert made("How many visits had each doctor in May 2026?")["tools"] == ["query_database"]
    assert "draw_chart" in str(made("Draw a chart of visits per doctor.")["tools"])


def test_a_task_no_tool_is_for_gets_none_and_says_so() -> None:
    found = made("Sing a lullaby.")
    assert found["tools"] == []
    assert "Sing a lullaby" in str(found["persona"])
    assert "no tools" in str(found["persona"])
