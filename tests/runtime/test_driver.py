"""What a person may rely on when a run is carried out, told on virtual time."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest
from msgspec import structs

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.failure import FailureKind
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Limits, Policy, Retry
from chargehand.engine.roster import Agent, Match, Roster
from chargehand.errors import Invalid, PlanInvalid, Refused
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Lease
from chargehand.runtime.executor import Done, Executor, Proposal, Refined, StepContext, WorkFailed
from tests.requests import request
from tests.virtual import NOW, Stage

CALL = Amount(calls=1, micros=10)


def task(name: str, *after: str | Edge, worker: str = "worker", **more: object) -> Task:
    needs = tuple(one if isinstance(one, Edge) else TaskId(one) for one in after)
    made = Task(TaskId(name), f"carry out {name} of the work", worker, after=needs)
    return structs.replace(made, **more)


def plan(*tasks: Task, combine: str = "none") -> Plan:
    return structs.replace(Plan(tasks), combine=combine)


def fails(kind: FailureKind = "logic", **more: object) -> Move:
    return structs.replace(Move(fail=kind, message="no luck"), **more)


# --- retries


def test_a_transient_failure_is_retried_unchanged_after_a_wait() -> None:
    stage = Stage(ScriptedExecutor(Script({"a": (fails("network"), fails("network"), Move(result=1))})))
    found = stage.start(request(plan(task("a"))))
    assert found.ending == "complete"
    assert stage.events(ev.TaskRefined) == []
    waits = [one.after for one in stage.events(ev.RetryScheduled)]
    assert NOW < waits[0] <= NOW + 1.0
    assert waits[0] < waits[1] <= waits[0] + 2.0


def test_a_logic_failure_is_refined_with_the_error_in_view() -> None:
    stage = Stage(ScriptedExecutor(Script({"a": (fails("logic"), Move())}, refined={"a": "carry out a with care"})))
    found = stage.start(request(plan(task("a"))))
    assert found.results[TaskId("a")] == {"did": "carry out a with care"}
    assert len(stage.events(ev.AttemptStarted)) == 2


def test_three_attempts_then_the_fallbacks_in_order_then_the_end() -> None:
    roster = Roster((Agent("worker", fallbacks=("second", "third")), Agent("second"), Agent("third")))
    stage = Stage(ScriptedExecutor(Script({"a": (fails("timeout"),)})))
    found = stage.start(request(plan(task("a")), roster))
    assert [one.worker for one in stage.events(ev.AttemptStarted)] == ["worker"] * 3 + ["second", "third"]
    assert (found.ending, found.reason) == ("failed", "no_results")


def test_a_long_retry_after_sends_the_task_to_somebody_else() -> None:
    roster = Roster((Agent("worker", fallbacks=("second",)), Agent("second")))
    stage = Stage(ScriptedExecutor(Script({"a": (fails("resource", retry_after=3600.0), Move(result=1))})))
    assert stage.start(request(plan(task("a")), roster)).ending == "complete"
    assert [one.worker for one in stage.events(ev.AttemptStarted)] == ["worker", "second"]
    assert stage.loop.time() == NOW


def test_a_worker_that_hangs_is_given_up_in_time() -> None:
    roster = Roster((Agent("worker", timeout=30.0),))
    stage = Stage(ScriptedExecutor(Script({"a": (Move(seconds=9999.0), Move(result=1))})))
    assert stage.start(request(plan(task("a")), roster)).ending == "complete"
    assert [one.failure.kind for one in stage.events(ev.AttemptFailed)] == ["timeout"]


def test_a_failing_worker_is_left_alone_for_a_while() -> None:
    tasks = [task(f"t{number}") for number in range(6)]
    policy = Policy(retry=Retry(attempts=1), limits=Limits(width=1), breaking=Breaking(consecutive=3, open=30.0))
    moves = {f"t{number}": (fails("network", permanent=True),) for number in range(3)}
    stage = Stage(ScriptedExecutor(Script(moves)))
    found = stage.start(request(plan(*tasks), policy=policy))
    starts = {
        entry.event.task: entry.at for entry in stage.entries["run"] if isinstance(entry.event, ev.AttemptStarted)
    }
    assert starts[TaskId("t2")] == NOW
    assert starts[TaskId("t3")] == NOW + 30.0
    assert [one.probes for one in stage.events(ev.AttemptStarted)][3] == ("worker:worker",)
    assert found.ending == "partial"


# --- joins and lists


def test_a_quorum_goes_ahead_when_enough_have_answered() -> None:
    sources = [task(f"s{number}") for number in range(4)]
    edges = [Edge(one.id, "quorum") for one in sources]
    moves = {"s0": (Move(seconds=1.0, result=0),), "s1": (Move(seconds=2.0, result=1),), "s2": (Move(seconds=50.0),)}
    stage = Stage(ScriptedExecutor(Script({**moves, "s3": (fails("logic", permanent=True),)})))
    found = stage.start(request(plan(*sources, task("join", *edges, quorum=2))))
    assert found.results[TaskId("join")] == {"did": "carry out join of the work", "from": {"s0": 0, "s1": 1}}
    joined = next(
        e.at for e in stage.entries["run"] if isinstance(e.event, ev.AttemptStarted) and e.event.task == "join"
    )
    assert joined == NOW + 2.0


def test_a_quorum_that_cannot_be_reached_is_skipped_with_the_cause() -> None:
    stage = Stage(ScriptedExecutor(Script({"a": (fails("logic", permanent=True),)})))
    join = task("join", Edge(TaskId("a"), "quorum"), Edge(TaskId("b"), "quorum"), quorum=2)
    found = stage.start(request(plan(task("a"), task("b"), join)))
    assert {gap.task: gap.because for gap in found.gaps} == {"a": "", "join": "a"}


def test_a_task_is_repeated_over_a_list_and_folded_back() -> None:
    moves = {"list": (Move(result=["x", "y", "z"]),), "each[1]": (fails("logic", permanent=True),)}
    stage = Stage(ScriptedExecutor(Script(moves)))
    each = task("each", for_each=TaskId("list"), at_least=2)
    found = stage.start(request(plan(task("list"), each, task("sum", "each"))))
    assert found.results[TaskId("each[0]")] == {"did": "carry out each of the work", "from": {"list": "x"}}
    item = {"did": "carry out each of the work", "from": {"list": "x"}}
    given = [item, None, {**item, "from": {"list": "z"}}]
    assert found.results[TaskId("sum")] == {"did": "carry out sum of the work", "from": {"each": given}}
    assert {gap.task for gap in found.gaps} == {"each[1]"}


def test_an_item_whose_source_failed_is_skipped_with_its_cause_and_stays_a_gap_in_the_list() -> None:
    moves = {"list": (Move(result=["x", "y", "z"]),), "price[1]": (fails("logic", permanent=True),)}
    stage = Stage(ScriptedExecutor(Script(moves)))
    price = task("price", for_each=TaskId("list"))
    order = task("order", for_each=TaskId("price"))
    found = stage.start(request(plan(task("list"), price, order, task("sum", "order"))))
    assert TaskId("order[1]") not in {one.task for one in stage.events(ev.AttemptStarted)}
    assert {gap.task: (gap.status, gap.reason, gap.because) for gap in found.gaps} == {
        "price[1]": ("failed", "logic", ""),
        "order[1]": ("skipped", "input", "price[1]"),
    }
    ordered = {"did": "carry out order of the work", "from": {"price": "carry out price of the work"}}
    summed = {"did": "carry out sum of the work", "from": {"order": [ordered, None, ordered]}}
    assert found.results[TaskId("sum")] == summed


def test_too_few_items_with_a_source_fail_the_task_that_needs_more() -> None:
    moves = {"list": (Move(result=["x", "y"]),), "price[1]": (fails("logic", permanent=True),)}
    stage = Stage(ScriptedExecutor(Script(moves)))
    price = task("price", for_each=TaskId("list"))
    order = task("order", for_each=TaskId("price"), at_least=2)
    found = stage.start(request(plan(task("list"), price, order)))
    assert {gap.task: gap.status for gap in found.gaps} == {
        "price[1]": "failed",
        "order": "failed",
        "order[1]": "skipped",
    }


@pytest.mark.parametrize(("result", "said"), [("text", "no list"), (list(range(101)), "at most 100")])
def test_what_cannot_be_repeated_over_fails_that_task_alone(result: object, said: str) -> None:
    stage = Stage(ScriptedExecutor(Script({"list": (Move(result=result),)})))
    found = stage.start(request(plan(task("list"), task("each", for_each=TaskId("list")), task("other"))))
    assert [said in gap.message for gap in found.gaps] == [True]
    assert found.ending == "partial"


def test_the_longest_remaining_path_goes_first() -> None:
    tasks = [task("short"), task("long"), task("longer", "long", seconds=500.0)]
    stage = Stage(ScriptedExecutor(Script()))
    stage.start(request(plan(*tasks), policy=Policy(limits=Limits(width=1))))
    assert [one.task for one in stage.events(ev.AttemptStarted)] == ["long", "longer", "short"]


def test_the_idlest_of_those_with_the_tags_takes_it() -> None:
    roster = Roster(
        (Agent("ann", tags=("x", "y")), Agent("ben", tags=("x",), concurrency=1), Agent("cat", tags=("z",)))
    )
    tasks = [task(f"t{n}", worker="", match=Match(all=("x",))) for n in range(4)]
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(seconds=1.0))))
    stage.start(request(plan(*tasks), roster))
    assert [one.worker for one in stage.events(ev.AttemptStarted)] == ["ann", "ben", "ann", "ann"]


# --- money and time


def test_the_cap_is_never_passed_and_the_answer_keeps_its_share() -> None:
    roster = Roster((Agent("worker", estimate=CALL),), supervision=CALL)
    budget = Budget(calls=4, floor=Amount(calls=1))
    executor = ScriptedExecutor(Script(otherwise=Move(used=CALL), answers=(Move(used=CALL),)))
    stage = Stage(executor)
    found = stage.start(request(plan(*(task(f"t{n}") for n in range(6)), combine="merge"), roster, budget=budget))
    assert found.spent == Amount(calls=4, micros=40)
    assert (found.ending, found.reason) == ("partial", "budget")
    assert found.answer is not None
    assert len(found.gaps) == 3


def test_usage_that_is_missing_or_absurd_is_charged_as_reserved() -> None:
    for used in (None, Amount(calls=-5)):
        stage = Stage(ScriptedExecutor(Script(otherwise=Move(used=used))))
        found = stage.start(request(plan(task("a")), Roster((Agent("worker", estimate=CALL),))))
        assert found.spent == CALL


def test_at_the_deadline_what_there_is_becomes_the_answer() -> None:
    stage = Stage(ScriptedExecutor(Script({"slow": (Move(seconds=500.0),)})))
    found = stage.start(
        request(plan(task("quick"), task("slow"), task("after", "slow"), combine="merge")), seconds=100.0
    )
    assert (found.ending, found.reason) == ("partial", "deadline")
    assert "[quick]" in str(found.answer)
    assert {gap.task: gap.reason for gap in found.gaps} == {"slow": "deadline", "after": "deadline"}
    assert stage.loop.time() <= NOW + 100.0


def test_a_wall_time_budget_is_a_deadline() -> None:
    stage = Stage(ScriptedExecutor(Script({"slow": (Move(seconds=500.0),)})))
    assert stage.start(request(plan(task("slow")), budget=Budget(seconds=50.0))).reason == "deadline"
    assert stage.loop.time() <= NOW + 50.0


@pytest.mark.parametrize("late", [0.0, 0.5, 30.0])
def test_a_time_limit_that_ran_out_before_the_run_began_ends_it_like_any_other(late: float) -> None:
    stage = Stage(ScriptedExecutor(Script()))
    asked = structs.replace(request(plan(task("a"), task("b", "a"))), deadline=NOW - late)
    found = stage.play(lambda: stage.driver.start("run", asked))
    assert (found.ending, found.reason) == ("failed", "deadline")
    assert {gap.task: gap.reason for gap in found.gaps} == {"a": "deadline", "b": "deadline"}


# --- people


def test_a_plan_waits_for_approval_and_says_so() -> None:
    stage = Stage(ScriptedExecutor(Script()))
    found = stage.start(request(plan(task("a")), policy=Policy(approve=True)))
    assert found.ending == "needs_input"
    assert found.question is not None
    assert stage.events(ev.AttemptStarted) == []
    assert stage.resume(ev.InputAnswered(found.question.number, "approve")).ending == "complete"


def test_an_edited_plan_is_checked_and_then_carried_out() -> None:
    stage = Stage(ScriptedExecutor(Script()))
    found = stage.start(request(plan(task("a")), policy=Policy(approve=True)))
    assert found.question is not None
    bad = ev.InputAnswered(found.question.number, "edit", plan=plan(task("b", "nowhere")))
    with pytest.raises(PlanInvalid, match="nowhere"):
        stage.resume(bad)
    done = stage.resume(ev.InputAnswered(found.question.number, "edit", plan=plan(task("b"), task("c", "b"))))
    assert done.statuses.keys() == {"b", "c"}
    assert done.ending == "complete"


def test_a_rejected_plan_goes_back_to_the_planner_with_the_reason() -> None:
    seen: list[str] = []

    class Planner(ScriptedExecutor):
        async def plan(self, brief: Brief, context: StepContext) -> Proposal:
            seen.extend(finding.message for finding in brief.findings)
            return await super().plan(brief, context)

    stage = Stage(Planner(Script(plans=(plan(task("a")), plan(task("b"))))))
    found = stage.start(request(policy=Policy(approve=True)))
    assert found.question is not None
    found = stage.resume(ev.InputAnswered(found.question.number, "reject", "too expensive"))
    assert seen == ["too expensive"]
    assert found.question is not None
    assert stage.resume(ev.InputAnswered(found.question.number, "approve")).statuses.keys() == {"b"}


def test_an_open_question_outlives_the_deadline_and_its_answer_goes_on() -> None:
    stage = Stage(ScriptedExecutor(Script()))
    days = 3 * 24 * 3600.0
    asked = structs.replace(request(plan(task("a")), policy=Policy(approve=True)), deadline=NOW + 60.0)

    async def story() -> ev.Ending:
        async with asyncio.TaskGroup() as jobs:
            running = jobs.create_task(stage.driver.start("run", asked, wait_for_input=True))
            await stage.after(days, ev.InputAnswered(1, "approve"))()
        return running.result().ending

    assert stage.play(story) == "complete"
    assert days <= stage.loop.time() - NOW <= days + 60.0


def test_cancel_reaches_the_worker_and_keeps_what_was_done() -> None:
    cancelled: list[str] = []

    class Slow(ScriptedExecutor):
        async def attempt(self, brief: Brief, context: StepContext) -> Done:
            try:
                return await super().attempt(brief, context)
            except asyncio.CancelledError:
                cancelled.append(brief.work.task)
                raise

    stage = Stage(Slow(Script({"slow": (Move(seconds=500.0),)})))

    async def story() -> ev.Ending:
        async with asyncio.TaskGroup() as jobs:
            asked = structs.replace(request(plan(task("quick"), task("slow"))), deadline=NOW + 600)
            run = jobs.create_task(stage.driver.start("run", asked))
            await stage.after(5.0, ev.CancelRequested("enough"))()
        return run.result().ending

    assert stage.play(story) == "cancelled"
    assert cancelled == ["slow"]
    assert stage.loop.time() == NOW + 5.0


def test_a_paused_run_starts_nothing_new() -> None:
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(seconds=10.0))))

    async def story() -> None:
        async with asyncio.TaskGroup() as jobs:
            asked = structs.replace(request(plan(task("a"), task("b", "a"))), deadline=NOW + 600)
            jobs.create_task(stage.driver.start("run", asked))
            await stage.after(5.0, ev.PauseSet(paused=True))()
            await stage.after(50.0, ev.PauseSet(paused=False))()

    stage.play(story)
    started = [entry.at - NOW for entry in stage.entries["run"] if isinstance(entry.event, ev.AttemptStarted)]
    assert started == [0.0, 55.0]


def test_whoever_asks_too_late_is_told_so_and_not_cancelled() -> None:
    class SlowJournal(MemoryJournal):
        instant = False

        async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
            await asyncio.sleep(1.0)
            await super().append(lease, entries)

    stage = Stage(ScriptedExecutor(Script()))
    stage.driver._journal = SlowJournal()

    async def story() -> None:
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(stage.driver.start("run", structs.replace(request(plan(task("a"))), deadline=NOW + 600)))
            await asyncio.sleep(1.5)  # its end is being written
            with pytest.raises(Refused, match="no longer driven here"):
                await stage.driver.ask("run", ev.PauseSet(paused=True))

    stage.play(story)


class Tidying(Executor):
    """A worker that puts things away when it is told to stop, which takes a while, and may want to note that it did."""

    def __init__(self, *, step: bool) -> None:
        self.step = step
        self.heard = ""
        self.tidies = asyncio.Event()

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        raise AssertionError("its plan is given")

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        try:
            await asyncio.sleep(1e6)
        finally:
            self.tidies.set()
            await asyncio.sleep(10.0)
            if self.step:
                try:
                    await context.step("tidy", _done)
                except Refused as error:
                    self.heard = str(error)
        return Done(1)

    async def refine(self, brief: Brief, context: StepContext) -> Refined:
        raise AssertionError("it fails once")

    async def answer(self, brief: Brief, context: StepContext) -> Done:
        raise AssertionError("nobody wants one")


async def _done(_: str) -> Done:
    return Done("done")


@pytest.mark.parametrize("step", [False, True], ids=["somebody else asks", "its worker asks"])
def test_whoever_asks_while_workers_put_things_away_is_told_so_and_nobody_waits_for_ever(step: bool) -> None:
    executor = Tidying(step=step)
    stage = Stage(executor)
    stage.driver._journal = _NotAtOnce()

    async def story() -> None:
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(stage.driver.start("run", structs.replace(request(plan(task("a"))), deadline=NOW + 60)))
            await executor.tidies.wait()
            await asyncio.sleep(5.0)
            with pytest.raises(Refused, match="no longer driven here"):
                await stage.driver.ask("run", ev.CancelRequested("enough"))

    stage.play(story)
    assert bool(executor.heard) == step


class _NotAtOnce(MemoryJournal):
    """Like one on disk: what it is told is written when the loop gets round to it."""

    instant = False


# --- planners


class Rounds(Executor):
    """Adds one task at a time and looks at what came of the last."""

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        number = len(brief.tasks)
        if number == 3:
            return Proposal(())
        return Proposal((task(f"t{number}"),), "none", closed=False)

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        return Done(brief.instruction)

    async def refine(self, brief: Brief, context: StepContext) -> Refined:
        return Refined(brief.instruction)

    async def answer(self, brief: Brief, context: StepContext) -> Done:
        return Done("")


def test_an_open_plan_is_asked_for_more_until_it_is_closed() -> None:
    stage = Stage(Rounds())
    assert stage.start(request()).statuses.keys() == {"t0", "t1", "t2"}
    assert [one.why for one in stage.events(ev.SupervisionStarted)] == ["first", "more", "more", "more"]


def test_tasks_start_while_the_planner_is_still_writing() -> None:
    class Streaming(Rounds):
        async def plan(self, brief: Brief, context: StepContext) -> Proposal:
            await context.grow([task("early")])
            await asyncio.sleep(60.0)
            return Proposal((task("late", "early"),), "none")

    stage = Stage(Streaming())
    assert stage.start(request()).ending == "complete"
    started = {e.event.task: e.at - NOW for e in stage.entries["run"] if isinstance(e.event, ev.AttemptStarted)}
    assert started == {"early": 0.0, "late": 60.0}


def test_a_bad_plan_goes_back_in_words_three_times_and_then_the_run_fails() -> None:
    stage = Stage(ScriptedExecutor(Script(plans=(plan(task("a", "b"), task("b", "a")),))))
    found = stage.start(request(roster=Roster((Agent("worker"), Agent("bob")))))
    assert (found.ending, found.reason) == ("failed", "no_plan")
    rejections = stage.events(ev.SupervisionFailed)
    assert len(rejections) == 3
    assert rejections[0].findings[0].code == "cycle"
    assert "a" in rejections[0].findings[0].message


def test_a_replan_must_change_something_and_closes_the_gap() -> None:
    first = plan(task("a"))
    same = plan(task("a2", instruction="carry out a of the work"))
    other = plan(task("a3", instruction="look it up elsewhere instead", replaces=TaskId("a")))
    moves = {"a": (fails("logic", permanent=True),)}
    stage = Stage(ScriptedExecutor(Script(moves, plans=(first, same, same, other))))
    found = stage.start(request(policy=Policy(limits=Limits(replans=1))))
    assert [one.code for event in stage.events(ev.SupervisionFailed) for one in event.findings] == ["unchanged"] * 2
    assert (found.ending, found.gaps) == ("complete", ())


# --- steps, effects and crashes


class Patient(Rounds):
    """One call that takes longer than any process lives; `begun` counts how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        self.begun += 1
        await asyncio.sleep(100.0)
        return Done("at last")


