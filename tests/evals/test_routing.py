"""Routes: who is taken for whom, requests for nobody, and what to change."""

from chargehand.agents.ways import Route
from chargehand.agents.worker import Worker
from chargehand.evals.advice import overlaps
from chargehand.evals.cases import Case
from chargehand.evals.confusion import confusion
from chargehand.evals.evaluate import evaluate
from chargehand.evals.scores import Part, Score
from chargehand.models.messages import Usage
from chargehand.models.scripted import ScriptedModel
from chargehand.models.subject import WorkerCard
from chargehand.team import Supervisor
from chargehand.terms.failure import Failure
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


async def routed(*cases: Case) -> Part:
    (part,) = (await evaluate([dataset(*cases)], desk)).parts
    return part


async def test_requests_are_counted_by_where_they_went_and_where_they_should() -> None:
    part = await routed(*CASES)
    assert [one.passed for one in part.scores] == [True, True, False, True, True, False, False, True]
    matrix, classes = part.tables
    assert matrix.heads == ("", "billing", "repairs", "out of scope")
    assert matrix.rows == (
        ("billing", "2", "2", "1"),
        ("repairs", "·", "2", "·"),
        ("out of scope", "·", "·", "1"),
    )
    assert matrix.heat[0][1:] == (0.4, 0.4, 0.2)
    assert [row[:4] for row in classes.rows] == [
        ("billing", "5", "100%", "40%"),
        ("repairs", "2", "50%", "100%"),
        ("out of scope", "1", "50%", "100%"),
    ]
    figures = {one.name: one.value for one in part.measures}
    assert figures["accuracy"] == 5 / 8
    assert (figures["out_of_scope"], figures["refused"]) == (1.0, 1 / 7)
    assert figures["usd"] == 0
    assert 0 < figures["confidence"] <= 1


async def test_the_advice_names_the_pair_the_requests_and_the_change() -> None:
    said, tried = (await routed(*CASES)).advice
    assert tried.startswith("tried: with the examples above 7 of 8 requests go right instead of 5; 0 more")
    assert said.startswith("2 of 5 requests for billing went to repairs.")
    assert '`billing: {examples: ["Invoices show error messages of devices that do not start", "Invoices with' in said


async def test_what_was_refused_and_what_was_taken_wrongly_is_advised_on_too() -> None:
    refused, _ = (await routed(Case("I was charged twice", worker="billing"))).advice
    assert "1 of 1 requests for billing were refused" in refused
    assert "lower `threshold`" in refused
    (taken,) = (await routed(Case("A refund for my invoice", worker=None))).advice
    assert "for nobody went to billing" in taken
    assert "raise `threshold`" in taken


async def test_what_a_route_costs_is_told_and_nothing_is_tried_that_costs() -> None:
    said = '{"reason": "money", "primary": "billing", "secondary": null, "confidence": 0.9}'
    model = ScriptedModel([said] * 2, micros=500, usage=Usage(9, 1))

    def made() -> Supervisor:
        return Supervisor(desk().hiring.workers, model=model, way=Route(router="model"))

    cases = (Case("A refund, please", worker="billing"), Case("It is broken", worker="repairs"))
    (part,) = (await evaluate([dataset(*cases)], made)).parts
    assert [one.micros for one in part.scores] == [500, 500]
    assert {row[0]: row[5] for row in part.tables[1].rows} == {"billing": "0.00050", "repairs": ""}
    (said,) = part.advice
    assert "requests for repairs went to billing" in said
    assert len(model.requests) == 2


async def test_a_router_that_cannot_be_reached_has_refused_nothing() -> None:
    def made() -> Supervisor:
        dead = ScriptedModel([Failure("network", "the line is dead")], repeat=True)
        return Supervisor(desk().hiring.workers, model=dead, way=Route(router="model"))

    (part,) = (await evaluate([dataset(Case("Sing me a song", worker=None))], made)).parts
    assert (part.scores[0].passed, part.scores[0].error) == (False, True)
    assert "the line is dead" in part.scores[0].why[0]


