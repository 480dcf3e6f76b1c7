"""One task for one worker, from its first call to its last word, with real tools."""

import csv
import json
import time
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given as property_of
from hypothesis import settings
from hypothesis import strategies as st
from msgspec import Raw

import chargehand.config as config
from chargehand.models.exhibits import Figure, Passages, Table
from chargehand.models.messages import Message, ToolCall, ToolSpec
from chargehand.models.offline.work import work
from chargehand.models.subject import WorkerCard, Working
from chargehand.terms.failure import Gap
from chargehand.terms.plan import TaskId
from chargehand.tools.calculator import calculator
from chargehand.tools.chart import chart
from chargehand.tools.documents import documents
from chargehand.tools.sql import sql
from chargehand.tools.tool import Tool, ToolFailed, tool
from tests.models.offline.working import Worked, do, given, product, table

SHOP = Path(config.__file__).parent / "templates" / "shop"
RATES = {"2026-05-28": "1.15", "2026-05-29": "1.25"}


@tool
def exchange_rate(currency: Literal["USD", "GBP"], day: date) -> Figure:
    """The exchange rate of the euro on a day."""
    if day.isoformat() not in RATES:
        raise ToolFailed(f"no rate for {day}; nearest earlier day with a rate: 2026-05-29")
    return Figure(RATES[day.isoformat()], label=f"{currency} per EUR on {day}")


@cache
def sales() -> Tool:
    return sql(SHOP / "data", name="sales")


@cache
def papers() -> Tool:
    return documents(SHOP / "docs", name="papers")


MAY = table(("country", "revenue_eur"), ("Netherlands", 3935.3), ("Italy", 3767), ("Ireland", 153.8))


def test_a_question_goes_to_the_database_and_comes_back_in_words() -> None:
    done = do("How many orders did we have in May 2026? Return the figures as a small table.", [sales(), calculator()])
    with (SHOP / "data" / "orders.csv").open(encoding="utf-8") as file:
        expected = sum(row["day"].startswith("2026-05") for row in csv.DictReader(file))
    assert done.names == ["sales"]
    assert done.text == f"Orders in May 2026: {expected}."


def test_a_change_is_computed_by_the_calculator_after_the_query() -> None:
    done = do("How did revenue change from Q1 2025 to Q1 2026?", [sales(), calculator()])
    assert done.names == ["sales", "calculate", "calculate"]
    rows, difference, change = done.results
    assert isinstance(rows, Table)
    assert isinstance(difference, Figure)
    assert isinstance(change, Figure)
    before, after = (Decimal(str(row[1])) for row in rows.rows)
    assert Decimal(difference.value) == after - before
    assert f"{round((after - before) / before * 100, 1)} percent" in done.text


def test_a_rate_is_looked_up_and_then_used() -> None:
    done = do("Convert the total to US dollars at the rate of 29 May 2026.", [exchange_rate, calculator()], [MAY])
    assert done.names == ["exchange_rate", "calculate"]
    assert done.arguments() == {"currency": "USD", "day": "2026-05-29"}
    assert done.arguments(1) == {"expression": "round((3935.3 + 3767 + 153.8) * 1.25, 2)"}
    assert "9,820.13 USD" in done.text
    assert "1.25" in done.text


def test_an_error_that_offers_another_day_is_not_followed_but_told() -> None:
    done = do("Convert the total to US dollars at the rate of 30 May 2026.", [exchange_rate, calculator()], [MAY])
    assert done.names == ["exchange_rate"]
    assert "no rate for 2026-05-30; nearest earlier day with a rate: 2026-05-29" in done.gave_up


def test_what_the_supervisor_decided_is_done_and_said() -> None:
    better = (
        "Convert the total to US dollars at the rate of 2026-05-29. "
        "The day 2026-05-29 is the nearest there is to 2026-05-30: say so."
    )
    done = do(better, [exchange_rate, calculator()], [MAY])
    assert "9,820.13 USD" in done.text
    assert done.text.endswith("The day 2026-05-29 is the nearest there is to 2026-05-30.")


