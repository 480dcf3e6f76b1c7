"""What a second reader asked of teams, and got wrong or not at all: money nobody names, comparisons, whole briefs."""

import pytest
from msgspec import Raw

from chargehand.models.exhibits import Passage, Passages
from chargehand.models.offline.evidence import unsaid
from chargehand.models.offline.phrasing import passages_text
from chargehand.models.offline.schema_text import read_schema
from chargehand.models.offline.task_text import without_head
from chargehand.models.offline.text_to_sql import Asked, Refusal, to_sql
from chargehand.models.subject import Skill, WorkerCard
from tests.models.offline.teams import CHART, planned, search, sql

BOOKS = """
table suppliers(supplier_id TEXT like 'S1', supplier TEXT one of 'Aspen Mills','Birch Works', annual_value_eur INTEGER,
 ends TEXT like '2026-05-02', owner TEXT one of 'Ida','Jon')
table bills(bill_id TEXT like 'B1', supplier_id TEXT like 'S1', day TEXT like '2026-05-02', amount_eur INTEGER)
""".replace(",\n", ",")
PRICES = """
table shares(share TEXT one of 'Ash','Birch', fee_percent REAL)
table prices(day TEXT like '2026-05-02', share TEXT one of 'Ash','Birch', price REAL)
"""
LABORATORY = """
table ranges(test TEXT one of 'iron','sodium', low REAL, high REAL)
table results(day TEXT like '2026-05-02', horse TEXT one of 'Bess','Duke', test TEXT one of 'iron','sodium',
 result REAL)
""".replace(",\n", ",")
RACES = """
table races(day TEXT like '2026-05-02', horse TEXT one of 'Bess','Duke', outcome TEXT one of 'won','lost',
 prize_eur REAL)
table horses(horse TEXT one of 'Bess','Duke', cost_eur REAL, rating REAL)
""".replace(",\n", ",")
COURSES = "table lessons(lesson TEXT like 'a', hours INTEGER, cost_eur REAL)"


def query(question: str, schema: str) -> str:
    found = to_sql(question, read_schema(schema))
    assert isinstance(found, Asked), found
    return found.sql


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("What is the average bill of Birch Works?", "AVG(bills.amount_eur)"),
        ("What is the total of bills per supplier?", "SUM(bills.amount_eur)"),
        ("How much did we pay Aspen in 2026?", "SUM(bills.amount_eur)"),
        ("What was the amount of bills of Birch Works?", "SUM(bills.amount_eur)"),
        ("What is the total number of bills?", "COUNT(*)"),
    ],
)
def test_money_is_meant_where_a_table_has_only_one_column_of_it(question: str, part: str) -> None:
    assert part in query(question, BOOKS)


def test_a_supplier_is_known_by_one_word_of_its_name() -> None:
    assert "LIKE '%aspen%'" in query("How much did we pay Aspen in 2026?", BOOKS)
    assert isinstance(to_sql("How much did we pay Cedar in 2026?", read_schema(BOOKS)), Refusal)


def test_an_annual_value_is_not_a_value_by_year() -> None:
    found = query("Who owns the supplier with the highest annual value?", BOOKS)
    assert "substr" not in found
    assert "ORDER BY suppliers.annual_value_eur DESC LIMIT 1" in found


def test_rows_with_a_bare_code_are_shown_with_their_name() -> None:
    assert "suppliers.supplier AS supplier" in query("Which suppliers end before July 2026?", BOOKS)


def test_a_table_of_prices_is_averaged_and_never_added_up() -> None:
    assert "AVG(prices.price)" in query("What is the price of Ash by month?", PRICES)


@pytest.mark.parametrize(
    "question", ["How has the iron of Bess changed since May 2025?", "Compare the iron of Bess and Duke."]
)
def test_what_happened_is_shown_rather_than_the_list_it_points_to(question: str) -> None:
    assert "results.result AS result" in query(question, LABORATORY)


def test_who_has_most_results_has_many_and_not_a_high_one() -> None:
    assert "COUNT(*)" in query("Which horse has the most results?", LABORATORY)
    assert "ORDER BY results.result DESC" in query("Which horse has the highest result?", LABORATORY)


@pytest.mark.parametrize(
    ("question", "where"),
    [
        ("What share of races with Bess was won?", "WHERE races.horse = 'Bess'"),
        ("What is the win rate of Bess?", "WHERE races.horse = 'Bess'"),
    ],
)
def test_a_share_is_of_what_stands_before_the_verb(question: str, where: str) -> None:
    found = query(question, RACES)
    assert where in found
    assert "CASE WHEN races.outcome = 'won' THEN 1" in found


