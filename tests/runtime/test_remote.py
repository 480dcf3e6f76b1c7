"""Workers and teams with a queue, where a dispatcher has runs driven elsewhere: all is as if they worked here."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from chargehand.agents.executor import Assignment
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.engine.state import TextKind, Work
from chargehand.engine.value import decode_value
from chargehand.errors import Invalid, RunUnknown, StoreUnavailable
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Journal
from chargehand.journal.store import opened_journal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line
from chargehand.runtime.executor import Done, StepContext, WorkFailed
from chargehand.runtime.runner import Outcome, Runner
from chargehand.runtime.trace import Trace, whole_trace
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model
from tests.runtime.elsewhere import Elsewhere, two_processes

Call = Callable[[Assignment, StepContext], Awaitable[object]]
QUICK = Policy(retry=Retry(attempts=2, base=0.0, ceiling=0.0), refine=False)
RENDER = Plan((Task(TaskId("t1"), "Render the scene.", "hal"),), "none")


def function_team(work: Call, plan: Plan = RENDER, *, budget: Budget | None = None) -> Callable[[], Team]:
    """Makes the team of one process: `hal` works on the queue gpu, `ann` on none."""

    def make() -> Team:
        workers = [
            Worker("hal", "renders", call=work, queue="gpu", fallbacks=["ann"]),
            Worker("ann", "draws", call=work),
        ]
        return Team(workers, supervisor=Supervisor(plan=plan), policy=QUICK, budget=budget or Budget())

    return make


async def start(runner: Runner, team: Team) -> Outcome:
    return await runner.start("r", team.request("Make a film.", time.time()), keep_entries=True)


async def runs_inside(journal: Journal) -> list[str]:
    return await journal.inside("r")


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - the journal has no event for it
            await asyncio.sleep(0.01)


async def test_an_attempt_of_a_worker_with_a_queue_is_a_run_of_that_queue() -> None:
    async def work(assignment: Assignment, _context: StepContext) -> object:
        return {"done": assignment.instruction, "goal": assignment.goal, "task": assignment.task}

    make = function_team(work)
    journal = MemoryJournal()
    async with two_processes(make, journal) as (runner, elsewhere):
        outcome = await start(runner, make())
    assert outcome.ending == "complete"
    expected = {"done": "Render the scene.", "goal": "Make a film.", "task": "t1"}
    assert outcome.results == {"t1": expected}
    ((run, queue),) = elsewhere.begun
    assert queue == "gpu"
    far = await journal.row(run)
    assert far.request is not None
    assert far.request.parent is not None
    assert (far.request.parent.kind, far.request.queue, far.request.parent.nesting) == ("worker", "gpu", 0)


async def test_without_a_dispatcher_a_queue_changes_nothing() -> None:
    async def work(_assignment: Assignment, _context: StepContext) -> object:
        return "done here"

    team = function_team(work)()
    journal = MemoryJournal()
    async with team.executor() as executor:
        outcome = await start(Runner(journal, executor), team)
    assert outcome.ending == "complete"
    assert [row.run for row in await journal.runs()] == ["r"]


async def test_a_worker_elsewhere_gets_its_inputs_as_values_of_any_size_and_its_gaps() -> None:
    long = "x" * 200_000
    seen: list[Assignment] = []

    async def work(assignment: Assignment, _context: StepContext) -> object:
        seen.append(assignment)
        match assignment.task:
            case "big":
                return {"rows": [[1, 2.5], [long]]}
            case "gone":
                raise WorkFailed(Failure("logic", "there is no such scene", permanent=True))
            case _:
                return "done"

    after = (TaskId("big"), Edge(TaskId("gone"), "optional"))
    tasks = (
        Task(TaskId("big"), "Draw much.", "ann"),
        Task(TaskId("gone"), "Find the scene.", "ann"),
        Task(TaskId("t"), "Render it.", "hal", after=after),
    )
    make = function_team(work, Plan(tasks, "none"))
    async with two_processes(make, MemoryJournal()) as (runner, elsewhere):
        outcome = await start(runner, make())
    assert (outcome.ending, len(elsewhere.begun)) == ("partial", 1)
    assert seen[-1].inputs["big"] == {"rows": [[1, 2.5], [long]]}
    assert [gap.message for gap in seen[-1].gaps] == ["there is no such scene"]


async def test_every_item_of_a_list_can_be_done_elsewhere() -> None:
    async def work(assignment: Assignment, _context: StepContext) -> object:
        return ["a", "b", "c"] if assignment.task == "list" else {"of": assignment.inputs}

    tasks = (
        Task(TaskId("list"), "List the scenes.", "ann"),
        Task(TaskId("each"), "Render the scene.", "hal", for_each=TaskId("list")),
    )
    make = function_team(work, Plan(tasks, "none"))
    async with two_processes(make, MemoryJournal()) as (runner, elsewhere):
        outcome = await start(runner, make())
    assert (outcome.ending, len(elsewhere.begun)) == ("complete", 3)
    each = [outcome.state.tasks[TaskId(f"each[{number}]")].result for number in range(3)]
    assert [decode_value(result or b"null") for result in each] == [{"of": {"list": item}} for item in "abc"]


async def test_a_failure_elsewhere_is_tried_again_by_the_rules_of_the_run_and_the_next_attempt_knows_it() -> None:
    seen: list[tuple[str, int, str]] = []

    async def work(assignment: Assignment, _context: StepContext) -> object:
        seen.append((assignment.task, assignment.attempt, assignment.failure))
        if assignment.attempt < 3:
            raise WorkFailed(Failure("network", f"no line {assignment.attempt}"))
        return "done"

    make = function_team(work)
    journal = MemoryJournal()
    async with two_processes(make, journal) as (runner, elsewhere):
        outcome = await start(runner, make())
    assert outcome.ending == "complete"
    assert seen == [("t1", 1, ""), ("t1", 2, "no line 1"), ("t1", 3, "no line 2")]
    assert len(elsewhere.begun) == 2, "the fallback has no queue"


@pytest.mark.parametrize("fails", [1, 2])
async def test_what_an_attempt_elsewhere_changed_is_not_changed_again_here_or_there(fails: int) -> None:
    sent: list[str] = []

    async def work(assignment: Assignment, context: StepContext) -> object:
        async def send(_key: str) -> Done:
            sent.append(assignment.instruction)
            return Done("sent")

        await context.step("send", send, request="scene", effect="effect")
        if assignment.attempt <= fails:  # 1: the second attempt is made elsewhere as well; 2: the third is ann's, here
            raise WorkFailed(Failure("network", "no line"))
        return "done"

    make = function_team(work)
    async with two_processes(make, MemoryJournal()) as (runner, elsewhere):
        outcome = await start(runner, make())
    assert (outcome.ending, len(elsewhere.begun), len(sent)) == ("complete", 2, 1)


@pytest.mark.parametrize("slow", [1, 2])
async def test_an_effect_of_an_attempt_elsewhere_that_ran_out_of_time_is_not_made_again(slow: int) -> None:
    sent: list[str] = []

    async def work(assignment: Assignment, context: StepContext) -> object:
        async def send(_key: str) -> Done:
            sent.append(assignment.instruction)
            return Done("sent")

        async def render(_key: str) -> Done:
            await asyncio.sleep(60 if assignment.attempt <= slow else 0)
            return Done("rendered")

        await context.step("send", send, request="scene", effect="effect")
        return await context.step("render", render, request="scene")  # still open when the time is over

    def make() -> Team:
        workers = [
            Worker("hal", "renders", call=work, queue="gpu", timeout=0.1, fallbacks=["ann"]),
            Worker("ann", "draws", call=work),
        ]
        return Team(workers, supervisor=Supervisor(plan=RENDER), policy=QUICK)

    async with two_processes(make, MemoryJournal()) as (runner, elsewhere):
        outcome = await start(runner, make())
    assert (outcome.ending, len(elsewhere.begun), len(sent)) == ("complete", 2, 1)


@pytest.mark.parametrize(("patience", "seconds", "reason"), [(60.0, 0.3, "deadline"), (0.1, 60.0, "no_results")])
async def test_a_run_whose_worker_elsewhere_has_no_time_left_names_the_time_that_was_over(
    patience: float, seconds: float, reason: str
) -> None:
    async def work(_assignment: Assignment, _context: StepContext) -> object:
        await asyncio.sleep(60)
        return "done"

    def make() -> Team:
        workers = [Worker("hal", "renders", call=work, queue="gpu", timeout=patience)]
        policy = Policy(retry=Retry(attempts=1, base=0.0, ceiling=0.0), refine=False)
        return Team(workers, supervisor=Supervisor(plan=RENDER), policy=policy, budget=Budget(seconds=seconds))

    async with two_processes(make, MemoryJournal()) as (runner, _):
        outcome = await start(runner, make())
    assert (outcome.ending, outcome.reason) == ("failed", reason)


async def test_an_attempt_that_is_stopped_stops_elsewhere() -> None:
    running = asyncio.Event()
    stopped: list[str] = []

    async def work(assignment: Assignment, _context: StepContext) -> object:
        running.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(assignment.task)
            raise
        return "done"

    make = function_team(work)
    journal = MemoryJournal()
    async with two_processes(make, journal) as (runner, elsewhere), asyncio.TaskGroup() as jobs:
        outcome = jobs.create_task(start(runner, make()))
        await running.wait()
        await runner.ask("r", ev.CancelRequested("enough"))
        assert (await outcome).ending == "cancelled"
    assert stopped == ["t1"]
    ((run, event),) = elsewhere.told
    assert isinstance(event, ev.CancelRequested)
    ended = (await journal.row(run)).ended
    assert ended is not None
    assert ended.ending == "cancelled"


@pytest.mark.parametrize("is_driven", [True, False])
async def test_a_run_that_ended_after_a_crash_leaves_nothing_at_work_elsewhere(*, is_driven: bool) -> None:
    running = asyncio.Event()

    async def work(_assignment: Assignment, _context: StepContext) -> object:
        running.set()
        await asyncio.sleep(60)
        return "done"

    make = function_team(work)
    journal = MemoryJournal()
    async with two_processes(make, journal) as (runner, elsewhere):
        async with asyncio.TaskGroup() as jobs:
            outcome = jobs.create_task(start(runner, make()))
            await running.wait()
            outcome.cancel()  # the process of the outer run is stopped: what runs elsewhere goes on
        (run,) = await runs_inside(journal)
        assert (await journal.row(run)).ended is None
        if not is_driven:
            elsewhere.kill(run)

            async def is_left() -> bool:
                return not (await journal.row(run)).held

            await until(is_left)
        assert (await runner.resume("r", ev.CancelRequested("enough"))).ending == "cancelled"

        async def has_ended() -> bool:
            return (await journal.row(run)).ended is not None

        await until(has_ended)
    assert bool(elsewhere.told) == is_driven, "no process is waited for where none drives it"


async def test_a_resumed_run_finds_what_is_at_work_elsewhere_and_nothing_is_done_twice() -> None:
    running = asyncio.Event()
    may_end = asyncio.Event()
    made: list[str] = []

    async def work(_assignment: Assignment, context: StepContext) -> object:
        async def count(_key: str) -> Done:
            made.append("step")
            return Done("counted")

        await context.step("count", count)
        running.set()
        await may_end.wait()
        return "done"

    make = function_team(work)
    journal = MemoryJournal()
    async with two_processes(make, journal) as (runner, elsewhere):
        async with asyncio.TaskGroup() as jobs:
            outcome = jobs.create_task(start(runner, make()))
            await running.wait()
            outcome.cancel()
        (run,) = await runs_inside(journal)
        running.clear()
        elsewhere.kill(run)  # and the other process is stopped as well
        async with asyncio.TaskGroup() as jobs:
            outcome = jobs.create_task(runner.resume("r"))
            await running.wait()
            may_end.set()
        assert outcome.result().ending == "complete"
    assert (made, await runs_inside(journal)) == (["step"], [run])


async def test_a_store_that_is_away_for_a_moment_does_not_begin_the_work_a_second_time() -> None:
    made: list[str] = []

    async def work(assignment: Assignment, _context: StepContext) -> object:
        made.append(assignment.task)
        return "done"

    class Flaky(Elsewhere):
        away = 2

        async def wait(self, run: str) -> None:
            if self.away:
                self.away -= 1
                raise StoreUnavailable("the server does not answer")
            await super().wait(run)

    make = function_team(work)
    journal = MemoryJournal()
    async with two_processes(make, journal, dispatcher=Flaky) as (runner, _elsewhere):
        outcome = await start(runner, make())
    assert (outcome.ending, made, len(await runs_inside(journal))) == ("complete", ["t1"], 1)


async def test_what_a_worker_elsewhere_costs_is_what_the_run_costs_and_no_more_than_it_may() -> None:
    async def work(_assignment: Assignment, context: StepContext) -> object:
        async def call_model(_key: str) -> Done:
            return Done("called", Amount(tokens=30))

        await context.step("ask", call_model, kind="model", reserve=Amount(tokens=40))
        return Done("done", Amount())

    make = function_team(work, budget=Budget(tokens=100_000))
    journal = MemoryJournal()
    async with two_processes(make, journal) as (runner, _elsewhere):
        outcome = await start(runner, make())
    assert (outcome.ending, outcome.state.ledger.spent.tokens) == ("complete", 30)
    (run,) = await runs_inside(journal)
    request = (await journal.row(run)).request
    assert request is not None
    assert 0 < (request.budget.tokens or 0) <= 100_000


# --- questions


class Bank:
    """Makes teams whose clerk, on a queue of its own, pays; and keeps what was paid."""

    def __init__(
        self, *, nested: bool = False, queue: str = "vault", team_queue: str = "", budget: Budget | None = None
    ) -> None:
        self.paid: list[tuple[str, int]] = []
        self.asked: list[Request] = []
        """What its models were asked, in all processes."""
        self._options = (nested, queue, team_queue)
        self._budget = budget or Budget()

    def _work(self, request: Request) -> Line:
        self.asked.append(request)
        return _pays(request)

    def _answer(self, request: Request) -> Line:
        self.asked.append(request)
        return "The answer [o]."

    def make(self) -> Team:
        nested, queue, team_queue = self._options

        @tool(effect="effect", approve=True)
        def pay(supplier: str, euros: int) -> str:
            """Pay a supplier."""
            self.paid.append((supplier, euros))
            return f"paid {supplier}"

        bill = Plan((Task(TaskId("bill"), "Pay Ott 120 euros now.", "clerk"),), "forward")
        clerk = Worker("clerk", "pays", tools=[pay], queue=queue)
        supervisor = Supervisor(model=model(work=self._work), plan=bill, queue=team_queue)
        budget = Budget() if nested else self._budget
        team = Team([clerk], supervisor=supervisor, name="office", budget=budget)
        if not nested:
            return team
        plan = Plan(
            (Task(TaskId("o"), "Have the bill paid now.", "office"),), "merge" if self._budget.calls else "forward"
        )
        supervisor = Supervisor(model=model(answer=self._answer), plan=plan)
        return Team([team.as_worker("office", "pays")], supervisor=supervisor, name="firm", budget=self._budget)


def _pays(request: Request) -> Line:
    last = request.messages[-1]
    return f"I heard: {last.text}" if last.role == "tool" else calls(call("pay", supplier="Ott", euros=120))


@pytest.mark.parametrize("verdict", ["approve", "reject"])
@pytest.mark.parametrize("nested", [False, True])
async def test_what_a_worker_elsewhere_asks_is_asked_here_and_the_answer_reaches_it(
    verdict: str, *, nested: bool
) -> None:
    bank = Bank(nested=nested)
    async with two_processes(bank.make, MemoryJournal()) as (runner, elsewhere):
        outcome = await start(runner, bank.make())
        assert (outcome.ending, bank.paid, len(elsewhere.begun)) == ("needs_input", [], 1)
        question = outcome.state.input
        assert question is not None
        assert question.question is not None
        assert (question.what, question.question.tool) == ("tool", "pay")
        assert question.question.arguments == {"supplier": "Ott", "euros": 120}
        assert question.question.workers == (("office", "clerk") if nested else ("clerk",))
        answer = ev.InputAnswered(question.number, "approve" if verdict == "approve" else "reject", "not now")
        outcome = await runner.resume("r", answer)
    if verdict == "approve":
        assert (outcome.ending, bank.paid) == ("complete", [("Ott", 120)])
        return
    assert (outcome.ending, bank.paid) == ("partial", [])
    assert "not now" in str(outcome.answer)
    [gap] = outcome.gaps
    assert (gap.status, gap.tool, gap.arguments) == ("refused", "pay", {"supplier": "Ott", "euros": 120})


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("team_queue", ["", "offices"])
async def test_what_is_used_elsewhere_around_a_question_is_in_the_ledger_once(*, nested: bool, team_queue: str) -> None:
    bank = Bank(nested=nested, team_queue=team_queue, budget=Budget(calls=10))
    async with two_processes(bank.make, MemoryJournal()) as (runner, _):
        outcome = await start(runner, bank.make())
        assert outcome.state.input is not None
        assert outcome.state.ledger.reserved == NOTHING, "nothing is reserved while a person thinks"
        assert outcome.spent.calls == len(bank.asked) == 1
        outcome = await runner.resume("r", ev.InputAnswered(outcome.state.input.number, "approve"))
    assert outcome.ending == "complete"
    assert outcome.spent.calls == len(bank.asked)
    assert outcome.state.ledger.lost == NOTHING


@pytest.mark.parametrize("clerk_queue", ["", "vault"])
async def test_a_nested_team_with_a_queue_works_elsewhere_and_so_do_its_workers(clerk_queue: str) -> None:
    bank = Bank(nested=True, queue=clerk_queue, team_queue="offices")
    journal = MemoryJournal()
    async with two_processes(bank.make, journal) as (runner, elsewhere):
        outcome = await start(runner, bank.make())
        assert outcome.ending == "needs_input"
        assert outcome.state.input is not None
        outcome = await runner.resume("r", ev.InputAnswered(outcome.state.input.number, "approve"))
    assert (outcome.ending, bank.paid) == ("complete", [("Ott", 120)])
    assert {queue for _, queue in elsewhere.begun} == ({"offices", "vault"} if clerk_queue else {"offices"})
    assert len(await runs_inside(journal)) == (2 if clerk_queue else 1)
    assert bank.make().queues == {"firm", "offices", *([clerk_queue] if clerk_queue else [])}


async def test_the_trace_shows_what_a_worker_did_elsewhere_as_if_it_had_worked_here() -> None:
    async def traced(queue: str) -> Trace:
        bank = Bank(queue=queue)
        journal = MemoryJournal()
        async with two_processes(bank.make, journal) as (runner, _elsewhere):
            outcome = await start(runner, bank.make())
            assert outcome.state.input is not None
            await runner.resume("r", ev.InputAnswered(outcome.state.input.number, "approve"))
        return await whole_trace(journal, "r")

    here = await traced("")
    there = await traced("vault")
    for near, far in zip(here.tasks, there.tasks, strict=True):
        assert [attempt.ending for attempt in far.attempts] == [attempt.ending for attempt in near.attempts]
        for one, other in zip(near.attempts, far.attempts, strict=True):
            assert [(step.name, step.kind, step.used) for step in other.steps] == [
                (step.name, step.kind, step.used) for step in one.steps
            ]
            assert [prompt.messages for prompt in other.prompts] != []
            assert other.began <= min(step.began for step in other.steps)
            assert (other.used, other.runs) == (one.used, [])
    assert there.used == here.used


# --- words


async def test_what_a_worker_elsewhere_says_is_heard_by_who_listens_to_the_run_in_a_third_process(
    postgres_store: str,
) -> None:
    heard: list[tuple[Work, str]] = []
    said = asyncio.Event()

    async def work(_assignment: Assignment, context: StepContext) -> object:
        async with asyncio.timeout(20):
            while not said.is_set():
                if context.heard:
                    context.say("one moment ")
                await asyncio.sleep(0.02)
        return "done"

    def hear(work: Work, text: str, _kind: TextKind) -> None:
        heard.append((work, text))
        said.set()

    make = function_team(work)
    async with (
        opened_journal(postgres_store) as near,
        opened_journal(postgres_store) as far,
        opened_journal(postgres_store) as third,
    ):
        assert third.words is not None
        leave = third.words.subscribe("r", hear)
        async with two_processes(make, near, far_journal=far) as (runner, _elsewhere):
            outcome = await start(runner, make())
        leave()
    assert outcome.ending == "complete"
    assert {work for work, _ in heard} == {Work("attempt", TaskId("t1"), 1)}
    assert heard[0][1].startswith("one moment ")


async def test_what_nobody_listens_to_is_not_said(postgres_store: str) -> None:
    async with opened_journal(postgres_store) as journal:
        words = journal.words
        assert words is not None
        assert words.is_heard("r"), "that is not known yet"

        async def is_silent() -> bool:
            return not words.is_heard("r")

        await until(is_silent)
        async with opened_journal(postgres_store) as other:
            assert other.words is not None
            leave = other.words.subscribe("r", lambda _work, _text, _kind: None)

            async def is_heard() -> bool:
                return words.is_heard("r")

            await until(is_heard)
            leave()


# --- declarations


def test_a_name_that_no_queue_can_have_is_refused() -> None:
    with pytest.raises(Invalid, match="worker 'hal': 'a b' is no name for a queue; use up to 64 letters"):
        Worker("hal", queue="a b")
    with pytest.raises(Invalid, match="the supervisor: 'a/b' is no name for a queue"):
        Supervisor(queue="a/b")


async def test_a_process_without_the_team_inside_says_so() -> None:
    async def work(_assignment: Assignment, _context: StepContext) -> object:
        return "done"

    team = function_team(work)()
    async with team.executor() as executor:
        runner = Runner(MemoryJournal(), executor)
        with pytest.raises(RunUnknown):
            await runner.journal.row("nothing")
        with pytest.raises(Exception, match="there is no team that works as 'hal'; load the team"):
            runner.inside(["hal"])
