"""Python and the team file use the same words; a word that does not exist is refused with the one that was meant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from chargehand import Budget, Factory, Policy, Supervisor, Task, Team, Worker, load_team, tool
from chargehand.config.keys import sections
from chargehand.config.schema import PLAIN_SOURCES
from chargehand.engine.declared import nearest_keyword
from chargehand.tools.built_in import BUILT_IN


def price(product: str) -> int:
    """What a product costs."""
    return len(product)


ANN = Worker("ann", "knows prices")
WRONG: dict[str, tuple[Callable[..., Any], dict[str, object], str]] = {
    "Worker": (Worker, {"name": "ann", "descripton": "x"}, "'descripton'; did you mean 'description'?"),
    "an old word": (
        Worker,
        {"name": "ann", "does": "x"},
        "Worker() has no keyword 'does'; did you mean 'description'?",
    ),
    "a word of others": (Worker, {"name": "a", "system_prompt": "x"}, "'system_prompt'; did you mean 'prompt'?"),
    "Team": (Team, {"workers": [ANN], "seconds": 5}, "Team() has no keyword 'seconds'; did you mean"),
    "a mistyped one": (Supervisor, {"modle": "x"}, "'modle'; did you mean 'model'?"),
    "of the supervisor": (Team, {"workers": [ANN], "plan": 1}, "did you mean supervisor=Supervisor(plan=...)?"),
    "tool": (tool, {"approval": True}, "tool() has no keyword 'approval'; did you mean 'approve'?"),
    "Budget": (Budget, {"micros": 5}, "Budget() has no keyword 'micros'; did you mean 'usd'?"),
    "Policy": (Policy, {"aprove": True}, "'aprove'; did you mean 'approve'?"),
    "Factory": (Factory, {"does": "x"}, "'does'; did you mean 'description'?"),
    "Task": (Task, {"id": "a", "instructon": "x"}, "'instructon'; did you mean 'instruction'?"),
    "as_worker": (Team([ANN]).as_worker, {"desc": "x"}, "'desc'; did you mean 'description'?"),
    "load_team": (load_team, {"modell": "demo"}, "load_team() has no keyword 'modell'; did you mean 'model'?"),
    "a short unit": (Team, {"workers": [ANN], "secs": 5}, "'secs'; did you mean 'timeout'?"),
    "a short unit of a budget": (Budget, {"secs": 5}, "'secs'; did you mean 'seconds'?"),
    "nothing like it": (Budget, {"xyz": 5}, "Budget() has no keyword 'xyz'; it takes tokens, usd, calls"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_keyword_that_does_not_exist_is_refused_with_the_one_that_was_meant(what: str) -> None:
    make, keywords, said = WRONG[what]
    with pytest.raises(TypeError) as refusal:
        make(**keywords)
    assert said in str(refusal.value)


def test_a_short_unit_is_nothing_that_only_looks_like_it() -> None:
    assert nearest_keyword("secs", ["checks", "steps"]) == ""
    assert nearest_keyword("secs", ["checks", "timeout"]) == "timeout"


TEAM = """\
version: 1
timeout: 5m
budget: {usd: 0.50}
workers:
  ann: {description: Works out figures., timeout: 1h30m, tools: [calculator, dates, price]}
tools:
  price: {python: "tools:price", timeout: 90s, approve: always}
"""


def test_the_same_words_make_the_same_team_in_python_and_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM)
    (tmp_path / "tools.py").write_text(
        'def price(product: str) -> int:\n    """What a product costs."""\n    return 1\n'
    )
    read = load_team(tmp_path)
    asks = tool(timeout="90s", approve="always")(price)
    ann = Worker("ann", description="Works out figures.", timeout="1h30m", tools=["calculator", "dates", asks])
    written = Team([ann], timeout="5m", budget=Budget(usd=0.50))
    assert written.roster == read.roster
    assert (written.timeout, written.budget.micros) == (read.timeout, read.budget.micros) == (300.0, 500_000)
    assert written.roster.agents[0].tools == ("calculator", "today", "date_info", "days_between", "add_days", "price")
    assert written.roster.agents[0].timeout == 5400.0
    assert (asks.timeout, asks.approve) == (90.0, True)


def test_every_tool_that_a_file_names_without_settings_has_a_name_in_python() -> None:
    assert tuple(BUILT_IN) == PLAIN_SOURCES
    for name in BUILT_IN:
        assert Team([Worker("ann", tools=[name])]).roster.agents[0].tools
    assert Team([ANN], supervisor=Supervisor(factory=Factory(tools=["calculator"]))).roster.agents[1].tools == (
        "calculator",
    )


def test_a_tool_by_name_works() -> None:
    result = Team([Worker("reckoner", "Works out figures.", tools=["calculator"])]).run_sync("What is 12% of 250?")
    assert "30" in cast("str", result.answer)


def test_what_is_declared_daily_has_one_name_on_both_sides() -> None:
    keys = {section.path: {key.name for key in section.keys} for section in sections()}
    assert {"description", "timeout", "tools", "model", "prompt", "tags"} <= keys["workers.*"] & set(
        Worker.__struct_fields__
    )
    assert {"usd", "tokens", "calls"} <= keys["budget"] & set(Budget.__struct_fields__)
    assert {"approve", "timeout", "effect", "cap"} <= keys["tools.*"]
    assert "timeout" in keys[""]
