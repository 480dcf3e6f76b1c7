"""Wrong answers are caught and clean ones left alone, through the public door and without a model call for it."""

import asyncio
import json
import time
from collections.abc import Sequence

import pytest
from msgspec import structs

from chargehand.agents.audit.assessment import Traced
from chargehand.agents.checks import Verifier
from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.events import Noted
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Combine, Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.request_facts import Answering, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.calculator import calculator
from tests.agents.crowd import call, calls
from tests.figures import held_out, tuned
from tests.figures.desk import ONCE, returning, run_case
from tests.figures.held_out import Case
from tests.support.hunts import hunt_size

INVOICE = {"invoice": "R-501", "amount": 8412.50, "due": "2025-05-14"}
TRUE = "R-501 is over 8,412.50."
FALSE = "R-501 is over 9,875.00."


async def verdicts(cases: Sequence[Case]) -> dict[str, Result]:
    return {case.name: await run_case(case) for case in cases}


@pytest.mark.parametrize("cases", [tuned.BAD, held_out.BAD], ids=["tuned", "held out"])
async def test_no_wrong_answer_is_complete(cases: Sequence[Case]) -> None:
    found = await verdicts(cases)
    assert [name for name, result in found.items() if result.ending != "partial" or not result.untraced] == []
    assert all(gap.status == "untraced" for result in found.values() for gap in result.gaps)


@pytest.mark.parametrize("cases", [tuned.CLEAN, held_out.CLEAN], ids=["tuned", "held out"])
async def test_clean_answers_are_complete_and_nobody_is_asked_again(cases: Sequence[Case]) -> None:
    found = await verdicts(cases)
    assert {name: result.untraced for name, result in found.items() if result.ending != "complete"} == {}
    assert all(result.trace().tasks[0].attempts[0].steps[-1].name == "model" for result in found.values())
    assert not any("sent back" in note.text for result in found.values() for note in result.trace().notes)


# --- one worker, one tool


def clerk(*said: Line, tools: Sequence[object] = (INVOICE,), steps: int = 10) -> tuple[Worker, ScriptedModel]:
    """A worker who looks the invoice up and then says one thing after the other."""
    model = ScriptedModel([calls(call("invoice")), *said])
    given = [returning("invoice", value) for value in tools]
    return Worker("clerk", tools=given, model=model, steps=steps), model


async def run(worker: Worker, combine: Combine = "forward", answer: str = "") -> Result:
    plan = Plan((Task(TaskId("t1"), "What is R-501 over?", "clerk"),), combine)
    judge = ScriptedModel([answer], repeat=True)
    return await Team([worker], supervisor=Supervisor(model=judge, plan=plan), policy=ONCE).run("What is R-501 over?")


async def test_an_invention_goes_back_once_and_the_corrected_result_counts() -> None:
    worker, model = clerk(FALSE, TRUE)
    found = await run(worker)
    assert (found.ending, found.answer) == ("complete", TRUE)
    assert found.traced == Traced(tools=2)
    told = model.requests[-1].messages[-1]
    assert told.role == "user"
    assert "stand in no result of your tools" in told.text
    assert "- 9,875.00" in told.text


async def test_a_number_that_a_worker_puts_into_the_calculator_is_its_own_words() -> None:
    said = "R-501 is over 9,875, twice that is 19,750."
    model = ScriptedModel([calls(call("invoice")), calls(call("calculate", 2, expression="9875 * 2")), said])
    worker = Worker("clerk", tools=[returning("invoice", INVOICE), calculator()], model=model)
    found = await run(worker)
    assert (found.traced.tools, found.traced.words, found.traced.nowhere) == (2, 1, 0)
    assert [(one.text, one.origin) for one in found.untraced] == [("9,875", "words")]


async def test_a_worker_that_may_estimate_has_its_figures_counted_as_its_words() -> None:
    worker, model = clerk("R-501 is over 8,412.50; next year it may be 9,875.00.")
    found = await run(structs.replace(worker, may_estimate=True))
    assert (found.ending, found.gaps) == ("complete", ())
    assert (found.traced.tools, found.traced.words, found.traced.nowhere) == (2, 1, 0)
    assert len(model.requests) == 2


