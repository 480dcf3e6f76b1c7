"""Workers whose attempts a function makes: what it is given, what may come back, and what becomes of its failures."""

import asyncio
import re
import sys
from datetime import date
from typing import Any, cast

import pytest
from pydantic import BaseModel

from chargehand import (
    Amount,
    Assignment,
    Budget,
    Done,
    Failure,
    InputAnswered,
    MemoryJournal,
    Plan,
    Policy,
    Retry,
    Rule,
    ScriptedModel,
    StepContext,
    Supervisor,
    Task,
    Team,
    Worker,
    WorkFailed,
)
from chargehand.agents.result import fallback_answer
from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.plan import TaskId
from chargehand.errors import Invalid
from tests.agents.playhouse import Playhouse

FINE = ScriptedModel(["12 apples"], repeat=True)


def plan(*tasks: Task) -> Plan:
    return Plan(tasks or (Task(TaskId("t1"), "Count the apples.", "ann"),), "forward")


async def test_it_is_given_the_task_and_its_inputs_and_its_text_is_a_result_like_any_other() -> None:
    given: list[Assignment] = []

    async def report(assignment: Assignment, context: StepContext) -> str:
        given.append(assignment)
        context.say("nobody listens")
        return "There are 12."

    tasks = plan(Task(TaskId("t1"), "Count.", "bob"), Task(TaskId("t2"), "Report it.", "ann", after=(TaskId("t1"),)))
    team = Team([Worker("ann", call=report), Worker("bob", model=FINE)], supervisor=Supervisor(model=FINE, plan=tasks))
    result = await team.run("How many apples?")
    assert (result.ending, result.answer) == ("complete", "There are 12.")
    (assignment,) = given
    assert assignment.goal == "How many apples?"
    assert (assignment.task, assignment.instruction, assignment.attempt) == ("t2", "Report it.", 1)
    assert assignment.inputs == {"t1": {"text": "12 apples"}}
    assert result.results["t2"] == {"text": "There are 12."}


async def test_an_object_with_an_async_call_may_return_data_and_say_what_it_used() -> None:
    class Counter:
        async def __call__(self, _assignment: Assignment, _context: StepContext) -> Done:
            return Done({"apples": 12}, Amount(tokens=700, micros=40, calls=2))

    team = Team([Worker("ann", call=Counter())], supervisor=Supervisor(plan=plan()), budget=Budget(calls=9))
    result = await team.run("How many apples?")
    assert result.results == {"t1": {"apples": 12}}
    assert result.spent == Amount(tokens=700, micros=40, calls=2)


async def test_what_is_left_unsaid_costs_the_estimate_of_a_capped_team() -> None:
    async def count(_assignment: Assignment, _context: StepContext) -> int:
        return 12

    estimate = Amount(calls=3)
    team = Team(
        [Worker("ann", call=count, estimate=estimate)], supervisor=Supervisor(plan=plan()), budget=Budget(calls=9)
    )
    assert (await team.run("How many?")).spent == estimate
    poor = Team(
        [Worker("ann", call=count, estimate=estimate)], supervisor=Supervisor(plan=plan()), budget=Budget(calls=2)
    )
    assert [gap.reason for gap in (await poor.run("How many?")).gaps] == ["budget"]


def test_a_mistake_in_it_fails_sixty_tasks_at_once_and_says_where() -> None:
    calls = 0

    async def broken(assignment: Assignment, _context: StepContext) -> object:
        nonlocal calls
        calls += 1
        return assignment.instrction  # type: ignore[attr-defined]

    house = Playhouse()
    tasks = tuple(Task(TaskId(f"t{number}"), "Count.", "ann") for number in range(40))
    entries = house.run(
        Team([Worker("ann", call=broken)], supervisor=Supervisor(model=FINE, plan=Plan(tasks, "none")), timeout=3600)
    )
    assert (house.now, calls) == (0.0, 40)
    failures = [entry.event.failure for entry in entries if isinstance(entry.event, ev.TaskFailed)]
    assert len(failures) == 40
    assert all(failure.permanent and failure.code_error is not None for failure in failures)
    assert "test_function_worker.py, line" in failures[0].message
    assert not replay(entries).breakers


