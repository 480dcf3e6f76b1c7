"""What experts can work out: the end of a lease, a body mass index, a transfer, an instalment. It gives no advice."""

import calendar
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

from chargehand.models.artifacts import Figure, Table
from chargehand.tools.tool import ToolFailed

MEGABITS = {"megabytes": 8, "gigabytes": 8_000, "terabytes": 8_000_000}


def lease_end(notice: date, months: int) -> Figure:
    """The day on which a lease ends: the last day of the month, so many months after the notice was given.

    Args:
        notice: the day on which notice was given
        months: how many months the notice runs

    """
    if not 0 < months <= 120:
        raise ToolFailed("a notice runs for 1 to 120 months")
    year, month = divmod(notice.year * 12 + notice.month - 1 + months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return Figure(date(year, month + 1, last).isoformat(), label=f"end of the lease after {months} months of notice")


def body_mass_index(weight: float, height: float) -> Figure:
    """The body mass index (BMI) of an adult from weight and height, and whether that is overweight.

    Args:
        weight: what somebody weighs, in kilograms (kg)
        height: how tall they are, in centimetres (cm); what is below 3 is read as metres

    """
    height = height * 100 if height < 3 else height
    if not (20 <= weight <= 400 and 80 <= height <= 260):
        raise ToolFailed("the weight is given in kilograms (20 to 400), the height in centimetres (80 to 260)")
    metres = Decimal(str(height)) / 100
    index = (Decimal(str(weight)) / (metres * metres)).quantize(Decimal("0.1"), ROUND_HALF_UP)
    kind = (
        "underweight"
        if index < Decimal("18.5")
        else "normal"
        if index < 25
        else "overweight"
        if index < 30
        else "obese"
    )
    return Figure(str(index), label=f"body mass index ({kind})")


def transfer_time(size: float, unit: Literal["megabytes", "gigabytes", "terabytes"], megabits: float) -> Figure:
    """How long it takes to transfer or copy files of some size over a line of so many megabits per second, in minutes.

    Args:
        size: how much is copied
        unit: what the size is counted in
        megabits: how fast the line is

    """
    if size <= 0 or megabits <= 0:
        raise ToolFailed("both the size and the speed must be above 0")
    minutes = Decimal(str(size)) * MEGABITS[unit] / Decimal(str(megabits)) / 60
    return Figure(str(minutes.quantize(Decimal("0.1"), ROUND_HALF_UP)), unit="minutes", label="transfer time")


def loan_payment(amount: float, rate: float, years: int) -> Table:
    """The monthly instalment of a loan: what to pay each month, what is paid in all, and how much of it is interest.

    Args:
        amount: what is borrowed
        rate: the interest in percent a year
        years: how many years it runs

    """
    if amount <= 0 or not 0 <= rate <= 100 or not 0 < years <= 60:
        raise ToolFailed("a loan has an amount above 0, a rate of 0 to 100 percent and 1 to 60 years")
    months = years * 12
    monthly = Decimal(str(rate)) / 1200
    borrowed = Decimal(str(amount))
    instalment = borrowed * monthly / (1 - (1 + monthly) ** -months) if monthly else borrowed / months
    instalment = instalment.quantize(Decimal("0.01"), ROUND_HALF_UP)
    total = instalment * months
    columns = ("monthly instalment", "instalments", "paid in all", "interest in all")
    return Table(columns, ((float(instalment), months, float(total), float(total - borrowed)),), "worked out")
