"""What the tests of the demo model ask: the bundled teams, their data, and runs that leave nothing behind."""

import csv
from functools import cache
from pathlib import Path

from chargehand.agents.result import Result
from chargehand.config.load import load_team
from chargehand.team import Team

ROOT = Path(__file__).parents[3]
TEMPLATES = ROOT / "src" / "chargehand" / "config" / "templates"
TEAMS = ROOT / "teams"
SHOP = TEMPLATES / "shop"


def folder_of(team: str) -> Path:
    return TEMPLATES / team if (TEMPLATES / team).is_dir() else TEAMS / team


@cache
def team_of(team: str) -> Team:
    return load_team(folder_of(team), model="demo")


@cache
def ask(team: str, request: str) -> Result:
    """A run in this process."""
    return team_of(team).run_sync(request)


@cache
def rows(team: str, path: str) -> list[dict[str, str]]:
    with (folder_of(team) / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def shop_orders(start: str = "", country: str = "", category: str = "") -> list[dict[str, str]]:
    """Orders of the shop with their product, country and revenue; `start` is how their day begins."""
    products = {row["product_id"]: row for row in rows("shop", "data/products.csv")}
    countries = {row["country"]: row for row in rows("shop", "data/countries.csv")}
    joined: list[dict[str, str]] = []
    for order in rows("shop", "data/orders.csv"):
        product = products[order["product_id"]]
        place = countries[order["country"]]
        revenue = f"{int(order['quantity']) * float(product['price_eur']):.2f}"
        row = {**product, **order, "name": place["name"], "region": place["region"], "revenue": revenue}
        if row["day"].startswith(start) and country in ("", row["name"]) and category in ("", row["category"]):
            joined.append(row)
    return joined


def total(held: list[dict[str, str]], column: str = "revenue") -> float:
    return round(sum(float(row[column]) for row in held), 2)
