"""A run ends by its deadline and grace, whatever a provider asks it to wait for, and whoever is asked to wait."""

import pytest

from chargehand import Failure, Plan, ScriptedModel, Supervisor, Task, Team, Worker, tool
from chargehand.agents.strategies import Route
from chargehand.engine import events as ev
from chargehand.engine.plan import TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.models.messages import Reply, Request
from chargehand.models.model import Hear, ModelCard, ModelFailed
from tests.agents.playhouse import Playhouse

WEEK = 7 * 86_400.0
SECONDS = 300.0
GRACE = Policy().grace
FINE = ScriptedModel(["fine"], repeat=True)
TWO = Plan((Task(TaskId("a"), "Count the boats.", "ann"), Task(TaskId("b"), "Count the cats.", "ann")))


class Pausing:
    """A model whose provider wants no calls for so long; `after` calls went well."""

    def __init__(self, wait: float, *replies: str, handle: str = "pausing") -> None:
        self.card = ModelCard(handle)
        self.calls = 0
        self._wait = wait
        self._replies = replies

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self.calls += 1
        if self.calls <= len(self._replies):
            return Reply(self._replies[self.calls - 1])
        raise ModelFailed(Failure("resource", "429: too many requests", self._wait))


def teams(wait: float) -> dict[str, Team]:
    """A team for each thing a supervisor asks a model for; that call is the one that is put off."""
    ann = Worker("ann", "counts boats and cats", model=FINE)
    short = Policy(retry=Retry(attempts=2))
    nested = Team(
        [Worker("eve", "counts", model=Pausing(wait))],
        supervisor=Supervisor(model=FINE, plan=Plan((Task(TaskId("x"), "Count all of it.", "eve"),))),
        name="inner",
        timeout=SECONDS,
    )
    return {
        "planner": Team([ann], supervisor=Supervisor(model=FINE, planner=Pausing(wait)), timeout=SECONDS),
        "router": Team(
            [ann, Worker("bob", "counts boats and cats", model=FINE)],
            supervisor=Supervisor(model=Pausing(wait), strategy=Route(router="model")),
            timeout=SECONDS,
        ),
        "judge": Team([ann], supervisor=Supervisor(model=FINE, judge=Pausing(wait), plan=TWO), timeout=SECONDS),
        "refiner": Team(
            [Worker("ann", model=ScriptedModel([""], repeat=True))],
            supervisor=Supervisor(model=FINE, planner=Pausing(wait), plan=TWO),
            timeout=SECONDS,
            policy=short,
        ),
        "worker": Team(
            [Worker("ann", model=Pausing(wait))], supervisor=Supervisor(model=FINE, plan=TWO), timeout=SECONDS
        ),
        "nested team": Team([nested.as_worker("ann")], supervisor=Supervisor(model=FINE, plan=TWO), timeout=SECONDS),
    }


@pytest.mark.parametrize("wait", [30.0, 59.0, 280.0, 299.0, 301.0, 3600.0, WEEK])
@pytest.mark.parametrize("who", list(teams(0.0)))
def test_a_run_ends_by_its_deadline_whoever_is_told_to_come_back_later(who: str, wait: float) -> None:
    house = Playhouse()
    house.run(teams(wait)[who])
    assert house.now <= SECONDS + GRACE


@pytest.mark.parametrize("who", list(teams(0.0)))
def test_what_comes_back_only_after_the_deadline_is_not_waited_for_at_all(who: str) -> None:
    house = Playhouse()
    entries = house.run(teams(WEEK)[who])
    assert isinstance(entries[-1].event, ev.RunEnded)
    assert house.now < 5.0


def test_a_short_pause_is_waited_for_and_the_run_is_complete() -> None:
    house = Playhouse()
    planner = ScriptedModel([Failure("resource", "429", 40.0), "fine"], repeat=True)
    entries = house.run(
        Team([Worker("ann", model=FINE)], supervisor=Supervisor(model=FINE, judge=planner, plan=TWO), timeout=SECONDS)
    )
    assert isinstance(entries[-1].event, ev.RunEnded)
    assert entries[-1].event.ending == "complete"
    assert 40.0 <= house.now < 60.0


def test_a_retry_that_would_begin_after_the_time_for_work_goes_to_the_fallback_at_once() -> None:
    busy = Worker("ann", model=Pausing(50.0), fallbacks=("bob",))
    team = Team([busy, Worker("bob", model=FINE)], supervisor=Supervisor(model=FINE, plan=TWO), timeout=45.0)
    house = Playhouse()
    entries = house.run(team)
    assert isinstance(entries[-1].event, ev.RunEnded)
    assert entries[-1].event.ending == "complete"
    assert house.now < 5.0


def test_a_tool_that_hangs_ends_with_the_deadline() -> None:
    import asyncio

    @tool(timeout=10_000)
    async def hang() -> str:
        """Never return."""
        await asyncio.sleep(1_000_000)
        return ""

    from chargehand.models.messages import ToolCall

    caller = ScriptedModel([Reply("", (ToolCall("c1", "hang", "{}"),), "tools")], repeat=True)
    house = Playhouse()
    house.run(
        Team([Worker("ann", model=caller, tools=[hang])], supervisor=Supervisor(model=FINE, plan=TWO), timeout=SECONDS)
    )
    assert house.now <= SECONDS + GRACE
