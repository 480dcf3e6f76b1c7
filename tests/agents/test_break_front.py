"""The front door under attack: many runs at once, readers who leave, onlookers who fail, requests nobody can pursue."""

import asyncio
import contextlib
import gc
import threading
import time
import warnings
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import pytest

from chargehand.agents.roles import Factory, Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.failure import Gap
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.errors import ChargehandError, Invalid, PlanInvalid, Refused
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.models.messages import Request
from chargehand.models.request_facts import Planning
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.runner import LONGEST_GOAL
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, of_kind, plan, team
from tests.agents.options import make_team
from tests.agents.playhouse import run_on_virtual_time

APPLES = ("Count the apples in the cellar.", "ann", ())
ONCE = Policy(retry=Retry(attempts=1, base=0.001), refine=False)


async def test_two_hundred_runs_of_one_supervisor_at_once_do_not_mix() -> None:
    def work(request: Request) -> Line:
        task = request.messages[1].text
        return f"result of {task.rsplit(maxsplit=1)[-1]}"

    def lines(request: Request) -> Line:
        if isinstance(request.subject, Planning):
            return plan((f"Count the apples of {request.subject.goal}", "ann", ()), combine="forward")
        return work(request)

    executor = team(ScriptedModel(lines, latency=0.01))
    async with asyncio.TaskGroup() as jobs:
        made = [jobs.create_task(executor.run(f"goal-{n}")) for n in range(200)]
    found = [job.result() for job in made]
    assert [one.answer for one in found] == [f"result of goal-{n}" for n in range(200)]
    assert len({one.run for one in found}) == 200


async def test_runs_at_once_share_one_journal_file(tmp_path: Path) -> None:
    executor = Team([Worker("ann")], supervisor=Supervisor(model=model()), journal=tmp_path / "runs.db")
    async with asyncio.TaskGroup() as jobs:
        made = [jobs.create_task(executor.run("Count", run=f"r{n}")) for n in range(20)]
    assert {job.result().ending for job in made} == {"complete"}
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    try:
        assert len(await journal.runs()) == 20
    finally:
        await journal.close()


def test_a_journal_file_serves_one_event_loop_after_the_other(tmp_path: Path) -> None:
    executor = Team([Worker("ann")], supervisor=Supervisor(model=model()), journal=str(tmp_path / "runs.db"))
    assert executor.run_sync("Count", run="a").ending == "complete"
    assert executor.run_sync("Count", run="b").ending == "complete"
    with pytest.raises(Refused, match="exists already"):
        executor.run_sync("Count", run="a")
    assert executor.run_sync("Count", run="c").ending == "complete", "a refused run leaves nothing locked"


async def test_a_journal_that_cannot_be_opened_can_be_later(tmp_path: Path) -> None:
    executor = Team([Worker("ann")], supervisor=Supervisor(model=model()), journal=tmp_path / "later" / "runs.db")
    (tmp_path / "later").write_text("a file where a folder belongs")
    with pytest.raises(ChargehandError):
        await executor.run("Count")
    (tmp_path / "later").unlink()
    (tmp_path / "later").mkdir()
    assert (await executor.run("Count")).ending == "complete"


async def test_run_sync_inside_a_loop_says_what_with_inner_gaps() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Invalid, match=r"await team\.run"):
            team(model()).run_sync("Count")
        gc.collect()


async def test_a_stream_ends_with_the_run_and_has_every_entry() -> None:
    journal = MemoryJournal()
    seen = [entry async for entry in team(model(), journal=journal).stream("Count", run="r")]
    assert seen == await journal.read("r")
    assert isinstance(seen[-1].event, ev.RunEnded)


@tool(effect="effect", approve=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


async def test_a_stream_ends_where_a_person_is_asked() -> None:
    executor = team(model(work=[calls(call("pay", to="bob")), "paid"]), Worker("ann", tools=[pay]))
    async with asyncio.timeout(20):
        seen = [entry.event async for entry in executor.stream("Count", run="r")]
    asked = seen[-1]
    assert isinstance(asked, ev.InputRequested)
    assert (await executor.resume("r", ev.InputAnswered(asked.number, "approve"))).ending == "complete"


async def test_what_stops_a_stream_is_raised_as_it_is() -> None:
    executor = team(model())
    await executor.run("Count", run="r")
    with pytest.raises(Refused, match="exists already"):
        async for _ in executor.stream("Count", run="r"):
            pass


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "forgotten"])
async def test_a_stream_left_early_stops_the_run_and_it_can_be_resumed(closes: bool) -> None:
    trouble: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: trouble.append(told))

    async def slow(request: Request) -> Line:
        if isinstance(request.subject, Planning):
            return plan(APPLES, combine="forward")
        await asyncio.sleep(0.05 if left else 60)
        return "12"

    left = False
    executor = team(ScriptedModel(slow))
    count = 0
    entries = executor.stream("Count", run="r")
    async for _ in entries:
        count += 1
        if count == 3:
            break
    if closes:
        assert isinstance(entries, AsyncGenerator)
        await entries.aclose()
    else:
        del entries
        gc.collect()
        for _ in range(100):  # turns of the loop, and not a time: the end of a generator takes some of them
            await asyncio.sleep(0.001)
    assert trouble == []
    left = True
    found = await executor.resume("r")
    assert (found.ending, found.results) == ("complete", {"t1": {"text": "12"}})


