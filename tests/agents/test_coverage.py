"""What is counted as covered and missing: the parts of the plan, and nothing else."""

import pytest

from chargehand import Plan, Supervisor, Task, Team, Worker
from chargehand.agents.audit.assessment import Assessment, measure_coverage
from chargehand.engine.failure import Gap
from chargehand.engine.plan import NO_TASK, TaskId
from chargehand.errors import Refused


def test_an_answer_that_was_not_written_is_no_part_of_the_plan() -> None:
    unwritten = Gap(NO_TASK, "unwritten", "logic", "the judge refused the key")
    coverage = measure_coverage(["t1", "t2"], [unwritten])
    assert (coverage.parts, coverage.missing) == (2, ())
    assert Assessment(coverage).line == "2 of 2 parts covered"


def test_a_long_list_of_missing_parts_says_how_many_it_leaves_out() -> None:
    gaps = [Gap(TaskId(f"t{number}"), "failed", "logic", "dark") for number in range(40)]
    text = Assessment(measure_coverage(["t40"], gaps)).line
    assert text == "1 of 41 parts covered; not covered: t0, t1, t2, t3, t4, t5, t6, t7 and 32 more"


def test_a_task_with_two_gaps_is_one_missing_part() -> None:
    refused = [Gap(TaskId("t2"), "refused", "approval", f"{payee} was not paid") for payee in ("Ott", "Bob")]
    coverage = measure_coverage(["t1"], [*refused, Gap(NO_TASK, "unserved", "logic", "feed the cat")])
    assert (coverage.missing, coverage.parts, coverage.unplanned) == (("t2", "feed the cat"), 3, 1)
    assert Assessment(coverage).line == "1 of 3 parts covered; not covered: t2"


async def test_a_run_that_has_ended_is_not_resumed_and_the_error_says_what_to_do() -> None:
    async def model(messages: object) -> str:
        return "fine"

    plan = Plan((Task(TaskId("t1"), "Count the apples.", "ann"),), "forward")
    team = Team([Worker("ann", "counts", model=model)], supervisor=Supervisor(plan=plan))
    result = await team.run("Count the apples.")
    with pytest.raises(Refused, match=f"(?s)cannot be resumed.*team.run.*chargehand run --reuse {result.run}"):
        await team.resume(result.run)
