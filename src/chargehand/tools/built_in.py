"""The tools a team may name without further settings, in Python and in a team file; those about days are here."""

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, structs

from chargehand.engine.policy import Instant
from chargehand.errors import Invalid
from chargehand.models.artifacts import Figure
from chargehand.text.words import did_you_mean
from chargehand.tools.calculator import calculator
from chargehand.tools.chart import chart
from chargehand.tools.tool import Tool, ToolFailed, tool

Clock: TypeAlias = Callable[[], Instant]
Day: TypeAlias = Annotated[str, "A day as YYYY-MM-DD"]

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class DayInfo(Struct, frozen=True):
    """A day. `quarter` is such as 2026-Q2, `week` the ISO week such as 2026-W20."""

    date: str
    weekday: str
    quarter: str
    week: str
    month_ends: str


def dates(clock: Clock, zone: tzinfo = UTC) -> tuple[Tool, ...]:
    """`today`, `date_info`, `days_between` and `add_days`."""

    def today() -> DayInfo:
        """Which day it is today, with weekday, quarter and week."""
        return _info(datetime.fromtimestamp(clock(), zone).date())

    def make(function: Callable[..., object], summary: str, *, stable: bool = True) -> Tool:
        return tool(quick=True, trusted=True, stable=stable, summary=summary)(function)

    return (
        make(today, "which day it is", stable=False),
        make(date_info, "weekday, quarter and week of a day"),
        make(days_between, "days between two days"),
        make(add_days, "the day some days later or earlier"),
    )


def date_info(day: Day) -> DayInfo:
    """Weekday, quarter, ISO week and end of the month of a day."""
    return _info(_day(day))


def days_between(start: Day, end: Day) -> Figure:
    """How many days lie between two days: 1 from one day to the next, negative when the end comes first."""
    days = (_day(end) - _day(start)).days
    return Figure(value=str(days), expression=f"{start} to {end}", unit="day" if abs(days) == 1 else "days")


def add_days(
    day: Day, days: Annotated[int, Meta(ge=-1_000_000, le=1_000_000, description="May be negative")]
) -> DayInfo:
    """The day that lies so many days after (or before) another."""
    try:
        return _info(_day(day) + timedelta(days=days))
    except OverflowError as error:
        raise ToolFailed(f"{days} days from {day} is outside the years 1 to 9999") from error


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError as error:
        raise ToolFailed(f"{text[:40]!r} is no day; write it as YYYY-MM-DD, for example 2026-05-17") from error


def _info(day: date) -> DayInfo:
    iso = day.isocalendar()
    following = date(day.year + day.month // 12, day.month % 12 + 1, 1) if day.year < 9999 or day.month < 12 else None
    ends = following - timedelta(days=1) if following else date.max
    return DayInfo(
        date=day.isoformat(),
        weekday=_WEEKDAYS[day.weekday()],
        quarter=f"{day.year:04d}-Q{(day.month + 2) // 3}",
        week=f"{iso.year:04d}-W{iso.week:02d}",
        month_ends=ends.isoformat(),
    )


# --- a person


def ask_person(
    question: Annotated[str, Meta(min_length=1, description="One question, with all that is needed to answer it")],
    options: Annotated[tuple[str, ...], Meta(max_length=20, description="The answers to choose from")] = (),
    schema: Annotated[dict[str, Any], Meta(description="The JSON Schema of the answer")] | None = None,
    *,
    free_text: Annotated[
        bool, Meta(description="Whether an answer that is none of the options is of use, too")
    ] = False,
) -> object:
    """Ask the person you work for what only they can know or decide. The work waits until they answer."""
    del question, options, schema, free_text
    raise ToolFailed("no person can be asked here; go on without, and say what you took for granted")


def _ask_person(_clock: Clock) -> tuple[Tool, ...]:
    asking = tool(quick=True, trusted=True, summary="asks the person who made the request")(ask_person)
    return (structs.replace(asking, asks=True),)


# --- all of them


Factory: TypeAlias = Callable[[Clock], tuple[Tool, ...]]


def _sandbox(_clock: Clock) -> tuple[Tool, ...]:
    from chargehand.tools.sandbox import python_sandbox  # noqa: PLC0415 - a team pays only for the tools it names

    return (python_sandbox(),)


BUILT_IN: dict[str, Factory] = {
    "ask_person": _ask_person,
    "calculator": lambda _: (calculator(),),
    "chart": lambda _: (chart(),),
    "dates": dates,
    "sandbox": _sandbox,
}
WITH_SETTINGS = {
    "sql": 'from chargehand.tools.sql import sql, and write tools=[sql("shop.db")]',
    "documents": 'from chargehand.tools.documents import documents, and write tools=[documents("notes/")]',
    "skills": 'from chargehand.tools.skills import skills, and write tools=[skills("skills/")]',
    "files": 'from chargehand.tools.files import files, and write tools=[*files("out/")]',
    "fetch": 'from chargehand.tools.fetch import fetch, and write tools=[fetch(["example.com"])]',
}
"""The other built-in tools: what these work on has to be said. Each with what to write in Python."""


def built_in(name: str, clock: Clock) -> tuple[Tool, ...]:
    """The tools of this name; Invalid with the nearest one when there is none."""
    if name in BUILT_IN:
        return BUILT_IN[name](clock)
    raise Invalid(f"there is no built-in tool {name!r}; {did_you_mean(name, BUILT_IN)}")


def tools_named(source: str, name: str = "") -> tuple[Tool, ...]:
    """The tools of a source as a team has them: one that is alone is called `name`, or like its source."""
    tools = built_in(source, time.time)
    return (renamed(tools[0], name or source),) if len(tools) == 1 else tools


def renamed(tool: Tool, name: str) -> Tool:
    return tool if tool.name == name else structs.replace(tool, spec=structs.replace(tool.spec, name=name))
