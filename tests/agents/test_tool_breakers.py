"""A tool that is out of order is left alone, by all runs of a team, and tried again one call at a time."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.tool_calls import ToolBreakers
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Policy, Retry
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.stats import WorkerHealth, health
from chargehand.team import Team
from chargehand.tools.tool import Tool, ToolFailed, tool
from tests.agents.crowd import call, calls
from tests.agents.playhouse import NOW, Playhouse, notes

ONCE = Policy(retry=Retry(attempts=1), refine=False)


class Shelf:
    """A tool whose behaviour is a list: what each call returns or raises; the last goes on."""

    def __init__(self, *lines: object, effect: str = "read", seconds: float = 0.0, timeout: float = 60.0) -> None:
        self.calls = 0

        @tool(effect=effect, timeout=timeout)  # pyright: ignore[reportArgumentType] - an effect of a test
        async def look(word: str) -> object:
            """Look a word up."""
            line = lines[min(self.calls, len(lines) - 1)]
            self.calls += 1
            await asyncio.sleep(seconds)
            if isinstance(line, BaseException):
                raise line
            return line

        self.tool: Tool = look


def team(shelf: Shelf, script: ScriptedModel | None = None, tasks: int = 1, policy: Policy = ONCE) -> Team:
    """Ann looks one word up and says what she was told."""
    wanted = tuple(Task(TaskId(f"t{n}"), f"look word number {n} up", "ann") for n in range(tasks))
    ann = Worker("ann", "looks words up", tools=[shelf.tool])
    return Team([ann], supervisor=Supervisor(model=script or asking(), plan=Plan(wanted, "none")), policy=policy)


def asking(times: int = 1) -> ScriptedModel:
    def script(request: Request) -> Line:
        told = [one.text for one in request.messages if one.role == "tool"]
        return calls(call("look", len(told), word=f"w{len(told)}")) if len(told) < times else told[-1]

    return ScriptedModel(script)


def answers(entries: Sequence[ev.Entry]) -> list[str]:
    return [bytes(one.event.result).decode() for one in entries if isinstance(one.event, ev.AttemptSucceeded)]


def of(entries: dict[str, list[ev.Entry]], now: float) -> WorkerHealth:
    return next(one for one in health(list(entries.items()), now) if one.what == "tool")


GONE = ConnectionError("the catalogue is gone")


def test_after_five_failures_of_its_own_no_run_calls_a_tool_and_models_are_told_why() -> None:
    house = Playhouse()
    shelf = Shelf(GONE)
    executor = team(shelf)
    for _ in range(4):
        assert not notes(house.run(executor))
    (opened,) = notes(house.run(executor))
    assert opened == "tool look is out of order and not called for 30 s: ConnectionError: the catalogue is gone"
    house.wait(9.5)
    (said,) = answers(house.run(executor))
    assert shelf.calls == 5
    assert "look was not called: it has been out of order for 10 s" in said
    assert "tried again in 21 s. Do without it, or give up and say why." in said


def test_one_call_probes_and_its_success_lets_everybody_in_again() -> None:
    house = Playhouse()
    shelf = Shelf(*[GONE] * 5, "found", seconds=1.0)
    executor = team(shelf)
    for _ in range(5):
        house.run(executor)
    house.wait(30.0)
    entries = house.run(team_of(executor, shelf, 4))
    assert shelf.calls == 6  # the others came while the one was tried
    assert sorted("found" in said for said in answers(entries)) == [False, False, False, True]
    assert notes(entries) == ["tool look works again"]
    entries = house.run(team_of(executor, shelf, 4))
    assert (shelf.calls, notes(entries)) == (10, [])
    assert all("found" in said for said in answers(entries))


def team_of(executor: Team, shelf: Shelf, tasks: int) -> Team:
    """The same team with more to do: what it knows of its tools is known to all that are copied from it."""
    more = executor.bounded()
    supervisor = structs.replace(more.supervisor, plan=team(shelf, tasks=tasks).supervisor.plan)
    more.spec = structs.replace(more.spec, supervisor=supervisor)
    return more


def test_a_probe_that_fails_shuts_the_tool_for_longer() -> None:
    house = Playhouse()
    shelf = Shelf(GONE)
    executor = team(shelf)
    for _ in range(5):
        house.run(executor)
    house.wait(30.0)
    (note,) = notes(house.run(executor))
    assert note.startswith("tool look is still out of order and not called for 60 s")
    house.wait(59.0)
    house.run(executor)
    assert shelf.calls == 6
    house.wait(1.0)
    house.run(executor)
    assert shelf.calls == 7


@pytest.mark.parametrize(
    "fault",
    [ToolFailed("there is no such word"), ValueError("no word"), KeyError("w0"), ZeroDivisionError("nothing")],
    ids=["objection", "value", "key", "division"],
)
def test_what_is_wrong_with_the_arguments_never_shuts_a_tool(fault: Exception) -> None:
    house = Playhouse()
    shelf = Shelf(fault)
    executor = team(shelf)
    for _ in range(12):
        assert not notes(house.run(executor))
    assert shelf.calls == 12


def test_arguments_that_are_none_are_the_models_mistake() -> None:
    house = Playhouse()
    shelf = Shelf("found")
    wrong = ScriptedModel(lambda request: calls(call("look", 1, wort="w")) if len(request.messages) < 4 else "well")
    executor = team(shelf, wrong)
    for _ in range(8):
        assert not notes(house.run(executor))
    assert shelf.calls == 0


@pytest.mark.parametrize(
    ("fault", "timeout"),
    [(ToolFailed("the disk is full", broken=True), 60.0), (OSError("no route"), 60.0), ("too late", 0.5)],
    ids=["said so", "raised", "late"],
)
def test_what_is_wrong_with_the_tool_counts(fault: object, timeout: float) -> None:
    house = Playhouse()
    shelf = Shelf(fault, seconds=1.0, timeout=timeout)
    executor = team(shelf)
    for _ in range(7):
        house.run(executor)
    assert shelf.calls == 5


def test_a_success_in_between_starts_the_count_again_and_then_nothing_is_remembered() -> None:
    breakers = ToolBreakers(Breaking())
    look = Shelf("found").tool

    async def story() -> None:
        for _ in range(4):
            assert not breakers.failed(look, "gone")
        assert not breakers.worked(look)
        for _ in range(4):
            assert not breakers.failed(look, "gone")
        assert breakers
        await asyncio.sleep(61.0)
        assert not breakers.worked(look)
        assert not breakers

    Playhouse().play(story)


def test_half_of_twenty_calls_within_a_minute_are_enough() -> None:
    house = Playhouse()
    shelf = Shelf(*[GONE, "found"] * 30)
    executor = team(shelf)
    for _ in range(24):
        house.run(executor)
    assert shelf.calls == 21  # the first failure from the twentieth call on


def test_a_probe_that_is_given_up_makes_way_for_the_next() -> None:
    breakers = ToolBreakers(Breaking())
    look = Shelf("found").tool

    async def story() -> None:
        for _ in range(5):
            breakers.failed(look, "gone")
        assert breakers.objection(look)
        await asyncio.sleep(30.0)
        assert not breakers.objection(look)
        probing = breakers.probing(look)
        assert "out of order" in breakers.objection(look)
        breakers.unsettled(look, 0.0)  # of a call that was under way before
        assert "out of order" in breakers.objection(look)
        breakers.unsettled(look, probing)
        assert not breakers.objection(look)

    Playhouse().play(story)


def test_calls_that_were_under_way_before_do_not_let_a_second_probe_through() -> None:
    """Five fail at once, three that began with them find fault with their arguments while the probe is out."""
    made: list[float] = []
    house = Playhouse()

    @tool
    async def look(word: str) -> str:
        """Look a word up."""
        made.append(house.now)
        number = len(made)
        await asyncio.sleep(1.0 if number <= 5 else 40.0 if number <= 8 else 20.0)
        if number <= 5:
            raise GONE
        raise ToolFailed("no such word")

    shelf = Shelf()
    shelf.tool = look
    executor = team(shelf, tasks=1)

    async def run(name: str, wait: float) -> None:
        await asyncio.sleep(wait)
        await house.drive(executor, lambda driver: driver.start(name, executor.request("Look.", house.loop.time())))

    async def story() -> None:
        async with asyncio.TaskGroup() as jobs:
            for number in range(8):
                jobs.create_task(run(f"r{number}", 0.0))
            for number in range(8, 14):
                jobs.create_task(run(f"r{number}", 32.0 + 2.0 * (number - 8)))

    house.play(story)
    assert [round(one) for one in made[8:]] == [32]


def test_a_secret_in_what_a_tool_says_is_not_cut_in_half() -> None:
    """Who keeps secrets out of the journal would not know half of one."""
    breakers = ToolBreakers(Breaking(consecutive=1))
    look = Shelf("found").tool

    async def story() -> None:
        said = breakers.failed(look, f"refused\nby {'x ' * 85}with key sk-{'k' * 40} and more")
        assert "refused by x" in said
        assert "sk-k" not in said + breakers.objection(look)

    Playhouse().play(story)


def test_tools_of_one_name_are_told_apart_and_no_more_than_so_many_are_remembered() -> None:
    breakers = ToolBreakers(Breaking(consecutive=1))
    one = Shelf("found").tool
    other = Shelf("found").tool
    many = [Shelf("found").tool for _ in range(300)]

    async def story() -> None:
        breakers.failed(one, "gone")
        assert breakers.objection(one)
        assert not breakers.objection(other)
        for each in many:
            breakers.failed(each, "gone")
        assert not breakers.objection(one)  # the oldest gave way
        assert sum(bool(breakers.objection(each)) for each in many) == 256

    Playhouse().play(story)


def test_a_resumed_run_reads_back_that_a_tool_was_not_called() -> None:
    """What was recorded counts neither as a failure once more, nor is the call made up for."""
    house = Playhouse()
    shelf = Shelf(GONE)
    script = asking(times=7)
    executor = team(shelf, script)
    whole = house.run(executor)
    assert (shelf.calls, len(script.requests)) == (5, 8)
    for kept in range(2, len(whole) - 2):
        again = Playhouse()
        shelf_again = Shelf(GONE)
        fresh = team(shelf_again, asking(times=7))

        async def before(again: Playhouse = again, kept: int = kept) -> None:
            lease = await again.journal.claim("run0", new=True)
            await again.journal.append(lease, whole[:kept])
            await again.journal.release(lease)

        again.play(before)
        again.entries["run0"] = list(whole[:kept])
        entries = again.resume(fresh, "run0")
        finished = sum(1 for one in whole[:kept] if _called(one.event))
        assert not [note for note in notes(entries) if "diverged" in note]
        assert shelf_again.calls <= 7 - finished
        if finished == 7:
            assert shelf_again.calls == 0
        assert sum(isinstance(one.event, ev.AttemptSucceeded) for one in entries) == 1


@pytest.mark.parametrize(("line", "made"), [(ToolFailed("no such word"), 1), ("sent", 0)])
def test_an_effect_that_was_not_had_is_made_up_for_where_a_resumed_attempt_goes_another_way(
    line: object, made: int
) -> None:
    house = Playhouse()
    whole = house.run(team(Shelf(line, effect="effect"), asking(times=2)))
    kept = next(at for at, one in enumerate(whole, 1) if isinstance(one.event, ev.StepFinished) and one.event.step == 2)
    again = Playhouse()
    shelf = Shelf("sent", effect="effect")
    ann = Worker("ann", "looks words up", prompt="Be brief.", tools=[shelf.tool])  # so the model is asked anew

    async def before() -> None:
        lease = await again.journal.claim("run0", new=True)
        await again.journal.append(lease, whole[:kept])
        await again.journal.release(lease)

    again.play(before)
    again.entries["run0"] = list(whole[:kept])
    entries = again.resume(Team([ann], supervisor=Supervisor(model=asking()), policy=ONCE), "run0")
    assert len([note for note in notes(entries) if "diverged" in note]) == 1
    assert shelf.calls == made


def _called(event: ev.Event) -> bool:
    return isinstance(event, ev.StepFinished) and not event.good


def test_an_effect_of_which_nobody_knows_stays_uncertain_and_counts() -> None:
    house = Playhouse()
    shelf = Shelf(GONE, effect="effect")
    executor = team(shelf)
    for _ in range(5):
        entries = house.run(executor)
        assert [one.event.failure.kind for one in entries if isinstance(one.event, ev.AttemptFailed)] == ["uncertain"]
    (said,) = answers(house.run(executor))
    assert "out of order" in said
    assert shelf.calls == 5
    assert of(house.entries, house.loop.time()).state == "open"


def test_health_shows_it_as_shut_from_the_entries_alone() -> None:
    house = Playhouse()
    shelf = Shelf(*[GONE] * 5, "found")
    executor = team(shelf)
    for _ in range(7):
        house.run(executor)
    shut = of(house.entries, house.loop.time() + 10.0)
    assert (shut.state, shut.retry_at) == ("open", pytest.approx(NOW + 30.0, abs=0.01))
    assert (shut.attempts, shut.failures, shut.rate) == (5, {"failed": 5}, 1.0)  # two calls were not made
    assert of(house.entries, NOW + 31.0).state == "half-open"
    house.wait(31.0)
    house.run(executor)
    well = of(house.entries, house.loop.time())
    assert (well.state, well.attempts, well.failures) == ("closed", 6, {"failed": 5})