class Killed(BaseException):
    """The process is gone. Not an Exception: nobody may handle it."""


class _Dying(MemoryJournal):
    """Writes nothing any more once its process is dead."""

    dead = False

    def _append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        if self.dead:
            raise Killed
        super()._append(lease, entries)


def _interrupted(stage: Stage, times: int, *, killed: bool) -> None:
    """Drive the run for a minute and end the process, again and again."""
    journal = _Dying()
    stage.driver._journal = journal

    async def story() -> None:
        for life in range(times):
            patient = structs.replace(request(plan(task("a"))), deadline=NOW + 86_400.0)
            driving = stage.driver.start("run", patient) if life == 0 else stage.driver.resume("run", steal=True)
            job = asyncio.get_running_loop().create_task(driving)
            await asyncio.sleep(60.0)
            journal.dead = killed
            job.cancel()
            with contextlib.suppress(asyncio.CancelledError, Killed):
                await job
            journal.dead = False

    stage.play(story)


@pytest.mark.parametrize("times", [1, 3, 10])
def test_orderly_stops_do_not_use_up_an_attempt(times: int) -> None:
    executor = Patient()
    stage = Stage(executor)
    _interrupted(stage, times, killed=False)
    found = stage.resume()
    assert (found.ending, found.results, executor.begun) == ("complete", {"a": "at last"}, times + 1)
    assert {one.attempt for one in stage.events(ev.AttemptStarted)} == {1}


