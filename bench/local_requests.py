"""Thirty requests on four bundled teams. What a right answer holds is worked out here from the teams' own files."""

import csv
import re
import sqlite3
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from statistics import mean

from msgspec import Struct

ROOT = Path(__file__).parent.parent
TEMPLATES = ROOT / "src" / "chargehand" / "config" / "templates"
FOLDERS = {
    "shop": TEMPLATES / "shop",
    "support": TEMPLATES / "support",
    "portfolio": ROOT / "teams" / "portfolio",
    "contract_review": ROOT / "teams" / "contract_review",
}
_FACTS = Callable[[], list[str]]


class Asked(Struct, frozen=True):
    """`needed`: who has to do a part, and words of which that task names one. `facts` works out what must be said."""

    team: str
    text: str
    needed: Mapping[str, tuple[str, ...]]
    facts: _FACTS
    also: tuple[str, ...] = ()
    """Workers that a sensible plan may use besides."""


# --- where the facts come from


@cache
def database(folder: Path) -> sqlite3.Connection:
    """The CSV files of a folder as tables, numbers as numbers."""
    connection = sqlite3.connect(":memory:")
    for file in sorted(folder.glob("*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines))
        columns = ", ".join(f'"{name}" NUMERIC' for name in rows[0])
        connection.execute(f'CREATE TABLE "{file.stem}" ({columns})')
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f'INSERT INTO "{file.stem}" VALUES ({marks})', rows[1:])
    return connection


def cells(team: str, folder: str, query: str) -> list[str]:
    """Every cell that a query returns."""
    return [str(cell) for row in database(FOLDERS[team] / folder).execute(query) for cell in row]


def passage(team: str, file: str, pattern: str) -> list[str]:
    """The groups of a pattern in a document; it has to occur."""
    text = " ".join((FOLDERS[team] / file).read_text(encoding="utf-8").split())
    match = re.search(pattern, text)
    assert match is not None, f"{file} does not say {pattern!r} any more"
    return list(match.groups())


def shop(query: str) -> _FACTS:
    return lambda: cells("shop", "data", query)


def support(query: str) -> _FACTS:
    return lambda: cells("support", "data", query)


def prices(query: str) -> _FACTS:
    return lambda: cells("portfolio", "prices", query)


def register(query: str) -> _FACTS:
    return lambda: cells("contract_review", "data", query)


def says(team: str, file: str, pattern: str) -> _FACTS:
    return lambda: passage(team, file, pattern)


def both(*parts: _FACTS) -> _FACTS:
    return lambda: [fact for part in parts for fact in part()]


def _rate(currency: str, day: str) -> _FACTS:
    return lambda: cells("shop", "rates", f"SELECT {currency} FROM euro WHERE day = '{day}'")


def _converted(query: str, currency: str, day: str) -> _FACTS:
    def work_out() -> list[str]:
        return [f"{float(shop(query)()[0]) * float(_rate(currency, day)()[0]):.2f}"]

    return work_out


def _worth(client: str) -> _FACTS:
    def work_out() -> list[str]:
        latest = dict(database(FOLDERS["portfolio"] / "prices").execute("SELECT fund, price FROM prices ORDER BY day"))
        held = database(FOLDERS["portfolio"] / "data").execute(
            "SELECT fund, units FROM holdings WHERE client = ?", (client,)
        )
        return [f"{sum(units * latest[fund] for fund, units in held):.2f}"]

    return work_out


def _gain(fund: str) -> _FACTS:
    def work_out() -> list[str]:
        found = [float(one) for one in prices(f"SELECT price FROM prices WHERE fund = '{fund}' ORDER BY day")()]
        return [f"{100 * (found[-1] / found[0] - 1):.1f}"]

    return work_out


def _mean_fee() -> list[str]:
    return [f"{mean(map(float, prices('SELECT fee_percent FROM funds')())):.3f}"]


_REVENUE = "SELECT round(sum(quantity * price_eur), 2) FROM orders JOIN products USING (product_id)"

_SHOP = (
    Asked(
        "shop",
        "How many orders did we have in March 2026?",
        {"analyst": ("order",)},
        shop("SELECT count(*) FROM orders WHERE day LIKE '2026-03%'"),
    ),
    Asked(
        "shop",
        "What was our revenue in Austria in 2026?",
        {"analyst": ("revenue",)},
        shop(f"{_REVENUE} WHERE country = 'AT' AND day LIKE '2026%'"),
    ),
    Asked(
        "shop",
        "Who is our contact at Nordveil, and how many Heron Tents did we sell in 2025?",
        {"archivist": ("nordveil", "contact"), "analyst": ("heron",)},
        both(
            says("shop", "docs/supplier-nordveil.md", r"Contact: (\w+ \w+)"),
            shop("SELECT sum(quantity) FROM orders WHERE product_id = 'P01' AND day LIKE '2025%'"),
        ),
    ),
    Asked(
        "shop",
        "What does the Ibex Backpack cost, and how much is that in US dollars at the rate of 31 March 2026?",
        {"analyst": ("ibex", "price", "cost"), "treasurer": ("dollar", "usd", "rate")},
        both(
            shop("SELECT price_eur FROM products WHERE product = 'Ibex Backpack'"),
            _converted("SELECT price_eur FROM products WHERE product = 'Ibex Backpack'", "USD", "2026-03-31"),
        ),
    ),
    Asked(
        "shop",
        "How long is the warranty on the seams of our tents?",
        {"archivist": ("warranty",)},
        says("shop", "docs/warranty.md", r"backpacks carry (\d+) years"),
    ),
    Asked(
        "shop",
        "Which product was returned most often, and within how many days may customers return an item?",
        {"analyst": ("return",), "archivist": ("return",)},
        both(
            shop(
                "SELECT product FROM returns JOIN orders USING (order_id) JOIN products USING (product_id) "
                "GROUP BY product ORDER BY count(*) DESC LIMIT 1"
            ),
            says("shop", "docs/returns-policy.md", r"any item within (\d+) days"),
        ),
    ),
    Asked(
        "shop",
        "How many Swedish kronor was one euro worth on 2 January 2026?",
        {"treasurer": ("sek", "kron")},
        _rate("SEK", "2026-01-02"),
    ),
    Asked(
        "shop",
        "How many units of each product category did we sell in April 2026? Draw a chart of it.",
        {"analyst": ("categor",), "illustrator": ("chart",)},
        shop(
            "SELECT sum(quantity) FROM orders JOIN products USING (product_id) WHERE day LIKE '2026-04%' "
            "GROUP BY category"
        ),
    ),
)
_SUPPORT = (
    Asked(
        "support",
        "How many orders are late?",
        {"clerk": ("late",)},
        support("SELECT count(*) FROM orders WHERE status = 'late'"),
    ),
    Asked(
        "support",
        "Which lamp was ordered on 12 October 2026, and what did it cost?",
        {"clerk": ("october", "10-12")},
        support("SELECT lamp, total FROM orders WHERE order_date = '2026-10-12'"),
    ),
    Asked(
        "support",
        "What does the handbook say about lost parcels: after how many working days does one count as lost?",
        {"librarian": ("lost", "parcel")},
        says("support", "handbook/delivery.md", r"not moved for (\d+) working"),
    ),
    Asked(
        "support",
        "What is the total of all orders of Ada Brandt, and how long is the warranty on reading lamps?",
        {"clerk": ("ada", "brandt"), "librarian": ("warranty",)},
        both(
            support("SELECT sum(total) FROM orders JOIN customers USING (customer_id) WHERE name = 'Ada Brandt'"),
            says("support", "handbook/warranty.md", r"reading lamps of (\d+) years"),
        ),
    ),
    Asked(
        "support",
        "In which city does the customer with the damaged order live?",
        {"clerk": ("damaged", "city")},
        support("SELECT city FROM orders JOIN customers USING (customer_id) WHERE status = 'damaged'"),
    ),
    Asked(
        "support",
        "Up to which amount may support refund without asking, and what is the total of refunded orders?",
        {"librarian": ("refund",), "clerk": ("refund",)},
        both(
            says("support", "handbook/refunds.md", r"up to (\d+) euros without"),
            support("SELECT sum(total) FROM orders WHERE status = 'refunded'"),
        ),
    ),
    Asked(
        "support",
        "How many Owl lamps were ordered in all?",
        {"clerk": ("owl",)},
        support("SELECT sum(quantity) FROM orders WHERE lamp = 'Owl'"),
    ),
)
_PORTFOLIO = (
    Asked(
        "portfolio",
        "What is the fee of Eskdale Property?",
        {"market": ("eskdale", "fee")},
        prices("SELECT fee_percent FROM funds WHERE fund = 'Eskdale Property'"),
    ),
    Asked("portfolio", "What is the portfolio of Lindqvist worth?", {"allocator": ("lindqvist",)}, _worth("Lindqvist")),
    Asked(
        "portfolio",
        "How much did Fintry Gold gain over the last twelve months, in percent?",
        {"allocator": ("fintry",)},
        _gain("Fintry Gold"),
        also=("market",),
    ),
    Asked(
        "portfolio",
        "What was the price of Fintry Gold on 30 June 2025, and what does our policy say about settlement?",
        {"market": ("fintry", "gold"), "policy": ("settlement",)},
        both(
            prices("SELECT price FROM prices WHERE fund = 'Fintry Gold' AND day = '2025-06-30'"),
            says("portfolio", "policy/rebalancing.md", r"(\d+) working days for bonds and (\d+) working"),
        ),
    ),
    Asked(
        "portfolio",
        "How many funds are there, and in which year was the oldest one launched?",
        {"market": ("fund", "launch")},
        prices("SELECT count(*), min(launched) FROM funds"),
    ),
    Asked(
        "portfolio",
        "What is the average fee of all funds, in percent?",
        {"market": ("fee",)},
        _mean_fee,
        also=("writer",),
    ),
    Asked(
        "portfolio",
        "What is Okafor's portfolio worth? Draw a chart of its holdings.",
        {"allocator": ("okafor",), "illustrator": ("chart",)},
        _worth("Okafor"),
    ),
    Asked(
        "portfolio",
        "Which fund has the lowest fee?",
        {"market": ("fee",)},
        prices("SELECT fund FROM funds ORDER BY fee_percent LIMIT 1"),
    ),
)
_CONTRACTS = (
    Asked(
        "contract_review",
        "What is the total annual value of the contracts that Ivo Lang owns?",
        {"registrar": ("ivo", "lang")},
        register("SELECT sum(annual_value_eur) FROM contracts WHERE owner = 'Ivo Lang'"),
        also=("calendar",),
    ),
    Asked(
        "contract_review",
        "When does the contract with Osprey Logistics end, and what does it say about liability?",
        {"registrar": ("osprey",), "extractor": ("liability",)},
        both(
            register("SELECT ends FROM contracts WHERE supplier = 'Osprey Logistics'"),
            says("contract_review", "contracts/osprey-logistics.md", r"## Liability .*?(\d+) euros per kilogram"),
        ),
    ),
    Asked(
        "contract_review",
        "How many invoices were paid late?",
        {"registrar": ("late",)},
        register("SELECT count(*) FROM invoices WHERE paid_late = 'yes'"),
    ),
    Asked(
        "contract_review",
        "How many days lie between 10 June 2023 and 9 June 2026?",
        {"calendar": ("2023", "june")},
        register("SELECT julianday('2026-06-09') - julianday('2023-06-10')"),
    ),
    Asked(
        "contract_review",
        "Which contract has the largest annual value, and how many days of notice does it need?",
        {"registrar": ("annual",)},
        register("SELECT supplier, notice_days FROM contracts ORDER BY annual_value_eur DESC LIMIT 1"),
        also=("extractor",),
    ),
    Asked(
        "contract_review",
        "What did Bellwether Paper invoice in all? Draw a chart of its invoices.",
        {"registrar": ("bellwether",), "illustrator": ("chart",)},
        register("SELECT sum(amount_eur) FROM invoices WHERE contract_id = 'C2'"),
    ),
    Asked(
        "contract_review",
        "Who owns the contract with Juniper Payroll?",
        {"registrar": ("juniper",)},
        register("SELECT owner FROM contracts WHERE supplier = 'Juniper Payroll'"),
    ),
)


def requests() -> list[Asked]:
    """All thirty, the teams in turn: the first twelve are three of each."""
    teams = (_SHOP, _SUPPORT, _PORTFOLIO, _CONTRACTS)
    longest = max(map(len, teams))
    return [asked[at] for at in range(longest) for asked in teams if at < len(asked)]
