"""Whole runs, workers alone, and plans: what passes, and what is said where it does not."""

import pytest

from chargehand.agents.audit.failure_modes import audit_run
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy
from chargehand.evals.cases import Case, Expect, PlanShape
from chargehand.evals.report import Score, Section
from chargehand.evals.run import evaluate
from chargehand.evals.scoring import waiting_pairs
from chargehand.models.messages import Reply, ToolCall
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from tests.evals.samples import dataset, store

COUNT = "How many anvils are in stock? How many tongs are in stock?"


async def scored(*cases: Case) -> Section:
    (part,) = (await evaluate([dataset(*cases)], store)).sections
    return part


async def one(case: Case) -> Score:
    return (await scored(case)).scores[0]


async def test_an_answer_that_is_right_passes_with_its_figures() -> None:
    case = Case(COUNT, expect=Expect(numbers=(12, 31)), workers=("keeper",), ending="complete", max_gaps=0, coverage=1)
    part = await scored(case)
    score = part.scores[0]
    assert (score.passed, score.why) == (True, ())
    assert (score.values["coverage"], score.values["gaps"]) == (1.0, 0.0)
    assert "31" in score.got
    assert {one.name for one in part.measures} == {
        "accuracy",
        "usd",
        "seconds",
        "coverage",
        "gaps",
        "failure_modes",
    }


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case(COUNT, expect=Expect(numbers=77)), "there is no 77 in it"),
        (Case(COUNT, workers=("writer",)), "writer did not work on it; keeper did"),
        (Case(COUNT, ending="partial"), "it ended complete (done), not partial"),
        (Case(COUNT, gaps="the weather"), "no gap speaks of 'the weather'"),
        (Case(COUNT, max_seconds=0.0), "0 s are allowed"),
    ],
)
async def test_what_is_wrong_with_a_run_is_said(case: Case, words: str) -> None:
    score = await one(case)
    assert not score.passed
    assert not score.error
    assert words in "; ".join(score.why)


async def test_a_gap_that_was_to_be_named_is_found() -> None:
    case = Case(
        "How many anvils are in stock? How many hammers are in stock?", gaps="hammers", expect=Expect(numbers=12)
    )
    score = await one(case)
    assert (score.passed, score.values["gaps"]) == (True, 1.0), score.why
    assert "it has 1 gaps; 0 are allowed" in (await one(Case(case.request, max_gaps=0))).why
    assert "it covers 50%" in "; ".join((await one(Case(case.request, coverage=0.9))).why)


async def test_one_worker_is_asked_alone() -> None:
    score = await one(Case("How many tongs are in stock?", worker="keeper", expect=Expect(numbers=31)))
    assert (score.kind, score.passed) == ("worker", True), score.why
    wrong = await one(Case("How many tongs are in stock?", worker="keeper", expect=Expect(numbers=32)))
    assert wrong.why == ("there is no 32 in it",)


async def test_a_worker_without_a_result_has_not_passed() -> None:
    score = await one(Case("How many hammers are in stock?", worker="keeper", expect=Expect(excludes="gold")))
    assert not score.passed
    assert score.why[0].startswith("keeper has no result: ")


async def test_a_case_that_cannot_be_tried_is_an_error_and_the_others_go_on() -> None:
    part = await scored(
        Case(COUNT, worker="nobody here", expect=Expect(numbers=1)),
        Case("How many tongs are in stock?", worker="keeper", expect=Expect(numbers=31)),
    )
    assert [(one.passed, one.error) for one in part.scores] == [(False, True), (True, False)]
    assert "there is no worker 'nobody here'" in part.scores[0].why[0]
    assert part.measures[0].value == 1 / 2


async def test_what_a_rubric_costs_counts() -> None:
    judge = ScriptedModel(['{"problems": [], "accepted": true}'], micros=300)
    made = dataset(Case(COUNT, expect=Expect(rubric="It is short.")))
    (part,) = (await evaluate([made], store, judge=judge)).sections
    assert (part.scores[0].passed, part.scores[0].usd) == (True, 0.0003)


