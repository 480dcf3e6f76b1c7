"""The faults of the code the project grew from, once more with a whole team: a supervisor, workers, models and tools.

Where the scheduler alone is to blame, `test_faults.py` has the fault (1, 2, 3, 6, 8, 9, 12); here the same must hold
for what models write and tools do. Which test covers which:

 1 a failed input takes the plan with it       test_the_exercise_ends_with_all_that_can_be_had
 2 a retry forgets what was completed          test_a_second_try_keeps_every_result_of_the_first
 3 refinement does not see the error           agents/test_lead.py: ..._is_put_better_with_the_error_in_view
 4 a timeout that can never be reached         test_a_worker_that_hangs_is_given_up_in_its_time
 5 a limiter that lets in more and more        test_a_limit_stays_a_limit_however_long_nobody_asks
 6 three tries that are two                    test_three_tries_of_a_model_are_three
 7 arguments handed to a function unchecked    test_nothing_reaches_a_function_that_it_does_not_declare
 8 plans nobody checks                         test_a_plan_a_model_wrote_is_checked_before_a_worker_sees_it
 9 a hallucinated worker shifts the results    test_no_result_is_read_by_position
10 bad routing becomes a default worker        test_a_plan_that_routes_to_nobody_is_sent_back
11 a calculator that hangs the process         test_a_calculator_cannot_be_kept_busy
12 failures as text among the results          test_whoever_answers_sees_results_and_failures_apart

Bad input: malformed JSON, a plan in a fence, hallucinated workers, a model that says nothing: agents/test_lead.py. A
tool that never returns: agents/test_loop.py. Empty and huge requests, NUL, binary, a missing key:
agents/test_break_front.py. A tool that prints: agents/test_break_work.py.
"""

import asyncio
import json
import time

import pytest

from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.engine.failure import Failure
from chargehand.engine.plan import TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.models.guard import Guarded
from chargehand.models.limits import Limiter, Pace
from chargehand.models.messages import Reply, Request, ToolCall, Usage
from chargehand.models.model import Hear, ModelCard
from chargehand.models.request_facts import Answering, Planning
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.tools.calculator import calculator
from chargehand.tools.tool import CallKey, tool
from tests.agents.crowd import call, calls, model, of_kind, plan, team
from tests.agents.playhouse import run_on_virtual_time

QUICK = Policy(retry=Retry(base=0.001))
PARTS = [
    ("Find the prices of part 1.", "ann", ()),
    ("Find the prices of part 2.", "ann", ()),
    ("Compare the prices of part 3.", "ann", ("t1",)),
    ("Compare the prices of part 4.", "ann", ("t2",)),
    ("Write up part 5.", "bob", ("t3", "t4")),
]
PAIR = (Worker("ann", "finds and compares"), Worker("bob", "writes up"))


def part(request: Request) -> int:
    """Which part a worker was given."""
    task = request.messages[1].text.rpartition("Task: ")[2]
    return int(task.partition("part ")[2][0])


