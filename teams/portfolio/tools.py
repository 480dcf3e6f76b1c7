"""Works out allocations, trades and risk from the bundled holdings, targets and prices. It places no trades."""

import csv
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from pathlib import Path
from statistics import stdev
from typing import Annotated, Literal

from chargehand.models.exhibits import Table
from chargehand.tools.tool import ToolFailed

HERE = Path(__file__).parent
SMALLEST_TRADE = 500
Client = Annotated[Literal["Harrow", "Lindqvist", "Okafor"], "Whose portfolio"]
Fund = Literal[
    "Aldermere World Equity",
    "Brackwater Small Companies",
    "Corran Government Bonds",
    "Dunmore Corporate Bonds",
    "Eskdale Property",
    "Fintry Gold",
]


def allocation(client: Client) -> Table:
    """The allocation of a client's portfolio: value and weight of each asset class, its target, the drift from it."""
    values, day = _values(client)
    total = sum(values.values())
    rows: list[tuple[object, ...]] = []
    for asset_class, target, band in _targets(client):
        value = values.get(asset_class, Decimal(0))
        weight = _round(100 * value / total, "0.1")
        drift = weight - target
        rows.append(
            (asset_class, float(_round(value)), float(weight), float(target), float(drift), _state(drift, band))
        )
    columns = ("asset class", "value in EUR", "weight in percent", "target in percent", "drift in points", "band")
    return Table(columns, tuple(rows), f"data/holdings.csv at prices of {day}")


def rebalancing_trades(client: Client) -> Table:
    """The trades that rebalance a client's portfolio: what to sell and buy in each asset class that has drifted."""
    values, day = _values(client)
    total = sum(values.values())
    rows: list[tuple[object, ...]] = []
    for asset_class, target, band in _targets(client):
        value = values.get(asset_class, Decimal(0))
        drift = 100 * value / total - target
        amount = _round(total * target / 100 - value)
        if abs(amount) >= SMALLEST_TRADE:
            why = "outside its band" if abs(drift) > band else "makes up for the others"
            rows.append((asset_class, "buy" if amount > 0 else "sell", float(abs(amount)), why))
    rows.sort(key=lambda row: row[1] == "buy")
    return Table(("asset class", "trade", "amount in EUR", "why"), tuple(rows), f"data/targets.csv at prices of {day}")


def fund_risk(fund: Fund) -> Table:
    """What a fund gained in twelve months, its risk: how much it swung (volatility), its deepest fall (drawdown)."""
    prices = [Decimal(row["price"]) for row in _rows("prices/prices.csv") if row["fund"] == fund]
    if len(prices) < 3:
        raise ToolFailed(f"there are only {len(prices)} prices of {fund}; at least 3 are needed")
    changes = [float(after / before - 1) for before, after in pairwise(prices)]
    highest, fall = prices[0], Decimal(0)
    for price in prices:
        highest = max(highest, price)
        fall = min(fall, price / highest - 1)
    gain = _round(100 * (prices[-1] / prices[0] - 1), "0.1")
    swing = _round(Decimal(100 * stdev(changes) * 12**0.5), "0.1")
    columns = ("fund", "gain in percent", "volatility in percent", "deepest fall in percent")
    return Table(columns, ((fund, float(gain), float(swing), float(_round(-100 * fall, "0.1"))),), "prices/prices.csv")


def _values(client: str) -> tuple[dict[str, Decimal], str]:
    """What a client's units are worth by asset class, and the day of the prices."""
    prices: dict[str, Decimal] = {}
    day = ""
    for row in _rows("prices/prices.csv"):
        day = max(day, row["day"])
        prices[row["fund"]] = Decimal(row["price"])
    classes = {row["fund"]: row["asset_class"] for row in _rows("prices/funds.csv")}
    values: dict[str, Decimal] = {}
    for row in _rows("data/holdings.csv"):
        if row["client"] == client:
            asset_class = classes[row["fund"]]
            values[asset_class] = values.get(asset_class, Decimal(0)) + Decimal(row["units"]) * prices[row["fund"]]
    return values, day


def _targets(client: str) -> Iterator[tuple[str, Decimal, Decimal]]:
    for row in _rows("data/targets.csv"):
        if row["client"] == client:
            yield row["asset_class"], Decimal(row["target_percent"]), Decimal(row["band_points"])


def _state(drift: Decimal, band: Decimal) -> str:
    if abs(drift) <= band:
        return f"within {band}"
    return f"outside {band}"


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _round(number: Decimal, to: str = "0.01") -> Decimal:
    return number.quantize(Decimal(to), ROUND_HALF_UP)
