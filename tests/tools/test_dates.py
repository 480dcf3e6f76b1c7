"""Days: the given clock's today, and the calendar's arithmetic."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.errors import Invalid
from chargehand.models.artifacts import Figure
from chargehand.tools.built_in import BUILT_IN, add_days, built_in, date_info, dates, days_between
from chargehand.tools.tool import Tool, ToolFailed

NOON = datetime(2026, 5, 17, 23, 30, tzinfo=UTC).timestamp()


def named(name: str, zone: timezone = UTC) -> Tool:
    return next(tool for tool in dates(lambda: NOON, zone) if tool.name == name)


async def call(tool: Tool, **arguments: object) -> Any:
    return msgspec.to_builtins(await tool.call(json.dumps(arguments), "k"))


async def test_today_is_what_the_clock_says_where_it_is_asked() -> None:
    assert await call(named("today")) == {
        "date": "2026-05-17",
        "weekday": "Sunday",
        "quarter": "2026-Q2",
        "week": "2026-W20",
        "month_ends": "2026-05-31",
    }
    assert (await call(named("today", timezone(timedelta(hours=2)))))["date"] == "2026-05-18"


async def test_the_other_tools_compute_with_days() -> None:
    assert await call(named("days_between"), start="2026-02-28", end="2026-03-01") == {
        "kind": "figure",
        "value": "1",
        "expression": "2026-02-28 to 2026-03-01",
        "unit": "day",
    }
    assert (await call(named("add_days"), day="2024-02-28", days=2))["date"] == "2024-03-01"
    assert (await call(named("date_info"), day="2025-12-29"))["week"] == "2026-W01"


@pytest.mark.parametrize("day", ["", "17.05.2026", "2026-02-30", "tomorrow", "2026-5-1", "9" * 50])
def test_what_is_no_day_is_said(day: str) -> None:
    with pytest.raises(ToolFailed, match="write it as YYYY-MM-DD"):
        date_info(day)


def test_the_ends_of_the_calendar_are_no_trap() -> None:
    assert date_info("9999-12-31").month_ends == "9999-12-31"
    with pytest.raises(ToolFailed, match="outside the years"):
        add_days("9999-12-31", 1)


@given(st.dates(date(1900, 1, 1), date(2200, 1, 1)), st.integers(-10_000, 10_000))
def test_adding_and_counting_days_are_each_others_inverse(day: date, days: int) -> None:
    later = add_days(day.isoformat(), days).date
    unit = "day" if abs(days) == 1 else "days"
    assert days_between(day.isoformat(), later) == Figure(str(days), f"{day.isoformat()} to {later}", unit)


@given(st.dates())
def test_the_end_of_a_month_is_in_it_and_the_next_day_is_not(day: date) -> None:
    info = date_info(day.isoformat())
    end = date.fromisoformat(info.month_ends)
    assert (end.year, end.month) == (day.year, day.month)
    assert end == date.max or (end + timedelta(days=1)).day == 1
    assert info.weekday == f"{day:%A}"


async def test_the_toolbox_knows_its_tools_by_name() -> None:
    names = {name: [tool.name for tool in built_in(name, lambda: NOON)] for name in BUILT_IN}
    assert names == {
        "ask_person": ["ask_person"],
        "calculator": ["calculate"],
        "chart": ["draw_chart"],
        "dates": ["today", "date_info", "days_between", "add_days"],
        "sandbox": ["run_python"],
    }
    with pytest.raises(Invalid, match="did you mean 'calculator'"):
        built_in("calculater", lambda: NOON)
    with pytest.raises(Invalid, match="there are ask_person, calculator, chart, dates"):
        built_in("xyz", lambda: NOON)
