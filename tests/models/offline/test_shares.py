"""A worker of the offline model that gets more than its own: it does its share, says what it left, repeats nothing."""

from typing import Literal

import msgspec

from chargehand.agents.ways import Broadcast, RoundRobin, Route
from chargehand.agents.worker import Worker
from chargehand.models.left_out import LEFT, NOTHING, left
from chargehand.models.offline.splitting import split
from chargehand.models.subject import Given, Splitting, WorkerCard
from chargehand.team import Supervisor
from chargehand.terms.failure import Gap
from chargehand.terms.plan import TaskId
from chargehand.tools.calculator import calculator
from chargehand.tools.tool import ToolFailed, tool
from tests.models.offline.working import do

Town = Literal["Ghent", "Malmo"]


@tool
def weather(town: Town) -> str:
    """The weather of a town."""
    return {"Ghent": "It rains in Ghent.", "Malmo": "It snows in Malmo."}[town]


@tool
def fare(town: Town) -> str:
    """What the train to a town costs, for a trip there."""
    return {"Ghent": "The train to Ghent costs 40 euros.", "Malmo": "The train to Malmo costs 95 euros."}[town]


BOTH = "What is the weather in Ghent? What does the train to Ghent cost?"
TURN = "\n\nReply as worker: it is your turn, number 2 of at most 3 in a talk."
RAIN = Given("t1", "", "ann", "It rains in Ghent.")


def test_of_several_things_that_are_asked_a_worker_does_what_it_can() -> None:
    found = do(BOTH, [weather])
    assert found.text == f"It rains in Ghent.\n\n{LEFT}What does the train to Ghent cost?"
    assert left(found.text) == ("It rains in Ghent.", ("What does the train to Ghent cost?",))


def test_a_worker_with_tools_for_all_of_it_leaves_nothing() -> None:
    found = do(BOTH, [weather, fare])
    assert found.text == "It rains in Ghent.\n\nThe train to Ghent costs 40 euros."


def test_where_it_can_do_nothing_it_gives_up_as_ever() -> None:
    found = do("Book a flight to Lisbon. Feed the cat.", [weather])
    assert (found.text, bool(found.gave_up)) == ("", True)


def test_a_tool_that_is_out_of_order_is_told_and_not_tried_for_every_part() -> None:
    asked: list[str] = []

    @tool
    def broken(town: Town) -> str:
        """The weather of a town."""
        asked.append(town)
        raise ToolFailed("the line is dead")

    found = do("What is the weather in Ghent? What is the weather in Malmo?", [broken])
    assert "the line is dead" in str(found.gave_up)
    assert len(asked) <= 2


def test_a_turn_without_anything_of_its_own_adds_nothing() -> None:
    assert do(f"What is the weather in Ghent?{TURN}", [], [RAIN]).text == NOTHING
    assert do(f"What is the weather in Ghent?{TURN}", []).gave_up  # nobody has said anything yet


def test_what_others_could_not_do_is_not_repeated_either() -> None:
    gap = Gap(TaskId("t2"), "failed", "logic", "the line is dead")
    assert do(f"What is the weather in Ghent?{TURN}", [], [RAIN], [gap]).text == NOTHING


@tool
def lunch(town: Town) -> str:
    """What a trip to a town costs for lunch."""
    return "Lunch costs 60 euros."


def test_a_turn_takes_up_what_was_said() -> None:
    workers = [
        Worker("ann", "knows what the train of a trip costs", tools=[fare]),
        Worker("bob", "knows what the lunch of a trip costs", tools=[lunch]),
        Worker("sum", "Adds up what things cost.", tools=[calculator()]),
        Worker("idle", "Waters plants."),
    ]
    found = Supervisor(workers, way=RoundRobin()).run_sync("What does the trip to Ghent cost?")
    assert [task.worker for task in found.plan.tasks] == ["ann", "bob", "sum", "idle"]
    assert found.ending == "complete"
    assert str(found.answer).splitlines()[:3] == [
        "- ann: The train to Ghent costs 40 euros [t1].",
        "- bob: Lunch costs 60 euros [t2].",
        "- sum: Total: 100 euros [t3].",
    ]
    assert NOTHING in str(found.results[TaskId("t4")])  # who had nothing to add has no voice in the answer
    assert "idle" not in str(found.answer)


def test_a_broadcast_of_two_questions_is_answered_by_who_knows_what() -> None:
    workers = [Worker("ann", "knows the weather", tools=[weather]), Worker("bob", "knows trains", tools=[fare])]
    found = Supervisor(workers, way=Broadcast()).run_sync(BOTH)
    assert found.ending == "complete"
    assert str(found.answer).splitlines() == [
        "- ann: It rains in Ghent [t1].",
        "- bob: The train to Ghent costs 40 euros [t2].",
    ]


def test_what_everybody_left_to_the_others_is_named() -> None:
    workers = [Worker("ann", "knows the weather", tools=[weather]), Worker("bob", "knows trains", tools=[fare])]
    found = Supervisor(workers, way=Broadcast()).run_sync(f"{BOTH} Feed the cat.")
    assert "## Not answered\n\n- Feed the cat." in str(found.answer)
    assert (found.ending, [one.message for one in found.gaps]) == ("partial", ["Feed the cat."])


def test_a_route_with_more_than_the_worker_knows_says_what_is_missing() -> None:
    workers = [Worker("ann", "knows the weather", tools=[weather]), Worker("bob", "writes letters")]
    found = Supervisor(workers, way=Route(router="rules", rules={"weather": "ann"})).run_sync(BOTH)
    assert str(found.answer) == f"It rains in Ghent.\n\n{LEFT}What does the train to Ghent cost?"
    assert (found.ending, found.reason) == ("partial", "gaps")
    assert [(one.status, one.message) for one in found.gaps] == [("unserved", "What does the train to Ghent cost?")]


# --- splitting what is too broad


CARDS = (WorkerCard("ann", "knows the weather of towns"), WorkerCard("bob", "knows what trains cost"))


class Part(msgspec.Struct):
    instruction: str
    worker: str
    after: list[int] = []


class Said(msgspec.Struct):
    simple: bool
    subtasks: list[Part] = []
    unserved: list[str] = []


def splits(text: str, most: int) -> Said:
    return msgspec.json.decode(split(Splitting(text, CARDS, most)), type=Said)


def test_more_parts_than_may_be_are_grouped_and_split_again() -> None:
    towns = ("Ghent", "Malmo", "Turin", "Bergen", "Porto")
    text = " ".join(f"What is the weather in {town}?" for town in towns)
    found = splits(text, 2)
    assert not found.simple
    assert len(found.subtasks) == 2
    assert not found.unserved
    assert all(town in " ".join(one.instruction for one in found.subtasks) for town in towns)
    again = splits(found.subtasks[0].instruction, 3)
    assert len(again.subtasks) >= 2


def test_as_many_parts_as_may_be_stay_as_they_are() -> None:
    found = splits("What is the weather in Ghent? What does the train to Malmo cost?", 2)
    assert [one.worker for one in found.subtasks] == ["ann", "bob"]
    assert all("Return" in one.instruction for one in found.subtasks)