async def test_nobody_is_there_to_approve_a_plan_so_nobody_is_asked() -> None:
    def made() -> Team:
        return store().bounded(policy=Policy(approve=True))

    (part,) = (await evaluate([dataset(Case(COUNT, ending="complete"))], made)).sections
    assert part.scores[0].passed, part.scores[0].why


async def test_what_the_engine_prevented_is_not_held_against_a_run() -> None:
    def made() -> Team:
        stranger = Reply(calls=(ToolCall("1", "no_such_tool"),), finish="tools")
        ann = Worker("ann", "counts apples", model=ScriptedModel([stranger, "There are 12 apples in the cellar."]))
        return Team(
            [ann],
            supervisor=Supervisor(
                plan=Plan((Task(TaskId("t1"), "Count the apples in the cellar.", "ann"),), "forward")
            ),
        )

    run = await made().run("Count the apples in the cellar.")
    assert [one.prevented for one in audit_run(run.entries)] == [True]
    (part,) = (
        await evaluate([dataset(Case("Count the apples in the cellar.", expect=Expect(numbers=12)))], made)
    ).sections
    assert (part.scores[0].passed, part.scores[0].values["failure_modes"]) == (True, 0.0)


async def test_every_case_has_a_team_of_its_own() -> None:
    made: list[Team] = []

    def fresh() -> Team:
        made.append(store())
        return made[-1]

    await evaluate([dataset(Case(COUNT), Case(COUNT, name="again"))], fresh, max_parallel=2)
    assert len(made) == 3  # the last one is asked for its name


async def test_a_plan_is_held_against_workers_edges_and_width() -> None:
    part = await scored(
        Case(COUNT, plan=PlanShape(workers=("keeper",), width=2, max_tasks=2)),
        Case(COUNT, plan=PlanShape(workers=("keeper", "writer"), edges=(("keeper", "writer"),), width=3, max_tasks=1)),
    )
    good, bad = part.scores
    assert (good.passed, good.values["tasks"]) == (True, 2.0)
    assert bad.why == (
        "writer has no task in it; keeper has",
        "writer does not work from the result of keeper",
        "2 tasks can run in parallel; 3 are wanted",
        "it has 2 tasks; 1 are enough",
    )


async def test_needless_waits_and_vague_tasks_of_a_plan_are_found() -> None:
    plan = (
        '{"tasks": {"t1": {"instruction": "Look up the stock of tents in Oslo.", "worker": "keeper"},'
        '"t2": {"instruction": "Fetch apple prices of Rome.", "worker": "writer", "after": ["t1"]},'
        '"t3": {"instruction": "Do the rest.", "worker": "writer"}}, "combine": "merge"}'
    )

    def made() -> Team:
        return Team(
            store().spec.workers, supervisor=Supervisor(model=ScriptedModel([plan])), checks=store().spec.checks.by_name
        )

    case = Case("Tents and apples", plan=PlanShape(independent=(("writer", "keeper"),)))
    (part,) = (await evaluate([dataset(case)], made)).sections
    score = part.scores[0]
    assert score.why == (
        "one of writer and keeper waits for the other, and need not",
        "1 tasks are vague",
    )


async def test_a_plan_that_leaves_out_a_part_of_the_request_or_all_of_it_has_not_passed() -> None:
    half = COUNT + " Sing a song about the sea."
    part = await scored(
        Case("Sing a song about the sea.", plan=PlanShape()),
        Case(half, plan=PlanShape(workers=("keeper",))),
        Case(half, name="known", plan=PlanShape(workers=("keeper",), unserved=1)),
    )
    assert [one.passed for one in part.scores] == [False, False, True]
    assert part.scores[0].got == "no tasks"
    for one in part.scores[:2]:
        assert one.why[0].startswith("no worker is given a part of the request: Sing a song about the sea")


def test_who_waits_along_others_waits_too() -> None:
    tasks = [
        Task(TaskId("c"), "x", "cleo", after=(TaskId("b"),)),
        Task(TaskId("a"), "x", "ann"),
        Task(TaskId("b"), "x", "bob", after=(TaskId("a"),)),
    ]
    assert waiting_pairs(tasks) == {("ann", "bob"), ("bob", "cleo"), ("ann", "cleo")}
