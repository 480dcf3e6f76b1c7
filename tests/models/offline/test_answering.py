import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.models.exhibits import Chart, Exhibit, Figure, Passage, Passages, Product, Table
from chargehand.models.offline.answering import answer
from chargehand.models.subject import Answering, Given
from chargehand.terms.failure import Gap
from chargehand.terms.plan import Combine, TaskId

TABLE = Table(
    ("month", "year", "revenue"),
    tuple((f"month {n}", 2026, 1234567.25 + n) for n in range(1, 15)),
    "shop.db",
    "SELECT 1",
)
FIGURE = Figure("11234.56", "12345.5 * 0.91", "EUR", "Total", "rates.csv")
PASSAGES = Passages("returns", (Passage("handbook.md#returns", "Returns are taken back within 30 days."),))
CHART = Chart("Revenue by month", "<svg/>", "14 bars, highest in month 14")


def result(task: str, instruction: str, text: str = "", *exhibits: Exhibit) -> Given:
    return Given(task, instruction, "somebody", Product(text, exhibits))


RESULTS = (
    result(
        "t1", "Report revenue by month. Return the figures as a small table.", "Month 14 was best. So it is.", TABLE
    ),
    result("t2", "Draw a chart of revenue by month. Use the result of t1. Return the chart.", "", CHART),
    result("t3", "What does the handbook say about returns? Return the passages.", "They are taken back.", PASSAGES),
    result("t4", "Convert 12345.5 USD to EUR. Return the converted amount.", "", FIGURE),
)
GOAL = "Chart revenue by month, say what the handbook says about returns, and convert 12345.5 USD to EUR"


def test_a_merged_answer_is_short_first_then_parts_sources_and_nothing_missing() -> None:
    text = answer(Answering(GOAL, RESULTS))
    short, _, rest = text.partition("\n\n")
    assert "Month 14 was best [t1]." in short
    assert "Chart *Revenue by month*: 14 bars, highest in month 14 [t2]." in short
    assert "They are taken back [t3]." in short
    assert "**11,234.56 EUR** [t4]." in short
    assert "| month | year | revenue |\n| --- | ---: | ---: |\n| month 1 | 2026 | 1,234,568.25 |" in rest
    assert "\u2026 2 more rows" in rest
    assert "> Returns are taken back within 30 days.\n>\n> \u2014 handbook.md#returns" in rest
    assert "worked out as `12345.5 * 0.91`" in rest
    order = ["### Revenue by month [t1]", "### Returns [t3]", "worked out as", "## Sources", "[t1] shop.db"]
    assert sorted(order, key=text.index) == order
    assert "Not answered" not in text


def test_prose_written_from_the_others_opens_the_answer() -> None:
    memo = "Revenue rose all year. " * 10
    text = answer(Answering(GOAL, (*RESULTS, result("t5", "Write a memo. Use the results of t1 and t2.", memo))))
    assert text.startswith("Revenue rose all year.")
    assert text.index("[t5].") < text.index("### Revenue by month [t1]")
    assert "Month 14 was best." in text


def test_what_the_words_say_is_not_shown_again() -> None:
    told = (
        result("t1", "What was revenue?", "Revenue: 1,200.50.", Table(("revenue",), ((1200.5,),))),
        result("t2", "Draw it.", 'The chart "Revenue by month" rises.', CHART),
        result("t3", "Look it up.", "Returns are taken back within 30 days. (handbook.md#returns)", PASSAGES),
    )
    text = answer(Answering("revenue, chart and returns", told))
    assert text.count("Revenue by month") == 1
    assert "> Returns" not in text
    assert "- [t3] handbook.md#returns" in text