def test_a_table_becomes_a_chart() -> None:
    done = do("Draw a chart of the revenue per country (the result of t1).", [chart()], [MAY])
    assert done.arguments()["labels"] == ["Netherlands", "Italy", "Ireland"]
    assert "Revenue per country" in done.text


def test_without_a_table_there_is_no_chart() -> None:
    gap = Gap(TaskId("t1"), "failed", "logic", "the database was away")
    done = do("Draw a chart of the revenue per country (the result of t1).", [chart()], [], [gap])
    assert "draw_chart needs labels and values" in done.gave_up


def test_documents_are_searched_and_quoted_with_their_source() -> None:
    done = do("What do our incident reports say about late deliveries in May?", [papers()])
    (found,) = done.results
    assert isinstance(found, Passages)
    assert "21 parcels were late" in done.text
    assert "(incident-2026-05-carrier-strike.md#" in done.text
    assert "returns-policy" not in done.text


def test_a_search_that_finds_other_things_gives_up() -> None:
    done = do("What do the documents say about parking permits for bicycles?", [papers()])
    assert "parking" in done.gave_up


def test_a_search_that_finds_nothing_is_broadened_once() -> None:
    asked: list[str] = []

    @tool
    def search(query: str) -> Passages:
        """Search the archive."""
        asked.append(query)
        raise ToolFailed("nothing found")

    done = do("What do the archives say about the harbour festival of 1987?", [search])
    assert len(asked) == 2
    assert len(asked[1]) < len(asked[0])
    assert "nothing found" in done.gave_up


def test_what_no_table_says_is_given_up_with_what_there_is() -> None:
    done = do("How many visitors did our website have in May 2026?", [sales(), calculator()])
    assert done.names == []
    assert "orders(" in done.gave_up


def test_a_guess_that_matches_nothing_is_not_an_answer() -> None:
    done = do("How many umbrellas did we sell in 2026?", [sales()])
    assert "umbrella" in done.gave_up


def test_a_missing_argument_is_named() -> None:
    done = do("Find the exchange rate", [exchange_rate])
    assert done.gave_up == "exchange_rate needs currency and day, and neither the task nor its inputs say it"


def test_several_values_are_several_calls_in_one_step() -> None:
    done = do("The exchange rates of US dollars and pounds on 29 May 2026", [exchange_rate])
    assert [done.arguments(at)["currency"] for at in (0, 1)] == ["USD", "GBP"]
    assert len({one.id for one in done.calls}) == 2


def test_without_tools_a_text_is_written_from_the_inputs() -> None:
    inputs = [product("Revenue rose by 56.3 percent."), product("The strike made 21 parcels late.")]
    done = do("Write a short memo about the spring. Use the results of t1 and t2.", [], inputs)
    assert done.text.startswith("Memo: Spring")
    assert "56.3 percent" in done.text
    assert "21 parcels" in done.text


def test_without_anything_nothing_is_made_up() -> None:
    assert "no results to write from" in do("Write a memo about the spring.").gave_up


def test_what_a_rule_demands_before_the_end_is_done() -> None:
    @tool
    def log_access(reason: str) -> str:
        """Note why records were read."""
        return f"noted: {reason}"

    subject = Working("The exchange rate of US dollars on 29 May 2026", WorkerCard("w", "works"))
    specs = (exchange_rate.spec, log_access.spec)
    called = ToolCall("c", "exchange_rate", "{}")
    messages = [
        Message("user", "x"),
        Message("assistant", calls=(called,)),
        Message("tool", '{"kind":"figure","value":"1.25"}', call="c"),
        Message("assistant", "1.25."),
        Message("user", "you cannot finish yet: log_access has not been called"),
    ]
    assert [one.name for one in work(subject, messages, specs, None).calls] == ["log_access"]
    (refused,) = work(
        subject, [*messages[:-1], Message("user", "That cannot be used: n is missing")], specs, None
    ).calls
    assert (refused.name, "n is missing" in refused.arguments) == ("give_up", True)


