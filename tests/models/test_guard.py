"""The guard on virtual time: what is tried again, what is not, who is left alone, and what it cost."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from typing import TypeVar

import pytest

from chargehand.engine.failure import Failure
from chargehand.engine.policy import Breaking, Retry
from chargehand.models.call_errors import CallFailed
from chargehand.models.guard import Guarded
from chargehand.models.limits import Limiter, Pace
from chargehand.models.messages import Message, Reply, Request, Settings, Usage
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.prices import PriceTag, flat
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.waits import Wait, collect_waits
from tests.sim.loop import VirtualLoop
from tests.support.hearing import Heard, hear_answer

HELLO = Request([Message("user", "hello")])
T = TypeVar("T")


def http(status: int, kind: str = "network", wait: float = 0.0, permanent: bool = False) -> CallFailed:
    return CallFailed(Failure(kind, f"answered {status}", wait, permanent), status=status)  # pyright: ignore[reportArgumentType] - kinds of a test


def lost() -> CallFailed:
    return http(0)


def too_much(wait: float = 0.0) -> CallFailed:
    return http(429, "resource", wait)


class Stage:
    """A guard around a script, on a loop where time is a number."""

    def __init__(
        self,
        script: list[Line] | Callable[[Request], Line],
        *,
        pace: Pace | None = None,
        latency: float = 0.0,
        repeat: bool = False,
        prices: PriceTag | None = None,
        retry: Retry | None = None,
        breaking: Breaking | None = None,
    ) -> None:
        self.loop = VirtualLoop(1000.0)
        self.model = ScriptedModel(script, latency=latency, repeat=repeat)
        self.guard = Guarded(
            self.model,
            limiter=Limiter(pace, clock=self.loop.time),
            prices=prices,
            retry=retry or Retry(),
            breaking=breaking or Breaking(),
            clock=self.loop.time,
            random=Random(7),
        )

    @property
    def calls(self) -> int:
        return len(self.model.requests)

    @property
    def seconds(self) -> float:
        return self.loop.time() - 1000.0

    def play(self, story: Callable[[], Awaitable[T]]) -> T:
        async def told() -> T:
            return await story()

        return self.loop.run_until_complete(told())

    def ask(self, hear: Hear | None = None, request: Request = HELLO) -> Reply | Failure:
        return self.play(lambda: self.outcome(hear, request))

    async def outcome(self, hear: Hear | None = None, request: Request = HELLO) -> Reply | Failure:
        try:
            return await self.guard.reply(request, hear)
        except ModelFailed as error:
            return error.failure

    def wait(self, seconds: float) -> None:
        self.play(lambda: asyncio.sleep(seconds))


@pytest.mark.parametrize("fault", [lost(), http(500), http(503), http(529), http(408), http(409), too_much()])
def test_what_failed_on_the_way_is_tried_again_and_the_third_time_counts(fault: CallFailed) -> None:
    stage = Stage([fault, fault, "fine"])
    came = stage.ask()
    assert isinstance(came, Reply)
    assert (came.text, stage.calls) == ("fine", 3)
    assert 0 < stage.seconds <= 0.5 + 1.0


def test_no_call_is_made_more_than_three_times() -> None:
    stage = Stage([lost()], repeat=True)
    assert isinstance(stage.ask(), Failure)
    assert stage.calls == 3


@pytest.mark.parametrize(
    "fault",
    [
        http(400, "logic", permanent=True),
        http(401, "resource", permanent=True),
        http(404, "logic", permanent=True),
        CallFailed(Failure("timeout", "too late")),
        too_much(wait=61.0),
        http(503, wait=86_400.0),
    ],
)
def test_what_would_fail_again_is_not_tried_again(fault: CallFailed) -> None:
    stage = Stage([fault, "never said"])
    assert stage.ask() == fault.failure
    assert stage.calls == 1


def test_nothing_is_tried_again_once_a_word_was_heard() -> None:
    class Breaks:
        calls = 0

        @property
        def card(self) -> ModelCard:
            return ModelCard("breaks")

        async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
            self.calls += 1
            assert hear is not None
            hear("half a")
            raise lost()

    heard: list[str] = []
    model = Breaks()
    with pytest.raises(ModelFailed):
        asyncio.run(Guarded(model).reply(HELLO, hear_answer(heard)))
    assert (model.calls, heard) == (1, ["half a"])


def test_a_call_that_broke_while_its_model_was_thinking_is_tried_again() -> None:
    class Thinks:
        calls = 0

        @property
        def card(self) -> ModelCard:
            return ModelCard("thinks")

        async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
            self.calls += 1
            assert hear is not None
            hear("I wonder", "thought")
            if self.calls == 1:
                raise lost()
            hear("fine")
            return Reply("fine")

    async def pause(_seconds: float) -> None:
        pass

    heard = Heard()
    model = Thinks()
    reply = asyncio.run(Guarded(model, sleep=pause).reply(HELLO, heard))
    assert (model.calls, reply.text, heard.answer, heard.thoughts) == (2, "fine", ["fine"], ["I wonder"] * 2)


def test_what_the_provider_asks_us_to_wait_is_waited() -> None:
    stage = Stage([too_much(wait=20.0), "fine"])
    assert isinstance(stage.ask(), Reply)
    assert stage.seconds == pytest.approx(20.0, abs=0.01)


def test_whoever_looks_on_sees_why_a_call_waits_as_long_as_it_does() -> None:
    stage = Stage([too_much(wait=20.0), "fine"])
    seen: list[Wait] = []

    async def ask() -> None:
        with collect_waits() as waits:
            stage.loop.call_later(10.0, lambda: seen.extend(waits))
            assert (await stage.guard.reply(HELLO)).text == "fine"
            assert waits == []

    stage.play(ask)
    (wait,) = seen
    assert wait.who == stage.guard.card.handle
    assert wait.why in str(too_much().failure.message)
    assert wait.until is not None


def test_a_pause_holds_for_every_model_of_that_credential() -> None:
    stage = Stage([too_much(wait=20.0), "fine"], retry=Retry(attempts=1))
    other = Guarded(ScriptedModel(["fine"]), limiter=stage.guard.limiter, clock=stage.loop.time)
    assert isinstance(stage.ask(), Failure)
    assert stage.play(lambda: other.reply(HELLO)).text == "fine"
    assert stage.seconds == pytest.approx(20.0, abs=0.01)


def test_a_long_pause_fails_every_call_at_once_and_says_how_long() -> None:
    stage = Stage([too_much(wait=600.0), "fine"])
    assert isinstance(stage.ask(), Failure)
    stage.wait(100.0)
    came = stage.ask()
    assert isinstance(came, Failure)
    assert (came.kind, came.retry_after, stage.calls) == ("resource", 500.0, 1)
    assert "another 500 s" in came.message
    stage.wait(450.0)
    assert isinstance(stage.ask(), Reply)
    assert stage.seconds == pytest.approx(600.0, abs=0.01)


def test_being_asked_to_slow_down_halves_how_many_go_at_once() -> None:
    stage = Stage(lambda _: too_much() if stage.calls <= 16 else "fine", pace=Pace(concurrency=16), latency=1.0)

    async def crowd() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(stage.outcome())

    stage.play(crowd)
    assert stage.guard.limiter.allowed < 10


def test_the_breaker_opens_after_five_failures_and_nobody_is_asked_until_it_may() -> None:
    stage = Stage([lost()], repeat=True, retry=Retry(attempts=1))
    for _ in range(5):
        stage.ask()
    came = stage.ask()
    assert isinstance(came, Failure)
    assert (came.kind, came.retry_after, stage.calls) == ("resource", 30.0, 5)
    assert "in 30 s" in came.message


def test_the_breaker_opens_when_half_of_the_last_twenty_failed() -> None:
    stage = Stage(lambda _: "fine" if stage.calls % 2 else lost(), retry=Retry(attempts=1))
    for _ in range(20):
        stage.ask()
    assert stage.calls == 20
    stage.ask()
    assert stage.calls == 20


@pytest.mark.parametrize("fault", [http(400, "logic", permanent=True), http(401, "resource", permanent=True)])
def test_what_is_not_the_providers_fault_never_opens_the_breaker(fault: CallFailed) -> None:
    stage = Stage([fault], repeat=True, retry=Retry(attempts=1))
    for _ in range(30):
        stage.ask()
    assert stage.calls == 30


NOTHING_SAID = http(0, "logic")
FILTERED = Reply("no", finish="refused")


@pytest.mark.parametrize("line", [NOTHING_SAID, http(0, "resource"), FILTERED], ids=["empty", "too large", "refused"])
def test_replies_of_no_use_open_no_breaker_and_a_tenth_of_them_are_asked_for_again(line: Line) -> None:
    stage = Stage([line], repeat=True)
    came = [stage.ask() for _ in range(100)]
    assert (stage.guard.breaker.opened, stage.guard.breaker.row, stage.seconds) == (0, 0, 0.0)
    if line is FILTERED:  # which is a reply
        assert stage.calls == 100
        return
    assert stage.calls == 110
    assert all(isinstance(one, Failure) and one.permanent and not one.retry_after for one in came)


@pytest.mark.parametrize("line", [NOTHING_SAID, http(0, "resource")], ids=["empty", "too large"])
def test_a_reply_of_no_use_now_and_then_is_asked_for_again_at_once(line: Line) -> None:
    stage = Stage(lambda _: "fine" if stage.calls % 30 else line)
    assert all(isinstance(stage.ask(), Reply) for _ in range(100))
    assert stage.calls == 103


def test_a_task_that_pays_for_a_call_once_may_make_it_again_where_retries_are_left() -> None:
    stage = Stage([NOTHING_SAID], repeat=True)
    came = [stage.ask(request=Request((), pay_once=True)) for _ in range(9)]
    assert stage.calls == 9
    assert [isinstance(one, Failure) and one.permanent for one in came] == [False] * 3 + [True] * 6


@pytest.mark.parametrize("line", [NOTHING_SAID, FILTERED], ids=["empty", "refused"])
def test_a_probe_that_is_answered_closes_the_breaker_whatever_the_answer(line: Line) -> None:
    stage = Stage([*[http(500)] * 5, line], repeat=True, retry=Retry(attempts=1))
    for _ in range(6):
        stage.ask()
    assert (stage.calls, stage.guard.breaker.opened) == (5, 1)
    stage.wait(30.0)
    stage.ask()
    assert stage.guard.breaker.opened == 0


def test_who_only_refuses_is_left_alone_ever_longer_and_shut_after_a_minute() -> None:
    stage = Stage([too_much()], repeat=True, retry=Retry(attempts=1))
    at: list[float] = []
    while not stage.guard.breaker.opened:
        stage.ask()
        at.append(stage.seconds)
    assert 60.0 <= at[-1] <= 125.0
    assert stage.calls <= 9
    gaps = [later - sooner for sooner, later in pairwise(at)]
    assert all(0.25 * 2**n <= gap <= 0.501 * 2**n for n, gap in enumerate(gaps[:6]))


def test_a_wait_the_provider_asks_for_is_kept_when_it_is_longer_than_ours() -> None:
    stage = Stage([too_much(wait=7.0)], repeat=True, retry=Retry(attempts=1))
    for _ in range(3):
        stage.ask()
    assert stage.seconds == pytest.approx(14.0, abs=0.01)


def test_who_says_one_second_and_then_serves_is_not_shut() -> None:
    """A burst of refusals is one, and a reply ends it: fifty such bursts shut nobody."""
    stage = Stage(lambda _: too_much(wait=1.0) if stage.loop.time() % 2 < 0.5 else "fine", latency=0.01)

    async def crowd() -> list[Reply | Failure]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(stage.outcome()) for _ in range(20)]
        return [task.result() for task in tasks]

    for _ in range(50):
        assert [type(one) for one in stage.play(crowd)] == [Reply] * 20
        stage.wait(2.0 - stage.loop.time() % 2)


def test_calls_that_need_not_be_made_are_for_quiet_times() -> None:
    stage = Stage([lost(), "fine", too_much(), "fine"], retry=Retry(attempts=1))
    assert stage.guard.is_calm
    stage.ask()
    assert not stage.guard.is_calm  # its last call failed
    stage.ask()
    assert stage.guard.is_calm
    stage.ask()
    assert not stage.guard.is_calm  # it wants less
    full = Stage(["fine"], repeat=True, latency=1.0, pace=Pace(concurrency=1))

    async def look() -> bool:
        async with asyncio.TaskGroup() as group:
            group.create_task(full.outcome())
            await asyncio.sleep(0.5)
            return full.guard.is_calm

    assert not full.play(look)  # no room


def test_one_probe_goes_first_and_its_success_closes_the_breaker() -> None:
    stage = Stage(lambda _: lost() if stage.calls <= 5 else "fine", latency=1.0, retry=Retry(attempts=1))

    async def crowd() -> list[Reply | Failure]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(stage.outcome()) for _ in range(4)]
        return [task.result() for task in tasks]

    for _ in range(5):
        stage.ask()
    stage.wait(31.0)
    assert sorted(type(one).__name__ for one in stage.play(crowd)) == ["Failure", "Failure", "Failure", "Reply"]
    assert stage.calls == 6
    assert [type(one) for one in stage.play(crowd)] == [Reply] * 4


def test_a_probe_that_fails_opens_the_breaker_for_longer() -> None:
    stage = Stage([lost()], repeat=True, retry=Retry(attempts=1))
    for _ in range(5):
        stage.ask()
    stage.wait(30.0)
    stage.ask()
    came = stage.ask()
    assert isinstance(came, Failure)
    assert (came.retry_after, stage.calls) == (60.0, 6)


@pytest.mark.parametrize("ending", ["cancelled", "refused"])
def test_a_probe_that_says_nothing_of_the_provider_makes_way_for_the_next(ending: str) -> None:
    script: list[Line] = [*[lost()] * 5, http(400, "logic", permanent=True), "fine"]
    stage = Stage(script, latency=1.0, retry=Retry(attempts=1))
    for _ in range(5):
        stage.ask()
    stage.wait(30.0)

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await stage.guard.reply(HELLO)

    if ending == "cancelled":
        stage.play(cancelled)
    assert isinstance(stage.ask(), Failure)
    assert isinstance(stage.ask(), Reply)


def test_a_total_outage_is_not_made_worse_by_retries() -> None:
    """1,000 calls a minute, all of which fail: a tenth more is sent. The breaker, which would help, is shut off."""
    never = Breaking(consecutive=10**6, sample=10**6)
    stage = Stage([lost()], repeat=True, latency=0.2, breaking=never, pace=Pace(concurrency=1000))

    async def minutes(number: int) -> list[int]:
        sent: list[int] = []
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                before = stage.calls
                for _ in range(1000):
                    group.create_task(stage.outcome())
                    await asyncio.sleep(0.06)
                sent.append(stage.calls - before)
        return sent

    first, second, third = stage.play(lambda: minutes(3))
    assert 1050 < first <= 1110  # while there were few calls, three at once were retried
    assert 1050 < second <= 1100
    assert 1050 < third <= 1100


def test_with_its_breaker_an_outage_costs_a_handful_of_calls() -> None:
    stage = Stage([lost()], repeat=True, latency=0.2, pace=Pace(concurrency=1000))

    async def outage() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(1000):
                group.create_task(stage.outcome())
                await asyncio.sleep(0.06)

    stage.play(outage)
    assert stage.calls < 20


def test_whoever_gives_up_while_waiting_takes_nothing_with_it() -> None:
    stage = Stage([lost()], repeat=True, retry=Retry(base=10.0))

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await stage.guard.reply(HELLO)

    stage.play(impatient)
    assert (stage.guard.limiter.active, stage.guard.limiter.retries.running) == (0, 0)


def test_a_reply_is_given_its_price() -> None:
    stage = Stage([Reply("hi", usage=Usage(1000, 100, 200))], prices=PriceTag("", "m", fixed=flat(2.0, 10.0, 1.0)))
    came = stage.ask()
    assert isinstance(came, Reply)
    assert came.micros == 800 * 2 + 200 * 1 + 100 * 10


def test_a_price_the_provider_reports_is_kept() -> None:
    stage = Stage([Reply("hi", usage=Usage(1000, 100), micros=5)], prices=PriceTag("", "m", fixed=flat(2.0, 10.0)))
    came = stage.ask()
    assert isinstance(came, Reply)
    assert came.micros == 5


def test_a_price_that_was_given_counts_for_a_server_on_this_machine_too() -> None:
    local = "http://127.0.0.1:8790/v1"
    assert PriceTag("openai", "m", base_url=local).find() is None
    assert PriceTag("openai", "m", base_url=local, otherwise=flat(2.0, 10.0)).find() == flat(2.0, 10.0)


def test_the_card_says_what_is_known_of_the_price() -> None:
    known = Stage(["hi"], prices=PriceTag("", "m", fixed=flat(2.0, 10.0)))
    assert known.guard.card.price(Usage(1000, 100)) == 3000
    assert Stage(["hi"]).guard.card.price(Usage(1000, 100)) is None


async def test_a_price_that_was_looked_up_is_on_the_card() -> None:
    by_call = Guarded(ScriptedModel([Reply("hi", usage=Usage(1, 1))]), prices=PriceTag("openai", "gpt-4o"))
    assert by_call.card.micros_in is None
    reply = await by_call.reply(HELLO)
    before = Guarded(ScriptedModel([]), prices=PriceTag("openai", "gpt-4o"))
    await before.prepare()
    assert before.card == by_call.card
    assert before.card.price(Usage(1, 1)) == reply.micros
    unknown = Guarded(ScriptedModel([]), prices=PriceTag("openai", "no-such-model"))
    await unknown.prepare()
    assert unknown.card.micros_in is None


async def test_a_price_by_the_hour_is_that_of_the_hour_of_the_call() -> None:
    now = datetime(2026, 11, 19, 0, 59, tzinfo=UTC).timestamp()  # a minute before this model's dear hours
    tag = PriceTag("deepseek", "deepseek-v4-flash", clock=lambda: now)
    guard = Guarded(ScriptedModel([Reply("hi", usage=Usage(1000, 100))], repeat=True), prices=tag)
    usual = await guard.reply(HELLO)
    now += 60
    dear = await guard.reply(HELLO)
    assert usual.micros is not None
    assert dear.micros is not None
    assert usual.micros < dear.micros == guard.card.price(Usage(1000, 100))


def test_without_usage_nobody_knows_the_price() -> None:
    stage = Stage([Reply("hi")], prices=PriceTag("", "m", fixed=flat(2.0, 10.0)))
    came = stage.ask()
    assert isinstance(came, Reply)
    assert (came.micros, came.usage) == (None, None)


def test_tries_that_were_paid_for_in_vain_are_in_the_bill() -> None:
    garbled = CallFailed(Failure("network", "two calls of one id"), Usage(100, 10))
    stage = Stage([garbled, Reply("hi", usage=Usage(100, 20))], prices=PriceTag("", "m", fixed=flat(1.0, 1.0)))
    came = stage.ask()
    assert isinstance(came, Reply)
    assert (came.usage, came.micros) == (Usage(200, 30), 230)
    stage = Stage([garbled, CallFailed(Failure("logic", "nothing"), Usage(1, 1))])
    with pytest.raises(ModelFailed) as caught:
        stage.play(lambda: stage.guard.reply(HELLO))
    assert caught.value.usage == Usage(101, 11)


def test_tokens_are_guessed_before_and_booked_after() -> None:
    stage = Stage([Reply("hi", usage=Usage(10, 5))], repeat=True, pace=Pace(tokens_per_minute=1000))
    request = Request([Message("user", "x" * 400)], settings=Settings(max_tokens=500))
    for _ in range(20):  # guessed at 600 each, they would take twenty minutes
        stage.play(lambda: stage.guard.reply(request))
    assert stage.seconds == 0.0


def test_a_guard_is_the_model_it_guards() -> None:
    closed: list[bool] = []

    class Closes(ScriptedModel):
        async def close(self) -> None:
            closed.append(True)

    guard = Guarded(Closes(["hi"], handle="x:y"))
    asyncio.run(guard.close())
    asyncio.run(Guarded(ScriptedModel(["hi"])).close())
    assert (guard.card.handle, closed) == ("x:y", [True])