@pytest.mark.parametrize("waits_to_retry", [False, True])
def test_the_time_between_an_orderly_stop_and_the_resume_does_not_count(waits_to_retry: bool) -> None:
    stage = Stage(
        ScriptedExecutor(Script({"a": (Move(fail="network", retry_after=40.0), Move("a")), "b": (Move("b"),)}))
    )
    if not waits_to_retry:
        stage = Stage(ScriptedExecutor(Script({"a": (Move("a", seconds=40.0),), "b": (Move("b"),)})))
    asked = structs.replace(request(plan(task("a"), task("b", "a"))), deadline=NOW + 100)

    async def story() -> None:
        job = asyncio.get_running_loop().create_task(stage.driver.start("run", asked))
        await asyncio.sleep(20.0)
        job.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await job
        await asyncio.sleep(86_400.0)

    stage.play(story)
    outcome = stage.resume()
    assert (outcome.ending, outcome.results) == ("complete", {"a": "a", "b": "b"})


def test_an_attempt_that_its_process_dies_of_is_given_up_in_the_end() -> None:
    executor = Patient()
    stage = Stage(executor)
    _interrupted(stage, Limits().resumes + 1, killed=True)
    found = stage.resume()
    assert (found.ending, executor.begun) == ("failed", Limits().resumes + 1)
    assert found.gaps[0].message == f"the process died {Limits().resumes + 1} times during this attempt"


