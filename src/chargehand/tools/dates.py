"""Tools about days: which one it is, how many lie between two, what lies some days away. The clock is passed in."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from chargehand.engine.policy import Instant
from chargehand.models.artifacts import Figure
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

    def made(function: Callable[..., object], summary: str, *, stable: bool = True) -> Tool:
        return tool(quick=True, trusted=True, stable=stable, summary=summary)(function)

    return (
        made(today, "which day it is", stable=False),
        made(date_info, "weekday, quarter and week of a day"),
        made(days_between, "days between two days"),
        made(add_days, "the day some days later or earlier"),
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
