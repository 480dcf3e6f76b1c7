"""A usage that cannot be, from a model of one's own: it is not known, the call counts, and people are told."""

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.facts import UsageUnknown
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import ModelCard, ModelFailed
from chargehand.models.testing.scripted import ScriptedModel
from tests.agents.options import make_team

CARD = ModelCard("mine", micros_in=1.0, micros_out=1.0)
ONE = Plan((Task(TaskId("t1"), "Count.", "ann"),), "forward")
TOLD = "reports a usage that cannot be"
IMPOSSIBLE = [
    Reply("Three.", usage=Usage(10, 5, cached=50)),
    Reply("Three.", usage=Usage(10, 5, cached=6, cache_written=3, cache_written_hour=2)),
    Reply("Three.", usage=Usage(10, 5, reasoning=6)),
    Reply("Three.", usage=Usage(-10, 5)),
    Reply("Three.", usage=Usage(10, -5)),
    Reply("Three.", usage=Usage(10, 5, cached=-1)),
    Reply("Three.", usage=Usage(10, 5, searches=-1)),
    Reply("Three.", usage=Usage(10, 5), micros=-7),
]


async def run(*lines: Reply | ModelFailed, budget: Budget | None = None) -> Result:
    script = ScriptedModel(lines, card=CARD)
    return await make_team([Worker("ann")], model=script, plan=ONE, budget=budget or Budget()).run("Count")


def usage_facts(result: Result) -> list[ev.NotedFact]:
    noted = [entry.event for entry in result.entries if isinstance(entry.event, ev.Noted)]
    return [note.fact for note in noted if isinstance(note.fact, UsageUnknown)]


@pytest.mark.parametrize("reply", IMPOSSIBLE)
async def test_a_call_of_impossible_usage_counts_and_people_are_told(reply: Reply) -> None:
    result = await run(reply)
    assert (result.ending, result.answer) == ("complete", "Three.")
    assert result.spent == Amount(calls=1)
    assert usage_facts(result) == [UsageUnknown("ann", 1, "tokens", "mine")]
    assert TOLD in result.notice


@pytest.mark.parametrize("reply", IMPOSSIBLE)
async def test_under_a_cap_it_is_charged_what_was_reserved(reply: Reply) -> None:
    result = await run(reply, budget=Budget(usd=0.5))
    assert result.ending == "complete"
    assert result.spent.calls == 1
    unknown = await run(Reply("Three."), budget=Budget(usd=0.5))
    assert result.spent == unknown.spent
    assert result.spent.micros > 1_000


async def test_counts_at_their_limits_are_taken() -> None:
    result = await run(Reply("Three.", usage=Usage(10, 5, 4, 3, 3, reasoning=5)))
    assert (result.spent.tokens, result.spent.calls, result.notice) == (15, 1, "")


async def test_the_usage_of_a_failed_call_that_cannot_be_gives_nothing_back() -> None:
    failure = Failure("network", "it broke", permanent=True)
    result = await run(ModelFailed(failure, usage=Usage(-1_000, -1_000)))
    assert result.ending != "complete"
    assert (result.spent.tokens, result.spent.calls >= 1) == (0, True)


async def test_a_call_of_the_supervisor_counts_too() -> None:
    def reply(_request: Request) -> Reply:
        return Reply("Done [t1].", usage=Usage(1, 1, cached=9))

    plan = Plan(ONE.tasks, "merge")
    worker = Worker("ann", model=ScriptedModel(["Three."], usage=Usage(10, 5), card=CARD))
    result = await make_team([worker], model=ScriptedModel(reply, card=CARD), plan=plan).run("Count")
    assert result.spent == Amount(tokens=15, micros=15, calls=2)
    assert [fact.worker for fact in usage_facts(result) if isinstance(fact, UsageUnknown)] == ["supervisor"]
