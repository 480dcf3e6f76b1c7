"""Works out allocations, trades and risk from the bundled holdings, targets and prices. It places no trades."""

import csv
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from pathlib import Path
from statistics import stdev
from typing import Annotated, Literal

from chargehand.models.artifacts import Table
from chargehand.tools.tool import ToolFailed

HERE = Path(__file__).parent
SMALLEST_TRADE = 500
# policy/risk.md: the limit does not hold for portfolios of two funds
LARGEST_SHARE = 45
FEW_FUNDS = 2
RISK = ("fund", "gain in percent", "volatility in percent", "deepest fall in percent")
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
        lacks = _round(total * target / 100 - value)
        figures = (float(_round(value)), float(weight), float(target), float(drift))
        rows.append((asset_class, *figures, _state(drift, band), float(lacks)))
    columns = (
        "asset class",
        "value in EUR",
        "weight in percent",
        "target in percent",
        "drift in points",
        "band",
        "to its target in EUR",
    )
    return Table(columns, tuple(rows), f"data/holdings.csv at prices of {day}")


def holdings(client: Client) -> Table:
    """The holdings of a client and what they are worth on the market: value and share of each fund, and the total.

    Also whether a single fund breaks the limit of 45 percent of a portfolio.
    """
    prices, day = _prices()
    held = [(row["fund"], Decimal(row["units"])) for row in _rows("data/holdings.csv") if row["client"] == client]
    total = sum((units * prices[fund] for fund, units in held), Decimal(0))
    rows: list[tuple[object, ...]] = []
    for fund, units in held:
        share = _round(100 * units * prices[fund] / total, "0.1")
        over = "above the limit" if share > LARGEST_SHARE and len(held) > FEW_FUNDS else "within the limit"
        rows.append((fund, float(_round(units * prices[fund])), float(share), over, float(units), float(prices[fund])))
    worth = f"value in EUR, {_round(total):,} in all"
    columns = ("fund", worth, "share in percent", f"limit of {LARGEST_SHARE} percent", "units", "price in EUR")
    return Table(columns, tuple(rows), f"data/holdings.csv at prices of {day}")


def all_clients() -> Table:
    """All clients side by side: which client is furthest from its targets, and who has to be rebalanced."""
    rows: list[tuple[object, ...]] = []
    for client in ("Harrow", "Lindqvist", "Okafor"):
        drifts = [(asset_class, drift, band) for asset_class, drift, band in _drifts(client)]
        asset_class, drift, _ = max(drifts, key=lambda one: abs(one[1]))
        outside = [name for name, far, band in drifts if abs(far) > band]
        rows.append((client, float(drift), asset_class, ", ".join(outside) or "none"))
    rows.sort(key=lambda row: -abs(float(str(row[1]))))
    columns = ("client", "largest drift in points", "in", "outside their bands")
    return Table(columns, tuple(rows), f"data/holdings.csv, data/targets.csv at prices of {_prices()[1]}")


def rebalancing_trades(client: Client) -> Table:
    """The trades that rebalance a portfolio (bring its allocation back to its targets): what to sell and buy, why.

    Trades of less than 500 euros are left out. The largest trade makes up for them, so that sales pay for purchases.
    """
    values, day = _values(client)
    total = sum(values.values())
    wanted = {name: _round(total * target / 100 - values.get(name, 0)) for name, target, _ in _targets(client)}
    trades = {name: amount for name, amount in wanted.items() if abs(amount) >= SMALLEST_TRADE}
    left = sum(trades.values())
    if abs(left) >= 1:  # less is rounding
        largest = max(trades, key=lambda name: trades[name] * (1 if left > 0 else -1))
        trades[largest] -= left
    rows = [
        (name, "buy" if trades[name] > 0 else "sell", float(abs(trades[name])), float(drift), _reason(drift, band))
        for name, drift, band in _drifts(client)
        if name in trades
    ]
    rows.sort(key=lambda row: row[1] == "buy")
    columns = ("asset class", "trade", "amount in EUR", "drift in points", "why")
    return Table(columns, tuple(rows), f"data/targets.csv at prices of {day}")


def fund_risk(fund: Fund) -> Table:
    """What a fund gained over the last twelve months, its risk: how much it swung (volatility), its drawdown."""
    return Table(RISK, (_risk(fund),), "prices/prices.csv")


def funds_by_risk() -> Table:
    """All funds ranked by risk: which fund is the most volatile (swung most), which the calmest or safest."""
    rows = sorted((_risk(row["fund"]) for row in _rows("prices/funds.csv")), key=lambda row: -float(str(row[2])))
    return Table(RISK, tuple(rows), "prices/prices.csv")


def _risk(fund: str) -> tuple[object, ...]:
    prices = [Decimal(row["price"]) for row in _rows("prices/prices.csv") if row["fund"] == fund]
    if len(prices) < 3:
        raise ToolFailed(f"there are only {len(prices)} prices of {fund}; at least 3 are needed")
    changes = [float(after / before - 1) for before, after in pairwise(prices)]
    highest = prices[0]
    fall = Decimal(0)
    for price in prices:
        highest = max(highest, price)
        fall = min(fall, price / highest - 1)
    gain = _round(100 * (prices[-1] / prices[0] - 1), "0.1")
    swing = _round(Decimal(100 * stdev(changes) * 12**0.5), "0.1")
    return fund, float(gain), float(swing), float(_round(-100 * fall, "0.1"))


def _values(client: str) -> tuple[dict[str, Decimal], str]:
    """What a client's units are worth by asset class, and the day of the prices."""
    prices, day = _prices()
    classes = {row["fund"]: row["asset_class"] for row in _rows("prices/funds.csv")}
    values: dict[str, Decimal] = {}
    for row in _rows("data/holdings.csv"):
        if row["client"] == client:
            asset_class = classes[row["fund"]]
            values[asset_class] = values.get(asset_class, Decimal(0)) + Decimal(row["units"]) * prices[row["fund"]]
    return values, day


def _prices() -> tuple[dict[str, Decimal], str]:
    """The last price of each fund, and its day."""
    rows = list(_rows("prices/prices.csv"))
    day = max(row["day"] for row in rows)
    return {row["fund"]: Decimal(row["price"]) for row in rows if row["day"] == day}, day


def _drifts(client: str) -> Iterator[tuple[str, Decimal, Decimal]]:
    """By asset class: how many points it is away from its target, and its band."""
    values, _ = _values(client)
    total = sum(values.values())
    for asset_class, target, band in _targets(client):
        yield asset_class, _round(100 * values.get(asset_class, Decimal(0)) / total, "0.1") - target, band


def _reason(drift: Decimal, band: Decimal) -> str:
    return "outside its band" if abs(drift) > band else "makes up for the others"


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
