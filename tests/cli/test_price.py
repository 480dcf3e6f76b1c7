"""A budget in dollars with a model whose price nobody knows: calls are capped instead, or --price says the price."""

import asyncio
import json
import math
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from chargehand.cli.arguments import token_price
from chargehand.engine.budget import Budget
from chargehand.engine.events import RunRequested
from chargehand.errors import Invalid
from chargehand.journal.store import read_run
from chargehand.models.messages import Usage
from chargehand.models.prices import PriceTag, flat
from chargehand.models.rates import Price
from chargehand.models.testing.fault_server import FaultServer
from tests.cli.commands import JOURNAL, chargehand
from tests.config.files import write

TEAM = """
version: 1
name: desk
defaults: {model: "openai:no-such-model"}
timeout: 1s
budget: {usd: 0.50}
workers: {ann: Counts things.}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    write(tmp_path, TEAM)
    (tmp_path / "plan.json").write_text(json.dumps({"tasks": [{"id": "a", "instruction": "Count.", "worker": "ann"}]}))
    return tmp_path


def test_calls_are_capped_where_nobody_knows_a_price(desk: Path) -> None:
    given = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "http://model.invalid/v1"}
    done = chargehand(desk, "run", "Count.", "--plan", "plan.json", "--run", "counted", **given)
    assert "warning: the price of openai:no-such-model is unknown, so the budget of $0.50 cannot be kept" in done.stderr
    assert "at most 50 calls are made instead. --price IN/OUT" in done.stderr
    first = read_run(desk / JOURNAL, "counted")[0].event
    assert isinstance(first, RunRequested)
    assert first.budget == Budget(calls=50, seconds=1.0)


def test_with_a_price_the_budget_is_kept_in_dollars_and_told_again(desk: Path) -> None:
    given = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "http://model.invalid/v1"}
    words = ("--plan", "plan.json", "--run", "priced", "--price", "1.5/6")
    done = chargehand(desk, "run", "Count.", *words, **given)
    assert "nobody knows" not in done.stderr
    assert "run --price 1.5/6" in done.stderr
    first = read_run(desk / JOURNAL, "priced")[0].event
    assert isinstance(first, RunRequested)
    assert first.budget == Budget(usd=0.5, seconds=1.0)


def test_without_a_cap_in_dollars_people_read_that_the_cost_is_not_known(desk: Path) -> None:
    (desk / "team.yaml").write_text(TEAM.replace("budget: {usd: 0.50}\n", ""))
    given = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "http://model.invalid/v1"}
    words = ("run", "Count.", "--plan", "plan.json")
    done = chargehand(desk, *words, "--run", "unpriced", **given)
    assert "warning: the cost of openai:no-such-model is not known and counts as nothing; --price IN/OUT" in done.stderr
    assert "cost unknown: openai:no-such-model" in done.stderr
    shown = chargehand(desk, "runs", "show", "unpriced")
    assert "; cost unknown: openai:no-such-model\n" in shown.stdout
    first = read_run(desk / JOURNAL, "unpriced")[0].event
    assert isinstance(first, RunRequested)
    assert first.budget.calls is None
    priced = chargehand(desk, *words, "--run", "known", "--price", "1/2", **given)
    assert "not known" not in priced.stderr
    assert "unknown" not in priced.stderr


async def test_a_providers_model_behind_a_gateway_on_this_machine_is_paid_for(desk: Path) -> None:
    async with FaultServer() as server:
        given = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": server.url("ok")}
        words = ("run", "Count.", "--plan", "plan.json", "--model", "openai:gpt-5-mini", "--timeout", "60s", "--json")
        done = await asyncio.to_thread(chargehand, desk, *words, **given)
        document = json.loads(done.stdout)
        refused = await asyncio.to_thread(chargehand, desk, *words, "--budget-usd", "0.000001", **given)
    assert "warning" not in done.stderr
    assert document["usd"] > 0
    assert refused.returncode == 5
    assert server.requests["ok"] == document["calls"]


def test_a_price_is_two_amounts_of_dollars() -> None:
    assert token_price("0.25/2").dollars == (0.25, 2.0)
    assert token_price("$3/$15").dollars == (3.0, 15.0)
    for wrong in ("", "3", "3/", "/2", "a/b", "-1/2", "nan/1", "1/inf", "1/2/-3", "1/2/3/4/5/6"):
        with pytest.raises(ArgumentTypeError, match=r"in and out, like 0\.25/2.*IN/OUT/CACHED/WRITE/WRITE_HOUR$"):
            token_price(wrong)


def test_a_price_may_say_what_the_cache_costs() -> None:
    whole = Price(3.0, 15.0, cached=0.3, cache_write=3.75, cache_write_hour=7.5)
    assert flat(*token_price("3/15/0.3/3.75/7.5").dollars) == whole
    assert flat(*token_price("3/15/0.3").dollars) == Price(3.0, 15.0, cached=0.3)


def test_writing_to_the_cache_for_an_hour_costs_twice_the_input_unless_said() -> None:
    hour = Usage(1_000_000, cache_written_hour=1_000_000)
    assert flat(*token_price("3/15/0.3/3.75").dollars).cost(hour) == 6_000_000
    assert flat(*token_price("3/15/0.3/7").dollars).cost(hour) == 7_000_000
    assert flat(*token_price("3/15").dollars).cost(hour) == 3_000_000


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, "3", True, [1]])
@pytest.mark.parametrize("place", range(6))
def test_what_is_no_price_is_refused(wrong: object, place: int) -> None:
    amounts: list[Any] = [1.0] * 6
    amounts[place] = wrong
    with pytest.raises(Invalid, match=r"dollars_\w+ is .*no price; give dollars per million tokens"):
        flat(*amounts)


async def test_a_price_of_ones_own_is_for_models_that_the_table_does_not_have() -> None:
    own = flat(1.0, 1.0)
    assert PriceTag("openai", "no-such-model", otherwise=own).find() == own
    known = PriceTag("openai", "gpt-5-mini", otherwise=own).find()
    assert known is not None
    assert (known.input, known.output) == (0.25, 2.0)