async def test_an_invention_that_stays_is_a_gap_and_is_named_below_the_answer() -> None:
    worker, model = clerk(FALSE, FALSE)
    found = await run(worker)
    assert (found.ending, found.reason) == ("partial", "gaps")
    assert [(gap.task, gap.status, gap.message) for gap in found.gaps] == [
        ("t1", "untraced", "9,875.00: no tool returned it")
    ]
    assert len(model.requests) == 3
    assert str(found.answer) == (
        f"{FALSE}\n\nNot traced to a tool:\n- 9,875.00 [t1]\n\nChecked: 1 figure traced to tools, 1 to nothing."
    )


async def test_what_was_sent_back_is_delivered_if_no_better_reply_can_be_had() -> None:
    worker, _ = clerk(FALSE, Failure("network", "the line went dead"))
    found = await run(worker)
    assert (found.ending, found.results["t1"]) == ("partial", {"text": FALSE})
    worker, model = clerk(FALSE, steps=2)
    found = await run(worker)
    assert (found.ending, len(model.requests)) == ("partial", 2)


async def test_a_worker_that_used_none_of_its_tools_has_only_doubts() -> None:
    model = ScriptedModel([TRUE], repeat=True)
    found = await run(Worker("clerk", tools=[returning("invoice", INVOICE)], model=model))
    assert (found.ending, [one.text for one in found.untraced]) == ("partial", ["8,412.50"])
    assert "you have used none of your tools" in model.requests[-1].messages[-1].text


async def test_the_figures_of_a_worker_without_tools_are_its_words_and_no_gap() -> None:
    found = await run(Worker("clerk", model=ScriptedModel(["The tower is 330 m high."])))
    assert found.ending == "complete"
    assert found.traced == Traced(words=1)
    assert [(one.text, one.origin) for one in found.untraced] == [("330", "words")]


async def test_data_of_a_shape_is_traced_too_but_not_the_grades_in_it() -> None:
    typed: dict[str, object] = {"type": "object"}
    false = {"invoice": "R-501", "amount": 9875}
    true = {"invoice": "R-501", "amount": 8412.5, "score": 7}
    for said, ending in ((false, "partial"), (true, "complete")):
        model = ScriptedModel([calls(call("invoice")), *[json.dumps(said)] * 2])
        found = await run(Worker("clerk", tools=[returning("invoice", INVOICE)], model=model, output=typed))
        assert found.ending == ending, said


# --- several tasks


async def chain(first: Line, second: str, combine: Combine = "forward", answer: str = "") -> Result:
    """Somebody with a tool, and somebody without one who works from that."""
    one, _ = clerk(first, first)
    other = Worker("writer", model=ScriptedModel([second, second]))
    tasks = (
        Task(TaskId("t1"), "What is R-501 over?", "clerk"),
        Task(TaskId("t2"), "Write it down.", "writer", after=(TaskId("t1"),)),
    )

    def script(request: Request) -> Line:
        assert isinstance(request.subject, Answering)
        return answer

    model = ScriptedModel(script, repeat=True)
    return await Team([one, other], supervisor=Supervisor(model=model, plan=Plan(tasks, combine)), policy=ONCE).run(
        "Look it up."
    )


async def test_an_invention_is_not_supported_by_whoever_repeats_it() -> None:
    found = await chain(FALSE, "Dear sirs, it is 9,875.00.")
    assert found.ending == "partial"
    assert found.traced == Traced(words=1)
    found = await chain(FALSE, "Dear sirs, it is 9,875.00.", "merge", "It is 9,875.00 [t2].")
    assert (found.ending, [gap.status for gap in found.gaps]) == ("partial", ["untraced"])
    assert "Not traced to a tool:\n- 9,875.00, cited from [t2]" in str(found.answer)


async def test_a_true_figure_passes_through_every_hand() -> None:
    found = await chain(TRUE, "Dear sirs, it is 8,412.50 euros.", "merge", "It is about 8,400 euros [t2].")
    assert (found.ending, found.untraced) == ("complete", ())
    assert found.traced == Traced(tools=1)


