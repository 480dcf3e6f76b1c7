import msgspec

from chargehand.agents.ways import Dynamic, RoundRobin
from chargehand.agents.worker import Worker
from chargehand.models.offline.speaking import speak
from chargehand.models.subject import Given, Speaking
from chargehand.team import Supervisor
from chargehand.tools.tool import tool
from tests.models.offline.teams import RETAIL

GOAL = "What was the revenue per country in 2026, and what do our policies say about returns?"


def chosen(goal: str, *spoken: str) -> str | None:
    said = tuple(Given(f"t{at}", "turn", name, "words") for at, name in enumerate(spoken, 1))
    text = speak(Speaking(goal, RETAIL, said, spoken[-1] if spoken else ""))
    return msgspec.json.decode(text, type=dict[str, str | None])["next"]


def test_whoever_fits_speaks_in_the_order_of_what_is_asked_and_only_once() -> None:
    first = chosen(GOAL)
    assert first == "analyst"
    second = chosen(GOAL, first)
    assert second not in (None, first)
    assert second is not None
    later = chosen(GOAL, first, second)
    assert later not in (first, second)


def test_nobody_speaks_once_all_who_fit_have() -> None:
    assert chosen(GOAL, *(card.name for card in RETAIL)) is None
    assert chosen("Sing a lullaby to the cows.") is None


def test_a_worker_who_failed_has_spoken() -> None:
    said = (Given("t1", "turn", "analyst", None),)
    text = speak(Speaking("What was the revenue per country in 2026?", RETAIL, said, "analyst"))
    assert msgspec.json.decode(text)["next"] != "analyst"


@tool
def count_apples() -> int:
    """How many apples are in the cellar."""
    return 12


@tool
def count_pears() -> int:
    """How many pears are in the attic."""
    return 7


CROWD = (
    Worker("peter", "knows how many pears are in the attic", tools=[count_pears]),
    Worker("anna", "knows how many apples are in the cellar", tools=[count_apples]),
    Worker("carl", "writes poems about the sea"),
)


async def test_a_talk_needs_no_language_model() -> None:
    found = await Supervisor(CROWD, way=Dynamic(most_turns=5)).run("How many apples are in the cellar?")
    assert (found.ending, [one.worker for one in found.plan.tasks]) == ("complete", ["anna"])
    assert "12" in str(found.answer)


async def test_everybody_in_turn_works_offline_too() -> None:
    found = await Supervisor(CROWD[:2], way=RoundRobin()).run("How many pears are in the attic?")
    assert [one.worker for one in found.plan.tasks] == ["peter", "anna"]
    assert "7" in str(found.answer)