def test_a_result_of_a_type_that_cannot_be_kept_is_a_mistake_in_the_code() -> None:
    async def counts(_assignment: Assignment, _context: StepContext) -> object:
        return {"basket": object()}

    house = Playhouse()
    entries = house.run(Team([Worker("ann", call=counts)], supervisor=Supervisor(model=FINE, plan=plan())))
    (failure,) = [entry.event.failure for entry in entries if isinstance(entry.event, ev.AttemptFailed)]
    assert failure.permanent
    assert "TypeError: the result cannot be kept: $.basket is of type object, which JSON cannot" in failure.message
    assert "Mend the code" in fallback_answer(replay(entries))


async def returns_text(_key: str) -> str:
    return "a count"


async def takes_nothing() -> Done:
    return Done("a count")


def is_not_async(_key: str) -> Done:
    return Done("a count")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (returns_text, "TypeError: the call of step 'count' returned str; return a Done ("),
        (takes_nothing, "TypeError: takes_nothing() takes 0 positional arguments but 1 was given ("),
        (is_not_async, "TypeError: "),
    ],
)
def test_a_wrong_call_of_a_step_is_a_mistake_where_the_step_is_made(call: Any, said: str) -> None:
    async def counts(_assignment: Assignment, context: StepContext) -> object:
        return await context.step("count", call)

    house = Playhouse()
    entries = house.run(Team([Worker("ann", call=counts)], supervisor=Supervisor(model=FINE, plan=plan())))
    (failure,) = [entry.event.failure for entry in entries if isinstance(entry.event, ev.AttemptFailed)]
    assert failure.permanent
    assert said in failure.message
    assert "test_function_worker.py, line" in failure.message
    assert failure.message.endswith(".counts)")


def test_an_outage_is_tried_again_and_a_failure_it_names_is_taken_as_it_is() -> None:
    attempts: list[int] = []

    async def flaky(assignment: Assignment, _context: StepContext) -> str:
        attempts.append(assignment.attempt)
        if assignment.attempt == 1:
            raise ConnectionError("the service is away")
        if assignment.task == "final":
            raise WorkFailed(Failure("logic", "no such thing", permanent=True))
        return f"done after: {assignment.failure}"

    house = Playhouse()
    tasks = plan(Task(TaskId("t1"), "Count.", "ann"), Task(TaskId("final"), "Count.", "ann"))
    entries = house.run(Team([Worker("ann", call=flaky)], supervisor=Supervisor(model=FINE, plan=tasks)))
    state = replay(entries)
    assert state.tasks[TaskId("t1")].result is not None
    assert "the service is away" in bytes(cast("bytes", state.tasks[TaskId("t1")].result)).decode()
    failure = state.tasks[TaskId("final")].failure
    assert failure is not None
    assert failure.message == "no such thing"
    assert sorted(attempts) == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ConnectionError("the service is away"), "Run it again when what the worker depends on can be reached: "),
        (TimeoutError("no reply"), "Give the worker a longer timeout"),
        (ValueError("no such fruit"), "Run it again in other words, or with another worker"),
    ],
)
def test_the_advice_for_its_failures_speaks_of_no_model(error: Exception, advice: str) -> None:
    async def fails(_assignment: Assignment, _context: StepContext) -> str:
        raise error

    house = Playhouse()
    entries = house.run(Team([Worker("ann", call=fails)], supervisor=Supervisor(model=FINE, plan=plan())))
    answer = fallback_answer(replay(entries))
    assert advice in answer
    assert "model" not in answer


def test_its_time_is_kept_and_the_cancellation_reaches_it() -> None:
    cancelled: list[str] = []

    async def hangs(assignment: Assignment, _context: StepContext) -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(assignment.task)
            raise
        return "never"

    house = Playhouse()
    entries = house.run(Team([Worker("ann", call=hangs, timeout=2.0)], supervisor=Supervisor(model=FINE, plan=plan())))
    assert len(cancelled) == 3
    assert house.now < 30.0
    assert {entry.event.failure.kind for entry in entries if isinstance(entry.event, ev.AttemptFailed)} == {"timeout"}


def test_a_result_that_comes_too_late_because_it_blocked_the_loop_is_a_timeout() -> None:
    house = Playhouse()

    async def blocks(_assignment: Assignment, _context: StepContext) -> str:
        house.loop.now += 3.0  # nothing else is done meanwhile
        return "12"

    once = Policy(retry=Retry(attempts=1))
    team = Team([Worker("ann", call=blocks, timeout=1.0)], supervisor=Supervisor(plan=plan()), policy=once)
    failure = replay(house.run(team)).tasks[TaskId("t1")].failure
    assert failure is not None
    assert failure.kind == "timeout"
    assert "returned after 3.0 s, and its timeout is 1 s: the event loop was blocked" in failure.message


