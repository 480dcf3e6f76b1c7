"""Nothing that was asked is dropped without a word: parts of a request, names, numbers, exclusions, tables."""

from pathlib import Path
from typing import Literal

import pytest

from chargehand.models.exhibits import Figure, Table
from chargehand.models.offline.clauses import LONGEST, Clause, split
from chargehand.models.offline.unspoken import unspoken
from chargehand.tools.chart import chart
from chargehand.tools.documents import documents
from chargehand.tools.tool import tool
from tests.models.offline.teams import RETAIL, planned
from tests.models.offline.working import do, product

Engine = Literal["steam engine", "gas engine", "wind mill", "water mill", "tread mill"]


@tool
def count_turns(engine: Engine, hours: int = 1) -> Figure:
    """Run an engine for some hours and count its turns, at most 12 days in a row.

    Args:
        engine: which engine
        hours: for how many hours it runs

    """
    return Figure(str(100 * hours), label=f"turns of the {engine} in {hours} hours", unit="turns")


@tool
def haul(loads: int, speed: int) -> Figure:
    """How long a haul takes: the minutes for so many loads.

    Args:
        loads: how many loads there are
        speed: how many loads go in a minute

    """
    return Figure(str(loads // speed), f"{loads} / {speed}", "minutes", "time of the haul")


@tool
def route(goal: Literal["harbour", "market"]) -> Table:
    """Plan a route to a goal: the stops on the way."""
    return Table(("stop", "minutes"), (("bridge", 5), (goal, 9)), "worked out")


def texts(request: str) -> list[str]:
    return [one.text for one in split(request)]


def test_several_things_in_several_respects_are_each_respect_of_each() -> None:
    assert texts(
        "Compare the gas engine and the wind mill: what our notes say about them, their price with 2 crews."
    ) == [
        "what our notes say about the gas engine",
        "what our notes say about the wind mill",
        "Report the price of the gas engine with 2 crews",
        "Report the price of the wind mill with 2 crews",
    ]


@pytest.mark.parametrize(
    "request_",
    [
        "Compare sales and costs: draw a chart of them",
        "Compare sales, cost and order value of Germany",
        "Compare May and June: what is the difference?",
        "Two things: its price and its weight",
    ],
)
def test_a_list_that_is_none_of_respects_stays(request_: str) -> None:
    assert not any(one.startswith("Report") for one in texts(request_))


@pytest.mark.parametrize(
    "request_",
    [
        "Which contracts end in 2026 and have a notice of more than 30 days?",
        "Which parts cost at least 4 euros and take less than 60 minutes?",
        "Which rooms face south and are not let?",
    ],
)
def test_a_second_condition_is_no_second_question(request_: str) -> None:
    assert texts(request_) == [request_]


def test_a_second_question_is_still_one() -> None:
    assert len(texts("Which rooms face south, and is the hall let?")) == 2
    assert len(texts("Which rooms face south and list the tenants?")) == 2


def test_a_period_at_the_end_holds_for_both_numbers_and_so_does_their_noun() -> None:
    assert texts("How many deals did we win and how many did we lose in March 2026?") == [
        "How many deals did we win in March 2026",
        "how many deals did we lose in March 2026?",
    ]


def test_how_many_in_another_year_is_of_the_same_things() -> None:
    assert texts("How many bills were late in 2025 and how many in 2024?") == [
        "How many bills were late in 2025",
        "How many bills were late in 2024?",
    ]


def test_two_that_are_asked_about_are_two() -> None:
    assert texts("What do our notes say about bees and about the hive?") == [
        "What do our notes say about bees",
        "What do our notes say about the hive?",
    ]


def test_passages_are_not_searched_for_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "bees.md").write_text("# Bees\n\nBees need a hive. Wasps need wood.\n", encoding="utf-8")
    shelf = documents(tmp_path, name="notes")
    assert "left out" in do("List the insects that do not need a hive.", [shelf]).gave_up
    assert "left out" in do("What do our notes say about bees, not about the hive?", [shelf]).gave_up
    assert "elsewhere" in do("Which one needs a hive?", [shelf]).gave_up
    assert not do("What do our notes say about bees?", [shelf]).gave_up


def test_a_respect_that_reads_like_a_statement_is_asked_for_and_a_late_statement_is_kept() -> None:
    assert (
        texts("Tell me about the mill: its price and the repairs it needs.")[-1] == "Report the repairs the mill needs"
    )
    assert split("Which plants suit a garden? My garden is shady.")[-1].given == "My garden is shady"


def test_a_chart_for_each_is_not_drawn_of_one_number() -> None:
    one = product("One.", Figure("1278", label="turns", unit="turns"))
    assert (
        "single value" in do("Draw a chart of the turns (the result of t1) for each engine.", [chart()], [one]).gave_up
    )


def test_words_that_no_task_speaks_of_are_named() -> None:
    clauses = [Clause("Report the revenue and the humidity")]
    assert unspoken(clauses, ["Report the revenue"]) == [
        "Report the revenue and the humidity: no task speaks of humidity."
    ]
    assert unspoken(clauses, ["Report the revenue", "The humidity: nobody is meant for this."]) == []


def test_a_sentence_that_is_too_long_to_read_is_named() -> None:
    long = "What was the revenue in May 2026 of " + "very " * 300 + "good customers in Zanzibar?"
    assert len(split(long)[0].text) == LONGEST
    assert any("are read" in one for one in planned(long, RETAIL)["unserved"])


def test_each_of_many_values_is_called_for_or_the_task_is_refused() -> None:
    names = "the steam engine, the gas engine, the wind mill, the water mill and the tread mill"
    assert len(do(f"Count the turns of {names} in 2, 3 and 4 hours.", [count_turns]).calls) == 15
    refused = do(f"Count the turns of {names} in 2, 3, 4 and 5 hours.", [count_turns])
    assert not refused.calls
    assert "20 times" in refused.gave_up


def test_a_number_that_a_tool_says_of_itself_counts_only_with_its_noun() -> None:
    assert (
        "no use for 12" in do("Count the turns of the gas engine with 12 stokers and 3 hours.", [count_turns]).gave_up
    )
    assert not do("Count the turns of the gas engine in 3 hours.", [count_turns]).gave_up


def test_a_number_of_one_thing_is_not_taken_for_another() -> None:
    assert not do("How long does a haul of 3 million loads take, and how long with 5 million loads?", [haul]).calls
    assert do("How long does a haul of 300 loads take at 20 loads per minute?", [haul]).arguments() == {
        "loads": 300,
        "speed": 20,
    }


def test_what_is_to_be_left_out_is_not_passed_over() -> None:
    assert "without" in do("Plan a route to the harbour without the bridge.", [route]).gave_up
    assert not do("Plan a route to the harbour.", [route]).gave_up


def test_what_nobody_works_out_is_not_passed_over() -> None:
    assert "difference" in do("Plan a route to the harbour and the difference in minutes.", [route]).gave_up


def test_every_table_of_a_result_gets_its_chart() -> None:
    both = product(
        "Two.",
        Table(("day", "sugar"), (("2026-01-02", 7.1), ("2026-02-02", 7.4)), "lab"),
        Table(("day", "salt"), (("2026-01-02", 98), ("2026-02-02", 99)), "lab"),
    )
    done = do("Draw a chart of the sugar and the salt (the result of t1). Return the chart.", [chart()], [both])
    assert [done.arguments(at)["values"] for at in range(len(done.calls))] == [[7.1, 7.4], [98, 99]]
