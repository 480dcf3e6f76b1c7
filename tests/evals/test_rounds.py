"""Many cases: one that breaks harms no other, money ends the evaluation, and who watches sees how far it is."""

import io
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from chargehand.agents.roles import Worker
from chargehand.cli.console import Console
from chargehand.cli.evaluate import PrintedProgress
from chargehand.errors import Invalid
from chargehand.evals.cases import Case, Expect
from chargehand.evals.report import Score
from chargehand.evals.run import evaluate, report_unfinished
from chargehand.models.messages import Usage
from chargehand.models.model import ModelCard
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from tests.cli.commands import COMMAND, environment
from tests.evals.samples import dataset, store, written

SLOW = """
import time

def stock(product: str) -> int:
    \"\"\"How many of a product are in stock: tongs, anvils or clamps.\"\"\"
    time.sleep({"tongs": 0, "clamps": 0.4}.get(product, 30))
    return 31
"""
TEAM = """
version: 1
name: slow
tools: {stock: {python: "tools.py:stock", effect: read}}
workers: {keeper: {description: counts stock of products, tools: [stock]}}
"""


def counting(micros: int | None = None) -> Team:
    card = ModelCard("scripted", micros_in=1, micros_out=1)
    model = ScriptedModel(lambda _: "31 tongs", micros=micros, usage=Usage(9, 1), card=card)
    return Team([Worker("keeper", "counts stock", model=model)])


def asked(number: int) -> list[Case]:
    return [Case(f"Count {at}.", worker="keeper", expect=Expect(numbers=31)) for at in range(number)]


async def test_a_case_that_breaks_everything_is_an_error_of_its_own() -> None:
    made = iter(range(99))

    def team() -> Team:
        if next(made) == 1:
            raise ZeroDivisionError("of our own making")
        return counting()

    (part,) = (await evaluate([dataset(*asked(3))], team, max_parallel=1)).sections
    assert [(one.passed, one.error) for one in part.scores] == [(True, False), (False, True), (True, False)]
    assert "ZeroDivisionError: of our own making" in part.scores[1].why[0]


async def test_no_case_is_begun_once_the_money_is_spent() -> None:
    report = await evaluate([dataset(*asked(6))], lambda: counting(500_000), max_parallel=1, budget_usd=1.0)
    assert [one.error for one in report.sections[0].scores] == [False, False, True, True, True, True]
    assert report.stopped == "the $1 of the whole evaluation are spent; allow more with --budget-usd"
    whole = await evaluate([dataset(*asked(2))], lambda: counting(0), budget_usd=0.0)
    assert (whole.stopped, [one.passed for one in whole.sections[0].scores]) == ("", [True, True])


async def test_a_budget_nobody_can_keep_is_not_passed_over() -> None:
    judge = ScriptedModel(lambda _: '{"problems": [], "accepted": true}')
    cases = [Case(one.request, worker="keeper", expect=Expect(rubric="It counts.")) for one in asked(3)]
    report = await evaluate([dataset(*cases)], lambda: counting(1), judge=judge, max_parallel=1, budget_usd=1.0)
    assert "the cost of the cases is not known" in report.stopped
    with pytest.raises(Invalid, match="a budget of -1 dollars"):
        await evaluate([dataset(*cases)], lambda: counting(1), budget_usd=-1.0)


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
    (part,) = (await evaluate([dataset(case)], store)).sections
    assert part.scores[0].error
    assert "there is no worker 'keepr' on team store; did you mean 'keeper'?" in part.scores[0].why[0]


async def test_a_rubric_without_a_judge_is_not_tried() -> None:
    case = Case("How many tongs are in stock?", expect=Expect(rubric="tongs"))
    (section,) = (await evaluate([dataset(case)], store)).sections
    assert section.scores[0].error
    assert "no model judges the rubric; name one: --judge MODEL" in section.scores[0].why[0]


async def test_progress_shows_each_failed_case_and_a_count() -> None:
    stream = io.StringIO()
    counts: list[tuple[int, int]] = []
    progress = PrintedProgress(Console(stream), lambda _what, done, total: counts.append((done, total)))
    model = ScriptedModel(lambda _: "31 tongs")
    cases = [*asked(2), Case("How many tongs are in stock?", worker=None)]
    await evaluate([dataset(*cases)], lambda: Team([Worker("keeper", "counts stock", model=model)]), progress=progress)
    (failed,) = stream.getvalue().splitlines()
    assert failed.split()[1:] == ["routing", "failed", "How", "many", "tongs", "are", "in", "stock?"]
    assert counts == [(1, 3), (2, 3), (3, 3)]
    assert sorted(one.passed for one in progress.scores["some"]) == [False, True, True]


def test_what_was_tried_before_a_stop_is_reported_without_gates() -> None:
    kept = {"a": [Score("x", "run", passed=True), Score("y", "routing", passed=False)], "b": list[Score]()}
    report = report_unfinished("t", kept, "stopped")
    assert [(part.dataset, part.kind, len(part.scores)) for part in report.sections] == [
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
    words = ["eval", "-o", "r.json", "--max-parallel", "3"]
    with (tmp_path / "err").open("w") as heard:
        process = subprocess.Popen(
            [*COMMAND, *words], cwd=tmp_path, env=environment(), stderr=heard, stdout=subprocess.DEVNULL
        )
    until = time.monotonic() + 20
    while "failed" not in (tmp_path / "err").read_text() and time.monotonic() < until:
        time.sleep(0.05)  # the one that passes was done before that
    process.send_signal(sign)
    assert process.wait(30) == code
    report = json.loads((tmp_path / "r.json").read_text())
    assert said in report["stopped"]
    assert sorted(one["passed"] for one in report["sections"][0]["scores"]) == [False, True]