@pytest.mark.parametrize("in_step", [False, True])
async def test_a_function_that_exits_fails_its_task_and_not_the_program(*, in_step: bool) -> None:
    async def leave(_key: str) -> Done:
        sys.exit(2)

    async def exits(_assignment: Assignment, context: StepContext) -> str:
        if in_step:
            await context.step("leave", leave)
        sys.exit(2)

    result = await Team([Worker("ann", call=exits)], supervisor=Supervisor(plan=plan())).run("How many?")
    assert result.ending == "failed"
    (gap,) = result.gaps
    assert "the function of worker 'ann' called sys.exit(2); return a result, or raise an error" in gap.message


async def test_steps_it_made_are_not_made_again_after_a_crash() -> None:
    made: list[str] = []
    crash = True
    paid = asyncio.Event()

    async def pay(_key: str) -> Done:
        made.append("paid")
        return Done({"receipt": 7})

    async def buyer(_assignment: Assignment, context: StepContext) -> object:
        receipt = await context.step("pay", pay, request="invoice 1", effect="effect")
        if crash:
            paid.set()
            await asyncio.sleep(3600)
        return receipt

    journal = MemoryJournal()
    team = Team([Worker("ann", call=buyer)], supervisor=Supervisor(plan=plan()), journal=journal)
    async with asyncio.TaskGroup() as group:
        job = group.create_task(team.run("Pay it.", run="r1"))
        await paid.wait()
        job.cancel()
    crash = False
    result = await team.resume("r1")
    assert (result.ending, made) == ("complete", ["paid"])
    assert result.results == {"t1": {"receipt": 7}}


async def test_its_results_pass_the_checks_of_the_team() -> None:
    async def count(assignment: Assignment, _context: StepContext) -> str:
        return "twelve" if assignment.attempt == 1 else "12 apples"

    checks = {"figure": Rule(matches=r"\d+")}
    team = Team(
        [Worker("ann", call=count, accept=["figure"])], supervisor=Supervisor(model=FINE, plan=plan()), checks=checks
    )
    assert (await team.run("How many?")).answer == "12 apples"


@pytest.mark.parametrize("parts", [{"tools": ["calculator"]}, {"model": "demo"}, {"prompt": "You count."}])
def test_it_brings_what_it_works_with(parts: dict[str, object]) -> None:
    async def count(_assignment: Assignment, _context: StepContext) -> int:
        return 12

    with pytest.raises(Invalid, match="has a call and"):
        Team([Worker("ann", call=count, **parts)])  # pyright: ignore[reportArgumentType] - one of its keywords


class Count(BaseModel):
    apples: int
    counted: date


async def test_models_of_pydantic_are_plain_data() -> None:
    async def count(_assignment: Assignment, _context: StepContext) -> object:
        return {"counts": [Count(apples=12, counted=date(2026, 7, 1))]}

    result = await Team([Worker("ann", call=count)], supervisor=Supervisor(plan=plan())).run("How many?")
    assert result.results == {"t1": {"counts": [{"apples": 12, "counted": "2026-07-01"}]}}


@pytest.mark.parametrize("returned", [None, Done(None)])
async def test_a_function_that_returns_nothing_fails_for_good_and_says_where(returned: object) -> None:
    attempts = 0

    async def count(_assignment: Assignment, _context: StepContext) -> object:
        nonlocal attempts
        attempts += 1
        return returned

    result = await Team([Worker("ann", call=count)], supervisor=Supervisor(plan=plan())).run("How many?")
    assert (result.ending, attempts) == ("failed", 1)
    (gap,) = result.gaps
    assert "the function of worker 'ann' returned nothing; return text, plain data or a Done" in gap.message
    assert "test_function_worker.py, line" in gap.message
    assert "Mend the code" in str(result.answer)


async def test_empty_text_is_no_result() -> None:
    async def count(assignment: Assignment, _context: StepContext) -> str:
        return " " if assignment.attempt == 1 else f"after: {assignment.failure}"

    result = await Team([Worker("ann", call=count)], supervisor=Supervisor(plan=plan())).run("How many?")
    assert "the function of worker 'ann' returned empty text" in str(result.answer)


