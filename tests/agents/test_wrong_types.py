"""A value of the wrong kind is named in words, with what to write instead."""

from collections.abc import Callable
from typing import Any

import pytest

from chargehand import Supervisor, Worker
from chargehand.errors import Invalid
from chargehand.models.messages import Message


def stock(product: str) -> int:
    """How many of a product are in stock."""
    return len(product)


LOOSE_WORKER: Any = Worker
LOOSE_SUPERVISOR: Any = Supervisor


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LOOSE_WORKER("ann", tools=stock), r"tools of ann are one tool; write a list"),
        (lambda: LOOSE_SUPERVISOR([LOOSE_WORKER("ann", tools="chart")]), r"tools is the text 'chart'; make it a list"),
        (lambda: LOOSE_SUPERVISOR(Worker("ann")), r"workers is one worker; write a list"),
        (lambda: LOOSE_SUPERVISOR([Worker("ann")], budget={"usd": 1}), r"budget is dict; write budget=Budget"),
        (lambda: LOOSE_SUPERVISOR([Worker("ann")]).run_sync(12), r"the request is int, not text"),
        (lambda: LOOSE_SUPERVISOR([Worker("ann")]).run_sync(b"Count"), r"the request is bytes, not text"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        make()


@pytest.mark.parametrize("workers", [1, 2])
def test_every_call_of_a_model_that_reports_no_usage_is_counted(workers: int) -> None:
    calls = 0

    async def model(messages: list[Message]) -> str:
        nonlocal calls
        calls += 1
        return "hello"

    team = Supervisor([Worker(f"w{number}", "says things") for number in range(workers)], model=model)
    assert team.run_sync("Say hello").spent.calls == calls > 1
