"""Checks and wrong results: what is caught, and what is refused wrongly."""

from chargehand.agents.checks import Reviewer
from chargehand.agents.roles import Supervisor, Worker
from chargehand.evals.cases import Case
from chargehand.evals.report import Section
from chargehand.evals.run import evaluate
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from tests.evals.samples import dataset, store

RIGHT = "Apples came to 1,840 kg, pears to 615 kg, plums to 290 kg."
WRONG = {"number": RIGHT.replace("615", "915"), "address": f"{RIGHT} See https://records.example/1234.", "empty": ""}
HARVEST = Case("Report the harvest of 2024.", source=f"Harvest 2024. {RIGHT}", right=RIGHT, wrong=WRONG)


async def scored(case: Case) -> Section:
    (part,) = (await evaluate([dataset(case)], store)).sections
    return part


async def test_a_verifier_is_measured_by_what_it_catches() -> None:
    part = await scored(HARVEST)
    figures = {one.name: one for one in part.measures}
    assert figures["caught"].count == 3
    assert figures["caught"].value >= 0.5
    assert figures["false_alarms"].value == 0
    assert {one.mistake: one.passed for one in part.scores if one.mistake in ("number", "right")} == {
        "right": True,
        "number": True,
    }


async def test_the_checks_of_a_worker_are_those_that_count() -> None:
    case = Case(HARVEST.request, worker="keeper", kind="verifier", right=RIGHT, wrong={"words": "Many apples."})
    part = await scored(case)
    assert [one.passed for one in part.scores] == [True, True]
    assert "not accepted by figures" in part.scores[1].got


async def test_a_check_that_is_too_strict_is_seen() -> None:
    case = Case(HARVEST.request, checks=("figures",), right="Many apples.", wrong={"number": "12 apples"})
    part = await scored(case)
    assert [one.passed for one in part.scores] == [False, False]
    assert "refused, although it is right: " in part.scores[0].why[0]
    assert part.scores[1].why == ("not noticed: number",)
    figures = {one.name: one.value for one in part.measures}
    assert (figures["caught"], figures["false_alarms"]) == (0.0, 1.0)


async def test_a_check_that_is_not_there_is_an_error() -> None:
    part = await scored(Case("x y z", checks=("figure",), right="12"))
    assert all(one.error for one in part.scores)
    assert "no check 'figure'; there are figures" in part.scores[0].why[0]


async def test_a_reviewer_of_the_team_is_asked() -> None:
    def made() -> Team:
        bob = ScriptedModel(['{"problems": ["bob says no"], "accepted": false}'], repeat=True)
        workers = [Worker("ann", "counts", accept=["second"]), Worker("bob", "reviews", model=bob)]
        return Team(workers, checks={"second": Reviewer("bob")})

    case = Case("Count the apples.", worker="ann", kind="verifier", right="Twelve.", wrong={"none": "Nothing at all."})
    (part,) = (await evaluate([dataset(case)], made)).sections
    assert [one.passed for one in part.scores] == [False, True]
    assert "bob says no" in part.scores[0].got


async def test_a_check_that_does_not_work_has_caught_nothing() -> None:
    def torn(_result: object) -> bool:
        raise KeyError("x")

    def team() -> Team:
        return Team([Worker("a", accept=["torn"])], checks={"torn": torn})

    case = Case("Report it", worker="a", kind="verifier", right=RIGHT)
    report = await evaluate([dataset(case)], team, gate={"caught": 0.0})
    assert {one.error for one in report.sections[0].scores} == {True}
    assert not report.passed


async def test_where_nobody_could_be_asked_nothing_is_said_of_the_checks() -> None:
    judge = ScriptedModel(lambda _: "neither yes nor no")
    report = await evaluate(
        [dataset(HARVEST)], lambda: Team([Worker("a")], supervisor=Supervisor(judge=judge)), gate={"false_alarms": 0.0}
    )
    assert {one.error for one in report.sections[0].scores} == {True}
    assert "no check judged it" in report.sections[0].scores[0].why[0]
    assert not report.passed
