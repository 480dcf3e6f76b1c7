"""The bundled team on the requests it names itself, from plan to answer; every number is worked out again here."""

import csv
import re
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path

import msgspec
import pytest

import chargehand.config as config
from chargehand.config.load import load_team
from chargehand.runtime.result import Result
from chargehand.terms import events as ev

SHOP = Path(config.__file__).parent / "templates" / "shop"


class Team(msgspec.Struct):
    examples: list[str]
    workers: dict[str, dict[str, object]]


def shop() -> Team:
    import yaml

    return msgspec.convert(yaml.safe_load((SHOP / "team.yaml").read_text(encoding="utf-8")), Team)


@cache
def rows(path: str) -> list[dict[str, str]]:
    with (SHOP / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def revenue(within: str) -> dict[str, Decimal]:
    price = {one["product_id"]: Decimal(one["price_eur"]) for one in rows("data/products.csv")}
    name = {one["country"]: one["name"] for one in rows("data/countries.csv")}
    found: dict[str, Decimal] = {}
    for order in rows("data/orders.csv"):
        if order["day"].startswith(within):
            amount = Decimal(order["quantity"]) * price[order["product_id"]]
            found[name[order["country"]]] = found.get(name[order["country"]], Decimal(0)) + amount
    return found


def ran(goal: str) -> Result:
    return load_team(SHOP).run_sync(goal)


def text(result: Result) -> str:
    return "\n".join(str(value) for value in result.results.values())


@pytest.fixture(scope="module")
def first() -> Result:
    return ran(shop().examples[0])


def test_the_first_example_is_answered_but_for_what_no_document_says(first: Result) -> None:
    assert first.ending == "partial"
    (gap,) = first.gaps
    assert gap.message.startswith("the documents do not say how many parcels the second carrier lost")
    assert "the documents do not say how many parcels" in str(first.answer).partition("## Not answered")[2].lower()
    assert {task.worker for task in first.plan.tasks} == {"analyst", "illustrator", "treasurer", "archivist"}


def test_the_first_example_runs_side_by_side_and_in_turn(first: Result) -> None:
    waits = [bool(task.after) for task in first.plan.tasks]
    assert waits.count(False) >= 2
    assert waits.count(True) >= 2


def test_the_numbers_of_the_first_example_are_those_of_the_files(first: Result) -> None:
    may = revenue("2026-05")
    for name, amount in may.items():
        assert f"{name} {amount:,.2f}" in text(first)
    (rate,) = (Decimal(one["USD"]) for one in rows("rates/euro.csv") if one["day"] == "2026-05-29")
    dollars = (sum(may.values()) * rate).quantize(Decimal("0.01"))
    assert f"{dollars:,.2f} USD" in text(first)
    assert f"{dollars:,.2f}" in str(first.answer)


def test_the_answer_shows_a_table_quotes_a_document_and_names_its_sources(first: Result) -> None:
    best = max(revenue("2026-05").items(), key=lambda pair: pair[1])[0]
    assert f"| {best} |" in str(first.answer)
    assert "21 parcels were late" in str(first.answer)
    for source in ("orders.csv", "rates/euro.csv", "incident-2026-05-carrier-strike.md"):
        assert source in str(first.answer)


def test_there_is_a_chart_of_the_same_numbers(first: Result) -> None:
    charts = [one for value in first.results.values() for one in exhibits(value) if one.get("kind") == "chart"]
    (chart,) = charts
    assert all(name in str(chart["svg"]) for name in revenue("2026-05"))


def test_a_chart_is_described_in_words_though_no_model_is_shown_its_drawing(first: Result) -> None:
    assert re.search(r'The chart "[^"]+" shows: Bar chart, 6 values: highest', str(first.answer))


def exhibits(value: object) -> list[dict[str, object]]:
    return msgspec.convert(value, dict[str, object], strict=False).get("exhibits", [])  # pyright: ignore[reportReturnType] - any JSON


async def test_the_rate_of_a_saturday_really_fails_and_is_asked_for_again() -> None:
    seen = [entry.event async for entry in load_team(SHOP).stream(shop().examples[0])]
    (failed,) = (one for one in seen if isinstance(one, ev.AttemptFailed) and "rate" in one.failure.message)
    assert "no rate for 2026-05-30 (a Saturday); nearest earlier day with a rate: 2026-05-29" in failed.failure.message
    (refined,) = (one for one in seen if isinstance(one, ev.TaskRefined) and one.task == failed.task)
    assert "2026-05-29" in refined.instruction


def test_the_best_products_and_their_suppliers() -> None:
    result = ran(shop().examples[1])
    price = {
        one["product_id"]: (one["product"], Decimal(one["price_eur"]), one["supplier"])
        for one in rows("data/products.csv")
    }
    found: Counter[tuple[str, str]] = Counter()
    for order in rows("data/orders.csv"):
        if order["day"] >= "2026":
            name, amount, supplier = price[order["product_id"]]
            found[name, supplier] += int(100 * amount) * int(order["quantity"])
    for (name, supplier), cents in found.most_common(3):
        assert f"{name} {Decimal(cents) / 100:,.2f}" in text(result)
        assert supplier in text(result)


def test_a_change_and_a_memo() -> None:
    result = ran(shop().examples[3])
    before, after = (sum(sum(revenue(f"{year}-0{month}").values()) for month in (1, 2, 3)) for year in (2025, 2026))
    assert f"{(after - before) / before * 100:.1f} percent" in text(result)
    assert "Memo" in str(result.answer)


def test_what_nobody_knows_is_a_gap_and_the_rest_is_answered() -> None:
    result = ran(shop().examples[5])
    products = {one["product_id"] for one in rows("data/products.csv") if one["category"] == "tents"}
    sold = sum(
        int(one["quantity"])
        for one in rows("data/orders.csv")
        if one["day"].startswith("2026-06") and one["product_id"] in products
    )
    assert result.ending == "partial"
    assert f"{sold}." in text(result)
    assert any("visitors" in gap.message for gap in result.gaps)


def test_every_worker_but_the_writer_has_a_tool_of_its_own() -> None:
    tools = {
        name: set(msgspec.convert(one.get("tools", []), list[str])) - {"calculator"}
        for name, one in shop().workers.items()
    }
    assert [name for name, own in tools.items() if not own] == ["writer"]
    every = [one for own in tools.values() for one in own]
    assert len(every) == len(set(every))


def test_the_data_is_small_and_said_to_be_made_up() -> None:
    assert sum(path.stat().st_size for path in SHOP.rglob("*.csv")) < 60_000
    assert "made up" in (SHOP / "data" / "README.md").read_text(encoding="utf-8")