def test_a_tool_that_had_to_run_first_is_not_the_last() -> None:
    @tool
    def open_archive() -> str:
        """Open it."""
        return "open"

    subject = Working("The exchange rate of US dollars on 29 May 2026", WorkerCard("w", "works"))
    first = work(subject, [], (open_archive.spec,), None)
    assert first.calls[0].name == "open_archive"
    messages = [first.message(), Message("tool", '"open"', call=first.calls[0].id)]
    second = work(subject, messages, (open_archive.spec, exchange_rate.spec), None)
    assert second.calls[0].name == "exchange_rate"


SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"supplier": {"type": "string"}, "products": {"type": "integer"}},
                "required": ["supplier", "products"],
            },
        },
        "summary": {"type": "string"},
    },
    "required": ["rows", "summary"],
}


def test_a_wanted_shape_is_filled_from_what_was_found() -> None:
    done = do("number of products per supplier", [sales()], schema=SCHEMA)
    said = json.loads(done.text)
    assert {"supplier": "Sellmark", "products": 4} in said["rows"]
    assert said["summary"]


def test_a_shape_that_cannot_be_filled_is_given_up() -> None:
    wanted: dict[str, object] = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
    assert "does not say n" in do("What does the policy say about damaged items?", [papers()], schema=wanted).gave_up


def test_a_hint_after_an_envelope_and_a_cut_result_are_survived() -> None:
    spec = ToolSpec(
        "lookup",
        "Look up orders.",
        Raw(b'{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}'),
    )
    subject = Working("Look up the orders", WorkerCard("w", "works"))
    cut = '{"kind":"table","columns":["name","orders"],"rows":[["Ann",3],["Bo",4],["Ca'
    text = f'<data a1 from "tool lookup">\n{cut}\n</data a1>\nYou asked this before.'
    call = ToolCall("c", "lookup", '{"query":"orders"}')
    messages = [Message("user", "x"), Message("assistant", calls=(call,)), Message("tool", text, call="c")]
    assert "Ann 3, Bo 4" in work(subject, messages, (spec,), None).text


KNOWN = """revenue per country top 3 most how many orders ' % chart average between and share of price Germany not 2026
; t1 May_2026 1_May_2026"""


def words() -> st.SearchStrategy[str]:
    known = [word.replace("_", " ") for word in KNOWN.split()]
    return st.lists(st.one_of(st.sampled_from(known), st.text(max_size=8)), max_size=12).map(" ".join)


@settings(max_examples=60, deadline=None)
@property_of(words())
def test_no_words_make_it_raise_or_loop(text: str) -> None:
    done: Worked = do(text, [sales(), papers(), exchange_rate, calculator(), chart()], [MAY, given([1, {"a": None}])])
    assert done.text or done.gave_up


KEYS = st.sampled_from(["kind", "text", "exhibits", "rows", "columns", "value", "error", "found"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@settings(max_examples=100, deadline=None)
@property_of(ANYTHING)
def test_no_input_makes_it_raise(value: object) -> None:
    task = "Convert the total to US dollars at the rate of 29 May 2026 and draw a chart"
    done = do(task, [exchange_rate, calculator(), chart()], [given(value)])
    assert done.text or done.gave_up


@pytest.mark.parametrize(
    "schema", [b"[]", b'"x"', b'{"properties": 3}', b'{"properties":{"a":{"$ref":"#/$defs/b"}},"required":["a"]}']
)
def test_odd_schemas_are_survived(schema: bytes) -> None:
    spec = ToolSpec("odd", "Does something.", Raw(schema))
    reply = work(Working("Do something odd", WorkerCard("w", "works")), [], (spec,), Raw(msgspec.json.encode({})))
    assert reply.calls or reply.text


@pytest.mark.parametrize(
    "text",
    ["revenue per country " * 50_000, "a" * 1_000_000, "1 " * 500_000, "'" * 300_000, "(the result of t1 " * 50_000],
)
def test_a_task_of_a_megabyte_is_done_with_soon(text: str) -> None:
    began = time.thread_time()
    assert do(text, [sales(), papers(), calculator(), chart()], [product(text)])
    assert time.thread_time() - began < 10