def test_the_short_answer_tells_the_last_of_several_figures_and_not_what_only_led_to_it() -> None:
    rate = Figure("1.1939", "", "", "USD per EUR")
    told = (
        result("t1", "Report revenue in May. Return the figures.", "Revenue: 100.", Table(("revenue",), ((100,),))),
        result(
            "t2",
            "Convert it (the result of t1) to USD.",
            "Rate: 1.1939. Converted: 119.39 USD.",
            rate,
            Figure("119.39", "100 * 1.1939"),
        ),
    )
    assert answer(Answering("convert revenue", told)).startswith("Converted: 119.39 USD [t2].\n")


def test_amounts_of_money_are_shown_with_cents() -> None:
    text = answer(
        Answering("g", (result("t1", "List.", "", Table(("item", "price_eur"), (("a", 3.5), ("b", 1200.0)))),))
    )
    assert "| a | 3.50 |\n| b | 1,200.00 |" in text


def test_gaps_are_named_in_plain_words() -> None:
    gaps = (
        Gap(TaskId("t5"), "failed", "exhausted", "no rate for 2026-05-30"),
        Gap(TaskId("t6"), "skipped", "input", "", TaskId("t5")),
        Gap(TaskId("t7"), "unfinished", "deadline", "the deadline had passed"),
        Gap(TaskId(""), "failed", "unserved", "Book a flight: nobody on the team is meant for this."),
        Gap(TaskId(""), "unserved", "unserved", "What does the train cost?"),
    )
    text = answer(Answering(GOAL, (*RESULTS[:1], Given("t8", "Count the cats.", "w", None)), gaps))
    assert text.partition("## Not answered\n\n")[2].splitlines() == [
        "- No rate for 2026-05-30. [t5]",
        "- Not tried, since it needs t5, which has no result. [t6]",
        "- Not finished: the deadline had passed. [t7]",
        "- Book a flight: nobody on the team is meant for this.",
        "- What does the train cost?",
        "- Count the cats: there is no result. [t8]",
    ]


def test_nothing_done_is_said_plainly() -> None:
    text = answer(Answering(GOAL, (), (Gap(TaskId(""), "failed", "unserved", "Tell a joke: nobody does."),)))
    assert text.startswith("Nothing of this could be answered.")
    assert "- Tell a joke: nobody does." in text


def test_forward_hands_the_words_through() -> None:
    only = result("t1", "Say it.", "First line.\n\nSecond **line**.")
    assert answer(Answering("x", (only,), combine="forward")) == "First line.\n\nSecond **line** [t1].\n"


def test_reduce_keeps_the_essentials() -> None:
    text = answer(Answering(GOAL, RESULTS, combine="reduce"))
    assert "Month 14 was best [t1]." in text
    assert "###" not in text
    assert "| month 1 |" not in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("hello", "hello [t1]"),
        (1234567, "1,234,567 [t1]"),
        (0.30000000000000004, "0.30000000000000004 [t1]"),
        (True, "Yes [t1]."),
        ([1, 2], "- 1\n- 2\n\n[t1]"),
        ([{"a|b": "x|y", "n": 1}], "| a\\|b | n |\n| --- | ---: |\n| x\\|y | 1 |\n\n[t1]"),
        ({"answer": "42"}, "42 [t1]"),
        ({"text": "# Head\nBody."}, "**Head**\nBody [t1]."),
        ([], "The list is empty [t1]."),
        ({}, "The result is empty [t1]."),
    ],
)
def test_any_json_is_shown(value: object, shown: str) -> None:
    assert answer(Answering("g", (Given("t1", "Do it.", "w", value),))) == f"{shown}\n"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
COMBINE: tuple[Combine, ...] = ("merge", "select", "vote", "reduce", "forward", "none")


@given(st.lists(JSON, max_size=4), st.text(max_size=60), st.sampled_from(COMBINE))
def test_any_results_make_an_answer(values: list[object], goal: str, combine: Combine) -> None:
    given_ = tuple(Given(f"t{n}", goal, "w", value) for n, value in enumerate(values, 1))
    subject = Answering(goal, given_, (), combine)
    assert answer(subject) == answer(subject)
    assert answer(subject).strip()
