"""A worker's model that takes unusually long: another is asked as well, by the rules; the first reply is used."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from random import Random

import pytest

from chargehand.agents.roles import Hedge, Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.guard import Guarded
from chargehand.models.limits import Limiter, Pace
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import Hear, Model, ModelCard, ModelFailed
from chargehand.models.testing.fault_server import FaultServer
from chargehand.runtime.runner import Runner
from chargehand.team import Team
from tests.agents.playhouse import NOW, Playhouse, notes

GONE = Failure("network", "the line went dead")
HALF = Hedge(after=2.0, share=0.5)  # the third call is the first that may be made twice


class Paced:
    """A model that takes as long as it is told, call by call, and may fail; the last line goes on."""

    def __init__(
        self, handle: str, *lines: float | tuple[float, Failure], price: float | None = 1.0, speaks: bool = False
    ) -> None:
        self.card = ModelCard(handle, micros_in=price, micros_out=price, keeps_limit=True)
        self.calls = 0
        self.cancelled = 0
        self._lines = lines
        self._price = price
        self._speaks = speaks

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        line = self._lines[min(self.calls, len(self._lines) - 1)]
        self.calls += 1
        seconds, failure = line if isinstance(line, tuple) else (line, None)
        if hear is not None and self._speaks:
            hear("Well, ")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if failure is not None:
            raise ModelFailed(failure)
        if hear is not None:
            hear("done.")
        return Reply(f"done by {self.card.handle}", usage=Usage(10, 5), micros=None if self._price is None else 15)


def chain(count: int) -> Plan:
    """One task after the other."""
    return Plan(
        tuple(
            Task(TaskId(f"t{n}"), f"carry out part number {n} of it", "ann", after=(TaskId(f"t{n - 1}"),) if n else ())
            for n in range(count)
        ),
        "none",
    )


def team(
    *models: Model, hedge: Hedge | None = HALF, tasks: int = 3, budget: Budget | None = None, attempts: int = 1
) -> Team:
    ann = Worker("ann", "carries things out", model=models[0], fallback_models=models[1:])
    policy = Policy(retry=Retry(attempts=attempts), refine=False, limits=Limits(max_tasks=5000, max_depth=5000))
    return Team(
        [ann],
        supervisor=Supervisor(plan=chain(tasks), hedge=hedge),
        policy=policy,
        budget=budget or Budget(),
        timeout=1_000_000.0,
    )


def took(entries: Sequence[ev.Entry]) -> list[float]:
    """Seconds of each call of a model, as the journal has them."""
    begun: dict[tuple[str, int, int], float] = {}
    found: list[float] = []
    for entry in entries:
        match entry.event:
            case ev.StepStarted(task=task, attempt=attempt, step=step):
                begun[task, attempt, step] = entry.at
            case ev.StepFinished(task=task, attempt=attempt, step=step):
                found.append(entry.at - begun[task, attempt, step])
            case _:
                pass
    return found


def replies(entries: Sequence[ev.Entry]) -> list[str]:
    return [bytes(one.event.result).decode() for one in entries if isinstance(one.event, ev.AttemptSucceeded)]


def used(entries: Sequence[ev.Entry]) -> list[Amount | None]:
    return [one.event.used for one in entries if isinstance(one.event, ev.StepFinished)]


# --- what it is for


def share_of(times: Sequence[float], share: float) -> float:
    return sorted(times)[ceil(share * len(times)) - 1]


class Wavering(Paced):
    """97 calls in 100 take about a second, the others half a minute."""

    def __init__(self, handle: str, seed: int) -> None:
        chance = Random(seed)
        times = [30.0 if chance.random() < 0.03 else chance.uniform(0.8, 1.2) for _ in range(5000)]
        super().__init__(handle, *times)


def test_the_slowest_calls_get_quick_and_it_costs_a_few_calls_more() -> None:
    plain = Playhouse(5_000_000)
    hedged = Playhouse(5_000_000)
    one = Wavering("one", 1)
    other = Wavering("one", 1)
    spare = Wavering("spare", 2)
    before = took(plain.run(team(one, hedge=None, tasks=2000)))
    entries = hedged.run(team(other, spare, hedge=Hedge(), tasks=2000))
    after = took(entries)
    assert (len(before), len(after)) == (2000, 2000)
    assert share_of(before, 0.99) == pytest.approx(30.0, abs=0.01)
    assert share_of(after, 0.99) <= 2.6
    assert share_of(after, 0.5) == pytest.approx(share_of(before, 0.5), abs=0.02)
    assert sum(after) <= 0.60 * sum(before)
    extra = other.calls + spare.calls - 2000
    assert 40 <= extra <= 0.04 * 2000
    booked = sum(one.micros for one in used(entries) if one is not None)
    assert booked == 2000 * 15 + extra * 15  # one that was given up is taken to have cost as much as the other


def test_who_answers_first_is_used_and_the_other_is_given_up_and_paid_for() -> None:
    slow = Paced("slow", 1.0, 1.0, 50.0)
    quick = Paced("quick", 1.0)
    house = Playhouse()
    entries = house.run(team(slow, quick))
    assert replies(entries)[2].startswith('{"text":"done by quick"')
    assert (slow.calls, slow.cancelled, quick.calls) == (3, 1, 1)
    assert took(entries)[2] == pytest.approx(3.0, abs=0.01)
    one, _, twice = used(entries)
    assert (one, twice) == (Amount(15, 15, 1), Amount(30, 30, 1))


def test_the_first_may_still_be_faster() -> None:
    slow = Paced("slow", 1.0, 1.0, 2.5)
    other = Paced("other", 5.0)
    entries = Playhouse().run(team(slow, other))
    assert replies(entries)[2].startswith('{"text":"done by slow"')
    assert (other.calls, other.cancelled) == (1, 1)


def test_two_replies_at_the_same_moment_are_both_paid_for() -> None:
    slow = Paced("slow", 1.0, 1.0, 3.0)
    other = Paced("other", 1.0)
    entries = Playhouse().run(team(slow, other))
    twice = used(entries)[2]
    assert (slow.calls, other.calls, slow.cancelled + other.cancelled) == (3, 1, 0)
    assert twice == Amount(30, 30, 1)


def test_without_another_model_the_same_is_asked_again() -> None:
    model = Paced("one", 1.0, 1.0, 50.0, 1.0)
    entries = Playhouse().run(team(model))
    assert (model.calls, model.cancelled, len(replies(entries))) == (4, 1, 3)


def test_a_second_call_that_fails_is_no_loss() -> None:
    slow = Paced("slow", 1.0, 1.0, 5.0)
    bad = Paced("bad", (0.5, GONE))
    entries = Playhouse().run(team(slow, bad))
    assert replies(entries)[2].startswith('{"text":"done by slow"')
    assert (slow.cancelled, took(entries)[2]) == (0, pytest.approx(5.0, abs=0.01))


def test_a_first_call_that_fails_leaves_the_second() -> None:
    slow = Paced("slow", 1.0, 1.0, (3.0, GONE))
    good = Paced("good", 5.0)
    entries = Playhouse().run(team(slow, good))
    assert replies(entries)[2].startswith('{"text":"done by good"')
    assert (good.calls, took(entries)[2]) == (1, pytest.approx(7.0, abs=0.01))


def test_where_both_fail_the_next_models_stand_in() -> None:
    slow = Paced("slow", 1.0, 1.0, (3.0, GONE))
    bad = Paced("bad", (0.5, GONE))
    third = Paced("third", 1.0)
    entries = Playhouse().run(team(slow, bad, third))
    assert replies(entries)[2].startswith('{"text":"done by third"')
    assert (slow.calls, bad.calls, third.calls) == (3, 2, 1)
    alone = Paced("alone", 1.0, 1.0, (3.0, GONE))
    entries = Playhouse().run(team(alone))
    assert (alone.calls, len(replies(entries))) == (4, 2)


def test_a_first_call_that_fails_in_time_is_followed_by_the_next_model_as_ever() -> None:
    bad = Paced("bad", 1.0, 1.0, (1.0, GONE))
    good = Paced("good", 1.0)
    entries = Playhouse().run(team(bad, good))
    assert len(replies(entries)) == 3
    assert notes(entries) == ["falls back to model good: the line went dead"]


class Careless(Paced):
    """Raises what is no failure of a model: where it is given up, or after its time."""

    def __init__(self, handle: str, *times: float, late: bool = False) -> None:
        super().__init__(handle, *times)
        self._late = late

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        try:
            found = await super().reply(request, hear)
        except asyncio.CancelledError as error:
            raise ConnectionError("it was closed while it was used") from error
        if self._late and self.calls > 2:
            raise ValueError("a mistake in it")
        return found


def test_a_reply_is_not_lost_over_what_the_one_that_was_given_up_raises() -> None:
    slow = Careless("slow", 1.0, 1.0, 50.0)
    quick = Paced("quick", 1.0)
    entries = Playhouse().run(team(slow, quick))
    assert replies(entries)[2].startswith('{"text":"done by quick"')


def test_a_mistake_in_one_model_does_not_end_the_call_of_the_other() -> None:
    slow = Paced("slow", 1.0, 1.0, 9.0)
    wrong = Careless("wrong", 1.0, late=True)
    wrong.calls = 2
    entries = Playhouse().run(team(slow, wrong))
    assert replies(entries)[2].startswith('{"text":"done by slow"')
    slow = Careless("slow", 1.0, 1.0, 9.0, late=True)
    wrong = Paced("wrong", 2.0)
    assert replies(Playhouse().run(team(slow, wrong)))[2].startswith('{"text":"done by wrong"')


def test_a_mistake_without_any_reply_fails_the_attempt_as_ever() -> None:
    slow = Careless("slow", 1.0, 1.0, 9.0, late=True)
    wrong = Paced("wrong", (2.0, GONE))
    entries = Playhouse().run(team(slow, wrong))
    (failed,) = [one.event.failure for one in entries if isinstance(one.event, ev.AttemptFailed)]
    assert failed.kind == "network"  # of the model that it fell back to
    entries = Playhouse().run(team(Careless("alone", 1.0, 1.0, 1.0, late=True)))
    (failed,) = [one.event.failure for one in entries if isinstance(one.event, ev.AttemptFailed)]
    assert "a mistake in it" in failed.message


def test_calls_that_ended_with_their_run_say_nothing_of_how_long_calls_take() -> None:
    house = Playhouse()
    model = Paced("one", 1.0)
    spare = Paced("spare", 1.0)
    executor = team(model, spare, hedge=Hedge(share=0.5))

    async def stopped(number: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await house.drive(
                    executor, lambda one: one.start(f"stopped{number}", executor.request("Do it.", house.loop.time()))
                )

    for number in range(30):
        house.play(partial(stopped, number))
    assert len(replies(house.run(executor))) == 3
    assert (model.cancelled, spare.calls) == (30, 0)


# --- the rules


def test_no_more_calls_than_the_share_are_made_twice() -> None:
    slow = Paced("slow", 10.0)
    other = Paced("other", 1.0)
    Playhouse().run(team(slow, other, hedge=Hedge(after=2.0, share=0.1), tasks=200))
    assert 18 <= other.calls <= 20


def test_without_a_time_the_last_calls_say_what_is_unusual() -> None:
    early = Paced("early", *[1.0] * 15, 50.0, 1.0)
    other = Paced("other", 1.0)
    Playhouse().run(team(early, other, hedge=Hedge(share=0.5), tasks=17))
    assert other.calls == 0  # nobody knows yet
    late = Paced("late", *[1.0] * 25, 50.0, 1.0)
    other = Paced("other", 1.0)
    entries = Playhouse().run(team(late, other, hedge=Hedge(share=0.5), tasks=27))
    assert other.calls == 1
    assert took(entries)[25] == pytest.approx(2.1, abs=0.01)


def test_calls_under_a_budget_are_made_once() -> None:
    slow = Paced("slow", 1.0, 1.0, 50.0)
    quick = Paced("quick", 1.0)
    entries = Playhouse().run(team(slow, quick, budget=Budget(usd=0.1)))
    assert (slow.calls, quick.calls, len(replies(entries))) == (3, 0, 3)


def guarded(model: Model, house: Playhouse, pace: Pace | None = None) -> Guarded:
    clock = house.loop.time
    return Guarded(model, limiter=Limiter(pace, clock=clock), clock=clock, random=Random(7))


def test_a_provider_in_trouble_is_not_asked_twice() -> None:
    house = Playhouse()
    slow = Paced("slow", 1.0, 1.0, 50.0)
    other = Paced("other", 1.0)
    troubled = guarded(other, house)
    troubled.breaker.row = 1
    house.run(team(guarded(slow, house), troubled))
    assert other.calls == 0
    house = Playhouse()
    slow = Paced("slow", 1.0, 1.0, 50.0)
    house.run(team(guarded(slow, house), guarded(other, house)))
    assert other.calls == 1


def test_a_provider_without_room_is_not_asked_twice() -> None:
    house = Playhouse()
    slow = Paced("slow", 1.0, 1.0, 50.0, 1.0)
    other = Paced("other", 1.0)
    house.run(team(guarded(slow, house, Pace(concurrency=1)), hedge=HALF))
    assert slow.calls == 3  # the one place there is was taken by the first
    house = Playhouse()
    slow = Paced("slow", 1.0, 1.0, 50.0)
    held = guarded(other, house)
    house.play(lambda: _hold(held))
    house.run(team(guarded(slow, house), held))
    assert other.calls == 0


async def _hold(model: Guarded) -> None:
    model.limiter.hold(1_000.0)


def listened(executor: Team) -> tuple[list[str], list[ev.Entry]]:
    house = Playhouse()
    heard = list[str]()
    entries: list[ev.Entry] = []

    async def story() -> None:
        async with executor.executor() as staff:
            driver = Runner(
                MemoryJournal(),
                staff,
                wall=house.loop.time,
                ticks=house.loop.time,
                listener=lambda _, new: entries.extend(new),
                on_text=lambda _run, _work, text, _kind: heard.append(text),
            )
            await driver.start("run", executor.request("Do it all.", NOW))

    house.play(story)
    return heard, entries


def test_who_listens_hears_one_reply_and_whole() -> None:
    slow = Paced("slow", 1.0, 1.0, 50.0)
    quick = Paced("quick", 1.0)
    heard, _ = listened(team(slow, quick))
    assert heard == ["done.", "done.", "done by quick"]
    slow = Paced("slow", 1.0, 1.0, 2.5)
    other = Paced("other", 5.0)
    heard, _ = listened(team(slow, other))
    assert heard == ["done.", "done.", "done by slow"]


def test_once_a_word_was_heard_nobody_else_is_asked() -> None:
    slow = Paced("slow", 1.0, 1.0, 50.0, speaks=True)
    quick = Paced("quick", 1.0)
    heard, entries = listened(team(slow, quick))
    assert (quick.calls, slow.cancelled, len(replies(entries))) == (0, 0, 3)
    assert heard == ["Well, ", "done."] * 3


def test_when_the_attempt_is_over_both_calls_are() -> None:
    slow = Paced("slow", 1.0, 1.0, 500.0)
    other = Paced("other", 500.0)
    Playhouse().run(team(slow, other))  # a worker has 300 s
    assert (slow.cancelled, other.cancelled) == (1, 1)


def test_a_mistake_of_a_model_is_raised_as_it_is() -> None:
    class Odd(Paced):
        async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
            await super().reply(request, hear)
            raise RuntimeError("I am a mistake")

    entries = Playhouse().run(team(Odd("odd", 1.0)))
    failed = next(one.event for one in entries if isinstance(one.event, ev.AttemptFailed))
    assert failed.failure.message == "RuntimeError: I am a mistake"


def test_a_resumed_run_reads_the_reply_back_whoever_it_came_from() -> None:
    whole = Playhouse().run(team(Paced("slow", 1.0, 1.0, 50.0), Paced("quick", 1.0)))
    kept = next(n for n, one in enumerate(whole) if isinstance(one.event, ev.StepFinished) and one.event.task == "t2")
    again = Playhouse()

    async def before() -> None:
        lease = await again.journal.claim("run0", new=True)
        await again.journal.append(lease, whole[: kept + 1])
        await again.journal.release(lease)

    again.play(before)
    slow = Paced("slow", 1.0)
    quick = Paced("quick", 1.0)
    entries = again.resume(team(slow, quick), "run0")
    assert (slow.calls, quick.calls, len(replies(entries))) == (0, 0, 1)


def test_by_default_nothing_is_asked_twice() -> None:
    slow = Paced("slow", 1.0, 1.0, 290.0)
    quick = Paced("quick", 1.0)
    entries = Playhouse().run(team(slow, quick, hedge=None))
    assert (quick.calls, notes(entries)) == (0, [])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"after": 0.0}, "hedge.after is 0.0"),
        ({"after": float("nan")}, "hedge.after is nan"),
        ({"share": 0.0}, "share is 0.0; write a number from 0.001 to 0.5"),
        ({"share": 0.9}, "share is 0.9; write a number from 0.001 to 0.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        Hedge(**wrong)


# --- over real sockets


async def test_a_silent_server_and_a_quick_one_over_real_sockets() -> None:
    """Bob's model answers and ann's does not: after two of his calls one of hers may be made twice."""
    async with FaultServer() as server:
        silent = f"openai+{server.url('hang-before-headers')}#any"
        quick = f"openai+{server.url('ok')}#any"
        ann = Worker("ann", "asks", model=silent, fallback_models=[quick], estimate=Amount(micros=1))
        bob = Worker("bob", "asks too", model=quick)
        wanted = [Task(TaskId(f"b{n}"), f"ask for part number {n} of it", "bob") for n in range(2)]
        last = Task(TaskId("a"), "ask for the last part of it", "ann", after=(TaskId("b0"), TaskId("b1")))
        executor = Team(
            [ann, bob],
            supervisor=Supervisor(plan=Plan((*wanted, last), "none"), hedge=Hedge(after=0.2, share=0.5)),
            timeout=30.0,
            lookup=lambda _: None,
        )
        began = asyncio.get_running_loop().time()
        found = await executor.run("Do it.")
        took = asyncio.get_running_loop().time() - began
        assert (found.ending, 0.2 < took < 10.0) == ("complete", True)
        assert (server.requests["hang-before-headers"], server.requests["ok"]) == (1, 3)