def test_what_was_reported_before_an_orderly_stop_is_kept() -> None:
    class Sent(Rounds):
        sent = 0

        async def attempt(self, brief: Brief, context: StepContext) -> Done:
            await context.step("send", self.send, effect="effect")
            return Done("sent")

        async def send(self, _key: str) -> Done:
            self.sent += 1
            asyncio.get_running_loop().call_soon(stop)
            return Done("ok")

    executor = Sent()
    stage = Stage(executor)
    stage.driver._journal = _NotAtOnce()
    job: asyncio.Task[object] | None = None

    def stop() -> None:
        assert job is not None
        job.cancel()

    async def story() -> None:
        nonlocal job
        job = asyncio.get_running_loop().create_task(
            stage.driver.start("run", structs.replace(request(plan(task("a"))), deadline=NOW + 600))
        )
        with contextlib.suppress(asyncio.CancelledError):
            await job

    stage.play(story)
    assert stage.resume().ending == "complete"
    assert executor.sent == 1


class Mailer(Rounds):
    """Sends one letter, then fails once."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        await context.step("send", self.send, request="to: all", effect="effect")
        if brief.work.number == 1:
            raise WorkFailed(ev.Failure("logic", "forgot the date"))
        return Done("sent")

    async def send(self, key: str) -> Done:
        self.sent.append(key)
        return Done("ok")


def test_an_effect_is_not_repeated_by_the_next_attempt() -> None:
    executor = Mailer()
    stage = Stage(executor)
    assert stage.start(request(plan(task("mail")))).ending == "complete"
    assert len(executor.sent) == 1


def test_an_effect_that_failed_half_way_is_uncertain_and_never_repeated() -> None:
    class Cut(Mailer):
        async def send(self, key: str) -> Done:
            self.sent.append(key)
            raise ConnectionError("cut off")

    executor = Cut()
    stage = Stage(executor)
    found = stage.start(request(plan(task("mail")), policy=Policy(uncertain="fail")))
    assert (found.ending, [(gap.reason, gap.tool) for gap in found.gaps]) == ("failed", [("uncertain", "send")])
    assert len(executor.sent) == 1


def test_a_person_may_say_what_became_of_an_uncertain_effect() -> None:
    class Cut(Mailer):
        async def send(self, key: str) -> Done:
            raise ConnectionError("cut off")

    stage = Stage(Cut())
    found = stage.start(request(plan(task("mail"))))
    assert found.question is not None
    assert (found.question.what, found.question.task) == ("effect", "mail")
    done = stage.resume(ev.InputAnswered(found.question.number, "done", result="sent by hand"))
    assert done.ending == "complete"
    assert not stage.events(ev.AttemptAbandoned)


def test_a_step_the_budget_does_not_cover_fails_its_task_and_spends_nothing() -> None:
    class Greedy(Mailer):
        async def attempt(self, brief: Brief, context: StepContext) -> Done:
            await context.step("ask", self.send, reserve=Amount(calls=50))
            return Done("never")

    executor = Greedy()
    stage = Stage(executor)
    found = stage.start(request(plan(task("a")), budget=Budget(calls=10)))
    assert [gap.reason for gap in found.gaps] == ["budget"]
    assert (executor.sent, found.spent.calls) == ([], 0)


# --- forks


def test_a_fork_does_again_only_what_changed_and_what_hangs_on_it() -> None:
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(used=CALL))))
    old = plan(task("a"), task("b"), task("c", "a"), task("d", "b"), task("e", "c", "d"))
    stage.start(request(old), "first")
    new = plan(task("a"), task("b", instruction="carry out b quite differently"), *old.tasks[2:])
    asked = structs.replace(request(new), deadline=NOW + 600)
    found = stage.play(lambda: stage.driver.fork("first", "second", asked))
    assert [one.task for one in stage.events(ev.ResultReused, "second")] == ["a", "c"]
    assert {one.task for one in stage.events(ev.AttemptStarted, "second")} == {"b", "d", "e"}
    assert (found.ending, found.spent.calls) == ("complete", 3)


def test_a_fork_under_another_worker_does_it_again() -> None:
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(used=CALL))))
    stage.start(request(plan(task("a"))), "first")
    asked = structs.replace(request(plan(task("a")), Roster((Agent("worker", spec="new prompt"),))), deadline=NOW + 600)
    assert stage.play(lambda: stage.driver.fork("first", "second", asked)).spent.calls == 1


def test_a_fork_with_a_plan_for_the_same_goal_knows_what_nobody_could_do() -> None:
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(used=CALL))))
    same = structs.replace(request(plan(task("a"))), deadline=NOW + 600)
    knowing = ev.ResultsOffered("before", (), ("nobody flies",))
    stage.play(lambda: stage.driver.start("first", same, also=[knowing]))
    found = stage.play(lambda: stage.driver.fork("first", "second", same))
    assert (found.ending, [gap.message for gap in found.gaps]) == ("partial", ["nobody flies"])
    other = structs.replace(same, goal="another goal")
    assert stage.play(lambda: stage.driver.fork("first", "third", other)).ending == "complete"


# --- manners


def test_what_does_not_fit_is_refused_with_a_reason() -> None:
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(seconds=10.0))))

    async def story() -> list[str]:
        said: list[str] = []
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(stage.driver.start("run", structs.replace(request(plan(task("a"))), deadline=NOW + 600)))
            await asyncio.sleep(1.0)
            for report in (
                ev.InputAnswered(1, "approve"),
                ev.AttemptSucceeded(TaskId("a"), 7, ev.NULL),
                ev.AttemptSucceeded(TaskId("x"), 1, ev.NULL),
                ev.RunEnded("complete", "done"),
                ev.TaskRefined(TaskId("a"), 1, "x"),
            ):
                try:
                    await stage.driver.ask("run", report)
                except Refused as error:
                    said.append(str(error))
        return said

    said = stage.play(story)
    assert len(said) == 5
    assert "question 1 is not being asked" in said[0]
    assert "no longer under way" in said[1]
    assert "never reported" in said[3]


def test_a_crew_that_hands_over_the_wrong_type_fails_its_own_work_only() -> None:
    class Wrong(Rounds):
        async def attempt(self, brief: Brief, context: StepContext) -> Done:
            return Done("fine", used=3) if brief.work.task == "a" else Done("fine")  # pyright: ignore[reportArgumentType]

    stage = Stage(Wrong())
    found = stage.start(request(plan(task("a"), task("b")), policy=Policy(refine=False)))
    (gap,) = found.gaps
    assert gap.task == "a"
    assert "cannot be kept" in gap.message
    assert "got `int` - at `$.used`" in gap.message
    assert " object at 0x" not in gap.message


def test_a_listener_that_fails_does_not_end_the_run() -> None:
    stage = Stage(ScriptedExecutor(Script()))

    def fails_always(run: str, entries: object) -> None:
        raise RuntimeError(f"no ear for {run}")

    stage.driver._heard = (fails_always, None)
    assert stage.start(request(plan(task("a")))).ending == "complete"


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        ((Agent("a"), Agent("a")), "two workers are called 'a'"),
        ((Agent(""),), "needs a name"),
        ((Agent("a", fallbacks=("b",)),), "falls back to 'b'"),
        ((Agent("a", estimate=Amount(micros=-1)),), "zero or more"),
        ((Agent("a", timeout=0.0),), "timeout is 0.0; write more than zero"),
        ([Agent("a")], "use tuples"),
    ],
)
def test_a_roster_nobody_could_work_with_is_refused(agents: tuple[Agent, ...], said: str) -> None:
    stage = Stage(ScriptedExecutor(Script()))
    with pytest.raises(Invalid, match=said):
        stage.start(request(plan(task("t", worker="a")), Roster(agents)))
    assert stage.play(stage.journal.runs) == []


def test_an_invalid_plan_is_refused_before_anything_is_written() -> None:
    stage = Stage(ScriptedExecutor(Script()))
    with pytest.raises(PlanInvalid) as caught:
        stage.start(request(plan(task("a", "b"), task("b", "a"))))
    assert [finding.code for finding in caught.value.findings][:1] == ["cycle"]
    assert stage.play(stage.journal.runs) == []