def attempts(entries: tuple[ev.Entry, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in of_kind(entries, ev.AttemptStarted):
        assert isinstance(one, ev.AttemptStarted)
        found[one.task] = found.get(one.task, 0) + 1
    return found


@pytest.mark.parametrize("optional", [False, True], ids=["required", "optional"])
async def test_the_exercise_ends_with_all_that_can_be_had(optional: bool) -> None:
    """Fault 1: five tasks, the first of which can never be done."""
    body = json.loads(plan(*PARTS))
    if optional:
        body["tasks"][4]["optional"] = ["t3"]
    script = model(
        plans=[json.dumps(body)],
        work=lambda request: (
            calls(call("give_up", reason="the source is closed"))
            if part(request) == 1
            else f"part {part(request)} done"
        ),
        refine="Find the prices of part 1 elsewhere.",
        answer="What there is [t2] [t4].",
    )
    found = await team(script, *PAIR, policy=QUICK).run("Report")
    assert found.ending == "partial"
    done = {"t2": 1, "t4": 1, **({"t5": 1} if optional else {})}
    assert attempts(found.entries) == {"t1": 3, **done}
    assert {task: one for task, one in found.results.items()} == {  # noqa: C416 - ids are text
        f"t{n}": {"text": f"part {n} done"} for n in ((2, 4, 5) if optional else (2, 4))
    }
    missing = {gap.task: (gap.status, gap.because) for gap in found.gaps}
    expected = {"t1": ("failed", ""), "t3": ("skipped", "t1"), "t5": ("skipped", "t3")}
    assert missing == {task: why for task, why in expected.items() if task not in done}
    for task in missing:
        assert task in str(found.answer)
    assert "the source is closed" in str(found.answer)
    assert found.spent.calls == len(script.requests), "what was skipped cost nothing"


async def test_a_second_try_keeps_every_result_of_the_first() -> None:
    """Fault 2: two tasks fail at first, and nobody else works twice."""
    failed: set[int] = set()

    def work(request: Request) -> Line:
        number = part(request)
        if number in (1, 5) and number not in failed:
            failed.add(number)
            return Failure("network", "the line went dead")
        return f"part {number} done"

    script = model(plans=[plan(*PARTS)], work=work)
    found = await team(script, *PAIR, policy=QUICK).run("Report")
    assert found.ending == "complete"
    assert attempts(found.entries) == {"t1": 2, "t2": 1, "t3": 1, "t4": 1, "t5": 2}
    last = [one for one in script.requests if one.tools and part(one) == 5][-1]
    assert "part 3 done" in last.messages[1].text
    assert "part 4 done" in last.messages[1].text


def test_a_worker_that_hangs_is_given_up_in_its_time() -> None:
    """Fault 4: the time allowed was looked at only once the work was done."""

    async def hangs(request: Request) -> Line:
        if isinstance(request.subject, Planning):
            return plan(*PARTS[:2])
        if request.tools and part(request) == 1:
            await asyncio.sleep(3600)
        return "done"

    policy = Policy(retry=Retry(attempts=2, base=0.001))
    found = run_on_virtual_time(team(ScriptedModel(hangs), Worker("ann", timeout=0.7), policy=policy), "Report")
    assert found.entries[-1].at - found.entries[0].at < 2
    assert (found.ending, list(found.results)) == ("partial", ["t2"])
    assert [(gap.task, gap.reason) for gap in found.gaps] == [("t1", "timeout")]
    assert attempts(found.entries) == {"t1": 2, "t2": 1}


class Counts:
    """A model that knows how many ask it at the same time."""

    card = ModelCard("counts")

    def __init__(self) -> None:
        self.now = self.most = 0

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        if isinstance(request.subject, Planning):
            return Reply(plan(*((f"Count the apples on shelf {n}.", "ann", ()) for n in range(1, 13))))
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        return Reply("done", usage=Usage(1, 1), micros=0)


async def test_a_limit_stays_a_limit_however_long_nobody_asks() -> None:
    """Fault 5: every second of rest let one more in, for ever."""
    counts = Counts()
    guarded = Guarded(counts, limiter=Limiter(Pace(concurrency=2)))
    executor = team(guarded, Worker("ann"))  # pyright: ignore[reportArgumentType] - a model
    for _ in range(3):
        assert (await executor.run("Count")).ending == "complete"
        await asyncio.sleep(0.1)
    assert counts.most == 2
    alone = Counts()
    await team(alone, Worker("ann", concurrency=3)).run("Count")  # pyright: ignore[reportArgumentType] - a model
    assert alone.most == 3


@pytest.mark.parametrize("line", [Failure("network", "dead"), "", calls(call("give_up", reason="no"))])
async def test_three_tries_of_a_model_are_three(line: Line) -> None:
    """Fault 6: the words said three, the code counted two."""
    script = model(plans=[plan(PARTS[0])], work=[line])
    found = await team(script, *PAIR, policy=QUICK).run("Report")
    assert attempts(found.entries) == {"t1": 3}
    assert found.ending == "failed"


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path": "a", "mode": "w"}',
        '{"path": "a", "key": "mine"}',
        '{"path": "a", "self": 1}',
        '{"path": "a", "__class__": "x"}',
        '{"path": ["a"]}',
        '{"path": null}',
        '{"path": "a", "path": 3}',
        "{}",
        '"a"',
    ],
)
async def test_nothing_reaches_a_function_that_it_does_not_declare(arguments: str) -> None:
    """Fault 7: whatever a model wrote went into the function as it was."""
    seen: list[object] = []

    @tool
    def open_file(path: str, key: CallKey) -> str:
        """Open a file."""
        seen.append((path, key))
        return "opened"

    script = model(work=[calls(ToolCall("c1", "open_file", arguments)), "I could not."])
    found = await team(script, Worker("ann", tools=[open_file])).run("Open it")
    assert (found.ending, seen) == ("complete", [])
    assert '"error"' in script.requests[2].messages[-1].text


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ((("t1", "ann", "t2"), ("t2", "ann", "t1")), "in a circle"),
        ((("t1", "ann", "t0"),), "'t0', which does not exist"),
        ((("t1", "ann", "prices"),), "'prices', which does not exist"),
        ((("t1", "ann", "t7"),), "'t7', which does not exist"),
        ((("t1", "ann", ""), ("t1", "bob", "")), "another task 't1'"),
        ((("t1", "wizard", ""),), "'wizard', who does not exist"),
    ],
    ids=["cycle", "dependency", "name", "later", "id", "worker"],
)
async def test_a_plan_a_model_wrote_is_checked_before_a_worker_sees_it(
    tasks: tuple[tuple[str, str, str], ...], said: str
) -> None:
    """Fault 8: nobody looked at the plan."""
    script = model(plans=[_listed(*tasks), plan(PARTS[0])])
    found = await team(script, *PAIR).run("Report")
    assert found.ending == "complete"
    assert said in script.requests[1].messages[1].text
    assert attempts(found.entries) == {"t1": 1}