async def test_a_failing_run_does_not_cancel_whoever_reads_its_stream() -> None:
    class Breaks(MemoryJournal):
        instant = False

        async def append(self, lease: object, entries: Sequence[ev.Entry]) -> None:
            if entries[-1].seq > 3:
                raise Refused("the disk is gone")
            await super().append(lease, entries)  # pyright: ignore[reportArgumentType] - a lease

    slept = 0

    async def read() -> None:
        nonlocal slept
        async for _ in team(model(), journal=Breaks()).stream("Count"):
            await asyncio.sleep(0.05)
            slept += 1

    with pytest.raises(Refused, match="the disk is gone"):
        await read()
    assert slept


async def test_a_cancelled_run_can_be_resumed() -> None:
    begun = asyncio.Event()
    gate = asyncio.Event()

    async def slow(request: Request) -> Line:
        if isinstance(request.subject, Planning):
            return plan(APPLES, combine="forward")
        begun.set()
        await gate.wait()
        return "12"

    executor = team(ScriptedModel(slow))
    async with asyncio.TaskGroup() as jobs:
        job = jobs.create_task(executor.run("Count", run="r"))
        await begun.wait()
        job.cancel()
    assert job.cancelled()
    gate.set()
    assert (await executor.resume("r")).results == {"t1": {"text": "12"}}


async def test_a_listener_that_raises_ends_nothing() -> None:
    heard = 0

    def broken(_run: str, _entries: Sequence[ev.Entry]) -> None:
        nonlocal heard
        heard += 1
        raise ValueError("the view crashed")

    assert (await team(model()).run("Count", listener=broken)).ending == "complete"
    assert heard == 1, "it is not called any more"


async def test_a_whisper_that_raises_ends_nothing() -> None:
    def broken(_run: str, _work: object, _text: str, _kind: str) -> None:
        raise ValueError("the view crashed")

    assert (await team(model(), policy=ONCE).run("Count", on_text=broken)).ending == "complete"


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("", "is empty"),
        (" \n\t ", "is empty"),
        ("a" * (LONGEST_GOAL + 1), "150,000 is the most"),
        ("é" * (LONGEST_GOAL + 1), "150,000 is the most"),
        ("count\0apples", "NUL character"),
        ("count \ud800 apples", "half a surrogate pair"),
        (b"\x89PNG\r\n\xff\xfe".decode(errors="surrogateescape"), "half a surrogate pair"),
    ],
)
async def test_a_request_nobody_can_pursue_is_refused_before_anything_is_written(goal: str, said: str) -> None:
    journal = MemoryJournal()
    executor = team(model(), journal=journal)
    with pytest.raises(Invalid, match=said):
        await executor.run(goal)
    with pytest.raises(Invalid, match=said):
        await executor.plan(goal)
    with pytest.raises(Invalid, match=said):
        async for _ in executor.stream(goal):
            pass
    assert await journal.runs() == []


