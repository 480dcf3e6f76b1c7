"""What an answer says that no result bears out is found, and what they do bear out is left alone."""

import random
import re
import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.agents.audit.assessment import untraced_sections
from chargehand.agents.audit.claims import trace_answer, unsupported
from chargehand.engine.facts import Statement, Tracing
from chargehand.models.artifacts import Figure, FoundPassage, Passages, Table, WorkerOutput
from chargehand.models.request_facts import Given
from chargehand.text.numbers import find_quantities
from tests.models.demo.asking import ask, team_of

SALES = Given(
    "t1",
    "Report sales by shop in 2026.",
    "analyst",
    WorkerOutput(
        "Kiel sold 1,234.56 EUR, Bremen 815.20 EUR. The share of Kiel is 60.2%.",
        (Table(("shop", "eur"), (("Kiel", 1234.56), ("Bremen", 815.2)), "sales.csv"),),
    ),
)
RULES = Given(
    "t2",
    "What do the rules say?",
    "archivist",
    WorkerOutput(
        "Goods are taken back within thirty days, see https://shop.example/rules/returns.",
        (
            Passages(
                "returns", (FoundPassage("rules.md", "Whoever brings goods back within 14 days gets the full price."),)
            ),
            Figure("0.25", "1 / 4", "", "Share of returns"),
        ),
    ),
)
RESULTS = (SALES, RULES)


def flagged(answer: str, *known: str) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in unsupported(answer, RESULTS, known)]


@pytest.mark.parametrize(
    "answer",
    [
        "Kiel sold 1,234.56 EUR [t1].",
        "Kiel sold 1234.56 € and Bremen EUR 815.20 [t1].",
        "Kiel sold about 1,200 EUR, 1,235 to the euro [t1].",
        "Kiel sold roughly 1.2 thousand [t1].",
        "Kiel has 60 % of it, which is 60.2 percent [t1].",
        "In total 2,049.76 EUR were sold [t1].",
        "Kiel sold 419.36 EUR more than Bremen: 1,234.56 against 815.20 [t1].",
        "25% of all goods come back [t2].",
        "1. The 2 shops sold 1,234.56 and 815.20 [t1].\n2. See step 3.",
        "In 2026, at 08:15, that was so [t1].",
        "Returns are described at https://shop.example/rules/returns [t2].",
        "See (https://shop.example/rules/returns), or www.shop.example/rules/ [t2].",
        'It says: "brings goods back within 14 days" [t2].',
        "The rule: “Whoever brings … gets the full price.” [t2]",
        "> Whoever brings goods back within 14 days gets the full price.\n>\n> — rules.md",
        "Both hold [t1, t2]: 1,234.56 EUR, and 14 days.",
        "The shop 'B12' and version 3.11.2 of form Q7 [t1].",
        "```\nlimit 999\n```\nand `x = 77 * 3` too [t1].",
    ],
)
def test_what_the_results_say_is_not_flagged(answer: str) -> None:
    assert flagged(answer) == []


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        ("Kiel sold 1,284.56 EUR [t1].", "number", "1,284.56"),
        ("Kiel sold 1,234.65 EUR.", "number", "1,234.65"),
        ("Kiel has 62 % of it [t1].", "number", "62"),
        ("Sales rose to 1.3 million [t1].", "number", "1.3"),
        ("All in all 2,149.76 EUR were sold in total [t1].", "number", "2,149.76"),
        ("On 29 May 2031 that was so [t1].", "date", "29 May 2031"),
        ("See https://shop.example/rules/refunds [t2].", "url", "https://shop.example/rules/refunds"),
        ("See https://elsewhere.example [t2].", "url", "https://elsewhere.example"),
        ('It says: "brings goods back within a month" [t2].', "quotation", "brings goods back within a month"),
        ("> Whoever brings goods back within 41 days gets the full price.", "number", "41"),
        ("The rule: “Whoever brings … gets half the price.” [t2]", "quotation", ""),
    ],
)
def test_what_no_result_says_is_flagged(answer: str, kind: str, text: str) -> None:
    found = unsupported(answer, RESULTS)
    assert [one.kind for one in found] == [kind]
    assert text in found[0].text


def test_a_number_from_another_result_than_the_cited_one_is_flagged_and_traced() -> None:
    (found,) = unsupported("Goods come back within 14 days [t1].", RESULTS)
    assert (found.text, found.cited, found.elsewhere) == ("14", ("t1",), ("t2",))
    assert "14, cited from [t1], but it stands in [t2]" in untraced_sections([("", found)])[0].text


def test_a_result_may_say_what_it_was_made_from() -> None:
    assert unsupported("It is 14 days [t1].", RESULTS, behind={"t1": ("t2",)}) == ()