async def test_a_task_that_waits_for_itself_needs_no_other_plan() -> None:
    """Fault 8 again: what a small model writes in vain costs no second call."""
    script = model(plans=[_listed(("t1", "ann", "t1"))])
    found = await team(script, *PAIR).run("Report")
    assert found.ending == "complete"
    assert [task.after for entry in found.entries for task in getattr(entry.event, "tasks", ())] == [()]
    assert attempts(found.entries) == {"t1": 1}
    assert "Find the price of part 0" in script.requests[1].messages[1].text, "the worker is next, not the planner"


def _listed(*tasks: tuple[str, str, str]) -> str:
    """A plan as models write it: tasks in a list, each with its id, its worker and what it waits for."""
    listed = [
        {
            "id": name,
            "instruction": f"Find the price of part {number} in the list.",
            "worker": worker,
            "after": [after] if after else [],
        }
        for number, (name, worker, after) in enumerate(tasks)
    ]
    return json.dumps({"tasks": listed})


async def test_no_result_is_read_by_position() -> None:
    """Fault 9: a step for a worker nobody knows was left out, and all that came after it moved up."""
    tasks = [
        *PARTS[:2],
        ("Compare the prices of part 3.", "ann", ("t1",)),
        ("Compare the prices of part 4.", "bob", ("t2",)),
    ]
    wrong = [tasks[0], (tasks[1][0], "wizard", ()), *tasks[2:]]
    script = model(plans=[plan(*wrong), plan(*tasks)], work=lambda request: f"[of part {part(request)}]")
    found = await team(script, *PAIR).run("Report")
    assert found.ending == "complete"
    for request in script.requests:
        if request.tools and part(request) > 2:
            assert f"[of part {part(request) - 2}]" in request.messages[1].text
            assert request.messages[1].text.count("[of part ") == 1


@pytest.mark.parametrize("worker", ['""', "null", "7", '["ann"]', '{"name": "ann"}', '"documenter"', '"ANN and bob"'])
async def test_a_plan_that_routes_to_nobody_is_sent_back(worker: str) -> None:
    """Fault 10: what could not be read went to a worker nobody had chosen."""
    routed = f'{{"tasks": {{"t1": {{"instruction": "Find the prices of part 1.", "worker": {worker}}}}}}}'
    script = model(plans=[routed])
    found = await team(script, *PAIR, policy=QUICK).run("Report")
    assert (found.ending, found.reason, attempts(found.entries)) == ("failed", "no_plan", {})
    sent_back = script.requests[1].messages[1].text
    assert "The workers are: ann, bob" in sent_back or "Expected `str`" in sent_back


@pytest.mark.parametrize(
    "expression",
    ["9**9**9", "9**999999*9**999999*9**999999", "__import__('os').system('true')", "(" * 5000, "1e999999999", "0**-1"],
)
async def test_a_calculator_cannot_be_kept_busy(expression: str) -> None:
    """Fault 11: a filter before `eval` let through what never ends."""
    script = model(work=[calls(call("calculate", expression=expression)), "It cannot be computed."])
    began = time.monotonic()
    found = await team(script, Worker("ann", tools=[calculator()])).run("Compute it")
    assert time.monotonic() - began < 2
    assert found.ending == "complete"
    assert '"error"' in script.requests[2].messages[-1].text


async def test_whoever_answers_sees_results_and_failures_apart() -> None:
    """Fault 12: failures came as text among the results, and were taken for results."""
    script = model(
        plans=[plan(*PARTS)],
        work=lambda request: (
            calls(call("give_up", reason="the source is closed"))
            if part(request) == 1
            else f"part {part(request)} done"
        ),
    )
    await team(script, *PAIR, policy=Policy(retry=Retry(attempts=1), refine=False)).run("Report")
    subject = script.requests[-1].subject
    assert isinstance(subject, Answering)
    assert [one.task for one in subject.results if one.value is not None] == ["t2", "t4"]
    assert [(one.task, one.status, one.reason) for one in subject.gaps] == [
        (TaskId("t1"), "failed", "logic"),
        (TaskId("t3"), "skipped", "input"),
        (TaskId("t5"), "skipped", "input"),
    ]
