"""Gates are never open by accident: what cannot be measured closes them, what makes no sense is refused first."""

from collections.abc import Callable

import pytest
from msgspec import structs

from chargehand.agents.roles import Worker
from chargehand.cli.evaluate import gate
from chargehand.errors import Invalid
from chargehand.evals.cases import Case, Expect
from chargehand.evals.report import EvalReport
from chargehand.evals.run import evaluate
from chargehand.models.messages import Usage
from chargehand.models.model import ModelCard
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from tests.evals.samples import dataset, store

TONGS = Case("How many tongs are in stock?", name="tongs", expect=Expect(numbers=31))


def forbidden() -> Team:
    raise AssertionError("a case was tried")


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"accuracy": 90.0}, "from 0 to 1"),
        ({"accuracy": -0.1}, "from 0 to 1"),
        ({"usd": float("inf")}, "of 0 or more"),
        ({"run.usd": float("nan")}, "of 0 or more"),
        ({"regressions": 0.0}, "--baseline"),
    ],
)
async def test_a_gate_that_is_always_open_or_never_is_refused_before_anything_is_tried(
    wish: dict[str, float], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        await evaluate([dataset(TONGS)], forbidden, gate=wish)
    with pytest.raises(Invalid, match=words):
        await evaluate([dataset(TONGS, gate=wish)], forbidden)


async def test_where_no_case_could_be_tried_every_gate_is_closed_and_the_report_is_there() -> None:
    torn = Case("q", worker="nobody here", expect=Expect(numbers=1))
    report = await evaluate([dataset(TONGS, torn)], store, gate={"seconds": 60.0, "gaps": 5.0})
    assert {(one.kind, one.measure): one.passed for one in report.gates} == {
        ("run", "seconds"): True,
        ("run", "gaps"): True,
        ("worker", "seconds"): False,
        ("worker", "gaps"): False,
    }
    assert {one.why for one in report.gates} == {"", "it could not be measured"}
    assert not report.passed


def paid(price: float | None) -> Callable[[], Team]:
    card = ModelCard("scripted", micros_in=price, micros_out=price)
    model = ScriptedModel(lambda _: "31", usage=Usage(9, 1), micros=10, card=card)
    return lambda: Team([Worker("keeper", "counts stock", model=model)])


async def test_a_cost_nobody_knows_closes_the_gate_on_costs() -> None:
    async def judged(micros: int | None) -> EvalReport:
        judge = ScriptedModel(lambda _: '{"problems": [], "accepted": true}', micros=micros)
        case = Case("How many tongs are there?", worker="keeper", expect=Expect(rubric="It says how many."))
        return await evaluate([dataset(case)], paid(1.0), judge=judge, gate={"usd": 1.0})

    assert (await judged(5)).passed
    found = await judged(None)
    assert not found.passed
    assert "could not be measured" in found.gates[0].why


async def test_a_gate_on_costs_is_refused_where_nobody_knows_what_the_models_cost() -> None:
    for wish in ({"usd": 1.0}, {"run.usd": 1.0}):
        with pytest.raises(Invalid, match="the price of scripted is unknown"):
            await evaluate([dataset(TONGS, gate=wish)], paid(None))
    with pytest.raises(Invalid, match="the price of scripted is unknown"):
        await evaluate([dataset(TONGS)], paid(None), budget_usd=1.0)


async def test_cases_that_are_not_in_the_baseline_close_the_gate_on_regressions() -> None:
    before = await evaluate([dataset(TONGS, Case("How many anvils are in stock?", worker="keeper"))], store)
    changed = Case("How many bellows are in stock?", name="tongs", expect=Expect(numbers=0))
    known = Case("How many anvils are in stock?", worker="keeper")
    report = await evaluate([dataset(changed, known)], store, baseline=before, gate={"regressions": 0})
    assert {one.kind: one.passed for one in report.gates} == {"routing": True, "run": False}
    assert report.warnings == (
        "some run: 0 of 1 cases are compared; the others are new or changed, and 1 of the baseline are gone",
    )


async def test_a_baseline_without_a_dataset_in_common_is_refused_before_anything_is_tried() -> None:
    before = await evaluate([dataset(TONGS)], store)
    with pytest.raises(Invalid, match="no dataset in common"):
        await evaluate([dataset(TONGS, name="other")], forbidden, baseline=before)


async def test_a_judge_that_is_not_there_is_said_before_anything_is_tried() -> None:
    second = structs.replace(dataset(TONGS, name="second"), judge="nope")
    with pytest.raises(Invalid, match="'nope' is no model"):
        await evaluate([dataset(TONGS), second], forbidden)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("accuracy=0.9", ("accuracy", 0.9)),
        ("run.usd=0.01", ("run.usd", 0.01)),
        ("accuracy==0.9", None),
        ("accuracy>0.9", None),
    ],
)
def test_a_gate_is_a_measure_and_a_number(text: str, found: tuple[str, float] | None) -> None:
    if found is not None:
        assert gate(text) == found
        return
    with pytest.raises(Exception, match="is no gate"):
        gate(text)
