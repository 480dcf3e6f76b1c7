"""The exercise the project began with: T3 needs T1, T4 needs T2, T5 needs T3 and T4. Every way it can fail."""

import pytest

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine.budget import Amount
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Policy, Retry
from chargehand.engine.roster import Agent, Roster
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.runner import Outcome, Runner
from tests.requests import request

# Which tasks fail at every attempt, and what T1..T5 must end as (Done, Failed, Skipped): once where T5 requires T3,
# once where T5 can do without it.
TABLE = """
    -      DDDDD   DDDDD
    1      FDSDS   FDSDD
    2      DFDSS   DFDSS
    12     FFSSS   FFSSS
    3      DDFDS   DDFDD
    13     FDSDS   FDSDD
    23     DFFSS   DFFSS
    123    FFSSS   FFSSS
    4      DDDFS   DDDFS
    14     FDSFS   FDSFS
    24     DFDSS   DFDSS
    124    FFSSS   FFSSS
    34     DDFFS   DDFFS
    134    FDSFS   FDSFS
    234    DFFSS   DFFSS
    1234   FFSSS   FFSSS
    5      DDDDF   DDDDF
    15     FDSDS   FDSDF
    25     DFDSS   DFDSS
    125    FFSSS   FFSSS
    35     DDFDS   DDFDF
    135    FDSDS   FDSDF
    235    DFFSS   DFFSS
    1235   FFSSS   FFSSS
    45     DDDFS   DDDFS
    145    FDSFS   FDSFS
    245    DFDSS   DFDSS
    1245   FFSSS   FFSSS
    345    DDFFS   DDFFS
    1345   FDSFS   FDSFS
    2345   DFFSS   DFFSS
    12345  FFSSS   FFSSS
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]
LETTER = {"done": "D", "failed": "F", "skipped": "S"}
CALL = Amount(calls=1, micros=10)
PATIENT = Policy(retry=Retry(base=0.0), breaking=Breaking(consecutive=1000, sample=1000))


async def cascade(failing: str, *, optional: bool) -> Outcome:
    def task(number: int, *after: TaskId | Edge) -> Task:
        return Task(TaskId(f"T{number}"), f"carry out part {number} of the report", "worker", after=after)

    third = Edge(TaskId("T3"), "optional") if optional else TaskId("T3")
    plan = Plan((task(1), task(2), task(3, TaskId("T1")), task(4, TaskId("T2")), task(5, third, TaskId("T4"))))
    moves = {f"T{number}": (Move(fail="logic", message="no", used=CALL),) for number in failing.strip("-")}
    executor = ScriptedExecutor(Script(moves, otherwise=Move(used=CALL), answers=(Move(used=Amount()),)))
    roster = Roster((Agent("worker", estimate=CALL),))
    return await Runner(MemoryJournal(), executor).start("run", request(plan, roster, policy=PATIENT))


@pytest.mark.parametrize("optional", [False, True], ids=["T3 required", "T3 optional"])
@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
async def test_every_failure_subset_has_one_right_ending(row: list[str], optional: bool) -> None:
    failing, required, degraded = row
    wanted = degraded if optional else required
    found = await cascade(failing, optional=optional)
    assert "".join(LETTER[found.statuses[TaskId(f"T{number}")].value] for number in range(1, 6)) == wanted
    missing = {f"T{number}" for number in range(1, 6) if wanted[number - 1] != "D"}
    assert {gap.task for gap in found.gaps} == missing
    assert found.results.keys() == {f"T{number}" for number in range(1, 6)} - missing
    assert found.ending == ("complete" if not missing else "failed" if "D" not in wanted else "partial")
    calls = wanted.count("D") + 3 * wanted.count("F")  # three attempts before one is given up; skipped work is free
    assert found.spent == Amount(calls=calls, micros=10 * calls)


async def test_the_answer_names_what_is_missing_and_why() -> None:
    found = await cascade("1", optional=False)
    gaps = {gap.task: gap for gap in found.gaps}
    assert gaps[TaskId("T1")].status == "failed"
    assert gaps[TaskId("T1")].message == "no"
    assert (gaps[TaskId("T3")].status, gaps[TaskId("T3")].because) == ("skipped", "T1")
    assert (gaps[TaskId("T5")].status, gaps[TaskId("T5")].because) == ("skipped", "T3")
    answer = str(found.answer)
    assert "[T2]" in answer
    assert "[T4]" in answer
    assert all(f"Missing: {task}" in answer for task in ("T1", "T3", "T5"))


async def test_a_join_that_can_do_without_is_told_what_it_does_without() -> None:
    found = await cascade("1", optional=True)
    assert found.results[TaskId("T5")] == {
        "did": "carry out part 5 of the report",
        "from": {
            "T3": None,
            "T4": "carry out part 4 of the report",
        },
    }
