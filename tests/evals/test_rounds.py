"""Many cases: one that breaks harms no other, money ends the evaluation, and who watches sees how far it is."""

import io
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from chargehand.agents.worker import Worker
from chargehand.cli.console import Console
from chargehand.cli.eval_words import Told
from chargehand.errors import Invalid
from chargehand.evals.cases import Case, Expect
from chargehand.evals.evaluate import evaluate, unfinished
from chargehand.evals.scores import Score
from chargehand.models.messages import Usage
from chargehand.models.model import ModelCard
from chargehand.models.scripted import ScriptedModel
from chargehand.team import Supervisor
from tests.cli.commands import COMMAND, environment
from tests.evals.samples import dataset, store, written

SLOW = """
import time

def stock(product: str) -> int:
    \"\"\"How many of a product are in stock.\"\"\"
    time.sleep({"tongs": 0, "clamps": 1}.get(product, 30))
    return 31
"""
TEAM = """
version: 1
name: slow
tools: {stock: {python: "tools.py:stock", effect: read}}
workers: {keeper: {description: counts stock of products, tools: [stock]}}
"""


def counting(micros: int | None = None) -> Supervisor:
    card = ModelCard("scripted", micros_in=1, micros_out=1)
    model = ScriptedModel(lambda _: "31 tongs", micros=micros, usage=Usage(9, 1), card=card)
    return Supervisor([Worker("keeper", "counts stock", model=model)])


def asked(number: int) -> list[Case]:
    return [Case(f"Count {at}.", worker="keeper", expect=Expect(numbers=31)) for at in range(number)]


async def test_a_case_that_breaks_everything_is_an_error_of_its_own() -> None:
    made = iter(range(99))

    def team() -> Supervisor:
        if next(made) == 1:
            raise ZeroDivisionError("of our own making")
        return counting()

    (part,) = (await evaluate([dataset(*asked(3))], team, at_once=1)).parts
    assert [(one.passed, one.error) for one in part.scores] == [(True, False), (False, True), (True, False)]
    assert "ZeroDivisionError: of our own making" in part.scores[1].why[0]


async def test_no_case_is_begun_once_the_money_is_spent() -> None:
    report = await evaluate([dataset(*asked(6))], lambda: counting(500_000), at_once=1, budget_usd=1.0)
    assert [one.error for one in report.parts[0].scores] == [False, False, True, True, True, True]
    assert report.stopped == "the $1 of the whole evaluation are spent; allow more with --budget-usd"
    whole = await evaluate([dataset(*asked(2))], lambda: counting(0), budget_usd=0.0)
    assert (whole.stopped, [one.passed for one in whole.parts[0].scores]) == ("", [True, True])


async def test_a_budget_nobody_can_keep_is_not_passed_over() -> None:
    judge = ScriptedModel(lambda _: '{"problems": [], "accepted": true}')
    cases = [Case(one.request, worker="keeper", expect=Expect(rubric="It counts.")) for one in asked(3)]
    report = await evaluate([dataset(*cases)], lambda: counting(1), judge=judge, at_once=1, budget_usd=1.0)
    assert "nobody knows what cases cost" in report.stopped
    with pytest.raises(Invalid, match="a budget of -1 dollars"):
        await evaluate([dataset(*cases)], lambda: counting(1), budget_usd=-1.0)


async def test_what_a_run_cost_counts_although_its_grader_is_torn() -> None:
    case = Case("Count 1.", worker="keeper", expect=Expect(python="nowhere.py:none"))
    (part,) = (await evaluate([dataset(case)], lambda: counting(500))).parts
    assert (part.scores[0].error, part.scores[0].micros) == (True, 500)


@pytest.mark.parametrize(
    "case",
    [
        Case("Count the tongs.", worker="keepr"),
        Case("Count the tongs.", workers=("keepr",)),
        Case("Count the tongs.", worker="keepr", expect=Expect(numbers=31)),
        Case("Count the tongs.", worker="keepr", kind="verifier", right="31"),
    ],
)
async def test_a_misspelt_worker_is_said_and_not_held_against_the_team(case: Case) -> None:
    (part,) = (await evaluate([dataset(case)], store)).parts
    assert part.scores[0].error
    assert "there is no worker 'keepr' on team store; did you mean 'keeper'?" in part.scores[0].why[0]


async def test_one_of_several_instances_is_asked_alone() -> None:
    def team() -> Supervisor:
        return Supervisor([Worker("keeper", model=ScriptedModel(lambda _: "31"), instances=3)])

    (part,) = (await evaluate([dataset(*asked(1))], team)).parts
    assert part.scores[0].passed, part.scores[0].why


async def test_a_judge_that_goes_by_words_alone_is_pointed_out() -> None:
    case = Case("How many tongs are in stock?", expect=Expect(rubric="tongs"))
    (part,) = (await evaluate([dataset(case)], store)).parts
    assert part.warnings == (
        "1 cases: the rubric was judged by words alone: no language model was asked; name a judge: --judge MODEL",
    )


async def test_who_watches_is_told_of_routes_one_by_one_and_how_far_it_is() -> None:
    stream = io.StringIO()
    told = Told(Console(stream), seconds=0.02)
    slow = ScriptedModel(lambda _: "31 tongs", latency=0.1)
    cases = [*asked(2), Case("How many tongs are in stock?", worker="nobody")]
    await evaluate([dataset(*cases)], lambda: Supervisor([Worker("keeper", "counts stock", model=slow)]), progress=told)
    lines = stream.getvalue().splitlines()
    assert any(line.startswith("   1  of 3, 0 passed, ") for line in lines), lines
    assert lines[0].split() == ["1", "routing", "failed", "How", "many", "tongs", "are", "in", "stock?"]
    assert [one.passed for one in told.kept["some"]] == [False, True, True]


def test_what_was_tried_before_a_stop_is_reported_without_gates() -> None:
    kept = {"a": [Score("x", "run", passed=True), Score("y", "routing", passed=False)], "b": list[Score]()}
    report = unfinished("t", kept, "stopped")
    assert [(part.dataset, part.kind, len(part.scores)) for part in report.parts] == [
        ("a", "routing", 1),
        ("a", "run", 1),
    ]
    assert (report.gates, report.stopped) == ((), "stopped")


@pytest.mark.parametrize(
    ("sign", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "stopped by SIGTERM")]
)
def test_a_stop_keeps_what_was_tried(tmp_path: Path, sign: signal.Signals, code: int, said: str) -> None:
    (tmp_path / "team.yaml").write_text(TEAM)
    (tmp_path / "tools.py").write_text(SLOW)
    (tmp_path / "evals").mkdir()
    rows = [
        f"- {{request: How many {one} are in stock?, worker: keeper, expect: {{numbers: 31}}}}"
        for one in ("tongs", "anvils", "clamps")
    ]
    written(tmp_path / "evals", "a.yaml", "\n".join(["cases:", *rows[:2], rows[2].replace("31", "30"), ""]))
    words = ["eval", "-o", "r.json", "--at-once", "3"]
    with (tmp_path / "err").open("w") as heard:
        process = subprocess.Popen(
            [*COMMAND, *words], cwd=tmp_path, env=environment(), stderr=heard, stdout=subprocess.DEVNULL
        )
    until = time.monotonic() + 20
    while "failed" not in (tmp_path / "err").read_text() and time.monotonic() < until:
        time.sleep(0.05)  # the one that passes was done a second before
    process.send_signal(sign)
    assert process.wait(30) == code
    report = json.loads((tmp_path / "r.json").read_text())
    assert said in report["stopped"]
    assert sorted(one["passed"] for one in report["parts"][0]["scores"]) == [False, True]