async def test_an_answer_that_leaves_the_invention_out_is_complete() -> None:
    found = await chain(FALSE, "Dear sirs, it is settled.", "merge", "R-501 is settled [t2].")
    assert (found.ending, found.untraced) == ("complete", ())


async def test_an_answer_that_says_what_no_result_says_is_partial() -> None:
    found = await chain(TRUE, "Dear sirs, it is 8,412.50.", "merge", "It is 8,412.50, due on 3 May 2025 [t2].")
    assert (found.ending, [gap.message for gap in found.gaps]) == ("partial", ["3 May 2025: no tool returned it"])


async def test_a_result_with_an_untraced_figure_is_not_used_again() -> None:
    worker, _ = clerk(FALSE, FALSE)
    plan = Plan((Task(TaskId("t1"), "What is R-501 over?", "clerk"),), "forward")
    journal = MemoryJournal()
    team = Team([worker], supervisor=Supervisor(plan=plan), policy=ONCE, cache=3600, journal=journal)
    await team.run("What is R-501 over?", run="first")
    again, model = clerk(TRUE)
    other = Team([again], supervisor=Supervisor(plan=plan), policy=ONCE, cache=3600, journal=journal)
    found = await other.run("What is R-501 over?", run="second")
    assert (found.ending, len(model.requests)) == ("complete", 2)


# --- refused results


async def test_a_refused_result_that_is_repeated_without_a_call_does_not_pass() -> None:
    lenient = ScriptedModel(
        ['{"problems": ["it is not checked"], "accepted": false}', '{"problems": [], "accepted": true}'], repeat=True
    )
    worker = Worker("clerk", model=ScriptedModel(["It is paid."], repeat=True), accept=["sound"])
    plan = Plan((Task(TaskId("t1"), "Is it paid?", "clerk"),), "forward")
    policy = Policy(retry=Retry(attempts=3, base=0.001), refine=False)
    team = Team(
        [worker], supervisor=Supervisor(plan=plan), policy=policy, checks={"sound": Verifier("Mind it.", lenient)}
    )
    found = await team.run("Is it paid?")
    assert found.ending == "failed"
    assert found.gaps[0].message.count("this result was refused before") == 1
    assert "not accepted by sound: it is not checked" in found.gaps[0].message
    assert len(lenient.requests) == 1, "nobody is paid to look at it again"


async def test_a_refused_result_that_was_looked_up_again_may_pass() -> None:
    lenient = ScriptedModel(
        ['{"problems": ["it is not checked"], "accepted": false}', '{"problems": [], "accepted": true}'], repeat=True
    )

    def script(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        looked = any(message.role == "tool" for message in request.messages)
        return TRUE if looked else calls(call("invoice"))

    model = ScriptedModel(script, repeat=True)
    worker = Worker("clerk", tools=[returning("invoice", INVOICE)], model=model, accept=["sound"])
    plan = Plan((Task(TaskId("t1"), "What is R-501 over?", "clerk"),), "forward")
    policy = Policy(retry=Retry(attempts=3, base=0.001), refine=False)
    team = Team(
        [worker], supervisor=Supervisor(plan=plan), policy=policy, checks={"sound": Verifier("Mind it.", lenient)}
    )
    assert (await team.run("What is R-501 over?")).ending == "complete"


# --- much to read


async def test_a_megabyte_of_tool_results_does_not_hold_up_the_loop() -> None:
    size = hunt_size(quick=4_000, thorough=12_000)
    rows = [{"id": f"N-{at}", "price": at / 7, "note": f"shelf {at % 40} of hall {at % 9}"} for at in range(size)]
    worker, _ = clerk("N-7 costs 1.00, N-70 costs 10.00 and N-71 costs 99.99.", *["So it is."] * 2, tools=[rows])
    longest = 0.0
    over = False

    async def watch() -> None:
        nonlocal longest
        while not over:
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        found = await run(worker)
        over = True
    notes = [entry.event.text for entry in found.entries if isinstance(entry.event, Noted)]
    assert "sent back once: 99.99" in notes
    assert longest < 0.5 * size / 12_000
