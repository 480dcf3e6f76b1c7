from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.models.offline.planning import plan
from chargehand.models.subject import Planned, Planning, WorkerCard
from chargehand.terms.failure import Gap
from chargehand.terms.plan import TaskId
from tests.models.offline.teams import CLINIC, GARDEN, LIBRARY, RETAIL, TEAMS, Plan, linted, planned


def shape(proposed: Plan) -> list[tuple[str, list[str]]]:
    return [(task["worker"], task["after"]) for task in proposed["tasks"].values()]


def instructions(proposed: Plan) -> list[str]:
    return [task["instruction"] for task in proposed["tasks"].values()]


CASES: list[tuple[Sequence[WorkerCard], str, list[tuple[str, list[str]]]]] = [
    (RETAIL, "What was total revenue in May 2026?", [("analyst", [])]),
    (
        RETAIL,
        "Which product sold best in May 2026 and what does the handbook say about returns?",
        [("analyst", []), ("librarian", [])],
    ),
    (
        RETAIL,
        "Draw a chart of revenue by month in 2026, convert the total to EUR and write a short memo for the board.",
        [
            ("analyst", []),
            ("painter", ["t1"]),
            ("analyst", []),
            ("banker", ["t3"]),
            ("editor", ["t1", "t2", "t3", "t4"]),
        ],
    ),
    (RETAIL, "Convert the total revenue in May 2026 to USD", [("analyst", []), ("banker", ["t1"])]),
    (RETAIL, "What was the revenue in May 2026 in USD?", [("analyst", []), ("banker", ["t1"])]),
    (RETAIL, "What is 15% of the total revenue in May 2026?", [("analyst", []), ("reckoner", ["t1"])]),
    (
        RETAIL,
        "Divide the total revenue in May 2026 by the number of orders in May 2026",
        [("analyst", []), ("analyst", []), ("reckoner", ["t1", "t2"])],
    ),
    (
        RETAIL,
        "By what percentage did revenue grow from April to May 2026?",
        [("analyst", []), ("reckoner", ["t1"])],
    ),
    (RETAIL, "Why did sales fall in June 2026?", [("analyst", []), ("librarian", [])]),
    (
        RETAIL,
        "What does the handbook say about the best selling product?",
        [("analyst", []), ("librarian", ["t1"])],
    ),
    (RETAIL, "Compare the revenue of Germany and France in 2026", [("analyst", [])]),
    (RETAIL, "Summarise the returns policy", [("librarian", []), ("editor", ["t1"])]),
    (
        RETAIL,
        "Write a memo about revenue in May 2026 and the returns policy",
        [("analyst", []), ("librarian", []), ("editor", ["t1", "t2"])],
    ),
    (
        CLINIC,
        "How many patients did Dr. Okafor see in March 2026, and how many of them waited more than 30 minutes?",
        [("registrar", []), ("registrar", ["t1"])],
    ),
    (
        CLINIC,
        "Plot appointments per month in 2026 and say which department is busiest",
        [("registrar", []), ("painter", ["t1"]), ("registrar", [])],
    ),
    (
        LIBRARY,
        "How many books are overdue, what is the fine for that, and draft a letter to the members",
        [("clerk", []), ("steward", ["t1"]), ("writer", ["t1", "t2"])],
    ),
    (
        GARDEN,
        "My garden is shady and 20 m2. Which plants suit it, and how many seedlings do I need at 0.25 m2 each?",
        [("botanist", []), ("surveyor", [])],
    ),
]


@pytest.mark.parametrize(("team", "goal", "expected"), CASES)
def test_a_request_becomes_the_tasks_it_needs(
    team: Sequence[WorkerCard], goal: str, expected: list[tuple[str, list[str]]]
) -> None:
    proposed = planned(goal, team)
    assert shape(proposed) == expected
    assert proposed["unserved"] == []
    assert proposed["combine"] == ("forward" if len(expected) == 1 else "merge")
    assert [finding.message for finding in linted(proposed, team).findings] == []


def test_instructions_stand_by_themselves_and_say_what_to_return() -> None:
    proposed = planned(
        "What was revenue in Q2 2026 by country, and which product sold best? Convert that to EUR.", RETAIL
    )
    first, second, third = instructions(proposed)
    assert first.startswith("What was revenue in Q2 2026 by country?")
    assert "Which product sold best in Q2 2026?" in second
    assert "Convert the product that sold best in Q2 2026 (the result of t2) to EUR." in third
    assert all(" Return " in text for text in (first, second, third))
    assert proposed["assumptions"] == ["'which product sold best' is taken to mean in Q2 2026, as before."]


def test_the_scope_of_a_sentence_is_in_every_instruction() -> None:
    proposed = planned("For Germany in 2026, list the top products and draw a chart of revenue by month", RETAIL)
    assert all("for Germany in 2026" in text for text in instructions(proposed))


def test_a_part_that_nobody_can_do_is_named_beside_the_rest() -> None:
    proposed = planned("Show revenue by category as a chart and tell me a joke", RETAIL)
    assert shape(proposed) == [("analyst", []), ("painter", ["t1"])]
    assert proposed["unserved"] == ["Tell a joke: nobody on the team is meant for this."]


