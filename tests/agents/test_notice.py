"""The notice of a result speaks of the models that a run may ask, and of no others."""

from chargehand import Plan, Supervisor, Task, Team, Worker
from chargehand.engine.plan import Combine, TaskId


async def _model(messages: object) -> str:
    return "12 apples"


async def _call(assignment: object, context: object) -> str:
    return "12 apples"


def _planned(combine: Combine) -> Supervisor:
    return Supervisor(plan=Plan((Task(TaskId("t1"), "Count the apples in the cellar.", "ann"),), combine))


def test_a_fixed_plan_that_forwards_asks_no_demo_model() -> None:
    assert Team([Worker("ann", "counts", model=_model)], supervisor=_planned("forward")).notice == ""


def test_whoever_asks_the_demo_model_for_a_plan_an_answer_or_a_task_says_so() -> None:
    ann = Worker("ann", "counts", model=_model)
    assert "`demo`" in Team([ann]).notice
    assert "`demo`" in Team([ann], supervisor=_planned("merge")).notice
    assert "No language model is used" in Team([Worker("ann", "counts")], supervisor=_planned("forward")).notice


async def test_functions_inside_a_nested_team_ask_no_demo_model() -> None:
    inner = Team([Worker("ann", "counts", call=_call)], supervisor=_planned("forward"), name="inner")
    worker = inner.as_worker(description="counts apples")
    plan = Plan((Task(TaskId("t1"), "Count the apples in the cellar.", worker.name),), "forward")
    result = await Team([worker], supervisor=Supervisor(plan=plan)).run("Count the apples.")
    assert (result.ending, result.notice) == ("complete", "")