def test_a_function_of_other_arguments_is_refused_with_what_to_write() -> None:
    async def count(_assignment: Assignment) -> str:
        return "12"

    with pytest.raises(
        Invalid, match=r"worker 'ann': call cannot take .* write: async def work\(assignment, context\)"
    ):
        Worker("ann", call=count)


def test_a_plain_function_is_refused_with_what_to_do() -> None:
    def count(_assignment: Assignment, _context: StepContext) -> str:
        return "12"

    with pytest.raises(Invalid, match="must be an async function"):
        Worker("ann", call=count)  # pyright: ignore[reportArgumentType] - that is the point


# --- a person


def asking_team(journal: MemoryJournal, done: list[str]) -> Team:
    async def paint(assignment: Assignment, context: StepContext) -> Done:
        async def mix(key: str) -> Done:
            done.append(key)
            return Done("mixed")

        await context.step("mix", mix)
        colour = assignment.ask_person("Which colour?", options=["red", "blue"], used=Amount(tokens=5))
        return Done(f"painted {colour} in attempt {assignment.attempt}", Amount(tokens=7))

    return Team([Worker("ann", call=paint)], supervisor=Supervisor(plan=plan()), journal=journal)


async def test_it_asks_a_person_and_the_same_attempt_goes_on_with_the_answer() -> None:
    journal = MemoryJournal()
    done: list[str] = []
    team = asking_team(journal, done)
    waiting = await team.run("Paint the fence.", run="fence")
    assert waiting.ending == "needs_input"
    assert waiting.question is not None
    assert waiting.question.text == "Which colour?"
    assert waiting.question.question is not None
    assert waiting.question.question.options == ("red", "blue")
    result = await team.resume("fence", "blue")
    assert (result.ending, result.answer) == ("complete", "painted blue in attempt 1")
    assert len(done) == 1  # what was recorded is not done again
    assert result.spent.tokens == 12


async def test_a_question_is_answered_by_a_callback_and_a_person_who_declines_fails_the_task() -> None:
    team = asking_team(MemoryJournal(), [])
    result = await team.run("Paint the fence.", on_question=lambda _: "red")
    assert result.answer == "painted red in attempt 1"
    team = asking_team(MemoryJournal(), [])
    await team.run("Paint the fence.", run="fence")
    declined = await team.resume("fence", InputAnswered(1, "reject", "no money for paint"))
    assert declined.ending == "failed"
    assert "a person did not answer 'Which colour?': no money for paint" in str(declined.trace().tasks[0].failure)


# --- what it says it used


async def test_models_that_it_called_stand_in_the_trace_and_a_failure_says_what_it_used() -> None:
    async def think(assignment: Assignment, context: StepContext) -> Done:
        context.record_call("foreign:model", 0.5, {"input": 100, "output": 20}, Amount(tokens=120, micros=30, calls=1))
        if assignment.attempt == 1:
            raise WorkFailed(Failure("network", "the line went dead"), Amount(tokens=120, micros=30, calls=1))
        return Done(f"thought as {assignment.worker}", Amount(tokens=120, micros=30, calls=1))

    team = Team([Worker("ann", call=think)], supervisor=Supervisor(plan=plan()), policy=Policy(retry=Retry(base=0.01)))
    result = await team.run("Think.")
    assert result.answer == "thought as ann"
    assert result.spent == Amount(tokens=240, micros=60, calls=2)
    attempts = result.trace().tasks[0].attempts
    assert [(call.model, call.input, call.output) for attempt in attempts for call in attempt.calls] == [
        ("foreign:model", 100, 20),
        ("foreign:model", 100, 20),
    ]


async def test_its_key_is_the_same_in_every_attempt_and_another_for_another_instruction() -> None:
    keys: list[str] = []

    async def act(assignment: Assignment, _context: StepContext) -> str:
        keys.append(assignment.key)
        if len(keys) < 3:
            raise WorkFailed(Failure("network", "the line went dead"))
        if len(keys) == 3:
            raise WorkFailed(Failure("logic", "the work is bad"))
        return "done"

    supervisor = Supervisor(model=FINE, plan=plan())
    team = Team([Worker("ann", call=act)], supervisor=supervisor, policy=Policy(retry=Retry(base=0.01, attempts=4)))
    found = await team.run("Act.", run="r")
    assert (found.ending, len(keys)) == ("complete", 4)
    assert re.fullmatch("r/t1/[0-9a-f]{8}", keys[0])
    assert keys[:3] == keys[:1] * 3, "the line was lost: it is the same work"
    assert keys[3] != keys[0], "the refined task is other work"
