"""Routes: the confusion matrix, requests out of scope, and what a route costs."""

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Route
from chargehand.engine.failure import Failure
from chargehand.evals.cases import Case
from chargehand.evals.measures import report_section
from chargehand.evals.report import Score, Section
from chargehand.evals.run import evaluate
from chargehand.models.messages import Usage
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from tests.evals.samples import dataset, desk, store

CASES = (
    Case("A refund for my invoice, please", worker="billing"),
    Case("Which payment methods are there for invoices?", worker="billing"),
    Case("I was charged twice", worker="billing"),
    Case("It shows error messages", worker="repairs"),
    Case("The device does not start", worker="repairs"),
    Case("Invoices show error messages of devices that do not start", worker="billing"),
    Case("Invoices with error messages because devices do not start", worker="billing"),
    Case("Sing me a song", worker=None),
)


async def routed(*cases: Case) -> Section:
    (part,) = (await evaluate([dataset(*cases)], desk)).sections
    return part


async def test_wrong_routes_are_counted_by_where_requests_went_and_where_they_should() -> None:
    part = await routed(*CASES)
    assert [one.passed for one in part.scores] == [True, True, False, True, True, False, False, True]
    (mistakes,) = part.tables
    assert mistakes.heads == ("wanted", "got", "cases")
    assert mistakes.rows == (("billing", "repairs", "2"), ("billing", "out of scope", "1"))
    figures = {one.name: one.value for one in part.measures}
    assert figures["accuracy"] == 5 / 8
    assert (figures["out_of_scope"], figures["refused"]) == (1.0, 1 / 7)
    assert figures["usd"] == 0


async def test_what_a_route_costs_is_reported() -> None:
    said = '{"reason": "money", "primary": "billing", "secondary": null, "confidence": 0.9}'
    model = ScriptedModel([said] * 2, micros=500, usage=Usage(9, 1))

    def made() -> Team:
        return Team(desk().spec.workers, supervisor=Supervisor(model=model, strategy=Route(router="model")))

    cases = (Case("A refund, please", worker="billing"), Case("It is broken", worker="repairs"))
    (part,) = (await evaluate([dataset(*cases)], made)).sections
    assert [one.usd for one in part.scores] == [0.0005, 0.0005]
    assert len(model.requests) == 2


async def test_a_router_that_cannot_be_reached_has_refused_nothing() -> None:
    def made() -> Team:
        dead = ScriptedModel([Failure("network", "the line is dead")], repeat=True)
        return Team(desk().spec.workers, supervisor=Supervisor(model=dead, strategy=Route(router="model")))

    (part,) = (await evaluate([dataset(Case("Sing me a song", worker=None))], made)).sections
    assert (part.scores[0].passed, part.scores[0].error) == (False, True)
    assert "the line is dead" in part.scores[0].why[0]


async def test_whatever_is_for_nobody_may_go_to_the_generalist() -> None:
    def made() -> Team:
        workers = [Worker("billing", "answers questions about invoices"), Worker("desk", "answers everything else")]
        return Team(workers, supervisor=Supervisor(strategy=Route(router="words", generalist="desk")))

    (part,) = (await evaluate([dataset(Case("Sing me a song", worker=None))], made)).sections
    assert part.scores[0].passed
    (part,) = (await evaluate([dataset(Case("My invoice is wrong", worker="desk"))], made)).sections
    assert part.scores[0].why == ("it went to billing, and is for desk",)


async def test_of_two_workers_the_first_counts_unless_both_are_named() -> None:
    def made() -> Team:
        return Team(desk().spec.workers, supervisor=Supervisor(strategy=Route(router="words", secondary=True)))

    request = "Invoices with error messages because devices do not start"
    cases = (
        Case(request, worker="repairs"),
        Case(request, worker=("billing", "repairs")),
        Case(request, worker="billing"),
    )
    (part,) = (await evaluate([dataset(*cases)], made)).sections
    assert [one.got for one in part.scores] == ["repairs", "billing + repairs", "repairs"]
    assert [one.passed for one in part.scores] == [True, True, False]


async def test_a_team_that_plans_is_judged_by_who_has_a_task() -> None:
    cases = (
        Case("How many tongs are in stock?", worker="keeper"),
        Case("How many anvils are in stock?", worker="writer"),
    )
    (part,) = (await evaluate([dataset(*cases)], store)).sections
    assert [one.got for one in part.scores] == ["keeper", "keeper"]
    assert [one.passed for one in part.scores] == [True, False]


def test_many_workers_make_a_list_of_mistakes_instead_of_a_matrix() -> None:
    wanted = [f"w{number:02}" for number in range(60)]
    got = [*wanted[:58], "w00", "w01"]
    scores = [Score(a, "routing", a == b, wanted=a, got=b) for a, b in zip(wanted, got, strict=True)]
    (mistakes,) = report_section("d", "routing", scores).tables
    assert mistakes.rows == (("w58", "w00", "1"), ("w59", "w01", "1"))