@pytest.mark.parametrize(
    ("team", "goal", "reason"),
    [
        (RETAIL, "Book a flight to Paris", "nobody on the team"),
        (LIBRARY, "Book a flight to Paris", "nobody on the team"),
        (RETAIL, "Draw a chart of unicorn sightings", "nobody here can get 'unicorn sightings'"),
        (RETAIL, "", "does not say what is wanted"),
        (RETAIL, "please help", "does not say what is wanted"),
        ((), "What was revenue in May 2026?", "nobody on the team"),
    ],
)
def test_a_request_nobody_can_serve_says_so(team: Sequence[WorkerCard], goal: str, reason: str) -> None:
    proposed = planned(goal, team)
    assert proposed["tasks"] == {}
    assert reason in " ".join(proposed["unserved"])


def test_without_a_writer_the_answer_has_to_do_the_writing() -> None:
    team = [card for card in RETAIL if card.name != "editor"]
    proposed = planned("List the top 5 customers and summarise the results", team)
    assert shape(proposed) == [("analyst", [])]
    assert "summarise the results" in proposed["assumptions"][0]


def test_a_short_answer_is_asked_for_by_reduce() -> None:
    assert planned("Briefly: list the customers, and what does the handbook say?", RETAIL)["combine"] == "reduce"


def test_findings_change_the_next_proposal() -> None:
    goal = "What was revenue in May 2026? Who are the customers in Germany? List the products."
    assert len(planned(goal, RETAIL)["tasks"]) == 3
    few = planned(goal, RETAIL, findings=("The run would have 3 tasks, and 2 are allowed. Merge tasks.",))
    assert list(few["tasks"]) == ["t1", "t2"]
    assert "a plan may hold 2 tasks" in few["unserved"][0]
    same = planned(goal, RETAIL, findings=("Task 't2' asks the same as 't1' of the same worker. Merge them.",))
    assert len(same["tasks"]) == 2
    vague = planned(goal, RETAIL, findings=("Task 't3' is vague. Say what to do.",))
    assert len(vague["tasks"]) == 2
    assert "not clear" in vague["unserved"][0]


def test_a_plan_keeps_within_its_limit() -> None:
    goal = " ".join(f"How many orders did customer C-{n} place?" for n in range(30))
    assert len(planned(goal, RETAIL, most=5)["tasks"]) == 5


def held(name: str, instruction: str, worker: str, *after: str) -> Planned:
    return Planned(name, instruction, worker, after)


def test_a_gap_is_closed_by_another_worker_and_what_waited_for_it_follows() -> None:
    team = (*RETAIL, WorkerCard("archivist", "knows old revenue, sales and orders by heart"))
    proposed = planned(
        "Chart of revenue",
        team,
        tasks=(
            held("t1", "Report revenue by month in 2026.", "analyst"),
            held("t2", "Draw a chart of revenue by month in 2026. Use the result of t1.", "painter", "t1"),
        ),
        gaps=(
            Gap(TaskId("t1"), "failed", "exhausted", "the database is locked"),
            Gap(TaskId("t2"), "skipped", "input", "", TaskId("t1")),
        ),
    )
    assert [(name, task["worker"], task["after"]) for name, task in proposed["tasks"].items()] == [
        ("t3", "archivist", []),
        ("t4", "painter", ["t3"]),
    ]


def test_a_gap_is_closed_by_other_words_where_the_failure_offers_them_and_else_not() -> None:
    task = held("t1", "Report revenue of Germny in 2026.", "analyst")
    offered = Gap(TaskId("t1"), "failed", "exhausted", "no such value: 'Germny'; did you mean 'Germany'?")
    team = RETAIL[:1]
    again = planned("Revenue of Germny", team, tasks=(task,), gaps=(offered,))
    assert "Report revenue of Germany in 2026." in instructions(again)[0]
    dead = Gap(TaskId("t1"), "failed", "exhausted", "the disk is on fire")
    assert planned("Revenue of Germny", team, tasks=(task,), gaps=(dead,))["tasks"] == {}
    assert planned("Revenue of Germny", team, tasks=(task,))["tasks"] == {}


SOUP = """draw a chart of revenue by month in 2026 , and then what is the total ? convert it to EUR . which products
sold best for Germany ;
summarise these list patients them their results write memo about returns policy 15% 3 * 4 how many
books waited that Q2 (the why did fall compare handbook says plants frost"""
WORDS = st.sampled_from(SOUP.split())


@given(st.lists(WORDS, max_size=30).map(" ".join) | st.text(max_size=200), st.sampled_from(sorted(TEAMS)))
def test_every_plan_is_sound_and_the_same_each_time(goal: str, name: str) -> None:
    team = TEAMS[name]
    text = plan(Planning(goal, team, 20))
    assert text == plan(Planning(goal, team, 20))
    proposed = planned(goal, team)
    ids = list(proposed["tasks"])
    assert ids == [f"t{n + 1}" for n in range(len(ids))]
    for at, task in enumerate(proposed["tasks"].values()):
        assert set(task["after"]) <= set(ids[:at])
        assert set(task["optional"]) <= set(task["after"])
    assert ids or proposed["unserved"]
    if ids:
        assert [finding.message for finding in linted(proposed, team).findings] == []


def test_a_megabyte_of_request_is_planned_from_its_beginning() -> None:
    proposed = planned("What was revenue in May 2026? " * 40_000, RETAIL)
    assert shape(proposed) == [("analyst", [])]
    assert "first 4,000 characters" in " ".join(proposed["unserved"])