async def test_a_request_of_just_under_a_mebibyte_is_pursued(tmp_path: Path) -> None:
    goal = ("Count the apples. " * (LONGEST_GOAL // 18 + 1))[: LONGEST_GOAL - 1] + "."
    found = await Team([Worker("ann")], supervisor=Supervisor(model=model()), journal=tmp_path / "runs.db").run(
        goal, run="r"
    )
    assert found.ending == "complete"
    first = found.entries[0].event
    assert isinstance(first, ev.RunRequested)
    assert first.goal == goal


async def test_the_demo_model_survives_a_mebibyte() -> None:
    goal = ("Count the apples in the cellar, then the pears in the attic. " * 20000)[: LONGEST_GOAL - 1]
    began = time.monotonic()
    with contextlib.suppress(PlanInvalid):
        await Team([Worker("ann", "counts apples and pears")], timeout=20).run(goal)
    assert time.monotonic() - began < 25


async def test_a_missing_key_says_which_variable_and_nothing_is_written() -> None:
    journal = MemoryJournal()
    for more in ({"model": "openai:gpt-5-mini"}, {"planner": "openai:gpt-5-mini"}, {"judge": "openai:gpt-5-mini"}):
        executor = make_team([Worker("ann")], journal=journal, lookup=dict[str, str]().get, **more)
        with pytest.raises(Invalid, match="OPENAI_API_KEY"):
            await executor.run("Count")
    executor = Team([Worker("ann", model="anthropic:claude")], journal=journal)
    with pytest.raises(Invalid, match="ANTHROPIC_API_KEY"):
        await executor.run("Count")
    assert await journal.runs() == []


KEY = "sk-canary-3f9a81c2"


async def test_no_key_is_ever_in_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chargehand.models.resolve.RETRY", Retry(base=0.01))
    executor = Team(
        [Worker("ann", fallback_models=["openai+http://127.0.0.1:9/v1#tiny"])],
        supervisor=Supervisor(model="openai:gpt-5-mini"),
        lookup=lambda name: (
            KEY if name == "OPENAI_API_KEY" else "http://127.0.0.1:9/v1" if name.endswith("URL") else None
        ),
        policy=ONCE,
        timeout=10,
    )
    found = await executor.run("Count the apples in the cellar")
    assert found.ending == "failed"
    assert KEY not in repr(found)


async def test_a_password_in_a_url_is_not_in_the_journal() -> None:
    journal = MemoryJournal()
    executor = Team(
        [Worker("ann")], supervisor=Supervisor(model="openai+http://user:s3cret@127.0.0.1:9/v1#m"), journal=journal
    )
    with pytest.raises(Invalid) as caught:
        await executor.run("Count")
    assert "s3cret" not in str(caught.value)
    assert await journal.runs() == []


@pytest.mark.parametrize(
    ("workers", "more", "said"),
    [
        ([Worker("ann"), Worker("ann")], {}, "two workers are called 'ann'"),
        ([Worker("factory")], {"factory": Factory()}, "two workers are called 'factory'"),
        ([Worker("")], {}, "is no name for a worker"),
        ([], {}, "at least one worker"),
        ([Worker("ann", fallbacks=["bob"])], {}, "falls back to 'bob'"),
    ],
)
def test_a_team_that_cannot_work_is_refused_at_once(workers: list[Worker], more: dict[str, Factory], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        make_team(workers, model=model(), **more)


async def test_slots_in_what_people_write_are_not_filled() -> None:
    script = model(work=["{{inputs}} {{prompt}}"])
    executor = team(
        script,
        Worker("ann", "counts {{workers}}", "Say {{instructions}} and {{name}}."),
        instructions="Use {{workers}} and {{most}}.",
    )
    found = await executor.run("Fill {{goal}} and {{instructions}}")
    assert found.ending == "complete"
    assert "Use {{workers}} and {{most}}." in script.requests[0].messages[0].text
    assert "- ann: counts {{workers}}" in script.requests[0].messages[0].text
    assert "Say {{instructions}} and {{name}}." in script.requests[1].messages[0].text
    assert found.answer == "{{inputs}} {{prompt}}"


async def test_a_plan_of_fifty_tasks_runs_and_one_of_fifty_one_goes_back() -> None:
    def many(count: int) -> str:
        chain = [
            (f"Count the apples on shelf {n} of the cellar.", "ann", [f"t{n - 7}"] if n > 7 else [])
            for n in range(1, count + 1)
        ]
        return plan(*chain)

    script = model(plans=[many(51), many(50)], work=lambda request: request.messages[1].text[:60])
    found = await team(script).run("Count")
    assert (found.ending, len(found.results)) == ("complete", 50)
    assert "51 tasks, and 50 are allowed" in script.requests[1].messages[1].text
    assert "max_tasks" not in script.requests[1].messages[1].text  # which a planner cannot change


async def test_a_plan_with_too_many_tasks_says_how_many_are_allowed_and_where_to_allow_more() -> None:
    tasks = plan(*((f"Count the apples on shelf {n} of the cellar.", "ann", ()) for n in range(60)))
    found = await team(model(plans=[tasks], work="12")).run("Count")
    assert "60 tasks, and 50 are allowed" in found.notice
    assert "Policy(limits=Limits(max_tasks=...)), or policy.limits.max_tasks in the team file" in found.notice


@pytest.mark.parametrize(
    ("reply", "ending", "reason", "work_calls"),
    [
        ('{"tasks": {}}', "complete", "done", 1),
        ('{"tasks": {}, "unserved": ["Nobody can fly."]}', "failed", "no_plan", 0),
    ],
)
async def test_a_reviewing_planner_without_a_plan_is_not_asked_forever(
    reply: str, ending: str, reason: str, work_calls: int
) -> None:
    script = model(plans=[reply])
    async with asyncio.timeout(10):
        found = await team(script, review=True, policy=ONCE, timeout=5).run("Fly")
    assert (found.ending, found.reason) == (ending, reason)
    plan_calls = [request for request in script.requests if isinstance(request.subject, Planning)]
    assert len(plan_calls) <= 3
    assert len(script.requests) - len(plan_calls) == work_calls
    assert (found.fallback is not None) == (ending == "complete")


async def test_a_planner_that_always_wants_more_is_bounded() -> None:
    number = 0

    def more(request: Request) -> Line:
        nonlocal number
        if not isinstance(request.subject, Planning):
            return "12"
        number += 1
        return (
            f'{{"tasks": {{"t{number}": {{"instruction": "Count the apples on shelf {number}.", "worker": "ann"}}}}}}'
        )

    script = ScriptedModel(more)
    policy = Policy(limits=Limits(max_tasks=10), retry=Retry(base=0.001))
    async with asyncio.timeout(20):
        found = await team(script, review=True, policy=policy).run("Count")
    assert len(found.results) == 10
    assert len(script.requests) < 30


async def test_a_planner_that_replans_the_same_is_bounded() -> None:
    script = model(plans=[plan(APPLES)], work=[calls(call("give_up", reason="dark"))])
    policy = Policy(limits=Limits(replans=3), retry=Retry(attempts=1, base=0.001), refine=False)
    async with asyncio.timeout(20):
        found = await team(script, policy=policy).run("Count")
    assert (found.ending, [gap.task for gap in found.gaps]) == ("failed", ["t1"])
    assert len(script.requests) < 15


def test_a_run_ends_by_its_deadline_whoever_hangs() -> None:
    async def hangs(request: Request) -> Line:
        if isinstance(request.subject, Planning) and where != "planner":
            return plan(APPLES, ("Count the pears.", "bob", ()))
        if where == "worker" and "pears" in request.messages[1].text and request.tools:
            return "7 pears"
        if where == "judge" and request.tools:
            return "7 pears"
        await asyncio.sleep(3600)
        return "never"

    endings: dict[str, str] = {}
    for where in ("planner", "worker", "judge"):
        policy = Policy(grace=0.3, answer=0.3)
        crew = team(ScriptedModel(hangs), Worker("ann"), Worker("bob"), timeout=1.0, policy=policy)
        result = run_on_virtual_time(crew, "Count")
        assert result.entries[-1].at - result.entries[0].at < 1.5, where
        assert result.reason == "deadline", where
        endings[where] = result.ending
    assert endings == {"planner": "failed", "worker": "partial", "judge": "partial"}


def test_a_function_that_answers_and_never_returns_does_not_hold_up_the_end() -> None:
    never = threading.Event()

    def endless(_goal: str, _results: Mapping[str, object], _gaps: Sequence[Gap]) -> str:
        never.wait(30)
        return "late"

    began = time.monotonic()
    policy = Policy(grace=0.1, answer=0.1)
    found = team(model(plans=[plan(APPLES)]), combine=endless, timeout=0.5, policy=policy).run_sync("Count")
    assert (found.ending, found.results) == ("partial", {"t1": {"text": "It is done."}})
    assert time.monotonic() - began < 15
    never.set()


async def test_a_function_that_answers_badly_says_so() -> None:
    def broken(_goal: str, _results: Mapping[str, object], _gaps: Sequence[Gap]) -> str:
        raise KeyError("total")

    found = await team(model(plans=[plan(APPLES)]), combine=broken, policy=ONCE).run("Count")
    assert found.ending == "partial"
    failed = [one for one in of_kind(found.entries, ev.SupervisionFailed) if isinstance(one, ev.SupervisionFailed)]
    assert "KeyError: 'total'" in failed[0].failure.message


async def test_a_draft_of_a_planner_that_hangs_is_given_up() -> None:
    async def hangs(_request: Request) -> Line:
        await asyncio.sleep(3600)
        return "never"

    with pytest.raises(PlanInvalid, match="the time allowed to plan was over"):
        async with asyncio.timeout(10):
            await team(ScriptedModel(hangs), policy=Policy(retry=Retry(base=0.001), supervision=0.05)).plan("Count")


async def test_a_streamed_draft_forgets_what_a_broken_reply_began() -> None:
    whole = plan(APPLES, ("Count the pears.", "bob", ()))
    script = model(plans=[whole[:-30], whole])
    found = await team(script, Worker("ann"), Worker("bob"), stream_plan=True).plan("Count")
    assert [one.id for one in found.plan.tasks] == ["t1", "t2"]
    assert len(script.requests) == 2


def test_a_question_can_be_answered_without_an_event_loop() -> None:
    @tool(approve=True)
    def ring() -> str:
        """Ring the bell."""
        return "it rang"

    executor = team(model(work=[calls(call("ring")), "It rang."]), Worker("ann", tools=[ring]))
    asked = executor.run_sync("Ring", run="r")
    assert asked.question is not None
    assert executor.resume_sync("r", ev.InputAnswered(asked.question.number, "approve")).ending == "complete"