def test_a_number_that_only_a_worker_says_does_not_follow_from_itself() -> None:
    """It differs from the 0 in the result by itself, and stands in the worker's own text."""
    table = Table(columns=("fee_percent",), rows=(), source="funds.csv", query="SELECT fee_percent FROM funds LIMIT 0")
    results = [Given("t1", "Find the fee.", "ann", WorkerOutput("The fee is 0.25%.", (table,)))]
    tracings = {"t1": Tracing(tools=1, untraced=(Statement(kind="number", text="0.25", origin="words"),))}
    claims = trace_answer("The fee is 0.25%, so four quarters of it are 0.25% again.", results, tracings=tracings)
    assert {claim.origin for claim in claims} == {"words"}


def test_figures_within_a_long_text_of_a_row_belong_to_that_text() -> None:
    headlines = ("Heron Flask: hot for 12 hours", "Meet the Heron Flask: hot for 12 hours, cold for 24 hours")
    rows = tuple((headline, f"{len(headline)} of 60 characters") for headline in headlines)
    results = [
        Given("t1", "Make headlines.", "ann", WorkerOutput("", (Table(("headline", "length"), rows, "facts.csv"),)))
    ]
    assert unsupported("; ".join(f"{headline}, {length}" for headline, length in rows), results) == ()


def test_a_semicolon_ends_what_is_said_of_a_row() -> None:
    rows = ((1041, "2026-10-08", 3), (1045, "2026-10-20", 1))
    results = [
        Given("t1", "List orders.", "ann", WorkerOutput("", (Table(("order", "day", "quantity"), rows, "o.csv"),)))
    ]
    assert unsupported("Orders: 1041, 2026-10-08 3; 1045, 2026-10-20 1.", results) == ()


def test_keys_that_are_no_texts_are_read_as_texts() -> None:
    results = [Given("t1", "Sales by year.", "ann", {2023: 1200.5, 2024: 1310.75, "by month": [{1: 7.25}, {1: 9.75}]})]
    assert unsupported("In 2024 sales were 1,310.75, in January 9.75 [t1].", results) == ()
    assert [one.text for one in unsupported("In 2024 sales were 1,310.57 [t1].", results)] == ["1,310.57"]


def test_what_the_request_says_may_be_said_again() -> None:
    assert flagged("Of the 77 shops you asked for, 2 are known.") == [("number", "77")]
    assert flagged("Of the 77 shops you asked for, 2 are known.", "Report on my 77 shops") == []


def test_without_results_there_is_nothing_to_hold_an_answer_against() -> None:
    assert unsupported("It is 42.", [Given("t1", "Count.", "w", None)]) == ()


def test_a_long_list_of_flags_is_cut_short() -> None:
    text = untraced_sections([("", Statement("number", str(n))) for n in range(20)])[0].text
    assert text.startswith("Not traced to a tool:\n- 0\n")
    assert text.endswith("- and 12 more")


_WITH_FIGURES = (
    "Which three products brought the most revenue in 2026?",
    "How many tents did we sell per country in 2026?",
)
"""Requests of the README whose answers have many figures."""


@cache
def examples() -> list[tuple[str, str, tuple[Given, ...], tuple[str, ...]]]:
    found: list[tuple[str, str, tuple[Given, ...], tuple[str, ...]]] = []
    for goal in (*team_of("shop").examples, *_WITH_FIGURES):
        result = ask("shop", goal)
        asked = {task.id: task.instruction for task in result.plan.tasks}
        results = tuple(Given(task, asked.get(task, ""), "", value) for task, value in result.results.items())
        answer = str(result.answer).partition("\n\nChecked: ")[0]
        found.append((goal, answer, results, tuple(gap.message for gap in result.gaps)))
    return found


def test_the_examples_of_the_shop_raise_no_false_alarm() -> None:
    assert len(examples()) >= 6
    for goal, answer, results, gaps in examples():
        assert unsupported(answer, results, (goal, *gaps)) == (), goal
        assert "Not traced to a tool" not in answer


def test_changed_digits_are_nearly_always_caught() -> None:
    chance = random.Random(7)
    caught = 0
    tried = 0
    for goal, answer, results, gaps in examples():
        stated = re.split("## Sources|Not answered", answer)[0]  # what is missing is not stated
        body = re.sub(r"`[^`]*`", lambda found: " " * len(found[0]), stated)
        for one in find_quantities(body):
            at = chance.choice([place for place in range(one.start, one.end) if body[place].isdigit()])
            digit = chance.choice([sign for sign in "123456789" if sign != body[at]])
            changed = answer[:at] + digit + answer[at + 1 :]
            caught += bool(unsupported(changed, results, (goal, *gaps)))
            tried += 1
    assert tried >= 40
    assert caught / tried > 0.8  # the rest happen to be other numbers of the same result


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_checked_and_holds_against_itself(answer: str, result: str) -> None:
    unsupported(answer, [Given("t1", "", "", result)])
    assert unsupported(answer, [Given("t1", "", "", answer)]) == ()


@pytest.mark.parametrize(
    "piece",
    ["1,", "“a b c d ", '"', "> a b c d\n", "[t1] ", "https://", "```\n", "1 is 2. ", "(", "1'000 ", "a is 7 [t1].\n"],
)
def test_long_texts_take_bounded_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    began = time.thread_time()
    unsupported(text, [Given("t1", "", "", text)])
    assert time.thread_time() - began < 8
