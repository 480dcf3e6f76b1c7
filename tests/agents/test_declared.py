"""What a team is made of, declared wrongly in Python: refused at once, in words that say what to write instead."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, cast

import pytest

from chargehand import Broadcast, Budget, Policy, Route, Supervisor, Team, Worker, tool
from chargehand.agents.roles import Hedge
from chargehand.agents.strategies import RoundRobin
from chargehand.errors import Invalid
from tests.agents.options import make_team


def price(product: str) -> int:
    """What a product costs."""
    return len(product)


ANN = Worker("ann", "knows prices", tags=["travel"])
WRONG: dict[str, tuple[Callable[[Any], object], object, str]] = {
    "a strategy by name": (
        lambda one: Team([ANN], supervisor=Supervisor(strategy=one)),
        "route",
        "strategy is 'route'; write Whole(...) or Route(...)",
    ),
    "a strategy that is none": (
        lambda one: Team([ANN], supervisor=Supervisor(strategy=one)),
        5,
        "strategy is 5; write Whole(...)",
    ),
    "a strategy not made": (
        lambda one: Team([ANN], supervisor=Supervisor(strategy=one)),
        RoundRobin,
        "strategy is RoundRobin; write Whole(...)",
    ),
    "a router": (
        lambda one: Team([ANN], supervisor=Supervisor(strategy=Route(router=one))),
        "magic",
        "Route: router is 'magic'; write 'auto'",
    ),
    "turns": (
        lambda one: Team([ANN], supervisor=Supervisor(strategy=RoundRobin(one))),
        -1,
        "RoundRobin: max_turns is -1; write a whole number from 0 to 1000",
    ),
    "threshold": (
        lambda one: Team([ANN], supervisor=Supervisor(strategy=Route(threshold=one))),
        1.5,
        "Route: threshold is 1.5; write a number from 0 to 1",
    ),
    "tags of a strategy": (
        lambda one: Team([ANN], supervisor=Supervisor(strategy=Broadcast(one))),
        "travel",
        "Broadcast: match_all is 'travel'; write a list of text",
    ),
    "a hedge": (lambda one: Team([ANN], supervisor=Supervisor(hedge=one)), True, "hedge is True; write Hedge(...)"),
    "a cache": (lambda one: Team([ANN], cache=one), "10x", "cache is '10x'; write a duration such as 90s, 5m"),
    "a timeout of a run": (lambda one: Team([ANN], timeout=one), "soon", "timeout is 'soon'; write a duration"),
    "a timeout of 0": (lambda one: Worker("ann", timeout=one), 0, "worker 'ann': timeout is 0; it must be longer"),
    "a timeout of a tool": (lambda one: tool(timeout=one)(price), "5 min", "tool 'price': timeout is '5 min'; write"),
    "approve of a tool": (lambda one: tool(approve=one)(price), "ask", "approve is 'ask'; write True or False"),
    "approve of plans": (lambda one: Team([ANN], policy=Policy(approve=one)), "never", "approve is 'never'"),
    "dollars as text": (
        lambda one: Team([ANN], budget=Budget(usd=one)),
        "0.50",
        "Budget: usd is '0.50'; write a number",
    ),
    "tools": (lambda one: Team([Worker("a", tools=one)]), "chart", "Worker 'a': tools is 'chart'; write a list"),
    "a tool by name": (lambda one: Team([Worker("a", tools=one)]), ["calculater"], "did you mean 'calculator'?"),
    "a tool that needs settings": (
        lambda one: Team([Worker("a", tools=one)]),
        ["sql"],
        'write tools=[sql("shop.db")]',
    ),
    "a team as a worker": (lambda one: Team([one]), Team([ANN]), "team.as_worker()"),
    "a name as a worker": (lambda one: Team([one]), "ann", "Worker(name, description)"),
    "tags": (lambda one: Team([Worker("a", "b", tags=one)]), "x", "tags is 'x'; write a list of text"),
    "skills": (lambda one: Team([Worker("a", "b", skills=one)]), "x", "skills is 'x'; write a list of text"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_refused_in_words(what: str) -> None:
    make, given, said = WRONG[what]
    with pytest.raises(Invalid) as refusal:
        make(given)
    assert said in str(refusal.value)


def test_what_can_be_is_not_refused() -> None:
    rules = cast("dict[str, str]", MappingProxyType({"price": "ann"}))
    Team([ANN], supervisor=Supervisor(strategy=Route(rules=rules), hedge=Hedge()), cache=5)
    Team([ANN], supervisor=Supervisor(strategy=Broadcast(cast("tuple[str, ...]", ["travel"]))))


@pytest.mark.parametrize("word", ["timout", "timeout"])
def test_a_keyword_of_the_team_given_to_a_run_is_named(word: str) -> None:
    team = Team([Worker("a", "b")])
    with pytest.raises(TypeError, match=r"run_sync\(\) has no keyword .*; did you mean Team\(timeout=...\)\?"):
        team.run_sync("q", **{word: 4})  # pyright: ignore[reportArgumentType] - a dictionary


@pytest.mark.parametrize("more", [{"model": "dmeo"}, {"judge": "dmeo"}])
def test_a_handle_that_cannot_be_a_model_is_refused_at_construction(more: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="'dmeo' is no model"):
        make_team([Worker("a", "b")], **more)
