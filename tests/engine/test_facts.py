"""Facts of notes: each is written and read back as what it is."""

import msgspec
import pytest

from chargehand.engine import events as ev
from chargehand.engine import facts

FACTS = (
    facts.RouteChosen(("ann",), "meaning", 0.75, (("ann", 0.75), ("bob", 0.25))),
    facts.ModelFellBack("openai:one", "openai:two"),
    facts.BreakerChanged("worker:bob", "half-open"),
    facts.StepDiverged(3),
    facts.Assumed("the year is this one"),
    facts.ResultAccepted(("short", "sourced")),
    facts.NotReviewed("look"),
)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_is_read_back_as_it_was_written(fact: facts.NotedFact) -> None:
    noted = ev.Noted("in words", fact=fact)
    assert msgspec.json.decode(msgspec.json.encode(noted), type=ev.Event) == noted
