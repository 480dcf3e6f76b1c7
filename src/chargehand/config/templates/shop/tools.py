"""The shop's own tool: what one euro was worth on a day. Rates exist for working days only."""

import csv
from datetime import date
from pathlib import Path
from typing import Literal

from chargehand.models.artifacts import Figure
from chargehand.tools.tool import ToolFailed

RATES = Path(__file__).parent / "rates" / "euro.csv"


def exchange_rate(currency: Literal["USD", "GBP", "CHF", "SEK"], day: date) -> Figure:
    """The exchange rate of the euro on a day: how many units of a foreign currency one euro is worth.

    Args:
        currency: the code of the foreign currency
        day: the day of the rate, for example 2026-03-31

    """
    with RATES.open(encoding="utf-8", newline="") as file:
        rates = {row["day"]: row[currency] for row in csv.DictReader(file)}
    rate = rates.get(day.isoformat())
    if rate is None:
        earlier = max((earlier_day for earlier_day in rates if earlier_day < day.isoformat()), default="")
        nearest = f"nearest earlier day with a rate: {earlier}" if earlier else f"the first one is {min(rates)}"
        raise ToolFailed(f"no rate for {day.isoformat()} (a {day:%A}); {nearest}")
    return Figure(rate, label=f"{currency} per EUR on {day.isoformat()}", source="rates/euro.csv")
