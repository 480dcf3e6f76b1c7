"""A call whose outcome is not known is charged as it was expected to cost, and the result says which part that is."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.fold import replay
from chargehand.engine.plan import Combine, Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import Hear, ModelCard
from chargehand.runtime.runner import Runner
from chargehand.team import Team
from tests.runtime.streams import rows, written

CARD = ModelCard("m", micros_in=0.25, micros_out=2.0, keeps_limit=True)
READ = 300
WROTE = 20
TRUE = Amount(tokens=READ + WROTE, micros=CARD.price(Usage(READ, WROTE)) or 0, calls=1)


class Provider:
    """A model that answers, or only takes calls while it `hangs`."""

    card = CARD

    def __init__(self, *, hangs: bool = False) -> None:
        self.hangs = hangs
        self.calls = 0
        self.called = asyncio.Event()
        self.most = 1
        """After how many calls `called` is set."""

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self.calls += 1
        if self.calls >= self.most:
            self.called.set()
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        return Reply("The chapter is about boats.", usage=Usage(READ, WROTE), micros=TRUE.micros)


def books(provider: Provider, journal: MemoryJournal, budget: Budget, *, combine: Combine = "forward") -> Team:
    tasks = tuple(Task(TaskId(f"t{number}"), f"Read chapter {number}.", "reader") for number in (1, 2, 3))
    return Team(
        [Worker("reader", "reads", model=provider)],
        supervisor=Supervisor(model=provider, plan=Plan(tasks, combine)),
        budget=budget,
        journal=journal,
        policy=Policy(retry=Retry(attempts=1), refine=False),
    )


async def killed(provider: Provider, budget: Budget, *, calls: int, combine: Combine = "forward") -> list[ev.Entry]:
    """Return what is written of a run whose process dies while its last call is under way."""
    journal = MemoryJournal()
    provider.most = calls
    team = books(provider, journal, budget, combine=combine)
    async with asyncio.timeout(10), asyncio.TaskGroup() as jobs:
        run = jobs.create_task(team.run("What is it about?", run="r"))
        await provider.called.wait()
        entries = (await rows(journal))["r"]
        run.cancel()
    return entries


def expected_of(entries: Sequence[ev.Entry]) -> Amount:
    """Return what the calls under way are expected to use together."""
    events = [entry.event for entry in entries]
    begun = [event.expected for event in events if isinstance(event, ev.StepStarted)]
    assert all(amount is not None for amount in begun)
    return sum((amount for amount in begun if amount is not None), NOTHING)


async def test_after_three_lost_calls_the_budget_still_covers_the_run() -> None:
    budget = Budget(usd=0.05)
    entries = await killed(Provider(hangs=True), budget, calls=3)
    reserved = replay(entries).ledger.reserved
    assert reserved.usd > 0.04, "each call reserves the longest reply"
    provider = Provider()
    result = await books(provider, await written({"r": entries}), budget).resume("r")
    assert (result.ending, provider.calls) == ("complete", 3)
    assert result.lost == expected_of(entries)
    assert result.spent == result.lost + TRUE * 3
    assert result.trace().lost == result.lost


async def test_a_reply_is_expected_to_be_as_long_as_those_before_it() -> None:
    provider = Provider()
    team = books(provider, MemoryJournal(), Budget(usd=0.05), combine="merge")
    result = await team.run("What is it about?")
    steps = [entry.event for entry in result.entries if isinstance(entry.event, ev.StepStarted)]
    duties = [entry.event for entry in result.entries if isinstance(entry.event, ev.SupervisionStarted)]
    first = steps[0].expected
    assert first is not None
    last = duties[-1].expected
    assert last is not None
    assert result.lost == NOTHING
    assert last.micros < first.micros, "short replies were seen meanwhile"


async def test_a_lost_call_of_the_supervisor_costs_what_it_is_expected_to_and_the_answer_is_still_written() -> None:
    budget = Budget(usd=0.03)

    class SlowWriter(Provider):
        async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
            self.hangs = self.calls >= 3
            return await super().reply(request, hear)

    entries = await killed(SlowWriter(), budget, calls=4, combine="merge")
    held = replay(entries)
    provider = Provider()
    result = await books(provider, await written({"r": entries}), budget, combine="merge").resume("r")
    assert (result.ending, provider.calls) == ("complete", 1)
    assert result.lost.calls == 1
    assert 0 < result.lost.micros < held.ledger.reserved.micros
    assert result.spent == result.lost + TRUE * 4


@pytest.mark.parametrize("how", ["cancel", "stop", "timeout"])
async def test_a_call_that_is_cut_off_costs_what_it_is_expected_to(how: str) -> None:
    provider = Provider(hangs=True)
    provider.most = 3
    journal = MemoryJournal()
    team = books(provider, journal, Budget(usd=0.05))
    if how == "timeout":
        team = team.bounded(timeout=0.3)
    async with team.executor() as executor, asyncio.timeout(10), asyncio.TaskGroup() as jobs:
        runner = Runner(journal, executor)
        run = jobs.create_task(runner.start("r", team.request("What is it about?", time.time())))
        await provider.called.wait()
        if how == "cancel":
            await runner.ask("r", ev.CancelRequested("enough"))
        if how == "stop":
            run.cancel()
    entries = (await rows(journal))["r"]
    if how == "stop":
        provider.hangs = False
        await books(provider, journal, Budget(usd=0.05)).resume("r")
        entries = (await rows(journal))["r"]
    ledger = replay(entries).ledger
    lost = [entry.event for entry in entries if isinstance(entry.event, ev.StepStarted)][:3]
    assert ledger.lost == expected_of([ev.Entry(0, 0.0, event) for event in lost])
    assert ledger.spent == ledger.lost + (TRUE * 3 if how == "stop" else NOTHING)


@pytest.mark.parametrize("budget", [Budget(), Budget(calls=20), Budget(usd=0.2)])
@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_a_nested_team_that_is_stopped_costs_what_it_used(how: str, budget: Budget) -> None:
    class SlowAtLast(Provider):
        async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
            self.hangs = self.calls >= 2
            return await super().reply(request, hear)

    provider = SlowAtLast()
    provider.most = 3
    journal = MemoryJournal()
    tasks = [
        Task(TaskId(f"t{at}"), f"Read chapter {at}.", "reader", after=(TaskId(f"t{at - 1}"),) if at > 1 else ())
        for at in (1, 2, 3)
    ]
    inner = Team(
        [Worker("reader", "reads", model=provider)],
        supervisor=Supervisor(model=provider, plan=Plan(tuple(tasks), "forward")),
        name="readers",
    )
    outer = Team(
        [inner.as_worker("readers", "reads")],
        supervisor=Supervisor(model=provider, plan=Plan((Task(TaskId("o"), "Read it all.", "readers"),), "forward")),
        budget=budget,
        journal=journal,
        timeout=1.0 if how == "timeout" else 300.0,
    )
    async with outer.executor() as executor, asyncio.timeout(20), asyncio.TaskGroup() as jobs:
        runner = Runner(journal, executor)
        jobs.create_task(runner.start("r", outer.request("What is it about?", time.time())))
        await provider.called.wait()
        if how == "cancel":
            await runner.ask("r", ev.CancelRequested("enough"))
    runs = await rows(journal)
    ledger = replay(runs["r"]).ledger
    (inside,) = [replay(entries).ledger for run, entries in runs.items() if run != "r"]
    assert ledger.spent == inside.spent == TRUE * 2 + inside.lost
    assert ledger.lost == inside.lost
    assert ledger.lost.calls == (1 if ledger.capped else 0)


def test_a_journal_that_does_not_say_what_was_expected_is_charged_what_was_reserved() -> None:
    reserve = Amount(tokens=9_000, micros=16_000, calls=1)
    task = Task(TaskId("t1"), "Read.", "reader")
    team = books(Provider(), MemoryJournal(), Budget(usd=0.05))
    requested = team.request("Read.", 0.0)
    events = (
        requested,
        ev.AttemptStarted(task.id, 1, "reader", 60.0),
        ev.StepStarted(task.id, 1, 1, "model", "model", reserve=reserve),
        ev.RunResumed(2),
    )
    ledger = replay([ev.Entry(seq, float(seq), event) for seq, event in enumerate(events, 1)]).ledger
    assert (ledger.spent, ledger.lost, ledger.reserved) == (reserve, reserve, NOTHING)
