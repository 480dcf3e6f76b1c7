"""What a launch needs worked out: which price earns most, which day is due when, and copy that fits its channel.

Everything comes from the files beside it. Who would pay what was made up for this team.
"""

import csv
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from chargehand.models.exhibits import Table
from chargehand.tools.tool import ToolFailed

HERE = Path(__file__).parent
PRICES = range(16, 41, 4)  # the price points of the house, in euros; a cent is taken off each
LIMITS = {"newsletter": 50, "search ad": 30, "shop shelf": 60}  # characters of a headline


def price_points() -> Table:
    """Compare price points: the profit each price brings with 100 people, and how many of them would buy, best first.

    Prices, buyers and profit come from the survey and from what the product costs to make.
    """
    answers = [Decimal(one["budget_eur"]) for one in _rows("data/people.csv")]
    cost = sum(Decimal(one["cost_eur"]) for one in _rows("data/costs.csv"))
    rows = [_point(Decimal(whole) - Decimal("0.01"), answers, cost) for whole in PRICES]
    rows.sort(key=lambda row: -row[2])
    shown = tuple((f"{price:.2f} EUR", float(profit), int(share)) for price, share, profit in rows)
    return Table(("price", "profit_eur", "buyers_of_100"), shown, source="data/people.csv, data/costs.csv")


def _point(price: Decimal, answers: list[Decimal], cost: Decimal) -> tuple[Decimal, Decimal, Decimal]:
    buyers = Decimal(100 * sum(one >= price for one in answers)) / len(answers)
    share = buyers.quantize(Decimal(1))
    return price, share, (share * (price - cost)).quantize(Decimal("0.01"))


def launch_schedule(launch_day: date) -> Table:
    """Plan the launch schedule: every milestone and the day it is due, counted back from the launch day.

    Args:
        launch_day: the day of the launch, for example 2027-03-15

    """
    rows: list[tuple[str, str, str]] = []
    for one in _rows("milestones.csv"):
        due = launch_day - timedelta(days=int(one["days_before"]))
        while due.weekday() > 4 and due != launch_day:  # nobody works on Saturday and Sunday
            due -= timedelta(days=1)
        rows.append((one["milestone"], due.isoformat(), f"{due:%A}"))
    return Table(("milestone", "due", "weekday"), tuple(rows), source="milestones.csv")


def headlines(
    channel: Literal["newsletter", "search ad", "shop shelf"],
    price: Annotated[float, Meta(ge=0)] = 0,
) -> Table:
    """Make headlines for a channel of the launch, of tested facts alone, each within the channel's length.

    Args:
        channel: where the copy will stand
        price: the price to name in it, in euros; left out, none

    """
    facts = {one["name"]: one["value"] for one in _rows("facts.csv")}
    drafts = [
        f"{facts['product']}: {facts['hot']}",
        f"{facts['product']}: {facts['cold']}",
        f"{facts['product']}, {facts['capacity']}, in {facts['colours']}",
        f"Meet the {facts['product']}: {facts['hot']}, {facts['cold']}",
    ]
    if price:
        drafts.append(f"{facts['product']} for {price:.2f} euros")
    most = LIMITS[channel]
    rows = tuple((one, len(one)) for one in drafts if len(one) <= most)
    if not rows:
        raise ToolFailed(f"no headline fits {most} characters; shorten the facts in facts.csv")
    return Table(("headline", "characters"), rows, source=f"facts.csv, tested in {facts['report']}")


def _rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