@pytest.mark.parametrize("question", ["Is Bess cheaper than Duke?", "Is Bess more expensive than Duke?"])
def test_two_that_are_compared_come_with_the_number_it_is_about(question: str) -> None:
    found = query(question, RACES)
    assert "horses.cost_eur AS cost_eur" in found
    assert "IN ('Bess', 'Duke')" in found


def test_what_takes_longest_is_about_time_and_what_is_free_costs_nothing() -> None:
    assert "ORDER BY lessons.hours DESC" in query("Which lesson takes the longest?", COURSES)
    assert "lessons.cost_eur = 0" in query("Which lessons are free?", COURSES)


def passages(text: str, source: str = "ash.md#law") -> list[Passages]:
    return [Passages("", (Passage(source, text),))]


def test_a_contract_need_not_say_that_it_is_one_but_must_speak_of_what_is_asked() -> None:
    law = passages("The deed is governed by the law of France.")
    assert unsaid("What law governs the contract with Ash?", law, "", "contract_clauses") == ""
    assert "speaks of contract" in unsaid("What law governs the contract with Ash?", law, "")
    ends = unsaid("Extract the termination clauses.", law, "finds clauses", "contract_clauses")
    assert "termination" in ends
    assert unsaid("When can we get out of the contract with Ash?", law, "", "contract_clauses")


def test_of_a_clause_that_several_contracts_have_none_is_left_out() -> None:
    found = tuple(
        Passage(f"{one}.md#notice", f"The notice of {one} is short.", 5.0) for one in ("ash", "elm", "fir", "yew")
    )
    other = Passage("ash.md#law", "The law of France holds, and notice is in writing.", 4.0)
    said = passages_text(Passages("notice", (*found, other)), "What do the contracts say about notice?")
    assert said.count("#notice") == 4
    mixed = (found[0], other, *(Passage(f"{one}.md#{one}", "Notice is given.", 5.0) for one in ("elm", "fir", "yew")))
    assert passages_text(Passages("notice", mixed), "What do the contracts say about notice?").count(".md#") == 3


def test_what_follows_from_something_has_a_cause() -> None:
    told = passages("Ash has no ramp, so riders leave it.", "ash.md#weaknesses")
    assert unsaid("Why do riders leave Ash?", told, "") == ""
    assert "a cause" in unsaid("Why do riders leave Ash?", passages("Riders leave Ash in May.", "ash.md"), "")


def test_of_a_result_that_is_pointed_to_the_thing_itself_can_be_asked() -> None:
    said = "List the materials for a path to the long jump (the result of t1)."
    assert without_head(said) == "List the materials for the long jump."
    assert without_head("List the materials for the long jump.") == ""


def tool(name: str, description: str) -> Skill:
    schema = b'{"type":"object","properties":{"horse":{"enum":["Bess","Duke"]}},"required":["horse"]}'
    return Skill(name, description, Raw(schema))


STABLE = (
    WorkerCard(
        "trainer",
        "works out the training of a horse and its diet",
        (),
        (
            tool("training", "The training of a horse, week by week."),
            tool("diet", "The diet of a horse, with reasons."),
        ),
    ),
    WorkerCard("clerk", "answers questions about races from the database", ("data",), (sql(RACES),)),
    WorkerCard("reader", "finds what our notes say about horses", ("documents",), (search("notes"),)),
    WorkerCard("painter", "draws charts", (), (CHART,)),
    WorkerCard("writer", "writes memos and reports", (), ()),
)


def done(request: str) -> list[tuple[str, str]]:
    return [(task["worker"], task["instruction"]) for task in planned(request, STABLE)["tasks"].values()]


def test_a_brief_that_names_somebody_once_means_them_in_all_its_parts() -> None:
    found = done("Work out the training of Bess, and analyse the diet.")
    assert [worker for worker, _ in found] == ["trainer", "trainer"]
    assert "for Bess" in found[1][1]


def test_a_question_about_all_is_not_narrowed_to_who_was_named() -> None:
    found = done("Work out the training of Bess. What was the prize of each race?")
    assert "Bess" not in found[1][1]


def test_a_bare_why_is_left_to_who_gives_reasons_and_is_not_dropped_otherwise() -> None:
    assert len(done("Work out the diet of Bess, and why?")) == 1
    for request in ("What was the prize of Bess in May 2026, and why?", "Work out the training of Bess, and why?"):
        proposed = planned(request, STABLE)
        assert len(proposed["tasks"]) + len(proposed["unserved"]) == 2


def test_to_chart_something_is_to_draw_it() -> None:
    assert [worker for worker, _ in done("Chart the number of races per horse.")] == ["clerk", "painter"]
