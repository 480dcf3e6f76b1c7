"""What a nested team uses around questions to a person is in the ledger of the outer run, once, and within its caps."""

from collections.abc import Mapping, Sequence

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.fold import begin, fold, replay
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Policy
from chargehand.errors import Refused
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Lease
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import ModelCard
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls
from tests.runtime.streams import rows, written

CARD = ModelCard("m", micros_in=0.5, micros_out=2.0, keeps_limit=True)
USED = Amount(tokens=1200, micros=2100, calls=1)
"""What each call uses."""


class Journal(MemoryJournal):
    """A journal that keeps the order in which entries of all runs were written."""

    instant = False

    def __init__(self) -> None:
        super().__init__()
        self.order: list[tuple[str, ev.Entry]] = []

    async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        await super().append(lease, entries)
        self.order.extend((lease.run, entry) for entry in entries)


class House:
    """An outer team whose tasks are done by a nested one that pays, each time with the leave of a person."""

    def __init__(
        self, *, budget: Budget, tasks: int = 2, levels: int = 1, journal: MemoryJournal | None = None
    ) -> None:
        self.journal = journal or Journal()
        self.paid = 0
        self.model = ScriptedModel(self._reply, usage=Usage(200, 1000), micros=USED.micros, card=CARD)

        @tool(effect="effect", approve=True)
        def pay(number: int) -> str:
            """Pay a bill."""
            self.paid += 1
            return f"paid {number}"

        team = self._team([Worker("clerk", "pays", tools=[pay])], "clerk", "inner")
        for level in range(levels - 1):
            team = self._team([team.as_worker("in", "pays")], "in", f"middle{level}")
        bills = [
            Task(
                TaskId(f"t{at}"), f"Pay bill {at}.", "in", after=(Edge(TaskId(f"t{at - 1}"), "optional"),) if at else ()
            )
            for at in range(tasks)
        ]
        self.outer = Team(
            [team.as_worker("in", "pays")],
            supervisor=Supervisor(model=self.model, plan=Plan(tuple(bills), "merge")),
            name="outer",
            journal=self.journal,
            budget=budget,
            policy=Policy(tainted_effects="allow"),
        )

    def _team(self, workers: list[Worker], worker: str, name: str) -> Team:
        plan = Plan((Task(TaskId("bill"), "Pay the bill now.", worker),), "forward")
        supervisor = Supervisor(model=self.model, plan=plan)
        return Team(workers, supervisor=supervisor, name=name, policy=Policy(tainted_effects="allow"))

    def _reply(self, request: Request) -> Line:
        made = sum(message.role == "tool" for message in request.messages)
        if request.tools and not made:
            return calls(call("pay", number=1))
        return Reply("The bill is paid.")

    @property
    def used(self) -> Amount:
        """What the provider was asked for."""
        return USED * len(self.model.requests)

    async def answer_all(self, result: Result) -> Result:
        for _ in range(20):
            if result.ending != "needs_input":
                return result
            assert result.question is not None
            number = result.question.number
            answer = ev.InputAnswered(number, "approve")
            if result.question.what == "effect":
                answer = ev.InputAnswered(number, "done", result="paid 1")
            result = await self.outer.resume("r", answer)
        raise AssertionError("it asks without end")


def highest(entries: Sequence[ev.Entry]) -> Amount:
    """Return the most of each that a run ever had spent or reserved."""
    state = begin(entries[0])
    most = state.ledger.taken
    for entry in entries[1:]:
        fold(state, entry)
        most = most.max(state.ledger.taken)
    return most


@pytest.mark.parametrize(
    "budget",
    [Budget(), Budget(calls=3), Budget(calls=6), Budget(calls=40), Budget(tokens=9_000), Budget(usd=0.02)],
)
@pytest.mark.parametrize("levels", [1, 2])
async def test_a_nested_team_that_asks_costs_what_it_used_and_no_more_than_the_cap(budget: Budget, levels: int) -> None:
    house = House(budget=budget, tasks=4, levels=levels)
    result = await house.answer_all(await house.outer.run("Pay.", run="r"))
    assert result.spent == house.used
    assert result.lost == NOTHING
    assert house.used.within(budget.caps)
    for entries in (await rows(house.journal)).values():
        assert isinstance(entries[0].event, ev.RunRequested)
        assert highest(entries).within(entries[0].event.budget.caps)


