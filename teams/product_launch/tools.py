"""What a launch needs worked out: the market, which price earns most, what is due when, copy that fits its channel.

Everything comes from the files beside it. Who would pay what was made up for this team.
"""

import csv
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from chargehand.models.artifacts import Table
from chargehand.tools.tool import ToolFailed

HERE = Path(__file__).parent
PRICES = range(16, 41, 4)  # the price points of the house, in euros; a cent is taken off each
_PRICED = "data/people.csv, data/costs.csv; before the 40 percent that shops keep (market/channels.md)"
LIMITS = {"newsletter": 50, "search ad": 30, "shop shelf": 60}  # characters of a headline


def market_overview() -> Table:
    """Research and analyse the market: an overview of all competitors."""
    rows = [
        (
            f"{one['competitor']}, {one['product']}",
            float(one["price_eur"]),
            float((Decimal(one["price_eur"]) * 100 / Decimal(one["capacity_ml"])).quantize(Decimal("0.01"))),
            float(one["rating"]),
            int(one["market_share_percent"]),
        )
        for one in _rows("data/competitors.csv")
    ]
    columns = ("competitor", "price_eur", "eur_per_100_ml", "rating", "market_share_percent")
    return Table(columns, tuple(rows), source="data/competitors.csv")


def unit_cost() -> Table:
    """What it costs us to make one flask: the cost of each item, and in all."""
    rows = [(one["item"], float(one["cost_eur"])) for one in _rows("data/costs.csv")]
    return Table(("item", "cost_eur"), (*rows, ("in all", float(_cost()))), source="data/costs.csv")


def _cost() -> Decimal:
    return sum((Decimal(one["cost_eur"]) for one in _rows("data/costs.csv")), Decimal(0))


def price_points(price: Annotated[float, Meta(ge=0, le=1000)] = 0) -> Table:
    """Compare price points to find the price to ask: the profit each brings, and how many of 100 people would buy.

    The best comes first. Buyers and profit come from the survey and from what the product costs to make.

    Args:
        price: the only price to look at, in euros; left out, all those of the house

    """
    answers = [Decimal(one["budget_eur"]) for one in _rows("data/people.csv")]
    prices = [Decimal(str(price))] if price else [Decimal(whole) - Decimal("0.01") for whole in PRICES]
    rows = [_point(one, answers, _cost()) for one in prices]
    rows.sort(key=lambda row: -row[2])
    shown = tuple((f"{price:.2f} EUR", float(profit), int(share)) for price, share, profit in rows)
    return Table(("price", "profit_eur", "buyers_of_100"), shown, source=_PRICED)


def _point(price: Decimal, answers: list[Decimal], cost: Decimal) -> tuple[Decimal, Decimal, Decimal]:
    buyers = Decimal(100 * sum(one >= price for one in answers)) / len(answers)
    share = buyers.quantize(Decimal(1))
    return price, share, (share * (price - cost)).quantize(Decimal("0.01"))


def launch_schedule(launch_day: date) -> Table:
    """Plan the launch schedule: every milestone and the day it is due, counted back from the launch day.

    Milestones are when the test report is signed, samples go to shops and reviewers, copy is approved, stock has to be
    in the warehouse and the newsletter is sent.

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
    rows = tuple((one, f"{len(one)} of {most} characters") for one in drafts if len(one) <= most)
    if not rows:
        raise ToolFailed(f"no headline fits {most} characters; shorten the facts in facts.csv")
    return Table(("headline", "length"), rows, source=f"facts.csv, tested in {facts['report']}")


def _rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
