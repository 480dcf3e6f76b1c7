"""Sixty requests as people put them, with answers worked out here from the data: right, or refused with a reason.

A wrong answer is worse than none: a request that is refused today may be served tomorrow, never the other way round
with a wrong figure.
"""

from collections.abc import Callable

import pytest

from tests.models.demo.asking import ask, rows, shop_orders, total


def _money(value: float) -> str:
    return f"{value:,.2f}" if value != int(value) else f"{int(value):,}"


def _count(team: str, path: str, **columns: str) -> str:
    return str(sum(all(row[name] == value for name, value in columns.items()) for row in rows(team, path)))


def _best(held: list[dict[str, str]], key: str) -> str:
    groups: dict[str, float] = {}
    for row in held:
        groups[row[key]] = groups.get(row[key], 0.0) + float(row["revenue"])
    return max(groups, key=lambda name: groups[name])


SERVED: list[tuple[str, str, Callable[[], list[str]]]] = [
    ("shop", "What was the revenue in May 2026?", lambda: [_money(total(shop_orders("2026-05")))]),
    ("shop", "revenue may 2026", lambda: [_money(total(shop_orders("2026-05")))]),
    ("shop", "How many orders came from Italy in 2025?", lambda: [str(len(shop_orders("2025", "Italy")))]),
    (
        "shop",
        "How many tents did we sell in June 2026?",
        lambda: [str(int(total(shop_orders("2026-06", category="tents"), "quantity")))],
    ),
    (
        "shop",
        "How much revenue did tents bring in March 2026?",
        lambda: [_money(total(shop_orders("2026-03", category="tents")))],
    ),
    ("shop", "Top 3 products by revenue in 2026", lambda: [_best(shop_orders("2026"), "product")]),
    ("shop", "How many orders were placed on 2026-05-03?", lambda: [f": {len(shop_orders('2026-05-03'))} "]),
    (
        "shop",
        "What was the total revenue in May 2026? Convert it to US dollars at the rate of 29 May 2026.",
        lambda: ["14,593.52 USD"],
    ),
    ("shop", "How long do customers have to return an item?", lambda: ["within 30 days"]),
    ("support", "How many orders has Ada Brandt placed?", lambda: [": 2."]),
    ("support", "Which customers have late orders?", lambda: ["Bilal Haddad", "Freya Lindgren"]),
    ("support", "How many orders were refunded?", lambda: [_count("support", "data/orders.csv", status="refunded")]),
    (
        "support",
        "What is the total of refunded orders?",
        lambda: [
            _money(
                sum(float(row["total"]) for row in rows("support", "data/orders.csv") if row["status"] == "refunded")
            )
        ],
    ),
    ("minimal", "What do 40 tomato seedlings cost?", lambda: ["48.00 euros"]),
    ("minimal", "How much water do tomatoes need?", lambda: ["3 litres"]),
    (
        "tech_support",
        "How many requests are planned?",
        lambda: [_count("tech_support", "board/requests.csv", status="planned")],
    ),
    ("tech_support", "How many votes does the audit trail have?", lambda: ["118"]),
    ("tech_support", "How long does a job with 900000 rows run at 5000 rows per second?", lambda: ["180 seconds"]),
    ("portfolio", "Which fund has the lowest fee?", lambda: ["Corran Government Bonds 0.12"]),
    ("portfolio", "What was the price of Fintry Gold on 2026-06-30?", lambda: ["41.24"]),
    ("curriculum", "Which topics are for beginners?", lambda: ["spread", "probability", "reading data"]),
    ("letta_crew", "Which framework has the most employees?", lambda: ["Rookery 130"]),
    ("competitive_intelligence", "How many deals did we win against Kanbrio?", lambda: [": 2 "]),
    ("competitive_intelligence", "Which rivals have single sign-on?", lambda: ["Kanbrio", "Plotline", "Stackmoor"]),
    ("patient_case", "What medicines does Vos take?", lambda: ["warfarin", "amiodarone", "naproxen"]),
    ("recursive_research", "How many steps does merge sort take with 100 items?", lambda: ["542 steps"]),
    ("expert_router", "What is the body mass index for a weight of 80 kg and a height of 180 cm?", lambda: ["24.7"]),
]

REFUSED = [
    ("shop", "How many orders did we get from Ireland last year?"),
    ("shop", "Which products have never been returned?"),
    ("shop", "Convert 100 dollars to euros."),
    ("shop", "What is the median price of a tent?"),
    ("shop", "Which country had the lowest revenue in 2026?"),
    ("shop", "How much revenue did tents bring in between March and May 2026?"),
    ("shop", "Convert 250 euros to Swiss francs on 15 May 2026."),
    ("shop", "Cancel order 1003."),
    ("shop", "Send the supplier a reminder email."),
    ("shop", "What share of orders came from Italy in 2026?"),
    ("shop", "How many ordres were there in May 2026?"),
    ("shop", "Which products cost more than 100 euros?"),
    ("shop", "How many orders were there in 2019?"),
    ("shop", "How many orders with a quantity over 10 were there in 2026?"),
    ("product_launch", "How many competitors have a rating above 4.2?"),
    ("shop", "How many tents and packs did we sell in May 2026?"),
    ("shop", "What was the revenue in May 2026 compared with May 2025?"),
    ("shop", "What is the cheapest product?"),
    ("shop", "How many orders came in through web or wholesale in 2026?"),
    ("shop", "Total revenue in 2025 without Germany?"),
    ("shop", "How many orders were not from Germany in May 2026?"),
    ("shop", "How many orders per channel, except wholesale?"),
    ("product_launch", "What is the average budget of hikers who are not from France?"),
    ("letta_crew", "How many downloads did Corvid have since March 2026?"),
    ("contract_review", "How many invoices were not paid late?"),
    ("shop", "Hello!"),
    ("shop", "Write a poem about tents."),
    ("support", "Which customers have not ordered?"),
    ("support", "Refund order 1040."),
    ("minimal", "What do 5 roses cost?"),
    ("competitive_intelligence", "What is our win rate against Plotline?"),
    ("patient_case", "What was the last potassium result of Moreau?"),
    ("letta_crew", "Which frameworks are open source and cost less than 30 dollars a month?"),
]


def test_there_are_sixty() -> None:
    assert len(SERVED) + len(REFUSED) == 60


@pytest.mark.parametrize(("team", "request_text", "expected"), SERVED, ids=[held[1] for held in SERVED])
def test_what_is_served_is_right(team: str, request_text: str, expected: Callable[[], list[str]]) -> None:
    result = ask(team, request_text)
    answer = f"{result.answer} "
    for text in expected():
        assert text in answer


@pytest.mark.parametrize(("team", "request_text"), REFUSED, ids=[held[1] for held in REFUSED])
def test_what_is_refused_names_the_next_step(team: str, request_text: str) -> None:
    result = ask(team, request_text)
    assert result.ending == "failed"
    assert any("docs/first-model.md" in gap.message for gap in result.gaps)