async def test_a_good_team_needs_no_advice() -> None:
    part = await routed(*CASES[:2])
    assert (part.advice, part.measures[0].value) == ((), 1.0)


async def test_examples_that_help_some_and_harm_others_are_tried_first() -> None:
    many = [Case(f"{word} charged twice", worker="billing") for word in ("I was", "We were", "They were", "Ann was")]
    harmed = Case("Why was the device charged twice for it?", worker="repairs")
    said, tried = (await routed(*many, harmed)).advice
    assert said.startswith("4 of 4 requests for billing were refused.")
    assert "Ann was" not in said
    assert "4 of 5 requests go right instead of 1; 1 more besides the examples themselves" in tried
    assert tried.endswith("and 1 that went right do not any more: Why was the device charged twice for it?")


async def test_a_team_that_plans_is_told_what_to_describe() -> None:
    cases = (Case("How many tongs are there?", worker="writer"), Case("How many anvils are there?", worker="writer"))
    (part,) = (await evaluate([dataset(*cases)], store)).parts
    (said,) = part.advice
    assert "2 of 2 requests for writer went to keeper." in said
    assert "into the description of writer, for example " in said
    assert "tongs, anvils" in said
    assert "examples:" not in said


async def test_whatever_is_for_nobody_may_go_to_the_generalist() -> None:
    def made() -> Supervisor:
        workers = [Worker("billing", "answers questions about invoices"), Worker("desk", "answers everything else")]
        return Supervisor(workers, way=Route(router="words", generalist="desk"))

    (part,) = (await evaluate([dataset(Case("Sing me a song", worker=None))], made)).parts
    assert part.scores[0].passed
    (part,) = (await evaluate([dataset(Case("My invoice is wrong", worker="desk"))], made)).parts
    assert part.scores[0].why == ("it went to billing, and is for desk",)


async def test_of_two_workers_the_first_counts_unless_both_are_named() -> None:
    def made() -> Supervisor:
        return Supervisor(desk().hiring.workers, way=Route(router="words", secondary=True))

    request = "Invoices with error messages because devices do not start"
    cases = (
        Case(request, worker="repairs"),
        Case(request, worker=("billing", "repairs")),
        Case(request, worker="billing"),
    )
    (part,) = (await evaluate([dataset(*cases)], made)).parts
    assert [one.got for one in part.scores] == ["repairs", "billing + repairs", "repairs"]
    assert [one.passed for one in part.scores] == [True, True, False]


async def test_a_team_that_plans_is_judged_by_who_has_a_task() -> None:
    cases = (Case("How many tongs are in stock?", worker="keeper"), Case("How many tongs are there?", worker="writer"))
    (part,) = (await evaluate([dataset(*cases)], store)).parts
    assert [one.got for one in part.scores] == ["keeper", "keeper"]
    assert [one.passed for one in part.scores] == [True, False]


def test_descriptions_that_say_the_same_are_pointed_out() -> None:
    cards = (
        WorkerCard("ann", "answers questions about invoices and refunds"),
        WorkerCard("bob", "answers questions about refunds and invoices of customers"),
        WorkerCard("cleo", "repairs pumps and filters in the cellar"),
    )
    (said,) = overlaps(cards)
    assert "ann and bob" in said
    assert "invoices" in said
    assert "refunds" in said
    assert overlaps(cards[1:]) == ()


def test_a_rare_label_counts_as_much_as_a_common_one() -> None:
    made = [("a", "a")] * 8 + [("b", "a")] * 2
    scores = [Score(str(at), "routing", one == other, wanted=one, got=other) for at, (one, other) in enumerate(made)]
    found = confusion(scores, ["a", "b"])
    assert [(one.label, one.precision, one.recall) for one in found.classes] == [("a", 0.8, 1.0), ("b", 0.0, 0.0)]
    assert round(found.macro_f1, 4) == round((2 * 0.8 / 1.8) / 2, 4)
    stray = confusion([*scores, Score("x", "routing", passed=False, wanted="a", got="c")], ["a", "b", "c"])
    assert round(stray.macro_f1, 4) == round((16 / 19) / 2, 4)  # who is never wanted has no share in it