async def test_while_a_person_thinks_nothing_is_reserved() -> None:
    house = House(budget=Budget(calls=20), tasks=1)
    result = await house.outer.run("Pay.", run="r")
    assert result.ending == "needs_input"
    for entries in (await rows(house.journal)).values():
        state = begin(entries[0])
        for entry in entries[1:]:
            fold(state, entry)
        assert (state.ledger.reserved, state.ledger.spent) == (NOTHING, USED)


async def test_after_the_answer_a_nested_team_has_only_what_others_left_of_its_share() -> None:
    made = 0

    def reply(request: Request) -> Line:
        nonlocal made
        made += 1
        done = sum(message.role == "tool" for message in request.messages)
        if any(spec.name == "pay" for spec in request.tools) and not done:
            return calls(call("pay", number=1))
        if done < 8 and request.tools:
            return calls(call("note", text=f"line {done}"))
        return Reply("It is done.")

    @tool(effect="idempotent", approve=True)
    def pay(number: int) -> str:
        """Pay a bill."""
        return f"paid {number}"

    @tool(quick=True)
    def note(text: str) -> str:
        """Take a note."""
        return text

    model = ScriptedModel(reply, usage=Usage(200, 1000), micros=USED.micros, card=CARD)
    bill = Plan((Task(TaskId("bill"), "Pay the bill now.", "clerk"),), "forward")
    inner = Team([Worker("clerk", "pays", tools=[pay, note])], supervisor=Supervisor(model=model, plan=bill), name="in")
    tasks = (Task(TaskId("t0"), "Have the bill paid.", "in"), Task(TaskId("t1"), "Note all of it.", "writer"))
    journal = MemoryJournal()
    outer = Team(
        [inner.as_worker("in", "pays"), Worker("writer", "takes notes", tools=[note])],
        supervisor=Supervisor(model=model, plan=Plan(tasks, "forward")),
        journal=journal,
        budget=Budget(calls=12),
    )
    asked = await outer.run("Pay.", run="r")
    assert asked.question is not None
    assert asked.spent.calls == made == 10, "the writer has taken what the team may have used"
    result = await outer.resume("r", ev.InputAnswered(asked.question.number, "approve"))
    assert result.spent.calls == made == 12
    (run,) = await journal.inside("r")
    entries = await journal.read(run)
    assert isinstance(entries[0].event, ev.RunRequested)
    assert entries[0].event.budget.calls == 6
    assert replay(entries).requested.budget.calls == 3


@pytest.mark.parametrize("levels", [1, 2])
async def test_after_a_death_anywhere_the_outer_run_costs_what_was_used_and_lost_calls_as_expected(levels: int) -> None:
    """Each journal is cut as a crash would cut it: in the order in which the entries were written."""
    budget = Budget(calls=30)
    whole = House(budget=budget, tasks=1, levels=levels)
    await whole.answer_all(await whole.outer.run("Pay.", run="r"))
    assert isinstance(whole.journal, Journal)
    order = whole.journal.order
    for at in range(1, len(order)):
        kept: dict[str, list[ev.Entry]] = {}
        for run, entry in order[:at]:
            kept.setdefault(run, []).append(entry)
        house = House(budget=budget, tasks=1, levels=levels, journal=await written(kept))
        try:
            result = await house.answer_all(await house.outer.resume("r"))
        except Refused:
            assert isinstance(kept["r"][-1].event, ev.RunEnded)
            continue
        replies = _replies(kept)
        assert result.spent.calls == replies + result.lost.calls + len(house.model.requests), f"after entry {at}"
        assert result.lost.calls <= 1, f"after entry {at}: one call at a time is under way"


def _replies(runs: Mapping[str, Sequence[ev.Entry]]) -> int:
    """Return how many replies of a model were written down."""
    events = [(run, entry.event) for run, entries in runs.items() for entry in entries]
    models = {
        (run, event.task, event.attempt, event.step)
        for run, event in events
        if isinstance(event, ev.StepStarted) and event.kind == "model"
    }
    finished = {
        (run, event.task, event.attempt, event.step) for run, event in events if isinstance(event, ev.StepFinished)
    }
    answers = [event for _, event in events if isinstance(event, ev.ModelCalled) and event.used == USED]
    return len(models & finished) + len(answers)
